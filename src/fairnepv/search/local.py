"""Local search: improving one-swaps against the full pool, then pairs of swaps.

A pass scores all n k swaps of the current set with two matrix products per view (DESIGN 3.4) and
hands up the best row for every slot; those are tried in order of their scores, each confirmed in
float64 on the set as it then is. When no swap improves, a pair exchange makes a first swap that
some view likes best, though F may fall, and looks in one pass for the second that makes up for it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.engines import Block
from fairnepv.errors import Status
from fairnepv.objective import Standing, fair_score
from fairnepv.problem import Problem
from fairnepv.search.subset import Subset
from fairnepv.search.ties import blur
from fairnepv.views.base import Floats, Indices

_TINY = np.finfo(np.float64).tiny  # a chosen row scored against another slot has ratio 0


@dataclass(frozen=True)
class LocalState:
    indices: Indices
    value: float  # F_tau, by the function that scores
    passes: int = 0
    swaps: int = 0
    local: bool = False  # no one-swap improves
    queue: NDArray[np.int64] | None = None  # (m, 2) first moves (slot, row) still to be tried
    finished: bool = False


class LocalSearch:
    """From `start` to a set that no one-swap improves, and none of `pairs` pair exchanges."""

    stage = "swaps"

    def __init__(self, problem: Problem, start: Indices, *, pairs: int = 0) -> None:
        self.problem, self.pairs = problem, pairs
        self._start = np.asarray(start, dtype=np.int64)

    def init(self) -> LocalState:
        return LocalState(self._start, self._score(self._start))

    def step(self, state: LocalState) -> LocalState:
        if not state.local:
            return self._swap(state)
        if state.queue is None:
            return self._make_queue(state)
        return self._try_pair(state)

    def done(self, state: LocalState) -> Status | None:
        return Status.LOCAL_OPTIMUM if state.finished else None

    def report(self, state: LocalState) -> Mapping[str, Any]:
        return {"value": state.value, "swaps": state.swaps}

    def _swap(self, state: LocalState) -> LocalState:
        """One pass, and every swap of it that still improves when its turn comes."""
        subset = Subset.of(self.problem, state.indices)
        best = _best_swaps(subset, by_view=False)
        subset, made = self._make_swaps(subset, best)
        value = self._score(subset.indices) if made else state.value
        if value <= state.value + 0.5 * self._gain:  # nothing found, or nothing but rounding
            return replace(state, local=True, passes=state.passes + 1, finished=self.pairs == 0)
        return LocalState(subset.indices, value, state.passes + 1, state.swaps + made)

    def _make_swaps(self, subset: Subset, best: BestSwaps) -> tuple[Subset, int]:
        made = 0
        for slot, row in best.moves(0):
            if best.scores[0, slot] <= subset.value + self._gain and made == 0:
                break  # moves come best first: none of them improves
            if row in subset.indices or not self._allowed(subset.indices, slot, row):
                continue
            move = subset.confirm(slot, row)
            if move.value > subset.value + self._gain:
                subset, made = subset.exchange(move), made + 1
        return subset, made

    def _allowed(self, indices: Indices, slot: int, row: int) -> bool:
        """Quotas may have filled up since the pass; without groups nothing has changed."""
        if self.problem.constraints.quotas is None:
            return True
        candidate = indices.copy()
        candidate[slot] = row
        return self.problem.constraints.is_met(candidate)

    def _make_queue(self, state: LocalState) -> LocalState:
        """First moves of pair exchanges: per slot the favourite of F and of every view.

        Those that cost F the least come first; ties by row, then slot.
        """
        best = _best_swaps(Subset.of(self.problem, state.indices), by_view=True)
        ranked = sorted(
            {
                (-round(float(best.fair[criterion, slot]), 9), row, slot)
                for criterion in range(len(best.scores))
                for slot, row in best.moves(criterion)
            }
        )
        queue = np.array([(slot, row) for _, row, slot in ranked[: self.pairs]], dtype=np.int64)
        return replace(
            state,
            queue=queue.reshape(-1, 2),
            passes=state.passes + 1,
            finished=len(queue) == 0,
        )

    def _try_pair(self, state: LocalState) -> LocalState:
        assert state.queue is not None
        (slot, row), rest = state.queue[0], state.queue[1:]
        subset = Subset.of(self.problem, state.indices)
        subset = subset.exchange(subset.confirm(int(slot), int(row)))
        best = _best_swaps(subset, by_view=False)
        for second in best.moves(0)[:1]:
            indices = subset.indices.copy()
            indices[second[0]] = second[1]
            value = self._score(indices)
            if value > state.value + self._gain:
                return LocalState(indices, value, state.passes + 1, state.swaps + 2)
        return replace(state, queue=rest, passes=state.passes + 1, finished=len(rest) == 0)

    def _score(self, indices: Indices) -> float:
        return fair_score(self.problem.pool, indices, self.problem.tau)

    @property
    def _gain(self) -> float:
        return max(self.problem.tolerances.gain, blur(self.problem, self.problem.k))


class BestSwaps(NamedTuple):
    """Per criterion and slot the best row; criterion 0 is F_tau, the others are the views."""

    scores: Floats  # (C, k) by the criterion, -inf where no row may take the slot
    rows: Indices  # (C, k)
    fair: Floats  # (C, k) F_tau of the same swaps

    def moves(self, criterion: int) -> list[tuple[int, int]]:
        """(slot, row) pairs, best first; ties by row, then slot."""
        scores, rows = self.scores[criterion], self.rows[criterion]
        slots = np.flatnonzero(np.isfinite(scores))
        order = np.lexsort((slots, rows[slots], -scores[slots].round(10)))
        return [(int(slot), int(rows[slot])) for slot in slots[order]]


class SwapPass(NamedTuple):
    """The small state of a pass."""

    standing: Standing
    inverses: tuple[Floats, ...]
    anchors: tuple[Any, ...]
    eps: Floats
    allowed: NDArray[np.bool_]  # (G, k)
    by_view: bool
    tie: float


def _best_swaps(subset: Subset, *, by_view: bool) -> BestSwaps:
    """The best row for every slot over the full pool: one pass."""
    problem = subset.problem
    pool = problem.pool
    tie = max(problem.tolerances.tie, blur(problem, problem.k))
    rules = problem.constraints.may_swap(subset.indices, problem.n)
    anchors = tuple(view.anchor(subset.indices) for view in pool.views)
    by_view = by_view and len(pool.views) > 1
    best: BestSwaps = pool.reduce(
        _rank_swaps,
        functools.partial(_better, tie),
        SwapPass(subset.standing, subset.inverses, anchors, pool.eps, rules.allowed, by_view, tie),
        pool.squared_norms,
        rules.blocked,
        rules.groups,
        width=(len(pool.views) + 2) * len(subset.indices),
    )
    return best


def _rank_swaps(
    block: Block,
    state: SwapPass,
    squared_norms: Floats,
    blocked: NDArray[np.bool_],
    groups: NDArray[np.int64],
) -> BestSwaps:
    log_ratios = np.empty((len(block.views), block.stop - block.start, state.standing.size))
    for q, (view, B) in enumerate(zip(block.views, state.inverses, strict=True)):
        K = view.cross(state.anchors[q])  # (b, k)
        v = K @ B
        c = np.maximum(squared_norms[:, q] - np.einsum("ij,ij->i", K, v), 0.0) + state.eps[q]
        ratios = c[:, None] * np.diagonal(B) + v**2
        np.log(np.maximum(ratios, _TINY), out=log_ratios[q])
    fair = state.standing.fair_scores(log_ratios)
    forbidden = blocked[:, None] | ~state.allowed[groups]
    scores, rows, fairs = [], [], []
    for criterion in (fair, *(log_ratios if state.by_view else ())):
        criterion = np.where(forbidden, -np.inf, criterion)
        row = np.argmax(criterion >= criterion.max(axis=0) - state.tie, axis=0)
        slots = np.arange(len(row))
        scores.append(criterion[row, slots])
        fairs.append(fair[row, slots])
        rows.append(row + block.start)
    return BestSwaps(np.array(scores), np.array(rows), np.array(fairs))


def _better(tie: float, left: BestSwaps, right: BestSwaps) -> BestSwaps:
    """The better of two stretches per slot; a tie stays with the lower rows, on the left."""
    take_right = right.scores > left.scores + tie
    return BestSwaps(
        *(np.where(take_right, new, old) for old, new in zip(left, right, strict=True))
    )
