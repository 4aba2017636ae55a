"""What a run will take, before anything is run: passes, operations, bytes, memory, time.

`foresee` goes through the stages of a selection as `methods` and `pipeline` would run them, and
counts from shapes and types alone: no row is read. `fit` chooses what may be kept so that a limit
on memory holds.
"""

from fairnepv.planning.forecast import PROGRAM, Forecast, Stage
from fairnepv.planning.foresight import fit, foresee

__all__ = ["PROGRAM", "Forecast", "Stage", "fit", "foresee"]
