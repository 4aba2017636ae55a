"""Which row wins when scores are equal to rounding: the lowest index, at any block size.

Every row that could be the best, for all that a look in whatever precision has seen, is scored
again in float64 from gathered rows; of those within the tie tolerance of the best the lowest wins.
"""

import numpy as np

from fairnepv.compute import HOST
from fairnepv.objective import steepness
from fairnepv.problem import Problem
from fairnepv.views import Pool
from fairnepv.views.base import Floats, Indices

SLACK = 1e-8  # rows that come this close to the best of a pass are confirmed
WORTH = 2.0**-30  # error of products above which they were made in float32, and quicker
COARSEST = 0.02  # error of log c up to which float32 is good enough to look around with
WIDEST_BLUR = 1e-3  # from here on all that scores say is rounding
_LITTLE_WORK = 1e8  # multiply-adds of a product up to which float64 takes no time either
_SPARE = 64  # scores beyond the first ones, among which a gap is looked for
_LEAST_SINGLE, _MOST_SINGLE = 1e-30, 1e30  # ridges and squared norms that float32 computes with


def blur(problem: Problem, size: int) -> float:
    """How far rounding may move the merit of a set of `size` items.

    A conditional variance c_i = L_ii - |v_i|^2 is at least eps and carries the rounding of L_ii, so
    log c_i is sure to some multiples of L_ii / eps roundings. Scores that lie closer than this
    cannot be told apart and count as tied, or duplicates would be ordered by their rounding.
    """
    return float(blurs(problem, np.array([size]))[0])


def blurs(problem: Problem, sizes: Indices) -> Floats:
    """The same for sets of several sizes."""
    pool = problem.pool
    held = pool.eps > 0
    noise = rounding(pool.largest_norms[held], pool.eps[held], 1) / sizes
    return np.minimum(steepness(problem) * noise, WIDEST_BLUR)


def rounding(norms: Floats, eps: Floats, size: int) -> float:
    """How far rounding may move a score per item, for views of these largest norms and ridges."""
    with np.errstate(divide="ignore"):
        worst = float((norms / eps).max(initial=0.0))
    return 16.0 * float(np.finfo(np.float64).eps) * worst / size


def set_rounding(problem: Problem, eps: Floats) -> float:
    """How far totals of sets that are made of kernels may be from scores, per item, for views of
    these ridges."""
    pool = problem.pool
    return rounding(pool.largest_norms, eps, 1) + lost_below_zero(pool)


def lost_below_zero(pool: Pool, margin: float = 1.0) -> float:
    """How far determinants of K + eps I may be from scores, per item, where a kernel was rounded:
    scores count its eigenvalues below zero as zero. `margin`: as of `View.smallest_eigenvalue`."""
    lacks = [(view.lack(margin), view.ridge) for view in pool.views]
    shares = [lack / eps if lack < eps else 1.0 for lack, eps in lacks if lack > 0]
    with np.errstate(divide="ignore"):
        return float(-np.log1p(-max(shares, default=0.0)))


def coarse_error(problem: Problem, *, looks: bool = False) -> float:
    """How far log c may be off for what `RowBlock.coarse` adds to rounding, or in `looks` what
    `RowBlock.onto` does.

    A coordinate along a direction of at most unit length is off by e |phi_i|, and the squares of
    all coordinates of a row sum to at most |phi_i|^2. Infinite where float32 could overflow, and
    with floors: a set may seem to meet one that it misses, and the price multiplies what is off.
    """
    pool = problem.pool
    held = pool.eps > 0
    if problem.floors is not None:
        return np.inf
    if (pool.largest_norms > _MOST_SINGLE).any() or (pool.eps[held] < _LEAST_SINGLE).any():
        return np.inf
    worst = [
        2.0 * (view.look_error if looks else view.coarse_error) * norm / view.ridge
        for view, norm in zip(pool.views, pool.largest_norms, strict=True)
        if view.ridge > 0
    ]
    return max(worst, default=0.0)


def worth_coarse(problem: Problem, error: float) -> bool:
    """Whether swaps are looked at in float32, where gains may be off by that much: some view is
    quicker in it, and there is enough to do."""
    quicker = any(view.coarse_error > WORTH for view in problem.pool.views)
    return quicker and problem.work() > _LITTLE_WORK and error <= COARSEST


def steepest_weights(d: Floats, most: Floats, tau: float) -> Floats:
    """(M, ...) what no weight of F_tau exceeds while totals d (M, ...) rise by `most` (M, ...) at
    most: the weight of a view that stays where it is while all others rise."""
    with np.errstate(over="ignore"):
        others = np.exp((d[:, None] - (d + most)[None]) / tau)
    others[range(len(d)), range(len(d))] = 1.0
    return np.asarray(1.0 / others.sum(axis=1))


def tie_groups(scores: Floats, tie: float) -> Indices:
    """The rank of every score from the best on; runs with gaps of at most `tie` share one.

    Rounding the scores instead would part ties that straddle a rounding boundary.
    """
    order = np.argsort(-scores, kind="stable")
    gaps = -np.diff(scores[order]) > tie
    groups = np.empty(len(scores), dtype=np.int64)
    groups[order] = np.concatenate([[0], np.cumsum(gaps)])[: len(scores)]
    return groups


def ranked(scores: Floats, tie: float, first: int | None = None) -> Indices:
    """Positions from the best score to the worst, tied ones by position; `first`: at least so many
    of them, for which the others need not be sorted."""
    rows = np.arange(len(scores)) if first is None else _leading(scores, tie, first)
    return np.asarray(rows[np.argsort(tie_groups(scores[rows], tie), kind="stable")])


def _leading(scores: Floats, tie: float, first: int) -> Indices:
    """Positions of at least so many of the best scores, ascending, none of them tied with another
    score; all positions where no gap is found soon."""
    n, looked = len(scores), 2 * first + _SPARE
    if looked >= n:
        return np.arange(n)
    rows = HOST.highest(scores, looked)
    values = np.sort(scores[rows])[::-1]
    gaps = np.flatnonzero(values[:-1] - values[1:] > tie)
    gaps = gaps[gaps >= first - 1]
    if not len(gaps):
        return np.arange(n)
    return np.asarray(rows[scores[rows] >= values[gaps[0]]])


def lowest_tied(scores: Floats, tie: float) -> int:
    """Position of the first score within `tie` of the best."""
    return int(np.argmax(scores >= scores.max() - tie))
