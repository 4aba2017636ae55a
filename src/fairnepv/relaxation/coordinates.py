"""Where frames live: in n dimensions, or in the joint range of the views, where n disappears.

If V_0 lies in the range of Phi = [Phi_1 ... Phi_M] = Q R, every iterate does, and the iteration on
Y in St(r, k) with the factors R_q is exactly the iteration on V = Q Y (DESIGN 3.3). The solvers
see `maps` and never learn which coordinates they work in.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from fairnepv.engines import Block
from fairnepv.objective import FeatureMaps
from fairnepv.problem import Problem
from fairnepv.relaxation.stiefel import orthonormalize
from fairnepv.views import Pool
from fairnepv.views.base import Floats, Indices, inverse_norms

WIDEST_GRAM = 4096  # a (P, P) Gram matrix and its eigenvectors: 256 MiB, half a minute
_TYPICAL_EVALUATIONS = 150  # of the objective and of the Hessian, together


class Coordinates(Protocol):
    dimension: int
    passes_per_product: int  # passes over the rows that one `adjoint` or `combine` costs

    @property
    def maps(self) -> FeatureMaps: ...

    def products(self, k: int) -> float:
        """Multiply-adds of one `adjoint` or `combine`."""
        ...

    def lower(self, V: Floats) -> Floats:
        """A frame (dimension, k) for the subspace of V (n, k), projected if it sticks out."""
        ...

    def lift(self, Y: Floats) -> Floats:
        """The frame (n, k) that Y stands for."""
        ...

    def left_out(self, Y: tuple[Floats, ...]) -> float:
        """Frobenius norm of what these coordinates cannot hold of sum_q Phi_q Y_q."""
        ...

    def leverage(self, Y: Floats) -> Floats:
        """(n,) squared row norms of the lifted frame [FairNEPv, section 4.4]."""
        ...


def choose_coordinates(problem: Problem) -> Coordinates:
    """Reduced where that is cheaper over a typical solve, in the n dimensions of the paper else."""
    pool, n, k = problem.pool, problem.n, problem.k
    P, stored = pool.width, pool.stored
    if P > WIDEST_GRAM:
        return Ambient(pool)
    # A product with all feature maps costs `stored` k here and P^2 k there; the reduced form
    # pays n P^2 for the Gram matrix and P^3 for its factor and the start beforehand.
    ambient = _TYPICAL_EVALUATIONS * (4.0 * stored * k + 4.0 * n * k**2)
    reduced = _TYPICAL_EVALUATIONS * (4.0 * P**2 * k + 4.0 * P * k**2)
    return Reduced(pool) if reduced + n * P**2 + P**3 < ambient else Ambient(pool)


class Ambient:
    """All n dimensions, matrix-free: every product is a pass over the rows."""

    passes_per_product = 1

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.dimension = pool.n

    @property
    def maps(self) -> FeatureMaps:
        return PoolMaps(self._pool)

    def products(self, k: int) -> float:
        return float(self._pool.stored) * k

    def lower(self, V: Floats) -> Floats:
        return orthonormalize(V)

    def lift(self, Y: Floats) -> Floats:
        return Y

    def left_out(self, Y: tuple[Floats, ...]) -> float:
        return 0.0

    def leverage(self, Y: Floats) -> Floats:
        return _row_norms(Y)


class Reduced:
    """The joint range of the views, found from one pass for the Gram matrix.

    Columns are brought to unit length before the rank is decided, so that neither a view nor a
    column is lost for its units; what then drowns in rounding depends on the other columns. R is
    triangular by views, the widest first, so that products skip what is zero.
    """

    passes_per_product = 0

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        lengths = np.sqrt(np.diagonal(pool.gram))
        inverse = inverse_norms(np.diagonal(pool.gram))
        R, independent = _triangular_by_views(
            pool.gram * inverse * inverse[:, None], [view.p for view in pool.views]
        )
        self.dimension = len(R)
        self.R = R * lengths  # (r, P), Phi = Q R
        self._C = np.zeros((pool.width, self.dimension))  # (P, r), Q = Phi C
        self._C[independent] = solve_triangular(
            R[:, independent], np.eye(self.dimension), check_finite=False
        )
        self._C *= inverse[:, None]

    @functools.cached_property
    def maps(self) -> MatrixMaps:
        return MatrixMaps(self.R, [view.p for view in self._pool.views])

    def products(self, k: int) -> float:
        return float(self.dimension) * self._pool.width * k

    def lower(self, V: Floats) -> Floats:
        return orthonormalize(self._C.T @ np.vstack(PoolMaps(self._pool).adjoint(V)))

    def lift(self, Y: Floats) -> Floats:
        return orthonormalize(PoolMaps(self._pool).combine(self.maps.split(self._C @ Y)))

    def left_out(self, Y: tuple[Floats, ...]) -> float:
        W = np.vstack(Y)
        outside = self.maps.split(W - self._C @ (self.R @ W))  # (I - Q Q^T) Phi W = Phi (I - C R) W
        squares = self._pool.reduce(
            _block_square, np.add, outside, width=2 * W.shape[1], fixed=True
        )
        return float(np.sqrt(squares))

    def leverage(self, Y: Floats) -> Floats:
        state = self.maps.split(self._C @ Y)
        return self._pool.map(_block_row_norms, state, width=2 * Y.shape[1], fixed=True)


def _triangular_by_views(gram: Floats, widths: list[int]) -> tuple[Floats, Indices]:
    """R (r, P) with R^T R = gram to rounding, and r independent columns that make R triangular.

    A Cholesky factorisation that pivots within one view after the other, the widest first: the rows
    of R that a view adds are zero in the columns of the views before it.
    """
    noise = max(len(gram), 100) * np.finfo(np.float64).eps * float(np.linalg.norm(gram))
    starts = np.cumsum([0, *widths])
    blocks = [np.arange(starts[q], starts[q + 1]) for q in np.argsort(widths, kind="stable")[::-1]]
    rest, rows, independent = gram.copy(), [], []
    for q, block in enumerate(blocks):
        own = rest[np.ix_(block, block)]
        if np.diagonal(own).max() <= noise:  # LAPACK would take the first pivot all the same
            continue
        T, pivots, rank, _ = dpstrf(own, tol=noise, lower=False)
        chosen = block[pivots[:rank] - 1]
        ahead = np.concatenate(blocks[q:])
        strip = np.zeros((rank, len(gram)))
        strip[:, ahead] = solve_triangular(
            np.triu(T[:rank, :rank]), rest[np.ix_(chosen, ahead)], trans="T", check_finite=False
        )
        later = ahead[len(block) :]
        rest[np.ix_(later, later)] -= strip[:, later].T @ strip[:, later]
        rows.append(strip)
        independent.append(chosen)
    if not rows:  # every view is zero
        return np.zeros((0, len(gram))), np.zeros(0, dtype=np.int64)
    return np.vstack(rows), np.concatenate(independent)


class MatrixMaps:
    """Feature maps held as matrices (r, p_q), one per view, without the rows of zeros below."""

    def __init__(self, R: Floats, widths: list[int]) -> None:
        self._cuts = np.cumsum(widths)[:-1]
        self._views = [_without_zeros_below(R_q) for R_q in np.split(R, self._cuts, axis=1)]
        self.traces = np.array([np.vdot(R_q, R_q) for R_q in self._views])
        self.dimension = len(R)

    def split(self, Z: Floats) -> tuple[Floats, ...]:
        return tuple(np.split(Z, self._cuts))

    def adjoint(self, V: Floats) -> tuple[Floats, ...]:
        return tuple(_thin_product(V[: len(R)], R) for R in self._views)

    def combine(self, Y: tuple[Floats, ...]) -> Floats:
        first, *others = self.images(Y)
        return sum(others, start=first)

    def images(self, Y: tuple[Floats, ...]) -> tuple[Floats, ...]:
        images = tuple(np.zeros((self.dimension, y.shape[1])) for y in Y)
        for R, y, image in zip(self._views, Y, images, strict=True):
            image[: len(R)] = _thin_product(y, R.T)
        return images


def _without_zeros_below(R: Floats) -> Floats:
    nonzero = np.flatnonzero(R.any(axis=1))
    return np.ascontiguousarray(R[: nonzero[-1] + 1 if len(nonzero) else 1])


def _thin_product(X: Floats, R: Floats) -> Floats:
    """R^T X for few columns X, as (X^T R)^T: that takes OpenBLAS two thirds of the time."""
    return np.ascontiguousarray((X.T @ R).T)


class PoolMaps:
    """Feature maps of the rows themselves; each product is one pass."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @functools.cached_property
    def traces(self) -> Floats:
        return np.asarray(self._pool.squared_norms.sum(axis=0))

    @property
    def dimension(self) -> int:
        return min(self._pool.n, self._pool.width)

    def adjoint(self, V: Floats) -> tuple[Floats, ...]:
        return self._pool.reduce(_block_adjoint, _add_each, None, V, width=V.shape[1], fixed=True)

    def combine(self, Y: tuple[Floats, ...]) -> Floats:
        return self._pool.map(_block_combine, Y, width=2 * Y[0].shape[1], fixed=True)

    def images(self, Y: tuple[Floats, ...]) -> tuple[Floats, ...]:
        k = Y[0].shape[1]
        side_by_side = self._pool.map(_block_images, Y, width=2 * len(Y) * k, fixed=True)
        return tuple(np.ascontiguousarray(part) for part in np.split(side_by_side, len(Y), axis=1))


def _block_adjoint(block: Block, state: None, V: Floats) -> tuple[Floats, ...]:
    return tuple(view.features().T @ V for view in block.views)


def _block_products(block: Block, Y: tuple[Floats, ...]) -> list[Floats]:
    return [view.features() @ y for view, y in zip(block.views, Y, strict=True)]


def _block_images(block: Block, Y: tuple[Floats, ...]) -> Floats:
    return np.hstack(_block_products(block, Y))


def _block_combine(block: Block, Y: tuple[Floats, ...]) -> Floats:
    first, *others = _block_products(block, Y)
    return sum(others, start=first)


def _block_row_norms(block: Block, C: tuple[Floats, ...]) -> Floats:
    return _row_norms(_block_combine(block, C))


def _block_square(block: Block, Y: tuple[Floats, ...]) -> Floats:
    return np.asarray(_row_norms(_block_combine(block, Y)).sum())


def _row_norms(V: Floats) -> Floats:
    norms: Floats = np.einsum("ij,ij->i", V, V)
    return norms


def _add_each(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))
