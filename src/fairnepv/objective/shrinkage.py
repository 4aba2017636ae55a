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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from fairnepv.compute import few_threads
from fairnepv.compute.clock import EIGENVECTORS, expect
from fairnepv.views import View
from fairnepv.views.base import Floats

HALF_UNIT = 2.0**-53  # what one operation in float64 may be off by, relatively
_BISECTIONS = 60
_SMALL = 256  # axes, up to which small variances are computed to all digits
FEW_AXES = 128  # so many are all kept, and two kinds of D are tried on them
_SPARE = 0.5  # of the level at an even x: axes of less variance are left out
_CLUSTER = 1.0 - 1e-6  # eigenvalues with such a ratio are not parted: which vectors, is arbitrary


# --- which D --------------------------------------------------------------------------------------


class Shrinkage(NamedTuple):
    """D (r, r) in the coordinates of the axes, Y, and the level mu that they were made at."""

    D: Floats
    Y: Floats
    level: float


def shrinkage_for(M: Floats, root: Floats, eps: float, k: int) -> Shrinkage:
    """D at M for C = root^T root and sets of k rows: at a level where the trace of Y is about k, as
    if M were diagonal in the eigenvectors of (M C M)^1/2."""
    A, s, U = _half_power(root @ M)
    level = _level(s, np.einsum("ij,ij->j", U, M @ U), eps, k)
    return _shrinkage(M, A, eps, level) if level else shrinkage(M, root, eps, 0.0)


def shrinkage(M: Floats, root: Floats, eps: float, level: float) -> Shrinkage:
    """D at M and a level; 0 stands for Y = I, where rank is no limit."""
    if level == 0.0:
        lam, U = eigh(M, driver="evd", check_finite=False)
        return Shrinkage((U * (eps / (np.maximum(lam, 0.0) + eps))) @ U.T, np.eye(len(M)), 0.0)
    return _shrinkage(M, _half_power(root @ M)[0], eps, level)


def sound_shrinkage(M: Floats, root: Floats, eps: float, level: float) -> Floats:
    """D of numbers that may come from anywhere: zero, which proves something as well, where they
    make none."""
    with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError, ValueError):
        if np.isfinite(M).all():
            D = shrinkage(M, root, eps, level).D
            if np.isfinite(D).all():
                return D
    return np.zeros_like(M)


def _shrinkage(M: Floats, A: Floats, eps: float, level: float) -> Shrinkage:
    lam, U = eigh((A / np.sqrt(level) - M) / eps, driver="evd")
    Y = (U * np.clip(lam, 0.0, 1.0)) @ U.T
    right = eps * Y
    return Shrinkage(np.linalg.solve(right + M, right).T, Y, level)


def _half_power(X: Floats) -> tuple[Floats, Floats, Floats]:
    """(X^T X)^1/2, its eigenvalues and its eigenvectors; of a large one without those that are
    small beside the others, which takes a third of the time."""
    if len(X) <= _SMALL:
        _, s, right = np.linalg.svd(X)
        U = right.T
    else:
        squares, U = eigh(X.T @ X, driver="evd", check_finite=False)
        s = np.sqrt(np.maximum(squares, 0.0))
    return (U * s) @ U.T, s, U


def _level(s: Floats, m: Floats, eps: float, k: int) -> float:
    """mu with sum_j clip((s_j / sqrt(mu) - m_j) / eps, 0, 1) = k, or 0 where that is out of reach
    with a positive one."""
    some = s > np.finfo(np.float64).eps * s.max(initial=0.0)
    if some.sum() <= k:
        return 0.0
    s, m = s[some], m[some]
    high = float(np.log((m + eps) / s).max())
    low = float(np.log(np.maximum(m, np.finfo(np.float64).tiny) / s).min()) - 1.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if np.clip((np.exp(middle) * s - m) / eps, 0.0, 1.0).sum() < k:
            low = middle
        else:
            high = middle
    return float(np.exp(-2.0 * high))


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
    def root(self) -> Floats:
        """R in these coordinates, (r, r)."""
        return np.diag(np.sqrt(self.lam))

    def skewed(self, size: float) -> float:
        """How much axes that are not quite orthonormal may add to |R D|, for a D of this size."""
        return float(np.sqrt(self.lam.max(initial=0.0)) * self.skew * size * 2.0)


def eigenvectors(view: View) -> tuple[Floats, Floats, float, float]:
    """Eigenvalues of C, descending and not negative, its vectors, and how far these are off; kept
    with the moments."""
    own = view.moments
    if "eigenvectors" not in vars(own):
        C = np.array(view.block_place.get(own.gram), dtype=np.float64)
        C = (C + C.T) / (2.0 * own.trace)
        p, size = len(C), float(np.linalg.norm(C))
        expect(EIGENVECTORS * float(p) ** 3)
        with few_threads(float(p) ** 3):
            lam, V = eigh(C, driver="evd", check_finite=False)
            lam, V = np.maximum(lam[::-1], 0.0), np.ascontiguousarray(V[:, ::-1])
            skew = float(np.linalg.norm(V.T @ V - np.eye(p))) + 4.0 * (p + 8) ** 1.5 * HALF_UNIT
            lost = float(np.linalg.norm((V * lam) @ V.T - C))
        off = lost + 4.0 * (p + 8) ** 1.5 * HALF_UNIT * size
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
