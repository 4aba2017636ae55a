"""The best rows for every slot of a set, put together from blocks of rows with ties in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.search.ties import tie_groups
from fairnepv.views.base import Floats, Indices

_CROWD = 32  # rows of a slot that are looked at again; more than that are mostly exactly tied
_RUNG = np.dtype([("slot", "i8"), ("row", "i8"), ("score", "f8")])  # a swap and its merit


class SwapLadders(NamedTuple):
    """For every slot the ladder of its best rows.

    A pass does not know the best score before its end, so each block hands up a ladder: those of
    its candidates, in row order, that beat every earlier one and lie within the tie of its best.
    Ladders join to ladders, and whatever the best turns out to be, the lowest row that is tied with
    it stands on the last one.

    On a ladder the first row is the one that the tie rule chooses, and the last has the highest
    score. Scores that are `coarse` may be off by half the tie, so that all rows within it stay; of
    a crowd, mostly rows that are exactly tied, such as those without a word in common with any
    pick, the first of the best do.
    """

    rungs: NDArray[Any]  # swaps, by slot and row
    tie: float
    coarse: bool = False
    crowded: bool = False  # rows were left out that may be better than they look

    @classmethod
    def of(
        cls, slots: Indices, rows: Indices, scores: Floats, tie: float, *, coarse: bool = False
    ) -> SwapLadders:
        """The ladders of swaps, which may be in any order."""
        best = np.full(slots.max(initial=0) + 1, -np.inf)
        np.maximum.at(best, slots, scores)
        near = np.flatnonzero(scores >= best[slots] - tie)  # few, and sorting is slow
        near = near[np.lexsort((rows[near], slots[near]))]
        rungs = np.empty(len(near), _RUNG)
        for name, values in {"slot": slots, "row": rows, "score": scores}.items():
            rungs[name] = values[near]
        return cls(rungs, tie, coarse).thin()

    @classmethod
    def none(cls, tie: float) -> SwapLadders:
        return cls(np.empty(0, _RUNG), tie)

    def ends(self) -> tuple[Indices, Indices]:
        """Positions of the first and of the last rung of every ladder."""
        slots = self.rungs["slot"]
        cuts = np.flatnonzero(np.diff(slots)) + 1
        if not len(slots):
            return cuts, cuts
        return np.append(0, cuts), np.append(cuts, len(slots)) - 1

    def thin(self) -> SwapLadders:
        """Keep of every ladder what is within the tie of its best and beats all lower rows."""
        if not len(self.rungs):
            return self
        first, last = self.ends()
        lengths, scores = last - first + 1, self.rungs["score"]
        best = np.repeat(np.maximum.reduceat(scores, first), lengths)
        # One running maximum serves all ladders: each is lifted above the one before it.
        depth = (scores - best) / self.tie  # kept from -1 to 0
        if self.coarse:
            near = self._replace(rungs=self.rungs[depth >= -1.0])
            return near if len(near.rungs) <= _CROWD else near._without_crowds()
        height = 2.0 * np.repeat(np.arange(len(first)), lengths) + np.maximum(depth, -1.5)
        before = np.concatenate([[-np.inf], np.maximum.accumulate(height)[:-1]])
        return self._replace(rungs=self.rungs[(depth >= -1.0) & (height > before)])

    def _without_crowds(self) -> SwapLadders:
        """At most so many rows of every ladder: the best, and of equals the first."""
        rungs = self.rungs
        order = np.lexsort((rungs["row"], -rungs["score"], rungs["slot"]))
        first, last = self.ends()  # which the order leaves in place
        rank = np.arange(len(order)) - np.repeat(first, last - first + 1)
        few = rungs[np.sort(order[rank < _CROWD])]
        return self._replace(rungs=few, crowded=self.crowded or len(few) < len(rungs))

    def merged(self, other: SwapLadders) -> SwapLadders:
        """The ladders of two neighbouring stretches of rows, this one the lower."""
        if not len(other.rungs):
            return self
        both = np.concatenate([self.rungs, other.rungs])
        order = np.lexsort((both["row"], both["slot"]))
        crowded = self.crowded or other.crowded
        return self._replace(rungs=both[order], crowded=crowded).thin()

    def by_row(self) -> NDArray[np.int64]:
        """(m, 2) the rows and slots of all swaps, each once, by rows."""
        return np.unique(np.stack([self.rungs["row"], self.rungs["slot"]], axis=1), axis=0)

    def moves(self, above: float = -np.inf) -> list[tuple[int, tuple[int, ...]]]:
        """(slot, rows to try) with scores above a threshold, best first, ties by row, then slot."""
        rungs = self.rungs
        first, last = self.ends()
        mine = rungs["score"][last] > above
        first, last = first[mine], last[mine]
        groups = tie_groups(rungs["score"][last], self.tie)
        order = np.lexsort((rungs["slot"][first], rungs["row"][first], groups))
        return [
            (int(rungs["slot"][i]), tuple(rungs["row"][i : j + 1].tolist()))
            for i, j in zip(first[order], last[order], strict=True)
        ]
