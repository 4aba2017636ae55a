"""Workers of Ray that are killed, stopped or out of memory, and clusters whose head is killed: the
same items as without them, or a `ClusterError`, and in bounded time."""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fairnepv
from fairnepv import LocalEngine, Status
from fairnepv.compute import Engine
from fairnepv.errors import ClusterError, TimeLimitError
from soak.clusters import cluster_of
from soak.runner import Group

KILLED, STOPPED, MEMORY, HEAD = 100, 10, 10, 5
POOLS = 10  # of the cases in which workers are killed
BLOCKS = LocalEngine(block_rows=60)
LATER = 0.4  # seconds within which a worker dies whose time has come
RESUMED = 2.0  # seconds after which a worker goes on that was stopped
LIMIT, GRACE = 6.0, 60.0  # seconds: a limit, and what a busy machine may add to it
LOST = 180.0  # seconds within which whoever has lost the head of a cluster is told


# --- what goes wrong in a worker ------------------------------------------------------------------


def kill(how: float) -> None:
    """Now, or in so many seconds, whatever the worker does then."""
    end = functools.partial(os.kill, os.getpid(), signal.SIGKILL)
    threading.Timer(how, end).start() if how else end()


def stop(how: float) -> None:
    """Until somebody lets it go on: after so many seconds, or never."""
    if how:
        go_on = f"sleep {how}; kill -CONT {os.getpid()}"
        subprocess.Popen(["sh", "-c", go_on], start_new_session=True)
    os.kill(os.getpid(), signal.SIGSTOP)


def exhaust(how: float) -> None:
    np.ones(1 << 50)  # of which no machine has as many


class Once:
    """A task that goes wrong in a worker, the first time or each time that it comes to a block."""

    def __init__(
        self, task: Any, marks: Path, what: Callable[[float], None], how: float, often: bool
    ) -> None:
        self.task, self.marks, self.what, self.how, self.often = task, marks, what, how, often

    def __call__(self, block: Any, state: Any, *aligned: Any) -> Any:
        if os.getpid() != int(self.marks.name) and (self.often or not any(self.marks.iterdir())):
            (self.marks / str(os.getpid())).touch()
            self.what(self.how)
        return self.task(block, state, *aligned)


class Troubled(Engine):
    """An engine of which one pass goes wrong, that of this number; it counts them all."""

    def __init__(
        self,
        engine: Engine,
        marks: Path,
        number: int = -1,
        what: Callable[[float], None] = kill,
        how: float = 0.0,
        often: bool = False,
    ) -> None:
        self.engine, self.number, self.passes = engine, number, 0
        self.trouble = functools.partial(Once, marks=marks, what=what, how=how, often=often)

    def map(self, pass_: Any, out: Any = None) -> Any:
        return self.engine.map(self._next(pass_), out)

    def reduce(self, pass_: Any, combine: Any) -> Any:
        return self.engine.reduce(self._next(pass_), combine)

    def each(self, task: Any, source: Any, states: Any) -> Any:
        return self.engine.each(task, source, states)

    def _next(self, pass_: Any) -> Any:
        if pass_.rows is not None or pass_.n <= BLOCKS.rows_of(pass_):
            return pass_  # which the driver keeps for itself
        self.passes += 1
        return replace(pass_, task=self.trouble(pass_.task)) if self._is_now else pass_

    @property
    def _is_now(self) -> bool:
        return self.passes == self.number


# --- selections -----------------------------------------------------------------------------------


def cluster() -> Engine:
    return replace(cluster_of(2), blocks=BLOCKS)


@functools.cache
def pool(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([23, 11, seed])
    n = int(rng.integers(300, 900))
    return {name: rng.standard_normal((n, int(rng.integers(3, 20)))) for name in "ab"}


REQUESTS: tuple[dict[str, Any], ...] = (
    {"effort": "fast"},
    {"method": "greedy-swaps", "certify": False},
    {"method": "nepv", "certify": False},
    {"objective": "representative"},
)


def size(seed: int) -> int:
    return 4 + seed % 5


def chosen(seed: int, engine: Engine, **options: Any) -> fairnepv.Selection:
    request = {**REQUESTS[seed % len(REQUESTS)], **options}
    return fairnepv.select(pool(seed), size(seed), engine=engine, random_state=0, **request)


@functools.cache
def expected(seed: int) -> tuple[fairnepv.Selection, int]:
    """Without workers, and how many passes go to them."""
    counting = Troubled(BLOCKS, Path("0"))
    return chosen(seed, counting), counting.passes


def same(one: fairnepv.Selection, other: fairnepv.Selection) -> None:
    assert one.indices.tolist() == other.indices.tolist()
    assert one.scores == other.scores
    assert one.upper_bound == other.upper_bound


def marks_in(folder: Path) -> Path:
    """An empty folder for who had trouble, named after the process that must have none."""
    marks = folder / str(os.getpid())
    marks.mkdir()
    return marks


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"it took {took:.0f} s, not {seconds:.0f}"


# --- one case -------------------------------------------------------------------------------------


def killed(number: int, marks: Path) -> None:
    """At any pass, at its beginning or a moment later."""
    rng = np.random.default_rng([23, 12, number])
    seed = number // (KILLED // POOLS)
    whole, passes = expected(seed)
    at, how = int(rng.integers(1, passes + 1)), float(rng.choice([0.0, rng.uniform(0, LATER)]))
    same(whole, chosen(seed, Troubled(cluster(), marks, at, kill, how)))
    assert len(list(marks.iterdir())) >= 1


def stopped(number: int, marks: Path) -> None:
    """One that goes on costs time alone; one that does not is left by a limit and by Ctrl-C."""
    rng, seed = np.random.default_rng([23, 13, number]), number % 4
    whole, passes = expected(seed)
    at, kind = int(rng.integers(1, passes + 1)), number % 3
    engine = Troubled(cluster(), marks, at, stop, RESUMED if kind == 0 else 0.0)
    if kind == 0:
        same(whole, chosen(seed, engine))
        return
    try:
        with within(LIMIT + GRACE):
            if kind == 1:
                _limited(seed, engine)
            else:
                _interrupted(seed, engine, marks)
    finally:
        for mark in marks.iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(mark.name), signal.SIGCONT)
    same(whole, chosen(seed, cluster()))  # which is of use again


