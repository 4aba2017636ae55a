"""(b) Every selector on every pool: F_tau, d_q, coverage and time, and what the relaxation adds."""

from __future__ import annotations

import argparse

import fairnepv
from fairnepv.api.selection import Comparison
from pools import openmoji_tf_idf, synthetic, uci
from sections import benchmark, markdown, provenance, publish

# pool, sizes, tau, calibration; the synthetic instance comes with its own qualities
SETTINGS = {
    "OpenMoji": (openmoji_tf_idf, (50, 200), 0.05, "unit-diagonal"),
    "UCI": (uci, (10, 40), 0.05, "unit-diagonal"),
    "synthetic": (synthetic, (5,), 0.15, "none"),
}


def compare(name: str, k: int) -> Comparison:
    pool, _, tau, calibration = SETTINGS[name]
    comparison = fairnepv.compare(pool(), k, tau=tau, calibration=calibration)
    best = max(row.fair_score for row in comparison)
    print(name, k, f"best {best:.4f}", flush=True)
    return comparison


def section(name: str, k: int, comparison: Comparison) -> str:
    views = list(comparison.rows[0].scores)
    best = max(row.fair_score for row in comparison)
    rows = [
        [
            row.method,
            f"**{row.fair_score:.4f}**"
            if row.fair_score > best - 1e-9
            else f"{row.fair_score:.4f}",
            *(f"{row.scores[view]:.3f}" for view in views),
            *(f"{row.coverage[view]:.3f}" for view in views),
            row.budget,
            f"{row.seconds:.2f}",
        ]
        for row in comparison
    ]
    each = [*(f"d {v}" for v in views), *(f"C {v}" for v in views)]
    headings = ["selector", "F", *each, "budget", "seconds"]
    return f"### {name}, k = {k}\n\n{markdown(headings, rows)}"


def finding(results: dict[tuple[str, int], Comparison]) -> str:
    """What the relaxation adds over fair greedy: the same one-swaps from either start."""
    methods = ("greedy", "greedy-swaps", "nepv", "auto")
    rows = [
        [name, str(k), *(f"{comparison[method].fair_score:.4f}" for method in methods)]
        for (name, k), comparison in results.items()
    ]
    headings = ["pool", "k", "fair greedy", "greedy + one-swaps", "relaxation + one-swaps", "auto"]
    return markdown(headings, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    benchmark(parser, run)


def run(options: argparse.Namespace) -> None:
    results = {(name, k): compare(name, k) for name in options.pools for k in SETTINGS[name][1]}
    tables = [section(name, k, comparison) for (name, k), comparison in results.items()]
    heading = "### What the relaxation adds over fair greedy"
    parts = [provenance("scikit-learn"), *tables, heading, finding(results)]
    publish("selection", "\n\n".join(parts), write=options.write)


if __name__ == "__main__":
    main()
