"""Where an iteration begins.

'spectral' and 'sketch' lie in the joint range of the feature maps and so name the same subspace in
all coordinates. What sticks out of that range ('random', which is uniform on St(n, k), frames,
selectors) is taken as it is in n dimensions and projected onto it in the others; whoever asks for a
frame hears whether it is whole.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, eigvalsh, svd

from fairnepv.compute.clock import check_time, left, now
from fairnepv.errors import InputError
from fairnepv.objective import FeatureMaps
from fairnepv.objective.geometry import EUCLIDEAN, Geometry
from fairnepv.options import STARTS
from fairnepv.problem import Problem, Stream
from fairnepv.stiefel.coordinates import Ambient, Coordinates, Reduced
from fairnepv.stiefel.maps import random_coefficients
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Floats, Indices

_PERTURBATION = 1e-2
_HELD = 1e-6  # of a frame, what the coordinates of a Gram matrix may leave out for rounding
_KRYLOV_STEPS, _MORE_COLUMNS = 3, 10  # eight products with all features
_STILL_TO_COME = 3.0  # times a step of that: another one, the best subspace, and the first point
_FAINT = 1e-10  # of the largest eigenvalue of X^T X: what is below drowns in rounding
_SURELY_INDEPENDENT = 1e-8  # ratio of eigenvalues of X^T X above which X has full rank


def check_start(problem: Problem, start: Any) -> str | NDArray[Any]:
    """One of `STARTS`, a frame (n, k) to warm-start from, or k row indices (a selector)."""
    n, k = problem.n, problem.k
    if isinstance(start, str):
        if start not in STARTS:
            named = ", ".join(map(repr, STARTS))
            raise InputError(f"start must be {named}, a frame or row indices, not {start!r}")
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


def start_frame(
    problem: Problem, coordinates: Coordinates, start: str | NDArray[Any]
) -> tuple[Floats, bool]:
    """The frame that a checked start stands for, and whether these coordinates hold all of it."""
    ambient = isinstance(coordinates, Ambient)
    if isinstance(start, str):
        Y = _NAMED[start](problem, coordinates)
        return Y, ambient or start != "random"
    if start.ndim == 1:
        Y = selector_start(problem, coordinates, start)
        held = ambient or coordinates.leverage(coordinates.lower_rows(start))[start].min()
        return Y, bool(held >= 1.0 - _HELD)
    V = EUCLIDEAN.orthonormalize(start)
    Y = coordinates.lower(V)
    return Y, ambient or _spans(coordinates.lift(Y), V)


def _spans(W: Floats, V: Floats) -> bool:
    """Whether the columns of V lie in the range of the frame W."""
    return bool(np.linalg.norm(V - W @ (W.T @ V)) <= _HELD)


def uniform_start(problem: Problem, coordinates: Coordinates) -> Floats:
    """A frame that is uniform on St(n, k), or its projection on the range: uniform there, too."""
    rng, k = problem.rng(Stream.RANDOM_START), problem.k
    if isinstance(coordinates, Reduced):  # by invariance, without a frame of n rows
        return EUCLIDEAN.orthonormalize(rng.standard_normal((coordinates.dimension, k)))
    return coordinates.lower(rng.standard_normal((problem.n, k)))


def sketch_start(problem: Problem, coordinates: Coordinates) -> Floats:
    """The range of Phi Omega for a Gaussian Omega: random, and mostly what the views have most of.
    One pass."""
    maps = coordinates.maps
    return maps.geometry.orthonormalize(_random_range(problem, maps, problem.k))


def spectral_start(problem: Problem, coordinates: Coordinates) -> Floats:
    """All but the dominant subspace of the averaged kernel K = sum_q Phi_q Phi_q^T.

    Block Krylov from a random range with some columns more than k [MuscoMusco]: the best subspace
    of its last two blocks. In four settings of three pools it had 99.7% or more of what the
    dominant one has of K, and the ascent from there reached 0.1 in as many steps. Where too little
    time is left for more, it is the last block, so that the value of the start can still be known.
    """
    k, maps = problem.k, coordinates.maps
    geometry, columns = maps.geometry, min(k + _MORE_COLUMNS, maps.dimension)
    X = _independent(geometry, _random_range(problem, maps, columns), k)
    for _ in range(_KRYLOV_STEPS):
        began, before, Z = now(), X, maps.adjoint(X)
        X = _independent(geometry, maps.combine(Z), k)
        if left() < _STILL_TO_COME * (now() - began):
            return geometry.orthonormalize(X[:, -k:])
    blocks = np.hstack([before, X])
    images = [np.hstack(pair) for pair in zip(Z, maps.adjoint(X), strict=True)]
    T = independent_columns(geometry.inner(blocks, blocks), k)
    images = [image @ T for image in images]
    E = eigh(sum(image.T @ image for image in images), check_finite=False)[1]
    return geometry.orthonormalize(blocks @ (T @ E[:, -k:]))


def _independent(geometry: Geometry, X: Floats, least: int) -> Floats:
    """A basis of the columns of X, orthonormal but for rounding."""
    return np.asarray(X @ independent_columns(geometry.inner(X, X), least))


def independent_columns(gram: Floats, least: int, faint: float = _FAINT) -> Floats:
    """T with T^T gram T = I, of as many columns as gram has rank, but at least so many; what is
    `faint` beside its largest eigenvalue counts as none."""
    lam, E = eigh(gram, check_finite=False)
    kept = lam > faint * lam[-1]
    kept[-least:] = True
    return np.asarray(E[:, kept] / np.sqrt(np.maximum(lam[kept], faint * lam[-1])))


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
    lam, E = eigh(geometry.inner(X, X), check_finite=False)
    if lam[0] > max(_SURELY_INDEPENDENT, noise) * lam[-1]:
        return None
    if geometry is EUCLIDEAN:  # which has the rows themselves, and need square nothing
        U, s, _ = svd(X, full_matrices=False, check_finite=False)
        rank = int((s > noise * s[0]).sum())
        return np.asarray(U[:, :rank]) if rank <= k else None
    found = lam > noise * lam[-1]
    if found.all():
        return None
    return geometry.orthonormalize(X @ (E[:, found] / np.sqrt(lam[found])))


_NAMED = dict(zip(STARTS, (spectral_start, uniform_start, sketch_start), strict=True))


def _random_range(problem: Problem, maps: FeatureMaps, columns: int) -> Floats:
    """Phi Omega with views weighted to the same size, whatever their units."""
    coefficients = random_coefficients(problem.pool, columns, problem.rng(Stream.RANDOM_START))
    check_time()  # many of them take as long as a product
    return maps.combine(coefficients)
