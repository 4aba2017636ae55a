"""The concave top-k relaxation of F_tau over {0 <= x <= 1, sum x = k} (DESIGN 3.5).

With lambda the eigenvalues of Phi^T diag(x) Phi in descending order and the unique r for which
lambda_r > m >= lambda_{r+1}, m = (sum_{i>r} lambda_i) / (k - r),

    Gamma(x) = sum_{i<=r} log(lambda_i + eps) + (k - r) log(m + eps)

is concave and equals log det L[S, S] at the indicator of S [Nikolov; LiXie]. Its gradient
is phi_i^T W phi_i, where W has eigenvalues 1/(lambda_i + eps) on the leading eigenvectors and
1/(m + eps) on everything else. This module works on few rows, held densely; which rows those are
is for the certificate and for branch and bound to say.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.lapack import dsyevr

from fairnepv.objective import soft_min, soft_min_weights
from fairnepv.problem import Constraints
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices

_GROW, _SHRINK = 1.3, 0.5  # of the step after a success and after a failure
_LONGEST = 16.0
_SHORTEST = 1e-6
_FAINTEST = 1e-200  # what multiplication may leave of an entry; its root and inverse are finite


@dataclass(frozen=True)
class Rows:
    """Few rows of one view: as features (m, p), or as a kernel (m, m) where that is smaller."""

    eps: float
    norms: Floats  # (m,) diagonal of the kernel
    features: Floats | None = None
    kernel: Floats | None = None

    def at(self, x: Floats, k: int) -> Slope:
        """Gamma and its gradient at x >= 0."""
        root = np.sqrt(x)
        if self.features is not None:
            weighted = root[:, None] * self.features
            matrix = weighted.T @ weighted
        else:
            assert self.kernel is not None
            matrix = root[:, None] * self.kernel * root
        lam, Y = _leading(matrix, k)
        r, mean = split(lam, float(np.trace(matrix)), k)
        lam, Y = lam[:r], Y[:, :r]
        value = float(np.log(lam + self.eps).sum() + (k - r) * np.log(mean + self.eps))
        # Where the leading eigenvectors are all there are, nothing is left to be at the level, and
        # 1/eps would only cost digits.
        everything = 0 < r == len(matrix)
        level = 1.0 / ((lam[-1] if everything else mean) + self.eps)
        depth = np.sqrt(np.maximum(level - 1.0 / (lam + self.eps), 0.0))
        combine, V = self._images(x, lam, Y * depth)
        prices = np.maximum(level * self.norms - np.einsum("ij,ij->i", V, V), 0.0)
        return Slope(value, prices, level, combine)

    def _images(self, x: Floats, lam: Floats, Y: Floats) -> tuple[Floats, Floats]:
        """B (m, r) with Phi^T B = U, and Phi U, for eigenvectors U of Phi^T diag(x) Phi.

        Y holds U itself, or for a kernel the vectors of diag(sqrt x) K diag(sqrt x).
        """
        if self.features is not None:
            V = self.features @ Y
            return x[:, None] * V / lam, V
        assert self.kernel is not None
        combine = np.sqrt(x)[:, None] * (Y / np.sqrt(lam))
        return combine, self.kernel @ combine


@dataclass(frozen=True)
class Slope:
    """Gamma at a point, and W = level I - Phi^T B B^T Phi with B = `combine` (m, r), r < k."""

    value: float
    prices: Floats  # (m,) phi_i^T W phi_i
    level: float
    combine: Floats


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


def _leading(matrix: Floats, k: int) -> tuple[Floats, Floats]:
    """The k largest eigenvalues, descending and not negative, and their vectors.

    LAPACK is called directly: branch and bound does this thousands of times on small matrices.
    """
    size = len(matrix)
    if size == 0:  # rows of a sparse view without a single entry
        return np.empty(0), np.empty((0, 0))
    first = max(1, size - k + 1)
    lam, Y, found, _, info = dsyevr(matrix, range="I", il=first, iu=size, lower=1)
    if info:  # which happens for clustered eigenvalues; divide and conquer knows no such failure
        lam, Y = eigh(matrix, driver="evd", check_finite=False)
        lam, Y, found = lam[first - 1 :], Y[:, first - 1 :], size - first + 1
    return np.maximum(lam[:found][::-1], 0.0), Y[:, :found][:, ::-1]


@dataclass(frozen=True)
class TopK:
    """The relaxation on m rows: all views, the soft-min, and the rules on x.

    `size` is what log-determinants are divided by: k, or more where some items are chosen already
    and their part stands in the offsets.
    """

    views: tuple[Rows, ...]
    offsets: Floats  # (M,)
    tau: float
    k: int
    size: int
    rules: Constraints

    @property
    def m(self) -> int:
        return len(self.views[0].norms)

    def at(self, x: Floats) -> ConcavePoint:
        return ConcavePoint(self, x, tuple(view.at(x, self.k) for view in self.views))

    def start(self) -> Floats:
        """The flattest point that the rules allow."""
        return cap(np.ones(self.m), self.k, self.rules)


@dataclass(frozen=True, eq=False)
class ConcavePoint:
    topk: TopK
    x: Floats
    slopes: tuple[Slope, ...]

    @functools.cached_property
    def view_values(self) -> Floats:
        return np.array([s.value for s in self.slopes]) / self.topk.size + self.topk.offsets

    @functools.cached_property
    def value(self) -> float:
        return float(soft_min(self.view_values, self.topk.tau))

    @functools.cached_property
    def weights(self) -> Floats:
        return soft_min_weights(self.view_values, self.topk.tau)

    @functools.cached_property
    def prices(self) -> Floats:
        """(m,) gradient of the relaxed F_tau; its units are nats per item."""
        shares = self.weights / self.topk.size
        total: Floats = sum(c * s.prices for c, s in zip(shares, self.slopes, strict=True))
        return total

    @functools.cached_property
    def bound(self) -> float:
        """No x, and so no subset, of these rows scores above this."""
        best = self.topk.rules.best_set(self.prices, self.topk.k)
        return self.value + float(self.prices[best].sum() - self.prices @ self.x)


def ascend(point: ConcavePoint, eta: float) -> tuple[ConcavePoint, float, int]:
    """One multiplicative step x <- cap(x * prices^eta) that does not lower the value.

    Returns the new point, the step to try next, and how often the objective was evaluated.
    """
    topk, x = point.topk, point.x
    dearest = point.prices.max()
    if dearest == 0:  # zero rows in the views that bind: every point is as good
        return point, 0.0, 0
    scaled = point.prices / dearest
    for evaluations in range(1, 60):
        y = cap(x * scaled**eta, topk.k, topk.rules)
        candidate = topk.at(y)
        if candidate.value >= point.value - 1e-14:
            return candidate, min(eta * _GROW, _LONGEST), evaluations
        eta *= _SHRINK
        if eta < _SHORTEST:
            break
    return point, 0.0, evaluations


def held_rows(view: View, rows: Indices, shift: float = 0.0) -> Rows:
    """Rows of a view: as features, or as a kernel where that is the smaller side."""
    eps = view.ridge + max(shift, 0.0)
    if view.p < len(rows) and not shift:
        features = view.compact_rows(rows)
        return Rows(eps, np.einsum("ij,ij->i", features, features), features=features)
    K = view.inner(rows, rows)
    K.flat[:: len(K) + 1] -= shift
    return Rows(eps, np.diagonal(K).copy(), kernel=K)


# --- the capped simplex -------------------------------------------------------------------------


def cap(y: Floats, k: int, rules: Constraints) -> Floats:
    """The point of {0 <= x <= 1, sum x = k, rules} nearest to y > 0 in relative entropy.

    Without groups that is min(1, t y) for the one t that makes the sum right; with groups each has
    its own t, common to those whose quota does not bind.
    """
    y = np.maximum(y, _FAINTEST)
    x = np.zeros(len(y))
    x[rules.fixed_in] = 1.0
    free = np.ones(len(y), dtype=bool)
    free[rules.fixed_in] = free[rules.fixed_out] = False
    room = k - len(rules.fixed_in)
    if rules.quotas is None:
        x[free] = _fill(y[free], room)
        return x
    taken = rules.quotas.count(rules.fixed_in)
    rows = [np.flatnonzero(free & (rules.quotas.groups == g)) for g in range(len(taken))]
    least = np.maximum(rules.quotas.least - taken, 0)
    most = np.minimum(rules.quotas.most - taken, [len(r) for r in rows])
    shares = _group_sums([y[r] for r in rows], least, most, room)
    for r, share in zip(rows, shares, strict=True):
        x[r] = _fill(y[r], share)
    return x


def _fill(y: Floats, room: float) -> Floats:
    """min(1, t y) with sum `room`."""
    if room <= 0:
        return np.zeros(len(y))
    if room >= len(y):
        return np.ones(len(y))
    most = min(len(y), int(np.ceil(room)) + 1)
    largest = np.sort(np.partition(y, len(y) - most)[len(y) - most :])[::-1]
    others = np.partition(y, len(y) - most)[: len(y) - most].sum()
    rest = others + np.cumsum(largest[::-1])[::-1]  # small ones first: nothing is subtracted
    t = (room - np.arange(most)) / rest
    full = int(np.argmax(t * largest <= 1.0))  # so many are capped at 1
    filled: Floats = np.minimum(1.0, y * t[full])
    return filled


def _group_sums(ys: list[Floats], least: Indices, most: Indices, room: int) -> Floats:
    """How much of `room` each group gets: what min(1, t y) gives it, within its quota."""

    def sums(log_t: float) -> Floats:
        t = np.exp(log_t)
        return np.array(
            [
                np.clip(np.minimum(1.0, t * y).sum(), low, high)
                for y, low, high in zip(ys, least, most, strict=True)
            ]
        )

    everything = np.concatenate(ys)
    if not len(everything) or room <= 0:
        return np.zeros(len(ys))
    low = -np.log(everything.max()) - 80.0  # as good as nothing beside what groups need
    high = -np.log(everything.min())  # everything is full
    for _ in range(100):
        middle = 0.5 * (low + high)
        if sums(middle).sum() < room:
            low = middle
        else:
            high = middle
    shares = sums(high)
    spare = np.flatnonzero(shares > least)  # rounding of the bisection goes where there is room
    if len(spare):
        excess = shares.sum() - room
        largest = spare[np.argmax((shares - least)[spare])]
        shares[largest] -= min(excess, (shares - least)[largest])
    return shares
