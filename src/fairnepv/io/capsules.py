"""Columns that a program holds: pandas, Polars, PyArrow, DuckDB, Hugging Face and lists of lists.

There is one door: Arrow's PyCapsule interface (`__arrow_c_stream__`, `__arrow_c_array__`), by which
these libraries hand over columns, without a copy where they keep them as Arrow does. Kinds that
lack the interface are asked for something that has it (`_lent`). A row without a value becomes a
row of NaN, which the pool refuses or leaves out, whatever it was told (docs/tables.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairnepv.display import listed
from fairnepv.errors import InputError
from fairnepv.io.arrow_files import LISTS, TEXTS, VIEWS, gaps_in, refuse_ragged
from fairnepv.io.rows import HeldRows, Rows, Shards
from fairnepv.io.texts import as_texts

JOINED_BYTES = 1 << 28  # up to which the chunks of a column are copied into one array
_AT_ONCE = 1 << 14  # rows of pandas that are converted together
_LIST_VIEWS = (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW)


def read_columns(data: Any, names: Sequence[str]) -> dict[str, Any]:
    """These columns of a table that lends them, as chunked arrays; one look at the table, since
    what a query gives the second time may be in another order."""
    names = list(dict.fromkeys(names))
    try:
        schema, batches = _batches(_lent(data, names))
        places = _places(names, schema.names)
        kinds = [schema.field(at).type for at in places]
        parts = [[batch.column(at) for at in places] for batch in batches]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"data cannot be read as a table of Arrow ({reason})") from error
    return {
        name: pa.chunked_array([part[q] for part in parts], type=kinds[q])
        for q, name in enumerate(names)
    }


def _batches(lent: Any) -> tuple[Any, Iterable[Any]]:
    """The schema of what is lent, and its batches. Of pandas some rows at a time: while Arrow makes
    a column of Python objects, it takes up to twice what the column takes in the end."""
    if hasattr(lent, "iloc") and len(lent) > _AT_ONCE:
        starts = range(0, len(lent), _AT_ONCE)
        parts = [
            pa.RecordBatchReader.from_stream(lent.iloc[start : start + _AT_ONCE]).read_all()
            for start in starts
        ]
        if all(part.schema.equals(parts[0].schema) for part in parts):
            return parts[0].schema, (batch for part in parts for batch in part.to_batches())
    reader = pa.RecordBatchReader.from_stream(lent)
    return reader.schema, reader


def column_names(data: Any) -> list[str]:
    """The names of all columns of a table, without a look at any row."""
    if hasattr(data, "collect_schema"):
        return list(data.collect_schema().names())
    for names in ("column_names", "columns"):
        found = getattr(data, names, None)
        if found is not None and not callable(found) and isinstance(next(iter(found), ""), str):
            return list(found)
    schema = (
        data.schema if hasattr(data, "schema") else pa.RecordBatchReader.from_stream(data).schema
    )
    return list(schema.names)


def _lent(data: Any, names: list[str]) -> Any:
    """What hands over these columns by Arrow, for a table that does not itself, or of which Arrow
    would convert or compute all columns."""
    if hasattr(data, "iloc"):  # pandas converts objects, and stumbles over those of other columns
        return data.iloc[:, _places(names, list(data.columns))]
    if hasattr(data, "collect_schema") and not hasattr(data, "__arrow_c_stream__"):
        _places(names, column_names(data))
        return data.select(names).collect()  # a lazy frame of Polars
    if hasattr(data, "select_columns"):  # Hugging Face, whose rows may be a choice of its files'
        _places(names, list(data.column_names))
        return data.select_columns(names).with_format("arrow")[:]
    if hasattr(data, "scanner"):  # a data set of PyArrow
        _places(names, data.schema.names)
        return data.scanner(columns=names).to_reader()
    return data


def _places(names: Sequence[str], held: list[Any]) -> list[int]:
    """The places of these columns among all of a table, which must have each of them, and once."""
    for name in names:
        check_name(name, held)
    return [held.index(name) for name in names]


def check_name(name: str, names: Sequence[Any], what: str = "data") -> None:
    """Refuse the name of a column that a table has not, or has more than once."""
    if name not in names:
        import difflib

        near = difflib.get_close_matches(name, list(map(str, names)), 1, 0.5)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(f"{what} has no column {name!r}; it has {listed(names)}{meant}")
    if list(names).count(name) > 1:
        raise InputError(
            f"{what} has column {name!r} {list(names).count(name)} times; rename all but one"
        )


def as_column(value: Any, what: str) -> Any:
    """One column that a program holds as a chunked array."""
    try:
        if isinstance(value, pa.ChunkedArray):
            return value
        if hasattr(value, "__arrow_c_stream__"):
            return pa.chunked_array(value)
        if not hasattr(value, "__arrow_c_array__"):  # objects, of which Arrow finds out the kind
            # A masked array stays one: Arrow takes what is masked for missing.
            held = np.asanyarray(value) if hasattr(value, "__array__") else list(value)
            starts = range(0, max(1, len(held)), _AT_ONCE)
            parts = [pa.array(held[s : s + _AT_ONCE], from_pandas=True) for s in starts]
            same = all(part.type.equals(parts[0].type) for part in parts)
            return pa.chunked_array(parts if same else [pa.array(held, from_pandas=True)])
        return pa.chunked_array([pa.array(value)])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _of_two_kinds(value, what, error) from error


def _of_two_kinds(value: Any, what: str, error: Exception) -> InputError:
    """The first row that is of another kind than those before it."""
    first: Any = None
    for row, item in enumerate(value):
        if item is None or (isinstance(item, float) and item != item):
            continue
        kind = "a list" if isinstance(item, list | tuple | np.ndarray) else type(item).__name__
        if first is not None and kind != first[0]:
            return InputError(
                f"{what} has {first[0]} in row {first[1]:,} and {kind} in row {row:,}; make all of "
                "them of one kind"
            )
        first = first or (kind, row)
    reason = str(error).split("\n")[0]
    return InputError(f"{what} cannot be read as a column ({reason})")


# --- as rows --------------------------------------------------------------------------------------


def column_rows(column: Any, what: str) -> Rows | Shards:
    """(n, p) numbers of a column of lists of one length, (n, 1) of one of numbers; views of its
    buffers where there are no gaps. Chunks that are large stay apart."""
    chunks = [_plain(chunk) for chunk in column.chunks if len(chunk)]
    if not chunks:
        raise InputError(f"{what} has no rows")
    firsts = np.cumsum([0, *map(len, chunks)]).tolist()
    width = _width(chunks, firsts, what)
    pieces = [_chunk_rows(c, width, what, first) for c, first in zip(chunks, firsts, strict=False)]
    dtype = np.result_type(*(piece.dtype for piece in pieces))
    pieces = [piece.astype(dtype, copy=False) for piece in pieces]
    if len(pieces) == 1:
        return pieces[0]
    if sum(piece.nbytes for piece in pieces) <= JOINED_BYTES:
        return np.concatenate(pieces)
    return Shards([HeldRows(piece, what) for piece in pieces], what)


def _plain(chunk: Any) -> Any:
    """A chunk in one of the types that are read here; offsets are checked before they are
    followed."""
    chunk.validate(full=True)
    if isinstance(chunk, pa.ExtensionArray):
        chunk = chunk.storage
    if pa.types.is_dictionary(chunk.type):
        if pa.types.is_string_view(chunk.type.value_type):  # of which Arrow decodes none
            words = chunk.dictionary.cast(pa.large_string())
            chunk = pa.DictionaryArray.from_arrays(chunk.indices, words)
        chunk = chunk.dictionary_decode()
    if chunk.type.id in _LIST_VIEWS:
        chunk = _as_lists(chunk)
    return chunk


def _as_lists(chunk: Any) -> Any:
    """Lists that may lie anywhere, one after the other: a cast by PyArrow 26 leaves the last offset
    out where they do already."""
    lengths = pc.list_value_length(chunk).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return pa.LargeListArray.from_arrays(
        pa.array(ends, pa.int64()), chunk.flatten(), mask=chunk.is_null()
    )


def _width(chunks: Sequence[Any], firsts: Sequence[int], what: str) -> int:
    """The length that all lists have; 1 of plain numbers."""
    kind = chunks[0].type
    if kind.id not in LISTS:
        return 1
    if kind.id == pa.lib.Type_FIXED_SIZE_LIST:
        return int(kind.list_size)
    width, row = None, 0
    for chunk, first in zip(chunks, firsts, strict=False):
        lengths = pc.list_value_length(chunk).to_numpy(zero_copy_only=False)
        known = np.flatnonzero(~gaps_in(chunk))
        if width is None and len(known):
            width, row = int(lengths[known[0]]), first + int(known[0])
        if width is not None:  # rows without a value have no length
            refuse_ragged(np.where(lengths == lengths, lengths, width), width, row, what, first)
    if width is None:
        raise InputError(f"{what} has no value in any row")
    return width


def _chunk_rows(chunk: Any, width: int, what: str, first: int) -> Rows:
    """(m, p) rows of one chunk, NaN where there is no value."""
    if chunk.type.id not in LISTS:
        return _numbers(chunk, what)[:, None]
    if chunk.type.value_type.id in LISTS:
        raise InputError(
            f"{what} holds lists of lists; flatten each row to one list of features, or make one "
            "of them with fairnepv.pooled"
        )
    values = _numbers(_plain(chunk.flatten()), what)  # which leaves out rows without a value
    if not chunk.null_count:
        return values.reshape(len(chunk), width)
    present = np.flatnonzero(~gaps_in(chunk))
    kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
    rows = np.full((len(chunk), width), np.nan, dtype=kind)
    rows[present] = values.reshape(len(present), width)
    return rows


def nested_rows(chunk: Any, what: str, first: int) -> tuple[Rows, NDArray[np.int64]]:
    """(m, p) vectors of a chunk of lists of vectors, and the row of the chunk that each is of."""
    chunk = _plain(chunk)
    if chunk.type.id not in LISTS or _plain(chunk.flatten()).type.id not in LISTS:
        raise InputError(f"{what} must hold a list of vectors per row, not {chunk.type}; pass ids")
    vectors = _plain(chunk.flatten())
    lengths = pc.list_value_length(chunk).fill_null(0).to_numpy(zero_copy_only=False)
    item = np.repeat(np.arange(len(chunk)), lengths.astype(np.int64))
    if vectors.null_count:
        at = int(np.argmax(gaps_in(vectors)))
        raise InputError(f"{what} has an empty vector in row {first + int(item[at]):,}; drop it")
    widths = pc.list_value_length(vectors).to_numpy(zero_copy_only=False)
    if len(widths) and (widths != widths[0]).any():
        at = int(np.argmax(widths != widths[0]))
        raise InputError(
            f"{what} has vectors of different lengths: {widths[0]} in row {first + int(item[0]):,} "
            f"and {widths[at]} in row {first + int(item[at]):,}"
        )
    width = int(widths[0]) if len(widths) else 0
    return _numbers(_plain(vectors.flatten()), what).reshape(len(vectors), width), item


def _numbers(values: Any, what: str) -> NDArray[Any]:
    """Numbers of an array of Arrow, NaN where there is none."""
    kind = values.type
    if pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InputError(f"{what} holds {_in_words(kind)}, not numbers{_remedy(kind)}")
    elif pa.types.is_boolean(kind) and values.null_count:
        values = values.cast(pa.int8())
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _in_words(kind: Any) -> str:
    if kind.id in TEXTS | VIEWS:
        return "text"
    return "dates" if pa.types.is_temporal(kind) else str(kind)


def _remedy(kind: Any) -> str:
    if kind.id in TEXTS | VIEWS:
        return (
            "; make a view of categories with fairnepv.attributes(table, columns), of texts with "
            "fairnepv.texts(column)"
        )
    if pa.types.is_temporal(kind):
        return "; say what counts of them, such as the year, in a column of numbers"
    return "; name a column of numbers or of lists of them"


# --- as values ------------------------------------------------------------------------------------


def column_values(column: Any, what: str, *, gaps: bool = False) -> NDArray[Any]:
    """(n,) values of a column: texts, numbers, dates. Rows without a value are refused, or, with
    `gaps`, None and NaN."""
    kind = column.type
    if kind.id in LISTS or kind.id in _LIST_VIEWS or pa.types.is_struct(kind):
        raise InputError(f"{what} must hold one value per row, not {kind}")
    if column.null_count and not gaps:
        row = int(np.argmax(pc.is_null(column).to_numpy()))
        raise InputError(
            f"{what} has no value in {column.null_count} row(s), the first is row "
            f"{row:,}; drop or fill them"
        )
    chunks = [_plain(chunk) for chunk in column.chunks]
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    chunks = [chunk.cast(plain.get(chunk.type, chunk.type)) for chunk in chunks]
    arrays = [np.asarray(chunk.to_numpy(zero_copy_only=False)) for chunk in chunks]
    return as_texts(np.concatenate(arrays), what) if arrays else np.empty(0)


def taken(data: Any, rows: NDArray[np.int64]) -> Any:
    """These rows of a table, batch or column of Arrow."""
    try:
        return data.take(pa.array(rows))
    except pa.ArrowNotImplementedError:  # of types that Arrow cannot pick from, such as text views
        if isinstance(data, pa.Table | pa.RecordBatch):
            columns = [taken(column, rows) for column in data.columns]
            return type(data).from_arrays(columns, schema=data.schema)
        if not len(rows):
            return data.slice(0, 0)
        if isinstance(data, pa.ChunkedArray):
            pieces = [data.slice(row, 1).combine_chunks() for row in rows.tolist()]
        else:
            pieces = [data.slice(row, 1) for row in rows.tolist()]
        one = pa.concat_arrays(pieces)
        return pa.chunked_array([one]) if isinstance(data, pa.ChunkedArray) else one
