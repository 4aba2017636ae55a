"""The eigenvalues that Gamma is made of, from few products with blocks of vectors.

Gamma (docs/method.md#concave-bound) asks for those r < k eigenvalues of M = Phi^T diag(x) Phi that
exceed the mean which the others share, and for the trace. They come by Rayleigh and Ritz from a
subspace that is widened by residuals until these are small; the vectors of a point nearby are a
subspace to begin with that is nearly good enough.

What is left of the residuals makes Gamma too large and never too small: Gamma(x) is the least of
tr(W M) + sum_j h(w_j) over positive definite W, and its formula with Ritz values in place of
eigenvalues is that sum at a W made of the Ritz vectors. So prices and bounds of such a point hold;
only its value has to be confirmed (`least_value`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf

from fairnepv.compute import HOST, Place
from fairnepv.compute.clock import check_time
from fairnepv.views.base import Floats

CRUDE = 0.02  # nats per item: for a value that may be that rough any vectors will do in the end
SPARE = 8  # Ritz vectors beyond the r that count: what could rise above the mean is among them
_SMALL, _PER_PICK = 500, 6  # sides up to which LAPACK is as quick as blocks from nowhere
_PER_VECTOR = 10  # the same, of blocks that begin with good vectors
_WIDEST = 0.35  # of the side, for a subspace
_REFINED = 5  # products more, for vectors by which a value is proven
_APART = 4.0  # inverse of what is left of a unit column beside others that it is not near to
_CLEAR = 0.4  # relative residual at which a Ritz value below the mean is believed

Product = Callable[[Any], tuple[Any, Any]]  # V -> images, which are kept, and M V


class Pairs(NamedTuple):
    """Ritz pairs: the r that count and some spare ones."""

    lam: Floats  # (c,) descending and not negative, for the host
    Y: Any  # (side, c)
    images: Any  # (m, c) what the product leaves of them


def split(lam: Floats, total: float, k: int) -> tuple[int, float]:
    """r, and the mean m of the tail that k - r slots share; `lam` holds the leading eigenvalues.

    The least r whose tail mean reaches lambda_{r+1} is the unique one of the definition.
    """
    padded = np.zeros(k + 1)
    padded[: min(len(lam), k + 1)] = lam[: k + 1]
    slots = k - np.arange(k)
    tails = np.maximum(total - np.concatenate([[0.0], np.cumsum(padded[: k - 1])]), 0.0) / slots
    r = int(np.argmax(tails >= padded[:k])) if (tails >= padded[:k]).any() else k - 1
    return r, float(tails[r])


def gamma(lam: Floats, mean: float, eps: float, k: int) -> float:
    """Gamma of the r eigenvalues that count and the mean of the others."""
    return float(np.log(lam + eps).sum() + (k - len(lam)) * np.log(mean + eps))


def first_vectors(basis: Any, side: int, k: int, rough: float, place: Place) -> Any | None:
    """Vectors to begin with: those of a point nearby, and random ones; None where a matrix of this
    side is as quickly factored."""
    crude, known = rough >= CRUDE, 0 if basis is None else basis.shape[1]
    if side <= _PER_VECTOR * known if known and not crude else factored(side, k, rough):
        return None
    count = SPARE if known else SPARE + k // SPARE  # what a basis has missed, none of it can show
    others = np.random.default_rng(0).standard_normal((side, count)).astype(np.float32)
    return others if basis is None else place.xp.concat([basis, place.put(others)], axis=1)


def factored(side: int, k: int, rough: float) -> bool:
    """Whether a matrix of this side is as quickly factored as looked at from nowhere."""
    return side <= (_SMALL if rough >= CRUDE else max(_SMALL, _PER_PICK * k))


def ritz_pairs(
    product: Product, start: Any, total: float, eps: float, k: int, rough: float, place: Place
) -> Pairs | None:
    """The leading pairs of M with this trace, by which Gamma / k is at most about `rough` too
    large; None where that takes a subspace as wide as M, unless any pairs are good enough.

    A pair with residual rho moves a share rho^2 / (lambda - m) of the tail at most; that changes
    Gamma by rho^2 / ((lambda + eps) (m + eps)), however near lambda is to the mean m.
    """
    V = _orthonormal(place.put(start), place)
    images, MV = product(V)
    while True:
        check_time()
        lam, Q = HOST.leading(place.get(V.T @ MV), V.shape[1])
        r, mean = split(lam, total, k)
        c = min(len(lam), r + SPARE)
        lam, Q = lam[:c], place.put(np.ascontiguousarray(Q[:, :c]))
        Y = V @ Q
        R = MV @ Q - Y * place.put(lam.astype(np.float32))
        squares = np.asarray(place.get(place.square_sums(R.T)), dtype=np.float64)
        rho, counts = np.sqrt(squares), np.arange(c) < r
        lacks = squares / ((lam + eps) * (mean + eps))
        missing = lacks[counts | (lam + rho > mean)].sum() / k
        crude = rough >= CRUDE
        if r < c and missing <= rough and (crude or (rho <= _CLEAR * lam)[r:].all()):
            return Pairs(lam, Y, images @ Q)
        wanted = np.flatnonzero(~counts | (lacks > 0.1 * rough * k / c))
        if not V.shape[1] + len(wanted) <= _WIDEST * len(V):
            return Pairs(lam, Y, images @ Q) if crude else None
        W = _beside(V, R[:, place.put(wanted)], place)
        pairs = zip((V, images, MV), (W, *product(W)), strict=True)
        V, images, MV = (place.xp.concat(pair, axis=1) for pair in pairs)


def _beside(V: Any, W: Any, place: Place) -> Any:
    """Orthonormal vectors that span W beside V: twice, as what little is left of a column the first
    time may not be orthogonal."""
    W = place.xp.linalg.qr(W - V @ (V.T @ W))[0]
    return _orthonormal(W - V @ (V.T @ W), place)


def _orthonormal(X: Any, place: Place) -> Any:
    """An orthonormal basis of columns that are mostly far from dependent: by Cholesky if they are,
    which takes a third of the time."""
    lengths = place.xp.sqrt(place.square_sums(X.T))
    units = X / place.xp.where(lengths > 0, lengths, 1.0)
    root = place.inverse_root(place.double(units.T @ units))
    if root is None or not float(abs(root).max()) < _APART:
        return place.xp.linalg.qr(X)[0]
    return units @ place.xp.astype(root, X.dtype)


def least_value(matrix: Floats, basis: Floats, eps: float, k: int) -> float:
    """At most Gamma of a matrix M, and next to it where `basis` has its leading eigenvectors; minus
    infinity where that cannot be shown.

    M <= m I + Y diag(caps - m) Y^T, which a Cholesky factorisation of the difference shows, says
    that no eigenvalue exceeds its cap, or m beyond. Of all spectra below these caps and with this
    trace, the one that fills the caps in turn majorises the others, so its Gamma, which is
    Schur-concave, is the least.
    """
    total, Y = HOST.trace(matrix), _refined(matrix, basis)
    MY = matrix @ Y
    lam = np.maximum(np.einsum("ij,ij->j", Y, MY), 0.0)
    r, mean = split(lam, total, k)
    keep = min(len(lam) - 1, r + SPARE)
    room = mean - lam[keep]  # to what is left of M beside the vectors that are kept
    if not room > 0:
        return -np.inf
    Y, lam, rho = Y[:, :keep], lam[:keep], np.linalg.norm(MY - Y * lam, axis=0)[:keep]
    # What residuals may add to Ritz values: by the Schur complement R^T R / room, which is at most
    # the diagonal matrix of rho_i sum_j rho_j / room; twice, to be sure.
    rounding = 8.0 * len(matrix) * np.finfo(np.float64).eps * total
    caps = np.maximum(lam + 2.0 * rho * rho.sum() / room + 4.0 * rounding, mean)
    excess = (Y * (caps - mean)) @ Y.T
    excess -= matrix
    excess.flat[:: len(matrix) + 1] += mean - rounding
    if dpotrf(excess.T, lower=1, clean=0, overwrite_a=1)[1]:
        return -np.inf
    filled = np.minimum(np.cumsum(np.concatenate([caps, np.full(k + 1, mean)])), total)
    spectrum = np.diff(filled, prepend=0.0)
    r, tail = split(spectrum, total, k)
    return gamma(spectrum[:r], tail, eps, k)


def _refined(matrix: Floats, basis: Floats) -> Floats:
    """Ritz vectors of M in float64, descending, from a block and what M makes of it."""
    blocks = [np.linalg.qr(basis.astype(np.float64))[0]]
    for _ in range(_REFINED):
        blocks.append(np.linalg.qr(matrix @ blocks[-1])[0])
    V = np.linalg.qr(np.hstack(blocks))[0]
    return np.asarray(V @ HOST.leading(V.T @ (matrix @ V), V.shape[1])[1])
