"""How others choose k of n rows to label or to train on, each in a few lines of NumPy.

All of them see one (n, p) array and none of them knows of views: usefulness.py hands them the views
side by side, centred and with rows of unit length. Where a published selector draws by lot it takes
a seed; the others always give the same picks. Ties go to the lowest row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Indices = NDArray[np.int64]
NEIGHBOURS = 20  # of a row, by which TypiClust measures how typical it is


def random(rows: Rows, k: int, seed: int) -> Indices:
    return np.random.default_rng(seed).choice(len(rows), size=k, replace=False)


def medoids(rows: Rows, k: int, seed: int) -> Indices:
    """The row nearest to each centre of k-means, or the nearest that no centre before it took."""
    centres = _k_means(rows, k, seed).cluster_centers_
    distance = squared_distances(rows, centres)
    picks: list[int] = []
    for column in distance.T:
        column[picks] = np.inf
        picks.append(int(column.argmin()))
    return np.array(picks)


def k_center(rows: Rows, k: int, seed: int) -> Indices:
    """Farthest first [Gonzalez]: the row nearest to the mean, then always the row farthest from all
    picks."""
    picks = [int(squared_distances(rows, rows.mean(axis=0)[None]).argmin())]
    nearest = squared_distances(rows, rows[picks])[:, 0]
    while len(picks) < k:
        nearest[picks] = -1.0  # repeated rows are at a distance of zero, too
        picks.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, squared_distances(rows, rows[picks[-1:]])[:, 0])
    return np.array(picks)


def facility_location(rows: Rows, k: int, seed: int) -> Indices:
    """Greedy in sum_i max_{j in S} cos(i, j), negative cosines counting as zero."""
    similarity = np.maximum(rows @ rows.T, 0.0)
    served = np.zeros(len(rows))
    picks: list[int] = []
    for _ in range(k):
        gain = np.maximum(similarity - served[:, None], 0.0).sum(axis=0)
        gain[picks] = -1.0
        picks.append(int(gain.argmax()))
        served = np.maximum(served, similarity[:, picks[-1]])
    return np.array(picks)


def typiclust(rows: Rows, k: int, seed: int) -> Indices:
    """The most typical row of each of k clusters [TypiClust].

    Typical is a row with a small mean distance to its nearest neighbours within the cluster.
    """
    cluster = _k_means(rows, k, seed).labels_
    picks = [_most_typical(rows, np.flatnonzero(cluster == c)) for c in np.unique(cluster)]
    free = np.setdiff1d(np.arange(len(rows)), picks)
    while len(picks) < k:  # repeated rows leave clusters empty
        picks.append(_most_typical(rows, free))
        free = free[free != picks[-1]]
    return np.array(picks)


def herding(rows: Rows, k: int, seed: int) -> Indices:
    """The row that is most like the pool and least like the picks, by a Gaussian kernel as wide as
    the median distance [Herding]."""
    squared = squared_distances(rows, rows)
    kernel = np.exp(-0.5 * squared / np.median(squared))
    mean, of_picks = kernel.mean(axis=0), np.zeros(len(rows))
    picks: list[int] = []
    for t in range(k):
        worth = mean - of_picks / (t + 1)
        worth[picks] = -np.inf
        picks.append(int(worth.argmax()))
        of_picks += kernel[picks[-1]]
    return np.array(picks)


class Selector(NamedTuple):
    choose: Callable[[Rows, int, int], Indices]
    drawn: bool = False  # by lot, so that it is run with several seeds


SELECTORS = {
    "random": Selector(random, drawn=True),
    "k-means medoids": Selector(medoids, drawn=True),
    "k-center": Selector(k_center),
    "facility location": Selector(facility_location),
    "TypiClust": Selector(typiclust),
    "kernel herding": Selector(herding),
}


def squared_distances(rows: Rows, others: Rows) -> Rows:
    """(n, m), never below zero."""
    norms = np.einsum("ij,ij->i", rows, rows)[:, None] + np.einsum("ij,ij->i", others, others)
    return np.maximum(norms - 2.0 * rows @ others.T, 0.0)


def _most_typical(rows: Rows, members: Indices) -> int:
    distance = np.sqrt(squared_distances(rows[members], rows[members]))
    near = min(NEIGHBOURS, len(members) - 1)
    mean = np.sort(distance, axis=1)[:, 1 : near + 1].sum(axis=1)  # without the row itself
    return int(members[mean.argmin()])


def _k_means(rows: Rows, k: int, seed: int) -> Any:
    from sklearn.cluster import KMeans

    return KMeans(k, n_init=1, random_state=seed).fit(rows)
