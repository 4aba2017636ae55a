"""The concave relaxation over the whole pool, solved on the rows that matter.

x lives on a small, growing set of rows T. On those the relaxation is solved densely; one pass then
prices every row of the pool, which both proves a bound for all of them and says which should join.
The bound is that of the dual variables (`dual.price`), valid however far the solver got; so most
of the solving may be done in float32.
"""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fairnepv.compute import HOST, block_threads, in_order
from fairnepv.concave.costs import (
    evaluation_cost,
    evaluation_work,
    first_size,
    is_cheap,
    most_rows,
    rows_are_cheap,
)
from fairnepv.concave.dual import Dual, Priced, price, row_prices
from fairnepv.concave.state import ConcaveState, HeldOrigin, Origin
from fairnepv.concave.topk import ConcavePoint, TopK, cap, climb
from fairnepv.errors import Status
from fairnepv.objective import utility_of
from fairnepv.objective.held import LEAST_WEIGHT, one_by_one
from fairnepv.objective.ritz import CRUDE
from fairnepv.problem import Mask, Problem, largest
from fairnepv.views.base import Floats, Indices

_WORTH_SHARING = 10.0  # an evaluation is worth threads at a tenth of the work of a pass that is
_NEGLIGIBLE = 1e-3  # of the mean of x: such rows leave T when their price is low
_SLOW, _PATIENCE = 0.98, 8  # a step that leaves so much of the gap is slow; so many are enough
_EVALUATIONS = 40  # on one T, at most
_SAMPLED = 0.04  # precision on a first sample of the rows: what it misses is more than that
_ENOUGH, _PROMISING = 0.7, 0.25  # precision on T, beside what is wanted and what the last T missed
_GROWTH, _DOUBLED = 0.3, 1.0  # of T, at most, by rows that join it
_EAGER = 5.0  # more of them, the larger the gap, where passes are what takes the time:
_CHEAP = 0.05  # of the work of a pass, for an evaluation on twice as many rows
_LEAST_NORM, _MOST_NORM = 1e-20, 1e20  # squared norms that float32 can compute with
_COARSEST = 5e-3  # a larger gap does not make for coarser arithmetic
_ROUGH = 0.05  # of the gap: values that are too large by that are good enough to climb by
_MISLED = 0.5  # of the gap: float32 that is off by more is given up
_MOVED, _CRUDELY = 0.7, 0.5  # in the logarithm of a weight; the least that may be behind it
_BINS = 20  # of prices, for what x is usual at a price
_FLATTENED = 0.1  # of x at the start: what another problem left at nothing must be able to grow

Start = tuple[Indices, Floats]  # rows and their x, of the solution of a problem like this one


