"""Relaxations to memberships x with 0 <= x <= 1 and sum x = k [FairNEPv, section 2].

The softmax extension [Gillenwater] and the D-optimal design [Nikolov] of the averaged kernel
L = Phi Phi^T + eps I. Both stand on log det(I + Phi^T diag(w) Phi / c) for some weights w, which is
worked out on a small side of Phi. Both are rounded to the k largest x, which the authors of the
former call threshold rounding (they try pipage rounding as well), and no swaps follow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri

from fairnepv.compute import Block
from fairnepv.loop import Context
from fairnepv.methods.baselines.ascent import Ascent
from fairnepv.methods.baselines.refined import averaged
from fairnepv.problem import WIDEST_GRAM, Problem
from fairnepv.search import Effort, Found
from fairnepv.search.ties import ranked
from fairnepv.views import Pool
from fairnepv.views.base import Floats

_MAX_STEPS = 500
_TIE = 1e-8  # memberships closer than this are tied; the lowest index goes first


def largest_memberships(
    kind: type[DesignPoint | SoftmaxPoint], problem: Problem, effort: Effort, context: Context
) -> Found:
    """The k largest memberships where the ascent ends: at the optimum of the D-optimal design with
    lambda = eps, or at a stationary point of the softmax extension."""
    outcome = context.run(ascent(problem, kind), max_steps=_MAX_STEPS)
    return Found(ranked(outcome.state.x, _TIE)[: problem.k], outcome.status)


def ascent(problem: Problem, kind: type[DesignPoint | SoftmaxPoint]) -> Ascent:
    """The solver of one of the two relaxations."""
    pool = averaged(problem.pool)
    weigh: Weighing = functools.partial(ColumnFactor, pool)
    # Rows drop out of the work as their membership falls to zero and columns do not, so the side of
    # the rows is the cheaper one a little beyond n = p.
    if pool.n <= min(2 * pool.width, WIDEST_GRAM):
        weigh = functools.partial(RowFactor, pool.views[0].whole_kernel())
    at = functools.partial(kind, weigh, float(pool.eps[0]))
    return Ascent(at, problem.n, problem.k, tol=kind.gap * problem.k)


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


# --- I + Phi^T diag(w) Phi / c, on a small side ---------------------------------------------------
# `logdet` is of this matrix; `leverage` is its derivative by w_i,
# (n,) phi_i^T (c I + Phi^T diag(w) Phi)^-1 phi_i.


class RowFactor:
    """From K = Phi Phi^T, as c I + T K T for T = diag(sqrt w) on the rows that have a weight; the
    others cost nothing but their leverage."""

    def __init__(self, K: Floats, w: Floats, c: float) -> None:
        self._K, self._c = K, c
        rows = np.flatnonzero(w)
        self._TK = np.sqrt(w[rows, None]) * K[rows]  # (s, n)
        G = self._TK[:, rows] * np.sqrt(w[rows])
        self._C = cholesky(_plus(G, c), lower=True, check_finite=False)
        self.logdet = _logdet(self._C) - len(rows) * float(np.log(c))

    def leverage(self) -> Floats:
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
    Phi = block.views[0].features()[rows]
    Phi = Phi.toarray() if sp.issparse(Phi) else Phi
    Phi = np.sqrt(w[rows, None]) * Phi
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
