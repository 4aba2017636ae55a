"""The view contract: the questions that the rest of the house asks of a view.

A view stands for the kernel K = diag(s) Phi Phi^T diag(s) of its rows, with a vector of row scales
s (calibration and quality) kept beside the data and never multiplied into a copy of it, and for
L = c (K + eps I) [FairNEPv, Assumption 1 and Remark 1]. The ridge `eps` and `offset` = log c are
carried for the objective; every kernel entry that a view hands out excludes both.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import svdvals

from fairnepv.checks import check_positive
from fairnepv.compute import HOST, Place, RowBlock
from fairnepv.views.blocks import DenseBlock, measured, squared_norms
from fairnepv.views.in_turn import roots, suits
from fairnepv.views.trail import DenseTrail, Trail
from fairnepv.views.validity import (
    check_attributes,
    check_finite,
    check_magnitude,
    check_rows,
    check_shape,
)

# Rounding errors of a dot product of p terms are as good as never larger than this many sqrt(p)
# units; the bound without probabilities has p in place of it [HighamMary].
SURE = 8.0
WELL_CONDITIONED = 2e4  # condition number of K + eps I that costs a score no more than 1e-12

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class View(ABC):
    """A view of n rows with p features.

    A subclass must have `n`, `p` and `raw_rows`; everything else follows from the rows. One that
    knows a shorter way overrides what it is shorter for. One without `array_anchors` overrides all
    of `block`, `gather`, `anchor`, `combined` and `inner`: its blocks must take its anchors.
    """

    # --- must have -------------------------------------------------------------------------------

    n: int
    p: int

    @abstractmethod
    def raw_rows(self, rows: Indices | slice) -> Any:
        """(m, p) rows as they were given, on the host: an array of any real type."""

    # --- on the way into a pool ------------------------------------------------------------------

    def as_given(self, name: str) -> Self:
        """This view without scales, and without what is known of its rows, which may have changed
        since."""
        set_by_pool = () if self._scaled else ("offset", "scale")
        check_attributes(name, self, View, set_by_pool)
        view = self.scaled(None, 0.0)
        vars(view).pop("_raw_squared_norms", None)
        return view

    def checked(self, name: str) -> View:
        """This view with every promise made sure of, or a sentence about view `name`."""
        check_shape(name, (self.n, self.p))
        if type(self).checked is View.checked:  # a class of somebody else's
            check_rows(name, self)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = self.raw_squared_norms()  # which it keeps: all checks take one pass over a file
        check_finite(name, self.raw_rows, np.flatnonzero(~np.isfinite(norms)))
        check_magnitude(name, self)
        return self if self.eps is None else self.with_eps(check_positive("eps", self.eps, name))

    def filled(self, name: str) -> View:
        """This view with zeros for the rows that have no value, which are `absent` then."""
        return self

    def without(self, rows: NDArray[np.bool_]) -> View:
        """This view, in which these rows (n,) are absent, too."""
        return self._with(absent=rows if self.absent is None else self.absent | rows)

    def sketched(self, name: str) -> View:
        """This view for a plan, which asks for its shape and its storage and for no value."""
        return self

    # --- set by the pool -------------------------------------------------------------------------

    eps: float | None = None  # a ridge that the view brings itself is kept
    offset: float = 0.0  # log of the factor on L, added to d_q(S)
    scale: Floats | None = None  # (n,) row scales s; None stands for ones
    _scale_there: Any = None  # the same (n, 1) on a device, where the rows are
    _scaled = False  # whether these were set
    absent: NDArray[np.bool_] | None = None  # (n,) rows that lack it: zero rows, also centred
    moments: Any = None  # `Moments` of the scaled rows over the pool, where a utility asks for them

    def scaled(self, scale: Floats | None, offset: float) -> Self:
        """The same rows under other row scales and another factor on L; the data is shared."""
        here = scale is None or self._there is None
        there = None if here else self.block_place.put(scale)[:, None]
        moments = self.moments if scale is self.scale else None
        own: Any = {"scale": scale, "offset": offset, "_scale_there": there, "moments": moments}
        return self._with(**own, _scaled=True)

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
        return self._block_of(self.block_place.put(indices))

    def _block_of(self, rows: Any) -> RowBlock:
        there = self.raw_rows(rows) if self._there is None else self._there[rows]
        return DenseBlock(there, self._column(rows), self.place, self.single)

    def _column(self, rows: Any) -> Any:
        """(m, 1) scales of these rows, where their block is."""
        if self.scale is None:
            return None
        return self.scale[rows][:, None] if self._scale_there is None else self._scale_there[rows]

    array_anchors: bool = True  # whether anchors are (m, p) arrays, which blocks anywhere take

    def anchor(self, indices: Indices) -> Any:
        """Small state for `RowBlock.cross`, which then gives K[block, indices]."""
        return self.gather(indices).features()

    def combined(self, anchor: Any, combine: Any) -> Any:
        """Anchor for K[block, indices] @ combine, made of that for K[block, indices]."""
        return self.place.put(combine).T @ anchor

    def trail(self, most: int, coarse: bool) -> Trail:
        """An empty trail for up to `most` picks; its directions are for `RowBlock.coarse`, or for
        `cross`."""
        if self.array_anchors:
            return DenseTrail(self, most, coarse and self.single)
        return Trail(self, most)

    single: bool = False  # whether float32 holds the rows: products neither overflow nor vanish

    @property
    def coarse_error(self) -> float:
        """How far an entry of `RowBlock.coarse` may be off, for row and anchor of length one."""
        return SURE * float(np.sqrt(self.p)) * (2.0**-24 if self.single else 2.0**-53)

    @property
    def look_error(self) -> float:
        """The same of `RowBlock.onto` with `coarse`, beside the longest row and a column of length
        one; sparse views know the one without the other."""
        return self.coarse_error

    @property
    def cancellation(self) -> float:
        """Products of two rows are rounded like numbers that are at most so many times as large as
        the product of their lengths."""
        return 1.0

    @property
    def stored(self) -> int:
        """How many numbers a product with a vector touches."""
        return self.n * self.p

    @property
    def fullest(self) -> int:
        """How many numbers a row has at most."""
        return self.p

    # --- few rows --------------------------------------------------------------------------------

    def rows(self, rows: Indices | slice) -> Any:
        """(m, p) scaled rows in float64, on the host: an array, or CSR for a sparse view."""
        found = np.asarray(self.raw_rows(rows), dtype=np.float64)
        return found if self.scale is None else found * self.scale[rows][:, None]

    def inner(self, left: Indices, right: Indices) -> Floats:
        """K[left, right], ridge excluded."""
        rows = self.anchor(left)
        # A product with itself takes half of the work, and is symmetric to the last bit.
        others = rows if right is left else self.anchor(right)
        product: Floats = self.place.get(rows @ others.T)
        return product

    def ridged(self, indices: Indices) -> Floats:
        """K[indices, indices] + eps I."""
        L = self.inner(indices, indices)
        L.flat[:: len(L) + 1] += self.ridge
        return L

    def quadratic(self, indices: Indices, combine: Any) -> Any:
        """combine^T K[indices, indices] combine, at `place`; of features without that kernel, since
        the rows may be many."""
        if self.array_anchors:
            combined = self.combined(self.anchor(indices), combine)
            return combined @ combined.T
        held = self.take(indices)
        anchor = held.combined(held.anchor(np.arange(held.n)), combine)
        product: Floats = combine.T @ held.block(0, held.n).cross(anchor)
        return product

    def spectrum(self, indices: Indices) -> Floats:
        """Eigenvalues of K[indices, indices], descending, none of them negative."""
        eigenvalues = np.zeros(len(indices))
        # Of K itself those below 1e-16 of the largest would be lost, which matter with a small eps.
        singular = svdvals(self.place.get(self.dense_rows(indices)))
        eigenvalues[: len(singular)] = singular**2
        return eigenvalues

    scored_by_rows: bool = True  # whether `spectrum` squares no singular value of the rows

    def log_volume(self, indices: Indices) -> float:
        """log det (K[indices, indices] + eps I)"""
        if self.well_conditioned(indices):
            return float(self.gains(indices).sum())
        return float(np.log(self.spectrum(indices) + self.ridge).sum())

    def gains(self, indices: Indices) -> Floats:
        """(m,) logarithms of the variances of these rows, each given the ones before it: from K
        itself where its condition allows that, which is many times as quick, and else from a QR
        factorisation of [Phi^T; sqrt(eps) I]. Many rows of few columns come in blocks."""
        place = self.place
        many = suits(len(indices), self.p, self.trace_at(indices), self.ridge)
        if not many and self.well_conditioned(indices):
            pivots = place.pivots(place.put(self.ridged(indices)))
            if pivots is not None:
                return np.asarray(np.log(pivots))
        return 2.0 * np.log(np.abs(roots(place, self.dense_rows(indices), self.ridge, many)))

    def well_conditioned(self, indices: Indices) -> bool:
        """Whether the ridge keeps the rounding of every logarithm small, without a look at K."""
        return self.scored_by_rows and self.trace_at(indices) <= WELL_CONDITIONED * self.ridge

    def trace_at(self, indices: Indices) -> float:
        return float(self.squared_norms_at(indices).sum())

    def dense_rows(self, indices: Indices) -> Any:
        """`rows(indices)` at `place`, of a sparse view only the columns that occur in them."""
        if self.array_anchors:
            return self.anchor(indices)
        rows = self.rows(indices)
        return rows[:, np.unique(rows.indices)].toarray() if sp.issparse(rows) else rows

    def take(self, indices: Indices) -> View:
        """The view of these rows alone, for the host."""
        return self._given_to(_Part(self, indices), indices)

    def take_there(self, indices: Indices) -> View:
        """The same, which need not leave the device that its rows were handed in on."""
        return self.take(indices)

    def as_features(self) -> View:
        """This view as one whose rows, taken anywhere, have the same features: a kernel has none
        that two parts of it share."""
        return self

    def reordered(self, order: Indices) -> View:
        """All rows in another order; what lies in a file stays there."""
        return self.take(order)

    # --- all rows --------------------------------------------------------------------------------

    @functools.cached_property
    def _raw_squared_norms(self) -> Floats:
        return measured(self.n, self.p, lambda rows: squared_norms(self.raw_rows(rows)))

    def raw_squared_norms(self) -> Floats:
        """(n,) squared norms of the rows as given."""
        return self._raw_squared_norms

    @property
    def squared_norms(self) -> Floats:
        """(n,) diagonal of K."""
        return self.squared_norms_at(slice(None))

    def squared_norms_at(self, rows: Indices | slice) -> Floats:
        """(m,) diagonal of K at few rows, without a look at the others."""
        norms, scale = self.raw_squared_norms()[rows], self._scales(rows)
        # Not by scale^2, which may underflow: these and all bounds would be those of other rows.
        return norms if scale is None else norms * scale * scale

    def largest_norms(self, k: int) -> Floats:
        """(k,) the largest entries of the diagonal of K, in any order: several bounds ask for
        them, and rows of one length are slow to part."""
        if k not in self._largest:
            norms = self.squared_norms
            self._largest[k] = norms[HOST.highest(norms, k)]
        return self._largest[k]

    @functools.cached_property
    def _largest(self) -> dict[int, Floats]:
        return {}

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

    tail: float = 0.0  # no more than p eigenvalues of K exceed this

    # --- whether the user's numbers are still what they were (`imprint`) -------------------------

    in_file: bool = False  # whether rows are read from one, which is held against what it was

    def numbers_at(self, indices: Indices) -> Any:
        """All that was handed in for these rows, or what is made of it: an array, or CSR."""
        return self.rows(indices)

    # --- needed only by views that can lie on a device, or go to workers -------------------------

    place: Place = HOST  # where `dense_rows` and `quadratic` are
    block_place: Place = HOST  # where blocks and anchors are
    _there: Any = None  # the rows on a device, `DeviceRows` or `DeviceCsr`

    @property
    def resident_bytes(self) -> int:
        """Bytes of rows that stay on a device."""
        return 0 if self._there is None else self._there.resident_bytes

    def __getstate__(self) -> dict[str, Any]:
        """Copies are for the host."""
        here = self
        if self._there is not None:
            here = self._with(place=HOST, block_place=HOST, _there=None)
            here = here.scaled(self.scale, self.offset)
        return {**vars(here), "home_engine": None}

    home_engine: str | None = None  # by name: the one that has the rows at hand, if only one has

    def moved(self, place: Place, room: int) -> View:
        """The same view on a device: resident in up to `room` bytes, or streamed; as it is where
        the host multiplies and sends products."""
        return self

    def lean(self) -> View:
        """This view for a worker, which asks for blocks alone."""
        return self

    # --- for subclasses --------------------------------------------------------------------------

    def _with(self, **changes: Any) -> Self:
        """Not by `copy`, since what lies on a device has a say there."""
        other = object.__new__(type(self))
        vars(other).update(vars(self), **changes)
        vars(other).pop("_largest", None)  # its rows may be longer
        return other

    def _given_to(self, other: View, rows: Indices) -> View:
        """Another view of `rows` of this one, with ridge, scales and offset of these."""
        absent = None if self.absent is None else self.absent[rows]
        taken = other._with(eps=self.eps, absent=absent).scaled(self._scales(rows), self.offset)
        return taken if self.moments is None else taken._with(moments=self.moments.take(rows))

    def _present(self, norms: Floats) -> Floats:
        """Norms of rows as they count: absent rows are zero rows."""
        return norms if self.absent is None else np.where(self.absent, 0.0, norms)

    def _scales(self, rows: Indices | slice) -> Floats | None:
        return None if self.scale is None else self.scale[rows]


class _Part(View):
    """Some rows of a view that has no shorter way to take them."""

    def __init__(self, whole: View, indices: Indices) -> None:
        self._whole, self._indices = whole, indices
        self.n, self.p, self.eps = len(indices), whole.p, whole.eps

    def raw_rows(self, rows: Indices | slice) -> Any:
        return self._whole.raw_rows(self._indices[rows])
