"""How soon an answer is there: the default beside `thorough`, and calls under a time limit.

g is the time of one float32 product of all features with k vectors in the same run, as in speed.py;
a sparse view has a product of its own, by SciPy. Bars are what the tables are held to; a number in
bold missed its bar. Every part writes its own section, so `--only` parts can be run one by one.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import math
import statistics
import sys
import tempfile
import time
import timeit
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import fairnepv
from climbs import Panel, draw_climbs, watched
from fairnepv.api.inputs import pose
from fairnepv.compute import block_threads, clock
from fairnepv.compute.choice import engine_of
from fairnepv.errors import FairnepvError, Status, TimeLimitError, UnsupportedError
from fairnepv.methods import tiers
from fairnepv.methods.baselines import baselines
from fairnepv.search.explained.swaps import ExplainedSet, worth_float32
from fairnepv.search.explained.swaps import best_swaps as explained_swaps
from fairnepv.search.local import best_swaps
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from fairnepv.views.moments import second_norms
from pools import openmoji_tf_idf, uci, words
from sections import markdown, provenance, publish
from speed import K, N, Product, Timed, pool, timed

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "anytime.png"
FLOOR = 2.0  # seconds that any pool may take, besides its products
CLOSE, MEDIAN = 0.003, 0.001  # nats per item that the default may be below `thorough`
FAST = {"diverse": 4.0, "representative": 25.0}  # products that fair greedy may take
SWAPS = 2.2  # times a look at all swaps for diverse picks: one for representative picks
LONG = 5.0  # seconds of a run that is not repeated
MANY = ("`auto` with certificate", "`nepv`", "`greedy`", "`averaged`", "certify")
Data = dict[str, Any]


# --- pools ----------------------------------------------------------------------------------------


def with_words(n: int, p: int = 384, columns: int = 4_000) -> Data:
    return {"text": words(n, columns), "vision": pool(n, p)["vision"]}


def corpus(quick: bool) -> Data:
    """Simulated, in the shape of the protocol's corpus: 4,000 words and 1,280 columns."""
    return with_words(300, 24, 200) if quick else with_words(15_524, 1_280)


def several_pools(quick: bool) -> dict[str, tuple[Callable[[], Data], tuple[int, ...]]]:
    if quick:
        return {
            "simulated, 300 rows": (partial(pool, 300, 24), (6,)),
            "simulated, 300 rows, sparse": (partial(with_words, 300, 24, 200), (6,)),
        }
    return {
        "simulated, 2,000 rows": (partial(pool, 2_000), (20, 50, 200)),
        "simulated, 10,000 rows": (partial(pool, 10_000), (100,)),
        "simulated, 20,000 rows": (partial(pool, 20_000), (50, 200)),
        "simulated, 2,000 rows, sparse": (partial(with_words, 2_000), (50,)),
        "simulated, 10,000 rows, sparse": (partial(with_words, 10_000), (50,)),
        "simulated, 20,000 rows, sparse": (partial(with_words, 20_000), (50, 200)),
        "UCI, 2,000 rows": (uci, (20, 50)),
        "OpenMoji, 2,297 rows, sparse": (openmoji_tf_idf, (50, 200)),
    }


class Unit(Product):
    """g: the product of the dense views side by side, and that of every sparse view."""

    def __init__(self, data: Data, k: int) -> None:
        super().__init__({name: X for name, X in data.items() if not sp.issparse(X)}, k)
        self.sparse = [sp.csr_array(X, dtype=np.float32) for X in data.values() if sp.issparse(X)]
        rng = np.random.default_rng(1)
        shapes = [(X.shape[1], k) for X in self.sparse]
        self.others = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]

    def seconds(self) -> float:
        """Short products are made more often: the first ones wait for threads to wake up."""
        runs: list[float] = []
        while len(runs) < 5 or sum(runs) < 0.05:
            runs.append(timeit.timeit(self.multiply, number=1))
        return statistics.median(runs)

    def multiply(self) -> None:
        self.rows @ self.columns
        for X, columns in zip(self.sparse, self.others, strict=True):
            X @ columns


# --- a run beside its bar ----------------------------------------------------------


def measured(product: Product, call: Callable[[], Any]) -> Timed:
    """The median of three runs, or the one that took long."""
    first = timed(product, call, 1)
    if first.seconds > LONG:
        return first
    runs = [first, *(timed(product, call, 1) for _ in range(2))]
    return sorted(runs, key=lambda run: run.units)[1]


