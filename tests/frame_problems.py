"""Small data sets as problems of frames, beside the dense kernels of the twins."""

import math
from collections.abc import Sequence

import numpy as np

import reference
from cases import Array, Case, paper_instance
from fairnepv.objective import Point, StiefelObjective
from fairnepv.problem import Problem
from fairnepv.stiefel.coordinates import Ambient
from fairnepv.views import Calibration, DiagonalView, Pool


def problem_of(
    case: Case, *, factors: Sequence[float] | None = None, random_state: int = 0
) -> Problem:
    """The case as it stands, without calibration; `factors` multiply its kernels."""
    names = [f"view{q}" for q in range(len(case.views))]
    pool = Pool.of(
        dict(zip(names, case.views, strict=True)), eps=dict(zip(names, case.eps, strict=True))
    )
    offsets = {} if factors is None else dict(zip(names, map(math.log, factors), strict=True))
    calibration = Calibration("explicit", offsets=offsets)
    return Problem(
        calibration.apply(pool), case.k, case.tau, calibration, random_state=random_state
    )


def kernels_of(case: Case, *, factors: Sequence[float] | None = None) -> list[Array]:
    """L_q of the same problem, dense."""
    factors = [1.0] * len(case.views) if factors is None else factors
    return [
        c * reference.kernel(Phi, eps)
        for c, Phi, eps in zip(factors, case.views, case.eps, strict=True)
    ]


def objective_of(problem: Problem) -> StiefelObjective:
    """f_tau in the n dimensions of the paper."""
    pool = problem.pool
    return StiefelObjective(
        Ambient(pool).maps, pool.eps, pool.offsets, float(problem.tau), problem.k
    )


def point_at(case: Case, V: Array) -> Point:
    return objective_of(problem_of(case)).at(V)


def apply_H(point: Point, X: Array, sigma: float = 0.0) -> Array:
    """H_{tau,sigma}(V) X of the paper's Eq. (HV), from the A that the solvers use."""
    V, A = point.V, point.A
    VX = V.T @ X
    return A @ VX + V @ (A.T @ X + sigma * VX - VX / V.shape[1])


def paper_problem() -> Problem:
    """Appendix C: two diagonal kernels without ridge."""
    paper = paper_instance()
    views = {name: DiagonalView(paper[name], eps=0.0) for name in ("text", "vision")}
    return Problem(Pool.of(views), paper["k"], paper["tau"], Calibration("none"))


def paper_kernels() -> list[Array]:
    paper = paper_instance()
    return [np.diag(paper["text"]), np.diag(paper["vision"])]


def accurate_point(case: Case, V: Array) -> tuple[float, Array]:
    """f_tau and A_tau through singular values of Phi_q^T V, where a small ridge costs no digits.

    The twins in reference.py invert Gram matrices, and lose 1/eps of their accuracy.
    """
    k = V.shape[1]
    g, products = [], []
    for Phi, eps in zip(case.views, case.eps, strict=True):
        P, s, Rt = np.linalg.svd(Phi.T @ V)
        r = len(s)
        lam = np.zeros(k)
        lam[:r] = s**2
        g.append(np.log(lam + eps).mean())
        lifted = Phi @ (P[:, :r] @ np.diag(s / (s**2 + eps)) @ Rt[:r])
        products.append(lifted + V @ Rt.T @ np.diag(eps / (lam + eps)) @ Rt)
    w = reference.weights(np.array(g), case.tau)
    A = sum(w_q * X for w_q, X in zip(w, products, strict=True)) / k
    return reference.soft_min(np.array(g), case.tau), A
