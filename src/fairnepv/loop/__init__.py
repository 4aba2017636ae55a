"""The one loop that drives every solver and search, several runs under one clock, and their states
in a file (the seam of resumable states)."""

from fairnepv.loop.context import MOMENT as MOMENT
from fairnepv.loop.context import Context as Context
from fairnepv.loop.driver import Budget as Budget
from fairnepv.loop.driver import Outcome as Outcome
from fairnepv.loop.driver import Progress as Progress
from fairnepv.loop.driver import Step as Step
from fairnepv.loop.driver import check_progress as check_progress
from fairnepv.loop.driver import run as run
from fairnepv.loop.journal import StoredRun as StoredRun
from fairnepv.loop.journal import pack as pack
from fairnepv.loop.journal import unpack as unpack
