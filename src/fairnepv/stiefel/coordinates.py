"""Where frames live: in n dimensions, or in the joint range of the views, where n disappears.

If V_0 lies in the range of Phi = [Phi_1 ... Phi_M] = Q R, every iterate does, and the iteration on
Y in St(r, k) with the factors R_q is exactly the iteration on V = Q Y (docs/method.md#coordinates).
So is the one on C with V = Phi C, where Phi is too wide for a Gram matrix: it reads the rows once
per step and keeps nothing of length n. The solvers see `maps` and never learn which coordinates
they work in.
"""

from abc import ABC, abstractmethod

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from fairnepv.compute import HOST
from fairnepv.objective import FeatureMaps
from fairnepv.objective.geometry import EUCLIDEAN
from fairnepv.problem import WIDEST_GRAM, Problem
from fairnepv.stiefel.maps import MatrixMaps, PoolMaps, SpanMaps, block_row_norms, block_square
from fairnepv.stiefel.rows import converted_rows
from fairnepv.views import Pool
from fairnepv.views.base import Floats, Indices
from fairnepv.views.blocks import inverse_norms

_SPARSE = 20.0  # a multiply-add of SciPy's sparse products takes as long as so many of BLAS
LARGEST_FRAME = 1 << 24  # numbers of a frame in n dimensions, of which a solve keeps two dozen
_EASY_FRAME = 1 << 21  # numbers that go to workers and come back in some ten milliseconds
_TYPICAL_STEPS = 150  # and products with the Hessian
_CLOSE, _MOST_ITERATIONS = 1e-13, 200  # of conjugate gradients
_UNFAITHFUL = 1e-10  # what R^T R may lack of a Gram matrix of unit columns
_TINY = np.finfo(np.float64).tiny


class Coordinates(ABC):
    """How frames of a pool are held, and the way there from n rows and back."""

    dimension: int
    maps: FeatureMaps

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @abstractmethod
    def lower(self, V: Floats) -> Floats:
        """A frame (dimension, k) for the subspace of V (n, k), projected if it sticks out."""

    @abstractmethod
    def lower_rows(self, indices: Indices) -> Floats:
        """The same for the coordinate frame of these rows."""

    @abstractmethod
    def lift(self, Y: Floats) -> Floats:
        """The frame (n, k) that Y stands for."""

    @abstractmethod
    def leverage(self, Y: Floats) -> Floats:
        """(n,) squared row norms of the lifted frame [FairNEPv, section 4.4]."""

    def left_out(self, Y: tuple[Floats, ...]) -> float:
        """Frobenius norm of what these coordinates cannot hold of sum_q Phi_q Y_q."""
        return 0.0

    def products(self, k: int) -> float:
        """Multiply-adds of one `adjoint` or `combine`."""
        return float(self._pool.stored) * k

    def released(self) -> "Coordinates":
        """The same for a result that is kept: without a copy of the rows."""
        return self


def choose_coordinates(problem: Problem) -> Coordinates:
    """Those of the least work over a typical solve."""
    work = coordinate_work(problem)
    kind = min(work, key=work.__getitem__)
    return coordinates_of(problem, kind)


def coordinates_of(problem: Problem, kind: str) -> Coordinates:
    """Coordinates of this kind, with rows that are converted once."""
    if kind == "reduced":
        return Reduced(problem.pool)
    by_rows = Ambient if kind == "ambient" else Spanned
    return by_rows(problem.pool, converted_rows(problem))


def coordinate_work(problem: Problem) -> dict[str, float]:
    """Multiply-adds of a typical solve in each kind of coordinates that is possible.

    A step multiplies by all feature maps and their transposes (in the span, the transposes by the
    images of all views) and frames by (k, k) matrices: of n rows, of r <= P, or of pairs of P.
    Multiply-adds of sparse views count for more. Frames of n rows are few or small, since they may
    have to travel with every pass; on all engines alike, or answers would depend on these.
    """
    pool, n, k = problem.pool, problem.n, problem.k
    P, M = pool.width, len(pool.views)
    stored = sum(v.stored * (_SPARSE if v.stored < v.n * v.p else 1.0) for v in pool.views)
    step = {"spanned": (1.0 + M) * stored * k + 16.0 * P * k**2}
    if n * k <= _EASY_FRAME or n <= P:
        step["ambient"] = 2.0 * stored * k + 10.0 * n * k**2
    if P <= WIDEST_GRAM:
        step["reduced"] = 2.0 * P**2 * k + 10.0 * P * k**2
    beforehand = {"reduced": n * P**2 + P**3}  # the Gram matrix, its factor and the start
    return {kind: _TYPICAL_STEPS * step[kind] + beforehand.get(kind, 0.0) for kind in step}


class Ambient(Coordinates):
    """All n dimensions, matrix-free: every product is a pass over the rows."""

    def __init__(self, pool: Pool, rows: Pool | None = None) -> None:
        """`rows` are those of the pool, converted for its passes."""
        super().__init__(pool)
        self.dimension = pool.n
        self.maps = PoolMaps(rows or pool)

    def released(self) -> "Ambient":
        return Ambient(self._pool)

    def lower(self, V: Floats) -> Floats:
        return EUCLIDEAN.orthonormalize(V)

    def lower_rows(self, indices: Indices) -> Floats:
        V = np.zeros((self.dimension, len(indices)))
        V[indices, np.arange(len(indices))] = 1.0
        return V

    def lift(self, Y: Floats) -> Floats:
        return Y

    def leverage(self, Y: Floats) -> Floats:
        return np.asarray(HOST.square_sums(Y))


