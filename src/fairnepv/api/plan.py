"""`plan`: what a run would take; and problems that are posed within a limit on memory."""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

from fairnepv.api.inputs import pose, sketch
from fairnepv.api.search import check_search, nepv_of, shards_wanted
from fairnepv.api.tables import from_tables
from fairnepv.compute.rates import UNTIMED, Rates
from fairnepv.errors import InputError
from fairnepv.io.memory import check_memory_limit
from fairnepv.loop import Context
from fairnepv.methods import APART, OWN_METHODS, known_method
from fairnepv.methods.baselines import baselines
from fairnepv.methods.plan import Plan
from fairnepv.options import PlanOptions, ProblemOptions, SelectOptions
from fairnepv.planning import Forecast, fit, foresee
from fairnepv.problem import Problem
from fairnepv.search import check_effort
from fairnepv.signatures import checked, part, takes
from fairnepv.views.intake import named_views


@takes(PlanOptions)
@from_tables
def plan(data: Any, k: int | float, **options: Unpack[PlanOptions]) -> Forecast:
    """What `select` with the same options would take, before anything is run.

    Shapes and headers say it: no row is read or checked, nor are ids, rules or weights. Seconds are
    expected on this machine when it is quiet, and only known of the local engine; what depends on
    the data is an estimate. With `method=None`: what `certify` would take.
    """
    given: Any = checked("plan", PlanOptions, options)
    named, method = given["engine"], given["method"]
    elsewhere = isinstance(named, str) and named.startswith(("ray", "local-ray"))
    if elsewhere:
        given["engine"] = None  # it might have to be started
    methods = () if method is None else (method,)
    _, forecast = _foreseen(data, k, check_search(given), methods)
    return forecast.untimed() if elsewhere else forecast


def pose_within_limit(
    data: Any,
    k: Any,
    options: SelectOptions,
    methods: Sequence[str],
    session: Context,
    *,
    equal: bool = False,
) -> Problem:
    """The posed problem; under a limit on memory, with the engine and the means that keep to it.
    `equal`: the methods get the passes of a comparison."""
    posing = part(ProblemOptions, options)
    if options["memory_limit"] is None:
        return pose(data, k, session=session, **posing)
    foreseen, _ = _foreseen(data, k, options, methods, UNTIMED, equal=equal)
    posing["engine"] = foreseen.pool.engine
    return pose(data, k, **posing, means=foreseen.means, session=session)


def methods_within_limit(data: Any, k: Any, options: SelectOptions) -> list[str]:
    """All selectors of a comparison but the one that may take for ever, less those that a limit on
    memory is too low for; what is always run is then refused with its reason."""
    names = [name for name in OWN_METHODS if name != "exact"]
    for name in baselines(tuple(named_views(data, options["views"]))):
        with contextlib.suppress(InputError):
            if options["memory_limit"] is not None:
                _foreseen(data, k, options, (name,), UNTIMED, equal=True)
            names.append(name)
    return names


def passes_of(problem: Problem, options: SelectOptions, *, equal: bool) -> int | None:
    """The passes of one-swaps that were asked for, or that every row of a comparison gets."""
    asked = options["passes"]
    if asked is not None or not equal:
        return asked
    return check_effort(options["effort"]).equal_passes(problem.work())


def _foreseen(
    data: Any,
    k: Any,
    options: SelectOptions,
    methods: Sequence[str],
    rates: Rates | None = None,
    *,
    equal: bool = False,
) -> tuple[Problem, Forecast]:
    """A sketch of the problem with means that keep to the limit, and what it will take."""
    problem = sketch(data, k, part(ProblemOptions, options))
    effort, passes = check_effort(options["effort"]), passes_of(problem, options, equal=equal)
    shards = shards_wanted(problem, options)
    plans = [
        Plan(
            known_method(problem, name),
            effort,
            nepv_of(problem, name, options),
            shards=shards,
            passes=None if name in APART else passes,
        )
        for name in methods
    ]
    foretell = partial(
        foresee,
        plans=plans,
        certify=options["certify"],
        efficiency=problem.calibration.rule == "efficiency",
        rates=rates,
    )
    return fit(problem, check_memory_limit(options["memory_limit"]), foretell)
