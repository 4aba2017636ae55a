"""The record that every method and every bound receives: what is to be chosen, from what, how.

Constraints are part of it. They are empty unless asked for, but every search asks them through
the three questions of `Constraints`, so there is one place where the rules are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.options import default
from fairnepv.views import Calibration, Pool
from fairnepv.views.arrays import brief, check_positive
from fairnepv.views.base import Floats, Indices

WIDEST_GRAM = 4096  # a (P, P) Gram matrix and its eigenvectors: 256 MiB, half a minute

_MOST_LIFT = 1e5  # nats beside which float64 still tells scores apart by the tie tolerance
_MANY = 256  # picks among few rows that a device makes sooner than the host

Mask = NDArray[np.bool_]
Codes = NDArray[np.int64]


def _no_indices() -> Indices:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Quotas:
    """Rows fall into groups 0..G-1; of each, at least and at most so many are chosen."""

    groups: Codes  # (n,)
    least: Codes  # (G,)
    most: Codes  # (G,)
    labels: tuple[Any, ...] | None = None  # what the groups are called

    def name(self, group: int) -> str:
        return repr(group if self.labels is None else self.labels[group])

    def described(self) -> dict[str, tuple[int, int]]:
        """(least, most) by the name of the group."""
        limits = zip(self.least.tolist(), self.most.tolist(), strict=True)
        labels = range(len(self.least)) if self.labels is None else self.labels
        return {str(label): pair for label, pair in zip(labels, limits, strict=True)}

    def count(self, indices: Indices) -> Codes:
        return np.bincount(self.groups[indices], minlength=len(self.least))


@dataclass(frozen=True)
class Constraints:
    """Items that must and must not be chosen, and quotas on groups of rows."""

    fixed_in: Indices = field(default_factory=_no_indices)
    fixed_out: Indices = field(default_factory=_no_indices)
    quotas: Quotas | None = None

    def __bool__(self) -> bool:
        return bool(len(self.fixed_in) or len(self.fixed_out) or self.quotas)

    def check(self, n: int, k: int, ids: NDArray[Any] | None = None) -> None:
        """Refuse what no set of k rows can satisfy, and name what is in conflict."""
        for name, items in (("include", self.fixed_in), ("exclude", self.fixed_out)):
            if len(items) and (items.min() < 0 or items.max() >= n):
                raise InputError(f"{name} must be rows from 0 to {n - 1}")
        if len(np.unique(self.fixed_in)) < len(self.fixed_in):
            raise InputError("include names some row more than once")
        both = np.intersect1d(self.fixed_in, self.fixed_out)
        if len(both):
            item = both.tolist()[0] if ids is None else ids[both].tolist()[0]
            raise InputError(
                f"item {item!r} is in include and in exclude; drop it from one of the two"
            )
        if len(self.fixed_in) > k:
            raise InputError(
                f"include has {len(self.fixed_in)} items, but k is only {k}; raise k, or choose k "
                "more with include_counts=False"
            )
        available = n - len(np.unique(self.fixed_out))
        if available < k:
            raise InputError(
                f"k = {k}, but exclude leaves only {available} of {n} items; lower k or exclude "
                "fewer"
            )
        if self.quotas is not None:
            self._check_quotas(self.quotas, k)

    def _check_quotas(self, quotas: Quotas, k: int) -> None:
        open_rows = np.setdiff1d(np.arange(len(quotas.groups)), self.fixed_out)
        available, included = quotas.count(open_rows), quotas.count(self.fixed_in)
        for g, (low, high) in enumerate(zip(quotas.least, quotas.most, strict=True)):
            group = f"the quota of group {quotas.name(g)}"
            if low > high:
                raise InputError(f"{group} asks for at least {low} and at most {high}; swap them")
            if low > available[g]:
                raise InputError(
                    f"{group} asks for at least {low} items, but only {available[g]} rows of it "
                    "are not excluded; lower the quota or exclude fewer"
                )
            if included[g] > high:
                raise InputError(
                    f"{group} allows at most {high} items, but include has {included[g]} of them; "
                    "raise the quota or include fewer"
                )
        least = int(np.maximum(included, quotas.least).sum())
        most = int(np.minimum(available, quotas.most).sum())
        if least > k:
            raise InputError(
                f"quotas and include ask for {least} items in all, but k = {k}; raise k or lower "
                "a quota"
            )
        if most < k:
            raise InputError(
                f"the quotas allow {most} items in all, but k = {k}; lower k or raise a quota"
            )

    def is_met(self, indices: Indices) -> bool:
        """Whether a whole selection obeys every rule."""
        if not np.isin(self.fixed_in, indices).all() or np.isin(indices, self.fixed_out).any():
            return False
        if self.quotas is None:
            return True
        counts = self.quotas.count(indices)
        return bool(((counts >= self.quotas.least) & (counts <= self.quotas.most)).all())

    def may_add(self, indices: Indices, n: int, k: int) -> Mask:
        """(n,) rows that can join `indices` such that k items can still meet every rule."""
        missing = np.setdiff1d(self.fixed_in, indices)
        certain = np.concatenate([indices, missing])  # in the set, whatever else joins
        room = k - len(certain)
        hopeless = room < 0 or bool(np.isin(certain, self.fixed_out).any())
        grows = np.array([room > 0])
        groups = np.broadcast_to(np.int64(0), (n,))
        if self.quotas is not None:
            groups = self.quotas.groups
            counts = self.quotas.count(certain)
            short = np.maximum(self.quotas.least - counts, 0)
            hopeless |= bool((counts > self.quotas.most).any()) or room < short.sum()
            # A group with unmet need may grow as long as there is room; another into the slack.
            slack = room > short.sum()
            grows = (room > 0) & ((short > 0) | (slack & (counts < self.quotas.most)))
        if hopeless:
            return np.zeros(n, dtype=bool)
        allowed = grows[groups]
        allowed[missing] = True
        allowed[indices] = False
        allowed[self.fixed_out] = False
        return allowed

    def may_swap(self, indices: Indices, n: int) -> SwapRules:
        """Which row may take which slot of `indices`."""
        blocked = np.zeros(n, dtype=bool)
        blocked[indices] = True
        blocked[self.fixed_out] = True
        open_slots = ~np.isin(indices, self.fixed_in)
        if self.quotas is None:
            return SwapRules(blocked, np.broadcast_to(np.int64(0), (n,)), open_slots[None, :])
        counts = self.quotas.count(indices)
        own = self.quotas.groups[indices]  # (k,)
        same = np.arange(len(counts))[:, None] == own
        moves = (counts < self.quotas.most)[:, None] & (counts > self.quotas.least)[own]
        return SwapRules(blocked, self.quotas.groups, (same | moves) & open_slots)

    def best_set(self, scores: Floats, k: int) -> Indices:
        """The k rows of the largest sum of scores that meet every rule.

        First what must be there, then what groups need, then the best of the rest: the rules are
        those of a matroid, so taking the best at every turn is optimal.
        """
        if not self:
            return np.argpartition(scores, len(scores) - k)[len(scores) - k :]
        free = np.ones(len(scores), dtype=bool)
        free[self.fixed_in] = free[self.fixed_out] = False
        rows, room = np.flatnonzero(free), k - len(self.fixed_in)
        if self.quotas is None:
            return np.concatenate([self.fixed_in, largest(scores, rows, room)])
        order = largest(scores, rows, len(rows))
        groups = self.quotas.groups[order]
        taken = self.quotas.count(self.fixed_in)
        ranks = taken[groups] + _rank_within(groups)  # of every row in its group, those in first
        needed = ranks < self.quotas.least[groups]
        possible = order[(ranks < self.quotas.most[groups]) & ~needed]
        rest = possible[: room - int(needed.sum())]
        return np.concatenate([self.fixed_in, order[needed], rest])

    def take(self, rows: Indices) -> Constraints:
        """The same rules for a sub-pool of these rows; items fixed in must be among them."""
        order = np.argsort(rows, kind="stable")

        def positions(items: Indices) -> Indices:
            return order[np.searchsorted(rows, items, sorter=order)]

        out_there = self.fixed_out[np.isin(self.fixed_out, rows)]
        quotas = self.quotas and replace(self.quotas, groups=self.quotas.groups[rows])
        return Constraints(positions(self.fixed_in), positions(out_there), quotas)


def largest(scores: Floats, rows: Indices, room: int) -> Indices:
    """Up to so many of the rows, by falling scores and, where those are equal, in their order."""
    below = -scores[rows]
    if 0 < room < len(rows):  # or nearly all would be sorted for nothing
        within = ~(below > np.partition(below, room - 1)[room - 1])
        rows, below = rows[within], below[within]
    return rows[np.argsort(below, kind="stable")[: max(room, 0)]]


def _rank_within(groups: Codes) -> Codes:
    """For every position how often its group occurs before it."""
    by_group = np.argsort(groups, kind="stable")
    ordered = groups[by_group]
    first = np.searchsorted(ordered, ordered, side="left")
    ranks = np.empty(len(groups), dtype=np.int64)
    ranks[by_group] = np.arange(len(groups)) - first
    return ranks


@dataclass(frozen=True)
class SwapRules:
    """`blocked` and `groups` are row-aligned (n,); `allowed[g, j]`: a row of group g in slot j."""

    blocked: Mask
    groups: Codes
    allowed: Mask


@dataclass(frozen=True)
class Tolerances:
    """`tie`: candidates this close are tied, and the lowest index wins (DESIGN 4).
    `gain`: what a move must bring to be made. `residual`: k ||A_perp||_F at convergence."""

    tie: float = 1e-10
    gain: float = 1e-10
    residual: float = 1e-6


@dataclass(frozen=True)
class Means:
    """What may be held in memory. Less of it takes longer, or forgoes a start or some tightness of
    the bound; `planning` chooses it where there is a limit."""

    table: int = 1 << 27  # numbers of a swap table; a larger one is made anew in every pass
    confirmed: int = 1 << 22  # float64 numbers of rows whose swaps are confirmed at a time
    support: int | None = None  # rows that the certificate solves its relaxation on, at most
    relaxation: bool = True  # whether frames are relaxed for a start that is one among several


@dataclass(frozen=True)
class Problem:
    """The pool is calibrated already; `calibration` says how, so that it can be done again."""

    pool: Pool
    k: int
    tau: float
    calibration: Calibration
    constraints: Constraints = field(default_factory=Constraints)
    tolerances: Tolerances = field(default_factory=Tolerances)
    random_state: int = default("random_state")
    priorities: Floats | None = None  # (M,) weights in the soft-min, summing to one; None: equal
    floors: Floats | None = None  # (M,) least d_q, -inf where there is none; None: none at all
    means: Means = field(default_factory=Means)

    def __post_init__(self) -> None:
        self.constraints.check(self.pool.n, self.k)
        lift = float(np.abs(self.lifts).max())
        if not lift <= _MOST_LIFT:
            raise InputError(
                f"tau = {self.tau:g} is too large for these priorities, which lift scores by up to "
                f"{lift:.3g} nats, where float64 cannot tell them apart; give a tau of at most "
                f"{0.9 * self.tau * (_MOST_LIFT / lift):.2g}, whose soft-min is all but the "
                "weighted mean"
            )

    @property
    def n(self) -> int:
        return self.pool.n

    @property
    def lifts(self) -> Floats:
        """(M,) -tau log(M pi_q): what priorities pi add to d_q inside of the soft-min.

        -tau log sum_q pi_q exp(-d_q/tau) is the plain soft-min of d_q + lift_q, so nothing else
        needs to know of priorities.
        """
        M = len(self.pool.views)
        if self.priorities is None or np.isinf(self.tau):
            return np.zeros(M)
        return np.asarray(-self.tau * np.log(M * self.priorities))

    @property
    def offsets(self) -> Floats:
        """(M,) what stands beside (1/k) log det (K_q + eps_q I) inside of the soft-min."""
        return np.asarray(self.pool.offsets + self.lifts)

    def rng(self, *purpose: int) -> np.random.Generator:
        """A generator of its own for each purpose, so that resuming needs no stored state."""
        seeds = np.random.SeedSequence(self.random_state, spawn_key=purpose)
        return np.random.default_rng(seeds)

    def over(self, pool: Pool, tau: float | None = None) -> Problem:
        """The same task on other views of the same rows, as the baselines pose it."""
        tau = self.tau if tau is None else tau
        return replace(self, pool=pool, tau=tau, priorities=None, floors=None)

    def take(self, rows: Indices) -> Problem:
        """The same task on these rows alone; indices then count within `rows`."""
        pool = self.pool.take(rows, there=self.k >= _MANY)
        return replace(self, pool=pool, constraints=self.constraints.take(rows))

    def work(self) -> float:
        """Multiply-adds of one product of all features with k vectors: the unit of all passes."""
        return float(self.pool.stored) * self.k


def check_k(k: Any, n: int) -> int:
    """k as an integer from 1 to n - 1; a fraction between 0 and 1 counts of n."""
    if isinstance(k, bool | np.bool_) or not isinstance(k, int | float | np.integer | np.floating):
        raise InputError(f"k must be an integer or a fraction between 0 and 1, not {brief(k)}")
    if isinstance(k, float | np.floating):
        if not 0 < k < 1:
            raise InputError(
                f"k must be an integer or a fraction strictly between 0 and 1, not {float(k)!r}"
            )
        return min(max(1, round(float(k) * n)), n - 1)
    if not 1 <= k < n:
        raise InputError(f"k must be from 1 to n - 1 = {n - 1}, not {brief(int(k))}")
    return int(k)


def check_tau(tau: Any) -> float:
    return check_positive("tau", tau)


def check_random_state(random_state: Any) -> int:
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if not whole or random_state < 0:
        raise InputError(f"random_state must be a non-negative integer, not {brief(random_state)}")
    return int(random_state)


def by_view(pool: Pool, values: Floats) -> Mapping[str, float]:
    """Numbers of the views under their names."""
    return {name: float(value) for name, value in zip(pool.names, values, strict=True)}
