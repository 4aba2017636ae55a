"""The concave majorant Gamma of the log-determinant on few rows, and what its slopes prove of all.

The formulas are in docs/method.md#concave-bound: Gamma(x) from the leading r eigenvalues of
Phi^T diag(x) Phi and the mean that the other k - r slots share; its gradient phi_i^T W phi_i; and
for any positive definite W = level I - A^T A, A = B^T Phi_T, a bound on every set of k rows.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from fairnepv.compute import HOST, Block, RowBlock, few_threads
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices

HALF_UNIT = 2.0**-53  # what one operation in float64 may be off by, relatively
_CHUNK = 2048  # rows that are worth a thread of the host

Each = Callable[[Sequence[Callable[[], Any]]], Iterable[Any]]  # does independent calls, in order


def one_by_one(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


@dataclass(frozen=True)
class HeldRows:
    """Few rows of one view: as features (m, p), or as a kernel (m, m) where that is smaller.

    Held in float32, they give a value to about six digits in half of the time. They are at `place`,
    and so is what is as large as they are; x and prices are on the host.
    """

    eps: float
    norms: Floats  # (m,) diagonal of the kernel
    features: Any = None
    kernel: Any = None
    place: Any = HOST

    @classmethod
    def of(
        cls, view: View, rows: Indices, shift: float = 0.0, dtype: DTypeLike = np.float64
    ) -> HeldRows:
        """As the smaller of the two, without `shift` I of the kernel, which its ridge gets."""
        eps, place = view.ridge + max(shift, 0.0), view.place
        if view.p < len(rows) and not shift:
            features = view.dense_rows(rows)
            norms = place.get(place.square_sums(features))
            kind = getattr(place.xp, np.dtype(dtype).name)
            return cls(eps, norms, place.xp.astype(features, kind, copy=False), place=place)
        K = view.inner(rows, rows)
        K.flat[:: len(K) + 1] -= shift
        kernel = place.put(K.astype(dtype, copy=False))
        return cls(eps, np.diagonal(K).copy(), kernel=kernel, place=place)

    @functools.cached_property
    def exact(self) -> bool:
        """Whether the rows are held in float64."""
        held = self.kernel if self.features is None else self.features
        return bool(held.dtype == self.place.xp.float64)

    @property
    def kind(self) -> type[np.floating[Any]]:
        return np.float64 if self.exact else np.float32

    def gram(self, root: Any, each: Each) -> Any:
        """X^T X or X X^T for X = diag(root) Phi, whichever is smaller."""
        if self.features is None:
            return root[:, None] * self.kernel * root
        parts = each([partial(_gram, self.features[c], root[c]) for c in self._chunks])
        return functools.reduce(operator.add, parts)

    def images(self, Y: Any, root: Any, lam: Floats, each: Each) -> tuple[Any, Any]:
        """Phi U, (m, r), where Y has multiples of eigenvectors of that matrix, with eigenvalues
        lam, and U the same of X^T X; for a kernel also B with Phi^T B = U."""
        if self.features is not None:
            products = [partial(operator.matmul, self.features[c], Y) for c in self._chunks]
            chunks = list(each(products))
            return chunks[0] if len(chunks) == 1 else self.place.xp.concat(chunks), None
        B = root[:, None] * (Y / self.place.put(np.sqrt(lam).astype(self.kind)))
        return self.kernel @ B, B

    @property
    def _chunks(self) -> list[slice]:
        """A fixed partition, so that sums do not depend on the number of threads; a device has
        its threads inside of one."""
        m = len(self.norms)
        size = _CHUNK if self.place is HOST else max(m, 1)
        return [slice(start, start + size) for start in range(0, m, size)]


def _gram(features: Any, root: Any) -> Any:
    weighted = root[:, None] * features
    return weighted.T @ weighted


# --- the majorant on few rows -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Slope:
    """Gamma at a point, and W = level I - Phi^T B B^T Phi, B (m, r) with r < k."""

    value: float
    prices: Floats  # (m,) phi_i^T W phi_i
    level: float
    combination: Callable[[], Any]  # of B, which most points are never asked for

    @classmethod
    def at(cls, rows: HeldRows, x: Floats, k: int, each: Each) -> Slope:
        place, kind = rows.place, rows.kind
        root = place.put(np.sqrt(x).astype(kind))
        matrix = rows.gram(root, each)
        with few_threads(float(len(matrix)) ** 3):
            lam, Y = place.leading(matrix, k)
        r, mean = split(lam, place.trace(matrix), k)
        lam, Y = lam[:r], Y[:, :r]
        value = float(np.log(lam + rows.eps).sum() + (k - r) * np.log(mean + rows.eps))
        # Where the leading eigenvectors are all there are, nothing is left to be at the level, and
        # 1/eps would only cost digits.
        everything = 0 < r == len(matrix)
        level = 1.0 / ((lam[-1] if everything else mean) + rows.eps)
        depth = np.sqrt(np.maximum(level - 1.0 / (lam + rows.eps), 0.0))
        images, B = rows.images(Y * place.put(depth.astype(kind)), root, lam, each)
        prices = np.maximum(level * rows.norms - place.get(place.square_sums(images)), 0.0)
        return cls(value, prices, level, partial(_combination, rows, x, lam, images, B))

    def dual(self, shift: float) -> ViewDual:
        """The same W for all rows of the view."""
        return ViewDual(self.level, self.combination(), shift)


def _combination(rows: HeldRows, x: Floats, lam: Floats, images: Any, B: Any) -> Any:
    """B (m, r) with Phi^T B = U for eigenvectors U of Phi^T diag(x) Phi, which are given to a
    kernel as such; to features by their images Phi U, since Phi^T diag(x) Phi U = U diag(lam)."""
    place = rows.place
    if B is not None:
        return place.xp.astype(B, place.xp.float64)
    return place.put(x)[:, None] * images / place.put(lam)


def split(lam: Floats, total: float, k: int) -> tuple[int, float]:
    """r, and the mean m of the tail that k - r slots share; `lam` holds the leading eigenvalues.

    The least r whose tail mean reaches lambda_{r+1} is the unique one of the definition.
    """
    padded = np.zeros(k + 1)
    padded[: min(len(lam), k + 1)] = lam[: k + 1]
    slots = k - np.arange(k)
    tails = np.maximum(total - np.concatenate([[0.0], np.cumsum(padded[: k - 1])]), 0.0) / slots
    r = int(np.argmax(tails >= padded[:k])) if (tails >= padded[:k]).any() else k - 1
    return r, float(tails[r])


# --- what slopes prove --------------------------------------------------------------------------


@dataclass(frozen=True)
class ViewDual:
    """W = level I - Phi_T^T B B^T Phi_T for K - shift I = Phi Phi^T, B = `combine` (m, r)."""

    level: float
    combine: Any  # where its view computes; on the host once it is published
    # At most the smallest eigenvalue of K: what the kernel gives to its ridge, or, where rounding
    # has made K indefinite, what it lacks; scores count negative eigenvalues as zero.
    shift: float = 0.0

    @classmethod
    def by_norms(cls, view: View, k: int, shift: float) -> ViewDual:
        """W = level I, for a single row: what Gamma has for a slope where all eigenvalues are the
        mean of the k largest norms, so that it proves k log(mean + eps)."""
        largest = np.partition(view.squared_norms, view.n - k)[view.n - k :]
        mean = max(float(largest.mean()) - shift, 0.0)
        level = 1.0 / max(mean + view.ridge + max(shift, 0.0), np.finfo(np.float64).tiny)
        return cls(level, np.zeros((1, 0)), shift)

    @property
    def width(self) -> int:
        """Columns of the product that prices rows."""
        return int(self.combine.shape[1])

    def published(self, view: View) -> ViewDual:
        """The same on the host, to be stored or checked without the device."""
        return replace(self, combine=view.place.get(self.combine))

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

    def pricing(self, view: View, rows: Indices, share: float) -> Pricing:
        """What a pass over the rows needs to price them, times `share`."""
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
    return 4.0 * (view.p + len(rows) + 16) * HALF_UNIT
