"""`diff`: what changed from one selection to another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.selection import Selection
from fairnepv.errors import InputError
from fairnepv.insight.given import check_selection
from fairnepv.io.frames import Table, Tabular
from fairnepv.io.texts import same_kind

# What scores depend on; a stored selection may know of less.
_SCALE = ("objective", "k", "tau", "eps", "center", "calibration", "quality", "priorities")


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Tabular):
    """From a to b; changes are what b has more."""

    common: NDArray[Any]  # ids, or row numbers where one of the two has no ids; in the order of a
    only_a: NDArray[Any]
    only_b: NDArray[Any]  # in the order of b
    jaccard: float  # common items as a share of all that either has
    score_changes: Mapping[str, float]
    fair_score_change: float
    upper_bound_change: float | None  # None where one of the two has no bound
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        changes = ", ".join(f"{name} {change:+.4f}" for name, change in self.score_changes.items())
        lost, new = len(self.only_a), len(self.only_b)
        return (
            f"Difference: {len(self.common):,} items in common, {lost:,} lost, {new:,} new "
            f"(Jaccard {self.jaccard:.3f}); fair score {self.fair_score_change:+.4f} ({changes})"
        )

    @property
    def table(self) -> Table:
        """One row per item that either has, and which of them has it."""
        parts = {"both": self.common, "a": self.only_a, "b": self.only_b}
        ids = [item for items in parts.values() for item in items.tolist()]
        where = [name for name, items in parts.items() for _ in range(len(items))]
        texts = object if any(isinstance(item, str) for item in ids) else None
        columns = {"id": np.array(ids, dtype=texts), "in": np.array(where, dtype=object)}
        changes = {"scores": dict(self.score_changes), "fair_score": self.fair_score_change}
        about = {"jaccard": self.jaccard, "changes": changes, "notes": list(self.notes)}
        return Table(columns, about, "items")


def diff(a: Selection, b: Selection) -> Difference:
    """Which items two selections share, by id where both have ids, and how scores differ."""
    a, b = check_selection(a, "a"), check_selection(b, "b")
    _check_same_pool(a, b)
    left, right = (a.ids, b.ids) if a.has_ids and b.has_ids else (a.indices, b.indices)
    if not same_kind(left, right):
        raise InputError(f"the ids of a are {left.dtype}, those of b {right.dtype}; use one type")
    shared = np.isin(left, right)
    bounds = a.upper_bound, b.upper_bound
    scales = [(name, a.settings.get(name), b.settings.get(name)) for name in _SCALE]
    notes = [
        f"{name} is {left} in a and {right} in b, so their scores are on different scales"
        for name, left, right in scales
        if left != right
    ]
    return Difference(
        left[shared],
        left[~shared],
        right[~np.isin(right, left)],
        jaccard(left, right),
        {name: b.scores[name] - a.scores[name] for name in a.scores},
        b.fair_score - a.fair_score,
        None if bounds[0] is None or bounds[1] is None else bounds[1] - bounds[0],
        tuple(notes),
    )


def jaccard(left: NDArray[Any], right: NDArray[Any]) -> float:
    """Shared items as a share of all that either of two sets has."""
    shared = len(np.intersect1d(left, right))
    return shared / (len(left) + len(right) - shared)


def _check_same_pool(a: Selection, b: Selection) -> None:
    by_id = a.has_ids and b.has_ids  # a pool that has grown is still known by its ids
    if a.chosen_from["n"] != b.chosen_from["n"] and not by_id:
        raise InputError(
            f"a was chosen from {a.chosen_from['n']} items and b from {b.chosen_from['n']}; "
            "compare selections from the same pool, or select with ids"
        )
    if list(a.scores) != list(b.scores):
        raise InputError(
            f"a has the views {list(a.scores)} and b has {list(b.scores)}; compare selections by "
            "the same views"
        )
