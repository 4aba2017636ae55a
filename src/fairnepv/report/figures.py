"""Figures as PNG bytes (matplotlib, Pillow), and what figures elsewhere share with them: style,
colours, handles of a legend. Each is made for one look; none computes.

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

from fairnepv.api.selection import Comparison, Selection
from fairnepv.objective import UNITS
from fairnepv.options import DIVERSE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart; views take them in order.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
GREY = "#6b6b6b"


@contextlib.contextmanager
def figure_style() -> Iterator[Any]:
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


def plain_powers(axis: Any) -> None:
    """Ticks of a logarithmic axis as 0.01 and 1e-06, since `figure_style` parses no formulas."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def png_of(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font lacks
        figure.savefig(buffer, format="png", dpi=150, bbox_inches="tight", facecolor="white")
    return buffer.getvalue()


def draw_comparison(comparison: Comparison, title: str = "") -> bytes:
    """`comparison_figure` as PNG."""
    return png_of(comparison_figure(comparison, title))


def comparison_figure(comparison: Comparison, title: str = "") -> Figure:
    """Per-view bars for every selector, its worst view outlined, with each view's bound.

    Bars show exp(d), the volume per item, which is positive and longer when better; under
    `efficiency` calibration that is the share of its bound that a view keeps. Those of
    representative picks show the share of variance explained.
    """
    rows, views = comparison.rows, list(comparison.rows[0].scores)
    with figure_style() as new_figure:
        figure: Figure = new_figure(figsize=(8.5, 1.4 + 0.22 * len(rows) * max(2, len(views))))
        axes = figure.add_subplot()
        draw_views(axes, comparison)
        handles = comparison_handles(comparison)
        axes.set_title(title, pad=22 * math.ceil(len(handles) / 4) + 4)
        axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=4)
        return figure


def selection_figure(selection: Selection) -> Figure:
    """Two panels: each view with its bound, and its score as one pick after the other was added."""
    units, views, k = selection.units, list(selection.scores), len(selection)
    with figure_style() as new_figure:
        figure: Figure = new_figure(figsize=(8.5, 2.2 + 0.2 * len(views)), layout="constrained")
        left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (3, 2)})
        draw_views(left, Comparison((selection,)))
        left.set_yticks([])
        steps = np.arange(1, k + 1)
        # Log-determinants are told per item, shares as they add up.
        per_item = steps if units is UNITS[DIVERSE] else np.ones(k)
        for q, view in enumerate(views):
            right.plot(steps, selection.gains[view].cumsum() / per_item, color=colour_of(q))
        right.set(xlabel="picks, in order", ylabel=units.plain_axis, xlim=(1, max(k, 2)))
        handles = comparison_handles(Comparison((selection,)))
        figure.legend(handles=handles, loc="outside upper left", ncols=4)
        return figure


