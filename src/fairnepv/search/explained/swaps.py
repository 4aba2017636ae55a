"""All one-swaps of a set under explained variance, from two products per view.

With T = L_S^-1, U = K[:, S], V = U T, E = K[:, S] T and H = E^T diag(w) E over the trace of G: y is
what the residual of a row shares with every column of E, and exchanging slot j for row i gains
(b_i T_jj + 2 v_ij y_ij - H_jj c_i) / (c_i T_jj + v_ij^2) (docs/method.md#explained-variance).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Block, Place, few_threads, portable
from fairnepv.compute.clock import check_time
from fairnepv.objective import Standing, steepness
from fairnepv.problem import Problem
from fairnepv.search.ladders import SwapLadders
from fairnepv.search.promises import Promises
from fairnepv.search.subset import Chosen
from fairnepv.search.ties import coarse_error, worth_coarse
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.moments import columns_of, second_shares

_STRAINED = 1e3  # |phi|^2 max T_jj up to which inverses hold all digits that ties are told by
_TINY = float(np.finfo(np.float32).tiny)
_UNIT = float(np.finfo(np.float64).eps)


class ViewSet(NamedTuple):
    """A set in one view; arrays are where the blocks of the view are."""

    columns: Any  # (p, 2 k) Phi_S, and A with Phi A = 2 y
    T: Any  # (k, k)
    H: Any  # (k, k)

    def gains(self, block: Block, products: Any, norms: Any, seconds: Any, eps: float) -> Any:
        """(b, k) of all swaps with rows whose products with the columns are given, in their
        precision."""
        k, place = len(self.T), block.place
        U, Y = products[:, :k], products[:, k:]
        V, W = U @ self.T, U @ self.H
        W += Y
        c = (norms - place.row_dots(U, V)).clip(0.0) + eps
        b = (seconds - place.row_dots(U, W)).clip(0.0)
        pivots, own = self.T.diagonal(), self.H.diagonal()
        return gain_of_swaps(place, V, Y, c, b, pivots, own, W)


def gain_of_swaps(
    place: Place, v: Any, y: Any, c: Any, b: Any, pivots: Any, g: Any, out: Any
) -> Any:
    """What every swap adds to a total, into `out`: of v and 2 y (m, k), c and b (m,) of rows, and
    T_jj and H_jj (k,) of slots."""
    xp = place.xp
    right = xp.stack([pivots, -g])
    for rows in place.runs(*v.shape):
        part, own, size = out[rows], v[rows], c[rows]
        xp.multiply(own, y[rows], out=part)
        part += xp.stack([b[rows], size], axis=1) @ right
        divisor = own * own
        divisor += size[:, None] * pivots
        part /= divisor.clip(_TINY)  # nothing is left of a chosen row beside its own slot
    return out


def _in_view(view: View, indices: Indices) -> tuple[ViewSet, float]:
    """The set in one view, and its total there."""
    check_time()
    place, Phi = view.block_place, columns_of(view, indices)  # (p, k)
    T, _ = place.inverse(place.put(view.ridged(indices)))
    combined = (view.moments.apply(Phi, place) / view.moments.trace) @ T
    inner = Phi.T @ combined  # K2[S, S] T
    H = T @ inner
    columns = place.xp.concat([Phi, 2.0 * (combined - Phi @ H)], axis=1)
    return ViewSet(columns, T, H), float(inner.trace())


@dataclass(frozen=True)
class ExplainedSet(Chosen):
    problem: Problem
    indices: Indices
    views: tuple[ViewSet, ...]
    totals: Floats  # (M,)

    @classmethod
    def of(cls, problem: Problem, indices: Indices) -> ExplainedSet:
        with few_threads(float(len(indices)) ** 2 * problem.pool.width):
            made = [_in_view(view, indices) for view in problem.pool.views]
        views, totals = zip(*made, strict=True)
        return cls(problem, indices, views, np.array(totals))

    @property
    def strain(self) -> float:
        """The largest squared norm times the largest T_jj: what rounding is multiplied by."""
        pool = self.problem.pool
        own = zip(pool.views, self.views, strict=True)
        pivots = [float(view.block_place.get(made.T.diagonal()).max()) for view, made in own]
        return float((pool.largest_norms * np.array(pivots)).max())

    @property
    def strained(self) -> bool:
        return self.strain > _STRAINED

    @property
    def rounding(self) -> float:
        """How far the gain of a swap may be off in float64."""
        return 16.0 * _UNIT * self.strain

    @property
    def doubt(self) -> float:
        """The same at worst: a product with an inverse errs by the square of what strains it."""
        return _UNIT * self.strain**2 if self.strained else self.rounding

    def look(self, coarse: bool) -> Look:
        return Look(self.views, self.standing, self.problem.pool.eps, coarse)


class Look(NamedTuple):
    """The small state of a look at all swaps."""

    views: tuple[ViewSet, ...]
    standing: Standing
    eps: Floats
    coarse: bool

    def gains(self, block: Block, norms: Any, seconds: Any) -> list[Any]:
        """(b, k) by view, where the block is."""
        xp, found = block.xp, []
        kind = xp.float32 if self.coarse else xp.float64
        for q, (view, made) in enumerate(zip(block.views, self.views, strict=True)):
            there = ViewSet(*(xp.astype(block.put(x), kind, copy=False) for x in made))
            own = view.onto(block.put(made.columns), self.coarse)
            products = xp.astype(block.put(own), kind, copy=False)
            size, second = (xp.astype(x[:, q], kind, copy=False) for x in (norms, seconds))
            found.append(there.gains(block, products, size, second, float(self.eps[q])))
        return found

    def promised(self, block: Block, norms: Any, seconds: Any) -> Any:
        """As `Promises` asks, of the diagonals of both kernels."""
        return self.rise(self.gains(block, norms, seconds))

    def rise(self, gains: list[Any]) -> Any:
        """(b, k) a bound on what F_tau could rise by with each swap, as it is concave."""
        weights = self.standing.slopes.tolist()
        total = weights[0] * gains[0]
        for weight, own in zip(weights[1:], gains[1:], strict=True):
            total += weight * own
        return total


def worth_float32(problem: Problem) -> bool:
    return worth_coarse(problem, swap_error(problem))


def swap_error(problem: Problem) -> float:
    """How far a gain may be off in float32, as a share of what a row explains alone."""
    pool = problem.pool
    ratio = float((pool.largest_norms / pool.eps).max(initial=0.0))
    return coarse_error(problem, looks=True) * (1.0 + math.sqrt(ratio))


def _sizes(problem: Problem) -> tuple[Floats, Floats]:
    """(n, M) diagonals of the kernels, and those of second order over the traces."""
    return problem.pool.squared_norms, second_shares(problem.pool)


def largest_gain(problem: Problem) -> float:
    """At most what one row can explain of any view."""
    pool, (norms, seconds) = problem.pool, _sizes(problem)
    return float((seconds / (norms + pool.eps)).max())


# --- what rows promise ----------------------------------------------------------------------------


def promises_of(problem: Problem, indices: Indices) -> Promises:
    chosen, width = ExplainedSet.of(problem, indices), 8 * len(problem.pool.views) * len(indices)
    return Promises(chosen.look, _sizes(problem), width)


# --- the best of all swaps ------------------------------------------------------------------------


class _Pass(NamedTuple):
    look: Look
    allowed: NDArray[np.bool_]
    above: float  # swaps that do not reach this need not be ranked
    tie: float

    def ladders(self, slots: Indices, rows: Indices, gains: Floats) -> SwapLadders:
        scores = self.look.standing.fair_scores(gains)
        return SwapLadders.of(slots, rows, scores, self.tie, coarse=self.look.coarse)


def best_swaps(chosen: ExplainedSet, *, above: float, coarse: bool) -> SwapLadders:
    """The best row for every slot over the full pool, of those whose F_tau exceeds `above`."""
    problem = chosen.problem
    pool, (norms, seconds) = problem.pool, _sizes(problem)
    rules = problem.constraints.may_swap(chosen.indices, problem.n)
    tie = max(problem.tolerances.tie, steepness(problem) * chosen.rounding)
    error = 2.0 * swap_error(problem) * largest_gain(problem) if coarse else 0.0
    state = _Pass(chosen.look(coarse=coarse), rules.allowed, above, tie + error)
    found: SwapLadders = pool.reduce(
        _rank_swaps,
        SwapLadders.merged,
        state,
        norms,
        seconds,
        rules.blocked,
        rules.groups,
        width=8 * len(pool.views) * len(chosen.indices),
        fixed=coarse,
    )
    if not coarse:
        return found
    exact = state._replace(look=chosen.look(coarse=False), tie=tie)
    return _confirmed(chosen, found, exact)._replace(crowded=found.crowded)


@portable
def _rank_swaps(
    block: Block, state: _Pass, norms: Any, seconds: Any, blocked: Any, groups: Any
) -> SwapLadders:
    gains = state.look.gains(block, norms, seconds)
    rise = state.look.rise(gains)
    rise[blocked] = -np.inf
    if not state.allowed.all():
        rise[~block.put(state.allowed)[groups]] = -np.inf
    needed = state.look.standing.missing(state.above - state.tie)
    rows, slots = block.place.entries_above(rise, needed)
    found = block.xp.stack([own[rows, slots] for own in gains])  # (M, found)
    rows, slots = block.get(rows) + block.start, block.get(slots)
    return state.ladders(slots, rows, block.get(found).astype(np.float64))


def _confirmed(chosen: ExplainedSet, found: SwapLadders, state: _Pass) -> SwapLadders:
    """The ladders of these swaps by gains in float64, from gathered rows."""
    pool, (norms, seconds) = chosen.problem.pool, _sizes(chosen.problem)
    moves, ladders = found.by_row(), SwapLadders.none(state.tie)
    held = pool.row_width + 6 * len(pool.views) * len(chosen.indices)  # numbers by row
    size = max(64, chosen.problem.means.confirmed // held)
    for start in range(0, len(moves), size):
        rows, slots = moves[start : start + size].T
        once, at = np.unique(rows, return_inverse=True)
        block = pool.gather(once, 0, len(once))
        sizes = block.put(norms[once]), block.put(seconds[once])
        gains = [block.get(own)[at, slots] for own in state.look.gains(block, *sizes)]
        ladders = ladders.merged(state.ladders(slots, rows, np.array(gains)))
    return ladders
