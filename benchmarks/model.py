"""A cost model of passes, fitted to small measured ones and held against larger ones.

A pass takes latency * blocks + flops / rate + bytes / bandwidth. The three constants of every kind
of pass are fitted by non-negative least squares on relative errors; the largest instances are held
out, and the error on them is stated. `--engine torch:cuda` on a machine with a GPU; `--json FILE`
keeps the numbers, and `--publish FILE... --write` makes the tables of BENCHMARKS.md from them, with
what they foretell for a thousand million rows. The data is simulated.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from fairnepv.api.inputs import pose
from fairnepv.compute import block_threads, engine_of
from fairnepv.concave.dual import Dual, ViewDual, row_prices
from fairnepv.search.local import best_swaps
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from sections import markdown, publish

VIEWS = 2
SIZES = {
    "cpu": ((25_000, 50_000, 100_000), (128, 256), (50, 100, 200), (200_000, 384, 300)),
    "gpu": ((125_000, 250_000, 500_000), (512, 1024), (250, 500, 1000), (1_000_000, 1024, 1000)),
}


class Cost(NamedTuple):
    """Of one pass: multiply-adds count twice, bytes are those that are read and written."""

    blocks: float
    flops: float
    bytes: float


def costs(kind: str, n: int, p: int, k: int, blocks: float) -> Cost:
    P, M = VIEWS * p, VIEWS
    rows = 4.0 * n * P
    if kind == "gram":
        return Cost(blocks, 2.0 * n * P**2, 3 * rows)  # a copy in float64 is made and read
    if kind == "prices":
        return Cost(blocks, 2.0 * n * P * k, 3 * rows + 16.0 * n * M * k)
    return Cost(blocks, 2.0 * n * k * (P + M * k), rows + 4.0 * 6 * n * M * k)  # swaps


def measured(engine: Any, n: int, p: int, k: int, make: Callable[..., Any]) -> dict[str, Any]:
    """Seconds and costs of every kind of pass."""
    data = {f"v{q}": make(n, p, q) for q in range(VIEWS)}
    problem = pose(data, k, engine=engine)
    pool = problem.pool
    indices = np.arange(0, n, n // k)[:k]
    with block_threads(problem.work()):
        table = SwapTable.of(Subset.of(problem, indices), keep=False)
        views = tuple(ViewDual(1.0, np.eye(k) * 0.1, 0.0) for _ in range(VIEWS))
        dual = Dual(np.full(VIEWS, 1.0 / VIEWS), indices, views)
        calls = {
            "gram": lambda: (vars(pool).pop("gram", None), pool.gram),
            "prices": lambda: row_prices(problem, dual),
            "swaps": lambda: best_swaps(table, above=10.0),  # nobody reaches that: the look alone
        }
        widths = {"gram": VIEWS * p, "prices": VIEWS * k, "swaps": 4 * (VIEWS + 2) * k}
        found = {}
        for kind, call in calls.items():
            call()
            seconds = statistics.median(_clock(call) for _ in range(3))
            blocks = -(-n // engine.rows_of_block(pool, widths[kind]))
            found[kind] = seconds, costs(kind, n, p, k, blocks)
    return found


def _clock(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def numbers_of_block(engine: Any) -> int:
    """How many numbers a block may hold: the engine's own rule, asked about rows of one."""
    return int(engine.rows_of_block(SimpleNamespace(row_width=1, n=1), 1))


def fit(points: list[tuple[float, Cost]]) -> np.ndarray:
    """Seconds per block, per flop and per byte."""
    A = np.array([cost for _, cost in points]) / np.array([[s] for s, _ in points])
    size = np.linalg.norm(A, axis=0)
    found, _ = nnls(A / size, np.ones(len(points)))
    return np.asarray(found / size)


def maker(engine: Any) -> Callable[[int, int, int], Any]:
    if getattr(engine, "device", None) is None:
        return lambda n, p, q: (
            np.random.default_rng(q).standard_normal((n, p), dtype=np.float32) + 0.3
        )
    import torch

    return lambda n, p, q: torch.randn(n, p, device=engine.device) + 0.3


# --- a thousand million rows ----------------------------------------------------------------------

