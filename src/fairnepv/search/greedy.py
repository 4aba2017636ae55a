"""Screening by leverage, and fair greedy: one item at a time, each the best for F_tau of the set
so far. Partial sets are scored with 1/|S|; the `Frontier` says which row is the best.
"""

import contextlib
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairnepv.compute import HOST
from fairnepv.compute.clock import check_time, now, unlimited
from fairnepv.errors import Status
from fairnepv.loop import MOMENT, Budget, Context, run
from fairnepv.objective import Standing
from fairnepv.options import default
from fairnepv.problem import Problem, Stream
from fairnepv.search.frontier import OVERFLOWS, Frontier, Judge
from fairnepv.search.kinds import kind_of
from fairnepv.search.ties import blur, ranked
from fairnepv.views.base import Floats, Indices
from fairnepv.views.moments import second_norms_left

_AT_ONCE = 5e9  # multiply-adds of a first product that nothing keeps from being made
_FEW = 4.0  # times k rows that a set is filled up from when time is up


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
        self._latest: Frontier | None = None  # the same, even where it is half-way to the next pick

    def init(self) -> GreedyState:
        indices = self.problem.constraints.fixed_in
        # One product where items are included: without it there is no state.
        with unlimited() if begins_at_once(self.problem) else contextlib.nullcontext():
            return GreedyState(indices, self._at(indices).value)

    def step(self, state: GreedyState) -> GreedyState:
        frontier = self._at(state.indices)
        self._frontier = None  # until it is whole again, should this be interrupted
        with np.errstate(**OVERFLOWS):
            frontier.extend(frontier.best_addition())
        self._frontier = frontier
        return GreedyState(frontier.indices, frontier.value, frontier.passes)

    def done(self, state: GreedyState) -> Status | None:
        return Status.COMPLETE if len(state.indices) == self.problem.k else None

    def report(self, state: GreedyState) -> Mapping[str, Any]:
        return {"objective": state.value, "size": len(state.indices), "of": self.problem.k}

    def _at(self, indices: Indices) -> Frontier:
        """The frontier of these picks: the one at hand, or one rebuilt for a resumed state."""
        if self._frontier is None or not np.array_equal(self._frontier.indices, indices):
            frontier = frontier_of(self.problem, self._judge, indices[:0])
            for row in indices:  # one by one, so that a resumed run goes on to the last bit
                check_time()
                frontier.extend(int(row))
            if len(indices):
                frontier.refresh_all()
            self._frontier = self._latest = frontier
        return self._frontier

    def filled(self, state: GreedyState, status: Status) -> tuple[Indices, bool]:
        """The picks of a run that ended so, filled up to k where they are fewer; and whether they
        are in greedy order.

        After an interruption or the deadline not all rows are looked at again: greedy goes on for a
        part of a moment among few, of which half are the best by what is known of them and half are
        drawn by lot: what is known is a bound, and the best by a bound are often alike. What is
        still missing then are the best of the few by what is known of them by now.
        """
        problem, indices = self.problem, state.indices
        if not status.stops_everything or len(indices) == problem.k:
            return complete(problem, indices), len(indices) == problem.k
        with unlimited():  # time is up, and without this there is no answer
            return self._filled_from_few(state)

    def _filled_from_few(self, state: GreedyState) -> tuple[Indices, bool]:
        problem, indices = self.problem, state.indices
        preference = problem.rng(Stream.FILLED).random(problem.n)
        known = _known_scores(problem, indices, self._latest)
        best = min(int(_FEW / 2 * problem.k), problem.n)
        preference[HOST.highest(known, best)] += 1.0
        preference[indices] += 2.0
        rows = shortlist(problem, preference, _FEW)
        few = Greedy(problem.take(rows), self._judge)
        begun = replace(state, indices=np.searchsorted(rows, indices))
        outcome = run(few, budget=Budget(deadline=now() + MOMENT / 2), state=begun)
        chosen = outcome.state.indices
        if few._latest is None:  # not even the picks could be looked at once more
            return complete(problem, indices, self._latest), False
        return rows[complete(few.problem, chosen, few._latest)], len(chosen) == problem.k


def begins_at_once(problem: Problem) -> bool:
    """Whether greedy can begin in a moment, so that it has an answer whatever the clock says: not
    where all rows have to be multiplied by a large matrix first."""
    return second_norms_left(problem.pool) <= _AT_ONCE


