"""What may be kept, so that a limit on memory holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fairnepv.compute import LocalEngine
from fairnepv.errors import InputError
from fairnepv.io.memory import size_in_words
from fairnepv.planning.forecast import PROGRAM, Forecast
from fairnepv.problem import Problem

_SMALL_BLOCKS = 1 << 18


def fit(
    problem: Problem, limit: int | None, foretell: Callable[[Problem], Forecast]
) -> tuple[Problem, Forecast]:
    """The problem with means such that its forecast keeps to the limit, and that forecast.

    What costs nothing but time is given up first, then tightness of the bound, then a start.
    """
    least: Forecast | None = None
    for candidate in _ladder(problem):
        promised = foretell(candidate)
        forecast = promised.with_optional()  # for somebody may ask
        if limit is None or forecast.peak_memory <= limit:
            return candidate, promised
        if least is None or forecast.peak_memory < least.peak_memory:
            least = forecast
    assert least is not None
    enough = -(-int(least.peak_memory) // (1 << 20))
    raise InputError(
        f"memory_limit is {size_in_words(limit or 0)}, but the least that would work is {enough} "
        f"MiB: {size_in_words(PROGRAM)} for the program, {size_in_words(int(least.kept))} for "
        f"norms and scales, {size_in_words(int(least.largest.memory))} for {least.largest.name}"
        + (f", {size_in_words(int(least.loaded))} for decoded rows" if least.loaded else "")
        + "; raise the limit, lower k, or leave stages out (effort='fast', certify=False)"
    )


def _ladder(problem: Problem) -> Iterator[Problem]:
    yield problem
    means = replace(problem.means, table=0)
    yield replace(problem, means=means)
    engine = problem.pool.engine
    if isinstance(engine, LocalEngine) and engine.block_numbers > _SMALL_BLOCKS:
        pool = replace(problem.pool, engine=replace(engine, block_numbers=_SMALL_BLOCKS))
        problem, means = replace(problem, pool=pool), replace(means, confirmed=2 * _SMALL_BLOCKS)
        yield replace(problem, means=means)
    for multiple in (16, 4):
        means = replace(means, support=max(500, multiple * problem.k))
        yield replace(problem, means=means)
    yield replace(problem, means=replace(means, relaxation=False))
