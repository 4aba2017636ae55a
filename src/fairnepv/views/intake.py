"""The edge of the house: whatever a user hands in becomes checked views, or one clear sentence.

Past this line code trusts its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.views.base import Floats, View
from fairnepv.views.dense import DenseView
from fairnepv.views.kernel import KernelView, kernel_tolerance
from fairnepv.views.sparse import DiagonalView, SparseView

_CHUNK_NUMBERS = 1 << 21


def named_views(data: Any, columns: Mapping[str, Any] | None) -> dict[str, Any]:
    """The user's views by name, still unchecked: mapping, list of arrays, or columns of one."""
    if columns is not None:
        return _split_columns(data, columns)
    if isinstance(data, Mapping):
        named = dict(data)
    elif sp.issparse(data) or isinstance(data, View) or hasattr(data, "__array__"):
        named = {"view0": data}
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes):
        named = {f"view{q}": view for q, view in enumerate(data)}
    else:
        raise InputError(
            "data must be a mapping from names to arrays or a list of arrays, not "
            f"{type(data).__name__}"
        )
    if not named:
        raise InputError("data has no views; give at least one, as in {'text': array}")
    for name in named:
        if not isinstance(name, str) or not name:
            raise InputError(f"view names must be non-empty strings, not {name!r}")
    return named


def check_view(name: str, value: Any) -> View:
    """One view, with every promise of the view contract made sure of."""
    if isinstance(value, DiagonalView):
        return _checked_diagonal(name, value)
    if isinstance(value, KernelView):
        return _checked_kernel(name, value)
    if isinstance(value, DenseView | SparseView):
        view = check_view(name, value.data)
        return view if value.eps is None else view.with_eps(check_positive("eps", value.eps, name))
    if sp.issparse(value):
        return _checked_sparse(name, value)
    return _checked_dense(name, value)


def check_positive(argument: str, value: Any, view: str | None = None) -> float:
    """A finite, positive real number."""
    where = f" for view {view!r}" if view else ""
    message = f"{argument}{where} must be a finite positive number, not {value!r}"
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        raise InputError(message)
    if not np.isfinite(value) or value <= 0:
        raise InputError(message)
    return float(value)


def check_quality(quality: Any, names: tuple[str, ...], n: int) -> dict[str, Floats] | None:
    """Per-item, per-view qualities: one vector for all views, or a mapping by view name."""
    if quality is None:
        return None
    by_name = quality if isinstance(quality, Mapping) else dict.fromkeys(names, quality)
    unknown = set(by_name) - set(names)
    if unknown:
        raise InputError(f"quality names {sorted(unknown)}, which are not views: {list(names)}")
    ones = np.ones(n)
    return {name: _quality_vector(name, by_name.get(name, ones), n) for name in names}


def check_ids(ids: Any, n: int, what: str) -> NDArray[Any]:
    """(n,) row ids without repeats."""
    array = np.asarray(ids)
    if array.ndim != 1 or len(array) != n:
        raise InputError(f"{what} must be one id per row, {n} in all, not shape {array.shape}")
    values, first, counts = np.unique(array, return_index=True, return_counts=True)
    if len(values) < n:
        repeated = values[counts > 1]
        row = int(first[counts > 1][0])
        raise InputError(
            f"{what} repeat: {len(repeated)} id(s) occur more than once, the first is "
            f"{repeated[0].item()!r} (row {row}); ids must be unique"
        )
    return array


def _quality_vector(name: str, values: Any, n: int) -> Floats:
    vector = np.asarray(values)
    if vector.shape != (n,) or vector.dtype.kind not in "fiub":
        raise InputError(
            f"quality of view {name!r} must be {n} numbers, one per row, not "
            f"{vector.dtype} of shape {vector.shape}"
        )
    vector = vector.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(vector) & (vector >= 0)))
    if len(bad):
        raise InputError(
            f"quality of view {name!r} must be finite and not negative; row {bad[0]} has "
            f"{vector[bad[0]]}"
        )
    return vector


