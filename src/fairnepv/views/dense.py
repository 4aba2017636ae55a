"""Dense rows: arrays, memory maps, and rows that stay in their files; read by the host, or on a
device of PyTorch, resident there where they fit and else streamed block by block."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import HOST, Block, Engine, Pass, Place
from fairnepv.errors import InputError
from fairnepv.io.rows import Reordered, RowFile
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.blocks import DenseBlock, squared_norms
from fairnepv.views.device_rows import DeviceRows
from fairnepv.views.tensor_rows import TensorRows
from fairnepv.views.trail import DenseTrail

_LEAST_SINGLE, _MOST_SINGLE = 1e-24, 1e24  # squared norms of rows that float32 can compute with


class DenseView(View):
    """Rows of a real (n, p) array or file of any type; read in float64, block by block.

    On a device blocks, anchors and trails are tensors, and few rows are still read by the host.
    """

    array_anchors = True
    _there: DeviceRows | None = None  # the rows on a device

    def __init__(self, data: NDArray[Any] | RowFile, eps: float | None = None) -> None:
        self.data = data
        self.n, self.p = data.shape
        self.eps = eps

    def raw_rows(self, rows: Indices | slice) -> NDArray[Any]:
        if isinstance(self.data, RowFile) or isinstance(rows, slice):
            return self.data[rows]
        return np.take(self.data, rows, axis=0)  # which is quicker than brackets

    def placed_rows(self, rows: Any) -> Any:
        return self.raw_rows(rows) if self._there is None else self._there[rows]

    @functools.cached_property
    def _raw_squared_norms(self) -> Floats:
        known = self.data.squared_norms() if isinstance(self.data, RowFile) else None
        return self._norms_in_chunks() if known is None else known

    def measure(self, engine: Engine) -> None:
        """Have the norms computed by workers that read the rows themselves."""
        self._raw_squared_norms = engine.map(Pass(_measure_rows, RawRows(self.data), None))

    @functools.cached_property
    def single(self) -> bool:
        norms = self._raw_squared_norms
        large = norms[norms > 0]
        return not len(large) or bool(large.min() > _LEAST_SINGLE and large.max() < _MOST_SINGLE)

    def trail(self, most: int, coarse: bool) -> DenseTrail:
        return DenseTrail(self, most, coarse and self.single)

    def dense_rows(self, indices: Indices) -> Any:
        return self.anchor(indices)

    def quadratic(self, indices: Indices, combine: Any) -> Any:
        combined = self.combined(self.anchor(indices), combine)
        return combined @ combined.T

    def log_volume(self, indices: Indices) -> float:
        """On a device as the gains say, which it factors sooner than it finds singular values."""
        if self.place is HOST or self.ridge == 0:
            return super().log_volume(indices)
        return float(self.gains(indices).sum())

    def take(self, indices: Indices) -> View:
        return self._given_to(DenseView(self.data[self._stretch(indices)]), indices)

    def _stretch(self, indices: Indices) -> Indices | slice:
        """Consecutive rows of an array as a slice, which copies nothing; a file must be asked for
        its rows every time, or be read."""
        if isinstance(self.data, RowFile) or not len(indices) or (np.diff(indices) != 1).any():
            return indices
        return slice(int(indices[0]), int(indices[-1]) + 1)

    def reordered(self, order: Indices) -> View:
        if not isinstance(self.data, RowFile):
            return self.take(order)
        if not self.data.random_access:  # every block would decode most of the file
            raise InputError(
                f"{self.data} is in another order than the first view, and its rows cannot be read "
                "in any order; convert it first (fairnepv convert)"
            )
        return self._given_to(DenseView(Reordered(self.data, order)), order)

    # --- on a device ------------------------------------------------------------------------------

    @property
    def home_engine(self) -> str | None:
        return self.data.home_engine if isinstance(self.data, TensorRows) else None

    @property
    def resident_bytes(self) -> int:  # type: ignore[override]
        return 0 if self._there is None else self._there.resident_bytes

    def moved(self, place: Place, room: int) -> DenseView:
        view = self._with(place=place, _there=DeviceRows(self.data, place, room))
        return view.scaled(self.scale, self.offset)

    def lean(self) -> DenseView:
        view = self._with(single=self.single)  # or a worker would read all rows to know it
        vars(view).pop("_raw_squared_norms", None)
        return view

    def __getstate__(self) -> dict[str, Any]:
        """Copies are for the host."""
        here = self._with(place=HOST, _there=None).scaled(self.scale, self.offset)
        return vars(here)


class RawRows:
    """Rows before anything is known of them, as a source of blocks for workers."""

    def __init__(self, data: NDArray[Any] | RowFile) -> None:
        self.data = data
        self.n, self.row_width = data.shape

    def block(self, start: int, stop: int) -> Block:
        return Block(start, stop, (DenseBlock(self.data[start:stop]),))

    def gather(self, rows: Indices, start: int, stop: int) -> Block:
        return Block(start, stop, (DenseBlock(self.data[rows[start:stop]]),))

    def lean(self) -> RawRows:
        return self

    def settled(self, engine: Engine) -> RawRows:
        return self


def _measure_rows(block: Block, state: None) -> Floats:
    (rows,) = block.views
    assert isinstance(rows, DenseBlock)
    with np.errstate(over="ignore", invalid="ignore"):  # looked into by who asks
        return squared_norms(rows.data)
