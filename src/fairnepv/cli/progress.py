"""Progress of commands: the bars of the library, on stderr, and only where that is a terminal."""

from fairnepv.loop.bars import StageBar as StageBar
from fairnepv.loop.bars import progress_bar as progress_bar
from fairnepv.loop.bars import rows_bar as rows_bar
from fairnepv.loop.bars import stage_bar as stage_bar
