"""Arrow arrays as NumPy arrays, row by row what they were.

A column is refused where Arrow would quietly give something else: flattening drops null rows and
so shifts one view against another, `values` forgets where a slice began, and ragged lists reshape
without a word when their total happens to fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.rows import widen_bfloat16

# Arrow's types, by what they are to a reader.
LISTS = {pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST, pa.lib.Type_FIXED_SIZE_LIST}
VIEWS = {pa.lib.Type_STRING_VIEW, pa.lib.Type_BINARY_VIEW}
TEXTS = {pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING}
BINARIES = {pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_FIXED_SIZE_BINARY}
BINARY_KINDS = {"float16": "<f2", "bfloat16": "<u2", "float32": "<f4", "float64": "<f8"}


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
        row = int(np.argmax(pc.is_null(column).to_numpy(zero_copy_only=False)))
        raise InputError(f"{what} has no value in row {first + row:,}; drop or fill the empty rows")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kind is not None:
        return _from_bytes(column, what, first, kind)
    if column.type.id in LISTS:
        return _from_lists(column, what, first)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def decoded_bytes(column: Any) -> int:
    """What the values of a column take once each stands for itself: those of a dictionary, and
    views of texts, may share their bytes."""
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
        at = int(np.argmax(pc.is_null(values).to_numpy(zero_copy_only=False)))
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
