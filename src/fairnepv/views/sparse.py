"""Sparse rows, SciPy's CSR; read by the host, or on a device of PyTorch, resident there where they
fit and else streamed block by block.

There a product takes a dense matrix. That of an anchor has no more rows than its items have
columns, and the columns of a block are numbered anew for it: number 0 is a row of zeros, for all
the others.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.checks import check_positive
from fairnepv.compute import Place, RowBlock, in_order
from fairnepv.compute.clock import check_time
from fairnepv.compute.tensors import Stream, csr_parts, csr_tensor, to_device, to_host
from fairnepv.io.memory import refuse_unbounded
from fairnepv.views.base import SURE, Floats, Indices, View
from fairnepv.views.blocks import Factored
from fairnepv.views.tensor_rows import SparseRows, gathered, row_sums
from fairnepv.views.trail import Trail
from fairnepv.views.validity import check_magnitude, check_numeric, refuse_non_finite, sound_csr

_FIRST_ROOM = 1024  # columns of directions
_FEW_ROWS = 256  # whose products with others are made at a time
_CHUNK_NUMBERS = 1 << 20  # non-zeros whose squares are summed at a time
_NUMBER_BYTES = 12  # of a non-zero and the column it is in


class SparseBlock(RowBlock):
    """Scaled rows as CSR."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def features(self) -> Any:
        return self._rows

    def squared_norms(self) -> Floats:
        return _squared_norms(self._rows)

    def onto(self, columns: Any, coarse: bool = False) -> Any:
        """In float32 half as many bytes of the columns are found."""
        if not coarse:
            return self._rows @ columns
        return self._rows.astype(np.float32) @ columns.astype(np.float32)

    def cross(self, anchor: Factored | Floats) -> Floats:
        if isinstance(anchor, np.ndarray):
            return np.asarray(self._rows @ anchor)
        K: Floats = (self._rows @ anchor.columns).toarray()
        return K if anchor.combine is None else K @ anchor.combine


