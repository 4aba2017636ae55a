"""A line of progress for each step of a command of several steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.progress import TaskID

from fairnepv.cli import log
from fairnepv.cli.progress import progress_bar


@contextlib.contextmanager
def steps_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A listener that is told the step at hand, how much of it is done, and of how much."""
    tasks: dict[str, TaskID] = {}
    with progress_bar() as bar:

        def listen(step: str, done: int, of: int) -> None:
            log.tell_rows(step, done, of)
            if step not in tasks:
                tasks[step] = bar.add_task(step, total=of, said="")
            bar.update(tasks[step], total=of, completed=done, said=f"{done:,} of {of:,}")

        yield listen
