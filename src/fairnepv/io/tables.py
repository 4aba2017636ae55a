"""Columns of Parquet, CSV and text tables as arrays; the tables that `write` makes among them.

A column is refused where Arrow would quietly give something else: null rows, ragged lists.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.source import Source, choose_part


def read_parquet(source: Source, default: str | None = None) -> NDArray[Any]:
    """One column: lists of equal length as (n, p), plain values as (n,)."""
    try:
        with pq.ParquetFile(source.path) as file:
            names = list(file.schema_arrow.names)
            column = _choose(source, names, default)
            chunked = file.read(columns=[column], use_threads=False).column(column)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{source.path} cannot be read as Parquet ({error})") from error
    return _as_array(chunked.combine_chunks(), f"{source.path}, column {column!r}")


def read_csv(source: Source, default: str | None = None) -> NDArray[Any]:
    """One column of a CSV file with a header."""
    try:
        table = pyarrow.csv.read_csv(source.path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{source.path} cannot be read as CSV ({error})") from error
    column = _choose(source, table.column_names, default)
    return _as_array(table.column(column).combine_chunks(), f"{source.path}, column {column!r}")


def read_json(source: Source, default: str | None = None) -> NDArray[Any]:
    """A list, or one field of the `picks` that `write` puts into a JSON file."""
    try:
        content = json.loads(source.path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{source.path} cannot be read as JSON ({error})") from error
    if isinstance(content, dict) and isinstance(content.get("picks"), list):
        rows = content["picks"]
        names = list(rows[0]) if rows and isinstance(rows[0], dict) else []
        column = _choose(source, names, default)
        content = [row.get(column) if isinstance(row, dict) else None for row in rows]
    if not isinstance(content, list) or not content:
        raise InputError(f"{source.path} must hold a list, or an object with a list of picks")
    return np.array(content)


def read_lines(source: Source, default: str | None = None) -> NDArray[Any]:
    """The lines of a text file, up to the first tab; those behind a # are comments.

    Of a table with a comment that names its columns, as `write` makes them, the default column.
    """
    try:
        text = source.path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{source.path} cannot be read as text ({error})") from error
    lines = text.splitlines()
    comments = [line[1:].strip().split("\t") for line in lines if line.startswith("#")]
    header = next((names for names in comments if len(names) > 1), [])
    at = header.index(default) if default in header else 0
    cells = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
    if not cells:
        raise InputError(f"{source.path} has no lines")
    if any(len(row) <= at for row in cells):
        raise InputError(f"{source.path} has lines with too few columns; write it again")
    return _integers_if_all(np.array([row[at].strip() for row in cells]))


def _choose(source: Source, names: list[str], default: str | None) -> str:
    if source.part is None and default in names:
        return str(default)
    return choose_part(source, names, "column")


def _integers_if_all(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers where every line is one written plainly: "007" stays a name."""
    try:
        numbers = values.astype(np.int64)
    except (ValueError, OverflowError):
        return values
    return numbers if np.array_equal(numbers.astype(values.dtype), values) else values


def _as_array(column: Any, what: str) -> NDArray[Any]:
    if isinstance(column, pa.ChunkedArray):  # an empty table combines to no chunk
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([])
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if column.null_count:
        row = int(np.argmax(pc.is_null(column).to_numpy(zero_copy_only=False)))
        raise InputError(
            f"{what} has {column.null_count} empty row(s), the first is row {row}; drop or fill "
            "them"
        )
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column, what)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _lists(column: Any, what: str) -> NDArray[Any]:
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    if len(lengths) and (lengths != lengths[0]).any():
        row = int(np.argmax(lengths != lengths[0]))
        raise InputError(
            f"{what} has lists of different lengths: {lengths[0]} in row 0 and {lengths[row]} in "
            f"row {row}; all rows need the same number of features"
        )
    values = column.flatten()  # respects slices, and there are no null rows to drop
    if values.null_count:
        raise InputError(f"{what} has {values.null_count} empty value(s); drop or fill them")
    flat = _as_array(values, what)
    return flat.reshape(len(column), -1)
