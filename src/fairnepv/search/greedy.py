"""Fair greedy: one item at a time, each the best for F_tau of the set so far.

Partial sets are scored with 1/|S|. In each view the conditional variance c_i of a row given the
chosen ones is kept for all rows; a new pick j turns it into c_i - (phi_i . u)^2 for one direction
u, so a step is one matrix-vector pass and no (n, k) history is stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from fairnepv.engines import Block
from fairnepv.errors import Status
from fairnepv.loop import run
from fairnepv.objective import Standing
from fairnepv.problem import Problem
from fairnepv.search.ties import SLACK, Ladder, blur, join, ladder, lowest_tied, ranked
from fairnepv.views.base import Floats, Indices

# A vanishing ridge lets variances overflow; the ladder refuses what comes of it.
_OVERFLOWS: dict[str, Any] = {"over": "ignore", "invalid": "ignore", "divide": "ignore"}


class Scores(Protocol):
    """How a set scores; `Standing` is the one of F_tau. Small, as it travels with a pass."""

    def fair_scores(self, log_ratios: Floats) -> Any: ...


Judge = Callable[[Floats, int], Scores]  # of log-determinants and the size of the set


@dataclass(frozen=True)
class GreedyState:
    indices: Indices  # in order of selection
    value: float  # F_tau of them
    passes: int = 0


class Greedy:
    """k items in greedy order; items fixed in come first.

    `judge` makes what scores a set of its log-determinants; by default that is F_tau.
    """

    stage = "greedy"

    def __init__(self, problem: Problem, judge: Judge | None = None) -> None:
        self.problem = problem
        self._judge = judge or functools.partial(Standing.of, problem)
        self._frontier: Frontier | None = None

    def init(self) -> GreedyState:
        indices = self.problem.constraints.fixed_in
        return GreedyState(indices, self._at(indices).value)

    def step(self, state: GreedyState) -> GreedyState:
        frontier = self._at(state.indices)
        allowed = self.problem.constraints.may_add(state.indices, self.problem.n, self.problem.k)
        with np.errstate(**_OVERFLOWS):
            self._frontier = frontier.extend(frontier.best_addition(allowed))
        return GreedyState(self._frontier.indices, self._frontier.value, state.passes + 1)

    def done(self, state: GreedyState) -> Status | None:
        return Status.COMPLETE if len(state.indices) == self.problem.k else None

    def report(self, state: GreedyState) -> Mapping[str, Any]:
        return {"objective": state.value, "size": len(state.indices), "of": self.problem.k}

    def _at(self, indices: Indices) -> Frontier:
        """The frontier of these picks: the one at hand, or one rebuilt for a resumed state."""
        if self._frontier is None or not np.array_equal(self._frontier.indices, indices):
            self._frontier = Frontier.rebuild(self.problem, indices, self._judge)
        return self._frontier


@dataclass(frozen=True)
class Frontier:
    """Everything greedy knows about a set: it follows from the indices, so no state stores it."""

    problem: Problem
    judge: Judge
    indices: Indices
    factors: tuple[Floats, ...]  # per view the lower Cholesky factor of L[S, S]
    variances: NDArray[np.float64]  # (n, M) K_ii - K_iS L_S^-1 K_Si, c_i without the ridge

    @classmethod
    def rebuild(cls, problem: Problem, indices: Indices, judge: Judge) -> Frontier:
        """The frontier of given picks: factors as greedy made them, then one pass."""
        pool = problem.pool
        none = tuple(np.empty((0, 0)) for _ in pool.views)
        frontier = cls(problem, judge, indices[:0], none, pool.squared_norms)
        for row in indices:  # one by one, so that a resumed run goes on to the last bit
            frontier = frontier._with_factors(int(row))
        if not len(indices):
            return frontier
        state = [
            (view.anchor(indices), solve_triangular(C, np.eye(len(C)), lower=True).T)
            for view, C in zip(pool.views, frontier.factors, strict=True)
        ]
        variances = pool.map(
            _reduce_variances, state, pool.squared_norms, width=len(indices) * len(state)
        )
        return replace(frontier, variances=variances)

    def standing(self, size: int) -> Scores:
        logdets = np.array([2.0 * np.log(np.diagonal(C)).sum() for C in self.factors])
        return self.judge(logdets, size)

    @property
    def value(self) -> float:
        """F_tau of the set; the empty set counts as 0."""
        if not len(self.indices):
            return 0.0
        return float(self.standing(len(self.indices)).fair_scores(np.zeros(len(self.factors))))

    def best_addition(self, allowed: NDArray[np.bool_]) -> int:
        pool = self.problem.pool
        size = len(self.indices) + 1
        unsure = blur(self.problem, size)
        slack = max(SLACK, 10.0 * unsure)
        contenders = pool.reduce(
            _rank_additions,
            functools.partial(join, slack=slack),
            (self.standing(size), pool.eps, slack),
            self.variances,
            allowed,
        )
        confirmed = self._confirm(contenders.rows)
        tie = max(self.problem.tolerances.tie, unsure)
        return int(contenders.rows[lowest_tied(confirmed, tie)])

    def extend(self, row: int) -> Frontier:
        """The frontier with one more pick: one pass."""
        extended = self._with_factors(row)
        state: list[tuple[Any, None]] = []
        for view, C in zip(self.problem.pool.views, extended.factors, strict=True):
            last = np.zeros(len(C))
            last[-1] = 1.0
            # Row i gains the coordinate (C^-1 K_Si)_last = K_iS (C^-T e_last).
            coefficients = solve_triangular(C, last, lower=True, trans="T", check_finite=False)
            state.append((view.anchor(extended.indices, coefficients[:, None]), None))
        variances = self.problem.pool.map(_reduce_variances, state, self.variances)
        return replace(extended, variances=variances)

    def _with_factors(self, row: int) -> Frontier:
        """Cholesky factors with one more row; the variances stay behind."""
        factors = []
        for q, C in enumerate(self.factors):
            v, c = self._condition(q, np.array([row]))
            factors.append(np.block([[C, np.zeros((len(C), 1))], [v.T, np.sqrt(c)[:, None]]]))
        indices = np.append(self.indices, np.int64(row))
        return replace(self, indices=indices, factors=tuple(factors))

    def _confirm(self, rows: Indices) -> Floats:
        """F_tau of the set with each of these rows, from gathered rows: no block size enters."""
        c = np.array([self._condition(q, rows)[1] for q in range(len(self.factors))])  # (M, m)
        scores: Floats = self.standing(len(self.indices) + 1).fair_scores(np.log(c))
        return scores

    def _condition(self, q: int, rows: Indices) -> tuple[Floats, Floats]:
        """v = C^-1 K[S, rows] (t, m), and c = L_ii - |v_i|^2 (m,), which is at least the ridge."""
        pool, C = self.problem.pool, self.factors[q]
        K = pool.views[q].inner(self.indices, rows)
        v = solve_triangular(C, K, lower=True, check_finite=False) if len(C) else K
        variance = pool.squared_norms[rows, q] - (v**2).sum(axis=0)
        return v, np.maximum(variance, 0.0) + pool.views[q].ridge


def _reduce_variances(
    block: Block, state: list[tuple[Any, Floats | None]], variances: Floats
) -> Floats:
    """c_i less what the anchors explain, whitened where they are not yet; at least zero."""
    explained = []
    with np.errstate(**_OVERFLOWS):
        for view, (anchor, whiten) in zip(block.views, state, strict=True):
            v = view.cross(anchor)
            explained.append(((v if whiten is None else v @ whiten) ** 2).sum(axis=1))
        return np.asarray(np.maximum(variances - np.stack(explained, axis=1), 0.0))


def _rank_additions(
    block: Block,
    state: tuple[Scores, Floats, float],
    variances: Floats,
    allowed: NDArray[np.bool_],
) -> Ladder:
    standing, eps, slack = state
    rows = np.flatnonzero(allowed)
    c = variances[rows] + eps  # (b, M)
    return ladder(standing.fair_scores(np.log(c).T), rows + block.start, slack)


def complete(problem: Problem, indices: Indices) -> Indices:
    """An unfinished greedy set filled up to k by the scores as they stand: no further pass.

    What a run that was interrupted or out of time returns, instead of too few items.
    """
    if len(indices) == problem.k:
        return indices
    with np.errstate(**_OVERFLOWS):
        frontier = Greedy(problem)._at(indices)
        c = frontier.variances + problem.pool.eps
        scores = frontier.standing(len(indices) + 1).fair_scores(np.log(c).T)
    scores = np.nan_to_num(scores, nan=-1e300, neginf=-1e300)  # unknown scores go last
    order = ranked(scores, max(problem.tolerances.tie, blur(problem, len(indices) + 1)))
    while len(indices) < problem.k:
        allowed = problem.constraints.may_add(indices, problem.n, problem.k)
        indices = np.append(indices, order[np.argmax(allowed[order])])
    return indices


def fair_order(problem: Problem, indices: Indices) -> Indices:
    """The same set in fair-greedy order within itself, so that its first j make sense alone."""
    rows = np.sort(indices)
    order = run(Greedy(problem.take(rows))).state.indices
    rest = np.setdiff1d(np.arange(len(rows)), order)  # where rounding stopped greedy half-way
    return np.asarray(rows[np.concatenate([order, rest])])
