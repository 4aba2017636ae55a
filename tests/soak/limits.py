"""Time that runs out, Ctrl-C that is pressed and memory that may not be used, at moments of every
stage on every engine: there is the best so far, its score right and its ending told in words, or a
sentence that nothing is in hand yet.

Moments are counted, not timed: the clock of all deadlines is asked before every product, stands
still until it has been asked so often, and then time is up or SIGINT comes. Of every work some
SIGINTs come by processor time as well, between any two instructions.
"""

import functools
import os
import re
import signal
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import scipy.sparse as sp

import fairnepv
import reference
from fairnepv import InputError, LocalEngine, Status
from fairnepv.compute import Engine, clock
from fairnepv.errors import TimeLimitError
from fairnepv.loop import Step
from fairnepv.planning import PROGRAM
from soak.clusters import cluster_of
from soak.formats import within
from soak.runner import Group

N, K, EPS, TAU = 40, 4, 0.1, 0.05
LIMIT = 1000.0  # seconds of a clock that stands still
ASKED = 0.01  # seconds of that clock for a product, once time is up: ten of them are a moment
LATE = 0.3  # seconds of the processor after the end, which is what docs promise at the least
TURNS = 3  # before lateness counts
MOMENTS = 20  # of every work
BEYOND = {"select_posed", "certify_posed"}  # what comes when rows are read
DOOR = "call"  # of every wrapper around a verb
MEMORY = ("greedy", "greedy-swaps", "auto", "fixed-weight", "k-dpp")
CUT = (Status.TIME_LIMIT, Status.INTERRUPTED)


# --- the clock -----------------------------------------------------------------------------------


class Clock:
    """Says the same time until it was asked `moment` times, and then strikes."""

    def __init__(self, moment: int | None = None, strike: Callable[[], None] | None = None) -> None:
        self.asked, self.moment, self.struck, self._strike = 0, moment, 0.0, strike
        self.now = 100.0

    def monotonic(self) -> float:
        self.asked += 1
        if self.struck and self._strike is None:
            self.now += ASKED
        elif self.asked == self.moment:
            self.struck = time.process_time()
            if self._strike is None:
                self.now += LIMIT
            else:
                self._strike()
        return self.now

    @contextmanager
    def told(self) -> Iterator[None]:
        """To all that ask for a deadline; workers elsewhere go by the clock on the wall."""
        clocks = {"monotonic": self.monotonic, "time": time.time}
        ours = SimpleNamespace(**clocks, perf_counter=time.perf_counter)
        with mock.patch.object(clock, "time", ours):
            yield


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """SIGINT once this process has computed for so long; never after the block."""
    before = signal.signal(signal.SIGPROF, lambda *_: press_ctrl_c())
    signal.setitimer(signal.ITIMER_PROF, max(seconds, 1e-6))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


# --- what an answer must be ----------------------------------------------------------------------


@functools.cache
def rows() -> dict[str, Any]:
    rng = np.random.default_rng([23, 6])
    return {"a": rng.standard_normal((N, 5)), "b": rng.standard_normal((N, 6))}


@functools.cache
def best(size: int, **rules: Any) -> float:
    return fairnepv.exhaustive(rows(), size, **rules).fair_score


def scores_of(found: Any) -> Any:
    """By the twin, from the rows and the offsets of the calibration that was reached."""
    S, parts = found.indices.tolist(), list(rows().values())
    if found.objective == "representative":
        parts = [reference.unit_diagonal(reference.centered(Phi)) for Phi in parts]
        return np.array([reference.explained(Phi, 1.0, S) for Phi in parts])
    d = reference.row_scores([reference.unit_diagonal(Phi) for Phi in parts], [EPS] * 2, S)
    return d + [found.calibration.offsets.get(name, 0.0) for name in rows()]


