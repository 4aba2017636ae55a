"""Selections on one GPU, beside what its arithmetic and its memory allow.

Builds its (simulated) data on the device, checks itself against the local engine on a small
instance, measures its own ceilings, and prints one table (`--json FILE` keeps the numbers, and
`--publish FILE --write` puts them into BENCHMARKS.md, on a machine that need not have a GPU).
Without one it runs a small instance on `torch:cpu`, to see that everything works.
"""

from __future__ import annotations

import argparse
import datetime
import json
import operator
import os
import shlex
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fairnepv
from fairnepv.api.inputs import pose
from fairnepv.compute import block_threads
from fairnepv.compute.device import TorchEngine
from fairnepv.loop import run
from fairnepv.search import Greedy
from fairnepv.search.local import best_swaps
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from sections import markdown, publish

GAP = 5e-3
Row = tuple[str, float, str]  # what, seconds, what to say of it


def view(n: int, p: int, device: Any, seed: int, dtype: Any = torch.float32) -> Any:
    """Simulated: uneven clusters and a falling spectrum, as embeddings have."""
    torch.manual_seed(seed)
    columns = torch.arange(1, p + 1, device=device, dtype=torch.float32) ** -0.4
    sizes = torch.rand(2000, device=device) ** 3
    centres = torch.randn(2000, p, device=device)
    rows = torch.empty(n, p, device=device, dtype=dtype)
    for start in range(0, n, 1 << 18):
        stop = min(start + (1 << 18), n)
        which = torch.multinomial(sizes, stop - start, replacement=True)
        noise = torch.randn(stop - start, p, device=device)
        rows[start:stop] = ((centres[which] + 0.8 * noise) * columns).to(dtype)
    return rows


def clock(call: Callable[[], Any], device: Any, repeats: int = 1) -> tuple[float, Any]:
    seconds, result = [], None
    for _ in range(repeats):
        _wait(device)
        began = time.perf_counter()
        result = call()
        _wait(device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), result


