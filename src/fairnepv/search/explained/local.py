"""Local search for representative sets: improving one-swaps against the full pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairnepv.compute import few_threads
from fairnepv.compute.clock import check_time
from fairnepv.objective import Standing
from fairnepv.search.arena import ExplainedArena, Move
from fairnepv.search.explained.swaps import ExplainedSet, best_swaps, worth_float32
from fairnepv.search.ladders import SwapLadders
from fairnepv.search.local import LocalSearch, LocalState
from fairnepv.views.base import Indices

_FEW = 2.0  # times k rows that swaps are made with after one pass, the most promising


class ExplainedLocal(LocalSearch):
    """From `start` to a set that no one-swap improves, or until the merit reaches `goal`."""

    def step(self, state: LocalState) -> LocalState:
        """Look at all swaps once, and make each that still improves when its turn comes."""
        chosen = ExplainedSet.of(self.problem, state.indices)
        coarse = worth_float32(self.problem) and not chosen.strained
        above = state.value + self._gain
        best = best_swaps(chosen, above=above, coarse=coarse)
        indices, swaps = self._made(chosen, best, state.value)
        if not swaps and best.crowded and coarse:
            best = best_swaps(chosen, above=above, coarse=False)
            indices, swaps = self._made(chosen, best, state.value)
        value = self._score(indices) if swaps else state.value
        if value <= state.value + 0.5 * self._gain:
            unsure = best.crowded or chosen.doubt > self._gain
            return replace(state, passes=state.passes + 1, finished=True, unsure=unsure)
        return LocalState(indices, value, state.passes + 1, state.swaps + swaps)

    def _made(self, chosen: ExplainedSet, best: SwapLadders, value: float) -> tuple[Indices, int]:
        """The set after the swaps that improve, each on those before it, and how many they are: in
        an `Arena` of their rows, where a swap touches no row of the pool."""
        moves = best.moves(above=value + self._gain - best.tie)
        moves = moves[: max(1, int(_FEW * len(chosen.indices)))]
        if not moves:
            return chosen.indices, 0
        if chosen.strained:
            return self._scored(chosen.indices, moves, value)
        come = np.array([row for _, rows in moves for row in rows], dtype=np.int64)
        rows = np.union1d(chosen.indices, come)
        few, rules, swaps = self.problem.take(rows), self.problem.constraints, 0
        with few_threads(float(len(rows)) * len(chosen.indices)), np.errstate(all="ignore"):
            held = ExplainedArena.held_kernels(few)
            arena = ExplainedArena(few, held, np.searchsorted(rows, chosen.indices))
            for slot, own in moves:
                check_time()
                for row in np.searchsorted(rows, own).tolist():
                    after = arena.indices.copy()
                    after[slot] = row
                    # The quotas may have filled up since the pass.
                    met = rules.quotas is None or rules.is_met(rows[after])
                    if row in arena.indices or not met:
                        continue
                    gains = arena.gains_of(slot, row)
                    standing = Standing.of(self.problem, arena.totals, len(after))
                    reached = float(standing.fair_scores(gains))
                    if reached > value + self._gain:
                        arena.swap(Move(slot, row, reached, gains))
                        value, swaps = reached, swaps + 1
                        break
        return rows[arena.indices], swaps

    def _scored(
        self, indices: Indices, moves: Sequence[tuple[int, tuple[int, ...]]], value: float
    ) -> tuple[Indices, int]:
        """The same by the function that scores: the inverses of an arena have too few digits."""
        quotas, swaps = self.problem.constraints.quotas, 0
        for slot, rows in moves:
            check_time()
            for row in rows:
                after = indices.copy()
                after[slot] = row
                met = quotas is None or self.problem.constraints.is_met(after)
                if row in indices or not met:
                    continue
                reached = self._score(after)
                if reached > value + self._gain:
                    indices, value, swaps = after, reached, swaps + 1
                    break
        return indices, swaps
