"""Packed files: what they become is counted while they are read, whatever their headers say."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError

FLOOR = 256 << 20  # bytes that any packed file may become in all;
RATIO = 200  # or so many times its own size: bulk XML has 10 to 30, pictures hardly 2
MOST_AT_ONCE = 64 << 20  # bytes that a few hundred packed ones may become
_PIECE = 1 << 12  # bytes that are asked of an archive at a time
_SLICE = 64  # packed bytes that a decompressor without a limit of its own is given at a time


class Allowance:
    """What a file may become in all, and what is left of that."""

    def __init__(self, path: Path, most: int | None = None) -> None:
        self._path = path
        self._most = max(FLOOR, RATIO * path.stat().st_size)
        self._most = self._most if most is None else min(self._most, most)
        self._spent = 0

    def foresee(self, count: int) -> None:
        """What headers promise is refused before anything is unpacked."""
        if self._spent + count > self._most:
            raise InputError(
                f"{self._path} unpacks to more than {self._most:,} bytes, which no real one of its "
                "size does; if you trust it, unpack it and give what was in it"
            )

    def spend(self, count: int) -> None:
        self.foresee(count)
        self._spent += count


class Counted:
    """A stream that is paid for as it is read; it gives as much as is asked for until it ends."""

    def __init__(self, stream: Any, spend: Callable[[int], None]) -> None:
        self._stream, self._spend = stream, spend

    def read(self, size: int) -> bytes:
        pieces = []
        while size > 0 and (piece := self._stream.read(min(size, _PIECE))):
            self._spend(len(piece))
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def __enter__(self) -> Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def open_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, spend: Callable[[int], None]
) -> Counted:
    stream: Any = archive.open(member)
    if member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return Counted(stream, spend)
    # `zipfile` has limits for deflate alone: of bzip2, 45 bytes may become 46 MB.
    stream._decompressor = _BySlices(stream._decompressor, spend)
    return Counted(stream, lambda _: None)


class _BySlices:
    """A decompressor that is given little at a time, and pays for all that it makes: of what is
    more than the header promised `zipfile` shows nothing."""

    def __init__(self, inner: Any, spend: Callable[[int], None]) -> None:
        self._inner, self._spend = inner, spend

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    def decompress(self, packed: bytes) -> bytes:
        pieces, size = [], 0
        for start in range(0, len(packed), _SLICE):
            if self._inner.eof:
                break
            pieces.append(self._inner.decompress(packed[start : start + _SLICE]))
            self._spend(len(pieces[-1]))
            size += len(pieces[-1])
            if size > MOST_AT_ONCE:
                raise zipfile.BadZipFile(f"{start + _SLICE} bytes become {size:,}")
        return b"".join(pieces)


def members_of(
    archive: zipfile.ZipFile, path: Path, wanted: Callable[[str], bool]
) -> list[zipfile.ZipInfo]:
    """Those of such names, in the order of the archive."""
    found = [m for m in archive.infolist() if wanted(m.filename) and not m.is_dir()]
    refuse_twins(path, sorted(member.filename for member in found))
    return found


def refuse_twins(path: Path, names: list[str]) -> None:
    """Of two members of one name some programs see the first, and some the last; names are in
    order."""
    for name, other in itertools.pairwise(names):
        if name == other:
            raise InputError(f"{path} has two members of the name {name!r}; pack it again")
