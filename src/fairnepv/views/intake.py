"""The edge of the house: whatever a user hands in becomes checked views, or one clear sentence.

Past this line code trusts its arguments.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairnepv.errors import InputError
from fairnepv.io.rows import Columns, RowFile
from fairnepv.views.arrays import plain_array, read_array
from fairnepv.views.base import Floats, View
from fairnepv.views.dense import DenseView
from fairnepv.views.kernel import DiagonalView
from fairnepv.views.sparse import SparseView
from fairnepv.views.tensor_rows import SparseRows, TensorRows, tensor_rows
from fairnepv.views.validity import check_shape, sound_csr


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
            f"{type(data).__name__}; of a table, or of the path of one, say which columns are "
            "views, as in views={'text': 'text_emb'}"
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


def as_view(name: str, value: Any) -> View:
    """What a user hands in as a view; of the values in it nothing is known yet."""
    held = isinstance(value, SparseView) and not isinstance(value, DiagonalView)
    if held or type(value) is DenseView:  # the data alone counts
        view = as_view(name, value.data)
        return view if value.eps is None else view.with_eps(value.eps)
    if isinstance(value, View):
        return value.as_given(name)
    value = _from_column(value, f"view {name!r}")
    value = tensor_rows(value, f"view {name!r}")
    sparse = sp.issparse(value) or isinstance(value, SparseRows)
    if not sparse and not isinstance(value, RowFile):
        value = read_array(value, f"view {name!r}")
    check_shape(name, value.shape)
    return SparseView(value) if sparse else DenseView(value)


def is_column(value: Any) -> bool:
    """Whether this is one column of a table: a series, an array of Arrow, or objects of NumPy."""
    if isinstance(value, np.ndarray):
        return value.dtype == object and value.ndim == 1
    if hasattr(type(value), "columns") or hasattr(type(value), "schema"):
        return False  # a table; a lazy one is not asked for what it would have to compute
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def _from_column(value: Any, what: str) -> Any:
    """The rows of a column, and of a list of lists that NumPy cannot read; others as they came."""
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if listed and isinstance(value, list | tuple):
        with contextlib.suppress(ValueError, TypeError, RuntimeError):
            listed = np.asanyarray(value).dtype == object
        first: Any = next((row for row in value if row is not None), None)
        listed = listed and (isinstance(first, list | tuple) or np.ndim(first) == 1)
    if not (listed or is_column(value)):
        return value
    from fairnepv.io.capsules import as_column, column_rows  # which need Arrow

    return column_rows(as_column(value, what), what)


def check_quality(quality: Any, sizes: Mapping[str, int]) -> dict[str, Floats] | None:
    """Per-item, per-view qualities: one vector for all views, or a mapping by view name; `sizes`
    says how many rows each view was handed in with."""
    if quality is None:
        return None
    if not isinstance(quality, Mapping):
        n = next(iter(sizes.values()))
        return {name: _quality_vector(name, quality, n) for name in sizes}
    unknown = set(quality) - set(sizes)
    if unknown:
        raise InputError(f"quality names {sorted(unknown)}, which are not views: {list(sizes)}")
    return {n: _quality_vector(n, quality.get(n, np.ones(size)), size) for n, size in sizes.items()}


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
    data = tensor_rows(data, "data")
    if isinstance(data, SparseRows):
        data = data[:]  # columns are chosen by SciPy
    if sp.issparse(data):
        data = sound_csr("data", data)
    elif isinstance(data, TensorRows):
        data = data.tensor
    elif not isinstance(data, RowFile):
        if not hasattr(data, "__array__") or np.ndim(data) != 2:
            raise InputError(
                "views= names columns of one two-dimensional array, but data is "
                f"{type(data).__name__}; pass a mapping from names to arrays instead"
            )
        data = plain_array(data, "data")
    in_file = isinstance(data, RowFile)
    try:
        return {name: Columns(data, at) if in_file else data[:, at] for name, at in columns.items()}
    except (IndexError, TypeError, ValueError) as error:
        raise InputError(f"views= must map names to column slices or indices: {error}") from error
