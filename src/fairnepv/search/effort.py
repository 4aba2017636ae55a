"""How hard to search, counted and never timed; and the ways to improve a start that all share.

The baselines are refined by the same function under the same effort as our own method, so that a
comparison compares objectives and not budgets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairnepv.checks import brief
from fairnepv.errors import InputError, Status
from fairnepv.loop import Context
from fairnepv.objective import subset_merit
from fairnepv.problem import Problem
from fairnepv.search.greedy import Greedy, how_it_ended
from fairnepv.search.kinds import kind_of
from fairnepv.search.tabu import TabuSearch, promising_rows
from fairnepv.views.base import Indices

_ENTRY = 500.0  # multiply-adds of a product that take as long as a swap does per row and slot
_WITH_FLOORS = 4  # times the swaps and the patience: sets that meet floors lie apart
_MANY_PASSES = 1000
_SHORTEST = 20  # swaps of a round
_LEAST_ROWS, _ROWS_PER_ITEM = 600, 6  # that a tabu search is made among


@dataclass(frozen=True)
class Effort:
    """Budgets are counts and functions of the size of the problem that rise with it, so that time
    grows with n and with k and never falls (docs/method.md#budgets).

    `products` and `floor` say what swaps may take: so many products of all features with k
    vectors, and so many multiply-adds besides, which for small pools is most of it; but not more
    than `ceiling`: of many items one-swaps against the pool change more at a time.
    """

    name: str
    passes: int = 0  # of a local search, in products; 0 leaves a start as it is
    swaps: int = 0  # of tabu searches, at most
    round: int = 1  # so many of them, then their rows are looked for anew
    patience: int = 0  # rounds in a row that may fail
    products: float = 0.0
    floor: float = 0.0
    ceiling: float = math.inf
    bound: float = math.inf  # products that the bound may take, beside a floor
    samples: int = 0  # starts drawn from the relaxed solution
    provable: int = 0  # subsets of a pool up to which the optimum is proven by branch and bound
    nodes: int = 0  # that may be spent on trying to prove it beyond that

    @property
    def competes(self) -> bool:
        """Whether every rival's answer is a start, so that none ends above."""
        return self.samples > 0

    def passes_for(self, work: float) -> int:
        """Passes of one local search, for a `Problem.work`."""
        return self.passes and self.passes + int(self.floor / work)

    def equal_passes(self, work: float) -> int:
        """Passes of one-swaps that every row of a comparison gets: as many, in a round number where
        no search of so small a pool needs them."""
        return min(self.passes_for(work), _MANY_PASSES)

    def round_of(self, k: int, m: int) -> int:
        """Swaps between two looks at all rows, for sets of k among m: no more than a tiny pool is
        worth, which has few sets."""
        return min(max(self.round, k // 3), max(_SHORTEST, m * k // 2))

    def swaps_for(self, work: float, entries: int) -> int:
        """Swaps of tabu searches in all, each of which goes over so many entries."""
        affordable = min(self.floor + self.products * work, self.ceiling)
        return min(self.swaps, int(affordable / (_ENTRY * entries)))


EFFORTS = {
    effort.name: effort
    for effort in (
        Effort("fast", bound=100.0),
        Effort(
            "balanced",
            passes=10,
            swaps=1000,
            round=100,
            patience=3,
            products=30.0,
            floor=1.6e10,
            ceiling=2.5e11,
            bound=100.0,
            provable=2_000_000,
            nodes=500,
        ),
        Effort(
            "thorough",
            passes=300,
            swaps=8000,
            round=400,
            patience=5,
            products=2000.0,
            floor=1e12,
            samples=8,
            provable=100_000_000,
            nodes=30_000,
        ),
    )
}


def check_effort(name: Any) -> Effort:
    if not isinstance(name, str) or name not in EFFORTS:
        raise InputError(f"effort must be one of {', '.join(EFFORTS)}, not {brief(name)}")
    return EFFORTS[name]


@dataclass(frozen=True)
class Found:
    """A subset and how its search ended."""

    indices: Indices
    status: Status
    ordered: bool = False  # by fair greedy
    passes: int = 0  # of one-swaps, in the last local search
    upper: float | None = None  # what branch and bound has proven that no subset exceeds


def greedy(problem: Problem, session: Context) -> Found:
    """Fair greedy over the full pool; whole even if it was stopped half-way."""
    search = Greedy(problem)
    outcome = session.run(search)
    chosen = len(outcome.state.indices)
    if chosen < problem.k:
        session.notes.append(how_it_ended(outcome.status, chosen, problem.k))
    indices, ordered = search.filled(outcome.state, outcome.status)
    return Found(indices, outcome.status, ordered=ordered)


def improve(
    problem: Problem, start: Found, effort: Effort, session: Context, *, goal: float | None = None
) -> Found:
    """One-swaps against the full pool, as far as the effort goes, or until the merit is `goal`."""
    if effort.passes == 0 or session.ended(start.status):
        return start
    search = kind_of(problem).local(problem, start.indices, goal=goal)
    outcome = session.run(search, max_passes=effort.passes_for(problem.work()))
    spent = outcome.status is Status.PASS_LIMIT
    status = Status.SPENT if spent else outcome.status
    return Found(outcome.state.indices, status, passes=outcome.state.passes)


def refine(
    problem: Problem, start: Found, effort: Effort, session: Context, *, goal: float | None = None
) -> Found:
    """The best that tabu search finds from a start, brought to a one-swap optimum: what every
    objective gets."""
    found = roam(problem, start, effort, session, goal=goal)
    return improve(problem, found, effort, session, goal=goal)


def roam(
    problem: Problem, found: Found, effort: Effort, session: Context, *, goal: float | None = None
) -> Found:
    """Rounds of tabu search, each among the rows that promise most beside the best set so far.

    It is left once some rounds in a row have found nothing better.
    """
    most = arena_rows(problem)
    entries = kind_of(problem).arena.arrays * len(problem.pool.views) * most * problem.k
    harder = 1 if problem.floors is None else _WITH_FLOORS
    left, failures, count = harder * effort.swaps_for(problem.work(), entries), 0, 0
    kernels, rows = None, np.empty(0, dtype=np.int64)
    while left > 0 and most > problem.k and failures < harder * effort.patience:
        if session.ended(found.status):
            break
        with session.absorbing_interruption():
            if not failures:  # or rows and what is held of them are those of the round before
                kernels, rows = None, promising_rows(problem, found.indices, most)
            swaps = min(left, effort.round_of(problem.k, most))
            search = TabuSearch(
                problem.take(rows),
                np.searchsorted(rows, found.indices),
                swaps=swaps,
                number=count,
                goal=goal,
                kernels=kernels,
            )
            outcome = session.run(search)
            status = Status.TARGET if outcome.status is Status.TARGET else found.status
            candidate = better(problem, found, Found(rows[outcome.state.best], status))
            failures, kernels = (failures + 1, search.kernels) if candidate is found else (0, None)
            found, left, count = candidate, left - swaps, count + 1
    return found


def arena_rows(problem: Problem, n: int | None = None) -> int:
    """How many of n rows a tabu search is made among: a multiple of k, all rows where there are
    few, fewer where their kernels would be too large."""
    M, k = len(problem.pool.views), problem.k
    room = problem.means.arena / (kind_of(problem).arena.kernels_of_view * M)
    affordable = int(math.sqrt(k * k + room)) - k  # m^2 + 2 m k numbers of a view
    return min(max(_LEAST_ROWS, _ROWS_PER_ITEM * k), affordable, n or problem.n)


def better(problem: Problem, left: Found, right: Found) -> Found:
    """The one with the higher fair score; the left one when they are tied."""
    gain = subset_merit(problem, right.indices) - subset_merit(problem, left.indices)
    return right if gain > problem.tolerances.tie else left
