"""The concave majorant Gamma of the log-determinant on few rows, and what its slopes prove of all.

The formulas are in docs/method.md#concave-bound: Gamma(x) from the leading r eigenvalues of
Phi^T diag(x) Phi and the mean that the other k - r slots share; its gradient phi_i^T W phi_i; and
for any positive definite W = level I - A^T A, A = B^T Phi_T, a bound on every set of k rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fairnepv.compute import Block, RowBlock, few_threads
from fairnepv.objective.held import Each, HeldRows, one_by_one
from fairnepv.objective.ritz import (
    SPARE,
    Pairs,
    first_vectors,
    gamma,
    least_value,
    ritz_pairs,
    split,
)
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices

HALF_UNIT = 2.0**-53  # what one operation in float64 may be off by, relatively
_FACTORED = 2500  # columns, up to which eigenvalues are as quick as Ritz vectors and a proof
_FAINT = 1e-3  # of the mean of x: a proven value can do without such rows
_PART, _PER_ITEM = 500, 2  # rows of a part that has nearly the Gamma of all, at least
_LOOSE = 5.0  # times as rough as a value may be, a proven one is not worth having

# --- the majorant on few rows -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Slope:
    """Gamma at a point, and W = level I - Phi^T B B^T Phi, B (m, r) with r < k."""

    value: float
    prices: Floats  # (m,) phi_i^T W phi_i
    level: float
    combination: Callable[[], Any]  # of B, which most points are never asked for
    basis: Any  # leading eigenvectors, for points nearby to begin with

    @classmethod
    def at(cls, rows: HeldRows, x: Floats, k: int, each: Each, basis: Any = None) -> Slope:
        place, kind = rows.place, rows.kind
        root, total = place.put(np.sqrt(x).astype(kind)), float(rows.norms @ x)
        start, found = None, None
        if rows.rough:
            start = first_vectors(basis, rows.side, k, rows.rough, place)
        if start is not None:
            product = partial(rows.product, root=root)
            found = ritz_pairs(product, start, total, rows.eps, k, rows.rough, place)
        lam, Y, images = found or _all_pairs(rows, root, total, k, each)
        r, mean = split(lam, total, k)
        # Where the leading eigenvectors are all there are, nothing is left to be at the level, and
        # 1/eps would only cost digits.
        everything = 0 < r == rows.side
        basis, lam = Y[:, : r + SPARE], lam[:r]
        level = 1.0 / ((lam[-1] if everything else mean) + rows.eps)
        depth = np.sqrt(np.maximum(level - 1.0 / (lam + rows.eps), 0.0))
        if rows.features is None:  # X^T Y / sqrt(lam) are the eigenvectors U of X^T X
            depth = depth / np.sqrt(lam)
        scale = place.put(depth.astype(kind))
        images = images[:, :r] * scale
        prices = np.maximum(level * rows.norms - place.get(place.square_sums(images)), 0.0)
        combination = partial(_combination, rows, x, lam, images, Y[:, :r] * scale)
        return cls(gamma(lam, mean, rows.eps, k), prices, level, combination, basis)

    def dual(self, shift: float) -> ViewDual:
        """The same W for all rows of the view."""
        return ViewDual(self.level, self.combination(), shift)


def _all_pairs(rows: HeldRows, root: Any, total: float, k: int, each: Each) -> Pairs:
    """The k leading eigenpairs by a factorisation, with images of those that count."""
    matrix = rows.gram(root, each)
    with few_threads(float(len(matrix)) ** 3):
        lam, Y = rows.place.leading(matrix, k)
    r, _ = split(lam, total, k)
    return Pairs(lam, Y, rows.images(Y[:, :r], root, each))


def _combination(rows: HeldRows, x: Floats, lam: Floats, images: Any, Y: Any) -> Any:
    """B (m, r) with Phi^T B = U for eigenvectors U of Phi^T diag(x) Phi: those of a kernel say it
    themselves; for features by their images Phi U, since Phi^T diag(x) Phi U = U diag(lam)."""
    place = rows.place
    if rows.features is None:
        root = place.put(np.sqrt(x).astype(rows.kind))
        return place.xp.astype(root[:, None] * Y, place.xp.float64)
    return place.put(x)[:, None] * images / place.put(lam)


def least_gamma(rows: HeldRows, x: Floats, k: int, near: Slope) -> float:
    """At most Gamma(x), in float64 and next to it; `near` has roughly the same."""
    if rows.crude and rows.features is None:
        return _least_by_parts(rows, x, k)
    start = first_vectors(near.basis, rows.side, k, rows.rough, rows.place)
    if rows.side > _FACTORED and start is not None:
        place, basis = rows.place, near.basis
        few, weights = rows, x
        if rows.features is None:  # Gamma rises with x: without rows of next to no x it is less
            kept = np.flatnonzero(x > _FAINT * x.mean())
            few, weights, basis = rows.take(kept), x[kept], basis[place.put(kept)]
        matrix = place.get(few.gram(place.put(np.sqrt(weights)), one_by_one))
        least = least_value(matrix, place.get(basis), rows.eps, k)
        if near.value - least <= _LOOSE * k * rows.rough:
            return least
    return _by_eigenvalues(rows, x, k)


def _by_eigenvalues(rows: HeldRows, x: Floats, k: int) -> float:
    """Gamma(x), by a factorisation."""
    matrix = rows.gram(rows.place.put(np.sqrt(x)), one_by_one)
    with few_threads(float(len(matrix)) ** 3):
        lam = np.maximum(rows.place.eigenvalues(matrix)[::-1], 0.0)
    r, mean = split(lam, float(rows.norms @ x), k)
    return gamma(lam[:r], mean, rows.eps, k)


def _least_by_parts(rows: HeldRows, x: Floats, k: int) -> float:
    """At most Gamma(x), from parts of the rows: Gamma is concave, so it is at least the mean over J
    parts of Gamma with x J times as large there and nothing elsewhere."""
    parts = max(1, len(x) // max(_PART, _PER_ITEM * k))
    order = np.argsort(-x)
    dealt = [np.sort(order[first::parts]) for first in range(parts)]  # which are much alike
    return float(np.mean([_by_eigenvalues(rows.take(p), parts * x[p], k) for p in dealt]))


# --- what slopes prove --------------------------------------------------------------------------


@dataclass(frozen=True)
class ViewDual:
    """W = level I - Phi_T^T B B^T Phi_T for K - shift I = Phi Phi^T, B = `combine` (m, r)."""

    level: float
    combine: Any  # where its view computes; on the host once it is published
    # At most the smallest eigenvalue of K: what the kernel gives to its ridge, or, where rounding
    # has made K indefinite, what it lacks; scores count negative eigenvalues as zero.
    shift: float = 0.0

    # how it is stored: numbers of all views together, by the names of their arrays, and an array
    numbers: ClassVar[dict[str, str]] = {"levels": "level", "shifts": "shift"}
    array: ClassVar[str] = "combine"
    array_shape: ClassVar[tuple[int, ...]] = (-1,)  # beside the rows; -1 for any length

    @classmethod
    def by_norms(cls, view: View, k: int, shift: float) -> ViewDual:
        """W = level I, for a single row: what Gamma has for a slope where all eigenvalues are the
        mean of the k largest norms, so that it proves k log(mean + eps)."""
        mean = max(float(view.largest_norms(k).mean()) - shift, 0.0)
        level = 1.0 / max(mean + view.ridge + max(shift, 0.0), np.finfo(np.float64).tiny)
        return cls(level, np.zeros((1, 0)), shift)

    @property
    def width(self) -> int:
        """Columns of the product that prices rows."""
        return int(self.combine.shape[1])

    def published(self, view: View) -> ViewDual:
        """The same on the host, to be stored or checked without the device."""
        return replace(self, combine=view.place.get(self.combine))

    def fits(self, view: View, rows: Indices, k: int) -> bool:
        """Whether this can be about such a view. More columns than k prove nothing more, and ask
        for the memory of their square."""
        m, r = self.combine.shape
        place = view.place
        finite = place.xp.isfinite(place.put(self.combine))
        return m == len(rows) and r <= min(m, k) and bool(finite.all())

    def constant(self, view: View, rows: Indices, k: int) -> float:
        """sum_j h(w_j), with every eigenvalue moved down by what rounding may hide."""
        eps = view.ridge + max(self.shift, 0.0)
        B = self.combine
        G = view.quadratic(rows, B)
        if self.shift:
            G -= self.shift * (B.T @ B)
        size, length = self._size(view, rows), float(view.place.xp.linalg.matrix_norm(G))
        error = _slack(view, rows) * size**2 + 8.0 * len(G) * HALF_UNIT * length
        if not np.isfinite(error):  # what overflows proves nothing
            return np.inf
        with few_threads(float(len(G)) ** 3):
            depths = view.place.eigenvalues(G)
        lowest = np.sort(self.level - depths - error)[:k]  # B may have more columns than that
        if not self.level > 0 or not (lowest > 0).all():
            return np.inf  # W is not positive definite, and proves nothing
        w = np.full(k, self.level)
        w[: len(lowest)] = lowest
        values = conjugate(w, eps)
        rank = min(view.n, view.p)
        if rank < k:  # further eigenvalues of Phi_S^T Phi_S are at most what counts as zero
            nothing = np.log(eps + view.tail + max(-self.shift, 0.0))
            values[rank:] = np.minimum(values[rank:], nothing)
        return float(values.sum())

    def pricing(self, view: View, rows: Indices, share: float, *, coarse: bool = False) -> Pricing:
        """What a pass over the rows needs to price them, times `share`; `coarse` ones, too."""
        anchor = view.combined(view.anchor(rows), self.combine)
        correction = self.combine if self.shift else None
        slack, size = _slack(view, rows), self._size(view, rows)
        return Pricing(share, self.level, anchor, self.shift, correction, slack, size)

    def _size(self, view: View, rows: Indices) -> float:
        """|(sum_t |B_tj| |phi_t|)_j|: by Cauchy and Schwarz no term of A exceeds it.

        A shift is one more term of every row, of its own size however small the row is.
        """
        place = view.place
        lengths = np.sqrt(view.squared_norms_at(rows) + abs(self.shift))
        terms = abs(place.put(self.combine)).T @ place.put(lengths)
        return float(np.linalg.norm(place.get(terms)))


class Pricing(NamedTuple):
    """What a pass needs of one view to price rows."""

    share: float
    level: float
    anchor: Any
    shift: float
    correction: Floats | None  # B, where there is a shift: what it takes from the rows of T
    slack: float  # relative error of a dot product
    size: float  # how large the terms of phi_i . A_j are, for a phi_i of length one

    def prices(
        self, block: Block, view: RowBlock, norms: Any, T: Indices | None, coarse: bool
    ) -> Any:
        """(b,) share phi_i^T W phi_i, rounded up; coarse ones are good guesses."""
        v = view.coarse(self.anchor) if coarse else view.cross(self.anchor)
        if T is not None and self.correction is not None:
            low, high = np.searchsorted(T, [block.start, block.stop])
            here = block.put(T[low:high] - block.start)
            v[here] -= block.put(self.shift * self.correction[low:high])
        sizes = self._sizes(norms)
        sure = block.xp.sqrt(block.place.square_sums(v)) * (1.0 - self.slack)
        sure = (sure - self.slack * self.size * block.xp.sqrt(sizes)).clip(0.0)
        return self.share * (self._whole(norms) - sure**2).clip(0.0) * (1.0 + 8.0 * HALF_UNIT)

    @property
    def flat(self) -> bool:
        """Whether W = level I, which prices rows by their norms alone."""
        return self.size == 0.0

    def by_norms(self, norms: Any) -> Any:
        """(n,) the same prices where W is flat."""
        return self.share * self._whole(norms).clip(0.0) * (1.0 + 8.0 * HALF_UNIT)

    def _sizes(self, norms: Any) -> Any:
        """Of the terms that were added: see `ViewDual._size`."""
        return norms + abs(self.shift)

    def _whole(self, norms: Any) -> Any:
        """phi_i^T (level I) phi_i, rounded up."""
        return self.level * (norms - self.shift + self.slack * self._sizes(norms))


def conjugate(w: Floats, eps: float) -> Floats:
    """h(w) = max over t >= 0 of log(t + eps) - w t; falls as w rises."""
    inner = w * eps < 1.0
    with np.errstate(divide="ignore"):
        tangent = -np.log(w) - 1.0 + eps * w
        flat = np.log(eps) if eps > 0 else -np.inf
    return np.where(inner, tangent, flat)


def _slack(view: View, rows: Indices) -> float:
    """Relative rounding error of phi_i . A_j: sums of m and of p terms, in whatever order."""
    return 4.0 * (view.p + len(rows) + 16) * HALF_UNIT * view.cancellation
