"""When work must end: a deadline that is asked for between any two products.

Whoever has only so much time arms a `Limit` around the work; limits nest, and the earliest counts.
Engines, solvers and searches call `check_time` before a product. What it raises is no `Exception`,
as Ctrl-C is none, and is turned into an answer by whoever armed the limit (`loop.Context`). Threads
of a pass see the limits of the thread that began it. Calls from outside are `apart`: what is armed
around them does not count within, and nothing that they arm outlives them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np

_SMALL = 192  # columns of a matrix that tells how long the factors of larger ones take
EIGENVECTORS = 9.0  # operations, times the cube of the columns
_QUICKER = 0.5  # of what the operations say: those of larger matrices are the quicker ones

P = ParamSpec("P")
R = TypeVar("R")


class OutOfTime(BaseException):
    """The deadline has passed, and no further product is begun. It never leaves the library."""


@dataclass(eq=False)
class Limit:
    """A deadline in seconds of `now`, which may move while it is armed; None: there is none."""

    deadline: float | None


def now() -> float:
    """The clock of all deadlines, in one place."""
    return time.monotonic()


class _Armed:
    """A `with` block, and the limits that count within.

    No generator, which Ctrl-C could leave for the garbage collector to end at any later time.
    """

    def __init__(self, limits: tuple[Limit, ...]) -> None:
        self.limits, self._around = limits, _armed.get()

    def __enter__(self) -> None:
        _armed.set(self)

    def __exit__(self, *_: object) -> None:
        if self._is_armed():
            _armed.set(self._around)

    def _is_armed(self) -> bool:
        """Here, or around blocks that Ctrl-C kept from ending."""
        block = _armed.get()
        while block is not None and block is not self:
            block = block._around
        return block is self


_armed: ContextVar[_Armed | None] = ContextVar("limits", default=None)


def limited(limit: Limit) -> contextlib.AbstractContextManager[None]:
    """Work that ends by the deadline, or by an earlier one that is armed already."""
    return _Armed((*_limits(), limit))


def unlimited() -> contextlib.AbstractContextManager[None]:
    """Work without which there is no answer: what is armed around it does not count."""
    return _Armed(())


def apart(function: Callable[P, R]) -> Callable[P, R]:
    """A function that users call, which begins without limits and leaves none behind.

    Ctrl-C may come between any two instructions, also between those that arm and disarm. What a
    call sets in a copy of the context is gone however it ends, as C code enters and leaves that.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        context = copy_context()
        context.run(_armed.set, None)
        return context.run(function, *arguments, **options)

    return call


def _limits() -> tuple[Limit, ...]:
    block = _armed.get()
    return () if block is None else block.limits


def left() -> float:
    """Seconds to the earliest deadline; infinite where there is none."""
    deadlines = [limit.deadline for limit in _limits() if limit.deadline is not None]
    return min(deadlines) - now() if deadlines else math.inf


def check_time() -> None:
    """Called before every product."""
    if left() <= 0:
        raise OutOfTime


def expect(operations: float) -> None:
    """Called before a factorisation of so many operations, which cannot be asked to stop: one that
    takes longer than what is left is not begun."""
    seconds = left()
    if seconds <= 0 or (math.isfinite(seconds) and seconds_for(operations) > seconds):
        raise OutOfTime


def seconds_for(operations: float) -> float:
    """About how long so many operations of dense factorisations take on this machine."""
    return operations * _pace() if operations > EIGENVECTORS * _SMALL**3 else 0.0


@functools.cache
def _pace() -> float:
    """Seconds of an operation, by the eigenvectors of a small matrix.

    Of one thread: several that wait for each other on a busy machine took a hundred times as long,
    so that half of any limit was kept back for the score of a set.
    """
    from fairnepv.compute.local import few_threads  # which asks the clock itself

    X = np.random.default_rng(0).standard_normal((_SMALL, _SMALL))
    times = []
    with few_threads(0.0):
        for _ in range(3):  # the first one wakes libraries up
            began = time.perf_counter()
            np.linalg.eigh(X + X.T)
            times.append(time.perf_counter() - began)
    return _QUICKER * min(times) / (EIGENVECTORS * _SMALL**3)


# --- on several machines, which have the clock on the wall in common ------------------------------


def deadline_on_the_wall() -> float | None:
    """The earliest deadline, in seconds of `time.time`."""
    seconds = left()
    return time.time() + seconds if math.isfinite(seconds) else None


def by_the_wall(deadline: float | None) -> contextlib.AbstractContextManager[None]:
    """Work that ends by a deadline that came from another machine."""
    return limited(Limit(None if deadline is None else now() + deadline - time.time()))
