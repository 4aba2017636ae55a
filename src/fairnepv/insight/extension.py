"""`extend`: an old selection kept, and more chosen when new candidates have arrived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairnepv.errors import InputError
from fairnepv.insight.given import check_selection
from fairnepv.pipeline import select
from fairnepv.selection import Selection
from fairnepv.views.arrays import check_count
from fairnepv.views.intake import named_views

_OURS = ("include", "include_counts", "nested")


def extend(selection: Selection, data: Any, more: int, **options: Any) -> Selection:
    """Keep every item of `selection` and choose `more` further ones out of `data`.

    data: the old rows and the new ones; old items are found by id, which `ids` then names, or by
        row number, for which the old rows come first.
    options: as for `select`; tau, eps, calibration and priorities are those of the old selection
        unless given. Quality, exclusions, groups and floors belong to rows or sizes: give them
        anew.
    """
    old = check_selection(selection)
    more = check_count("more", more)
    for name in _OURS:
        if name in options:
            raise InputError(f"extend sets {name} itself; use select for a choice of your own")
    _check_names(old, named_views(data, options.get("views")))
    _check_rows(old, options)
    settings = {**_old_settings(old, data, options.get("views")), **options}
    kept = old.ids if old.has_ids else old.indices
    extended: Selection = select(data, more, include=kept, include_counts=False, **settings)
    return extended


def _old_settings(old: Selection, data: Any, views: Any) -> dict[str, Any]:
    return {
        "tau": old.settings["tau"],
        "eps": _old_ridges(old.settings["eps"], named_views(data, views)),
        "calibration": old.calibration,
        "priorities": old.settings["priorities"],
    }


def _old_ridges(eps: Mapping[str, float], views: Mapping[str, Any]) -> dict[str, float]:
    """Those of views that bring no ridge of their own."""
    return {name: eps[name] for name, view in views.items() if getattr(view, "eps", None) is None}


def _check_names(old: Selection, views: Mapping[str, Any]) -> None:
    if set(views) != set(old.scores):
        raise InputError(
            f"selection has the views {list(old.scores)}, but the data has {list(views)}; give the "
            "same views"
        )


def _check_rows(old: Selection, options: Mapping[str, Any]) -> None:
    """What tells rows apart must be told again, since there are new ones."""
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
