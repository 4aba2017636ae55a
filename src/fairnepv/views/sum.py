"""A weighted sum of kernels, kept lazy: the averaged-kernel baseline is one of these."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairnepv.compute import HOST, Place, RowBlock
from fairnepv.compute.base import Array
from fairnepv.compute.shifted import ShiftedRows, side_by_side
from fairnepv.compute.tensors import (
    is_sparse,
    on_one_device,
    silence_csr_warning,
    to_device,
    to_host,
)
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.kernel import spectrum_of_gram
from fairnepv.views.trail import Trail


class SumView(View):
    """K = sum_q weights[q] K_q, with the ridges summed likewise; features stand side by side."""

    array_anchors = scored_by_rows = False

    def __init__(self, parts: tuple[View, ...], weights: tuple[float, ...]) -> None:
        self._bare = self.parts = parts
        self.weights = weights
        self.n = parts[0].n
        self.p = sum(part.p for part in parts)
        self.eps = sum(w * part.ridge for w, part in zip(weights, parts, strict=True))

    @property
    def stored(self) -> int:
        return sum(part.stored for part in self.parts)

    @property
    def block_place(self) -> Place:  # type: ignore[override]
        """On a device, if that of any part is."""
        return next((p.block_place for p in self.parts if p.block_place is not HOST), HOST)

    def raw_squared_norms(self) -> Floats:
        return self._present(_weigh(self.weights, [part.squared_norms for part in self._bare]))

    def scaled(self, scale: Floats | None, offset: float) -> SumView:
        """Row scales go through to the parts, on top of those that they came with."""
        parts = self._bare
        if scale is not None:
            own = [scale if part.scale is None else scale * part.scale for part in parts]
            parts = tuple(part.scaled(s, part.offset) for part, s in zip(parts, own, strict=True))
        return self._with(parts=parts, scale=scale, offset=offset)

    def block(self, start: int, stop: int) -> RowBlock:
        return SumBlock(tuple(part.block(start, stop) for part in self.parts), self.weights)

    def gather(self, indices: Indices) -> RowBlock:
        return SumBlock(tuple(part.gather(indices) for part in self.parts), self.weights)

    def raw_rows(self, rows: Indices | slice) -> Any:
        return _beside(self.weights, [part.rows(rows) for part in self._bare])

    def lean(self) -> SumView:
        parts = tuple(part.lean() for part in self.parts)
        return self._with(parts=parts, _bare=())

    @property
    def coarse_error(self) -> float:
        return max(part.coarse_error for part in self.parts)

    @property
    def cancellation(self) -> float:
        return max(part.cancellation for part in self.parts)

    def smallest_eigenvalue(self, margin: float = 1.0) -> float:
        own = [part.smallest_eigenvalue(margin) for part in self.parts]
        return float(np.dot(self.weights, own))

    def rows(self, rows: Indices | slice) -> Any:
        return _beside(self.weights, [part.rows(rows) for part in self.parts])

    def anchor(self, indices: Indices) -> tuple[Any, ...]:
        return tuple(part.anchor(indices) for part in self.parts)

    def combined(self, anchor: tuple[Any, ...], combine: Floats) -> tuple[Any, ...]:
        return tuple(
            part.combined(own, combine) for part, own in zip(self.parts, anchor, strict=True)
        )

    def trail(self, most: int, coarse: bool) -> SumTrail:
        return SumTrail(self, most, coarse)

    def inner(self, left: Indices, right: Indices) -> Floats:
        return _weigh(self.weights, [part.inner(left, right) for part in self.parts])

    def spectrum(self, indices: Indices) -> Floats:
        return spectrum_of_gram(self.inner(indices, indices))

    def take(self, indices: Indices) -> View:
        view = SumView(tuple(part.take(indices) for part in self._bare), self.weights)
        return self._given_to(view, indices)


class SumBlock(RowBlock):
    """The same rows of all parts; on a device, if any part is."""

    def __init__(self, parts: tuple[RowBlock, ...], weights: tuple[float, ...]) -> None:
        self._parts, self._weights = parts, weights
        self.place = next((part.place for part in parts if part.place is not HOST), HOST)

    def features(self) -> Any:
        return _beside(self._weights, [part.features() for part in self._parts])

    def squared_norms(self) -> Floats:
        return _weigh(self._weights, [part.squared_norms() for part in self._parts])

    def cross(self, anchor: tuple[Any, ...]) -> Floats:
        parts = zip(self._parts, anchor, strict=True)
        return _weigh(self._weights, [part.cross(own) for part, own in parts])

    def coarse(self, anchor: tuple[Any, ...]) -> Array:
        parts = zip(self._parts, anchor, strict=True)
        return _weigh(self._weights, [part.coarse(own) for part, own in parts])


class SumTrail(Trail):
    """The parts of directions that lie side by side."""

    def __init__(self, view: SumView, most: int, coarse: bool) -> None:
        super().__init__(view, 0)
        self._parts = tuple(part.trail(most, coarse).literal() for part in view.parts)
        self._weights = view.weights

    def coordinates(self, rows: Indices) -> Any:
        return _weigh(self._weights, [part.coordinates(rows) for part in self._parts])

    def add(self, pick: int, coordinates: Any, root: float) -> None:
        for part in self._parts:
            part.add(pick, coordinates, root)
        self._length += 1

    def directions(self, first: int) -> tuple[Any, ...]:
        return tuple(part.directions(first) for part in self._parts)


def _weigh(weights: tuple[float, ...], terms: list[Array]) -> Array:
    terms = on_one_device(terms)
    total: Array = weights[0] * terms[0]
    for weight, term in zip(weights[1:], terms[1:], strict=True):
        total = total + weight * term
    return total


def _beside(weights: tuple[float, ...], features: list[Any]) -> Any:
    """Scaled features side by side; sparse if any of them is."""
    parts = [float(np.sqrt(w)) * x for w, x in zip(weights, features, strict=True)]
    if any(isinstance(x, ShiftedRows) for x in parts):  # these are put together on the host
        rows = [x.rows if isinstance(x, ShiftedRows) else x for x in parts]
        there = [x.device for x in rows if hasattr(x, "new_empty")]
        found = side_by_side(list(map(to_host, parts)))
        return to_device(found, there[0]) if there else found
    parts = on_one_device(parts)
    if not hasattr(parts[0], "new_empty"):
        return side_by_side(parts)
    import torch

    if not any(map(is_sparse, parts)):
        return torch.cat(parts, dim=1)
    silence_csr_warning()
    return torch.cat([x.to_sparse_coo() for x in parts], dim=1).coalesce().to_sparse_csr()