def _wait(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


# --- what the machine can do ----------------------------------------------------------------------


def ceilings(device: Any, n: int, p: int, k: int) -> tuple[dict[str, float], list[Row]]:
    """Flop/s of the products that passes consist of, and bytes/s that are read."""
    rates, rows = {}, []
    for name, kind, tf32 in (
        ("float32", torch.float32, False),
        ("TF32", torch.float32, True),
        ("float64", torch.float64, False),
    ):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a = torch.randn(n, p, device=device, dtype=kind)
        b = torch.randn(p, k, device=device, dtype=kind)
        a @ b
        seconds, _ = clock(partial(operator.matmul, a, b), device, 5)
        rates[name] = 2.0 * n * p * k / seconds
        rows.append((f"ceiling: {name} product", seconds, f"{rates[name] / 1e12:.1f} TFlop/s"))
        del a, b
    torch.backends.cuda.matmul.allow_tf32 = False
    a = torch.randn(n, p, device=device)
    x = torch.randn(p, device=device)
    seconds, _ = clock(lambda: a @ x, device, 5)
    rates["bytes"] = a.nbytes / seconds
    rows.append(("ceiling: reading rows", seconds, f"{rates['bytes'] / 1e12:.2f} TB/s"))
    return rates, rows


# --- what we do -----------------------------------------------------------------------------------


def check(device: Any, n: int, p: int, k: int) -> list[Row]:
    data = {"text": view(n, p, device, 1), "vision": view(n, p, device, 2)}
    here = {name: rows.cpu().numpy() for name, rows in data.items()}
    found = []
    for options in ({"effort": "fast", "certify": False}, {"gap": GAP}):
        seconds, there = clock(
            partial(fairnepv.select, data, k, engine=f"torch:{device}", **options),
            device,
        )
        local = fairnepv.select(here, k, **options)
        same = "the same indices" if np.array_equal(local.indices, there.indices) else "DIFFERENT"
        found.append((f"check, n = {n:,}, {options}", seconds, same))
    return found


def greedy_by_products(data: dict[str, Any], k: int, device: Any) -> Row:
    """The loop that reads all rows once per pick; timed for a tenth of the picks."""
    rows = list(data.values())
    u = [torch.randn(x.shape[1], device=device).to(x.dtype) for x in rows]
    steps = max(1, k // 10)

    def loop() -> None:
        for _ in range(steps):
            for x, direction in zip(rows, u, strict=True):
                (x @ direction).square_()

    loop()
    seconds, _ = clock(loop, device)
    return ("a product by row and pick, all picks", seconds * k / steps, "memory-bound loop")


def passes(data: dict[str, Any], k: int, device: Any, rates: dict[str, float]) -> list[Row]:
    problem = pose(data, k, engine=f"torch:{device}")
    n, P = problem.n, problem.pool.width
    with block_threads(problem.work()):
        gram, _ = clock(lambda: _gram(problem), device, 3)
        quick, _ = clock(lambda: greedy(problem), device, 3)
        subset = Subset.of(problem, greedy(problem))
        table = SwapTable.of(subset, keep=False)
        best_swaps(table, above=subset.value)
        swap, _ = clock(lambda: best_swaps(table, above=subset.value), device, 3)
    gram_flops, swap_flops = 2.0 * n * P**2, 2.0 * n * k * (P + 2 * k)
    kind = "float32" if table.source.coarse else "float64"
    return [
        (f"greedy, {k} picks", quick, ""),
        ("Gram pass", gram, _share(gram_flops / gram, rates["float64"], "float64")),
        ("swap pass", swap, _share(swap_flops / swap, rates[kind], kind)),
    ]


def greedy(problem: Any) -> Any:
    return np.sort(run(Greedy(problem)).state.indices)


def _gram(problem: Any) -> Any:
    vars(problem.pool).pop("gram", None)
    return problem.pool.gram


def _share(rate: float, ceiling: float, kind: str) -> str:
    return f"{rate / 1e12:.1f} TFlop/s, {rate / ceiling:.0%} of {kind}"


def selections(data: dict[str, Any], k: int, device: Any, balanced: bool) -> list[Row]:
    engine, found = f"torch:{device}", []
    (n, p), kind = next(iter(data.values())).shape, next(iter(data.values())).dtype
    pool = f"n = {n:,}, two views of {p} ({str(kind).removeprefix('torch.')})"
    seconds, quick = clock(
        lambda: fairnepv.select(data, k, engine=engine, effort="fast", certify=False), device, 2
    )
    found.append((f"`fast`, {pool}", seconds, f"F = {quick.fair_score:.4f}"))
    if balanced:
        seconds, whole = clock(lambda: fairnepv.select(data, k, engine=engine, gap=GAP), device)
        proof = whole.certificate
        said = f"F = {whole.fair_score:.4f} <= {proof.upper_bound:.4f}, gap {proof.duality_gap:.1e}"
        found.append((f"`balanced` with certificate, {pool}", seconds, said))
        stages: dict[str, float] = {}
        for step in whole.trace:
            stages[step.stage] = max(stages.get(step.stage, 0.0), step.seconds)
        found += [(f"  of which {name}, at most", s, "") for name, s in stages.items()]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", nargs="*", default=["check", "passes", "select", "large"])
    parser.add_argument("--n", type=int, help="rows, instead of a million")
    parser.add_argument("--publish", metavar="FILE", help="what --json kept, as a table")
    parser.add_argument("--write", action="store_true", help="into BENCHMARKS.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.publish:
        kept = json.loads(Path(options.publish).read_text())
        table = [[what.strip(), f"{seconds:.3f}", said] for what, seconds, said in kept["rows"]]
        body = f"{kept['about']}\n\n{markdown(['what', 'seconds', ''], table)}"
        publish("gpu", body, write=options.write)
        return
    device = TorchEngine(None).device
    gpu = device.type == "cuda"
    n, p, k = (options.n or 1_000_000, 1024, 1000) if gpu else (options.n or 20_000, 64, 50)
    name = torch.cuda.get_device_name(device) if gpu else "CPU"
    given = shlex.join(a for a in sys.argv[1:] if not a.startswith("/"))
    about = (
        f"`python benchmarks/gpu.py {given}`, {datetime.date.today()}. {name}, "
        f"{os.cpu_count()} cores, torch {torch.__version__}, numpy {np.__version__}."
    )
    print(about, flush=True)
    rows: list[Row] = []

    def say(more: list[Row]) -> None:
        for what, seconds, said in more:
            print(f"{what:60s} {seconds:9.4f} s  {said}", flush=True)
        rows.extend(more)

    if "check" in options.only:
        say(check(device, min(n, 20_000), min(p, 256), min(k, 100)))
    rates, found = ceilings(device, min(n, 200_000), p, k)
    say(found)
    data = {"text": view(n, p, device, 1), "vision": view(n, p, device, 2)}
    if "passes" in options.only:
        say([greedy_by_products(data, k, device)])
        say(passes(data, k, device, rates))
    if "select" in options.only:
        say(selections(data, k, device, balanced=True))
    del data
    if "large" in options.only and gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        large = [view(10 * n, p // 2, device, seed, torch.float16) for seed in (1, 2)]
        data = {"text": large[0], "vision": large[1]}
        ((what, seconds, said),) = selections(data, k, device, balanced=False)
        peak = torch.cuda.max_memory_allocated() / 2**30
        say([(what, seconds, f"{said}; peak {peak:.1f} GiB")])
    if options.json:
        Path(options.json).write_text(json.dumps({"about": about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
