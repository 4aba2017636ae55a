"""`score` and `exhaustive`: how given rows do, and which do best in a small pool."""

from typing import Any, Unpack, cast

from fairnepv.api.calibration import calibrate
from fairnepv.api.grading import make_optimum, score_subset
from fairnepv.api.inputs import (
    check_indices,
    check_priorities,
    pool_of,
    pose,
    rows_named,
    rows_of_ids,
    scale_of,
)
from fairnepv.api.objectives import as_wanted, pool_as_asked
from fairnepv.api.search import warn_of_ranks
from fairnepv.api.selection import Optimum, Score, Selection
from fairnepv.api.tables import from_tables
from fairnepv.compute import block_threads
from fairnepv.compute.clock import OutOfTime, apart
from fairnepv.errors import InputError
from fairnepv.loop import Context
from fairnepv.options import ExhaustiveOptions, ProblemOptions, ScoreOptions
from fairnepv.problem import Problem
from fairnepv.search import enumerate_subsets
from fairnepv.signatures import checked, part, takes
from fairnepv.views import Calibration
from fairnepv.views.base import Indices
from fairnepv.views.intake import named_views
from fairnepv.views.scales import CUT_SHORT


@takes(ScoreOptions)
@apart
@from_tables
def score(data: Any, indices: Any, **options: Unpack[ScoreOptions]) -> Score:
    """How the given rows do: d_q or the share of every view, F_tau and coverage, in float64 from
    the rows.

    data: as for `select`.
    indices: rows of the pool; with `ids` by view name in the order of the first view. With `by_id`
        they are ids instead. Or a Selection: its ids are found where it and the data have some, its
        rows else, and objective, tau, eps, center, calibration and priorities are its own unless
        given. So what a stored selection says of itself is computed again from the data.
    """
    if isinstance(indices, Selection):
        options = {**_scale_of(indices, data, options), **options}
    given = as_wanted(checked("score", ScoreOptions, options))
    pool = pool_of(data, given)
    by_id = given["by_id"]
    if isinstance(indices, Selection):
        rows = rows_named(pool, indices, "indices")
    else:
        rows = rows_of_ids(indices, pool.ids) if by_id else check_indices(indices, pool.n)
    rule = calibrate(pool, given["calibration"], len(rows))
    weights = check_priorities(given["priorities"], pool.names)
    tau, objective = given["tau"], given["objective"]
    posed = pool_as_asked(pool, rule, objective)
    problem = Problem(posed, len(rows), tau, rule, priorities=weights, utility=objective)
    warn_of_ranks(problem)
    return score_posed(problem, rows)


def _scale_of(selection: Selection, data: Any, options: ScoreOptions) -> ScoreOptions:
    """On what a selection was scored; another objective has tau, eps and calibration of its own."""
    told = selection.settings
    if told["quality"] and "quality" not in options:
        raise InputError(
            "selection was made with quality; pass the quality of all rows, or quality=None to "
            "score it without"
        )
    if options.get("objective", selection.objective) != selection.objective:
        return {}
    scale: Any = scale_of(selection, named_views(data, options.get("views")))
    if not isinstance(options.get("calibration"), Calibration):  # which says it by itself
        scale["center"] = told["center"]
    return cast(ScoreOptions, scale)


def score_posed(problem: Problem, rows: Indices) -> Score:
    """`score` for a problem that is posed already, and rows that are checked."""
    with block_threads(problem.work()):
        return score_subset(problem, rows)


@takes(ExhaustiveOptions)
@apart
@from_tables
def exhaustive(data: Any, k: int | float, **options: Unpack[ExhaustiveOptions]) -> Optimum:
    """The discrete optimum of a small pool by looking at all C(n, k) subsets.

    data, k: as for `select`; k is one size.

    What was not looked at may be the optimum, so that a `time_limit` that is over before all are
    looked at raises `TimeLimitError`.
    """
    given = checked("exhaustive", ExhaustiveOptions, options)
    session = Context(time_limit=given["time_limit"])
    with session.needed("not all subsets were looked at"):
        problem = pose(data, k, **part(ProblemOptions, given))
        chosen = isinstance(given["calibration"], Calibration)
        if problem.calibration.rule == CUT_SHORT and not chosen:
            raise OutOfTime  # by that one there would be another optimum
        warn_of_ranks(problem)
        with block_threads(problem.work()):
            return make_optimum(problem, enumerate_subsets(problem, given["limit"]))
