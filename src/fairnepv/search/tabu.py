"""Tabu search among few rows: every swap is the best that is not forbidden, though F may fall.

The kernels of these rows are held, so that a swap touches M m k numbers and no row of the pool. A
row that left may not come back for some swaps, and one that came may not leave, so the search goes
on past local optima; the best set on its way is what it returns (docs/decisions/0034).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Block, few_threads, portable
from fairnepv.compute.clock import check_time
from fairnepv.constraints import SwapRules
from fairnepv.errors import Status
from fairnepv.objective import Standing, subset_merit
from fairnepv.problem import DEFAULT_UTILITY, Problem, Stream
from fairnepv.search.arena import DIGITS, arena_of, held_kernels
from fairnepv.search.explained import swaps as explained
from fairnepv.search.subset import Subset
from fairnepv.search.table import RowSource, worth_float32
from fairnepv.views.base import Floats, Indices

_STRIDE = 25  # swaps of a step, after which everything is made anew from the set
_LONGEST = 4  # times the root of k: so many swaps a row stays out, or a fraction of that
_LOOKED_AT_TWICE = 1.3  # times the rows that are taken, where float32 chooses them
_COARSE_DIGITS = 4  # by which it tells them apart


@dataclass(frozen=True)
class TabuState:
    indices: Indices  # the set where the search stands
    best: Indices
    value: float  # the merit of the best
    rows_free: Indices  # (m,) from which swap on a row may come back
    slots_free: Indices  # (k,) and a slot may be filled anew
    swaps: int = 0
    finished: bool = False  # nothing is allowed any more

    @property
    def passes(self) -> int:
        return 0  # the rows are held


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
        kernels: Sequence[Any] | None = None,
    ) -> None:
        self.problem, self.goal, self._swaps = problem, goal, swaps
        self._kernels = kernels  # of another search among the same rows
        self._start = np.asarray(start, dtype=np.int64)
        longest = _LONGEST * max(2, math.isqrt(problem.k))
        draws = problem.rng(Stream.TENURE, number).random(swaps)
        self._tenures = (longest * _LONGEST**-draws).astype(np.int64)  # evenly in their logarithm

    @property
    def kernels(self) -> Sequence[Any]:
        """Made when they are needed, if not given."""
        if self._kernels is None:
            self._kernels = held_kernels(self.problem)
        return self._kernels

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
        arena = arena_of(self.problem, self.kernels, state.indices)
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
    pivots: NDArray[Any]  # (M, k)
    allowed: NDArray[np.bool_]  # (G, k)
    source: RowSource


def promising_rows(problem: Problem, indices: Indices, most: int) -> Indices:
    """The rows of a set, and those that could raise F_tau most in some slot, `most` in all,
    ascending. One pass; none where there are few. Float32 may say who is looked at in float64, and
    more are looked at than are taken, so that no engine takes others."""
    if most >= problem.n:
        return np.arange(problem.n)
    rules = problem.constraints.may_swap(indices, problem.n)
    representative = problem.utility != DEFAULT_UTILITY
    looked = explained.rises_of if representative else _rises_of
    rises_of, open_rows = looked(problem, indices, rules), np.flatnonzero(~rules.blocked)
    if (explained.worth_float32 if representative else worth_float32)(problem):
        rises = rises_of(None, True)[open_rows]
        count = min(len(open_rows), math.ceil(_LOOKED_AT_TWICE * most))
        open_rows = np.sort(open_rows[_first(rises, _COARSE_DIGITS, count)])
        rises = rises_of(open_rows, False)
    else:
        rises = rises_of(None, False)[open_rows]
    taken = open_rows[_first(rises, DIGITS, most - len(indices))]
    return np.sort(np.concatenate([indices, taken]))


def _first(rises: Floats, digits: int, count: int) -> Indices:
    """Places of the highest; of equal ones the lowest rows."""
    return np.argsort(-rises.round(digits), kind="stable")[:count]


def _rises_of(
    problem: Problem, indices: Indices, rules: SwapRules
) -> Callable[[Indices | None, bool], Floats]:
    """A function of rows and of coarseness: what each of them promises, or of all rows."""
    subset, pool = Subset.of(problem, indices), problem.pool

    def rises(rows: Indices | None, coarse: bool) -> Floats:
        here = slice(None) if rows is None else rows
        pivots = subset.pivots.astype(np.float32 if coarse else np.float64)
        found = pool.map(
            _highest_rises,
            _Look(subset.standing, pivots, rules.allowed, RowSource.of(subset, coarse=coarse)),
            pool.squared_norms[here],
            rules.groups[here],
            width=4 * (len(pool.views) + 2) * len(subset.indices),
            fixed=True,
            rows=rows,
        )
        return np.asarray(pool.place.get(found), dtype=np.float64)

    return rises


@portable
def _highest_rises(block: Block, look: _Look, squared_norms: Any, groups: Any) -> Any:
    v, c = look.source.responses(block, squared_norms)
    rise = look.standing.rise(block, v, c, look.pivots)  # (b, k)
    if not look.allowed.all():
        rise[~block.put(look.allowed)[groups]] = -np.inf
    return block.xp.max(rise, axis=1)
