"""Tabu search among few rows: every swap is the best that is not forbidden, though F may fall.

The kernels of these rows are held, so that a swap touches M m k numbers and no row of the pool. A
row that left may not come back for some swaps, and one that came may not leave, so the search goes
on past local optima; the best set on its way is what it returns (docs/decisions/0034).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Block, few_threads, portable
from fairnepv.compute.clock import check_time
from fairnepv.errors import Status
from fairnepv.objective import Standing, subset_merit, utility_of
from fairnepv.problem import Problem, Stream
from fairnepv.search.subset import InverseChange, Subset
from fairnepv.search.table import ResponseChange, RowSource
from fairnepv.views.base import Floats, Indices

_STRIDE = 25  # swaps of a step, after which everything is made anew from the set
_LOOKED_AT = 24  # rows whose swaps are scored, of those that promise most
_LONGEST = 4  # times the root of k: so many swaps a row stays out, or a fraction of that
_DIGITS = 9  # by which scores are told apart; equal ones go to the lowest row


@dataclass(frozen=True)
class TabuState:
    indices: Indices  # the set where the search stands
    best: Indices
    value: float  # the merit of the best
    rows_free: Indices  # (m,) from which swap on a row may come back
    slots_free: Indices  # (k,) and a slot may be filled anew
    swaps: int = 0
    finished: bool = False  # nothing is allowed any more
    passes: int = 0


class TabuSearch:
    """So many swaps from `start`, or until the merit reaches `goal`; by `number` one differs from
    the next.

    Meant for a `Problem` of few rows, all of whose kernels are held.
    """

    stage = "tabu"

    def __init__(
        self,
        problem: Problem,
        start: Indices,
        *,
        swaps: int,
        number: int = 0,
        goal: float | None = None,
    ) -> None:
        self.problem, self.goal, self._swaps = problem, goal, swaps
        self._start = np.asarray(start, dtype=np.int64)
        longest = _LONGEST * max(2, math.isqrt(problem.k))
        draws = problem.rng(Stream.TENURE, number).random(swaps)
        self._tenures = (longest * _LONGEST**-draws).astype(np.int64)  # evenly in their logarithm

    @functools.cached_property
    def _kernels(self) -> Any:
        """(M, m, m) with their ridges, where the rows are."""
        pool = self.problem.pool
        rows = np.arange(pool.n)
        with few_threads(float(pool.n) ** 2 * pool.width):
            Ls = np.stack([v.inner(rows, rows) + v.ridge * np.eye(pool.n) for v in pool.views])
        return pool.place.put(Ls)

    def init(self) -> TabuState:
        value = subset_merit(self.problem, self._start)
        rows = np.zeros(self.problem.n, dtype=np.int64)
        return TabuState(self._start, self._start, value, rows, rows[: self.problem.k])

    def step(self, state: TabuState) -> TabuState:
        with few_threads(float(self.problem.n) * self.problem.k), np.errstate(all="ignore"):
            return self._roam(state)

    def done(self, state: TabuState) -> Status | None:
        if self.goal is not None and state.value >= self.goal:
            return Status.TARGET
        return Status.COMPLETE if state.finished or state.swaps >= self._swaps else None

    def report(self, state: TabuState) -> Mapping[str, Any]:
        return {"objective": state.value, "swaps": state.swaps}

    def _roam(self, state: TabuState) -> TabuState:
        arena = Arena(self.problem, self._kernels, state.indices)
        rows_free, slots_free = state.rows_free.copy(), state.slots_free.copy()
        best, value, last = state.best, state.value, min(state.swaps + _STRIDE, self._swaps)
        for swap in range(state.swaps, last):
            check_time()
            move = arena.best_swap(rows_free > swap, slots_free > swap)
            if move is None:
                break
            rows_free[arena.indices[move.slot]] = swap + self._tenures[swap]
            slots_free[move.slot] = swap + self._tenures[swap] // _LONGEST
            arena.swap(move)
            if move.value > value + self.problem.tolerances.gain:
                best, value = arena.indices.copy(), move.value
        if value > state.value:  # by the function that scores, which no update has rounded
            value = subset_merit(self.problem, best)
        if value <= state.value:
            best, value = state.best, state.value
        ended = move is None
        return TabuState(arena.indices, best, value, rows_free, slots_free, last, ended)


# --- which rows ---------------------------------------------------------------------------------


class _Look(NamedTuple):
    """The small state of a look at what every row promises."""

    standing: Standing
    pivots: Floats  # (M, k)
    allowed: NDArray[np.bool_]  # (G, k)
    source: RowSource


def promising_rows(problem: Problem, indices: Indices, most: int) -> Indices:
    """The rows of a set, and those that could raise F_tau most in some slot, `most` in all,
    ascending. One pass, in float64, so that no engine chooses others; none where there are few."""
    if most >= problem.n:
        return np.arange(problem.n)
    pool, subset = problem.pool, Subset.of(problem, indices)
    rules = problem.constraints.may_swap(indices, problem.n)
    source = RowSource.of(subset, coarse=False)
    rises = pool.map(
        _highest_rises,
        _Look(subset.standing, subset.pivots, rules.allowed, source),
        pool.squared_norms,
        rules.blocked,
        rules.groups,
        width=4 * (len(pool.views) + 2) * len(indices),
        fixed=True,
    )
    order = np.argsort(-pool.place.get(rises).round(_DIGITS), kind="stable")
    order = order[~rules.blocked[order]]
    return np.sort(np.concatenate([indices, order[: most - len(indices)]]))


@portable
def _highest_rises(block: Block, look: _Look, squared_norms: Any, blocked: Any, groups: Any) -> Any:
    v, c = look.source.responses(block, squared_norms)
    rise = look.standing.rise(block, v, c, look.pivots)  # (b, k)
    if not look.allowed.all():
        rise[~block.put(look.allowed)[groups]] = -np.inf
    rise[blocked] = -np.inf
    return block.xp.max(rise, axis=1)


# --- swaps among them ---------------------------------------------------------------------------


class Move(NamedTuple):
    slot: int
    row: int
    value: float  # the merit afterwards
    gains: Floats  # (M,) of the totals


class Arena:
    """A set among few rows and what every swap of it would do, updated in place.

    Large arrays are where the rows are; which swap is made is decided on the host.
    """

    def __init__(self, problem: Problem, kernels: Any, indices: Indices) -> None:
        self.problem, self.kernels, self.indices = problem, kernels, indices.copy()
        self._place = place = problem.pool.place
        xp, chosen = place.xp, place.put(self.indices)
        K = kernels[:, :, chosen]
        found = [place.inverse(L) for L in K[:, chosen]]
        self.inverses = xp.stack([B for B, _ in found])  # (M, k, k)
        self.totals = np.array([total for _, total in found])
        self.v = K @ self.inverses  # (M, m, k)
        self.c = xp.stack([L.diagonal() for L in kernels]) - (K * self.v).sum(axis=2)
        self._utility = utility_of(problem)
        self._rows = Block(0, len(kernels[0]), (), place)

    def best_swap(self, rows: NDArray[np.bool_], slots: NDArray[np.bool_]) -> Move | None:
        """The best that neither the rules forbid nor these rows and slots are closed to."""
        standing, place = Standing.of(self.problem, self.totals, len(self.indices)), self._place
        pivots = place.get(place.xp.stack([B.diagonal() for B in self.inverses]))
        rules = self.problem.constraints.may_swap(self.indices, self.problem.n)
        v, c = place.xp.permute_dims(self.v, (1, 0, 2)), self.c.T
        rise = standing.rise(self._rows, v, c, pivots)  # (m, k)
        # A copy of an item in its place would leave everything as it is, and there may be many.
        rise[abs(rise - self._utility.needed_ceiling(0.0)) < 10.0**-_DIGITS] = -np.inf
        rise[place.put(rules.blocked | rows)] = -np.inf
        rise[:, place.put(slots)] = -np.inf
        if not rules.allowed.all():
            rise[place.put(~rules.allowed[rules.groups])] = -np.inf
        highest = place.get(place.xp.max(rise, axis=1))
        most = (
            _LOOKED_AT if self.problem.floors is None else None
        )  # what promises most may miss one
        near = np.argsort(-highest.round(_DIGITS), kind="stable")[:most]
        near = np.sort(near[np.isfinite(highest[near])])
        there = place.put(near)
        v, c, rise = (place.get(x) for x in (self.v[:, there], self.c[:, there], rise[there]))
        changes = self._utility.swap_changes(c[:, :, None], pivots[:, None, :], v)
        gains = self._utility.swap_gains(changes)
        scores = np.where(np.isfinite(rise), standing.fair_scores(gains), -np.inf)
        if not len(near) or not np.isfinite(scores.max()):
            return None
        at, slot = np.unravel_index(np.argmax(scores.round(_DIGITS)), scores.shape)
        return Move(int(slot), int(near[at]), float(scores[at, slot]), gains[:, at, slot])

    def swap(self, move: Move) -> None:
        slot, row, chosen = move.slot, move.row, self._place.put(self.indices)
        for L, B, v, c in zip(self.kernels, self.inverses, self.v, self.c, strict=True):
            change = InverseChange.of(B, L[row][chosen], slot, L[row, row], self._place)
            ResponseChange.of(change).apply(v, c, L[:, row], self._place)
            change.apply(B, self._place)
        self.indices[slot] = row
        self.totals = self.totals + move.gains
