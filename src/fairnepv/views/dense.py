"""Dense rows: arrays, memory maps, and rows that stay in their files; read by the host, or on a
device of PyTorch, resident there where they fit and else streamed block by block."""

from __future__ import annotations

import functools
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import HOST, Place, RowBlock
from fairnepv.compute.clock import check_time
from fairnepv.compute.tensors import Stream, shared, to_device, to_host
from fairnepv.errors import InputError
from fairnepv.io.rows import FilledRows, Reordered, RowFile
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.blocks import Center, DenseBlock, measured, squared_norms
from fairnepv.views.tensor_rows import TensorRows
from fairnepv.views.validity import check_numeric

_SENT_NUMBERS = 1 << 26  # of rows that go to a device at a time
_LEAST_SINGLE, _MOST_SINGLE = 1e-24, 1e24  # squared norms of rows that float32 can compute with


class DenseView(View):
    """Rows of a real (n, p) array or file of any type; read in float64, block by block.

    On a device blocks, anchors and trails are tensors, and few rows are still read by the host.
    """

    def __init__(self, data: NDArray[Any] | RowFile, eps: float | None = None) -> None:
        self.data = data
        self.n, self.p = data.shape
        self.eps = eps
        self.in_file = isinstance(data, RowFile) and data.in_file
        self.home_engine = data.home_engine if isinstance(data, TensorRows) else None

    center: Center | None = None  # of a centred view

    def centered(self, center: Center) -> Self:
        """The same rows less their mean; the data is shared."""
        there = None if self._there is None else self._there.less(center.mean)
        view = self._with(center=center, _there=there)
        for known in ("_raw_squared_norms", "single"):
            vars(view).pop(known, None)
        return view

    def raw_rows(self, rows: Indices | slice) -> NDArray[Any]:
        if isinstance(self.data, RowFile) or isinstance(rows, slice):
            return self.data[rows]
        return np.take(self.data, rows, axis=0)  # which is quicker than brackets

    def checked(self, name: str) -> View:
        held = not isinstance(self.data, RowFile)
        view = self._with(data=plain_array(self.data, f"view {name!r}")) if held else self
        return super(DenseView, view.sketched(name)).checked(name)

    def filled(self, name: str) -> View:
        held = not isinstance(self.data, RowFile)
        view = self._with(data=plain_array(self.data, f"view {name!r}")) if held else self
        view.sketched(name)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = view.raw_squared_norms()
        gaps = np.isnan(norms)
        if not gaps.any():
            return view
        data = view.data
        kept = data.filled(gaps) if isinstance(data, TensorRows) else FilledRows(data, gaps)
        return view._with(data=kept, _raw_squared_norms=np.where(gaps, 0.0, norms)).without(gaps)

    def without(self, rows: NDArray[np.bool_]) -> View:
        known = np.where(rows, 0.0, self.raw_squared_norms())
        return super(DenseView, self._with(_raw_squared_norms=known)).without(rows)

    def sketched(self, name: str) -> Self:
        check_numeric(name, self.data)
        return self

    @functools.cached_property
    def _raw_squared_norms(self) -> Floats:
        if isinstance(self.data, TensorRows):
            return self._present(self.data.squared_norms(self.center))

        def norms(rows: slice) -> Floats:
            return squared_norms(self.raw_rows(rows), self.center)

        return self._present(measured(self.n, self.p, norms))

    @functools.cached_property
    def single(self) -> bool:  # type: ignore[override]
        norms = self.raw_squared_norms()
        large = norms[norms > 0]
        return not len(large) or bool(large.min() > _LEAST_SINGLE and large.max() < _MOST_SINGLE)

    def _block_of(self, rows: Any) -> RowBlock:
        if self._there is not None:
            data, mean = self._there[rows], self._there.mean
        else:
            data, mean = self.raw_rows(rows), None if self.center is None else self.center.mean
        return DenseBlock(data, self._column(rows), self.place, self.single, mean)

    def rows(self, rows: Indices | slice) -> Floats:
        if self.center is None:
            return np.asarray(super().rows(rows))
        found = HOST.less(self.raw_rows(rows), self.center.mean)
        return np.asarray(found if self.scale is None else found * self.scale[rows][:, None])

    def numbers_at(self, indices: Indices) -> NDArray[Any]:
        return self.raw_rows(indices)

    def log_volume(self, indices: Indices) -> float:
        """On a device as the gains say, which it factors sooner than it finds singular values."""
        if self.place is HOST or self.ridge == 0:
            return super().log_volume(indices)
        return float(self.gains(indices).sum())

    def take(self, indices: Indices) -> View:
        rows: Indices | slice = indices
        if isinstance(self.data, np.ndarray) and len(indices) and (np.diff(indices) == 1).all():
            rows = slice(int(indices[0]), int(indices[-1]) + 1)  # which copies nothing
        return self._given_to(DenseView(self.data[rows])._with(center=self.center), indices)

    def take_there(self, indices: Indices) -> View:
        if not isinstance(self.data, TensorRows):
            return self.take(indices)
        view = DenseView(self.data.part(indices))._with(center=self.center)
        return self._given_to(view, indices)

    def reordered(self, order: Indices) -> View:
        if not isinstance(self.data, RowFile):
            return self.take(order)
        if not self.data.random_access:  # every block would decode most of the file
            raise InputError(
                f"{self.data} is in another order than the first view, and its rows cannot be read "
                "in any order; convert it first (fairnepv convert)"
            )
        view = DenseView(Reordered(self.data, order))._with(center=self.center)
        return self._given_to(view, order)

    # --- on a device ------------------------------------------------------------------------------

    def moved(self, place: Place, room: int) -> DenseView:
        there = DeviceRows(self.data, place, room)
        there = there if self.center is None else there.less(self.center.mean)
        view = self._with(place=place, block_place=place, _there=there)
        return view.scaled(self.scale, self.offset)

    def lean(self) -> DenseView:
        view = self._with(single=self.single)  # or a worker would read all rows to know it
        vars(view).pop("_raw_squared_norms", None)
        return view


