"""`overview`: what a report page shows of a selection besides the selection itself, collected.

Everything here is more work than was asked for when items were chosen: it is timed, stage by stage,
and ends at a limit. What the limit leaves out is named in `notes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from fairnepv.api.search import carry_out, supported
from fairnepv.api.selection import Comparison, Selection
from fairnepv.checks import check_positive
from fairnepv.compute.clock import Limit, OutOfTime, apart, limited, now
from fairnepv.errors import InputError, Status
from fairnepv.insight.given import problem_of
from fairnepv.insight.neighbours import Assignment, assign
from fairnepv.insight.plane import Plane, planes
from fairnepv.loop import Context, Progress
from fairnepv.problem import Problem, Stream
from fairnepv.search import check_effort
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Floats, Indices

SHOWN = 50_000  # rows of a map, picks among them
TIME_LIMIT = 60.0  # seconds
_RIVALS_SHARE = 0.5  # of the time
_EXAMPLES = 2000  # of items that picks stand for, over all picks
_MOST_EXAMPLES = 6  # of one pick

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Overview:
    """A selection beside its rivals, where its rows lie, and what its picks stand for."""

    selection: Selection
    rivals: tuple[Selection, ...]
    searched: bool  # whether the rivals were searched for here, by effort 'fast'
    rows: Indices  # (m,) of the maps: the picks in order, then examples, picks of rivals, a sample
    named: int  # how many of these come before the sample
    planes: Mapping[str, Plane]  # by view; one that is called "" is common to all
    assignment: Assignment | None
    examples: tuple[Indices, ...]  # per pick a few rows that it stands for, the nearest first
    seconds: Mapping[str, float]  # what this took besides the selection, by what it was for
    notes: tuple[str, ...]

    @property
    def problem(self) -> Problem:
        """That of the selection, which has its data: without it there is no overview."""
        assert self.selection.problem is not None
        return self.selection.problem

    @property
    def comparison(self) -> Comparison:
        return Comparison((self.selection, *self.rivals))


@dataclass
class _Work:
    """The clock of one overview: stages one after the other, each timed, until time is up."""

    end: float
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def stage(self, name: str, make: Callable[[], T], otherwise: T) -> T:
        began = now()
        try:
            with limited(Limit(self.end)):
                return make()
        except OutOfTime:
            self.notes.append(f"{name} are left out: the limit of time for this page was reached")
            return otherwise
        finally:
            self.seconds[name] = now() - began


@apart
def overview(
    chosen: Selection | Comparison,
    *,
    coordinates: Any = None,
    time_limit: float = TIME_LIMIT,
    progress: Progress | None = None,
) -> Overview:
    """What a page about a selection shows; of a comparison, its row 'auto' among the others.

    coordinates: (n, 2) places of the rows, common or by view; by default the two leading principal
        components of every view.
    time_limit: seconds for rivals, neighbours and maps together.

    The rivals of a single selection are one-view selectors and a draw by lot, by effort 'fast'.
    """
    selection, others = with_rivals(chosen)
    problem = problem_of(selection, "overview")
    given = None if coordinates is None else _checked(coordinates, problem)
    limit = check_positive("time_limit", time_limit)
    work = _Work(now() + limit)
    rivals = others or ()
    if others is None:
        call = Context(time_limit=_RIVALS_SHARE * limit, progress=progress)
        search = _rivals(selection, problem, call, work.notes)
        rivals = work.stage("rivals", lambda: tuple(search), ())
    nearest = work.stage("neighbours", lambda: assign(selection), None)
    examples = () if nearest is None else _examples(selection, nearest)
    named = _each_once([selection.indices, *examples, *(rival.indices for rival in rivals)])
    rows = np.concatenate([named, _sampled(problem, named)])
    if given is not None:
        places = {name: Plane(array[rows], None) for name, array in given.items()}
    else:
        places = work.stage("maps", lambda: planes(problem, rows), {})
    return Overview(
        selection=selection,
        rivals=rivals,
        searched=others is None,
        rows=rows,
        named=len(named),
        planes=places,
        assignment=nearest,
        examples=examples,
        seconds=dict(work.seconds),
        notes=tuple(work.notes),
    )


def with_rivals(chosen: Any) -> tuple[Selection, tuple[Selection, ...] | None]:
    """The selection that a page is about, and its rivals where a comparison has them."""
    if not isinstance(chosen, Comparison):
        return chosen, None
    fair = next((row for row in chosen if row.method == "auto"), chosen.rows[0])
    return fair, tuple(row for row in chosen if row is not fair)


def _rivals(
    selection: Selection, problem: Problem, call: Context, notes: list[str]
) -> Iterator[Selection]:
    """One-view selectors and a draw by lot, on the same problem, by effort 'fast'."""
    assert selection.plan is not None, "where there is a problem there is a plan"
    plain: dict[str, Any] = dict.fromkeys(("passes", "target", "node_limit", "time_limit"))
    plan = replace(selection.plan, effort=check_effort("fast"), shards=(), **plain)
    views = problem.pool.names
    single = [f"{name}-only" for name in views] if len(views) > 1 else []
    others = (name for name in (*single, "random") if name != selection.method)
    names = supported(problem, others, notes)
    for turn, name in enumerate(names):
        session = Context(time_limit=call.part(len(names) - turn), progress=call.progress)
        found = carry_out(problem, replace(plan, method=name), session)
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if found.status is Status.TIME_LIMIT:
            notes.append(f"{name} is left out: its search did not end in time")
        else:
            yield found


def _examples(selection: Selection, nearest: Assignment) -> tuple[Indices, ...]:
    """The nearest of the rows that each pick stands for, itself apart."""
    k = len(selection.indices)
    most = max(1, min(_MOST_EXAMPLES, _EXAMPLES // k))
    others = np.ones(len(nearest.pick), dtype=bool)
    others[selection.indices] = False
    rows = np.flatnonzero(others)
    order = rows[np.lexsort((rows, -nearest.similarity[rows], nearest.pick[rows]))]
    begins = np.searchsorted(nearest.pick[order], np.arange(k + 1))
    ends = np.minimum(begins[:-1] + most, begins[1:])
    return tuple(order[a:b] for a, b in zip(begins[:-1], ends, strict=True))


def _each_once(named: Sequence[Indices]) -> Indices:
    rows = np.concatenate([np.asarray(some, dtype=np.int64) for some in named])
    _, at = np.unique(rows, return_index=True)
    return rows[np.sort(at)]


def _sampled(problem: Problem, named: Indices) -> Indices:
    """A sample of the other rows, as large as there is room for. Rows that were left out are not in
    it: they have no pick and no place."""
    dropped = problem.pool.dropped
    gone = named if dropped is None else np.concatenate([named, dropped])
    rest = np.setdiff1d(np.arange(problem.n), gone, assume_unique=True)
    room = max(0, SHOWN - len(named))
    if len(rest) <= room:
        return rest
    return np.sort(problem.rng(Stream.MAP, 1).choice(rest, room, replace=False))


def _checked(coordinates: Any, problem: Problem) -> dict[str, Floats]:
    """Coordinates by view, or common ones under the empty name."""
    by_view = dict(coordinates) if isinstance(coordinates, Mapping) else {"": coordinates}
    unknown = [name for name in by_view if name not in ("", *problem.pool.names)]
    if unknown or not by_view:
        raise InputError(
            f"coordinates name {unknown}, which are not views: {list(problem.pool.names)}"
        )
    return {name: _checked_array(name, value, problem.n) for name, value in by_view.items()}


def _checked_array(name: str, value: Any, n: int) -> Floats:
    what = f"coordinates of view {name!r}" if name else "coordinates"
    array = plain_array(value, what)
    if array.shape != (n, 2) or array.dtype.kind not in "fiub":
        raise InputError(
            f"{what} must be two numbers per row, shape ({n}, 2), not {array.dtype} of shape "
            f"{array.shape}"
        )
    if not np.isfinite(array).all():
        raise InputError(f"{what} have a value that is not finite; drop or fill such rows")
    return array.astype(np.float64)  # they may be far from zero beside their spread
