"""The soft-min over views [FairNEPv, section 3.4]: its value, its weights, and floors on views.

Nothing here asks what a view's score is; that is for a `Utility` to say.
"""

from typing import Any

import numpy as np

from fairnepv.problem import Problem
from fairnepv.views.base import Floats

# What a set pays that misses a floor: so much that any other is better, and more per nat.
_MISSED, _FLOOR_PRICE = 1e4, 1e3
FLOOR_ROUNDING = 1e-9  # a floor that is missed by less is met


def soft_min(d: Any, tau: float, xp: Any = np) -> Any:
    """F = d_min + tau log M - tau log sum_q exp(-(d_q - d_min)/tau) over the first axis.

    [FairNEPv, Eq. (softmin-identity)], as d_min - tau log1p(mean_q expm1(-(d_q - d_min)/tau)): no
    exponential can overflow, and nothing cancels for a large tau. tau = inf gives the mean, which
    is the limit and the fixed-weight baseline. `xp` has the functions for arrays of a device.
    """
    if np.isinf(tau):
        return d.mean(axis=0)
    d_min = xp.min(d, axis=0)
    with np.errstate(over="ignore"):  # a quotient of -inf is as good as a very negative one
        return d_min - tau * xp.log1p(xp.expm1((d_min - d) / tau).sum(axis=0) / len(d))


def soft_min_weights(d: Any, tau: float, xp: Any = np) -> Any:
    """w_q proportional to exp(-d_q/tau), summing to one [FairNEPv, Proposition 2]."""
    if np.isinf(tau):
        return xp.ones_like(d) / len(d)
    with np.errstate(over="ignore"):
        w = xp.exp((d.min() - d) / tau)
    w /= w.sum()
    return w


def entropy_price(weights: Floats, tau: float) -> float:
    """tau KL(w | uniform), rounded up: soft_min(d) <= sum_q w_q d_q + this for any weights w.

    Priorities come in through the lifts of the problem.
    """
    positive = weights[weights > 0]
    if len(weights) == 1:
        return 0.0
    if np.isinf(tau):  # F is the mean, which no other weights bound
        return 0.0 if np.ptp(weights) == 0 else np.inf
    # Terms that are not negative, so that a large tau does not multiply what cancels.
    ratios = len(weights) * positive
    beyond = ratios - 1.0
    logs = np.where(beyond > -0.5, np.log1p(np.maximum(beyond, -0.5)), np.log(ratios))
    terms = ratios * logs - beyond + 4.0 * np.finfo(np.float64).eps * np.abs(beyond)
    absent = len(weights) - len(positive)
    return float(tau * (terms.sum() + absent) / len(weights))


def merit(d: Any, tau: float, floors: Any, xp: Any = np) -> Any:
    """What a search maximises: F_tau, less a price beyond all scores where a floor is missed.

    It rises with every d_q, so bounds on the views make a bound on it.
    """
    F = soft_min(d, tau, xp)
    if floors is None:
        return F
    least = floors.reshape((-1,) + (1,) * (d.ndim - 1)) - FLOOR_ROUNDING
    missed = (least - d).clip(0.0).sum(axis=0)
    return F - xp.where(missed > 0, _MISSED + _FLOOR_PRICE * missed, 0.0)


def steepness(problem: Problem) -> float:
    """What an error of every d_q is multiplied by in the merit, where no floor is crossed."""
    floored = 0 if problem.floors is None else int(np.isfinite(problem.floors).sum())
    return 1.0 + _FLOOR_PRICE * floored


def lifted_floors(problem: Problem) -> Floats | None:
    """Floors on what stands inside of the soft-min."""
    return None if problem.floors is None else problem.floors + problem.lifts


def fair_value(problem: Problem, d: Floats) -> float:
    """F_tau of view scores d, under the priorities of the problem."""
    return float(soft_min(d + problem.lifts, problem.tau))
