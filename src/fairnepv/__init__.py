"""Choose k items out of n so that no view of the data is left behind, and prove how good it is.

Names are loaded when they are first used: `import fairnepv` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "select": "api.pipeline",
    "compare": "api.pipeline",
    "score": "api.pipeline",
    "relax": "api.pipeline",
    "exhaustive": "api.pipeline",
    "certify": "api.pipeline",
    "verify_bound": "api.pipeline",
    "plan": "api.pipeline",
    "open_rows": "io",
    "FairSelector": "api.estimator",
    "assign": "insight",
    "curve": "insight",
    "diff": "insight",
    "explain": "insight",
    "extend": "insight",
    "stability": "insight",
    "tradeoff": "insight",
    "typicality": "insight",
    "Assignment": "insight",
    "Curve": "insight",
    "Difference": "insight",
    "Explanation": "insight",
    "Stability": "insight",
    "Tradeoff": "insight",
    "Forecast": "planning",
    "Selection": "api.selection",
    "Score": "api.selection",
    "Comparison": "api.selection",
    "Optimum": "api.selection",
    "Certificate": "concave",
    "Calibration": "views",
    "DiagonalView": "views",
    "KernelView": "views",
    "Pool": "views",
    "LocalEngine": "compute",
    "FairnepvError": "errors",
    "InputError": "errors",
    "NumericalError": "errors",
    "UnsupportedError": "errors",
    "RankWarning": "errors",
    "Status": "errors",
}

__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from fairnepv.api.estimator import FairSelector as FairSelector
    from fairnepv.api.pipeline import compare as compare
    from fairnepv.api.pipeline import exhaustive as exhaustive
    from fairnepv.api.pipeline import plan as plan
    from fairnepv.api.pipeline import relax as relax
    from fairnepv.api.pipeline import score as score
    from fairnepv.api.pipeline import select as select
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
    from fairnepv.io import open_rows as open_rows
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
