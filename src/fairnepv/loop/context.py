"""Several runs of the loop under one clock, with one trace, one listener and one journal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from fairnepv.compute.clock import Limit, OutOfTime, limited, now, unlimited
from fairnepv.errors import Status, TimeLimitError
from fairnepv.loop.driver import (
    Budget,
    Method,
    Outcome,
    Progress,
    S,
    Step,
    check_progress,
    run,
)

if TYPE_CHECKING:
    from fairnepv.loop.journal import Journal

R = TypeVar("R")
_SHORTEST = 1e-9  # seconds: a limit is positive
MOMENT = 0.1  # seconds that make an answer of what is in hand, where there should be none left


class Context:
    """What a call may take and what it has to tell: one deadline, one trace, one listener.

    Once a run was interrupted or out of time, `stopped` says so and later stages should not start.
    With a journal the clock begins where the journal ends, and stops nothing before one new step is
    made, so that a selection in however short parts comes to its end.
    """

    def __init__(
        self,
        *,
        time_limit: float | None = None,
        progress: Progress | bool | None = None,
        goal: float | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._began, self._time_limit = now(), time_limit
        self._end = None if time_limit is None else self._began + time_limit
        self._delay = 0.0  # of the clock, by what a journal took to tell
        self._least_new_steps = 0 if journal is None else 1
        self.progress = check_progress(progress)
        self.goal = goal  # an objective that is good enough
        self.journal = journal
        self._limit = Limit(None)
        self._arm()
        self.trace: list[Step] = []
        # What a stage wants the user to know besides its status.
        self.notes: list[str] = [] if journal is None else journal.notes
        self.stopped: Status | None = None

    # --- the clock ------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """That of the stage at hand, in seconds of `clock.now`."""
        return None if self._end is None else self._end + self._delay

    @property
    def left(self) -> float | None:
        """Seconds to the deadline, none of them negative; None where there is no limit."""
        return None if self.deadline is None else max(0.0, self.deadline - now())

    def part(self, turns: int) -> float | None:
        """The seconds of one of so many calls that share what is left; None: there is no limit."""
        return None if self.left is None else max(self.left / turns, _SHORTEST)

    def _arm(self) -> None:
        """Set the limit on work outside of the loop. With a journal there is none, as to go on from
        that must lead to the same runs."""
        self._limit.deadline = self.deadline if self.journal is None else None

    def _stop(self, status: Status) -> None:
        if self.stopped is not Status.INTERRUPTED:
            self.stopped = status

    def keep_back(self, seconds: float) -> None:
        """End so much earlier: what comes after the deadline takes that long."""
        if self._end is not None:
            self._end -= seconds
            self._arm()

    @contextlib.contextmanager
    def share(self, part: float) -> Iterator[None]:
        """A stage that gets this part of the time that is left, and what it leaves goes to the next
        one. Where its time runs out it is left, and only the end of all time stops the others."""
        end, stopped = self._end, self.stopped
        if end is not None and self.left is not None:
            self._end = end - (1.0 - part) * self.left
        self._arm()
        try:
            with limited(self._limit):
                yield
        except OutOfTime:
            self._stop(Status.TIME_LIMIT)
        finally:
            self._end = end
            self._arm()
            if self.stopped is Status.TIME_LIMIT and self.left != 0.0:
                self.stopped = stopped

    @contextlib.contextmanager
    def absorbing_interruption(self) -> Iterator[None]:
        """For work outside of the loop that may be given up because something is in hand: Ctrl-C
        and the deadline end it, and `stopped` says so."""
        with limited(self._limit):  # outside of `try`: only the work itself may be given up
            try:
                yield
            except KeyboardInterrupt:
                self._stop(Status.INTERRUPTED)
            except OutOfTime:
                self._stop(Status.TIME_LIMIT)

    def despite_interruption(self, work: Callable[[], R]) -> R:
        """Work that must not be lost, as others rest in it: where Ctrl-C comes between its stages,
        which absorb it themselves, it is done again in the moment that it takes once `stopped` says
        so. A second Ctrl-C ends it."""
        try:
            return work()
        except KeyboardInterrupt:
            if self.stopped is Status.INTERRUPTED:
                raise
            self.interrupt()
            return work()

    def interrupt(self) -> None:
        """Ctrl-C came where nothing absorbs it: nothing further should start."""
        self._stop(Status.INTERRUPTED)

    @contextlib.contextmanager
    def needed(self, what: str) -> Iterator[None]:
        """For work without which there is no answer at all. It has a moment even where the limit is
        shorter; beyond, it is refused in words."""
        limit = self._limit.deadline
        least = Limit(None if limit is None else max(limit, now() + MOMENT))
        try:
            with limited(least):
                yield
        except OutOfTime:
            took = now() - self._began
            given = "" if self._time_limit is None else f" = {self._time_limit:g} s"
            raise TimeLimitError(
                f"time_limit{given} is over after {took:.2g} s, in which {what}, "
                "so that there is nothing to return yet; raise time_limit, or give fewer rows"
            ) from None

    # --- runs -----------------------------------------------------------------------------------

    def following(self, earlier: Context) -> Context:
        """This context, as one that goes on after another: with its trace, and as interrupted."""
        self.trace.extend(earlier.trace)
        self.notes.extend(earlier.notes)
        if earlier.stopped is Status.INTERRUPTED:
            self.stopped = earlier.stopped
        return self

    def ended(self, status: Status) -> bool:
        """Whether, after a run that ended so, nothing further should start."""
        return self.stopped is not None or status is Status.TARGET

    def run(
        self, method: Method[S], *, max_steps: int | None = None, max_passes: int | None = None
    ) -> Outcome[S]:
        """A run, from where the journal has left it if that knows of it.

        One that starts when time is up has a moment, to make a set of what is in hand.
        """
        stored = None if self.journal is None else self.journal.resume(method)
        state, steps = None, 0
        if stored is not None:
            self._delay = now() - self._began
            state, steps = stored.state, stored.steps
        if stored is not None and stored.status is not None:
            last = Step(method.stage, steps, stored.state.passes, 0.0, stored.objective)
            outcome = Outcome(stored.state, stored.status, (last,), steps)
        else:
            hurries = self.stopped is not None and self.journal is None
            deadline = now() + MOMENT if hurries else self.deadline
            least = steps + self._least_new_steps
            try:
                with unlimited() if hurries else contextlib.nullcontext():
                    outcome = run(
                        method,
                        budget=Budget(max_steps, max_passes, deadline, least),
                        state=state,
                        steps=steps,
                        progress=self.progress,
                        keep=None if self.journal is None else self.journal.keep,
                    )
            except OutOfTime:
                self._stop(Status.TIME_LIMIT)
                raise
        if outcome.steps > steps:
            self._least_new_steps = 0
        self.trace.extend(outcome.trace)
        if outcome.status.stops_everything:
            self._stop(outcome.status)
        return outcome
