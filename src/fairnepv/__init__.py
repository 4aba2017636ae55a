"""Choose k items out of n so that no view of the data is left behind, and prove how good it is.

Names are loaded when they are first used: `import fairnepv` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_ROOMS = {  # a test holds this and the imports for type checkers equal
    "api.select": "select",
    "api.compare": "compare",
    "api.score": "score exhaustive",
    "api.relax": "relax",
    "api.certify": "certify verify_bound",
    "api.plan": "plan",
    "io.read": "open_rows",
    "api.estimator": "FairSelector",
    "insight": "assign curve diff explain extend stability tradeoff typicality "
    "Assignment Curve Difference Explanation Stability Tradeoff",
    "planning": "Forecast",
    "api.selection": "Selection Score Comparison Optimum",
    "concave": "Certificate",
    "views": "Calibration DiagonalView KernelView Pool",
    "compute": "LocalEngine",
    "errors": "FairnepvError InputError NumericalError UnsupportedError RankWarning Status",
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}

__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from fairnepv.api.certify import certify as certify
    from fairnepv.api.certify import verify_bound as verify_bound
    from fairnepv.api.compare import compare as compare
    from fairnepv.api.estimator import FairSelector as FairSelector
    from fairnepv.api.plan import plan as plan
    from fairnepv.api.relax import relax as relax
    from fairnepv.api.score import exhaustive as exhaustive
    from fairnepv.api.score import score as score
    from fairnepv.api.select import select as select
    from fairnepv.api.selection import Comparison as Comparison
    from fairnepv.api.selection import Optimum as Optimum
    from fairnepv.api.selection import Score as Score
    from fairnepv.api.selection import Selection as Selection
    from fairnepv.compute import LocalEngine as LocalEngine
    from fairnepv.concave import Certificate as Certificate
    from fairnepv.errors import FairnepvError as FairnepvError
    from fairnepv.errors import InputError as InputError
    from fairnepv.errors import NumericalError as NumericalError
    from fairnepv.errors import RankWarning as RankWarning
    from fairnepv.errors import Status as Status
    from fairnepv.errors import UnsupportedError as UnsupportedError
    from fairnepv.insight import Assignment as Assignment
    from fairnepv.insight import Curve as Curve
    from fairnepv.insight import Difference as Difference
    from fairnepv.insight import Explanation as Explanation
    from fairnepv.insight import Stability as Stability
    from fairnepv.insight import Tradeoff as Tradeoff
    from fairnepv.insight import assign as assign
    from fairnepv.insight import curve as curve
    from fairnepv.insight import diff as diff
    from fairnepv.insight import explain as explain
    from fairnepv.insight import extend as extend
    from fairnepv.insight import stability as stability
    from fairnepv.insight import tradeoff as tradeoff
    from fairnepv.insight import typicality as typicality
    from fairnepv.io.read import open_rows as open_rows
    from fairnepv.planning import Forecast as Forecast
    from fairnepv.views import Calibration as Calibration
    from fairnepv.views import DiagonalView as DiagonalView
    from fairnepv.views import KernelView as KernelView
    from fairnepv.views import Pool as Pool


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fairnepv' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fairnepv.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
