"""The matrices D by which explained variance is bounded, and the axes that they are made on.

For any matrix D every set S of k rows has (docs/method.md#bound-of-explained-variance)

    e(S) <= |R (I - D)|_k^2 + sum_{i in S} |R D phi_i|^2 / eps,    R^T R = C = G / tr G,

where |.|_k^2 adds the k largest squared singular values. The least of it over D, for prices that
are weighed by x, is concave in x and e(S) at the indicator of S. Its D is nearly
eps Y (eps Y + M)^-1 for M = sum_i x_i phi_i phi_i^T and Y = ((M C M)^1/2 / sqrt(mu) - M) / eps with
eigenvalues clipped to [0, 1] and trace k: exactly so where M and C commute. As any D proves a
bound, a proof consists of x on few rows, and of mu.

All of it happens in the coordinates of few axes: leading eigenvectors of C, beyond which D is zero
(`Principal`), or the span of the rows that are held (`HeldVariance.of_kernels`).
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import HOST, Place, few_threads
from fairnepv.compute.clock import EIGENVECTORS, expect
from fairnepv.views import View
from fairnepv.views.base import Floats

HALF_UNIT = 2.0**-53  # what one operation in float64 may be off by, relatively
_SMALL = 256  # axes, up to which small variances are computed to all digits
FEW_AXES = 128  # so many are all kept, and two kinds of D are tried on them
_SPARE = 0.5  # of the level at an even x: axes of less variance are left out
_CLUSTER = 1.0 - 1e-6  # eigenvalues with such a ratio are not parted: which vectors, is arbitrary


# --- which D --------------------------------------------------------------------------------------


class Shrinkage(NamedTuple):
    """D (r, r) in the coordinates of the axes, Y, and the level mu that they were made at."""

    D: Any
    Y: Any
    level: float


def shrinkage_for(
    M: Any, X: Any, eps: float, k: int, place: Place = HOST, *, single: bool = False
) -> Shrinkage:
    """D at M for X = R M and sets of k rows: at a level where the trace of Y is about k, as if M
    were diagonal in the eigenvectors of (M C M)^1/2. With `single` the parts that float32 does not
    harm are in that; what has a root taken, and is divided by, never is."""
    A, s, U = _half_power(X, place)
    M1, U1 = (place.single(part) if single else part for part in (M, U))
    along = place.get((U1 * (M1 @ U1)).sum(axis=0))
    level = _level(place.get(s), along.astype(np.float64), eps, k)
    with contextlib.suppress(np.linalg.LinAlgError):  # of rows that vanish beside the ridge
        if level:
            return _shrinkage(M, A, eps, level, place, single)
    return plain_shrinkage(M, eps, place)


def shrinkage(M: Any, X: Any, eps: float, level: float, place: Place = HOST) -> Shrinkage:
    """D at M for X = R M and a level; 0 stands for Y = I, where rank is no limit."""
    if level == 0.0:
        return plain_shrinkage(M, eps, place)
    return _shrinkage(M, _half_power(X, place)[0], eps, level, place, single=False)


def plain_shrinkage(M: Any, eps: float, place: Place = HOST) -> Shrinkage:
    """D at M with Y = I."""
    lam, U = place.eigenvectors(M)
    D = (U * (eps / (place.xp.clip(lam, 0.0, None) + eps))) @ U.T
    return Shrinkage(D, place.put(np.eye(len(M))), 0.0)


def sound_shrinkage(M: Any, X: Any, eps: float, level: float, place: Place = HOST) -> Floats:
    """D of numbers that may come from anywhere, on the host: zero, which proves something as well,
    where they make none."""
    with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError, ValueError):
        if bool(place.xp.isfinite(M).all()):
            D: Floats = place.get(shrinkage(M, X, eps, level, place).D)
            if np.isfinite(D).all():
                return D
    return np.zeros(M.shape)


def _shrinkage(M: Any, A: Any, eps: float, level: float, place: Place, single: bool) -> Shrinkage:
    Y = (A / level**0.5 - M) / eps
    lam, U = place.eigenvectors(place.single(Y) if single else Y)
    W = U * place.xp.clip(lam, 0.0, 1.0) ** 0.5
    Y = place.double(W @ W.T)
    right = eps * Y
    return Shrinkage(place.solve(right + M, right).T, Y, level)


def _half_power(X: Any, place: Place) -> tuple[Any, Any, Any]:
    """(X^T X)^1/2, its eigenvalues and its eigenvectors; of a large one without those that are
    small beside the others, which takes a third of the time."""
    if len(X) <= _SMALL:
        s, U = place.right_vectors(X)
    else:
        squares, U = place.eigenvectors(X.T @ X)
        s = place.xp.clip(squares, 0.0, None) ** 0.5
    W = U * s**0.5
    return W @ W.T, s, U


def _level(s: Floats, m: Floats, eps: float, k: int) -> float:
    """mu with sum_j clip((s_j / sqrt(mu) - m_j) / eps, 0, 1) = k, or 0 where that is out of reach
    with a positive one. In 1 / sqrt(mu) the sum is linear between the points where a term begins
    or ends to rise."""
    some = s > np.finfo(np.float64).eps * s.max(initial=0.0)
    if some.sum() <= k:
        return 0.0
    s, m = s[some], np.maximum(m[some], 0.0)

    def trace(t: Any) -> Any:
        return np.clip((t * s - m) / eps, 0.0, 1.0).sum()

    bends = np.sort(np.concatenate([m / s, (m + eps) / s]))
    last = min(bisect_left(bends, k, key=trace), len(bends) - 1)
    t, before = float(bends[last]), float(bends[max(last - 1, 0)])
    low, high = trace(before), trace(t)
    if low < k < high:
        t = before + (t - before) * (k - low) / (high - low)
    return float(t**-2.0) if t > 0 else 0.0


def ky_fan(squares: Floats, k: int) -> float:
    """The sum of the k largest."""
    return float(np.sort(squares)[::-1][:k].sum())


# --- axes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Principal:
    """The r leading eigenvectors of C of a view whose G is held, for sets of k rows."""

    V: Floats  # (p, r)
    lam: Floats  # (r,) variances along them
    rest: Floats  # (p - r,) along the others
    skew: float  # Frobenius norm of V^T V - I, over all axes
    off: float  # and of what C lacks from V diag(lam) V^T

    @classmethod
    def of(cls, view: View, r: int) -> Principal:
        lam, V, skew, off = eigenvectors(view)
        return cls(V[:, :r], lam[:r], lam[r:], skew, off)

    @property
    def roots(self) -> Floats:
        """(r,) the diagonal of R in these coordinates."""
        return np.asarray(np.sqrt(self.lam))

    def skewed(self, size: float) -> float:
        """How much axes that are not quite orthonormal may add to |R D|, for a D of this size."""
        return float(np.sqrt(self.lam.max(initial=0.0)) * self.skew * size * 2.0)


def eigenvectors(view: View) -> tuple[Floats, Floats, float, float]:
    """Eigenvalues of C, descending and not negative, its vectors, and how far these are off; kept
    with the moments."""
    own = view.moments
    if "eigenvectors" not in vars(own):
        place = view.block_place
        C = place.double(place.put(own.gram))
        C = (C + C.T) / (2.0 * own.trace)
        p = len(C)
        expect(EIGENVECTORS * float(p) ** 3)
        with few_threads(float(p) ** 3):
            ascending, vectors = map(place.get, place.eigenvectors(C))
            lam, V = np.maximum(ascending[::-1], 0.0), vectors[:, ::-1].copy()
            C = np.asarray(place.get(C))
            skew = float(np.linalg.norm(V.T @ V - np.eye(p))) + 4.0 * (p + 8) ** 1.5 * HALF_UNIT
            lost = float(np.linalg.norm((V * lam) @ V.T - C))
        off = lost + 4.0 * (p + 8) ** 1.5 * HALF_UNIT * float(np.linalg.norm(C))
        vars(own)["eigenvectors"] = lam, V, skew, off
    found: tuple[Floats, Floats, float, float] = vars(own)["eigenvectors"]
    return found


def axes_worth(view: View, k: int) -> int:
    """How many axes may have a part in D: at an even x, M is a multiple of C, and those with less
    variance than mu have none."""
    lam = eigenvectors(view)[0]
    p = len(lam)
    if k >= p or p <= FEW_AXES:
        return p
    m = lam * k * (view.moments.trace / view.n)
    level = _level(m * np.sqrt(lam), m, view.ridge, k)
    r = max(k, int((lam > _SPARE * level).sum()))
    while r < p and lam[r] >= _CLUSTER * lam[r - 1]:
        r += 1
    return r
