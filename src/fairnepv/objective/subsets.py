"""F_tau of sets of rows [FairNEPv, Eq. (D-Fair)], for any utility."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from fairnepv.compute import Block
from fairnepv.compute.clock import unlimited
from fairnepv.objective.softmin import lifted_floors, merit, soft_min, soft_min_weights
from fairnepv.objective.utility import UTILITIES, Determinant, Utility, utility_of
from fairnepv.problem import DEFAULT_UTILITY, Problem
from fairnepv.views import Pool, View
from fairnepv.views.base import Floats, Indices
from fairnepv.views.in_turn import rows_at_once, suits


def subset_scores(pool: Pool, indices: Indices, utility: str) -> Floats:
    """(M,) d_q(S), in float64 from the original rows; for log-determinants that is
    (1/|S|) log det L_q[S, S].

    This is the one function that scores. It works on singular values of the selected rows, or on a
    triangular factor of them, and on their Gram matrix only where the ridge is large enough, so a
    small one costs no digits. No deadline counts: without the score of a set there is no answer.
    """
    asked = UTILITIES[utility]
    divisor = asked.divisor(len(indices))
    with unlimited():
        return np.array([asked.total(v, indices) / divisor + v.offset for v in pool.views])


def fair_score(pool: Pool, indices: Indices, tau: float, utility: str) -> float:
    """F_tau(S) [FairNEPv, Eq. (D-Fair)]."""
    return float(soft_min(subset_scores(pool, indices, utility), tau))


def subset_merit(problem: Problem, indices: Indices) -> float:
    """What the search maximises, by the function that scores: F_tau where every floor is met."""
    d = subset_scores(problem.pool, indices, problem.utility)
    return float(merit(d + problem.lifts, problem.tau, lifted_floors(problem)))


def subset_gains(pool: Pool, indices: Indices, utility: str) -> Floats:
    """(k, M) what each item in turn added to the total of a view, its offset included: their sums
    over the utility's divisor, which is k for log-determinants, are d_q(S)."""
    asked = UTILITIES[utility]
    with unlimited():
        gains = [asked.contributions(v, indices) + v.offset for v in pool.views]
    return np.stack(gains, axis=1)


def scores_and_gains(pool: Pool, indices: Indices, utility: str) -> tuple[Floats, Floats]:
    """What `subset_scores` and `subset_gains` say, to the last bit; where the ridge is large enough
    that totals are sums of gains, their rows are factored once for both."""
    asked = UTILITIES[utility]
    divisor, d, gains = asked.divisor(len(indices)), [], []
    with unlimited():
        for v in pool.views:
            own = asked.contributions(v, indices)
            sums_up = v.well_conditioned(indices)
            total = float(own.sum()) if sums_up else asked.total(v, indices)
            d.append(total / divisor + v.offset)
            gains.append(own + v.offset)
    return np.array(d), np.stack(gains, axis=1)


# Operations of both for every pair of items, as `seconds_for` counts them: measured with 50 to
# 1,000 items of dense and sparse views, where they take long right within a factor of 1.5. Without
# a ridge to rely on the rows themselves are factored twice, sparse ones as dense. Shares ask for
# products with the second moments besides. Many rows of few columns come in blocks.
_BY_KERNEL, _BY_ROWS, _BY_MOMENTS, _IN_BLOCKS = 2.0, 9.0, 4.0, 30.0


def scoring_work(problem: Problem) -> float:
    """Operations of the scores and gains of k items, which come at the end of every search."""
    k, work = problem.k, 0.0
    for view in problem.pool.views:
        work += _factoring_work(view, k)
        if view.moments is not None:
            side = view.p if view.moments.gram is not None else view.moments.targets.shape[0]
            work += _BY_MOMENTS * k * side * view.p / 2
    return work


def _factoring_work(view: View, k: int) -> float:
    some = np.arange(k)  # others are as likely to be well conditioned
    if suits(k, view.p, view.trace_at(some), view.ridge):
        return _IN_BLOCKS * k * min(k, rows_at_once(view.p)) ** 2
    if view.moments is not None:
        return _BY_MOMENTS * k**2 * (view.p + k / 3)
    if view.well_conditioned(some):
        return _BY_KERNEL * k**2 * (view.stored / view.n + k / 3)
    return _BY_ROWS * k**2 * (view.p + k / 3)


_URGENT = 10.0  # weight of a view that misses its floor, beside all weights of the soft-min


class Standing(NamedTuple):
    """How a set stands in every view, small enough to travel with a pass over the rows."""

    totals: Floats  # (M,) such as log det (K_q[S, S] + eps_q I)
    offsets: Floats  # (M,)
    size: int
    tau: float
    floors: Floats | None = None
    utility: Utility = UTILITIES[DEFAULT_UTILITY]

    @classmethod
    def of(cls, problem: Problem, totals: Floats, size: int) -> Standing:
        floors, utility = lifted_floors(problem), utility_of(problem)
        return cls(totals, problem.offsets, size, problem.tau, floors, utility)

    def fair_scores(self, gains: Floats) -> Any:
        """The merit once the totals have changed by `gains` (M, ...)."""
        shape = (-1,) + (1,) * (gains.ndim - 1)
        d = (self.totals.reshape(shape) + gains) / self._divisor + self.offsets.reshape(shape)
        return merit(d, self.tau, self.floors)

    def ceiling(self, gains: Floats) -> tuple[float, Floats]:
        """a and b (M,) with merit <= a + b . gains everywhere: the tangent of F_tau at these."""
        d = (self.totals + gains) / self._divisor + self.offsets
        slopes = soft_min_weights(d, self.tau) / self._divisor
        return float(soft_min(d, self.tau) - slopes @ gains), slopes

    def rise(self, block: Block, v: Any, c: Any, pivots: Floats) -> Any:
        """(b, k) a bound on what F_tau could rise by with each swap, in the units of `needed_rise`
        and the precision of v, where the block is.

        F is concave in the totals, so it rises by at most sum_q w_q gain_q / divisor.
        """
        return self.determinant.swap_ceiling(block, self.slopes, c, pivots, v)

    def needed_rise(self, value: float) -> float:
        """What `rise` must reach for the merit to exceed `value`."""
        return self.determinant.needed_ceiling(self._divisor * self.missing(value))

    def missing(self, value: float) -> float:
        """By what F_tau of this set is below `value`."""
        return value - float(soft_min(self._d, self.tau))

    @property
    def determinant(self) -> Determinant:
        """The utility of diverse sets, which alone is asked about determinants."""
        return cast(Determinant, self.utility)

    @property
    def slopes(self) -> Floats:
        """(M,) of F_tau in the scores; where a floor is missed, mostly of the views that miss it,
        and then nothing is a bound but a hint: any swap that meets the floor is worth more."""
        w: Floats = soft_min_weights(self._d, self.tau)
        if self.floors is None or not (self._d < self.floors).any():
            return w
        return (w + _URGENT * (self._d < self.floors)) / (1.0 + _URGENT)

    @property
    def _d(self) -> Floats:
        return self.totals / self._divisor + self.offsets

    @property
    def _divisor(self) -> float:
        return self.utility.divisor(self.size)
