"""Where rows lie: two coordinates per view, its two leading principal components.

The axes are found in the span of a few sampled rows, the landmarks, by the Rayleigh quotients of
the covariance there: everything that is needed are products of rows with landmarks, which views of
every kind give block by block (dense, sparse, kernels, files). They are the principal components
themselves where the landmarks span the view, and close to them else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import Block, block_threads
from fairnepv.problem import Problem, Stream
from fairnepv.views import Pool
from fairnepv.views.base import Floats, Indices

LANDMARKS = 256
SAMPLE = 8192  # rows whose covariance it is
_NO_RANK = 1e-10  # of the largest eigenvalue: what is below is rounding


class Plane(NamedTuple):
    """Rows in two dimensions."""

    coordinates: NDArray[np.floating]  # (m, 2)
    shares: tuple[float, float] | None  # of the variance, along either axis; None of given places


def planes(problem: Problem, rows: Indices) -> dict[str, Plane]:
    """Per view the calibrated rows at `rows` (m,), about the mean of the sample."""
    shuffled = problem.rng(Stream.MAP).permutation(problem.n).astype(np.int64)
    with block_threads(problem.work()):
        return {
            name: _plane(problem.pool.only(name), shuffled, rows) for name in problem.pool.names
        }


def _plane(pool: Pool, shuffled: Indices, rows: Indices) -> Plane:
    (view,) = pool.views
    # Rows that lack the view are zero rows, which are in no mean and in no variance.
    drawn = (shuffled if view.absent is None else shuffled[~view.absent[shuffled]])[:SAMPLE]
    landmarks, sample = np.sort(drawn[:LANDMARKS]), np.sort(drawn)
    anchor = view.anchor(landmarks)
    near = _products(pool, anchor, sample, len(landmarks))
    mean = view.combined(view.anchor(sample), np.full((len(sample), 1), 1.0 / len(sample)))
    about = _products(pool, mean, sample, 1)  # of every row with the mean
    variance = float((view.squared_norms_at(sample) - about[:, 0]).mean())
    axes, along = _axes(near, view.inner(landmarks, landmarks))
    placed = _products(pool, view.combined(anchor, axes), rows, 2) - (near @ axes).mean(axis=0)
    shares = (along / variance).clip(0.0, 1.0) if variance > 0 else np.zeros(2)
    return Plane(placed.astype(np.float32), (float(shares[0]), float(shares[1])))


def _axes(near: Floats, inner: Floats) -> tuple[Floats, Floats]:
    """(m, 2) what landmarks contribute to either axis, of unit length, and (2,) the variances.

    A direction Phi_R^T c has the variance c^T cov(K_:R) c and the squared length c^T K_RR c.
    """
    centred = near - near.mean(axis=0)
    covariance = centred.T @ centred / len(near)
    lengths, vectors = np.linalg.eigh(inner)
    kept = lengths > _NO_RANK * max(float(lengths[-1]), np.finfo(float).tiny)
    basis = vectors[:, kept] / np.sqrt(lengths[kept])
    variances, directions = np.linalg.eigh(basis.T @ covariance @ basis)
    axes, along = np.zeros((len(inner), 2)), np.zeros(2)
    count = min(2, len(variances))
    axes[:, :count] = basis @ directions[:, ::-1][:, :count]
    along[:count] = variances[::-1][:count].clip(min=0.0)
    # A sign by a rule: the landmark that is farthest out is on the positive side.
    out = centred @ axes
    signs = np.sign(out[np.abs(out).argmax(axis=0), [0, 1]])
    return axes * np.where(signs == 0, 1.0, signs), along


def _products(pool: Pool, anchor: Any, rows: Indices, width: int) -> Floats:
    """(m, width) K[rows, anchor]."""
    everyone = len(rows) == pool.n and bool((rows == np.arange(pool.n)).all())
    return pool.map(_cross, anchor, width=width, fixed=True, rows=None if everyone else rows)


def _cross(block: Block, anchor: Any) -> Floats:
    (view,) = block.views
    return np.asarray(view.cross(anchor), dtype=np.float64)
