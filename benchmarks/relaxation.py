"""How the four variants of Algorithm 1 and the default converge, with figures in docs/figures."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairnepv.problem import Problem
from fairnepv.report import draw_traces
from fairnepv_studies.convergence import Convergence, convergence_study, halves
from pools import openmoji_minilm, pose, synthetic, uci
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500, help="of each variant")
    benchmark(parser, run)


def run(options: argparse.Namespace) -> None:
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
