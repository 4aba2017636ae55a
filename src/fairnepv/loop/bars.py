"""Progress for people: the stage that is running and the time left, in a terminal or a notebook.

A bar listens to the loop. It knows a stage's end where the stage does: greedy counts items, the
relaxation has a residual to bring down to its tolerance. A local search ends when nothing improves,
which nobody can foretell, so it shows the time left only under a time limit. Rich is imported where
a bar is shown.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fairnepv.display import shown
from fairnepv.loop.driver import Progress, Step

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import Task, TaskID

DELAY = 2.0  # seconds after which a bar appears by itself
_PAINTED = 0.25  # seconds between two pictures of a bar in a notebook
_PREPARING = "preparing"  # before the first stage: rows are read, checked and calibrated
# Stages that have others within: the heading of their line, and which detail says what is running.
OVERALL = {
    "compare": ("selectors", "selector"),
    "stability": ("variants", "variant"),
    "tradeoff": ("floors", "floor"),
    "sizes": ("sizes", "k"),
}

P = ParamSpec("P")
R = TypeVar("R")
_is_told: ContextVar[bool] = ContextVar("progress is told", default=False)


def telling(function: Callable[P, R]) -> Callable[P, R]:
    """A function that users call, with `progress` as they may give it: a function of a `Step`, True
    for a bar, False for none, None for one that appears in interactive use after two seconds. What
    it calls in turn is part of it, and shows no bar of its own."""

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        wanted: Any = options.get("progress")
        if wanted is not None and not isinstance(wanted, bool):
            return function(*arguments, **options)
        with _listener(wanted, options.get("time_limit")) as progress:
            given: Any = {**options, "progress": progress}
            return function(*arguments, **given)

    return call


@contextlib.contextmanager
def _listener(wanted: bool | None, time_limit: Any) -> Iterator[Progress | None]:
    automatic = wanted is None
    silent = wanted is False or (automatic and (_is_told.get() or not _is_interactive()))
    limit = time_limit if isinstance(time_limit, int | float) else None
    token = _is_told.set(True)
    try:
        if silent:
            yield None
        else:
            with stage_bar(limit, delay=DELAY if automatic else 0.0) as progress:
                yield progress
    finally:
        _is_told.reset(token)


def _shell() -> Any:
    """IPython's, if that is running."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _is_interactive() -> bool:
    """Whether a person is typing: a prompt of Python or IPython, or a notebook."""
    return hasattr(sys, "ps1") or _shell() is not None


# --- where a bar is shown -------------------------------------------------------------------------


@contextlib.contextmanager
def stage_bar(time_limit: float | None = None, *, delay: float = 0.0) -> Iterator[Progress]:
    """A listener for `progress=` that shows the running stage, its step and the fair score."""
    with progress_bar(delay=delay) as bar:
        yield StageBar(bar, time_limit)


@contextlib.contextmanager
def rows_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A listener that is told how many rows of how many are done."""
    with progress_bar() as bar:
        task = bar.add_task(what, total=None, said="")

        def listen(done: int, of: int) -> None:
            bar.update(task, total=of, completed=done, said=f"row {done:,} of {of:,}")

        yield listen


@contextlib.contextmanager
def progress_bar(*, delay: float = 0.0) -> Iterator[Bar]:
    """Lines with a clock, which have a field `said`: on stderr, where that is a terminal, or below
    the running cell of a notebook."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn
    from rich.progress import Progress as Bar

    notebook = hasattr(_shell(), "kernel")
    console = Console(stderr=True, force_jupyter=False)
    text, times = _columns()
    columns = (
        SpinnerColumn(),
        text("{task.description:<14}"),
        BarColumn(bar_width=24),
        text("{task.fields[said]:<28}"),
        times(),
    )
    silent = not (notebook or console.is_terminal)
    bar = Bar(*columns, console=console, transient=True, disable=silent or notebook)
    screen = _Notebook(bar) if notebook else bar
    lock, over = threading.Lock(), threading.Event()

    def begin() -> None:
        with lock:
            if not over.is_set():
                screen.start()

    clock = threading.Timer(delay, begin)
    clock.daemon = True
    if delay and not silent:
        clock.start()
    elif not silent:
        begin()
    try:
        yield bar
    finally:
        with lock:
            over.set()
        clock.cancel()
        screen.stop()


