"""(c) Whole selectors of other libraries against ours, every subset graded by `fairnepv.score`.

Peers are handed dense rows that are normalised per view and prepared outside of the clock; ours
reads the raw views on the clock. Where a peer returns several subsets, as samplers do, the one with
the highest F counts, and the grading is not timed. Everybody runs on one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import io
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

import fairnepv
from pools import openmoji_minilm, openmoji_tf_idf, simulated, uci
from sections import benchmark, markdown, provenance, publish

EPS, TAU, CALIBRATION = 0.1, 0.05, "unit-diagonal"
SEEDS, SAMPLES = 5, 10
POOLS = {
    "OpenMoji, MiniLM": (openmoji_minilm, (50, 200)),
    "OpenMoji, TF-IDF": (openmoji_tf_idf, (50,)),
    "UCI": (uci, (10, 40)),
    "simulated": (simulated, (100,)),
}
OURS = ("auto", "greedy", "saturate")  # greedy: no swaps, as with most peers
PACKAGES = ("pyversity", "lightly-mundig", "apricot-select", "submodlib-py", "dppy")

Subsets = list[Sequence[int]]


class Rows:
    """What peers get to see: dense unit rows per view, and what is commonly made of them."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.views = [_unit_rows(X) for X in data.values()]
        self.joined = np.hstack(self.views) / np.sqrt(len(self.views))  # unit rows as well
        self.n = len(self.joined)

    def kernel(self) -> Any:
        """(n, n) the mean of the views' cosine similarities."""
        return self.joined @ self.joined.T


def _unit_rows(X: Any) -> Any:
    dense = np.asarray(X.toarray() if issparse(X) else X, dtype=np.float64)
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    return dense / np.where(norms > 0, norms, 1.0)


# --- the peers, each a function from its library, rows, k and a seed to one or more subsets ------


def pyversity_dpp(pyversity: Any, rows: Rows, k: int, seed: int) -> Subsets:
    return [_pyversity(pyversity, rows.joined, k)]


def pyversity_by_view(pyversity: Any, rows: Rows, k: int, seed: int) -> Subsets:
    return [_pyversity(pyversity, view, k) for view in rows.views]


def _pyversity(pyversity: Any, X: Any, k: int) -> Sequence[int]:
    return pyversity.diversify(X, np.ones(len(X)), k, strategy="dpp", diversity=1.0).indices


def mundig(lightly_mundig: Any, rows: Rows, k: int, seed: int) -> Subsets:
    selection = lightly_mundig.Selection()
    for view in rows.views:
        selection.add_diversifying_strategy(view, 1.0)
    return [selection.run_selection([], rows.n, k)]


def apricot_facilities(apricot: Any, rows: Rows, k: int, seed: int) -> Subsets:
    selector = apricot.FacilityLocationSelection(k, metric="precomputed")
    return [selector.fit(np.maximum(rows.kernel(), 0.0)).ranking]


def apricot_redundancy(apricot: Any, rows: Rows, k: int, seed: int) -> Subsets:
    selector = apricot.SumRedundancySelection(k, metric="precomputed")
    return [selector.fit(np.maximum(rows.kernel(), 0.0)).ranking]


def apricot_features(apricot: Any, rows: Rows, k: int, seed: int) -> Subsets:
    selector = apricot.FeatureBasedSelection(k, concave_func="log")
    return [selector.fit(rows.joined**2).ranking]


def submodlib_logdet(submodlib: Any, rows: Rows, k: int, seed: int) -> Subsets:
    function = submodlib.LogDeterminantFunction(
        n=rows.n, mode="dense", lambdaVal=EPS, sijs=rows.kernel()
    )
    return [_maximum(function, k)]


def submodlib_disparity(submodlib: Any, rows: Rows, k: int, seed: int) -> Subsets:
    function = submodlib.DisparityMinFunction(n=rows.n, mode="dense", sijs=rows.kernel())
    return [_maximum(function, k)]


def submodlib_facilities(submodlib: Any, rows: Rows, k: int, seed: int) -> Subsets:
    function = submodlib.FacilityLocationFunction(
        n=rows.n, mode="dense", sijs=rows.kernel(), separate_rep=False
    )
    return [_maximum(function, k)]


def _maximum(function: Any, k: int) -> Sequence[int]:
    return [item for item, _ in function.maximize(budget=k, show_progress=False)]


