"""Parquet and Arrow files: one column of them, chunk by chunk, as NumPy arrays.

Chunks are what a file is made of and what can be decoded by itself: row groups of Parquet, record
batches of IPC (`arrow_ipc`). A column is refused where Arrow would quietly give something else:
flattening drops null rows and so shifts one view against another, `values` forgets where a slice
began, and ragged lists reshape without a word when their total happens to fit.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.arrow_ipc import Chunks, ipc_schema, open_batches
from fairnepv.io.memory import refuse_expansion
from fairnepv.io.places import for_arrow
from fairnepv.io.rows import file_version, widen_bfloat16
from fairnepv.io.source import Source, choose_part, reading

# Arrow's types, by what they are to a reader.
LISTS = {pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST, pa.lib.Type_FIXED_SIZE_LIST}
VIEWS = {pa.lib.Type_STRING_VIEW, pa.lib.Type_BINARY_VIEW}
TEXTS = {pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING}
BINARIES = {pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_FIXED_SIZE_BINARY}
BINARY_KINDS = {"float16": "<f2", "bfloat16": "<u2", "float32": "<f4", "float64": "<f8"}
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
        if source.ending == ".parquet":
            schema = _footer(source).schema.to_arrow_schema()
        else:
            schema = ipc_schema(source)
        return [(field.name, field.type) for field in schema]  # a name may be no UTF-8


def open_chunks(column: Column, *, whole: bool = False) -> Chunks:
    """The chunks of a column; `whole` where all will be held together."""
    with reading_table(column.source):
        if column.source.ending == ".parquet":
            return _open_groups(column, whole=whole)
        return open_batches(column.source, column.at, whole=whole)


def counted_chunks(column: Column) -> Iterator[Any]:
    """The arrays of a column, refused where they would take too much memory once each value that
    they share is written out."""
    version, expanded = file_version(column.source), 0
    stored = version.size
    chunks = open_chunks(column, whole=True)
    for s in range(len(chunks.lengths)):
        for array in chunks.arrays(s, 0):
            expanded += decoded_bytes(array)
            refuse_expansion(str(column), stored, expanded, REPEATED)
            yield array
    if not column.source.is_remote:  # those are not changed in place, and to ask takes a while
        version.check()


@contextmanager
def reading_table(source: Source, where: str = "") -> Iterator[None]:
    """Whatever Arrow makes of broken bytes becomes one sentence, and so does a file that was
    written to meanwhile, which may look broken."""
    version = None if source.is_remote else file_version(source)
    try:
        with reading(source.path, "Parquet" if source.ending == ".parquet" else "Arrow IPC", where):
            yield
    finally:
        if version is not None:
            version.check()


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
        refuse_expansion(str(column), stored, expanded, _REMEDY)

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


# --- Arrow arrays as NumPy arrays, row by row what they were --------------------------------------


def to_numpy(column: Any, what: str, first: int = 0, kind: str | None = None) -> NDArray[Any]:
    """An Arrow array: lists of equal length as (n, p), without a copy where Arrow allows it, and
    plain values as (n,).

    `first` is the number of the first row, for messages; `kind` says what numbers binary values
    are made of. Offsets are compared with the values first: Arrow follows them without looking,
    and one that is out of bounds ends the process.
    """
    column.validate(full=True)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if column.null_count:
        row = int(np.argmax(gaps_in(column)))
        raise InputError(f"{what} has no value in row {first + row:,}; drop or fill the empty rows")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kind is not None:
        return _from_bytes(column, what, first, kind)
    if column.type.id in LISTS:
        return _from_lists(column, what, first)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def gaps_in(values: Any) -> NDArray[np.bool_]:
    """(n,) where an array of Arrow has no value."""
    return np.asarray(pc.is_null(values).to_numpy(zero_copy_only=False))


def decoded_bytes(column: Any) -> int:
    """Bytes of the values of a column once each is written out: those of a dictionary, and views of
    texts, may share theirs."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if kind.id in LISTS and pa.types.is_dictionary(kind.value_type):
        column.validate(full=True)
        return decoded_bytes(column.flatten())
    if pa.types.is_dictionary(kind):
        column.validate(full=True)
        sizes = _value_bytes(column.dictionary)
        places = column.indices.drop_null().to_numpy(zero_copy_only=False)
        return int(sizes[places].sum())
    if kind.id in VIEWS:
        column.validate(full=True)
        return int(_value_bytes(column).sum())
    return int(column.get_total_buffer_size())


def _value_bytes(values: Any) -> NDArray[np.int64]:
    """(n,) bytes of each value."""
    if values.type.id in LISTS:
        sizes = pc.multiply(pc.list_value_length(values).cast(pa.int64()), 8)
    elif values.type.id in VIEWS:  # 16 bytes each, of which the first four are the length
        lengths = np.frombuffer(values.buffers()[1], "<u4").reshape(-1, 4)[:, 0]
        return lengths[values.offset : values.offset + len(values)].astype(np.int64)
    elif values.type.id in TEXTS | BINARIES:
        sizes = pc.binary_length(values).cast(pa.int64())
    else:
        return np.full(len(values), 8)  # of one number, at most
    return np.asarray(sizes.fill_null(0).to_numpy(zero_copy_only=False))


def _from_lists(column: Any, what: str, first: int) -> NDArray[Any]:
    if column.type.value_type.id in LISTS:
        raise InputError(f"{what} holds lists of lists; flatten each row to one list of features")
    width = _equal_lengths(pc.list_value_length(column), what, first)
    values = column.flatten()  # respects slices, and there are no null rows to drop
    if values.null_count:
        at = int(np.argmax(gaps_in(values)))
        raise InputError(
            f"{what} has an empty value in row {first + at // width:,}; drop or fill such rows"
        )
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(column), width)


def _from_bytes(column: Any, what: str, first: int, kind: str) -> NDArray[Any]:
    if column.type.id not in BINARIES:
        raise InputError(f"{what} has type {column.type}, not bytes; leave @{kind} out")
    width = _equal_lengths(pc.binary_length(column), what, first)
    number = np.dtype(BINARY_KINDS[kind])
    if width % number.itemsize:
        raise InputError(
            f"{what} has {width} bytes in a row, which is no whole number of {kind} values"
        )
    shape = (len(column), width // number.itemsize)
    start, content = column.offset * width, column.buffers()[-1]
    if not pa.types.is_fixed_size_binary(column.type):
        offset = np.int64 if pa.types.is_large_binary(column.type) else np.int32
        start = int(np.frombuffer(column.buffers()[1], offset)[column.offset]) if shape[0] else 0
    if not shape[0] * shape[1]:
        return np.empty(shape, np.float32 if kind == "bfloat16" else number)
    values = np.frombuffer(content, number, shape[0] * shape[1], offset=start).reshape(shape)
    return widen_bfloat16(values) if kind == "bfloat16" else values


def _equal_lengths(lengths: Any, what: str, first: int) -> int:
    """The length that all rows have."""
    found = lengths.to_numpy(zero_copy_only=False)
    if not len(found):
        return 1
    refuse_ragged(found, int(found[0]), first, what, first)
    return int(found[0])


def refuse_ragged(
    lengths: NDArray[Any], expected: int, expected_row: int, what: str, first: int
) -> None:
    """Refuse rows of another length than one that is known."""
    other = np.flatnonzero(lengths != expected)
    if len(other):
        raise InputError(
            f"{what} has lists of different lengths: {expected} in row {expected_row:,} and "
            f"{lengths[other[0]]} in row {first + int(other[0]):,}; all rows need the same number "
            "of features"
        )
