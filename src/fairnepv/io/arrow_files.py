"""Parquet, and Arrow IPC files and streams: one column of them, chunk by chunk.

Chunks are what a file is made of and what can be decoded by itself: row groups of Parquet, record
batches of IPC, which are views of its memory map where they can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from fairnepv.errors import InputError
from fairnepv.io.arrow_columns import BINARIES, BINARY_KINDS, TEXTS, decoded_bytes
from fairnepv.io.arrow_sizes import Batch, file_batches, stream_batches
from fairnepv.io.memory import refuse_expansion
from fairnepv.io.places import for_arrow, open_regular, regular_file
from fairnepv.io.rows import file_version
from fairnepv.io.source import Source, choose_part, reading

REPEATED = "write each value once, or plainly"
_SMALLER_GROUPS = "write it in smaller row groups, or without compression and dictionaries"
_SMALLER_BATCHES = "write it without compression, or in smaller batches"
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


@dataclass(frozen=True)
class Chunks:
    """A column in chunks."""

    kind: Any  # the Arrow type of the column
    lengths: list[int]  # how many rows each chunk has
    arrays: Callable[[int, int], list[Any]]  # of chunk s, of which a row takes so much at least
    sample: Callable[[int], Any]  # the first row of chunk s; a whole one may be much to decode
    at_hand: bool = False  # whether a chunk costs nothing to get: mapped, or decoded already


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
        if source.ending == ".parquet":
            schema = _footer(source).schema.to_arrow_schema()
        else:
            content = _mapped(source)
            opened = pa.ipc.open_file if _is_ipc_file(source) else pa.ipc.open_stream
            schema = opened(content).schema
    return [(field.name, field.type) for field in schema]


def open_chunks(column: Column, *, whole: bool = False) -> Chunks:
    """The chunks of a column; `whole` where all will be held together."""
    with reading_table(column.source):
        if column.source.ending == ".parquet":
            return _open_groups(column, whole=whole)
        return _open_batches(column.source, column.at, whole=whole)


def counted_chunks(column: Column) -> Iterator[Any]:
    """The arrays of a column, refused before anybody repeats what their values share."""
    stored, expanded = file_version(column.source).size, 0
    chunks = open_chunks(column, whole=True)
    for s in range(len(chunks.lengths)):
        for array in chunks.arrays(s, 0):
            expanded += decoded_bytes(array)
            refuse_expansion(str(column), stored, expanded, REPEATED)
            yield array


def reading_table(source: Source, where: str = "") -> AbstractContextManager[None]:
    kind = "Parquet" if source.ending == ".parquet" else "Arrow IPC"
    return reading(source.path, kind, where)


# --- Parquet --------------------------------------------------------------------------------------


def _footer(source: Source) -> Any:
    """What a Parquet file says of itself at its end."""
    file_version(source)  # first, so that it is found out if the file changes from now on
    return source.once("footer", lambda: pq.read_metadata(for_arrow(source.path)))


def _open_groups(column: Column, *, whole: bool) -> Chunks:
    """The row groups of a file. If `whole`, texts come as a dictionary: one that is stored once may
    stand in all rows, and would be as often in memory."""
    about, stored = _footer(column.source), file_version(column.source).size
    kind = column_types(column.source)[column.at][1]
    file = pq.ParquetFile(
        for_arrow(column.source.path),
        metadata=about,
        page_checksum_verification=True,  # where the writer put checksums in
        read_dictionary=[column.name] if whole and kind.id in TEXTS | BINARIES else None,
    )
    groups = [about.row_group(group) for group in range(about.num_row_groups)]

    def refuse_bomb(groups: Iterable[Any], row_bytes: int) -> None:
        """A page may expand by its compression, and a run of equal rows is stored as one.

        Row groups are asked and not their columns, of which PyArrow aborts where they are damaged.
        """
        expanded = sum(max(group.total_byte_size, group.num_rows * row_bytes) for group in groups)
        refuse_expansion(str(column), stored, expanded, _SMALLER_GROUPS)

    def arrays(s: int, row_bytes: int) -> list[Any]:
        refuse_bomb([groups[s]], row_bytes)
        return _decode_group(file, s, column.name)

    def sample(s: int) -> Any:
        refuse_bomb([groups[s]], 0)
        rows = file.iter_batches(1, row_groups=[s], columns=[column.name], use_threads=False)
        return next(rows).column(column.name)

    if whole:
        refuse_bomb(groups, 8 * int(getattr(kind, "list_size", 1)))
    return Chunks(kind, [group.num_rows for group in groups], arrays, sample)


def _decode_group(file: Any, group: int, name: str) -> list[Any]:
    table = file.read_row_group(group, columns=[name], use_threads=False)
    chunks: list[Any] = table.column(name).chunks
    return chunks


# --- Arrow IPC ------------------------------------------------------------------------------------


def _open_batches(source: Source, at: int, *, whole: bool) -> Chunks:
    """The record batches of column number `at`."""
    content = _mapped(source)
    if not _is_ipc_file(source):
        return _open_stream(source, content, at)
    parts = file_batches(memoryview(content))
    _refuse_bomb(source, content, [part for part in parts if part.dictionary or whole])
    mapped = None if any(part.compressed for part in parts) else _open_views(content, at)
    return mapped or _open_compressed(source, content, at, parts)


def _open_views(content: Any, at: int) -> Chunks | None:
    """Batches that are views of the map, or None where they cannot be.

    All columns are read, since to leave some out Arrow copies the others.
    """
    reader = pa.ipc.open_file(content)
    arrays = []
    for b in range(reader.num_record_batches):
        arrays.append(_valid_column(reader.get_batch(b), at))
        if not _lies_in(arrays[-1], content):
            return None
    return _held(reader.schema.types[at], arrays)


def _open_compressed(source: Source, content: Any, at: int, parts: list[Batch]) -> Chunks:
    """Batches that are decoded again whenever they are asked for."""
    reader = pa.ipc.open_file(content, options=pa.ipc.IpcReadOptions(included_fields=[at]))
    batches = [part for part in parts if not part.dictionary]

    def decode(b: int) -> Any:
        _refuse_bomb(source, content, [batches[b]])
        return _valid_column(reader.get_batch(b), 0)

    return _batches(reader.schema.types[0], [batch.rows for batch in batches], decode)


def _open_stream(source: Source, content: Any, at: int) -> Chunks:
    """The batches of a stream, which has no directory: they are found by walking through it."""
    _refuse_bomb(source, content, list(stream_batches(memoryview(content))))
    reader = pa.ipc.open_stream(content, options=pa.ipc.IpcReadOptions(included_fields=[at]))
    arrays: list[Any] = []
    rows = 0
    try:
        for batch in reader:
            arrays.append(_valid_column(batch, 0))
            rows += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{source.path} is cut short or damaged behind row {rows:,} "
            f"({' '.join(str(error).split())}); write it again"
        ) from error
    if bytes(memoryview(content)[-len(_END_OF_STREAM) :]) != _END_OF_STREAM:
        raise InputError(f"{source.path} is cut short behind row {rows:,}; write it again")
    return _held(reader.schema.types[0], arrays)


def _held(kind: Any, arrays: list[Any]) -> Chunks:
    return _batches(kind, list(map(len, arrays)), arrays.__getitem__, at_hand=True)


def _batches(
    kind: Any, lengths: list[int], decode: Callable[[int], Any], at_hand: bool = False
) -> Chunks:
    def sample(b: int) -> Any:
        array = decode(b)
        array.validate(full=True)
        return array[:1]

    return Chunks(kind, lengths, lambda b, _: [decode(b)], sample, at_hand)


def _refuse_bomb(source: Source, content: Any, batches: list[Batch]) -> None:
    """Refuse batches whose decompression would take too much memory."""
    if any(batch.compressed for batch in batches):
        expanded = sum(batch.expanded for batch in batches)
        refuse_expansion(str(source.path), content.size, expanded, _SMALLER_BATCHES)


def _mapped(source: Source) -> Any:
    """The bytes of a file as an Arrow buffer."""
    if not isinstance(source.path, Path):
        raise InputError(
            f"{source.path} is an Arrow file, which is read from a local disk alone; copy it "
            "there, or write it as Parquet"
        )
    return pa.memory_map(str(regular_file(source.path))).read_buffer()


def _is_ipc_file(source: Source) -> bool:
    with open_regular(source.path) as file:
        magic = file.read(8)
    if magic.startswith(_FEATHER_1):
        raise InputError(
            f"{source.path} is Feather of version 1; write it as version 2 (Arrow IPC) or Parquet"
        )
    if not magic:
        raise InputError(f"{source.path} is empty; write it again")
    return magic.startswith(_IPC_FILE)


def _valid_column(batch: Any, at: int) -> Any:
    """A column whose length is that of its batch and within its buffers."""
    batch.validate()
    return batch.column(at)


def _lies_in(array: Any, content: Any) -> bool:
    """Whether the values of an array are views of `content`, and not decoded."""
    buffers = [buffer for buffer in array.buffers() if buffer is not None and buffer.size]
    begin, end = content.address, content.address + content.size
    return all(begin <= buffer.address < end for buffer in buffers)
