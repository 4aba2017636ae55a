"""How near picks and rows are to each other: coverage and isolated picks, by one pass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairnepv.compute import Block
from fairnepv.problem import Problem, Stream
from fairnepv.views.base import Floats, Indices
from fairnepv.views.cosines import Anchors, CosinePool, cosines

SAMPLE = 64  # rows that tell how far apart neighbours usually are
_ROUNDING = 1e-9  # of a cosine, so that exact duplicates are not told apart


class Survey(NamedTuple):
    """Neighbours as one pass finds them; surveys of stretches of rows join to one of them all.

    Coverage is C_q(S) = (1/n) sum_i min_j (1 - cos(i, j)) [FairNEPv, section 6.2].
    """

    distances: Floats  # (M,) cosine distances of all rows to their nearest picks, summed
    nearest: Floats  # (M, k + s) highest cosine of every pick and sampled row with another row;
    # NaN of sampled rows that lack the view

    def joined(self, other: Survey) -> Survey:
        return Survey(self.distances + other.distances, np.maximum(self.nearest, other.nearest))

    @classmethod
    def unknown(cls, views: int, k: int) -> Survey:
        """Where the data could not be looked at: no coverage is known, and no pick is isolated."""
        return cls(np.full(views, np.nan), np.ones((views, k + SAMPLE)))

    def isolated(self, k: int) -> list[Indices]:
        """Per view the picks farther from any other row than the far-out fence of the sample.

        The fence is Tukey's: three interquartile ranges above the upper quartile.
        """
        apart = (1.0 - self.nearest).clip(min=0.0)
        return [np.flatnonzero(own[:k] > _fence(own[k:])) for own in apart]


def _fence(apart: Floats) -> float:
    """The distance beyond which a row is alone, by those of some rows; none where all are NaN."""
    known = apart[~np.isnan(apart)]
    if not len(known):
        return float("inf")
    low, high = np.quantile(known, [0.25, 0.75])
    return float(high + 3.0 * (high - low) + _ROUNDING)


def survey(problem: Problem, indices: Indices, sample: Indices) -> Survey:
    """One look at the neighbours of the picks and of some sampled rows."""
    n, k, space = problem.n, len(indices), CosinePool.of(problem.pool)
    anchored = np.concatenate([indices, sample])
    anchors = space.anchors(anchored)
    seen: Survey = space.pool.reduce(
        _look_around,
        Survey.joined,
        (anchors, k),
        space.inverse,
        width=2 * len(anchors.rows),
        fixed=True,
    )
    for q, view in enumerate(problem.pool.views):
        if view.absent is not None:  # these rows are at a distance of 1, and nobody's neighbours
            gone = int(view.absent.sum())
            seen.distances[q] = (seen.distances[q] - gone) * n / (n - gone)
            lacking = view.absent[anchored]
            seen.nearest[q, :k][lacking[:k]] = 1.0
            seen.nearest[q, k:][lacking[k:]] = np.nan
    return seen


def _look_around(block: Block, state: tuple[Anchors, int], inverse: Floats) -> Survey:
    anchors, k = state
    here = anchors.inside(block)
    distances, nearest = [], []
    for cosine in cosines(block, anchors, inverse):
        distances.append((1.0 - cosine[:, :k].max(axis=1)).clip(min=0.0).sum())
        cosine[here] = -np.inf  # a row is no neighbour of its own
        nearest.append(cosine.max(axis=0))
    return Survey(np.array(distances), np.array(nearest))


def usual_rows(problem: Problem) -> Indices:
    """Rows that tell how far apart neighbours usually are."""
    size = min(SAMPLE, problem.n)
    return problem.rng(Stream.COVERAGE).choice(problem.n, size=size, replace=False).astype(np.int64)
