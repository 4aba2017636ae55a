"""What a result tells of its making: the options that made it, and what it was chosen from.

`select(data, **selection.settings)` finds the same again, bit for bit, with the same engine, also
with settings that come from a stored file. What has a value for every row belongs to the data and
is given again beside it: ids, quality, groups, and a frame to start from.
"""

from typing import Any

import numpy as np

from fairnepv.checks import brief, is_finite
from fairnepv.errors import InputError
from fairnepv.methods import APART
from fairnepv.methods.plan import Plan
from fairnepv.methods.tiers import shards_of
from fairnepv.options import SelectOptions
from fairnepv.problem import Problem, by_view
from fairnepv.signatures import checked, options_of

# What results of every method are told by.
_TOLD = ("objective", "method", "effort", "k", "tau", "eps", "calibration", "priorities")
# Options that belong to a call, to the data, or to files.
_NOT_OURS = {"views", "ids", "groups", "engine", "progress", "nested", "strict", "checkpoint"}


def settings_of(problem: Problem, plan: Plan) -> dict[str, Any]:
    """What was asked for, by the names of the options of `select`, as plain values; of the knobs of
    the relaxation what they came to."""
    pool, rules = problem.pool, problem.constraints
    floors = {} if problem.floors is None else by_view(pool, problem.floors)
    settings = {
        "objective": problem.utility,
        "method": plan.method,
        "effort": plan.effort.name,
        "k": problem.k,
        "tau": problem.tau,
        "eps": {name: view.ridge for name, view in pool.items()},
        "center": problem.calibration.center,
        "calibration": problem.calibration.told,
        "quality": None if pool.quality is None else True,  # which is refused: give weights again
        "include": _named(problem, rules.fixed_in),
        "exclude": _named(problem, np.setdiff1d(rules.fixed_out, problem.intake.ruled_out)),
        "missing": problem.intake.missing,
        "deduplicate": problem.intake.deduplicate,
        "quotas": None if rules.quotas is None else rules.quotas.described(),
        "priorities": None if problem.priorities is None else by_view(pool, problem.priorities),
        "floors": {name: d for name, d in floors.items() if np.isfinite(d)} if floors else None,
        "oversampling": plan.nepv.oversampling,
        "certify": plan.certificate is not None,
        "gap": plan.gap,
        "target_efficiency": plan.target,
        "node_limit": plan.node_limit,
        "hierarchical": _tiers(problem, plan),
        "random_state": problem.random_state,
        "time_limit": plan.time_limit,
        "memory_limit": plan.memory_limit,
    }
    if plan.method not in APART:
        settings["passes"] = plan.passes
    if plan.method != "nepv":
        return settings
    # In tiers each has passes of its own, as its rows allow.
    one_tier = len(plan.shards) <= 2
    passes = plan.refining.passes_for(problem.work()) if one_tier else plan.passes
    return {**settings, **plan.nepv.settings(problem.k, problem.utility), "passes": passes}


def check_stored(settings: Any, objective: str, k: int, views: list[str]) -> dict[str, Any]:
    """Settings that come from a file: options of `select` that say nothing of where to read or to
    write, each of a value that it can have, and those that a result is told by."""
    known = {"k", *options_of(SelectOptions)} - _NOT_OURS
    given = dict(settings)
    if more := sorted(set(given) - known):
        raise InputError(f"settings have {brief(more[0])}, which is no option of a selection")
    told = {name: value for name, value in given.items() if name != "k"}
    checked("select", SelectOptions, told)
    wanted = {*_TOLD} if given.get("method") in APART else {*_TOLD, "passes"}
    if missing := sorted(wanted - set(given)):
        raise InputError(f"settings do not tell {missing[0]}")
    eps = given["eps"]
    if (given["objective"], given["k"]) != (objective, k) or type(given["k"]) is not int:
        raise InputError("settings are those of another objective or size")
    if not isinstance(eps, dict) or list(eps) != views or not all(map(is_finite, eps.values())):
        raise InputError("settings must tell eps for every view")
    if not isinstance(given["tau"], float) or not isinstance(given["priorities"], dict | None):
        raise InputError("settings must tell tau as a number and priorities by view")
    return given


def chosen_from(problem: Problem, plan: Plan) -> dict[str, Any]:
    """The size of the data: rows, columns by view, shards of a first tier, and which views had
    their rows in another order than the first."""
    return {
        "n": problem.n,
        "views": {name: view.p for name, view in problem.pool.items()},
        "shards": len(plan.shards) - 1 if plan.shards else None,
        "reordered": list(problem.pool.reordered),
    }


def _named(problem: Problem, rows: Any) -> list[Any] | None:
    """Rows as `include` names them: by id where there are ids."""
    named: list[Any] = problem.ids_of(rows).tolist()
    return named or None


def _tiers(problem: Problem, plan: Plan) -> bool | int:
    """The number of shards, or True where they are those of files."""
    count = len(plan.shards) - 1
    if count < 1:
        return False
    even = plan.shards == shards_of(problem.pool, problem.k, count)
    return count if even else True
