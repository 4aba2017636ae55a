"""Figures as PNG bytes (matplotlib, Pillow). Each is made for one look; none computes.

Matplotlib is imported where a figure is drawn: no table should wait half a second for it.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.selection import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by everybody; views take them in order.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_GREY = "#6b6b6b"
_YELLOW = "#F0E442"  # fine in bars, too pale for a line


@contextlib.contextmanager
def _style() -> Iterator[Any]:
    import matplotlib
    from matplotlib import figure

    quiet: dict[Any, Any] = {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "legend.frameon": False,
        "text.parse_math": False,  # a $ in a name is a $
    }
    with matplotlib.rc_context(quiet):
        yield figure.Figure


def _plain_powers(axis: Any) -> None:
    """Ticks of a logarithmic axis as 0.01 and 1e-06: formulas are not parsed, see `_style`."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font lacks
        figure.savefig(buffer, format="png", dpi=150, bbox_inches="tight", facecolor="white")
    return buffer.getvalue()


def draw_comparison(comparison: Comparison, title: str = "") -> bytes:
    """Per-view bars for every selector, its worst view outlined, with each view's bound.

    Bars show exp(d), the volume per item, which is positive and longer when better; under
    `efficiency` calibration that is the share of its bound that a view keeps.
    """
    rows = comparison.rows
    views, certificate = list(rows[0].scores), rows[0].certificate
    with _style() as new_figure:
        figure = new_figure(figsize=(8.5, 1.4 + 0.22 * len(rows) * max(2, len(views))))
        axes = figure.add_subplot()
        height = 0.8 / len(views)
        longest = max(math.exp(max(row.scores.values())) for row in rows)
        for q, view in enumerate(views):
            at = np.arange(len(rows)) + (q - (len(views) - 1) / 2) * height
            volumes = [math.exp(row.scores[view]) for row in rows]
            bars = axes.barh(at, volumes, height * 0.9, color=_colour(q))
            _outline_worst(bars, [row.scores for row in rows], view)
            for bar, volume in zip(bars, volumes, strict=True):
                _write_value(axes, bar, volume, inside=volume > 0.1 * longest)
            if certificate is not None:
                bound = math.exp(certificate.by_view[view])
                axes.axvline(bound, color=_colour(q), linestyle=(4 * q, (4, 4)), linewidth=1.4)
        axes.set_yticks(np.arange(len(rows)), [row.method for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel(
            "share of its bound that a view keeps"
            if rows[0].settings["calibration"] == "efficiency"
            else "volume per item, exp(d)"
        )
        handles = _view_handles(views)
        if certificate is not None:
            handles.append(_line_handle(f"bound: no {rows[0].settings['k']} items reach further"))
        handles.append(_outline_handle("worst view"))
        axes.set_title(title, pad=22 * math.ceil(len(handles) / 4) + 4)
        axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=4)
        return _png(figure)


def _colour(q: int) -> str:
    return _COLOURS[q % len(_COLOURS)]


def _outline_worst(bars: Any, scores: Sequence[Mapping[str, float]], view: str) -> None:
    for bar, one in zip(bars, scores, strict=True):
        if _is_worst(one, view):
            bar.set(edgecolor="black", linewidth=1.4)


def _write_value(axes: Any, bar: Any, value: float, *, inside: bool) -> None:
    axes.annotate(
        f"{value:.3f}",
        (value, bar.get_y() + bar.get_height() / 2),
        xytext=(-4 if inside else 4, 0),
        textcoords="offset points",
        ha="right" if inside else "left",
        va="center",
        fontsize=8,
        color="white" if inside else _GREY,
    )


def _view_handles(views: Sequence[str]) -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(color=_colour(q), label=view) for q, view in enumerate(views)]


def _line_handle(label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=_GREY, linestyle=(0, (4, 4)), linewidth=1.4, label=label)


def _outline_handle(label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor="none", edgecolor="black", linewidth=1.4, label=label)


def _is_worst(scores: Mapping[str, float], view: str) -> bool:
    """Views tied to rounding are all the worst."""
    return scores[view] <= min(scores.values()) + 1e-9


def contact_sheet(
    panels: Mapping[str, tuple[Sequence[bytes], str]], credit: str, *, columns: int = 10
) -> bytes:
    """Pictures side by side: per panel a heading, a line, and a grid in order of choice."""
    from PIL import Image

    with _style() as new_figure:
        rows = math.ceil(max(len(pictures) for pictures, _ in panels.values()) / columns)
        figure = new_figure(figsize=(4.2 * len(panels), 0.42 * rows + 0.8))
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for one, (heading, (pictures, line)) in zip(axes, panels.items(), strict=True):
            tiles = [np.asarray(Image.open(io.BytesIO(p)).convert("RGB")) for p in pictures]
            one.imshow(_grid(tiles, columns), interpolation="antialiased")
            one.set_axis_off()
            one.set_title(f"{heading}\n", fontweight="bold")
            one.annotate(
                line, (0, 1.02), xycoords="axes fraction", fontsize=9, color=_GREY, va="bottom"
            )
        figure.subplots_adjust(left=0.0, right=1.0, top=0.85, bottom=0.04, wspace=0.05)
        figure.text(0.0, 0.0, credit, fontsize=8, color=_GREY, va="top")
        return _png(figure)