def against(run: Timed, products: int) -> tuple[list[str], float, bool]:
    """Cells of a run beside its bar of 2 s and so many products; the bar, and whether it is met."""
    g = run.seconds / run.units
    bar = FLOOR + products * g
    cells = [bold(f"{run.seconds:.2f}", run.seconds > bar), f"{g:.3g}", f"{run.units:.0f}"]
    return [*cells, f"{bar:.2f}"], bar, run.seconds <= bar


def bold(text: str, missed: bool) -> str:
    return f"**{text}**" if missed else text


def say(*what: Any) -> None:
    print(*what, file=sys.stderr, flush=True)


# --- the parts ------------------------------------------------------------------------------------


def default(options: argparse.Namespace) -> str:
    """Seconds of the default with its certificate, and what `thorough` finds beyond it."""
    limit = 2.0 if options.quick else options.thorough
    rows, gaps, met = [], [], []
    panels: dict[str, Panel] = {}
    for name, (make, sizes) in several_pools(options.quick).items():
        data = make()
        for k in sizes:
            product = Unit(data, k)
            fast = watched(data, k, effort="fast", certify=False)
            run = measured(product, partial(watched, data, k))
            most = timed(product, partial(watched, data, k, effort="thorough", time_limit=limit), 1)
            best = most.result.found
            gaps.append(best.fair_score - run.result.found.fair_score)
            cells, bar, within = against(run, 150)
            met.append(within)
            cut = ", cut" if best.status is Status.TIME_LIMIT else ""
            row = [name, f"{k}", *cells, f"{run.result.found.fair_score:.4f}"]
            row += [f"{best.fair_score:.4f}", f"{most.seconds:.0f}{cut}"]
            rows.append([*row, bold(f"{gaps[-1]:+.4f}", gaps[-1] > CLOSE)])
            climbs = {"fast": fast.climb, "balanced": run.result.climb}
            panels[f"{name}, k = {k}"] = Panel(bar, {**climbs, "thorough": most.result.climb})
            say(rows[-1])
    picture = draw_climbs(panels)
    if options.write:
        FIGURE.write_bytes(picture)
    close = sum(gap <= CLOSE for gap in gaps)
    headings = ["pool", "k", "seconds", "g, s", "in g", "2 s + 150 g", "F", "`thorough`"]
    return (
        f"Two dense views of 384, or TF-IDF of 4,000 words and one of 384; UCI and OpenMoji are "
        f"real. `thorough` had {limit:g} s. Within 2 s + 150 g on {sum(met)} of {len(met)} pools; "
        f"F within {CLOSE} of `thorough`'s on {close} of {len(met)} (wanted: 9 of 10), median "
        f"{statistics.median(gaps):.4f} (wanted: {MEDIAN}).\n\n"
        + markdown([*headings, "its seconds", "F missing"], rows)
        + f"\n\n![F against seconds, by pool](docs/figures/{FIGURE.name})"
    )


def sizes(options: argparse.Namespace) -> str:
    """The default with its certificate as k grows; its time should grow, too."""
    data = corpus(options.quick)
    rows, seconds = [], []
    for k in (4, 8) if options.quick else (50, 100, 200, 500, 1_000):
        run = measured(Unit(data, k), partial(fairnepv.select, data, k))
        seconds.append(run.seconds)
        rows.append([f"{k:,}", *against(run, 200)[0], f"{run.result.fair_score:.4f}"])
        say(rows[-1])
    rising = "rises" if seconds == sorted(seconds) else "does **not** rise"
    table = markdown(["k", "seconds", "g, s", "in g", "2 s + 200 g", "F"], rows)
    return f"{described(data)}: the time of the default {rising} with k.\n\n{table}"


def nepv(options: argparse.Namespace) -> str:
    """The paper's pipeline, in products."""
    data = corpus(options.quick)
    rows = []
    for k in (4,) if options.quick else (100, 500, 1_000):
        call = partial(fairnepv.select, data, k, method="nepv", certify=False)
        run = timed(Unit(data, k), call, 1)
        steps = sum(
            step.step > 0 for step in run.result.trace if step.stage in ("ascent", "newton")
        )
        cells = [f"{run.seconds:.1f}", bold(f"{run.units:.0f}", run.units > 400), f"{steps}"]
        rows.append([f"{k:,}", *cells, f"{run.result.fair_score:.4f}"])
        say(rows[-1])
    table = markdown(["k", "seconds", "in g", "steps of the relaxation", "F"], rows)
    return f"{described(data)}: method `nepv`, wanted in 400 products.\n\n{table}"


