"""What there is, from shapes and headers: where views lie, and what a row of them weighs."""

from __future__ import annotations

import mmap
from typing import Any

from fairnepv.io.rows import HeldRows, RowFile
from fairnepv.views import DenseView, DiagonalView, KernelView, SparseView, View
from fairnepv.views.tensor_rows import SparseRows

_DECODED = 256 << 20  # bytes of a large table that stay in memory once they are decoded
_HALF = 16.0  # times as long as a copy takes what makes float32 of float16


def is_sparse(view: View) -> bool:
    return isinstance(view, SparseView)


def held(view: View) -> int:
    """Bytes of a view that are in memory already, and belong to the user."""
    if isinstance(view, DiagonalView):
        return int(view.values.nbytes)
    if isinstance(view, SparseView):
        return 0 if isinstance(view.data, SparseRows) else _sparse_bytes(view.data)
    data = view.kernel if isinstance(view, KernelView) else getattr(view, "data", None)
    if isinstance(data, HeldRows):
        return int(data.array.nbytes)
    return 0 if data is None or isinstance(data, RowFile) or _is_mapped(data) else int(data.nbytes)


def _sparse_bytes(matrix: Any) -> int:
    """Of a compressed matrix as it is, of others as if they were."""
    if matrix.format in ("csr", "csc"):
        return sum(int(a.nbytes) for a in (matrix.data, matrix.indices, matrix.indptr))
    return int(matrix.nnz * (matrix.dtype.itemsize + 4) + 4 * matrix.shape[0])


def _is_mapped(array: Any) -> bool:
    """Whether an array lies in a memory map."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array is not None


def loaded(view: View) -> int:
    """Bytes of rows that will be decoded or converted, and kept; of large tables some."""
    if isinstance(view, DiagonalView):
        return 0
    if isinstance(view, SparseView):  # what is not CSR becomes it
        return 0 if view.data.format == "csr" else _sparse_bytes(view.data)
    data = getattr(view, "data", None)
    if not isinstance(data, RowFile) or isinstance(data, HeldRows):
        return 0
    whole = int(data.shape[0] * data.shape[1] * data.dtype.itemsize)
    if data.resident:
        return whole
    return 0 if data.random_access else min(whole, _DECODED)


def row_bytes(view: View) -> float:
    """What one row weighs where it is read from."""
    if isinstance(view, DiagonalView):
        return 8.0
    if isinstance(view, KernelView):
        return float(view.kernel.nbytes / view.n)
    if isinstance(view, DenseView):
        data = view.data
        whole = data.file_bytes if isinstance(data, RowFile) else data.nbytes
        return float(whole / view.n)
    if isinstance(view, SparseView):
        data = view.data
        size = data.nbytes if isinstance(data, SparseRows) else _sparse_bytes(data)
        return float(size / view.n)
    return float(8.0 * view.stored / view.n)


def reading_cost(view: View) -> float:
    """How much longer rows take to read than to copy: NumPy converts float16 number by number."""
    half = isinstance(view, DenseView) and view.data.dtype == "float16"
    return _HALF if half else 1.0
