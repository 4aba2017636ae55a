"""Progress of commands: the bars of the library, on stderr, and only where that is a terminal; and
what a log file tells of it."""

import contextlib
from collections.abc import Callable, Iterator

from fairnepv.cli import log
from fairnepv.loop import Progress, bars
from fairnepv.loop.bars import StageBar as StageBar
from fairnepv.loop.bars import progress_bar as progress_bar


@contextlib.contextmanager
def stage_bar(time_limit: float | None = None) -> Iterator[Progress | None]:
    """A listener for `progress=`: the stage at hand, its step and the fair score."""
    with bars.stage_bar(time_limit) as bar, log.also_told(bar) as listener:
        yield listener


@contextlib.contextmanager
def rows_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A listener that is told how many rows of how many are done."""
    with bars.rows_bar(what) as bar:

        def listen(done: int, of: int) -> None:
            log.tell_rows(what, done, of)
            bar(done, of)

        yield listen
