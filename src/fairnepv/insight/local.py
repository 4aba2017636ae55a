"""Features of nearness: what to choose by when a model is to be trained on the picks.

Explained variance knows axes and not places: a row at -x explains one at x as well as x itself, and
every view is explained by weights of its own, its noise as well. Nearness, and the company of the
other views, mend both (docs/choosing.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.tables import from_tables
from fairnepv.checks import check_count, is_finite
from fairnepv.compute import Block, Engine, block_threads
from fairnepv.errors import InputError
from fairnepv.views import Pool
from fairnepv.views.base import Floats, View
from fairnepv.views.blocks import inverse_norms
from fairnepv.views.centering import centered

LOCAL_EPS = 0.3  # the ridge for picks by these features: of nine pairs the best (docs/choosing.md)
_FAINTEST = 1e-6  # of the largest eigenvalue between landmarks: what is below is left out


@from_tables
def local_features(
    data: Any,
    *,
    company: float = 0.8,
    power: int = 2,
    landmarks: int = 512,
    views: Mapping[str, Any] | None = None,
    ids: Any = None,
    engine: Engine | str | None = None,
) -> dict[str, NDArray[np.float32]]:
    """Per view (n, p) features whose products are ((1 + cosine) / 2)^power of centred rows: near
    rows are alike, opposite ones share nothing.

    data, views, ids, engine: as for `select`. With ids by view the rows are those of the first one.
    company: how much of every view's similarity is the mean over all views, from 0 to 1.
    landmarks: rows by which similarities are approximated (Nystroem); they are exact between these.

    `select(local_features(data), k, objective="representative", eps={eps})` chooses items to train
    on (docs/choosing.md).
    """
    share = _check_share(company)
    degree, most = check_count("power", power), check_count("landmarks", landmarks)
    pool = centered(Pool.of(data, views=views, ids=ids, engine=engine))
    units = (view.scaled(inverse_norms(view.raw_squared_norms()), 0.0) for view in pool.views)
    pool = pool.with_views(pool.names, tuple(units))
    rows = np.arange(pool.n)
    if pool.n > most:  # the same ones whenever they are asked for
        rows = np.sort(np.random.default_rng(0).choice(pool.n, most, replace=False))
    state = tuple(_map_of(view, rows, degree) for view in pool.views)
    with block_threads(float(pool.stored) * len(rows)):
        found = pool.map(_features, state, width=4 * len(rows) * len(state), fixed=True)
    widths = np.cumsum([own.combine.shape[1] for own in state])[:-1]
    apart = np.split(found, widths, axis=1)
    return {name: _beside(apart, q, share) for q, name in enumerate(pool.names)}


local_features.__doc__ = str(local_features.__doc__).format(eps=LOCAL_EPS)


class _Map(NamedTuple):
    anchor: Any  # of the landmarks
    combine: Floats  # (m, r)
    degree: int


def _map_of(view: View, rows: NDArray[np.int64], degree: int) -> _Map:
    lam, Q = np.linalg.eigh(_near(view.inner(rows, rows), degree))
    kept = lam > _FAINTEST * lam[-1]
    return _Map(view.anchor(rows), Q[:, kept] / np.sqrt(lam[kept]), degree)


def _near(cosine: Floats, degree: int) -> Floats:
    return np.asarray((0.5 + 0.5 * cosine.clip(-1.0, 1.0)) ** degree)


def _features(block: Block, state: tuple[_Map, ...]) -> NDArray[np.float32]:
    made = [
        _near(view.cross(own.anchor), own.degree) @ own.combine
        for view, own in zip(block.views, state, strict=True)
    ]
    return np.hstack(made).astype(np.float32)


def _beside(apart: list[NDArray[np.float32]], q: int, share: float) -> NDArray[np.float32]:
    """The features of view q, and those of the others, so that products of rows are
    (1 - share) k_q + share mean_r k_r."""
    common = share / len(apart)
    weights = [common + (1.0 - share if r == q else 0.0) for r in range(len(apart))]
    parts = [np.float32(w**0.5) * F for w, F in zip(weights, apart, strict=True) if w > 0]
    return np.hstack(parts)


def _check_share(company: Any) -> float:
    if not is_finite(company) or not 0.0 <= company <= 1.0:
        raise InputError(f"company must be a share from 0 to 1, not {company!r}")
    return float(company)
