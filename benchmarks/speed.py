"""How long selections take, in units of one matrix product of the same run.

g is the time of one float32 product (n x P) by (P x k), P the width of all views, on as many
threads as everybody gets: the cores that BLAS finds. The pools are simulated; `pool` says how.
Peers get float32 rows, normalised outside of the clock; ours reads the raw views on the clock.
Seconds are medians, and the product is measured around each run, since the machine is shared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fairnepv
from fairnepv.api.inputs import pose
from fairnepv.compute import block_threads
from fairnepv.search.local import best_swaps
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from fairnepv.stiefel import make_solver, relax
from sections import markdown, provenance, publish

N, P, K = 50_000, 384, 200
GAP = 5e-3
REPEATS = 3


def pool(n: int, p: int = P, seed: int = 0) -> dict[str, Any]:
    """Simulated: two views, each with 400 uneven clusters of its own and a falling spectrum, as
    embeddings have; nobody's cluster in one view says anything about the other."""
    rng = np.random.default_rng(seed)

    def view(decay: float, spread: float) -> Any:
        columns = (np.arange(1, p + 1) ** -decay).astype(np.float32)
        sizes = rng.dirichlet(np.full(400, 0.3))
        centres = rng.standard_normal((400, p), dtype=np.float32)
        rows = centres[rng.choice(400, size=n, p=sizes)]
        rows += spread * rng.standard_normal((n, p), dtype=np.float32)
        return rows * columns

    return {"text": view(0.3, 0.8), "vision": view(0.5, 0.6)}


# --- the unit -----------------------------------------------------------------------------------


class Product:
    """(n x P) by (P x k) in float32."""

    def __init__(self, data: dict[str, Any], k: int) -> None:
        self.rows = np.hstack(list(data.values())).astype(np.float32)
        rng = np.random.default_rng(1)
        self.columns = rng.standard_normal((self.rows.shape[1], k), dtype=np.float32)
        self.operations = 2.0 * self.rows.size * k

    def seconds(self) -> float:
        return statistics.median(_clock(lambda: self.rows @ self.columns) for _ in range(5))


