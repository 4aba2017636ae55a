"""What picks are worth to whoever trains on them: a linear probe, tried on all rows not picked.

Labels are seen by the probe only, never by a selector.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fairnepv.views.base import Floats, Indices

# Of 1, 3, 10, 30 and 100 the best for picks drawn by lot on the embedded pool.
_C = 30.0


class Probe:
    """Logistic regression on all views side by side, centred and with rows of unit length, so that
    a view with more columns counts no more."""

    def __init__(self, views: Mapping[str, Any], labels: NDArray[Any]) -> None:
        self.rows = np.hstack([centred_units(X) for X in views.values()])
        self.labels = labels

    def accuracy(self, picks: Indices) -> float:
        """The share of the other rows whose label a probe trained on the picks names."""
        rest = others(len(self.labels), picks)
        with threadpool_limits(1):  # products are tiny, and threads would wait for each other
            said = linear_probe(self.rows, self.labels, picks, rest, _C)
        return float(np.mean(said == self.labels[rest]))

    def drawn(self, k: int, draws: int, rng: np.random.Generator) -> Floats:
        """(draws,) accuracies, each of k rows drawn by lot."""
        n = len(self.labels)
        return np.array([self.accuracy(rng.permutation(n)[:k]) for _ in range(draws)])


def linear_probe(
    X: Floats, labels: NDArray[Any], picks: Indices, rest: Indices, C: float = 1.0
) -> NDArray[Any]:
    """What logistic regression on the picks says of the rest.

    Its coefficients lie in the span of the picks' rows, so k coordinates in that span give the same
    model as all p columns do.
    """
    from sklearn.linear_model import LogisticRegression

    known = labels[picks]
    if len(np.unique(known)) == 1:
        return np.repeat(known[:1], len(rest))
    if X.shape[1] > len(picks):
        X = X @ np.linalg.qr(X[picks].T)[0]
    model = LogisticRegression(C=C, max_iter=500, tol=1e-3)
    return np.asarray(model.fit(X[picks], known).predict(X[rest]))


def centred_units(X: Any) -> Floats:
    """Rows about the mean of all of them, brought to unit length; a row of zeros stays."""
    rows = np.asarray(X, dtype=np.float64)
    rows = rows - rows.mean(axis=0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1.0))


def others(n: int, picks: Indices) -> Indices:
    """The rows that were not picked."""
    return np.setdiff1d(np.arange(n), picks)
