"""The feature maps in each kind of coordinates: of the rows, of their range, and of their span.

Block tasks and the arithmetic of products; which coordinates a solve works in, and what they cost,
is decided in `coordinates.py`.
"""

import functools
import operator
from typing import Any

import numpy as np
from scipy.linalg import eigh

from fairnepv.compute import HOST, Block
from fairnepv.objective.geometry import EUCLIDEAN, Geometry
from fairnepv.views import Pool
from fairnepv.views.base import Floats

_SOUND = 1e-4  # ratio of eigenvalues of X^T X above which X (X^T X)^-1/2 is orthonormal to rounding
_FAINTEST = 1e-13  # what is below is as good as lost in the rounding of X^T X
_PUSH = 1e-10
_ROUNDS = 4


def random_coefficients(pool: Pool, columns: int, rng: np.random.Generator) -> tuple[Floats, ...]:
    """Gaussian (p_q, columns), weighted so that views have the same size, whatever their units."""
    return tuple(
        rng.standard_normal((view.p, columns)) / np.sqrt(total if total > 0 else 1.0)
        for view, total in zip(pool.views, pool.squared_norms.sum(axis=0), strict=True)
    )


# --- the rows themselves --------------------------------------------------------------------------


class PoolMaps:
    """Feature maps of the rows themselves; each product is one pass."""

    passes_per_adjoint = passes_per_combine = 1
    geometry: Geometry = EUCLIDEAN

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.dimension = min(pool.n, pool.width)

    @functools.cached_property
    def traces(self) -> Floats:
        return np.asarray(self.pool.squared_norms.sum(axis=0))

    def adjoint(self, V: Floats) -> tuple[Floats, ...]:
        k = V.shape[1]
        return self.pool.reduce(
            _block_adjoint, _add_each, None, V, width=k, total=k * self.pool.width, fixed=True
        )

    def combine(self, Y: tuple[Floats, ...]) -> Floats:
        return self.pool.map(block_combine, Y, width=2 * Y[0].shape[1], fixed=True)

    def images(self, Y: tuple[Floats, ...]) -> tuple[Floats, ...]:
        k = Y[0].shape[1]
        side_by_side = self.pool.map(_block_images, Y, width=2 * len(Y) * k, fixed=True)
        return tuple(np.ascontiguousarray(part) for part in np.split(side_by_side, len(Y), axis=1))


def _block_adjoint(block: Block, state: None, V: Floats) -> tuple[Floats, ...]:
    return tuple(view.features().T @ V for view in block.views)


def _block_images(block: Block, Y: tuple[Floats, ...]) -> Floats:
    return np.hstack([view.features() @ y for view, y in zip(block.views, Y, strict=True)])


def block_combine(block: Block, Y: tuple[Floats, ...]) -> Floats:
    """sum_q Phi_q Y_q on these rows."""
    products = (view.features() @ y for view, y in zip(block.views, Y, strict=True))
    return functools.reduce(operator.iadd, products)


def block_row_norms(block: Block, Y: tuple[Floats, ...]) -> Floats:
    """(b,) squared norms of the rows of sum_q Phi_q Y_q."""
    return np.asarray(HOST.square_sums(block_combine(block, Y)))


def block_square(block: Block, Y: tuple[Floats, ...]) -> Floats:
    return np.asarray(block_row_norms(block, Y).sum())


