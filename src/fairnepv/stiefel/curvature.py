"""Is a stationary point a maximum? Lanczos on the Grassmann Hessian looks for ascent directions.

A zero gradient says nothing about that: with diagonal kernels every coordinate frame is
stationary. What is found is a lower bound on the largest curvature, so "none found" is evidence
and not a proof, and the result says how it was checked.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh_tridiagonal, svd

from fairnepv.objective import Point
from fairnepv.objective.geometry import EUCLIDEAN
from fairnepv.stiefel.iteration import affordable
from fairnepv.views.base import Floats


@dataclass(frozen=True)
class Curvature:
    largest: float  # largest Rayleigh quotient found, times `Point.unit`; positive means ascent
    least: float  # and the least
    direction: Floats  # (n, k) unit tangent vector that attains it
    products: int  # Hessian products spent
    threshold: float

    @property
    def ascends(self) -> bool:
        return self.largest > self.threshold


def largest_curvature(
    point: Point, rng: np.random.Generator, *, threshold: float = 1e-5, products: int = 30
) -> Curvature:
    """The top Ritz pair of the Hessian after `products` Lanczos steps from a random tangent.

    k times a curvature above `threshold` counts as ascent; below lies what rounding, or a residual
    that is not zero yet, can feign.
    """
    geometry = point.geometry
    if geometry is not EUCLIDEAN:  # in a span, what comes after the last direction is rounding
        k = point.V.shape[1]
        products = min(products, k * (point.objective.maps.dimension - k))
    products = affordable(point.V.size, products)
    q = geometry.random(point.V, rng)
    # Turned as the columns of V are: their signs are LAPACK's, and what is found would be, too.
    left, _, right = svd(geometry.inner(q, point.V), check_finite=False)
    q = q @ (left @ right)
    size, q = geometry.norm(q), point.project(q)
    basis: list[Floats] = []
    alphas: list[float] = []
    betas: list[float] = []
    beta = geometry.norm(q)
    while beta > geometry.faintest * size and len(basis) < products:
        basis.append(q / beta)
        q = point.hessian(basis[-1])
        size = geometry.norm(q)
        alphas.append(geometry.dot(basis[-1], q))
        for _ in range(2):  # full reorthogonalisation: few vectors, and ghosts would mislead
            for b in basis:
                q = q - geometry.dot(b, q) * b
        beta = geometry.norm(q)
        betas.append(beta)
    if not basis:  # the tangent space is trivial
        return Curvature(0.0, 0.0, np.zeros_like(point.V), 0, threshold)
    lam, E = eigh_tridiagonal(alphas, betas[: len(alphas) - 1])
    direction = sum(e * b for e, b in zip(E[:, -1], basis, strict=True))
    largest, least = point.unit * float(lam[-1]), point.unit * float(lam[0])
    return Curvature(largest, least, np.asarray(direction), len(basis), threshold)
