"""`select`: the whole method on one screen, from the user's arrays to a Selection."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack, overload

import numpy as np

from fairnepv.api.checkpoint import journal_of
from fairnepv.api.inputs import count_items, sizes_in_all, with_engine
from fairnepv.api.plan import pose_within_limit
from fairnepv.api.search import (
    BOUND,
    FLOORS,
    carry_out,
    check_search,
    make_plan,
    prove,
    warn_of_ranks,
)
from fairnepv.api.selection import Selection
from fairnepv.api.tables import from_tables
from fairnepv.checks import brief
from fairnepv.compute.clock import apart
from fairnepv.concave import refuse_unreachable_floors
from fairnepv.errors import InputError, NumericalError, Status, TimeLimitError
from fairnepv.loop import Context, Step
from fairnepv.loop.bars import telling
from fairnepv.options import SelectOptions
from fairnepv.problem import Problem
from fairnepv.signatures import checked, takes
from fairnepv.views import Pool


@overload
def select(data: Any, k: int | float, **options: Unpack[SelectOptions]) -> Selection: ...
@overload
def select(
    data: Any, k: Sequence[int | float], **options: Unpack[SelectOptions]
) -> dict[int, Selection]: ...
@takes(SelectOptions)
@telling
@apart
@from_tables
def select(data: Any, k: Any, **options: Unpack[SelectOptions]) -> Any:
    """Choose k items so that no view is left behind, and say how good the choice is.

    What are the picks for? To train on them or to label them: `objective="representative"`, picks
    that stand for the pool. To audit, to test, to find what is rare: `"diverse"`, picks that are
    unlike each other, which is the default.

    data: mapping from view names to (n, p) arrays, SciPy sparse matrices or views, or a list of
        them; with `views`, one (n, p) array whose columns `views` maps to names, or a table of
        pandas, Polars, PyArrow, ... whose columns it names (docs/tables.md).
    k: how many, or a fraction of n; a list of sizes gives a mapping from size to Selection, each
        contained in the next where `nested` is true.
    """
    given = with_engine(check_search(checked("select", SelectOptions, options)))
    if is_one_size(k):
        if given["nested"]:
            raise InputError("nested needs several sizes, as in k=[100, 500]")
        return _select_one(data, k, given)
    if given["checkpoint"] is not None:
        raise InputError("checkpoint is for one size; call select for each of them")
    return _select_sizes(data, k, given)


def is_one_size(k: Any) -> bool:
    """Whether k is meant as one size, right or wrong, and not as a list of them."""
    return not isinstance(k, list | tuple) and np.ndim(k) == 0


def _select_one(data: Any, k: Any, options: SelectOptions) -> Selection:
    session = _session_of(options)
    problem = pose_within_limit(data, k, options, [options["method"]], session)
    selection = select_posed(problem, options, session)
    warn_of_ranks(problem, selection.certificate)
    if options["strict"] and not selection.status.ok:
        raise NumericalError(f"selection: {selection.status.value}")
    return selection


def _session_of(options: SelectOptions) -> Context:
    """That of a whole call; with a checkpoint the clock begins where it ends (docs/engines.md)."""
    limit = options["time_limit"] if options["checkpoint"] is None else None
    return Context(time_limit=limit, progress=options["progress"])


def select_posed(
    problem: Problem, options: SelectOptions, session: Context | None = None
) -> Selection:
    """`select` for a problem that is posed already, by complete options and without `strict`: what
    is asked several times is posed once. The session is that of the call that has posed it."""
    posing = session or _session_of(options)
    if options["checkpoint"] is not None:  # to go on from it leads to the same set
        return _planned(problem, options, posing)
    return posing.despite_interruption(lambda: _planned(problem, options, posing))


def _planned(problem: Problem, options: SelectOptions, posing: Context) -> Selection:
    """Floors, bound and search, each in its part of the time."""
    plan = make_plan(problem, options)
    with posing.share(FLOORS):
        refuse_unreachable_floors(problem, posing)
    if posing.stopped is Status.INTERRUPTED and options["checkpoint"] is not None:
        raise KeyboardInterrupt  # a calibration that was cut short is not the one to go on with
    with journal_of(problem, plan, options) as journal:
        session = posing
        if journal is not None:
            limits: Any = {"time_limit": plan.time_limit, "progress": options["progress"]}
            session = Context(**limits, journal=journal).following(posing)
        if options["certify"]:
            with session.share(BOUND):
                plan = replace(plan, certificate=prove(problem, plan.gap, session, plan.effort))
        session.goal = plan.goal(problem)
        return carry_out(problem, plan, session)


def _select_sizes(data: Any, sizes: Any, options: SelectOptions) -> dict[int, Selection]:
    """A selection per size, in the order given; nested ones grow from the smallest."""
    wanted = sizes.tolist() if isinstance(sizes, np.ndarray) else list(sizes)
    if not wanted or not all(map(is_one_size, wanted)):
        raise InputError(f"k must be a size or a list of sizes, each once, not {brief(sizes)}")
    shapes: Any = {name: options[name] for name in ("views", "ids", "align")}
    n = Pool.sketch(data, **shapes).n
    whole = sizes_in_all(wanted, n, options)  # fractions are resolved before sizes are compared
    if len(set(whole)) < len(whole):
        raise InputError(
            f"k must be a size or a list of sizes, each once, not {brief(sizes)}, which come to "
            f"{brief(whole)} items"
        )
    included = 0 if options["include_counts"] else count_items(options["include"])
    options = {**options, "include_counts": True}
    found: dict[int, Selection] = {}
    call = Context(time_limit=options["time_limit"], progress=options["progress"])
    cut = _add_sizes(found, data, sorted(whole), options, call)
    if cut is not None:
        last = list(found)[-1]
        found[last] = replace(found[last], status=cut)
    return {size - included: found[size] for size in whole if size in found}


def _add_sizes(
    found: dict[int, Selection], data: Any, sizes: list[int], options: SelectOptions, call: Context
) -> Status | None:
    """A selection per size, or why there are none from some size on; what was found of others is
    not lost by that."""
    try:
        for turn, size in enumerate(sizes):
            if call.progress is not None:
                best = max((one.fair_score for one in found.values()), default=0.0)
                details = {"k": size, "size": turn, "of": len(sizes)}
                took = sum(one.seconds for one in found.values())
                call.progress(Step("sizes", turn, 0, took, best, details=details))
            options = {**options, "time_limit": call.part(len(sizes) - turn)}
            found[size] = _select_one(data, size, options)
            if found[size].status is Status.INTERRUPTED:
                break
            if options["nested"]:
                options = {**options, "include": found[size]}
    except (KeyboardInterrupt, TimeLimitError) as end:
        if not found or options["strict"]:
            raise
        return Status.TIME_LIMIT if isinstance(end, TimeLimitError) else Status.INTERRUPTED
    return None
