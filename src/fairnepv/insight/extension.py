"""`extend`: an old selection kept, and more chosen when new candidates have arrived."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp

from fairnepv.api.inputs import scale_of
from fairnepv.api.select import select
from fairnepv.api.selection import Selection
from fairnepv.api.tables import from_tables
from fairnepv.checks import brief, check_count
from fairnepv.compute import HOST
from fairnepv.errors import InputError
from fairnepv.insight.given import check_selection
from fairnepv.io.texts import same_kind
from fairnepv.loop.bars import telling
from fairnepv.options import DIVERSE, SelectOptions
from fairnepv.signatures import takes
from fairnepv.views import Pool, View
from fairnepv.views.arrays import plain_array
from fairnepv.views.centered_sparse import CenteredSparseView
from fairnepv.views.dense import DenseView
from fairnepv.views.ids import check_ids
from fairnepv.views.intake import as_view, named_views
from fairnepv.views.sparse import SparseView

_OURS = ("include", "include_counts", "nested")
# Options that change the scores of the same rows.
_RESCALES = {"eps", "center", "calibration", "quality"}
_RULES = ("exclude", "quotas", "floors")  # which belong to rows or sizes: they are given anew
_LOOKED_AT = 8  # picks that tell whether rows are the old ones
_SAME = 1e-3  # nats per item that the type of numbers may make
_OF_THE_OBJECTIVE = ("tau", "eps", "calibration")  # which another objective has others of


@takes(SelectOptions)
@from_tables
@telling
def extend(
    selection: Selection, data: Any, more: int, **options: Unpack[SelectOptions]
) -> Selection:
    """Keep every item of `selection` and choose `more` further ones out of `data`.

    data: the old rows and the new ones; old items are found by id, which `ids` then names, or by
        row number, for which the old rows come first. Or the new rows alone, whose ids `ids` then
        names, or which are fewer than the old ones: the old rows are those that the selection has
        in memory, and rows are counted from the first of them on.

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
    joined = _joined(old, views, options)
    if joined is not None:
        data, options = joined
    settings: dict[str, Any] = {**scale_of(old, views), **options}
    if settings["objective"] != old.objective:
        for name in set(_OF_THE_OBJECTIVE) - set(options):
            del settings[name]
    kept = old.ids if old.has_ids else old.indices
    extended: Selection = select(data, more, include=kept, include_counts=False, **settings)
    # Shares are of the variance of a pool, which has grown; so is the mean of centred rows.
    same = extended.objective == old.objective == DIVERSE and not extended.calibration.center
    notes = tuple(_other_rows(old, extended)) if same and not _RESCALES & set(options) else ()
    notes += tuple(_not_kept(old, options))
    if joined is not None:
        n = old.chosen_from["n"]
        notes += (f"data had new rows alone: rows 0 to {n - 1} are the old ones, new ones follow",)
    return replace(extended, run_notes=(*extended.run_notes, *notes))


def _not_kept(old: Selection, options: Mapping[str, Any]) -> Iterator[str]:
    """Rules of the old selection that are not given anew, and so do not hold any more."""
    lost = [name for name in _RULES if old.settings[name] and options.get(name) is None]
    if lost:
        yield (
            f"the old selection had {' and '.join(lost)}, which extend does not keep; pass them "
            "again if they are to hold for the new items"
        )


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
    """Refuse data of other views, or without the ids and qualities that new rows must have."""
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


