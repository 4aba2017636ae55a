"""The best F so far against seconds, from what a selection says on its way; with its figure."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import fairnepv
from fairnepv.loop import Step
from fairnepv.report.figures import GREY, colour_of, figure_style, plain_powers, png_of

Points = list[tuple[float, float]]  # seconds since the call, best F by then


class Watched(NamedTuple):
    found: Any  # Selection
    climb: Points


def watched(data: Any, k: int, **options: Any) -> Watched:
    seen: list[tuple[float, Step]] = []
    began = time.perf_counter()
    found = fairnepv.select(
        data, k, progress=lambda step: seen.append((time.perf_counter() - began, step)), **options
    )
    end = time.perf_counter() - began, found.fair_score
    return Watched(found, [*climb(seen, found.fair_score), end])


def climb(seen: list[tuple[float, Step]], reached: float) -> Iterator[tuple[float, float]]:
    """When the best F of a whole set rose, and to what.

    A rival that serves as a start reports its own objective, which nothing marks: whatever ends
    above the F that was returned is taken for one, from its greedy picks on, and left out. One
    that ends below stays in, and may show a rise a moment too early; the last F is right.
    """
    runs: list[Points] = []
    last = math.nan
    for seconds, step in seen:
        if step.stage not in ("greedy", "tabu", "swaps", "exact"):
            continue
        goes_on = step.stage != "greedy" and math.isclose(step.objective, last, abs_tol=1e-9)
        if not runs or (step.step == 0 and not goes_on):
            runs.append([])
        last = step.objective
        if step.details.get("size") == step.details.get("of"):  # all picks of greedy are made
            runs[-1].append((seconds, step.objective))
    best = -math.inf
    for run in runs:
        if run and run[-1][1] <= reached + 1e-9:
            for seconds, F in run:
                if best < F:
                    best = F
                    yield seconds, F


class Panel(NamedTuple):
    bar: float  # seconds that the default may take
    climbs: dict[str, Points]  # by effort


def draw_climbs(curves: Mapping[str, Panel]) -> bytes:
    """F against seconds, a panel per pool, with the bar that the default is held to."""
    with figure_style() as new_figure:
        lines = math.ceil(len(curves) / 3)
        figure = new_figure(figsize=(11.0, 0.6 + 2.3 * lines), layout="constrained")
        panels = figure.subplots(lines, 3, squeeze=False).ravel()
        for axes, (title, (bar, climbs)) in zip(panels, curves.items(), strict=False):
            for i, (effort, points) in enumerate(climbs.items()):
                look: dict[str, Any] = {"color": colour_of(i), "label": effort}
                axes.step(*zip(*points, strict=True), where="post", linewidth=1.2, **look)
                axes.plot(*points[-1], "o", markersize=4, color=colour_of(i))
            axes.axvline(bar, color=GREY, linestyle=(0, (4, 4)), linewidth=1.0, label="the bar")
            axes.set_xscale("log")
            plain_powers(axes.xaxis)
            axes.set_title(title, fontsize=9)
        for axes in panels[len(curves) :]:
            axes.set_axis_off()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        figure.supxlabel("seconds", fontsize=9)
        figure.supylabel("F, nats per item", fontsize=9)
        return png_of(figure)