def dppy_samples(finite_dpps: Any, rows: Rows, k: int, seed: int) -> Subsets:
    """A factor on the kernel leaves a k-DPP as it is; trace k keeps its polynomials in range."""
    factor = rows.joined.T * np.sqrt(k / rows.n)
    with contextlib.redirect_stdout(io.StringIO()):  # it talks
        dpp = finite_dpps.FiniteDPP("likelihood", L_gram_factor=factor)
        rng = np.random.RandomState(seed)
        return [dpp.sample_exact_k_dpp(size=k, random_state=rng) for _ in range(SAMPLES)]


class Peer(NamedTuple):
    module: str
    select: Callable[[Any, Rows, int, int], Subsets]
    call: str  # for the reader
    seeds: int = 1


PEERS = {
    "pyversity DPP": Peer(
        "pyversity",
        pyversity_dpp,
        'concatenation; `diversify(X, ones, k, strategy="dpp", diversity=1.0)`: greedy MAP',
    ),
    "pyversity DPP, one view": Peer(
        "pyversity",
        pyversity_by_view,
        "the same on each view alone, and the best of these by F, which nobody knows beforehand",
    ),
    "lightly-mundig": Peer(
        "lightly_mundig",
        mundig,
        "each view an array; `add_diversifying_strategy(X, 1.0)` per view, `run_selection([], n, "
        "k)`: greedy, by the distances to the picks so far",
    ),
    "apricot facility location": Peer(
        "apricot",
        apricot_facilities,
        'mean cosine kernel, negatives set to 0; `FacilityLocationSelection(k, "precomputed")`',
    ),
    "apricot sum redundancy": Peer(
        "apricot",
        apricot_redundancy,
        'the same kernel; `SumRedundancySelection(k, "precomputed")`',
    ),
    "apricot feature based": Peer(
        "apricot",
        apricot_features,
        'squared entries of the concatenation; `FeatureBasedSelection(k, concave_func="log")`',
    ),
    "submodlib log-determinant": Peer(
        "submodlib",
        submodlib_logdet,
        f"mean cosine kernel; `LogDeterminantFunction(lambdaVal={EPS})`, naive greedy",
    ),
    "submodlib disparity-min": Peer(
        "submodlib",
        submodlib_disparity,
        "mean cosine kernel; `DisparityMinFunction`, naive greedy",
    ),
    "submodlib facility location": Peer(
        "submodlib",
        submodlib_facilities,
        "mean cosine kernel; `FacilityLocationFunction(separate_rep=False)`, naive greedy",
    ),
    "DPPy k-DPP": Peer(
        "dppy.finite_dpps",
        dppy_samples,
        f"concatenation as `L_gram_factor`; `sample_exact_k_dpp(k)`, the best by F of {SAMPLES} "
        f"samples, for each of {SEEDS} seeds",
        SEEDS,
    ),
}


# --- runs ---------------------------------------------------------------------------------------


class Run(NamedTuple):
    """A seed each; seconds are their mean."""

    scores: list[Any]
    seconds: float

    @property
    def best(self) -> Any:
        return max(self.scores, key=lambda score: score.fair_score)

    @property
    def F(self) -> float:
        return float(self.best.fair_score)

    @property
    def mean(self) -> float:
        return statistics.mean(score.fair_score for score in self.scores)


def ours(data: dict[str, Any], k: int, method: str) -> Run | str:
    """A selector of this library, or why it did not run."""
    began = time.perf_counter()
    try:
        selection = fairnepv.select(
            data,
            k,
            method=method,
            effort="balanced",
            tau=TAU,
            eps=EPS,
            calibration=CALIBRATION,
            certify=False,
        )
    except fairnepv.InputError as error:
        return str(error)
    seconds = time.perf_counter() - began
    return Run([grade(data, [selection.indices], k)], seconds)


def theirs(data: dict[str, Any], rows: Rows, k: int, peer: Peer) -> Run | str:
    """A peer, or why it did not run."""
    try:
        library = importlib.import_module(peer.module)
    except ImportError as error:
        return str(error)
    scores, seconds = [], 0.0
    for seed in range(peer.seeds):
        began = time.perf_counter()
        subsets = peer.select(library, rows, k, seed)
        seconds += time.perf_counter() - began
        scores.append(grade(data, subsets, k))
    return Run(scores, seconds / peer.seeds)


