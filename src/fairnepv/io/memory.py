"""How much memory there is to load something into."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


def available_memory() -> int:
    """Bytes that can be had without swapping; all of the machine's where nobody says."""
    try:
        lines = _MEMINFO.read_text().splitlines()
        free = next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        free = _physical_memory()
    try:
        return min(free, int(_GROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no group, or no limit: "max"
        return free


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):  # a system without such answers
        return sys.maxsize


def size_in_words(count: int) -> str:
    """A number of bytes as 1.5 GiB."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.1f} {unit}"
    return f"{count} bytes"
