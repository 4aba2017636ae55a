"""Kernels that the user hands in: whole, the one n x n matrix in the house, or their diagonal."""

import functools
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigvalsh
from scipy.linalg.lapack import dpstrf

from fairnepv.checks import check_positive
from fairnepv.compute import Place, RowBlock
from fairnepv.errors import InputError
from fairnepv.views.arrays import plain_array, read_array
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.blocks import Factored
from fairnepv.views.dense import DenseView
from fairnepv.views.sparse import SparseView
from fairnepv.views.validity import check_diagonal, check_finite, check_numeric, check_shape

_WIDEST_SPECTRUM = 4096  # rows of a kernel whose eigenvalues are worth computing


class KernelView(View):
    """K itself, symmetric and positive semidefinite, read where entries are wanted.

    Where features are wanted (the relaxation), K = Phi Phi^T is factored once. `eps` is a ridge
    of its own; 0 takes a positive definite kernel as it stands.
    """

    array_anchors = scored_by_rows = False

    def __init__(self, kernel: NDArray[Any], eps: float | None = None) -> None:
        self.kernel = _read_dense(kernel, "a kernel")
        self.n = len(self.kernel)
        self.eps = eps

    def checked(self, name: str) -> View:
        kernel = plain_array(self.kernel, f"view {name!r}")
        check_shape(name, kernel.shape)
        if kernel.shape[0] != kernel.shape[1]:
            raise InputError(f"view {name!r}: a kernel is square, not of shape {kernel.shape}")
        check_numeric(name, kernel)
        # Of a kernel nobody can tell which rows are missing.
        check_finite(name, kernel.__getitem__, np.arange(len(kernel)), remedy="")
        if kernel.dtype.kind != "f":
            kernel = kernel.astype(np.float64)
        check_diagonal(name, np.abs(np.diagonal(kernel)).astype(np.float64))
        view = KernelView(_symmetric(name, kernel, kernel_tolerance(kernel)), self.eps)
        _check_own_ridge(name, view)
        view._check_definite(name)
        return view

    def centered(self, name: str) -> View:
        """A copy about the mean, as all features that stand for the kernel would have it. It is no
        surer than the kernel that came: what counts as zero stays the same."""
        means = self.kernel.mean(axis=0, dtype=np.float64)
        kernel = self.kernel - means
        kernel -= (means - means.mean())[:, None]
        own = np.diagonal(kernel)
        kernel.flat[:: self.n + 1] = np.where(own > self.tolerance / self.n, own, 0.0)
        view = KernelView(_symmetric(name, kernel, np.inf), self.eps)
        view = view._with(_zero=self.tolerance)
        view._check_definite(name)
        return view

    _zero: float | None = None  # what counted as zero in the kernel that a centred one is made of

    @functools.cached_property
    def tolerance(self) -> float:
        """What counts as zero in the kernel."""
        return kernel_tolerance(self.kernel) if self._zero is None else self._zero

    def sketched(self, name: str) -> View:
        check_shape(name, self.kernel.shape)
        return self._with(p=self.n)  # as far as a plan can tell: a rank takes a factorisation

    @functools.cached_property
    def p(self) -> int:  # type: ignore[override]
        """The numerical rank: the width of the features that stand for the kernel."""
        return int(self.factor.shape[1])

    @functools.cached_property
    def factor(self) -> Floats:
        """(n, r) Phi of the unscaled kernel, r its numerical rank."""
        return pivoted_cholesky(self.kernel, self.tolerance)

    def raw_squared_norms(self) -> Floats:
        return self._present(np.diagonal(self.kernel).astype(np.float64))

    def raw_rows(self, rows: Indices | slice) -> Floats:
        return self.factor[rows]

    def _block_of(self, rows: Indices | slice) -> RowBlock:
        return KernelBlock(self, rows)

    def anchor(self, indices: Indices) -> Factored:
        return Factored(indices)

    def combined(self, anchor: Factored, combine: Floats) -> Factored:
        return anchor._replace(combine=combine)

    def inner(self, left: Indices, right: Indices) -> Floats:
        return KernelBlock(self, left).cross(self.anchor(right))

    @property
    def tail(self) -> float:  # type: ignore[override]
        return self._missed if self.p < self.n else 0.0

    @property
    def _missed(self) -> float:
        """At least the norm of K - Phi Phi^T, by the check at the edge."""
        largest = 1.0 if self.scale is None else float((self.scale**2).max())
        return 10.0 * self.n * self.tolerance * largest

    def scaled(self, scale: Floats | None, offset: float) -> Self:
        other = super().scaled(scale, offset)
        if scale is not self.scale:
            vars(other).pop("_least", None)  # which is of the scaled kernel
        return other

    def smallest_eigenvalue(self, margin: float = 1.0) -> float:
        if self.n > _WIDEST_SPECTRUM:
            return -margin * self._missed  # not known: all of it is allowance
        smallest, rounding = self._least
        return smallest - margin * rounding

    @functools.cached_property
    def _least(self) -> tuple[float, float]:
        """The smallest eigenvalue, and what it may owe to rounding."""
        K = self.whole_kernel()
        smallest = float(eigvalsh(K, subset_by_index=[0, 0], check_finite=False)[0])
        largest_row = float(np.abs(K).sum(axis=1).max())  # at least the norm of K
        return smallest, 8.0 * self.n * np.finfo(np.float64).eps * largest_row

    def spectrum(self, indices: Indices) -> Floats:
        return spectrum_of_gram(self.inner(indices, indices))

    def log_volume(self, indices: Indices) -> float:
        """From a Cholesky factor where the eigenvalues are sure to be positive: each of those
        carries the rounding of the largest, a pivot only that of its own row. With entries of very
        different size a score would pass its bound, which allows for no such rounding then."""
        K = self.inner(indices, indices)
        eigenvalues = spectrum_of_gram(K)
        if not eigenvalues[-1] > 4.0 * len(K) * np.finfo(np.float64).eps * eigenvalues[0]:
            return float(np.log(eigenvalues + self.ridge).sum())
        K.flat[:: len(K) + 1] += self.ridge
        return float(2.0 * np.log(np.diagonal(np.linalg.cholesky(K))).sum())

    def _check_definite(self, name: str) -> None:
        miss = float(np.abs(self.factor @ self.factor.T - self.kernel).max())
        if miss > 10 * self.tolerance:
            raise InputError(
                f"view {name!r}: the kernel is indefinite (no real features give it; the best miss "
                f"it by {miss:.3g}); a kernel must be positive semidefinite, and one that was "
                "computed in float32 should be passed as float32"
            )
        if self.eps == 0 and self.p < self.n:
            raise InputError(
                f"view {name!r}: with eps = 0 the kernel must be positive definite, but it has "
                f"rank {self.p} of {self.n}; give it a positive eps"
            )

    def numbers_at(self, indices: Indices) -> NDArray[Any]:
        return self.kernel[indices]

    def as_features(self) -> View:
        return self._given_to(DenseView(self.factor), np.arange(self.n))

    def take(self, indices: Indices) -> View:
        part = KernelView(self.kernel[np.ix_(indices, indices)])._with(_zero=self._zero)
        return self._given_to(part, indices)


