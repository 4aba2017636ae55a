"""Solvers of the relaxation by name, with their knobs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairnepv.checks import brief, check_count, check_positive
from fairnepv.errors import InputError, UnsupportedError
from fairnepv.options import RELAXING

# Variants of section 4.2 as (alpha, sigma in units of 1/k).
VARIANTS = {
    "plain": (1.0, 0.0),
    "damped": (0.5, 0.0),
    "shifted": (1.0, 1.0),
    "damped-shifted": (0.5, 1.0),
}
SOLVERS = ("accelerated", *VARIANTS)  # of every objective
DUAL = "dual"  # and of one that is linear in V V^T


@dataclass(frozen=True)
class Solver:
    """A solver by name with its knobs; `tol` is on the scaled residual k ||A_perp||_F for
    `accelerated`, on the paper's unscaled ||A - V/k||_F for the variants of Algorithm 1, and on the
    distance between value and bound for `dual`."""

    name: str
    tol: float
    max_steps: int
    alpha: float = 1.0
    sigma: float = 0.0
    max_passes: int | None = None  # over the rows, after the start
    lanczos_steps: int = 30  # of the look for directions of ascent, two products each

    @property
    def literal(self) -> bool:
        """Whether it is a variant of Algorithm 1, whose path is the paper's from frame to frame."""
        return self.name in VARIANTS


def make_solver(
    name: str | None = None,
    *,
    k: int,
    tol: float | None = None,
    max_steps: int | None = None,
    alpha: float | None = None,
    sigma: float | None = None,
) -> Solver:
    """A solver by name; contradictory knobs are refused here."""
    name = RELAXING["solver"] if name is None else name
    if not isinstance(name, str) or name not in (*SOLVERS, DUAL):
        raise InputError(f"solver must be one of {', '.join(SOLVERS)}, {DUAL}, not {brief(name)}")
    tol = check_positive("tol", RELAXING["tol"] if tol is None else tol)
    max_steps = None if max_steps is None else check_count("max_steps", max_steps)
    if name not in VARIANTS:
        if alpha is not None or sigma is not None:
            raise InputError(
                f"alpha and sigma belong to the SCF variants, not to {name!r}; drop them, or "
                "choose solver damped, shifted or damped-shifted"
            )
        return Solver(name, tol, max_steps or 3000)
    default_alpha, default_sigma = VARIANTS[name]
    alpha = default_alpha if alpha is None else check_positive("alpha", alpha)
    sigma = default_sigma / k if sigma is None else _check_sigma(sigma)
    if alpha > 1:
        raise InputError(f"alpha must be in (0, 1], not {alpha!r}")
    if (alpha < 1) != (default_alpha < 1) or (sigma > 0) != (default_sigma > 0):
        raise InputError(
            f"alpha = {alpha!r} and sigma = {sigma!r} do not make the {name!r} variant; damping "
            "means alpha < 1 and shifting means sigma > 0"
        )
    return Solver(name, tol, max_steps or 1000, alpha, sigma)


def refuse_dual(solver: Solver, linear: bool) -> None:
    """Refuse the solver that needs an objective which is linear in V V^T, where this is not."""
    if solver.name == DUAL and not linear:
        raise UnsupportedError(
            "solver 'dual' needs the representative objective, which is linear in the projection "
            "on a frame; log-determinants are not: use solver='accelerated'"
        )


def _check_sigma(sigma: Any) -> float:
    is_number = isinstance(sigma, int | float | np.number) and not isinstance(sigma, bool)
    return 0.0 if is_number and sigma == 0 else check_positive("sigma", sigma)
