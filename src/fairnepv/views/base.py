"""The view contract: the questions that the rest of the house asks of a view.

A view stands for the kernel K = diag(s) Phi Phi^T diag(s) of its rows, with a vector of row scales
s (calibration and quality) kept beside the data and never multiplied into a copy of it, and for
L = c (K + eps I) [FairNEPv, Assumption 1 and Remark 1]. The ridge `eps` and `offset` = log c are
carried for the objective; every kernel entry that a view hands out excludes both.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.compute import HOST, Place, RowBlock, in_order
from fairnepv.views.blocks import DenseBlock, spectrum_of_rows, squared_norms
from fairnepv.views.trail import Trail

# Rounding errors of a dot product of p terms are as good as never larger than this many sqrt(p)
# units; the bound without probabilities has p in place of it [HighamMary].
SURE = 8.0

LARGEST_SQUARE = 1e300  # of all rows of a view together: what float64 can go on computing with

_CHUNK_NUMBERS = 1 << 21  # of rows whose squares are summed at a time

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class View(ABC):
    """A view of n rows with p features.

    A subclass must have `n`, `p`, `eps` and `raw_rows`; everything else follows from the rows. One
    that knows a shorter way overrides what it is shorter for. One whose anchors are not (m, p)
    arrays overrides all of `block`, `gather`, `anchor`, `combined` and `inner`.
    """

    # --- must have -------------------------------------------------------------------------------

    n: int
    p: int
    eps: float | None  # None until the pool gives the view its ridge

    @abstractmethod
    def raw_rows(self, rows: Indices | slice) -> Any:
        """(m, p) rows as they were given, on the host: an array of any real type, or CSR."""

    # --- set by the pool: subclasses only read these ---------------------------------------------

    offset: float = 0.0  # log of the factor on L, added to d_q(S)
    scale: Floats | None = None  # (n,) row scales s; None stands for ones
    _scale_column: Any = None  # the same at `place`, (n, 1)

    def scaled(self, scale: Floats | None, offset: float) -> Self:
        """The same rows under other row scales and another factor on L; the data is shared."""
        column = None if scale is None else self.place.put(scale)[:, None]
        return self._with(scale=scale, offset=offset, _scale_column=column)

    def with_eps(self, eps: float) -> Self:
        return self._with(eps=eps)

    @property
    def ridge(self) -> float:
        assert self.eps is not None, "the pool gives every view its ridge"
        return self.eps

    # --- rows in passes --------------------------------------------------------------------------

    def block(self, start: int, stop: int) -> RowBlock:
        """The scaled rows `start:stop`."""
        return self._block_of(slice(start, stop))

    def gather(self, indices: Indices) -> RowBlock:
        """The scaled rows at `indices`, in that order, as a block."""
        return self._block_of(self.place.put(indices))

    def _block_of(self, rows: Any) -> RowBlock:
        scale = None if self._scale_column is None else self._scale_column[rows]
        return DenseBlock(self.placed_rows(rows), scale, self.place, self.single)

    def placed_rows(self, rows: Any) -> Any:
        """`raw_rows` at `place`."""
        return self.raw_rows(rows)

    def anchor(self, indices: Indices) -> Any:
        """Small state for `RowBlock.cross`, which then gives K[block, indices]."""
        return self.gather(indices).features()

    def combined(self, anchor: Any, combine: Any) -> Any:
        """The same of a plain anchor, for K[block, indices] @ combine."""
        return self.place.put(combine).T @ anchor

    def trail(self, most: int, coarse: bool) -> Trail:
        """An empty one for up to `most` picks, with directions for `RowBlock.coarse` or `cross`."""
        return Trail(self, most)

    @property
    def single(self) -> bool:
        """Whether float32 holds the rows: products neither overflow nor vanish."""
        return False

    @property
    def coarse_error(self) -> float:
        """How far an entry of `RowBlock.coarse` may be off, for row and anchor of length one."""
        return SURE * float(np.sqrt(self.p)) * (2.0**-24 if self.single else 2.0**-53)

    @property
    def stored(self) -> int:
        """How many numbers a product with a vector touches."""
        return self.n * self.p

    # --- few rows --------------------------------------------------------------------------------

    def rows(self, rows: Indices | slice) -> Any:
        """(m, p) scaled rows in float64, on the host: an array, or CSR for a sparse view."""
        found = np.asarray(self.raw_rows(rows), dtype=np.float64)
        return multiply_rows(self._scales(rows), found)

    def compact_rows(self, indices: Indices) -> Floats:
        """Dense `rows(indices)`, of a sparse view only the columns that occur in them."""
        rows = self.rows(indices)
        return np.asarray(rows[:, np.unique(rows.indices)].toarray() if sp.issparse(rows) else rows)

    def inner(self, left: Indices, right: Indices) -> Floats:
        """K[left, right], ridge excluded."""
        product: Floats = self.place.get(self.anchor(left) @ self.anchor(right).T)
        return product

    def quadratic(self, indices: Indices, combine: Any) -> Any:
        """combine^T K[indices, indices] combine, at `place`; of features without that kernel, since
        the rows may be many."""
        held = self.take(indices)
        everyone = np.arange(held.n)
        product: Floats = combine.T @ held.block(0, held.n).cross(
            held.combined(held.anchor(everyone), combine)
        )
        return product

    def spectrum(self, indices: Indices) -> Floats:
        """Eigenvalues of K[indices, indices], descending, none of them negative."""
        return spectrum_of_rows(self.compact_rows(indices))

    scored_by_rows: bool = True  # whether `spectrum` squares no singular value of the rows

    def log_volume(self, indices: Indices) -> float:
        """log det (K[indices, indices] + eps I)"""
        return float(np.log(self.spectrum(indices) + self.ridge).sum())

    def gains(self, indices: Indices) -> Floats:
        """(m,) logarithms of the variances of these rows, each given the ones before it, from a QR
        factorisation of [Phi^T; sqrt(eps) I]."""
        R = self.place.square_root(self.dense_rows(indices).T, self.ridge)
        gains: Floats = 2.0 * np.log(np.abs(self.place.get(R.diagonal())))
        return gains

    def dense_rows(self, indices: Indices) -> Any:
        """`compact_rows` at `place`."""
        return self.compact_rows(indices)

    def take(self, indices: Indices) -> View:
        """The view of these rows alone, for the host."""
        return self._given_to(_Part(self, indices), indices)

    def reordered(self, order: Indices) -> View:
        """All rows in another order; what lies in a file stays there."""
        return self.take(order)

    # --- all rows --------------------------------------------------------------------------------

    @functools.cached_property
    def _raw_squared_norms(self) -> Floats:
        return self._norms_in_chunks()

    def _norms_in_chunks(self) -> Floats:
        size = max(1, _CHUNK_NUMBERS // self.p)
        calls = [functools.partial(self._norms_of, s, s + size) for s in range(0, self.n, size)]
        return np.concatenate(list(in_order(calls)))

    def _norms_of(self, start: int, stop: int) -> Floats:
        return squared_norms(self.raw_rows(slice(start, min(stop, self.n))))

    def raw_squared_norms(self) -> Floats:
        """(n,) squared norms of the rows as given."""
        return self._raw_squared_norms

    @property
    def squared_norms(self) -> Floats:
        """(n,) diagonal of K."""
        return _scaled_twice(self.raw_squared_norms(), self.scale)

    def squared_norms_at(self, indices: Indices) -> Floats:
        """(m,) diagonal of K at few rows, without a look at the others."""
        return _scaled_twice(self.raw_squared_norms()[indices], self._scales(indices))

    def whole_kernel(self) -> Floats:
        """K itself, (n, n), for views of few rows."""
        everyone = np.arange(self.n)
        return self.inner(everyone, everyone)

    def smallest_eigenvalue(self, margin: float = 1.0) -> float:
        """A lower bound on the eigenvalues of K; 0 unless K was handed in whole.

        A kernel K = (K - s I) + s I may give s to its ridge, which tightens bounds; one that was
        rounded may have eigenvalues below zero. `margin` multiplies the allowance for rounding:
        what is stored needs more than what is checked, perhaps on another machine.
        """
        return 0.0

    def lack(self, margin: float = 1.0) -> float:
        """How far below zero eigenvalues of K may lie, which scores count as zero: K + lack I is
        semidefinite, and no less than what is scored."""
        return max(-self.smallest_eigenvalue(margin), 0.0)

    @property
    def tail(self) -> float:
        """No more than p eigenvalues of K exceed this."""
        return 0.0

    # --- needed only by views that can lie on a device, or go to workers --------------------------

    place: Place = HOST  # where `dense_rows`, `anchor` and `quadratic` are
    resident_bytes: int = 0  # of rows that stay on a device

    @property
    def home_engine(self) -> str | None:
        """The engine by name that has the rows at hand, if only one has."""
        return None

    def moved(self, place: Place, room: int) -> View:
        """The same view on a device: resident in up to `room` bytes, or streamed; as it is where
        the host multiplies and sends products."""
        return self

    array_anchors: bool = False  # whether anchors are arrays: of any place, for rows of any place

    def lean(self) -> View:
        """For a worker, which asks for blocks alone."""
        return self

    # --- for subclasses ---------------------------------------------------------------------------

    def _with(self, **changes: Any) -> Self:
        return self._as(type(self), **changes)

    def _as(self, kind: type[V], **changes: Any) -> V:
        """Not by `copy`, since what lies on a device has a say there."""
        other: V = object.__new__(kind)
        vars(other).update(vars(self), **changes)
        return other

    def _given_to(self, other: View, rows: Indices) -> View:
        """Another view of `rows` of this one, with ridge, scales and offset of these."""
        return other._with(eps=self.eps).scaled(self._scales(rows), self.offset)

    def _scales(self, rows: Indices | slice) -> Floats | None:
        return None if self.scale is None else self.scale[rows]


V = TypeVar("V", bound=View)


class _Part(View):
    """Some rows of a view that has no shorter way to take them."""

    def __init__(self, whole: View, indices: Indices) -> None:
        self._whole, self._indices = whole, indices
        self.n, self.p, self.eps = len(indices), whole.p, whole.eps

    def raw_rows(self, rows: Indices | slice) -> Any:
        return self._whole.raw_rows(self._indices[rows])


square_root = HOST.square_root


def inverse_norms(squared_norms: Floats) -> Floats:
    """1 / sqrt, and 0 for a norm of zero."""
    return np.asarray(1.0 / np.sqrt(np.where(squared_norms > 0, squared_norms, np.inf)))


def _scaled_twice(squares: Floats, scale: Floats | None) -> Floats:
    """squares * scale^2, where scale^2 alone may underflow: then norms, and every bound that is
    made of them, would be those of other rows."""
    return squares if scale is None else squares * scale * scale


def multiply_rows(scale: Floats | None, rows: Floats) -> Floats:
    """diag(scale) @ rows, without work when there is nothing to scale."""
    return rows if scale is None else rows * scale[:, None]
