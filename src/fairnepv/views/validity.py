"""What is made sure of in every view that is handed in: shapes, types, finite values, magnitudes,
and the indices of sparse matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.errors import InputError

if TYPE_CHECKING:
    from fairnepv.views.base import Floats, Indices, View

LARGEST_SQUARE = 1e300  # of all rows of a view together: what float64 can go on computing with
_SMALLEST_SQUARE = 1e-290
_FEW_ROWS = 1024
_NAMED = 8  # rows that a sentence lists
_OR_LEAVE_OUT = (
    "have select leave them out (missing='drop') or count for nothing there (missing='neutral')"
)


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise InputError(
            f"view {name!r} must be two-dimensional (rows are items, columns features), not of "
            f"shape {shape}"
        )
    if shape[1] == 0:
        raise InputError(f"view {name!r} has no columns (shape {shape})")
    if shape[0] == 0:
        raise InputError(f"view {name!r} has no rows (shape {shape})")


def check_attributes(name: str, view: View, contract: type, set_by_pool: Sequence[str]) -> None:
    """Refuse a view whose own attributes hide what it is asked for, or what the pool sets."""
    for size in ("n", "p"):
        value = vars(view).get(size, getattr(type(view), size, None))  # no property is asked
        if isinstance(value, property | functools.cached_property):
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InputError(
                f"view {name!r}: a {type(view).__name__} must have a whole number {size}, not "
                f"{value!r}; set it when it is made"
            )
    for own in vars(view):
        if own in set_by_pool or callable(getattr(contract, own, None)):
            raise InputError(
                f"view {name!r} keeps something of its own as {own!r}, which means something else "
                "in a view; rename it"
            )


def check_rows(name: str, view: View) -> None:
    """Refuse a view whose first or last row is not what its shape promises."""
    for row in (0, view.n - 1):
        found = view.raw_rows(np.array([row]))
        shape = found.shape if isinstance(found, np.ndarray) else type(found).__name__
        if shape != (1, view.p):
            raise InputError(
                f"view {name!r}: raw_rows of one row must be an array of shape (1, {view.p}), not "
                f"{shape}"
            )
        check_numeric(name, found)


def check_numeric(name: str, array: Any) -> None:
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"view {name!r} has dtype {array.dtype}; expected real numbers (float or integer)"
        )
    if array.dtype.itemsize > 8:
        raise InputError(f"view {name!r} has dtype {array.dtype}; at most float64 is supported")


def check_finite(
    name: str,
    read: Callable[[Indices], NDArray[Any]],
    suspects: Indices,
    remedy: str = f", or {_OR_LEAVE_OUT}",
) -> None:
    """Look at rows without a finite norm: some only have values too large to square."""
    count, first, listed = 0, -1, suspects[:0]
    for start in range(0, len(suspects), _FEW_ROWS):
        rows = suspects[start : start + _FEW_ROWS]
        values = read(rows)
        bad = ~np.isfinite(values)
        if np.isinf(values).any():
            remedy = ""  # `missing` is about NaN alone: a value that is infinite is not missing
        if bad.any():
            count += int(bad.sum())
            first = int(rows[np.argmax(bad.any(axis=1))]) if first < 0 else first
            listed = np.concatenate([listed, rows[bad.any(axis=1)]])
    refuse_non_finite(name, count, first, f" ({rows_in_words(listed)}){remedy}")


def rows_in_words(rows: Indices) -> str:
    """Row numbers for a sentence, of which the first few are named."""
    named = ", ".join(map(str, rows[:_NAMED].tolist())) + (", ..." if len(rows) > _NAMED else "")
    return f"{len(rows)} row{'s' if len(rows) != 1 else ''}: {named}"


def refuse_non_finite(name: str, count: int, row: int, more: str = "") -> None:
    if count:
        raise InputError(
            f"view {name!r} has {count} value(s) that are NaN or infinite, the first in row {row}; "
            f"drop or impute those rows{more}"
        )


def check_magnitude(name: str, view: View) -> None:
    """Squares must neither overflow nor vanish, or norms and kernels mean nothing."""
    with np.errstate(over="ignore"):
        norms = view.raw_squared_norms()
        total = norms.sum()
    if total > LARGEST_SQUARE:
        raise InputError(
            f"view {name!r} has values too large to square in float64, the largest in row "
            f"{int(np.argmax(norms))}; divide the view by a constant"
        )
    tiny = np.flatnonzero(norms < _SMALLEST_SQUARE)
    for start in range(0, len(tiny), _FEW_ROWS):
        rows = tiny[start : start + _FEW_ROWS]
        sizes = abs(view.rows(rows)).max(axis=1)
        alive = rows[np.asarray(sizes.todense() if sp.issparse(sizes) else sizes).ravel() > 0]
        if len(alive):
            raise InputError(
                f"view {name!r} has rows too small to square in float64, the first is row "
                f"{alive[0]}; multiply the view by a constant"
            )


def check_diagonal(name: str, values: Floats) -> None:
    """The diagonal of a kernel, as squared norms of rows: neither their sum nor their inverses may
    overflow."""
    with np.errstate(over="ignore"):
        if values.sum() > LARGEST_SQUARE:
            raise InputError(f"view {name!r}: the kernel is too large for float64; divide it")
    tiny = np.flatnonzero((values > 0) & (values < _SMALLEST_SQUARE))
    if len(tiny):
        raise InputError(
            f"view {name!r}: the kernel is too small for float64, row {tiny[0]} has "
            f"{values[tiny[0]]:.3g} on the diagonal; multiply it, or make that 0"
        )


def sound_csr(what: str, value: Any) -> Any:
    """`value` as canonical CSR of a type that SciPy can compute with.

    Indices are checked in the format they come in, before SciPy follows them: a bad one crashes
    it or, when negative, gives a wrong answer.
    """
    if not _indices_are_sound(value):
        raise InputError(
            f"{what} is a broken sparse matrix: its index arrays do not fit its shape "
            f"{value.shape}; write the file again"
        )
    try:
        if value.dtype.kind == "f" and value.dtype not in (np.float32, np.float64):
            value = value.astype(np.float32 if value.dtype.itemsize <= 4 else np.float64)
        matrix = sp.csr_array(value)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()  # the user's own arrays stay as they are
            matrix.sum_duplicates()
    except ValueError as error:
        raise InputError(f"{what} cannot be read as a sparse matrix ({error})") from error
    return matrix


def _indices_are_sound(value: Any) -> bool:
    rows, columns = value.shape
    if value.format == "coo":
        i, j = value.coords
        return len(i) == len(j) == len(value.data) and within(i, rows) and within(j, columns)
    if value.format not in ("csr", "csc", "bsr"):
        return True  # built by SciPy itself from Python objects or diagonals
    if value.format == "bsr":
        rows, columns = rows // value.blocksize[0], columns // value.blocksize[1]
    major, minor = (columns, rows) if value.format == "csc" else (rows, columns)
    indptr, indices = value.indptr, value.indices
    return bool(
        len(indptr) == major + 1
        and indptr[0] == 0
        and indptr[-1] <= min(len(indices), len(value.data))
        and (np.diff(indptr) >= 0).all()
        and within(indices[: indptr[-1]], minor)
    )


def within(indices: Any, size: int) -> bool:
    """Whether all indices, an array or a tensor, are from 0 to below `size`."""
    return len(indices) == 0 or bool(indices.min() >= 0 and indices.max() < size)