def _add_each(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """left += right: partial sums are used once, and may be large."""
    for a, b in zip(left, right, strict=True):
        a += b
    return left


# --- their joint range ----------------------------------------------------------------------------


class MatrixMaps:
    """Feature maps held as matrices (r, p_q), one per view, without the rows of zeros below."""

    passes_per_adjoint = passes_per_combine = 0
    geometry: Geometry = EUCLIDEAN

    def __init__(self, R: Floats, widths: list[int]) -> None:
        self._cuts = np.cumsum(widths)[:-1]
        parts = np.split(R, self._cuts, axis=1)
        heights = [1 + max(np.flatnonzero(part.any(axis=1)), default=0) for part in parts]
        self._views = [
            np.ascontiguousarray(part[:height]) for part, height in zip(parts, heights, strict=True)
        ]
        self.traces = np.array([np.vdot(R_q, R_q) for R_q in self._views])
        self.dimension = len(R)

    def split(self, Z: Floats) -> tuple[Floats, ...]:
        return tuple(np.split(Z, self._cuts))

    def adjoint(self, V: Floats) -> tuple[Floats, ...]:
        return tuple(_thin_product(V[: len(R)], R) for R in self._views)

    def combine(self, Y: tuple[Floats, ...]) -> Floats:
        return functools.reduce(operator.iadd, self.images(Y))

    def images(self, Y: tuple[Floats, ...]) -> tuple[Floats, ...]:
        images = tuple(np.zeros((self.dimension, y.shape[1])) for y in Y)
        for R, y, image in zip(self._views, Y, images, strict=True):
            image[: len(R)] = _thin_product(y, R.T)
        return images


def _thin_product(X: Floats, R: Floats) -> Floats:
    """R^T X for few columns X, as (X^T R)^T: that takes OpenBLAS two thirds of the time."""
    return np.ascontiguousarray((X.T @ R).T)


# --- their span -----------------------------------------------------------------------------------


class SpanMaps(PoolMaps):
    """Feature maps on vectors of the span of the columns; `images` and `combine` are one pass.

    X = Phi C is kept as the pair of C and Phi^T X, (P, k) each, one above the other. So Phi_q^T X
    is there to be read, and X^T Y is C^T (Phi^T Y).
    """

    passes_per_adjoint, passes_per_combine = 0, 1

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._cuts = np.cumsum([view.p for view in pool.views])
        self.geometry = Pairs(self)

    def split(self, C: Floats) -> tuple[Floats, ...]:
        return tuple(np.split(C, self._cuts[:-1]))

    def adjoint(self, V: Floats) -> tuple[Floats, ...]:
        return self.split(V[len(V) // 2 :])

    def combine(self, Y: tuple[Floats, ...]) -> Floats:
        k, P = Y[0].shape[1], self.pool.width
        below = self.pool.reduce(
            _block_gram_product, _add_each, Y, width=2 * k, total=k * P, fixed=True
        )
        return np.vstack([*Y, *below])

    def images(self, Y: tuple[Floats, ...]) -> tuple[Floats, ...]:
        M, k, P = len(Y), Y[0].shape[1], self.pool.width
        below = self.pool.reduce(
            _block_gram_images, _add_each, Y, width=2 * M * k, total=M * k * P, fixed=True
        )
        pairs = []
        for q, (y, stop) in enumerate(zip(Y, self._cuts, strict=True)):
            pair = np.zeros((2 * P, k))
            pair[stop - len(y) : stop] = y
            np.concatenate(below[q * M : (q + 1) * M], out=pair[P:])
            pairs.append(pair)
        return tuple(pairs)


def _block_gram_product(block: Block, Y: tuple[Floats, ...]) -> tuple[Floats, ...]:
    """Phi_p^T sum_q Phi_q Y_q on these rows, for every view p."""
    Phis = [view.features() for view in block.views]
    W = functools.reduce(operator.iadd, (Phi @ y for Phi, y in zip(Phis, Y, strict=True)))
    return tuple(Phi.T @ W for Phi in Phis)


def _block_gram_images(block: Block, Y: tuple[Floats, ...]) -> tuple[Floats, ...]:
    """Phi_p^T Phi_q Y_q on these rows, for every image q all views p."""
    Phis = [view.features() for view in block.views]
    images = [Phi @ y for Phi, y in zip(Phis, Y, strict=True)]
    return tuple(Phi.T @ W for W in images for Phi in Phis)


class Pairs(Geometry):
    """Vectors X = Phi C as pairs (C, Phi^T X); see `SpanMaps`.

    What both halves undergo alike, rounding pulls apart: slowly in the course of an iteration, and
    at once where the columns of X nearly depend on each other. `renew` joins them by a pass. And
    where the columns of Phi are dependent, C need not vanish when X does: norms have an error of
    the square root of rounding.
    """

    passes_per_renewal = 1
    faintest = 1e-6

    def __init__(self, maps: SpanMaps) -> None:
        self._maps = maps

    def inner(self, X: Floats, Y: Floats) -> Floats:
        P = len(X) // 2
        return X[:P].T @ Y[P:]

    def dot(self, X: Floats, Y: Floats) -> float:
        P = len(X) // 2
        return float(np.vdot(X[:P], Y[P:]))

    def orthonormalize(self, X: Floats) -> Floats:
        """X (X^T X)^-1/2, again after a renewal while X^T X is ill-conditioned (as in CholeskyQR2).

        What drowns in the rounding of X^T X comes up by a factor of 3e6 with each renewal, at the
        cost of a pass. What is down there after the first one was never above rounding: columns
        depend on each other, and are pushed apart.
        """
        for round_ in range(_ROUNDS):
            lam, E = eigh(self.inner(X, X), check_finite=False)
            if round_ == 1 and lam[0] < _FAINTEST * lam[-1]:
                push = self.random(X, np.random.default_rng(0))
                X = X + _PUSH * self.norm(X) / self.norm(push) * push
                lam, E = eigh(self.inner(X, X), check_finite=False)
            X = X @ ((E / np.sqrt(np.maximum(lam, _FAINTEST * lam[-1]))) @ E.T)
            if lam[0] > _SOUND * lam[-1]:
                break
            X = self.renew(X)
        return X

    def random(self, like: Floats, rng: np.random.Generator) -> Floats:
        """Phi Omega with views weighted to the same size, whatever their units."""
        return self._maps.combine(random_coefficients(self._maps.pool, like.shape[1], rng))

    def renew(self, X: Floats) -> Floats:
        return self._maps.combine(self._maps.split(X[: len(X) // 2]))
