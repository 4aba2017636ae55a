"""The block map-reduce seam: everything that touches n rows goes through here.

A *task* is a pure function of (aligned row block, small replicated state, aligned slices of row
arrays). An engine calls it on consecutive blocks and either lays the results end to end (`map`)
or combines them (`reduce`) along a fixed binary tree over the block numbers, so that the result
depends on the partition into blocks and on nothing else: not on threads, workers or their order.
With `fixed=True` the partition itself is canonical, a function of the source alone: what is summed
or multiplied there comes out the same to the last bit at any block size. A pass may also go over
some rows only (`rows`), which are gathered.
Tasks are module-level functions and their states plain records, so that they travel to workers.

A task that is `portable` computes where the engine keeps the rows: it takes its functions from
`block.xp`, brings small arrays there by `block.put` and what it makes for the host back by
`block.get`; with NumPy all of these do nothing. Other tasks see NumPy arrays on any engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigvalsh
from scipy.linalg.blas import dger
from scipy.linalg.lapack import dpotri, dsyevd, dsyevr, ssyevd, ssyevr

R = TypeVar("R")
Task = TypeVar("Task", bound=Callable[..., Any])
Array = NDArray[Any]
Floats = NDArray[np.float64]

_FEW = 0.2  # of the eigenvectors: for more, all of them are cheaper


def portable(task: Task) -> Task:
    """Mark a task that asks its block for functions and never NumPy itself."""
    task.portable = True  # type: ignore[attr-defined]
    return task


class Host:
    """Where NumPy computes: the functions, and no way to go."""

    xp: Any = np

    @staticmethod
    def put(array: Any) -> Any:
        return array

    @staticmethod
    def get(array: Any) -> Any:
        return array

    @staticmethod
    def dense(features: Any) -> Any:
        """The same of features that may be sparse."""
        return features.toarray() if hasattr(features, "toarray") else features

    @staticmethod
    def weighted(weights: Any, rows: Any) -> Any:
        """weights (m,) @ rows (m, b), to all digits of float32."""
        return weights @ rows

    @staticmethod
    def add_squares(total: Any, terms: Any, weights: Sequence[float]) -> Any:
        """total (b, k) + sum_q weights[q] terms[:, q]^2, in place."""
        square = np.empty_like(total)
        for q, weight in enumerate(weights):
            np.multiply(terms[:, q], terms[:, q], out=square)
            square *= weight
            total += square
        return total

    @staticmethod
    def square_sums(rows: Any) -> Any:
        """(b,) squared lengths of (b, k) rows."""
        return np.einsum("ij,ij->i", rows, rows)

    @staticmethod
    def entries_above(matrix: Any, least: float) -> tuple[Any, Any]:
        """Rows and columns of the entries that exceed `least`, few as a rule."""
        rows, columns = np.nonzero(matrix > least)
        return rows, columns

    @staticmethod
    def copy(array: Any) -> Any:
        return array.copy()

    @staticmethod
    def add_outer(matrix: Any, vector: Any, scale: float) -> Any:
        """matrix (k, k) + scale vector vector^T, in place."""
        dger(scale, vector, vector, a=matrix.T, overwrite_a=True)
        return matrix

    @staticmethod
    def inverse(matrix: Any) -> tuple[Any, float]:
        """Of a positive definite matrix, with the logarithm of its determinant."""
        C = cholesky(matrix, lower=True, check_finite=False)
        B, _ = dpotri(C, lower=1)
        return np.tril(B) + np.tril(B, -1).T, float(2.0 * np.log(np.diagonal(C)).sum())

    @staticmethod
    def trace(matrix: Any) -> float:
        return float(np.trace(matrix, dtype=np.float64))

    @staticmethod
    def eigenvalues(matrix: Any) -> Floats:
        """Of a symmetric matrix, ascending, for the host."""
        found: Floats = eigvalsh(matrix, check_finite=False) if len(matrix) else np.empty(0)
        return found

    @staticmethod
    def leading(matrix: Any, k: int) -> tuple[Floats, Any]:
        """The k largest eigenvalues, descending and not negative, for the host; and their vectors.

        LAPACK is called directly: branch and bound does this thousands of times on small matrices.
        """
        size = len(matrix)
        if size == 0:  # rows of a sparse view without a single entry
            return np.empty(0), np.empty((0, 0))
        single = matrix.dtype == np.float32
        first, info = max(1, size - k + 1), 1
        if k < _FEW * size:
            some = ssyevr if single else dsyevr
            lam, Y, found, _, info = some(matrix, range="I", il=first, iu=size, lower=1)
            lam, Y = lam[:found], Y[:, :found]
        if info:  # many are wanted, or they are clustered; divide and conquer knows no such failure
            lam, Y, _ = (ssyevd if single else dsyevd)(matrix, lower=1)
            lam, Y = lam[first - 1 :], Y[:, first - 1 :]
        return np.maximum(lam[::-1].astype(np.float64), 0.0), Y[:, ::-1]


HOST = Host()


class RowBlock(Protocol):
    """Consecutive rows of one view; what a task may ask of them."""

    def features(self) -> Any:
        """The calibrated rows, (b, p) float64: an array, or CSR for a sparse view."""
        ...

    def squared_norms(self) -> Array:
        """(b,) diagonal of the kernel on these rows, ridge excluded."""
        ...

    def cross(self, anchor: Any) -> Array:
        """(b, m) kernel between these rows and `View.anchor(...)`, ridge excluded."""
        ...

    def coarse(self, anchor: Any) -> Array:
        """`cross` in float32 where that is quicker, good to `View.coarse_error`."""
        ...


@dataclass(frozen=True)
class Block:
    """The same consecutive rows `start:stop` of every view of a pool, or of the rows gathered."""

    start: int
    stop: int
    views: tuple[RowBlock, ...]
    place: Any = HOST

    @property
    def xp(self) -> Any:
        """The array functions of the place where these rows are."""
        return self.place.xp

    def put(self, array: Any) -> Any:
        return self.place.put(array)

    def get(self, array: Any) -> Any:
        return self.place.get(array)


class Source(Protocol):
    """Where blocks come from: a pool."""

    @property
    def n(self) -> int: ...

    @property
    def row_width(self) -> int:
        """How many numbers one row holds over all views, for choosing a block size."""
        ...

    def block(self, start: int, stop: int) -> Block: ...

    def gather(self, rows: Array, start: int, stop: int) -> Block:
        """Rows `rows[start:stop]` as a block."""
        ...

    def lean(self) -> Source:
        """The same for a worker: without the engine, and whatever no block needs."""
        ...

    def settled(self, engine: Any) -> Source:
        """The same for another engine: rows lie where that one computes."""
        ...


class Engine(Protocol):
    """One that computes elsewhere has a `place` besides: `xp`, `put` and `get`, as `Host` has.

    One with processes to work for it has `each(task, source, states)`, the results of
    `task(source, state)` in order: for work that is larger than a pass, and independent.
    """

    def map(
        self,
        task: Callable[..., Array],
        source: Source,
        state: Any,
        *aligned: Array,
        width: int = 0,
        fixed: bool = False,
        rows: Array | None = None,
        out: Array | None = None,
    ) -> Array:
        """Row-aligned results of `task(block, state, *slices)`, in row order, or in that of `rows`.

        `width` says how many numbers the task makes of each row, where that is more than the
        row itself holds; with it an engine keeps the memory of a block in bounds. Results go to
        `out` where it is given, which may be one of the aligned arrays.
        """
        ...

    def reduce(
        self,
        task: Callable[..., R],
        combine: Callable[[R, R], R],
        source: Source,
        state: Any,
        *aligned: Array,
        width: int = 0,
        total: int = 0,
        fixed: bool = False,
    ) -> R:
        """Results of `task(block, state, *slices)` combined by `tree_fold`.

        `total` says how many numbers one result holds, where that is more than a block does; with
        it an engine makes blocks so large that adding results up is not what takes the time.
        """
        ...


def tree_fold(results: Iterable[R], combine: Callable[[R, R], R]) -> R:
    """Combine results along a binary tree over their positions, keeping O(log) of them alive.

    The shape of the tree depends on the number of results alone, and neighbours meet in row
    order. As a sum it is pairwise summation, which also keeps rounding errors small.
    """
    pending: list[tuple[int, R]] = []  # (level, partial result), levels strictly decreasing
    for result in results:
        level = 0
        while pending and pending[-1][0] == level:
            result = combine(pending.pop()[1], result)
            level += 1
        pending.append((level, result))
    if not pending:
        raise ValueError("a pool has at least one block")
    _, total = pending.pop()
    while pending:
        total = combine(pending.pop()[1], total)
    return total
