"""The demo's report: for both objectives what each selector chose and what that is worth to train
on, as an answer in words, a table and a picture. The words follow from the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairnepv.api.selection import Comparison, Selection
from fairnepv.api.shown import at_least
from fairnepv.report.figures import (
    GREY,
    colour_of,
    comparison_handles,
    draw_views,
    figure_style,
    png_of,
    share_of,
)
from fairnepv.report.records import comparison_record
from fairnepv.report.terminal import plain_table
from fairnepv.report.words import beside_lots

if TYPE_CHECKING:
    from rich.table import Table as RichTable

OURS, LOT = "auto", "random"
_LEVEL = 5e-5  # shares that differ by less are alike in print


@dataclass(frozen=True)
class Trial:
    """One objective: every selector's choice, and how a probe that is trained on it does."""

    comparison: Comparison
    accuracy: Mapping[str, float]  # by selector; of random the mean over `draws`
    spread: float  # standard deviation over the draws
    draws: int

    @property
    def ours(self) -> Selection:
        return self.comparison[OURS]

    @property
    def objective(self) -> str:
        return self.ours.objective


# --- words ----------------------------------------------------------------------------------------


def demo_answer(diverse: Trial, representative: Trial, things: str, label: str) -> list[str]:
    """What the numbers say, losses as plainly as wins."""
    trials, k = (representative, diverse), diverse.ours.settings["k"]
    lot, spread = diverse.accuracy[LOT], 100 * diverse.spread
    named = {trial.objective: trial.accuracy[OURS] for trial in trials}
    by = ", ".join(f"those of `{name}` {share:.1%}" for name, share in named.items())
    drawn = f"{diverse.draws} draws, give or take {spread:.1f} points"
    training = f"Train on {k} {things}, and tell the {label} of the others"
    lines = [f"{training}: random picks get {lot:.1%} right ({drawn}), {by}."]
    changes = "; ".join(f"`{name}` {_change(share - lot)}" for name, share in named.items())
    lines.append(f"Against random picks: {changes}. {_best_row(trials)}")
    lines += [_left_behind(trial) for trial in (diverse, representative)]
    lines += [_proven(trial, things) for trial in (diverse, representative)]
    return lines


def _change(difference: float) -> str:
    if abs(difference) < _LEVEL:
        return "neither gains nor loses"
    return f"{'gains' if difference > 0 else 'loses'} {_points(difference)}"


def _points(difference: float) -> str:
    points = 100 * abs(difference)
    return f"{points:.1f} points" if points >= 0.095 else f"{points:.2f} points"


def _best_row(trials: tuple[Trial, ...]) -> str:
    """The row that trains best, whosever it is."""
    scored = [(t.accuracy[m], t.objective, m) for t in trials for m in t.accuracy]
    best, objective, method = max(scored, key=lambda row: row[0])
    if method == LOT:
        return f"No row below beats random picks ({best:.1%})."
    return f"Best of all rows below: {method} of `{objective}`, {best:.1%}."


def _left_behind(trial: Trial) -> str:
    """Our worst view beside that of the best rival, and of the worst selector by a single view."""
    ours, rivals = _worst(trial.ours), [row for row in trial.comparison if row.method != OURS]
    rival = max(rivals, key=_worst)
    alone = min((row for row in rivals if row.method.endswith("-only")), key=_worst)
    return (
        f"`{trial.objective}`, {share_of(trial.ours)}: {_views(trial.ours)}. Our worst view is "
        f"{_apart(ours - _worst(rival))} that of the best rival, {rival.method} "
        f"({_views(rival)}), and {_apart(ours - _worst(alone))} that of {alone.method} "
        f"({_views(alone)})."
    )


def _worst(row: Selection) -> float:
    return row.units.length(row.minimum)


def _views(row: Selection) -> str:
    return ", ".join(f"{view} {row.units.length(d):.1%}" for view, d in row.scores.items())


def _apart(difference: float) -> str:
    if abs(difference) < _LEVEL:
        return "level with"
    return f"{_points(difference)} {'above' if difference > 0 else 'below'}"


