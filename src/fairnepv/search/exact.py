"""Branch and bound: the discrete optimum, proven, for pools of some hundreds of rows.

A node has chosen some items and may choose further ones from its candidates; its children choose
one candidate each and give up those before it. Conditional on the chosen the problem has the same
form, so every bound applies: one by norms first (Hadamard's inequality, for log-determinants), then
the concave relaxation, whose prices also bound every child. Small subtrees are searched to the end,
the last two items at once.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute.clock import OutOfTime, check_time
from fairnepv.errors import InputError, Status
from fairnepv.objective import (
    Standing,
    entropy_price,
    soft_min_weights,
    subset_merit,
    utility_of,
)
from fairnepv.problem import Problem
from fairnepv.search.branches import Branch
from fairnepv.search.kinds import kind_of
from fairnepv.views.base import Floats, Indices

MOST_ROWS = 2000
_SMALL = 30_000  # subsets of a subtree that is searched to the end
DEEPEST = 50  # items still to choose there: each is a level of recursion
_BATCH = 16  # nodes per step of the loop
_VISITS = 30  # of a search to the end that take as long as a node with its relaxation
_SURE = 1e-9  # a set that is better by less is not looked for
_PROVEN = 1e-6  # a proof that may be off by more is none


# A relaxation that bounds what some candidates can still bring, by prices (m,) and a constant: from
# their kernels conditional on the chosen items, by view as `Algebra.held` has them, how the chosen
# stand, the room left, and `best` and `sure`, whose sum a bound need not fall below. It is handed
# in, since this room knows none.
PriceCandidates = Callable[[tuple[Any, ...], Standing, int, float, float], tuple[Floats, float]]


@dataclass(frozen=True)
class ExactState:
    indices: Indices  # the best set so far
    value: float  # its merit
    upper: float  # no set is better than this
    nodes: NDArray[np.int8]  # (N, n) open nodes: 1 chosen, 0 candidate, -1 given up
    bounds: Floats  # (N,)
    looked: int = 0  # nodes so far, with what small subtrees took
    passes: int = 0


class Exact:
    """From a start, usually a good one, to a set that is proven best."""

    stage = "exact"

    def __init__(
        self,
        problem: Problem,
        start: Indices,
        price: PriceCandidates,
        *,
        node_limit: int | None = None,
        goal: float | None = None,
    ) -> None:
        refuse_large(problem)
        self.problem, self.node_limit, self.goal = problem, node_limit, goal
        self._start = np.asarray(start, dtype=np.int64)
        self._tree = Tree(problem, price)
        # Kernels are conditioned step by step, each with the rounding of one comparison.
        self._rounding = _SURE + self._tree.algebra.rounding
        self.proves = self._rounding <= _PROVEN

    def init(self) -> ExactState:
        root = np.zeros((1, self.problem.n), dtype=np.int8)
        root[0, self.problem.constraints.fixed_out] = -1
        root[0, self.problem.constraints.fixed_in] = 1
        value = subset_merit(self.problem, self._start)
        return ExactState(self._start, value, np.inf, root, np.array([np.inf]))

    def step(self, state: ExactState) -> ExactState:
        order = np.argsort(-state.bounds, kind="stable")
        batch = _BATCH if self.node_limit is None else min(_BATCH, self.node_limit - state.looked)
        chosen, rest = order[:batch], order[batch:]
        best, begun = Best(state.indices, state.value), self._tree.visits
        nodes, bounds, looked, at = [], [], state.looked, 0
        for at, i in enumerate(chosen, 1):
            try:
                best, children, child_bounds = self._tree.explore(
                    state.nodes[i], float(state.bounds[i]), best
                )
            except OutOfTime:
                if at == 1:
                    raise
                at -= 1  # what the others have found is kept
                break
            nodes.append(children)
            bounds.append(child_bounds)
            looked = state.looked + at + (self._tree.visits - begun) // _VISITS
            if self._is_spent(looked):
                break
        rest = np.concatenate([chosen[at:], rest])
        nodes, bounds = [state.nodes[rest], *nodes], [state.bounds[rest], *bounds]
        if best.value > state.value:  # a set found by updates is scored like any other
            scored = subset_merit(self.problem, best.indices)
            better = scored > state.value
            best = Best(best.indices, scored) if better else Best(state.indices, state.value)
        all_nodes, all_bounds = np.concatenate(nodes), np.concatenate(bounds)
        alive = all_bounds > best.value + _SURE
        all_nodes, all_bounds = all_nodes[alive], all_bounds[alive]
        upper = max(all_bounds.max(initial=-np.inf), best.value) + self._rounding
        return replace(
            state,
            indices=best.indices,
            value=best.value,
            upper=float(min(state.upper, upper)),
            nodes=all_nodes,
            bounds=all_bounds,
            looked=looked,
        )

    def done(self, state: ExactState) -> Status | None:
        if not len(state.nodes):
            return Status.OPTIMAL if self.proves else Status.INEXACT
        if self.goal is not None and state.value >= self.goal:
            return Status.TARGET
        return Status.NODE_LIMIT if self._is_spent(state.looked) else None

    def _is_spent(self, looked: int) -> bool:
        return self.node_limit is not None and looked >= self.node_limit

    def report(self, state: ExactState) -> Mapping[str, Any]:
        return {
            "objective": state.value,
            "upper": state.upper if math.isfinite(state.upper) else None,
            "nodes": state.looked,
            "open": len(state.nodes),
        }


def refuse_large(problem: Problem) -> None:
    if problem.n > MOST_ROWS:
        raise InputError(
            f"method 'exact' holds kernels of all rows, so n is at most {MOST_ROWS}, not "
            f"{problem.n}; use 'auto', whose result is bounded as well"
        )


class Best(NamedTuple):
    indices: Indices
    value: float


class Tree:
    """What all nodes share."""

    def __init__(self, problem: Problem, price: PriceCandidates) -> None:
        self.problem, self.price = problem, price
        self.visits = 0  # of branches that are searched to the end
        self.algebra = kind_of(problem).algebra(problem)
        views = problem.pool.views
        self.empty = Standing.of(problem, np.zeros(len(views)), problem.k)  # no items of k
        self.tau, self.divisor = problem.tau, utility_of(problem).divisor(problem.k)

    # --- a node -----------------------------------------------------------------------------------

    def explore(
        self, node: NDArray[np.int8], bound: float, best: Best
    ) -> tuple[Best, NDArray[np.int8], Floats]:
        """The best set known afterwards, and the children that may hold a better one."""
        check_time()
        none = node[:0].reshape(0, len(node)), np.empty(0)
        if bound <= best.value + _SURE:
            return best, *none
        branch = self.branch(node)
        room = branch.room
        if room == 0:
            value = float(self.empty.fair_scores(branch.base))
            better = value > best.value and self.problem.constraints.is_met(branch.chosen)
            return Best(branch.chosen, value) if better else best, *none
        few = room <= DEEPEST and math.comb(len(branch.rows), room) <= _SMALL
        if few or room <= 2:
            return self.search(branch, best), *none
        branch, plain = self._thinned(branch, best)
        if len(branch.rows) < room or min(bound, plain) <= best.value + _SURE:
            return best, *none
        prices, constant = self.prices(branch, best)
        return best, *self._children(node, branch, prices, constant, best)

    def branch(self, node: NDArray[np.int8]) -> Branch:
        chosen = np.flatnonzero(node == 1)
        n, k = self.problem.n, self.problem.k
        rows = np.flatnonzero((node == 0) & self.problem.constraints.may_add(chosen, n, k))
        return self.algebra.branch(chosen, rows, k - len(chosen))

    # --- bounds -----------------------------------------------------------------------------------

    def _thinned(self, branch: Branch, best: Best) -> tuple[Branch, float]:
        """The branch without candidates that cannot be in a better set, and a bound on them all."""
        while len(branch.rows) >= branch.room:
            with_each = self._with_each(branch)
            keep = with_each > best.value + _SURE
            if keep.all():
                return branch, float(with_each.max())
            branch = branch.restrict(np.flatnonzero(keep))
        return branch, -np.inf

    def _with_each(self, branch: Branch) -> Floats:
        """(m,) bound on every set that has a given candidate, such as Hadamard's.

        View by view: its own measure and the room - 1 best others. For all views together: for any
        weights, F is at most the weighted mean of d plus an entropy, and there the same items
        count in every view.
        """
        measures, room = self.algebra.measures(branch), branch.room
        sums = measures + _top_sums(measures, room - 1)  # (M, m) with the best others
        by_view = self.empty.fair_scores(self.algebra.ceiling(branch, sums))
        divisor, at = self.divisor, measures.mean(axis=1) * room
        constants, slopes = self.algebra.tangent(branch, at)
        w = soft_min_weights((constants + slopes * at) / divisor + self.empty.offsets, self.tau)
        joint = ((w * slopes) @ measures)[None, :]
        fixed = w @ (constants / divisor + self.empty.offsets) + entropy_price(w, self.tau)
        together = fixed + (joint + _top_sums(joint, room - 1))[0] / divisor
        return np.asarray(np.minimum(by_view, together))

    def prices(self, branch: Branch, best: Best) -> tuple[Floats, float]:
        """By candidate (m,), and a constant: a set that has `room` of them scores at most that."""
        standing = self.empty._replace(totals=branch.base)
        return self.price(self.algebra.held(branch), standing, branch.room, best.value, _SURE)

    def _children(
        self, node: NDArray[np.int8], branch: Branch, prices: Floats, constant: float, best: Best
    ) -> tuple[NDArray[np.int8], Floats]:
        """One child per candidate, dearest first, as long as its prices leave it a chance."""
        room = branch.room
        order = np.argsort(-prices, kind="stable")
        dear = prices[order]
        # Child j has candidate j and the room - 1 that follow it.
        totals = np.concatenate([[0.0], np.cumsum(dear)])
        count = len(dear) - room + 1
        bounds = constant + totals[room : room + count] - totals[:count]
        alive = int((bounds > best.value + _SURE).sum())  # they fall from child to child
        children = np.repeat(node[None, :], alive, axis=0)
        outside = np.setdiff1d(np.flatnonzero(node == 0), branch.rows)
        children[:, outside] = -1
        rows = branch.rows[order]
        for j in range(alive):
            children[j, rows[:j]] = -1
            children[j, rows[j]] = 1
        return children, bounds[:alive]

    # --- to the end -------------------------------------------------------------------------------

    def search(self, branch: Branch, best: Best) -> Best:
        """The best set of a subtree, by depth-first search with the bound by norms."""
        check_time()
        self.visits += 1
        branch, bound = self._thinned(branch, best)
        if len(branch.rows) < branch.room or bound <= best.value + _SURE:
            return best
        if branch.room <= 2:
            return self._finish(branch, best)
        branch = branch.restrict(np.argsort(-self.algebra.measures(branch).sum(axis=0)))
        for j in range(len(branch.rows) - branch.room + 1):
            best = self.search(self.algebra.condition(branch, j), best)
        return best

    def _finish(self, branch: Branch, best: Best) -> Best:
        """The last one or two items, all at once."""
        if branch.room == 1:
            totals, picks = self.algebra.singles(branch), np.arange(len(branch.rows))[:, None]
        else:
            i, j = np.triu_indices(len(branch.rows), 1)
            totals, picks = self.algebra.pairs(branch, i, j), np.stack([i, j], axis=1)
        values = self.empty.fair_scores(totals)
        rules = self.problem.constraints
        for t in np.argsort(-values, kind="stable") if rules else [int(np.argmax(values))]:
            if values[t] <= best.value + _SURE:
                return best
            indices = np.concatenate([branch.chosen, branch.rows[picks[t]]])
            if not rules or rules.is_met(indices):
                return Best(indices, float(values[t]))
        return best


def _top_sums(gains: Floats, count: int) -> Floats:
    """(M, m) for every candidate the sum of the `count` largest gains among the others."""
    if count == 0:
        return np.zeros_like(gains)
    m = gains.shape[1]
    largest = -np.sort(-np.partition(gains, m - count - 1, axis=1)[:, m - count - 1 :], axis=1)
    top = largest[:, :count].sum(axis=1, keepdims=True)
    # A candidate that is itself among the largest makes room for the next.
    among = gains >= largest[:, count - 1 : count]
    return np.asarray(np.where(among, top - gains + largest[:, count : count + 1], top))
