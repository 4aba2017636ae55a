"""The fixed rules that put views on one scale before anything is selected [FairNEPv, Remark 1]."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fairnepv.checks import check_positive
from fairnepv.compute import block_threads
from fairnepv.concave import view_bound
from fairnepv.errors import InputError
from fairnepv.options import CALIBRATIONS
from fairnepv.problem import Constraints, Means, Problem
from fairnepv.views import Calibration, Pool


def calibrate(
    pool: Pool,
    rule: Any,
    k: int,
    constraints: Constraints | None = None,
    means: Means | None = None,
) -> Calibration:
    """A rule by name, explicit factors {view: c} on L, or a record from an earlier result."""
    if isinstance(rule, Calibration):
        return rule
    if isinstance(rule, Mapping):
        return _explicit(pool, rule)
    if not isinstance(rule, str) or rule not in CALIBRATIONS:
        raise InputError(
            f"calibration must be one of {', '.join(CALIBRATIONS)}, or a mapping from views to "
            f"factors, not {rule!r}"
        )
    if rule == "none":
        return Calibration(rule)
    if rule == "trace":
        return Calibration(rule, factors=_trace_factors(pool))
    unit = Calibration(rule, normalize=True)
    return unit if rule == "unit-diagonal" else _efficiency(pool, unit, k, constraints, means)


def check_calibration(
    pool: Pool, claimed: Calibration, expected: Any, k: int, constraints: Constraints
) -> None:
    """Refuse a stored calibration whose numbers are not those of its rule for this data.

    Factors that somebody chose are terms of the problem: they have no rule, and nothing but their
    form can be checked. `expected` is what the caller knows of the calibration, if anything.
    """
    if expected is None:
        expected = claimed.rule
        if claimed.rule == "explicit":
            with np.errstate(over="ignore"):
                expected = {name: float(np.exp(log)) for name, log in claimed.offsets.items()}
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
    rows = ["rows of unit length"] if calibration.normalize else []
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
    return Calibration("explicit", offsets=offsets)


def _trace_factors(pool: Pool) -> dict[str, float]:
    """n / tr(K): the mean diagonal of every kernel becomes 1, then the ridge is added."""
    factors = {}
    for name, view in pool.items():
        trace = float(view.raw_squared_norms().sum())
        if trace == 0:
            raise InputError(f"view {name!r} is all zeros, so its trace cannot be normalised")
        factors[name] = view.n / trace
    return factors


def _efficiency(
    pool: Pool, unit: Calibration, k: int, constraints: Constraints | None, means: Means | None
) -> Calibration:
    """Divide each view by the best it could reach alone for this k, so exp(d_q) is at most 1.

    exp(d_q) then reads as the share of its own bound, under the same constraints, that a view
    keeps (docs/method.md#efficiency).
    """
    rules = constraints or Constraints()
    problem = Problem(unit.apply(pool), k, 1.0, unit, constraints=rules, means=means or Means())
    with block_threads(problem.work()):
        proven = {name: view_bound(problem, name) for name in pool.names}
    return replace(
        unit,
        offsets={name: -bound for name, (bound, _) in proven.items()},
        evidence={name: dual for name, (_, dual) in proven.items()},
    )
