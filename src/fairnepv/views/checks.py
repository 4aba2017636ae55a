"""What is checked of every view that is handed in: shapes, types, finite values, magnitudes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.views.arrays import check_positive

if TYPE_CHECKING:
    from fairnepv.views.base import Floats, Indices, View

LARGEST_SQUARE = 1e300  # of all rows of a view together: what float64 can go on computing with
_SMALLEST_SQUARE = 1e-290
_FEW_ROWS = 1024


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


def check_numeric(name: str, array: Any) -> None:
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"view {name!r} has dtype {array.dtype}; expected real numbers (float or integer)"
        )
    if array.dtype.itemsize > 8:
        raise InputError(f"view {name!r} has dtype {array.dtype}; at most float64 is supported")


def check_finite(name: str, read: Callable[[Indices], NDArray[Any]], suspects: Indices) -> None:
    """Look at rows without a finite norm: some only have values too large to square."""
    count, first = 0, -1
    for start in range(0, len(suspects), _FEW_ROWS):
        rows = suspects[start : start + _FEW_ROWS]
        bad = ~np.isfinite(read(rows))
        if bad.any():
            count += int(bad.sum())
            first = int(rows[np.argmax(bad.any(axis=1))]) if first < 0 else first
    refuse_non_finite(name, count, first)


def refuse_non_finite(name: str, count: int, row: int) -> None:
    if count:
        raise InputError(
            f"view {name!r} has {count} value(s) that are NaN or infinite, the first in row {row}; "
            "drop or impute those rows"
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
    """As squared norms of rows: their sum must not overflow, nor their inverses."""
    with np.errstate(over="ignore"):
        if values.sum() > LARGEST_SQUARE:
            raise InputError(f"view {name!r}: the kernel is too large for float64; divide it")
    tiny = np.flatnonzero((values > 0) & (values < _SMALLEST_SQUARE))
    if len(tiny):
        raise InputError(
            f"view {name!r}: the kernel is too small for float64, row {tiny[0]} has "
            f"{values[tiny[0]]:.3g} on the diagonal; multiply it, or make that 0"
        )


def check_own_ridge(name: str, view: View) -> None:
    if view.eps is not None and (isinstance(view.eps, bool) or view.eps != 0):
        check_positive("eps", view.eps, name)
