"""`stability`: how much of a selection survives other knobs and other seeds."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.search import BOUND, carry_out, prove
from fairnepv.api.selection import Selection
from fairnepv.checks import brief, check_positive, check_seed
from fairnepv.compute import block_threads
from fairnepv.compute.clock import apart
from fairnepv.errors import InputError, Status
from fairnepv.insight.difference import jaccard
from fairnepv.insight.given import problem_of
from fairnepv.io.frames import Table, Tabular
from fairnepv.loop import Context, Progress, Step
from fairnepv.loop.bars import telling
from fairnepv.methods.plan import Plan
from fairnepv.objective import fair_value, subset_scores
from fairnepv.problem import Problem
from fairnepv.search import check_effort
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Indices
from fairnepv.views.cosines import check_norms


@dataclass(frozen=True, eq=False)
class Variant:
    """The same task under one other knob, searched again."""

    name: str  # such as 'tau x 0.5' or 'seed 1'
    change: Mapping[str, float]  # the factor, or the seed, by the name of the knob
    indices: Indices  # what it chose, in the order of rows
    jaccard: float  # with the original
    fair_score: float  # F_tau of its set under the original problem
    status: Status


@dataclass(frozen=True, eq=False, repr=False)
class Stability(Tabular):
    """A selection beside its variants."""

    selection: Selection
    variants: tuple[Variant, ...]
    status: Status  # INTERRUPTED or TIME_LIMIT where variants are missing
    notes: tuple[str, ...] = ()  # which variants were left out, and why

    @property
    def headline(self) -> str:
        return (
            f"Stability of {len(self.selection):,} picks: {len(self.core):,} of them are in all of "
            f"{len(self.variants)} variants ({self.status.name})"
        )

    @property
    def table(self) -> Table:
        """One row per variant."""
        columns = {
            "variant": np.array([variant.name for variant in self.variants], dtype=object),
            "jaccard": np.array([variant.jaccard for variant in self.variants]),
            "fair_score": np.array([variant.fair_score for variant in self.variants]),
            "status": np.array([variant.status.name for variant in self.variants], dtype=object),
        }
        about = {"fair_score": self.selection.fair_score, "core": len(self.core)}
        ended = {"status": self.status.name, "notes": list(self.notes)}
        return Table(columns, {**about, **ended}, "variants")

    @property
    def kept(self) -> NDArray[np.float64]:
        """(k,) per pick the share of the variants that choose it too."""
        chosen = [np.isin(self.selection.indices, variant.indices) for variant in self.variants]
        return np.asarray(np.mean(chosen, axis=0))

    @property
    def core(self) -> NDArray[Any]:
        """Ids of the picks that every variant chooses too, in order of selection."""
        return np.asarray(self.selection.ids[self.kept == 1.0])


@telling
@apart
def stability(
    selection: Selection,
    *,
    tau: Any = (0.5, 2),
    eps: Any = (0.5, 2),
    seeds: Any = (1, 2),
    effort: str | None = None,
    time_limit: float | None = None,
    progress: Progress | bool | None = None,
) -> Stability:
    """Search again with other temperatures, other ridges and other seeds, one at a time.

    tau, eps: factors on the temperature and on the ridges of all views.
    seeds: other values of random_state.
    effort: that of the selection unless given.
    time_limit: seconds for all variants, each of which gets its share of what is left; by default
        each has as long as the selection had.
    progress: as that of `select`; a function is called with a `Step` after every variant.

    The search is planned as that of the selection: method, constraints, calibration, shards and
    limits of nodes and seconds are the same, and the relaxed solution of its bound, where there is
    one, stays a start. Where it had a target, so has every variant, under its own bound. A variant
    says by its status how its search ended.
    """
    problem = problem_of(selection, "stability")
    posed = dict(_variants(problem, tau, eps, seeds))
    if not posed:
        raise InputError("stability has nothing to vary; give factors for tau or eps, or seeds")
    call = Context(
        time_limit=None if time_limit is None else check_positive("time_limit", time_limit),
        progress=progress,
    )
    with block_threads(problem.work()):
        check_norms(problem.pool)
    assert selection.plan is not None, "where there is a problem there is a plan"
    plan = selection.plan
    if effort is not None:
        plan = replace(plan, effort=check_effort(effort))
    return _search_all(selection, posed, plan, call)


def _search_all(
    selection: Selection, posed: Mapping[tuple[str, float], Problem], plan: Plan, call: Context
) -> Stability:
    found: list[Variant] = []
    notes: list[str] = []
    try:
        status = _add_variants(found, notes, selection, posed, plan, call)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    if not found and status is Status.INTERRUPTED:
        raise KeyboardInterrupt  # nothing is in hand yet
    if not found:
        raise InputError(f"stability has no variant to compare: {'; '.join(notes)}")
    return Stability(selection, tuple(found), status, tuple(notes))


def _add_variants(
    found: list[Variant],
    notes: list[str],
    selection: Selection,
    posed: Mapping[tuple[str, float], Problem],
    plan: Plan,
    call: Context,
) -> Status:
    """Search for one variant after the other, and say how that ended; what is found stays."""
    began = time.monotonic()
    for turn, ((knob, value), variant) in enumerate(posed.items()):
        name = f"seed {value}" if knob == "seed" else f"{knob} x {value:g}"
        share = call.part(len(posed) - turn)
        if found and call.left == 0.0:
            notes.append(f"{name} and what follows is left out: time_limit ran out")
            return Status.TIME_LIMIT
        context = Context(time_limit=plan.time_limit if share is None else share)
        try:
            outcome = _searched(variant, plan, context, bound_holds=knob == "seed")
        except InputError as error:  # floors that a variant cannot reach leave it no set at all
            notes.append(f"{name} is left out: {error}")
            continue
        if context.stopped is not Status.INTERRUPTED:  # half a search says nothing of stability
            found.append(_graded(selection, name, {knob: value}, outcome))
            with context.absorbing_interruption():
                _tell(call.progress, found, len(posed), time.monotonic() - began)
        if context.stopped is Status.INTERRUPTED:
            return context.stopped
    return Status.COMPLETE


def _searched(problem: Problem, plan: Plan, context: Context, bound_holds: bool) -> Selection:
    """What the plan finds; the score that is good enough follows from a bound on this problem."""
    if plan.target is not None and not bound_holds:
        with context.share(BOUND):
            plan = replace(plan, certificate=prove(problem, plan.gap, context, plan.effort))
    context.goal = plan.goal(problem)
    return carry_out(problem, plan, context)


def _graded(
    selection: Selection, name: str, change: Mapping[str, float], found: Selection
) -> Variant:
    problem, indices = selection.problem, np.sort(found.indices)
    assert problem is not None
    shared = jaccard(selection.indices, indices)
    fair_score = fair_value(problem, subset_scores(problem.pool, indices, problem.utility))
    return Variant(name, change, indices, shared, fair_score, found.status)


def _tell(progress: Progress | None, found: list[Variant], of: int, seconds: float) -> None:
    last = found[-1]
    details = {"variant": last.name, "jaccard": last.jaccard, "size": len(found), "of": of}
    if progress is not None:
        progress(Step("stability", len(found), 0, seconds, last.fair_score, details=details))


def _variants(
    problem: Problem, tau: Any, eps: Any, seeds: Any
) -> Iterator[tuple[tuple[str, float], Problem]]:
    for factor in _listed("tau", tau):
        factor = check_positive("a factor on tau", factor)
        yield ("tau", factor), replace(problem, tau=problem.tau * factor)
    for factor in _listed("eps", eps):
        factor = check_positive("a factor on eps", factor)
        views = tuple(view.with_eps(view.ridge * factor) for view in problem.pool.views)
        pool = problem.pool.with_views(problem.pool.names, views)
        yield ("eps", factor), replace(problem, pool=pool)
    for seed in _listed("seeds", seeds):
        seed = check_seed("random_state", seed)
        yield ("seed", seed), replace(problem, random_state=seed)


def _listed(argument: str, values: Any) -> list[Any]:
    array = plain_array(values, argument)
    if isinstance(values, str) or array.ndim != 1:
        raise InputError(f"{argument} must be a list, as in {argument}=(1, 2), not {brief(values)}")
    return list(values)
