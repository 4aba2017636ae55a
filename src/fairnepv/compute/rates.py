"""How fast this machine is, or a device of it: some products and a copy, timed for a fraction of a
second."""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairnepv.compute.local import few_threads
from fairnepv.compute.place import Place

_ROWS, _WIDTH, _COLUMNS = 4096, 256, 64  # 8 MiB, so that a plan takes no memory itself
_CALL = 3e-5  # seconds of a call from Python
_COLD = 0.25  # rate of copying rows out of memory, beside that of these few out of a cache
_RUNS, _SECONDS = 5, 0.04  # of each measurement, at least


@dataclass(frozen=True)
class Rates:
    """Multiply-adds per second of products, and bytes per second that are copied, by one thread."""

    single: float
    double: float
    sparse: float
    copied: float
    factored: float  # multiply-adds per second of eigenvectors
    call: float  # seconds of a call, however few numbers it is about


UNTIMED = Rates(math.inf, math.inf, math.inf, math.inf, math.inf, 0.0)  # seconds do not matter


@functools.cache
def measure_rates(sparse: bool) -> Rates:
    """The rates of this process, measured once; without sparse views their product is not worth
    timing. In seconds of the processor: on a busy machine not one of a few runs was undisturbed,
    and float64 seemed to take eight times as long as it does."""
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((_ROWS, _WIDTH))
    few = rng.standard_normal((_WIDTH, _COLUMNS))
    work = float(_ROWS * _WIDTH * _COLUMNS)
    with few_threads(0.0):  # so that all of the work is this thread's
        double = work / _best_time(lambda: wide @ few, time.thread_time)
        narrow, thin = wide.astype(np.float32), few.astype(np.float32)
        single = work / _best_time(lambda: narrow @ thin, time.thread_time)
    return Rates(
        single,
        double,
        _sparse_rate(rng) if sparse else double / 20.0,
        _COLD * wide.nbytes / _best_time(wide.copy, time.thread_time),
        single,
        _CALL,
    )


@functools.cache
def measure_device(place: Place) -> Rates:
    """The rates of a device; each run ends with a number that the host waits for, whose own time is
    that of a call."""
    rng = np.random.default_rng(0)
    wide = place.put(rng.standard_normal((2 * _ROWS, 4 * _WIDTH)))
    few = place.put(rng.standard_normal((4 * _WIDTH, 4 * _COLUMNS)))
    corner = few[:_COLUMNS, :_COLUMNS]

    def timed(run: Callable[[], Any]) -> float:
        return _best_time(lambda: place.get(run()[:1, :1]), time.perf_counter)

    call = timed(lambda: corner @ corner)
    work = float(wide.shape[0] * few.shape[0] * few.shape[1])
    narrow, thin = place.single(wide), place.single(few)
    side, square = wide.shape[1], narrow.T @ narrow
    return Rates(
        work / max(timed(lambda: narrow @ thin) - call, call),
        double := work / max(timed(lambda: wide @ few) - call, call),
        double / 20.0,
        wide.nbytes / max(timed(lambda: place.copy(wide)) - call, call),
        4.0 * side**3 / timed(lambda: place.leading(square, side)[1]),
        call,
    )


def _sparse_rate(rng: np.random.Generator) -> float:
    entries = 50
    columns = rng.integers(_ROWS, size=(_ROWS, entries))
    indptr = np.arange(0, columns.size + 1, entries)
    rows = sp.csr_array((np.ones(columns.size), columns.ravel(), indptr), (_ROWS, _ROWS))
    right = rng.standard_normal((_ROWS, _COLUMNS))
    return columns.size * _COLUMNS / _best_time(lambda: rows @ right, time.thread_time)


def _best_time(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Seconds of the quickest of some runs: what others took of the machine does not count."""
    times: list[float] = []
    while len(times) < _RUNS or sum(times) < _SECONDS:
        start = clock()
        run()
        times.append(clock() - start)
    return min(times)
