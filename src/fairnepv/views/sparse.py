"""Sparse rows (SciPy CSR), and the diagonal kernel as the sparsest of them."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.checks import check_positive
from fairnepv.compute import Place, RowBlock
from fairnepv.errors import InputError
from fairnepv.io.sparse_files import refuse_unbounded
from fairnepv.views.arrays import plain_array, read_array
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.sparse_tensor import Compact, CsrBlock, CsrTrail, DeviceCsr
from fairnepv.views.tensor_rows import SparseRows
from fairnepv.views.trail import Trail
from fairnepv.views.validity import (
    check_diagonal,
    check_magnitude,
    check_numeric,
    check_own_ridge,
    refuse_non_finite,
    sound_csr,
)

_CHUNK_NUMBERS = 1 << 20  # non-zeros whose squares are summed at a time


class Factored(NamedTuple):
    """Anchor of few rows, still sparse (p, m), that are combined after the product with them.

    Rows that share few columns with these make a product that takes next to no time.
    """

    columns: Any
    combine: Floats | None


class SparseBlock(RowBlock):
    """Scaled rows as CSR. A product takes its time for finding columns, in any precision."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def features(self) -> Any:
        return self._rows

    def squared_norms(self) -> Floats:
        return _squared_norms(self._rows)

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
    _there: DeviceCsr | None = None

    def __init__(self, data: Any, eps: float | None = None) -> None:
        self.data = data
        self.n, self.p = data.shape
        self.eps = eps
        self.home_engine = data.home_engine if isinstance(data, SparseRows) else None

    @property
    def stored(self) -> int:
        return int(self.data.nnz)

    @functools.cached_property
    def _raw_squared_norms(self) -> Floats:
        """Some rows at a time: a copy of all values in float64 may be larger than the data."""
        if isinstance(self.data, SparseRows):
            return self.data.squared_norms()
        size = max(1, self.n * _CHUNK_NUMBERS // max(1, self.stored))
        parts = [_squared_norms(self.data[s : s + size]) for s in range(0, self.n, size)]
        return np.concatenate(parts)

    def checked(self, name: str) -> View:
        self.sketched(name)
        refuse_unbounded(f"view {name!r}", self.data.shape)
        if isinstance(self.data, SparseRows):
            view, bad = self, self.data.not_finite()
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
        """As CSR."""
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
        return CsrBlock(self._there[rows], self.p, self._column(rows), self._there.place)

    def anchor(self, indices: Indices) -> Any:
        if self._there is None:
            return Factored(self.rows(indices).T.tocsr(), None)
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
        product: Floats = (self.rows(left) @ self.rows(right).T).toarray()
        return product

    def take(self, indices: Indices) -> View:
        return self._given_to(SparseView(self.data[indices]), indices)

    def moved(self, place: Place, room: int) -> View:
        there = DeviceCsr(self.data, place, room)
        return self._with(data=there.data, _there=there).scaled(self.scale, self.offset)


class DiagonalView(SparseView):
    """The kernel diag(values): items that differ in quality and share nothing.

    `eps` is a ridge of its own; 0 takes the values as they stand, which must then be positive.
    """

    def __init__(self, values: NDArray[Any], eps: float | None = None) -> None:
        self.values = np.atleast_1d(read_array(values, "a diagonal kernel"))
        self.n = self.p = len(self.values)
        self.eps = eps

    def checked(self, name: str) -> View:
        values = plain_array(self.values, f"view {name!r}")
        if values.ndim != 1 or len(values) == 0:
            raise InputError(f"view {name!r}: a diagonal kernel is one value per row")
        check_numeric(name, values)
        smallest = 0.0 if self.eps != 0 else np.finfo(np.float64).tiny
        bad = np.flatnonzero(~(np.isfinite(values) & (values >= smallest)))
        if len(bad):
            raise InputError(
                f"view {name!r}: the values of a diagonal kernel must be finite and "
                f"{'positive (eps is 0)' if self.eps == 0 else 'not negative'}; row {bad[0]} has "
                f"{values[bad[0]]}"
            )
        check_diagonal(name, values.astype(np.float64))
        check_own_ridge(name, self)
        return self

    def sketched(self, name: str) -> View:
        return self

    @property
    def stored(self) -> int:
        return int(np.count_nonzero(self.values))

    @functools.cached_property
    def data(self) -> Any:
        return sp.diags_array(np.sqrt(self.values.astype(np.float64)), format="csr")

    def raw_squared_norms(self) -> Floats:
        return self.values.astype(np.float64)

    def moved(self, place: Place, room: int) -> View:
        return self

    def numbers_at(self, indices: Indices) -> NDArray[Any]:
        return self.values[indices]

    def smallest_eigenvalue(self, margin: float = 1.0) -> float:
        return float(self.squared_norms.min())

    def spectrum(self, indices: Indices) -> Floats:
        return np.sort(self.squared_norms[indices])[::-1]  # exact: no root is squared back


def _squared_norms(rows: Any) -> Floats:
    """(b,) squared row norms of a CSR array, in float64 whatever its type."""
    squares = rows.astype(np.float64)
    squares.data **= 2
    return np.asarray(squares.sum(axis=1), dtype=np.float64).reshape(-1)
