"""The one loop that drives every solver and search, several runs under one clock, and their states
in a file (the seam of resumable states)."""

from fairnepv.loop.context import MOMENT, Context
from fairnepv.loop.driver import Budget, Outcome, Progress, Step, check_progress, run
from fairnepv.loop.journal import StoredRun, pack, unpack

__all__ = [
    "MOMENT",
    "Budget",
    "Context",
    "Outcome",
    "Progress",
    "Step",
    "StoredRun",
    "check_progress",
    "pack",
    "run",
    "unpack",
]
