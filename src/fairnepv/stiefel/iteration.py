"""What the iterations on frames share: the point at a state, its row of the trace, memory."""

from collections.abc import Mapping
from typing import Any

from fairnepv.objective import Point, StiefelObjective
from fairnepv.views.base import Floats

_MEMORY_NUMBERS = 1 << 27  # 1 GiB of frames, besides the few that a step works with


def affordable(size: int, most: int) -> int:
    """How many arrays of so many numbers may be kept: at least two, and what fits into 1 GiB."""
    return max(2, min(most, _MEMORY_NUMBERS // max(1, size)))


class PointMemo:
    """`objective.at(V)` with the last answer kept, so that a state needs to hold V alone."""

    def __init__(self, objective: StiefelObjective) -> None:
        self.objective = objective
        self.for_value = objective.maps.passes_per_adjoint  # passes over the rows
        self.for_gradient = objective.maps.passes_per_combine  # once the value is known
        self.for_both = self.for_value + self.for_gradient  # or for a product with the Hessian
        self.for_renewal = objective.maps.geometry.passes_per_renewal
        self._last: Point | None = None

    def __call__(self, V: Floats) -> Point:
        if not self.knows(V):
            self._last = self.objective.at(V)
        assert self._last is not None
        return self._last

    def knows(self, V: Floats) -> bool:
        """Whether the answer is at hand."""
        return self._last is not None and self._last.V is V

    def keep(self, point: Point) -> None:
        self._last = point


class Iteration:
    """The part of a `Method` that every iteration on frames has alike."""

    def __init__(self, objective: StiefelObjective, start: Floats, *, tol: float) -> None:
        self.tol = tol
        self._start = start
        self._point = PointMemo(objective)
        self.reported: Point | None = None  # of the last whole state

    def report(self, state: Any) -> Mapping[str, Any]:
        point = self._point(state.V)
        self.reported = point
        return {
            "objective": point.value,
            "residual": point.residual,
            "weights": tuple(float(w) for w in point.weights),
            "shift": None,
            "tol": self.tol,
        }
