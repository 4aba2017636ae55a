"""A column of a table as rows or as values: chunk by chunk, and some decoded chunks kept.

Chunks become NumPy arrays before they are joined: Arrow cannot join lists of more than 2^31 values.
"""

import itertools
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io import arrow_files
from fairnepv.io.arrow_files import decoded_bytes, reading_table, refuse_ragged, to_numpy
from fairnepv.io.arrow_ipc import Chunks
from fairnepv.io.memory import refuse_expansion
from fairnepv.io.rows import Joined, Rows, file_version, row_range
from fairnepv.io.source import Source
from fairnepv.io.texts import as_texts

KEPT_BYTES = 1 << 28  # decoded rows that stay in memory, so that small tables are decoded once


def read_column(source: Source, default: str | None = None) -> NDArray[Any]:
    """A column in memory: lists of equal length as (n, p), plain values as (n,)."""
    pieces: list[NDArray[Any]] = []
    first = 0
    column = arrow_files.choose_column(source, default)
    with reading_table(source):
        for chunk in arrow_files.counted_chunks(column):
            pieces.append(to_numpy(chunk, str(column), first, column.kind))
            first += len(chunk)
    return as_texts(np.concatenate(pieces), str(column)) if pieces else np.empty(0)


class ChunkCache:
    """Decoded chunks: the first ones that fit stay, and of all others the last one.

    Passes go from the first row to the last, where dropping the oldest chunk would always drop
    the one that is wanted next.
    """

    def __init__(self, budget: int | None = None, expected: int = 0) -> None:
        self.budget = KEPT_BYTES if budget is None else budget
        self.expected = expected  # bytes of all rows that this will be asked for
        self._held: dict[Any, Rows] = {}
        self._bytes = 0
        self._last: tuple[Any, Rows] | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        """An empty one: what is unpickled decodes anew."""
        return ChunkCache, (self.budget, self.expected)

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


class TableRows(Joined):
    """A column of numbers or of lists of them, in the chunks that its file is made of, which are
    decoded when they are asked for."""

    def __init__(self, source: Source, cache: ChunkCache | None = None) -> None:
        self.column, self.cache = arrow_files.choose_column(source), cache or ChunkCache()
        self.file, self.origin = file_version(self.column.source), str(self.column.source)
        chunks = self._opened
        self.at_hand = chunks.at_hand
        self.starts = [0, *itertools.accumulate(chunks.lengths)]
        n, width = self.starts[-1], int(getattr(chunks.kind, "list_size", 1))
        width, self.dtype = self._first_row() if n else (width, np.dtype(float))
        self.shape = (n, width)
        self.file_bytes = self.file.size
        self.cache.expected += n * width * self.dtype.itemsize

    @cached_property
    def _opened(self) -> Chunks:
        return arrow_files.open_chunks(self.column)

    @property
    def resident(self) -> bool:  # type: ignore[override]
        return not self.at_hand and self.cache.expected <= self.cache.budget

    @property
    def random_access(self) -> bool:  # type: ignore[override]
        return self.at_hand or self.resident

    def part(self, s: int) -> Rows:
        if self.at_hand:  # as views of a memory map are, which need no keeping
            return self._decode(s)
        return self.cache.get((self.file.path, s), lambda: self._decode(s))

    def _first_row(self) -> tuple[int, np.dtype[Any]]:
        s = next(s for s, stop in enumerate(self.starts[1:]) if stop)
        with reading_table(self.column.source):
            sample = self._opened.sample(s)
            rows = self._numbers(to_numpy(sample, str(self.column), 0, self.column.kind))
        return rows.shape[1], rows.dtype

    def _decode(self, s: int) -> Rows:
        begin, end = self.starts[s], self.starts[s + 1]
        self.file.check(begin, end)
        pieces: list[Rows] = []
        at, what, width = begin, str(self.column), self.shape[1]
        with reading_table(self.column.source, row_range(begin, end)):
            for chunk in self._opened.arrays(s, width * self.dtype.itemsize):
                refuse_expansion(what, self.file.size, decoded_bytes(chunk), arrow_files.REPEATED)
                piece = self._numbers(to_numpy(chunk, what, at, self.column.kind))
                refuse_ragged(np.full(1, piece.shape[1]), width, 0, what, at)
                pieces.append(piece)
                at += len(piece)
        if at != end:  # all rows behind would be shifted
            raise InputError(
                f"{self.column} has {at - begin:,} rows where its file promises "
                f"{end - begin:,}, in {row_range(begin, end)}; write it again"
            )
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _numbers(self, rows: NDArray[Any]) -> Rows:
        if rows.dtype.kind not in "fiub":
            what, hint = str(rows.dtype), ""
            if rows.dtype == object and rows.size:
                what = f"Python objects ({type(rows.flat[0]).__name__})"
            if self._opened.kind.id in arrow_files.BINARIES:
                hint = f"; say of what they are made, as in {self.column.name}@float16"
            raise InputError(f"{self.column} must hold numbers, not {what}{hint}")
        return rows if rows.ndim == 2 else rows[:, None]
