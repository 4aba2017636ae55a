"""What a run will take, before anything is run: passes, operations, bytes, memory, time.

`foresee` goes through the stages of a selection as `methods` and `pipeline` would run them, and
counts from shapes and types alone: no row is read. `fit` chooses what may be kept so that a limit
on memory holds.
"""

from fairnepv.planning.forecast import PROGRAM as PROGRAM
from fairnepv.planning.forecast import Forecast as Forecast
from fairnepv.planning.forecast import Stage as Stage
from fairnepv.planning.foresight import fit as fit
from fairnepv.planning.foresight import foresee as foresee
