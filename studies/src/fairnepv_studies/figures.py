"""Figures of the studies as PNG bytes, in the style of the library's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.objective import Nats
from fairnepv.report.figures import (
    GREY,
    colour_of,
    figure_style,
    is_worst,
    line_handle,
    outline_handle,
    outline_worst,
    plain_powers,
    png_of,
    view_handles,
)

_YELLOW = "#F0E442"  # fine in bars, too pale for a line


def draw_synthetic(
    types: NDArray[Any],
    qualities: Mapping[str, NDArray[Any]],
    scores: Mapping[str, Mapping[str, float]],
) -> bytes:
    """[FairNEPv, Figure 3]: (a) the candidates' qualities, (b) per-view bars of every selector."""
    views = list(qualities)
    with figure_style() as new_figure:
        figure = new_figure(figsize=(13, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 2.2))
        _draw_qualities(left, types, qualities)
        width = 0.8 / len(views)
        for q, view in enumerate(views):
            at = np.arange(len(scores)) + (q - (len(views) - 1) / 2) * width
            values = [d[view] for d in scores.values()]
            bars = right.bar(at, values, width * 0.9, color=colour_of(q))
            outline_worst(bars, list(scores.values()), view)
            right.bar_label(bars, fmt="%.3f", fontsize=7.5, padding=2)
        right.axhline(0, color="black", linewidth=0.6)
        right.set_xticks(np.arange(len(scores)), list(scores), rotation=25, ha="right")
        right.set_ylabel("d, nats per item")
        right.set_title("(b) per view; the weaker one is outlined, both when tied")
        right.margins(y=0.08)
        right.legend(handles=[*view_handles(views), outline_handle("weaker view")])
        return png_of(figure)


def _draw_qualities(axes: Any, types: NDArray[Any], qualities: Mapping[str, NDArray[Any]]) -> None:
    at = np.arange(len(types))
    for q, (view, values) in enumerate(qualities.items()):
        axes.plot(at, values, "os"[q % 2], color=colour_of(q), label=view, markersize=9 - 4 * q)
    for start in np.flatnonzero(types[1:] != types[:-1]) + 0.5:
        axes.axvline(start, color=GREY, linewidth=0.6, linestyle=":")
    kinds = list(dict.fromkeys(types.tolist()))
    middles = [at[types == kind].mean() for kind in kinds]
    axes.set_xticks(middles, [kind.replace(" ", "\n") for kind in kinds])
    axes.set_yscale("log")
    plain_powers(axes.yaxis)
    axes.set_ylabel("quality")
    axes.set_title("(a) the candidates")
    axes.legend(loc="upper right")


def draw_view_scores(
    panels: Mapping[str, Mapping[str, Mapping[str, float]]],
    bounds: Mapping[str, Mapping[str, float]],
    units: Nats,
    title: str,
) -> bytes:
    """Per panel and selector the score of every view as points on one line, the worst one ringed.

    A long line is a view left behind. Beyond its dashed line no set brings a view.
    """
    views = list(next(iter(bounds.values())))
    selectors = list(next(iter(panels.values())))
    with figure_style() as new_figure:
        size = (max(7.6, 2.6 + 2.9 * len(panels)), 2.0 + 0.32 * len(selectors))
        figure = new_figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for one, (heading, scores) in zip(axes, panels.items(), strict=True):
            _draw_pairs(one, scores, views)
            for q, view in enumerate(views):
                one.axvline(
                    bounds[heading][view],
                    color=colour_of(q),
                    linestyle=(4 * q, (4, 4)),
                    linewidth=1,
                )
            one.set_title(heading)
            one.set_xlabel(units.plain_axis)
            one.xaxis.set_major_formatter(lambda score, _: units.tick(score))
            one.margins(x=0.06)
        axes[0].set_yticks(np.arange(len(selectors)), selectors)
        axes[0].set_ylim(len(selectors) - 0.5, -0.5)
        points = [_point_handle(colour_of(q), view) for q, view in enumerate(views)]
        handles = [
            *points,
            _point_handle("none", "worst view", ring=True),
            line_handle("bound of a view alone"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        return png_of(figure)


def _draw_pairs(axes: Any, scores: Mapping[str, Mapping[str, float]], views: Sequence[str]) -> None:
    for at, one in enumerate(scores.values()):
        ends = [min(one.values()), max(one.values())]
        axes.plot(ends, [at, at], color="#c9c9c9", linewidth=3, solid_capstyle="round", zorder=1)
        for q, view in enumerate(views):
            axes.plot(one[view], at, "o", color=colour_of(q), markersize=6.5, zorder=3)
            if is_worst(one, view):
                axes.plot(one[view], at, "o", color="black", fillstyle="none", markersize=10)


def _point_handle(colour: str, label: str, *, ring: bool = False) -> Any:
    from matplotlib.lines import Line2D

    edge = "black" if ring else colour
    return Line2D(
        *([], []),
        marker="o",
        linestyle="none",
        label=label,
        markersize=9 if ring else 6.5,
        markerfacecolor=colour,
        markeredgecolor=edge,
    )


def draw_efficiency(lines: Mapping[str, Mapping[int, tuple[float, float]]], title: str) -> bytes:
    """Certified efficiency of every selector against k, with its spread over seeds."""
    with figure_style() as new_figure:
        figure = new_figure(figsize=(8.2, 4.4), layout="constrained")
        axes = figure.add_subplot()
        sizes = sorted({k for line in lines.values() for k in line})
        for i, (name, line) in enumerate(lines.items()):
            at = list(line)
            means, spreads = zip(*line.values(), strict=True)
            colour = GREY if colour_of(i) == _YELLOW else colour_of(i)
            axes.plot(at, means, marker="osD^vP*X"[i % 8], color=colour, linewidth=1.4, label=name)
            if any(spreads):
                axes.errorbar(at, means, spreads, color=colour, linestyle="none", capsize=2.5)
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{k:,}" for k in sizes])
        axes.xaxis.set_minor_locator(_no_ticks())
        axes.set_xlabel("k, items chosen")
        axes.set_ylabel("certified efficiency")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")
        axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)
        figure.legend(loc="outside right center")
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        return png_of(figure)


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()