def is_a_set(found: fairnepv.Selection) -> None:
    """k items that keep the rules, scored as the twin has it, with an ending in words."""
    problem = found.problem
    assert len(set(found.indices.tolist())) == len(found.indices) == problem.k
    assert problem.constraints.is_met(found.indices)
    d = scores_of(found)
    np.testing.assert_allclose(list(found.scores.values()), d, atol=1e-9)
    fair = reference.soft_min(d, found.settings["tau"])
    np.testing.assert_allclose(found.fair_score, fair, atol=1e-9)
    assert found.upper_bound is None or found.upper_bound >= found.fair_score - 1e-9
    assert found.status.ok or found.status in (*CUT, Status.FLOORS_MISSED, Status.NODE_LIMIT)
    assert found.status.value in repr(found)
    if found.calibration.rule == "unit-diagonal" and found.upper_bound is not None:
        rules = {"objective": found.objective}
        assert found.upper_bound >= best(problem.k, **rules) - 1e-9 or problem.constraints


def is_a_bound(found: fairnepv.Certificate) -> None:
    assert found.upper_bound >= best(K) - 1e-9
    assert fairnepv.verify_bound(rows(), found).holds


def is_a_comparison(found: fairnepv.Comparison) -> None:
    assert len(found.rows) > 0
    for row in found.rows:
        is_a_set(row)


def is_a_curve(found: Any) -> None:
    assert found.status.ok or found.status in CUT
    assert np.isfinite(found.fair_scores).all()
    assert all(bound >= best(size) - 1e-9 for size, bound in found.bounds.items())


def is_a_tradeoff(found: Any) -> None:
    for selection in found.selections:
        is_a_set(selection)
        floors = selection.settings["floors"] or {"a": -np.inf}
        assert selection.scores["a"] >= floors["a"] - 1e-9


def is_stability(found: Any) -> None:
    for variant in found.variants:
        assert len(set(variant.indices.tolist())) == K
        assert 0.0 <= variant.jaccard <= 1.0


def are_sizes(found: Mapping[int, fairnepv.Selection]) -> None:
    for size, selection in found.items():
        assert len(selection) == size
        is_a_set(selection)


def is_a_frame(found: Any) -> None:
    V = found.basis
    np.testing.assert_allclose(V.T @ V, np.eye(K), atol=1e-9)
    assert np.isclose(found.leverage.sum(), K)


def is_the_optimum(found: Any) -> None:
    assert found.fair_score == best(K)


# --- what is cut short ---------------------------------------------------------------------------


def at_once(heard: list[Step]) -> bool:
    """Something is in hand as soon as rows are read, of which no step tells."""
    return True


def any_step(heard: list[Step]) -> bool:
    return bool(heard)


def never(heard: list[Step]) -> bool:
    """Half of it would be nothing."""
    return False


def first_of(stage: str) -> Callable[[list[Step]], bool]:
    """As soon as one of several is there."""
    return lambda heard: any(step.stage == stage and step.details["size"] > 0 for step in heard)


class Work(NamedTuple):
    """A call, with what its answer must be, and from when on it has one."""

    call: Callable[[Engine, dict[str, Any]], Any]
    check: Callable[[Any], None] = is_a_set
    engine: str = "local"
    in_hand: Callable[[list[Step]], bool] = at_once


def selecting(**asked: Any) -> Callable[[Engine, dict[str, Any]], Any]:
    return lambda engine, limits: fairnepv.select(rows(), K, engine=engine, **asked, **limits)


def from_files(engine: Engine, limits: dict[str, Any]) -> Any:
    for name, Phi in rows().items():
        if not Path(f"{name}.npy").exists():
            np.save(f"{name}.npy", Phi)
    data = {name: fairnepv.open_rows(f"{name}.npy") for name in rows()}
    return fairnepv.select(data, K, engine=engine, effort="fast", **limits)


def sparse(engine: Engine, limits: dict[str, Any]) -> Any:
    data = {name: sp.csr_array(Phi) for name, Phi in rows().items()}
    return fairnepv.select(data, K, engine=engine, calibration="efficiency", **limits)


