"""The log-determinant as a utility [FairNEPv, sections 3.4 and 4.1]: diverse sets.

Of a set it is log det (K[S, S] + eps I), of a frame V log det (V^T K V + eps I). Its concave
majorant is in `majorant.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import svdvals
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from fairnepv.compute import HOST, Block
from fairnepv.objective.held import Each, HeldRows, one_by_one
from fairnepv.objective.majorant import Slope, ViewDual, least_gamma
from fairnepv.views import Calibration, Pool, View
from fairnepv.views.base import Floats, Indices

_TINY = np.finfo(np.float64).tiny  # a chosen row scored against another slot has ratio 0
_WELL_CONDITIONED = 1e5  # condition number of a Gram matrix that costs f no more than 1e-11


class LogDet:
    """The answers of log det (K + eps I) to what a `Utility` is asked."""

    dual_type = ViewDual

    factored, by_columns, may_be_rough, exact = 4.0, False, True, True

    def divisor(self, size: int) -> float:
        return size

    def asked_about(self, pool: Pool, calibration: Calibration) -> Pool:
        return calibration.apply(pool)

    def along_frames(self, pool: Pool) -> Pool:
        return pool

    def total(self, view: View, indices: Indices) -> float:
        return view.log_volume(indices)

    def totals(self, view: View, sets: NDArray[np.int64]) -> Floats:
        k = sets.shape[1]
        if k == 1:  # the diagonal is enough, and n may be large
            L = (view.squared_norms[sets[:, 0]] + view.ridge)[:, None, None]
        else:
            rows, position = np.unique(sets, return_inverse=True)
            position = position.reshape(sets.shape)
            K = view.inner(rows, rows)
            L = K[position[:, :, None], position[:, None, :]] + view.ridge * np.eye(k)
        sign, logdet = np.linalg.slogdet(L)
        return np.where(sign > 0, logdet, np.nan)

    def contributions(self, view: View, indices: Indices) -> Floats:
        return view.gains(indices)

    def removals(self, view: View, indices: Indices, pivots: Floats) -> Floats:
        return -np.log(pivots)

    def gains(self, changes: Any, xp: Any = np) -> Any:
        return xp.log(changes)

    def swap_changes(self, c: Any, pivots: Any, v: Any) -> Any:
        return c * pivots + v**2

    def swap_gains(self, changes: Floats) -> Floats:
        return np.asarray(np.log(np.maximum(changes, _TINY)))

    def swap_ceiling(self, block: Block, w: Floats, c: Any, pivots: Floats, v: Any) -> Any:
        rise = (c * block.put(w.astype(pivots.dtype))) @ block.put(pivots)
        return block.place.add_squares(rise, v, w.tolist())

    def needed_ceiling(self, gain: float) -> float:
        return 1.0 + gain  # log r <= r - 1: most swaps are seen to be hopeless without a logarithm

    linear_on_frames = False

    def on_frame(self, Z: Floats, eps: float, trace: float = 0.0) -> ViewFactor:
        return ViewFactor(Z, eps)

    def on_range(self, Z: Floats, eps: float, trace: float, k: int) -> float:
        lam = np.zeros(k)
        lam[: min(Z.shape)] = svdvals(Z) ** 2
        return float(np.log(lam + eps).sum())

    def along_frame(self, X: Floats, terms: Sequence[Any], shares: Floats) -> Floats:
        return np.asarray(X / X.shape[1])  # V^T L V G^-1 is the identity in every view

    def unit(self, terms: Sequence[Any], shares: Floats) -> float:
        k: int = terms[0].k
        return k

    def across_frame(
        self,
        terms: Sequence[Any],
        weights: Floats,
        squares: Iterable[Floats],
        traces: Floats,
        room: int,
    ) -> Floats:
        k = terms[0].k
        D = np.eye(k)
        for w, factor, square, trace in zip(weights, terms, squares, traces, strict=True):
            along_V = np.eye(k) - factor.N
            b_squared = square - along_V @ along_V
            # c_q, the mean eigenvalue of C_q off V, within the joint range of the views
            left = trace - np.vdot(factor.Z, factor.Z)
            left -= np.vdot(b_squared, gram(factor.Z, factor.eps))
            c = factor.eps + max(left, 0.0) / max(room, 1)
            D -= w * c * factor.inverse
        return D

    def majorant(
        self,
        rows: HeldRows,
        x: Floats,
        k: int,
        each: Each = one_by_one,
        basis: Any = None,
    ) -> Slope:
        return Slope.at(rows, x, k, each, basis)

    def least_majorant(self, rows: HeldRows, x: Floats, k: int, near: Slope) -> float:
        return least_gamma(rows, x, k, near)

    def held(
        self, view: View, rows: Indices, k: int, shift: float, dtype: DTypeLike, rough: float
    ) -> HeldRows:
        return HeldRows.of(view, rows, shift, dtype, rough)

    def bound_by_norms(self, view: View, k: int, shift: float) -> ViewDual:
        return ViewDual.by_norms(view, k, shift)

    def norm_bound(self, view: View, k: int) -> float:
        """Hadamard: log det L[S, S] is at most the sum of the k largest log L_ii.

        A norm carries the rounding of p products, a mean that of k terms, which are added. Of a
        kernel that was rounded and lost eigenvalues below zero, the diagonal is too small by what
        it lacks.
        """
        logs = np.log(view.largest_norms(k) + view.lack() + view.ridge)
        rounding = (
            (view.p + 8) * view.cancellation + (k + 8) * np.abs(logs).mean() + abs(view.offset)
        )
        return float(logs.mean() + view.offset + rounding * np.finfo(np.float64).eps)

    def spectral_gram(self, view: View) -> Any:
        return None

    def spectral_bound(self, lam: Floats, view: View, k: int) -> float:
        """U_{k,q} = (1/k) sum of the k largest log eigenvalues of L_q [FairNEPv, appendix B].

        They carry an error of the order of rounding times the largest, which is added, as is what
        the features of a kernel leave out; the logarithms carry that of a score.
        """
        top = np.zeros(k)
        top[: min(k, len(lam))] = np.maximum(lam[:k], 0.0)
        allowance = len(lam) * np.finfo(np.float64).eps * top[0] * view.cancellation
        return float(np.log(top + allowance + view.tail + view.ridge).mean() + view.offset)


# --- frames ---------------------------------------------------------------------------------------


class ViewFactor:
    """G_q = Z^T Z + eps I for Z = Phi_q^T V (p, k), and the solves with it.

    G is factored on its smaller side. For p < k it has k - p eigenvalues equal to eps, and going
    through Z Z^T + eps I (p, p) instead keeps them exact: log det and Z G^-1 then lose no digits
    to a small ridge. Where that side is still ill-conditioned, its Cholesky factor comes from a QR
    of [Z; sqrt(eps) I], which squares no singular value.
    """

    def __init__(self, Z: Floats, eps: float) -> None:
        self.Z, self.eps = Z, eps
        self.p, self.k = Z.shape
        self.tall = self.p >= self.k
        X = Z if self.tall else Z.T
        self._factor, self.rounding = _cholesky(X, eps)

    @functools.cached_property
    def total(self) -> float:
        """log det G."""
        diagonal = np.abs(np.diagonal(self._factor))
        rest = 0 if self.tall else (self.k - self.p) * np.log(self.eps)
        return float(2.0 * np.log(diagonal).sum() + rest)

    @functools.cached_property
    def J(self) -> Floats:
        """Z G^-1, (p, k)."""
        return self._solve(self.Z.T).T if self.tall else self._solve(self.Z)

    @functools.cached_property
    def inverse(self) -> Floats:
        """G^-1, (k, k)."""
        return inverse_from_cholesky(self._factor) if self.tall else self.N / self.eps

    @functools.cached_property
    def N(self) -> Floats:
        """eps G^-1 = I - Z^T J, (k, k)."""
        return self.eps * self.inverse if self.tall else np.eye(self.k) - self.Z.T @ self.J

    @property
    def along(self) -> Floats:
        """V^T Phi J = I - N, less the identity, which all views have."""
        return -self.N

    def hessian(self, Y: Floats) -> Floats:
        """(p, k) change of J along a horizontal xi with Phi^T xi = Y."""
        return self.curvature(Y) - self.J @ (Y.T @ self.J)

    def curvature(self, Y: Floats) -> Floats:
        """(I - J Z^T) Y G^-1, (p, k): eps cancels from (Z Z^T + eps I)^-1 Y (eps G^-1)."""
        if self.tall:
            return self._solve((Y - self.J @ (self.Z.T @ Y)).T).T
        return self._solve(Y @ self.N)

    def _solve(self, right: Floats) -> Floats:
        return np.asarray(dpotrs(self._factor, right, lower=False)[0])


def inverse_from_cholesky(R: Floats) -> Floats:
    """(R^T R)^-1 for an upper triangular R."""
    inverse: Floats = np.triu(dpotri(R, lower=False)[0])
    inverse += np.triu(inverse, 1).T
    return inverse


def gram(X: Floats, eps: float) -> Floats:
    """X^T X + eps I."""
    G: Floats = X.T @ X
    G.flat[:: len(G) + 1] += eps
    return G


def _cholesky(X: Floats, eps: float) -> tuple[Floats, float]:
    """Upper R with R^T R = X^T X + eps I, and how unsure its log det is in units of one.

    LAPACK is called directly here and above: for small k SciPy's checks take longer than it does.
    """
    unit = np.finfo(np.float64).eps
    R, failed = dpotrf(gram(X, eps), lower=False)
    if not failed:
        diagonal = np.diagonal(R)
        condition = float((diagonal.max() / diagonal.min()) ** 2)  # an estimate from below
        if condition < _WELL_CONDITIONED:
            return R, unit * condition
    elif eps == 0:
        raise np.linalg.LinAlgError("the Gram matrix is not positive definite")
    R = HOST.square_root(X, eps)
    diagonal = np.abs(np.diagonal(R))
    return R, unit * float(diagonal.max() / diagonal.min())
