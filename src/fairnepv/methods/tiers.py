"""Selection in two tiers: fair greedy within every shard, then any method among what it chose.

A calibrated pool takes its row scales, ridges and offsets along with its rows, so F_tau of a set is
the same number in both tiers and in the whole pool. The first tier holds one shard at a time, or
each worker of a cluster one. What this may lose: docs/certainty.md.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from fairnepv.checks import brief
from fairnepv.errors import InputError, Status, UnsupportedError
from fairnepv.io.rows import Columns, Shards
from fairnepv.loop import Context
from fairnepv.methods.plan import Plan
from fairnepv.methods.selectors import find
from fairnepv.objective import subset_merit
from fairnepv.problem import Constraints, Problem
from fairnepv.search import Found, better, greedy, improve
from fairnepv.views import Pool
from fairnepv.views.base import Indices, View

TIERED = ("auto", "greedy", "greedy-swaps", "nepv")  # methods for the second tier
_LEAST = 2  # times k rows: smaller shards of files are joined, as they would be kept nearly whole


# --- what a shard is ------------------------------------------------------------------------------


def check_hierarchical(value: Any, method: Any) -> None:
    """What can be refused before any data is looked at."""
    counts = isinstance(value, int | np.integer) and value > 0
    if not (isinstance(value, bool | np.bool_) or counts):
        raise InputError(
            f"hierarchical must be True, False or a number of shards from 1, not {brief(value)}"
        )
    if value and method not in TIERED:
        raise UnsupportedError(
            f"hierarchical does not support method {brief(method)}, which is about the whole "
            f"pool; use one of {', '.join(map(repr, TIERED))}"
        )


def shards_of(pool: Pool, k: int, wanted: bool | int) -> tuple[int, ...]:
    """Where every shard begins, and where the last one ends.

    Those of the files that the first view lies in; else, or where a number is `wanted`, even runs
    of rows, by default so many that both tiers see about sqrt(n k) rows at a time.
    """
    if not wanted:
        return ()
    files = _files(pool.views[0])
    if wanted is True and files is not None:
        return _joined(files, _LEAST * k)
    count = max(1, round(math.sqrt(pool.n / k))) if wanted is True else int(wanted)
    most = (pool.n - 1) // k
    if count > max(1, most):
        raise InputError(
            f"hierarchical = {brief(count)} makes shards of at most {-(-pool.n // count)} rows, "
            f"but k = {k} of each go on to the second tier, so that it would see all of them; give "
            f"at most {max(1, most)}"
        )
    return tuple(s * pool.n // count for s in range(count + 1))


def _files(view: View) -> Sequence[int] | None:
    data = getattr(view, "data", None)
    while isinstance(data, Columns):
        data = data.rows
    return data.starts if isinstance(data, Shards) else None


def _joined(starts: Iterable[int], least: int) -> tuple[int, ...]:
    """The same where every shard has so many rows, if there are so many at all."""
    first, *_, n = ends = list(starts)
    kept = [first]
    for end in ends[1:]:
        if end - kept[-1] >= least and n - end >= least:
            kept.append(end)
    return (*kept, n)


# --- the search -----------------------------------------------------------------------------------


def find_in_tiers(problem: Problem, plan: Plan, context: Context) -> Found:
    """The subset that a method finds among the winners of all shards, or comes from the best set
    that one shard had, if that is better. One shard is no tier: the method sees the pool."""
    if len(plan.shards) <= 2:
        return find(problem, plan, context)
    whole = context.journal is not None  # or a shard that takes longer would never be done
    with closing(FirstTier(problem, plan.shards, context.deadline, first_whole=whole)) as tier:
        outcome = context.run(tier)
    state = outcome.state
    found = Found(_in_hand(problem, state), outcome.status)
    if outcome.status is not Status.COMPLETE:
        context.notes.append(
            f"the first tier had looked at {state.done} of {len(plan.shards) - 1} shards when it "
            "stopped; what the others hold is not known"
        )
        return found
    with context.absorbing_interruption():
        return _among_winners(problem, state, plan, context)
    return found


def _among_winners(problem: Problem, state: ShardsState, plan: Plan, context: Context) -> Found:
    """The second tier. It gets no certificate: whatever is proven of the winners alone would be no
    bound on the pool, and what is chosen should not depend on whether a bound was asked for."""
    rows = np.unique(state.winners)
    second = problem.take(rows)
    found = find(second, replace(plan, certificate=None, shards=()), context)
    if len(state.best):
        ended = Status.SPENT if found.passes else Status.COMPLETE  # unless passes are left for it
        start = Found(np.searchsorted(rows, state.best), ended)
        if better(second, found, start) is start:
            effort = plan.refining_after(found.passes)
            found = start
            if plan.method != "greedy":
                found = improve(second, start, effort, context, goal=context.goal)
    local = found.status is Status.LOCAL_OPTIMUM  # nobody has looked at the rest of the pool
    status = Status.LOCAL_AMONG_WINNERS if local else found.status
    return replace(found, indices=rows[found.indices], status=status)


def _in_hand(problem: Problem, state: ShardsState) -> Indices:
    """The best set that one shard had; without any the winners so far, filled up from the first
    rows on such that every rule is met."""
    if len(state.best):
        return state.best
    wanted = -np.arange(problem.n, dtype=np.float64)
    wanted[state.winners[::-1]] = 1.0 + np.arange(len(state.winners))
    return np.sort(problem.constraints.best_set(wanted, problem.k)).astype(np.int64)


@dataclass(frozen=True)
class ShardsState:
    winners: Indices  # of all shards so far, each in greedy order
    best: Indices  # the best whole selection that one shard had; empty while there is none
    value: float  # F_tau of it, or of what the last shard chose
    done: int = 0  # shards
    stopped: str = ""  # the status by which the last of them ended too early

    @property
    def passes(self) -> int:
        return min(self.done, 1)


class FirstTier:
    """Fair greedy within one shard after another; a step is a shard. Workers of a cluster are ahead
    of it, each with a shard of its own."""

    stage = "shards"

    def __init__(
        self,
        problem: Problem,
        shards: Sequence[int],
        deadline: float | None = None,
        *,
        first_whole: bool = False,
    ) -> None:
        """The deadline holds within a shard, too; unless for the first that is looked at."""
        self.problem, self._first_whole = problem, first_whole
        # Told by the clock on the wall, which is the one that machines have in common.
        self._deadline = None if deadline is None else deadline - time.monotonic() + time.time()
        self._shards = list(itertools.pairwise(shards))
        self._coming: Generator[tuple[Found, float], None, None] | None = None
        self._next = -1  # the shard that comes next; -1 where that is not known

    def close(self) -> None:
        """End what workers do ahead. Left to the garbage collector, which finds it in a cycle, that
        might be after the end of the cluster."""
        if self._coming is not None:
            self._coming.close()

    def init(self) -> ShardsState:
        none = np.empty(0, dtype=np.int64)
        return ShardsState(none, none, 0.0)

    def step(self, state: ShardsState) -> ShardsState:
        problem, best = self.problem, state.best
        found, value = self._found_in(state.done)
        chosen = found.indices
        whole = len(chosen) == problem.k and problem.constraints.is_met(chosen)
        if whole and (not len(best) or value > state.value + problem.tolerances.tie):
            best = chosen
        elif len(best):
            value = state.value
        return ShardsState(
            np.concatenate([state.winners, chosen]),
            best,
            value,
            state.done + 1,
            "" if found.status is Status.COMPLETE else found.status.name,
        )

    def _found_in(self, shard: int) -> tuple[Found, float]:
        if self._coming is None or self._next != shard:
            self.close()
            tasks = map(self._task, range(shard, len(self._shards)))
            self._coming = self.problem.pool.each(_winners, tasks)
        self._next = -1  # should this be interrupted
        found = next(self._coming)
        self._next = shard + 1
        return found

    def _task(self, shard: int) -> ShardTask:
        problem, rows = self.problem, np.arange(*self._shards[shard])
        if len(problem.constraints.fixed_in):  # every shard is to complement them
            rows = np.union1d(rows, problem.constraints.fixed_in)
        own = ("pool", "constraints", "k")
        terms = {f.name: getattr(problem, f.name) for f in fields(problem) if f.name not in own}
        rules = problem.constraints.take(rows)
        deadline = None if self._first_whole else self._deadline
        self._first_whole = False
        return ShardTask(rows, rules, problem.k, terms, deadline)

    def done(self, state: ShardsState) -> Status | None:
        if state.stopped:
            return Status[state.stopped]
        return Status.COMPLETE if state.done == len(self._shards) else None

    def report(self, state: ShardsState) -> Mapping[str, Any]:
        return {
            "objective": state.value,
            "size": state.done,
            "of": len(self._shards),
            "winners": len(state.winners),
        }


class ShardTask(NamedTuple):
    """What it takes to choose from a shard, besides the rows of the pool."""

    rows: Indices
    rules: Constraints  # for these
    k: int
    terms: dict[str, Any]  # the other fields of the problem
    deadline: float | None  # in `time.time` seconds


def _winners(pool: Pool, task: ShardTask) -> tuple[Found, float]:
    """What fair greedy chooses of these rows, at most k, and how it scores.

    First under the rules as far as they can be met here: of every group as many as are asked for
    or as there are, and no more than are allowed. Then, where these rows cannot fill k under them,
    k regardless. So the winners of all shards always contain a set that meets every rule: of each
    group they have as many as are asked for, since a shard has those or gives all it has; and k
    that are allowed, from one shard or since every shard gives all that it is allowed to.
    """
    rows, rules = task.rows, task.rules
    free = np.setdiff1d(np.arange(len(rows)), rules.fixed_out)
    most = k = min(task.k, len(free))
    if rules.quotas is not None:
        there = rules.quotas.count(free)
        k = min(k, int(np.minimum(there, rules.quotas.most).sum()))
        quotas = replace(rules.quotas, least=np.minimum(rules.quotas.least, there))
        rules = replace(rules, quotas=quotas)
    if most == len(rules.fixed_in):
        return Found(rows[rules.fixed_in], Status.COMPLETE), 0.0
    shard = Problem(pool.take(rows), k, constraints=rules, **task.terms)
    time_limit = None if task.deadline is None else task.deadline - time.time()
    context = Context(time_limit=time_limit)  # aside: one line per shard, not one per pick
    found = greedy(shard, context)
    if k < most and found.status is Status.COMPLETE:
        shard = replace(shard, k=most, constraints=Constraints(found.indices, rules.fixed_out))
        found = greedy(shard, context)
    return replace(found, indices=rows[found.indices]), subset_merit(shard, found.indices)
