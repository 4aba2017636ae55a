"""What a greedy search keeps of its picks in one view.

A pick adds a direction to those that explain the rows: a combination of all picks so far, whose
coefficients make it orthogonal to the directions before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import solve_triangular

from fairnepv.compute.clock import check_time
from fairnepv.compute.tensors import to_host

if TYPE_CHECKING:
    from fairnepv.views.base import Floats, Indices, View


class Trail:
    """Of any view: the coefficients of every direction on the picks, and an anchor of these.

    With a ridge in the lengths they are the inverse of the Cholesky factor of L[S, S].
    """

    foresees: bool = False  # whether a `Sprint` on a device may ask for it

    def __init__(self, view: View, most: int) -> None:
        self._view = view
        self._picks = np.empty(most, dtype=np.int64)
        self._coefficients = np.zeros((most, most))  # row t has those of direction t
        self._anchor: Any = None
        self._length = 0
        self._foreseen: list[tuple[int, Any, float]] = []

    def __len__(self) -> int:
        return self._length

    def literal(self) -> Trail:
        """An empty trail whose coordinates are one for each pick, as whoever adds them to those of
        another view needs them."""
        return self

    def coordinates(self, rows: Indices) -> Any:
        """(t, m) of these rows along the directions; their squares are what the picks explain. A
        trail that is not asked to be literal may have fewer numbers with the same products."""
        kernel = self._view.gather(rows).cross(self._picks_anchor())
        return self._made(0) @ kernel.T

    def left_of(self, rows: Any) -> tuple[Any, Any]:
        """Those coordinates, and the kernel (m, m) between these rows less what they explain."""
        v, kernel = self.coordinates(rows), self._view.inner(rows, rows)
        return v, kernel - v.T @ v

    def add(self, pick: int, coordinates: Any, root: float) -> None:
        """One more pick, its coordinates (t,) and the length of what they leave of it."""
        t = self._length
        self._coefficients[t, :t] = -(to_host(coordinates) @ self._made(0)) / root
        self._coefficients[t, t] = 1.0 / root
        self._picks[t] = pick
        self._anchor = None
        self._length += 1

    def foresee(self, picks: Indices, earlier: Any, among: Floats) -> None:
        """The next picks (s,), should they be adopted: their coordinates (t, s) so far, and (s, s)
        along the directions of each other, on whose diagonal is the length of what is left."""
        self._foreseen = [
            (int(pick), np.append(earlier[:, j], among[j, :j]), float(among[j, j]))
            for j, pick in enumerate(picks)
        ]

    def adopt(self) -> None:
        """One more pick, the next of those foreseen."""
        self.add(*self._foreseen.pop(0))

    def directions(self, first: int) -> Any:
        """Anchor of the directions from number `first` on."""
        return self._view.combined(self._picks_anchor(), self._made(first).T)

    def _made(self, first: int) -> Floats:
        return self._coefficients[first : self._length, : self._length]

    def _picks_anchor(self) -> Any:
        if self._anchor is None:
            self._anchor = self._view.anchor(self._picks[: self._length])
        return self._anchor


class DenseTrail(Trail):
    """Of dense rows: directions stay where they were put, at the place of the view, and the next
    one is what the others leave of its row.

    With a ridge there may be many more directions than columns. What they explain of a row is then
    asked of a triangular factor of their second moments, to which as many again are added before
    the next one is made.
    """

    def __init__(self, view: View, most: int, single: bool) -> None:
        super().__init__(view, 0)
        place = self._place = view.place
        self.foresees = place.asynchronous
        self.matrix = self._room(most)
        self._coarse = place.single(self.matrix) if single else self.matrix
        self._factor = None if most <= 2 * view.p else self._room(2 * view.p)
        self._used = 0  # rows of the factor

    def literal(self) -> Trail:
        self._factor = None
        return self

    def coordinates(self, rows: Indices) -> Any:
        return self._explaining() @ self._view.anchor(rows).T

    def left_of(self, rows: Any) -> tuple[Any, Any]:
        X = self._view.anchor(rows)
        check_time()
        v = self._explaining() @ X.T
        check_time()  # thousands of rows of a wide view take as long as a pass
        return v, X @ X.T - v.T @ v

    def add(self, pick: int, coordinates: Any, root: float) -> None:
        t = self._length
        row = self._view.block(pick, pick + 1).features()[0]  # without an index to be sent
        if t:  # those of a sum of views may have been made elsewhere
            row = self._place.residual(row, self._place.put(coordinates), self._explaining())
        self.matrix[t] = row / root
        self.adopt()

    def foresee(self, picks: Indices, earlier: Any, among: Floats) -> None:
        """All directions in two products: what is left of each pick is a combination of what those
        before them leave of all."""
        t, ones = self._length, np.eye(len(among))
        inverse = solve_triangular(among, ones, lower=True, check_finite=False)
        rest = self._view.anchor(picks) - earlier.T @ self._explaining()
        self.matrix[t : t + len(picks)] = self._place.put(inverse) @ rest

    def adopt(self) -> None:
        if self._coarse is not self.matrix:
            self._coarse[self._length] = self.matrix[self._length]
        if self._factor is not None:
            self._note_direction(self._factor)
        self._length += 1

    def directions(self, first: int) -> Any:
        return self._coarse[first : self._length]

    def _room(self, rows: int) -> Any:
        place = self._place
        return place.xp.zeros((rows, self._view.p), dtype=place.xp.float64, device=place.device)

    def _explaining(self) -> Any:
        """(r, p) rows whose products with any other explain as much of it as the directions do."""
        return self.matrix[: self._length] if self._factor is None else self._factor[: self._used]

    def _note_direction(self, factor: Any) -> None:
        """One more row of the factor; a full one is made triangular first."""
        if self._used == len(factor):
            self._used = self._view.p
            factor[: self._used] = self._place.xp.linalg.qr(factor)[1]
        factor[self._used] = self.matrix[self._length]
        self._used += 1