N, P, K = 1_000_000_000, 1024, 10_000  # rows, columns of each view, items
NETWORK = 10e9  # bytes/s into a worker: assumed, not measured
WORKERS = {"gpu": (64, "GPUs"), "cpu": (1000, "workers of two cores")}


def foretold(kept: dict[str, Any]) -> list[list[str]]:
    """Seconds of one pass when rows are spread evenly; state goes to all workers along a tree."""
    workers, said = WORKERS[kept["kind"]]
    rows = N // workers
    state = {
        "gram": 8.0 * (VIEWS * P) ** 2,
        "prices": 8.0 * VIEWS * K * P,
        "swaps": 4.0 * VIEWS * (K * P + K**2),
    }
    width = {"gram": VIEWS * P, "prices": VIEWS * K, "swaps": 4 * (VIEWS + 2) * K}
    table = []
    for kind, constants in kept["constants"].items():
        blocks = rows / max(64, kept["numbers"] // max(VIEWS * P, width[kind]))
        cost = costs(kind, rows, P, K, blocks)
        travel = state[kind] / NETWORK * np.ceil(np.log2(workers))
        seconds = float(np.array(constants) @ np.array(cost))
        table.append(
            [
                f"{workers} {said}",
                kind,
                f"{cost.flops * workers:.1e}",
                f"{seconds:,.0f}",
                f"{travel:.1f}",
                f"{4.0 * rows * VIEWS * P / 2**30:,.1f}",
            ]
        )
    return table


def publication(files: list[str], write: bool) -> None:
    bodies, predictions = [], []
    for file in files:
        kept = json.loads(Path(file).read_text())
        bodies.append(f"{kept['about']}\n\n{kept['table']}")
        predictions += foretold(kept)
    headings = ["on", "pass", "flops in all", "s a pass", "s for state", "GiB of float32 rows each"]
    words = (
        f"Foretold for n = {N:,}, two views of {P:,}, k = {K:,}; a network of {NETWORK / 1e9:.0f} "
        "GB/s into each worker is assumed:"
    )
    publish("model", "\n\n".join([*bodies, words, markdown(headings, predictions)]), write=write)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--publish", metavar="FILE", nargs="+", help="what --json kept")
    parser.add_argument("--write", action="store_true", help="into BENCHMARKS.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.publish:
        publication(options.publish, options.write)
        return
    engine = engine_of(options.engine)
    gpu = getattr(getattr(engine, "device", None), "type", "") == "cuda"
    rows, widths, sizes, held = SIZES["gpu" if gpu else "cpu"]
    make = maker(engine)
    points: dict[str, list[tuple[float, Cost]]] = {}
    for n, p, k in itertools.product(rows, widths, sizes):
        for kind, point in measured(engine, n, p, k, make).items():
            points.setdefault(kind, []).append(point)
    largest = measured(engine, *held, make)
    table, constants = [], {}
    for kind, known in points.items():
        x = fit(known)
        errors = [abs(x @ np.array(cost) / seconds - 1.0) for seconds, cost in known]
        seconds, cost = largest[kind]
        foretold = float(x @ np.array(cost))
        constants[kind] = x.tolist()
        rate, width = (1.0 / c if c else np.inf for c in x[1:])
        table.append(
            [
                kind,
                f"{1e3 * x[0]:.2f}",
                f"{rate / 1e12:.3f}",
                f"{width / 1e9:.1f}",
                f"{statistics.median(errors):.0%}",
                f"{seconds:.3f}",
                f"{foretold:.3f}",
                f"{foretold / seconds - 1.0:+.0%}",
            ]
        )
    where = "GPU" if gpu else f"{os.cpu_count()} cores, {platform.machine()}"
    given = f" --engine {options.engine}" if options.engine != "local" else ""
    about = (
        f"`python benchmarks/model.py{given}`, {datetime.date.today()}, {where}. Held out: n = "
        f"{held[0]:,}, two views of {held[1]}, k = {held[2]}."
    )
    headings = ["pass", "ms/block", "TFlop/s", "GB/s", "error, fitted", "held out, s"]
    body = markdown([*headings, "foretold, s", "error"], table)
    print(f"{about}\n\n{body}")
    if options.json:
        kept = {"about": about, "table": body, "constants": constants}
        kept |= {"kind": "gpu" if gpu else "cpu", "numbers": numbers_of_block(engine)}
        Path(options.json).write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
