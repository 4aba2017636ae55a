"""A subset with the inverse of its kernel in every view: what a swap is judged and made by.

With B = L_S^-1 (docs/method.md#swaps): without slot j the inverse is
B_- = B - b b^T / B_jj, b its column; with row i it is B_- + u u^T / s, where u = B_- K_i has -1 in
the slot. Where a set is *strained* in a view, by its largest |phi_i|^2 times its largest B_jj, B
says too little, and other forms give v, c and B_jj.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Block, Place, RowBlock, few_threads
from fairnepv.objective import Standing, determinant_of
from fairnepv.problem import Problem
from fairnepv.views.base import WELL_CONDITIONED, Floats, Indices, View

_STRAINED = 1e3  # up to here the inverse holds all digits that ties are told by
_UNIT = float(np.finfo(np.float64).eps)


class Chosen:
    """What follows from the indices of a set and its totals, whatever the utility."""

    problem: Problem
    indices: Indices
    totals: Floats  # (M,)

    @property
    def standing(self) -> Standing:
        return Standing.of(self.problem, self.totals, len(self.indices))

    @property
    def value(self) -> float:
        return float(self.standing.fair_scores(np.zeros(len(self.totals))))

    def with_row(self, slot: int, row: int) -> Indices:
        """The indices after an exchange."""
        indices = self.indices.copy()
        indices[slot] = row
        return indices


@dataclass(frozen=True)
class Subset(Chosen):
    """Immutable; `exchange` makes the next one with O(k^2) work per view, where the rows are."""

    problem: Problem
    indices: Indices
    inverses: tuple[Any, ...]  # per view B = L[S, S]^-1
    totals: Floats  # (M,) log det L[S, S] without the factor on L

    @classmethod
    def of(cls, problem: Problem, indices: Indices) -> Subset:
        place, inverses, totals = problem.pool.place, [], []
        for view in problem.pool.views:
            with few_threads(float(len(indices)) ** 3):
                B, logdet = place.inverse(place.put(view.ridged(indices)))
            totals.append(logdet)
            inverses.append(B)
        subset = cls(problem, indices, tuple(inverses), np.array(totals))
        for q in np.flatnonzero(subset.strained):  # one Cholesky factor loses as many digits
            subset.totals[q] = determinant_of(problem).total(problem.pool.views[q], indices)
        return subset

    @functools.cached_property
    def anchors(self) -> tuple[Any, ...]:
        """Anchors of the set, by view."""
        return tuple(view.anchor(self.indices) for view in self.problem.pool.views)

    @functools.cached_property
    def _diagonals(self) -> Floats:
        """(M, k) of the inverses."""
        place = self.problem.pool.place
        return np.asarray(place.get(place.xp.stack([B.diagonal() for B in self.inverses])))

    @functools.cached_property
    def strains(self) -> Floats:
        """(M,) the largest squared norm times the largest B_jj."""
        return np.asarray(self.problem.pool.largest_norms * self._diagonals.max(axis=1))

    @property
    def strained(self) -> NDArray[np.bool_]:
        """(M,) where the inverse is not to be trusted."""
        return self.strains > _STRAINED

    @functools.cached_property
    def factors(self) -> tuple[Inverse | Spectral, ...]:
        """What rows are asked to respond to, by view."""
        views = self.problem.pool.views
        return tuple(
            Spectral.of(view, self.indices) if hard and view.ridge > 0 else Inverse(B)
            for view, B, hard in zip(views, self.inverses, self.strained, strict=True)
        )

    @functools.cached_property
    def pivots(self) -> Floats:
        """(M, k) diagonals of L_S^-1."""
        own = zip(self.factors, self._diagonals, strict=True)
        return np.stack([f.pivots if isinstance(f, Spectral) else B_jj for f, B_jj in own])

    @property
    def swap_rounding(self) -> float:
        """How far the log-ratio of a swap may be off in a table of float64."""
        own = zip(self.factors, self.strains.tolist(), strict=True)
        return max((f.rounding(strain) for f, strain in own if strain > _STRAINED), default=0.0)

    @property
    def score_rounding(self) -> float:
        """How far the merit of a set like this may be off, by the function that scores."""
        by_rows = np.array([view.scored_by_rows for view in self.problem.pool.views])
        rows = np.maximum(np.sqrt(self.strains), np.minimum(self.strains, WELL_CONDITIONED))
        unsure = np.where(by_rows, rows, self.strains)
        return _UNIT * float(unsure.max()) / len(self.indices)

    def confirm(self, slot: int, row: int) -> Exchange:
        """The exchange of one slot for one row, computed from the gathered rows alone."""
        pool, rows = self.problem.pool, np.array([row], dtype=np.int64)
        place, products, numbers = pool.place, [], []
        for view, B, anchor in zip(pool.views, self.inverses, self.anchors, strict=True):
            K = place.put(view.gather(rows).cross(anchor))[0]
            v = B @ K
            products.append((K, v, B[slot]))
            numbers += [K @ v, B[slot, slot], v[slot]]
        explained, pivots, own = place.get(place.xp.stack(numbers)).reshape(-1, 3).T
        c = np.maximum(pool.squared_norms[row] - explained, 0.0) + pool.eps
        utility = determinant_of(self.problem)
        ratios = utility.swap_changes(c, pivots, own)
        gains = utility.swap_gains(ratios)
        scales = (ratios / pivots).tolist()
        changes = zip(products, pivots.tolist(), scales, strict=True)
        return Exchange(
            slot,
            row,
            float(self.standing.fair_scores(gains)),
            gains,
            tuple(InverseChange(slot, *made, pivot, s) for made, pivot, s in changes),
        )

    def exchange(self, move: Exchange) -> Subset:
        indices = self.with_row(move.slot, move.row)
        if self.strained.any():
            return Subset.of(self.problem, indices)
        place, own = self.problem.pool.place, zip(self.inverses, move.changes, strict=True)
        inverses = tuple(change.apply(place.copy(B), place) for B, change in own)
        return Subset(self.problem, indices, inverses, self.totals + move.gains)


class InverseChange(NamedTuple):
    """How an exchange changes B in one view; its arrays are where the rows are."""

    slot: int
    kernel: Any  # (k,) K_i of the row that comes, with the set
    response: Any  # (k,) v = B K_i
    column: Any  # (k,) b, of the slot
    pivot: float  # B_jj
    scale: float  # s

    @classmethod
    def of(cls, B: Any, kernel: Any, slot: int, diagonal: Any, place: Place) -> InverseChange:
        """Slot `slot` goes to a row of this kernel with the set, and L_ii with itself."""
        response, column = B @ kernel, place.copy(B[slot])
        numbers = place.xp.stack([column[slot], response[slot], diagonal - kernel @ response])
        pivot, own, left = place.get(numbers).tolist()
        return cls(slot, kernel, response, column, pivot, left + own * own / pivot)

    @property
    def direction(self) -> Any:
        """u."""
        u = self.response - self.column * (self.response[self.slot] / self.pivot)
        u[self.slot] = -1.0
        return u

    def apply(self, B: Any, place: Place) -> Any:
        """B after the exchange, in place."""
        place.add_outer(B, self.column, -1.0 / self.pivot)
        B[self.slot, :] = 0.0  # exactly, where the subtraction left rounding
        B[:, self.slot] = 0.0
        return place.add_outer(B, self.direction, 1.0 / self.scale)


class Exchange(NamedTuple):
    slot: int
    row: int
    value: float  # the merit afterwards
    gains: Floats  # (M,) of the totals
    changes: tuple[InverseChange, ...]  # by view


# --- how rows respond to a set in one view, as its condition allows ------------------------------
# A rounding of a kernel entry is multiplied by the strain: a product with B errs by the square of
# it, which a better swap can hide behind, eigenvectors of K[S, S] by the strain, and singular
# vectors of the rows, where a view has fewer columns than the set has items, by the root, as scores
# do. Measured against 60 digits (30 rows, k = 11, strains of 1e3 to 1e12), a log-determinant per
# item was off by 5e-18 strain^2, 1e-16 strain, and 1e-14 throughout.


class Inverse(NamedTuple):
    """v = B K_i, which a swap can update: the form of a set that is not strained."""

    B: Any  # (k, k), where the rows are

    def rounding(self, strain: float) -> float:
        """How far the logarithm of a swap's ratio may be off."""
        return _UNIT * strain * strain  # which may be infinite, where a power would raise

    def respond(
        self, block: Block, rows: RowBlock, anchor: Any, squared_norms: Any, out: Any
    ) -> Any:
        """v of these rows into `out` (b, k); (b,) c without the ridge."""
        xp, coarse = block.xp, out.dtype == block.xp.float32
        K = rows.coarse(anchor) if coarse else rows.cross(anchor)
        K = xp.astype(K, out.dtype, copy=False)
        xp.matmul(K, block.put(self.B), out=out)
        return (squared_norms - xp.einsum("ij,ij->i", K, out)).clip(0.0)


