"""Public names and where they live, for type checkers and for `__init__.py`, which loads them."""

from fairnepv.api.certify import certify as certify
from fairnepv.api.certify import verify_bound as verify_bound
from fairnepv.api.compare import compare as compare
from fairnepv.api.duplicates import Duplicates as Duplicates
from fairnepv.api.duplicates import near_duplicates as near_duplicates
from fairnepv.api.estimator import FairSelector as FairSelector
from fairnepv.api.features import attributes as attributes
from fairnepv.api.features import pooled as pooled
from fairnepv.api.features import texts as texts
from fairnepv.api.features import widened as widened
from fairnepv.api.plan import plan as plan
from fairnepv.api.relax import relax as relax
from fairnepv.api.score import exhaustive as exhaustive
from fairnepv.api.score import score as score
from fairnepv.api.select import select as select
from fairnepv.api.selection import Comparison as Comparison
from fairnepv.api.selection import Optimum as Optimum
from fairnepv.api.selection import Score as Score
from fairnepv.api.selection import Selection as Selection
from fairnepv.api.stored import load as load
from fairnepv.compute import Engine as Engine
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
from fairnepv.insight import local_features as local_features
from fairnepv.insight import stability as stability
from fairnepv.insight import tradeoff as tradeoff
from fairnepv.insight import typicality as typicality
from fairnepv.io.read import open_rows as open_rows
from fairnepv.planning import Forecast as Forecast
from fairnepv.views import Calibration as Calibration
from fairnepv.views import DiagonalView as DiagonalView
from fairnepv.views import KernelView as KernelView
from fairnepv.views import Pool as Pool
from fairnepv.views import View as View

__all__: list[str]
__version__: str
