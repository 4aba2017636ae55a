"""Sparse rows on a device of PyTorch: resident where they fit, else streamed block by block.

A product takes a dense matrix. That of an anchor has no more rows than its items have columns, and
the columns of a block are numbered anew for it: number 0 is a row of zeros, for all the others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import Place, RowBlock
from fairnepv.compute.tensors import Stream, csr_parts, csr_tensor, to_device, to_host
from fairnepv.views.base import Indices, View
from fairnepv.views.tensor_rows import SparseRows, gathered, row_sums
from fairnepv.views.trail import Trail

_FIRST_ROOM = 1024  # columns of directions


class Compact(NamedTuple):
    """Anchor of m items or combinations of them."""

    numbers: Any  # (p,) int32
    table: Any  # (c + 1, m) float64


class CsrBlock(RowBlock):
    """Rows on the device as they are stored. Products are made in float64, as on the host; a GPU
    would take half the time in float32."""

    def __init__(self, parts: tuple[Any, Any, Any], p: int, scale: Any, place: Place) -> None:
        self.crow, self.col, values = parts
        self.place = place
        self._values, self._p, self._scale = values.double(), p, scale

    def features(self) -> Any:
        return csr_tensor(self.crow, self.col, self.values(), (len(self.crow) - 1, self._p))

    def values(self) -> Any:
        """The values of the scaled rows."""
        if self._scale is None:
            return self._values
        return self._values * self._scale[:, 0].repeat_interleave(self.crow.diff())

    def squared_norms(self) -> Any:
        return row_sums(self.crow, self.values() ** 2)

    def cross(self, anchor: Compact) -> Any:
        rows, table = len(self.crow) - 1, anchor.table
        # cuSPARSE refuses a matrix of more entries than it has places, and ours have many at 0.
        missing = -(-len(self.col) // max(1, rows)) - len(table)
        if missing > 0:
            table = _padded(table, 0, missing)
        numbers = anchor.numbers[self.col]
        product = csr_tensor(self.crow, numbers, self._values, (rows, len(table))) @ table
        return product if self._scale is None else product.mul_(self._scale)


def _padded(matrix: Any, columns: int, rows: int) -> Any:
    """The matrix with so many more columns and rows of zeros behind it."""
    import torch

    return torch.nn.functional.pad(matrix, (0, columns, 0, rows))


class DeviceCsr:
    """All rows on the device in up to `room` bytes, or streamed to it. Slices and index tensors
    give row ends, columns and values of these rows."""

    def __init__(self, data: Any, place: Place, room: int) -> None:
        if isinstance(data, SparseRows) and data.device != place.device:
            data = data[:]
        self.data, self.place = data, place
        self._parts = _resident(data, place.device, room)
        self.resident_bytes = sum(int(x.nbytes) for x in self._parts or ())
        self._ahead = Stream(place.device)

    def __getitem__(self, rows: Any) -> tuple[Any, Any, Any]:
        if isinstance(rows, slice):
            return self._between(rows.start, rows.stop)
        if self._parts is not None:
            return gathered(self._parts, rows)
        crow, col, values = map(self.place.put, csr_parts(self.data[to_host(rows)]))
        return crow, col, values

    def _between(self, start: int, stop: int) -> tuple[Any, Any, Any]:
        first, last = (int(self.data.indptr[i]) for i in (start, stop))
        crow, col, values = self._parts or csr_parts(self.data)
        parts = crow[start : stop + 1], col[first:last], values[first:last]
        if self._parts is None:
            parts = tuple(map(self._ahead.send, parts))
        return parts[0] - first, parts[1], parts[2]

    def anchor(self, rows: Any) -> Compact:
        """Few rows, a block, as an anchor."""
        columns, m = rows.col.unique(), len(rows.crow) - 1
        numbers = self.zeros(self.data.shape[1], "int32")
        numbers[columns] = self.numbered(1, len(columns) + 1)
        table = self.zeros((len(columns) + 1, m), "float64")
        items = self.numbered(0, m).repeat_interleave(rows.crow.diff())
        table[numbers[rows.col], items] = rows.values()
        return Compact(numbers, table)

    def zeros(self, shape: Any, kind: str) -> Any:
        xp = self.place.xp
        return xp.zeros(shape, dtype=getattr(xp, kind), device=self.place.device)

    def numbered(self, first: int, end: int) -> Any:
        """Whole numbers on the device."""
        xp = self.place.xp
        return xp.arange(first, end, dtype=xp.int32, device=self.place.device)


class CsrTrail(Trail):
    """Directions on the columns that picks have had so far."""

    def __init__(self, view: View, there: DeviceCsr, most: int) -> None:
        super().__init__(view, 0)
        self._there = there
        self._numbers = there.zeros(view.p, "int32")
        self._width = 1  # numbers that are given
        self._directions = there.zeros((most, min(_FIRST_ROOM, view.p + 1)), "float64")

    def coordinates(self, rows: Indices) -> Any:
        return self._view.gather(rows).cross(self.directions(0)).T

    def add(self, pick: int, coordinates: Any, root: float) -> None:
        row: Any = self._view.gather(np.array([pick]))
        self._give_numbers(row.col)
        t = self._length
        rest = self._directions[t]  # still zero
        rest[self._numbers[row.col]] = row.values()
        if t:
            rest -= coordinates @ self._directions[:t]
        rest /= root
        self.adopt()

    def directions(self, first: int) -> Compact:
        table = self._directions[first : self._length, : self._width].T
        return Compact(self._numbers, table.contiguous())  # by columns a GPU takes 8 times as long

    def _give_numbers(self, columns: Any) -> None:
        new = columns[self._numbers[columns] == 0]
        first, self._width = self._width, self._width + len(new)
        self._numbers[new] = self._there.numbered(first, self._width)
        room = self._directions.shape[1]
        if self._width > room:
            more = min(2 * self._width, self._view.p + 1) - room
            self._directions = _padded(self._directions, more, 0)


def _resident(data: Any, device: Any, room: int) -> tuple[Any, Any, Any] | None:
    """All rows on the device, unless they do not fit or others took the room meanwhile."""
    import torch

    if isinstance(data, SparseRows):
        return data.parts
    if 8 * len(data.indptr) + data.indices.nbytes + data.data.nbytes > room:
        return None
    try:
        crow, col, values = (to_device(x, device) for x in csr_parts(data))
        return crow.long(), col, values
    except torch.OutOfMemoryError:
        return None
