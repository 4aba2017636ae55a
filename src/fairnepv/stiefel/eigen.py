"""Leading eigenvectors of H = sum_q c_q K_q, by which frames move where totals are linear in V V^T.

Such a utility has A = H V with weights c_q that alone depend on V (docs/method.md#fair-pca). Where
vectors are short H is held and LAPACK asked; elsewhere blocks of them are improved by products.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from fairnepv.compute import HOST
from fairnepv.compute.clock import EIGENVECTORS, check_time, expect
from fairnepv.objective import FeatureMaps
from fairnepv.objective.geometry import EUCLIDEAN, Geometry
from fairnepv.stiefel.starts import independent_columns
from fairnepv.views.base import Floats

_HELD = 1200  # numbers of a vector up to which all of H is factored: blocks take as long there
_MORE_COLUMNS = 10  # of a block than are wanted, which makes it converge by the gap to those beyond
_MOST_PRODUCTS = 300
_PATIENCE = 30  # products without a smaller error: rounding is reached
_FAINT = 1e-6  # of a block's Gram matrix: directions that rounding has too large a part in
_UNIT = float(np.finfo(np.float64).eps)


class Weighted:
    """H = sum_q c_q K_q in the coordinates of the maps, and sigma V V^T besides."""

    def __init__(self, maps: FeatureMaps, shares: Floats) -> None:
        self.geometry: Geometry = maps.geometry
        self.dimension = maps.dimension
        self._maps, self._shares = maps, shares
        self._sigma, self._V = 0.0, np.zeros((0, 0))

    @classmethod
    def by_weights(cls, maps: FeatureMaps, weights: Floats) -> "Weighted":
        """sum_q w_q K_q / tr K_q; a view of zeros counts for nothing."""
        return cls(maps, weights / np.where(maps.traces > 0, maps.traces, 1.0))

    def shifted(self, sigma: float, V: Floats) -> "Weighted":
        """H + sigma V V^T, the level shift of Algorithm 1."""
        other = Weighted(self._maps, self._shares)
        other._sigma, other._V = sigma, V
        return other

    def __call__(self, X: Floats) -> Floats:
        check_time()
        Y = zip(self._shares, self._maps.adjoint(X), strict=True)
        image = self._maps.combine(tuple(c * Z for c, Z in Y))
        if self._sigma:
            image += self._sigma * (self._V @ self.geometry.inner(self._V, X))
        return image


class Leading(NamedTuple):
    values: Floats  # (m,) descending, m >= k
    vectors: Floats  # of the coordinates, m orthonormal columns
    error: float  # by which the k largest together may be larger, as far as can be told
    products: int


def leading(H: Weighted, k: int, near: Floats, enough: float) -> Leading:
    """The k largest eigenvalues of H and their vectors, and perhaps some more.

    `near` are vectors to begin with, k or those of a former answer; their number of rows decides
    how H is treated. Where H is not held, the sum of the values is sought to an error of `enough`,
    by an estimate from residuals: that no eigenvalue was overlooked is not proven.
    """
    size = len(near)
    if H.geometry is EUCLIDEAN and size <= _HELD:
        expect(EIGENVECTORS * size**3)
        values, vectors = HOST.leading(H(np.eye(size)), k)
        rounding = size * _UNIT * float(values.sum())
        return Leading(values, np.ascontiguousarray(vectors), rounding, 1)
    return _by_blocks(H, k, near, enough)


def _by_blocks(H: Weighted, k: int, near: Floats, enough: float) -> Leading:
    """Locally optimal block conjugate gradients [Knyazev]: every block is the best of the span of
    the last one, its residuals and the last step."""
    geometry = H.geometry
    X = _widened(H, near, k)
    HX = H(X)
    steps, images = np.zeros((len(X), 0)), np.zeros((len(X), 0))
    best, waited, products = np.inf, 0, 1
    while True:
        values, E = _descending(geometry.inner(X, HX))
        X, HX = X @ E, HX @ E
        R = HX - X * values
        rho = _lengths(geometry, R)
        error = _unfound(values, rho, k)
        waited = 0 if error < 0.9 * best else waited + 1
        best = min(best, error)
        open_ = rho > geometry.faintest * values[0]  # what is shorter is rounding
        found = error <= enough or not open_[:k].any()
        if found or waited >= _PATIENCE or products >= _MOST_PRODUCTS:
            return Leading(values, X, error, products)
        R = geometry.project(X, R[:, open_] / rho[open_])
        HR = H(R)
        products += 1
        S, HS = np.hstack([X, R, steps]), np.hstack([HX, HR, images])
        m = X.shape[1]
        T = independent_columns(geometry.inner(S, S), m, _FAINT)
        C = T @ _descending(T.T @ geometry.inner(S, HS) @ T)[1][:, :m]
        steps, images = S[:, m:] @ C[m:], HS[:, m:] @ C[m:]
        X, HX = X @ C[:m] + steps, HX @ C[:m] + images
        lengths = np.maximum(_lengths(geometry, steps), _UNIT)
        steps, images = steps / lengths, images / lengths


def _widened(H: Weighted, near: Floats, k: int) -> Floats:
    """An orthonormal block of some columns more than k, as far as the views have so many."""
    geometry, X = H.geometry, H.geometry.renew(near)
    more = min(k + _MORE_COLUMNS, H.dimension) - X.shape[1]
    if more > 0:
        extra = geometry.random(np.zeros((len(X), more)), np.random.default_rng(0))
        X = np.hstack([X, extra / np.maximum(_lengths(geometry, extra), _UNIT)])
    X = X @ independent_columns(geometry.inner(X, X), k, _FAINT)
    return geometry.restore(geometry.renew(X))


def _descending(matrix: Floats) -> tuple[Floats, Floats]:
    values, E = eigh(0.5 * (matrix + matrix.T), driver="evd", check_finite=False)
    return values[::-1], E[:, ::-1]


def _lengths(geometry: Geometry, X: Floats) -> Floats:
    return np.sqrt(np.maximum(np.diagonal(geometry.inner(X, X)), 0.0))


def _unfound(values: Floats, rho: Floats, k: int) -> float:
    """About what k Ritz values lack: an eigenvalue is within rho of its Ritz value, and within
    rho^2 over the distance to what is not in the block. For that a value halfway through the spare
    ones stands, since the last are not found yet, and all is doubled."""
    apart = np.maximum(values[:k] - values[(k + len(values) - 1) // 2], _UNIT)
    return 2.0 * float(np.minimum(rho[:k], rho[:k] ** 2 / apart).sum())
