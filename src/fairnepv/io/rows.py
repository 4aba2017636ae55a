"""Rows that stay in their file: what stands for an (n, p) array that is never whole in memory.

A `RowFile` reads for `rows[start:stop]` and `rows[indices]` alone; all else is known without. Each
time it first checks that the file still is what it was when it was opened: touching a memory map
of a file that was cut short kills the process, and one that was replaced gives other rows.
"""

from __future__ import annotations

import bisect
import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.places import AnyPath, map_each, regular_file
from fairnepv.io.source import Source

Rows = NDArray[Any]
Indices = NDArray[np.int64]

_one_at_a_time = threading.Lock()  # blocks are read on several threads
_OPEN_SHARDS = 128  # every memory map holds a file descriptor, of which there are often 1024


@dataclass(frozen=True)
class FileVersion:
    """Size, time and number of a file when it was opened."""

    path: AnyPath
    size: int
    modified: int
    inode: int

    @classmethod
    def of(cls, path: AnyPath) -> FileVersion:
        try:
            return cls.seen(regular_file(path))
        except OSError as error:
            raise InputError(f"{path} cannot be opened ({error.strerror})") from error

    @classmethod
    def seen(cls, path: AnyPath) -> FileVersion:
        """The same, with the errors of the system as they are."""
        found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns, found.st_ino)

    def __getstate__(self) -> dict[str, Any]:
        """The path is absolute, since a worker may run in another folder."""
        return {**vars(self), "path": self.path.absolute()}

    def check(self, start: int = 0, stop: int | None = None) -> None:
        """Refuse to read rows `start:stop`, or all, of a file that is not what it was."""
        try:
            unchanged = self.seen(self.path) == self
        except OSError:
            unchanged = False
        if not unchanged:
            where = "" if stop is None else f" (at {row_range(start, stop)})"
            raise InputError(
                f"{self.path} was changed or removed while it was being read{where}; run this "
                "again once it is written"
            )


def file_version(source: Source) -> FileVersion:
    """The version of a file when it was first looked at."""
    return source.once("version", lambda: FileVersion.of(source.path))