class Concave:
    """Maximise the relaxed F_tau until bound - value is at most `gap`, or until evaluations have
    taken `budget` multiply-adds.

    It may start from the solution of a problem like this one; the value is then a rough one.
    """

    stage = "bound"

    def __init__(
        self,
        problem: Problem,
        *,
        gap: float,
        start: Start | None = None,
        budget: float = math.inf,
    ) -> None:
        self.problem, self.gap = problem, gap
        self._start, self._budget = start, budget
        self._shifts = tuple(view.smallest_eigenvalue(margin=2.0) for view in problem.pool.views)
        self._held: tuple[Indices, TopK] | None = None
        # What can be made again from a state: points at its x and its slopes' x; (x, prices) of
        # the last pass; (x, dual variables, what they prove once that is known) of the best.
        self._points: tuple[ConcavePoint, ...] = ()
        self._priced: tuple[Floats, Priced] | None = None
        self._best: tuple[Floats, Dual, float | None] | None = None
        self._dtype: DTypeLike = np.float32 if _float32_suffices(problem, gap) else np.float64

    def init(self) -> ConcaveState:
        rows = self._first_rows() if self._start is None else self._start[0]
        topk, weights = self._topk(rows), np.ones(len(self.problem.pool.views))
        x = topk.start()
        if self._start is not None:
            x = (1.0 - _FLATTENED) * self._start[1] + _FLATTENED * x
        if self._rough and not is_cheap(self.problem, len(rows)):
            with self._threads(rows):
                weights = topk.rough_weights(x)
        held = self._held_origin(Origin(weights, (None,) * len(weights)))
        value, origins = self._at(rows, x, held).value, (*held, *held, *held)
        double = self._dtype == np.float64
        begun = ConcaveState(rows, x, x, value, np.inf, rows, x, weights, *origins)
        return replace(begun, best_double=double)

    def step(self, state: ConcaveState) -> ConcaveState:
        self._take_up(state)
        rows, x = self._grow(state)
        with self._threads(rows):
            wanted = self._precision(rows, state)
            one = evaluation_work(self.problem, len(rows), state.weights)
            most = min(_EVALUATIONS, max(1.0, (self._budget - state.spent) / one))
            found = climb(self._begin(state, rows, x), state.eta, wanted, int(most))
        reached, tightest = self._points = found.point, found.tightest
        held = self._held_origin(tightest.origin)
        dual = self._dual_at(rows, tightest)
        priced = self._price(tightest, dual)
        better = priced.bound < state.bound
        if better:
            self._best = tightest.x, dual, priced.bound if self._dtype == np.float64 else None
        value = self._value(rows, reached, min(priced.bound, state.bound))
        solved = tightest.bound - reached.value <= _ENOUGH * self.gap
        successor = ConcaveState(
            rows,
            reached.x,
            tightest.x,
            value,
            priced.bound if better else state.bound,
            rows if better else state.best_rows,
            tightest.x if better else state.best_x,
            _still(state.weights, reached.weights),
            *(held if tightest is reached else self._held_origin(reached.origin)),
            *held,
            *(held if better else state.best_origin),
            self._dtype == np.float64 if better else state.proven,
            found.eta or 1.0,
            passes=state.passes + 1,
            evaluations=state.evaluations + found.evaluations + 1,
            spent=state.spent + (found.evaluations + 1) * one,
            double=state.double,
            best_double=self._dtype == np.float64 if better else state.best_double,
        )
        slow = state.slow + 1 if successor.gap > _SLOW * state.gap else 0
        exhausted = slow >= _PATIENCE or found.eta == 0 or solved
        stuck = state.passes > 0 and rows is state.rows and exhausted
        stuck = stuck or successor.spent >= self._budget
        successor = replace(successor, slow=slow, stuck=stuck)
        return self.prove(successor) if stuck or successor.gap <= self.gap else successor

    def prove(self, state: ConcaveState) -> ConcaveState:
        """The bound of a state by a pass in float64, if it is not."""
        if state.proven:
            return state
        self._take_up(state)
        bound = self._proving(state)[1]
        proven = replace(state, bound=bound, proven=True, passes=state.passes + 1)
        misled = bound - state.bound > _MISLED * self.gap
        cheap = is_cheap(self.problem, len(state.rows))
        if proven.gap <= self.gap or self._dtype == np.float64 or not (misled or cheap):
            return proven
        # Float32 thought otherwise, or got no further: nearly alike rows have eigenvalues that
        # drown in its rounding.
        finer = replace(proven, stuck=False, slow=0, double=True)
        self._take_up(finer)
        return finer

    def _take_up(self, state: ConcaveState) -> None:
        """Go on in the precision that the run had come to, also where another solver began it."""
        if state.double and self._dtype != np.float64:
            self._dtype, self._held, self._priced = np.float64, None, None

    def _precision(self, rows: Indices, state: ConcaveState) -> float:
        """The gap to solve T to: while T still grows, precision on it is wasted."""
        full = rows_are_cheap(self.problem) and len(rows) >= most_rows(self.problem)
        missed = 0.0 if full and rows is state.rows else _PROMISING * state.gap
        if not state.passes:
            missed = 0.0 if len(rows) == np.count_nonzero(self._open()) else _SAMPLED
        return max(_ENOUGH * self.gap, missed)

    def done(self, state: ConcaveState) -> Status | None:
        if state.proven and state.gap <= self.gap:
            return Status.CONVERGED
        return Status.AFFORDED if state.stuck else None

    def report(self, state: ConcaveState) -> Mapping[str, Any]:
        row = {"objective": state.value, "tol": self.gap, "support": len(state.rows)}
        if math.isfinite(state.bound):
            row["residual"] = max(state.gap, 0.0)
            if state.proven:
                row["bound"] = state.bound
        return row

    def dual(self, state: ConcaveState) -> Dual:
        """The dual variables that proved the best bound, where their views compute."""
        self._take_up(state)
        return self._proving(state)[0]

    def view_values(self, state: ConcaveState) -> Floats:
        """(M,) what the relaxation gives to every view, without what priorities add; minus infinity
        for those that were looked at crudely, of which that is not known."""
        self._take_up(state)
        point = self._begin(state, state.rows, state.x)
        weights = np.minimum(state.weights, state.x_weights)  # of which the point was made by one
        roughness = self._rough / np.maximum(weights, LEAST_WEIGHT)
        values = point.view_values - self.problem.lifts
        return np.where(roughness >= _CRUDELY * CRUDE, -np.inf, values)

    def _proving(self, state: ConcaveState) -> tuple[Dual, float]:
        """The dual variables at the best x, and what they prove: in the solver's precision, or
        exactly where that would prove less than the state says."""
        if self._best is None or self._best[0] is not state.best_x:
            point = self._best_point(state)
            self._best = state.best_x, self._dual_at(state.best_rows, point), None
        x, dual, bound = self._best
        if bound is None:
            bound = self._prove(dual)
            expected = state.bound + (0.0 if state.proven else _MISLED * self.gap)
            if not bound <= expected and not state.best_double:
                point = self._hold(state.best_rows, np.float64).at(x)
                exact = self._dual_at(state.best_rows, point)
                dual, bound = min((dual, bound), (exact, self._prove(exact)), key=itemgetter(1))
            self._best = x, dual, bound
        return dual, bound

    def _best_point(self, state: ConcaveState) -> ConcavePoint:
        """As it was made, which may have been before float32 was found to be too coarse."""
        rows, x, origin = state.best_rows, state.best_x, state.best_origin
        if state.best_double or self._dtype == np.float32:
            return self._at(rows, x, origin)
        with self._threads(rows):
            topk = self._hold(rows, np.float32, self._roughness(np.float32))
            return topk.at(x, origin.beside(topk.views))

    def _prove(self, dual: Dual) -> float:
        with np.errstate(over="ignore", invalid="ignore"):  # a vanishing ridge proves nothing
            return price(self.problem, dual).bound

    # --- one T ----------------------------------------------------------------------------------

    def _topk(self, rows: Indices) -> TopK:
        if self._held is None or not np.array_equal(self._held[0], rows):
            self._held, self._points = None, ()  # before the next is made
            self._held = rows, self._hold(rows, self._dtype, self._rough)
        return self._held[1]

    def _hold(self, rows: Indices, dtype: DTypeLike, rough: float = 0.0) -> TopK:
        problem = self.problem
        k, utility = problem.k, utility_of(problem)
        views = tuple(
            utility.held(view, rows, k, shift, dtype, rough)
            for view, shift in zip(problem.pool.views, self._shifts, strict=True)
        )
        rules = problem.constraints.take(rows)
        here = all(view.place is HOST for view in problem.pool.views)
        each = in_order if here else one_by_one  # a device has its threads inside
        return TopK(views, problem.offsets, problem.tau, k, k, rules, each, utility)

    @property
    def _rough(self) -> float:
        """What values may be too large by."""
        return self._roughness(self._dtype)

    def _roughness(self, dtype: DTypeLike) -> float:
        rough = dtype == np.float32 and utility_of(self.problem).may_be_rough
        return _ROUGH * self.gap if rough else 0.0

    def _threads(self, rows: Indices) -> contextlib.AbstractContextManager[None]:
        return block_threads(_WORTH_SHARING * evaluation_cost(self.problem, len(rows)))

    def _begin(self, state: ConcaveState, rows: Indices, x: Floats) -> ConcavePoint:
        """The point of x on these rows, which may be others than those of the state."""
        if rows is state.rows:
            return self._at(rows, x, state.x_origin)
        return self._at(rows, x, state.x_origin._replace(weights=state.weights))

    def _at(self, rows: Indices, x: Floats, origin: HeldOrigin) -> ConcavePoint:
        topk = self._topk(rows)
        held = next((point for point in self._points if point.x is x and point.topk is topk), None)
        if held is None:
            with self._threads(rows):
                held = topk.at(x, origin.beside(topk.views))
            self._points = (held,)
        return held

    def _held_origin(self, origin: Origin) -> HeldOrigin:
        if not self._rough:  # nothing begins with vectors
            origin = origin._replace(bases=(None,) * len(origin.bases))
        return HeldOrigin.of(origin, [view.place for view in self.problem.pool.views])

    def _value(self, rows: Indices, point: ConcavePoint, bound: float) -> float:
        """The relaxed value, in float64 where it decides whether the bound is good enough, or what
        it is at least, where values are estimates from above."""
        sure = self._dtype == np.float64 and utility_of(self.problem).exact
        if sure or self._start or bound - point.value > self.gap:
            return point.value
        with self._threads(rows):
            exact = self._hold(rows, np.float64, self._rough) if self._rough else self._topk(rows)
            return exact.least_value(point)

    def _dual_at(self, rows: Indices, point: ConcavePoint) -> Dual:
        own = zip(point.slopes, self._shifts, strict=True)
        return Dual(point.weights, rows, tuple(slope.dual(shift) for slope, shift in own))

    def _price(self, point: ConcavePoint, dual: Dual) -> Priced:
        """The pass that says which rows should join T. In float32 it proves nothing: its bound is
        that of the solver on T, and what the rows outside are dearer."""
        with np.errstate(over="ignore", invalid="ignore"):  # a vanishing ridge proves nothing
            if self._dtype == np.float64:
                priced = price(self.problem, dual)
            else:
                prices = row_prices(self.problem, dual, coarse=True)
                best = self.problem.constraints.best_set(prices, self.problem.k)
                bound = point.value + float(prices[best].sum() - point.prices @ point.x)
                priced = Priced(bound, prices, best)
        self._priced = point.x, priced
        return priced

    # --- which rows -----------------------------------------------------------------------------

    def _open(self) -> Mask:
        """(n,) rows that may be chosen."""
        open_rows = np.ones(self.problem.n, dtype=bool)
        open_rows[self.problem.constraints.fixed_out] = False
        return open_rows

    def _first_rows(self) -> Indices:
        """Everything where that is cheap; else where a solution is expected, or an even sample."""
        open_rows = np.flatnonzero(self._open())
        size = first_size(self.problem)
        if len(open_rows) <= size:
            return open_rows
        sample = open_rows[:: math.ceil(len(open_rows) / size)]
        rules = self.problem.constraints  # which may need others besides
        return np.union1d(sample, rules.best_set(np.zeros(self.problem.n), self.problem.k))

    def _grow(self, state: ConcaveState) -> tuple[Indices, Floats]:
        """T and x with the rows that the last prices call for, without those that proved idle."""
        problem = self.problem
        if not state.passes:
            return state.rows, state.x
        _, prices, best = self._priced_at(state)
        # Prices will move by about the gap, relative to those of the best set.
        missed = float(np.clip(2.0 * state.gap, 0.0, 1.0))
        threshold = prices[best].min()
        open_rows = self._open()
        open_rows[state.rows] = False
        wanted = np.flatnonzero(open_rows & (prices >= (1.0 - missed) * threshold))
        if not open_rows[best].any():  # no row outside can be in the best set
            return state.rows, state.x
        idle = (state.x < _NEGLIGIBLE * state.x.mean()) & (prices[state.rows] < 0.9 * threshold)
        idle &= ~np.isin(state.rows, best)
        kept, x = state.rows[~idle], state.x[~idle]
        wished = max(problem.k, int(self._growth(state) * len(kept)))
        room = min(wished, most_rows(problem, state.weights) - len(kept))
        joining = largest(prices, wanted, room)
        if not len(joining):
            return state.rows, state.x  # this is as fine as we can afford
        rows = np.concatenate([kept, joining])
        usual = _expected_x(prices[kept], x, prices[joining])
        order = np.argsort(rows)
        rows, x = rows[order], np.concatenate([x, usual])[order]
        return rows, cap(x, problem.k, problem.constraints.take(rows))

    def _growth(self, state: ConcaveState) -> float:
        """What share of T may join it."""
        doubled = evaluation_cost(self.problem, 2 * len(state.rows))
        eager = _DOUBLED if rows_are_cheap(self.problem) else _EAGER * state.gap
        eager = eager if doubled < _CHEAP * self.problem.work() else 0.0
        return float(np.clip(eager, _GROWTH, _DOUBLED))

    def _priced_at(self, state: ConcaveState) -> Priced:
        if self._priced is None or self._priced[0] is not state.slope_x:  # a resumed state
            point = self._at(state.rows, state.slope_x, state.slope_origin)
            return self._price(point, self._dual_at(state.rows, point))
        return self._priced[1]