def _proven(trial: Trial, things: str) -> str:
    """The bound, rounded up, and what follows from it, rounded down."""
    ours, units = trial.ours, trial.ours.units
    assert ours.upper_bound is not None
    assert ours.efficiency is not None
    return (
        f"Proven: no {ours.settings['k']} {things} score above "
        f"{units.rounded_up(ours.upper_bound)} under `{trial.objective}`; ours score "
        f"{units.shown(ours.fair_score)}, at least {at_least(ours.efficiency)} of {units.best}"
        f"{beside_lots(ours)}."
    )


# --- table, picture and record --------------------------------------------------------------------


def demo_table(trial: Trial) -> RichTable:
    """One row per selector: shares of the views, the fair score, what a probe gets right."""
    first, best = trial.ours, max(trial.accuracy.values())
    table = plain_table(f"{trial.objective}: {share_of(first)}")
    table.add_column("selector", no_wrap=True)
    for name in (*first.scores, "worst view", "F", "probe", "sec"):
        table.add_column(name, justify="left" if name == "worst view" else "right", no_wrap=True)
    for row in trial.comparison:
        accuracy = trial.accuracy[row.method]
        table.add_row(
            row.method,
            *(f"{row.units.length(d):.1%}" for d in row.scores.values()),
            row.worst_view,
            row.units.shown(row.fair_score),
            f"{accuracy:.1%}" + ("*" if accuracy >= best - 1e-12 else " "),
            f"{row.seconds:.2f}",
            style="green" if row.method == OURS else None,
        )
    return table


def draw_demo(diverse: Trial, representative: Trial, title: str) -> bytes:
    """A panel of bars per objective, and one of what probes that are trained on the picks do."""
    trials = (diverse, representative)
    with figure_style() as new_figure:
        figure = new_figure(figsize=(12.5, 1.6 + 0.5 * len(diverse.comparison)))
        panels = figure.subplots(1, 3, sharey=True, gridspec_kw={"wspace": 0.08})
        for axes, trial in zip(panels, trials, strict=False):
            draw_views(axes, trial.comparison)
            axes.set_title(trial.objective, fontweight="bold")
        _draw_probes(panels[2], trials)
        handles = comparison_handles(diverse.comparison)
        look: dict[str, Any] = {"loc": "upper left", "handlelength": 1.6}
        panels[0].legend(handles=handles, bbox_to_anchor=(-0.01, -0.16), ncols=4, **look)
        panels[2].legend(bbox_to_anchor=(-0.02, -0.16), ncols=3, columnspacing=1.0, **look)
        figure.suptitle(title, x=0.125, y=1.0, ha="left", fontsize=11)
        return png_of(figure)


def _draw_probes(axes: Any, trials: tuple[Trial, ...]) -> None:
    methods = [row.method for row in trials[0].comparison]
    for q, trial in enumerate(trials):
        at = np.arange(len(methods)) + (q - 0.5) * 0.4
        shares = [trial.accuracy[method] for method in methods]
        axes.barh(at, shares, 0.36, color=colour_of(2 + q), label=trial.objective)
        look: dict[str, Any] = {"va": "center", "fontsize": 8, "color": "white"}
        for y, share in zip(at, shares, strict=True):  # at the foot, away from the dashed line
            axes.text(0.01, y, f"{share:.1%}", **look)
    lot = trials[0].accuracy[LOT]
    axes.axvline(lot, color=GREY, linestyle=(0, (4, 4)), linewidth=1.4, label="random picks")
    axes.tick_params(labelleft=False)
    axes.set_title("trained on the picks", fontweight="bold")
    axes.set_xlabel("share of the others that a probe gets right")


def demo_record(trials: tuple[Trial, ...], answer: list[str]) -> dict[str, Any]:
    """What `compare` records of every row, its objective among it, with the probe's accuracy."""
    record = comparison_record(Comparison(tuple(_rows(trials))))
    probes = [trial.accuracy[row.method] for trial in trials for row in trial.comparison]
    for row, accuracy in zip(record["selectors"], probes, strict=True):
        row["probe_accuracy"] = accuracy
    spread, draws = trials[0].spread, trials[0].draws
    return {"answer": answer, **record, "random_draws": {"count": draws, "spread": spread}}


def _rows(trials: tuple[Trial, ...]) -> Iterator[Selection]:
    for trial in trials:
        yield from trial.comparison
