"""Where an iteration begins.

Named starts lie in the joint range of the feature maps and so name the same subspace in all
coordinates. A frame or a selector that sticks out of that range is taken as it is in n dimensions
and projected onto it in the others.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, eigvalsh, svd
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from fairnepv.errors import InputError
from fairnepv.objective import FeatureMaps
from fairnepv.objective.geometry import EUCLIDEAN
from fairnepv.problem import Problem, Stream
from fairnepv.stiefel.coordinates import Ambient, Coordinates, Reduced
from fairnepv.stiefel.maps import random_coefficients
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Floats, Indices

_PERTURBATION = 1e-2
_SUBSPACE_ITERATIONS = 2  # six led the ascent no further on a sparse pool, k = 100
_EXACT_SPECTRUM = 20_000


def check_start(problem: Problem, start: Any) -> str | NDArray[Any]:
    """'spectral', 'random', a frame (n, k) to warm-start from, or k row indices (a selector)."""
    n, k = problem.n, problem.k
    if isinstance(start, str):
        if start not in ("random", "spectral"):
            raise InputError(
                f"start must be 'spectral', 'random', a frame or row indices, not {start!r}"
            )
        return start
    array = plain_array(start, "start")
    if array.shape == (n, k) and array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise InputError("start has values that are NaN or infinite")
        if np.linalg.matrix_rank(array) < k:
            raise InputError(f"start must have {k} linearly independent columns")
        return array.astype(np.float64)
    if array.shape == (k,) and array.dtype.kind in "iu":
        rows = np.unique(array)
        if len(rows) < k or rows[0] < 0 or rows[-1] >= n:
            raise InputError(f"start must name {k} different rows from 0 to {n - 1}")
        return array.astype(np.int64)
    raise InputError(
        f"start must be a float frame of shape ({n}, {k}) or {k} row indices, not {array.dtype} "
        f"of shape {array.shape}"
    )


def start_frame(problem: Problem, coordinates: Coordinates, start: str | NDArray[Any]) -> Floats:
    """The frame that a checked start stands for."""
    if isinstance(start, str):
        build = random_start if start == "random" else spectral_start
        return build(problem, coordinates)
    if start.ndim == 2:
        return coordinates.lower(start)
    return selector_start(problem, coordinates, start)


def random_start(problem: Problem, coordinates: Coordinates) -> Floats:
    """The range of Phi Omega for a Gaussian Omega."""
    maps = coordinates.maps
    return maps.geometry.orthonormalize(_random_range(problem, maps, problem.k))


def spectral_start(problem: Problem, coordinates: Coordinates) -> Floats:
    """The dominant subspace of the averaged kernel, sum_q Phi_q Phi_q^T.

    Exact in reduced coordinates, to rounding in n dimensions up to 20,000; elsewhere some subspace
    iterations come close enough for a start and read the rows less often.
    """
    k, maps = problem.k, coordinates.maps
    if isinstance(coordinates, Reduced):
        R = coordinates.R
        top = [coordinates.dimension - k, coordinates.dimension - 1]
        return np.asarray(eigh(R @ R.T, subset_by_index=top, check_finite=False)[1])
    if isinstance(coordinates, Ambient) and problem.n <= _EXACT_SPECTRUM:
        exact = _lanczos(problem, maps)
        if exact is not None:
            return exact
    V = random_start(problem, coordinates)
    for _ in range(_SUBSPACE_ITERATIONS):
        V = maps.geometry.orthonormalize(maps.combine(maps.adjoint(V)))
    return V


def _lanczos(problem: Problem, maps: FeatureMaps) -> Floats | None:
    """The dominant subspace by ARPACK; None where clustered eigenvalues keep it from converging."""
    n = problem.n
    kernel = LinearOperator((n, n), matvec=lambda v: maps.combine(maps.adjoint(v.reshape(-1, 1))))
    v0 = problem.rng(Stream.RELAXED_SAMPLE).standard_normal(n)
    try:
        return EUCLIDEAN.orthonormalize(eigsh(kernel, k=problem.k, which="LA", v0=v0)[1])
    except ArpackNoConvergence:
        return None


def selector_start(problem: Problem, coordinates: Coordinates, indices: Indices) -> Floats:
    """The coordinate frame of a subset, pushed off its axes a little.

    With diagonal kernels every coordinate frame is stationary, a saddle as a rule, and an
    iteration that starts there would never move.
    """
    maps = coordinates.maps
    Y, push = coordinates.lower_rows(indices), _random_range(problem, maps, problem.k)
    largest = np.sqrt(eigvalsh(maps.geometry.inner(push, push))[-1])
    return maps.geometry.orthonormalize(Y + _PERTURBATION / largest * push)


def small_range(problem: Problem, coordinates: Coordinates) -> Floats | None:
    """A basis of the joint range of the views, if its dimension is at most k.

    Reduced coordinates know it. Elsewhere k + 1 random combinations of all feature columns span a
    range of dimension up to k, and show a larger one by being independent.
    """
    n, k, maps = problem.n, problem.k, coordinates.maps
    if isinstance(coordinates, Reduced):
        return np.eye(coordinates.dimension) if k >= coordinates.dimension else None
    X, geometry = _random_range(problem, maps, k + 1), maps.geometry
    noise = max(n, problem.pool.width) * np.finfo(np.float64).eps
    if geometry is EUCLIDEAN:
        U, s, _ = svd(X, full_matrices=False, check_finite=False)
        rank = int((s > noise * s[0]).sum())
        return np.asarray(U[:, :rank]) if rank <= k else None
    lam, E = eigh(geometry.inner(X, X), check_finite=False)
    found = lam > noise * lam[-1]
    if found.all():
        return None
    return geometry.orthonormalize(X @ (E[:, found] / np.sqrt(lam[found])))


def _random_range(problem: Problem, maps: FeatureMaps, columns: int) -> Floats:
    """Phi Omega with views weighted to the same size, whatever their units."""
    rng = problem.rng(Stream.RANDOM_START)
    return maps.combine(random_coefficients(problem.pool, columns, rng))
