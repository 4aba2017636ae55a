"""Saturate [Krause]: bisection for the highest level that greedy can bring every view to.

f_q(S) = log det(L_q[S, S] / u), with u the least ridge of all views, is 0 for the empty set,
monotone, since no eigenvalue of any L_q is below u, and submodular. One u for all views keeps their
order: of k items, the view with the lowest f_q is the one with the lowest d_q.

Departures from the authors: exactly k items are chosen (alpha = 1, the practical variant, which
has no guarantee), greedy goes on to k where fewer items reach the level, a set that misses its
level competes as well, and the best set is refined under its worst view.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fairnepv.concave import diagonal_bound
from fairnepv.loop import Context
from fairnepv.methods.baselines.refined import refine_under
from fairnepv.objective import subset_scores
from fairnepv.problem import Problem
from fairnepv.search import Effort, Found, Greedy
from fairnepv.views.base import Floats

_ROUNDS = 12  # the level is then known to 1/4096 of its range
_SHARP = 1e-6  # nats: a temperature at which the soft-min is the worst view


def saturate(problem: Problem, effort: Effort, context: Context) -> Found:
    """The set whose worst view is best among those that greedy finds for a dozen levels."""
    pool, k = problem.pool, problem.k
    log_u = float((np.log(pool.eps) + pool.offsets).min())
    low, high = log_u, min(diagonal_bound(view, k) for view in pool.views)  # of d_q
    best: Found | None = None
    best_worst = -np.inf
    for _ in range(_ROUNDS):
        level = (low + high) / 2.0
        judge = partial(Truncated, pool.offsets, log_u, k * (level - log_u))
        search = Greedy(problem, judge)
        outcome = context.run(search)
        if context.stopped and best is not None:
            return Found(best.indices, context.stopped)
        indices, _ = search.filled(outcome.state, outcome.status)
        worst = float(subset_scores(pool, indices, problem.utility).min())
        if best is None or worst > best_worst + problem.tolerances.tie:
            best, best_worst = Found(indices, outcome.status), worst
        if context.stopped:
            break
        low, high = (level, high) if worst >= level else (low, level)
    assert best is not None
    return refine_under(problem.over(pool, tau=_SHARP), best, effort, context)


class Truncated(NamedTuple):
    """The mean of min(f_q, level) in place of F_tau; of f_q itself where all have reached it.

    The latter is at least the level and so ranks first; without it, all items would be tied from
    there on.
    """

    offsets: Floats  # (M,)
    log_u: float
    level: float
    logdets: Floats  # (M,) as in `Standing`
    size: int

    def fair_scores(self, log_ratios: Floats) -> Any:
        shape = (-1,) + (1,) * (log_ratios.ndim - 1)
        shift = self.size * (self.offsets.reshape(shape) - self.log_u)
        f = self.logdets.reshape(shape) + log_ratios + shift
        reached = (f >= self.level).all(axis=0)
        return np.where(reached, f, np.minimum(f, self.level)).mean(axis=0) / self.size

    def ceiling(self, log_ratios: Floats) -> tuple[float, Floats]:
        """The mean of f_q itself, which no truncation exceeds."""
        M = len(self.logdets)
        shift = self.size * (self.offsets - self.log_u)
        return float((self.logdets + shift).mean() / self.size), np.full(M, 1.0 / (M * self.size))
