"""A set among few rows, and what every swap of it would do: what a tabu search goes over.

Kernels of the rows are held and everything is updated in place, so that a swap touches M m k
numbers and no row of the pool.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Block, Place, few_threads
from fairnepv.constraints import SwapRules
from fairnepv.objective import Standing, determinant_of
from fairnepv.problem import Problem
from fairnepv.search import table
from fairnepv.search.explained import swaps
from fairnepv.search.promises import Promises
from fairnepv.search.subset import InverseChange
from fairnepv.search.table import ResponseChange
from fairnepv.views.base import Floats, Indices
from fairnepv.views.moments import second_inner
from fairnepv.views.pool import Pool

DIGITS = 9  # by which scores are told apart; equal ones go to the lowest row
_LOOKED_AT = 24  # rows whose swaps are scored, of those that promise most


class Move(NamedTuple):
    slot: int
    row: int
    value: float  # the merit afterwards
    gains: Floats  # (M,) of the totals


class Arena(ABC):
    """Large arrays are where the rows are; which swap is made is decided on the host."""

    totals: Floats  # (M,)
    nothing: float  # what a swap promises that would leave everything as it is
    arrays: int  # so many (m, k) of a view are changed by every swap
    kernels_of_view: int  # so many (m, m) are held
    promises_of: Callable[[Problem, Indices], Promises]  # what all rows promise beside a set
    worth_float32: Callable[[Problem], bool]  # whether to look at that coarsely first

    def __init__(self, problem: Problem, kernels: Sequence[Any], indices: Indices) -> None:
        self.problem, self.kernels, self.indices = problem, kernels, indices.copy()
        self._place = problem.pool.place

    @classmethod
    def held_kernels(cls, problem: Problem) -> list[Any]:
        """What is held of every view, where the rows are, for all arenas among these rows."""
        with few_threads(float(problem.n) ** 2 * problem.pool.width):
            return cls._kernels(problem.pool, np.arange(problem.n))

    @staticmethod
    @abstractmethod
    def _kernels(pool: Pool, rows: Indices) -> list[Any]: ...

    @abstractmethod
    def _promised(self, standing: Standing) -> Any:
        """(m, k) a bound on what F_tau could rise by with every swap."""

    @abstractmethod
    def _gains(self, rows: Indices) -> Floats:
        """(M, m, k) what swaps with these rows add to the totals, on the host."""

    @abstractmethod
    def swap(self, move: Move) -> None: ...

    def gains_of(self, slot: int, row: int) -> Floats:
        """(M,) what one swap adds to the totals."""
        return self._gains(np.array([row], dtype=np.int64))[:, 0, slot]

    def best_swap(self, rows: NDArray[np.bool_], slots: NDArray[np.bool_]) -> Move | None:
        """The best that neither the rules forbid nor these rows and slots are closed to."""
        standing, place = Standing.of(self.problem, self.totals, len(self.indices)), self._place
        rules = self.problem.constraints.may_swap(self.indices, self.problem.n)
        rise = self._allowed(self._promised(standing), rules, slots)
        highest = self._highest(rise)
        highest[rules.blocked | rows] = -np.inf
        # Under floors what promises most may miss one.
        most = _LOOKED_AT if self.problem.floors is None else None
        near = np.argsort(-highest.round(DIGITS), kind="stable")[:most]
        near = np.sort(near[np.isfinite(highest[near])])
        if not len(near):
            return None
        gains, rise = self._gains(near), place.get(rise[place.put(near)])
        scores = np.where(np.isfinite(rise), standing.fair_scores(gains), -np.inf)
        if not np.isfinite(scores.max()):
            return None
        at, slot = np.unravel_index(np.argmax(scores.round(DIGITS)), scores.shape)
        return Move(int(slot), int(near[at]), float(scores[at, slot]), gains[:, at, slot])

    def _allowed(self, rise: Any, rules: SwapRules, slots: NDArray[np.bool_]) -> Any:
        """What swaps promise, -inf for slots that are closed."""
        place = self._place
        rise[:, place.put(slots)] = -np.inf
        if not rules.allowed.all():
            rise[place.put(~rules.allowed[rules.groups])] = -np.inf
        return rise

    def _highest(self, rise: Any) -> Floats:
        """(m,) what every row promises in its best slot, but for swaps that would leave everything
        as it is, which are closed: an item may have many copies."""
        place, tie = self._place, 10.0**-DIGITS
        highest = place.xp.max(rise, axis=1)
        some = place.xp.nonzero(highest > self.nothing - tie)[0]
        promised = rise[some]
        promised[abs(promised - self.nothing) < tie] = -np.inf
        rise[some], highest[some] = promised, place.xp.max(promised, axis=1)
        return np.asarray(place.get(highest))


class DiverseArena(Arena):
    """Of log-determinants: v and c of `search.table`."""

    arrays = kernels_of_view = 1
    promises_of, worth_float32 = staticmethod(table.promises_of), staticmethod(table.worth_float32)

    def __init__(self, problem: Problem, kernels: Sequence[Any], indices: Indices) -> None:
        super().__init__(problem, kernels, indices)
        place = self._place
        xp, chosen = place.xp, place.put(self.indices)
        K = [L[:, chosen] for L in self.kernels]
        found = [place.inverse(part[chosen]) for part in K]
        self.inverses = [B for B, _ in found]  # (k, k)
        self.totals = np.array([total for _, total in found])
        self.v = xp.stack([part @ B for part, B in zip(K, self.inverses, strict=True)])  # (M, m, k)
        explained = [xp.einsum("ij,ij->i", part, v) for part, v in zip(K, self.v, strict=True)]
        diagonals = [L.diagonal() for L in self.kernels]
        self.c = xp.stack([a - b for a, b in zip(diagonals, explained, strict=True)])
        self._utility = determinant_of(problem)
        self.nothing = self._utility.needed_ceiling(0.0)
        self._rows = Block(0, len(self.kernels[0]), (), place)

    @staticmethod
    def _kernels(pool: Pool, rows: Indices) -> list[Any]:
        """(m, m) with the ridge."""
        return [pool.place.put(view.ridged(rows)) for view in pool.views]

    @property
    def _pivots(self) -> Floats:
        """(M, k)"""
        stacked = self._place.xp.stack([B.diagonal() for B in self.inverses])
        return np.asarray(self._place.get(stacked))

    def _promised(self, standing: Standing) -> Any:
        v = self._place.xp.permute_dims(self.v, (1, 0, 2))
        return standing.rise(self._rows, v, self.c.T, self._pivots)

    def _gains(self, rows: Indices) -> Floats:
        there = self._place.put(rows)
        v, c = (self._place.get(x) for x in (self.v[:, there], self.c[:, there]))
        changes = self._utility.swap_changes(c[:, :, None], self._pivots[:, None, :], v)
        return self._utility.swap_gains(changes)

    def swap(self, move: Move) -> None:
        slot, row, chosen = move.slot, move.row, self._place.put(self.indices)
        for L, B, v, c in zip(self.kernels, self.inverses, self.v, self.c, strict=True):
            change = InverseChange.of(B, L[row][chosen], slot, L[row, row], self._place)
            ResponseChange.of(change).apply(v, c, L[row], self._place)
            change.apply(B, self._place)
        self.indices[slot] = row
        self.totals = self.totals + move.gains


class ExplainedArena(Arena):
    """Of explained variance, with the letters of `search.explained.swaps`."""

    nothing, arrays, kernels_of_view = 0.0, 3, 2
    promises_of, worth_float32 = staticmethod(swaps.promises_of), staticmethod(swaps.worth_float32)

    def __init__(self, problem: Problem, kernels: Sequence[Any], indices: Indices) -> None:
        super().__init__(problem, kernels, indices)
        chosen = self._place.put(self.indices)
        self.views = [_Residuals(L, K2, chosen, self._place) for L, K2 in kernels]
        self.totals = np.array([view.total for view in self.views])

    @staticmethod
    def _kernels(pool: Pool, rows: Indices) -> list[Any]:
        """(m, m) with the ridge, and those of second order, over the trace."""
        put, kernels = pool.place.put, DiverseArena._kernels(pool, rows)
        seconds = (second_inner(view, rows, rows) / view.moments.trace for view in pool.views)
        return [(L, put(K2)) for L, K2 in zip(kernels, seconds, strict=True)]

    def _promised(self, standing: Standing) -> Any:
        own = zip(standing.slopes.tolist(), self.views, strict=True)
        return sum(weight * view.gains(slice(None)) for weight, view in own)

    def _gains(self, rows: Indices) -> Floats:
        there = self._place.put(rows)
        return np.stack([self._place.get(view.gains(there)) for view in self.views])

    def swap(self, move: Move) -> None:
        chosen = self._place.put(self.indices)
        for view in self.views:
            view.remove(move.slot)
            view.add(move.slot, move.row, chosen)
        self.indices[move.slot] = move.row
        self.totals = self.totals + move.gains


class _Residuals:
    """What is left of few rows beside a set, in one view: v and y (m, k), c and b (m,), T and H.

    A chosen row has the ridge in common with its slot, so that nothing is left of it, and after it
    has been removed as much as the ridge allows.
    """

    def __init__(self, L: Any, K2: Any, chosen: Any, place: Place) -> None:
        self._L, self._K2, self._place = L, K2, place
        U, P = L[:, chosen], K2[:, chosen]
        self.T, _ = place.inverse(U[chosen])
        inner = P[chosen] @ self.T
        self.H = self.T @ inner
        self.total = float(inner.trace())
        self.v = U @ self.T
        self.y = P @ self.T - self.v @ inner
        self.c = L.diagonal() - (U * self.v).sum(axis=1)
        self.b = K2.diagonal() - (self.v * P).sum(axis=1) - (U * self.y).sum(axis=1)

    def gains(self, rows: Any) -> Any:
        """(m, k) of all swaps with these rows."""
        v, y, place = self.v[rows], 2.0 * self.y[rows], self._place
        c, b = self.c[rows].clip(0.0), self.b[rows].clip(0.0)
        return swaps.gain_of_swaps(place, v, y, c, b, self.T.diagonal(), self.H.diagonal(), y)

    def remove(self, j: int) -> None:
        """Without slot j, whose columns are zero then: E_j goes back to the residuals."""
        place, copy = self._place, self._place.copy
        t, h, v, y = copy(self.T[j]), copy(self.H[j]), copy(self.v[:, j]), copy(self.y[:, j])
        pivot, g = float(t[j]), float(h[j])
        t, v = t / pivot, v / pivot
        self.c += v * v * pivot
        self.b += v * (2.0 * y + v * g)
        self._change(self.y, (-y, v), (t, h - g * t))
        self._change(self.v, (-v,), (t * pivot,))
        self.H += g * _outer(t, t) - _outer(h, t) - _outer(t, h)
        place.add_outer(self.T, t, -pivot)
        for matrix in (self.T, self.H):  # exactly, where the subtraction left rounding
            matrix[j, :] = 0.0
            matrix[:, j] = 0.0
        for matrix in (self.v, self.y):
            matrix[:, j] = 0.0

    def add(self, j: int, row: int, chosen: Any) -> None:
        """With a row in slot j, which is empty."""
        copy = self._place.copy
        kernel, second = copy(self._L[row][chosen]), self._K2[row][chosen]
        kernel[j] = 0.0
        r = self._L[row] - self.v @ kernel
        shared = self._K2[row] - self.v @ second - self.y @ kernel
        v, y = copy(self.v[row]), copy(self.y[row])
        c, b = float(self.c[row]), float(self.b[row])
        r, share = r / c, b / c
        self.c -= r * r * c
        self.b += r * (r * b - 2.0 * shared)
        self._change(self.y, (-shared / c, -r), (v, y - share * v))
        self._change(self.v, (-r,), (v,))
        self.v[:, j] = r
        self.y[:, j] = (shared - b * r) / c
        self.H += (share * _outer(v, v) - _outer(y, v) - _outer(v, y)) / c
        edge = (y - share * v) / c
        edge[j] = share / c
        self.H[j, :], self.H[:, j] = edge, edge
        self._place.add_outer(self.T, v, 1.0 / c)
        edge = -v / c
        edge[j] = 1.0 / c
        self.T[j, :], self.T[:, j] = edge, edge

    def _change(self, matrix: Any, left: Sequence[Any], right: Sequence[Any]) -> None:
        """matrix + sum of outer products, in place."""
        xp = self._place.xp
        self._place.add_product(matrix, xp.stack(left, axis=1), xp.stack(right))


def _outer(left: Any, right: Any) -> Any:
    return left[:, None] * right[None, :]