class RowFile(ABC):
    """(n, p) rows in files. Slices and index arrays give (m, p) arrays in the order asked for."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    origin: str  # what the user called it, for messages
    file_bytes: int  # what lies on disk for these rows
    resident: bool = False  # whether the rows are in memory already, or will be after one pass
    random_access: bool = True  # whether scattered rows cost what they weigh
    in_file: bool = True  # or in memory, where they may be overwritten
    waits: bool = False  # whether reading is mostly waiting for another machine
    ndim = 2

    @abstractmethod
    def read(self, start: int, stop: int) -> Rows:
        """Rows `start:stop`, within bounds; without a copy where the file allows it."""

    @abstractmethod
    def gather(self, indices: Indices) -> Rows:
        """These rows, within bounds and not negative, in this order."""

    def __len__(self) -> int:
        return self.shape[0]

    def __str__(self) -> str:
        return self.origin

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.origin}: {self.shape}, {self.dtype}>"

    def __getitem__(self, key: slice | Indices | Sequence[int]) -> Rows:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self.read(start, max(start, stop))
            return self.gather(np.arange(start, stop, step, dtype=np.int64))
        return self.gather(_checked_indices(np.asarray(key), len(self), self.origin))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Rows:
        """All rows in memory, for those who ask for an array."""
        rows = self.read(0, len(self))
        return np.array(rows, dtype=dtype) if copy else np.asarray(rows, dtype=dtype)

    def __getstate__(self) -> dict[str, Any]:
        """Open files stay behind; once unpickled, files are opened and checked anew."""
        return {name: value for name, value in vars(self).items() if name != "_opened"}

    def close(self) -> None:
        """Let go of what is open; the next question opens it again."""
        vars(self).pop("_opened", None)


def row_range(start: int, stop: int) -> str:
    """Rows `start:stop` in words."""
    return f"row {start:,}" if stop - start == 1 else f"rows {start:,}-{max(start, stop - 1):,}"


def missing_rows(n: int, row_bytes: int, stored: int) -> str:
    """The rows, of n, for which there are no bytes, in words."""
    return f"{row_range(max(0, stored) // max(1, row_bytes), n)} of {n:,}"


class HeldRows(RowFile):
    """Rows that had to be loaded, such as those of a compressed archive."""

    resident = True

    def __init__(self, array: Rows, origin: str) -> None:
        self.array, self.origin = array, origin
        self.shape, self.dtype, self.file_bytes = array.shape, array.dtype, array.nbytes

    def read(self, start: int, stop: int) -> Rows:
        return self.array[start:stop]

    def gather(self, indices: Indices) -> Rows:
        return self.array[indices]


@dataclass(eq=False, repr=False)
class NumberRows(RowFile):
    """Numbers that lie in a file one after another.

    NumPy has no bfloat16, the upper half of a float32: it is read as that, in a copy.
    """

    file: FileVersion
    stored: np.dtype[Any]
    shape: tuple[int, int]
    offset: int
    origin: str
    fortran: bool = False
    bfloat16: bool = False

    def __post_init__(self) -> None:
        self.dtype = np.dtype(np.float32) if self.bfloat16 else self.stored
        self.file_bytes = self.shape[0] * self.shape[1] * self.stored.itemsize

    def _widened(self, rows: Rows) -> Rows:
        return widen_bfloat16(rows) if self.bfloat16 else rows


class MappedRows(NumberRows):
    """Numbers in a local file, mapped into memory."""

    @cached_property
    def _opened(self) -> Rows:
        if not self.file_bytes:
            return np.empty(self.shape, self.stored)
        try:
            mapped = np.memmap(
                str(self.file.path),
                self.stored,
                mode="r",
                offset=self.offset,
                shape=self.shape,
                order="F" if self.fortran else "C",
            )
        except (OSError, ValueError) as error:
            raise InputError(f"{self.origin} cannot be mapped into memory ({error})") from error
        return mapped.view(np.ndarray)  # without the bookkeeping of every slice of a memmap

    def read(self, start: int, stop: int) -> Rows:
        self.file.check(start, stop)
        return self._widened(self._opened[start:stop])

    def gather(self, indices: Indices) -> Rows:
        if len(indices):
            self.file.check(int(indices.min()), int(indices.max()) + 1)
        return self._widened(self._opened[indices])


def widen_bfloat16(halves: Rows) -> Rows:
    """float32 of 16-bit patterns that are its upper halves."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


class Joined(RowFile):
    """Rows that lie in parts, end to end: part s holds rows starts[s] to starts[s + 1]."""

    starts: Sequence[int]

    @abstractmethod
    def part(self, s: int) -> RowFile | Rows:
        """The rows of one part."""

    def read(self, start: int, stop: int) -> Rows:
        if start >= stop:
            return np.empty((0, self.shape[1]), self.dtype)
        first = bisect.bisect_right(self.starts, start) - 1
        touched = range(first, bisect.bisect_left(self.starts, stop))

        def rows_of(s: int) -> Rows:
            return self.part(s)[max(0, start - self.starts[s]) : stop - self.starts[s]]

        full = [s for s in touched if self.starts[s] < self.starts[s + 1]]
        pieces = map_each(rows_of, full, waits=self.waits)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def gather(self, indices: Indices) -> Rows:
        rows = np.empty((len(indices), self.shape[1]), self.dtype)
        order = np.argsort(indices, kind="stable")
        inner = np.searchsorted(indices[order], self.starts[1:-1])

        def fill(part: tuple[int, Indices]) -> None:
            s, mine = part
            rows[mine] = self.part(s)[indices[mine] - self.starts[s]]

        parts = [(s, mine) for s, mine in enumerate(np.split(order, inner)) if len(mine)]
        map_each(fill, parts, waits=self.waits)
        return rows


