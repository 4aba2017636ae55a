"""Algorithm 1 of the paper, by the letter: top-k steps, level shift, damping, unscaled stopping.

For log-determinants each step is taken in closed form (docs/method.md#closed-form). Cosine and
sine / s are smooth functions of s^2, so W and s^2 from the (k, k) matrix A_perp^T A_perp lose no
digits, and U is not needed. Where H depends on V through the weights of the views alone, its
eigenvectors are sought as the paper has it, and aligned.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh, svd

from fairnepv.errors import Status
from fairnepv.objective import Point, StiefelObjective
from fairnepv.objective.geometry import EUCLIDEAN, Geometry
from fairnepv.stiefel.eigen import Weighted, leading
from fairnepv.stiefel.iteration import Iteration
from fairnepv.views.base import Floats

_EXACT = 1e-12  # error of the eigenvalues that a step of Algorithm 1 goes by
_RENEW_EVERY = 20  # steps between explicit re-orthonormalisations


@dataclass(frozen=True)
class ScfState:
    V: Floats
    steps: int = 0
    passes: int = 0


class Scf(Iteration):
    """The self-consistent iteration; `alpha` = 1, `sigma` = 0 is the plain one."""

    stage = "scf"

    def __init__(
        self, objective: StiefelObjective, start: Floats, *, alpha: float, sigma: float, tol: float
    ) -> None:
        super().__init__(objective, start, tol=tol)
        self.alpha, self.sigma = alpha, sigma

    def init(self) -> ScfState:
        return ScfState(self._start, passes=self._point.for_both)

    def step(self, state: ScfState) -> ScfState:
        point = self._point(state.V)
        geometry = point.geometry
        V, products = self._turned(point)
        passes = state.passes + products * self._point.for_both
        if (state.steps + 1) % _RENEW_EVERY == 0:
            V = geometry.orthonormalize(geometry.renew(V))
            passes += self._point.for_renewal
        return ScfState(V, state.steps + 1, passes)

    def _turned(self, point: Point) -> tuple[Floats, int]:
        """The next frame, and how many products with H it takes together with its gradient."""
        return scf_step(point.V, point.A_perp, self.alpha, self.sigma, point.geometry), 1

    def done(self, state: ScfState) -> Status | None:
        point = self._point(state.V)
        unscaled = point.geometry.norm(point.A - point.along(state.V))
        return Status.CONVERGED if unscaled < self.tol else None

    def report(self, state: ScfState) -> Mapping[str, Any]:
        scaled = self.tol * self._point(state.V).unit
        return {**super().report(state), "shift": self.sigma, "tol": scaled}


class LinearScf(Scf):
    """The same for a utility that is linear in V V^T: H = sum_q w_q(V) K_q / tr K_q, so H V = A."""

    def _turned(self, point: Point) -> tuple[Floats, int]:
        f, V, geometry = point.objective, point.V, point.geometry
        shares = Weighted.by_weights(f.maps, point.weights)
        found = leading(shares.shifted(self.sigma, V), f.k, V, _EXACT)
        top = found.vectors[:, : f.k]
        left, _, right = svd(geometry.inner(top, V), check_finite=False)
        aligned = top @ (left @ right)
        turned = geometry.restore(self.alpha * aligned + (1.0 - self.alpha) * V)
        return turned, 1 + found.products


def scf_step(
    V: Floats, A_perp: Floats, alpha: float, sigma: float, geometry: Geometry = EUCLIDEAN
) -> Floats:
    """One aligned, damped, level-shifted step [FairNEPv, Algorithm 1, Lemma 3]."""
    d = 1.0 / V.shape[1] + sigma
    squares, W = eigh(geometry.inner(A_perp, A_perp), driver="evd", check_finite=False)
    s = np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
    theta = 0.5 * np.arctan(2.0 * s / d)
    angle = np.arctan2(alpha * np.sin(theta), 1.0 - alpha + alpha * np.cos(theta))
    turned: Floats = V @ ((W * np.cos(angle)) @ W.T) + A_perp @ ((W * (np.sin(angle) / s)) @ W.T)
    return turned
