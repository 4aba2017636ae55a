"""What choosing in tiers loses against choosing from the whole pool, and how long both take.

Neither gets a certificate, so that seconds are those of the search; the bound of the whole pool is
proven once and stands beside. Shards are even runs of the rows as they are stored; the digits of
UCI are stored class by class, so that a shard has few classes, and once more in a random order.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np

import fairnepv
from pools import openmoji_tf_idf, simulated, uci
from sections import benchmark, markdown, provenance, publish
from speed import pool as embeddings

SHARDS = (2, 4, 8, 16, 32)
REPEATS = 3


def shuffled(data: Any) -> Any:
    order = np.random.default_rng(0).permutation(len(next(iter(data.values()))))
    return {name: X[order] for name, X in data.items()}


# pool, sizes
POOLS = {
    "OpenMoji": (openmoji_tf_idf, (50,)),
    "UCI, sorted by digit": (uci, (20, 50)),
    "UCI, shuffled": (lambda: shuffled(uci()), (20, 50)),
    "simulated, 5,000 rows": (simulated, (20,)),
    "simulated embeddings, 50,000 rows": (lambda: embeddings(50_000, 128), (100,)),
}


def choose(data: Any, k: int, effort: str, hierarchical: bool | int = False) -> tuple[float, float]:
    """F and the median of the seconds of some runs, or of one that takes more than a second."""
    seconds = []
    while len(seconds) < REPEATS:
        found = fairnepv.select(data, k, effort=effort, certify=False, hierarchical=hierarchical)
        seconds.append(found.seconds)
        if found.seconds > 1.0:
            break
    return found.fair_score, statistics.median(seconds)


def compare(name: str, k: int, effort: str) -> list[list[str]]:
    data = POOLS[name][0]()
    flat, alone = choose(data, k, effort)
    rows = [[f"{k}", f"`{effort}`", "the whole pool", f"{flat:.4f}", "", f"{alone:.2f}", ""]]
    n = fairnepv.plan(data, k, certify=False).n
    for shards in SHARDS:
        if shards > (n - 1) // k:
            continue
        F, seconds = choose(data, k, effort, shards)
        cells = [f"{F:.4f}", f"{flat - F:+.4f}", f"{seconds:.2f}", f"{seconds / alone:.2f}"]
        rows.append(["", "", f"{shards} shards", *cells])
    print(name, k, effort, [row[4] for row in rows[1:]], flush=True)
    return rows


def section(name: str, efforts: list[str]) -> str:
    make, sizes = POOLS[name]
    data = make()
    rows = [row for k in sizes for effort in efforts for row in compare(name, k, effort)]
    bounds = [(k, fairnepv.certify(data, k).upper_bound) for k in sizes]
    proven = ", ".join(f"{bound:.4f} for k = {k}" for k, bound in bounds)
    headings = ["k", "effort", "chosen from", "F", "loss", "seconds", "of the whole pool's"]
    return f"### {name}\n\nNo k items score above {proven}.\n\n{markdown(headings, rows)}"


def main(options: argparse.Namespace) -> None:
    bodies = [section(name, options.effort) for name in options.only or POOLS]
    publish("tiers", "\n\n".join([provenance(), *bodies]), write=options.write)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=POOLS, action="append", help="these pools alone")
    parser.add_argument(
        "--effort", choices=("fast", "balanced"), nargs="+", default=["fast", "balanced"]
    )
    benchmark(parser, main)
