"""Selections on one GPU, beside what its arithmetic and its memory allow.

Builds its (simulated) data on the device, checks itself against the local engine on a small
instance, measures its own ceilings, and prints every row of its table once it is there. `--json
FILE` keeps the rows likewise, so that a run that is killed loses none; `--only` runs some parts,
and `--publish FILE... --write` puts what several runs kept into BENCHMARKS.md, on a machine that
need not have a GPU. Without one, or with `--tiny`, everything runs on `torch:cpu` in small.
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
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import fairnepv
from fairnepv.api.inputs import pose
from fairnepv.compute import block_threads
from fairnepv.compute.device import TorchEngine
from fairnepv.loop import run
from fairnepv.options import OBJECTIVES
from fairnepv.search import Greedy
from fairnepv.search.local import best_swaps
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from sections import markdown, publish

GAP = 5e-3
DIVERSE, REPRESENTATIVE = OBJECTIVES
WORKERS = 4  # of Ray; as many have cores, and one the GPU
LIMITS = (0.5, 1.0, 2.0, 5.0)
Row = tuple[str, float, str]  # what, seconds, what to say of it
Shape = tuple[int, int, int]  # rows, columns of each of two views, items


class Sizes(NamedTuple):
    small: Shape
    main: Shape
    large: Shape  # float16, as is the next
    largest: Shape
    shared: Shape  # with a cluster


FULL = Sizes(
    (20_000, 256, 100),
    (1_000_000, 1024, 1000),
    (10_000_000, 512, 1000),
    (32_882_558, 768, 1000),
    (200_000, 512, 200),
)
TINY = Sizes((500, 16, 10), (2_000, 32, 20), (5_000, 16, 20), (10_000, 24, 20), (1_000, 16, 10))


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


def two_views(shape: Shape, device: Any, dtype: Any = torch.float32) -> dict[str, Any]:
    n, p, _ = shape
    _restart_peak(device)  # and free what the pool before this one has left
    return {"text": view(n, p, device, 1, dtype), "vision": view(n, p, device, 2, dtype)}


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


def check(device: Any, shape: Shape) -> Iterator[Row]:
    """The same indices as on the host; then the default once more, with everything loaded."""
    n, p, k = shape
    data = two_views(shape, device)
    here = {name: rows.cpu().numpy() for name, rows in data.items()}
    choose = partial(fairnepv.select, data, k, engine=f"torch:{device}")
    for options in (
        {"effort": "fast", "certify": False},
        {"gap": GAP},
        {"effort": "fast", "certify": False, "objective": REPRESENTATIVE},
        {"objective": REPRESENTATIVE},
    ):
        seconds, there = clock(partial(choose, **options), device)
        local = fairnepv.select(here, k, **options)
        same = "the same indices" if np.array_equal(local.indices, there.indices) else "DIFFERENT"
        yield f"check, n = {n:,}, {options}", seconds, same
    seconds, found = clock(choose, device, 3)
    what = f"default, n = {n:,}, two views of {p}, k = {k}"
    yield what, seconds, f"F = {found.fair_score:.4f}; wanted 2 s"


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


def fast(data: dict[str, Any], k: int, device: Any, objective: str = DIVERSE) -> Row:
    _restart_peak(device)
    options = {"engine": f"torch:{device}", "objective": objective}
    seconds, quick = clock(
        lambda: fairnepv.select(data, k, **options, effort="fast", certify=False), device, 2
    )
    what = f"`fast`, {objective}, {described(data, k)}"
    return what, seconds, f"F = {quick.fair_score:.4f}{_peak(device)}"


def default(data: dict[str, Any], k: int, device: Any, objective: str = DIVERSE) -> Iterator[Row]:
    """The diverse one to a gap of its own; shares to the usual one."""
    options = {"gap": GAP} if objective == DIVERSE else {"objective": objective}
    seconds, whole = clock(
        lambda: fairnepv.select(data, k, engine=f"torch:{device}", **options), device
    )
    proof = whole.certificate
    said = f"F = {whole.fair_score:.4f} <= {proof.upper_bound:.4f}, gap {proof.duality_gap:.1e}"
    yield f"`balanced` with certificate, {objective}, {described(data, k)}", seconds, said
    stages: dict[str, float] = {}
    for step in whole.trace:
        stages[step.stage] = max(stages.get(step.stage, 0.0), step.seconds)
    yield from ((f"  of which {name}, at most", s, "") for name, s in stages.items())


def limits(data: dict[str, Any], k: int, device: Any) -> Iterator[Row]:
    for limit in LIMITS:
        seconds, _ = clock(
            partial(fairnepv.select, data, k, engine=f"torch:{device}", time_limit=limit), device
        )
        late = max(seconds - limit, 0.0)
        kept = "kept" if late <= max(0.3, 0.1 * limit) else "MISSED"
        yield f"default, time_limit = {limit:g} s", seconds, f"{late:.2f} s late, {kept}"


def workers(device: Any, shape: Shape) -> Iterator[Row]:
    """A cluster of this machine whose one worker with a GPU computes there, beside the same engine
    without Ray."""
    data = {name: rows.cpu().numpy() for name, rows in two_views(shape, device).items()}
    k = shape[2]
    from fairnepv.compute.ray.engine import RayEngine  # an extra that other parts do without

    there = RayEngine.local(WORKERS, device.type)
    for options in ({"effort": "fast", "certify": False}, {"gap": GAP}):
        alone, expected = clock(
            partial(fairnepv.select, data, k, engine=f"torch:{device}", **options), device
        )
        for turn in ("first", "second"):  # which begins with workers that have the rows
            seconds, found = clock(
                partial(fairnepv.select, data, k, engine=there, **options), device
            )
            same = np.array_equal(found.indices, expected.indices)
            said = f"{'the same indices' if same else 'DIFFERENT'}; {alone:.2f} s without Ray"
            what = f"Ray, {WORKERS} workers, device {device.type}, {described(data, k)}"
            yield f"{what}, {options}, {turn} run", seconds, said
    there.close()


def described(data: dict[str, Any], k: int) -> str:
    first = next(iter(data.values()))
    n, p = first.shape
    return f"n = {n:,}, two views of {p} ({str(first.dtype).removeprefix('torch.')}), k = {k:,}"


def _restart_peak(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _peak(device: Any) -> str:
    """The most memory that was taken since then, rows included."""
    if device.type != "cuda":
        return ""
    return f"; peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"


# --- parts ----------------------------------------------------------------------------------------

PARTS = (
    *("check", "ceilings", "passes", "select", "representative", "limits", "large", "largest"),
    "workers",
)
ON_MAIN = ("passes", "select", "representative", "limits")


def measure(parts: Iterable[str], device: Any, sizes: Sizes) -> Iterator[Row]:
    """Rows of the table, each once it is known; one pool is on the device at a time."""
    n, p, k = sizes.main
    if "check" in parts:
        yield from check(device, sizes.small)
    if "ceilings" in parts or "passes" in parts:
        rates, found = ceilings(device, min(n, 200_000), p, k)
        yield from found
    if any(part in parts for part in ON_MAIN):
        data = two_views(sizes.main, device)
        if "passes" in parts:
            yield greedy_by_products(data, k, device)
            yield from passes(data, k, device, rates)
        if "select" in parts:
            yield fast(data, k, device)
            yield from default(data, k, device)
        if "representative" in parts:
            yield fast(data, k, device, REPRESENTATIVE)
            yield from default(data, k, device, REPRESENTATIVE)
        if "limits" in parts:
            yield from limits(data, k, device)
        del data
    for part, shape in (("large", sizes.large), ("largest", sizes.largest)):
        if part in parts:
            yield fast(two_views(shape, device, torch.float16), shape[2], device)
    if "workers" in parts:
        yield from workers(device, sizes.shared)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts alone")
    parser.add_argument("--tiny", action="store_true", help="in small, on torch:cpu")
    parser.add_argument("--json", metavar="FILE", help="keep the rows there")
    parser.add_argument("--publish", metavar="FILE", nargs="+", help="what --json kept, as a table")
    parser.add_argument("--write", action="store_true", help="into BENCHMARKS.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.publish:
        publish_kept(options.publish, options.write)
        return
    device = TorchEngine("cpu" if options.tiny else None).device
    gpu = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if gpu else "CPU"
    given = shlex.join(a for a in sys.argv[1:] if not a.startswith("/"))
    about = (
        f"`python benchmarks/gpu.py {given}`, {datetime.date.today()}. {name}, "
        f"{os.cpu_count()} cores, torch {torch.__version__}, numpy {np.__version__}."
    )
    print(f"{about}\n\n{markdown(HEADINGS, [])}", flush=True)
    rows: list[Row] = []
    for row in measure(options.only, device, FULL if gpu else TINY):
        rows.append(row)
        print("| " + " | ".join(_cells(*row)) + " |", flush=True)
        if options.json:
            Path(options.json).write_text(json.dumps({"about": about, "rows": rows}, indent=1))


HEADINGS = ("what", "seconds", "")


def publish_kept(files: list[str], write: bool) -> None:
    kept = [json.loads(Path(file).read_text()) for file in files]
    table = markdown(HEADINGS, [_cells(*row) for one in kept for row in one["rows"]])
    abouts = "\n\n".join(one["about"] for one in kept)
    publish("gpu", f"{abouts}\n\n{table}", write=write)


def _cells(what: str, seconds: float, said: str) -> list[str]:
    return [what.strip(), f"{seconds:.3f}", said]


if __name__ == "__main__":
    main()
