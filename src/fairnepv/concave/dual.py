"""A bound that anybody can check: dual variables, and what they prove, with rounding accounted for.

For any weights w of the views and any linear bounds s_q . 1_S + c_q on their totals, every S has
F_tau(S) <= tau KL(w | pi) + sum_q w_q (offset_q + c_q / k) + sum_{i in S} sum_q (w_q / k) s_qi, by
the variational form of the soft-min. Where the dual variables came from does not matter, so a bad
solver costs tightness and never truth. What they are in a view is for its utility to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import Block, portable
from fairnepv.concave.spectral import diagonal_bound, score_rounding
from fairnepv.objective import ViewDual, entropy_price, soft_min_weights, utility_of
from fairnepv.objective.majorant import HALF_UNIT
from fairnepv.objective.spanned import SpannedPricing
from fairnepv.problem import Problem
from fairnepv.views import Pool, View
from fairnepv.views.base import Floats, Indices

__all__ = ["Dual", "Priced", "ViewDual", "price", "row_prices"]


@dataclass(frozen=True)
class Dual:
    weights: Floats  # (M,) omega
    rows: Indices  # (m,) T, ascending
    views: tuple[Any, ...]  # of the type that the utility has for them, such as `ViewDual`

    @classmethod
    def by_norms(cls, problem: Problem) -> Dual:
        """What the norms of the rows prove by themselves, without a product; also to check it."""
        views, utility, k = problem.pool.views, utility_of(problem), problem.k
        bounds = np.array([diagonal_bound(view, k, utility) for view in views]) + problem.lifts
        shifts = [view.smallest_eigenvalue(margin=2.0) for view in views]
        own = zip(views, shifts, strict=True)
        duals = tuple(utility.bound_by_norms(view, k, shift) for view, shift in own)
        return cls(soft_min_weights(bounds, problem.tau), np.zeros(1, dtype=np.int64), duals)

    def published(self, views: Sequence[View]) -> Dual:
        """The same on the host, to be stored or checked without the device, for these views."""
        own = zip(self.views, views, strict=True)
        return replace(self, views=tuple(dual.published(view) for dual, view in own))


class Priced(NamedTuple):
    bound: float  # on F_tau over all sets that the constraints allow
    prices: Floats  # (n,) s_i, rounded up
    best: Indices  # (k,) rows that the constraints allow and whose prices sum to most


def price(problem: Problem, dual: Dual) -> Priced:
    """What the dual variables prove: one pass over the rows, in float64."""
    k, views = problem.k, problem.pool.views
    prices = row_prices(problem, dual)
    # Where squares overflow a price is not a number: nothing is known of such a row, and it must
    # not pass for a cheap one.
    prices = np.where(np.isnan(prices), np.inf, prices)
    divisor = utility_of(problem).divisor(k)
    constants = [
        w * float(offset + own.constant(view, dual.rows, k) / divisor) if w > 0 else 0.0
        for w, offset, own, view in zip(
            dual.weights, problem.offsets, dual.views, views, strict=True
        )
    ]
    best = problem.constraints.best_set(prices, k)
    terms = [*constants, entropy_price(dual.weights, problem.tau), float(prices[best].sum())]
    # Sums of k + M + some terms, and weights that sum to one only to rounding.
    slack = 4.0 * (k + len(constants) + 16) * HALF_UNIT * sum(map(abs, terms))
    bound = float(sum(terms) + slack)
    sound = bound + score_rounding(bound) if np.isfinite(bound) else np.inf
    return Priced(sound, prices, best)


def row_prices(problem: Problem, dual: Dual, *, coarse: bool = False) -> Floats:
    """(n,) s_i, rounded up: one pass; a coarse one is in float32 where that is quicker, and the
    prices are good guesses."""
    pool, shares = problem.pool, dual.weights / utility_of(problem).divisor(problem.k)
    state = tuple(
        own.pricing(view, dual.rows, share, coarse=coarse)
        for own, view, share in zip(dual.views, pool.views, shares, strict=True)
    )
    if all(own.flat for own in state):  # which needs no pass
        parts = zip(state, pool.squared_norms.T, strict=True)
        return np.asarray(sum(own.by_norms(norms) for own, norms in parts))
    prices: Floats = np.zeros(problem.n)
    together = [q for q, own in enumerate(state) if not isinstance(own, SpannedPricing)]
    for q in set(range(len(state))) - set(together):
        prices += _prices_by_targets(pool.only(pool.names[q]), state[q], coarse)
    if together:
        if len(together) < len(state):
            views = tuple(pool.views[q] for q in together)
            pool = pool.with_views(tuple(pool.names[q] for q in together), views)
        # Without a shift T, which may be all rows, need not travel.
        shifted = any(dual.views[q].shift for q in together)
        found = pool.map(
            _price_rows,
            (dual.rows if shifted else None, tuple(state[q] for q in together), coarse),
            pool.squared_norms,
            width=sum(dual.views[q].width for q in together),
            fixed=True,
        )
        prices = prices + pool.place.get(found)
    return prices


def _prices_by_targets(pool: Pool, own: SpannedPricing, coarse: bool) -> Floats:
    """(n,) of one view whose rows are multiplied with target rows, on the host."""
    if own.share == 0:
        return np.zeros(pool.n)
    norms = pool.squared_norms[:, 0]
    found = pool.map(_price_by_targets, (own, coarse), norms, width=own.width, fixed=True)
    return np.asarray(pool.place.get(found))


def _price_by_targets(block: Block, state: tuple[SpannedPricing, bool], norms: Any) -> Any:
    own, coarse = state
    return own.prices(block.views[0], norms, coarse)


@portable
def _price_rows(
    block: Block, state: tuple[Indices | None, tuple[Any, ...], bool], squared_norms: Any
) -> Any:
    """s_i of a block, rounded up."""
    T, views, coarse = state
    prices = 0.0 * squared_norms[:, 0]
    for q, (view, own) in enumerate(zip(block.views, views, strict=True)):
        if own.share != 0:
            prices += own.prices(block, view, squared_norms[:, q], T, coarse)
    return prices