@functools.cache
def chosen() -> fairnepv.Selection:
    return fairnepv.select(rows(), K, certify=False, effort="fast")


FEW = {"effort": "fast", "certify": False}
GROUPS = np.arange(N) % 3
FLOORS = {"floors": {"a": -2.0, "b": -2.0}}
WORKS: dict[str, Work] = {
    "reading": Work(from_files),
    "calibration": Work(sparse),
    "greedy": Work(selecting(method="greedy")),
    "swaps": Work(selecting(method="greedy-swaps", certify=False)),
    "start and ascent": Work(selecting(method="nepv", certify=False)),
    "Algorithm 1": Work(selecting(method="nepv", solver="damped", start="random", certify=False)),
    "tabu": Work(selecting(effort="thorough", certify=False)),
    "branch and bound": Work(selecting(method="exact")),
    "bound": Work(lambda e, o: fairnepv.certify(rows(), K, engine=e, **o), is_a_bound),
    "representative": Work(selecting(objective="representative")),
    "tiers": Work(selecting(hierarchical=3, certify=False)),
    "rules": Work(selecting(include=[0], groups=GROUPS, **FLOORS)),
    "draws": Work(selecting(method="k-dpp")),
    "compare": Work(
        lambda e, o: fairnepv.compare(rows(), K, methods=["greedy", "nepv"], engine=e, **o),
        is_a_comparison,
        in_hand=first_of("compare"),
    ),
    "curve": Work(
        lambda e, o: fairnepv.curve(rows(), K, bounds=True, engine=e, **o),
        is_a_curve,
        in_hand=any_step,
    ),
    "stability": Work(
        lambda e, o: fairnepv.stability(chosen(), effort="fast", seeds=(1, 2), **o),
        is_stability,
        in_hand=any_step,
    ),
    "tradeoff": Work(
        lambda e, o: fairnepv.tradeoff(rows(), K, "a", points=3, effort="fast", engine=e, **o),
        is_a_tradeoff,
    ),
    "extend": Work(lambda e, o: fairnepv.extend(chosen(), rows(), 2, engine=e, **FEW, **o)),
    "sizes": Work(
        lambda e, o: fairnepv.select(rows(), [2, K], effort="fast", engine=e, **o),
        are_sizes,
        in_hand=first_of("sizes"),
    ),
    "relaxation": Work(
        lambda e, o: fairnepv.relax(rows(), K, engine=e, **o), is_a_frame, in_hand=any_step
    ),
    "enumeration": Work(
        lambda e, o: fairnepv.exhaustive(rows(), K, engine=e, time_limit=o["time_limit"]),
        is_the_optimum,
        in_hand=never,
    ),
    "default, torch": Work(selecting(), engine="torch"),
    "nepv, torch": Work(selecting(method="nepv", certify=False), engine="torch"),
    "representative, torch": Work(selecting(objective="representative"), engine="torch"),
    "default, ray": Work(selecting(effort="fast"), engine="ray"),
    "swaps, ray": Work(selecting(method="greedy-swaps", certify=False), engine="ray"),
}


@functools.cache
def engine_by(name: str) -> Engine:
    if name == "ray":
        return replace(cluster_of(2), blocks=LocalEngine(block_rows=15))
    if name == "torch":
        from fairnepv.compute.device import TorchEngine

        return TorchEngine("cpu", block_rows=15)
    return LocalEngine(block_rows=15)


@functools.cache
def whole(name: str) -> tuple[int, float]:
    """How often the clock is asked where nothing cuts the work short, and what it takes."""
    work, watched = WORKS[name], Clock()
    engine = engine_by(work.engine)
    for _ in range(2):  # the second time everything is loaded
        watched, began = Clock(), time.process_time()
        with watched.told():
            found = work.call(engine, {"time_limit": LIMIT, "progress": lambda step: None})
    work.check(found)
    return watched.asked, time.process_time() - began


# --- one case ------------------------------------------------------------------------------------


