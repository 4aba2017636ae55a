"""Where an iteration begins. All starts lie in the range of the feature maps, so that the same
start names the same subspace in reduced and in ambient coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairnepv.errors import InputError
from fairnepv.objective import FeatureMaps
from fairnepv.problem import Problem
from fairnepv.relax.coordinates import Coordinates, Reduced
from fairnepv.relax.stiefel import orthonormalize
from fairnepv.views.base import Floats, Indices

_PERTURBATION = 1e-2
_SUBSPACE_ITERATIONS = 6


def start_frame(problem: Problem, coordinates: Coordinates, start: Any) -> Floats:
    """'spectral', 'random', a frame (n, k) to warm-start from, or k row indices (a selector)."""
    if isinstance(start, str):
        if start == "random":
            return random_start(problem, coordinates.maps)
        if start == "spectral":
            return spectral_start(problem, coordinates)
        raise InputError(
            f"start must be 'spectral', 'random', a frame or row indices, not {start!r}"
        )
    array = np.asarray(start)
    if array.shape == (problem.n, problem.k) and array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise InputError("start has values that are NaN or infinite")
        return coordinates.lower(array.astype(np.float64))
    if array.shape == (problem.k,) and array.dtype.kind in "iu":
        rows = np.unique(array)
        if len(rows) < problem.k or rows[0] < 0 or rows[-1] >= problem.n:
            raise InputError(
                f"start must name {problem.k} different rows from 0 to {problem.n - 1}"
            )
        return selector_start(problem, coordinates, array.astype(np.int64))
    raise InputError(
        f"start must be a float frame of shape ({problem.n}, {problem.k}) or {problem.k} row "
        f"indices, not {array.dtype} of shape {array.shape}"
    )


def random_start(problem: Problem, maps: FeatureMaps) -> Floats:
    """The range of Phi Omega for a Gaussian Omega."""
    return orthonormalize(_random_range(problem, maps))


def spectral_start(problem: Problem, coordinates: Coordinates) -> Floats:
    """The dominant subspace of the averaged kernel sum_q Phi_q Phi_q^T.

    In reduced coordinates that is the first k axes, exactly; in n dimensions a few subspace
    iterations come close enough for a start.
    """
    if isinstance(coordinates, Reduced):
        return np.eye(coordinates.dimension, problem.k)
    maps = coordinates.maps
    V = random_start(problem, maps)
    for _ in range(_SUBSPACE_ITERATIONS):
        V = orthonormalize(maps.combine(maps.adjoint(V)))
    return V


def selector_start(problem: Problem, coordinates: Coordinates, indices: Indices) -> Floats:
    """The coordinate frame of a subset, pushed off its axes a little.

    With diagonal kernels every coordinate frame is stationary, a saddle as a rule, and an
    iteration that starts there would never move.
    """
    V = np.zeros((problem.n, problem.k))
    V[indices, np.arange(problem.k)] = 1.0
    Y = coordinates.lower(V)
    push = _random_range(problem, coordinates.maps)
    return orthonormalize(Y + _PERTURBATION * push / np.linalg.norm(push, 2))


def _random_range(problem: Problem, maps: FeatureMaps) -> Floats:
    rng = problem.rng(0)
    widths = [view.p for view in problem.pool.views]
    return maps.combine(tuple(rng.standard_normal((p, problem.k)) for p in widths))
