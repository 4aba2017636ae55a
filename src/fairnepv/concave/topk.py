"""The concave relaxation of F_tau over {0 <= x <= 1, sum x = k}, on few rows.

The value and the gradient at any x bound all sets (docs/method.md#concave-bound). Which rows
are held is for the certificate and for branch and bound to say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute.clock import EIGENVECTORS, expect
from fairnepv.concave.state import Origin
from fairnepv.objective import UTILITIES, Standing, Utility, soft_min, soft_min_weights
from fairnepv.objective.held import Each, one_by_one
from fairnepv.objective.ritz import CRUDE
from fairnepv.problem import DEFAULT_UTILITY, Constraints
from fairnepv.views.base import Floats, Indices

_GROW, _SHRINK = 1.3, 0.5  # of the step after a success and after a failure
_LONGEST, _LONGEST_MIXED = 16.0, 4.0
_SHORTEST = 1e-6
_FAINTEST = 1e-200  # what multiplication may leave of an entry; its root and inverse are finite
_CHEAPEST = 1e-6  # of the dearest price: what is cheaper falls no faster
_EVALUATIONS = 12  # of the relaxation on the candidates of a node
_HOPELESS = 0.2  # a gap that small, beside how far the value is above the best set, stays above it
_MEMORY = 6  # points that an ascent looks back on
_ROUGHNESS = 0.2  # of what a value may be too large by: how much two of them differ in it
_FEW = 0.2  # of its eigenvectors: for more, all of them are computed
_LOOKED_BACK, _SLOW = 12, 0.9  # so many evaluations that leave so much of the gap are slow
_REGULAR = 1e-4  # of their differences, against those that hardly differ


@dataclass(frozen=True)
class TopK:
    """The relaxation on m rows: all views, the soft-min, and the rules on x.

    Totals are divided for sets of `size`: k, or more where some items are chosen already and their
    part stands in the offsets.
    """

    views: tuple[Any, ...]  # rows as the utility holds them, such as `HeldRows`
    offsets: Floats  # (M,)
    tau: float
    k: int
    size: int
    rules: Constraints
    each: Each = one_by_one  # how independent parts of an evaluation are done
    utility: Utility = UTILITIES[DEFAULT_UTILITY]

    @property
    def divisor(self) -> float:
        return self.utility.divisor(self.size)

    def at(self, x: Floats, origin: Origin | None = None) -> ConcavePoint:
        """The point of x; what is known of one nearby spares it some work where rows may be
        rough."""
        origin = origin or Origin(None, (None,) * len(self.views))
        views = self._weighing(origin.weights)
        sides = [view.side for view in views if not view.crude]
        # If not, leading eigenvectors will do.
        fresh = all(basis is None for basis in origin.bases)
        whole = fresh or self.k > _FEW * min(sides, default=0)
        expect(EIGENVECTORS * sum(side**3 for side in sides) if whole else 0.0)
        each = one_by_one if len(views) > 1 else self.each
        majorant = partial(self.utility.majorant, x=x, k=self.k, each=each)
        own = zip(views, origin.bases, strict=True)
        slopes = self._by_view([partial(majorant, view, basis=basis) for view, basis in own])
        return ConcavePoint(self, x, slopes, origin)

    def least_value(self, point: ConcavePoint) -> float:
        """At most the value at a point that is the same but for its precision, and next to it."""
        least = partial(self.utility.least_majorant, x=point.x, k=self.k)
        own = zip(self._weighing(point.weights), point.slopes, strict=True)
        totals = self._by_view([partial(least, view, near=slope) for view, slope in own])
        return float(soft_min(np.array(totals) / self.divisor + self.offsets, self.tau))

    def rough_weights(self, x: Floats) -> Floats:
        """About the weights of the views at x."""
        crude = replace(self, views=tuple(replace(view, rough=CRUDE) for view in self.views))
        return crude.at(x).weights

    def _weighing(self, weights: Floats | None) -> tuple[Any, ...]:
        """The views, each as rough as its weight allows."""
        if weights is None:
            return self.views
        own = zip(self.views, weights.tolist(), strict=True)
        return tuple(view.weighing(weight) for view, weight in own)

    def _by_view(self, calls: list[Callable[[], Any]]) -> tuple[Any, ...]:
        return tuple(self.each(calls) if len(calls) > 1 else one_by_one(calls))

    @property
    def noise(self) -> float:
        """How far values that are equal may differ."""
        if all(view.exact for view in self.views):
            return 1e-14
        return max(1e-6, _ROUGHNESS * float(max(view.rough for view in self.views)))

    def start(self) -> Floats:
        """The flattest point that the rules allow."""
        return cap(np.ones(len(self.views[0].norms)), self.k, self.rules)


@dataclass(frozen=True, eq=False)
class ConcavePoint:
    topk: TopK
    x: Floats
    slopes: tuple[Any, ...]  # by view, each a `Tangent`
    origin: Origin  # with which it can be made again

    @property
    def nearby(self) -> Origin:
        """What a point like this one may begin with."""
        return Origin(self.weights, tuple(slope.basis for slope in self.slopes))

    @functools.cached_property
    def view_values(self) -> Floats:
        return np.array([s.value for s in self.slopes]) / self.topk.divisor + self.topk.offsets

    @functools.cached_property
    def value(self) -> float:
        return float(soft_min(self.view_values, self.topk.tau))

    @functools.cached_property
    def weights(self) -> Floats:
        return np.asarray(soft_min_weights(self.view_values, self.topk.tau))

    @functools.cached_property
    def prices(self) -> Floats:
        """(m,) gradient of the relaxed F_tau; its units are nats per item."""
        shares = self.weights / self.topk.divisor
        return np.asarray(sum(c * s.prices for c, s in zip(shares, self.slopes, strict=True)))

    @functools.cached_property
    def bound(self) -> float:
        """No x, and so no subset, of these rows scores above this."""
        best = self.topk.rules.best_set(self.prices, self.topk.k)
        return self.value + float(self.prices[best].sum() - self.prices @ self.x)


def ascend(point: ConcavePoint, eta: float) -> tuple[ConcavePoint, float]:
    """One multiplicative step x <- cap(x * prices^eta) that does not lower the value, and the step
    to try next; 0 where none helps."""
    topk, x = point.topk, point.x
    dearest = point.prices.max()
    if dearest == 0:  # zero rows in the views that bind: every point is as good
        return point, 0.0
    scaled = point.prices / dearest
    while eta >= _SHORTEST:
        candidate = topk.at(cap(x * scaled**eta, topk.k, topk.rules))
        if candidate.value >= point.value - 1e-14:
            return candidate, min(eta * _GROW, _LONGEST)
        eta *= _SHRINK
    return point, 0.0


def price_candidates(
    views: tuple[Any, ...], standing: Standing, room: int, best: float, sure: float
) -> tuple[Floats, float]:
    """Prices (m,) and a constant: a set with `room` of these candidates scores at most the sum of
    their prices plus the constant.

    `standing` is that of what is chosen already, and `views` are the candidates conditional on it.
    The relaxation is left once its bound exceeds `best` by at most `sure`, or is seen to stay
    above.
    """
    size, utility = standing.size, standing.utility
    offsets = standing.offsets + standing.totals / utility.divisor(size)
    topk = TopK(views, offsets, standing.tau, room, size, Constraints(), utility=utility)
    point = topk.at(topk.start())
    found, eta = point, 1.0
    for _ in range(_EVALUATIONS):
        if found.bound <= best + sure or eta == 0.0:
            break
        point, eta = ascend(point, eta)
        found = point if point.bound < found.bound else found
        above = point.value - best
        if above > 0 and found.bound - point.value < _HOPELESS * above:
            break
    return found.prices, found.value - float(found.prices @ found.x)


class Climb(NamedTuple):
    point: ConcavePoint  # of the largest value
    tightest: ConcavePoint  # of the least bound
    eta: float  # the step to try next; 0 where none helps
    evaluations: int


def climb(point: ConcavePoint, eta: float, wanted: float, most: int) -> Climb:
    """Ascend until the bound on these rows is within `wanted`, in at most so many evaluations, or
    until several of them in a row hardly brought it nearer, where that may be for their rounding.

    The multiplicative step is a fixed-point iteration in log x, which Anderson's mixing of the last
    few points shortens several times over. A mixed step that lowers the value is taken back, and
    the memory forgotten, so that the next one is plain; a plain one that does is halved.
    """
    topk, tightest, evaluations = point.topk, point, 0
    memory: list[tuple[Floats, Floats]] = []
    exact = all(view.exact for view in topk.views)
    gap = np.inf  # some evaluations ago
    while tightest.bound - point.value > wanted and evaluations < most and eta > 0:
        if not exact and evaluations and evaluations % _LOOKED_BACK == 0:
            if tightest.bound - point.value > _SLOW * gap:
                break
            gap = tightest.bound - point.value
        dearest = point.prices.max()
        if dearest == 0:  # zero rows in the views that bind: every point is as good
            return Climb(point, tightest, 0.0, evaluations)
        logs = np.log(np.maximum(point.x, _FAINTEST))
        step = np.log(np.maximum(point.prices / dearest, _CHEAPEST))
        memory = [*memory[-_MEMORY + 1 :], (logs, step)]
        y = _mixed(memory, np.where(point.x < 1.0, point.x, 0.0), eta)
        candidate = topk.at(cap(y, topk.k, topk.rules), point.nearby)
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
    return np.asarray(np.exp(target - target.max()))


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
    parted = np.partition(y, len(y) - most)
    largest = np.sort(parted[len(y) - most :])[::-1]
    others = parted[: len(y) - most].sum()
    rest = others + np.cumsum(largest[::-1])[::-1]  # small ones first: nothing is subtracted
    t = (room - np.arange(most)) / rest
    full = int(np.argmax(t * largest <= 1.0))  # so many are capped at 1
    return np.asarray(np.minimum(1.0, y * t[full]))


def _group_sums(ys: list[Floats], least: Indices, most: Indices, room: int) -> Floats:
    """How much of `room` each group gets: what min(1, t y) gives it, within its quota."""

    def sums(log_t: float) -> Floats:
        t = np.exp(log_t)
        return np.asarray(np.clip([np.minimum(1.0, t * y).sum() for y in ys], least, most))

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
