"""Parquet, and Arrow IPC files and streams: one column of them, as rows or as values.

Parquet is decoded by row groups and compressed IPC files by record batches, since nothing finer
can be decoded; other IPC files are mapped into memory and their rows are views of the map. Chunks
become NumPy arrays before they are joined: Arrow cannot join lists of more than 2^31 values.
"""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.arrow_columns import BINARY_KINDS, is_binary, refuse_ragged, to_numpy
from fairnepv.io.memory import available_memory, size_in_words
from fairnepv.io.rows import Fingerprint, Joined, Rows, part_starts, row_range
from fairnepv.io.source import Source, choose_part

KEPT_BYTES = 1 << 28  # decoded rows that stay in memory, so that small tables are decoded once
_IPC_FILE, _FEATHER_1 = b"ARROW1", b"FEA1"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


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

    def get(self, key: Any, decode: Callable[[], Rows]) -> Rows:
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

    def __init__(self, column: Column, file: Fingerprint, kept: Kept) -> None:
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


class ParquetRows(TableRows):
    @cached_property
    def _opened(self) -> Any:
        with reading(self.column.source):
            return pq.ParquetFile(self.file.path)

    def _lengths(self) -> list[int]:
        about = self._opened.metadata
        return [about.row_group(g).num_rows for g in range(about.num_row_groups)]

    def _chunks(self, s: int) -> list[Any]:
        return _parquet_chunks(self._opened, s, self.column)

    def _sample(self, s: int) -> Any:
        rows = self._opened.iter_batches(
            batch_size=1, row_groups=[s], columns=[self.column.name], use_threads=False
        )
        return next(rows).column(self.column.name)

    def _type(self) -> Any:
        return self._opened.schema_arrow.types[self.column.at]


class ArrowRows(TableRows):
    """Where the file is not compressed, chunks are views of its memory map and need no keeping."""

    @cached_property
    def _opened(self) -> Batches:
        return Batches.of(self.column.source, self.column.at)

    def _lengths(self) -> list[int]:
        return self._opened.lengths

    def _chunks(self, s: int) -> list[Any]:
        return [self._opened.array(s)]

    def _sample(self, s: int) -> Any:
        array = self._opened.array(s)
        array.validate(full=True)
        return array[:1]

    def _type(self) -> Any:
        return self._opened.kind

    @property
    def random_access(self) -> bool:  # type: ignore[override]
        return self._opened.at_hand or self.resident

    @property
    def resident(self) -> bool:  # type: ignore[override]
        return not self._opened.at_hand and super().resident

    def part(self, s: int) -> Rows:
        return self._same(s, self._decode(s)) if self._opened.at_hand else super().part(s)


class Batches:
    """The record batches of an IPC file or stream, one column of each."""

    def __init__(self, kind: Any, read: Callable[[int], Any], lengths: list[int]) -> None:
        self.kind, self.array, self.lengths = kind, read, lengths
        self.at_hand = False  # whether an array costs nothing to get: mapped, or decoded already

    @classmethod
    def of(cls, source: Source, at: int) -> Batches:
        with reading(source):
            content = pa.memory_map(str(source.path))
            if _is_ipc_file(source):
                return cls._of_mapped(content, at) or cls._of_compressed(content, at)
            only = pa.ipc.IpcReadOptions(included_fields=[at])
            return cls._of_stream(source, pa.ipc.open_stream(content, options=only))

    @classmethod
    def _of_mapped(cls, content: Any, at: int) -> Batches | None:
        """Of all columns, since to leave some out Arrow copies the others."""
        reader = pa.ipc.open_file(content)
        where = content.read_buffer(content.size())
        arrays = []
        for b in range(reader.num_record_batches):
            arrays.append(_sound(reader.get_batch(b), at))
            if not _lies_in(arrays[-1], where):
                return None
        batches = cls(reader.schema.types[at], arrays.__getitem__, [len(a) for a in arrays])
        batches.at_hand = True
        return batches

    @classmethod
    def _of_compressed(cls, content: Any, at: int) -> Batches:
        """Decoded again whenever it is asked for; once in the beginning, to count the rows."""
        only = pa.ipc.IpcReadOptions(included_fields=[at])
        reader = pa.ipc.open_file(content, options=only)

        def decode(b: int) -> Any:
            return _sound(reader.get_batch(b), 0)

        lengths = [len(decode(b)) for b in range(reader.num_record_batches)]
        return cls(reader.schema.types[0], decode, lengths)

    @classmethod
    def _of_stream(cls, source: Source, reader: Any) -> Batches:
        """A stream has no directory, so that its batches are found by walking through it."""
        arrays: list[Any] = []
        rows, free, before = 0, available_memory(), pa.total_allocated_bytes()
        try:
            for batch in reader:
                arrays.append(_sound(batch, 0))
                rows += len(batch)
                if pa.total_allocated_bytes() - before > free // 2:
                    raise InputError(
                        f"{source.path} is a compressed stream of more than "
                        f"{size_in_words(free // 2)}; write it without compression, or as Parquet"
                    )
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{source.path} is cut short or damaged behind row {rows:,} "
                f"({' '.join(str(error).split())}); write it again"
            ) from error
        if not _ends_in(source, _END_OF_STREAM):
            raise InputError(f"{source.path} is cut short behind row {rows:,}; write it again")
        batches = cls(reader.schema.types[0], arrays.__getitem__, [len(a) for a in arrays])
        batches.at_hand = True
        return batches


