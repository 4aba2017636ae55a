"""Dense rows: arrays, memory maps, and rows that stay in their files."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svdvals

from fairnepv.engines import RowBlock
from fairnepv.errors import InputError
from fairnepv.io.rows import Reordered, RowFile
from fairnepv.views.base import Floats, Indices, View, multiply_rows

_CHUNK_NUMBERS = 1 << 21


class DenseBlock:
    def __init__(self, data: NDArray[Any], scale: Floats | None) -> None:
        self._data, self._scale = data, scale

    @functools.cached_property
    def _rows(self) -> Floats:
        return np.asarray(self._data, dtype=np.float64)

    def features(self) -> Floats:
        return multiply_rows(self._scale, self._rows)

    def squared_norms(self) -> Floats:
        features = self.features()
        norms: Floats = np.einsum("ij,ij->i", features, features)
        return norms

    def cross(self, anchor: Floats) -> Floats:
        return multiply_rows(self._scale, self._rows @ anchor.T)  # (b, m) is scaled, not (b, p)


class DenseView(View):
    """Rows of a real (n, p) array or file of any type; read in float64, block by block."""

    def __init__(self, data: NDArray[Any] | RowFile, eps: float | None = None) -> None:
        self.data = data
        self.n, self.p = data.shape
        self.eps = eps

    @functools.cached_property
    def _raw_squared_norms(self) -> Floats:
        norms = np.empty(self.n)
        for start, raw in row_chunks(self.data):
            rows = raw.astype(np.float64)
            np.einsum("ij,ij->i", rows, rows, out=norms[start : start + len(rows)])
        return norms

    def raw_squared_norms(self) -> Floats:
        return self._raw_squared_norms

    def block(self, start: int, stop: int) -> RowBlock:
        return DenseBlock(self.data[start:stop], self._scales(slice(start, stop)))

    def rows(self, indices: Indices) -> Floats:
        return multiply_rows(self._scales(indices), self.data[indices].astype(np.float64))

    def anchor(self, indices: Indices, combine: Floats | None = None) -> Floats:
        rows = self.rows(indices)
        return rows if combine is None else combine.T @ rows

    def inner(self, left: Indices, right: Indices) -> Floats:
        return self.rows(left) @ self.rows(right).T

    def quadratic(self, indices: Indices, combine: Floats) -> Floats:
        combined = self.anchor(indices, combine)
        return combined @ combined.T

    def spectrum(self, indices: Indices) -> Floats:
        return spectrum_of_rows(self.rows(indices))

    def take(self, indices: Indices) -> DenseView:
        view = DenseView(self.data[indices], self.eps)
        return view.scaled(self._scales(indices), self.offset)

    def reordered(self, order: Indices) -> DenseView:
        if not isinstance(self.data, RowFile):
            return self.take(order)
        if not self.data.random_access:  # every block would decode most of the file
            raise InputError(
                f"{self.data} is in another order than the first view, and its rows cannot be read "
                "in any order; convert it first (fairnepv convert)"
            )
        view = DenseView(Reordered(self.data, order), self.eps)
        return view.scaled(self._scales(order), self.offset)


def row_chunks(data: NDArray[Any] | RowFile) -> Iterator[tuple[int, NDArray[Any]]]:
    """(start, rows) of some megabytes each, for checks before there is a pool."""
    chunk = max(1, _CHUNK_NUMBERS // data.shape[1])
    for start in range(0, len(data), chunk):
        yield start, data[start : start + chunk]


def spectrum_of_rows(rows: Floats) -> Floats:
    """Eigenvalues of rows @ rows.T from singular values.

    The Gram matrix is not formed: it would lose eigenvalues below 1e-16 of the largest, which
    matter as soon as the ridge is small.
    """
    eigenvalues = np.zeros(len(rows))
    singular = svdvals(rows)
    eigenvalues[: len(singular)] = singular**2
    return eigenvalues
