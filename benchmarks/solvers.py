"""(a) Time and products to residual 1e-6: the default solver against pymanopt.

Everybody gets the same objective with the same caching, the same start and one BLAS thread. In
equal coordinates all of them work in the joint range of the views; then the peers work in n
dimensions, on dense float64 features, as they would without our reduction. pymanopt runs on its
Grassmann manifold with exact gradients and Hessians handed in as Riemannian ones. A product is one
application of all feature maps or of their transposes; a value and its gradient take two, a
Hessian product two.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymanopt
from pymanopt.manifolds import Grassmann
from pymanopt.optimizers import ConjugateGradient, TrustRegions

from fairnepv.objective import StiefelObjective
from fairnepv.problem import Problem
from fairnepv.report import trace_table
from fairnepv.stiefel import make_solver, relax
from fairnepv.stiefel.coordinates import Reduced
from fairnepv.stiefel.maps import MatrixMaps
from fairnepv.stiefel.starts import spectral_start
from pools import openmoji_minilm, pose, uci
from products import Products
from sections import benchmark, markdown, provenance, publish

TOL = 1e-6
SIZES, TAUS = (20, 60), (0.15, 0.05, 0.01)


class Run(NamedTuple):
    seconds: float
    products: int
    residual: float
    value: float

    @property
    def reached(self) -> bool:
        return self.residual <= TOL * 1.001


def objective_on(problem: Problem, maps: Any) -> StiefelObjective:
    pool = problem.pool
    return StiefelObjective(maps, pool.eps, pool.offsets, problem.tau, problem.k)


def ours(problem: Problem, coordinates: Reduced) -> Run:
    """Seconds until the trace says 1e-6; products include the check of the curvature afterwards."""
    coordinates.__dict__["maps"] = maps = plain_maps(problem, coordinates)
    products = Products(maps, len(problem.pool.views))
    result = relax(problem, make_solver(k=problem.k, tol=TOL), coordinates=coordinates)
    seconds = float(trace_table(result).columns["seconds"][-1])
    return Run(seconds, products.count, result.residual, result.value)


def plain_maps(problem: Problem, coordinates: Reduced) -> MatrixMaps:
    return MatrixMaps(coordinates.R, [view.p for view in problem.pool.views])


def whole_maps(problem: Problem) -> MatrixMaps:
    """The features themselves, (n, P), dense and in float64."""
    block = problem.pool.block(0, problem.n)
    return MatrixMaps(
        np.hstack([view.features() for view in block.views]),
        [view.p for view in problem.pool.views],
    )


def peer(problem: Problem, maps: MatrixMaps, start: Any, optimizer: Callable[..., Any]) -> Run:
    products = Products(maps, len(problem.pool.views))
    f = objective_on(problem, maps)
    manifold = Grassmann(*start.shape)
    last: list[Any] = []

    def at(V: Any) -> Any:
        if not last or not np.array_equal(last[0].V, V):
            last[:] = [f.at(V)]
        return last[0]

    numpy_function = pymanopt.function.numpy(manifold)
    posed = pymanopt.Problem(
        manifold,
        numpy_function(lambda V: -at(V).value),
        riemannian_gradient=numpy_function(lambda V: -2.0 * at(V).A_perp),
        riemannian_hessian=numpy_function(lambda V, xi: -2.0 * at(V).hessian(xi)),
    )
    began = time.perf_counter()
    try:
        found = optimizer().run(posed, initial_point=start).point
    except np.linalg.LinAlgError:  # a step that is not a number, as its conjugate gradient may take
        return Run(time.perf_counter() - began, products.count, np.inf, np.nan)
    seconds, count = time.perf_counter() - began, products.count
    point = f.at(found)
    return Run(seconds, count, point.residual, point.value)


def optimizers(k: int, max_time: float) -> dict[str, Callable[..., Any]]:
    limits = {
        "min_gradient_norm": 2.0 * TOL / k,  # the gradient is 2 A_perp, the residual k |A_perp|
        "max_iterations": 100_000,
        "max_time": max_time,
        "verbosity": 0,
    }
    return {
        "CG": lambda: ConjugateGradient(min_step_size=1e-16, **limits),
        "TR": lambda: TrustRegions(**limits),
    }


def median_run(run: Callable[[], Run], repeats: int) -> Run:
    """The run of median time; what took long once is not repeated."""
    runs = [run()]
    while len(runs) < repeats and runs[0].seconds < 4:
        runs.append(run())
    return sorted(runs)[(len(runs) - 1) // 2]


def setting(
    name: str, data: Any, k: int, tau: float, repeats: int, max_time: float
) -> dict[str, Any]:
    problem = pose(data, k, tau)
    began = time.perf_counter()
    coordinates = Reduced(problem.pool)
    maps = plain_maps(problem, coordinates)
    start = spectral_start(problem, coordinates)
    setup = time.perf_counter() - began
    lifted, whole = coordinates.lift(start), whole_maps(problem)
    runs = {"ours": median_run(lambda: ours(problem, coordinates), repeats)}
    for label, optimizer in optimizers(k, max_time).items():
        runs[label] = median_run(partial(peer, problem, maps, start, optimizer), repeats)
        runs[f"{label} in n"] = median_run(partial(peer, problem, whole, lifted, optimizer), 1)
    print(name, k, tau, {label: f"{run.seconds:.2f}" for label, run in runs.items()}, flush=True)
    return {"name": name, "k": k, "tau": tau, "setup": setup, "runs": runs}


def ratio(result: dict[str, Any], labels: tuple[str, ...], *, setup: bool = False) -> float:
    """How many times longer the best of these peers took that reached the tolerance.

    Where none did, the longest of them, which is a bound from below.
    """
    runs = result["runs"]
    assert runs["ours"].reached
    reached = [runs[label].seconds for label in labels if runs[label].reached]
    mine = runs["ours"].seconds + (result["setup"] if setup else 0.0)
    return (min(reached) if reached else max(runs[label].seconds for label in labels)) / mine


def table(results: list[dict[str, Any]]) -> str:
    rows = []
    for result in results:
        cells = [
            _cell(result["runs"][label]) for label in ("ours", "CG", "TR", "CG in n", "TR in n")
        ]
        rows.append(
            [
                result["name"],
                str(result["k"]),
                str(result["tau"]),
                *cells,
                f"**{ratio(result, ('CG', 'TR')):.1f}**",
                f"**{ratio(result, ('CG in n', 'TR in n')):.1f}**",
                f"{result['setup']:.2f}",
            ]
        )
    headings = ["pool", "k", "tau", "ours", "CG", "TR", "CG, n dims", "TR, n dims"]
    return markdown([*headings, "ahead", "ahead, n dims", "our set-up"], rows)


def _cell(run: Run) -> str:
    text = f"{run.seconds:.2f} s, {run.products}"
    if run.reached:
        return text
    return f"{text} ({'broke down' if np.isinf(run.residual) else f'only {run.residual:.0e}'})"


def summary(results: list[dict[str, Any]]) -> str:
    reduced = statistics.median(ratio(r, ("CG", "TR")) for r in results)
    whole = statistics.median(ratio(r, ("CG in n", "TR in n")) for r in results)
    paid = statistics.median(ratio(r, ("CG in n", "TR in n"), setup=True) for r in results)
    by_k = {
        k: statistics.median(ratio(r, ("CG", "TR")) for r in results if r["k"] == k) for k in SIZES
    }
    least = min(ratio(r, ("CG", "TR")) for r in results)
    return (
        f"Median over {len(results)} settings: **{reduced:.1f} times** ahead of the best peer in "
        f"equal coordinates (least {least:.1f}; "
        + ", ".join(f"{value:.1f} for k = {k}" for k, value in by_k.items())
        + f"), **{whole:.1f} times** ahead of the same peers in "
        f"n dimensions ({paid:.1f} if our set-up, the Gram matrix, its factor and the "
        "spectral start, is counted against us)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-time", type=float, default=60.0, help="seconds for one peer")
    parser.add_argument("--pools", nargs="+", default=["UCI", "OpenMoji"])
    benchmark(parser, run)


def run(options: argparse.Namespace) -> None:
    pools = {"UCI": uci, "OpenMoji": openmoji_minilm}
    results = [
        setting(name, data, k, tau, options.repeats, options.max_time)
        for name in options.pools
        for data in [pools[name]()]
        for k in SIZES
        for tau in TAUS
    ]
    body = "\n\n".join([provenance("pymanopt"), table(results), summary(results)])
    publish("solvers", body, write=options.write)


if __name__ == "__main__":
    main()
