"""`relax`: the continuous relaxation by itself."""

from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from fairnepv.api.inputs import pose
from fairnepv.api.tables import from_tables
from fairnepv.compute.clock import apart
from fairnepv.errors import NumericalError, UnsupportedError
from fairnepv.loop import Context
from fairnepv.loop.bars import telling
from fairnepv.options import ProblemOptions, RelaxOptions
from fairnepv.problem import Problem
from fairnepv.signatures import checked, part, takes
from fairnepv.stiefel import Relaxation, make_solver
from fairnepv.stiefel import relax as solve_relaxation
from fairnepv.views.imprint import Imprint


@takes(RelaxOptions)
@telling
@apart
@from_tables
def relax(data: Any, k: int | float, **options: Unpack[RelaxOptions]) -> Relaxation:
    """Maximise f_tau over orthonormal frames [FairNEPv, Eq. (P-Fair)].

    data, k: as for `select`; k is one size. Frames know no rows, so items and groups cannot be
        constrained here.
    """
    given = checked("relax", RelaxOptions, options)
    session = Context(time_limit=given["time_limit"], progress=given["progress"])
    problem = pose(data, k, session=session, **part(ProblemOptions, given))
    if _has_rules(problem) or problem.floors is not None:
        raise UnsupportedError(
            "relax does not support include, exclude, groups or floors, since a frame has no rows "
            "to choose; use select or certify"
        )
    knobs: Any = {name: given[name] for name in ("tol", "max_steps", "alpha", "sigma")}
    solver = make_solver(given["solver"], k=problem.k, **knobs)
    with session.needed("rows were read and a start was sought"):
        result = solve_relaxation(problem, solver, start=given["start"], session=session)
    if given["strict"] and not result.status.ok:
        raise NumericalError(f"relaxation: {result.status.value} (residual {result.residual:.3g})")
    nothing = np.arange(0)
    return session.despite_interruption(
        lambda: replace(result, imprint=Imprint.of(problem.pool, nothing))
    )


def _has_rules(problem: Problem) -> bool:
    """Whether rows are ruled out that have something to relax; those that lack a view are zero."""
    rules, dropped = problem.constraints, problem.pool.dropped
    kept_out = rules.fixed_out if dropped is None else np.setdiff1d(rules.fixed_out, dropped)
    return bool(len(rules.fixed_in) or len(kept_out) or rules.quotas)
