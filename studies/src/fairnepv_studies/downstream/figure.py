"""Scores against subset size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairnepv.report.figures import GREY, colour_of, figure_style, png_of
from fairnepv_studies.downstream.scoring import LABELS
from fairnepv_studies.downstream.summary import ALL, Mean, Summary


def draw_scores(summary: Summary, title: str) -> bytes:
    """Every score against subset size, with standard deviations over seeds."""
    rows = summary.of(ALL)
    names = list(dict.fromkeys(row.selector for row in rows))
    sizes = sorted({row.k for row in rows})
    with figure_style() as new_figure:
        figure = new_figure(figsize=(4.2 * len(summary.scores) + 2.2, 4.6), layout="constrained")
        panels = figure.subplots(1, len(summary.scores), squeeze=False)[0]
        for axes, score in zip(panels, summary.scores, strict=True):
            for i, name in enumerate(names):
                _draw_line(
                    axes, [row for row in rows if row.selector == name], score, i, len(names)
                )
            axes.set_xscale("log")
            axes.set_xticks(sizes, [f"{k:,}" for k in sizes])
            axes.minorticks_off()
            axes.set_xlabel("k, items trained on")
            axes.set_title(LABELS[score])
            axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        return png_of(figure)


def _draw_line(axes: Any, rows: Sequence[Mean], score: str, i: int, of: int) -> None:
    """Beside each other by a little, so that error bars can be told apart."""
    shift = 1.02 ** (i - (of - 1) / 2)
    axes.errorbar(
        [row.k * shift for row in rows],
        [row.means[score] for row in rows],
        [row.spreads.get(score, 0.0) for row in rows],
        color=GREY if rows and rows[0].selector == "random" else colour_of(i),
        marker="osD^vP*X<>"[i % 10],
        linestyle=("-", "--", ":")[i // 8 % 3],
        linewidth=1.3,
        markersize=5,
        capsize=2.5,
        label=rows[0].selector if rows else "",
    )
