"""What a user knows of the items besides their views: names, groups, texts, pictures; looked up for
the rows that a page shows, and for no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv.display import visible
from fairnepv.errors import InputError
from fairnepv.io.read import read_ids, read_picks
from fairnepv.io.some_rows import read_pictures, read_texts
from fairnepv.problem import Problem
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Indices


@dataclass(frozen=True)
class Material:
    """What was handed in: by row of the pool, by id in a mapping, or as the name of a file."""

    problem: Problem
    images: Any = None
    texts: Any = None
    ids: Any = None
    groups: Any = None

    def check(self) -> None:
        """Refuse what does not belong to these rows, before any work: no row is looked up."""
        nobody = np.empty(0, dtype=np.int64)
        for look_up in (self.names, self.labels, self.captions, self.pictures):
            look_up(nobody)

    def names(self, rows: Indices) -> list[str]:
        """What rows are called: by ids, or by their numbers."""
        return [visible(value) for value in self._names(rows)]

    @property
    def has_names(self) -> bool:
        return self.ids is not None or self.problem.pool.ids is not None

    def _names(self, rows: Indices) -> list[Any]:
        if self.ids is not None:
            values = _column("ids", self.ids, read_ids, self.problem.n)
            return [values[row] for row in rows.tolist()]
        found: list[Any] = self.problem.ids_of(rows).tolist()
        return found

    def labels(self, rows: Indices) -> list[str | None]:
        """Groups, by default those of the quotas; None where there are none at all."""
        if self.groups is not None:
            values = _column("groups", self.groups, _read_groups, self.problem.n)
            return [_text(values[row]) for row in rows.tolist()]
        quotas = self.problem.constraints.quotas
        if quotas is None:
            return [None] * len(rows)
        labels = range(len(quotas.least)) if quotas.labels is None else quotas.labels
        return [visible(labels[group]) for group in quotas.groups[rows].tolist()]

    def captions(self, rows: Indices) -> list[str | None]:
        if isinstance(self.texts, str | Path):
            return [_text(text) for text in read_texts(str(self.texts), rows, self.problem.n)]
        return [_text(value) for value in self._looked_up("texts", self.texts, rows)]

    def pictures(self, rows: Indices) -> list[Any]:
        """What a thumbnail can be made of, or None."""
        if isinstance(self.images, str | Path):
            names = [str(name) for name in self._names(rows)]
            return list(read_pictures(str(self.images), rows, self.problem.n, names))
        return self._looked_up("images", self.images, rows)

    def _looked_up(self, what: str, given: Any, rows: Indices) -> list[Any]:
        if given is None:
            return [None] * len(rows)
        if isinstance(given, Mapping):
            return [given.get(name) for name in self._names(rows)]
        return _by_row(what, given, self.problem.n, rows)


def _by_row(what: str, given: Any, n: int, rows: Indices) -> list[Any]:
    """Values of a list, an array, a column of a table: whatever has a length and answers to row
    numbers."""
    values = getattr(given, "iloc", given)  # of pandas, whose own numbers may be others
    if not hasattr(given, "__len__") or not hasattr(values, "__getitem__") or len(given) != n:
        came = f"{len(given):,}" if hasattr(given, "__len__") else type(given).__name__
        raise InputError(
            f"{what} must have one value for every row of the pool, {n:,} in all, not {came}; or "
            "be a mapping from ids, or the name of a file"
        )
    found = [values[row] for row in rows.tolist()]
    return [value.as_py() if hasattr(value, "as_py") else value for value in found]


def _column(what: str, given: Any, read: Callable[[str], Any], n: int) -> Sequence[Any]:
    values = read(str(given)) if isinstance(given, str | Path) else plain_array(given, what)
    if np.shape(values) != (n,):
        raise InputError(
            f"{what} must have one value for every row of the pool, {n:,} in all, not shape "
            f"{np.shape(values)}"
        )
    found: list[Any] = values.tolist()
    return found


def _read_groups(given: str) -> Any:
    return read_picks(given, "group")


def _text(value: Any) -> str | None:
    """None for what is missing, NaN as pandas has it among that."""
    missing = value is None or (isinstance(value, float) and value != value)
    return None if missing else visible(value)