class WithinRange(Coordinates):
    """Frames in the joint range of the views: V = Phi C for some coefficients C."""

    @abstractmethod
    def nearest(self, B: Floats) -> Floats:
        """The frame for the subspace of a V of which B = Phi^T V (P, k) is known."""

    @abstractmethod
    def coefficients(self, Y: Floats) -> tuple[Floats, ...]:
        """C per view, for the frame that Y stands for."""

    def lower(self, V: Floats) -> Floats:
        return self.nearest(np.vstack(PoolMaps(self._pool).adjoint(V)))

    def lower_rows(self, indices: Indices) -> Floats:
        rows = [view.rows(indices) for view in self._pool.views]
        return self.nearest(np.vstack([HOST.dense(x.T) for x in rows]))

    def lift(self, Y: Floats) -> Floats:
        return EUCLIDEAN.orthonormalize(PoolMaps(self._pool).combine(self.coefficients(Y)))

    def leverage(self, Y: Floats) -> Floats:
        C = self.coefficients(Y)
        return self._pool.map(block_row_norms, C, width=2 * Y.shape[1], fixed=True)


class Reduced(WithinRange):
    """The joint range of the views, found from one pass for the Gram matrix.

    Columns are brought to unit length before the rank is decided, so that neither a view nor a
    column is lost for its units; what then drowns in rounding depends on the other columns. R is
    triangular by views, the widest first, so that products skip what is zero; where a view has next
    to nothing of what another one has much of, that would lose digits, and R is triangular alone.
    """

    maps: MatrixMaps

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        widths = [view.p for view in pool.views]
        lengths = np.sqrt(np.diagonal(pool.gram))
        inverse = inverse_norms(np.diagonal(pool.gram))
        gram = pool.gram * inverse * inverse[:, None]
        R, independent = _triangular_by_views(gram, widths)
        if _missed(R, gram) > _UNFAITHFUL:
            R, independent = _triangular_by_views(gram, [pool.width])
        self.dimension = len(R)
        self.R = R * lengths  # (r, P), Phi = Q R
        self.maps = MatrixMaps(self.R, widths)
        self._C = np.zeros((pool.width, self.dimension))  # (P, r), Q = Phi C
        self._C[independent] = solve_triangular(
            R[:, independent], np.eye(self.dimension), check_finite=False
        )
        self._C *= inverse[:, None]

    def products(self, k: int) -> float:
        return float(self.dimension) * self._pool.width * k

    def nearest(self, B: Floats) -> Floats:
        return EUCLIDEAN.orthonormalize(self._C.T @ B)

    def coefficients(self, Y: Floats) -> tuple[Floats, ...]:
        return self.maps.split(self._C @ Y)

    def left_out(self, Y: tuple[Floats, ...]) -> float:
        W = np.vstack(Y)
        outside = self.maps.split(W - self._C @ (self.R @ W))  # (I - Q Q^T) Phi W = Phi (I - C R) W
        squares = self._pool.reduce(block_square, np.add, outside, width=2 * W.shape[1], fixed=True)
        return float(np.sqrt(squares))


def _missed(R: Floats, gram: Floats) -> float:
    """The largest entry of R^T R - gram."""
    rest: Floats = R.T @ R
    rest -= gram
    return float(max(rest.max(initial=0.0), -rest.min(initial=0.0)))


def _triangular_by_views(gram: Floats, widths: list[int]) -> tuple[Floats, Indices]:
    """R (r, P) with R^T R = gram, and r independent columns that make R triangular.

    A Cholesky factorisation that pivots within one view after the other, the widest first: the rows
    of R that a view adds are zero in the columns of the views before it. That is to rounding where
    there is one view; else a small pivot magnifies it for the columns of later views.
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


class Spanned(WithinRange):
    """V = Phi C, for views too wide for a Gram matrix: nothing is as large as n k or P^2.

    Where columns of Phi depend on each other C is not unique, and lengths of tangent vectors are
    sure to the root of rounding only; that is plenty for an ordering of candidates.
    """

    maps: SpanMaps

    def __init__(self, pool: Pool, rows: Pool | None = None) -> None:
        """`rows` are those of the pool, converted for its passes."""
        super().__init__(pool)
        self.dimension = min(pool.n, pool.width)
        self.maps = SpanMaps(rows or pool)

    def released(self) -> "Spanned":
        return Spanned(self._pool)

    def nearest(self, B: Floats) -> Floats:
        """Conjugate gradients on the normal equations, columns side by side, views in equal units;
        a pass per iteration."""
        maps, P = self.maps, len(B)
        widths = [view.p for view in self._pool.views]
        scale = 1.0 / np.repeat(np.maximum(maps.traces, _TINY), widths)[:, None]
        C, r, X = np.zeros_like(B), B.copy(), maps.combine(maps.split(scale * B))
        rr = np.einsum("ij,ij->j", r, scale * r)
        enough = _CLOSE**2 * rr
        for _ in range(_MOST_ITERATIONS):
            bend = np.einsum("ij,ij->j", X[:P], X[P:])
            alpha = np.where((rr > enough) & (bend > 0), rr / np.maximum(bend, _TINY), 0.0)
            if not alpha.any():
                break
            C += alpha * X[:P]
            r -= alpha * X[P:]
            before, rr = rr, np.einsum("ij,ij->j", r, scale * r)
            beta = rr / np.maximum(before, _TINY)
            X = maps.combine(maps.split(scale * r + beta * X[:P]))
        return maps.geometry.orthonormalize(maps.combine(maps.split(C)))

    def coefficients(self, Y: Floats) -> tuple[Floats, ...]:
        return self.maps.split(Y[: len(Y) // 2])
