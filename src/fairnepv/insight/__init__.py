"""Questions about a selection, or before one: why these, what for, how sure, how many.

Nothing here chooses by rules of its own: selections come from `select` and its search, scores from
the one function that scores.
"""

from fairnepv.insight.assignment import Assignment, assign
from fairnepv.insight.density import typicality
from fairnepv.insight.difference import Difference, diff
from fairnepv.insight.explanation import Explanation, explain
from fairnepv.insight.extension import extend
from fairnepv.insight.floors import Tradeoff, tradeoff
from fairnepv.insight.sizes import Curve, curve
from fairnepv.insight.variants import Stability, Variant, stability

__all__ = [
    "Assignment",
    "Curve",
    "Difference",
    "Explanation",
    "Stability",
    "Tradeoff",
    "Variant",
    "assign",
    "curve",
    "diff",
    "explain",
    "extend",
    "stability",
    "tradeoff",
    "typicality",
]
