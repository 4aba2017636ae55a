"""What can go wrong, in two kinds: wrong input raises, a numerical outcome is a `Status`.

Both tell the same story in the same words: a message names the thing, what was expected, what
came and what to try next.
"""

from enum import Enum

from fairnepv.display import shown


class FairnepvError(Exception):
    """Everything that fairnepv raises on purpose; its words are fit to be shown anywhere."""

    def __init__(self, *said: object) -> None:
        super().__init__(*map(shown, said))


class InputError(FairnepvError, ValueError):
    """The input cannot be used; nothing was computed and nothing was written."""


class CheckpointError(InputError):
    """A stored state is another problem's, another user's or damaged, or there is no key for it."""


class UnsupportedError(InputError):
    """A combination of method and constraints that is not supported; the message says what is."""


class NumericalError(FairnepvError, ArithmeticError):
    """Under `strict=True`: a run ended in a status that is not a success."""


class TimeLimitError(FairnepvError, TimeoutError):
    """`time_limit` was over before there was anything to return."""


class ClusterError(FairnepvError, RuntimeError):
    """Workers failed; what was asked for may be sound."""


class RankWarning(UserWarning):
    """k exceeds the rank of a view, whose score then fills with log eps."""


class Status(Enum):
    """How a run ended; the value is the message, with the remedy where there is one."""

    CONVERGED = "converged: the residual is below the tolerance"
    GLOBAL = "solved globally: by the dual no frame has more, but for the tolerance"
    MIXED = (
        "the dual is solved, but at its optimum an eigenvalue is repeated and frames are mixed; "
        "this frame is the best that ascent found, and how far the bound is above it is reported"
    )
    SADDLE = (
        "stationary, but the curvature check found a direction of ascent, so this is a saddle and "
        "not a maximum: start elsewhere (start='random') or use solver='accelerated'"
    )
    ROUNDING_FLOOR = (
        "stopped at the rounding floor: the residual is as small as float64 allows for the "
        "condition of the view Gram matrices; raise eps, or lower k below the width of the "
        "narrowest view"
    )
    STAGNATED = (
        "stagnated above the tolerance: no step improves the objective any further; raise eps or "
        "tau, or accept the residual that is reported"
    )
    DEGENERATE = (
        "degenerate: k is at least the joint rank of the views, so every view attains its spectral "
        "bound at once and the relaxation ranks nothing; rounding used the row norms of the joint "
        "range instead; lower k to get an informative relaxation"
    )
    COMPLETE = "complete: the method did all that it was asked to do"
    OPTIMAL = "optimal: no other set of this size can score higher, which is proven"
    TARGET = "target reached: the certified efficiency is as high as was asked for"
    INEXACT = (
        "searched to the end, but at this ridge float64 cannot tell sets apart as finely as a "
        "claim needs, so no optimality is claimed: raise eps, or bring the views to one scale"
    )
    LOCAL_OPTIMUM = (
        "local optimum: no allowed exchange of one item improves the score that the method "
        "maximises"
    )
    LOCAL_AMONG_WINNERS = (
        "local optimum among the winners of the shards: no allowed exchange of one item for "
        "another winner improves the fair score; an item that its shard did not choose may still"
    )
    STEP_LIMIT = "step limit reached before convergence: raise max_steps or loosen the tolerance"
    PASS_LIMIT = (
        "pass budget spent before a local optimum was confirmed: raise max_passes or the effort"
    )
    SPENT = (
        "the passes that this effort has for a pool of this size, or that were asked for, are "
        "spent; further swaps may still improve the score a little: raise the effort or passes"
    )
    FLOORS_MISSED = (
        "no set was found that meets every floor; this one comes closest, and whether another "
        "does is not known: lower the floors, or raise the effort"
    )
    NODE_LIMIT = (
        "node limit reached before the optimum was proven; this is the best so far, with the bound "
        "that is proven: raise node_limit"
    )
    AFFORDED = (
        "stopped before the tolerance, because a finer solution would take too many rows or steps; "
        "what is proven holds: allow a larger gap"
    )
    TIME_LIMIT = "time limit reached; this is the best so far: raise time_limit"
    INTERRUPTED = "interrupted; this is the best so far"
    INDEFINITE = (
        "a Gram matrix lost positive definiteness in float64; the last sound state was kept: "
        "raise eps"
    )
    NON_FINITE = (
        "a value that is not finite appeared; the last finite state was kept: raise eps, or check "
        "the scale of the features"
    )

    def __str__(self) -> str:
        return str(self.value)

    @property
    def ok(self) -> bool:
        """Whether the run did what it set out to do."""
        return self in _SUCCESS

    @property
    def stops_everything(self) -> bool:
        """Whether later stages must not start either."""
        return self in (Status.TIME_LIMIT, Status.INTERRUPTED)


_SUCCESS = {
    Status.CONVERGED,
    Status.GLOBAL,
    Status.MIXED,
    Status.ROUNDING_FLOOR,
    Status.DEGENERATE,
    Status.COMPLETE,
    Status.OPTIMAL,
    Status.INEXACT,
    Status.TARGET,
    Status.LOCAL_OPTIMUM,
    Status.LOCAL_AMONG_WINNERS,
    Status.SPENT,
}
