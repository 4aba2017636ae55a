"""Tabu search among few rows: every swap is the best that is not forbidden, though F may fall.

The kernels of these rows are held, so that a swap touches M m k numbers and no row of the pool. A
row that left may not come back for some swaps, and one that came may not leave, so the search goes
on past local optima; the best set on its way is what it returns (docs/decisions/0034).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fairnepv.compute import few_threads
from fairnepv.compute.clock import check_time
from fairnepv.errors import Status
from fairnepv.objective import subset_merit
from fairnepv.problem import Problem, Stream
from fairnepv.search.arena import DIGITS
from fairnepv.search.kinds import kind_of
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
            self._kernels = kind_of(self.problem).arena.held_kernels(self.problem)
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
        arena = kind_of(self.problem).arena(self.problem, self.kernels, state.indices)
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


def promising_rows(problem: Problem, indices: Indices, most: int) -> Indices:
    """The rows of a set, and those that could raise F_tau most in some slot, `most` in all,
    ascending. One pass; none where there are few. Float32 may say who is looked at in float64, and
    more are looked at than are taken, so that no engine takes others."""
    if most >= problem.n:
        return np.arange(problem.n)
    rules = problem.constraints.may_swap(indices, problem.n)
    arena = kind_of(problem).arena
    promises, open_rows = arena.promises_of(problem, indices), np.flatnonzero(~rules.blocked)
    rises_of = partial(promises.highest, problem.pool, rules)
    if arena.worth_float32(problem):
        rises = rises_of(None, coarse=True)[open_rows]
        count = min(len(open_rows), math.ceil(_LOOKED_AT_TWICE * most))
        open_rows = np.sort(open_rows[_first(rises, _COARSE_DIGITS, count)])
        rises = rises_of(open_rows, coarse=False)
    else:
        rises = rises_of(None, coarse=False)[open_rows]
    taken = open_rows[_first(rises, DIGITS, most - len(indices))]
    return np.sort(np.concatenate([indices, taken]))


def _first(rises: Floats, digits: int, count: int) -> Indices:
    """Places of the highest; of equal ones the lowest rows."""
    return np.argsort(-rises.round(digits), kind="stable")[:count]
