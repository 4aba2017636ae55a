"""Dense rows on a device of PyTorch: resident where they fit, else streamed block by block.

The host sees the same rows as those of any dense view; blocks, anchors and trails are tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.engines import Engine, RowBlock
from fairnepv.engines.device import TorchEngine
from fairnepv.engines.tensors import Stream, shared, to_device, to_host
from fairnepv.io.rows import RowFile
from fairnepv.views.base import Floats, Indices, View, guise_of, under
from fairnepv.views.dense import DenseView
from fairnepv.views.sparse import SparseView
from fairnepv.views.sparse_tensor import CsrView
from fairnepv.views.tensor_rows import TensorRows
from fairnepv.views.trail import Trail

_CHUNK_NUMBERS = 1 << 26  # of rows that are sent at a time


def preferred_engine(views: Iterable[View]) -> str | None:
    """Rows on a GPU choose it."""
    for view in views:
        tensor = getattr(vars(view).get("data"), "tensor", None)
        if tensor is not None and tensor.device.type == "cuda":
            return f"torch:{tensor.device}"
    return None


def settled(views: tuple[View, ...], engine: Engine) -> tuple[View, ...]:
    """These views where the engine computes: rows on its device, as many as fit."""
    if not isinstance(engine, TorchEngine):
        return views
    room, there = engine.room, list(views)
    for q, view in enumerate(views):
        moved: TensorView | CsrView
        if type(view) is DenseView:
            moved = TensorView.of(view, engine.device, room)
        elif type(view) is SparseView:
            moved = CsrView.of(view, engine.device, room)
        else:
            continue
        there[q], room = moved, room - moved.resident_bytes
    return tuple(there)


class TensorBlock:
    """Rows on the device as they are stored; each precision is made when first asked for."""

    on_device = True

    def __init__(self, data: Any, scale: Any, single: bool) -> None:
        self._data, self._scale, self._single = data, scale, single
        self._double: Any = None

    @property
    def _rows(self) -> Any:
        if self._double is None:
            self._double = self._data.double()
        return self._double

    def features(self) -> Any:
        return self._rows if self._scale is None else self._rows * self._scale[:, None]

    def squared_norms(self) -> Any:
        return (self.features() ** 2).sum(dim=1)

    def cross(self, anchor: Any) -> Any:
        product = self._rows @ anchor.double().T
        return product if self._scale is None else product.mul_(self._scale[:, None])

    def coarse(self, anchor: Any) -> Any:
        if not self._single:
            return self.cross(anchor)
        product = self._data.float() @ anchor.float().T
        return product if self._scale is None else product.mul_(self._scale.float()[:, None])


class TensorView(DenseView):
    """`tensor` holds all rows on the device, or is None where they are streamed."""

    def __init__(
        self, data: NDArray[Any] | RowFile, eps: float | None, device: Any, tensor: Any
    ) -> None:
        super().__init__(data, eps)
        self._device, self._tensor = device, tensor
        self._scale_there: Any = None
        self._ahead = Stream(device)

    @classmethod
    def of(cls, view: DenseView, device: Any, room: int) -> TensorView:
        """The same view on a device, resident if that takes no more than `room` bytes."""
        tensor = view.data.tensor if isinstance(view.data, TensorRows) else None
        if tensor is not None and tensor.device != device:
            tensor = tensor.to(device) if tensor.nbytes <= room else None
        elif tensor is None and view.n * view.p * view.data.dtype.itemsize <= room:
            tensor = _uploaded(view.data, device)  # None, where others took the room meanwhile
        return under(cls(view.data, view.eps, device, tensor), *guise_of(view))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are for the host."""
        return under, (DenseView(self.data, self.eps), *guise_of(self))

    @property
    def resident_bytes(self) -> int:
        return 0 if self._tensor is None else int(self._tensor.nbytes)

    def scaled(self, scale: Floats | None, offset: float) -> TensorView:
        there = None if scale is None else to_device(scale, self._device)
        return self._with(scale=scale, offset=offset, _scale_there=there)

    def block(self, start: int, stop: int) -> RowBlock:
        if self._tensor is None:
            rows = self._ahead.send(self.data[start:stop])
        else:
            rows = self._tensor[start:stop]
        scale = None if self._scale_there is None else self._scale_there[start:stop]
        return TensorBlock(rows, scale, self._single)

    def gather(self, indices: Any) -> RowBlock:
        there = to_device(indices, self._device)
        if self._tensor is None:
            rows = to_device(self.data[to_host(there)], self._device)
        else:
            rows = self._tensor[there]
        scale = None if self._scale_there is None else self._scale_there[there]
        return TensorBlock(rows, scale, self._single)

    def anchor(self, indices: Indices) -> Any:
        return self.gather(indices).features()

    def combined(self, anchor: Any, combine: Floats) -> Any:
        return to_device(combine, self._device).T @ anchor

    def inner(self, left: Indices, right: Indices) -> Floats:
        product: Floats = to_host(self.anchor(left) @ self.anchor(right).T)
        return product

    def quadratic(self, indices: Indices, combine: Floats) -> Floats:
        combined = self.combined(self.anchor(indices), combine)
        product: Floats = to_host(combined @ combined.T)
        return product

    def trail(self, most: int, coarse: bool) -> Trail:
        return TensorTrail(self, most, coarse and self._single, self._device)

    def take(self, indices: Indices) -> DenseView:  # type: ignore[override]
        """Few rows, for the host."""
        view = DenseView(self.data[indices], self.eps)
        return view.scaled(self._scales(indices), self.offset)


class TensorTrail(Trail):
    """As that of a dense view, on the device."""

    def __init__(self, view: TensorView, most: int, single: bool, device: Any) -> None:
        import torch

        super().__init__(view, 0)
        self._directions = torch.zeros((most, view.p), device=device, dtype=torch.float64)
        self._coarse = self._directions.float() if single else self._directions
        self._last: tuple[Indices, Any] | None = None  # rows that were asked for, and what they are

    def coordinates(self, rows: Indices) -> Any:
        features = self._view.gather(rows).features()
        self._last = rows, features
        return self._directions[: self._length] @ features.T

    def add(self, pick: int, coordinates: Any, root: float) -> None:
        t = self._length
        if self._last is None or self._last[0].tolist() != [pick]:
            self._last = np.array([pick]), self._view.gather(np.array([pick])).features()
        row = self._last[1][0]
        rest = row - coordinates @ self._directions[:t] if t else row
        self._directions[t] = rest / root
        self._coarse[t] = self._directions[t]
        self._length = t + 1

    def directions(self, first: int) -> Any:
        return self._coarse[first : self._length]


def _uploaded(data: NDArray[Any] | RowFile, device: Any) -> Any:
    """All rows on the device, some at a time. The processor has those of an array already, and
    would gain nothing from a copy of others."""
    import torch

    if device.type == "cpu":
        return shared(data) if isinstance(data, np.ndarray) else None
    n, p = data.shape
    try:
        tensor = torch.empty((n, p), dtype=to_device(data[:1], device).dtype, device=device)
    except torch.OutOfMemoryError:
        return None
    size, ahead = max(1, _CHUNK_NUMBERS // p), Stream(device)
    for start in range(0, n, size):
        tensor[start : start + size] = ahead.send(data[start : start + size])
    return tensor
