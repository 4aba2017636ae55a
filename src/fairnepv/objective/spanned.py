"""What bounds explained variance in a view whose G acts through target rows: kernels of few rows T.

There (I - D) = Phi_T^T S Phi_T for an S (m, m), made like any D on axes P = Phi_T^T B of the span
of T. With R = A, the target rows over the root of tr G, and H = A Phi_T^T,

    |R (I - D)|_k = |H S L|_k  for L L^T = K_TT,    R D phi_i = A phi_i - H S K_Ti,

so that products of rows with targets and with T are all that is needed (`shrinkage.py` has the
bound itself).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.lapack import dpotrf

from fairnepv.compute import HOST, RowBlock, few_threads
from fairnepv.compute.clock import EIGENVECTORS, expect
from fairnepv.objective.shrinkage import HALF_UNIT, ky_fan, sound_shrinkage
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices
from fairnepv.views.moments import target_products


@dataclass(frozen=True, eq=False)
class Spanned:
    """The rows T, and what D is made of."""

    view: View
    rows: Indices  # (m,)
    K: Floats  # (m, m)
    S: Floats  # (m, m)
    H: Floats  # (t, m)

    @classmethod
    def of(cls, view: View, rows: Indices, x: Floats, r: int, mass: float, level: float) -> Spanned:
        """On the r leading axes of the span."""
        expect(3.0 * EIGENVECTORS * float(len(rows)) ** 3)
        K, H = view.inner(rows, rows), share_products(view, rows).T
        with few_threads(float(len(K)) ** 3):
            lam, B = span(K)
            lam, B = lam[:r], B[:, :r]
            Z = K @ B
            M = Z.T @ (x[:, None] * Z) + mass * np.eye(len(lam))
            M = (M + M.T) / 2.0
            D = sound_shrinkage(M, root_of(H @ B) @ M, view.ridge, level)
            S = (B - B @ D) @ B.T
        return cls(view, rows, K, S if np.isfinite(S).all() else np.zeros_like(K), H)

    def constant(self, k: int) -> float:
        """|R (I - D)|_k^2, with what rounding may hide of it."""
        m = len(self.rows)
        expect(EIGENVECTORS * float(m) ** 3)
        unit, total = _unit(self.view, m), float(np.trace(self.K))
        raised = self.K + 4.0 * unit * total * np.eye(m)  # not below K, however that was rounded
        with few_threads(float(m) ** 3):
            L, failed = dpotrf(raised, lower=1)
            if failed:
                return np.inf
            W = self.H @ (self.S @ L)
            with np.errstate(over="ignore", invalid="ignore"):
                product = W.T @ W
            if not np.isfinite(product).all():  # what overflows proves nothing
                return np.inf
            squares = HOST.eigenvalues(product)
        sizes = float(np.linalg.norm(self.S)) * float(np.linalg.norm(L))
        error = 4.0 * unit * sizes * (float(np.linalg.norm(self.H)) + np.sqrt(total))
        whole = max(ky_fan(squares, k), 0.0) + 4.0 * k * unit * float(np.linalg.norm(W)) ** 2
        found = float((np.sqrt(whole) + error) ** 2) * (1.0 + 64.0 * HALF_UNIT)
        return found if np.isfinite(found) else np.inf

    def pricing(self, share: float) -> SpannedPricing:
        view, m = self.view, len(self.rows)
        through = self.S.T @ self.H.T  # (m, t)
        lengths = np.sqrt(view.squared_norms_at(self.rows))
        sizes = float(np.linalg.norm(np.abs(through).T @ lengths))
        made = float(np.linalg.norm(self.S) * np.linalg.norm(self.H) * np.linalg.norm(lengths))
        unit = _unit(view, m)
        own, eps = view.moments, view.ridge
        error = unit * (1.0 + sizes + made) / np.sqrt(eps)
        root = np.sqrt(eps)
        return SpannedPricing(
            share,
            own.targets,
            1.0 / np.sqrt(own.trace * eps),
            view.rows(self.rows),
            through / root,
            error,
            unit,
        )


class SpannedPricing(NamedTuple):
    """What a pass needs of such a view to price rows, on the host."""

    share: float
    targets: Any  # (t, p)
    scale: float  # of products with them
    rows: Any  # (m, p) of T
    through: Floats  # (m, t) S^T H^T, over the root of eps
    error: float  # of a length, for a row of length one
    unit: float  # relative error of a dot product

    @property
    def flat(self) -> bool:
        return False

    @property
    def width(self) -> int:
        """Columns of products with a block."""
        return int(2 * self.through.shape[1] + len(self.through))

    def prices(self, view: RowBlock, norms: Floats, coarse: bool) -> Floats:
        """(b,) share |R D phi_i|^2 / eps, rounded up; coarse ones are good guesses."""
        features, through = view.features(), self.through
        v, K = (HOST.dense(features @ rows.T) for rows in (self.targets, self.rows))
        if coarse:
            v, K, through = (HOST.single(part) for part in (v, K, through))
        v = v * v.dtype.type(self.scale)
        v -= K @ through
        lengths = np.sqrt(HOST.square_sums(v)) + self.error * np.sqrt(norms)
        return np.asarray(self.share * lengths.astype(np.float64) ** 2 * (1.0 + 8.0 * self.unit))


def _unit(view: View, m: int) -> float:
    """Relative rounding error of products of rows with m others and with what is made of these."""
    return 4.0 * (view.p + m + 16) * HALF_UNIT * view.cancellation


def span(K: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues of a kernel, descending, and B (m, r) with orthonormal Phi^T B: without those
    beside which rounding would count."""
    lam, Q = eigh(K, driver="evd")
    lam, Q = lam[::-1], Q[:, ::-1]
    kept = lam > len(K) * np.finfo(np.float64).eps * max(float(lam[0]), 0.0)
    return lam[kept], Q[:, kept] / np.sqrt(lam[kept])


def root_of(X: Floats) -> Floats:
    """(r, r) with the same products of columns as X (t, r)."""
    t, r = X.shape
    return np.asarray(np.linalg.qr(X, mode="r") if t > r else np.vstack([X, np.zeros((r - t, r))]))


def share_products(view: View, rows: Indices) -> Floats:
    """(m, t) products of these rows with A."""
    return np.asarray(target_products(view, rows) / np.sqrt(view.moments.trace))