class _Notebook:
    """A bar below the cell that is running, painted again and again while that computes: what Rich
    has for notebooks needs ipywidgets."""

    def __init__(self, bar: Bar) -> None:
        self._bar, self._over = bar, threading.Event()
        self._handle: Any = None
        self._painter = threading.Thread(target=self._paint, daemon=True)

    def start(self) -> None:
        from IPython.display import HTML, display

        self._handle = display(HTML(html_of(self._bar)), display_id=True)
        self._painter.start()

    def stop(self) -> None:
        from IPython.display import HTML

        if self._handle is not None:
            self._over.set()
            self._painter.join()
            self._handle.update(HTML(""))

    def _paint(self) -> None:
        from IPython.display import HTML

        while not self._over.wait(_PAINTED):
            self._handle.update(HTML(html_of(self._bar)))


def html_of(bar: Bar) -> str:
    """The lines of a bar for a browser."""
    from html import escape

    rows = []
    for task in bar.tasks:
        share = "" if task.total is None else f' value="{task.percentage:.1f}"'
        cells = (task.description, None, task.fields["said"], times_of(task))
        told = [
            f'<progress max="100"{share}></progress>' if c is None else escape(shown(c))
            for c in cells
        ]
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in told)}</tr>")
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _columns() -> tuple[Any, Any]:
    """Rich's columns of ours."""
    from rich.progress import ProgressColumn, TextColumn
    from rich.text import Text

    class PlainColumn(TextColumn):
        """Text with names from data, which Rich must not take for markup."""

        def render(self, task: Task) -> Text:
            return Text(shown(self.text_format.format(task=task)))

    class TimesColumn(ProgressColumn):
        """How long it has taken, and where that is known how long it will."""

        def render(self, task: Task) -> Text:
            return Text(times_of(task))

    return PlainColumn, TimesColumn


def times_of(task: Task) -> str:
    """The time of a task, such as "0:12", and "0:12, 0:48 left" where its end is known."""
    taken = task.finished_time if task.finished else task.elapsed
    told = _clock(taken or 0.0)
    left = None if task.finished or task.total is None else task.time_remaining
    if "end" in task.fields:  # of a time limit, which is known better than any pace
        left = max(0.0, task.fields["end"] - time.monotonic())
    return told if left is None else f"{told}, {_clock(left)} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# --- what is shown --------------------------------------------------------------------------------


class StageBar:
    """One line for the stage at hand, and one above it for what has several searches in it."""

    def __init__(self, bar: Bar, time_limit: float | None) -> None:
        self._bar, self._limit = bar, time_limit
        self._began = time.monotonic()
        self._overall: TaskID | None = None
        self._stage: TaskID | None = bar.add_task(_PREPARING, total=None, said="")
        self._name = _PREPARING
        self._first_residual: float | None = None

    def __call__(self, row: Step) -> None:
        if row.stage in OVERALL:
            self._turn(row)
            return
        if self._name != row.stage or row.step == 0:
            self._enter(row)
        assert self._stage is not None
        share = self._share(row)
        total = None if share is None else 1.0
        said = f"step {row.step:>5}  value {row.objective:.5f}{_above(row)}"
        timed = self._limit is not None and "of" not in row.details
        end: Any = {"end": self._began + (self._limit or 0.0)} if timed else {}
        self._bar.update(self._stage, total=total, completed=share or 0.0, said=said, **end)

    def _turn(self, row: Step) -> None:
        heading, running = OVERALL[row.stage]
        said = f"now: {row.details[running]}"
        if self._overall is None:
            self._overall = self._bar.add_task(heading, said=said)
        total, done = row.details["of"], row.details["size"]
        self._bar.update(self._overall, total=total, completed=done, said=said)

    def _enter(self, row: Step) -> None:
        """A fresh line, so that its clock and its pace are those of the stage."""
        if self._stage is not None:
            self._bar.remove_task(self._stage)
        self._stage = self._bar.add_task(row.stage, total=None, said="")
        self._name = row.stage
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
