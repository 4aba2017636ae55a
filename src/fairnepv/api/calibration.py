"""The fixed rules that put views on one scale before anything is selected [FairNEPv, Remark 1]."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from fairnepv.checks import check_positive
from fairnepv.compute import block_threads
from fairnepv.concave import Solved, view_bound
from fairnepv.errors import InputError
from fairnepv.loop import Context
from fairnepv.options import CALIBRATIONS
from fairnepv.problem import Constraints, Means, Problem
from fairnepv.views import Calibration, Pool
from fairnepv.views.scales import CUT_SHORT

_SHARE = 0.3  # of the time that is left: what all bounds for 'efficiency' get together


def calibrate(
    pool: Pool,
    rule: Any,
    k: int,
    constraints: Constraints | None = None,
    means: Means | None = None,
    session: Context | None = None,
) -> Calibration:
    """A rule by name, explicit factors {view: c} on L, or a record from an earlier result.

    Without a session an interruption is passed on.
    """
    if isinstance(rule, Calibration):
        return replace(rule, handed_in=True)
    if isinstance(rule, Mapping):
        return _explicit(pool, rule)
    if not isinstance(rule, str) or rule not in CALIBRATIONS:
        raise InputError(
            f"calibration must be one of {', '.join(CALIBRATIONS)}, or a mapping from views to "
            f"factors, not {rule!r}"
        )
    bare = Calibration(rule, center=pool.centered)
    if rule == "none":
        return bare
    if rule == "trace":
        return replace(bare, factors=_trace_factors(pool))
    unit = replace(bare, normalize=True)
    if rule == "unit-diagonal":
        return unit
    rules = constraints or Constraints()
    problem = Problem(unit.apply(pool), k, 1.0, unit, constraints=rules, means=means or Means())
    return _efficiency(problem, session)


def check_calibration(
    pool: Pool, claimed: Calibration, expected: Any, k: int, constraints: Constraints
) -> None:
    """Refuse a stored calibration whose numbers are not those of its rule for this data.

    Factors that somebody chose, or that a limit left, are terms of the problem: no rule gives them,
    and nothing but their form can be checked. `expected` is what the caller knows of the
    calibration, if anything.
    """
    if expected is None:
        given = claimed.rule in ("explicit", CUT_SHORT)
        expected = _in_form(pool, claimed) if given else claimed.rule
    again = calibrate(pool, expected, k, constraints)
    if not claimed.agrees(again):
        raise InputError(
            f"the certificate has another calibration than its rule and the data give: "
            f"{described(claimed)}; expected {described(again)}"
        )


def described(calibration: Calibration) -> str:
    """A calibration with all its numbers."""
    kinds = {"K times": calibration.factors, "L times exp": calibration.offsets}
    numbers = [
        f"{name!r} {words} {float(value)!r}"
        for words, values in kinds.items()
        for name, value in values.items()
    ]
    rows = ["centred rows"] if calibration.center else []
    rows += ["rows of unit length"] if calibration.normalize else []
    return ", ".join([calibration.rule, *rows, *numbers])


def _explicit(pool: Pool, factors: Mapping[str, float]) -> Calibration:
    if set(factors) != set(pool.names):
        raise InputError(
            f"calibration factors are for views {sorted(factors)}, but the data has "
            f"{sorted(pool.names)}; give one factor per view"
        )
    offsets = {
        name: float(np.log(check_positive("calibration factor", value, name)))
        for name, value in factors.items()
    }
    return Calibration("explicit", offsets=offsets, center=pool.centered)


def _in_form(pool: Pool, claimed: Calibration) -> Calibration:
    """The same calibration with nothing but its offsets, of which each view must have one."""
    with np.errstate(over="ignore"):
        factors = {name: float(np.exp(log)) for name, log in claimed.offsets.items()}
    short = claimed.rule == CUT_SHORT
    return replace(_explicit(pool, factors), rule=claimed.rule, normalize=short)


def _trace_factors(pool: Pool) -> dict[str, float]:
    """n / tr(K): the mean diagonal of every kernel becomes 1, then the ridge is added."""
    factors = {}
    for name, view in pool.items():
        norms = view.raw_squared_norms()
        norms = norms if view.absent is None else norms[~view.absent]
        trace = float(norms.sum())
        if trace == 0:
            raise InputError(f"view {name!r} is all zeros, so its trace cannot be normalised")
        factors[name] = len(norms) / trace
    return factors


def _efficiency(problem: Problem, session: Context | None) -> Calibration:
    """Divide each view by the best it could reach alone for this k, so exp(d_q) is at most 1.

    exp(d_q) then reads as the share of its own bound, under the same constraints, that a view
    keeps (docs/method.md#efficiency). A bound that was cut short is looser and as sure.
    """
    names, unit = problem.pool.names, problem.calibration
    proven: dict[str, Solved] = {}
    with block_threads(problem.work()):
        for turn, name in enumerate(names):
            # Such parts of what is left come to the share, whichever views take less than theirs.
            part = _SHARE / (len(names) - turn * _SHARE)
            with nullcontext() if session is None else session.share(part):
                proven[name] = view_bound(problem, name, session=session)
    cut = [name for name, solved in proven.items() if solved.status.stops_everything]
    if session is not None and cut:
        session.notes.append(
            f"calibration 'efficiency' divides view{'s' * (len(cut) > 1)} "
            f"{', '.join(map(repr, cut))} by a bound that is proven but looser than with more "
            "time, so that efficiencies are lower than they would be; raise time_limit"
        )
    return replace(
        unit,
        rule=CUT_SHORT if cut else unit.rule,
        offsets={name: -solved.bound for name, solved in proven.items()},
        evidence={
            name: solved.dual.published((problem.pool.views[q],))
            for q, (name, solved) in enumerate(proven.items())
        },
    )
