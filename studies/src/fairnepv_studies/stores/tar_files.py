"""Pictures in a .tar that is not compressed."""

from __future__ import annotations

import contextlib
import functools
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.places import fingerprint, open_regular
from fairnepv.io.source import unreadable
from fairnepv_studies.packed import refuse_twins
from fairnepv_studies.stores.base import Pictures, bounded, is_picture, named_pictures

_MOST_HEADER = 1 << 20  # bytes of what a .tar says of one member


def pictures_in_tar(path: Path, stack: contextlib.ExitStack) -> Pictures:
    try:
        file = stack.enter_context(open_regular(path))
        headers: Any = _Headers(file)
        with tarfile.open(fileobj=headers, mode="r:") as archive:
            found = sorted(_tar_members(archive), key=lambda member: member[0])
    except InputError:
        raise
    except Exception as error:  # `tarfile` has many kinds for broken headers
        raise unreadable(str(path), "tar", error) from error
    refuse_twins(path, [name for name, _, _ in found])

    def fetch(place: int) -> bytes | str:
        _, offset, size = found[place]
        if offset < 0:
            return "it has holes or is a link, which are not read from a .tar"
        file.seek(offset)
        return bounded(file, size)

    names = [name for name, _, _ in found]
    return named_pictures(names, fetch, functools.partial(fingerprint, path))


class _Headers:
    """A file as `tarfile` reads it, whose longer headers have the size that they say."""

    def __init__(self, file: Any) -> None:
        self.name, self.seek, self.tell, self._file = file.name, file.seek, file.tell, file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MOST_HEADER:
            raise tarfile.ReadError("a header has no end")
        content: bytes = self._file.read(size)
        return content


def _tar_members(archive: tarfile.TarFile) -> Iterator[tuple[str, int, int]]:
    """Names, places and sizes; the place of what has no bytes of its own is -1. `tarfile` takes a
    broken header for the end, so whether that is there is looked at here."""
    for member in archive:
        if is_picture(member.name) and not member.isdir():
            whole = member.isreg() and not member.issparse()
            yield member.name, member.offset_data if whole else -1, member.size
        archive.members = []  # type: ignore[attr-defined]  # it would keep them all
    stream: Any = archive.fileobj
    stream.seek(archive.offset)
    end = stream.read(tarfile.BLOCKSIZE)
    if any(end) or len(end) < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("a header is broken, or the end is missing")
