"""How the four variants of Algorithm 1 and the default converge, with figures in docs/figures; and
what the relaxation takes beside its products, on a simulated catalogue with a sparse view."""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairnepv.compute import block_threads
from fairnepv.methods import Nepv
from fairnepv.objective import StiefelObjective
from fairnepv.problem import Problem
from fairnepv.report import draw_traces
from fairnepv.stiefel import relax
from fairnepv.stiefel.coordinates import Coordinates, choose_coordinates, coordinates_of
from fairnepv.stiefel.lbfgs import Lbfgs
from fairnepv.stiefel.starts import spectral_start
from fairnepv_studies.convergence import Convergence, convergence_study, halves
from pools import catalogue, openmoji_minilm, pose, synthetic, uci
from products import Products
from sections import benchmark, markdown, provenance, publish

_FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"


def problems() -> dict[str, tuple[Problem, Problem, str]]:
    """Validation and test problem, and where to start from.

    The synthetic instance is too small to halve: validation starts from another random frame. With
    diagonal kernels the spectral start would be a coordinate frame, which is stationary.
    """
    small = pose(synthetic(), 5, 0.15, "none")
    digits, pictograms = uci(), openmoji_minilm()
    return {
        "synthetic, k = 5": (replace(small, random_state=1), small, "random"),
        "UCI, k = 20": (*halves(pose(digits, 20, 0.05)), "spectral"),
        "UCI, k = 60": (*halves(pose(digits, 60, 0.05)), "spectral"),
        "OpenMoji, k = 20": (*halves(pose(pictograms, 20, 0.05)), "spectral"),
    }


def row(name: str, solver: str, result: Convergence) -> list[str]:
    relaxation, k = result.relaxation, result.relaxation.k
    knobs = ""
    if solver != "accelerated":
        knobs = f"alpha {result.solver.alpha:g}, sigma {result.solver.sigma * k:g}/k"
    reached = [result.first_below(residual) for residual in (1e-1, 1e-3, 1e-6)]
    return [
        name,
        solver,
        knobs,
        *("–" if step is None else str(step) for step in reached),
        f"{result.trace['residual'][-1]:.1e}",
        f"{relaxation.value:.5f}",
        f"{result.trace['seconds'][-1]:.2f}",
        _ending(result),
    ]


def _ending(result: Convergence) -> str:
    if result.relaxation.status.ok:
        return "converged"
    if result.period:
        return f"cycle of {result.period}"
    return "goes up and down" if result.wanders else "creeps"


# --- products -------------------------------------------------------------------------------------


def step_row(problem: Problem, kind: str, steps: int = 8) -> list[str]:
    """Products of the spectral start, and a step of the ascent in units of its own products."""
    with block_threads(problem.work()):
        coordinates = coordinates_of(problem, kind)
        products = Products(coordinates.maps, len(problem.pool.views))
        V = spectral_start(problem, coordinates)
        started = products.count
        ascent = Lbfgs(objective_in(problem, coordinates), V, tol=1e-6)
        state, ratios = ascent.init(), []
        ascent.report(state)
        for _ in range(steps):
            inside, began = products.seconds, time.perf_counter()
            state = ascent.step(state)
            ascent.report(state)
            ratios.append((time.perf_counter() - began) / (products.seconds - inside))
    return [kind, str(problem.k), str(started), f"{statistics.median(ratios):.2f}"]


def objective_in(problem: Problem, coordinates: Coordinates) -> StiefelObjective:
    pool = problem.pool
    return StiefelObjective(coordinates.maps, pool.eps, problem.offsets, problem.tau, problem.k)


def nepv_row(problem: Problem) -> list[str]:
    """The relaxation that 'nepv' rounds."""
    began = time.perf_counter()
    coordinates = choose_coordinates(problem)
    products = Products(coordinates.maps, len(problem.pool.views))
    found = relax(problem, Nepv().solver_for(problem.k, problem.utility), coordinates=coordinates)
    seconds = time.perf_counter() - began
    kind = type(coordinates).__name__.lower()
    counts = [str(found.steps), str(products.count), f"{seconds:.1f}"]
    unit = products.seconds / products.count
    return [str(problem.k), kind, *counts, f"{seconds / unit:.0f}", f"{found.residual:.2g}"]


def products_section(options: argparse.Namespace) -> str:
    data = catalogue(options.items)
    steps = [
        step_row(pose(data, 100, 0.05), kind) for kind in ("reduced", "ambient", "spanned")
    ] + [step_row(pose(data, 500, 0.05), "spanned")]
    print(*steps, sep="\n", flush=True)
    runs = []
    for k in options.sizes:
        runs.append(nepv_row(pose(data, k, 0.05)))
        print(runs[-1], flush=True)
    step_table = markdown(["coordinates", "k", "start, products", "step, of its products"], steps)
    headings = ["k", "coordinates", "steps", "products", "seconds", "seconds in products"]
    return (
        f"### Beside its products ({options.items:,} items, simulated: TF-IDF of 4,000 words and "
        f"1,280 dense columns)\n\n{step_table}\n\nThe relaxation that `nepv` rounds, with its "
        f"start and its check:\n\n{markdown([*headings, 'residual'], runs)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500, help="of each variant")
    parser.add_argument("--items", type=int, default=15_524, help="of the catalogue")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 500, 1000], help="k there")
    parser.add_argument("--products", action="store_true", help="only what steps take, printed")
    benchmark(parser, run)


def run(options: argparse.Namespace) -> None:
    beside = products_section(options)
    if options.products:
        print(beside)
        return
    rows: list[list[str]] = []
    pictures = []
    for name, (validation, problem, start) in problems().items():
        study = convergence_study(validation, problem, steps=options.steps, start=start)
        rows += [row(name, solver, result) for solver, result in study.items()]
        print(*rows[-len(study) :], sep="\n", flush=True)
        pictures.append(_picture(name, problem, study, options.write))
    headings = ["problem", "solver", "validated", "1e-1", "1e-3", "1e-6", "last residual", "value"]
    body = "\n\n".join(
        [
            provenance("matplotlib"),
            markdown([*headings, "seconds", "ended"], rows),
            "\n".join(pictures),
            beside,
        ]
    )
    publish("relaxation", body, write=options.write)


def _picture(name: str, problem: Problem, study: dict[str, Any], write: bool) -> str:
    traces = {solver: result.trace for solver, result in study.items()}
    title = f"{name}, tau = {problem.tau}, n = {problem.n}"
    path = _FIGURES / f"convergence-{''.join(c for c in name.lower() if c.isalnum())}.png"
    if write:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(draw_traces(traces, title))
    return f"![{title}](docs/figures/{path.name})"


if __name__ == "__main__":
    main()
