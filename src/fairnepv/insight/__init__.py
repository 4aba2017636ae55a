"""Questions about a selection, or before one: why these, what for, how sure, how many.

Nothing here chooses by rules of its own: selections come from `select` and its search, scores from
the one function that scores.
"""

from fairnepv.insight.collected import Overview as Overview
from fairnepv.insight.collected import overview as overview
from fairnepv.insight.difference import Difference as Difference
from fairnepv.insight.difference import diff as diff
from fairnepv.insight.explanation import Explanation as Explanation
from fairnepv.insight.explanation import explain as explain
from fairnepv.insight.extension import extend as extend
from fairnepv.insight.floors import Tradeoff as Tradeoff
from fairnepv.insight.floors import tradeoff as tradeoff
from fairnepv.insight.local import LOCAL_EPS as LOCAL_EPS
from fairnepv.insight.local import local_features as local_features
from fairnepv.insight.neighbours import Assignment as Assignment
from fairnepv.insight.neighbours import assign as assign
from fairnepv.insight.neighbours import typicality as typicality
from fairnepv.insight.plane import Plane as Plane
from fairnepv.insight.sizes import Curve as Curve
from fairnepv.insight.sizes import curve as curve
from fairnepv.insight.variants import Stability as Stability
from fairnepv.insight.variants import Variant as Variant
from fairnepv.insight.variants import stability as stability
