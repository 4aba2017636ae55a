"""Who wins when scores are equal to rounding: the lowest index, at any block size.

A pass does not know the best score before its end, so each block hands up a *ladder*: those of
its candidates, in row order, that beat every earlier one and lie within `slack` of its best.
Ladders combine to ladders, and whatever the best turns out to be, the lowest row within the tie
tolerance of it stands on the last one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairnepv.views.base import Floats, Indices

SLACK = 1e-8  # screening scores may be off by rounding; whoever is this close gets confirmed


class Ladder(NamedTuple):
    scores: Floats  # strictly increasing
    rows: Indices  # strictly increasing


def ladder(scores: Floats, rows: Indices) -> Ladder:
    """The ladder of candidates in row order; -inf marks rows that may not be chosen."""
    if not len(scores):
        return Ladder(scores, rows)
    best = scores.max()
    before = np.maximum.accumulate(np.concatenate([[-np.inf], scores[:-1]]))
    keep = (scores > before) & (scores >= best - SLACK)
    return Ladder(scores[keep], rows[keep])


def join(left: Ladder, right: Ladder) -> Ladder:
    """The ladder of two neighbouring stretches of rows."""
    return ladder(
        np.concatenate([left.scores, right.scores]), np.concatenate([left.rows, right.rows])
    )


def lowest_tied(scores: Floats, tie: float) -> int:
    """Position of the first score within `tie` of the best."""
    return int(np.argmax(scores >= scores.max() - tie))
