"""What a view weighs, from shapes and headers: as it lies there, and in the blocks of a pass."""

import mmap
from typing import Any

import scipy.sparse as sp

from fairnepv.io.rows import HeldRows, RowFile
from fairnepv.views import DenseView, DiagonalView, KernelView, SparseView, View
from fairnepv.views.tensor_rows import SparseRows, TensorRows

_DECODED = 256 << 20  # bytes of a large table that stay in memory once they are decoded
_HALF = 16.0  # times as long as a copy takes what makes float32 of float16
_SPARSE_ENTRY = 40  # bytes by entry of a sparse block: a slice of it, and its copy in float64


class ViewFacts:
    """Bytes of one view; one of some other kind counts as float64 rows that it makes itself."""

    def __init__(self, view: View, centered: bool = False) -> None:
        self.centered = centered
        self.n, self.p, self.stored = view.n, view.p, view.stored
        self.dense = isinstance(view, DenseView)
        self.sparse = isinstance(view, SparseView)
        self.kernel = isinstance(view, KernelView)
        self.diagonal = isinstance(view, DiagonalView)
        self.rows: Any = None  # the array, matrix or file that the rows lie in
        if isinstance(view, DiagonalView):
            self.rows = view.values
        elif isinstance(view, KernelView):
            self.rows = view.kernel
        elif isinstance(view, DenseView | SparseView):
            self.rows = view.data
        self.in_file = isinstance(self.rows, RowFile)

    # As it lies there.

    @property
    def held(self) -> int:
        """Bytes that are in memory already, and belong to the user."""
        rows = self.rows.array if isinstance(self.rows, HeldRows) else self.rows
        if rows is None or isinstance(rows, RowFile | SparseRows):
            return 0
        return 0 if _is_mapped(rows) and not self.diagonal else _size(rows)

    @property
    def loaded(self) -> int:
        """Bytes of rows that will be decoded or converted, and kept; of large tables some."""
        if self.sparse and not self.diagonal:  # what is not CSR becomes it
            return 0 if self.rows.format == "csr" else _size(self.rows)
        if not self.in_file or isinstance(self.rows, HeldRows):
            return 0
        whole = int(self.n * self.p * self.rows.dtype.itemsize)
        if self.rows.resident:
            return whole
        return 0 if self.rows.random_access else min(whole, _DECODED)

    @property
    def size(self) -> float:
        """Bytes of all rows where they are read from."""
        if self.diagonal:
            return 8.0 * self.n
        if self.rows is None:
            return 8.0 * self.stored
        return float(self.rows.file_bytes if self.in_file else _size(self.rows))

    @property
    def row_bytes(self) -> float:
        return self.size / self.n

    @property
    def reading_cost(self) -> float:
        """How much longer rows take to read than to copy: float16 is converted one by one."""
        return _HALF if self.dense and self.rows.dtype == "float16" else 1.0

    def copied(self, array: bool) -> float:
        """Bytes by row of a copy in memory; those of an `array` need not be copied otherwise."""
        if not self.dense:
            return self.row_bytes
        return float(self.p * self.rows.dtype.itemsize if array or self.in_file else 0)

    # On a device.

    @property
    def size_there(self) -> float:
        """Bytes of all rows, as a device would hold them."""
        return float(self.n * self.p * self.rows.dtype.itemsize) if self.dense else self.size

    def is_on(self, device: Any) -> bool:
        """Whether the user has put the rows there."""
        on_some = isinstance(self.rows, TensorRows | SparseRows)
        return on_some and self.rows.tensor.device == device

    def moves_to(self, device: Any) -> bool:
        """Kernels are read by the host, which sends products; so are files where it computes."""
        if self.diagonal or not (self.dense or self.sparse):
            return False
        return device.type != "cpu" or not self.in_file

    # By row of a block.

    def block_bytes(self, single: bool, k: int) -> float:
        """Bytes by row of a block that is looked at, in float32 where that is good enough."""
        if self.sparse:
            return _SPARSE_ENTRY * self.stored / self.n + 20 * k
        if not self.dense:
            return 8 * k
        wanted, own = 4 if single else 8, self.rows.dtype.itemsize
        as_it_is = own == wanted and not self.in_file and not self.centered
        return 0 if as_it_is else (wanted + own) * self.p

    @property
    def feature_bytes(self) -> float:
        """Bytes by row of calibrated features in float64."""
        return _SPARSE_ENTRY * self.stored / self.n if self.sparse else 16 * self.p

    def making_bytes(self, m: int) -> float:
        """Bytes that are there, besides, while m rows are made in float64 for a last look."""
        if self.p >= m:  # a kernel, or what its eigenvectors are found with
            return 16.0 * m**2 + (0 if self.sparse else 16.0 * m * self.p)
        read = 0 if self.sparse else self.row_bytes / self.p
        return (16.0 + read) * m * self.p


def _size(rows: Any) -> int:
    """Bytes of an array; of a compressed matrix as it is, of others as if they were."""
    if not sp.issparse(rows):
        return int(rows.nbytes)
    if rows.format in ("csr", "csc"):
        return sum(int(a.nbytes) for a in (rows.data, rows.indices, rows.indptr))
    return int(rows.nnz * (rows.dtype.itemsize + 4) + 4 * rows.shape[0])


def _is_mapped(array: Any) -> bool:
    """Whether an array lies in a memory map."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array is not None
