"""How Algorithm 1 converges, in four variants, beside the default solver [FairNEPv, section 4.2].

The paper chooses sigma and alpha by validation; so do we: on one problem, by the residual after a
fixed number of steps, and then every variant runs on another with what it was given. For a real
pool the two are halves of its rows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.problem import Problem
from fairnepv.report import trace_table
from fairnepv.stiefel import SOLVERS, Relaxation, Solver, make_solver, relax

ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85)
SIGMAS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)  # in units of 1/k
_LONGEST_PERIOD = 12
_TAIL = 4 * _LONGEST_PERIOD
_SAME = 0.01  # of the swing
_NOTICEABLE = 1e-3


@dataclass(frozen=True)
class Convergence:
    """One solver on one problem."""

    relaxation: Relaxation
    period: int | None  # of the cycle that it fell into, if it did

    @property
    def solver(self) -> Solver:
        return self.relaxation.solver

    @functools.cached_property
    def trace(self) -> Mapping[str, NDArray[Any]]:
        return trace_table(self.relaxation).columns

    @property
    def wanders(self) -> bool:
        """Whether the objective still fell noticeably during the last steps."""
        return bool(np.diff(self.trace["objective"][-_TAIL:]).min(initial=0.0) < -_NOTICEABLE)

    def first_below(self, residual: float) -> int | None:
        """The first step with at most this residual."""
        below = np.flatnonzero(self.trace["residual"] <= residual)
        return int(below[0]) if len(below) else None


def convergence_study(
    validation: Problem,
    test: Problem,
    *,
    steps: int = 500,
    validation_steps: int = 200,
    start: str = "spectral",
) -> dict[str, Convergence]:
    """Every variant with its validated knobs, and the default, on the test problem."""
    knobs = validate(validation, steps=validation_steps, start=start)
    results = {}
    for name in SOLVERS:
        solver = _solver(name, test.k, steps, knobs.get(name, {}))
        relaxation = relax(test, solver, start=start)
        period = None if relaxation.status.ok else cycle_period(relaxation)
        results[name] = Convergence(relaxation, period)
    return results


def _solver(name: str, k: int, steps: int, knobs: Mapping[str, float]) -> Solver:
    """All are to reach k ||A_perp|| = 1e-6; the variants test the unscaled residual."""
    if name == "accelerated":
        return make_solver(name, k=k)
    alpha, sigma = knobs.get("alpha"), knobs.get("sigma")
    return make_solver(name, k=k, tol=1e-6 / k, max_steps=steps, alpha=alpha, sigma=sigma)


def halves(problem: Problem) -> tuple[Problem, Problem]:
    """Two problems of half the rows each, dealt by the problem's own seed."""
    rows = problem.rng(10).permutation(problem.n)
    return problem.take(np.sort(rows[::2])), problem.take(np.sort(rows[1::2]))


def validate(problem: Problem, *, steps: int, start: str) -> dict[str, dict[str, float]]:
    """Per variant the alpha and sigma with the lowest residual after so many steps.

    Damping and shifting together are tried on every other point of both grids: what is best alone
    would be too much of it in company.
    """
    k = problem.k
    alphas = _ranked(problem, "damped", [{"alpha": a} for a in ALPHAS], steps, start)
    sigmas = _ranked(problem, "shifted", [{"sigma": s / k} for s in SIGMAS], steps, start)
    both = [{"alpha": a, "sigma": s / k} for a, s in itertools.product(ALPHAS[2::2], SIGMAS[1::2])]
    return {
        "damped": alphas[0],
        "shifted": sigmas[0],
        "damped-shifted": _ranked(problem, "damped-shifted", both, steps, start)[0],
    }


def _ranked(
    problem: Problem, name: str, grid: Sequence[dict[str, float]], steps: int, start: str
) -> list[dict[str, float]]:
    """The grid from the lowest final residual to the highest."""
    finals = []
    for knobs in grid:
        solver = _solver(name, problem.k, steps, knobs)
        finals.append(relax(problem, solver, start=start).trace[-1].residual or 0.0)
    return [grid[i] for i in np.argsort(finals, kind="stable")]


def cycle_period(relaxation: Relaxation) -> int | None:
    """The period of objective and view weights over the last steps, or None where none is seen.

    They repeat if they come back to within a hundredth of their own swing, and that is noticeable.
    The weights matter: between mirror images of itself an iterate keeps its objective.
    """
    tail = np.array([[row.objective, *(row.weights or ())] for row in relaxation.trace[-_TAIL:]])
    swing = np.ptp(tail, axis=0).max()
    if len(tail) < _TAIL or swing < _NOTICEABLE:
        return None
    for period in range(2, _LONGEST_PERIOD + 1):
        if (np.abs(tail[period:] - tail[:-period]) <= _SAME * swing).all():
            return period
    return None
