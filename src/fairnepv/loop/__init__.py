"""The one loop that drives every solver and search, several runs under one clock, and their states
in a file (the seam of resumable states)."""

from fairnepv.loop.context import Context
from fairnepv.loop.driver import (
    Budget,
    Method,
    Outcome,
    Progress,
    State,
    Step,
    check_progress,
    pack,
    run,
    unpack,
)
from fairnepv.loop.journal import StoredRun

__all__ = [
    "Budget",
    "Context",
    "Method",
    "Outcome",
    "Progress",
    "State",
    "Step",
    "StoredRun",
    "check_progress",
    "pack",
    "run",
    "unpack",
]
