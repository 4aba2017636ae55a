"""(d) How good is good: bounds, exact optima, and how often the default finds them."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import fairnepv
from pools import openmoji_minilm, uci
from sections import benchmark, markdown, provenance, publish

# pool, k, tau; rows normalised, eps 0.1
BOUNDED = [
    ("OpenMoji, MiniLM", openmoji_minilm, 50, 0.05),
    ("OpenMoji, MiniLM", openmoji_minilm, 200, 0.05),
    ("UCI", uci, 10, 0.15),
    ("UCI", uci, 10, 0.02),
    ("UCI", uci, 40, 0.15),
    ("UCI", uci, 40, 0.02),
]
# every so many rows of UCI, k
PROVEN = [(33, 6), (10, 5)]
STRETCH = (33, 10)
POOLS = 40


def bounded() -> str:
    """What the default finds, what is proven, and what the paper's bound would have said."""
    rows = []
    for name, pool, k, tau in BOUNDED:
        data = pool()
        began = time.perf_counter()
        certificate = fairnepv.certify(data, k, tau=tau)
        proving = time.perf_counter() - began
        found = fairnepv.select(data, k, tau=tau)
        assert found.upper_bound is not None
        assert found.efficiency is not None
        rows.append(
            [
                name,
                str(k),
                f"{tau}",
                f"{found.fair_score:.4f}",
                f"{found.upper_bound:.4f}",
                f"**{found.efficiency:.4f}**",
                f"{certificate.spectral_bound:.4f}",
                f"{certificate.duality_gap:.1e}",
                f"{found.seconds:.1f}",
                f"{proving:.1f}",
            ]
        )
        print(*rows[-1], flush=True)
    headings = ["pool", "k", "tau", "F", "bound", "efficiency", "spectral bound", "duality gap"]
    return markdown([*headings, "search, s", "bound, s"], rows)


def proven(cases: list[tuple[int, int]]) -> str:
    rows = []
    for every, k in cases:
        data = {name: view[::every] for name, view in uci().items()}
        found = fairnepv.select(data, k, method="exact", certify=False)
        nodes = next(row for row in reversed(found.trace) if row.stage == "exact").details["nodes"]
        n = str(len(data["fou"]))
        score, seconds = f"{found.fair_score:.4f}", f"{found.seconds:.1f}"
        rows.append([n, str(k), score, found.status.name, f"{nodes:,}", seconds])
        print(*rows[-1], flush=True)
    return markdown(["rows", "k", "F", "status", "nodes", "seconds"], rows)


def small_pool(seed: int) -> tuple[str, dict[str, Any], float, float]:
    """40 to 60 rows: of UCI, of OpenMoji, Gaussian, or in clusters (the last two simulated)."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(40, 61))
    kind = ("UCI", "OpenMoji", "Gaussian", "clusters")[seed % 4]
    if kind in ("UCI", "OpenMoji"):
        data = uci() if kind == "UCI" else openmoji_minilm()
        rows = rng.choice(2000, n, replace=False)
        data = {name: view[rows] for name, view in data.items()}
    elif kind == "Gaussian":
        widths = rng.integers(3, 30, size=int(rng.integers(1, 5)))
        data = {f"view{q}": rng.standard_normal((n, p)) for q, p in enumerate(widths)}
    else:
        centres = rng.standard_normal((8, 10))
        data = {
            f"view{q}": centres[rng.integers(0, 8, n)] + 0.4 * rng.standard_normal((n, 10))
            for q in range(3)
        }
    return kind, data, float(10 ** rng.uniform(-2, 0)), float(10 ** rng.uniform(-3, 0))


def found_optima(pools: int) -> str:
    """How often `auto` ends in the proven optimum, k = 6; tau 0.01-1, eps 0.001-1."""
    counts: dict[str, list[int]] = {}
    seconds = []
    for seed in range(pools):
        kind, data, tau, eps = small_pool(seed)
        auto = fairnepv.select(data, 6, tau=tau, eps=eps)
        best = fairnepv.select(data, 6, tau=tau, eps=eps, method="exact", certify=False)
        assert best.status is fairnepv.Status.OPTIMAL
        hit = auto.fair_score >= best.fair_score - 1e-9
        counts.setdefault(kind, []).append(int(hit))
        seconds.append((auto.seconds, best.seconds))
        print(seed, kind, hit, f"{best.fair_score - auto.fair_score:.1e}", flush=True)
    rows = [[kind, str(sum(hits)), str(len(hits))] for kind, hits in counts.items()]
    total = sum(sum(hits) for hits in counts.values())
    ours, exact = np.median(np.array(seconds), axis=0)
    rows.append(["all", f"**{total}**", str(pools)])
    table = markdown(["pools", "optimum found", "of"], rows)
    return f"{table}\n\nMedian seconds: {ours:.2f} (`auto`), {exact:.2f} (`exact`)."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", type=int, default=POOLS, help="small pools for the last table")
    parser.add_argument("--stretch", action="store_true", help="also 61 rows, k = 10: minutes")
    benchmark(parser, run)


def run(options: argparse.Namespace) -> None:
    cases = [*PROVEN, STRETCH] if options.stretch else PROVEN
    parts = [
        provenance(),
        "### Certified efficiency of the default\n\n" + bounded(),
        "### Optima proven by branch and bound (rows of UCI, four views, tau 0.05)\n\n"
        + proven(cases),
        "### How often the default finds the proven optimum\n\n" + found_optima(options.pools),
    ]
    publish("certainty", "\n\n".join(parts), write=options.write)


if __name__ == "__main__":
    main()
