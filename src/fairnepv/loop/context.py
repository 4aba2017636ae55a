"""What several runs of the loop share: one clock, one trace, one listener, one journal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from fairnepv.errors import Status
from fairnepv.loop.driver import Budget, Method, Outcome, Progress, S, Step, run
from fairnepv.loop.journal import Journal


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
        self,
        method: Method[S],
        *,
        max_steps: int | None = None,
        max_passes: int | None = None,
        state: S | None = None,
    ) -> Outcome[S]:
        """A run, from where the journal has left it if that knows of it."""
        stored = None if self.journal is None else self.journal.resume(method)
        steps = 0
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
