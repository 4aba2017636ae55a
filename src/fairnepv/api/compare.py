"""`compare`: every selector on the same problem, which is posed once."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from fairnepv.api.inputs import with_engine
from fairnepv.api.plan import methods_within_limit, passes_of, pose_within_limit
from fairnepv.api.search import (
    BOUND,
    FLOORS,
    carry_out,
    check_search,
    make_plan,
    prove,
    supported,
    warn_of_ranks,
)
from fairnepv.api.selection import Comparison, Selection
from fairnepv.api.tables import from_tables
from fairnepv.checks import brief
from fairnepv.compute.clock import apart
from fairnepv.concave import refuse_unreachable_floors
from fairnepv.errors import InputError, Status
from fairnepv.loop import Context, Step
from fairnepv.loop.bars import telling
from fairnepv.methods.plan import Plan
from fairnepv.options import CompareOptions, SelectOptions
from fairnepv.problem import Problem
from fairnepv.signatures import checked, completed, part, takes


@takes(CompareOptions)
@telling
@apart
@from_tables
def compare(data: Any, k: int | float, **options: Unpack[CompareOptions]) -> Comparison:
    """One row per selector on the same problem, all with the same budget: each is greedy in its own
    objective, or rounded or drawn, and then refined under that by at most `passes` passes of
    one-swaps. Rows that get more or less say so (`Selection.budget`).

    data, k: as for `select`; k is one size.
    """
    given = checked("compare", CompareOptions, options)
    whole = completed("compare", SelectOptions, part(SelectOptions, given))
    methods = _check_methods(given["methods"])
    searching = with_engine(check_search(whole, tuple(methods or ("nepv",))))
    names = methods or methods_within_limit(data, k, searching)
    call = Context(time_limit=given["time_limit"], progress=given["progress"])
    problem = pose_within_limit(data, k, searching, names, call, equal=True)
    if methods is None:
        names = supported(problem, names, call.notes)
    searching = {**searching, "passes": passes_of(problem, searching, equal=True)}
    plans = [make_plan(problem, {**searching, "method": name}) for name in names]
    with call.share(FLOORS):
        refuse_unreachable_floors(problem, call)
    certificate = None  # if the time for it runs out
    with call.share(BOUND / 2):  # the searches are many
        certificate = prove(problem, given["gap"], call)
    if call.stopped is Status.INTERRUPTED:
        raise KeyboardInterrupt  # nothing is in hand yet
    plans = [replace(plan, certificate=certificate) for plan in plans]
    rows = _carry_out_all(problem, plans, call)
    warn_of_ranks(problem, certificate)
    return Comparison(tuple(rows))


def _carry_out_all(problem: Problem, plans: Sequence[Plan], call: Context) -> list[Selection]:
    """One selection per plan, each in its share of the time that is left; an interruption leaves
    those that there are."""
    rows: list[Selection] = []
    began = time.monotonic()
    try:
        for plan in plans:
            if rows and call.left == 0.0:
                others = ", ".join(plan.method for plan in plans[len(rows) :])
                note = f"time_limit ran out before it was the turn of {others}"
                notes = (*rows[-1].run_notes, note)
                rows[-1] = replace(rows[-1], status=Status.TIME_LIMIT, run_notes=notes)
                break
            session = Context(time_limit=call.part(len(plans) - len(rows)), progress=call.progress)
            session.notes.extend(call.notes)
            if call.progress is not None:
                best = max((row.fair_score for row in rows), default=0.0)
                turn = {"selector": plan.method, "size": len(rows), "of": len(plans)}
                took = time.monotonic() - began
                call.progress(Step("compare", len(rows), 0, took, best, details=turn))
            rows.append(carry_out(problem, plan, session))
            if session.stopped is Status.INTERRUPTED:
                break
    except KeyboardInterrupt:
        if not rows:
            raise
        rows[-1] = replace(rows[-1], status=Status.INTERRUPTED)
    return rows


def _check_methods(methods: Any) -> list[str] | None:
    """Selectors by name; each is checked against the views later."""
    if methods is None:
        return None
    if not isinstance(methods, str | list | tuple):
        raise InputError(f"methods must be a list of names, not {brief(methods)}")
    if not methods:
        raise InputError("methods is empty; name at least one, or leave it out for all")
    return [methods] if isinstance(methods, str) else list(methods)
