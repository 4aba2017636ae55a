"""The view contract: the handful of questions that the rest of the house asks of a view.

A view stands for the kernel K = diag(s) Phi Phi^T diag(s) of its rows, with a vector of row scales
s (calibration and quality) kept beside the data and never multiplied into a copy of it, and for
L = c (K + eps I) [FairNEPv, Assumption 1 and Remark 1]. The ridge `eps` and `offset` = log c are
carried for the objective; every kernel entry that a view hands out excludes both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import qr

from fairnepv.compute import HOST, Place, RowBlock
from fairnepv.views.trail import Trail

# Rounding errors of a dot product of p terms are as good as never larger than this many sqrt(p)
# units; the bound without probabilities has p in place of it [HighamMary].
SURE = 8.0

LARGEST_SQUARE = 1e300  # of all rows of a view together: what float64 can go on computing with

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class View(ABC):
    """Final subclasses supply the abstract methods; everything else follows from them."""

    n: int
    p: int
    eps: float | None  # None until the pool gives the view its ridge
    offset: float = 0.0  # log of the factor on L, added to d_q(S)
    scale: Floats | None = None  # (n,) row scales s; None stands for ones
    scored_by_rows: bool = False  # whether `spectrum` squares no singular value of the rows
    place: Place = HOST  # where `dense_rows`, `anchor` and `quadratic` are

    # What a subclass must supply, for its unscaled rows.

    @abstractmethod
    def raw_squared_norms(self) -> Floats:
        """(n,) squared norms of the rows as given."""

    @abstractmethod
    def block(self, start: int, stop: int) -> RowBlock:
        """The scaled rows `start:stop`."""

    @abstractmethod
    def gather(self, indices: Indices) -> RowBlock:
        """The scaled rows at `indices`, in that order, as a block."""

    @abstractmethod
    def rows(self, indices: Indices) -> Any:
        """(m, p) scaled rows in float64: an array, or CSR for a sparse view."""

    @abstractmethod
    def anchor(self, indices: Indices) -> Any:
        """Small state for `RowBlock.cross`, which then gives K[block, indices]."""

    @abstractmethod
    def combined(self, anchor: Any, combine: Floats) -> Any:
        """The same of a plain anchor, for K[block, indices] @ combine."""

    @abstractmethod
    def inner(self, left: Indices, right: Indices) -> Floats:
        """K[left, right], ridge excluded."""

    @abstractmethod
    def spectrum(self, indices: Indices) -> Floats:
        """Eigenvalues of K[indices, indices], descending, none of them negative."""

    @abstractmethod
    def take(self, indices: Indices) -> Self:
        """The view of these rows alone."""

    # What follows.

    @property
    def squared_norms(self) -> Floats:
        """(n,) diagonal of K."""
        return _scaled_twice(self.raw_squared_norms(), self.scale)

    def squared_norms_at(self, indices: Indices) -> Floats:
        """Those of few rows, without a look at the others."""
        return _scaled_twice(self.raw_squared_norms()[indices], self._scales(indices))

    def trail(self, most: int, coarse: bool) -> Trail:
        """An empty one for up to `most` picks, with directions for `RowBlock.coarse` or `cross`."""
        return Trail(self, most)

    def lean(self) -> Self:
        """For a worker, which asks for blocks alone."""
        return self

    def reordered(self, order: Indices) -> Self:
        """All rows in another order; what lies in a file stays there."""
        return self.take(order)

    def compact_rows(self, indices: Indices) -> Floats:
        """Dense `rows(indices)`, of a sparse view only the columns that occur in them."""
        rows = self.rows(indices)
        return np.asarray(rows[:, np.unique(rows.indices)].toarray() if sp.issparse(rows) else rows)

    def log_volume(self, indices: Indices) -> float:
        """log det (K[indices, indices] + eps I)"""
        return float(np.log(self.spectrum(indices) + self.ridge).sum())

    def gains(self, indices: Indices) -> Floats:
        """(m,) logarithms of the variances of these rows, each given the ones before it, from a QR
        factorisation of [Phi^T; sqrt(eps) I]."""
        R = square_root(self.compact_rows(indices).T, self.ridge)
        gains: Floats = 2.0 * np.log(np.abs(np.diagonal(R)))
        return gains

    def dense_rows(self, indices: Indices) -> Any:
        """`compact_rows` at `place`."""
        return self.compact_rows(indices)

    def quadratic(self, indices: Indices, combine: Any) -> Any:
        """combine^T K[indices, indices] combine; of features without that kernel, since the rows
        may be many."""
        held = self.take(indices)
        everyone = np.arange(held.n)
        product: Floats = combine.T @ held.block(0, held.n).cross(
            held.combined(held.anchor(everyone), combine)
        )
        return product

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
    def coarse_error(self) -> float:
        """How far an entry of `RowBlock.coarse` may be off, for row and anchor of length one."""
        return SURE * float(np.sqrt(self.p)) * 2.0**-53

    @property
    def tail(self) -> float:
        """No more than p eigenvalues of K exceed this."""
        return 0.0

    def whole_kernel(self) -> Floats:
        """K itself, (n, n), for views of few rows."""
        everyone = np.arange(self.n)
        return self.inner(everyone, everyone)

    @property
    def stored(self) -> int:
        """How many numbers a product with a vector touches."""
        return self.n * self.p

    @property
    def ridge(self) -> float:
        assert self.eps is not None, "the pool gives every view its ridge"
        return self.eps

    def scaled(self, scale: Floats | None, offset: float) -> Self:
        """The same rows under other row scales and another factor on L; the data is shared."""
        return self._with(scale=scale, offset=offset)

    def with_eps(self, eps: float) -> Self:
        return self._with(eps=eps)

    def _with(self, **changes: Any) -> Self:
        other: Self = object.__new__(
            type(self)
        )  # not `copy`: what lies on a device has a say there
        vars(other).update(vars(self))
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    def _scales(self, rows: Indices | slice) -> Floats | None:
        return None if self.scale is None else self.scale[rows]


V = TypeVar("V", bound=View)


def guise_of(view: View) -> tuple[Floats | None, float, Floats | None]:
    """Scales, offset, and norms of the rows as given, where these are known."""
    return view.scale, view.offset, vars(view).get("_raw_squared_norms")


def under(view: V, scale: Floats | None, offset: float, norms: Floats | None) -> V:
    """A view of the same rows in the guise of another: norms need not be computed again."""
    if norms is not None:
        vars(view)["_raw_squared_norms"] = norms
    return view.scaled(scale, offset)


def square_root(X: Floats, eps: float) -> Floats:
    """Upper triangular R with R^T R = X^T X + eps I, which squares no singular value of X."""
    k = X.shape[1]
    R = qr(np.vstack([X, np.sqrt(eps) * np.eye(k)]), mode="r", check_finite=False)[0][:k]
    return np.asarray(R)


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