def _split_columns(data: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
    if sp.issparse(data):
        array = sp.csr_array(data)
    elif isinstance(data, np.ndarray) and data.ndim == 2:
        array = data
    else:
        raise InputError(
            "views= names columns of one two-dimensional array, but data is "
            f"{type(data).__name__}; pass a mapping from names to arrays instead"
        )
    if not columns:
        raise InputError("views= names no columns; give at least one view")
    try:
        return {name: array[:, selector] for name, selector in columns.items()}
    except (IndexError, TypeError) as error:
        raise InputError(f"views= must map names to column slices or indices: {error}") from error


def _numeric(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"view {name!r} has dtype {array.dtype}; expected real numbers (float or integer)"
        )
    if array.dtype.itemsize > 8:
        raise InputError(f"view {name!r} has dtype {array.dtype}; at most float64 is supported")
    return array


def _checked_dense(name: str, value: Any) -> DenseView:
    try:
        array = np.asanyarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"view {name!r} cannot be read as an array: {error}") from error
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise InputError(f"view {name!r} has masked values; fill or drop those rows")
    _check_shape(name, array.shape)
    _numeric(name, array)
    chunk = max(1, _CHUNK_NUMBERS // array.shape[1])
    for start in range(0, len(array), chunk):
        finite = np.isfinite(array[start : start + chunk])
        if not finite.all():
            _refuse_non_finite(name, array, chunk)
    view = DenseView(np.asarray(array))
    _check_magnitude(name, view)
    return view


def _refuse_non_finite(name: str, array: NDArray[Any], chunk: int) -> None:
    count, first = 0, -1
    for start in range(0, len(array), chunk):
        bad = ~np.isfinite(array[start : start + chunk])
        count += int(bad.sum())
        if first < 0 and bad.any():
            first = start + int(np.flatnonzero(bad.any(axis=1))[0])
    raise InputError(
        f"view {name!r} has {count} value(s) that are NaN or infinite, the first in row {first}; "
        "drop or impute those rows"
    )


def _checked_sparse(name: str, value: Any) -> SparseView:
    _check_shape(name, value.shape)
    _numeric(name, value)
    matrix = sp.csr_array(value)
    _check_pattern(name, matrix)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if len(bad):
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        raise InputError(
            f"view {name!r} has {len(bad)} value(s) that are NaN or infinite, the first in row "
            f"{row}; drop or impute those rows"
        )
    view = SparseView(matrix)
    _check_magnitude(name, view)
    return view


def _check_pattern(name: str, matrix: Any) -> None:
    """A bad CSR index crashes SciPy or, when negative, gives a wrong answer (DESIGN 6)."""
    indptr, indices = matrix.indptr, matrix.indices
    sound = (
        indptr[0] == 0
        and indptr[-1] == len(indices) == len(matrix.data)
        and (np.diff(indptr) >= 0).all()
        and (len(indices) == 0 or (indices.min() >= 0 and indices.max() < matrix.shape[1]))
    )
    if not sound:
        raise InputError(
            f"view {name!r} is a broken sparse matrix: its index arrays point outside of its "
            f"shape {matrix.shape}; write the file again"
        )


def _checked_diagonal(name: str, view: DiagonalView) -> DiagonalView:
    values = view.values
    if values.ndim != 1 or len(values) == 0:
        raise InputError(f"view {name!r}: a diagonal kernel is one value per row")
    _numeric(name, values)
    smallest = 0.0 if view.eps != 0 else np.finfo(np.float64).tiny
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= smallest)))
    if len(bad):
        raise InputError(
            f"view {name!r}: the values of a diagonal kernel must be finite and "
            f"{'positive (eps is 0)' if view.eps == 0 else 'not negative'}; row {bad[0]} has "
            f"{values[bad[0]]}"
        )
    _check_own_ridge(name, view)
    return view


def _checked_kernel(name: str, view: KernelView) -> KernelView:
    kernel = np.asarray(view.kernel)
    _check_shape(name, kernel.shape)
    if kernel.shape[0] != kernel.shape[1]:
        raise InputError(f"view {name!r}: a kernel is square, not of shape {kernel.shape}")
    _numeric(name, kernel)
    if not np.isfinite(kernel).all():
        _refuse_non_finite(name, kernel, len(kernel))
    if kernel.dtype.kind != "f":
        kernel = kernel.astype(np.float64)
    tolerance = kernel_tolerance(kernel)
    skew = float(np.abs(kernel - kernel.T).max())
    if skew > tolerance:
        raise InputError(
            f"view {name!r}: the kernel is not symmetric, entries differ by up to {skew:.3g} from "
            "those across the diagonal; pass (K + K.T) / 2 if that is meant"
        )
    checked = KernelView(kernel, view.eps)
    _check_own_ridge(name, checked)
    _check_definite(name, checked, tolerance)
    return checked


def _check_definite(name: str, view: KernelView, tolerance: float) -> None:
    factor = view.factor
    miss = float(np.abs(factor @ factor.T - view.kernel).max())
    if miss > 10 * tolerance:
        raise InputError(
            f"view {name!r}: the kernel is indefinite (no real features give it; the best miss it "
            f"by {miss:.3g}); a kernel must be positive semidefinite"
        )
    if view.eps == 0 and not factor.any(axis=0).all():
        raise InputError(
            f"view {name!r}: with eps = 0 the kernel must be positive definite, but it has rank "
            f"{int(factor.any(axis=0).sum())} of {view.n}; give it a positive eps"
        )


def _check_own_ridge(name: str, view: View) -> None:
    if view.eps is not None and view.eps != 0:
        check_positive("eps", view.eps, name)


def _check_shape(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise InputError(
            f"view {name!r} must be two-dimensional (rows are items, columns features), not of "
            f"shape {shape}"
        )
    if shape[1] == 0:
        raise InputError(f"view {name!r} has no columns (shape {shape})")
    if shape[0] == 0:
        raise InputError(f"view {name!r} has no rows (shape {shape})")


def _check_magnitude(name: str, view: View) -> None:
    with np.errstate(over="ignore"):
        bad = np.flatnonzero(~np.isfinite(view.raw_squared_norms()))
    if len(bad):
        raise InputError(
            f"view {name!r} has values too large to square in float64, the first in row {bad[0]}; "
            "divide the view by a constant"
        )
