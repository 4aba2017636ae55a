"""Sparse rows (SciPy CSR), and the diagonal kernel as the sparsest of them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.engines import RowBlock
from fairnepv.views.arrays import read_array
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.dense import spectrum_of_rows


class SparseBlock:
    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def features(self) -> Any:
        return self._rows

    def squared_norms(self) -> Floats:
        return _squared_norms(self._rows)

    def cross(self, anchor: Any) -> Floats:
        product = self._rows @ anchor.T
        return product.toarray() if sp.issparse(product) else np.asarray(product)


class SparseView(View):
    """Rows of an (n, p) CSR array; products never densify more than (b, m)."""

    def __init__(self, data: Any, eps: float | None = None) -> None:
        self.data = data
        self.n, self.p = data.shape
        self.eps = eps

    @property
    def stored(self) -> int:
        return int(self.data.nnz)

    @functools.cached_property
    def _raw_squared_norms(self) -> Floats:
        return _squared_norms(self.data)

    def raw_squared_norms(self) -> Floats:
        return self._raw_squared_norms

    def block(self, start: int, stop: int) -> RowBlock:
        rows = slice(start, stop)
        return SparseBlock(_scaled(self.data[rows], self._scales(rows)))

    def rows(self, indices: Indices) -> Any:
        return _scaled(self.data[indices], self._scales(indices))

    def anchor(self, indices: Indices, combine: Floats | None = None) -> Any:
        rows = self.rows(indices)
        return rows if combine is None else combine.T @ rows

    def inner(self, left: Indices, right: Indices) -> Floats:
        product: Floats = (self.rows(left) @ self.rows(right).T).toarray()
        return product

    def spectrum(self, indices: Indices) -> Floats:
        return spectrum_of_rows(self.compact_rows(indices))

    def take(self, indices: Indices) -> SparseView:
        return SparseView(self.data[indices], self.eps).scaled(self._scales(indices), self.offset)


class DiagonalView(SparseView):
    """The kernel diag(values): items that differ in quality and share nothing.

    `eps` is a ridge of its own; 0 takes the values as they stand, which must then be positive.
    """

    def __init__(self, values: NDArray[Any], eps: float | None = None) -> None:
        self.values = np.atleast_1d(read_array(values, "a diagonal kernel"))
        self.n = self.p = len(self.values)
        self.eps = eps

    @functools.cached_property
    def data(self) -> Any:
        return sp.diags_array(np.sqrt(self.values.astype(np.float64)), format="csr")

    def raw_squared_norms(self) -> Floats:
        return self.values.astype(np.float64)

    def smallest_eigenvalue(self, margin: float = 1.0) -> float:
        return float(self.squared_norms.min())

    def spectrum(self, indices: Indices) -> Floats:
        return np.sort(self.squared_norms[indices])[::-1]  # exact: no root is squared back


def _squared_norms(rows: Any) -> Floats:
    """(b,) squared row norms of a CSR array, in float64 whatever its type."""
    squares = rows.astype(np.float64)
    squares.data **= 2
    return np.asarray(squares.sum(axis=1), dtype=np.float64).reshape(-1)


def _scaled(rows: Any, scale: Floats | None) -> Any:
    """diag(scale) @ rows in float64, CSR, sharing the sparsity pattern."""
    rows = rows.astype(np.float64)  # a copy of these rows only
    if scale is not None:
        rows.data *= np.repeat(scale, np.diff(rows.indptr))
    return rows