def open_parquet(source: Source, kept: Kept | None = None) -> ParquetRows:
    """A column of a Parquet file; row groups are decoded when their rows are asked for."""
    file = Fingerprint.of(source.path)
    with reading(source), pq.ParquetFile(source.path) as parquet:
        column = _column(source, list(parquet.schema_arrow.names), None)
    return ParquetRows(column, file, kept or Kept())


def open_arrow(source: Source, kept: Kept | None = None) -> ArrowRows:
    """A column of an Arrow IPC file or stream."""
    file = Fingerprint.of(source.path)
    column = _column(source, column_names(source), None)
    return ArrowRows(column, file, kept or Kept())


def column_names(source: Source) -> list[str]:
    with reading(source):
        if source.ending == ".parquet":
            return list(pq.read_schema(source.path).names)
        with pa.memory_map(str(source.path)) as content:
            opened = pa.ipc.open_file if _is_ipc_file(source) else pa.ipc.open_stream
            return list(opened(content).schema.names)


def read_column(source: Source, default: str | None = None) -> NDArray[Any]:
    """A column in memory: lists of equal length as (n, p), plain values as (n,)."""
    pieces: list[NDArray[Any]] = []
    first = 0
    column = _column(source, column_names(source), default)
    with reading(source):
        for chunk in _all_chunks(column):
            pieces.append(_plain(to_numpy(chunk, str(column), first, column.kind)))
            first += len(chunk)
    return np.concatenate(pieces) if pieces else np.empty(0)


def _all_chunks(column: Column) -> Iterator[Any]:
    if column.source.ending == ".parquet":
        with pq.ParquetFile(column.source.path) as file:
            for group in range(file.num_row_groups):
                yield from _parquet_chunks(file, group, column)
    else:
        batches = Batches.of(column.source, column.at)
        yield from (batches.array(b) for b in range(len(batches.lengths)))


def _parquet_chunks(file: Any, group: int, column: Column) -> list[Any]:
    table = file.read_row_group(group, columns=[column.name], use_threads=False)
    chunks: list[Any] = table.column(column.name).chunks
    return chunks


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Arrow hands out strings as objects."""
    if values.dtype == object and all(isinstance(value, str) for value in values.flat):
        return values.astype(str)
    return values


def _column(source: Source, names: list[str], default: str | None) -> Column:
    """The column that PART or PART@KIND asks for, the default, or the only one."""
    if source.part is None and default in names:
        source = Source(source.path, default)
    kind = None
    if source.part is not None and source.part not in names:
        head, _, tail = source.part.rpartition("@")
        if head in names and tail in BINARY_KINDS:
            source, kind = Source(source.path, head), tail
    name = choose_part(source, names, "column")
    return Column(source, name, names.index(name), kind)


def _is_ipc_file(source: Source) -> bool:
    with source.path.open("rb") as file:
        magic = file.read(8)
    if magic.startswith(_FEATHER_1):
        raise InputError(
            f"{source.path} is Feather of version 1; write it as version 2 (Arrow IPC) or Parquet"
        )
    if not magic:
        raise InputError(f"{source.path} is empty; write it again")
    return magic.startswith(_IPC_FILE)


def _sound(batch: Any, at: int) -> Any:
    """A column whose length is that of its batch and within its buffers."""
    batch.validate()
    return batch.column(at)


def _ends_in(source: Source, mark: bytes) -> bool:
    with source.path.open("rb") as file:
        file.seek(-min(len(mark), source.path.stat().st_size), os.SEEK_END)
        return file.read() == mark


def _lies_in(array: Any, content: Any) -> bool:
    """Whether the values of an array are views of `content`, and not decoded."""
    buffers = [buffer for buffer in array.buffers() if buffer is not None and buffer.size]
    begin, end = content.address, content.address + content.size
    return all(begin <= buffer.address < end for buffer in buffers)


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
        reason = " ".join(str(error).split())
        raise InputError(
            f"{source.path} cannot be read as {kind}{where and f' at {where}'} ({reason}); write "
            "the file again"
        ) from error