def fast(options: argparse.Namespace) -> str:
    """Fair greedy and one look at all swaps, in products, for both objectives."""
    n, p, k = (1_000, 24, 20) if options.quick else (N, 384, K)
    data = pool(n, p)
    product, rows, looks = Unit(data, k), [], dict[str, Timed]()
    for objective, bar in FAST.items():
        asked = {"objective": objective, "effort": "fast", "certify": False}
        run = timed(product, partial(fairnepv.select, data, k, **asked), 7)
        rows.append(
            [f"`fast`, {objective}", *in_products(run, bar), f"{run.result.fair_score:.4f}"]
        )
        problem = pose(data, k, objective=objective)
        looks[objective] = timed(product, look_at_swaps(problem, run.result.indices), 7)
    least = SWAPS * looks["diverse"].units
    for objective, run in looks.items():
        own = least if objective == "representative" else math.inf
        rows.append([f"all swaps once, {objective}", *in_products(run, own), ""])
    table = markdown(["what", "seconds", "g, s", "in g", "wanted", "F"], rows)
    return f"{described(data)}, k = {k}.\n\n{table}"


def in_products(run: Timed, bar: float) -> list[str]:
    """Cells of a run beside the products that it may take."""
    units = bold(f"{run.units:.1f}", run.units > bar)
    wanted = f"{bar:.3g}" if bar < math.inf else ""
    return [f"{run.seconds:.2f}", f"{run.seconds / run.units:.3g}", units, wanted]


def look_at_swaps(problem: Any, indices: Any) -> Callable[[], Any]:
    """One pass over all swaps of a set that no swap is good enough for: the look alone."""
    if problem.utility == "diverse":
        table = SwapTable.of(Subset.of(problem, indices), keep=False)
        look = partial(best_swaps, table, above=10.0)
    else:
        second_norms(problem.pool)  # once for all passes
        chosen = ExplainedSet.of(problem, indices)
        coarse = worth_float32(problem)
        look = partial(explained_swaps, chosen, above=10.0, coarse=coarse)

    def call() -> Any:
        with block_threads(problem.work()):
            return look()

    return call


def described(data: Data) -> str:
    kinds = [f"{X.shape[1]:,}{' sparse' if sp.issparse(X) else ''}" for X in data.values()]
    n = next(iter(data.values())).shape[0]
    return f"Simulated, {n:,} rows of {' + '.join(kinds)}"


# --- time limits ----------------------------------------------------------------------------------


def limits(options: argparse.Namespace) -> str:
    """How long after its limit each call comes back, at worst."""
    if options.processor:
        count_processor_seconds()
    pools = {"sparse": (corpus(options.quick), 6 if options.quick else 100)}
    if not options.quick:
        pools |= {"dense": (pool(N), K), "many": (pools["sparse"][0], 1_000)}
    small, seconds = pool(300, 64), (0.1,) if options.quick else options.limits
    worst: dict[str, dict[str, tuple[float, str]]] = {}
    folder = tempfile.TemporaryDirectory()
    for engine in options.engines:
        there = engine_of(engine)
        with there if engine == "local-ray" else contextlib.nullcontext():
            fairnepv.select(small, 5, engine=there, certify=False)  # imports, workers
            for where, (data, k) in pools.items():
                np.save(f"{folder.name}/{where}.npy", data["vision"])
                in_file = fairnepv.open_rows(f"{folder.name}/{where}.npy")
                calls = calls_under_limit(data, k, small, in_file, there)
                if where == "many":  # a product takes longer than what is allowed after most limits
                    calls = {name: calls[name] for name in calls if name in MANY}
                for name, call in calls.items():
                    found = overshoot(call, seconds, where)
                    say(engine, where, name, found)
                    cells = worst.setdefault(name, {})
                    cells[engine] = max(found, cells.get(engine, (-1.0, "")))
            gc.collect()  # shards that were cut short are cancelled while there is a cluster
    rows = [
        [name, *(bold(cells[engine][1], cells[engine][0] > 1.0) for engine in options.engines)]
        for name, cells in worst.items()
    ]
    asked = [ratio for cells in worst.values() for ratio, _ in cells.values() if ratio >= 0.0]
    kept = sum(ratio <= 1.0 for ratio in asked)
    asked_for = ", ".join(f"{limit:g}" for limit in seconds)
    about = "; ".join(f"{where}: {described(X)}, k = {k}" for where, (X, k) in pools.items())
    return (
        f"{about}. How long after a limit of {asked_for} s a call came back, at the worst of "
        f"them; {kept} of {len(asked)} within max(0.3 s, 10%)."
        + (" By a clock of processor seconds, on one thread." if options.processor else "")
        + "\n\n"
        + markdown(["call", *options.engines], rows)
    )


