"""The edge of the house: whatever a user hands in becomes checked views, or one clear sentence.

Past this line code trusts its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.compute import Engine
from fairnepv.errors import InputError
from fairnepv.io.rows import Columns, RowFile
from fairnepv.io.sparse_files import refuse_unbounded
from fairnepv.io.texts import KINDS, as_texts
from fairnepv.views.arrays import check_positive, plain_array, read_array
from fairnepv.views.base import LARGEST_SQUARE, Floats, Indices, View
from fairnepv.views.dense import DenseView
from fairnepv.views.kernel import KernelView, SketchedKernel, kernel_tolerance
from fairnepv.views.sparse import DiagonalView, SparseView
from fairnepv.views.tensor_rows import SparseRows, TensorRows, tensor_rows

_SMALLEST_SQUARE = 1e-290
_FEW_ROWS = 1024


def named_views(data: Any, columns: Mapping[str, Any] | None) -> dict[str, Any]:
    """The user's views by name, still unchecked: mapping, list of arrays, or columns of one."""
    if columns is not None:
        named = _split_columns(data, columns)
    elif sp.issparse(data) or isinstance(data, View | RowFile) or hasattr(data, "__array__"):
        named = {"view0": data}
    elif isinstance(data, Mapping):
        named = dict(data)
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
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise InputError(
                f"view {name!r} has half a character (a lone surrogate) in its name, which neither "
                "tables nor figures can hold; rename it"
            )
    return named


def check_view(name: str, value: Any, engine: Engine | None = None) -> View:
    """One view, with every promise of the view contract made sure of; workers of the engine read
    what lies in files."""
    if isinstance(value, DiagonalView):
        return _checked_diagonal(name, value)
    if isinstance(value, KernelView):
        return _checked_kernel(name, value)
    if isinstance(value, DenseView | SparseView):
        view = check_view(name, value.data, engine)
        return view if value.eps is None else view.with_eps(check_positive("eps", value.eps, name))
    value = _where_it_is(name, value)
    if sp.issparse(value) or isinstance(value, SparseRows):
        return _checked_sparse(name, value)
    return _checked_dense(name, value, engine)


def _where_it_is(name: str, value: Any) -> Any:
    rows = tensor_rows(value, f"view {name!r}")
    return value if rows is None else rows


def sketch_view(name: str, value: Any) -> View:
    """The view that `check_view` would make, without a look at its values; only to be asked for
    its shape and its storage."""
    if isinstance(value, DiagonalView):
        return value
    if isinstance(value, KernelView):
        _check_shape(name, value.kernel.shape)
        return SketchedKernel(value.kernel, value.eps)
    if isinstance(value, DenseView | SparseView):
        view = sketch_view(name, value.data)
        return view if value.eps is None else view.with_eps(value.eps)
    value = _where_it_is(name, value)
    if sp.issparse(value) or isinstance(value, SparseRows):
        _check_shape(name, value.shape)
        _numeric(name, value)
        return SparseView(value)
    array = value if isinstance(value, RowFile) else read_array(value, f"view {name!r}")
    _check_shape(name, array.shape)
    _numeric(name, array)
    return DenseView(array)


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
    """(n,) row ids without repeats, all of one comparable type."""
    array = _comparable(plain_array(ids, what), what)
    if array.ndim != 1 or len(array) != n:
        raise InputError(
            f"{what} must be one id per row, {n} in all, not shape {array.shape}; give the ids of "
            "these very rows"
        )
    values, first, counts = np.unique(array, return_index=True, return_counts=True)
    if len(values) < n:
        repeated = values[counts > 1]
        row = int(first[counts > 1][0])
        raise InputError(
            f"{what} repeat: {len(repeated)} id(s) occur more than once, the first is "
            f"{repeated.tolist()[0]!r} (row {row}); ids must be unique"
        )
    return array