def _clock(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


class Timed(NamedTuple):
    seconds: float
    units: float  # of the product, measured around it
    result: Any


def timed(product: Product, call: Callable[[], Any], repeats: int = REPEATS) -> Timed:
    """The median of some runs, each in units of the product just before and after it."""
    runs = []
    before = product.seconds()
    for _ in range(repeats):
        began = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - began
        after = product.seconds()
        runs.append(Timed(seconds, 2.0 * seconds / (before + after), result))
        before = after
    return sorted(runs, key=lambda run: run.units)[len(runs) // 2]


# --- against other libraries ----------------------------------------------------------------------


def headline() -> str:
    data = pool(N)
    product = Product(data, K)
    units = [X / np.linalg.norm(X, axis=1, keepdims=True) for X in data.values()]
    joined = np.hstack(units) / np.float32(np.sqrt(2.0))
    select = fairnepv.select
    runs = {
        "`fast`": timed(product, lambda: select(data, K, effort="fast", certify=False)),
        "`balanced`, no certificate": timed(
            product, lambda: select(data, K, effort="balanced", certify=False)
        ),
        "pyversity, DPP of the concatenation": timed(product, lambda: _pyversity(joined), 1),
        "lightly-mundig, a strategy per view": timed(product, lambda: _mundig(units), 1),
    }
    rows = []
    quick = runs["`fast`"]
    for name, run in runs.items():
        indices = getattr(run.result, "indices", run.result)
        score = fairnepv.score(data, np.asarray(indices, dtype=np.int64))
        ratio = f"{run.seconds / quick.seconds:.2f}"
        rows.append(
            [name, f"{score.fair_score:.4f}", f"{run.seconds:.2f}", f"{run.units:.1f}", ratio]
        )
    bound = timed(product, lambda: fairnepv.certify(data, K, gap=GAP), 1)
    rows.append(
        [
            f"certificate, duality gap {bound.result.duality_gap:.1e}",
            f"<= {bound.result.upper_bound:.4f}",
            f"{bound.seconds:.2f}",
            f"{bound.units:.1f}",
            f"{bound.seconds / quick.seconds:.2f}",
        ]
    )
    table = markdown(["what", "F", "seconds", "g", "times `fast`"], rows)
    g = product.seconds()
    return (
        f"### {N:,} rows, two views of {P}, k = {K} (simulated)\n\n"
        f"g = {g:.3f} s, {product.operations / g / 1e9:.0f} GFlop/s; tau 0.05, eps 0.1.\n\n{table}"
    )


def _pyversity(joined: Any) -> Any:
    import pyversity

    return pyversity.diversify(joined, np.ones(N), K, strategy="dpp", diversity=1.0).indices


def _mundig(units: list[Any]) -> Any:
    import lightly_mundig

    selection = lightly_mundig.Selection()
    for view in units:
        selection.add_diversifying_strategy(view, 1.0)
    return selection.run_selection([], N, K)


# --- single stages ------------------------------------------------------------------------------


def relaxation() -> str:
    """Seconds per step of the relaxation after its Gram matrix; n should not show."""
    rows = []
    for n in (20_000, 200_000):
        problem = pose(pool(n), K)
        began = time.perf_counter()
        with block_threads(problem.work()):
            _ = problem.pool.gram
        gram = time.perf_counter() - began
        steps = []
        for _ in range(REPEATS):
            found = relax(problem, make_solver(k=K, tol=1e-9, max_steps=30))
            steps.append(statistics.median(np.diff([row.seconds for row in found.trace[:30]])))
        rows.append((n, gram, statistics.median(steps)))
    table = markdown(
        ["n", "Gram matrix, s", "a step, s", "of the first"],
        [[f"{n:,}", f"{g:.2f}", f"{s:.4f}", f"{s / rows[0][2]:.2f}"] for n, g, s in rows],
    )
    return f"### Steps of the relaxation, P = {2 * P}, k = {K}\n\n{table}"


def swaps() -> str:
    """One look at all swaps without a table: what a pool too large for one pays for every pass."""
    n, k = 200_000, 500
    data = pool(n)
    product, problem = Product(data, k), pose(data, k)
    subset = Subset.of(problem, np.arange(0, n, n // k)[:k])
    table = SwapTable.of(subset, keep=False)
    operations = 2.0 * n * k * sum(p + k for p in (P, P))

    def look() -> Any:
        with block_threads(problem.work()):
            return best_swaps(table, above=subset.value + 0.05)

    run = timed(product, look, 5)
    rate, ceiling = operations / run.seconds, product.operations / (run.seconds / run.units)
    cells = [
        f"{run.seconds:.2f}",
        f"{rate / 1e9:.0f}",
        f"{ceiling / 1e9:.0f}",
        f"{rate / ceiling:.2f}",
    ]
    table_text = markdown(["seconds", "GFlop/s", "of a product", "share"], [cells])
    return f"### One pass over all swaps, n = {n:,}, two views of {P}, k = {k}\n\n{table_text}"


def growth() -> str:
    """Seconds of `fast` as n grows, and as k does."""
    in_n = [(n, _fast(pool(n, 128), 100)) for n in (10_000, 30_000, 100_000, 300_000, 1_000_000)]
    data = pool(50_000, 256)
    in_k = [(k, _fast(data, k)) for k in (50, 100, 200, 400, 800)]
    return (
        "### Growth of `fast`\n\n"
        f"Two views of 128, k = 100; log-log slope in n **{_slope(in_n):.2f}**.\n\n"
        + markdown(["n", "seconds"], [[f"{n:,}", f"{s:.2f}"] for n, s in in_n])
        + f"\n\nn = 50,000, two views of 256; log-log slope in k **{_slope(in_k):.2f}**: a pick "
        "is a direction that rows must hear of (linear in k), and whoever is confirmed is held "
        "against all picks before (quadratic, but of few rows).\n\n"
        + markdown(["k", "seconds"], [[str(k), f"{s:.2f}"] for k, s in in_k])
    )


def _fast(data: dict[str, Any], k: int) -> float:
    runs = [
        _clock(lambda: fairnepv.select(data, k, effort="fast", certify=False))
        for _ in range(REPEATS)
    ]
    return statistics.median(runs)


def _slope(points: list[tuple[int, float]]) -> float:
    sizes, seconds = np.log(np.array(points)).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def start_up() -> str:
    commands = {
        "`import fairnepv`": [sys.executable, "-c", "import fairnepv"],
        "`fairnepv --help`": [sys.executable, "-m", "fairnepv", "--help"],
        "an empty Python": [sys.executable, "-c", ""],
    }
    rows = []
    for name, command in commands.items():
        run = lambda command=command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: E731
        run()
        rows.append([name, f"{statistics.median(_clock(run) for _ in range(7)):.2f}"])
    return "### Start-up\n\n" + markdown(["command", "seconds"], rows)


PARTS = {f.__name__: f for f in (headline, relaxation, swaps, growth, start_up)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="these parts alone")
    parser.add_argument("--write", action="store_true", help="into BENCHMARKS.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    bodies = [PARTS[name]() for name in options.only or PARTS]
    threads = f"{os.cpu_count()} threads for everybody"
    heading = provenance("pyversity", "lightly-mundig").replace("BLAS threads", f"{threads}; BLAS")
    publish("speed", "\n\n".join([heading, *bodies]), write=options.write)


if __name__ == "__main__":
    main()