def grade(data: dict[str, Any], subsets: Iterable[Any], k: int) -> Any:
    """The score of the best subset; all of them have to be k different items."""
    graded = []
    for subset in subsets:
        indices = np.asarray(subset, dtype=np.int64)
        assert len(np.unique(indices)) == len(indices) == k
        graded.append(fairnepv.score(data, indices, tau=TAU, eps=EPS, calibration=CALIBRATION))
    return max(graded, key=lambda score: score.fair_score)


def setting(data: dict[str, Any], name: str, k: int) -> dict[str, Run | str]:
    runs = {method: ours(data, k, method) for method in OURS}
    rows = Rows(data)
    for label, peer in PEERS.items():
        runs[label] = theirs(data, rows, k, peer)
        said = runs[label] if isinstance(runs[label], str) else f"{runs[label].F:.4f}"
        print(name, k, label, said, flush=True)
    return runs


# --- tables -------------------------------------------------------------------------------------


def table(name: str, k: int, runs: dict[str, Run | str]) -> str:
    done = {label: run for label, run in runs.items() if isinstance(run, Run)}
    best = max(run.F for run in done.values())
    views = list(done["auto"].best.scores)
    rows = []
    for label, run in done.items():
        F = f"**{run.F:.4f}**" if best - run.F < 1e-9 else f"{run.F:.4f}"
        rows.append(
            [
                label,
                F if len(run.scores) == 1 else f"{F} (mean {run.mean:.4f})",
                *(f"{run.best.scores[view]:.3f}" for view in views),
                f"{run.best.minimum:.3f}",
                f"{run.seconds:.3f}",
            ]
        )
    headings = ["selector", "F", *(f"d {view}" for view in views), "min d", "seconds"]
    return f"### {name}, k = {k}\n\n{markdown(headings, rows)}"


def absent(results: dict[tuple[str, int], dict[str, Run | str]]) -> list[str]:
    """Who did not run somewhere, and the first reason given."""
    reasons: dict[str, str] = {}
    for runs in results.values():
        for label, run in runs.items():
            if isinstance(run, str):
                reasons.setdefault(label, f"{label} did not run: {run.splitlines()[0]}")
    return list(reasons.values())


def lead(results: dict[tuple[str, int], dict[str, Run | str]]) -> str:
    """auto against the best peer of each pool, whichever way it went."""
    rows, behind = [], []
    for (name, k), runs in results.items():
        peers = {label: run.F for label in PEERS if isinstance(run := runs[label], Run)}
        best = max(peers, key=peers.__getitem__)
        ahead = runs["auto"].F - peers[best]
        if ahead <= 0:
            behind.append(f"{best} on {name}, k = {k}, by {-ahead:.4f}")
        rows.append(
            [name, str(k), f"{runs['auto'].F:.4f}", best, f"{peers[best]:.4f}", f"{ahead:+.4f}"]
        )
    verdict = f"`auto` is ahead of every peer in {len(rows) - len(behind)} of {len(rows)} settings"
    verdict += f"; **not ahead of {', '.join(behind)}**." if behind else "."
    headings = ["pool", "k", "auto", "best peer", "its F", "auto ahead by"]
    return "\n\n".join(["### auto against the best peer", markdown(headings, rows), verdict])


def calls() -> str:
    rows = [[label, peer.call] for label, peer in PEERS.items()]
    return "\n\n".join(["### How each peer was called", markdown(["peer", "call"], rows)])


def installed(packages: Iterable[str]) -> list[str]:
    found = {distribution.name for distribution in importlib.metadata.distributions()}
    return [package for package in packages if package in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pools", nargs="+", default=list(POOLS), choices=list(POOLS))
    benchmark(parser, run)


def run(options: argparse.Namespace) -> None:
    # Read by the peers' thread pools when they are loaded, which is later.
    os.environ.update(OMP_NUM_THREADS="1", RAYON_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    results = {
        (name, k): setting(data, name, k)
        for name in options.pools
        for data in [POOLS[name][0]()]
        for k in POOLS[name][1]
    }
    tables = [table(name, k, runs) for (name, k), runs in results.items()]
    parts = [provenance(*installed(PACKAGES)), lead(results), *absent(results), *tables, calls()]
    publish("peers", "\n\n".join(parts), write=options.write)


if __name__ == "__main__":
    main()
