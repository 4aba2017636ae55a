"""Baselines with an objective of their own that fair search can optimise [FairNEPv, section 5].

They are greedy in it and then refined under it by the same search, with the same effort, as the
fair objective gets. None depends on the random state.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fairnepv.loop import Context
from fairnepv.options import default
from fairnepv.problem import Problem
from fairnepv.search import Effort, Found, greedy, refine
from fairnepv.views import Pool, SumView
from fairnepv.views.blocks import inverse_norms

Baseline = Callable[[Problem, Effort, Context], Found]


def single_view(name: str, problem: Problem, effort: Effort, context: Context) -> Found:
    return _optimise(problem.over(problem.pool.only(name)), effort, context)


def averaged_kernel(problem: Problem, effort: Effort, context: Context) -> Found:
    """log det of (1/M) sum_q L_q."""
    return _optimise(problem.over(averaged(problem.pool, factor_apart=True)), effort, context)


def fixed_weight(problem: Problem, effort: Effort, context: Context) -> Found:
    """(1/M) sum_q log det L_q, which is F_tau for tau = infinity."""
    return _optimise(problem.over(problem.pool, tau=np.inf), effort, context)


def concatenated(problem: Problem, effort: Effort, context: Context) -> Found:
    """log det on normalised embeddings side by side; with the effort `fast` greedy alone, which is
    what people do today. Rows are normalised per view whatever the calibration."""
    units = tuple(
        view.scaled(inverse_norms(view.raw_squared_norms()), 0.0) for view in problem.pool.views
    )
    pool = problem.pool.with_views(problem.pool.names, units)
    return _optimise(problem.over(averaged(pool, factor_apart=True)), effort, context)


def averaged(pool: Pool, *, factor_apart: bool = False) -> Pool:
    """The pool whose one view is the averaged kernel (1/M) sum_q L_q.

    `factor_apart`: the largest factor on a view stays a factor on the sum, so that entries do not
    overflow; for objectives to which it adds a constant, as log-determinants of k items.
    """
    largest = float(pool.offsets.max()) if factor_apart else 0.0
    weights = tuple(float(w) for w in np.exp(pool.offsets - largest) / len(pool.views))
    return pool.with_views(("average",), (SumView(pool.views, weights).scaled(None, largest),))


def _optimise(problem: Problem, effort: Effort, context: Context) -> Found:
    return refine_under(problem, greedy(problem, context), effort, context)


def refine_under(problem: Problem, start: Found, effort: Effort, context: Context) -> Found:
    """A start refined under an objective that is not the fair one; how badly its making ended is
    still told."""
    problem = replace(problem, random_state=default("random_state"))  # whoever compares, asks once
    found = refine(problem, replace(start, ordered=False), effort, context)
    return found if start.status.ok else replace(found, status=start.status)
