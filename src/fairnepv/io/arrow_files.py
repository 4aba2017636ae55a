"""Parquet, and Arrow IPC files and streams: one column of them, chunk by chunk.

Chunks are what a file is made of and what can be decoded by itself: row groups of Parquet, record
batches of IPC (`arrow_batches`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow.parquet as pq

from fairnepv.io.arrow_batches import ipc_schema, open_batches
from fairnepv.io.arrow_columns import BINARY_KINDS, decoded_bytes, is_binary, is_text
from fairnepv.io.memory import refuse_expansion
from fairnepv.io.places import for_arrow
from fairnepv.io.rows import file_version
from fairnepv.io.source import Source, choose_part, reading

REPEATED = "write each value once, or plainly"
_REMEDY = "write it in smaller row groups, or without compression and dictionaries"


@dataclass(frozen=True)
class Column:
    """A column of a table file."""

    source: Source
    name: str
    at: int  # its place among the columns
    kind: str | None  # of what numbers binary values are made

    def __str__(self) -> str:
        return f"{self.source.path}, column {self.name!r}"


def choose_column(source: Source, default: str | None = None) -> Column:
    """The column that PART or PART@KIND asks for, the default, or the only one."""
    names = column_names(source)
    kind = None
    if source.part is not None and source.part not in names:
        head, _, tail = source.part.rpartition("@")
        if head in names and tail in BINARY_KINDS:
            source, kind = source.with_part(head), tail
    name = choose_part(source, names, "column", default)
    return Column(source, name, names.index(name), kind)


def column_names(source: Source) -> list[str]:
    return [name for name, _ in column_types(source)]


def column_types(source: Source) -> list[tuple[str, Any]]:
    """Names of all columns with their types, in order; a name may come twice."""
    with reading_table(source):
        parquet = source.ending == ".parquet"
        schema = _footer(source).schema.to_arrow_schema() if parquet else ipc_schema(source)
    return [(field.name, field.type) for field in schema]


def _footer(source: Source) -> Any:
    """What a Parquet file says of itself at its end."""
    file_version(source)  # first, so that it is found out if the file changes from now on
    return source.once("footer", lambda: pq.read_metadata(for_arrow(source.path)))


class Chunks(Protocol):
    """A column in chunks."""

    kind: Any  # the Arrow type of the column
    lengths: list[int]  # how many rows each chunk has
    at_hand: bool  # whether a chunk costs nothing to get: mapped, or decoded already

    def arrays(self, s: int, row_bytes: int = 0) -> list[Any]:
        """Arrow arrays that make up chunk s, of which a row takes so much at least."""

    def sample(self, s: int) -> Any:
        """An Arrow array of the first row of chunk s; a whole one may be much to decode."""


class RowGroups:
    """The row groups of a Parquet file."""

    at_hand = False

    def __init__(self, column: Column, *, whole: bool) -> None:
        """With `whole`, texts come as a dictionary: one that is stored once may stand in all rows,
        and would be as often in memory."""
        self._column, self._about = column, _footer(column.source)
        self._stored = file_version(column.source).size
        self.kind = column_types(column.source)[column.at][1]
        texts = whole and (is_text(self.kind) or is_binary(self.kind))
        self._file = pq.ParquetFile(
            for_arrow(column.source.path),
            metadata=self._about,
            page_checksum_verification=True,  # where the writer put checksums in
            read_dictionary=[column.name] if texts else None,
        )
        groups = range(self._about.num_row_groups)
        self.lengths = [self._about.row_group(group).num_rows for group in groups]
        if whole:
            self._refuse_bomb(groups, 8 * int(getattr(self.kind, "list_size", 1)))

    def arrays(self, s: int, row_bytes: int = 0) -> list[Any]:
        self._refuse_bomb([s], row_bytes)
        return _decode_group(self._file, s, self._column.name)

    def sample(self, s: int) -> Any:
        self._refuse_bomb([s], 0)
        columns = [self._column.name]
        rows = self._file.iter_batches(1, row_groups=[s], columns=columns, use_threads=False)
        return next(rows).column(self._column.name)

    def _refuse_bomb(self, groups: Iterable[int], row_bytes: int) -> None:
        """A page may expand by its compression, and a run of equal rows is stored as one.

        Row groups are asked and not their columns, of which PyArrow aborts where they are damaged.
        """
        about = [self._about.row_group(group) for group in groups]
        expanded = sum(max(group.total_byte_size, group.num_rows * row_bytes) for group in about)
        refuse_expansion(str(self._column), self._stored, expanded, _REMEDY)


def _decode_group(file: Any, group: int, name: str) -> list[Any]:
    table = file.read_row_group(group, columns=[name], use_threads=False)
    chunks: list[Any] = table.column(name).chunks
    return chunks


def open_chunks(column: Column, *, whole: bool = False) -> Chunks:
    """The chunks of a column; `whole` where all will be held together."""
    with reading_table(column.source):
        if column.source.ending == ".parquet":
            return RowGroups(column, whole=whole)
        return open_batches(column.source, column.at, whole=whole)


def counted_chunks(column: Column) -> Iterator[Any]:
    """The arrays of a column, refused before anybody repeats what their values share."""
    stored, expanded = file_version(column.source).size, 0
    chunks = open_chunks(column, whole=True)
    for s in range(len(chunks.lengths)):
        for array in chunks.arrays(s):
            expanded += decoded_bytes(array)
            refuse_expansion(str(column), stored, expanded, REPEATED)
            yield array


def reading_table(source: Source, where: str = "") -> AbstractContextManager[None]:
    kind = "Parquet" if source.ending == ".parquet" else "Arrow IPC"
    return reading(source.path, kind, where)