class Shards(Joined):
    """Several row files end to end."""

    def __init__(self, parts: Sequence[RowFile], origin: str) -> None:
        self.parts, self.origin = tuple(parts), origin
        first = self.parts[0]
        for part in self.parts[1:]:
            if part.shape[1] != first.shape[1]:
                raise InputError(
                    f"{first} has {first.shape[1]:,} columns and {part} has {part.shape[1]:,}; all "
                    "shards need the same number"
                )
            if part.dtype != first.dtype:
                raise InputError(
                    f"{first} holds {first.dtype} and {part} holds {part.dtype}; write all shards "
                    "in one type (fairnepv convert does so)"
                )
        self.starts = [0, *itertools.accumulate(map(len, self.parts))]
        self.shape, self.dtype = (self.starts[-1], first.shape[1]), first.dtype
        self.file_bytes = sum(part.file_bytes for part in self.parts)
        self.resident = all(part.resident for part in self.parts)
        self.random_access = all(part.random_access for part in self.parts)
        self.waits = any(part.waits for part in self.parts)
        self._recent: dict[int, None] = {}

    def part(self, s: int) -> RowFile:
        """Shard s; the one that was not asked for longest is closed when many are open."""
        with _one_at_a_time:
            self._recent.pop(s, None)
            self._recent[s] = None
            if len(self._recent) > _OPEN_SHARDS:
                oldest = next(iter(self._recent))
                del self._recent[oldest]
                self.parts[oldest].close()
        return self.parts[s]


class Derived(RowFile):
    """Rows of another row file that are changed when they are read, which costs the same."""

    def __init__(self, rows: RowFile, shape: tuple[int, int]) -> None:
        self.rows, self.shape, self.origin, self.dtype = rows, shape, rows.origin, rows.dtype
        self.file_bytes, self.resident = rows.file_bytes, rows.resident
        self.random_access = rows.random_access


class Reordered(Derived):
    """Rows in an order of their own; a row may occur often or not at all."""

    def __init__(self, rows: RowFile, order: Indices) -> None:
        self.order = _checked_indices(np.asarray(order), len(rows), rows.origin)
        super().__init__(rows, (len(self.order), rows.shape[1]))
        self.origin = f"{rows.origin} (in another order)"

    def read(self, start: int, stop: int) -> Rows:
        return self.rows.gather(self.order[start:stop])

    def gather(self, indices: Indices) -> Rows:
        return self.rows.gather(self.order[indices])


class FilledRows(Derived):
    """Rows of an array or of another file, of which some (n,) read as zeros."""

    def __init__(self, rows: RowFile | Rows, gaps: NDArray[np.bool_]) -> None:
        self.in_file, self.gaps = isinstance(rows, RowFile), gaps
        held = rows if isinstance(rows, RowFile) else HeldRows(rows, "rows in memory")
        super().__init__(held, held.shape)

    def read(self, start: int, stop: int) -> Rows:
        return self._filled(self.rows.read(start, stop), self.gaps[start:stop])

    def gather(self, indices: Indices) -> Rows:
        return self._filled(self.rows.gather(indices), self.gaps[indices])

    @staticmethod
    def _filled(rows: Rows, gaps: NDArray[np.bool_]) -> Rows:
        return np.where(gaps[:, None], rows.dtype.type(0), rows) if gaps.any() else rows


class Columns(Derived):
    """Some columns of another file."""

    def __init__(self, rows: RowFile, columns: Any) -> None:
        self.columns = columns
        # One row: of none, NumPy 2.1 does not look whether the columns are there.
        width = np.empty((1, rows.shape[1]), bool)[:, columns].shape[1]
        super().__init__(rows, (len(rows), width))

    def read(self, start: int, stop: int) -> Rows:
        return self.rows.read(start, stop)[:, self.columns]

    def gather(self, indices: Indices) -> Rows:
        return self.rows.gather(indices)[:, self.columns]


def _checked_indices(indices: NDArray[Any], n: int, origin: str) -> Indices:
    """Row numbers from 0, where negative ones counted from the end."""
    if indices.dtype == bool and indices.shape == (n,):
        return np.flatnonzero(indices).astype(np.int64)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise TypeError(f"rows of {origin} are asked for by a slice or by a list of integers")
    indices = indices.astype(np.int64)
    if len(indices) and not -n <= indices.min() <= indices.max() < n:
        raise IndexError(f"{origin} has rows 0 to {n - 1}")
    return np.where(indices < 0, indices + n, indices)
