"""Much at once: a pool larger than the memory that is given, a large set, many runs in one process,
and many processes on a machine that has no room for them."""

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import fairnepv
from soak.runner import Group

GIB = 1 << 30
MEMORY = 2 * GIB  # of private memory, whatever of the files is mapped
ROWS, WIDTH, VIEWS = 1_000_000, 512, 2
LARGE_K, LARGE_N = 10_000, 12_000
RUNS, SETTLED = 200, 50  # runs of one process, and those until everything is imported and cached
SLOPE = 0.01  # of the memory, over all runs
TOGETHER = 16


def _in_a_process(folder: Path, code: str, memory: int | None = None) -> Any:
    """What the code prints as JSON; it gets no more private memory than that."""

    def limit() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

    here = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **here, "XDG_STATE_HOME": str(folder / "home")},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


# --- a million rows -------------------------------------------------------------------------------

MILLION = """
import json, fairnepv
data = {f"view{q}": fairnepv.open_rows(f"view{q}.npy") for q in range(2)}
found = fairnepv.select(data, 20, method="greedy", certify=False)
print(json.dumps([found.indices.tolist(), found.fair_score]))
"""


def _written(path: Path, seed: int, n: int, p: int) -> None:
    """float16 rows, a block after the other."""
    rng, block = np.random.default_rng([23, 16, seed]), 1 << 14
    rows = np.lib.format.open_memmap(path, "w+", np.float16, (n, p))
    for start in range(0, n, block):
        stop = min(start + block, n)
        rows[start:stop] = rng.standard_normal((stop - start, p), dtype=np.float32)
    rows.flush()


def a_million_rows(folder: Path) -> None:
    """1,000,000 x 2 x 512 in files of 2 GiB, by a process that has less than 2 GiB for itself."""
    for q in range(VIEWS):
        _written(folder / f"view{q}.npy", q, ROWS, WIDTH)
    indices, fair_score = _in_a_process(folder, MILLION, MEMORY)
    assert len(set(indices)) == 20
    rows = [np.load(folder / f"view{q}.npy", mmap_mode="r")[indices] for q in range(VIEWS)]
    some = {f"view{q}": chosen.astype(np.float64) for q, chosen in enumerate(rows)}
    assert abs(fairnepv.score(some, range(20)).fair_score - fair_score) < 1e-9


# --- a large set ----------------------------------------------------------------------------------


def ten_thousand_picks(folder: Path) -> None:
    rng = np.random.default_rng([23, 17])
    data = {name: rng.standard_normal((LARGE_N, 48)).astype(np.float32) for name in "ab"}
    found = fairnepv.select(data, LARGE_K, method="greedy", certify=False)
    assert len(set(found.indices.tolist())) == LARGE_K
    assert 0 <= found.indices.min() <= found.indices.max() < LARGE_N
    scored = fairnepv.score(data, found.indices)
    assert abs(scored.fair_score - found.fair_score) < 1e-9


# --- many runs ------------------------------------------------------------------------------------

RUNS_IN_ONE = f"""
import gc, json
import numpy as np
import fairnepv
requests = ({{}}, {{"objective": "representative"}}, {{"method": "nepv"}}, {{"effort": "fast"}})
sizes = []
for number in range({RUNS}):
    rng = np.random.default_rng(number % 4)
    data = {{name: rng.standard_normal((600, 24)) for name in "ab"}}
    fairnepv.select(data, 8, random_state=0, **requests[number % 4])
    gc.collect()
    with open("/proc/self/statm") as file:
        sizes.append(int(file.read().split()[1]))
print(json.dumps(sizes))
"""


def many_runs_in_one_process(folder: Path) -> None:
    """The memory of the last runs is that of the first ones, once those have settled."""
    sizes = np.array(_in_a_process(folder, RUNS_IN_ONE)[SETTLED:], dtype=float)
    slope, start = np.polyfit(np.arange(len(sizes)), sizes, 1)
    grown = slope * len(sizes) / start
    assert grown < SLOPE, f"memory grew by {100 * grown:.2f} %, from {start:,.0f} pages"


# --- many at once ---------------------------------------------------------------------------------

ONE_OF_MANY = """
import json, numpy as np, fairnepv
rng = np.random.default_rng(3)
data = {name: rng.standard_normal((800, 20)) for name in "ab"}
found = fairnepv.select(data, 9, random_state=0)
print(json.dumps([found.indices.tolist(), found.fair_score, found.upper_bound]))
"""


def many_processes(folder: Path) -> None:
    """More than the machine has cores for: all come to the same end."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        found = list(pool.map(lambda _: _in_a_process(folder, ONE_OF_MANY), range(TOGETHER)))
    assert found == [found[0]] * TOGETHER


def many_threads(folder: Path) -> None:
    """Selections at the same time in one process do not know of each other."""
    data = [
        {name: np.random.default_rng([seed, 18]).standard_normal((500, 20)) for name in "ab"}
        for seed in range(TOGETHER)
    ]
    alone = [fairnepv.select(views, 7, random_state=0) for views in data]
    start = threading.Barrier(TOGETHER)

    def among_others(views: Any) -> fairnepv.Selection:
        start.wait()
        return fairnepv.select(views, 7, random_state=0)

    with ThreadPoolExecutor(TOGETHER) as pool:
        together = list(pool.map(among_others, data))
    for one, other in zip(alone, together, strict=True):
        assert one.indices.tolist() == other.indices.tolist()
        assert one.upper_bound == other.upper_bound


CASES: tuple[Callable[[Path], None], ...] = (
    a_million_rows,
    ten_thousand_picks,
    many_runs_in_one_process,
    many_processes,
    many_threads,
)


def case(number: int, folder: Path) -> None:
    began = time.monotonic()
    CASES[number](folder)
    print(f"{CASES[number].__name__}: {time.monotonic() - began:.0f} s", file=sys.stderr)


GROUP = Group("load", case, len(CASES), sample=(), patience=3600.0)
