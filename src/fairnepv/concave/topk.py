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
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from fairnepv.compute import HOST, few_threads
from fairnepv.objective import soft_min, soft_min_weights
from fairnepv.problem import Constraints
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices

_GROW, _SHRINK = 1.3, 0.5  # of the step after a success and after a failure
_LONGEST, _LONGEST_MIXED = 16.0, 4.0
_SHORTEST = 1e-6
_FAINTEST = 1e-200  # what multiplication may leave of an entry; its root and inverse are finite
_CHEAPEST = 1e-6  # of the dearest price: what is cheaper falls no faster
_CHUNK = 2048  # rows that are worth a thread of the host
_MEMORY = 6  # points that an ascent looks back on
_REGULAR = 1e-4  # of their differences, against those that hardly differ


Each = Callable[[Sequence[Callable[[], Any]]], Iterable[Any]]


def one_by_one(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


@dataclass(frozen=True)
class Rows:
    """Few rows of one view: as features (m, p), or as a kernel (m, m) where that is smaller.

    Held in float32, they give a value to about six digits in half of the time. They are at `place`,
    and so is what is as large as they are; x and prices are on the host.
    """

    eps: float
    norms: Floats  # (m,) diagonal of the kernel
    features: Any = None
    kernel: Any = None
    place: Any = HOST

    @property
    def exact(self) -> bool:
        held = self.kernel if self.features is None else self.features
        return bool(held.dtype == self.place.xp.float64)

    def at(self, x: Floats, k: int, each: Each = one_by_one) -> Slope:
        """Gamma and its gradient at x >= 0. `each` does the work on chunks of the rows."""
        place, kind = self.place, np.float64 if self.exact else np.float32
        root = place.put(np.sqrt(x).astype(kind))
        if self.features is not None:
            parts = each([partial(_gram, self.features[c], root[c]) for c in self._chunks])
            matrix = functools.reduce(operator.add, parts)
        else:
            matrix = root[:, None] * self.kernel * root
        with few_threads(float(len(matrix)) ** 3):
            lam, Y = place.leading(matrix, k)
        r, mean = split(lam, place.trace(matrix), k)
        lam, Y = lam[:r], Y[:, :r]
        value = float(np.log(lam + self.eps).sum() + (k - r) * np.log(mean + self.eps))
        # Where the leading eigenvectors are all there are, nothing is left to be at the level, and
        # 1/eps would only cost digits.
        everything = 0 < r == len(matrix)
        level = 1.0 / ((lam[-1] if everything else mean) + self.eps)
        depth = np.sqrt(np.maximum(level - 1.0 / (lam + self.eps), 0.0))
        Y = Y * place.put(depth.astype(kind))
        if self.features is not None:
            chunks = list(each([partial(_image, self.features[c], Y) for c in self._chunks]))
            images, B = chunks[0] if len(chunks) == 1 else place.xp.concat(chunks), None
        else:
            B = root[:, None] * (Y / place.put(np.sqrt(lam).astype(kind)))
            images = self.kernel @ B
        prices = np.maximum(level * self.norms - place.get(place.square_sums(images)), 0.0)
        return Slope(value, prices, level, partial(self._combination, x, lam, images, B))

    def _combination(self, x: Floats, lam: Floats, images: Any, B: Any) -> Any:
        """B (m, r) with Phi^T B = U for eigenvectors U of Phi^T diag(x) Phi, which are given to a
        kernel as such; to features by their images Phi U, since Phi^T diag(x) Phi U = U diag(lam).
        """
        if B is not None:
            return self.place.xp.astype(B, self.place.xp.float64)
        return self.place.put(x)[:, None] * images / self.place.put(lam)

    @property
    def _chunks(self) -> list[slice]:
        """A fixed partition, so that sums do not depend on the number of threads; a device has
        its threads inside of one."""
        m = len(self.norms)
        size = _CHUNK if self.place is HOST else max(m, 1)
        return [slice(start, start + size) for start in range(0, m, size)]


def _gram(features: Any, root: Any) -> Any:
    weighted = root[:, None] * features
    return weighted.T @ weighted


def _image(features: Any, Y: Any) -> Any:
    return features @ Y


@dataclass(frozen=True, eq=False)
class Slope:
    """Gamma at a point, and W = level I - Phi^T B B^T Phi with B = `combine` (m, r), r < k."""

    value: float
    prices: Floats  # (m,) phi_i^T W phi_i
    level: float
    combination: Callable[[], Any]  # of B, which most points are never asked for

    @property
    def combine(self) -> Any:
        return self.combination()


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
    each: Each = one_by_one  # how independent parts of an evaluation are done

    @property
    def m(self) -> int:
        return len(self.views[0].norms)

    def at(self, x: Floats) -> ConcavePoint:
        if len(self.views) == 1:
            slopes = [self.views[0].at(x, self.k, self.each)]
        else:
            slopes = list(self.each([partial(view.at, x, self.k) for view in self.views]))
        return ConcavePoint(self, x, tuple(slopes))

    def start(self) -> Floats:
        """The flattest point that the rules allow."""
        return cap(np.ones(self.m), self.k, self.rules)

    @property
    def noise(self) -> float:
        """By how much two values that are equal may differ."""
        return 1e-14 if all(view.exact for view in self.views) else 1e-6


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
        w: Floats = soft_min_weights(self.view_values, self.topk.tau)
        return w

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


class Climb(NamedTuple):
    point: ConcavePoint  # of the largest value
    tightest: ConcavePoint  # of the least bound
    eta: float  # the step to try next; 0 where none helps
    evaluations: int


def climb(point: ConcavePoint, eta: float, wanted: float, most: int) -> Climb:
    """Ascend until the bound on these rows is within `wanted`, in at most so many evaluations.

    The multiplicative step is a fixed-point iteration in log x, which Anderson's mixing of the last
    few points shortens several times over. A mixed step that lowers the value is taken back, and
    the memory forgotten, so that the next one is plain; a plain one that does is halved.
    """
    topk, tightest, evaluations = point.topk, point, 0
    memory: list[tuple[Floats, Floats]] = []
    while tightest.bound - point.value > wanted and evaluations < most and eta > 0:
        dearest = point.prices.max()
        if dearest == 0:  # zero rows in the views that bind: every point is as good
            return Climb(point, tightest, 0.0, evaluations)
        logs = np.log(np.maximum(point.x, _FAINTEST))
        step = np.log(np.maximum(point.prices / dearest, _CHEAPEST))
        memory = [*memory[-_MEMORY + 1 :], (logs, step)]
        y = _mixed(memory, np.where(point.x < 1.0, point.x, 0.0), eta)
        candidate = topk.at(cap(y, topk.k, topk.rules))
        evaluations += 1
        tightest = candidate if candidate.bound < tightest.bound else tightest
        if candidate.value >= point.value - topk.noise:
            point, eta = candidate, min(eta * _GROW, _LONGEST_MIXED)
            continue
        if len(memory) == 1:
            eta = eta * _SHRINK if eta > _SHORTEST else 0.0
        memory = []
    return Climb(point, tightest, eta, evaluations)


def _mixed(memory: list[tuple[Floats, Floats]], weight: Floats, eta: float) -> Floats:
    """x * prices^eta from that combination of past points at which log prices vary least.

    They vary as `weight` counts them: x, but for entries at 1, whose prices are free to be above
    the others. A common factor of the prices does not count.
    """
    logs, steps = (np.stack(part) for part in zip(*memory, strict=True))
    here, step = logs[-1], steps[-1]
    if len(memory) > 1 and weight.any():
        weight = weight / weight.sum()
        changes = steps[:-1] - step
        centred = changes - (changes @ weight)[:, None]
        normal = (centred * weight) @ centred.T
        normal.flat[:: len(normal) + 1] += _REGULAR * np.trace(normal) + _FAINTEST
        c = -np.linalg.solve(normal, (centred * weight) @ step)
        here, step = here + c @ (logs[:-1] - here), step + c @ changes
    target = here + eta * step
    mixed: Floats = np.exp(target - target.max())
    return mixed


def held_rows(view: View, rows: Indices, shift: float = 0.0, dtype: DTypeLike = np.float64) -> Rows:
    """Rows of a view: as features, or as a kernel where that is the smaller side."""
    eps, place = view.ridge + max(shift, 0.0), view.place
    kind = getattr(place.xp, np.dtype(dtype).name)
    if view.p < len(rows) and not shift:
        features = view.dense_rows(rows)
        norms = place.get(place.square_sums(features))
        return Rows(eps, norms, place.xp.astype(features, kind, copy=False), place=place)
    K = view.inner(rows, rows)
    K.flat[:: len(K) + 1] -= shift
    kernel = place.put(K.astype(dtype, copy=False))
    return Rows(eps, np.diagonal(K).copy(), kernel=kernel, place=place)


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
