"""Files and folders that one process has for itself; the system frees them when that ends, however
it ends. A system without such locks gives them to everybody."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from fairnepv.errors import InputError

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Refuse a folder in which another run is at work. Runs that share it refuse only one that
    wants it for itself."""
    with held(path, shared=shared) as is_ours:
        if not is_ours:
            raise InputError(
                f"another run is at work in {path}; wait until it has ended, or use another folder"
            )
        yield


@contextlib.contextmanager
def held(path: Path, *, make: bool = False, shared: bool = False) -> Iterator[bool]:
    """Hold the lock of this file or folder while the body runs; yields whether it could be had."""
    if fcntl is None:
        yield True
        return
    handle = os.open(path, os.O_RDONLY | (os.O_CREAT if make else 0))
    try:
        yield _take(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Whether some process holds the lock; also where that cannot be known."""
    if fcntl is None:
        return True
    with held(path) as is_ours:
        return not is_ours


def _take(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
