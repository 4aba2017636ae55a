"""Sparse rows on a device of PyTorch: resident where they fit, else streamed block by block.

A product takes a dense matrix. That of an anchor has no more rows than its items have columns, and
the columns of a block are numbered anew for it: number 0 is a row of zeros, for all the others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import RowBlock
from fairnepv.compute.tensors import Stream, csr_parts, csr_tensor, to_device, to_host
from fairnepv.views.base import Floats, Indices, guise_of, under
from fairnepv.views.sparse import SparseView
from fairnepv.views.tensor_rows import SparseRows, gathered, row_sums
from fairnepv.views.trail import Trail

_FIRST_ROOM = 1024  # columns of directions


class Compact(NamedTuple):
    """Anchor of m items or combinations of them."""

    numbers: Any  # (p,) int32
    table: Any  # (c + 1, m) float64


class CsrBlock:
    """Rows on the device as they are stored. Products are made in float64, as on the host; a GPU
    would take half the time in float32."""

    on_device = True

    def __init__(self, parts: tuple[Any, Any, Any], p: int, scale: Any) -> None:
        self.crow, self.col, values = parts
        self._values, self._p, self._scale = values.double(), p, scale

    def features(self) -> Any:
        return csr_tensor(self.crow, self.col, self.values(), (len(self.crow) - 1, self._p))

    def values(self) -> Any:
        """Scaled."""
        if self._scale is None:
            return self._values
        return self._values * self._scale.repeat_interleave(self.crow.diff())

    def squared_norms(self) -> Any:
        return row_sums(self.crow, self.values() ** 2)

    def cross(self, anchor: Compact) -> Any:
        rows = len(self.crow) - 1
        table = _at_least(-(-len(self.col) // max(1, rows)), anchor.table)
        numbers = anchor.numbers[self.col]
        product = csr_tensor(self.crow, numbers, self._values, (rows, len(table))) @ table
        return product if self._scale is None else product.mul_(self._scale[:, None])

    def coarse(self, anchor: Compact) -> Any:
        return self.cross(anchor)


def _at_least(rows: int, table: Any) -> Any:
    """With zeros below: cuSPARSE refuses a matrix of more entries than it has places, and ours
    have many at number 0."""
    if len(table) >= rows:
        return table
    longer = table.new_zeros((rows, table.shape[1]))
    longer[: len(table)] = table
    return longer


class CsrView(SparseView):
    """`parts` are row ends, columns and values of all rows on the device, or None where rows are
    streamed."""

    def __init__(self, data: Any, eps: float | None, device: Any, parts: Any) -> None:
        super().__init__(data, eps)
        self._device, self._parts = device, parts
        self._scale_there: Any = None
        self._ahead = Stream(device)

    @classmethod
    def of(cls, view: SparseView, device: Any, room: int) -> CsrView:
        """The same view on a device, resident if that takes no more than `room` bytes."""
        data = view.data
        if isinstance(data, SparseRows) and data.device != device:
            data = data[:]
        parts = _resident(data, device, room)
        return under(cls(data, view.eps, device, parts), *guise_of(view))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are for the host."""
        return under, (SparseView(self.data, self.eps), *guise_of(self))

    @property
    def resident_bytes(self) -> int:
        return 0 if self._parts is None else sum(int(x.nbytes) for x in self._parts)

    def scaled(self, scale: Floats | None, offset: float) -> CsrView:
        there = None if scale is None else to_device(scale, self._device)
        return self._with(scale=scale, offset=offset, _scale_there=there)

    def block(self, start: int, stop: int) -> RowBlock:
        first, last = (int(self.data.indptr[i]) for i in (start, stop))
        held = self._parts or csr_parts(self.data)
        parts = held[0][start : stop + 1], held[1][first:last], held[2][first:last]
        if self._parts is None:
            parts = tuple(map(self._ahead.send, parts))
        scale = None if self._scale_there is None else self._scale_there[start:stop]
        return CsrBlock((parts[0] - first, *parts[1:]), self.p, scale)

    def gather(self, indices: Any) -> CsrBlock:
        there = to_device(indices, self._device)
        if self._parts is None:
            rows = csr_parts(self.data[to_host(there)])
            parts = tuple(to_device(x, self._device) for x in rows)
        else:
            parts = gathered(self._parts, there)
        scale = None if self._scale_there is None else self._scale_there[there]
        return CsrBlock(parts, self.p, scale)

    def anchor(self, indices: Indices) -> Compact:  # type: ignore[override]
        import torch

        rows = self.gather(indices)
        columns = rows.col.unique()
        numbers = torch.zeros(self.p, dtype=torch.int32, device=self._device)
        numbers[columns] = torch.arange(1, len(columns) + 1, dtype=torch.int32, device=self._device)
        table = torch.zeros(
            (len(columns) + 1, len(indices)), dtype=torch.float64, device=self._device
        )
        items = torch.arange(len(indices), device=self._device).repeat_interleave(rows.crow.diff())
        table[numbers[rows.col], items] = rows.values()
        return Compact(numbers, table)

    def combined(self, anchor: Compact, combine: Floats) -> Compact:  # type: ignore[override]
        return anchor._replace(table=anchor.table @ to_device(combine, self._device))

    def trail(self, most: int, coarse: bool) -> Trail:
        return CsrTrail(self, most, self._device)


class CsrTrail(Trail):
    """Directions on the columns that picks have had so far."""

    def __init__(self, view: CsrView, most: int, device: Any) -> None:
        import torch

        super().__init__(view, 0)
        self._numbers = torch.zeros(view.p, dtype=torch.int32, device=device)
        self._width = 1  # numbers that are given
        room = min(_FIRST_ROOM, view.p + 1)
        self._directions = torch.zeros((most, room), dtype=torch.float64, device=device)

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
        self._length = t + 1

    def directions(self, first: int) -> Compact:
        table = self._directions[first : self._length, : self._width].T
        return Compact(self._numbers, table.contiguous())  # by columns a GPU takes 8 times as long

    def _give_numbers(self, columns: Any) -> None:
        import torch

        new = columns[self._numbers[columns] == 0]
        first, self._width = self._width, self._width + len(new)
        self._numbers[new] = torch.arange(first, self._width, dtype=torch.int32, device=new.device)
        most, room = self._directions.shape
        if self._width > room:
            wider = self._directions.new_zeros((most, min(2 * self._width, self._view.p + 1)))
            wider[:, :room] = self._directions
            self._directions = wider


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