def _still(before: Floats, now: Floats) -> Floats:
    """The weights before, while they tell how closely to look: what was seen is then not looked at
    again."""
    ratios = np.maximum(now, LEAST_WEIGHT) / np.maximum(before, LEAST_WEIGHT)
    return before if (abs(np.log(ratios)) < _MOVED).all() else now


def _expected_x(prices: Floats, x: Floats, joining: Floats) -> Floats:
    """What x to expect of rows that join at these prices, from rows of T with both."""
    bins = np.array_split(np.argsort(prices, kind="stable"), min(_BINS, len(x)))
    means = np.array([x[rows].mean() for rows in bins])
    at = [prices[rows].mean() for rows in bins]
    usual: Floats = np.interp(joining, at, np.maximum.accumulate(means))
    usual = np.maximum(usual, _NEGLIGIBLE * x.mean())
    return np.minimum(usual, 0.5)


def _float32_suffices(problem: Problem, gap: float) -> bool:
    """Eigenvalues of up to k |phi|^2 come with an error of float32's, which matters beside eps; and
    1/(lambda + eps) of the largest must not drown beside 1/eps, however loose the gap."""
    gap = min(gap, _COARSEST)
    norms = problem.pool.largest_norms
    error = problem.k * norms * np.finfo(np.float32).eps
    moderate = (norms > _LEAST_NORM) & (norms < _MOST_NORM)
    return bool((moderate & (error <= gap * problem.pool.eps)).all())
