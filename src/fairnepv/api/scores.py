"""How a subset does: the record that every other result has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.records import score_record
from fairnepv.api.shown import score_line
from fairnepv.io.frames import Table, Tabular
from fairnepv.objective import UNITS, Nats
from fairnepv.views.base import Indices


@dataclass(frozen=True, eq=False, repr=False)
class Score(Tabular):
    """How one subset does in every view, and what follows from it: d_q(S) in nats per item for the
    objective 'diverse', the share of variance explained for 'representative'."""

    objective: str
    scores: Mapping[str, float]  # d_q(S) by view
    fair_score: float  # F_tau(S), the soft minimum of them
    view_weights: Mapping[str, float]  # of the soft minimum; they sum to one

    if TYPE_CHECKING:  # a value here, and there what a pass finds when it is asked for

        @property
        def coverage(self) -> Mapping[str, float]:
            """C_q(S), mean cosine distance to the nearest pick; low is good."""

    @property
    def units(self) -> Nats:
        """In what the scores are told."""
        return UNITS[self.objective]

    @property
    def worst_view(self) -> str:
        """The view with the lowest score."""
        return min(self.scores, key=self.scores.__getitem__)

    @property
    def minimum(self) -> float:
        """The score of the worst view."""
        return min(self.scores.values())

    @property
    def headline(self) -> str:
        return f"{type(self).__name__}, {self.objective}: {score_line(self)}"

    @property
    def table(self) -> Table:
        """One row per view."""
        columns = {
            "view": np.array(list(self.scores), dtype=object),
            "score": np.array(list(self.scores.values())),
            "weight": np.array(list(self.view_weights.values())),
            "coverage": np.array([self.coverage[name] for name in self.scores]),
        }
        return Table(columns, score_record(self), "views")

    def losses(self, against: Score) -> dict[str, float]:
        """Per view what this subset has less than the other, in the units of their scores."""
        return {name: against.scores[name] - value for name, value in self.scores.items()}


@dataclass(frozen=True, repr=False)
class SubsetScore(Score):
    """The score of a subset that somebody has chosen: numbers alone, which are compared."""

    coverage: Mapping[str, float]

    def __hash__(self) -> int:
        return hash(self.fair_score)


@dataclass(frozen=True, eq=False, repr=False)
class Optimum(SubsetScore):
    """The discrete optimum of a small pool, by enumeration."""

    indices: Indices
    ids: NDArray[Any]
    subsets: int  # how many were looked at
    ties: int  # how many are optimal

    __eq__, __hash__ = object.__eq__, object.__hash__  # as all results that hold arrays

    @property
    def headline(self) -> str:
        best = f"{len(self.indices)} items, the best of {self.subsets:,} subsets"
        return f"{super().headline}; {best}"

    def suboptimality(self, other: Score) -> float:
        """max_S F_tau(S) - F_tau(S') [FairNEPv, appendix B]."""
        return self.fair_score - other.fair_score
