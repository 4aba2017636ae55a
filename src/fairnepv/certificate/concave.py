"""The concave relaxation over the whole pool, solved on the rows that matter.

x lives on a small, growing set of rows T. On those the relaxation is solved densely; one pass then
prices every row of the pool, which both proves a bound for all of them and says who should join.
The bound is that of the dual variables (`dual.price`), valid however far the solver got.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairnepv.certificate.dual import Dual, Priced, ViewDual, price
from fairnepv.engines import few_threads
from fairnepv.errors import Status
from fairnepv.problem import Problem
from fairnepv.relaxation.topk import ConcavePoint, TopK, ascend, cap, held_rows
from fairnepv.views.base import Floats, Indices

_FIRST_ROWS = 500  # T starts with so many, or with a multiple of k
_DENSE_COST = 1e9  # multiply-adds of one evaluation up to which T is simply everything
_MOST_COST = 2e11  # multiply-adds of one evaluation that T may grow to
_EIGENVALUES = 0.0  # work for one thread: on a busy machine a second one made these 20 times slower
_NEGLIGIBLE = 1e-7  # of x: such rows leave T when their price is low
_NEWCOMERS = 0.05  # share of k that rows which join T start with
_SLOW, _PATIENCE = 0.98, 100  # a step that leaves so much of the gap is slow; so many are enough
_EVALUATIONS = 40  # on one T, at most


@dataclass(frozen=True)
class ConcaveState:
    rows: Indices  # (m,) T, ascending
    x: Floats  # (m,)
    value: float  # of the relaxation at x
    bound: float  # the best that was proven
    best_rows: Indices  # whose dual variables proved it
    best_x: Floats
    eta: float = 1.0
    stuck: bool = False  # solved on T or hardly moving, and T cannot grow
    slow: int = 0  # steps in a row that hardly closed the gap
    passes: int = 0
    evaluations: int = 0


class Concave:
    """Maximise the relaxed F_tau until bound - value is at most `gap`."""

    stage = "bound"

    def __init__(self, problem: Problem, *, gap: float) -> None:
        self.problem, self.gap = problem, gap
        self._shifts = tuple(view.smallest_eigenvalue(margin=2.0) for view in problem.pool.views)
        self._held: tuple[Indices, TopK] | None = None
        self._prices: tuple[Floats, Floats] | None = None  # (x, prices) of the last pass

    def init(self) -> ConcaveState:
        rows = self._first_rows()
        point = self._start_on(rows)
        priced = self._price(rows, point)
        return ConcaveState(rows, point.x, point.value, priced.bound, rows, point.x, passes=2)

    def step(self, state: ConcaveState) -> ConcaveState:
        rows, x = self._grow(state)
        with few_threads(_EIGENVALUES):
            point, inner, eta, evaluations = self._solve_on(rows, x, state)
        priced = self._price(rows, point)
        better = priced.bound < state.bound
        solved = inner - point.value <= 0.3 * self.gap
        gap = min(priced.bound, state.bound) - point.value
        slow = state.slow + 1 if gap > _SLOW * (state.bound - state.value) else 0
        return ConcaveState(
            rows,
            point.x,
            point.value,
            min(priced.bound, state.bound),
            rows if better else state.best_rows,
            point.x if better else state.best_x,
            eta or 1.0,
            rows is state.rows and (slow >= _PATIENCE or eta == 0 or solved),
            slow,
            state.passes + 1,
            state.evaluations + evaluations,
        )

    def _start_on(self, rows: Indices) -> ConcavePoint:
        topk = self._topk(rows)
        with few_threads(_EIGENVALUES):
            return topk.at(topk.start())

    def _solve_on(
        self, rows: Indices, x: Floats, state: ConcaveState
    ) -> tuple[ConcavePoint, float, float, int]:
        """The relaxation on T: a point, the bound for T alone, the step, and evaluations."""
        point = self._topk(rows).at(x)
        # While T still grows, precision on it is wasted.
        wanted = max(0.3 * self.gap, 0.1 * (state.bound - state.value))
        eta, evaluations = state.eta, 1
        inner = point.bound
        while inner - point.value > wanted and evaluations < _EVALUATIONS and eta > 0:
            point, eta, count = ascend(point, eta)
            evaluations += count
            inner = min(inner, point.bound)
        return point, inner, eta, evaluations

    def done(self, state: ConcaveState) -> Status | None:
        if state.bound - state.value <= self.gap:
            return Status.CONVERGED
        return Status.AFFORDED if state.stuck else None

    def report(self, state: ConcaveState) -> Mapping[str, Any]:
        return {
            "objective": state.value,
            "bound": state.bound,
            "residual": max(state.bound - state.value, 0.0),
            "tol": self.gap,
            "support": len(state.rows),
        }

    def dual(self, state: ConcaveState) -> Dual:
        """The dual variables that proved the best bound."""
        return self._dual_at(state.best_rows, self._topk(state.best_rows).at(state.best_x))

    # --- one T ----------------------------------------------------------------------------------

    def _topk(self, rows: Indices) -> TopK:
        if self._held is None or not np.array_equal(self._held[0], rows):
            problem = self.problem
            views = tuple(
                held_rows(view, rows, shift)
                for view, shift in zip(problem.pool.views, self._shifts, strict=True)
            )
            rules = problem.constraints.take(rows)
            self._held = (
                rows,
                TopK(views, problem.offsets, problem.tau, problem.k, problem.k, rules),
            )
        return self._held[1]

    def _dual_at(self, rows: Indices, point: ConcavePoint) -> Dual:
        views = tuple(
            ViewDual(slope.level, slope.combine, shift)
            for slope, shift in zip(point.slopes, self._shifts, strict=True)
        )
        return Dual(point.weights, rows, views)

    def _price(self, rows: Indices, point: ConcavePoint) -> Priced:
        with np.errstate(over="ignore", invalid="ignore"):  # a vanishing ridge proves nothing
            priced = price(self.problem, self._dual_at(rows, point))
        self._prices = point.x, priced.prices
        return priced

    # --- which rows -----------------------------------------------------------------------------

    def _first_rows(self) -> Indices:
        """Everything where that is cheap; else an even sample, and who is dear to it."""
        problem = self.problem
        n, rules = problem.n, problem.constraints
        everyone = np.setdiff1d(np.arange(n), rules.fixed_out)
        size = max(_FIRST_ROWS, 4 * problem.k, self._rows_for(_DENSE_COST))
        if len(everyone) <= size:
            return everyone
        sample = everyone[:: math.ceil(len(everyone) / size)]
        sample = self._completed(sample, np.zeros(n))
        prices = self._price(sample, self._start_on(sample)).prices
        dearest = np.argsort(-prices, kind="stable")
        dearest = dearest[~np.isin(dearest, rules.fixed_out)][:size]
        return np.union1d(self._completed(dearest, prices), sample[::4])

    def _completed(self, rows: Indices, prices: Floats) -> Indices:
        """These rows, and what the constraints need besides."""
        rules = self.problem.constraints
        return np.union1d(np.union1d(rows, rules.fixed_in), rules.best_set(prices, self.problem.k))

    def _grow(self, state: ConcaveState) -> tuple[Indices, Floats]:
        """T and x with the rows that the last prices call for, without those that proved idle."""
        problem, rules = self.problem, self.problem.constraints
        if self._prices is None or self._prices[0] is not state.x:  # a resumed state
            self._price(state.rows, self._topk(state.rows).at(state.x))
        assert self._prices is not None
        prices = self._prices[1]
        inside = np.zeros(problem.n, dtype=bool)
        inside[state.rows] = True
        best = rules.best_set(prices, problem.k)
        threshold = prices[best].min()
        open_rows = ~inside
        open_rows[rules.fixed_out] = False
        wanted = np.flatnonzero(open_rows & (prices >= 0.999 * threshold))
        if not len(wanted):
            return state.rows, state.x
        idle = (state.x < _NEGLIGIBLE) & (prices[state.rows] < 0.9 * threshold)
        idle &= ~np.isin(state.rows, self._completed(best, prices))
        kept, x = state.rows[~idle], state.x[~idle]
        room = min(max(problem.k, len(kept) // 2), self._rows_for(_MOST_COST) - len(kept))
        joining = wanted[np.argsort(-prices[wanted], kind="stable")[: max(room, 0)]]
        if not len(joining):
            return state.rows, state.x  # this is as fine as we can afford
        rows = np.concatenate([kept, joining])
        start = np.full(len(joining), _NEWCOMERS * problem.k / len(joining)).clip(max=0.5)
        order = np.argsort(rows)
        return rows[order], self._feasible(rows[order], np.concatenate([x, start])[order])

    def _rows_for(self, cost: float) -> int:
        """How many rows an evaluation of so many multiply-adds can take."""
        few, many = 1, self.problem.n
        if _evaluation_cost(self.problem, many) <= cost:
            return many
        while many - few > 1:  # the cost rises with the rows
            middle = (few + many) // 2
            below = _evaluation_cost(self.problem, middle) <= cost
            few, many = (middle, many) if below else (few, middle)
        return few

    def _feasible(self, rows: Indices, x: Floats) -> Floats:
        return cap(x, self.problem.k, self.problem.constraints.take(rows))


def _evaluation_cost(problem: Problem, m: int) -> float:
    """Multiply-adds of the relaxation and its gradient on m rows: a Gram matrix of the smaller
    side of every view, and its eigenvectors."""
    sides = [min(view.p, m) for view in problem.pool.views]
    return float(sum(m * side**2 / 2 + 4 * side**3 for side in sides))