class KernelBlock(RowBlock):
    """Some rows of a kernel."""

    def __init__(self, view: KernelView, rows: Indices | slice) -> None:
        self._view, self._rows = view, rows

    def features(self) -> Any:
        return self._view.rows(self._rows)

    def squared_norms(self) -> Floats:
        return self._view.squared_norms_at(self._rows)

    def cross(self, anchor: Factored) -> Floats:
        """(b, m) entries of these rows in the columns of the anchor, combined."""
        view, rows = self._view, self._rows
        K: Floats = view.kernel[rows][:, anchor.columns].astype(np.float64)
        if view.scale is not None:
            K *= view.scale[anchor.columns]
            K *= view.scale[rows][:, None]
        return K if anchor.combine is None else K @ anchor.combine


def _read_dense(value: Any, what: str) -> NDArray[Any]:
    if sp.issparse(value):  # which NumPy would take for one object
        raise InputError(f"{what} must be an array, not a sparse matrix; pass its toarray()")
    return np.atleast_1d(read_array(value, what))


class DiagonalView(SparseView):
    """The kernel diag(values): items that differ in quality and share nothing.

    `eps` is a ridge of its own; 0 takes the values as they stand, which must then be positive.
    """

    def __init__(self, values: NDArray[Any], eps: float | None = None) -> None:
        self.values = _read_dense(values, "a diagonal kernel")
        self.n = self.p = len(self.values)
        self.eps = eps

    def checked(self, name: str) -> View:
        values = plain_array(self.values, f"view {name!r}")
        if values.ndim != 1 or len(values) == 0:
            raise InputError(f"view {name!r}: a diagonal kernel is one value per row")
        check_numeric(name, values)
        smallest = 0.0 if self.eps != 0 else np.finfo(np.float64).tiny
        bad = np.flatnonzero(~(np.isfinite(values) & (values >= smallest)))
        if len(bad):
            raise InputError(
                f"view {name!r}: the values of a diagonal kernel must be finite and "
                f"{'positive (eps is 0)' if self.eps == 0 else 'not negative'}; row {bad[0]} has "
                f"{values[bad[0]]}"
            )
        check_diagonal(name, values.astype(np.float64))
        _check_own_ridge(name, self)
        return self

    def sketched(self, name: str) -> View:
        return self

    @property
    def stored(self) -> int:
        return int(np.count_nonzero(self.values))

    @functools.cached_property
    def data(self) -> Any:
        return sp.diags_array(np.sqrt(self.values.astype(np.float64)), format="csr")

    def raw_squared_norms(self) -> Floats:
        return self._present(self.values.astype(np.float64))

    def moved(self, place: Place, room: int) -> View:
        return self

    def numbers_at(self, indices: Indices) -> NDArray[Any]:
        return self.values[indices]

    def smallest_eigenvalue(self, margin: float = 1.0) -> float:
        return float(self.squared_norms.min())

    def spectrum(self, indices: Indices) -> Floats:
        return np.sort(self.squared_norms[indices])[::-1]  # exact: no root is squared back