def _joined(
    old: Selection, views: Mapping[str, Any], options: SelectOptions
) -> tuple[dict[str, Any], SelectOptions] | None:
    """The old rows and the new ones behind them, with their ids, where `data` has new ones alone;
    None where it has both. Old items are chosen again, so their rows must be there."""
    missing = _missing(old, views, options.get("ids"))
    if missing is None:
        return None
    expected = "extend expects the old rows and the new ones in one pool, or new ones alone"
    problem = old.posed  # whose rows are refused if they are others by now
    if problem is None:
        raise InputError(f"{missing}; {expected}, for which a stored selection has no rows")
    pool = problem.pool
    if _are_old(old, pool, views):
        raise InputError(f"{missing}, and has rows of the old pool in their places; {expected}")
    if options.get("quality") is not None:
        raise InputError(f"{missing}; with quality extend expects the old rows among those of data")
    joined = {name: _stacked(name, view, views[name]) for name, view in pool.items()}
    ids = options.get("ids")
    if pool.ids is None or ids is None:
        return joined, {**options, "views": None}
    each = ids if isinstance(ids, Mapping) else {"": ids}
    given = {name: plain_array(own, "ids") for name, own in each.items()}
    new = {name: check_ids(own, own.size, "ids") for name, own in given.items()}
    known = set(pool.ids.tolist())
    if any(item in known for own in new.values() for item in own.tolist()):
        raise InputError(f"{missing}, but for others of the old pool; {expected}")
    if not all(same_kind(own, pool.ids) for own in new.values()):
        raise InputError(f"{missing}, and its ids are of another type; {expected}")
    whole = {name: np.concatenate([pool.ids, own]) for name, own in new.items()}
    return joined, {**options, "views": None, "ids": whole.get("", whole)}


def _are_old(old: Selection, pool: Pool, views: Mapping[str, Any]) -> bool:
    """Whether these are old rows, cut or under other names, and no new ones: some picks stand
    where they stood."""
    pairs = []
    for name, view in pool.items():
        given = view.given if isinstance(view, CenteredSparseView) else view
        pairs.append((given, as_view(name, views[name])))
    n = min(new.sketched(name).n for name, (_, new) in zip(pool.names, pairs, strict=True))
    early = np.sort(old.indices[old.indices < n])[:_LOOKED_AT]
    # In every view: of attributes new rows may well be equal to old ones.
    return any(all(_same_row(given, new, row) for given, new in pairs) for row in early.tolist())


def _same_row(one: View, other: View, row: int) -> bool:
    return np.array_equal(*(HOST.dense(view.raw_rows(np.array([row]))) for view in (one, other)))


def _missing(old: Selection, views: Mapping[str, Any], ids: Any) -> str | None:
    """What the data lacks of the old pool, in words; None where it has all."""
    name, rows = next(iter(views.items()))
    if old.has_ids:
        given = ids.get(name, ()) if isinstance(ids, Mapping) else ids
        known = set(plain_array(given, "ids").ravel().tolist())
        missing = [item for item in old.ids.tolist() if item not in known]
        if not missing:
            return None
        return (
            f"data has no row for {len(missing)} of the {len(old.ids)} items of the selection, "
            f"the first is id {brief(missing[0])}"
        )
    n = as_view(name, rows).sketched(name).n
    if n >= old.chosen_from["n"]:
        return None
    return f"data has {n} rows, but the selection was made from {old.chosen_from['n']}"


def _stacked(name: str, view: View, rows: Any) -> Any:
    """Rows as they were handed in, old and new; of arrays and sparse matrices in memory."""
    new = as_view(name, rows)
    given = view.given if isinstance(view, CenteredSparseView) else view
    arrays = isinstance(given, DenseView | SparseView) and isinstance(new, DenseView | SparseView)
    if arrays and given.p != new.p:
        raise InputError(
            f"view {name!r} has {new.p} columns, but the selection was made from {given.p}; give "
            "rows of the same features"
        )
    if getattr(given, "absent", None) is not None:
        raise InputError(
            f"view {name!r} has rows that were missing, so that new rows cannot be put behind the "
            "old ones; hand in the old rows and the new ones in one pool"
        )
    if type(given) is DenseView and type(new) is DenseView:
        both = [given.data, new.data]
        if all(isinstance(data, np.ndarray) for data in both):
            return np.concatenate(both)
    if type(given) is SparseView and type(new) is SparseView:
        return sp.vstack([given.data, new.data], format="csr")
    raise InputError(
        f"view {name!r} is no array or sparse matrix in memory both times, so that new rows cannot "
        "be put behind the old ones; hand in the old rows and the new ones in one pool"
    )
