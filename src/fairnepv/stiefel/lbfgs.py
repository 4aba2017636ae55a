"""The accelerated ascent: preconditioned limited-memory BFGS on the Grassmann manifold.

Memory of three pairs (fewer where frames are large), polar retraction, Armijo backtracking. Differs
from the textbook version in four ways: what stands between the two loops is not a number but the
`Preconditioner` of the point; remembered pairs stay as they are and only the resulting direction
is projected (transporting them all took as many steps and nearly twice the time on the UCI and
OpenMoji pools); a step turns no direction by much more than a radian, where the retraction still
means something; and a direction that does not ascend drops the memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairnepv.errors import Status
from fairnepv.objective import Point
from fairnepv.objective.geometry import Geometry, Path, add_to
from fairnepv.stiefel.iteration import Iteration, affordable
from fairnepv.stiefel.preconditioner import Preconditioner
from fairnepv.views.base import Floats

Frames = Sequence[Floats]

# Ten reached 1e-3 in as many steps in seven settings of four pools, and 1e-6 in a tenth fewer over
# twelve; but reading them took as long as a product of a wide pool.
_MEMORY = 3
_ARMIJO = 1e-4
_SMALLEST_STEP = 1e-10
_WIDEST_ANGLE = 1.0
_PATIENCE = 100  # steps without a smaller residual before the ascent counts as stuck
_RENEW_EVERY = 20  # steps, where rounding adds up in a frame


@dataclass(frozen=True)
class LbfgsState:
    V: Floats
    S: Frames = ()  # steps, like V
    Y: Frames = ()  # what they took off the gradient
    rho: tuple[float, ...] = ()  # 1 / <s, y> of every pair
    best_residual: float = np.inf
    stalled: int = 0  # steps since then
    steps: int = 0
    passes: int = 0


class Lbfgs(Iteration):
    """Ascent of f_tau, monotone up to its rounding, until k ||A_perp||_F <= tol."""

    stage = "ascent"

    def init(self) -> LbfgsState:
        return LbfgsState(self._start, passes=self._point.for_both)

    def step(self, state: LbfgsState) -> LbfgsState:
        point = self._point(state.V)
        geometry = point.geometry
        gradient = 2.0 * point.A_perp
        guess = Preconditioner(point)
        S, Y, rho = state.S, state.Y, state.rho
        direction = point.project(_two_loop(geometry, gradient, state, guess))
        slope = geometry.dot(direction, gradient)
        if slope <= 0:
            direction, S, Y, rho = point.project(guess.solve(gradient)), (), (), ()
            slope = geometry.dot(direction, gradient)
        del guess
        successor, length, tries = self._search(point, direction, slope)
        passes = state.passes + tries * self._point.for_value
        if successor is None:
            return LbfgsState(
                state.V, S, Y, rho, state.best_residual, _PATIENCE, state.steps + 1, passes
            )
        if (state.steps + 1) % _RENEW_EVERY == 0:
            V = geometry.restore(geometry.renew(successor.V))
            successor = self._point.objective.at(V)
            passes += self._point.for_renewal + self._point.for_value
        self._point.keep(successor)
        step, change = np.multiply(direction, length, out=direction), gradient
        add_to(change, -2.0, successor.A_perp)
        bend = geometry.dot(step, change)
        if bend > 1e-12 * geometry.norm(step) * geometry.norm(change):
            most = affordable(step.size, 2 * _MEMORY) // 2
            S, Y, rho = (*S, step)[-most:], (*Y, change)[-most:], (*rho, 1.0 / bend)[-most:]
        best = min(successor.residual, state.best_residual)
        stalled = 0 if best < state.best_residual else state.stalled + 1
        passes += self._point.for_gradient
        return LbfgsState(successor.V, S, Y, rho, best, stalled, state.steps + 1, passes)

    def _search(
        self, point: Point, direction: Floats, slope: float
    ) -> tuple[Point | None, float, int]:
        """The first of halved steps that gains enough, as far as rounding lets f tell."""
        path = Path(point.geometry, point.V, direction)
        if path.widest_angle == 0:  # a direction that rounding has made nothing of
            return None, 0.0, 0
        # Bounding the Frobenius norm instead makes steps short for many columns: out of the start
        # on a sparse pool of 6,000 words (k = 150) ten such came to 2.54, and two of these to 2.59.
        length = min(1.0, _WIDEST_ANGLE / path.widest_angle)
        noise = 10.0 * point.rounding
        tries = 0
        while length >= _SMALLEST_STEP:
            tries += 1
            successor = self._point.objective.at(path.at(length))
            if successor.value >= point.value + _ARMIJO * length * slope - noise:
                return successor, length, tries
            length *= 0.5
        return None, length, tries

    def done(self, state: LbfgsState) -> Status | None:
        if self._point(state.V).residual <= self.tol:
            return Status.CONVERGED
        return Status.STAGNATED if state.stalled >= _PATIENCE else None


def _two_loop(
    geometry: Geometry, gradient: Floats, state: LbfgsState, guess: Preconditioner
) -> Floats:
    """The inverse-Hessian approximation times the gradient, for ascent on a concave model."""
    S, Y, rho, dot = state.S, state.Y, state.rho, geometry.dot
    if not len(S):
        return guess.solve(gradient)
    q: Floats = gradient.copy()
    alpha = np.empty(len(S))
    for m in reversed(range(len(S))):
        alpha[m] = rho[m] * dot(S[m], q)
        add_to(q, -alpha[m], Y[m])
    # The last pair also tells how far the guess is off in size.
    q = guess.solve(q)
    q /= rho[-1] * guess.quadratic(Y[-1])
    for m in range(len(S)):
        add_to(q, alpha[m] - rho[m] * dot(Y[m], q), S[m])
    return q
