"""Dense rows of one view as blocks of a pass, and the lengths of rows."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Place, RowBlock, has_small_products, in_order
from fairnepv.compute.place import Floats

_CHUNK_NUMBERS = 1 << 21  # of rows whose squares are summed by one call
_CACHED_NUMBERS = 1 << 16  # float64 numbers that stay in a core's cache
_LOT = 8  # columns: in float32 BLAS takes longer for 31 of them than for 32
_STRIP = 16  # rows that BLAS is asked for at a time where it has routines for small products
_FEW_IN_STRIPS, _FEW_TURNED = 24, 96  # up to so many columns that is quicker; or else turned round


class Factored(NamedTuple):
    """Anchor of few items as they are stored, combined only after the product with them: rows that
    share few columns with them make one that takes next to no time."""

    columns: Any
    combine: Floats | None = None


class Center(NamedTuple):
    """What is taken off every row of a centred view."""

    mean: Floats  # (p,) of the rows of the pool
    least: float  # squared length up to which what is left of a row is rounding


class DenseBlock(RowBlock):
    """Rows (b, p) as they are stored, at a place, and their scales (b, 1). `single` says that
    float32 holds the rows. A `mean` (p,) is taken off before anything is multiplied, since rows may
    be far from zero beside what is left of them: products would cancel."""

    def __init__(self, data: Any, scale: Any, place: Place, single: bool, mean: Any = None) -> None:
        self.data, self.place = data, place
        self._scale, self._single, self._mean = scale, single, mean
        self._double: Any = None  # not a cached_property: its lock is common to threads

    @property
    def _rows(self) -> Any:
        if self._double is None:
            bare = self._mean is None
            place, rows = self.place, self.data
            self._double = place.double(rows) if bare else place.less(rows, self._mean)
        return self._double

    def features(self) -> Any:
        return self._rows if self._scale is None else self._rows * self._scale

    def coarse_features(self) -> Any:
        if not self._single:
            return self.features()
        rows = self._single_rows
        return rows if self._scale is None else rows * self.place.single(self._scale)

    def squared_norms(self) -> Any:
        return self.place.square_sums(self.features())

    def cross(self, anchor: Any) -> Any:
        product = self._rows @ self.place.double(anchor).T
        if self._scale is not None:
            product *= self._scale  # (b, m) is scaled, not (b, p)
        return product

    def coarse(self, anchor: Any) -> Any:
        if not self._single:
            return self.cross(anchor)
        product = self._single_product(anchor)
        if self._scale is not None:
            product *= self.place.single(self._scale)
        return product

    def onto(self, columns: Any, coarse: bool = False) -> Any:
        return self.coarse(columns.T) if coarse else self.cross(columns.T)

    def unscaled(self, anchor: Any, coarse: bool) -> tuple[Any, Any]:
        if coarse and self._single:
            product = self._single_product(anchor)
        else:
            product = self._rows @ self.place.double(anchor).T
        return product, self._scale

    @property
    def _single_rows(self) -> Any:
        if self._mean is None:
            return self.place.single(self.data)
        return self.place.less_single(self.data, self._mean)

    def _single_product(self, anchor: Any) -> Any:
        place, rows, columns = self.place, self._single_rows, self.place.single(anchor)
        if place.asynchronous:
            return rows @ columns.T
        strips = has_small_products()
        if 1 < len(columns) <= (_FEW_IN_STRIPS if strips else _FEW_TURNED):
            return _in_strips(rows, columns) if strips else (columns @ rows.T).T
        return (rows @ _in_lots(columns).T)[:, : len(columns)]


def _in_strips(rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """rows (b, p) @ columns (m, p)^T for few columns: BLAS copies the rows of a large product
    first, which takes longer than to multiply them; those of a small one it reads where they are.
    BLAS that has nothing of that kind copies less if the product is turned round."""
    product = np.empty((len(rows), len(columns)), dtype=rows.dtype)
    whole = len(rows) - len(rows) % _STRIP
    strips = rows[:whole].reshape(-1, _STRIP, rows.shape[1])
    out = product[:whole].reshape(-1, _STRIP, len(columns))
    np.matmul(strips, columns.T, out=out)
    np.matmul(rows[whole:], columns.T, out=product[whole:])
    return product


def _in_lots(anchor: NDArray[Any]) -> NDArray[Any]:
    """The anchor (m, p) with rows of zeros behind it, up to a multiple of `_LOT`."""
    missing = -len(anchor) % _LOT
    if not missing or len(anchor) <= _LOT // 2:
        return anchor
    lots = np.zeros((len(anchor) + missing, anchor.shape[1]), dtype=anchor.dtype)
    lots[: len(anchor)] = anchor
    return lots


def squared_norms(rows: NDArray[Any], center: Center | None = None) -> Floats:
    """(b,) in float64 of rows of any type, of centred ones where there is a center."""
    norms, done = np.empty(len(rows)), 0
    for part in _cached_parts(rows):
        if center is not None:
            part -= center.mean
        np.vecdot(part, part, out=norms[done : done + len(part)])
        done += len(part)
    if center is not None:
        norms[norms <= center.least] = 0.0
    return norms


def inverse_norms(squared_norms: Floats) -> Floats:
    """1 / sqrt of squared norms, and 0 where these are 0."""
    return np.asarray(1.0 / np.sqrt(np.where(squared_norms > 0, squared_norms, np.inf)))


def measured(n: int, p: int, norms: Callable[[slice], Floats]) -> Floats:
    """(n,) norms of rows of p numbers, in chunks, on all cores."""
    size = max(1, _CHUNK_NUMBERS // p)
    chunks = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    tasks = [functools.partial(norms, chunk) for chunk in chunks]
    return np.concatenate(list(in_order(tasks)))


def column_sums(rows: NDArray[Any], origin: Floats) -> Floats:
    """(p,) sums of rows of any type less `origin` (p,), in float64."""
    total = np.zeros(rows.shape[1])
    for part in _cached_parts(rows):
        part -= origin
        total += part.sum(axis=0)
    return total


def _cached_parts(rows: NDArray[Any]) -> Iterator[Floats]:
    """The rows in float64, a few at a time in the same memory: a copy of all would not stay
    cached."""
    step = max(1, _CACHED_NUMBERS // rows.shape[1])
    held = np.empty((min(step, len(rows)), rows.shape[1]))
    for first in range(0, len(rows), step):
        part = held[: len(rows) - first]
        part[:] = rows[first : first + step]
        yield part
