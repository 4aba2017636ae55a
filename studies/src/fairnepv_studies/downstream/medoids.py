"""k-means medoids, a selector that everybody knows: the item nearest to each of k centres."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WIDEST = 256  # columns of a view that are clustered as they are; of more, so many components


def k_means_medoids(views: Mapping[str, Any], k: int, seed: int) -> NDArray[np.int64]:
    """k different rows, in the order of the sizes of their clusters.

    Views are scaled to rows of unit length and put side by side, each with the same weight; wide
    ones by their first principal components, which are not centred, so that sparse ones stay so.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rows = np.hstack([_narrow(view) for view in views.values()])
    with warnings.catch_warnings():  # of clusters without items, which have medoids all the same
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(k, n_init=1, random_state=seed).fit(rows)
    free = np.ones(len(rows), dtype=bool)
    chosen = []
    for cluster in np.argsort(-np.bincount(model.labels_, minlength=k), kind="stable"):
        distances = np.square(rows - model.cluster_centers_[cluster]).sum(axis=1)
        distances[~free] = np.inf
        chosen.append(int(distances.argmin()))
        free[chosen[-1]] = False
    return np.array(chosen, dtype=np.int64)


def _narrow(view: Any) -> NDArray[np.float32]:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import normalize

    rows = normalize(view)
    if rows.shape[1] > _WIDEST:
        width = min(_WIDEST, rows.shape[0] - 1)
        rows = TruncatedSVD(width, random_state=0).fit_transform(rows)
    dense = rows.toarray() if hasattr(rows, "toarray") else rows
    return np.asarray(dense, dtype=np.float32)