def find_ids(wanted: NDArray[Any], ids: NDArray[Any]) -> Indices:
    """The row of every wanted id; any row at all for one that is not among the ids."""
    if "T" in (ids.dtype.kind, wanted.dtype.kind):  # which NumPy's search cannot compare
        rows = {name: row for row, name in enumerate(ids.tolist())}
        return np.array([rows.get(name, 0) for name in wanted.tolist()], dtype=np.int64)
    by_id = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids[by_id], wanted), len(ids) - 1)
    return by_id[at].astype(np.int64)


def _comparable(array: NDArray[Any], what: str) -> NDArray[Any]:
    """Integers, strings, bytes or dates, so that ids of two views compare without guessing; a copy,
    since results name rows by them long after."""
    if array.dtype.kind == "O":  # as pandas hands out strings
        items = array.ravel().tolist()
        array = as_texts(array, what)
        if all(type(item) is int and abs(item) < 2**63 for item in items):
            array = array.astype(np.int64)
    if array.dtype.kind in "iu" and (array.dtype != np.uint64 or array.max(initial=0) < 2**63):
        return array.astype(np.int64)
    if array.dtype.kind in KINDS + "SM":
        return array.copy()
    raise InputError(
        f"{what} must be all integers below 2^63 or all strings, not {array.dtype}; write other "
        "numbers as strings"
    )


def _quality_vector(name: str, values: Any, n: int) -> Floats:
    vector = plain_array(values, f"quality of view {name!r}")
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
    if not vector.any():
        raise InputError(f"quality of view {name!r} is 0 in every row; give some row a weight")
    return vector


def _split_columns(data: Any, columns: Any) -> dict[Any, Any]:
    if not isinstance(columns, Mapping):
        raise InputError(
            f"views= must map names to columns, as in {{'text': slice(0, 384)}}, not "
            f"{type(columns).__name__}"
        )
    rows = tensor_rows(data, "data")
    data = data if rows is None else rows
    if isinstance(data, SparseRows):
        data = data[:]  # columns are chosen by SciPy
    if sp.issparse(data):
        array = _sound_csr("data", data)
    elif isinstance(data, TensorRows):
        array = data.tensor
    elif isinstance(data, RowFile):
        array = data
    elif hasattr(data, "__array__") and np.ndim(data) == 2:
        array = plain_array(data, "data")
    else:
        raise InputError(
            "views= names columns of one two-dimensional array, but data is "
            f"{type(data).__name__}; pass a mapping from names to arrays instead"
        )
    try:
        if array is data and isinstance(data, RowFile):
            return {name: Columns(data, selector) for name, selector in columns.items()}
        return {name: array[:, selector] for name, selector in columns.items()}
    except (IndexError, TypeError, ValueError) as error:
        raise InputError(f"views= must map names to column slices or indices: {error}") from error


def _numeric(name: str, array: Any) -> None:
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"view {name!r} has dtype {array.dtype}; expected real numbers (float or integer)"
        )
    if array.dtype.itemsize > 8:
        raise InputError(f"view {name!r} has dtype {array.dtype}; at most float64 is supported")


def _checked_dense(name: str, value: Any, engine: Engine | None) -> DenseView:
    array = value if isinstance(value, RowFile) else plain_array(value, f"view {name!r}")
    _check_shape(name, array.shape)
    _numeric(name, array)
    view = DenseView(array)
    with np.errstate(over="ignore", invalid="ignore"):
        if engine is not None and isinstance(array, RowFile) and engine.remote:
            view.measure(engine)
        norms = view.raw_squared_norms()  # which it keeps: all checks take one pass over a file
    _check_finite(name, array, np.flatnonzero(~np.isfinite(norms)))
    _check_magnitude(name, view)
    return view


def _check_finite(name: str, array: NDArray[Any] | RowFile, suspects: Indices) -> None:
    """Of rows without a finite norm: some only have values too large to square."""
    count, first = 0, -1
    for start in range(0, len(suspects), _FEW_ROWS):
        rows = suspects[start : start + _FEW_ROWS]
        bad = ~np.isfinite(array[rows])
        if bad.any():
            count += int(bad.sum())
            first = int(rows[np.argmax(bad.any(axis=1))]) if first < 0 else first
    _refuse_non_finite(name, count, first)


