"""Progress on stderr with the time left; silent when stderr is not a terminal.

The bar listens to the loop. It knows a stage's end where the stage does: greedy counts items, the
relaxation has a residual to bring down to its tolerance. A local search ends when nothing improves,
which nobody can foretell, so it shows the time left only under a time limit.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator

from rich import progress as bars
from rich.console import Console
from rich.text import Text

from fairnepv.display import shown
from fairnepv.loop import Progress as Listener
from fairnepv.loop import Step


class PlainColumn(bars.TextColumn):
    """Text with names from data, which Rich must not take for markup."""

    def render(self, task: bars.Task) -> Text:
        return Text(shown(self.text_format.format(task=task)))


_COLUMNS = (
    bars.SpinnerColumn(),
    PlainColumn("{task.description:<14}"),
    bars.BarColumn(bar_width=24),
    PlainColumn("{task.fields[said]:<28}"),
    bars.TimeElapsedColumn(),
    bars.TimeRemainingColumn(),
    bars.TextColumn("left"),
)


def progress_bar() -> bars.Progress:
    """Lines with a clock; they have a field `said`."""
    console = Console(stderr=True)
    silent = not console.is_terminal
    return bars.Progress(*_COLUMNS, console=console, transient=True, disable=silent)


@contextlib.contextmanager
def stage_bar(time_limit: float | None = None) -> Iterator[Listener]:
    """A listener for `progress=` that shows the running stage, its step and the fair score."""
    with progress_bar() as bar:
        yield StageBar(bar, time_limit)


@contextlib.contextmanager
def rows_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A listener that is told how many rows of how many are done."""
    with progress_bar() as bar:
        task = bar.add_task(what, total=None, said="")

        def listen(done: int, of: int) -> None:
            bar.update(task, total=of, completed=done, said=f"row {done:,} of {of:,}")

        yield listen


class StageBar:
    """One line for the stage at hand, and one above it for a comparison of selectors."""

    def __init__(self, bar: bars.Progress, time_limit: float | None) -> None:
        self._bar, self._limit = bar, time_limit
        self._began = time.monotonic()
        self._overall: bars.TaskID | None = None
        self._stage: bars.TaskID | None = None
        self._first_residual: float | None = None

    def __call__(self, row: Step) -> None:
        if row.stage == "compare":
            self._compare(row)
            return
        if self._stage is None or row.step == 0:
            self._enter(row)
        assert self._stage is not None
        share = self._share(row)
        total = None if share is None else 1.0
        said = f"step {row.step:>5}  value {row.objective:.5f}{_above(row)}"
        self._bar.update(self._stage, total=total, completed=share or 0.0, said=said)

    def _compare(self, row: Step) -> None:
        said = f"now: {row.details['selector']}"
        if self._overall is None:
            self._overall = self._bar.add_task("selectors", said=said)
        total, done = row.details["of"], row.details["size"]
        self._bar.update(self._overall, total=total, completed=done, said=said)

    def _enter(self, row: Step) -> None:
        """A fresh line, so that its clock and its pace are those of the stage."""
        if self._stage is not None:
            self._bar.remove_task(self._stage)
        self._stage = self._bar.add_task(row.stage, total=None, said="")
        self._first_residual = row.residual

    def _share(self, row: Step) -> float | None:
        """How much of the stage is done, where that can be told."""
        if "of" in row.details:
            return float(row.details["size"]) / float(row.details["of"])
        if self._limit is not None:
            return min(1.0, (time.monotonic() - self._began) / self._limit)
        tol = row.details.get("tol")
        if tol and row.residual and self._first_residual and self._first_residual > tol:
            whole = math.log(self._first_residual / tol)
            return max(0.0, min(1.0, math.log(self._first_residual / row.residual) / whole))
        return None


def _above(row: Step) -> str:
    """What is proven so far, where a stage proves something."""
    upper = row.details.get("upper", row.details.get("bound"))
    if upper is None:
        return ""
    nodes = f"  open nodes {row.details['open']:,}" if "open" in row.details else ""
    return f"  at most {upper:.5f}{nodes}"