class SparseView(View):
    """Rows of an (n, p) CSR array, of SciPy or on a device; no product is larger than (b, m).

    On a device blocks, anchors and trails are tensors, and few rows are still read by the host.
    """

    array_anchors = False

    def __init__(self, data: Any, eps: float | None = None) -> None:
        self.data = data
        self.n, self.p = data.shape
        self.eps = eps
        self.home_engine = data.home_engine if isinstance(data, SparseRows) else None

    @property
    def stored(self) -> int:
        return int(self.data.nnz)

    @property
    def look_error(self) -> float:
        """As of dense rows with as many columns as the fullest row has numbers."""
        if self._there is not None:  # which multiplies in float64
            return self.coarse_error
        return SURE * math.sqrt(self.fullest) * 2.0**-24

    @property
    def fullest(self) -> int:
        """Numbers that a row has at most."""
        return int(np.diff(to_host(self.data.indptr)).max(initial=1))

    @functools.cached_property
    def _raw_squared_norms(self) -> Floats:
        """Some rows at a time: a copy of all values in float64 may be larger than the data."""
        if isinstance(self.data, SparseRows):
            return self._present(self.data.squared_norms())
        size = max(1, self.n * _CHUNK_NUMBERS // max(1, self.stored))
        chunks = [slice(start, start + size) for start in range(0, self.n, size)]

        def measure(chunk: slice) -> Floats:
            return _squared_norms(self.data[chunk])

        # One after the other, since each takes memory of its own.
        norms = np.concatenate(list(in_order([functools.partial(measure, c) for c in chunks], 1)))
        return self._present(norms)

    def filled(self, name: str) -> View:
        self.sketched(name)
        refuse_unbounded(f"view {name!r}", self.data.shape, _NUMBER_BYTES * self.stored)
        if isinstance(self.data, SparseRows):  # where they are few, a view for the host
            gaps = np.isnan(self.data.squared_norms())
            data: Any = self.data[:] if gaps.any() else None
        else:
            data = sound_csr(f"view {name!r}", self.data)
            gaps = np.zeros(self.n, dtype=bool)
            empty = np.flatnonzero(np.isnan(data.data))
            gaps[np.searchsorted(data.indptr, empty, side="right") - 1] = True
        if not gaps.any():
            return self
        left = data.copy()
        left.data[np.repeat(gaps, np.diff(left.indptr))] = 0
        return SparseView(left, self.eps).without(gaps)

    def without(self, rows: NDArray[np.bool_]) -> View:
        known = np.where(rows, 0.0, self.raw_squared_norms())
        return super(SparseView, self._with(_raw_squared_norms=known)).without(rows)

    def checked(self, name: str) -> View:
        self.sketched(name)
        refuse_unbounded(f"view {name!r}", self.data.shape, _NUMBER_BYTES * self.stored)
        if isinstance(self.data, SparseRows):
            view, bad = self, to_host((~self.data.parts[2].isfinite()).nonzero()[:, 0])
        else:
            view = self._with(data=sound_csr(f"view {name!r}", self.data))
            bad = np.flatnonzero(~np.isfinite(view.data.data))
        if len(bad):
            row = int(np.searchsorted(view.data.indptr, bad[0], side="right")) - 1
            refuse_non_finite(name, len(bad), row)
        check_magnitude(name, view)
        return view if self.eps is None else view.with_eps(check_positive("eps", self.eps, name))

    def sketched(self, name: str) -> View:
        check_numeric(name, self.data)
        return self

    def raw_rows(self, rows: Indices | slice) -> Any:
        return self.data[rows]

    def rows(self, rows: Indices | slice) -> Any:
        """Sharing no values with the data."""
        found = self.data[rows].astype(np.float64)
        if self.scale is not None:
            found.data *= np.repeat(self.scale[rows], np.diff(found.indptr))
        return found

    def _block_of(self, rows: Any) -> RowBlock:
        if self._there is None:
            return SparseBlock(self.rows(rows))
        return CsrBlock(self._there[rows], self.p, self._column(rows), self.block_place)

    def anchor(self, indices: Indices) -> Any:
        if self._there is None:
            return Factored(self.rows(indices).T.tocsr())
        return self._there.anchor(self.gather(indices))

    def combined(self, anchor: Any, combine: Any) -> Any:
        if isinstance(anchor, Compact):
            return anchor._replace(table=anchor.table @ self.block_place.put(combine))
        # A multiply-add per non-zero takes some eight times as long as one of BLAS.
        if len(combine) * self.n <= 8 * self.stored:
            return Factored(anchor.columns, combine)
        return np.asarray(anchor.columns @ combine)

    def trail(self, most: int, coarse: bool) -> Trail:
        return Trail(self, most) if self._there is None else CsrTrail(self, self._there, most)

    def inner(self, left: Indices, right: Indices) -> Floats:
        product = np.empty((len(left), len(right)))
        columns = self.rows(right).T.tocsr()
        for start in range(0, len(left), _FEW_ROWS):
            check_time()  # some thousand rows take a second and more
            some = slice(start, start + _FEW_ROWS)
            (self.rows(left[some]) @ columns).toarray(out=product[some])
        return product

    def take(self, indices: Indices) -> View:
        return self._given_to(SparseView(self.data[indices]), indices)

    def moved(self, place: Place, room: int) -> View:
        there = DeviceCsr(self.data, place, room)
        view = self._with(data=there.data, block_place=place, _there=there)
        return view.scaled(self.scale, self.offset)


def _squared_norms(rows: Any) -> Floats:
    """(b,) squared row norms of a CSR array, in float64 whatever its type."""
    squares = rows.astype(np.float64)
    squares.data **= 2
    return np.asarray(squares.sum(axis=1), dtype=np.float64).reshape(-1)


# --- on a device ---------------------------------------------------------------------------------


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
            first, last = (int(self.data.indptr[i]) for i in (rows.start, rows.stop))
            crow, col, values = self._parts or csr_parts(self.data)
            parts = crow[rows.start : rows.stop + 1], col[first:last], values[first:last]
            crow, col, values = parts if self._parts else map(self._ahead.send, parts)
            return crow - first, col, values
        if self._parts:
            return gathered(self._parts, rows)
        crow, col, values = map(self.place.put, csr_parts(self.data[to_host(rows)]))
        return crow, col, values

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
        self._length += 1

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
