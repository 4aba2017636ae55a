"""Nodes of branch and bound, for log-determinants and for explained variance.

A branch has chosen some rows and holds what is left of the kernels of its candidates. Conditional
on the chosen the problem has the same form again, for either utility; how kernels are conditioned,
what rows can bring at most and what the last ones bring is the matter of an `Algebra`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from fairnepv.compute.clock import check_time
from fairnepv.objective import HeldRows
from fairnepv.objective.explained_bound import HeldVariance
from fairnepv.problem import Problem
from fairnepv.search.ties import set_rounding
from fairnepv.views.base import Floats, Indices
from fairnepv.views.moments import second_inner


class Branch(NamedTuple):
    """A node with the kernels of its candidates, conditional on what is chosen."""

    chosen: Indices  # rows
    rows: Indices  # (m,) candidates
    room: int  # how many of them are still to be chosen
    base: Floats  # (M,) totals of the chosen
    K: Floats  # (M, m, m), without the ridge
    K2: Floats | None = None  # (M, m, m) kernels of second order over tr G, where they count

    def restrict(self, keep: Indices) -> Branch:
        at = slice(None), keep[:, None], keep
        second = None if self.K2 is None else self.K2[at]
        return self._replace(rows=self.rows[keep], K=self.K[at], K2=second)


class Algebra(Protocol):
    """What a utility has to say about branches."""

    rounding: float  # how far totals of sets may be off, per item, for what kernels lose

    def branch(self, chosen: Indices, rows: Indices, room: int) -> Branch: ...

    def measures(self, branch: Branch) -> Floats:
        """(M, m) numbers of the candidates, by whose sum over a set its total is bounded."""

    def ceiling(self, branch: Branch, sums: Floats) -> Floats:
        """(M, ...) the bound on totals for such sums (M, ...): concave, and rising with them."""

    def tangent(self, branch: Branch, sums: Floats) -> tuple[Floats, Floats]:
        """(M,) constants and slopes of the tangent of the bound at these sums (M,)."""

    def condition(self, branch: Branch, j: int) -> Branch:
        """Candidate j chosen, those before it given up."""

    def singles(self, branch: Branch) -> Floats:
        """(M, m) totals with one more candidate."""

    def pairs(self, branch: Branch, i: Indices, j: Indices) -> Floats:
        """(M, t) totals with candidates i and j."""

    def held(self, branch: Branch) -> tuple[Any, ...]:
        """The candidates as the relaxation takes them, by view."""


class Determinants:
    """Log-determinants, bounded by Hadamard's inequality.

    Kernels are held in units of their longest row, a power of two: float64 has no place for the
    determinant of two rows of length 1e100, nor of 1e-100.
    """

    def __init__(self, problem: Problem) -> None:
        views = problem.pool.views
        shifts = np.array([max(view.smallest_eigenvalue(), 0.0) for view in views])
        self.kernels = _kernels(problem)
        self.kernels -= shifts[:, None, None] * np.eye(problem.n)
        self.eps = problem.pool.eps + shifts
        self.rounding = set_rounding(problem, self.eps)
        units = np.exp2(np.rint(np.log2(problem.pool.largest_norms + problem.pool.eps)))
        self.kernels /= units[:, None, None]
        self.eps /= units
        self._units = problem.k * np.log(units)  # what they add to the totals of k items

    def branch(self, chosen: Indices, rows: Indices, room: int) -> Branch:
        K, base = self.kernels[:, rows[:, None], rows], self._units
        if len(chosen):
            C = _factor(self.kernels, self.eps, chosen)
            base = base + 2.0 * np.log(np.diagonal(C, axis1=1, axis2=2)).sum(axis=1)
            V = np.linalg.solve(C, self.kernels[:, chosen[:, None], rows])
            K = K - V.swapaxes(1, 2) @ V
        return Branch(chosen, rows, room, base, K)

    def measures(self, branch: Branch) -> Floats:
        return np.asarray(np.log(_diagonals(branch.K) + self.eps[:, None]))

    def ceiling(self, branch: Branch, sums: Floats) -> Floats:
        return np.asarray((branch.base + sums.T).T)

    def tangent(self, branch: Branch, sums: Floats) -> tuple[Floats, Floats]:
        return branch.base, np.ones(len(sums))

    def condition(self, branch: Branch, j: int) -> Branch:
        c, v = branch.K[:, j, j] + self.eps, branch.K[:, j, j + 1 :]
        K = branch.K[:, j + 1 :, j + 1 :] - (v / c[:, None])[:, :, None] * v[:, None, :]
        chosen = np.append(branch.chosen, branch.rows[j])
        return Branch(chosen, branch.rows[j + 1 :], branch.room - 1, branch.base + np.log(c), K)

    def singles(self, branch: Branch) -> Floats:
        return branch.base[:, None] + self.measures(branch)

    def pairs(self, branch: Branch, i: Indices, j: Indices) -> Floats:
        return np.asarray(branch.base[:, None] + np.log(_pair_determinants(branch, self.eps, i, j)))

    def held(self, branch: Branch) -> tuple[HeldRows, ...]:
        own = zip(self.eps.tolist(), branch.K, strict=True)
        return tuple(HeldRows(eps, np.diagonal(K).copy(), kernel=K) for eps, K in own)


class Variances:
    """Explained variance: with the residual kernel R of the chosen and R2 = R diag(w) R / tr G, a
    further set B explains tr((R_BB + eps I)^-1 R2_BB) more.

    A multiple of the identity for D (`objective.shrinkage`) bounds that by v s / (v + s), for the
    variance v that is left and the sum s of R2_ii / eps.
    """

    def __init__(self, problem: Problem) -> None:
        views, everyone = problem.pool.views, np.arange(problem.n)
        self.eps, self.kernels = problem.pool.eps, _kernels(problem)
        self.seconds = np.empty_like(self.kernels)
        for second, view in zip(self.seconds, views, strict=True):
            check_time()
            second[:] = second_inner(view, everyone, everyone)
            second /= view.moments.trace
        self.rounding = problem.k * set_rounding(problem, self.eps)

    def branch(self, chosen: Indices, rows: Indices, room: int) -> Branch:
        at = slice(None), rows[:, None], rows
        K, K2, base = self.kernels[at], self.seconds[at], np.zeros(len(self.eps))
        if len(chosen):
            C = _factor(self.kernels, self.eps, chosen)
            V = np.linalg.solve(C, self.kernels[:, chosen[:, None], rows])
            E = np.linalg.solve(C.swapaxes(1, 2), V)  # L^-1 K, by which the chosen explain rows
            own = self.seconds[:, chosen[:, None], chosen]
            halfway = E.swapaxes(1, 2) @ self.seconds[:, chosen[:, None], rows]
            K = K - V.swapaxes(1, 2) @ V
            K2 = K2 - halfway - halfway.swapaxes(1, 2) + E.swapaxes(1, 2) @ own @ E
            inner = np.linalg.solve(C, np.linalg.solve(C, own).swapaxes(1, 2))
            base = np.trace(inner, axis1=1, axis2=2)
        return Branch(chosen, rows, room, base, K, K2)

    def measures(self, branch: Branch) -> Floats:
        return np.asarray(_diagonals(branch.K2) / self.eps[:, None])

    def ceiling(self, branch: Branch, sums: Floats) -> Floats:
        left = self._left(branch).reshape((-1,) + (1,) * (sums.ndim - 1))
        with np.errstate(divide="ignore"):
            more = np.where((sums > 0) & (left > 0), left / (1.0 + left / sums), 0.0)
        return np.asarray((branch.base + more.T).T)

    def tangent(self, branch: Branch, sums: Floats) -> tuple[Floats, Floats]:
        left = self._left(branch)
        with np.errstate(invalid="ignore"):
            share = np.where(left + sums > 0, left / (left + sums), 1.0)
        slopes = share**2
        return self.ceiling(branch, sums) - slopes * sums, slopes

    def condition(self, branch: Branch, j: int) -> Branch:
        assert branch.K2 is not None
        after = slice(j + 1, None)
        c, v = branch.K[:, j, j] + self.eps, branch.K[:, j, after]
        b, u = branch.K2[:, j, j], branch.K2[:, j, after]
        share = v / c[:, None]
        K = branch.K[:, after, after] - share[:, :, None] * v[:, None, :]
        both = share[:, :, None] * (u - 0.5 * b[:, None] * share)[:, None, :]
        K2 = branch.K2[:, after, after] - both - both.swapaxes(1, 2)
        chosen = np.append(branch.chosen, branch.rows[j])
        return Branch(chosen, branch.rows[after], branch.room - 1, branch.base + b / c, K, K2)

    def singles(self, branch: Branch) -> Floats:
        c = _diagonals(branch.K) + self.eps[:, None]
        return np.asarray(branch.base[:, None] + _diagonals(branch.K2) / c)

    def pairs(self, branch: Branch, i: Indices, j: Indices) -> Floats:
        assert branch.K2 is not None
        c, b = _diagonals(branch.K) + self.eps[:, None], _diagonals(branch.K2)
        crossed = 2.0 * branch.K[:, i, j] * branch.K2[:, i, j]
        both = c[:, j] * b[:, i] + c[:, i] * b[:, j] - crossed
        return np.asarray(branch.base[:, None] + both / _pair_determinants(branch, self.eps, i, j))

    def held(self, branch: Branch) -> tuple[HeldVariance, ...]:
        assert branch.K2 is not None
        own = zip(self.eps.tolist(), branch.K, branch.K2, strict=True)
        return tuple(HeldVariance.of_kernels(*view) for view in own)

    def _left(self, branch: Branch) -> Floats:
        """(M,) the variance that the chosen leave; all of it is 1."""
        return np.maximum(1.0 - branch.base, 0.0)


def _kernels(problem: Problem) -> Floats:
    """(M, n, n), without ridges."""
    kernels = np.empty((len(problem.pool.views), problem.n, problem.n))
    for kernel, view in zip(kernels, problem.pool.views, strict=True):
        check_time()
        kernel[:] = view.whole_kernel()
    return kernels


def _factor(kernels: Floats, eps: Floats, chosen: Indices) -> Floats:
    """(M, c, c) lower triangular factors of the chosen rows' kernels with their ridges."""
    L = kernels[:, chosen[:, None], chosen] + eps[:, None, None] * np.eye(len(chosen))
    return np.asarray(np.linalg.cholesky(L))


def _pair_determinants(branch: Branch, eps: Floats, i: Indices, j: Indices) -> Floats:
    """(M, t) of two rows each: (a + eps)(b + eps) - v^2 without cancelling what a small ridge
    contributes."""
    diagonals = _diagonals(branch.K)
    a, b, e = diagonals[:, i], diagonals[:, j], eps[:, None]
    return np.asarray(np.maximum(a * b - branch.K[:, i, j] ** 2, 0.0) + e * (a + b + e))


def _diagonals(K: Any) -> Floats:
    return np.asarray(np.maximum(np.diagonal(K, axis1=1, axis2=2), 0.0))
