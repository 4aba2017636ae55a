"""Files and folders that appear whole or not at all: written beside their place, then renamed.

Errors of the system pass through as they are; `write_errors` makes one sentence of them.
"""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from fairnepv.errors import FairnepvError, InputError
from fairnepv.io.locks import held, is_held
from fairnepv.io.touched import WRITTEN, touched

_PREFIX = 40  # letters of a name before that of the one beside it: names have 255 bytes
_PART, _OLD = ".part", ".old"


def check_writable(folder: Path) -> None:
    """Refuse a folder that nothing can be put into, before any work is done."""
    if not folder.is_dir():
        raise InputError(f"the folder {folder} does not exist; make it first")
    if not os.access(folder, os.W_OK):
        raise InputError(f"the folder {folder} cannot be written to; name another one")


@contextlib.contextmanager
def whole_file(
    path: Path, *, mode: int | None = None, replace: bool = True, same_name: bool = False
) -> Iterator[Path]:
    """A file beside `path` to be written, which takes its place at the end, or vanishes.

    Its `mode` is that of the file that it replaces, or what open() would give. Without `replace` a
    file that appeared in the meantime stays. With `same_name` it is called .NAME.part, so that
    several runs that write the same may overtake each other.
    """
    beside = nullcontext(path.with_name(f".{path.name}{_PART}")) if same_name else _part_file(path)
    with beside as part:
        try:
            yield part
            if mode is None:
                mode = path.stat().st_mode & 0o777 if path.exists() else _allowed(0o666)
            os.chmod(part, mode)
            if replace:
                os.replace(part, path)
            else:
                with contextlib.suppress(FileExistsError):  # only the first of several gets there
                    os.link(part, path)
                part.unlink()
        except BaseException as error:
            with contextlib.suppress(OSError):  # it is in its place already
                part.unlink()
            overtaken = isinstance(error, FileNotFoundError) and error.filename == str(part)
            if not (same_name and overtaken and path.exists()):  # by a run that wrote the same
                raise
    touched(WRITTEN, path)
    if not same_name:
        _remove_abandoned(path)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` to be filled, which takes its place at the end, or vanishes."""
    part = Path(tempfile.mkdtemp(dir=path.parent, prefix=_prefix(path), suffix=_PART))
    with held(part, shared=True):
        try:
            yield part
            _put_folder(part, path)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    touched(WRITTEN, path)
    _remove_abandoned(path)


def put_in_place(whole: Path, path: Path) -> None:
    """A file or a new folder that is whole already takes its place."""
    os.replace(whole, path)
    touched(WRITTEN, path)


def _put_folder(part: Path, path: Path) -> None:
    os.chmod(part, _allowed(0o777))  # mkdtemp makes private folders
    old = part.with_name(part.name + _OLD)
    if path.exists():
        path.rename(old)
    try:
        part.rename(path)
    except BaseException:
        if old.exists():
            old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


# --- what a kill leaves behind --------------------------------------------------------------------


@contextlib.contextmanager
def _part_file(path: Path) -> Iterator[Path]:
    """A fresh file beside `path`, whose lock says that somebody is writing it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path), suffix=_PART)
    os.close(handle)
    with held(Path(name), shared=True):
        yield Path(name)


def _prefix(path: Path) -> str:
    return f".{path.name[:_PREFIX]}."


def _remove_abandoned(path: Path) -> None:
    """Remove what killed runs have left beside `path`: parts by name that no process holds."""
    name = re.compile(re.escape(_prefix(path)) + rf"[a-z0-9_]{{8}}{_PART}({_OLD})?")
    with contextlib.suppress(OSError):
        for found in [p for p in path.parent.iterdir() if name.fullmatch(p.name)]:
            if is_held(found):
                continue
            if found.is_dir():
                shutil.rmtree(found, ignore_errors=True)
            else:
                found.unlink()


@contextlib.contextmanager
def write_errors(path: Path, remedy: str = "") -> Iterator[None]:
    """Say in one sentence what keeps `path` from being written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise FairnepvError(f"{path} cannot be written ({reason}){remedy}") from error


def _allowed(mode: int) -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mode & ~mask