class Spectral(NamedTuple):
    """K[S, S] = U diag(values) U^T: sums of squares, where an inverse cancels large numbers."""

    U: Floats  # (k, k)
    values: Floats  # (k,) not negative
    eps: float
    W: Floats | None = None  # (p, p) directions of the columns, for p < k: Phi_S = U sqrt(values) W

    @classmethod
    def of(cls, view: View, indices: Indices) -> Spectral:
        k = len(indices)
        if view.scored_by_rows and view.p < k:
            rows = view.rows(indices)
            rows = rows.toarray() if hasattr(rows, "toarray") else rows
            U, singular, W = np.linalg.svd(rows)
            return cls(U, np.append(singular**2, np.zeros(k - view.p)), view.ridge, W)
        values, U = np.linalg.eigh(view.inner(indices, indices))
        return cls(U, np.maximum(values, 0.0), view.ridge)

    @property
    def pivots(self) -> Floats:
        """(k,) diagonal of L_S^-1."""
        return np.asarray((self.U**2 / (self.values + self.eps)).sum(axis=1))

    def respond(
        self, block: Block, rows: RowBlock, anchor: Any, squared_norms: Any, out: Any
    ) -> Any:
        lam = self.values + self.eps
        if self.W is None:
            a = rows.cross(anchor) @ block.put(self.U)
            out[...] = (a / block.put(lam)) @ block.put(self.U).T
            return (squared_norms - (a**2 / block.put(lam)).sum(axis=1)).clip(0.0)
        p = len(self.W)
        t = block.place.dense(rows.features()) @ block.put(self.W).T
        weights = np.sqrt(self.values[:p]) / lam[:p]
        out[...] = (t * block.put(weights)) @ block.put(self.U)[:, :p].T
        return self.eps * (t**2 / block.put(lam[:p])).sum(axis=1)

    def rounding(self, strain: float) -> float:
        return _UNIT * (16.0 * strain if self.W is None else 4.0 * math.sqrt(strain))
