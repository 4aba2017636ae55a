"""The one way to fill the records of results: from a problem and indices."""

from __future__ import annotations

from typing import Any

from fairnepv.api.neighbours import survey
from fairnepv.api.selection import Optimum, Selection, SubsetScore
from fairnepv.objective import fair_value, scores_and_gains, soft_min_weights, subset_scores
from fairnepv.problem import Problem, by_view
from fairnepv.search import Enumeration
from fairnepv.views.base import Floats, Indices
from fairnepv.views.imprint import Imprint


def score_subset(problem: Problem, indices: Indices) -> SubsetScore:
    """The record of one subset, from the original rows in float64."""
    covered = survey(problem, indices, indices[:0]).distances / problem.n
    fields = _score_fields(problem, subset_scores(problem.pool, indices, problem.utility))
    return SubsetScore(**fields, coverage=by_view(problem.pool, covered))


def _score_fields(problem: Problem, d: Floats) -> dict[str, Any]:
    pool = problem.pool
    return {
        "objective": problem.utility,
        "scores": by_view(pool, d),
        "fair_score": fair_value(problem, d),
        "view_weights": by_view(pool, soft_min_weights(d + problem.lifts, problem.tau)),
    }


def make_selection(problem: Problem, indices: Indices, **run: Any) -> Selection:
    """The record of these items. One thread computes the scores, so that their time can be foreseen
    near a limit: on a busy machine several took thirty times as long for a thousand items, and on a
    quiet one half as long."""
    d, gains = scores_and_gains(problem.pool, indices, problem.utility)
    return Selection(
        **_score_fields(problem, d),
        indices=indices,
        ids=problem.ids_of(indices),
        gains={name: gains[:, q] for q, name in enumerate(problem.pool.names)},
        calibration=problem.calibration,
        problem=problem,
        imprint=Imprint.of(problem.pool, indices),
        **run,
    )


def make_optimum(problem: Problem, found: Enumeration) -> Optimum:
    score, ids = vars(score_subset(problem, found.indices)), problem.ids_of(found.indices)
    return Optimum(**score, indices=found.indices, ids=ids, subsets=found.subsets, ties=found.ties)