class DeviceRows:
    """Slices and index tensors give rows as they are stored, on the device: of `tensor`, which
    holds all of them there in up to `room` bytes, or where that is None sent when asked for."""

    def __init__(self, data: NDArray[Any] | RowFile, place: Place, room: int) -> None:
        self._data, self.place = data, place
        self.tensor = _resident(data, place, room)
        self.resident_bytes = 0 if self.tensor is None else int(self.tensor.nbytes)
        self._ahead = Stream(place.device)
        self.mean: Any = None  # (p,) that blocks take off

    def less(self, mean: Floats) -> DeviceRows:
        """The same rows, from which blocks take a mean off."""
        other = copy(self)
        other.mean = self.place.put(mean)
        return other

    def __getitem__(self, rows: Any) -> Any:
        if self.tensor is not None:
            return self.tensor[rows]
        if isinstance(rows, slice):
            return self._ahead.send(self._data[rows])
        return self.place.put(self._data[to_host(rows)])


def _resident(data: NDArray[Any] | RowFile, place: Place, room: int) -> Any:
    """All rows on the device; None where they do not fit or others took the room meanwhile."""
    device = place.device
    if isinstance(data, TensorRows):
        there = data.tensor.device == device
        return data.tensor.to(device) if there or data.tensor.nbytes <= room else None
    if data.shape[0] * data.shape[1] * data.dtype.itemsize > room:
        return None
    if device.type == "cpu":
        # It has the rows of an array already, and would gain nothing from a copy of others.
        return shared(data) if isinstance(data, np.ndarray) else None
    import torch

    try:
        tensor = torch.empty(data.shape, dtype=to_device(data[:1], device).dtype, device=device)
    except torch.OutOfMemoryError:
        return None
    size, ahead = max(1, _SENT_NUMBERS // data.shape[1]), Stream(device)
    for start in range(0, len(tensor), size):
        check_time()
        tensor[start : start + size] = ahead.send(data[start : start + size])
    return tensor
