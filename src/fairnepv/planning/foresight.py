"""The stages of a run, one after another, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fairnepv.compute import HOST, LocalEngine
from fairnepv.compute.rates import UNTIMED, Rates, measure_rates
from fairnepv.methods.plan import Plan
from fairnepv.planning.device import device_needs
from fairnepv.planning.facts import held, is_sparse, loaded
from fairnepv.planning.forecast import Forecast
from fairnepv.planning.stages import Count
from fairnepv.problem import Means, Problem

_LEFT = 64 << 20  # bytes that the allocator keeps, at most, of what a stage has freed


def foresee(
    problem: Problem,
    plans: Sequence[Plan],
    *,
    certify: bool,
    efficiency: bool = False,
    rates: Rates | None = None,
) -> Forecast:
    """What these methods take, one after another, on a problem of which only shapes are looked at.

    `certify`: whether a bound is proven first; `efficiency`: whether calibration needs bounds.
    """
    here = isinstance(problem.pool.engine, LocalEngine)
    if rates is None:
        rates = measure_rates(any(map(is_sparse, problem.pool.views))) if here else UNTIMED
    count = Count(problem, rates)
    stages = [count.check()]
    if efficiency:
        stages.append(count.bound("calibration", joint=False))
    if certify:
        stages.append(count.bound("bound", joint=True))
    later = [stage for plan in plans for stage in count.method(plan, certify)]
    if plans:
        later.append(count.neighbours())
    left = min(_LEFT, max([stage.memory for stage in stages[1:]], default=0.0) / 4)
    stages += [replace(stage, memory=stage.memory + left) for stage in later]
    kept = count.kept() + (count.proof() if certify or efficiency else 0)
    views = problem.pool.views
    forecast = Forecast(
        problem.n,
        problem.k,
        tuple(stages),
        sum(map(held, views)),
        sum(map(loaded, views)),
        kept,
        problem.means,
        count.engine.block_numbers,
        tuple(_notes(problem)),
        device_needs(problem),
    )
    return forecast if here else forecast.untimed()


def _notes(problem: Problem) -> Iterator[str]:
    means, usual = problem.means, Means()
    if problem.pool.place is not HOST:
        yield "memory beside the device is counted as the local engine would take it, which is more"
    if means.table < usual.table:
        yield "no swap table is kept, so that swaps take longer"
    if means.support is not None:
        yield f"the bound is solved on at most {means.support:,} rows, and may be less tight"
    if not means.relaxation:
        yield "frames are not relaxed for a further start"
