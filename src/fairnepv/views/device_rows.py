"""Dense rows on a device of PyTorch: resident where they fit, else streamed block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Place
from fairnepv.compute.tensors import Stream, shared, to_device, to_host
from fairnepv.io.rows import RowFile
from fairnepv.views.tensor_rows import TensorRows

_CHUNK_NUMBERS = 1 << 26  # of rows that are sent at a time


class DeviceRows:
    """Slices and index tensors give rows as they are stored, on the device: of `tensor`, which
    holds all of them there in up to `room` bytes, or where that is None sent when asked for."""

    def __init__(self, data: NDArray[Any] | RowFile, place: Place, room: int) -> None:
        self._data, self.place = data, place
        self.tensor = _resident(data, place, room)
        self._ahead = Stream(place.device)

    @property
    def resident_bytes(self) -> int:
        return 0 if self.tensor is None else int(self.tensor.nbytes)

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
    if device.type != "cpu":
        return _uploaded(data, device)
    # The processor has the rows of an array already, and would gain nothing from a copy of others.
    return shared(data) if isinstance(data, np.ndarray) else None


def _uploaded(data: NDArray[Any] | RowFile, device: Any) -> Any:
    """All rows, some at a time; None where there is no room for them after all."""
    import torch

    n, p = data.shape
    try:
        tensor = torch.empty((n, p), dtype=to_device(data[:1], device).dtype, device=device)
    except torch.OutOfMemoryError:
        return None
    size, ahead = max(1, _CHUNK_NUMBERS // p), Stream(device)
    for start in range(0, n, size):
        tensor[start : start + size] = ahead.send(data[start : start + size])
    return tensor
