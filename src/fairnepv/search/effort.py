"""How hard to search, in passes; and the one way to improve a start that everything shares.

The baselines are refined by the same function under the same effort as our own method, so that a
comparison compares objectives and not budgets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairnepv.errors import InputError, Status
from fairnepv.loop import Session
from fairnepv.objective import fair_score
from fairnepv.problem import Problem
from fairnepv.search.greedy import Greedy, complete
from fairnepv.search.local import LocalSearch
from fairnepv.views.base import Indices


@dataclass(frozen=True)
class Effort:
    name: str
    max_passes: int  # per local search; 0 leaves a start as it is
    pairs: int  # pair exchanges tried at a one-swap optimum
    restarts: int  # perturbations of the best set

    @property
    def one_swaps(self) -> Effort:
        """The same effort without pair exchanges and restarts."""
        return replace(self, pairs=0, restarts=0)


EFFORTS = {
    "fast": Effort("fast", max_passes=0, pairs=0, restarts=0),
    "balanced": Effort("balanced", max_passes=2000, pairs=16, restarts=0),
    "thorough": Effort("thorough", max_passes=10000, pairs=64, restarts=10),
}


def check_effort(name: Any) -> Effort:
    if not isinstance(name, str) or name not in EFFORTS:
        raise InputError(f"effort must be one of {', '.join(EFFORTS)}, not {name!r}")
    return EFFORTS[name]


@dataclass(frozen=True)
class Found:
    """A subset and how its search ended."""

    indices: Indices
    status: Status


def greedy(problem: Problem, session: Session) -> Found:
    """Fair greedy over the full pool; whole even if it was stopped half-way."""
    outcome = session.run(Greedy(problem))
    chosen = len(outcome.state.indices)
    if chosen < problem.k:
        session.notes.append(
            f"greedy had {chosen} of {problem.k} items when it stopped; the others were filled in "
            "by the scores as they stood then"
        )
    return Found(complete(problem, outcome.state.indices), outcome.status)


def improve(problem: Problem, start: Found, effort: Effort, session: Session) -> Found:
    """One-swaps, pair exchanges and restarts, as far as the effort goes."""
    if effort.max_passes == 0 or session.stopped:
        return start
    return restart_from(problem, _local(problem, start.indices, effort, session), effort, session)


def restart_from(problem: Problem, found: Found, effort: Effort, session: Session) -> Found:
    """The best of a local optimum and of what its perturbations lead to."""
    for restart in range(effort.restarts):
        if session.stopped:
            break
        perturbed = _perturb(problem, found.indices, restart, session)
        found = better(problem, found, _local(problem, perturbed, effort, session))
    return replace(found, status=session.stopped or found.status)


def better(problem: Problem, left: Found, right: Found) -> Found:
    """The one with the higher fair score; the left one when they are tied."""
    gain = fair_score(problem.pool, right.indices, problem.tau) - fair_score(
        problem.pool, left.indices, problem.tau
    )
    return right if gain > problem.tolerances.tie else left


def _local(problem: Problem, start: Indices, effort: Effort, session: Session) -> Found:
    search = LocalSearch(problem, start, pairs=effort.pairs)
    outcome = session.run(search, max_passes=effort.max_passes)
    return Found(outcome.state.indices, outcome.status)


def _perturb(problem: Problem, indices: Indices, restart: int, session: Session) -> Indices:
    """Some items dropped at random and replaced greedily by others."""
    rules = problem.constraints
    free = indices[~np.isin(indices, rules.fixed_in)]
    count = min(len(free), max(2, math.ceil(0.1 * problem.k)))
    dropped = problem.rng(2, restart).choice(free, size=count, replace=False)
    kept = indices[~np.isin(indices, dropped)]
    spare = problem.n - len(rules.fixed_out) - len(kept) - count
    barred = dropped if spare >= count and rules.quotas is None else dropped[:0]
    refill = replace(
        problem,
        constraints=replace(
            rules,
            fixed_in=kept,
            fixed_out=np.concatenate([rules.fixed_out, barred]),
        ),
    )
    return greedy(refill, session).indices
