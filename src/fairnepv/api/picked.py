"""The chosen rows of whatever a user holds, in the kind that it came in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv.compute.tensors import to_device
from fairnepv.errors import InputError
from fairnepv.io.rows import RowFile
from fairnepv.views import View
from fairnepv.views.base import Indices


def rows_of(indices: Indices, n: int, data: Any, reordered: Sequence[str] = ()) -> Any:
    """The rows that were chosen from n, of data that has as many; not of views whose own rows were
    put into another order, by their ids."""
    for name in reordered if isinstance(data, Mapping) else ():
        if name in data:
            raise InputError(
                f"rows of view {name!r} were found by their ids and stand in another order than "
                "those of the first view; apply to data in the order of that, or look ids up"
            )
    for what, found in _counts(data):
        _check_count(found, n, what)
    return rows_at(data, indices)


def subset_of(indices: Indices, n: int, dataset: Any) -> Any:
    """The same items of a data set of PyTorch."""
    if not hasattr(dataset, "__getitem__"):
        raise InputError(
            f"dataset must be a data set of PyTorch, with an item for every row, not "
            f"{type(dataset).__name__}; apply takes rows of tables and arrays"
        )
    _check_count(count_rows(dataset), n, "data")
    return _subset(dataset, indices)


def _counts(data: Any) -> Iterator[tuple[str, int | None]]:
    """How many rows data has, or each of its views or columns."""
    if _is_columns(data) and data:
        for name, column in data.items():
            listed = isinstance(column, list | tuple)  # of which every item is a row
            yield f"data[{name!r}]", len(column) if listed else count_rows(column)
    elif _is_list_of_views(data):
        yield from ((f"data[{q}]", count_rows(view)) for q, view in enumerate(data))
    else:
        yield "data", count_rows(data)


def _check_count(found: int | None, n: int, what: str) -> None:
    if found is not None and found != n:
        raise InputError(
            f"{what} has {found:,} rows, but the items were chosen from {n:,}; pass the same rows "
            "in the same order"
        )


def count_rows(data: Any) -> int | None:
    """How many rows data has; None where that is known only once they are read."""
    if _is_columns(data):
        return count_rows(next(iter(data.values()))) if data else 0
    if isinstance(data, str | Path):
        from fairnepv.io import taken

        return taken.count_rows(data)
    if _is_list_of_views(data):
        return count_rows(data[0])
    shape = getattr(data, "shape", None)
    if isinstance(shape, tuple):  # a lazy frame has none
        return int(shape[0]) if shape else None
    for count in ("num_rows", "n"):
        if isinstance(getattr(data, count, None), int):
            return int(getattr(data, count))
    if hasattr(data, "count_rows"):
        return int(data.count_rows())
    if hasattr(data, "__len__"):
        return len(data)
    shape = np.shape(data) if hasattr(data, "__array__") else ()
    return int(shape[0]) if shape else None


def rows_at(data: Any, indices: Indices) -> Any:
    """These rows of a table, array, tensor, list or data set; of each view or column of a mapping.
    Of a file it is a table of PyArrow."""
    if _is_columns(data):
        return {name: _column_at(value, indices) for name, value in data.items()}
    if isinstance(data, str | Path):
        from fairnepv.io.taken import take_rows

        return take_rows(data, indices)
    if _is_list_of_views(data):
        return [rows_at(view, indices) for view in data]
    if isinstance(data, Sequence):
        return [data[i] for i in indices.tolist()]
    for is_kind, take in _KINDS:
        if is_kind(data) and getattr(data, "shape", None) != ():
            return take(data, indices)
    raise InputError(
        f"cannot take rows of {type(data).__name__}; pass a table, arrays, a list or a data set"
    )


def _column_at(data: Any, indices: Indices) -> Any:
    """Rows of a column of a mapping: of a list every item is one, whatever it is."""
    if isinstance(data, list | tuple):
        return [data[i] for i in indices.tolist()]
    return rows_at(data, indices)


def _is_columns(data: Any) -> bool:
    """Whether these are columns by name: SciPy's sparse matrix of keys is a mapping, too."""
    return isinstance(data, Mapping) and not hasattr(data, "tocsr")


def _is_list_of_views(data: Any) -> bool:
    if not isinstance(data, list | tuple) or not data:
        return False
    if isinstance(data[0], list | tuple):
        return bool(data[0]) and isinstance(data[0][0], list | tuple)
    return isinstance(data[0], View) or len(getattr(data[0], "shape", ())) == 2


def _of_tensor(data: Any, indices: Indices) -> Any:
    """Rows of a tensor, on its device and in its layout; of a sparse one as COO."""
    tensor = data if str(data.layout) == "torch.strided" else data.to_sparse_coo()
    return tensor.index_select(0, to_device(indices, tensor.device))


def _of_lazy_frame(data: Any, indices: Indices) -> Any:
    import polars

    return data.select(polars.all().gather(indices))


def _of_arrow_data_set(data: Any, indices: Indices) -> Any:
    import pyarrow.dataset

    try:
        table = data.take(indices)
    except NotImplementedError:  # of types that Arrow cannot pick from
        table = _of_arrow(data.to_table(), indices)
    return pyarrow.dataset.dataset(table)


def _of_relation(data: Any, indices: Indices) -> Any:
    """Rows of a relation of DuckDB, in the default connection, which holds on to them."""
    import duckdb
    import pyarrow as pa

    table = pa.RecordBatchReader.from_stream(data).read_all()
    return duckdb.from_arrow(_of_arrow(table, indices))


def _of_arrow(data: Any, indices: Indices) -> Any:
    from fairnepv.io.capsules import taken

    return taken(data, indices)


def _subset(data: Any, indices: Indices) -> Any:
    try:
        from torch.utils.data import Subset
    except ImportError as error:
        raise InputError(
            "a subset of a data set takes PyTorch; pip install 'fairnepv[torch]'"
        ) from error

    return Subset(data, indices.tolist())


def _has(*names: str) -> Any:
    return lambda data: all(hasattr(data, name) for name in names)


_KINDS = (
    (_has("iloc"), lambda data, rows: data.iloc[rows]),
    (_has("tocsr"), lambda data, rows: data.tocsr()[rows]),
    (_has("index_select", "layout"), _of_tensor),
    (lambda data: isinstance(data, np.ndarray | RowFile), lambda data, rows: data[rows]),
    (_has("select_columns", "select"), lambda data, rows: data.select(rows)),  # Hugging Face
    (_has("collect_schema", "gather_every", "collect"), _of_lazy_frame),
    (_has("scanner", "take"), _of_arrow_data_set),
    (_has("take", "schema", "num_rows"), _of_arrow),
    (_has("take", "type", "null_count"), _of_arrow),
    (_has("project", "fetchall", "__arrow_c_stream__"), _of_relation),
    (_has("__arrow_c_stream__", "__getitem__"), lambda data, rows: data[rows]),  # Polars
    (_has("__array__"), lambda data, rows: np.asarray(data)[rows]),
    (_has("__getitem__", "__len__"), _subset),  # a data set of PyTorch
)