def frontier_of(problem: Problem, judge: Judge, indices: Indices, *, coarse: bool = True) -> Any:
    """What is known of a set, by the utility of the problem."""
    return kind_of(problem).frontier(problem, judge, indices, coarse=coarse)


def how_it_ended(status: Status, chosen: int, k: int) -> str:
    """What a user should know of a greedy search that chose fewer than k items."""
    ends = {
        Status.TIME_LIMIT: "time_limit ran out",
        Status.INTERRUPTED: "the search was interrupted",
    }
    return (
        f"{ends.get(status, 'rounding in float64 ended the search')} after {chosen} of {k} items "
        "were chosen by greedy from all rows; the others are from few rows, some of them drawn by "
        "lot"
    )


def complete(problem: Problem, indices: Indices, frontier: Frontier | None = None) -> Indices:
    """An unfinished greedy set filled up to k by the scores as they stand, as far as a frontier
    knows them; without one after a pass."""
    if len(indices) == problem.k:
        return indices
    scores = _known_scores(problem, indices, frontier)
    tie = max(problem.tolerances.tie, blur(problem, len(indices) + 1))
    order = ranked(scores, tie, None if problem.constraints else problem.k + len(indices))
    if problem.constraints.quotas is None:  # or who may come depends on who came before
        allowed = problem.constraints.may_add(indices, problem.n, problem.k)
        others = order[allowed[order]]
        must = np.isin(others, problem.constraints.fixed_in)
        room = problem.k - len(indices) - int(must.sum())
        others = others[must | (np.cumsum(~must) <= room)]
        return np.concatenate([indices, others]).astype(np.int64)
    while len(indices) < problem.k:
        allowed = problem.constraints.may_add(indices, problem.n, problem.k)
        indices = np.append(indices, order[np.argmax(allowed[order])])
    return indices


def _known_scores(problem: Problem, indices: Indices, frontier: Frontier | None) -> Floats:
    """(n,) scores of the set with each row, as far as a frontier knows them; without one after a
    pass. Those of rows that are chosen mean nothing."""
    judge = functools.partial(Standing.of, problem)
    with np.errstate(**OVERFLOWS):
        try:
            frontier = frontier or frontier_of(problem, judge, indices, coarse=False)
        except np.linalg.LinAlgError:  # picks of a `Sprint` need not be possible one by one
            frontier = frontier_of(problem, judge, indices[:0], coarse=False)
        scores = frontier.standing(len(indices) + 1).fair_scores(frontier.gains())
    return np.asarray(np.nan_to_num(scores, nan=-1e300, neginf=-1e300))  # unknown scores go last


def fair_order(problem: Problem, indices: Indices, session: Context | None = None) -> Indices:
    """The same set in fair-greedy order within itself, so that its first j make sense alone. Where
    Ctrl-C or the deadline came first, the notes of the session say so; and of Ctrl-C, which the run
    absorbs, it hears, since others may wait for their turn."""
    rows = np.sort(indices)
    outcome = run(Greedy(problem.take(rows)))
    order = outcome.state.indices
    rest = np.setdiff1d(np.arange(len(rows)), order)  # where rounding stopped greedy half-way
    if session is not None and outcome.status is Status.INTERRUPTED:
        session.interrupt()
    if session is not None and len(rest) and outcome.status.stops_everything:
        session.notes.append(
            f"only the first {len(order)} of {len(rows)} items are in the order of what they add; "
            "there was no time for the others"
        )
    return np.asarray(rows[np.concatenate([order, rest])])


def shortlist(
    problem: Problem, leverage: Floats, oversampling: float = default("oversampling")
) -> Indices:
    """The min(n, ceil(c k)) rows of largest leverage, sorted by row; of tied ones the lowest
    [FairNEPv, section 4.4, steps 1 and 2].

    Items fixed in are added and items fixed out left out; with groups, enough of each group is
    added that every quota can be met from the shortlist alone.
    """
    rules, k = problem.constraints, problem.k
    wanted = min(problem.n, math.ceil(oversampling * k))
    first = wanted + len(rules.fixed_out) if rules.quotas is None else None
    order = ranked(leverage, problem.tolerances.tie, first)
    order = order[~np.isin(order, rules.fixed_out)]
    chosen = [rules.fixed_in, order[:wanted]]
    if rules.quotas is not None:
        for group, most in enumerate(rules.quotas.most):
            members = order[rules.quotas.groups[order] == group]
            chosen.append(members[: min(int(most), k)])
    return np.unique(np.concatenate(chosen)).astype(np.int64)
