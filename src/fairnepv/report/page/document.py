"""The data of a page: an overview as plain values, with every number in the words of its objective.

Items are numbered as the rows of the maps are: the picks first, in order of selection. What needs
little room is text; coordinates and other long columns are base64 of small integers.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.selection import Selection
from fairnepv.api.shown import at_least
from fairnepv.display import visible
from fairnepv.insight import Overview, Plane
from fairnepv.io.write import to_json
from fairnepv.options import REPRESENTATIVE
from fairnepv.report.figures import is_worst, share_of
from fairnepv.report.page.material import Material
from fairnepv.report.page.pictures import thumbnails
from fairnepv.report.page.run import Made, how_it_ran, how_sure
from fairnepv.report.words import left_behind, view_left_behind
from fairnepv.views.base import Indices

_DESCRIBED = 5000  # items with a text and a picture, or as many as were picked
_TEXT, _OTHER_TEXT = 400, 120  # letters of a pick's text, and of that of other items
_LARGEST = 4_600_000  # letters of a page that has pictures: what else it holds leaves them the rest
_NAMES = 1_200_000  # letters of the names of points that are not described, as JSON
_ASIDE = 24  # picks that a rival alone has, or lacks, which are shown
_GRID = 65535  # steps of a coordinate

Document = dict[str, Any]


def page_document(seen: Overview, material: Material, title: str | None, made: Made) -> Document:
    """Everything that the page shows; `made` says by what command, if any."""
    selection = seen.selection
    k, n = len(selection.indices), selection.chosen_from["n"]
    described = min(seen.named, max(k, _DESCRIBED))
    aside = {rival.method: _aside(seen, rival) for rival in seen.rivals}
    document = {
        "title": visible(title) if title else f"{k:,} of {n:,} items",
        "chosen": k,
        "of": n,
        "objective": selection.objective,
        "purpose": _PURPOSES[selection.objective],
        "lead": list(_lead(selection)),
        "views": list(_views(seen)),
        "scale": share_of(selection),
        "percent": _in_shares(selection),
        **_items(seen, material, described),
        "gains": {visible(name): _rounded(gains) for name, gains in selection.gains.items()},
        "selectors": list(_selectors(seen, aside)),
        "searched": seen.searched,
        **_assigned(seen, described),
        "points": _points(seen, material, described),
        "sure": how_sure(selection, made),
        "ran": how_it_ran(seen, made),
        "notes": list(map(visible, (*seen.notes, *selection.notes))),
    }
    room = _LARGEST - len(to_json(document, indent=None))
    return {**document, **_pictures(seen, material, _in_turn(seen, described, aside), room)}


_PURPOSES = {
    "representative": "Picks that stand for the pool: to train on, or to label.",
    "diverse": "Picks that are unlike each other: to audit, to test, to find what is rare.",
}


def _lead(selection: Selection) -> Iterator[dict[str, str]]:
    """The three figures at the head of the page."""
    worst = f"worst view, {visible(selection.worst_view)}"
    yield _figure(_said(selection, selection.minimum), worst, share_of(selection))
    if selection.efficiency is not None:
        share, best = at_least(selection.efficiency), selection.units.best
        yield _figure(f"≥ {share}", f"of {best}", "proven by a bound")
    if selection.random_efficiency is not None:
        share = f"{100 * selection.random_efficiency:.1f}%"
        yield _figure(share, "what random sets reach", "of the same bound")


def _figure(figure: str, what: str, more: str) -> dict[str, str]:
    return {"figure": figure, "what": what, "more": more}


def _said(row: Selection, score: float) -> str:
    """A score as the bars show it: a share, or the volume exp(d)."""
    length = row.units.length(score)
    return f"{100 * length:.1f}%" if _as_percent(row) else f"{length:.3f}"


def _limit(row: Selection, bound: float) -> str:
    """A bound likewise, rounded up: it holds as it is printed."""
    thousandths = math.ceil(1000 * row.units.length(bound))
    said = f"{thousandths / 10:.1f}%" if _as_percent(row) else f"{thousandths / 1000:.3f}"
    return said + _beside(row, row.units.rounded_up(bound))


def _as_percent(row: Selection) -> bool:
    """Whether bars show shares: of the variance, or of the bound of a view."""
    return row.calibration.by_bounds or _in_shares(row)


def _beside(row: Selection, score: str) -> str:
    """The score itself, where a bar shows something else."""
    return "" if _in_shares(row) else f" (d {score})"


def _in_shares(row: Selection) -> bool:
    return row.objective == REPRESENTATIVE


def _views(seen: Overview) -> Iterator[Document]:
    selection, certificate = seen.selection, seen.selection.certificate
    units = selection.units
    for name, score in selection.scores.items():
        bound = None if certificate is None else certificate.by_view[name]
        yield {
            "name": visible(name),
            "columns": selection.chosen_from["views"][name],
            "score": _said(selection, score) + _beside(selection, units.shown(score)),
            "weight": f"{selection.view_weights[name]:.3f}",
            "worst": is_worst(selection.scores, name),
            "bound": None if bound is None else _limit(selection, bound),
            "reach": None if bound is None else units.length(bound),
        }


# --- items ----------------------------------------------------------------------------------------


def _items(seen: Overview, material: Material, described: int) -> Document:
    """Name, group and text of those that are described."""
    rows, k = seen.rows[:described], len(seen.selection.indices)
    texts = material.captions(rows)
    limits = [_TEXT] * k + [_OTHER_TEXT] * (described - k)
    cut = [None if t is None else _cut(t, most) for t, most in zip(texts, limits, strict=True)]
    labels = material.labels(rows)
    groups = sorted({label for label in labels if label is not None})
    place = {label: g for g, label in enumerate(groups)}
    return {
        "names": material.names(rows),
        "named_by": "id" if material.has_names else "row",
        "texts": cut if any(cut) else None,
        "groups": groups,
        "group": [None if label is None else place[label] for label in labels],
    }


def _pictures(seen: Overview, material: Material, order: Sequence[int], room: int) -> Document:
    """Thumbnails of items, in this order, as many as there is room for."""
    found = material.pictures(seen.rows[np.array(order)])
    given = [pair for pair in zip(order, found, strict=True) if pair[1] is not None]
    made, broken, left_out = thumbnails(given, room)
    return {
        "pictures": dict(made) if given else None,
        "unreadable": broken,
        "pictures_left_out": left_out,
    }


def _in_turn(seen: Overview, described: int, aside: Mapping[str, Document]) -> list[int]:
    """Items in the order in which they get pictures, as these may not be had for all: the picks,
    what rivals alone have, the nearest items that picks stand for, the next ones, and so on."""
    place = _places(seen)
    others = [item for shown in aside.values() for item in shown["only_theirs"]]
    most = max(map(len, seen.examples), default=0)
    for turn in range(most):
        others += [place[int(own[turn])] for own in seen.examples if turn < len(own)]
    picks = range(len(seen.selection.indices))
    return [item for item in dict.fromkeys((*picks, *others)) if item < described]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _places(seen: Overview) -> dict[int, int]:
    """The item of every row that is named."""
    return {row: item for item, row in enumerate(seen.rows[: seen.named].tolist())}


def _assigned(seen: Overview, described: int) -> Document:
    """How many items every pick stands for, and the nearest of them."""
    if seen.assignment is None:
        return {"stands_for": None, "examples": None}
    place = _places(seen)
    examples = [[place[int(row)] for row in own] for own in seen.examples]
    return {
        "stands_for": seen.assignment.counts.tolist(),
        "examples": [[item for item in own if item < described] for own in examples],
    }


# --- selectors ------------------------------------------------------------------------------------


def _selectors(seen: Overview, aside: Mapping[str, Document]) -> Iterator[Document]:
    """Ours and the others, a bar per view each."""
    fair, place = seen.selection, _places(seen)
    sentences = iter(left_behind(seen.comparison, fair=fair.method))
    for row in seen.comparison:
        ours = row is fair
        behind = None if ours else view_left_behind(row, fair)
        yield {
            "method": visible(row.method),
            "lengths": [row.units.length(d) for d in row.scores.values()],
            "said": [_said(row, d) for d in row.scores.values()],
            "scores": [row.units.short(d) for d in row.scores.values()],
            "worst": [is_worst(row.scores, name) for name in row.scores],
            "fair": row.units.shown(row.fair_score),
            "behind": None if behind is None else list(row.scores).index(behind),
            "sentence": "" if ours else visible(next(sentences)),
            "picks": [place[int(i)] for i in row.indices],
            **({} if ours else aside[row.method]),
        }


def _aside(seen: Overview, rival: Selection) -> Document:
    """What one of the two has and the other has not: of ours, first what brings most to the view
    that the rival leaves behind."""
    fair, place = seen.selection, _places(seen)
    view = view_left_behind(rival, fair) or fair.worst_view
    lacks = np.flatnonzero(~np.isin(fair.indices, rival.indices))
    lacks = lacks[np.argsort(-fair.gains[view][lacks], kind="stable")]
    alone = rival.indices[~np.isin(rival.indices, fair.indices)]
    return {
        "shared": len(fair.indices) - len(lacks),
        "ours_alone": len(lacks),
        "theirs_alone": len(alone),
        "only_ours": lacks[:_ASIDE].tolist(),
        "only_theirs": [place[int(row)] for row in alone[:_ASIDE]],
        "by": visible(view),
    }


# --- points ---------------------------------------------------------------------------------------


def _points(seen: Overview, material: Material, described: int) -> Document:
    problem = seen.problem
    left_out = 0 if problem.pool.dropped is None else len(problem.pool.dropped)
    nearest = seen.assignment
    return {
        "count": len(seen.rows),
        "sampled": len(seen.rows) < problem.n - left_out,
        "rows": _packed(seen.rows),
        "pick": None if nearest is None else _packed(nearest.pick[seen.rows]),
        "names": _other_names(material, seen.rows[described:]),
        "maps": [_map(name, plane) for name, plane in seen.planes.items()],
    }


def _other_names(material: Material, rows: Indices) -> list[str] | None:
    """Names of points that are not described, unless they are too long, or only row numbers."""
    if not material.has_names:
        return None
    names = material.names(rows)
    return names if len(to_json(names, indent=None)) <= _NAMES else None


def _map(name: str, plane: Plane) -> Document:
    """Both axes on one scale, as distances are to be seen."""
    xy = plane.coordinates.astype(np.float64)
    low, high = xy.min(axis=0), xy.max(axis=0)
    reach = max(float((high - low).max()), np.finfo(float).tiny)
    steps = np.rint(((xy - (low + high) / 2) / reach + 0.5) * _GRID)
    return {
        "view": visible(name),
        "xy": _encoded(steps.clip(0, _GRID).astype("<u2")),
        "shares": None if plane.shares is None else [f"{100 * s:.1f}%" for s in plane.shares],
    }


def _packed(values: NDArray[Any]) -> Document:
    """Whole numbers in as few bytes as hold them."""
    kind = "u2" if int(values.max(initial=0)) <= _GRID else "u4"
    return {"kind": kind, "data": _encoded(values.astype(f"<{kind}"))}


def _encoded(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _rounded(values: NDArray[np.float64]) -> Sequence[float]:
    return [float(f"{value:.4g}") for value in values]
