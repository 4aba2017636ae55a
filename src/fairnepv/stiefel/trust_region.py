"""The second-order finisher: a trust-region Newton method with truncated conjugate gradients.

For where the ascent stalls, and for last steps in n dimensions (docs/method.md#plain-iteration).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fairnepv.errors import Status
from fairnepv.objective import Point
from fairnepv.stiefel.iteration import Iteration
from fairnepv.views.base import Floats

_ACCEPT = 0.05  # share of the predicted gain that a step must bring
_MAX_INNER = 500
_ROUNDING = 1e3 * np.finfo(np.float64).eps
_PATIENCE = 8  # outer steps without a smaller residual, once f itself cannot tell any more


@dataclass(frozen=True)
class TrustRegionState:
    V: Floats
    radius: float
    best_residual: float
    stalled: int = 0
    passes: int = 0


class TrustRegion(Iteration):
    """Newton steps until k ||A_perp||_F <= tol, or as far as rounding lets them."""

    stage = "newton"

    def init(self) -> TrustRegionState:
        point = self._point(self._start)
        radius = math.sqrt(point.objective.k) / 8
        return TrustRegionState(point.V, radius, point.residual, passes=self._point.for_both)

    def step(self, state: TrustRegionState) -> TrustRegionState:
        point = self._point(state.V)
        model = _truncated_cg(point, state.radius)
        successor = self._point.objective.at(point.geometry.retract(state.V, model.xi))
        # Near the end both gains drown in the rounding of f; the common term lets such a step pass.
        noise = max(_ROUNDING * max(1.0, abs(point.value)), 10.0 * point.rounding)
        ratio = (successor.value - point.value + noise) / (model.gain + noise)
        radius = state.radius
        if ratio < 0.25:
            radius = 0.25 * min(radius, point.geometry.norm(model.xi))
        elif ratio > 0.75 and model.at_boundary:
            radius = min(2.0 * radius, math.sqrt(point.objective.k))
        passes = state.passes + model.products * self._point.for_both + self._point.for_value
        if ratio <= _ACCEPT:
            return TrustRegionState(state.V, radius, state.best_residual, state.stalled + 1, passes)
        self._point.keep(successor)
        better = successor.residual < 0.9 * state.best_residual
        stalled = 0 if better or model.gain > noise else state.stalled + 1
        best = min(successor.residual, state.best_residual)
        passes += self._point.for_gradient
        return TrustRegionState(successor.V, radius, best, stalled, passes)

    def done(self, state: TrustRegionState) -> Status | None:
        point = self._point(state.V)
        if point.residual <= self.tol:
            return Status.CONVERGED
        if state.stalled < _PATIENCE and state.radius > 1e-12:
            return None
        at_floor = point.residual <= 1e3 * np.sqrt(point.objective.k) * point.rounding
        return Status.ROUNDING_FLOOR if at_floor else Status.STAGNATED

    def report(self, state: TrustRegionState) -> Mapping[str, Any]:
        return {**super().report(state), "radius": state.radius}


class ModelStep(NamedTuple):
    xi: Floats
    gain: float  # what the quadratic model promises for f
    at_boundary: bool
    products: int


def _truncated_cg(point: Point, radius: float) -> ModelStep:
    """Steihaug's conjugate gradients on the model 2<A_perp, xi> + <xi, Hess xi>, |xi| <= radius."""
    A, dot = point.A_perp, point.geometry.dot
    xi, H_xi = np.zeros_like(A), np.zeros_like(A)
    r = A.copy()
    first = point.geometry.norm(r)
    # Superlinear forcing: the tighter the closer to the solution, never looser than 1/10.
    target = first * min(0.1, max(1e-4, point.residual))
    direction, rr = r.copy(), first**2
    boundary = False
    products = 0
    while products < _MAX_INNER:
        H_direction = point.hessian(direction)
        products += 1
        bend = -dot(direction, H_direction)
        xx, xd, dd = dot(xi, xi), dot(xi, direction), dot(direction, direction)
        alpha = rr / bend if bend > 0 else np.inf
        if bend <= 0 or xx + 2 * alpha * xd + alpha**2 * dd >= radius**2:
            alpha = (-xd + np.sqrt(xd**2 + dd * (radius**2 - xx))) / dd
            boundary = True
        xi, H_xi = xi + alpha * direction, H_xi + alpha * H_direction
        if boundary:
            break
        r = point.project(r + alpha * H_direction)
        rr_next = dot(r, r)
        if np.sqrt(rr_next) <= target:
            break
        direction, rr = r + (rr_next / rr) * direction, rr_next
    gain = 2.0 * dot(A, xi) + dot(xi, H_xi)
    return ModelStep(xi, gain, boundary, products)
