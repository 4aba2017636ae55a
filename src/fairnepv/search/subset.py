"""A subset with the inverse of its kernel in every view: what a swap is judged and made by.

Exchanging slot j for row i multiplies det L[S, S] by c_i B_jj + v_ji^2, with B = L_S^-1, v = B K_i
and c_i = L_ii - K_i . v (DESIGN 3.4). Without the slot the inverse is B_- = B - b b^T / B_jj, b its
column; with the row it is B_- + u u^T / s, where u = B_- K_i has -1 in the slot. Where a set is
strained in a view (`factors`), B says too little there: other forms give v, c and B_jj.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import few_threads
from fairnepv.objective import Standing, utility_of
from fairnepv.problem import Problem
from fairnepv.search.factors import STRAINED, Inverse, Spectral, volume_rounding
from fairnepv.views.base import Floats, Indices


@dataclass(frozen=True)
class Subset:
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
                L = view.inner(indices, indices) + view.ridge * np.eye(len(indices))
                B, logdet = place.inverse(place.put(L))
            totals.append(logdet)
            inverses.append(B)
        subset = cls(problem, indices, tuple(inverses), np.array(totals))
        for q in np.flatnonzero(subset.strained):  # one Cholesky factor loses as many digits
            subset.totals[q] = utility_of(problem).total(problem.pool.views[q], indices)
        return subset

    @property
    def standing(self) -> Standing:
        return Standing.of(self.problem, self.totals, len(self.indices))

    @property
    def value(self) -> float:
        return float(self.standing.fair_scores(np.zeros(len(self.totals))))

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
        return self.strains > STRAINED

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
        unsure = [f.rounding(strain) for f, strain in own if strain > STRAINED]
        return max(unsure, default=0.0)

    @property
    def score_rounding(self) -> float:
        """How far the merit of a set like this may be off, by the function that scores."""
        own = zip(self.problem.pool.views, self.strains.tolist(), strict=True)
        return max(volume_rounding(view, strain) for view, strain in own) / len(self.indices)

    def with_row(self, slot: int, row: int) -> Indices:
        """The indices after an exchange."""
        indices = self.indices.copy()
        indices[slot] = row
        return indices

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
        utility = utility_of(self.problem)
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
        place, slot = self.problem.pool.place, move.slot
        inverses = []
        for B, change in zip(self.inverses, move.changes, strict=True):
            B = place.add_outer(place.copy(B), change.column, -1.0 / change.pivot)
            B[slot, :] = 0.0  # exactly, where the subtraction left rounding
            B[:, slot] = 0.0
            inverses.append(place.add_outer(B, change.direction, 1.0 / change.scale))
        return Subset(self.problem, indices, tuple(inverses), self.totals + move.gains)


class InverseChange(NamedTuple):
    """How an exchange changes B in one view; its arrays are where the rows are."""

    slot: int
    kernel: Any  # (k,) K_i of the row that comes, with the set
    response: Any  # (k,) v = B K_i
    column: Any  # (k,) b, of the slot
    pivot: float  # B_jj
    scale: float  # s

    @property
    def direction(self) -> Any:
        """u."""
        u = self.response - self.column * (self.response[self.slot] / self.pivot)
        u[self.slot] = -1.0
        return u


class Exchange(NamedTuple):
    slot: int
    row: int
    value: float  # the merit afterwards
    gains: Floats  # (M,) of the totals
    changes: tuple[InverseChange, ...]  # by view
