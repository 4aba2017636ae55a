"""`explain`: what every pick brings, and who else could have its place."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.selection import Selection
from fairnepv.compute import block_threads
from fairnepv.errors import NumericalError
from fairnepv.insight.given import problem_of
from fairnepv.objective import utility_of
from fairnepv.problem import Problem
from fairnepv.search import misses_floors
from fairnepv.search.local import best_swaps
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from fairnepv.views.base import Floats, Indices
from fairnepv.views.cosines import check_norms


@dataclass(frozen=True, eq=False)
class Explanation:
    """Every pick in order of selection."""

    objective: str
    indices: Indices  # (k,)
    ids: NDArray[Any]
    contributions: Mapping[str, Floats]  # (k,) nats of log det, or share, that leave with the pick
    rivals: Indices  # (k,) row of the best other item for the place; -1 where none is allowed
    rival_ids: tuple[Any, ...]  # None likewise
    margins: Floats  # (k,) F_tau minus F_tau with the rival instead; nan likewise

    def rows(self) -> list[dict[str, Any]]:
        """One record of plain values per pick; what there is not is None."""
        return [self._row(place) for place in range(len(self.indices))]

    def _row(self, place: int) -> dict[str, Any]:
        margin, rival = float(self.margins[place]), int(self.rivals[place])
        return {
            "order": place,
            "row": int(self.indices[place]),
            "id": self.ids[[place]].tolist()[0],
            "contributions": {name: float(own[place]) for name, own in self.contributions.items()},
            "rival_row": None if rival < 0 else rival,
            "rival_id": self.rival_ids[place],
            "margin": None if math.isnan(margin) else margin,
        }


def explain(selection: Selection) -> Explanation:
    """What every pick brings to every view, and how close the next best item for its place is.

    A contribution is what log det L_q[S, S] loses without the pick, -log B_jj for B = L_S^-1; for
    the objective 'representative' it is what the share of the view loses. The rival is the allowed
    one-swap of the place with the highest F_tau, the lowest row of those that are tied. A negative
    margin means that the swap would improve the selection.
    """
    problem = problem_of(selection, "explain")
    with block_threads(problem.work()):
        check_norms(problem.pool)
        try:
            subset = Subset.of(problem, selection.indices)
        except np.linalg.LinAlgError as error:
            raise NumericalError(
                "the kernel of the selection is singular in float64, so what a pick brings cannot "
                "be told; raise eps"
            ) from error
        rivals, margins = _rivals(problem, subset)
    pool, ids = problem.pool, problem.pool.ids
    names = rivals if ids is None else ids[rivals].tolist()  # of a row below 0: of none
    named = [None if row < 0 else name for row, name in zip(rivals, names, strict=True)]
    utility, by_view = utility_of(problem), zip(pool.items(), subset.pivots, strict=True)
    return Explanation(
        selection.objective,
        selection.indices,
        selection.ids,
        {
            name: view.offset + utility.removals(view, selection.indices, pivots)
            for (name, view), pivots in by_view
        },
        np.array(rivals, dtype=np.int64),
        tuple(named),
        margins,
    )


def _rivals(problem: Problem, subset: Subset) -> tuple[list[int], Floats]:
    """One look at all swaps, as the local search takes it; of each place the best that is left."""
    k = len(subset.indices)
    rivals, margins = [-1] * k, np.full(k, np.nan)
    fair = subset.standing._replace(floors=None)  # F_tau, without the price of a missed floor
    value = fair.fair_scores(np.zeros(len(subset.totals)))
    for place, (row, *_) in best_swaps(SwapTable.of(subset, keep=False)).moves():
        if misses_floors(problem, subset.with_row(place, row)):
            continue  # what misses a floor is not allowed
        rivals[place] = row
        margins[place] = value - fair.fair_scores(_gains(subset, place, row))
    return rivals, margins


def _gains(subset: Subset, place: int, row: int) -> Floats:
    """What a swap adds to the totals; of a strained set the inverse does not know it."""
    if not subset.strained.any():
        return subset.confirm(place, row).gains
    indices, problem = subset.with_row(place, row), subset.problem
    total = utility_of(problem).total
    return np.array([total(view, indices) for view in problem.pool.views]) - subset.totals
