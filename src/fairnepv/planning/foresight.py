"""The stages of a run, one after another, what they come to, and what a limit on memory leaves."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fairnepv.compute import HOST, LocalEngine
from fairnepv.compute.device import TorchEngine
from fairnepv.compute.rates import UNTIMED, Rates, measure_device, measure_rates
from fairnepv.errors import InputError
from fairnepv.io.memory import size_in_words
from fairnepv.methods import APART
from fairnepv.methods.baselines.catalogue import FACTOR_THE_AVERAGE
from fairnepv.methods.plan import Plan
from fairnepv.options import DIVERSE, REPRESENTATIVE
from fairnepv.planning.explained import ExplainedCount
from fairnepv.planning.facts import ViewFacts
from fairnepv.planning.forecast import PROGRAM, DeviceNeeds, Forecast, Stage
from fairnepv.planning.stages import Count, Work
from fairnepv.problem import Means, Problem
from fairnepv.search import Effort
from fairnepv.search.exact import DEEPEST, MOST_ROWS

COUNTS = {DIVERSE: Count, REPRESENTATIVE: ExplainedCount}
_LEFT = 64 << 20  # bytes that the allocator keeps, at most, of what a stage has freed
_SMALL_BLOCKS, _SMALL_ARENA = 1 << 18, 1 << 21
_KNOWN = 8 + 4 + 8 + 8  # bytes by row and view that greedy keeps, and makes in a pass over all
_SWAP_WIDTH = 4  # times (M + 2) k numbers by row of the widest pass
_ON_THEIR_WAY = 3  # blocks: filled, copied and computed with


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
    views = [ViewFacts(view) for view in problem.pool.views]
    known = rates or _rates(problem, any(view.sparse for view in views))
    count = COUNTS[problem.utility](problem, known or UNTIMED)
    stages = count.posing()
    if efficiency:
        stages.append(count.bound("calibration", joint=False))
    if certify:
        stages.append(count.bound("bound", joint=True))
    later = []
    for plan in plans:
        later += method_stages(count, plan, certify)
        if plan.method != "greedy" and (plan.method != "auto" or plan.effort.passes):
            later.append(count.order())
    if plans:
        later.append(count.neighbours())
    left = min(_LEFT, max([stage.memory for stage in stages[1:]], default=0.0) / 4)
    stages += [replace(stage, memory=stage.memory + left) for stage in later]
    forecast = Forecast(
        n=problem.n,
        k=problem.k,
        stages=tuple(stages),
        data_memory=sum(view.held for view in views),
        loaded=sum(view.loaded for view in views),
        kept=count.kept() + (count.proof() if certify or efficiency else 0),
        means=problem.means,
        block_numbers=count.engine.block_numbers,
        notes=tuple(_notes(problem)),
        device=_device_needs(problem, views),
    )
    return forecast if known else forecast.untimed()


def _rates(problem: Problem, sparse: bool) -> Rates | None:
    """How fast what will compute is; None where that is not known."""
    engine = problem.pool.engine
    if not isinstance(engine, LocalEngine | TorchEngine):
        return None
    if not isinstance(engine, TorchEngine) or not engine.place.asynchronous:
        return measure_rates(sparse)
    return None if sparse else measure_device(engine.place)


def _notes(problem: Problem) -> Iterator[str]:
    means, usual = problem.means, Means()
    if problem.pool.place is not HOST:
        yield "memory beside the device is counted as the local engine would take it, which is more"
    if means.table < usual.table:
        yield "no swap table is kept, so that swaps take longer"
    if means.support is not None:
        yield f"the bound is solved on at most {means.support:,} rows, and may be less tight"
    if means.arena < usual.arena:
        yield "tabu search is made among fewer rows"
    if not means.relaxation:
        yield "frames are not relaxed for a further start"


def _device_needs(problem: Problem, views: list[ViewFacts]) -> DeviceNeeds | None:
    """None for an engine that computes where the rows are."""
    pool, engine = problem.pool, problem.pool.engine
    if not isinstance(engine, TorchEngine):
        return None
    n, M, k = problem.n, len(pool.views), problem.k
    room, resident, streamed = float(engine.room), 0.0, 0.0
    for view in views:
        size, there = view.size_there, view.is_on(engine.device)
        if there or (size <= room and view.moves_to(engine.device)):
            resident, room = resident + size, room - (0.0 if there else size)
        else:
            streamed += size
    table = 4.0 * n * M * (k + 1) if n * M * k <= problem.means.table else 0.0
    width = _SWAP_WIDTH * (M + 2) * k
    rows = min(n, engine.rows_of_block(pool, width))
    sent = streamed / n * rows * (_ON_THEIR_WAY - 1)
    block = 8.0 * rows * (pool.row_width + width) + sent
    return DeviceNeeds(str(engine.device), resident, streamed, _KNOWN * n * M + table, block)


# --- methods --------------------------------------------------------------------------------------


def method_stages(count: Count, plan: Plan, certify: bool) -> list[Stage]:
    """The stages that a method goes through, as `methods` would run them."""
    effort = plan.refining
    if len(plan.shards) > 2:
        return _tiers(count, plan)
    if plan.method in FACTOR_THE_AVERAGE:
        refined = [] if plan.method in APART else _refined(count, effort)
        return [count.averaged(plan.method), *refined]
    if plan.method == "nepv":
        relaxing = count.relaxation(steps=plan.nepv.most_steps)
        return [relaxing, *([count.swaps(effort)] if effort.passes else [])]
    supported = certify and effort.passes > 0 and plan.method in ("auto", "exact")
    stages = [count.greedy(supported=supported)]
    if plan.method == "greedy-swaps":
        return stages + _refined(count, replace(effort, swaps=0))
    if plan.method not in ("greedy", "auto", "exact"):
        stages += [] if plan.method in APART else _refined(count, effort)
        return [replace(stage, note=f"{plan.method}, roughly") for stage in stages]
    if plan.method == "greedy" or effort.passes == 0:
        return stages
    starts = 1
    if effort.competes:
        starts += 1 + effort.samples * certify + count.M + 3
        if count.problem.means.relaxation:
            stages.append(count.relaxation(2))
    stages += [count.tabu(effort), count.swaps(effort, starts, last=not effort.competes)]
    small = count.n <= MOST_ROWS and count.k <= DEEPEST
    if plan.method == "exact" or (certify and small):
        note = "small pools only; how long a proof takes depends on the data"
        stages.append(count.stage("branch and bound", 1e6, Work(0), note))
    return stages


def _refined(count: Count, effort: Effort) -> list[Stage]:
    """Tabu search, then the swaps that it leaves; or swaps alone, where that is all there is."""
    if not effort.swaps:
        return [count.swaps(effort)] if effort.passes else []
    return [count.tabu(effort), count.swaps(effort, last=True)]


def _tiers(count: Count, plan: Plan) -> list[Stage]:
    """Greedy within shards, of which one is held at a time, then a method among the winners."""
    sizes = [stop - start for start, stop in itertools.pairwise(plan.shards)]
    largest = count.over(max(sizes))
    first = replace(
        count.greedy(),
        name="shards",
        memory=largest.greedy().memory + largest.copied(array=False),
        note=f"{len(sizes):,} shards of up to {max(sizes):,} rows, one at a time",
    )
    winners = count.over(sum(min(count.k, size) for size in sizes))
    among, stages = f"among {winners.n:,} winners", [first]
    for stage in method_stages(winners, replace(plan, shards=()), False):
        passes = stage.passes * winners.n / count.n  # as shares of a pass over all rows
        note = f"{among}; {stage.note}" if stage.note else among
        memory = stage.memory + winners.copied()
        stages.append(replace(stage, passes=passes, memory=memory, note=note))
    return stages


# --- limits ---------------------------------------------------------------------------------------


def fit(
    problem: Problem, limit: int | None, foretell: Callable[[Problem], Forecast]
) -> tuple[Problem, Forecast]:
    """The problem with means such that its forecast keeps to the limit, and that forecast.

    What costs nothing but time is given up first, then tightness of the bound and rows of tabu
    searches, then a start.
    """
    least: Forecast | None = None
    for candidate in _ladder(problem):
        promised = foretell(candidate)
        forecast = promised.with_optional()  # which the user may ask for later
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
    """The problem with less and less that may be kept in memory."""
    yield problem
    means = replace(problem.means, table=0)
    yield replace(problem, means=means)
    engine = problem.pool.engine
    if isinstance(engine, LocalEngine) and engine.block_numbers > _SMALL_BLOCKS:
        pool = replace(problem.pool, engine=replace(engine, block_numbers=_SMALL_BLOCKS))
        problem, means = replace(problem, pool=pool), replace(means, confirmed=2 * _SMALL_BLOCKS)
        yield replace(problem, means=means)
    for multiple in (16, 4):
        means = replace(means, support=max(500, multiple * problem.k), arena=_SMALL_ARENA)
        yield replace(problem, means=means)
    yield replace(problem, means=replace(means, relaxation=False))
