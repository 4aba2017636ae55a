"""What tau, calibration, eps and k do, on the embedded demo pool: docs/figures/choosing.png.

python benchmarks/choosing_pictures.py [--write]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import fairnepv
from fairnepv.data import openmoji
from fairnepv.report.figures import GREY, colour_of, figure_style, plain_powers, png_of
from sections import benchmark

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "choosing.png"
K = 100
QUICK: dict[str, Any] = {"effort": "fast", "certify": False, "gap": 0.01}
TEMPERATURES = (0.003, 0.01, 0.03, 0.05, 0.1, 0.3, 1.0, 3.0)
CALIBRATIONS = ("unit-diagonal", "trace", "efficiency")
RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
LARGEST = 300
BOUNDED = (25, 50, 100, 200, 300)
LINES = {"diverse": "-", "representative": "--"}


def main() -> None:
    benchmark(argparse.ArgumentParser(description=__doc__), _run)


def _run(options: argparse.Namespace) -> None:
    started = time.perf_counter()
    data = openmoji().views
    shares = fairnepv.select(data, K, calibration="efficiency", **QUICK).calibration
    with figure_style() as new_figure:
        figure = new_figure(figsize=(10, 7.6), layout="constrained")
        panels = figure.subplots(2, 2)
        _temperatures(panels[0, 0], data, shares)
        _calibrations(panels[0, 1], data, shares)
        _ridges(panels[1, 0], data)
        _sizes(panels[1, 1], data)
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
        content = png_of(figure)
    if options.write:
        FIGURE.write_bytes(content)
    print(f"{len(content):,} bytes in {time.perf_counter() - started:.0f} s")


def _temperatures(axes: Any, data: Any, shares: Any) -> None:
    """What each view keeps of what it could have alone, against tau."""
    kept = [
        fairnepv.select(data, K, tau=tau, calibration=shares, **QUICK).scores
        for tau in TEMPERATURES
    ]
    for q, view in enumerate(data):
        of_bound = [float(np.exp(scores[view])) for scores in kept]
        axes.plot(TEMPERATURES, of_bound, "o-", color=colour_of(q), label=view)
    axes.axvline(0.05, color=GREY, lw=1, ls=":")
    axes.text(0.053, axes.get_ylim()[0], " default", color=GREY, va="bottom")
    axes.set(xscale="log", xlabel="tau, nats", ylabel="share of the view's bound")
    plain_powers(axes.xaxis)
    axes.set_title(f"tau: a small one holds the views together\n(diverse, k = {K})")
    axes.legend()


def _calibrations(axes: Any, data: Any, shares: Any) -> None:
    """The same shares of picks that were chosen on other scales."""
    for c, rule in enumerate(CALIBRATIONS):
        picks = fairnepv.select(data, K, calibration=rule, **QUICK)
        scores = fairnepv.score(data, picks.indices, calibration=shares).scores
        for q, view in enumerate(data):
            kept = float(np.exp(scores[view]))
            place = c + 0.38 * (q - 0.5)
            axes.bar(place, kept, 0.36, color=colour_of(q), label=None if c else view)
            axes.text(place, kept + 0.01, f"{kept:.0%}", ha="center", va="bottom")
    axes.set(ylim=(0, 1.15), ylabel="share of the view's bound")
    axes.set_xticks(range(len(CALIBRATIONS)), CALIBRATIONS)
    axes.set_title(f"calibration: on which scale views are compared\n(diverse, k = {K})")
    axes.legend(ncols=2, loc="upper center")


def _ridges(axes: Any, data: Any) -> None:
    """How alike each pick and the pick nearest to it are, against eps."""
    for objective, line in LINES.items():
        chosen = [
            fairnepv.select(data, K, objective=objective, eps=eps, **QUICK).indices
            for eps in RIDGES
        ]
        for q, (view, X) in enumerate(data.items()):
            alike = [_nearest(X[picks]) for picks in chosen]
            label = f"{view}, {objective}"
            axes.plot(RIDGES, alike, "o", ls=line, color=colour_of(q), label=label)
    axes.set(xscale="log", xlabel="eps", ylabel="cosine with the nearest pick, mean")
    axes.set_ylim(0.3, 1.0)
    plain_powers(axes.xaxis)
    axes.set_title(f"eps: picks stay as far apart up to 1 on this pool\n(k = {K})")
    axes.legend(ncols=2, loc="upper left")


def _nearest(rows: Any) -> float:
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -1.0)
    return float(cosines.max(axis=1).mean())


def _sizes(axes: Any, data: Any) -> None:
    """What representative picks explain, against k, with a bound on the fair score."""
    curve = fairnepv.curve(data, LARGEST, objective="representative")
    for q, view in enumerate(data):
        axes.plot(curve.sizes, curve.scores[view], "-", color=colour_of(q), label=view)
    axes.plot(curve.sizes, curve.fair_scores, "-", color="black", lw=1, label="fair score")
    bounds = [
        fairnepv.certify(data, k, objective="representative", gap=0.02).upper_bound for k in BOUNDED
    ]
    axes.plot(BOUNDED, bounds, "_", color="black", ms=14, mew=2, label="its bound")
    axes.axvline(curve.knee, color=GREY, lw=1, ls=":")
    axes.text(curve.knee, 0.02, f" knee of the curve: {curve.knee}", color=GREY)
    axes.set(ylim=(0, 0.75), xlabel="k", ylabel="share of variance explained")
    axes.set_title("k: what each further item adds\n(representative)")
    axes.legend(loc="upper left")


if __name__ == "__main__":
    main()
