"""Dense rows: arrays, memory maps, and rows that stay in their files; read by the host, or on a
device of PyTorch, resident there where they fit and else streamed block by block."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import HOST, Block, Engine, Place
from fairnepv.errors import InputError
from fairnepv.io.rows import Reordered, RowFile
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.blocks import DenseBlock, norms_in_chunks, squared_norms
from fairnepv.views.device_rows import DeviceRows
from fairnepv.views.tensor_rows import TensorRows
from fairnepv.views.validity import check_numeric

_LEAST_SINGLE, _MOST_SINGLE = 1e-24, 1e24  # squared norms of rows that float32 can compute with


class DenseView(View):
    """Rows of a real (n, p) array or file of any type; read in float64, block by block.

    On a device blocks, anchors and trails are tensors, and few rows are still read by the host.
    """

    def __init__(self, data: NDArray[Any] | RowFile, eps: float | None = None) -> None:
        self.data = data
        self.n, self.p = data.shape
        self.eps = eps

    def raw_rows(self, rows: Indices | slice) -> NDArray[Any]:
        if isinstance(self.data, RowFile) or isinstance(rows, slice):
            return self.data[rows]
        return np.take(self.data, rows, axis=0)  # which is quicker than brackets

    def checked(self, name: str, engine: Engine | None = None) -> View:
        in_file = isinstance(self.data, RowFile)
        data = self.data if in_file else plain_array(self.data, f"view {name!r}")
        check_numeric(name, data)
        view = self._with(data=data)
        if in_file and engine is not None and getattr(engine, "remote", False):
            view.measure(engine)
        return super(DenseView, view).checked(name)

    def sketched(self, name: str) -> View:
        check_numeric(name, self.data)
        return self

    @functools.cached_property
    def _raw_squared_norms(self) -> Floats:
        if isinstance(self.data, TensorRows):
            return self.data.squared_norms()
        return norms_in_chunks(self.raw_rows, self.n, self.p)

    def measure(self, engine: Engine) -> None:
        """Have the norms computed by workers that read the rows themselves."""
        self._raw_squared_norms = engine.map(_measure_rows, RawRows(self.data), None)

    @functools.cached_property
    def single(self) -> bool:
        norms = self.raw_squared_norms()
        large = norms[norms > 0]
        return not len(large) or bool(large.min() > _LEAST_SINGLE and large.max() < _MOST_SINGLE)

    def log_volume(self, indices: Indices) -> float:
        """On a device as the gains say, which it factors sooner than it finds singular values."""
        if self.place is HOST or self.ridge == 0:
            return super().log_volume(indices)
        return float(self.gains(indices).sum())

    @property
    def in_file(self) -> bool:
        return isinstance(self.data, RowFile) and not isinstance(self.data, TensorRows)

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

    def moved(self, place: Place, room: int) -> DenseView:
        view = self._with(place=place, _there=DeviceRows(self.data, place, room))
        return view.scaled(self.scale, self.offset)

    def lean(self) -> DenseView:
        view = self._with(single=self.single)  # or a worker would read all rows to know it
        vars(view).pop("_raw_squared_norms", None)
        return view


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