def _check_own_ridge(name: str, view: View) -> None:
    if view.eps is not None and (isinstance(view.eps, bool) or view.eps != 0):
        check_positive("eps", view.eps, name)


def _symmetric(name: str, kernel: NDArray[Any], tolerance: float) -> NDArray[Any]:
    """A kernel that is symmetric to rounding as one that is exactly so."""
    skew = float(np.abs(kernel - kernel.T).max())
    if skew > tolerance:
        raise InputError(
            f"view {name!r}: the kernel is not symmetric, entries differ by up to {skew:.3g} from "
            "those across the diagonal; pass (K + K.T) / 2 if that is meant"
        )
    # Or a score would depend on the order of its items, and pass its bound.
    return 0.5 * kernel + 0.5 * kernel.T if skew > 0 else kernel


def spectrum_of_gram(K: Floats) -> Floats:
    """Eigenvalues of a semidefinite matrix, descending; rounding below zero is cut off."""
    return np.asarray(eigvalsh(K)[::-1]).clip(min=0.0)


def pivoted_cholesky(kernel: NDArray[Any], tolerance: float) -> Floats:
    """(n, r) factor with Phi Phi^T = kernel to rounding, r the numerical rank, at least 1.

    Pivoting finds the rank and is backward stable for semidefinite matrices; it costs a small
    fraction of an eigendecomposition. For an indefinite matrix the product misses the kernel,
    which is how the check at the edge finds out.
    """
    lower, pivots, rank, _ = dpstrf(kernel.astype(np.float64), tol=tolerance, lower=1)
    lower[:, rank:] = 0.0
    factor: Floats = np.empty((len(lower), max(rank, 1)))
    factor[pivots - 1] = np.tril(lower)[:, : max(rank, 1)]
    return factor


def kernel_tolerance(kernel: NDArray[Any]) -> float:
    """What counts as zero beside the largest diagonal entry, from the type the kernel came in."""
    precision = np.finfo(kernel.dtype if kernel.dtype.kind == "f" else np.float64).eps
    return float(len(kernel) * precision * np.abs(np.diagonal(kernel)).max())
