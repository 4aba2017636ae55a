"""A progress bar on stderr that listens to the loop; silent when stderr is not a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fairnepv.loop import Progress as Listener
from fairnepv.loop import Step


@contextlib.contextmanager
def stage_bar() -> Iterator[Listener]:
    """A listener for `progress=` that shows the running stage, its step and the fair score."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=20),
        TextColumn("step {task.fields[step]:>4}  value {task.fields[value]:.4f}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None, step=0, value=0.0)

        def listen(row: Step) -> None:
            total = row.details.get("of")
            done = row.details.get("size", 0)
            bar.update(
                task,
                description=row.stage,
                total=total,
                completed=done,
                step=row.step,
                value=row.objective,
            )

        yield listen
