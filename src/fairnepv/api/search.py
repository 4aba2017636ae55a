"""A search, from the options that ask for it to the record of what it found.

`select`, `compare` and the insights that search again come here, so that the same question is
searched for in the same way, whoever asks it.
"""

import sys
import time
import warnings
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from fairnepv.api.grading import make_selection
from fairnepv.api.objectives import as_wanted
from fairnepv.api.selection import Selection
from fairnepv.api.settings import chosen_from, settings_of
from fairnepv.checks import brief
from fairnepv.compute import block_threads
from fairnepv.compute.clock import Limit, limited, now, seconds_for, unlimited
from fairnepv.concave import Certificate
from fairnepv.concave import certify as make_certificate
from fairnepv.errors import InputError, RankWarning, Status
from fairnepv.io.memory import check_memory_limit
from fairnepv.loop import MOMENT, Context, check_progress
from fairnepv.methods import APART, Nepv, check_method, check_nepv, find, refusal
from fairnepv.methods.plan import Plan
from fairnepv.methods.tiers import check_hierarchical, find_in_tiers, shards_of
from fairnepv.objective import fair_value, scoring_work, subset_scores
from fairnepv.options import DIVERSE, SelectOptions
from fairnepv.problem import Problem, Stream
from fairnepv.search import (
    Effort,
    Found,
    begins_at_once,
    check_effort,
    fair_order,
    greedy,
    misses_floors,
)
from fairnepv.stiefel import check_start
from fairnepv.views.base import Indices

# Parts of the time that is left, for what comes before the search.
FLOORS, BOUND = 0.2, 0.4
_LOTS = 5  # sets that are drawn to see what lots score
_HASTE = 0.1  # of the time that is left, at most: what an order of a set, or a lot, may take


def check_search(options: SelectOptions, methods: tuple[str, ...] = ()) -> SelectOptions:
    """What can be refused of a search before any data is looked at, besides single values; for
    several methods, what none of them takes."""
    method, options = options["method"], as_wanted(options)
    check_nepv(options, methods or (method,))
    if options["passes"] is not None and all(name in APART for name in methods or (method,)):
        raise InputError(
            f"passes are for methods that are refined by one-swaps alone, not for "
            f"{', '.join(map(brief, methods or (method,)))}; drop it"
        )
    check_hierarchical(options["hierarchical"], method)
    check_progress(options["progress"])
    if options["target_efficiency"] is not None and not options["certify"]:
        raise InputError("target_efficiency needs the bound; leave certify on")
    if options["node_limit"] is not None and method != "exact":
        raise InputError(f"node_limit is for method 'exact', not {brief(method)}; drop it")
    return {**options, "memory_limit": check_memory_limit(options["memory_limit"])}


def make_plan(problem: Problem, options: SelectOptions) -> Plan:
    """How `select` and `compare` search; later searches take the plan of a selection."""
    method = check_method(problem, options["method"])
    return Plan(
        method,
        check_effort(options["effort"]),
        nepv_of(problem, method, options),
        options["node_limit"],
        shards=shards_wanted(problem, options),
        target=options["target_efficiency"],
        gap=options["gap"],
        time_limit=options["time_limit"],
        memory_limit=check_memory_limit(options["memory_limit"]),
        passes=None if method in APART else options["passes"],
    )


def supported(problem: Problem, methods: Iterable[str], notes: list[str]) -> list[str]:
    """Those of the methods that can be run on this problem; `notes` then name the others."""
    runs = {name: refusal(problem, name) is None for name in methods}
    if refused := [name for name, can in runs.items() if not can]:
        notes.append(f"{', '.join(refused)}: left out, as not supported here")
    return [name for name, can in runs.items() if can]


def nepv_of(problem: Problem, method: str, options: SelectOptions) -> Nepv:
    """How 'nepv' goes; what other rows of a comparison have of it is the shortlist."""
    if method != "nepv":
        return Nepv(oversampling=options["oversampling"])
    nepv = Nepv.of(options)
    return replace(nepv, start=check_start(problem, nepv.start))


def shards_wanted(problem: Problem, options: SelectOptions) -> tuple[int, ...]:
    """Where the shards of a first tier begin and end; empty where there is one tier."""
    wanted = options["hierarchical"]
    return shards_of(problem.pool, problem.k, wanted) if wanted else ()


def prove(
    problem: Problem, gap: float, session: Context, effort: Effort | None = None
) -> Certificate:
    """The bound on what any set can score, as far as an effort goes; without one, to the gap. And
    what lots score, without which a share of the bound says little."""
    products = np.inf if effort is None else effort.bound
    with block_threads(problem.work()):
        certificate = make_certificate(problem, gap=gap, session=session, products=products)
        return replace(certificate, random_scores=_scores_of_lots(problem, session))


def _scores_of_lots(problem: Problem, session: Context) -> tuple[float, ...]:
    """F of some sets drawn under the same rules, each uniformly where there are no quotas; of fewer
    where scoring them would take more of the time that is left than it is worth."""
    scores: list[float] = []
    seconds = seconds_for(scoring_work(problem))
    for draw in range(_LOTS):
        if session.stopped or (session.left is not None and seconds > _HASTE * session.left):
            break
        with session.absorbing_interruption():
            d = subset_scores(problem.pool, lot(problem, draw), problem.utility)
            scores.append(fair_value(problem, d))
    return tuple(scores)


def lot(problem: Problem, draw: int) -> Indices:
    """k rows at random, as the rules allow."""
    tickets = problem.rng(Stream.LOT, draw).random(problem.n)
    return problem.constraints.best_set(tickets, problem.k)


