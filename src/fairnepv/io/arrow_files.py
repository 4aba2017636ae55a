"""Parquet, and Arrow IPC files and streams: one column of them, as rows or as values.

Parquet is decoded by row groups and compressed IPC files by record batches, since nothing finer
can be decoded; other IPC files are mapped into memory and their rows are views of the map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairnepv.io.arrow_batches import Batches, ipc_schema
from fairnepv.io.arrow_columns import decoded_bytes, is_binary, is_text, to_numpy
from fairnepv.io.memory import refuse_expansion
from fairnepv.io.places import for_arrow
from fairnepv.io.rows import FileVersion, Rows, file_version
from fairnepv.io.source import Source
from fairnepv.io.table_rows import Column, Kept, TableRows, choose_column, reading
from fairnepv.io.texts import as_texts

_REMEDY = "write it in smaller row groups, or without compression and dictionaries"


class ParquetRows(TableRows):
    @cached_property
    def _opened(self) -> Any:
        with reading(self.column.source):
            return _parquet(self.column.source)

    def _lengths(self) -> list[int]:
        about = self._opened.metadata
        return [about.row_group(g).num_rows for g in range(about.num_row_groups)]

    def _chunks(self, s: int) -> list[Any]:
        row_bytes = self.shape[1] * self.dtype.itemsize
        _refuse_bomb(self._opened, self.column, [s], self.file.size, row_bytes)
        return _parquet_chunks(self._opened, s, self.column)

    def _sample(self, s: int) -> Any:
        _refuse_bomb(self._opened, self.column, [s], self.file.size, 0)
        rows = self._opened.iter_batches(
            batch_size=1, row_groups=[s], columns=[self.column.name], use_threads=False
        )
        return next(rows).column(self.column.name)

    def _type(self) -> Any:
        return self._opened.schema_arrow.types[self.column.at]


class ArrowRows(TableRows):
    """Where the file is not compressed, chunks are views of its memory map and need no keeping."""

    def __init__(self, column: Column, file: FileVersion, kept: Kept) -> None:
        super().__init__(column, file, kept)
        self.at_hand = self._opened.at_hand

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
        return self.at_hand or self.resident

    @property
    def resident(self) -> bool:  # type: ignore[override]
        return not self.at_hand and super().resident

    def part(self, s: int) -> Rows:
        return self._same(s, self._decode(s)) if self.at_hand else super().part(s)


def open_table(source: Source, kept: Kept | None = None) -> TableRows:
    """A column of a table, of which what is compressed is decoded when its rows are asked for."""
    file = file_version(source)
    column = choose_column(source, column_names(source), None)
    rows = ParquetRows if source.ending == ".parquet" else ArrowRows
    return rows(column, file, kept or Kept())


def column_names(source: Source) -> list[str]:
    return [name for name, _ in column_types(source)]


def column_types(source: Source) -> list[tuple[str, Any]]:
    """Names of all columns with their types, in order; a name may come twice."""
    if source.ending != ".parquet":
        schema = ipc_schema(source)
    else:
        with reading(source):
            schema = _footer(source).schema.to_arrow_schema()
    return [(field.name, field.type) for field in schema]


def _footer(source: Source) -> Any:
    """What a Parquet file says of itself at its end."""
    file_version(source)  # first, so that it is found out if the file changes from now on
    return source.once("footer", lambda: pq.read_metadata(for_arrow(source.path)))


def read_column(source: Source, default: str | None = None) -> NDArray[Any]:
    """A column in memory: lists of equal length as (n, p), plain values as (n,)."""
    pieces: list[NDArray[Any]] = []
    first = 0
    column = choose_column(source, column_names(source), default)
    with reading(source):
        for chunk in counted_chunks(column):
            pieces.append(to_numpy(chunk, str(column), first, column.kind))
            first += len(chunk)
    return as_texts(np.concatenate(pieces), str(column)) if pieces else np.empty(0)


def counted_chunks(column: Column) -> Iterator[Any]:
    """The arrays of a column, refused before anybody repeats what their values share."""
    stored, expanded = file_version(column.source).size, 0
    for chunk in _all_chunks(column, stored):
        expanded += decoded_bytes(chunk)
        refuse_expansion(str(column), stored, expanded, "write each value once, or plainly")
        yield chunk


def _all_chunks(column: Column, stored: int) -> Iterator[Any]:
    if column.source.ending == ".parquet":
        with _unrepeated(column) as file:
            row_bytes = 8 * int(getattr(file.schema_arrow.types[column.at], "list_size", 1))
            _refuse_bomb(file, column, range(file.num_row_groups), stored, row_bytes)
            for group in range(file.num_row_groups):
                yield from _parquet_chunks(file, group, column)
    else:
        batches = Batches.of(column.source, column.at, whole=True)
        yield from (batches.array(b) for b in range(len(batches.lengths)))


def _parquet(source: Source, **options: Any) -> Any:
    """With the checksums of pages compared, where the writer put them in."""
    return pq.ParquetFile(
        for_arrow(source.path),
        metadata=_footer(source),
        page_checksum_verification=True,
        **options,
    )


def _unrepeated(column: Column) -> Any:
    """A file whose texts in that column are read as a dictionary: one that is stored once may
    stand in all rows, and would be as often in memory."""
    kind = column_types(column.source)[column.at][1]
    texts = [column.name] if is_text(kind) or is_binary(kind) else None
    return _parquet(column.source, read_dictionary=texts)


def _refuse_bomb(
    file: Any, column: Column, groups: Iterable[int], stored: int, row_bytes: int
) -> None:
    """A page may expand by its compression, and a run of equal rows is stored as one.

    Row groups are asked and not their columns, of which PyArrow aborts where they are damaged.
    """
    about = [file.metadata.row_group(group) for group in groups]
    expanded = sum(max(group.total_byte_size, group.num_rows * row_bytes) for group in about)
    refuse_expansion(str(column), stored, expanded, _REMEDY)


def _parquet_chunks(file: Any, group: int, column: Column) -> list[Any]:
    table = file.read_row_group(group, columns=[column.name], use_threads=False)
    chunks: list[Any] = table.column(column.name).chunks
    return chunks