def _limited(seed: int, engine: Engine) -> None:
    with contextlib.suppress(TimeLimitError):  # where there is nothing in hand yet
        found = chosen(seed, engine, time_limit=LIMIT)
        assert found.status is Status.TIME_LIMIT
        assert len(set(found.indices.tolist())) == size(seed)


def _interrupted(seed: int, engine: Engine, marks: Path) -> None:
    def interrupt() -> None:
        while not any(marks.iterdir()):
            time.sleep(0.05)
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):  # where there is nothing in hand yet
        found = chosen(seed, engine)
        assert found.status is Status.INTERRUPTED
        assert len(set(found.indices.tolist())) == size(seed)


def out_of_memory(number: int, marks: Path) -> None:
    """A worker that gets no memory says so; one that the system ends three times is given up."""
    rng, seed = np.random.default_rng([23, 14, number]), number % 4
    whole, passes = expected(seed)
    at, what = int(rng.integers(1, passes + 1)), (exhaust, kill)[number % 2]
    said = ""
    try:
        found = chosen(seed, Troubled(cluster(), marks, at, what, often=True))
    except ClusterError as error:
        said = str(error)
    else:
        raise AssertionError(f"it went on, to {found}")
    assert ("workers ran out of memory" if what is exhaust else "died 3 times") in said, said
    same(whole, chosen(seed, cluster()))  # which is of use again


# --- the head -------------------------------------------------------------------------------------

DRIVER = """
import os, signal, subprocess, sys
from fairnepv.compute import engine_of
from soak.workers import *
seed, victim, step = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
engine = replace(engine_of("local-ray", 1), blocks=BLOCKS)
def end(row, left=[step]):
    left[0] -= 1
    if left[0] == 0:
        folder = engine.connection._folder
        for line in subprocess.check_output(["ps", "-eo", "pid,args"], text=True).splitlines():
            pid, program, *rest = line.split()
            if program.endswith("/" + victim) and folder in line:
                os.kill(int(pid), signal.SIGKILL)
        print("killed", flush=True)
found = chosen(seed, engine, checkpoint="state", progress=end)
print(found.indices.tolist(), found.fair_score.hex())
"""


def head(number: int, folder: Path) -> None:
    """Ray itself ends a process that has lost the head of its cluster. Whatever it has got to, the
    same selection goes on from its checkpoint."""
    seed, rng = number % 4, np.random.default_rng([23, 15, number])
    victim = ("raylet", "gcs_server")[number % 2]
    ended = _driven(folder, seed, victim, int(rng.integers(1, 4)))
    assert "killed" in ended.stdout, ended
    assert ended.returncode >= 0, ended  # neither a signal nor, below, a traceback of ours
    assert "Traceback" not in ended.stderr, ended.stderr
    again = _driven(folder, seed, victim, 0)
    assert again.returncode == 0, again.stderr[-2000:]
    whole, _ = expected(seed)
    assert again.stdout.splitlines()[-1] == f"{whole.indices.tolist()} {whole.fair_score.hex()}"


def _driven(folder: Path, seed: int, victim: str, step: int) -> "subprocess.CompletedProcess[str]":
    here = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XDG_STATE_HOME": str(folder / "home"),
    }
    line = [sys.executable, "-c", DRIVER, str(seed), victim, str(step)]
    return subprocess.run(
        line,
        cwd=folder,
        env={**os.environ, **here},
        capture_output=True,
        text=True,
        check=False,
        timeout=LOST + GRACE,
    )


def case(number: int, folder: Path) -> None:
    for kind, count in ((killed, KILLED), (stopped, STOPPED), (out_of_memory, MEMORY)):
        if number < count:
            kind(number, marks_in(folder))
            return
        number -= count
    head(number, folder)


# No sample: tests/compute/test_ray.py has some of each, on clusters that it starts and ends.
GROUP = Group("workers", case, KILLED + STOPPED + MEMORY + HEAD, sample=(), patience=900.0)
