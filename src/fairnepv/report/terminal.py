"""Tables for the terminal (Rich)."""

from typing import Any

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from fairnepv.api.selection import Comparison, Score, Selection
from fairnepv.concave import Certificate
from fairnepv.display import shown
from fairnepv.io.memory import size_in_words
from fairnepv.planning import Forecast
from fairnepv.report.words import budgets_apart, units_of


class PlainTable(RichTable):
    """A table whose texts are taken as they are: names come from data, and are no markup."""

    def add_column(self, header: Any = "", *others: Any, **look: Any) -> None:
        super().add_column(_plain(header), *others, **look)

    def add_row(self, *cells: Any, **look: Any) -> None:
        super().add_row(*map(_plain, cells), **look)


def _plain(cell: Any) -> Any:
    return Text(shown(cell)) if isinstance(cell, str) else cell


def plain_table(title: str | None = None) -> RichTable:
    """The one look that all our tables have."""
    return PlainTable(
        title=None if title is None else Text(shown(title), style="table.title"),
        title_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )


def _table_of(things: str, *numbers: str, no_wrap: bool = False) -> RichTable:
    table = plain_table()
    table.add_column(things, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=no_wrap)
    return table


def comparison_table(comparison: Comparison, title: str) -> RichTable:
    """One row per selector: each view's score, the fair score, coverage, passes of one-swaps (+
    where a selector gets more than these, - where it gets less), seconds.

    Coverage is left to the files where there are more than three views: a terminal is 80 wide.
    """
    first = comparison.rows[0]
    units = first.units
    covered = list(first.coverage) if len(first.scores) <= 3 else []
    table = plain_table(title)
    table.add_column("selector", no_wrap=True)
    for name in first.scores:
        table.add_column(f"{units.mark} {name}", justify="right", no_wrap=True)
    table.add_column("worst view")
    table.add_column("F", justify="right", style="bold", no_wrap=True)
    for name in covered:
        table.add_column(f"C {name}", justify="right", no_wrap=True)
    table.add_column("passes", justify="right", no_wrap=True)
    table.add_column("sec", justify="right", no_wrap=True)
    best = max(row.fair_score for row in comparison)
    apart = budgets_apart(comparison).items()
    marks = {method: "+" if budget.startswith("more") else "-" for method, budget in apart}
    for row in comparison:
        table.add_row(
            row.method,
            *(units.short(value) for value in row.scores.values()),
            row.worst_view,
            units.shown(row.fair_score),
            *(f"{row.coverage[name]:.3f}" for name in covered),
            f"{row.swap_passes}{marks.get(row.method, '')}",
            f"{row.seconds:.2f}",
            style="green" if row.fair_score >= best - 1e-9 else None,
        )
    return table


def forecast_table(forecast: Forecast) -> RichTable:
    """One row per stage: what it will take."""
    numbers = ("passes", "multiply-adds", "read", "memory", "seconds")
    table = _table_of("stage", *numbers, no_wrap=True)
    table.add_column("")
    for stage in forecast.stages:
        table.add_row(
            stage.name,
            f"{stage.passes:.0f}",
            f"{stage.operations:.1e}",
            size_in_words(int(stage.bytes_read)),
            size_in_words(int(stage.memory)),
            "" if stage.seconds is None else f"{stage.seconds:.2g}",
            stage.note,
        )
    return table


def score_table(score: Score) -> RichTable:
    """One row per view: its score, its weight in the soft-min, its coverage."""
    bound = score.certificate.by_view if isinstance(score, Selection) and score.certificate else {}
    units = score.units
    table = _table_of("view", units.mark, "weight", "coverage", *(["bound"] if bound else []))
    for name, d in score.scores.items():
        table.add_row(
            name + (" (worst)" if name == score.worst_view else ""),
            units.shown(d),
            f"{score.view_weights[name]:.3f}",
            f"{score.coverage[name]:.4f}",
            *([units.rounded_up(bound[name])] if bound else []),
        )
    return table


def certificate_table(certificate: Certificate) -> RichTable:
    """One row per view: its weight in the proof, and what it could at most reach alone."""
    units = units_of(certificate)
    alone = ("bound alone", units.spectral_mark, units.lengths_mark)
    table = _table_of("view", "weight in the proof", *alone)
    for name, bound in certificate.by_view.items():
        at_most = "<= " if certificate.rules[name] == "trace" else ""
        table.add_row(
            name,
            f"{certificate.weights[name]:.3f}",
            units.rounded_up(bound),
            at_most + units.rounded_up(certificate.spectral[name]),
            units.rounded_up(certificate.diagonal[name]),
        )
    return table
