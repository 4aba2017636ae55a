"""Dense rows of one view as blocks of a pass, and the lengths of rows."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Place, RowBlock
from fairnepv.compute.place import Floats

_CACHED_NUMBERS = 1 << 16  # float64 numbers that stay in a core's cache
_LOT = 8  # columns: in float32 BLAS takes longer for 31 of them than for 32
_THIN, _STRIP = 24, 16  # up to so many columns BLAS is quicker with so few rows at a time


class Factored(NamedTuple):
    """Anchor of few items as they are stored, combined only after the product with them: rows that
    share few columns with them make one that takes next to no time."""

    columns: Any
    combine: Floats | None = None


class DenseBlock(RowBlock):
    """Rows (b, p) as they are stored, at a place, and their scales (b, 1). `single` says that
    float32 holds the rows."""

    def __init__(self, data: Any, scale: Any, place: Place, single: bool) -> None:
        self.data, self.place = data, place
        self._scale, self._single = scale, single
        self._double: Any = None  # not a cached_property: its lock is common to threads

    @property
    def _rows(self) -> Any:
        if self._double is None:
            self._double = self.place.double(self.data)
        return self._double

    def features(self) -> Any:
        return self._rows if self._scale is None else self._rows * self._scale

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

    def unscaled(self, anchor: Any, coarse: bool) -> tuple[Any, Any]:
        if coarse and self._single:
            product = self._single_product(anchor)
        else:
            product = self._rows @ self.place.double(anchor).T
        return product, self._scale

    def _single_product(self, anchor: Any) -> Any:
        rows, columns = self.place.single(self.data), self.place.single(anchor)
        if self.place.asynchronous:
            return rows @ columns.T
        if 1 < len(columns) <= _THIN:
            return _thin_product(rows, columns)
        return (rows @ _in_lots(columns).T)[:, : len(columns)]


def _thin_product(rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """rows (b, p) @ columns (m, p)^T for few columns, in strips of rows: BLAS copies the rows of a
    large product first, which takes longer than to multiply them; those of a small one it reads
    where they are."""
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


def squared_norms(rows: NDArray[Any]) -> Floats:
    """(b,) in float64 of rows of any type, a few at a time: a copy of all would not stay cached."""
    norms = np.empty(len(rows))
    step = max(1, _CACHED_NUMBERS // rows.shape[1])
    held = np.empty((min(step, len(rows)), rows.shape[1]))
    for first in range(0, len(rows), step):
        part = held[: len(rows) - first]
        part[:] = rows[first : first + step]
        np.vecdot(part, part, out=norms[first : first + step])
    return norms
