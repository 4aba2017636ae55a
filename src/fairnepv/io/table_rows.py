"""A column of a table as rows: chunk by chunk, and some decoded chunks kept.

Chunks are what a file is made of and what can be decoded by itself: row groups, record batches.
They become NumPy arrays before they are joined: Arrow cannot join lists of more than 2^31 values.
"""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.arrow_columns import (
    BINARY_KINDS,
    decoded_bytes,
    is_binary,
    refuse_ragged,
    to_numpy,
)
from fairnepv.io.memory import refuse_expansion
from fairnepv.io.rows import FileVersion, Joined, Rows, part_starts, row_range
from fairnepv.io.source import Source, choose_part, unreadable

_REMEDY = "write each value once, or plainly"
KEPT_BYTES = 1 << 28  # decoded rows that stay in memory, so that small tables are decoded once


@dataclass(frozen=True)
class Column:
    """A column of a table file."""

    source: Source
    name: str
    at: int  # its place among the columns
    kind: str | None  # of what numbers binary values are made

    def __str__(self) -> str:
        return f"{self.source.path}, column {self.name!r}"


class Kept:
    """Decoded chunks: the first ones that fit stay, and of all others the last one.

    Passes go from the first row to the last, where dropping the oldest chunk would always drop
    the one that is wanted next.
    """

    def __init__(self, budget: int | None = None) -> None:
        self.budget = KEPT_BYTES if budget is None else budget
        self.expected = 0  # bytes of all rows that this will be asked for
        self._empty()

    def _empty(self) -> None:
        self._held: dict[Any, Rows] = {}
        self._bytes = 0
        self._last: tuple[Any, Rows] | None = None
        self._lock = threading.Lock()

    def get(self, key: Any, decode: Callable[[], Rows]) -> Rows:
        with self._lock:  # one chunk is decoded at a time, by whichever thread comes first
            if key in self._held:
                return self._held[key]
            if self._last is not None and self._last[0] == key:
                return self._last[1]
            self._last = None  # before the next is decoded, so that there is one at a time
            rows = decode()
            if self._bytes + rows.nbytes <= self.budget:
                self._held[key] = rows
                self._bytes += rows.nbytes
            else:
                self._last = (key, rows)
            return rows

    def __getstate__(self) -> dict[str, Any]:
        return {"budget": self.budget, "expected": self.expected}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._empty()


class TableRows(Joined):
    """A column of lists, in the chunks that its file is made of."""

    def __init__(self, column: Column, file: FileVersion, kept: Kept) -> None:
        self.column, self.file, self.kept = column, file, kept
        self.origin = str(column.source)
        self.starts = part_starts(self._lengths())
        n = self.starts[-1]
        width, self.dtype = self._first_row() if n else (self._width_of_none(), np.dtype(float))
        self.shape = (n, width)
        self.file_bytes = file.size
        kept.expected += n * self.shape[1] * self.dtype.itemsize

    @property
    def resident(self) -> bool:  # type: ignore[override]
        return self.kept.expected <= self.kept.budget

    @property
    def random_access(self) -> bool:  # type: ignore[override]
        return self.resident

    @abstractmethod
    def _lengths(self) -> list[int]:
        """How many rows each chunk has."""

    @abstractmethod
    def _chunks(self, s: int) -> list[Any]:
        """Arrow arrays that make up chunk s."""

    @abstractmethod
    def _sample(self, s: int) -> Any:
        """An Arrow array of the first row of chunk s, or of a few more."""

    @abstractmethod
    def _type(self) -> Any:
        """The Arrow type of the column."""

    def part(self, s: int) -> Rows:
        return self.kept.get((self.file.path, s), lambda: self._same(s, self._decode(s)))

    def _first_row(self) -> tuple[int, np.dtype[Any]]:
        """How wide it is and of what type; a whole chunk would be much to decode for that."""
        s = next(s for s, stop in enumerate(self.starts[1:]) if stop)
        with reading(self.column.source):
            sample = self._sample(s)
            rows = self._numbers(to_numpy(sample, str(self.column), 0, self.column.kind))
        return rows.shape[1], rows.dtype

    def _decode(self, s: int) -> Rows:
        first, last = self.starts[s], self.starts[s + 1]
        self.file.check(first, last)
        pieces: list[Rows] = []
        with reading(self.column.source, row_range(first, last)):
            for chunk in self._chunks(s):
                refuse_expansion(str(self.column), self.file.size, decoded_bytes(chunk), _REMEDY)
                piece = to_numpy(chunk, str(self.column), first, self.column.kind)
                pieces.append(self._numbers(piece))
                if piece.ndim == 2 and piece.shape[1] != pieces[0].shape[1]:
                    self._ragged(piece, pieces[0].shape[1], self.starts[s], first)
                first += len(piece)
        if first != last:  # all rows behind would be shifted
            raise InputError(
                f"{self.column} has {first - self.starts[s]:,} rows where its file promises "
                f"{last - self.starts[s]:,}, in {row_range(self.starts[s], last)}; write it again"
            )
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _numbers(self, rows: NDArray[Any]) -> Rows:
        if rows.dtype.kind not in "fiub":
            found = type(rows.flat[0]).__name__ if rows.dtype == object and rows.size else None
            hint = ""
            if is_binary(self._type()):
                hint = f"; say of what they are made, as in {self.column.name}@float16"
            what = f"Python objects ({found})" if found else str(rows.dtype)
            raise InputError(f"{self.column} must hold numbers, not {what}{hint}")
        return rows if rows.ndim == 2 else rows[:, None]

    def _same(self, s: int, rows: Rows) -> Rows:
        """A chunk whose rows are as wide as the first."""
        if rows.shape[1] != self.shape[1]:
            self._ragged(rows, self.shape[1], 0, self.starts[s])
        return rows

    def _ragged(self, rows: Rows, expected: int, expected_row: int, first: int) -> None:
        lengths = np.full(1, rows.shape[1])
        refuse_ragged(lengths, expected, expected_row, str(self.column), first)

    def _width_of_none(self) -> int:
        return int(getattr(self._type(), "list_size", 1))


def choose_column(source: Source, names: list[str], default: str | None) -> Column:
    """The column that PART or PART@KIND asks for, the default, or the only one."""
    if source.part is None and default in names:
        source = source.with_part(default)
    kind = None
    if source.part is not None and source.part not in names:
        head, _, tail = source.part.rpartition("@")
        if head in names and tail in BINARY_KINDS:
            source, kind = source.with_part(head), tail
    name = choose_part(source, names, "column")
    return Column(source, name, names.index(name), kind)


@contextlib.contextmanager
def reading(source: Source, where: str = "") -> Iterator[None]:
    """Whatever a parser makes of broken bytes becomes one sentence."""
    kind = "Parquet" if source.ending == ".parquet" else "Arrow IPC"
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) and not isinstance(error, pa.ArrowException):
            raise  # ours; Arrow's comes of a size that was made up
        raise unreadable(str(source.path), kind, error, where) from error