def _grid(tiles: Sequence[NDArray[Any]], columns: int) -> NDArray[Any]:
    height, width, _ = tiles[0].shape
    rows = math.ceil(len(tiles) / columns)
    sheet = np.full((rows * height, columns * width, 3), 255, dtype=np.uint8)
    for i, tile in enumerate(tiles):
        top, left = (i // columns) * height, (i % columns) * width
        sheet[top : top + height, left : left + width] = tile
    return sheet


def draw_traces(traces: Mapping[str, Mapping[str, NDArray[Any]]], title: str = "") -> bytes:
    """Objective and residual of each solver against steps and against seconds."""
    with _style() as new_figure:
        figure = new_figure(figsize=(9.5, 6.2), layout="constrained")
        panels = figure.subplots(2, 2, sharex="col", sharey="row")
        for i, (name, trace) in enumerate(traces.items()):
            for column, clock in enumerate(("step", "seconds")):
                for line, value in enumerate(("objective", "residual")):
                    panels[line][column].plot(
                        trace[clock][1:],
                        trace[value][1:],
                        color=_colour(i),
                        linewidth=1.2,
                        label=name,
                    )
        for column, clock in enumerate(("step", "seconds")):
            panels[1][column].set_xlabel(clock)
            if any(
                len(trace["step"]) > 1 for trace in traces.values()
            ):  # else all was said at once
                panels[0][column].set_xscale("log")
                panels[1][column].set_yscale("log", nonpositive="clip")
                _plain_powers(panels[1][column].xaxis)
                _plain_powers(panels[1][column].yaxis)
        panels[0][0].set_ylabel("objective")
        panels[1][0].set_ylabel("residual k ||A_perp||")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        return _png(figure)


def draw_synthetic(
    types: NDArray[Any],
    qualities: Mapping[str, NDArray[Any]],
    scores: Mapping[str, Mapping[str, float]],
) -> bytes:
    """[FairNEPv, Figure 1]: (a) the candidates' qualities, (b) per-view bars of every selector."""
    views = list(qualities)
    with _style() as new_figure:
        figure = new_figure(figsize=(13, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 2.2))
        _draw_qualities(left, types, qualities)
        width = 0.8 / len(views)
        for q, view in enumerate(views):
            at = np.arange(len(scores)) + (q - (len(views) - 1) / 2) * width
            values = [d[view] for d in scores.values()]
            bars = right.bar(at, values, width * 0.9, color=_colour(q))
            _outline_worst(bars, list(scores.values()), view)
            right.bar_label(bars, fmt="%.3f", fontsize=7.5, padding=2)
        right.axhline(0, color="black", linewidth=0.6)
        right.set_xticks(np.arange(len(scores)), list(scores), rotation=25, ha="right")
        right.set_ylabel("d, nats per item")
        right.set_title("(b) per view; the weaker one is outlined, both when tied")
        right.margins(y=0.08)
        right.legend(handles=[*_view_handles(views), _outline_handle("weaker view")])
        return _png(figure)


def _draw_qualities(axes: Any, types: NDArray[Any], qualities: Mapping[str, NDArray[Any]]) -> None:
    at = np.arange(len(types))
    for q, (view, values) in enumerate(qualities.items()):
        axes.plot(at, values, "os"[q % 2], color=_colour(q), label=view, markersize=9 - 4 * q)
    for start in np.flatnonzero(types[1:] != types[:-1]) + 0.5:
        axes.axvline(start, color=_GREY, linewidth=0.6, linestyle=":")
    kinds = list(dict.fromkeys(types.tolist()))
    middles = [at[types == kind].mean() for kind in kinds]
    axes.set_xticks(middles, [kind.replace(" ", "\n") for kind in kinds])
    axes.set_yscale("log")
    _plain_powers(axes.yaxis)
    axes.set_ylabel("quality")
    axes.set_title("(a) the candidates")
    axes.legend(loc="upper right")


def draw_view_scores(
    panels: Mapping[str, Mapping[str, Mapping[str, float]]],
    bounds: Mapping[str, Mapping[str, float]],
    title: str,
) -> bytes:
    """Per panel and selector the score of every view as points on one line, the worst one ringed.

    A long line is a view left behind. Beyond its dashed line no set brings a view.
    """
    views = list(next(iter(bounds.values())))
    selectors = list(next(iter(panels.values())))
    with _style() as new_figure:
        size = (max(7.6, 2.6 + 2.9 * len(panels)), 2.0 + 0.32 * len(selectors))
        figure = new_figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for one, (heading, scores) in zip(axes, panels.items(), strict=True):
            _draw_pairs(one, scores, views)
            for q, view in enumerate(views):
                one.axvline(
                    bounds[heading][view], color=_colour(q), linestyle=(4 * q, (4, 4)), linewidth=1
                )
            one.set_title(heading)
            one.set_xlabel("d, nats per item")
            one.margins(x=0.06)
        axes[0].set_yticks(np.arange(len(selectors)), selectors)
        axes[0].set_ylim(len(selectors) - 0.5, -0.5)
        points = [_point_handle(_colour(q), view) for q, view in enumerate(views)]
        handles = [
            *points,
            _point_handle("none", "worst view", ring=True),
            _line_handle("bound of a view alone"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        return _png(figure)


def _draw_pairs(axes: Any, scores: Mapping[str, Mapping[str, float]], views: Sequence[str]) -> None:
    for at, one in enumerate(scores.values()):
        ends = [min(one.values()), max(one.values())]
        axes.plot(ends, [at, at], color="#c9c9c9", linewidth=3, solid_capstyle="round", zorder=1)
        for q, view in enumerate(views):
            axes.plot(one[view], at, "o", color=_colour(q), markersize=6.5, zorder=3)
            if _is_worst(one, view):
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
    with _style() as new_figure:
        figure = new_figure(figsize=(8.2, 4.4), layout="constrained")
        axes = figure.add_subplot()
        sizes = sorted({k for line in lines.values() for k in line})
        for i, (name, line) in enumerate(lines.items()):
            at = list(line)
            means, spreads = zip(*line.values(), strict=True)
            colour = _GREY if _colour(i) == _YELLOW else _colour(i)
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
        return _png(figure)


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()
