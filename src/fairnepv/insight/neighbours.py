"""What rows near each other tell: `assign` every item to the pick that stands for it, and
`typicality`, qualities that keep junk outliers from being picked for their oddness."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv import __version__
from fairnepv.api.selection import Selection
from fairnepv.api.tables import from_tables
from fairnepv.checks import check_count, check_seed
from fairnepv.compute import Block, Engine, block_threads
from fairnepv.errors import InputError
from fairnepv.insight.given import problem_of
from fairnepv.io.frames import Table, Tabular
from fairnepv.options import default
from fairnepv.views import Pool
from fairnepv.views.base import Floats, Indices
from fairnepv.views.cosines import Anchors, CosinePool, cosines

_TIE = 1e-10  # similarities this close are tied, at any block size
_LEAST, _MOST = 0.05, 1.0  # no row is ruled out, and the typical half counts alike
_NO_DENSITY = 1e-9  # rows that share nothing have cosines of this size by rounding alone


@dataclass(frozen=True, eq=False, repr=False)
class Assignment(Tabular):
    """Which pick stands for which items."""

    pick: Indices  # (n,) position in `Selection.indices`; -1 of rows that were left out
    similarity: Floats  # (n,) mean cosine over views with that pick
    counts: Indices  # (k,) items that a pick stands for, itself among them
    ids: NDArray[Any]  # (n,) of all items; row numbers where the data had no ids
    indices: Indices  # (k,) rows of the picks
    objective: str

    @property
    def weights(self) -> Floats:
        """(k,) training weights in proportion to the counts, with mean 1."""
        return np.asarray(self.counts * len(self.counts) / self.counts.sum())

    def sampler(
        self, draws: int | None = None, *, random_state: int = default("random_state")
    ) -> Any:
        """A sampler of PyTorch that draws picks in proportion to the items they stand for: for a
        `DataLoader` of `selection.subset(dataset)`. By default as many draws as picks."""
        try:
            import torch
            from torch.utils.data import WeightedRandomSampler
        except ImportError as error:
            raise InputError("a sampler takes PyTorch; pip install 'fairnepv[torch]'") from error
        many = len(self.counts) if draws is None else check_count("draws", draws)
        generator = torch.Generator().manual_seed(check_seed("random_state", random_state))
        return WeightedRandomSampler(self.weights.tolist(), many, generator=generator)

    @property
    def headline(self) -> str:
        n, k, most = int(self.counts.sum()), len(self.counts), int(self.counts.max())
        return (
            f"Assignment of {n:,} items to {k:,} picks, which stand for up to {most:,} of them; "
            f"mean similarity {self.similarity.sum() / n:.3f}"
        )

    @property
    def table(self) -> Table:
        """One row per item that was not left out: its pick, how near that is, and its weight."""
        rows = np.flatnonzero(self.pick >= 0)  # the others were left out
        pick = self.pick[rows]
        picks = self.indices[pick]
        columns = {
            "id": self.ids[rows],
            "row": rows,
            "pick_row": picks,
            "pick_id": self.ids[picks],
            "similarity": self.similarity[rows],
            "pick_weight": self.weights[pick],
        }
        return Table(columns, {"fairnepv": __version__, "objective": self.objective}, "items")


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
    pick, similarity = nearest[:, 0].astype(np.int64), nearest[:, 1].copy()
    if problem.pool.dropped is not None:
        pick[problem.pool.dropped], similarity[problem.pool.dropped] = -1, 0.0
    counts = np.bincount(pick[pick >= 0], minlength=k)
    ids = np.arange(problem.n) if problem.pool.ids is None else problem.pool.ids
    chosen = selection.indices, selection.objective
    return Assignment(pick, similarity, counts, ids, *chosen)


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


@from_tables
def typicality(
    data: Any,
    *,
    neighbours: int = 10,
    sample: int = 2048,
    views: Mapping[str, Any] | None = None,
    random_state: int = default("random_state"),
    engine: Engine | str | None = None,
) -> dict[str, Floats]:
    """Per view (n,) qualities for `select(quality=...)`: low where a row has nothing near it.

    A row's density is its mean cosine with the `neighbours` nearest of a random sample of at most
    `sample` rows, itself excluded; quality is density over the pool's median, from 0.05 to 1. A
    view whose median density is not positive tells no outliers, and all its qualities are 1.
    """
    near, most = check_count("neighbours", neighbours), check_count("sample", sample, 2)
    seed = check_seed("random_state", random_state)
    pool = Pool.of(data, views=views, engine=engine)
    rows = np.arange(pool.n)
    if pool.n > most:
        rows = np.sort(np.random.default_rng(seed).choice(pool.n, size=most, replace=False))
    if near >= len(rows):
        raise InputError(
            f"neighbours must be below the {len(rows)} sampled rows, since a row is not its own "
            f"neighbour, not {near}; lower it or raise sample"
        )
    space = CosinePool.of(pool)
    state = space.anchors(rows), near
    with block_threads(float(pool.stored) * len(rows)):
        density = space.pool.map(_density, state, space.inverse, width=3 * len(rows), fixed=True)
    return {name: _quality(density[:, q]) for q, name in enumerate(pool.names)}


def _density(block: Block, state: tuple[Anchors, int], inverse: Floats) -> Floats:
    """(b, M) mean cosine with the nearest sampled rows."""
    anchors, near = state
    here, densities = anchors.inside(block), []
    for cosine in cosines(block, anchors, inverse):
        cosine[here] = -np.inf
        cosine.partition(cosine.shape[1] - near, axis=1)
        densities.append(cosine[:, -near:].mean(axis=1))
    return np.stack(densities, axis=1)


def _quality(density: Floats) -> Floats:
    median = float(np.median(density))
    if median <= _NO_DENSITY:
        return np.ones(len(density))
    return np.asarray((density / median).clip(_LEAST, _MOST))
