"""Projected gradient ascent over the memberships {0 <= x <= 1, sum x = k}."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fairnepv.errors import Status
from fairnepv.views.base import Floats

_ARMIJO = 1e-4  # share of the promised gain that a step must bring
_WIDEST_STEP = 100.0  # spread of a step before it is projected; beyond, digits of x are lost
_ROUNDING = 1e-13  # gains of the objective, and steps of x, that mean nothing any more


class Point(Protocol):
    """An objective at some x."""

    @property
    def value(self) -> float: ...

    @property
    def gradient(self) -> Floats: ...


@dataclass(frozen=True)
class AscentState:
    x: Floats  # (n,)
    length: float  # of the next step along the gradient; 0 once rounding hides every gain
    passes: int = 0


class Ascent:
    """From the uniform point on, each step higher than the one before.

    Steps have the length of Barzilai and Borwein, and are cut until they bring their share of what
    the gradient promises. Where the objective is concave the gap bounds what is missing; elsewhere
    it says how far from stationary a point is.
    """

    stage = "memberships"

    def __init__(self, at: Callable[[Floats], Point], n: int, k: int, *, tol: float) -> None:
        self.at, self.n, self.k, self.tol = at, n, k, tol
        self._last: tuple[Floats, Point] | None = None

    def init(self) -> AscentState:
        return AscentState(np.full(self.n, self.k / self.n), np.inf, passes=2)

    def step(self, state: AscentState) -> AscentState:
        x, here = state.x, self._point(state.x)
        g, passes = here.gradient, state.passes
        spread = max(float(np.ptp(g)), np.finfo(np.float64).tiny)
        length = min(state.length, _WIDEST_STEP / spread)
        while True:
            y = project(x + length * g, self.k)
            promised = float(g @ (y - x))
            hidden = promised <= _ROUNDING * max(1.0, abs(here.value))
            if hidden or length * spread <= _ROUNDING:
                return AscentState(x, 0.0, passes)
            there, passes = self.at(y), passes + 1
            if there.value >= here.value + _ARMIJO * promised:
                break
            length /= 4.0
        self._last = (y, there)
        bend = float((x - y) @ (there.gradient - g))
        length = float((y - x) @ (y - x)) / bend if bend > 0 else np.inf
        return AscentState(y, length, passes + 1)

    def done(self, state: AscentState) -> Status | None:
        if self.gap(state) <= self.tol:
            return Status.CONVERGED
        return Status.ROUNDING_FLOOR if state.length == 0.0 else None

    def report(self, state: AscentState) -> Mapping[str, Any]:
        return {"objective": self._point(state.x).value, "gap": self.gap(state), "tol": self.tol}

    def gap(self, state: AscentState) -> float:
        """The most that any feasible point gains over this one to first order."""
        g = self._point(state.x).gradient
        return float(np.partition(g, -self.k)[-self.k :].sum() - g @ state.x)

    def _point(self, x: Floats) -> Point:
        """The last point is kept, so that a state needs to hold x alone."""
        if self._last is None or self._last[0] is not x:
            self._last = (x, self.at(x))
        return self._last[1]


def project(y: Floats, k: int) -> Floats:
    """The nearest point of {0 <= x <= 1, sum x = k}: clip(y - nu, 0, 1) for the right nu.

    The sum falls from n to 0 as nu grows and is linear between knots, where an entry starts or
    stops to count; so the two knots around k are found by bisection.
    """
    knots = np.sort(np.concatenate([y - 1.0, y]))
    low, high = 0, len(knots) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _clipped(y, knots[middle]).sum() >= k:
            low = middle
        else:
            high = middle
    above, below = _clipped(y, knots[low]).sum(), _clipped(y, knots[high]).sum()
    share = (above - k) / (above - below)
    return _clipped(y, knots[low] + share * (knots[high] - knots[low]))


def _clipped(y: Floats, nu: float) -> Floats:
    return np.clip(y - nu, 0.0, 1.0)
