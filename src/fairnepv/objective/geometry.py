"""Geometry of frames with orthonormal columns, each operation a few lines.

A frame V (n, k) stands for the subspace that it spans; tangent vectors are horizontal, V^T xi = 0.
Frames and tangent vectors are arrays with k columns, on which sums and products with (k, k)
matrices from the right mean what they say. How such an array stands for its n rows is the matter
of a `Geometry`, which alone knows their inner product.
"""

from abc import ABC, abstractmethod

import numpy as np
from scipy.linalg import eigh, qr
from scipy.linalg.blas import daxpy

from fairnepv.views.base import Floats


def add_to(total: Floats, factor: float, X: Floats) -> None:
    """total += factor X for contiguous arrays, without a temporary one: that takes as long."""
    daxpy(X.reshape(-1), total.reshape(-1), a=factor)


class Geometry(ABC):
    passes_per_renewal: int = 0  # passes over the rows that `renew` costs
    faintest: float = 1e-10  # of what a vector is left over from: a smaller norm is rounding

    @abstractmethod
    def inner(self, X: Floats, Y: Floats) -> Floats:
        """X^T Y, (k, k)."""

    @abstractmethod
    def dot(self, X: Floats, Y: Floats) -> float:
        """<X, Y>, the trace of `inner`."""

    @abstractmethod
    def orthonormalize(self, X: Floats) -> Floats:
        """An orthonormal basis of the columns of X (completed if they are dependent)."""

    @abstractmethod
    def random(self, like: Floats, rng: np.random.Generator) -> Floats:
        """A random vector of the kind of `like`."""

    def renew(self, X: Floats) -> Floats:
        """X without what rounding has added up in it; X itself where nothing adds up."""
        return X

    def norm(self, X: Floats) -> float:
        return float(np.sqrt(max(self.dot(X, X), 0.0)))

    def project(self, V: Floats, X: Floats) -> Floats:
        """(I - V V^T) X."""
        along = V @ self.inner(V, X)
        return np.subtract(X, along, out=along)

    def retract(self, V: Floats, xi: Floats) -> Floats:
        """The polar factor of V + xi; V may have lost some orthonormality."""
        return self.restore(V + xi)

    def restore(self, W: Floats) -> Floats:
        """The polar factor of W, the orthonormal frame nearest to it.

        Through the (k, k) matrix W^T W, which for V + xi is at least the identity, so that the
        square root is safe.
        """
        lam, E = eigh(self.inner(W, W), driver="evd", check_finite=False)
        if not lam[0] > 0:
            raise np.linalg.LinAlgError("a frame was lost to rounding")
        return np.asarray(W @ ((E / np.sqrt(lam)) @ E.T))


class Path:
    """V + t xi made orthonormal for any t, by one eigenproblem: of xi^T xi, for a tangent xi.

    What V itself has lost in orthonormality stays lost; `Geometry.retract` restores it.
    """

    def __init__(self, geometry: Geometry, V: Floats, xi: Floats) -> None:
        self._V, self._xi = V, xi
        squares, self._E = eigh(geometry.inner(xi, xi), driver="evd", check_finite=False)
        self._squares = np.maximum(squares, 0.0)

    @property
    def widest_angle(self) -> float:
        """The spectral norm of xi."""
        return float(np.sqrt(self._squares[-1]))

    def at(self, t: float) -> Floats:
        """The polar factor of V + t xi."""
        E = self._E
        moved = self._V.copy()
        add_to(moved, t, self._xi)
        return np.asarray(moved @ ((E / np.sqrt(1.0 + t**2 * self._squares)) @ E.T))


class Euclidean(Geometry):
    """Arrays that hold every coordinate of an orthonormal system, such as the n rows themselves."""

    def inner(self, X: Floats, Y: Floats) -> Floats:
        return X.T @ Y

    def dot(self, X: Floats, Y: Floats) -> float:
        return float(np.vdot(X, Y))

    def orthonormalize(self, X: Floats) -> Floats:
        Q, R = qr(X, mode="economic", check_finite=False)
        signs = np.where(np.diagonal(R) < 0, -1.0, 1.0)  # the QR of a full-rank X is then unique
        return np.asarray(Q * signs)

    def random(self, like: Floats, rng: np.random.Generator) -> Floats:
        return rng.standard_normal(like.shape)


EUCLIDEAN = Euclidean()
