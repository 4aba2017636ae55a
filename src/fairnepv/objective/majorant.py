"""The concave majorant of the log-determinant (DESIGN 3.5), and what its slopes prove of all rows.

With lambda the eigenvalues of Phi^T diag(x) Phi in descending order and the unique r for which
lambda_r > m >= lambda_{r+1}, m = (sum_{i>r} lambda_i) / (k - r),

    Gamma(x) = sum_{i<=r} log(lambda_i + eps) + (k - r) log(m + eps)

is concave over {0 <= x <= 1, sum x = k} and equals log det L[S, S] at the indicator of S [Nikolov;
LiXie]. Its gradient is phi_i^T W phi_i, where W has eigenvalues 1/(lambda_i + eps) on the leading
eigenvectors and 1/(m + eps) on everything else.

For any positive definite W at all, every set S of k rows has

    log det L[S, S] <= sum_{i in S} phi_i^T W phi_i + sum_{j<=k} h(w_j)

with w_1 <= w_2 <= ... the eigenvalues of W and h(w) = max_{t>=0} log(t + eps) - w t, by von
Neumann's trace inequality: tr(W Phi_S^T Phi_S) is at least the sum of w_j times the descending
eigenvalues. W = level I - A^T A with A = B^T Phi_T for few rows T: all that is needed of it are
kernel entries, so a wide sparse view and an explicit kernel are bounded like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import Block, RowBlock, few_threads
from fairnepv.objective.held_rows import Each, HeldRows
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices

HALF_UNIT = 2.0**-53  # what one operation in float64 may be off by, relatively


@dataclass(frozen=True, eq=False)
class Slope:
    """Gamma at a point, and W = level I - Phi^T B B^T Phi with B = `combine` (m, r), r < k."""

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

    @property
    def combine(self) -> Any:
        return self.combination()

    def dual(self, shift: float) -> ViewDual:
        """The same W for all rows of the view."""
        return ViewDual(self.level, self.combine, shift)


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
        if (
            rank < k
        ):  # further eigenvalues of Phi_S^T Phi_S are zero, or at most what counts as zero
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
        sizes = norms + abs(self.shift)  # of the terms that were added: see `ViewDual._size`
        sure = block.xp.sqrt(block.place.square_sums(v)) * (1.0 - self.slack)
        sure = (sure - self.slack * self.size * block.xp.sqrt(sizes)).clip(0.0)
        whole = self.level * (norms - self.shift + self.slack * sizes)
        return self.share * (whole - sure**2).clip(0.0) * (1.0 + 8.0 * HALF_UNIT)


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
