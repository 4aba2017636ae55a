"""How much memory there is to load something into, and how much was taken."""

import contextlib
import math
import operator
import os
import re
import sys
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError

_MEMINFO = Path("/proc/meminfo")
LARGEST_EXPANSION = 100  # times what lies in a file
HARMLESS = 1 << 28  # bytes; below, a file may expand as it likes: labels of a million rows do
_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{p}IB": 1024 ** (i + 1) for i, p in enumerate("KMGT")}
_UNITS |= {f"{p}B": 1000 ** (i + 1) for i, p in enumerate("KMGT")}
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


def available_memory() -> int:
    """Bytes that can be had without swapping; all of the machine's where that is not known."""
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


def peak_memory() -> int | None:
    """The most bytes that this process has had in memory; None where the system does not say."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def refuse_expansion(where: str, stored: int, expanded: int, remedy: str) -> None:
    """Compare what lies in a file with what it becomes in memory, before it does."""
    told = f"{where} expands from {size_in_words(stored)} to {size_in_words(expanded)}"
    if expanded > HARMLESS and expanded > LARGEST_EXPANSION * max(1, stored):
        raise InputError(f"{told}, more than {LARGEST_EXPANSION}-fold; {remedy}")
    refuse_size(told, expanded, remedy)


def refuse_size(told: str, size: int, remedy: str) -> None:
    """Compare what something needs with the memory that is free."""
    free = available_memory()
    if size > free:
        raise InputError(
            f"{told}, more than the {size_in_words(free)} of memory that are free; {remedy}"
        )


def refuse_unbounded(what: str, shape: tuple[int, int], stored: int) -> None:
    """Refuse a sparse shape, which is two numbers, of which a vector would not fit into memory, or
    would be out of all proportion to the bytes that are stored."""
    rows, columns = shape
    needed = 8 * (max(rows, columns) + 1)
    told = f"{what} has shape ({rows:,}, {columns:,}), of which a row or a column alone needs"
    refuse_size(f"{told} {size_in_words(needed)}", needed, "check how it was made")
    if needed > HARMLESS and needed > LARGEST_EXPANSION * max(1, stored):
        raise InputError(
            f"{told} {size_in_words(needed)}, more than {LARGEST_EXPANSION} times the "
            f"{size_in_words(stored)} of its values; leave out rows and columns without values"
        )


def check_memory_limit(value: Any) -> int | None:
    """A number of bytes: an integer, or text such as '2GiB', '500 MB'; None stays None."""
    if value is None:
        return None
    size: float | None = None
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*", value)
        unit = _UNITS.get(found[2].upper()) if found else None
        size = float(found[1]) * unit if found and unit else None
    elif not isinstance(value, bool):
        with contextlib.suppress(TypeError):  # of what is no whole number
            size = operator.index(value)
    if size is None or not 1 <= size < math.inf:
        raise InputError(
            "memory_limit must be a positive number of bytes, or text such as '2GiB' or '500 MB', "
            f"not {value!r:.80}"
        )
    return int(size)


def size_in_words(count: int) -> str:
    """A number of bytes as 1.5 GiB."""
    for power, unit in ((6, "EiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.1f} {unit}"
    return f"{count} bytes"
