"""The selectors by name: the default and its starts, the paper's pipeline, exact, and baselines."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fairnepv.checks import brief
from fairnepv.concave import Certificate
from fairnepv.concave.topk import price_candidates
from fairnepv.errors import InputError, Status, UnsupportedError
from fairnepv.loop import Context
from fairnepv.methods.baselines import baselines, refuse
from fairnepv.methods.plan import Plan
from fairnepv.problem import Problem, Stream
from fairnepv.search import (
    EFFORTS,
    Effort,
    Exact,
    Found,
    better,
    greedy,
    improve,
    refine,
    refuse_missed_floors,
)
from fairnepv.search.exact import DEEPEST, MOST_ROWS, refuse_large

OWN_METHODS = ("auto", "nepv", "greedy-swaps", "greedy", "exact")
# What methods get that are not refined by one-swaps under an objective of their own.
APART = {
    "auto": "more: tabu search or a proof, and starts that a bound gives",
    "exact": "more: tabu search, and branch and bound",
    "greedy": "less: no swaps",
    "random": "less: drawn",
    "k-dpp": "less: the best of ten draws",
}
_APART_WITHOUT_SWAPS = {**APART, "auto": APART["greedy"], "exact": "more: branch and bound"}
Start = Callable[[Context], Found]
_WORTH_A_TRY = 50  # times as many subsets as are surely provable: a proof may still succeed
# Nodes of branch and bound take so many times as long as those of log-determinants, and of as many
# subsets so many times the nodes are needed.
_NODE_COST = {"representative": 40}
_NODES_NEEDED = {"representative": 20}
_SEARCHED_RIVALS = ("fixed-weight", "averaged", "concatenated")


def set_apart(method: str, effort: Effort) -> str | None:
    """What a method of `APART` gets with this effort; None for all others."""
    return (APART if effort.passes else _APART_WITHOUT_SWAPS).get(method)


def known_method(problem: Problem, name: Any) -> str:
    """The name of a method, whether or not it can be run on this problem."""
    known = (*OWN_METHODS, *baselines(problem.pool.names))
    if not isinstance(name, str) or name not in known:
        raise InputError(f"method must be one of {', '.join(known)}, not {brief(name)}")
    return name


def check_method(problem: Problem, name: Any) -> str:
    """The name of a method that can be run on this problem."""
    known_method(problem, name)
    if name == "exact":
        refuse_large(problem)
    reason = refusal(problem, name)
    if reason:
        raise UnsupportedError(reason)
    return str(name)


def refusal(problem: Problem, name: str) -> str | None:
    """Why a method cannot be run on this problem, or None if it can."""
    if problem.floors is not None and name not in OWN_METHODS:
        ours = ", ".join(map(repr, OWN_METHODS))
        return f"method '{name}' does not support floors; use one of {ours}"
    return refuse(problem, name)


def find(problem: Problem, plan: Plan, context: Context) -> Found:
    """The subset that a method finds."""
    if plan.method == "greedy":
        return greedy(problem, context)
    if plan.method == "greedy-swaps":
        return improve(problem, greedy(problem, context), plan.refining, context)
    if plan.method == "nepv":
        start = plan.nepv.start_from(problem, context)
        return improve(problem, start, plan.refining, context)
    if plan.method == "auto":
        return _auto(problem, plan, context)
    if plan.method == "exact":
        return _exact(problem, plan, context)
    return baselines(problem.pool.names)[plan.method](problem, plan.refining, context)


def _exact(problem: Problem, plan: Plan, context: Context) -> Found:
    """A good set first, then branch and bound until nothing better can be left."""
    start = _best_found(problem, plan, context)
    if context.ended(start.status):
        return start
    found = start
    with context.absorbing_interruption():
        search = Exact(
            problem, start.indices, price_candidates, node_limit=plan.node_limit, goal=context.goal
        )
        outcome = context.run(search)
        upper = outcome.state.upper
        proven = search.proves and math.isfinite(upper)
        found = Found(outcome.state.indices, outcome.status, upper=upper if proven else None)
        if outcome.status is Status.OPTIMAL and problem.floors is not None:
            refuse_missed_floors(problem, found.indices)
    return found


def _auto(problem: Problem, plan: Plan, context: Context) -> Found:
    """Starts and tabu searches; for a small pool, if a bound is wanted at all, also the proof."""
    if plan.certificate is None or problem.n > MOST_ROWS or problem.k > DEEPEST:
        return _best_found(problem, plan, context)
    effort, subsets = plan.effort, math.comb(problem.n, problem.k)
    provable = effort.provable // _NODES_NEEDED.get(problem.utility, 1)
    if subsets <= provable:  # what further searches might find, the proof finds too
        few = replace(effort, swaps=0, samples=0)
        return _exact(problem, replace(plan, effort=few), context)
    if subsets > _WORTH_A_TRY * provable:
        return _best_found(problem, plan, context)
    nodes = effort.nodes // _NODE_COST.get(problem.utility, 1)
    found = _exact(problem, replace(plan, node_limit=nodes), context)
    if found.status is not Status.NODE_LIMIT:
        return found
    # A proof that nobody asked for may fail; a set that it found on the way has seen no swaps.
    return replace(improve(problem, found, effort, context), upper=found.upper)


def _best_found(problem: Problem, plan: Plan, context: Context) -> Found:
    """The best of the first starts, refined: by tabu search, then by one-swaps against the full
    pool until none improves. Where an effort competes, every other start is brought to its one-swap
    optimum and refined in turn if that is the best so far; every rival with an objective of its own
    is among them, so that the answer is never below theirs.
    """
    effort = plan.effort
    best = greedy(problem, context)
    if effort.passes == 0 or context.stopped:
        return best
    for start in _first_starts(problem, plan):
        if context.ended(best.status):
            return best
        with context.absorbing_interruption():
            best = better(problem, best, start(context))
    best = _refined(problem, best, effort, context)
    for start in _further_starts(problem, plan):
        if context.ended(best.status):
            break
        with context.absorbing_interruption():
            other = improve(problem, start(context), effort, context, goal=context.goal)
            found = better(problem, best, other)
            best = best if found is best else _refined(problem, found, effort, context)
    return replace(best, status=context.stopped or best.status)


def _refined(problem: Problem, best: Found, effort: Effort, context: Context) -> Found:
    found = refine(problem, best, effort, context, goal=context.goal)
    return replace(better(problem, best, found), status=found.status)


def _first_starts(problem: Problem, plan: Plan) -> Iterator[Start]:
    """What is compared with fair greedy, each a function of the context that it runs in."""
    names = problem.pool.names
    if plan.certificate is not None:
        yield partial(_support_start, problem, plan.certificate)
    if problem.floors is not None:
        for name, least in zip(names, problem.floors, strict=True):
            if np.isfinite(least):
                yield partial(baselines(names)[f"{name}-only"], problem, EFFORTS["fast"])


def _further_starts(problem: Problem, plan: Plan) -> Iterator[Start]:
    """What an effort that competes also starts from."""
    effort, names = plan.effort, problem.pool.names
    if not effort.competes:
        return
    if plan.certificate is not None:
        for sample in range(effort.samples):
            yield partial(_sampled_start, problem, plan.certificate, sample)
    if problem.means.relaxation:
        for begins in ("spectral", "sketch"):
            yield partial(replace(plan.nepv, start=begins).start_from, problem)
    if len(names) > 1 and problem.floors is None:
        known = baselines(names)
        for name in (*(f"{name}-only" for name in names), *_SEARCHED_RIVALS):
            yield partial(known[name], problem, effort)


def _support_start(problem: Problem, certificate: Certificate, context: Context) -> Found:
    """Fair greedy among the rows that the concave relaxation uses."""
    used = certificate.support[certificate.relaxed > 1e-3]
    rules = problem.constraints
    needed = rules.best_set(_log_shares(problem, certificate), problem.k)
    rows = np.union1d(np.union1d(used, rules.fixed_in), needed).astype(np.int64)
    found = greedy(problem.take(rows), context)
    return Found(rows[found.indices], found.status)


def _sampled_start(
    problem: Problem, certificate: Certificate, sample: int, context: Context
) -> Found:
    """k rows drawn with the relaxed solution as weights (Gumbel noise, so that any rule can be
    kept)."""
    noise = problem.rng(Stream.RELAXED_SAMPLE, sample).gumbel(size=problem.n)
    rows = problem.constraints.best_set(_log_shares(problem, certificate) + noise, problem.k)
    return Found(np.sort(rows).astype(np.int64), Status.COMPLETE)


def _log_shares(problem: Problem, certificate: Certificate) -> Any:
    shares = np.full(problem.n, 1e-12)
    shares[certificate.support] += certificate.relaxed
    return np.log(shares)
