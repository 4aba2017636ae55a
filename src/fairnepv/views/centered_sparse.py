"""Sparse rows less their mean, without filling them in.

With m_i = x_i . mean and mu = |mean|^2 an entry of the kernel is x_i . x_j - m_i - m_j + mu: what
the rows as given say, and a correction of rank two, diag(s) [m, 1] C [m, 1]^T diag(s) under row
scales s. A few rows that are scored are made dense on the columns that occur in them; on all others
they are equal, so that one column more stands for these.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, Self

import numpy as np

from fairnepv.compute import Place, RowBlock
from fairnepv.compute.shifted import ShiftedRows
from fairnepv.views.base import SURE, Floats, Indices, View
from fairnepv.views.trail import Trail


class CenteredSparseView(View):
    """`given` has the rows as they came; `products` (n,) are theirs with the mean (p,), and `norms`
    (n,) the squared ones of centred rows."""

    array_anchors = False

    def __init__(self, given: View, mean: Floats, products: Floats, norms: Floats) -> None:
        self.given, self.mean = given, mean
        self.n, self.p, self.eps = given.n, given.p, given.eps
        self.home_engine = given.home_engine
        self._products, self._norms = products, norms
        self._correction = np.array([[0.0, -1.0], [-1.0, float(mean @ mean)]])
        self._sides = np.stack([products, np.ones(self.n)], axis=1)  # diag(s) [m, 1]
        self._sides_there: Any = None  # the same on a device
        self._scaled = True

    @property
    def stored(self) -> int:
        return self.given.stored

    @property
    def block_place(self) -> Place:  # type: ignore[override]
        return self.given.block_place

    @property
    def resident_bytes(self) -> int:
        return self.given.resident_bytes

    @property
    def look_error(self) -> float:
        """Rows as they came and the mean may be longer than what is left of them, and their
        products are what is rounded."""
        given, scales = self.given, self._sides[:, 1]
        if given._there is not None:  # which multiplies in float64
            return self.coarse_error
        longest = math.sqrt(float(given.squared_norms.max(initial=0.0)))
        longest += float(np.abs(scales).max(initial=0.0)) * float(np.linalg.norm(self.mean))
        left = math.sqrt(float(self.squared_norms.max(initial=0.0)))
        if not left > 0.0:
            return self.coarse_error
        terms = given.fullest + 2  # and what is taken off
        return SURE * math.sqrt(terms) * 2.0**-24 * max(1.0, longest / left)

    @functools.cached_property
    def cancellation(self) -> float:
        """An entry of the kernel is a sum of four: of those of a row as it came and of the mean."""
        left = self._norms > 0
        given = np.sqrt(self.given.raw_squared_norms()[left]) + np.linalg.norm(self.mean)
        return float((given**2 / self._norms[left]).max(initial=1.0))

    def raw_squared_norms(self) -> Floats:
        return self._norms

    def scaled(self, scale: Floats | None, offset: float) -> Self:
        sides = np.stack([self._products, np.ones(self.n)], axis=1)
        if scale is not None:
            sides *= scale[:, None]
        given = self.given.scaled(scale, offset)
        there = None if given._there is None else given.block_place.put(sides)
        view = super().scaled(scale, offset)
        return view._with(given=given, _sides=sides, _sides_there=there)

    # --- rows in passes --------------------------------------------------------------------------

    def _block_of(self, rows: Any) -> RowBlock:
        sides = self._sides if self._sides_there is None else self._sides_there
        return CenteredBlock(self.given._block_of(rows), sides[rows], self._correction, self.mean)

    def anchor(self, indices: Indices) -> CenteredAnchor:
        given = self.given.anchor(indices)
        return CenteredAnchor(given, self.block_place.put(self.opposite(indices)))

    def opposite(self, indices: Indices) -> Floats:
        """(2, m): what sides of other rows are multiplied by, for the correction of entries."""
        return np.asarray(self._correction @ self._sides[indices].T)

    def combined(self, anchor: CenteredAnchor, combine: Any) -> CenteredAnchor:
        given = self.given.combined(anchor.given, combine)
        return CenteredAnchor(given, anchor.opposite @ self.block_place.put(combine))

    def trail(self, most: int, coarse: bool) -> Trail:
        return CenteredTrail(self, most, coarse)

    # --- few rows --------------------------------------------------------------------------------

    def raw_rows(self, rows: Indices | slice) -> Any:
        found = self.given.raw_rows(rows)
        return ShiftedRows(found, np.ones((found.shape[0], 1)), self.mean[None])

    def rows(self, rows: Indices | slice) -> ShiftedRows:
        return ShiftedRows(self.given.rows(rows), self._sides[rows, 1:], self.mean[None])

    def inner(self, left: Indices, right: Indices) -> Floats:
        K = self.given.inner(left, right)
        K += self._sides[left] @ self.opposite(right)
        return K

    def dense_rows(self, indices: Indices) -> Floats:
        """Rows with the same inner products as `rows`, and fewer columns."""
        rows, scale = self.given.rows(indices), self._sides[indices, 1:]
        columns = np.unique(rows.indices)
        others = np.delete(self.mean, columns)
        dense = np.empty((len(indices), len(columns) + 1))
        dense[:, :-1] = rows[:, columns].toarray()
        dense[:, :-1] -= scale * self.mean[columns]
        dense[:, -1:] = -scale * np.linalg.norm(others)
        return dense

    def numbers_at(self, indices: Indices) -> Any:
        return self.given.numbers_at(indices)

    def take(self, indices: Indices) -> View:
        given = self.given.take(indices)
        products, norms = self._products[indices], self._norms[indices]
        return self._given_to(CenteredSparseView(given, self.mean, products, norms), indices)

    # --- on a device, or at a worker -------------------------------------------------------------

    def moved(self, place: Place, room: int) -> CenteredSparseView:
        view = self._with(given=self.given.moved(place, room))
        return view.scaled(self.scale, self.offset)

    def lean(self) -> CenteredSparseView:
        return self._with(given=self.given.lean())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_sides_there": None}


class CenteredAnchor(NamedTuple):
    """An anchor of the rows as given, and what the sides of a block are multiplied by."""

    given: Any
    opposite: Any  # (2, m)


class CenteredBlock(RowBlock):
    """A block of the rows as given, and their sides diag(s) [m, 1] (b, 2) at the same place."""

    def __init__(self, given: RowBlock, sides: Any, correction: Floats, mean: Floats) -> None:
        self.given, self.place = given, given.place
        self._sides, self._correction, self._mean = sides, correction, mean

    def features(self) -> ShiftedRows:
        mean = self.place.put(self._mean[None])
        return ShiftedRows(self.given.features(), self._sides[:, 1:], mean)

    def onto(self, columns: Any, coarse: bool = False) -> Any:
        if not coarse:
            return self.features() @ columns
        xp, product = self.place.xp, self.given.onto(columns, True)
        shift = self.place.put(self._mean[None]) @ columns
        sides = self.place.put(self._sides[:, 1:])
        product -= xp.astype(sides, product.dtype) * xp.astype(shift, product.dtype)
        return product

    def squared_norms(self) -> Any:
        opposite = self._sides @ self.place.put(self._correction)
        norms = self.given.squared_norms() + (self._sides * opposite).sum(axis=1)
        return norms.clip(0.0)  # of a row that is as good as the mean

    def cross(self, anchor: CenteredAnchor) -> Any:
        return self.place.add_product(
            self.given.cross(anchor.given), self._sides, self.place.put(anchor.opposite)
        )


class CenteredTrail(Trail):
    """Directions are combinations of rows, and so are those of the rows as given, with the same
    coefficients."""

    def __init__(self, view: CenteredSparseView, most: int, coarse: bool) -> None:
        super().__init__(view, 0)
        self._given = view.given.trail(most, coarse).literal()
        place = view.block_place
        xp: Any = place.xp
        self._opposite = xp.zeros((2, most), dtype=xp.float64, device=place.device)
        self._centered = view

    def coordinates(self, rows: Indices) -> Any:
        return self._view.gather(rows).cross(self.directions(0)).T

    def add(self, pick: int, coordinates: Any, root: float) -> None:
        place, t = self._view.block_place, self._length
        self._given.add(pick, coordinates, root)
        own = place.put(self._centered.opposite(np.array([pick])))[:, 0]
        if t:
            own = own - self._opposite[:, :t] @ place.put(coordinates)
        self._opposite[:, t] = own / root
        self._length += 1

    def directions(self, first: int) -> CenteredAnchor:
        opposite = self._opposite[:, first : self._length]
        return CenteredAnchor(self._given.directions(first), opposite)
