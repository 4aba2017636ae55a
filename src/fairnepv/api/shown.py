"""How a selection looks where it is looked at: a few lines, and in a notebook a picture with them.

Nothing is computed here, and no data is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fairnepv.display import shown
from fairnepv.io.frames import as_html, escaped

if TYPE_CHECKING:
    from fairnepv.api.selection import Score, Selection

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")  # as in figures
_WIDTH = 16  # em, of the longest bar


def at_least(share: float) -> str:
    """A share as a percentage that is rounded down: what is proven holds as it is printed."""
    return f"{math.floor(1000 * share) / 10:.1f}%"


def score_line(score: Score) -> str:
    """The fair score in a line."""
    units = score.units
    return f"fair score {units.shown(score.fair_score)} {units.unit}"


def lines_of(selection: Selection) -> list[str]:
    """What was chosen, how every view does, how good that is, and how the search ended."""
    k, n = len(selection), selection.chosen_from["n"]
    of = f"Selection of {k:,} from {n:,} by {selection.method!r}, {selection.objective}"
    width = max(map(len, map(shown, selection.scores)))
    views = [
        f"  {shown(name):<{width}}  {selection.units.shown(score)}"
        + ("  worst view" if name == selection.worst_view else "")
        for name, score in selection.scores.items()
    ]
    return [of, *views, *_how_good(selection), f"status: {selection.status.value}"]


def _how_good(selection: Selection) -> Iterator[str]:
    units, bound, share = selection.units, selection.upper_bound, selection.efficiency
    if bound is None or share is None:
        yield f"{score_line(selection)}; no bound was asked for"
        return
    lots = selection.random_efficiency
    beside = "" if lots is None else f"; random sets reach {100 * lots:.1f}% of the bound"
    at_most = f"proven: no {len(selection):,} score above {units.rounded_up(bound)}"
    yield f"{score_line(selection)}; {at_most}"
    yield f"efficiency: at least {at_least(share)} of {units.best}{beside}"


def html_of(selection: Selection) -> str:
    """The same lines, and a bar for every view with its bound as a line across."""
    return f"{as_html(chr(10).join(lines_of(selection)))}{_bars(selection)}"


def _bars(selection: Selection) -> str:
    units, scores = selection.units, selection.scores
    bounds = {} if selection.certificate is None else selection.certificate.by_view
    lengths = {name: units.length(score) for name, score in scores.items()}
    ends = {name: units.length(bound) for name, bound in bounds.items() if math.isfinite(bound)}
    longest = max([*lengths.values(), *ends.values()])
    if not (math.isfinite(longest) and longest > 0):
        return ""
    rows = []
    for q, (name, length) in enumerate(lengths.items()):
        colour = _COLOURS[q % len(_COLOURS)]
        width = _WIDTH * length / longest
        bar = f"display:inline-block;height:1em;width:{width:.2f}em;background:{colour}"
        line = ""
        if name in ends:
            at = _WIDTH * ends[name] / longest
            edge = "position:absolute;top:0;height:1.2em;border-left:2px dashed currentColor"
            line = f'<span style="{edge};left:{at:.2f}em"></span>'
        box = f"display:inline-block;position:relative;width:{_WIDTH + 1}em;height:1.2em"
        told = escaped(f"{units.shown(scores[name])}")
        rows.append(
            f'<tr><td>{escaped(name)}</td><td><span style="{box}"><span style="{bar}"></span>'
            f"{line}</span></td><td>{told}</td></tr>"
        )
    means = f"{units.axis}; dashed: proven bound of the view alone" if ends else units.axis
    return (
        f'<table role="img" aria-label="{escaped(means)}"><tbody>{"".join(rows)}</tbody></table>'
        f"<div>{escaped(means)}</div>"
    )
