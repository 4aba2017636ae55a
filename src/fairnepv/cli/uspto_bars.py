"""Progress of the steps of the protocol: one line per stage, with the time left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress, TaskID

from fairnepv.cli.progress import _COLUMNS


@contextlib.contextmanager
def steps_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A listener that is told the stage, how much of it is done, and of how much."""
    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    with Progress(
        *_COLUMNS, console=console, transient=True, disable=not console.is_terminal
    ) as bar:

        def listen(stage: str, done: int, of: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=of, said="")
            bar.update(tasks[stage], total=of, completed=done, said=f"{done:,} of {of:,}")

        yield listen