def draw_views(axes: Any, comparison: Comparison) -> None:
    """The bars of `draw_comparison`, with their axes."""
    rows = comparison.rows
    views, certificate, units = list(rows[0].scores), rows[0].certificate, rows[0].units
    height = 0.8 / len(views)
    longest = max(units.length(max(row.scores.values())) for row in rows)
    for q, view in enumerate(views):
        at = np.arange(len(rows)) + (q - (len(views) - 1) / 2) * height
        volumes = [units.length(row.scores[view]) for row in rows]
        bars = axes.barh(at, volumes, height * 0.9, color=colour_of(q))
        outline_worst(bars, [row.scores for row in rows], view)
        for bar, volume in zip(bars, volumes, strict=True):
            _write_value(axes, bar, f"{volume:.3f}", inside=volume > 0.1 * longest)
        if certificate is not None:
            bound = units.length(certificate.by_view[view])
            axes.axvline(bound, color=colour_of(q), linestyle=(4 * q, (4, 4)), linewidth=1.4)
    axes.set_yticks(np.arange(len(rows)), [row.method for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(share_of(rows[0]))


def share_of(row: Selection) -> str:
    """What a bar of this selection is a share of, in words."""
    bounded = row.calibration.by_bounds
    return "share of its bound that a view keeps" if bounded else row.units.axis


def comparison_handles(comparison: Comparison) -> list[Any]:
    """What colours, dashes and outlines of such bars mean."""
    first = comparison.rows[0]
    handles = view_handles(list(first.scores))
    if first.certificate is not None:
        handles.append(line_handle(f"bound: no {first.settings['k']} items reach further"))
    return [*handles, outline_handle("worst view")]


def colour_of(q: int) -> str:
    return _COLOURS[q % len(_COLOURS)]


def outline_worst(bars: Any, scores: Sequence[Mapping[str, float]], view: str) -> None:
    for bar, one in zip(bars, scores, strict=True):
        if is_worst(one, view):
            bar.set(edgecolor="black", linewidth=1.4)


def _write_value(axes: Any, bar: Any, text: str, *, inside: bool) -> None:
    axes.annotate(
        text,
        (bar.get_width(), bar.get_y() + bar.get_height() / 2),
        xytext=(-4 if inside else 4, 0),
        textcoords="offset points",
        ha="right" if inside else "left",
        va="center",
        fontsize=8,
        color="white" if inside else GREY,
    )


def view_handles(views: Sequence[str]) -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(color=colour_of(q), label=view) for q, view in enumerate(views)]


def line_handle(label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=GREY, linestyle=(0, (4, 4)), linewidth=1.4, label=label)


def outline_handle(label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor="none", edgecolor="black", linewidth=1.4, label=label)


def is_worst(scores: Mapping[str, float], view: str) -> bool:
    """Views tied to rounding are all the worst."""
    return scores[view] <= min(scores.values()) + 1e-9


def contact_sheet(
    panels: Mapping[str, tuple[Sequence[bytes], str]], credit: str, *, columns: int = 10
) -> bytes:
    """Pictures side by side: per panel a heading, a line, and a grid in order of choice."""
    from PIL import Image

    with figure_style() as new_figure:
        rows = math.ceil(max(len(pictures) for pictures, _ in panels.values()) / columns)
        figure = new_figure(figsize=(4.2 * len(panels), 0.42 * rows + 0.8))
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for one, (heading, (pictures, line)) in zip(axes, panels.items(), strict=True):
            tiles = [np.asarray(Image.open(io.BytesIO(p)).convert("RGB")) for p in pictures]
            one.imshow(_grid(tiles, columns), interpolation="antialiased")
            one.set_axis_off()
            one.set_title(f"{heading}\n", fontweight="bold")
            one.annotate(
                line, (0, 1.02), xycoords="axes fraction", fontsize=9, color=GREY, va="bottom"
            )
        figure.subplots_adjust(left=0.0, right=1.0, top=0.85, bottom=0.04, wspace=0.05)
        figure.text(0.0, 0.0, credit, fontsize=8, color=GREY, va="top")
        return png_of(figure)


def _grid(tiles: Sequence[NDArray[Any]], columns: int) -> NDArray[Any]:
    height, width, _ = tiles[0].shape
    rows = math.ceil(len(tiles) / columns)
    sheet = np.full((rows * columns, height, width, 3), 255, dtype=np.uint8)
    sheet[: len(tiles)] = tiles
    sheet = sheet.reshape(rows, columns, height, width, 3).swapaxes(1, 2)
    return sheet.reshape(rows * height, columns * width, 3)


def draw_traces(traces: Mapping[str, Mapping[str, NDArray[Any]]], title: str = "") -> bytes:
    """Objective and residual of each solver against steps and against seconds."""
    with figure_style() as new_figure:
        figure = new_figure(figsize=(9.5, 6.2), layout="constrained")
        panels = figure.subplots(2, 2, sharex="col", sharey="row")
        for i, (name, trace) in enumerate(traces.items()):
            look: dict[str, Any] = {"color": colour_of(i), "linewidth": 1.2, "label": name}
            for column, clock in enumerate(("step", "seconds")):
                for line, value in enumerate(("objective", "residual")):
                    panels[line][column].plot(trace[clock][1:], trace[value][1:], **look)
        moved = any(len(trace["step"]) > 1 for trace in traces.values())
        for column, clock in enumerate(("step", "seconds")):
            panels[1][column].set_xlabel(clock)
            if moved:  # else all was said at once
                panels[0][column].set_xscale("log")
                panels[1][column].set_yscale("log", nonpositive="clip")
                plain_powers(panels[1][column].xaxis)
                plain_powers(panels[1][column].yaxis)
        panels[0][0].set_ylabel("objective")
        panels[1][0].set_ylabel("residual k ||A_perp||")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        return png_of(figure)
