"""`assign`: every item of the pool to the pick that stands for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairnepv.api.selection import Selection
from fairnepv.compute import Block, block_threads
from fairnepv.insight.given import problem_of
from fairnepv.views.base import Floats, Indices
from fairnepv.views.cosines import Anchors, CosinePool, cosines

_TIE = 1e-10  # similarities this close are tied, at any block size


@dataclass(frozen=True, eq=False)
class Assignment:
    """Who stands for whom."""

    pick: Indices  # (n,) position in `Selection.indices`
    similarity: Floats  # (n,) mean cosine over views with that pick
    counts: Indices  # (k,) items that a pick stands for, itself among them

    @property
    def weights(self) -> Floats:
        """(k,) training weights in proportion to the counts, with mean 1."""
        return np.asarray(self.counts * len(self.counts) / len(self.pick))


def assign(selection: Selection) -> Assignment:
    """Every item of the pool to its nearest pick by mean cosine over views.

    Ties go to the earlier pick, and a pick stands for itself. One pass; no (n, k) matrix is kept.
    """
    problem = problem_of(selection, "assign")
    space, k = CosinePool.of(problem.pool), len(selection.indices)
    with block_threads(problem.work()):
        nearest = space.pool.map(
            _nearest_pick, space.anchors(selection.indices), space.inverse, width=3 * k, fixed=True
        )
    pick = nearest[:, 0].astype(np.int64)
    return Assignment(pick, nearest[:, 1].copy(), np.bincount(pick, minlength=k))


def _nearest_pick(block: Block, anchors: Anchors, inverse: Floats) -> Floats:
    """(b, 2) position and similarity."""
    similarity = np.zeros((block.stop - block.start, len(anchors.rows)))
    for cosine in cosines(block, anchors, inverse):
        similarity += cosine
    similarity /= len(anchors.anchors)
    highest = similarity.max(axis=1, keepdims=True)
    pick = (similarity >= highest - _TIE).argmax(axis=1)
    here, own = anchors.inside(block)
    pick[here] = own
    found = np.take_along_axis(similarity, pick[:, None], axis=1)[:, 0]
    return np.stack([pick, found.clip(-1.0, 1.0)], axis=1)
