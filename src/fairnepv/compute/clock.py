"""When work must end: a deadline that is asked for between any two products.

Whoever has only so much time arms a `Limit` around the work; limits nest, and the earliest counts.
Engines, solvers and searches call `check_time` before a product. What it raises is no `Exception`,
as Ctrl-C is none, and is turned into an answer by whoever armed the limit (`loop.Context`). Threads
of a pass see the limits of the thread that began it.
"""

import contextlib
import functools
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

_SMALL = 192  # columns of a matrix that tells how long the factors of larger ones take
EIGENVECTORS = 9.0  # operations, times the cube of the columns
_QUICKER = 0.5  # of what the operations say: those of larger matrices are the quicker ones


class OutOfTime(BaseException):
    """The deadline has passed, and no further product is begun. It never leaves the library."""


@dataclass(eq=False)
class Limit:
    """A deadline in seconds of `now`, which may move while it is armed; None: there is none."""

    deadline: float | None


_armed: ContextVar[tuple[Limit, ...]] = ContextVar("limits", default=())


def now() -> float:
    """The clock of all deadlines, in one place."""
    return time.monotonic()


@contextlib.contextmanager
def limited(limit: Limit) -> Iterator[None]:
    """Work that ends by the deadline, or by an earlier one that is armed already."""
    token = _armed.set((*_armed.get(), limit))
    try:
        yield
    finally:
        _armed.reset(token)


@contextlib.contextmanager
def unlimited() -> Iterator[None]:
    """Work without which there is no answer: what is armed around it does not count."""
    token = _armed.set(())
    try:
        yield
    finally:
        _armed.reset(token)


def left() -> float:
    """Seconds to the earliest deadline; infinite where there is none."""
    deadlines = [limit.deadline for limit in _armed.get() if limit.deadline is not None]
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
    """Seconds of an operation, by the eigenvectors of a small matrix."""
    X = np.random.default_rng(0).standard_normal((_SMALL, _SMALL))
    times = []
    for _ in range(2):  # the first one wakes libraries up
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
