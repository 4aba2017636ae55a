"""The level shift of Algorithm 1, chosen by validation [FairNEPv, section 4.2].

On the items that validate, of which as large a share is chosen as of the selection pool, the
relaxation is solved once for every shift of a grid; the one with the highest relaxed objective is
taken, and of those that end alike the smallest. Shifts are in units of 1/k, beside which they act.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairnepv.compute import block_threads
from fairnepv.errors import InputError
from fairnepv.methods import Nepv
from fairnepv.problem import Problem
from fairnepv.stiefel import relax
from fairnepv_studies.protocol.pool import Posed, SelectionPool, validation_views

GRID = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # in units of 1/k
_ALIKE = 1e-6  # nats: what two machines may differ by
_SHIFTED = ("shifted", "damped-shifted")


def with_shifted_solver(given: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """The knobs of a run whose shift is to be chosen, once they leave something to choose."""
    if "nepv" not in methods:
        raise InputError("tune_shift is for method 'nepv', which is not among the selectors")
    if given["sigma"] is not None or given["solver"] not in (None, *_SHIFTED):
        raise InputError(
            "tune_shift chooses sigma of solver shifted or damped-shifted; leave sigma out, and "
            f"name one of these, not solver = {given['solver']!r}, sigma = {given['sigma']!r}"
        )
    return {**given, "solver": given["solver"] or "shifted"}


def tuned_shifts(
    pool: SelectionPool, sizes: Sequence[int], given: Mapping[str, Any]
) -> dict[str, float]:
    """By size, in units of 1/k."""
    validation = replace(pool, views=validation_views(pool))
    here, there = len(pool.rows), next(iter(validation.views.values())).shape[0]
    if there < 2:
        raise InputError(
            f"tune_shift needs items that validate, and the split has {there}; split again with a "
            "larger --validation"
        )
    posed = Posed.of(validation, given)
    chosen = {}
    for k in sizes:
        problem = posed.problem(min(max(1, round(k * there / here)), there - 1))
        chosen[str(k)] = _best_shift(problem, given)
    return chosen


def _best_shift(problem: Problem, given: Mapping[str, Any]) -> float:
    values = []
    with block_threads(problem.work()):
        for times in GRID:
            pipeline = replace(Nepv.of(given), sigma=times / problem.k)
            solver = pipeline.solver_for(problem.k, problem.utility)
            values.append(relax(problem, solver, start=pipeline.start).value)
    best = max(values)
    return next(t for t, value in zip(GRID, values, strict=True) if value >= best - _ALIKE)
