"""Where the solver of the concave relaxation stands, so that each of its points can be made again.

Leading eigenvectors take several times as long from nowhere as from those of a point nearby. So a
state of the solver holds the vectors that its points began with, and a run that is resumed makes
the same points from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Place
from fairnepv.views.base import Floats, Indices


class Origin(NamedTuple):
    """What a point is made from besides its x: how closely views are looked at, by their weights
    nearby; and the leading vectors there, (side, c) by view, None where there are none."""

    weights: Floats | None
    bases: tuple[Any, ...]


class HeldOrigin(NamedTuple):
    """An origin as a state holds it."""

    weights: Floats  # (M,)
    vectors: NDArray[np.float32]  # those of one view after the other, on the host
    shapes: Indices  # (M, 2) of each; nothing by nothing where there are none

    @classmethod
    def of(cls, origin: Origin, places: Iterable[Place]) -> HeldOrigin:
        assert origin.weights is not None
        pairs = zip(origin.bases, places, strict=True)
        parts = [np.empty((0, 0)) if x is None else place.get(x) for x, place in pairs]
        vectors = np.concatenate([np.ravel(x) for x in parts]).astype(np.float32, copy=False)
        return cls(origin.weights, vectors, np.array([x.shape for x in parts], dtype=np.int64))

    def beside(self, views: tuple[Any, ...]) -> Origin:
        """For views of the same rows or of others, whose vectors may be longer or shorter."""
        ends = np.cumsum(self.shapes.prod(axis=1))[:-1]
        parts = zip(np.split(self.vectors, ends), self.shapes.tolist(), views, strict=True)
        bases = tuple(
            view.place.put(part.reshape(shape)) if len(part) and shape[0] == view.side else None
            for part, shape, view in parts
        )
        return Origin(self.weights, bases)


@dataclass(frozen=True)
class ConcaveState:
    rows: Indices  # (m,) T, ascending
    x: Floats  # (m,)
    slope_x: Floats  # (m,) where the slopes were taken that priced the rows
    value: float  # of the relaxation at x
    bound: float  # the best so far; infinite before the first pass
    best_rows: Indices  # whose dual variables say so
    best_x: Floats
    weights: Floats  # (M,) of the views at x: those that hardly matter are looked at less closely
    x_weights: Floats  # the origins of the points at `x`, `slope_x` and `best_x`
    x_vectors: NDArray[np.float32]
    x_shapes: Indices
    slope_weights: Floats
    slope_vectors: NDArray[np.float32]
    slope_shapes: Indices
    best_weights: Floats
    best_vectors: NDArray[np.float32]
    best_shapes: Indices
    proven: bool = False  # whether in float64
    eta: float = 1.0
    stuck: bool = False  # solved on T or hardly moving, and T cannot grow
    slow: int = 0  # steps in a row that hardly closed the gap
    passes: int = 0
    evaluations: int = 0
    spent: float = 0.0  # multiply-adds of them
    double: bool = False  # whether float32 was found to be too coarse on the way
    best_double: bool = False  # whether that at `best_x` is a point in float64

    @property
    def x_origin(self) -> HeldOrigin:
        return HeldOrigin(self.x_weights, self.x_vectors, self.x_shapes)

    @property
    def slope_origin(self) -> HeldOrigin:
        return HeldOrigin(self.slope_weights, self.slope_vectors, self.slope_shapes)

    @property
    def best_origin(self) -> HeldOrigin:
        return HeldOrigin(self.best_weights, self.best_vectors, self.best_shapes)

    @property
    def gap(self) -> float:
        return self.bound - self.value
