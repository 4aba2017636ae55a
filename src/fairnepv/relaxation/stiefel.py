"""Geometry of frames with orthonormal columns, each operation a few lines.

A frame V (n, k) stands for the subspace that it spans; tangent vectors are horizontal, V^T xi = 0.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh, qr

from fairnepv.views.base import Floats


def retract(V: Floats, xi: Floats) -> Floats:
    """The polar factor of V + xi, the orthonormal frame nearest to it.

    Through the (k, k) matrix (V + xi)^T (V + xi), which is at least the identity, so the square
    root is safe; whatever V had lost in orthonormality is restored on the way.
    """
    W = V + xi
    lam, E = eigh(W.T @ W, check_finite=False)
    nearest: Floats = W @ ((E / np.sqrt(lam)) @ E.T)
    return nearest


def orthonormalize(X: Floats) -> Floats:
    """An orthonormal basis of the columns of X (completed if they are dependent)."""
    Q, R = qr(X, mode="economic", check_finite=False)
    signs = np.where(np.diagonal(R) < 0, -1.0, 1.0)  # the QR of a full-rank X is then unique
    return np.asarray(Q * signs)
