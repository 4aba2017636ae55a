"""What each knob of the paper's pipeline does: c, B, solver, start, tau and eps, one at a time.

Every row is `method="nepv"` with one knob changed, beside fair greedy with the same one-swaps in
the same problem: what is left between the two is what the relaxation adds. What depends on the
seed is run with several, and told as mean ± standard deviation. tau and eps change the problem, so
scores of different rows of these two are not on one scale; differences within a row are.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import fairnepv
from fairnepv.stiefel import SOLVERS
from pools import labelled_trademarks, openmoji_tf_idf, uci
from sections import benchmark, markdown, provenance, publish

SEEDS = 5
POOLS = {
    "UCI": (uci, 40),
    "OpenMoji": (openmoji_tf_idf, 100),
    "trademarks (simulated)": (lambda: labelled_trademarks().views, 100),
}
KNOBS: dict[str, list[dict[str, Any]]] = {
    "as it comes": [{}],
    "c": [{"oversampling": c} for c in (1.0, 1.5, 2.0, 5.0, 10.0)],
    "B": [{"passes": B} for B in (0, 1, 3, 10)],
    "solver": [{"solver": name} for name in SOLVERS],
    "start": [{"start": "random"}],
    "tau": [{"tau": tau} for tau in (0.005, 0.02, 0.2, 1.0)],
    "eps": [{"eps": eps} for eps in (1e-3, 0.01, 1.0)],
}
OF_THE_PROBLEM = ("tau", "eps", "passes")  # which fair greedy has, too


class Cell(NamedTuple):
    """One row on one pool."""

    pool: str
    options: dict[str, Any]


class Found(NamedTuple):
    scores: list[float]  # of the pipeline, a seed each
    greedy: float
    steps: int  # of the relaxation
    converged: bool


def measure(cell: Cell, seeds: int) -> Found:
    make, k = POOLS[cell.pool]
    data, options = make(), cell.options
    choose = partial(fairnepv.select, data, k, certify=False)
    drawn = range(seeds if options.get("start") == "random" else 1)
    rows = [choose(method="nepv", random_state=seed, **options) for seed in drawn]
    same = {name: options[name] for name in OF_THE_PROBLEM if name in options}
    beside = choose(method="greedy-swaps", **same)
    relaxed = [step for step in rows[0].trace if step.residual is not None]
    scores = [row.fair_score for row in rows]
    ended = not any(note.startswith("relaxation:") for note in rows[0].notes)
    return Found(scores, beside.fair_score, relaxed[-1].step if relaxed else 0, ended)


def table(results: dict[str, list[tuple[Cell, Found]]]) -> Iterator[str]:
    headings = ["knob", "value", "F", "greedy with swaps", "difference", "steps", "converged"]
    for name, found in results.items():
        rows = [_row(*pair) for pair in found]
        yield f"### {name}, k = {POOLS[name][1]}\n\n{markdown(headings, rows)}"


def _row(cell: Cell, found: Found) -> list[str]:
    mean = statistics.fmean(found.scores)
    spread = f" ± {statistics.stdev(found.scores):.4f}" if len(found.scores) > 1 else ""
    [knob] = [name for name, values in KNOBS.items() if cell.options in values]
    value = ", ".join(map(str, cell.options.values())) or "-"
    return [
        *(knob, value, f"{mean:.4f}{spread}", f"{found.greedy:.4f}"),
        *(f"{mean - found.greedy:+.4f}", str(found.steps), "yes" if found.converged else "no"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", nargs="+", default=list(POOLS), choices=list(POOLS))
    parser.add_argument("--processes", type=int, default=1, help="cells at a time")
    benchmark(parser, run)


def run(options: argparse.Namespace) -> None:
    cells = [Cell(p, o) for p in options.pools for values in KNOBS.values() for o in values]
    with ProcessPoolExecutor(options.processes) as pool:
        found = list(pool.map(partial(measure, seeds=SEEDS), cells))
    results: dict[str, list[tuple[Cell, Found]]] = {name: [] for name in options.pools}
    for cell, one in zip(cells, found, strict=True):
        results[cell.pool].append((cell, one))
    publish("ablations", "\n\n".join([provenance(), *table(results)]), write=options.write)


if __name__ == "__main__":
    main()
