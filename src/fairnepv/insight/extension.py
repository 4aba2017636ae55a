"""`extend`: an old selection kept, and more chosen when new candidates have arrived."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Unpack

from fairnepv.api.select import select
from fairnepv.api.selection import Selection
from fairnepv.checks import brief, check_count
from fairnepv.errors import InputError
from fairnepv.insight.given import check_selection
from fairnepv.options import DIVERSE, SelectOptions
from fairnepv.signatures import takes
from fairnepv.views.arrays import plain_array
from fairnepv.views.intake import as_view, named_views

_OURS = ("include", "include_counts", "nested")
# Options that change the scores of the same rows.
_RESCALES = {"eps", "center", "calibration", "quality"}
_SAME = 1e-3  # nats per item that the type of numbers may make
_OF_THE_OBJECTIVE = ("tau", "eps", "calibration")  # which another objective has others of


@takes(SelectOptions)
def extend(
    selection: Selection, data: Any, more: int, **options: Unpack[SelectOptions]
) -> Selection:
    """Keep every item of `selection` and choose `more` further ones out of `data`.

    data: the old rows and the new ones; old items are found by id, which `ids` then names, or by
        row number, for which the old rows come first.

    The options are those of `select`; objective, tau, eps, calibration (and with it center) and
    priorities are those of the old selection unless given; with another objective tau, eps and
    calibration are those that it usually has. Quality, exclusions, groups and floors belong to rows
    or sizes: give them anew. What is included, and how it counts, is set here.
    """
    old = check_selection(selection)
    more = check_count("more", more)
    for name in _OURS:
        if name in options:
            raise InputError(f"extend sets {name} itself; use select for a choice of your own")
    views = named_views(data, options.get("views"))
    _check_options(old, views, options)
    _refuse_new_rows_alone(old, views, options.get("ids"))
    settings: dict[str, Any] = {
        "objective": old.objective,
        "tau": old.settings["tau"],
        "eps": {  # of views that bring no ridge of their own
            name: old.settings["eps"][name]
            for name, view in views.items()
            if getattr(view, "eps", None) is None
        },
        "calibration": old.calibration,
        "priorities": old.settings["priorities"],
        **options,
    }
    if settings["objective"] != old.objective:
        for name in set(_OF_THE_OBJECTIVE) - set(options):
            del settings[name]
    kept = old.ids if old.has_ids else old.indices
    extended: Selection = select(data, more, include=kept, include_counts=False, **settings)
    # Shares are of the variance of a pool, which has grown; so is the mean of centred rows.
    same = extended.objective == old.objective == DIVERSE and not extended.calibration.center
    notes = tuple(_other_rows(old, extended)) if same and not _RESCALES & set(options) else ()
    return replace(extended, run_notes=(*extended.run_notes, *notes))


def _other_rows(old: Selection, extended: Selection) -> Iterator[str]:
    """Old items come first, and on the old scale they score what they did."""
    for name, before in old.scores.items():
        now = float(extended.gains[name][: len(old.indices)].mean())
        if abs(now - before) > _SAME:
            yield (
                f"the items of the old selection had d = {before:.4f} in view {name!r} and have "
                f"{now:.4f} in this data; if these are other rows, let the old ones come first or "
                "name rows by ids"
            )


def _check_options(old: Selection, views: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """The same views; and what tells rows apart is told again, since there are new ones."""
    if set(views) != set(old.scores):
        raise InputError(
            f"selection has the views {list(old.scores)}, but the data has {list(views)}; give the "
            "same views"
        )
    if old.has_ids and options.get("ids") is None:
        raise InputError("selection names its items by id; pass ids, one per row of data")
    if not old.has_ids and options.get("ids") is not None:
        raise InputError(
            "selection knows its items by row number only; leave ids out, and let the old rows "
            "come first"
        )
    if old.settings["quality"] and "quality" not in options:
        raise InputError(
            "selection was made with quality; pass quality for all rows of data, or quality=None "
            "to go on without"
        )


def _refuse_new_rows_alone(old: Selection, views: Mapping[str, Any], ids: Any) -> None:
    """The old items are chosen again, so their rows must be there."""
    expected = "extend expects the old rows and the new ones in one pool"
    if old.has_ids:
        given = ids.get(next(iter(views)), ()) if isinstance(ids, Mapping) else ids
        known = set(plain_array(given, "ids").ravel().tolist())
        missing = [item for item in old.ids.tolist() if item not in known]
        if missing:
            raise InputError(
                f"data has no row for {len(missing)} of the {len(old.ids)} items of the selection, "
                f"the first is id {brief(missing[0])}; {expected}"
            )
    name, rows = next(iter(views.items()))
    n = as_view(name, rows).sketched(name).n
    if not old.has_ids and n < old.chosen_from["n"]:
        raise InputError(
            f"data has {n} rows, but the selection was made from {old.chosen_from['n']}; "
            f"{expected}, the old ones first"
        )
