"""Dense rows: arrays, memory maps, and rows that stay in their files."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svdvals

from fairnepv.compute import Block, Engine, Pass, RowBlock, in_order
from fairnepv.compute.tensors import to_host
from fairnepv.errors import InputError
from fairnepv.io.rows import Reordered, RowFile
from fairnepv.views.base import SURE, Floats, Indices, View, multiply_rows
from fairnepv.views.trail import Trail

_CHUNK_NUMBERS = 1 << 21
_CACHED_NUMBERS = 1 << 16  # float64 numbers that stay in a core's cache
_LEAST_SINGLE, _MOST_SINGLE = 1e-24, 1e24  # squared norms of rows that float32 can compute with


class DenseBlock:
    """Rows as they are stored; each precision is made when first asked for."""

    def __init__(self, data: NDArray[Any], scale: Floats | None, single: bool) -> None:
        self._data, self._scale, self._single = data, scale, single
        self._double: Floats | None = None  # not a cached_property: its lock is common to threads

    @property
    def _rows(self) -> Floats:
        if self._double is None:
            self._double = np.asarray(self._data, dtype=np.float64)
        return self._double

    def features(self) -> Floats:
        return multiply_rows(self._scale, self._rows)

    def squared_norms(self) -> Floats:
        features = self.features()
        norms: Floats = np.einsum("ij,ij->i", features, features)
        return norms

    def cross(self, anchor: Floats) -> Floats:
        return multiply_rows(self._scale, self._rows @ anchor.T)  # (b, m) is scaled, not (b, p)

    def coarse(self, anchor: Floats) -> NDArray[Any]:
        if not self._single:
            return self.cross(anchor)
        right = np.asarray(anchor, dtype=np.float32).T
        product: NDArray[Any] = np.asarray(self._data, dtype=np.float32) @ right
        if self._scale is not None:
            product *= self._scale.astype(np.float32)[:, None]
        return product


class DenseView(View):
    """Rows of a real (n, p) array or file of any type; read in float64, block by block."""

    scored_by_rows = True

    def __init__(self, data: NDArray[Any] | RowFile, eps: float | None = None) -> None:
        self.data = data
        self.n, self.p = data.shape
        self.eps = eps

    @functools.cached_property
    def _raw_squared_norms(self) -> Floats:
        known = self.data.squared_norms() if isinstance(self.data, RowFile) else None
        if known is not None:
            return known
        size = max(1, _CHUNK_NUMBERS // self.p)
        calls = [functools.partial(self._norms_of, s, s + size) for s in range(0, self.n, size)]
        return np.concatenate(list(in_order(calls)))

    def _norms_of(self, start: int, stop: int) -> Floats:
        return _squared_norms(self.data[start : min(stop, self.n)])

    def measure(self, engine: Engine) -> None:
        """Have the norms computed by workers that read the rows themselves."""
        self._raw_squared_norms = engine.map(Pass(_measure_rows, RawRows(self.data), None))

    def raw_squared_norms(self) -> Floats:
        return self._raw_squared_norms

    def block(self, start: int, stop: int) -> RowBlock:
        return DenseBlock(self.data[start:stop], self._scales(slice(start, stop)), self._single)

    def gather(self, indices: Indices) -> RowBlock:
        indices, data = to_host(indices), self.data  # `take` is quicker than brackets
        rows = data[indices] if isinstance(data, RowFile) else np.take(data, indices, axis=0)
        return DenseBlock(rows, self._scales(indices), self._single)

    @functools.cached_property
    def _single(self) -> bool:
        """Whether float32 holds the rows: products neither overflow nor vanish."""
        norms = self._raw_squared_norms
        large = norms[norms > 0]
        return not len(large) or bool(large.min() > _LEAST_SINGLE and large.max() < _MOST_SINGLE)

    def lean(self) -> DenseView:
        view = self._with(_single=self._single)  # or a worker would read all rows to know it
        vars(view).pop("_raw_squared_norms", None)
        return view

    @property
    def coarse_error(self) -> float:
        unit = 2.0**-24 if self._single else 2.0**-53
        return SURE * float(np.sqrt(self.p)) * unit

    def rows(self, indices: Indices) -> Floats:
        return multiply_rows(self._scales(indices), self.data[indices].astype(np.float64))

    def anchor(self, indices: Indices) -> Floats:
        return self.rows(indices)

    def combined(self, anchor: Floats, combine: Floats) -> Floats:
        return combine.T @ anchor

    def trail(self, most: int, coarse: bool) -> Trail:
        return DenseTrail(self, most, np.float32 if coarse and self._single else np.float64)

    def inner(self, left: Indices, right: Indices) -> Floats:
        return self.rows(left) @ self.rows(right).T

    def quadratic(self, indices: Indices, combine: Floats) -> Floats:
        combined = self.combined(self.anchor(indices), combine)
        return combined @ combined.T

    def spectrum(self, indices: Indices) -> Floats:
        return spectrum_of_rows(self.rows(indices))

    def take(self, indices: Indices) -> DenseView:
        view = DenseView(self.data[self._stretch(indices)], self.eps)
        return view.scaled(self._scales(indices), self.offset)

    def _stretch(self, indices: Indices) -> Indices | slice:
        """Consecutive rows of an array as a slice, which copies nothing; a file must be asked for
        its rows every time, or be read."""
        if isinstance(self.data, RowFile) or not len(indices) or (np.diff(indices) != 1).any():
            return indices
        return slice(int(indices[0]), int(indices[-1]) + 1)

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


class RawRows:
    """Rows before anything is known of them, as a source of blocks for workers."""

    def __init__(self, data: NDArray[Any] | RowFile) -> None:
        self.data = data
        self.n, self.row_width = data.shape

    def block(self, start: int, stop: int) -> Block:
        return Block(start, stop, (DenseBlock(self.data[start:stop], None, False),))

    def gather(self, rows: Indices, start: int, stop: int) -> Block:
        return Block(start, stop, (DenseBlock(self.data[rows[start:stop]], None, False),))

    def lean(self) -> RawRows:
        return self

    def settled(self, engine: Engine) -> RawRows:
        return self


def _measure_rows(block: Block, state: None) -> Floats:
    (rows,) = block.views
    assert isinstance(rows, DenseBlock)
    with np.errstate(over="ignore", invalid="ignore"):  # looked into by who asks
        return _squared_norms(rows._data)


def _squared_norms(raw: NDArray[Any]) -> Floats:
    """(b,) in float64 of rows of any type, a few at a time: a copy of all would not stay cached."""
    norms = np.empty(len(raw))
    step = max(1, _CACHED_NUMBERS // raw.shape[1])
    for first in range(0, len(raw), step):
        rows = raw[first : first + step].astype(np.float64)
        np.einsum("ij,ij->i", rows, rows, out=norms[first : first + step])
    return norms


class DenseTrail(Trail):
    """Directions stay where they were put: the next one is what the others leave of its row."""

    def __init__(self, view: DenseView, most: int, precision: Any) -> None:
        super().__init__(view, 0)
        self._directions = np.zeros((most, view.p))
        self._coarse = self._directions.astype(precision, copy=False)

    def coordinates(self, rows: Indices) -> Floats:
        product: Floats = self._directions[: len(self)] @ self._view.rows(rows).T
        return product

    def add(self, pick: int, coordinates: Floats, root: float) -> None:
        t = len(self)
        row = self._view.rows(np.array([pick]))[0]
        self._directions[t] = (row - coordinates @ self._directions[:t]) / root
        self._coarse[t] = self._directions[t]
        self._length = t + 1

    def directions(self, first: int) -> NDArray[Any]:
        return self._coarse[first : len(self)]


def spectrum_of_rows(rows: Floats) -> Floats:
    """Eigenvalues of rows @ rows.T from singular values.

    The Gram matrix is not formed: it would lose eigenvalues below 1e-16 of the largest, which
    matter as soon as the ridge is small.
    """
    eigenvalues = np.zeros(len(rows))
    singular = svdvals(rows)
    eigenvalues[: len(singular)] = singular**2
    return eigenvalues
