"""A bound that anybody can check: dual variables, and what they prove, with rounding accounted for.

For any weights omega on the simplex and any positive definite W_q, every set S of k rows has

    F_tau(S) <= tau KL(omega | pi) + sum_q omega_q (offset_q + c_q(W_q) / k) + sum_{i in S} s_i,
    s_i = sum_q omega_q / k  phi_i^T W_q phi_i,   c_q(W) = sum_{j<=k} h(w_j),

with w_1 <= w_2 <= ... the eigenvalues of W_q and h(w) = max_{t>=0} log(t + eps) - w t. The first
step is the variational form of the soft-min; the second is von Neumann's trace inequality, by which
tr(W Phi_S^T Phi_S) is at least the sum of w_j times the descending eigenvalues. Nothing is assumed
about where the dual variables came from, so a bad solver costs tightness and never truth.

W_q = level I - A^T A with A = B^T Phi_T for few rows T: all that is needed of it are kernel
entries, so a wide sparse view and an explicit kernel are bounded like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import Block, few_threads, portable
from fairnepv.concave.spectral import score_rounding
from fairnepv.objective import entropy_price
from fairnepv.problem import Problem
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices

_UNIT = 2.0**-53


@dataclass(frozen=True)
class ViewDual:
    """W = level I - Phi_T^T B B^T Phi_T for K - shift I = Phi Phi^T, B = `combine` (m, r)."""

    level: float
    combine: Any  # where its view computes; on the host once it is published
    # At most the smallest eigenvalue of K: what the kernel gives to its ridge, or, where rounding
    # has made K indefinite, what it lacks; scores count negative eigenvalues as zero.
    shift: float = 0.0


@dataclass(frozen=True)
class Dual:
    weights: Floats  # (M,) omega
    rows: Indices  # (m,) T, ascending
    views: tuple[ViewDual, ...]

    def published(self, problem: Problem) -> Dual:
        """The same for whoever has no such device."""
        places = (view.place for view in problem.pool.views)
        owns = zip(places, self.views, strict=True)
        views = tuple(replace(own, combine=place.get(own.combine)) for place, own in owns)
        return replace(self, views=views)


class Priced(NamedTuple):
    bound: float  # on F_tau over all sets that the constraints allow
    prices: Floats  # (n,) s_i, rounded up
    best: Indices  # (k,) rows that the constraints allow and whose prices sum to most


class _ViewPass(NamedTuple):
    """What a pass needs of one view."""

    share: float
    level: float
    anchor: Any
    shift: float
    correction: Floats | None  # B, where there is a shift: what it takes from the rows of T
    slack: float  # relative error of a dot product
    size: float  # how large the terms of phi_i . A_j are, for a phi_i of length one


def price(problem: Problem, dual: Dual) -> Priced:
    """What the dual variables prove: one pass over the rows, in float64."""
    k = problem.k
    prices = row_prices(problem, dual)
    # Where squares overflow a price is not a number: nothing is known of such a row, and it must
    # not pass for a cheap one.
    prices = np.where(np.isnan(prices), np.inf, prices)
    constants = [
        view_constant(problem, dual, q) if w > 0 else 0.0 for q, w in enumerate(dual.weights)
    ]
    best = problem.constraints.best_set(prices, k)
    terms = [
        *(w * value for w, value in zip(dual.weights, constants, strict=True)),
        entropy_price(dual.weights, problem.tau),
        float(prices[best].sum()),
    ]
    # Sums of k + M + some terms, and weights that sum to one only to rounding.
    slack = 4.0 * (k + len(constants) + 16) * _UNIT * sum(map(abs, terms))
    bound = float(sum(terms) + slack)
    sound = bound + score_rounding(bound) if np.isfinite(bound) else np.inf
    return Priced(sound, prices, best)


def row_prices(problem: Problem, dual: Dual, *, coarse: bool = False) -> Floats:
    """(n,) s_i, rounded up: one pass; a coarse one is in float32 where that is quicker, and the
    prices are good guesses."""
    pool = problem.pool
    state = tuple(
        _view_pass(view, dual, q, dual.weights[q] / problem.k) for q, view in enumerate(pool.views)
    )
    shifted = any(own.shift for own in state)  # or T, which may be everyone, need not travel
    prices = pool.map(
        _price_rows,
        (dual.rows if shifted else None, state, coarse),
        pool.squared_norms,
        width=sum(v.combine.shape[1] for v in dual.views),
        fixed=True,
    )
    return np.asarray(pool.place.get(prices))


def view_constant(problem: Problem, dual: Dual, q: int) -> float:
    """offset_q + c_q(W_q) / k, with every eigenvalue moved down by what rounding may hide."""
    view, own, k = problem.pool.views[q], dual.views[q], problem.k
    eps = view.ridge + max(own.shift, 0.0)
    B = own.combine
    G = view.quadratic(dual.rows, B)
    if own.shift:
        G -= own.shift * (B.T @ B)
    size, length = _size(view, dual, q), float(view.place.xp.linalg.matrix_norm(G))
    error = _slack(view, len(dual.rows)) * size**2 + 8.0 * len(G) * _UNIT * length
    if not np.isfinite(error):  # what overflows proves nothing
        return np.inf
    with few_threads(float(len(G)) ** 3):
        depths = view.place.eigenvalues(G)
    lowest = np.sort(own.level - depths - error)[:k]  # B may have more columns than that
    if not own.level > 0 or not (lowest > 0).all():
        return np.inf  # W is not positive definite, and proves nothing
    w = np.full(k, own.level)
    w[: len(lowest)] = lowest
    values = conjugate(w, eps)
    rank = min(view.n, view.p)
    if rank < k:  # further eigenvalues of Phi_S^T Phi_S are zero, or at most what counts as zero
        nothing = np.log(eps + view.tail + max(-own.shift, 0.0))
        values[rank:] = np.minimum(values[rank:], nothing)
    c = values.sum()
    return float(problem.offsets[q] + c / k)


def conjugate(w: Floats, eps: float) -> Floats:
    """h(w) = max over t >= 0 of log(t + eps) - w t; falls as w rises."""
    inner = w * eps < 1.0
    with np.errstate(divide="ignore"):
        tangent = -np.log(w) - 1.0 + eps * w
        flat = np.log(eps) if eps > 0 else -np.inf
    return np.where(inner, tangent, flat)


def _view_pass(view: View, dual: Dual, q: int, share: float) -> _ViewPass:
    own = dual.views[q]
    anchor = view.combined(view.anchor(dual.rows), own.combine)
    slack = _slack(view, len(dual.rows))
    correction = own.combine if own.shift else None
    return _ViewPass(share, own.level, anchor, own.shift, correction, slack, _size(view, dual, q))


def _size(view: View, dual: Dual, q: int) -> float:
    """|(sum_t |B_tj| |phi_t|)_j|: by Cauchy and Schwarz no term of A exceeds it.

    A shift is one more term of every row, of its own size however small the row is.
    """
    place, own = view.place, dual.views[q]
    lengths = np.sqrt(view.squared_norms_at(dual.rows) + abs(own.shift))
    terms = abs(place.put(own.combine)).T @ place.put(lengths)
    return float(np.linalg.norm(place.get(terms)))


def _slack(view: View, m: int) -> float:
    """Relative rounding error of phi_i . A_j: sums of m and of p terms, in whatever order."""
    return 4.0 * (view.p + m + 16) * _UNIT


@portable
def _price_rows(
    block: Block, state: tuple[Indices | None, tuple[_ViewPass, ...], bool], squared_norms: Any
) -> Any:
    """s_i of a block, rounded up."""
    rows, views, coarse = state
    xp, prices = block.xp, 0.0 * squared_norms[:, 0]
    for q, (view, own) in enumerate(zip(block.views, views, strict=True)):
        if own.share == 0:
            continue
        v = view.coarse(own.anchor) if coarse else view.cross(own.anchor)
        if rows is not None and own.correction is not None:
            low, high = np.searchsorted(rows, [block.start, block.stop])
            here = block.put(rows[low:high] - block.start)
            v[here] -= block.put(own.shift * own.correction[low:high])
        norms = squared_norms[:, q]
        sizes = norms + abs(own.shift)  # of the terms that were added: see `_size`
        sure = xp.sqrt(block.place.square_sums(v)) * (1.0 - own.slack)
        sure = (sure - own.slack * own.size * xp.sqrt(sizes)).clip(0.0)
        whole = own.level * (norms - own.shift + own.slack * sizes)
        prices += own.share * (whole - sure**2).clip(0.0) * (1.0 + 8.0 * _UNIT)
    return prices
