"""Rules on which rows may be chosen: items fixed in or out, and quotas on groups of rows.

Every search and every bound asks them by the questions of `Constraints`, so there is one place
where the rules are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import HOST
from fairnepv.errors import InputError
from fairnepv.views.base import Floats, Indices

Mask = NDArray[np.bool_]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Quotas:
    """Rows fall into groups 0..G-1; of each, at least and at most so many are chosen."""

    groups: Codes  # (n,)
    least: Codes  # (G,)
    most: Codes  # (G,)
    labels: tuple[Any, ...] | None = None  # what the groups are called

    @classmethod
    def none(cls, n: int, k: int) -> Quotas:
        """All rows in one group, of which any k may be chosen."""
        return cls(np.broadcast_to(np.int64(0), (n,)), np.array([0]), np.array([k]))

    def name(self, group: int) -> str:
        return repr(group if self.labels is None else self.labels[group])

    def described(self) -> dict[str, tuple[int, int]]:
        """(least, most) by the name of the group."""
        limits = zip(self.least.tolist(), self.most.tolist(), strict=True)
        labels = range(len(self.least)) if self.labels is None else self.labels
        return {str(label): pair for label, pair in zip(labels, limits, strict=True)}

    def count(self, indices: Indices) -> Codes:
        return np.bincount(self.groups[indices], minlength=len(self.least))


def _no_indices() -> Indices:
    return np.empty(0, dtype=np.int64)


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
        quotas = self.quotas or Quotas.none(n, k)
        counts = quotas.count(certain)
        short = np.maximum(quotas.least - counts, 0)
        room = k - len(certain)
        slack = room - short.sum()
        if slack < 0 or (counts > quotas.most).any() or np.isin(certain, self.fixed_out).any():
            return np.zeros(n, dtype=bool)
        # A group with unmet need may grow as long as there is room; another into the slack.
        grows = (short > 0) | ((slack > 0) & (counts < quotas.most))
        allowed: Mask = grows[quotas.groups]
        allowed[missing] = True
        allowed[indices] = False
        allowed[self.fixed_out] = False
        return allowed

    def may_swap(self, indices: Indices, n: int) -> SwapRules:
        """Which row may take which slot of `indices`."""
        blocked = np.zeros(n, dtype=bool)
        blocked[indices] = True
        quotas = self.quotas or Quotas.none(n, len(indices))
        if not self:  # searches ask before every swap
            return SwapRules(blocked, quotas.groups, np.ones((1, len(indices)), dtype=bool))
        blocked[self.fixed_out] = True
        counts = quotas.count(indices)
        own = quotas.groups[indices]  # (k,)
        same = np.arange(len(counts))[:, None] == own
        moves = (counts < quotas.most)[:, None] & (counts > quotas.least)[own]
        open_slots = ~np.isin(indices, self.fixed_in)
        return SwapRules(blocked, quotas.groups, (same | moves) & open_slots)

    def best_set(self, scores: Floats, k: int) -> Indices:
        """The k rows of the largest sum of scores that meet every rule.

        First what must be there, then what groups need, then the best of the rest: the rules are
        those of a matroid, so taking the best at every turn is optimal.
        """
        if not self:
            return np.asarray(HOST.highest(scores, k))
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
        if not self:
            return self
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
