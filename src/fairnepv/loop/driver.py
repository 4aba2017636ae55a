"""The one loop that drives every solver and search.

A method is `init / step / done / report` over a small frozen record, its *state*. The loop owns
counting, budgets, tracing, the finite check and interruption, so that no method repeats them.
States hold arrays, tuples of arrays of one shape and plain numbers only, which a journal packs
into arrays; a run that is continued from an unpacked state goes where the uninterrupted one would
have gone.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from fairnepv.errors import InputError, NumericalError, Status

if TYPE_CHECKING:
    from fairnepv.loop.journal import Journal


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


def check_progress(progress: Progress | None) -> Progress | None:
    """What a user hands in as a listener."""
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function of one Step, not {progress!r}")
    return progress


@dataclass(frozen=True)
class Budget:
    """Limits on a run. Only `deadline` (in `time.monotonic` seconds) may make results differ."""

    max_steps: int | None = None
    max_passes: int | None = None
    deadline: float | None = None
    least_steps: int = 0  # which are made whatever the clock says

    def spent(self, steps: int, passes: int) -> Status | None:
        if self.max_steps is not None and steps >= self.max_steps:
            return Status.STEP_LIMIT
        if self.max_passes is not None and passes >= self.max_passes:
            return Status.PASS_LIMIT
        late = self.deadline is not None and time.monotonic() >= self.deadline
        return Status.TIME_LIMIT if late and steps >= self.least_steps else None


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
    `keep`, with its row of the trace and, if the run ends there, its status.
    """
    began, budget = time.monotonic(), budget or Budget()
    try:
        state = method.init() if state is None else state
    except np.linalg.LinAlgError as error:
        raise NumericalError(Status.INDEFINITE.value) from error
    trace: list[Step] = []
    successor, count = state, steps
    try:
        while True:
            row = _row(method, successor, count, time.monotonic() - began)
            if not (math.isfinite(row.objective) and math.isfinite(row.residual or 0.0)):
                status = Status.NON_FINITE
                break
            state, steps = successor, count
            trace.append(row)
            if progress is not None:
                progress(row)
            ended = method.done(state) or budget.spent(steps, state.passes)
            if keep is not None:
                keep(state, row, ended)
            if ended is not None:
                status = ended
                break
            successor, count = method.step(state), steps + 1
    except KeyboardInterrupt:  # `step` is pure, so the state before the interrupted step is whole
        status = Status.INTERRUPTED
    except np.linalg.LinAlgError:
        status = Status.INDEFINITE
    return Outcome(state, status, tuple(trace), steps)


def _row(method: Method[S], state: S, step: int, seconds: float) -> Step:
    details = dict(method.report(state))
    known = {name: details.pop(name) for name in _REPORTED if name in details}
    return Step(method.stage, step, state.passes, seconds, **known, details=details)


class Context:
    """Several runs under one clock: one trace, one progress callback, one deadline.

    Once a run was interrupted or out of time, `stopped` says so and later stages should not start.
    With a journal the clock begins where the journal ends, and stops nothing before one new step is
    made, so that a selection in however short parts comes to its end.
    """

    def __init__(
        self,
        *,
        time_limit: float | None = None,
        progress: Progress | None = None,
        goal: float | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._time_limit = time_limit
        self._least_new_steps = 0 if journal is None else 1
        self._start_clock()
        self.progress = progress
        self.goal = goal  # an objective that is good enough
        self.journal = journal
        self.trace: list[Step] = []
        # What a stage wants the user to know besides its status.
        self.notes: list[str] = [] if journal is None else journal.notes
        self.stopped: Status | None = None

    def _start_clock(self) -> None:
        limit = self._time_limit
        self.deadline = None if limit is None else time.monotonic() + limit

    def following(self, earlier: Context) -> Context:
        """This context, as one that goes on after another: with its trace, and as interrupted."""
        self.trace.extend(earlier.trace)
        if earlier.stopped is Status.INTERRUPTED:
            self.stopped = earlier.stopped
        return self

    def ended(self, status: Status) -> bool:
        """Whether, after a run that ended so, nothing further should start."""
        return self.stopped is not None or status is Status.TARGET

    @contextlib.contextmanager
    def absorbing_interruption(self) -> Iterator[None]:
        """For work outside of the loop that may be given up because something is in hand."""
        try:
            yield
        except KeyboardInterrupt:
            self.stopped = Status.INTERRUPTED

    def run(
        self, method: Method[S], *, max_steps: int | None = None, max_passes: int | None = None
    ) -> Outcome[S]:
        """A run, from where the journal has left it if that knows of it."""
        stored = None if self.journal is None else self.journal.resume(method)
        state, steps = None, 0
        if stored is not None:
            self._start_clock()
            state, steps = stored.state, stored.steps
        if stored is not None and stored.status is not None:
            last = Step(method.stage, steps, stored.state.passes, 0.0, stored.objective)
            outcome = Outcome(stored.state, stored.status, (last,), steps)
        else:
            outcome = run(
                method,
                budget=Budget(max_steps, max_passes, self.deadline, steps + self._least_new_steps),
                state=state,
                steps=steps,
                progress=self.progress,
                keep=None if self.journal is None else self.journal.keep,
            )
        if outcome.steps > steps:
            self._least_new_steps = 0
        self.trace.extend(outcome.trace)
        if outcome.status.stops_everything:
            self.stopped = outcome.status
        return outcome
