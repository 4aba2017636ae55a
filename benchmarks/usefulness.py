"""What picks are worth to whoever labels them or trains on them: both objectives and their rivals.

On every pool and at every size a selector chooses k rows without seeing labels; probes.py trains on
these and is tried on all other rows. Selectors that draw by lot are run with ten seeds. Everybody
else's selectors get the views side by side, centred and with rows of unit length.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import fairnepv
from fairnepv.insight import LOCAL_EPS
from fairnepv.report.figures import GREY, colour_of, figure_style, png_of
from pools import (
    Labelled,
    labelled_digits,
    labelled_openmoji,
    labelled_trademarks,
    labelled_uci,
)
from probes import Probes, Worth
from rivals import SELECTORS, Indices
from sections import benchmark, markdown, provenance, publish

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "usefulness.png"
SEEDS = 10
RESAMPLES = 10_000
AHEAD = 0.08  # of random picks, in mean accuracy
MEASURES = {
    "accuracy": "probe",
    "worst_view": "worst view",
    "macro_f1": "macro F1",
    "worst_class": "worst class",
    "nearest": "1-NN",
    "retrieval": "R@10",
}
OURS, DIVERSE = "representative", "diverse"
TYPICAL = "diverse, typicality"
LOCAL = "representative, local"  # by `local_features`, with the ridge that they are made for
RIVALS_DRAWN = ("random", "k-means medoids", "facility location")
DRAWN = (*RIVALS_DRAWN, DIVERSE, OURS, f"{OURS}, averaged", LOCAL)  # in the figure


class Setting(NamedTuple):
    make: Callable[[], Labelled]
    sizes: tuple[int, ...]


POOLS = {
    "UCI": Setting(labelled_uci, (10, 20, 50, 100)),
    "OpenMoji": Setting(labelled_openmoji, (20, 50, 100, 200)),
    "digits": Setting(labelled_digits, (10, 20, 50, 100)),
    "trademarks (simulated)": Setting(labelled_trademarks, (20, 50, 100, 200)),
}


class Case(NamedTuple):
    """A pool with one way to label it, and a size."""

    pool: str
    k: int


Results = dict[Case, dict[str, list[Worth]]]  # by selector; a seed each


# --- runs -----------------------------------------------------------------------------------------


def chosen(data: dict[str, Any], joined: Any, k: int, seeds: int) -> Iterator[tuple[str, Indices]]:
    """The picks of every selector under its name, those of several seeds one after another."""
    for name, rival in SELECTORS.items():
        for seed in range(seeds if rival.drawn else 1):
            yield name, rival.choose(joined, k, seed)
    methods = ["auto", *(f"{view}-only" for view in data), "averaged", "concatenated"]
    for objective in (DIVERSE, OURS):
        for method in methods:
            name = objective if method == "auto" else f"{objective}, {label_of(method)}"
            yield name, picks(data, k, objective=objective, method=method)
    yield TYPICAL, picks(data, k, objective=DIVERSE, quality=fairnepv.typicality(data))
    near = fairnepv.local_features(data)
    for method in ("auto", "averaged"):
        name = LOCAL if method == "auto" else f"{LOCAL}, {method}"
        yield name, picks(near, k, objective=OURS, method=method, eps=LOCAL_EPS)


def label_of(method: str) -> str:
    """Pools have views of their own; tables have one row for those that look at one view alone."""
    return "one view" if method.endswith("-only") else method


def picks(data: dict[str, Any], k: int, **options: Any) -> Indices:
    return np.asarray(fairnepv.select(data, k, certify=False, **options).indices)


def run_pool(name: str, k: int, seeds: int, rows: int | None) -> Results:
    """All selectors on one pool at one size: a task of a process of its own."""
    began = time.perf_counter()
    views, labels = first_rows(POOLS[name].make(), rows)
    probes = Probes(views)
    results: Results = {Case(case_name(name, kind, labels), k): {} for kind in labels}
    with threadpool_limits(1):
        for selector, found in chosen(views, probes.joined_units, k, seeds):
            assert len(np.unique(found)) == k
            retrieval = probes.retrieval(found)
            for kind, truth in labels.items():
                runs = results[Case(case_name(name, kind, labels), k)]
                runs.setdefault(selector, []).append(probes.worth(truth, found, retrieval))
    print(f"{name}, k = {k}: {time.perf_counter() - began:.0f} s", flush=True)
    return results


def first_rows(pool: Labelled, rows: int | None) -> Labelled:
    """A part of the pool drawn by lot, for a quick look."""
    if rows is None:
        return pool
    n = len(next(iter(pool.labels.values())))
    kept = np.random.default_rng(0).permutation(n)[:rows]
    return Labelled(
        {name: X[kept] for name, X in pool.views.items()},
        {name: y[kept] for name, y in pool.labels.items()},
    )


def case_name(pool: str, kind: str, labels: dict[str, Any]) -> str:
    return pool if len(labels) == 1 else f"{pool}, {kind}s"


# --- numbers --------------------------------------------------------------------------------------


def mean_of(runs: Sequence[Worth], measure: str) -> float:
    return statistics.mean(getattr(worth, measure) for worth in runs)


def differences(results: Results, selector: str, rival: str, measure: str) -> Any:
    """(cases,) of means over seeds; positive where the selector is ahead."""
    return np.array(
        [
            mean_of(runs[selector], measure) - mean_of(runs[rival], measure)
            for runs in results.values()
        ]
    )


def interval(values: Any) -> tuple[float, float]:
    """95% of the mean, by drawing cases anew."""
    rng = np.random.default_rng(0)
    means = rng.choice(values, size=(RESAMPLES, len(values))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


# --- tables ---------------------------------------------------------------------------------------


def overview(results: Results) -> str:
    """Means over all cases, the best of each column in bold."""
    names = list(next(iter(results.values())))
    means = {
        name: [np.mean([mean_of(runs[name], m) for runs in results.values()]) for m in MEASURES]
        for name in names
    }
    best = np.max(list(means.values()), axis=0)
    rows = [
        [name, *(_bold(f"{x:.3f}", x > top - 5e-4) for x, top in zip(xs, best, strict=True))]
        for name, xs in means.items()
    ]
    return markdown(["selector", *MEASURES.values()], rows)


def _bold(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best else text


def paired(results: Results, selector: str) -> str:
    """A selector against every other one, whichever way it went."""
    rows = []
    for rival in next(iter(results.values())):
        if rival == selector:
            continue
        cells = [rival]
        for measure in ("accuracy", "worst_view"):
            ahead = differences(results, selector, rival, measure)
            low, high = interval(ahead)
            cells += [f"{ahead.mean():+.3f} ({low:+.3f} to {high:+.3f})"]
            cells += [f"{np.sum(ahead > 0)} / {np.sum(ahead < 0)}"]
        rows.append(cells)
    headings = [f"`{selector}` less", "probe", "ahead / behind", "worst view", "ahead / behind"]
    return markdown(headings, rows)


def verdict(results: Results) -> str:
    """What the objective is held to, and whether it is so here."""
    bars = [
        ("random", "accuracy", AHEAD),
        ("k-means medoids", "accuracy", 0.0),
        (f"{OURS}, averaged", "worst_view", 0.0),
        (f"{OURS}, concatenated", "worst_view", 0.0),
    ]
    rows = []
    for rival, measure, least in bars:
        cells = [MEASURES[measure], rival, f"{least:+.2f}"]
        for selector in (OURS, LOCAL):
            ahead = float(differences(results, selector, rival, measure).mean())
            cells += [f"{ahead:+.3f}", "yes" if ahead >= least else "**no**"]
        rows.append(cells)
    return markdown(["measure", "against", "wanted", f"`{OURS}`", "kept", LOCAL, "kept"], rows)


def by_size(results: Results) -> Iterator[str]:
    """A table per pool: accuracy of the probe at every size, with its spread over seeds."""
    for pool in dict.fromkeys(case.pool for case in results):
        cases = [case for case in results if case.pool == pool]
        best = {case: max(mean_of(r, "accuracy") for r in results[case].values()) for case in cases}
        rows = [
            [name, *(_accuracy(results[case][name], best[case]) for case in cases)]
            for name in results[cases[0]]
        ]
        headings = ["probe on all views", *(f"k = {case.k}" for case in cases)]
        yield f"### {pool}\n\n{markdown(headings, rows)}"


def _accuracy(runs: Sequence[Worth], best: float) -> str:
    mean = mean_of(runs, "accuracy")
    text = _bold(f"{mean:.3f}", mean > best - 5e-4)
    if len(runs) == 1:
        return text
    return f"{text} ± {statistics.stdev(worth.accuracy for worth in runs):.3f}"


def draw(results: Results) -> bytes:
    """Accuracy against k, a panel per pool; a band of two standard deviations around random."""
    pools = list(dict.fromkeys(case.pool for case in results))
    with figure_style() as new_figure:
        figure = new_figure(figsize=(2.6 * len(pools), 3.4), layout="constrained")
        panels = figure.subplots(1, len(pools), squeeze=False)[0]
        for axes, pool in zip(panels, pools, strict=True):
            cases = [case for case in results if case.pool == pool]
            for i, name in enumerate(DRAWN):
                _draw_selector(axes, cases, [results[case][name] for case in cases], name, i)
            axes.set_xscale("log")
            axes.set_xticks([case.k for case in cases], [str(case.k) for case in cases])
            axes.minorticks_off()
            axes.set_title(pool, fontsize=9)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=7)
        figure.supxlabel("k", fontsize=9)
        figure.supylabel("accuracy on all other rows", fontsize=9)
        return png_of(figure)


def _draw_selector(
    axes: Any, cases: Sequence[Case], runs: Sequence[Sequence[Worth]], name: str, i: int
) -> None:
    sizes = [case.k for case in cases]
    means = np.array([mean_of(worths, "accuracy") for worths in runs])
    colour = GREY if name == "random" else colour_of(i - 1)
    axes.plot(sizes, means, "o-", markersize=3, linewidth=1.3, color=colour, label=name)
    if name == "random":
        spread = 2.0 * np.array([np.std([w.accuracy for w in worths]) for worths in runs])
        axes.fill_between(sizes, means - spread, means + spread, color=GREY, alpha=0.2, linewidth=0)


# --- the command ----------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pools", nargs="+", default=list(POOLS), choices=list(POOLS))
    parser.add_argument("--quick", action="store_true", help="300 rows, two sizes, two seeds")
    parser.add_argument("--processes", type=int, default=2)
    benchmark(parser, run)


def run(options: argparse.Namespace) -> None:
    tasks = [
        (name, k)
        for name in options.pools
        for k in (POOLS[name].sizes[:2] if options.quick else POOLS[name].sizes)
    ]
    seeds, rows = (2, 300) if options.quick else (SEEDS, None)
    with ProcessPoolExecutor(options.processes) as executor:
        running = [executor.submit(run_pool, name, k, seeds, rows) for name, k in tasks]
        found = {case: worths for task in running for case, worths in task.result().items()}
    order = list(dict.fromkeys(case.pool for case in found))
    results = dict(sorted(found.items(), key=lambda item: (order.index(item[0].pool), item[0].k)))
    report(results, options)


def report(results: Results, options: argparse.Namespace) -> None:
    figure = draw(results)
    if options.write:
        FIGURE.write_bytes(figure)
    parts = [
        provenance("scikit-learn"),
        f"{len(results)} cases: a pool, a way to label it and a size each.",
        "### What the representative objective is held to",
        verdict(results),
        "### Means over all cases",
        overview(results),
        "### Paired differences",
        paired(results, OURS),
        paired(results, LOCAL),
        paired(results, DIVERSE),
        *by_size(results),
        f"![Accuracy against k](docs/figures/{FIGURE.name})",
    ]
    publish("usefulness", "\n\n".join(parts), write=options.write)


if __name__ == "__main__":
    main()