def _refuse_non_finite(name: str, count: int, row: int) -> None:
    if count:
        raise InputError(
            f"view {name!r} has {count} value(s) that are NaN or infinite, the first in row {row}; "
            "drop or impute those rows"
        )


def _checked_sparse(name: str, value: Any) -> SparseView:
    _check_shape(name, value.shape)
    refuse_unbounded(f"view {name!r}", value.shape)
    _numeric(name, value)
    if isinstance(value, SparseRows):
        matrix, bad = value, value.not_finite()
    else:
        matrix = _sound_csr(f"view {name!r}", value)
        bad = np.flatnonzero(~np.isfinite(matrix.data))
    if len(bad):
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        _refuse_non_finite(name, len(bad), row)
    view = SparseView(matrix)
    _check_magnitude(name, view)
    return view


def _sound_csr(what: str, value: Any) -> Any:
    """`value` as canonical CSR of a type that SciPy can compute with.

    Indices are checked in the format they come in, before SciPy follows them: a bad one crashes
    it or, when negative, gives a wrong answer (DESIGN 6).
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
        return len(i) == len(j) == len(value.data) and _within(i, rows) and _within(j, columns)
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
        and _within(indices[: indptr[-1]], minor)
    )


def _within(indices: NDArray[Any], size: int) -> bool:
    return len(indices) == 0 or bool(indices.min() >= 0 and indices.max() < size)


def _checked_diagonal(name: str, view: DiagonalView) -> DiagonalView:
    values = plain_array(view.values, f"view {name!r}")
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
    _check_diagonal(name, values.astype(np.float64))
    _check_own_ridge(name, view)
    return view


def _checked_kernel(name: str, view: KernelView) -> KernelView:
    kernel = plain_array(view.kernel, f"view {name!r}")
    _check_shape(name, kernel.shape)
    if kernel.shape[0] != kernel.shape[1]:
        raise InputError(f"view {name!r}: a kernel is square, not of shape {kernel.shape}")
    _numeric(name, kernel)
    _check_finite(name, kernel, np.arange(len(kernel)))
    if kernel.dtype.kind != "f":
        kernel = kernel.astype(np.float64)
    _check_diagonal(name, np.abs(np.diagonal(kernel)).astype(np.float64))
    tolerance = kernel_tolerance(kernel)
    skew = float(np.abs(kernel - kernel.T).max())
    if skew > tolerance:
        raise InputError(
            f"view {name!r}: the kernel is not symmetric, entries differ by up to {skew:.3g} from "
            "those across the diagonal; pass (K + K.T) / 2 if that is meant"
        )
    if skew > 0:  # or a score would depend on the order of its items, and pass its bound
        kernel = 0.5 * kernel + 0.5 * kernel.T
    checked = KernelView(kernel, view.eps)
    _check_own_ridge(name, checked)
    _check_definite(name, checked, tolerance)
    return checked


def _check_diagonal(name: str, values: Floats) -> None:
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


def _check_definite(name: str, view: KernelView, tolerance: float) -> None:
    factor = view.factor
    miss = float(np.abs(factor @ factor.T - view.kernel).max())
    if miss > 10 * tolerance:
        raise InputError(
            f"view {name!r}: the kernel is indefinite (no real features give it; the best miss it "
            f"by {miss:.3g}); a kernel must be positive semidefinite, and one that was computed in "
            "float32 should be passed as float32"
        )
    if view.eps == 0 and view.p < view.n:
        raise InputError(
            f"view {name!r}: with eps = 0 the kernel must be positive definite, but it has rank "
            f"{view.p} of {view.n}; give it a positive eps"
        )


def _check_own_ridge(name: str, view: View) -> None:
    if view.eps is not None and (isinstance(view.eps, bool) or view.eps != 0):
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
