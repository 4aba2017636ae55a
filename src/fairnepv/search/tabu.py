"""Tabu search among few rows: every swap is the best that is not forbidden, though F may fall.

The kernels of these rows are held, so that a swap touches M m k numbers and no row of the pool. A
row that left may not come back for some swaps, and one that came may not leave, so the search goes
on past local optima; the best set on its way is what it returns (docs/decisions/0034).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Block, few_threads, portable
from fairnepv.compute.clock import check_time
from fairnepv.constraints import SwapRules
from fairnepv.errors import Status
from fairnepv.objective import Standing, subset_merit, utility_of
from fairnepv.problem import Problem, Stream
from fairnepv.search.subset import InverseChange, Subset
from fairnepv.search.table import ResponseChange, RowSource, worth_float32
from fairnepv.views.base import Floats, Indices

_STRIDE = 25  # swaps of a step, after which everything is made anew from the set
_LOOKED_AT = 24  # rows whose swaps are scored, of those that promise most
_LONGEST = 4  # times the root of k: so many swaps a row stays out, or a fraction of that
_LOOKED_AT_TWICE = 1.3  # times the rows that are taken, where float32 chooses them
_COARSE_DIGITS = 4  # by which it tells them apart
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
        arena = Arena(self.problem, self.kernels, state.indices)
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
    subset, open_rows = Subset.of(problem, indices), np.flatnonzero(~rules.blocked)
    if worth_float32(problem):
        rises = _rises_of(subset, rules, None, coarse=True)[open_rows]
        count = min(len(open_rows), math.ceil(_LOOKED_AT_TWICE * most))
        open_rows = np.sort(open_rows[_first(rises, _COARSE_DIGITS, count)])
        rises = _rises_of(subset, rules, open_rows, coarse=False)
    else:
        rises = _rises_of(subset, rules, None, coarse=False)[open_rows]
    taken = open_rows[_first(rises, _DIGITS, most - len(indices))]
    return np.sort(np.concatenate([indices, taken]))


def _first(rises: Floats, digits: int, count: int) -> Indices:
    """Places of the highest; of equal ones the lowest rows."""
    return np.argsort(-rises.round(digits), kind="stable")[:count]


def _rises_of(subset: Subset, rules: SwapRules, rows: Indices | None, *, coarse: bool) -> Floats:
    """(n,) or (m,) what each of these rows promises, or of all."""
    pool, here = subset.problem.pool, slice(None) if rows is None else rows
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


@portable
def _highest_rises(block: Block, look: _Look, squared_norms: Any, groups: Any) -> Any:
    v, c = look.source.responses(block, squared_norms)
    rise = look.standing.rise(block, v, c, look.pivots)  # (b, k)
    if not look.allowed.all():
        rise[~block.put(look.allowed)[groups]] = -np.inf
    return block.xp.max(rise, axis=1)


# --- swaps among them ---------------------------------------------------------------------------


class Move(NamedTuple):
    slot: int
    row: int
    value: float  # the merit afterwards
    gains: Floats  # (M,) of the totals


def held_kernels(problem: Problem) -> list[Any]:
    """(m, m) of every view with its ridge, where the rows are."""
    pool, rows = problem.pool, np.arange(problem.n)
    with few_threads(float(pool.n) ** 2 * pool.width):
        return [pool.place.put(view.ridged(rows)) for view in pool.views]


class Arena:
    """A set among few rows and what every swap of it would do, updated in place.

    Large arrays are where the rows are; which swap is made is decided on the host.
    """

    def __init__(self, problem: Problem, kernels: Sequence[Any], indices: Indices) -> None:
        self.problem, self.kernels, self.indices = problem, kernels, indices.copy()
        self._place = place = problem.pool.place
        xp, chosen = place.xp, place.put(self.indices)
        K = [L[:, chosen] for L in self.kernels]
        found = [place.inverse(part[chosen]) for part in K]
        self.inverses = [B for B, _ in found]  # (k, k)
        self.totals = np.array([total for _, total in found])
        self.v = xp.stack([part @ B for part, B in zip(K, self.inverses, strict=True)])  # (M, m, k)
        explained = [xp.einsum("ij,ij->i", part, v) for part, v in zip(K, self.v, strict=True)]
        diagonals = [L.diagonal() for L in self.kernels]
        self.c = xp.stack([a - b for a, b in zip(diagonals, explained, strict=True)])
        self._utility = utility_of(problem)
        self._rows = Block(0, len(self.kernels[0]), (), place)

    def best_swap(self, rows: NDArray[np.bool_], slots: NDArray[np.bool_]) -> Move | None:
        """The best that neither the rules forbid nor these rows and slots are closed to."""
        standing, place = Standing.of(self.problem, self.totals, len(self.indices)), self._place
        pivots = place.get(place.xp.stack([B.diagonal() for B in self.inverses]))
        rules = self.problem.constraints.may_swap(self.indices, self.problem.n)
        rise = self._rises(standing, pivots, rules, slots)
        highest = self._highest(rise)
        highest[rules.blocked | rows] = -np.inf
        # Under floors what promises most may miss one.
        most = _LOOKED_AT if self.problem.floors is None else None
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

    def _rises(
        self, standing: Standing, pivots: Floats, rules: SwapRules, slots: NDArray[np.bool_]
    ) -> Any:
        """(m, k) what every swap promises, -inf for slots that are closed."""
        place = self._place
        v, c = place.xp.permute_dims(self.v, (1, 0, 2)), self.c.T
        rise = standing.rise(self._rows, v, c, pivots)
        rise[:, place.put(slots)] = -np.inf
        if not rules.allowed.all():
            rise[place.put(~rules.allowed[rules.groups])] = -np.inf
        return rise

    def _highest(self, rise: Any) -> Floats:
        """(m,) what every row promises in its best slot, but for swaps that would leave everything
        as it is, which are closed: an item may have many copies."""
        place, nothing, tie = self._place, self._utility.needed_ceiling(0.0), 10.0**-_DIGITS
        highest = place.xp.max(rise, axis=1)
        some = place.xp.nonzero(highest > nothing - tie)[0]
        promised = rise[some]
        promised[abs(promised - nothing) < tie] = -np.inf
        rise[some], highest[some] = promised, place.xp.max(promised, axis=1)
        return np.asarray(place.get(highest))

    def swap(self, move: Move) -> None:
        slot, row, chosen = move.slot, move.row, self._place.put(self.indices)
        for L, B, v, c in zip(self.kernels, self.inverses, self.v, self.c, strict=True):
            change = InverseChange.of(B, L[row][chosen], slot, L[row, row], self._place)
            ResponseChange.of(change).apply(v, c, L[row], self._place)
            change.apply(B, self._place)
        self.indices[slot] = row
        self.totals = self.totals + move.gains
