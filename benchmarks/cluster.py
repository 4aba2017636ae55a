"""What the Ray engine costs beside the local one: passes over the same rows, in turns.

Two threads of the local engine against two workers of a cluster that is started here. Every pass
is run once unmeasured (arrays then lie in the object store), and its result must be the same to
the last bit. Seconds are medians; ratios are medians over turns, each of one run right after the
other, since the machine is shared. The rows are simulated.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv import LocalEngine
from fairnepv.api.inputs import pose
from fairnepv.compute import block_threads
from fairnepv.compute.ray.engine import RayEngine
from fairnepv.concave.dual import Dual, ViewDual, row_prices
from fairnepv.io.read import read_features
from fairnepv.search.local import best_swaps
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from sections import benchmark, markdown, provenance, publish

P, K = 256, 100
_WORKERS = 2


def rows(n: int) -> Any:
    """Simulated: a falling spectrum, float32; made in parts, to take no further memory."""
    rng = np.random.default_rng(0)
    made = np.empty((n, P), dtype=np.float32)
    columns = (np.arange(1, P + 1) ** -0.3).astype(np.float32)
    for start in range(0, n, 100_000):
        part = made[start : start + 100_000]
        rng.standard_normal(dtype=np.float32, out=part)
        part *= columns
    return made


def gram(problem: Any) -> Any:
    vars(problem.pool).pop("gram", None)  # a pool keeps it
    return problem.pool.gram


def swaps(problem: Any) -> Any:
    """The best swap of every slot; the table is too large to be kept, so rows are multiplied."""
    subset = Subset.of(problem, np.arange(K))
    return best_swaps(SwapTable.of(subset, keep=False)).rungs


def prices(problem: Any) -> Any:
    """One pass of the certificate, in float64: K directions and a price for every row."""
    combine = np.random.default_rng(1).standard_normal((2 * K, K)) / (4 * K)
    return row_prices(problem, Dual(np.ones(1), np.arange(2 * K), (ViewDual(10.0, combine),)))


PASSES: dict[str, Callable[[Any], Any]] = {"Gram": gram, "swap": swaps, "certificate": prices}


def compare(data: Any, engines: list[Any], turns: int) -> Iterator[tuple[str, float, float, float]]:
    """(pass, seconds of the local engine, of Ray, ratio)."""
    problems = [pose({"v": data}, K, engine=engine) for engine in engines]
    with block_threads(problems[0].work()):
        for name, run in PASSES.items():
            once = [run(problem) for problem in problems]
            for here, there in zip(*map(_flat, once), strict=True):
                np.testing.assert_array_equal(here, there)
            times = np.array([[_clock(run, p) for p in problems] for _ in range(turns)])
            local, ray = np.median(times, axis=0)
            yield name, local, ray, statistics.median(times[:, 1] / times[:, 0])


def _flat(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _clock(run: Callable[[Any], Any], problem: Any) -> float:
    began = time.perf_counter()
    run(problem)
    return time.perf_counter() - began


def table(n: int, turns: int) -> list[list[str]]:
    found = []
    data = rows(n)
    with RayEngine.local(_WORKERS) as cluster, tempfile.TemporaryDirectory() as folder:
        engines = [LocalEngine(threads=_WORKERS), cluster]
        np.save(Path(folder) / "rows.npy", data)
        for where in ("memory", "a file"):
            if where == "a file":
                data = read_features(str(Path(folder) / "rows.npy"))
            for name, local, ray, ratio in compare(data, engines, turns):
                print(f"{where}, {name}: {local:.2f} s, {ray:.2f} s, {ratio:.2f}", file=sys.stderr)
                found.append([name, where, f"{local:.2f}", f"{ray:.2f}", f"{ratio:.2f}"])
    return found


def main(options: argparse.Namespace) -> None:
    body = markdown(
        ["pass", "rows in", "local, 2 threads (s)", "Ray, 2 workers (s)", "ratio"],
        table(options.n, options.turns),
    )
    title = f"{options.n:,} x {P} float32, k = {K}; {options.turns} turns."
    text = f"{title} Ratios are to be at most 1.15.\n\n{body}\n\n{provenance('ray')}"
    publish("ray", text, write=options.write)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=2_000_000, help="rows (2 GB in float32, and twice)")
    parser.add_argument("--turns", type=int, default=5)
    benchmark(parser, main)
