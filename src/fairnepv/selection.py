"""The records that a user gets, and the one way to fill them from a problem and indices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.certificate import Certificate
from fairnepv.engines import Block
from fairnepv.errors import Status
from fairnepv.loop import Step
from fairnepv.objective import fair_value, soft_min_weights, subset_gains, subset_scores
from fairnepv.problem import Problem, by_view
from fairnepv.search import Enumeration
from fairnepv.views import Calibration
from fairnepv.views.base import Floats, Indices, inverse_norms


@dataclass(frozen=True)
class Score:
    """How one subset does: d_q(S) per view in nats per item, and what follows from it."""

    scores: Mapping[str, float]
    fair_score: float
    view_weights: Mapping[str, float]
    coverage: Mapping[str, float]  # C_q(S), mean cosine distance to the nearest pick; low is good

    @property
    def worst_view(self) -> str:
        return min(self.scores, key=self.scores.__getitem__)

    @property
    def minimum(self) -> float:
        return min(self.scores.values())

    def losses(self, against: Score) -> dict[str, float]:
        """Per view what this subset has less than the other, in nats per item."""
        return {name: against.scores[name] - value for name, value in self.scores.items()}


@dataclass(frozen=True, repr=False)
class Selection(Score):
    """k chosen items, how well they do, and how well any k items could do."""

    indices: Indices  # in order of selection: the first j are a sensible subset
    ids: NDArray[Any]  # of the same items; row numbers where the data had no ids
    gains: Mapping[str, Floats]  # per view what each item in turn added to log det, (k,)
    certificate: Certificate | None
    proven: float | None  # what branch and bound proved that no set exceeds
    calibration: Calibration
    settings: Mapping[str, Any]
    trace: tuple[Step, ...]
    status: Status
    seconds: float  # of the search; reading, calibration and the bound come on top
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        scores = ", ".join(f"{name}: {value:.4f}" for name, value in self.scores.items())
        return (
            f"<Selection of {len(self.indices)} from {self.settings['n']} by {self.method!r}: fair "
            f"score {self.fair_score:.4f} ({scores}), {self.status.name}>"
        )

    @property
    def method(self) -> str:
        return str(self.settings["method"])

    @property
    def upper_bound(self) -> float | None:
        """No k items that the constraints allow score above this; None when none was asked for."""
        bounds = [] if self.certificate is None else [self.certificate.upper_bound]
        bounds += [] if self.proven is None else [self.proven]
        return min(bounds, default=None)

    @property
    def gap(self) -> float | None:
        """Bound minus score, in nats per item; rounding does not make it negative."""
        if self.upper_bound is None:
            return None
        return max(self.upper_bound - self.fair_score, 0.0)

    @property
    def efficiency(self) -> float | None:
        """exp(-gap): at least this share of the best possible, per item."""
        return None if self.gap is None else math.exp(-self.gap)


@dataclass(frozen=True)
class Optimum(Score):
    """The discrete optimum of a small pool, by enumeration."""

    indices: Indices
    ids: NDArray[Any]
    subsets: int  # how many were looked at
    ties: int  # how many are optimal

    def suboptimality(self, other: Score) -> float:
        """max_S F_tau(S) - F_tau(S') [FairNEPv, appendix B]."""
        return self.fair_score - other.fair_score


@dataclass(frozen=True, repr=False)
class Comparison:
    """One selection per selector, on the same problem."""

    rows: tuple[Selection, ...]

    def __iter__(self) -> Iterator[Selection]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.rows))

    def __getitem__(self, method: str) -> Selection:
        for row in self.rows:
            if row.method == method:
                return row
        raise KeyError(method)


def score_subset(problem: Problem, indices: Indices) -> Score:
    """The record of one subset, from the original rows in float64."""
    return Score(**_score_fields(problem, indices))


def _score_fields(problem: Problem, indices: Indices) -> dict[str, Any]:
    pool = problem.pool
    d = subset_scores(pool, indices)
    return {
        "scores": by_view(pool, d),
        "fair_score": fair_value(problem, d),
        "view_weights": by_view(pool, soft_min_weights(d + problem.lifts, problem.tau)),
        "coverage": by_view(pool, coverage(problem, indices)),
    }


def make_selection(problem: Problem, indices: Indices, **run: Any) -> Selection:
    gains = subset_gains(problem.pool, indices)
    return Selection(
        **_score_fields(problem, indices),
        indices=indices,
        ids=_ids(problem, indices),
        gains={name: gains[:, q] for q, name in enumerate(problem.pool.names)},
        calibration=problem.calibration,
        **run,
    )


def make_optimum(problem: Problem, found: Enumeration) -> Optimum:
    return Optimum(
        **_score_fields(problem, found.indices),
        indices=found.indices,
        ids=_ids(problem, found.indices),
        subsets=found.subsets,
        ties=found.ties,
    )


def _ids(problem: Problem, indices: Indices) -> NDArray[Any]:
    return indices if problem.pool.ids is None else problem.pool.ids[indices]


def coverage(problem: Problem, indices: Indices) -> Floats:
    """(M,) C_q(S) = (1/n) sum_i min_j (1 - cos(i, j)) [FairNEPv, section 6.2]; one pass.

    Cosines come from the kernel without its ridge; a zero row has cosine 0 with everything.
    """
    bare = tuple(view.scaled(None, 0.0) for view in problem.pool.views)  # cosines know no scale
    pool = problem.pool.with_views(problem.pool.names, bare)
    inverse = inverse_norms(pool.squared_norms)
    anchors = [view.anchor(indices) for view in bare]
    state = (anchors, inverse[indices])
    total: Floats = pool.reduce(
        _nearest, np.add, state, inverse, width=2 * len(indices), fixed=True
    )
    return total / problem.n


def _nearest(block: Block, state: tuple[list[Any], Floats], inverse: Floats) -> Floats:
    anchors, inverse_picks = state
    distances = []
    for q, (view, anchor) in enumerate(zip(block.views, anchors, strict=True)):
        cosines = view.cross(anchor) * inverse[:, q, None] * inverse_picks[:, q]
        distances.append((1.0 - cosines.max(axis=1)).clip(min=0.0).sum())
    return np.array(distances)
