"""What the methods on frames share: the point at a state, and what the trace says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairnepv.objective import Point, StiefelObjective
from fairnepv.views.base import Floats


class PointMemo:
    """`objective.at(V)` with the last answer kept, so that a state needs to hold V alone."""

    def __init__(self, objective: StiefelObjective, passes_per_product: int) -> None:
        self.objective = objective
        self.cost = passes_per_product
        self._last: Point | None = None

    def __call__(self, V: Floats) -> Point:
        if self._last is None or self._last.V is not V:
            self._last = self.objective.at(V)
        return self._last

    def keep(self, point: Point) -> None:
        self._last = point


def describe(point: Point) -> Mapping[str, Any]:
    return {
        "objective": point.value,
        "residual": point.residual,
        "weights": tuple(float(w) for w in point.weights),
    }
