"""Dense rows on a device of PyTorch: resident where they fit, else streamed block by block.

The host sees the same rows as those of any dense view; blocks, anchors and trails are tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Engine, RowBlock
from fairnepv.compute.device import TorchEngine, TorchPlace
from fairnepv.compute.tensors import Stream, shared, to_device, to_host
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

    def __init__(self, data: Any, scales: Scales | None, at: Any, single: bool) -> None:
        self._data, self._scales, self._at, self._single = data, scales, at, single
        self._double: Any = None

    @property
    def _rows(self) -> Any:
        if self._double is None:
            self._double = self._data.double()
        return self._double

    def features(self) -> Any:
        return self._rows if self._scales is None else self._rows * self._scales.double[self._at]

    def squared_norms(self) -> Any:
        return (self.features() ** 2).sum(dim=1)

    def cross(self, anchor: Any) -> Any:
        product = self._rows @ anchor.double().T
        return product if self._scales is None else product.mul_(self._scales.double[self._at])

    def coarse(self, anchor: Any) -> Any:
        if not self._single:
            return self.cross(anchor)
        product = self._data.float() @ anchor.float().T
        return product if self._scales is None else product.mul_(self._scales.single[self._at])


class Scales(NamedTuple):
    """Of all rows, (n, 1), on the device."""

    double: Any
    single: Any


class TensorView(DenseView):
    """`tensor` holds all rows on the device, or is None where they are streamed."""

    def __init__(
        self, data: NDArray[Any] | RowFile, eps: float | None, device: Any, tensor: Any
    ) -> None:
        super().__init__(data, eps)
        self._device, self._tensor = device, tensor
        self.place = TorchPlace(device)
        self._scales_there: Scales | None = None
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
        there = None
        if scale is not None:
            double = to_device(scale, self._device)[:, None]
            there = Scales(double, double.float())
        return self._with(scale=scale, offset=offset, _scales_there=there)

    def block(self, start: int, stop: int) -> RowBlock:
        if self._tensor is None:
            rows = self._ahead.send(self.data[start:stop])
        else:
            rows = self._tensor[start:stop]
        return TensorBlock(rows, self._scales_there, slice(start, stop), self._single)

    def gather(self, indices: Any) -> TensorBlock:
        there = to_device(indices, self._device)
        if self._tensor is None:
            rows = to_device(self.data[to_host(there)], self._device)
        else:
            rows = self._tensor[there]
        return TensorBlock(rows, self._scales_there, there, self._single)

    def row(self, index: int) -> Any:
        """One row, without an index to be sent."""
        if self._tensor is None:
            return to_device(self.rows(np.array([index]))[0], self._device)
        row = self._tensor[index].double()
        return row if self.scale is None else row * float(self.scale[index])

    def anchor(self, indices: Indices) -> Any:
        return self.gather(indices).features()

    def dense_rows(self, indices: Indices) -> Any:
        return self.anchor(indices)

    def combined(self, anchor: Any, combine: Any) -> Any:
        return to_device(combine, self._device).T @ anchor

    def inner(self, left: Indices, right: Indices) -> Floats:
        product: Floats = to_host(self.anchor(left) @ self.anchor(right).T)
        return product

    def quadratic(self, indices: Indices, combine: Any) -> Any:
        combined = self.combined(self.anchor(indices), combine)
        return combined @ combined.T

    def trail(self, most: int, coarse: bool) -> Trail:
        return TensorTrail(self, most, coarse and self._single, self._device)

    def log_volume(self, indices: Indices) -> float:
        """As the gains say, which a device factors sooner than it finds singular values."""
        return float(self.gains(indices).sum()) if self.ridge > 0 else super().log_volume(indices)

    def gains(self, indices: Indices) -> Floats:
        import torch

        X = self.anchor(indices)
        ridge = self.ridge**0.5 * torch.eye(len(X), dtype=X.dtype, device=X.device)
        R = torch.linalg.qr(torch.cat([X.T, ridge]), mode="r").R
        return np.asarray(2.0 * np.log(np.abs(to_host(R.diagonal()))))

    def take(self, indices: Indices) -> DenseView:  # type: ignore[override]
        """Few rows, for the host."""
        view = DenseView(self.data[indices], self.eps)
        return view.scaled(self._scales(indices), self.offset)


class TensorTrail(Trail):
    """As that of a dense view, on the device."""

    foresees = True

    def __init__(self, view: TensorView, most: int, single: bool, device: Any) -> None:
        import torch

        super().__init__(view, 0)
        self._rows = view
        self.matrix = torch.zeros((most, view.p), device=device, dtype=torch.float64)
        self._coarse = self.matrix.float() if single else self.matrix

    def coordinates(self, rows: Any) -> Any:
        return self.matrix[: self._length] @ self._rows.gather(rows).features().T

    def add(self, pick: int, coordinates: Any, root: float) -> None:
        import torch

        t, rest = self._length, self._rows.row(pick)
        if t:
            rest = rest.addmv(self.matrix[:t].T, coordinates, alpha=-1.0)
        torch.div(rest, root, out=self.matrix[t])
        self._coarse[t] = self.matrix[t]
        self._length = t + 1

    def features(self, rows: Any) -> Any:
        return self._rows.gather(rows).features()

    def adopt(self) -> None:
        self._coarse[self._length] = self.matrix[self._length]
        self._length += 1

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
