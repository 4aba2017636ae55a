"""Relaxations to memberships x with 0 <= x <= 1 and sum x = k [FairNEPv, section 2].

The softmax extension [Gillenwater] and the D-optimal design [Nikolov] of the averaged kernel
L = Phi Phi^T + eps I. Both stand on log det(I + Phi^T diag(w) Phi / c) for some weights w, which is
worked out on a small side of Phi. Both are rounded to the k largest x, which the authors of the
former call threshold rounding (they try pipage rounding as well), and refined under log det of the
averaged kernel, which both relax.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri

from fairnepv.compute import HOST, Block
from fairnepv.compute.clock import check_time, expect
from fairnepv.errors import Status
from fairnepv.loop import Context
from fairnepv.methods.baselines.refined import averaged, refine_under
from fairnepv.problem import WIDEST_GRAM, Problem
from fairnepv.search import Effort, Found, greedy
from fairnepv.search.ties import ranked
from fairnepv.views import Pool
from fairnepv.views.base import Floats

_MAX_STEPS = 500
_TIE = 1e-8  # memberships closer than this are tied; the lowest index goes first
_ARMIJO = 1e-4  # share of the promised gain that a step must bring
_WIDEST_STEP = 100.0  # spread of a step before it is projected; beyond, digits of x are lost
_ROUNDING = 1e-13  # gains of the objective, and steps of x, that mean nothing any more


def largest_memberships(
    kind: type[Point], problem: Problem, effort: Effort, context: Context
) -> Found:
    """The k largest memberships where the ascent ends: at the optimum of the D-optimal design with
    lambda = eps, or at a stationary point of the softmax extension."""
    outcome = context.run(ascent(problem, kind), max_steps=_MAX_STEPS)
    if context.stopped and not outcome.steps:
        context.notes.append("no membership was known when time was up; greedy chose the items")
        return replace(greedy(problem, context), status=outcome.status)
    found = Found(ranked(outcome.state.x, _TIE, problem.k)[: problem.k], outcome.status)
    own = problem.over(averaged(problem.pool, factor_apart=True))
    return refine_under(own, found, effort, context)


def ascent(problem: Problem, kind: type[Point]) -> Ascent:
    """The solver of one of the two relaxations."""
    pool = averaged(problem.pool)
    weigh: Weighing = functools.partial(ColumnFactor, pool)
    # Rows drop out of the work as their membership falls to zero and columns do not, so the side of
    # the rows is the cheaper one a little beyond n = p.
    if pool.n <= min(2 * pool.width, WIDEST_GRAM):
        expect(2.0 * pool.n * pool.stored)
        weigh = functools.partial(RowFactor, pool.views[0].whole_kernel())
    at = functools.partial(kind, weigh, float(pool.eps[0]))
    return Ascent(at, problem.n, problem.k, tol=kind.gap * problem.k)


# --- projected gradient ascent over the memberships -----------------------------------------------


@dataclass(frozen=True)
class AscentState:
    x: Floats  # (n,)
    length: float  # of the next step along the gradient; 0 once rounding hides every gain
    passes: int = 0


class Ascent:
    """From the uniform point on, each step higher than the one before.

    Steps have the length of Barzilai and Borwein, and are cut until they bring their share of what
    the gradient promises. Where the objective is concave the gap bounds what is missing; elsewhere
    it says how far from stationary a point is.
    """

    stage = "memberships"

    def __init__(self, at: Callable[[Floats], Point], n: int, k: int, *, tol: float) -> None:
        self.at, self.n, self.k, self.tol = at, n, k, tol
        self._last: tuple[Floats, Point] | None = None

    def init(self) -> AscentState:
        return AscentState(np.full(self.n, self.k / self.n), np.inf, passes=2)

    def step(self, state: AscentState) -> AscentState:
        x, here = state.x, self._point(state.x)
        g, passes = here.gradient, state.passes
        spread = max(float(np.ptp(g)), np.finfo(np.float64).tiny)
        length = min(state.length, _WIDEST_STEP / spread)
        while True:
            y = project(x + length * g, self.k)
            promised = float(g @ (y - x))
            hidden = promised <= _ROUNDING * max(1.0, abs(here.value))
            if hidden or length * spread <= _ROUNDING:
                return AscentState(x, 0.0, passes)
            there, passes = self.at(y), passes + 1
            if there.value >= here.value + _ARMIJO * promised:
                break
            length /= 4.0
        self._last = (y, there)
        bend = float((x - y) @ (there.gradient - g))
        length = float((y - x) @ (y - x)) / bend if bend > 0 else np.inf
        return AscentState(y, length, passes + 1)

    def done(self, state: AscentState) -> Status | None:
        if self.gap(state) <= self.tol:
            return Status.CONVERGED
        return Status.ROUNDING_FLOOR if state.length == 0.0 else None

    def report(self, state: AscentState) -> Mapping[str, Any]:
        return {"objective": self._point(state.x).value, "gap": self.gap(state), "tol": self.tol}

    def gap(self, state: AscentState) -> float:
        """The most that any feasible point gains over this one to first order."""
        g = self._point(state.x).gradient
        return float(np.partition(g, -self.k)[-self.k :].sum() - g @ state.x)

    def _point(self, x: Floats) -> Point:
        """The last point is kept, so that a state needs to hold x alone."""
        if self._last is None or self._last[0] is not x:
            self._last = (x, self.at(x))
        return self._last[1]


def project(y: Floats, k: int) -> Floats:
    """The nearest point of {0 <= x <= 1, sum x = k}: clip(y - nu, 0, 1) for the right nu.

    The sum falls from n to 0 as nu grows and is linear between knots, where an entry starts or
    stops to count; so the two knots around k are found by bisection.
    """
    knots = np.sort(np.concatenate([y - 1.0, y]))
    low, high = 0, len(knots) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _clipped(y, knots[middle]).sum() >= k:
            low = middle
        else:
            high = middle
    above, below = _clipped(y, knots[low]).sum(), _clipped(y, knots[high]).sum()
    share = (above - k) / (above - below)
    return _clipped(y, knots[low] + share * (knots[high] - knots[low]))


def _clipped(y: Floats, nu: float) -> Floats:
    return np.clip(y - nu, 0.0, 1.0)


# --- the two objectives ---------------------------------------------------------------------------


class DesignPoint:
    """log det(sum_i x_i phi_i phi_i^T + eps I) - p log eps [FairNEPv, Eq. (2)]; concave."""

    gap = 1e-2  # per item, at the end; at 1e-3 scores on the UCI and OpenMoji pools are the same

    def __init__(self, weigh: Weighing, eps: float, x: Floats) -> None:
        self._factor = weigh(x, eps)
        self.value = self._factor.logdet

    @functools.cached_property
    def gradient(self) -> Floats:
        return self._factor.leverage()


class SoftmaxPoint:
    """log det(I + diag(x)(L - I)) [FairNEPv, Eq. (1)]; not concave.

    With E = 1 - x + eps x the matrix is diag(E) (I + diag(x/E) Phi Phi^T), and E > 0 as eps > 0.
    """

    gap = 1e-5  # likewise; memberships are nearly 0 or 1 by then, at 1e-3 they are not

    def __init__(self, weigh: Weighing, eps: float, x: Floats) -> None:
        self._eps, self._E = eps, 1.0 - x + eps * x
        self._factor = weigh(x / self._E, 1.0)
        self.value = self._factor.logdet + float(np.log(self._E).sum())

    @functools.cached_property
    def gradient(self) -> Floats:
        return (self._factor.leverage() / self._E - (1.0 - self._eps)) / self._E


Point = DesignPoint | SoftmaxPoint  # an objective at some x


# --- I + Phi^T diag(w) Phi / c, on a small side ---------------------------------------------------
# `logdet` is of this matrix; `leverage` is its derivative by w_i,
# (n,) phi_i^T (c I + Phi^T diag(w) Phi)^-1 phi_i.


class RowFactor:
    """From K = Phi Phi^T, as c I + T K T for T = diag(sqrt w) on the rows that have a weight; the
    others cost nothing but their leverage."""

    def __init__(self, K: Floats, w: Floats, c: float) -> None:
        check_time()
        self._K, self._c = K, c
        rows = np.flatnonzero(w)
        self._TK = np.sqrt(w[rows, None]) * K[rows]  # (s, n)
        G = self._TK[:, rows] * np.sqrt(w[rows])
        self._C = cholesky(_plus(G, c), lower=True, check_finite=False)
        self.logdet = _logdet(self._C) - len(rows) * float(np.log(c))

    def leverage(self) -> Floats:
        check_time()
        v = solve_triangular(self._C, self._TK, lower=True, check_finite=False)
        explained = np.einsum("ij,ij->j", v, v)
        return np.asarray(np.maximum(np.diagonal(self._K) - explained, 0.0) / self._c)


class ColumnFactor:
    """From the rows themselves, block by block."""

    def __init__(self, pool: Pool, w: Floats, c: float) -> None:
        self._pool = pool
        B = pool.reduce(_weighted_gram, np.add, None, w, width=pool.width, fixed=True)
        self._C = cholesky(_plus(B, c), lower=True, check_finite=False)
        self.logdet = _logdet(self._C) - pool.width * float(np.log(c))

    def leverage(self) -> Floats:
        inverse, _ = dtrtri(self._C, lower=1)
        basis = np.ascontiguousarray(inverse.T)
        return self._pool.map(_row_norms_in, basis, width=self._pool.width, fixed=True)


Weighing = Callable[[Floats, float], RowFactor | ColumnFactor]  # by w and c


def _weighted_gram(block: Block, state: None, w: Floats) -> Floats:
    rows = np.flatnonzero(w)
    Phi = np.sqrt(w[rows, None]) * HOST.dense(block.views[0].features()[rows])
    return np.asarray(Phi.T @ Phi)


def _row_norms_in(block: Block, basis: Floats) -> Floats:
    v = np.asarray(block.views[0].features() @ basis)
    return np.asarray(np.einsum("ij,ij->i", v, v))


def _plus(G: Floats, c: float) -> Floats:
    """G + c I, in place."""
    G.flat[:: len(G) + 1] += c
    return G


def _logdet(C: Floats) -> float:
    return 2.0 * float(np.log(np.diagonal(C)).sum())
