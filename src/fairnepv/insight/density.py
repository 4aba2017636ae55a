"""`typicality`: qualities that keep junk outliers from being picked for their oddness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairnepv.checks import check_count, check_seed
from fairnepv.compute import Block, Engine, block_threads
from fairnepv.errors import InputError
from fairnepv.options import default
from fairnepv.views import Pool
from fairnepv.views.base import Floats
from fairnepv.views.cosines import Anchors, CosinePool, cosines

_LEAST, _MOST = 0.05, 1.0  # no row is ruled out, and the typical half counts alike
_NO_DENSITY = 1e-9  # rows that share nothing have cosines of this size by rounding alone


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
