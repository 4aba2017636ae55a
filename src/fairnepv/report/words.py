"""What a comparison says, in sentences: which view does each selector leave behind?"""

from __future__ import annotations

import math

from fairnepv.api.selection import Comparison, Selection

_NOTICEABLE = 0.01  # nats per item: one per cent


def left_behind(comparison: Comparison, fair: str = "auto") -> list[str]:
    """A sentence per selector: the view that lost most against the fair choice, and how much."""
    reference = comparison[fair]
    return [_sentence(row, reference) for row in comparison if row is not reference]


def _sentence(row: Selection, fair: Selection) -> str:
    losses = row.losses(fair)
    view = max(losses, key=losses.__getitem__)
    loss = losses[view]
    higher = row.fair_score > fair.fair_score + 1e-9
    more = f"; its fair score is higher than that of {fair.method}" if higher else ""
    if loss < _NOTICEABLE:
        return f"{row.method} leaves no view behind: none is 1% below {fair.method}{more}."
    return f"{row.method} leaves {view} behind: {_how_much(row, fair, view)}{more}."


def _how_much(row: Selection, fair: Selection, view: str) -> str:
    if row.settings["calibration"] == "efficiency":
        kept, fair_kept = (100 * math.exp(s.scores[view]) for s in (row, fair))
        return (
            f"it keeps {kept:.1f}% of the bound on what {view} could have alone, {fair.method} "
            f"{fair_kept:.1f}%"
        )
    share = 100 * math.exp(row.scores[view] - fair.scores[view])
    return f"{share:.1f}% of the volume per item that {fair.method} has there"
