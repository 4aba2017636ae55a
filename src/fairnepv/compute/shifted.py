"""Sparse rows of which a dense row is taken off, without filling them in: those of centred views.

What is asked of CSR features is asked of these: products with dense matrices from both sides, rows
at places, rows times numbers, all of it as a dense array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairnepv.compute.place import HOST


class ShiftedRows:
    """rows - weights @ means: CSR (b, p), of SciPy or PyTorch, and dense (b, r) and (r, p)."""

    def __init__(self, rows: Any, weights: Any, means: Any) -> None:
        self.rows, self.weights, self.means = rows, weights, means
        self.shape, self.dtype = tuple(rows.shape), rows.dtype

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, ShiftedColumns):  # few rows, whose products with others are dense
            return self._times(other.rows)
        return self.rows @ other - self.weights @ (self.means @ other)

    def _times(self, other: ShiftedRows) -> Any:
        """(b, m) products with other rows; those of the host without filling any in."""
        if not sp.issparse(self.rows):
            return self @ other.toarray().T
        products = (self.rows @ other.rows.T).toarray()
        means = self.weights @ (self.means @ other.means.T) - self.rows @ other.means.T
        left = np.hstack([means, -self.weights])
        right = np.hstack([other.weights, other.rows @ self.means.T])
        return HOST.add_product(products, left, right.T)  # once over what is dense

    @property
    def nnz(self) -> int:
        """Numbers that a product with a vector touches, of rows of the host."""
        return int(self.rows.nnz + self.weights.size + self.means.size)

    @property
    def T(self) -> ShiftedColumns:
        return ShiftedColumns(self)

    def toarray(self) -> Any:
        dense = self.rows.toarray() if sp.issparse(self.rows) else self.rows.to_dense()
        return dense - self.weights @ self.means

    def __getitem__(self, at: Any) -> ShiftedRows:
        return ShiftedRows(self.rows[at], self.weights[at], self.means)

    def multiply(self, column: Any) -> ShiftedRows:
        """Every row times a number, (b, 1)."""
        rows = self.rows.multiply(column).tocsr()
        return ShiftedRows(rows, self.weights * column, self.means)

    def __rmul__(self, factor: float) -> ShiftedRows:
        return ShiftedRows(factor * self.rows, factor * self.weights, self.means)

    def tocsr(self) -> ShiftedRows:
        """As it is: after `multiply` CSR has another format."""
        return self

    def astype(self, dtype: Any) -> ShiftedRows:
        return self.moved(lambda part: part.astype(dtype))

    def moved(self, move: Callable[[Any], Any]) -> ShiftedRows:
        """With each of the three parts converted, or brought to another place."""
        return ShiftedRows(move(self.rows), move(self.weights), move(self.means))


class ShiftedColumns:
    """Their transpose."""

    def __init__(self, rows: ShiftedRows) -> None:
        self.rows = rows

    def __matmul__(self, other: Any) -> Any:
        rows = self.rows
        return rows.rows.T @ other - rows.means.T @ (rows.weights.T @ other)

    def toarray(self) -> Any:
        return self.rows.toarray().T


def side_by_side(parts: list[Any]) -> Any:
    """Features (b, p_q) of the host side by side: arrays, CSR or shifted; CSR if any of them is,
    and shifted if any of them is that."""
    shifted = [x for x in parts if isinstance(x, ShiftedRows)]
    if not shifted:
        sparse = any(map(sp.issparse, parts))
        return sp.hstack(parts, format="csr") if sparse else np.hstack(parts)
    rows = sp.hstack([getattr(x, "rows", x) for x in parts], format="csr")
    means, row, column = np.zeros((sum(len(x.means) for x in shifted), rows.shape[1])), 0, 0
    for x in parts:
        if isinstance(x, ShiftedRows):
            means[row : row + len(x.means), column : column + x.shape[1]] = x.means
            row += len(x.means)
        column += x.shape[1]
    return ShiftedRows(rows, np.hstack([x.weights for x in shifted]), means)