def ended(work: Work, around: Callable[[], AbstractContextManager[None]]) -> Any:
    """The answer of a work that is cut short; None where there rightly is none."""
    heard: list[Step] = []
    found = None
    try:
        with around():
            options = {"time_limit": LIMIT, "progress": heard.append}
            found = work.call(engine_by(work.engine), options)
    except TimeLimitError as error:
        if heard and work.in_hand(heard):
            raise AssertionError(f"time_limit lost what was there after {heard[-1]}") from error
        if "so that there is nothing to return yet; raise time_limit" not in str(error):
            raise
    except KeyboardInterrupt as error:
        if found is None and is_a_loss(error, work, heard):
            raise AssertionError(f"Ctrl-C lost what was there after {heard[-1:]}") from error
    return found


def is_a_loss(error: BaseException, work: Work, heard: list[Step]) -> bool:
    """Whether something was in hand when it came: by the steps, or by the functions it came in. An
    answer that a door is handing over is the caller's, who is interrupted."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame.name for frame in frames if "fairnepv" in Path(frame.filename).parts]
    if not ours or ours[-1] == DOOR:
        return False
    return bool(BEYOND & set(ours)) if work.in_hand is at_once else work.in_hand(heard)


def by_the_clock(name: str, draw: float, strike: Callable[[], None] | None) -> None:
    work, (asked, _) = WORKS[name], whole(name)
    moment = 2 + int((asked - 1) * draw**2)  # more of them where the stages are short
    for _ in range(TURNS):
        watched = Clock(moment, strike)
        found = ended(work, watched.told)
        late = time.process_time() - watched.struck if watched.struck else 0.0
        if late <= LATE:
            break
    if found is not None:
        work.check(found)
    assert late <= LATE, f"{name} computed for {late:.2f} s after moment {moment} of {asked}"


def by_the_processor(name: str, draw: float) -> None:
    work, (_, seconds) = WORKS[name], whole(name)
    found = ended(work, lambda: interrupted_after(draw * seconds))
    if found is not None:
        work.check(found)


def within_memory(number: int) -> None:
    """What is allocated beside the data and the program stays below the limit, or the limit is
    refused with the least that would work, which then does."""
    rng = np.random.default_rng([23, 6, number])
    n, method = int(rng.integers(2_000, 20_000)), MEMORY[number % len(MEMORY)]
    data = {name: rng.standard_normal((n, 24)).astype(np.float32) for name in "ab"}
    asked: dict[str, Any] = {
        "method": method,
        "certify": bool(rng.random() < 0.5),
        "effort": "fast",
    }
    foreseen = fairnepv.plan(data, 10, **asked).with_optional().peak_memory
    limit = int(PROGRAM + (foreseen - PROGRAM) * rng.uniform(0.1, 1.1))
    fairnepv.select(rows(), K, **asked)  # whatever is loaded once
    try:
        most = peak(data, asked, limit)
    except InputError as error:
        limit = least_of(error) << 20
        most = peak(data, asked, limit)
    assert most <= limit - PROGRAM, (method, n, most, limit)


def least_of(error: InputError) -> int:
    """MiB that a refusal says would work."""
    found = re.search(r"the least that would work is (\d+) MiB", str(error))
    assert found, error
    return int(found[1])


def peak(data: dict[str, Any], asked: dict[str, Any], limit: int) -> int:
    tracemalloc.start()
    try:
        fairnepv.select(data, 10, **asked, memory_limit=limit)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def case(number: int, folder: Path) -> None:
    place, moment = divmod(number, MOMENTS)
    if place == len(WORKS):
        within_memory(moment)
        return
    name, draw = list(WORKS)[place], float(np.random.default_rng([23, 7, number]).random())
    with within(folder):
        if moment % 4 == 3:
            by_the_processor(name, draw)
        else:
            by_the_clock(name, draw, press_ctrl_c if moment % 2 else None)


GROUP = Group(
    "limits", case, MOMENTS * (len(WORKS) + 1), sample=range(1, MOMENTS * 24, 37), patience=300.0
)
