"""Local search: improving one-swaps against the full pool.

All n k swaps of the current set are scored from a `SwapTable`, and the best row for every slot is
tried in order of the scores, confirmed in float64 on the set as it then is.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Block, few_threads, portable
from fairnepv.compute.clock import check_time
from fairnepv.errors import Status
from fairnepv.objective import Standing, steepness, subset_merit
from fairnepv.problem import Problem
from fairnepv.search.ladders import SwapLadders
from fairnepv.search.subset import Exchange, Subset
from fairnepv.search.table import RowSource, SwapTable
from fairnepv.search.ties import blur, lost_below_zero
from fairnepv.views.base import Floats, Indices


@dataclass(frozen=True)
class LocalState:
    indices: Indices
    value: float  # the merit
    passes: int = 0
    swaps: int = 0
    finished: bool = False  # no one-swap improves
    unsure: bool = False  # whether rounding may hide a one-swap that improves


class LocalSearch:
    """From `start` to a set that no one-swap improves, or until the merit reaches `goal`."""

    stage = "swaps"

    def __init__(self, problem: Problem, start: Indices, *, goal: float | None = None) -> None:
        self.problem, self.goal = problem, goal
        self._gain = problem.tolerances.gain
        self._start = np.asarray(start, dtype=np.int64)
        self._table: SwapTable | None = None  # of the last state; a resumed run makes it anew

    def init(self) -> LocalState:
        return LocalState(self._start, self._score(self._start))

    def done(self, state: LocalState) -> Status | None:
        if self.goal is not None and state.value >= self.goal:
            return Status.TARGET
        if not state.finished:
            return None
        return Status.INEXACT if state.unsure else Status.LOCAL_OPTIMUM

    def report(self, state: LocalState) -> Mapping[str, Any]:
        return {"objective": state.value, "swaps": state.swaps}

    def _at(self, indices: Indices) -> SwapTable:
        if self._table is None or not np.array_equal(self._table.subset.indices, indices):
            self._table = SwapTable.of(Subset.of(self.problem, indices))
        return self._table

    def step(self, state: LocalState) -> LocalState:
        """Look at all swaps once, and make each that still improves when its turn comes."""
        table = self._at(state.indices)
        above = table.subset.value + self._gain
        best = best_swaps(table, above=above)
        moves = self._improving(table.subset, best)
        if not moves and best.crowded and table.source.coarse:
            best = best_swaps(table.exact, above=above)  # one that was left out may still improve
            moves = self._improving(table.subset, best)
        self._table = None  # until it is whole again, should this be interrupted
        after = table.after(moves, reuse=True)
        value = self._value_of(after.subset, updated=after.age > 0) if moves else state.value
        self._table = after
        if value <= state.value + 0.5 * self._gain:  # nothing found
            unsure = best.crowded or table.subset.score_rounding > self._gain or self._rounded
            return replace(state, passes=state.passes + 1, finished=True, unsure=unsure)
        return LocalState(after.subset.indices, value, state.passes + 1, state.swaps + len(moves))

    @functools.cached_property
    def _rounded(self) -> bool:
        """Whether a kernel was rounded so that swaps, which take it as it stands, and scores, which
        count its eigenvalues below zero as zero, may disagree."""
        return lost_below_zero(self.problem.pool, margin=0.0) > self._gain

    def _improving(self, subset: Subset, best: SwapLadders) -> list[Exchange]:
        """The swaps to make, each an improvement on those before it."""
        moves: list[Exchange] = []
        rules, value = self.problem.constraints, self._value_of(subset)
        for slot, rows in best.moves(above=value + self._gain - best.tie):
            check_time()  # where sets are scored, each of these takes long
            for row in rows:
                indices = subset.with_row(slot, row)
                # The quotas may have filled up since the pass.
                if row in subset.indices or not (rules.quotas is None or rules.is_met(indices)):
                    continue
                move = subset.confirm(slot, row)
                reached = move.value if self._trusts_inverses(subset) else self._score(indices)
                if reached > value + self._gain:
                    subset, value = subset.exchange(move), reached
                    moves.append(move)
                    break
        return moves

    def _value_of(self, subset: Subset, *, updated: bool = False) -> float:
        """The merit of a set. Inverses that were updated carry the rounding of every update, so
        they are made anew: the value then depends on the set alone."""
        if not self._trusts_inverses(subset):
            return self._score(subset.indices)
        return (Subset.of(self.problem, subset.indices) if updated else subset).value

    def _trusts_inverses(self, subset: Subset) -> bool:
        """Whether inverses are accurate enough to judge by; otherwise sets are scored."""
        return blur(self.problem, self.problem.k) <= self._gain and not subset.strained.any()

    def _score(self, indices: Indices) -> float:
        with few_threads(float(len(indices)) ** 2 * self.problem.pool.width):
            return subset_merit(self.problem, indices)


class SwapPass(NamedTuple):
    """The small state of a look at all swaps."""

    standing: Standing
    pivots: NDArray[Any]  # (M, k) diagonals of the inverses
    allowed: NDArray[np.bool_]  # (G, k)
    above: float  # swaps that do not reach this need not be ranked
    tie: float
    source: RowSource
    coarse: bool  # scores may be off by half the tie

    def ladders(self, slots: Indices, rows: Indices, gains: Floats) -> SwapLadders:
        """The ladders of swaps in any order, which add `gains` (M, m) to the totals."""
        scores = self.standing.fair_scores(gains)
        return SwapLadders.of(slots, rows, scores, self.tie, coarse=self.coarse)


def best_swaps(table: SwapTable, *, above: float = -np.inf) -> SwapLadders:
    """The best row for every slot over the full pool, of those whose F_tau exceeds `above`."""
    subset = table.subset
    problem = subset.problem
    pool, k = problem.pool, len(subset.indices)
    # By what this set is strained: `blur` is the worst that a set can be, and far more than most.
    tie = max(problem.tolerances.tie, steepness(problem) * subset.score_rounding)
    error = 2.0 * steepness(problem) * table.error
    hidden = not table.source.coarse and error > tie * k
    rules = problem.constraints.may_swap(subset.indices, problem.n)
    pivots = subset.pivots
    state = SwapPass(
        subset.standing,
        pivots.astype(np.float32 if table.source.coarse else np.float64),
        rules.allowed,
        above,
        tie + error / k,
        table.source,
        table.source.coarse or hidden,
    )
    found: SwapLadders = pool.reduce(
        _rank_swaps,
        SwapLadders.merged,
        state,
        pool.squared_norms,
        rules.blocked,
        rules.groups,
        *table.aligned,
        width=4 * (len(pool.views) + 2) * k,
        fixed=table.source.coarse,  # so that float32 says the same for any engine's blocks
    )
    if not state.coarse:
        return found
    exact = state._replace(pivots=pivots, tie=tie, coarse=False)
    confirm = _rescored if hidden else _confirmed
    return confirm(subset, found, exact)._replace(crowded=found.crowded)


def _confirmed(subset: Subset, found: SwapLadders, state: SwapPass) -> SwapLadders:
    """The ladders of these swaps by scores in float64, from gathered rows."""
    pool, source = subset.problem.pool, RowSource.of(subset, coarse=False)
    moves, ladders = found.by_row(), SwapLadders.none(state.tie)
    k, utility = len(subset.indices), state.standing.determinant
    held = pool.row_width + (len(pool.views) + 1) * k  # numbers by row
    size = max(64, subset.problem.means.confirmed // held)
    for start in range(0, len(moves), size):
        rows, slots = moves[start : start + size].T
        once, at = np.unique(rows, return_inverse=True)
        block = pool.gather(once, 0, len(once))
        v, c = source.responses(block, block.put(pool.squared_norms[once]))
        chosen = block.get(v[block.put(at), :, block.put(slots)])
        changes = utility.swap_changes(block.get(c)[at], state.pivots[:, slots].T, chosen).T
        ladders = ladders.merged(state.ladders(slots, rows, utility.swap_gains(changes)))
    return ladders


def _rescored(subset: Subset, found: SwapLadders, state: SwapPass) -> SwapLadders:
    """The ladders of these swaps by the function that scores, set by set."""
    moves = found.by_row()
    pool, utility = subset.problem.pool, state.standing.utility
    with few_threads(float(len(subset.indices)) ** 2 * pool.width):
        totals = np.empty((len(pool.views), len(moves)))
        for at, (row, slot) in enumerate(moves):
            check_time()
            S = subset.with_row(int(slot), int(row))
            totals[:, at] = [utility.total(view, S) for view in pool.views]
    return state.ladders(moves[:, 1], moves[:, 0], totals - subset.totals[:, None])


@portable
def _rank_swaps(
    block: Block, state: SwapPass, squared_norms: Any, blocked: Any, groups: Any, *table: Any
) -> SwapLadders:
    utility = state.standing.determinant
    v, c = table if table else state.source.responses(block, squared_norms)
    rise = state.standing.rise(block, v, c, state.pivots)  # (b, k)
    rise[blocked] = -np.inf
    if not state.allowed.all():
        rise[~block.put(state.allowed)[groups]] = -np.inf
    needed = state.standing.needed_rise(state.above - state.tie)
    rows, slots = block.place.entries_above(rise, needed)
    pivots = block.put(state.pivots)[:, slots]
    changes = utility.swap_changes(c[rows].T, pivots, v[rows, :, slots].T)  # (M, found)
    rows, slots = block.get(rows) + block.start, block.get(slots)
    return state.ladders(slots, rows, utility.swap_gains(block.get(changes).astype(np.float64)))
