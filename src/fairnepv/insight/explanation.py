"""`explain`: what every pick brings, and who else could have its place."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv import __version__
from fairnepv.api.selection import Selection
from fairnepv.compute import block_threads
from fairnepv.errors import NumericalError
from fairnepv.insight.given import problem_of
from fairnepv.io.frames import Table, Tabular
from fairnepv.objective import Standing, utility_of
from fairnepv.options import DIVERSE
from fairnepv.problem import Problem
from fairnepv.search import misses_floors
from fairnepv.search.explained.swaps import ExplainedSet
from fairnepv.search.explained.swaps import best_swaps as best_explained_swaps
from fairnepv.search.local import best_swaps
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from fairnepv.views.base import Floats, Indices
from fairnepv.views.cosines import check_norms


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Tabular):
    """Every pick in order of selection."""

    objective: str
    indices: Indices  # (k,)
    ids: NDArray[Any]
    contributions: Mapping[str, Floats]  # (k,) nats of log det, or share, that leave with the pick
    rivals: Indices  # (k,) row of the best other item for the place; -1 where none is allowed
    rival_ids: tuple[Any, ...]  # None likewise
    margins: Floats  # (k,) F_tau minus F_tau with the rival instead; nan likewise

    @property
    def headline(self) -> str:
        return (
            f"Explanation of {len(self.indices):,} picks, {self.objective}: what each of them "
            "brings, and the best other item for its place"
        )

    @property
    def table(self) -> Table:
        """One row per pick: what it adds in every view, and the rival for its place."""
        rivals = [None if rival is None else str(rival) for rival in self.rival_ids]
        columns = {
            "id": self.ids,
            "row": self.indices,
            **{f"contribution_{name}": own for name, own in self.contributions.items()},
            "rival_row": self.rivals,
            "rival_id": np.array(rivals, dtype=object),
            "margin": self.margins,
        }
        about = {"fairnepv": __version__, "objective": self.objective}
        return Table(columns, about, "picks")

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
    pool, ids, utility = problem.pool, problem.pool.ids, utility_of(problem)
    with block_threads(problem.work()):
        check_norms(pool)
        try:
            known = _known(problem, selection.indices)
        except np.linalg.LinAlgError as error:
            raise NumericalError(
                "the kernel of the selection is singular in float64, so what a pick brings cannot "
                "be told; raise eps"
            ) from error
        lost = {
            name: view.offset + utility.removals(view, selection.indices, pivots)
            for (name, view), pivots in zip(pool.items(), known.pivots, strict=True)
        }
        rivals, margins = _rivals(problem, selection.indices, known)
    names = rivals if ids is None else ids[rivals].tolist()  # of a row below 0: of none
    named = [None if row < 0 else name for row, name in zip(rivals, names, strict=True)]
    return Explanation(
        selection.objective,
        selection.indices,
        selection.ids,
        lost,
        np.array(rivals, dtype=np.int64),
        tuple(named),
        margins,
    )


class _Known(NamedTuple):
    """What one look at all swaps tells of a set, as the local search of its objective takes it."""

    pivots: Sequence[Floats]  # by view (k,) the diagonal of L_S^-1
    moves: list[tuple[int, tuple[int, ...]]]  # places and the best rows for them
    totals: Floats  # (M,)
    gains: Callable[[int, int], Floats]  # (M,) of a place and a row, what the swap adds to these


def _known(problem: Problem, indices: Indices) -> _Known:
    total, views = utility_of(problem).total, problem.pool.views

    def rescored(place: int, row: int) -> Floats:
        other = indices.copy()
        other[place] = row
        return np.array([total(view, other) for view in views]) - totals

    if problem.utility == DIVERSE:
        subset = Subset.of(problem, indices)
        totals = subset.totals
        moves = best_swaps(SwapTable.of(subset, keep=False)).moves()
        # Of a strained set the inverse does not know what a swap adds.
        gains = rescored if subset.strained.any() else partial(_confirmed, subset)
        return _Known(list(subset.pivots), moves, totals, gains)
    chosen = ExplainedSet.of(problem, indices)
    totals = np.array([total(view, indices) for view in views])
    looked = best_explained_swaps(chosen, above=-np.inf, coarse=False)
    own = zip(views, chosen.views, strict=True)
    pivots = [view.block_place.get(made.T.diagonal()) for view, made in own]
    return _Known(pivots, looked.moves(), totals, rescored)


def _confirmed(subset: Subset, place: int, row: int) -> Floats:
    return subset.confirm(place, row).gains


def _rivals(problem: Problem, indices: Indices, known: _Known) -> tuple[list[int], Floats]:
    """For each place the row of the best swap that misses no floor, and its margin."""
    k = len(indices)
    rivals, margins = [-1] * k, np.full(k, np.nan)
    # F_tau, without the price of a missed floor.
    fair = Standing.of(problem, known.totals, k)._replace(floors=None)
    value = fair.fair_scores(np.zeros(len(known.totals)))
    for place, (row, *_) in known.moves:
        other = indices.copy()
        other[place] = row
        if misses_floors(problem, other):
            continue  # what misses a floor is not allowed
        rivals[place] = row
        margins[place] = value - fair.fair_scores(known.gains(place, row))
    return rivals, margins
