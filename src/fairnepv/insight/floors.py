"""`tradeoff`: what favouring one view costs the others."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from fairnepv.api.select import is_one_size, select
from fairnepv.api.selection import Selection
from fairnepv.api.tables import from_tables
from fairnepv.checks import brief, check_count, check_flag
from fairnepv.errors import InputError, Status, TimeLimitError
from fairnepv.io.frames import Table, Tabular
from fairnepv.loop import Context, Step
from fairnepv.loop.bars import telling
from fairnepv.options import Rounding, SelectOptions
from fairnepv.search import misses_floors
from fairnepv.signatures import checked, options_of, takes
from fairnepv.views.base import Floats
from fairnepv.views.intake import named_views

_NOTHING = 1e-9  # nats per item; a view that is this close to its own optimum has none to gain
_OF_A_BOUND = ("target_efficiency", "node_limit")  # options that a single view's optimum is without


@dataclass(frozen=True, eq=False, repr=False)
class Tradeoff(Tabular):
    """One selection per floor under `view`, from the fair one on."""

    view: str
    floors: Floats  # ascending, as far as they were reached
    selections: tuple[Selection, ...]
    notes: tuple[str, ...] = ()  # why the curve ends early

    @property
    def headline(self) -> str:
        low, high = (self.selections[0].units.shown(floor) for floor in self.floors[[0, -1]])
        return (
            f"Tradeoff for view {self.view!r}: {len(self.selections)} selections, under floors "
            f"from {low} to {high}"
        )

    @property
    def table(self) -> Table:
        """One row per floor."""
        columns = {
            "floor": self.floors,
            "fair_score": self.fair_scores,
            **{f"score_{name}": values for name, values in self.scores.items()},
            "status": np.array([row.status.name for row in self.selections], dtype=object),
        }
        return Table(columns, {"view": self.view, "notes": list(self.notes)}, "floors")

    @property
    def scores(self) -> dict[str, Floats]:
        """By view, one value per floor."""
        rows = [selection.scores for selection in self.selections]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    @property
    def fair_scores(self) -> Floats:
        return np.array([selection.fair_score for selection in self.selections])


@takes(SelectOptions)
@from_tables
@telling
def tradeoff(
    data: Any, k: int | float, view: str, *, points: int = 7, **options: Unpack[SelectOptions]
) -> Tradeoff:
    """Selections under rising floors for one view, and what they cost the other views.

    view: the one to favour. Its floors go in even steps from its score in the fair selection to
        its score in the set that is best for it alone ('<view>-only').
    points: how many floors, the first of which is the fair selection's own score.

    The options are those of `select`, for every point alike; `time_limit` is for all of them, and
    each gets its share of what is left.
    """
    points = check_count("points", points, 2)
    limit = checked("tradeoff", SelectOptions, options)["time_limit"]
    others, call = _check_options(data, k, view, options), Context(time_limit=limit)

    def share(turns: int) -> Any:
        return {} if limit is None else {"time_limit": call.part(turns)}

    fair: Selection = select(data, k, **{**options, **share(points + 1)})
    low, again = fair.scores[view], {**options, "calibration": fair.calibration}
    floors, selections, notes = np.array([low]), [fair], []
    only_fair = Tradeoff(view, floors, (fair,))
    if fair.status is Status.INTERRUPTED:
        note = "the curve ends with the fair selection, in which it was interrupted"
        return replace(only_fair, notes=(note,))
    with call.absorbing_interruption():  # between two selections, which answer it themselves
        high = _own_optimum(data, k, view, {**again, **share(points)})
        if isinstance(high, str):
            note = f"the curve ends with the fair selection, as no other floor is known: {high}"
            return replace(only_fair, notes=(note,))
        if high - low <= _NOTHING:
            note = f"view {view!r} is as good in the fair selection as when it is chosen for alone"
            return replace(only_fair, notes=(note,))
        floors = np.linspace(low, high, points)
        for turn, floor in enumerate(floors[1:].tolist(), start=1):
            wanted = {**others, view: floor}
            if call.left == 0.0:
                reached = f"before {view!r} reaches {floor:.4f}"
                notes.append(f"the curve ends {reached}: time_limit ran out")
                break
            _tell(options.get("progress"), floor, selections, points)
            found = _select_above(data, k, {**again, **share(points - turn), "floors": wanted})
            if isinstance(found, str):
                named = ", ".join(f"{name!r}: {value:.4f}" for name, value in wanted.items())
                notes.append(f"the curve ends before floors {{{named}}}: {found}")
                break
            selections.append(found)
    if call.stopped is Status.INTERRUPTED:
        notes.append(f"the curve ends with {len(selections)} of its floors: {call.stopped.value}")
    return Tradeoff(view, floors[: len(selections)], tuple(_settled(selections)), tuple(notes))


def _tell(progress: Any, floor: float, selections: list[Selection], points: int) -> None:
    """Tell a listener which floor is next."""
    if progress is not None:
        last = selections[-1]
        details = {"floor": last.units.shown(floor), "size": len(selections), "of": points}
        took = sum(selection.seconds for selection in selections)
        progress(Step("tradeoff", len(selections), 0, took, last.fair_score, details=details))


def _own_optimum(data: Any, k: Any, view: str, options: Mapping[str, Any]) -> float | str:
    """The score of what is best for the view alone, whatever other views were promised; or why
    there is none."""
    left_out = {*_OF_A_BOUND, *options_of(Rounding)}  # which that method does not take
    ours = {name: options[name] for name in options if name not in left_out}
    alone = {**ours, "method": f"{view}-only", "floors": None, "certify": False}
    found = _select_in_time(data, k, alone)
    return found if isinstance(found, str) else float(found.scores[view])


def _select_above(data: Any, k: Any, options: Mapping[str, Any]) -> Selection | str:
    """The selection that keeps the floors, or why there is none."""
    try:
        found = _select_in_time(data, k, options)
    except InputError as error:
        return str(error)
    if isinstance(found, str):
        return found
    assert found.problem is not None
    if misses_floors(found.problem, found.indices):  # also where a search was out of time
        return Status.FLOORS_MISSED.value
    return found


def _select_in_time(data: Any, k: Any, options: Mapping[str, Any]) -> Selection | str:
    """A selection, or why it is left out: Ctrl-C and the end of time leave those before it."""
    try:
        found: Selection = select(data, k, **options)
    except TimeLimitError as error:
        return str(error)
    except KeyboardInterrupt:  # while rows were read
        return Status.INTERRUPTED.value
    return Status.INTERRUPTED.value if found.status is Status.INTERRUPTED else found


def _settled(selections: list[Selection]) -> list[Selection]:
    """A set that keeps a higher floor keeps the lower ones too: where it is better than what was
    found under those, it takes their place, with the bounds and settings that hold there."""
    settled = selections[-1:]
    for here in reversed(selections[:-1]):
        above = settled[0]
        if above.fair_score > here.fair_score + _NOTHING:
            kept = ("certificate", "proven", "settings", "problem")
            here = replace(above, **{name: getattr(here, name) for name in kept})
        settled.insert(0, here)
    return settled


def _check_options(data: Any, k: Any, view: Any, options: Mapping[str, Any]) -> Mapping[str, float]:
    """The floors of other views, once everything else is as it should be."""
    names = list(named_views(data, options.get("views")))
    if view not in names:
        raise InputError(f"view must be one of {names}, not {brief(view)}")
    if len(names) < 2:
        raise InputError("a trade-off needs at least two views; with one there is nothing to trade")
    if not is_one_size(k) or check_flag("nested", options.get("nested", False)):
        raise InputError(f"k must be one size, not {brief(k)}; ask for one trade-off per size")
    floors = options.get("floors")
    floors = {} if floors is None else floors
    if not isinstance(floors, Mapping) or view in floors:
        raise InputError(
            f"floors must map other views to numbers, not {brief(floors)}: those of {view!r} are "
            "what is varied here"
        )
    return floors
