"""What picks are good for: models trained on the picks alone and tried on all other rows.

Labels are seen by the probes only, never by a selector. Features are standardised over the pool, as
who labels a part of a pool can do; classes without a pick are lost, which is the picks' fault.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.data.probe import centred_units, linear_probe, others
from rivals import Indices, Rows, squared_distances

RIDGE = 1.0  # of the map from one view to another, on rows of unit length
HITS = 10  # the true partner is among so many


class Worth(NamedTuple):
    """Shares from 0 to 1, higher is better."""

    accuracy: float  # linear probe on all views side by side
    macro_f1: float
    worst_class: float  # the lowest recall of a class
    worst_view: float  # the lowest accuracy of a probe on one view alone
    nearest: float  # accuracy of the label of the nearest pick
    retrieval: float  # R@10 of ridge maps between views, mean over ordered pairs of views


class Probes:
    """A pool's features as the probes take them, made once for all picks."""

    def __init__(self, views: dict[str, Any]) -> None:
        self.standard = [standardised(X) for X in views.values()]
        self.units = [centred_units(X) for X in views.values()]
        self.joined = np.hstack(self.standard)
        self.joined_units = np.hstack(self.units)

    def retrieval(self, picks: Indices) -> float:
        rest = others(len(self.joined), picks)
        pairs = itertools.permutations(self.units, 2)
        return float(np.mean([found_partners(X, Y, picks, rest) for X, Y in pairs]))

    def worth(self, labels: NDArray[Any], picks: Indices, retrieval: float) -> Worth:
        rest = others(len(labels), picks)
        truth = labels[rest]
        said = linear_probe(self.joined, labels, picks, rest)
        by_view = [linear_probe(X, labels, picks, rest) for X in self.standard]
        distance = squared_distances(self.joined_units[rest], self.joined_units[picks])
        nearest = labels[picks][distance.argmin(axis=1)]
        return Worth(
            float(np.mean(said == truth)),
            macro_f1(truth, said),
            min(float(np.mean(said[truth == c] == c)) for c in np.unique(truth)),
            min(float(np.mean(view == truth)) for view in by_view),
            float(np.mean(nearest == truth)),
            retrieval,
        )


def macro_f1(truth: NDArray[Any], said: NDArray[Any]) -> float:
    """The mean over the classes that are there of 2 |both| / (|true| + |said|)."""
    scores = []
    for c in np.unique(truth):
        is_c, called_c = truth == c, said == c
        scores.append(2.0 * np.sum(is_c & called_c) / (is_c.sum() + called_c.sum()))
    return float(np.mean(scores))


def found_partners(X: Rows, Y: Rows, picks: Indices, rest: Indices) -> float:
    """How often a row's other view is among the nearest to what a ridge map makes of the first."""
    weights = np.linalg.solve(X[picks] @ X[picks].T + RIDGE * np.eye(len(picks)), Y[picks])
    made = (X[rest] @ X[picks].T) @ weights
    similarity = made @ Y[rest].T  # Y has unit rows; the length of `made` changes no order
    better = similarity > np.diagonal(similarity)[:, None]
    return float(np.mean(better.sum(axis=1) < HITS))


def standardised(X: Any) -> Rows:
    rows = np.asarray(X, dtype=np.float64)
    spread = rows.std(axis=0)
    return (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