def count_processor_seconds() -> None:
    """Deadlines by the seconds that the processor works for us, on one thread: what other processes
    on a shared machine take does not count."""
    threadpool_limits(1)
    ticking = dict.fromkeys(("monotonic", "perf_counter", "time"), time.process_time)
    for module in (clock, tiers):
        vars(module)["time"] = SimpleNamespace(**ticking)


def calls_under_limit(data: Data, k: int, small: Data, in_file: Any, engine: Any) -> dict[str, Any]:
    """Every method and every verb, still without limit."""
    select, view = partial(fairnepv.select, data, k, engine=engine), "vision"
    chosen = select(effort="fast", certify=False)
    methods = ("nepv", "greedy", *baselines(tuple(data)))
    on_data: Any = {"engine": engine}
    return {
        "`auto` with certificate": select,
        "`auto`": partial(select, certify=False),
        **{f"`{name}`": partial(select, method=name, certify=False) for name in methods},
        "`exact`, 300 rows": partial(fairnepv.select, small, 20, method="exact", **on_data),
        "`exhaustive`, 300 rows": partial(fairnepv.exhaustive, small, 3, limit=10**7),
        "rows in a file": partial(fairnepv.select, {view: in_file}, k, **on_data),
        "efficiency calibration": partial(select, calibration="efficiency"),
        "floors": partial(select, floors={view: chosen.scores[view] - 0.01}),
        "hierarchical": partial(select, hierarchical=8),
        "`thorough`": partial(select, effort="thorough"),
        "certify": partial(fairnepv.certify, data, k, **on_data),
        "relax": partial(fairnepv.relax, data, k, **on_data),
        "compare": partial(fairnepv.compare, data, k, **on_data),
        "curve": partial(fairnepv.curve, data, k, bounds=True, **on_data),
        "stability": partial(fairnepv.stability, chosen, effort="balanced"),
        "tradeoff": partial(fairnepv.tradeoff, data, k, view, **on_data),
        "extend": partial(fairnepv.extend, chosen, data, k, **on_data),
    }


def told() -> float:
    """Seconds by the clock that limits are kept by, which `--processor` replaces."""
    return float(vars(clock)["time"].perf_counter())


def overshoot(call: Any, limits: tuple[float, ...], where: str) -> tuple[float, str]:
    """The worst overshoot as a share of what is allowed, and in words."""
    if "time_limit" not in inspect.signature(call).parameters:
        return math.inf, "takes no limit"
    worst = 0.0, "ended before"
    for limit in limits:
        began, empty = told(), ""
        try:
            call(time_limit=limit)
        except UnsupportedError:
            return -1.0, "refused"
        except TimeLimitError:
            empty = " (no answer yet)"  # which is said in a sentence
        except FairnepvError as error:
            return math.inf, f"{type(error).__name__} at {limit:g} s, {where}"
        late = told() - began - limit
        if late > 0.0:
            share = late / max(0.3, 0.1 * limit)
            worst = max(worst, (share, f"{late:.2f} s at {limit:g} s, {where}{empty}"))
    return worst


PARTS = {f.__name__: f for f in (default, sizes, limits, nepv, fast)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, as in default,limits")
    parser.add_argument("--engines", default="local,torch:cpu", help="under limits; local-ray, too")
    parser.add_argument("--thorough", type=float, default=120.0, help="seconds that it may take")
    parser.add_argument("--limits", default="0.5,1,2,5", help="seconds that calls are given")
    parser.add_argument("--processor", action="store_true", help="limits in processor seconds")
    parser.add_argument("--quick", action="store_true", help="tiny pools, to see that all works")
    parser.add_argument("--write", action="store_true", help="into BENCHMARKS.md")
    options = parser.parse_args()
    parts, options.engines = options.only.split(","), options.engines.split(",")
    options.limits = tuple(map(float, options.limits.split(",")))
    if not set(parts) <= set(PARTS) or (options.quick and options.write):
        parser.error(f"parts are {', '.join(PARTS)}; what is quick is not written")
    warnings.simplefilter("ignore")
    for part in parts:
        body = PARTS[part](options)
        publish(f"anytime-{part}", f"{provenance()}\n\n{body}", write=options.write)


if __name__ == "__main__":
    main()
