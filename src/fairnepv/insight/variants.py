"""`stability`: how much of a selection survives other knobs and other seeds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.engines import block_threads
from fairnepv.errors import InputError, Status
from fairnepv.insight.difference import jaccard
from fairnepv.insight.given import problem_of
from fairnepv.loop import Progress, Session, Step, check_progress
from fairnepv.methods import Plan, find
from fairnepv.objective import fair_value, subset_scores
from fairnepv.problem import Problem, check_random_state
from fairnepv.search import check_effort
from fairnepv.selection import Selection
from fairnepv.views.arrays import check_positive
from fairnepv.views.base import Indices


@dataclass(frozen=True)
class Variant:
    """The same task under one other knob, searched again."""

    name: str  # such as 'tau x 0.5' or 'seed 1'
    change: Mapping[str, float]  # the factor, or the seed, by the name of the knob
    indices: Indices  # what it chose, in the order of rows
    jaccard: float  # with the original
    fair_score: float  # F_tau of its set under the original problem
    status: Status


@dataclass(frozen=True)
class Stability:
    """A selection beside its variants."""

    selection: Selection
    variants: tuple[Variant, ...]
    status: Status  # INTERRUPTED where variants are missing

    @property
    def kept(self) -> NDArray[np.float64]:
        """(k,) per pick the share of the variants that choose it too."""
        chosen = [np.isin(self.selection.indices, variant.indices) for variant in self.variants]
        return np.asarray(np.mean(chosen, axis=0))

    @property
    def core(self) -> NDArray[Any]:
        """Ids of the picks that every variant chooses too, in order of selection."""
        return np.asarray(self.selection.ids[self.kept == 1.0])


def stability(
    selection: Selection,
    *,
    tau: Any = (0.5, 2),
    eps: Any = (0.5, 2),
    seeds: Any = (1, 2),
    effort: str | None = None,
    progress: Progress | None = None,
) -> Stability:
    """Search again with other temperatures, other ridges and other seeds, one at a time.

    tau, eps: factors on the temperature and on the ridges of all views.
    seeds: other values of random_state.
    effort: that of the selection unless given.
    progress: called with a `Step` after every variant.

    Calibration, constraints and method stay as they are, and the relaxed solution of the
    selection's bound, where there is one, stays a start.
    """
    problem = problem_of(selection, "stability")
    posed = dict(_variants(problem, tau, eps, seeds))
    if not posed:
        raise InputError("stability has nothing to vary; give factors for tau or eps, or seeds")
    listener = check_progress(progress)
    settings = selection.settings
    plan = Plan(
        selection.method,
        check_effort(settings["effort"] if effort is None else effort),
        settings["oversampling"],
        certificate=selection.certificate,
    )
    return _search_all(selection, problem, posed, plan, listener)


def _search_all(
    selection: Selection,
    problem: Problem,
    posed: Mapping[tuple[str, float], Problem],
    plan: Plan,
    progress: Progress | None,
) -> Stability:
    began = time.monotonic()
    found: list[Variant] = []
    session = Session()
    for (knob, value), variant in posed.items():
        session = Session()
        try:
            with block_threads(problem.work()):
                outcome = find(variant, plan, session)
        except InputError:  # floors that a variant cannot reach leave it no set at all
            continue
        if session.stopped:  # half a search says nothing about stability
            break
        found.append(_graded(selection, problem, knob, value, outcome.indices, outcome.status))
        if progress is not None:
            with session.absorbing_interruption():
                progress(_turn(found, len(posed), time.monotonic() - began))
            if session.stopped:
                break
    if not found:
        raise KeyboardInterrupt
    return Stability(selection, tuple(found), session.stopped or Status.COMPLETE)


def _graded(
    selection: Selection,
    problem: Problem,
    knob: str,
    value: float,
    indices: Indices,
    status: Status,
) -> Variant:
    indices = np.sort(indices)
    return Variant(
        f"seed {value}" if knob == "seed" else f"{knob} x {value:g}",
        {knob: value},
        indices,
        jaccard(selection.indices, indices),
        fair_value(problem, subset_scores(problem.pool, indices)),
        status,
    )


def _turn(found: list[Variant], of: int, seconds: float) -> Step:
    last = found[-1]
    details = {"variant": last.name, "jaccard": last.jaccard, "size": len(found), "of": of}
    return Step("stability", len(found), 0, seconds, last.fair_score, details=details)


# --- the variants ---------------------------------------------------------------------------------


def _variants(
    problem: Problem, tau: Any, eps: Any, seeds: Any
) -> Iterator[tuple[tuple[str, float], Problem]]:
    for factor in _listed("tau", tau):
        factor = check_positive("a factor on tau", factor)
        yield ("tau", factor), replace(problem, tau=problem.tau * factor)
    for factor in _listed("eps", eps):
        factor = check_positive("a factor on eps", factor)
        yield ("eps", factor), _with_ridges(problem, factor)
    for seed in _listed("seeds", seeds):
        seed = check_random_state(seed)
        yield ("seed", seed), replace(problem, random_state=seed)


def _with_ridges(problem: Problem, factor: float) -> Problem:
    views = tuple(view.with_eps(view.ridge * factor) for view in problem.pool.views)
    return replace(problem, pool=problem.pool.with_views(problem.pool.names, views))


def _listed(argument: str, values: Any) -> list[Any]:
    if isinstance(values, str) or np.ndim(values) != 1:
        raise InputError(f"{argument} must be a list, as in {argument}=(1, 2), not {values!r}")
    return list(values)