def carry_out(problem: Problem, plan: Plan, session: Context) -> Selection:
    """The search that is planned, and the record of what it finds."""
    began, selection = time.monotonic(), None
    try:
        with block_threads(problem.work()):
            found = session.despite_interruption(lambda: _search(problem, plan, session))
            found = replace(found, status=session.stopped or found.status)
            selection = session.despite_interruption(
                lambda: _record(problem, plan, session, found, began)
            )
    except KeyboardInterrupt:  # when threads are given back
        if selection is None:
            raise
        session.interrupt()
        selection = replace(selection, status=Status.INTERRUPTED)
    return selection


def _record(
    problem: Problem, plan: Plan, session: Context, found: Found, began: float
) -> Selection:
    """The record of what was found by a search that began then."""
    with unlimited():
        indices = found.indices
        if not found.ordered or problem.constraints:
            indices = _ordered(problem, indices, session)
        status = session.stopped or found.status
        if status.ok and misses_floors(problem, indices):
            status = Status.FLOORS_MISSED
        selection = make_selection(
            problem,
            indices,
            certificate=plan.certificate,
            plan=plan,
            proven=found.upper,
            settings=settings_of(problem, plan),
            chosen_from=chosen_from(problem, plan),
            trace=tuple(session.trace),
            status=status,
            seconds=time.monotonic() - began,
            run_notes=(
                *rank_notes(problem, plan.certificate),
                *sample_notes(problem),
                *(plan.certificate.notes if plan.certificate else ()),
                *session.notes,
            ),
        )
        note = _below_lots(selection, plan.method, problem.tolerances.tie)
        return replace(selection, run_notes=(*selection.run_notes, *note))


def _below_lots(selection: Selection, method: str, tie: float) -> tuple[str, ...]:
    """What to do with a set that random ones exceed, where the certificate has drawn some."""
    certificate, units = selection.certificate, selection.units
    lots = None if certificate is None else certificate.random_score
    if lots is None or selection.fair_score >= lots - tie or method == "random":
        return ()
    note = (
        f"method {method!r} ended below random sets, whose mean fair score is {units.shown(lots)} "
        f"({units.shown(selection.fair_score)} here); use method 'greedy' or 'auto', or let swaps "
        "mend it: effort 'balanced', or more passes or time"
    )
    return (note,)


def _search(problem: Problem, plan: Plan, session: Context) -> Found:
    """What the method finds; where it had to stop with nothing in hand, what greedy chooses in a
    moment, or a lot where greedy cannot begin in one."""
    if not session.stopped:
        _keep_back_for_scores(problem, session)
        with session.absorbing_interruption():
            search = find_in_tiers if len(plan.shards) > 2 else find  # one shard is no tier
            return search(problem, plan, session)
    ends = {Status.TIME_LIMIT: "time_limit ran out"}
    at_once = begins_at_once(problem)
    session.notes.append(
        f"{ends.get(session.stopped, 'the call was interrupted')} before method {plan.method!r} "
        f"had a set; this one is {'what greedy chooses in a moment' if at_once else 'drawn by lot'}"
    )
    if not at_once:
        return Found(np.sort(lot(problem, 0)), session.stopped or Status.TIME_LIMIT)
    aside = Context()  # of which no journal hears
    aside.stopped = session.stopped
    found = greedy(problem, aside)
    session.notes.extend(aside.notes)
    return found


def _keep_back_for_scores(problem: Problem, session: Context) -> None:
    if session.left is not None:
        scores, left = seconds_for(scoring_work(problem)), session.left
        session.keep_back(min(scores + min(MOMENT, _HASTE * left), left / 2))


def _ordered(problem: Problem, indices: Indices, session: Context) -> Indices:
    """The set in fair-greedy order; when time is up, as far as a moment goes."""
    hurries = session.stopped is not None or session.left is not None
    limit = Limit(now() + max(session.left or 0.0, MOMENT) if hurries else None)
    with session.absorbing_interruption(), unlimited(), limited(limit):
        return fair_order(problem, indices, session)
    return indices


def rank_notes(problem: Problem, certificate: Certificate | None = None) -> tuple[str, ...]:
    """Views whose rank is below k, by the ranks that a certificate has found, else by widths; no
    score fills with log eps but those of log-determinants."""
    if problem.utility != DIVERSE:
        return ()
    ranks = {name: min(view.n, view.p) for name, view in problem.pool.items()}
    if certificate is not None:
        ranks |= {name: rank for name, rank in certificate.ranks.items() if rank is not None}
    k = problem.k
    return tuple(
        f"k = {k} exceeds the rank {rank} of view {name!r}, so its score fills with log eps "
        f"({k - rank} of {k} terms); lower k or drop the view"
        for name, rank in ranks.items()
        if k > rank
    )


def sample_notes(problem: Problem) -> tuple[str, ...]:
    """Views too wide for their second moments to be held, whose variance is that of a sample."""
    return tuple(
        f"the variance of view {name!r}, which has {view.p} columns, is that of "
        f"{view.moments.sampled} rows drawn by a fixed rule; local_features(data) has few columns"
        for name, view in problem.pool.items()
        if view.moments is not None and view.moments.sampled is not None
    )


def warn_of_ranks(problem: Problem, certificate: Certificate | None = None) -> None:
    """Warn of views whose rank is below k, at the line outside of the library that has called it
    (Python 3.12 has `skip_file_prefixes` for that)."""
    frame, depth = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fairnepv."):
        frame, depth = frame.f_back, depth + 1
    for note in rank_notes(problem, certificate):
        warnings.warn(note, RankWarning, stacklevel=depth)
