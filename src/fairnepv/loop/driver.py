"""The one loop that drives every solver and search.

A method is `init / step / done / report` over a small frozen record, its *state*. The loop owns
counting, budgets, tracing, the finite check and interruption, so that no method repeats them.
States hold arrays, tuples of arrays of one shape and plain numbers only, which a journal packs
into arrays; a run that is continued from an unpacked state goes where the uninterrupted one would
have gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from fairnepv.compute.clock import Limit, OutOfTime, limited, now, unlimited
from fairnepv.errors import InputError, NumericalError, Status


class State(Protocol):
    """What every state offers to the loop; the rest is the method's own."""

    @property
    def passes(self) -> int:
        """Passes over the rows of the pool that led here."""


S = TypeVar("S", bound=State)


class Method(Protocol[S]):
    """A solver or a search. `step` is pure: it returns a new state and keeps the old one whole."""

    stage: str

    def init(self) -> S: ...

    def step(self, state: S) -> S: ...

    def done(self, state: S) -> Status | None:
        """How the method ended in this state, or None while there is more to do."""

    def report(self, state: S) -> Mapping[str, Any]:
        """What the trace keeps of a state, by the names of `Step`'s fields; the rest are details.

        `objective` is required.
        """


@dataclass(frozen=True)
class Step:
    """One row of a trace, and the record that a progress callback receives."""

    stage: str
    step: int
    passes: int
    seconds: float  # since the run of this stage began
    objective: float
    residual: float | None = None  # k ||A_perp||_F, of the methods on frames
    weights: tuple[float, ...] | None = None  # of the views, likewise
    shift: float | None = None  # sigma, of the SCF variants
    details: Mapping[str, Any] = field(default_factory=dict)


_REPORTED = ("objective", "residual", "weights", "shift")
Progress = Callable[[Step], None]


def check_progress(progress: Any) -> Progress | None:
    """The function that a user hands in as a listener; `bars.telling` sees to True and False."""
    if progress is None or isinstance(progress, bool):
        return None
    if not callable(progress):
        raise InputError(
            f"progress must be True, False, None or a function of one Step, not {progress!r}"
        )
    listener: Progress = progress
    return listener


@dataclass(frozen=True)
class Budget:
    """Limits on a run. Only `deadline` (in seconds of `clock.now`) may make results differ."""

    max_steps: int | None = None
    max_passes: int | None = None
    deadline: float | None = None
    least_steps: int = 0  # which are made whatever the clock says

    def spent(self, steps: int, passes: int) -> Status | None:
        if self.max_steps is not None and steps >= self.max_steps:
            return Status.STEP_LIMIT
        if self.max_passes is not None and passes >= self.max_passes:
            return Status.PASS_LIMIT
        late = self.deadline is not None and now() >= self.deadline
        return Status.TIME_LIMIT if late and steps >= self.least_steps else None

    def watching(self, steps: int) -> AbstractContextManager[None]:
        """Within, the clock is asked between products, unless this many steps are too few."""
        return limited(Limit(self.deadline)) if steps >= self.least_steps else unlimited()


@dataclass(frozen=True)
class Outcome(Generic[S]):
    """The last whole state of a run, and how the run came to its end."""

    state: S
    status: Status
    trace: tuple[Step, ...]
    steps: int  # from the very start, for `run(..., state=..., steps=...)` to go on counting


def run(
    method: Method[S],
    *,
    budget: Budget | None = None,
    state: S | None = None,
    steps: int = 0,
    progress: Progress | None = None,
    keep: Callable[[S, Step, Status | None], None] | None = None,
) -> Outcome[S]:
    """Drive `method` from `state` (or its own start) until it is done or the budget is spent.

    A run that goes on from a stored state passes the `steps` that led to it. Every state goes to
    `keep`, with its row of the trace and, if the run ends there, its status. A start that is
    interrupted or out of time raises that: no state is in hand yet.
    """
    began, budget = now(), budget or Budget()
    try:
        with budget.watching(steps):
            state = method.init() if state is None else state
    except np.linalg.LinAlgError as error:
        raise NumericalError(Status.INDEFINITE.value) from error
    trace: list[Step] = []
    successor, count = state, steps
    try:
        while True:
            with budget.watching(count):
                row = _row(method, successor, count, now() - began)
            if not (math.isfinite(row.objective) and math.isfinite(row.residual or 0.0)):
                status = Status.NON_FINITE
                break
            state, steps = successor, count
            trace.append(row)
            if progress is not None:
                with unlimited():  # a listener may call the library itself
                    progress(row)
            ended = method.done(state) or budget.spent(steps, state.passes)
            if keep is not None:
                keep(state, row, ended)
            if ended is not None:
                status = ended
                break
            with budget.watching(steps):
                successor, count = method.step(state), steps + 1
    # `step` is pure, so the state before one that was cut short is whole.
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    except OutOfTime:
        status = Status.TIME_LIMIT
    except np.linalg.LinAlgError:
        status = Status.INDEFINITE
    return Outcome(state, status, tuple(trace), steps)


def _row(method: Method[S], state: S, step: int, seconds: float) -> Step:
    details = dict(method.report(state))
    known = {name: details.pop(name) for name in _REPORTED if name in details}
    return Step(method.stage, step, state.passes, seconds, **known, details=details)
