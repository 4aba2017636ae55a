"""How hard to search, in passes; and the one way to improve a start that everything shares.

The baselines are refined by the same function under the same effort as our own method, so that a
comparison compares objectives and not budgets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairnepv.checks import brief
from fairnepv.errors import InputError, Status
from fairnepv.loop import Context
from fairnepv.objective import subset_merit
from fairnepv.problem import Problem, Stream
from fairnepv.search.greedy import Greedy, how_it_ended
from fairnepv.search.local import LocalSearch
from fairnepv.views.base import Indices


@dataclass(frozen=True)
class Effort:
    """Budgets are passes and counts, functions of the size of the problem and of nothing else."""

    name: str
    max_passes: int  # per local search; 0 leaves a start as it is
    pairs: int  # pair exchanges tried at a one-swap optimum
    restarts: int = 0  # perturbations of the best set, at most
    patience: int = 0  # so many of them in a row may fail
    samples: int = 0  # starts drawn from the relaxed solution
    provable: int = 0  # subsets of a pool up to which the optimum is proven by branch and bound
    nodes: int = 0  # that may be spent on trying to prove it beyond that
    work: float = 0.0  # multiply-adds in units of `Problem.work` that restarts may take in all
    large: tuple[int, int] = (0, 0)  # passes and pairs for a pool whose passes take long
    limited: bool = False  # this is the effort for such a pool

    @property
    def one_swaps(self) -> Effort:
        """The same effort without pair exchanges."""
        return replace(self, pairs=0)

    def restarts_for(self, work: float) -> int:
        """Small problems, by `Problem.work`, are perturbed often, large ones hardly."""
        return min(self.restarts, int(self.work / work))

    def for_work(self, work: float) -> Effort:
        """The same effort, or less of it where every pass takes long."""
        if work <= _LONG_PASS:
            return self
        passes, pairs = self.large
        return replace(self, max_passes=passes, pairs=pairs, restarts=0, limited=True)

    def for_size(self, problem: Problem) -> Effort:
        return self.for_work(problem.work())


EFFORTS = {
    "fast": Effort("fast", max_passes=0, pairs=0),
    "balanced": Effort(
        "balanced",
        max_passes=2000,
        pairs=16,
        restarts=300,
        patience=100,
        samples=2,
        provable=2_000_000,
        nodes=3000,
        work=1e9,
        large=(30, 0),
    ),
    "thorough": Effort(
        "thorough",
        max_passes=10000,
        pairs=64,
        restarts=2000,
        patience=400,
        samples=8,
        provable=100_000_000,
        nodes=30_000,
        work=1e11,
        large=(300, 16),
    ),
}
_DROP_MOST, _DROP_SHARE = 6, 0.2  # of the items that a perturbation replaces, at most
_LONG_PASS = 3e9  # multiply-adds of one pass beyond which efforts are limited


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
    upper: float | None = None  # what branch and bound has proven that no subset exceeds


def greedy(problem: Problem, session: Context) -> Found:
    """Fair greedy over the full pool; whole even if it was stopped half-way."""
    search = Greedy(problem)
    outcome = session.run(search)
    chosen = len(outcome.state.indices)
    if chosen < problem.k:
        session.notes.append(how_it_ended(outcome.status, chosen, problem.k))
    indices = search.filled(outcome.state, outcome.status)
    return Found(indices, outcome.status, ordered=chosen == problem.k)


def improve(
    problem: Problem, start: Found, effort: Effort, session: Context, *, goal: float | None = None
) -> Found:
    """One-swaps and pair exchanges, as far as the effort goes, or until the merit is `goal`."""
    if effort.max_passes == 0 or session.stopped:
        return start
    search = LocalSearch(problem, start.indices, pairs=effort.pairs, goal=goal)
    outcome = session.run(search, max_passes=effort.max_passes)
    spent = outcome.status is Status.PASS_LIMIT and effort.limited
    return Found(outcome.state.indices, Status.SPENT if spent else outcome.status)


def restart_from(problem: Problem, found: Found, effort: Effort, session: Context) -> Found:
    """The best of a local optimum and of what its perturbations lead to."""
    restarts, failures = effort.restarts_for(problem.work()), 0
    found_without = found
    for restart in range(restarts):
        if session.ended(found.status) or failures >= effort.patience:
            break
        perturbed = Found(_perturb(problem, found.indices, restart), found.status)
        reached = improve(problem, perturbed, effort.one_swaps, session, goal=session.goal)
        candidate = better(problem, found, reached)
        failures = failures + 1 if candidate is found else 0
        found = candidate
    if found is not found_without:  # what came of restarts has seen no pairs yet
        found = better(problem, found, improve(problem, found, effort, session, goal=session.goal))
    return replace(found, status=session.stopped or found.status)


def better(problem: Problem, left: Found, right: Found) -> Found:
    """The one with the higher fair score; the left one when they are tied."""
    gain = subset_merit(problem, right.indices) - subset_merit(problem, left.indices)
    return right if gain > problem.tolerances.tie else left


def _perturb(problem: Problem, indices: Indices, restart: int) -> Indices:
    """Some items dropped at random and others put in their place, also at random.

    A greedy refill was tried: it mostly led back to where it came from, and cost a pass per item.
    """
    rules, rng = problem.constraints, problem.rng(Stream.PERTURB, restart)
    free = indices[~np.isin(indices, rules.fixed_in)]
    most = min(len(free), max(_DROP_MOST, math.ceil(_DROP_SHARE * problem.k)))
    count = int(rng.integers(min(2, most), most + 1))
    dropped = rng.choice(free, size=count, replace=False)
    scores = rng.random(problem.n)
    scores[indices] += 1.0  # kept
    scores[dropped] -= 2.0  # only where the rules leave nothing else
    return rules.best_set(scores, problem.k).astype(np.int64)
