"""What a greedy search keeps of its picks in one view.

A pick adds a direction to those that explain the rows: a combination of all picks so far, whose
coefficients make it orthogonal to the directions before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fairnepv.views.base import Floats, View


class Trail:
    """Of any view: anchors are made anew when they are asked for."""

    def __init__(self, view: View, most: int) -> None:
        self._view = view
        self._picks = np.empty(most, dtype=np.int64)
        self._coefficients = np.zeros((most, most))  # row t has those of direction t
        self._anchor: Any = None
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, pick: int, coefficients: Floats) -> None:
        """One more pick, and the coefficients (t + 1,) of its direction on all picks."""
        t = self._length
        self._picks[t], self._coefficients[t, : t + 1] = pick, coefficients
        self._anchor, self._length = None, t + 1

    @property
    def coefficients(self) -> Floats:
        """(t, t) lower triangular: row i makes direction i of the picks."""
        return self._coefficients[: self._length, : self._length]

    def picks(self) -> Any:
        """`View.anchor` of the picks."""
        if self._anchor is None:
            self._anchor = self._view.anchor(self._picks[: self._length])
        return self._anchor

    def directions(self, first: int) -> Any:
        """Anchor of the directions from number `first` on."""
        return self._view.combined(self.picks(), self.coefficients[first:].T)
