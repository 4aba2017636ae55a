"""In what the scores of an objective are told, and what follows from a score and its bound.

Log-determinants are told in nats per item, explained variance in shares; whoever shows a score asks
here for the words.
"""

from __future__ import annotations

import math

from fairnepv.errors import UnsupportedError
from fairnepv.options import DIVERSE, REPRESENTATIVE

_ROUNDING = 1e-9  # by which a proven bound may exceed the largest share
_WIDEST = 1e9  # a bound beyond this has no digits to round


class Nats:
    """Logarithms of volumes, per item."""

    unit = "nats per item"
    mark = "d"  # of a score, in the headings of tables
    best = "the best possible per item"
    axis = "volume per item, exp(d)"
    plain_axis = "d, nats per item"  # where scores are drawn as they are
    noticeable = "1%"  # what a difference of 0.01 is
    # Bounds without a solver, by eigenvalues and by the lengths of rows: in a sentence, in tables.
    spectral = "the paper's spectral bound"
    spectral_mark, lengths_mark = "spectral", "Hadamard"

    def shown(self, score: float) -> str:
        return f"{score:.4f}"

    def short(self, score: float) -> str:
        """For tables, where there is little room."""
        return f"{score:.3f}"

    def tick(self, score: float) -> str:
        """For an axis, with no more digits than it needs."""
        return f"{score:.4g}"

    def rounded_up(self, bound: float) -> str:
        """A bound as text that still holds as printed."""
        if not math.isfinite(bound):
            return "nothing"
        return repr(bound) if abs(bound) > _WIDEST else self.shown(math.ceil(bound * 1e4) / 1e4)

    def length(self, score: float) -> float:
        """Of a bar in a figure: positive, and longer when better."""
        return math.exp(score)

    def efficiency(self, score: float, bound: float) -> float:
        """At least this share of the best possible."""
        return math.exp(min(score - bound, 0.0))

    def goal(self, bound: float, efficiency: float) -> float:
        """The score that has this efficiency."""
        return bound + math.log(efficiency)


class Shares(Nats):
    """Shares of variance, from 0 to 1."""

    unit = "of variance explained"
    mark = "share"
    best = "the best possible"
    axis = plain_axis = "share of variance explained"
    noticeable = "1 percentage point"
    spectral = "Ky Fan's bound"
    spectral_mark, lengths_mark = "Ky Fan", "lengths"

    def shown(self, score: float) -> str:
        return f"{100.0 * score:.2f}%"

    def short(self, score: float) -> str:
        return f"{100.0 * score:.1f}%"

    def tick(self, score: float) -> str:
        return f"{100.0 * score:.4g}%"

    def rounded_up(self, bound: float) -> str:
        # No share exceeds the whole, whatever rounding has added.
        return super().rounded_up(1.0 if 1.0 < bound < 1.0 + _ROUNDING else bound)

    def length(self, score: float) -> float:
        return score

    def efficiency(self, score: float, bound: float) -> float:
        # Where nothing can be explained, nothing is the best.
        return min(max(score / bound, 0.0), 1.0) if bound > 0 else 1.0

    def goal(self, bound: float, efficiency: float) -> float:
        return bound * efficiency


UNITS = {DIVERSE: Nats(), REPRESENTATIVE: Shares()}


def unsupported(what: str, instead: str) -> UnsupportedError:
    """The one refusal of what shares of variance do not support (docs/certainty.md)."""
    return UnsupportedError(f"objective {REPRESENTATIVE!r} does not support {what}; {instead}")
