"""Where arrays are computed with: `Place`, which is NumPy's, and `HOST`, the one of its kind.

A portable task takes the functions of the array standard from `place.xp`. The operations here are
the few that deserve more than the standard: one library does them in place, another in one kernel.
The place of a device of PyTorch is `fairnepv.compute.device.TorchPlace`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, eigvalsh, qr
from scipy.linalg.blas import dgemm, dger
from scipy.linalg.lapack import dpotrf, dpotri, dsyevd, dsyevr, dtrtri, ssyevd, ssyevr

Floats = NDArray[np.float64]

_CACHED_NUMBERS = 1 << 14  # float64 numbers that stay in a core's nearest cache, with some others
_SPARSELY = 8  # of so many values one says where the largest of all begin
_FEW = 0.2  # of the eigenvectors: for more, all of them are cheaper


class Place:
    """A library of arrays and where it keeps them. `Any` stands for arrays of this place.

    Another place overrides what NumPy does its own way.
    """

    xp: Any = np  # functions of the array standard
    device: Any = "cpu"  # what these take as `device=`
    asynchronous = False  # whether to ask for a number takes longer than to compute a few more

    def __reduce__(self) -> str | tuple[Any, ...]:
        return "HOST"  # there is one

    def put(self, array: Any) -> Any:
        """An array of the host or of a device as one of this place."""
        return array.cpu().numpy() if hasattr(array, "cpu") else array

    def get(self, array: Any) -> Any:
        """An array of this place, or one of the host, as an array of the host."""
        return array

    def dense(self, features: Any) -> Any:
        """Features that may be sparse as a plain array."""
        return features.toarray() if hasattr(features, "toarray") else features

    def copy(self, array: Any) -> Any:
        """The same numbers in memory of their own."""
        return array.copy()

    def double(self, array: Any) -> Any:
        """An array of this place in float64; the same one where it is that already."""
        return np.asarray(array, dtype=np.float64)

    def single(self, array: Any) -> Any:
        """An array of this place in float32; the same one where it is that already."""
        return np.asarray(array, dtype=np.float32)

    def less(self, rows: Any, mean: Any) -> Any:
        """rows (b, p) of any type - mean (p,), in float64."""
        return np.subtract(rows, mean, dtype=np.float64)

    def less_single(self, rows: Any, mean: Any) -> Any:
        """The same rounded to float32: rows may be far from zero beside what is left of them."""
        if rows.dtype == np.float32:  # in two steps: exact where digits cancel, and no conversion
            first = mean.astype(np.float32)
            out = rows - first
            out -= (mean - first).astype(np.float32)
            return out
        out = np.empty(rows.shape, dtype=np.float32)
        return np.subtract(rows, mean, out=out, dtype=np.float64, casting="same_kind")

    def weighted(self, weights: Any, rows: Any) -> Any:
        """weights (m,) @ rows (m, b), to all digits of float32."""
        return weights @ rows

    def add_squares(self, total: Any, terms: Any, weights: Sequence[float]) -> Any:
        """total (b, k) + sum_q weights[q] terms[:, q]^2, in place."""
        runs = self.runs(*total.shape)
        held = np.empty_like(total[runs[0]] if runs else total)
        for rows in runs:
            part = total[rows]
            square = held[: len(part)]
            for q, weight in enumerate(weights):
                term = terms[rows, q]
                np.multiply(term, term, out=square)
                square *= weight
                part += square
        return total

    def runs(self, rows: int, width: int) -> list[slice]:
        """Rows in runs whose arrays of this width stay in a core's cache together."""
        step = max(1, _CACHED_NUMBERS // max(1, width))
        return [slice(first, first + step) for first in range(0, rows, step)]

    def square_sums(self, rows: Any) -> Any:
        """(b,) squared lengths of (b, k) rows."""
        return np.einsum("ij,ij->i", rows, rows)

    def row_dots(self, left: Any, right: Any) -> Any:
        """(b,) products of the rows of two (b, k) arrays."""
        return np.einsum("ij,ij->i", left, right)

    def entries_above(self, matrix: Any, least: float) -> tuple[Any, Any]:
        """Rows and columns of the entries that exceed `least`, few as a rule."""
        rows, columns = np.nonzero(matrix > least)
        return rows, columns

    def some_of(self, marked: Any) -> Any:
        """Positions (m,) of the rows that are marked (b,), few as a rule; or all, where to count
        them takes longer than to compute with all."""
        return np.flatnonzero(marked)

    def nth_largest(self, values: Any, n: int) -> float:
        """The value (b,) that n - 1 others are at least as large as."""
        return float(np.partition(values, len(values) - n)[len(values) - n])

    def highest(self, values: Any, n: int) -> Any:
        """Positions of the n largest values (b,), ascending."""
        # The n-th largest of some values is no larger than that of all: those above it are few.
        some, rows = values[::_SPARSELY], np.arange(len(values))
        if n <= len(some):
            least = np.partition(some, len(some) - n)[len(some) - n]
            rows = np.flatnonzero(~(values < least))  # and all that are not numbers
        return rows[np.sort(np.argpartition(values[rows], len(rows) - n)[len(rows) - n :])]

    def residual(self, row: Any, coefficients: Any, directions: Any) -> Any:
        """row (p,) - coefficients (t,) @ directions (t, p)"""
        return row - coefficients @ directions

    def square_root(self, X: Any, eps: float) -> Any:
        """Upper triangular R with R^T R = X^T X + eps I, which squares no singular value of X."""
        k = X.shape[1]
        R = qr(np.vstack([X, np.sqrt(eps) * np.eye(k)]), mode="r", check_finite=False)[0][:k]
        return np.asarray(R)

    def add_outer(self, matrix: Any, vector: Any, scale: float) -> Any:
        """matrix (k, k) + scale vector vector^T, in place."""
        dger(scale, vector, vector, a=matrix.T, overwrite_a=True)
        return matrix

    def add_product(self, matrix: Any, left: Any, right: Any) -> Any:
        """matrix (b, k) + left (b, r) @ right (r, k), in place."""
        if matrix.size and matrix.flags.c_contiguous and matrix.dtype == np.float64:
            dgemm(1.0, right.T, left.T, 1.0, matrix.T, overwrite_c=1)
        else:
            matrix += left @ right
        return matrix

    def pivots(self, matrix: Any) -> Floats | None:
        """(k,) squared diagonal of the triangular factor of a positive definite matrix, for the
        host; None where it is not that. The matrix is not needed any more."""
        R, failed = dpotrf(matrix, overwrite_a=1, clean=0)
        return None if failed else np.diagonal(R) ** 2

    def inverse_root(self, matrix: Any) -> Any:
        """R^-1 for matrix = R^T R, both upper triangular; None where it is not positive definite.
        The matrix is not needed any more."""
        R, failed = dpotrf(matrix, overwrite_a=1)
        return None if failed else self.triangular_inverse(R)

    def triangular_inverse(self, R: Any) -> Any:
        """R^-1 of an upper triangular matrix."""
        return dtrtri(R)[0]

    def inverse(self, matrix: Any) -> tuple[Any, float]:
        """Inverse of a positive definite matrix, and the logarithm of its determinant."""
        C = cholesky(matrix, lower=True, check_finite=False)
        B, _ = dpotri(C, lower=1)
        return np.tril(B) + np.tril(B, -1).T, float(2.0 * np.log(np.diagonal(C)).sum())

    def trace(self, matrix: Any) -> float:
        """Sum of the diagonal, in float64."""
        return float(self.double(matrix.diagonal()).sum())

    def eigenvalues(self, matrix: Any) -> Floats:
        """Eigenvalues of a symmetric matrix, ascending, for the host."""
        found: Floats = eigvalsh(matrix, check_finite=False) if len(matrix) else np.empty(0)
        return found

    def eigenvectors(self, matrix: Any) -> tuple[Any, Any]:
        """Eigenvalues of a symmetric matrix, ascending, and its vectors, both at this place."""
        lam, U = eigh(matrix, driver="evd", check_finite=False)
        return lam, U

    def right_vectors(self, matrix: Any) -> tuple[Any, Any]:
        """Singular values of a square matrix, descending, and its right vectors as columns."""
        _, s, right = np.linalg.svd(matrix)
        return s, right.T

    def solve(self, matrix: Any, right: Any) -> Any:
        """matrix^-1 right."""
        return np.linalg.solve(matrix, right)

    def leading(self, matrix: Any, k: int) -> tuple[Floats, Any]:
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


HOST = Place()
