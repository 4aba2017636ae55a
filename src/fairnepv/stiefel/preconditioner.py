"""What the Hessian of f_tau looks like where it is ill-conditioned, cheap enough to invert.

Write A_q = L_q V G_q^-1 = V + b_q: b_q, (n, k) and normal to V, is view q's own gradient, and
A_perp = (1/k) sum_q w_q b_q. Let C_q be the Schur complement, what is left of L_q once V is known.
The negative Hessian of f_tau, in units of 2/k, maps a tangent x to

    x - sum_q w_q C_q x G_q^-1  +  sum_q w_q b_q x^T b_q
      + (2 / (k tau)) sum_q w_q (<b_q, x> - sum_p w_p <b_p, x>) b_q.

Two of its terms make trouble. Where a binding view is narrower than k, its G_q^-1 has eigenvalues
1/eps, and the first difference all but vanishes along some columns of x. Replacing C_q by its mean
c_q times the identity keeps that, and leaves a (k, k) matrix D = I - sum_q w_q c_q G_q^-1 to be
applied from the right. And a small tau makes the last term huge along M - 1 directions, which
Woodbury's formula takes out exactly. The transposed term is bounded and left to the memory of the
ascent. Another utility answers for D itself (`Utility.across_frame`); the last term has the same
form, with the gradients b_q of its views. What that saves is told in docs/decisions/0005;
`benchmarks/solvers.py` counts today's.
"""

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.lapack import dpotrf

from fairnepv.objective import Point, inverse_from_cholesky
from fairnepv.objective.geometry import add_to
from fairnepv.views.base import Floats

_LEAST = 1e-6  # of D's eigenvalues: beyond, a mean says nothing


class Preconditioner:
    """An approximate inverse of the negative Hessian at a point, symmetric positive definite."""

    def __init__(self, point: Point) -> None:
        f = point.objective
        self._geometry = point.geometry
        self._inverse = 0.5 * point.divisor * _inverse_right(point)  # (k, k)
        # The stiff term is a sum over M - 1 differences of views. Phi_q Phi_q^T V G_q^-1 stands for
        # b_q, from which it differs along V by V (I - N_q) only. Inner products with tangent
        # vectors are the same, and the ascent projects its direction; what its memory holds off the
        # tangent space is of second order and does no harm.
        *images, last = point.view_images
        stiff = [image - last for image in images]
        self._turned = [u @ self._inverse for u in stiff]
        w = point.weights[:-1]
        stiffness = 4.0 / (point.divisor**2 * f.tau) * (np.diag(w) - np.outer(w, w))
        products = _stiff_products(point, stiff, self._turned, self._inverse)
        self._core = np.linalg.solve(np.eye(len(w)) + stiffness @ products, stiffness)

    def solve(self, x: Floats) -> Floats:
        """Up to a part along V, the step that a tangent gradient x asks for."""
        y = x @ self._inverse
        for amount, turned in zip(self._core @ self._along(x), self._turned, strict=True):
            add_to(y, -amount, turned)
        return y

    def quadratic(self, x: Floats) -> float:
        """<x, solve(x)>, at half the work."""
        along = self._along(x)
        own = np.vdot(self._geometry.inner(x, x), self._inverse)
        return float(own - along @ self._core @ along)

    def _along(self, x: Floats) -> Floats:
        """<u, x D^-1> for every difference u."""
        return np.array([self._geometry.dot(turned, x) for turned in self._turned])


def _stiff_products(
    point: Point, stiff: list[Floats], turned: list[Floats], inverse: Floats
) -> Floats:
    """<u_p, u_q D^-1> of the differences off V, where the images have parts along it, too."""
    dot = point.geometry.dot
    *factors, last = point.factors
    along_V = [factor.along - last.along for factor in factors]
    return np.array(
        [
            [dot(u, t) - np.vdot(a, b @ inverse) for t, b in zip(turned, along_V, strict=True)]
            for u, a in zip(stiff, along_V, strict=True)
        ]
    ).reshape(len(stiff), len(stiff))


def _inverse_right(point: Point) -> Floats:
    """D^-1, with D's eigenvalues kept above the residual: far from a solution D is only a guess."""
    f, inner = point.objective, point.geometry.inner
    squares = (inner(image, image) for image in point.view_images)
    room = f.maps.dimension - f.k
    D = f.utility.across_frame(point.factors, point.weights, squares, f.maps.traces, room)
    scale = point.divisor / point.unit  # the mean of V^T A in these units
    return _inverse_above(D, scale * max(_LEAST, min(1.0, point.residual)))


def _inverse_above(D: Floats, least: float) -> Floats:
    """D^-1 with the eigenvalues of D raised to `least`; by Cholesky where none is below."""
    R, _ = dpotrf(D, lower=False)
    _, below = dpotrf(D - least * np.eye(len(D)), lower=False)
    if not below:
        return inverse_from_cholesky(R)
    lam, E = eigh(D, driver="evd", check_finite=False)
    inverse: Floats = (E / np.maximum(lam, least)) @ E.T
    return inverse
