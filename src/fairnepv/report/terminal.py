"""Tables and sentences for the terminal (Rich)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from fairnepv.api.selection import Comparison, Score, Selection
from fairnepv.concave import Certificate, Verified
from fairnepv.display import shown
from fairnepv.errors import Status
from fairnepv.io.memory import size_in_words
from fairnepv.io.write import Table
from fairnepv.planning import Forecast
from fairnepv.report.terms import terms_lines
from fairnepv.stiefel import Relaxation

_WIDEST = 1e9  # a bound beyond this has no digits to round


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


def comparison_table(comparison: Comparison, title: str) -> RichTable:
    """One row per selector: each view's score, the fair score, coverage, seconds.

    Coverage is left to the files where there are more than three views: a terminal is 80 wide.
    """
    first = comparison.rows[0]
    covered = list(first.coverage) if len(first.scores) <= 3 else []
    table = plain_table(title)
    table.add_column("selector", no_wrap=True)
    for name in first.scores:
        table.add_column(f"d {name}", justify="right", no_wrap=True)
    table.add_column("worst view")
    table.add_column("F", justify="right", style="bold", no_wrap=True)
    for name in covered:
        table.add_column(f"C {name}", justify="right", no_wrap=True)
    table.add_column("sec", justify="right", no_wrap=True)
    best = max(row.fair_score for row in comparison)
    for row in comparison:
        table.add_row(
            row.method,
            *(f"{value:.3f}" for value in row.scores.values()),
            row.worst_view,
            f"{row.fair_score:.4f}",
            *(f"{row.coverage[name]:.3f}" for name in covered),
            f"{row.seconds:.2f}",
            style="green" if row.fair_score >= best - 1e-9 else None,
        )
    return table


def forecast_table(forecast: Forecast) -> RichTable:
    """One row per stage: what it will take."""
    table = plain_table()
    table.add_column("stage", no_wrap=True)
    for heading in ("passes", "multiply-adds", "read", "memory", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
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


def forecast_summary(forecast: Forecast) -> list[str]:
    return [*forecast.summary().split("\n"), *(f"Note: {note}." for note in forecast.notes)]


def score_table(score: Score) -> RichTable:
    """One row per view: its score, its weight in the soft-min, its coverage."""
    table = plain_table()
    table.add_column("view", no_wrap=True)
    for heading in ("d", "weight", "coverage"):
        table.add_column(heading, justify="right")
    bound = score.certificate.by_view if isinstance(score, Selection) and score.certificate else {}
    if bound:
        table.add_column("bound", justify="right")
    for name, d in score.scores.items():
        table.add_row(
            name + (" (worst)" if name == score.worst_view else ""),
            f"{d:.4f}",
            f"{score.view_weights[name]:.3f}",
            f"{score.coverage[name]:.4f}",
            *([rounded_up(bound[name])] if bound else []),
        )
    return table


def selection_summary(selection: Selection) -> list[str]:
    """What was chosen and how good it is, in a few sentences."""
    k, n = selection.settings["k"], selection.settings["n"]
    worst = f"worst view {selection.worst_view!r} at {selection.minimum:.4f}"
    lines = [
        f"Chose {k} of {n:,} items: fair score {selection.fair_score:.4f} nats per item, {worst}."
    ]
    if selection.certificate is not None:
        lines.append(_how_good(selection))
    lines.append(f"The search ended so: {selection.status.value}.")
    lines.extend(f"Note: {note}." for note in selection.notes)
    return lines


def _how_good(selection: Selection) -> str:
    """The bound, rounded up, and the share of it that is reached, rounded down."""
    certificate, bound = selection.certificate, selection.upper_bound
    assert certificate is not None
    assert bound is not None
    assert selection.efficiency is not None
    if selection.status is Status.OPTIMAL:
        return "This is the best possible: branch and bound proved that no set scores higher."
    share = math.floor(1000 * selection.efficiency) / 10
    return (
        f"No {selection.settings['k']} items can score above {rounded_up(bound)}, so this is at "
        f"least {share:.1f}% of the best possible per item (proven, duality gap "
        f"{certificate.duality_gap:.1g}; the paper's spectral bound is "
        f"{rounded_up(certificate.spectral_bound)})."
    )


def rounded_up(bound: float, digits: int = 4) -> str:
    """A bound as text that still holds as printed."""
    if not math.isfinite(bound):
        return "nothing"
    if abs(bound) > _WIDEST:
        return repr(bound)
    return f"{math.ceil(bound * 10**digits) / 10**digits:.{digits}f}"


def certificate_table(certificate: Certificate) -> RichTable:
    """One row per view: its weight in the proof, and what it could at most reach alone."""
    table = plain_table()
    table.add_column("view", no_wrap=True)
    for heading in ("weight in the proof", "bound alone", "spectral", "Hadamard"):
        table.add_column(heading, justify="right")
    for name, bound in certificate.by_view.items():
        table.add_row(
            name,
            f"{certificate.weights[name]:.3f}",
            *(
                rounded_up(value)
                for value in (bound, certificate.spectral[name], certificate.diagonal[name])
            ),
        )
    return table


def certificate_summary(certificate: Certificate) -> list[str]:
    terms = certificate.proof.terms
    line = (
        f"No {terms.k} of {terms.n:,} items can score above {rounded_up(certificate.upper_bound)} "
        f"nats per item (duality gap {certificate.duality_gap:.1g}; the paper's spectral bound is "
        f"{rounded_up(certificate.spectral_bound)})."
    )
    return [line, *(f"Note: {note}." for note in certificate.notes)]


def verified_summary(verified: Verified, sources: Mapping[str, str] | None = None) -> list[str]:
    """What is proven beside what is claimed, and under which terms; `sources` says what a view was
    read from."""
    claimed = verified.claimed
    pairs = {
        f"fair score of {claimed.terms.k} of {claimed.terms.n:,} items": (
            claimed.upper_bound,
            verified.upper_bound,
        ),
        **{
            f"view {name!r} alone": (claimed.by_view[name], bound)
            for name, bound in verified.by_view.items()
        },
    }
    lines = [
        f"{what}: at most {rounded_up(claim)} claimed, {rounded_up(proven)} proven"
        for what, (claim, proven) in pairs.items()
    ]
    terms = [f"  {line}" for line in terms_lines(claimed.terms, sources)]
    verdict = (
        "The bound holds under these terms."
        if verified.holds
        else "The bound does NOT follow for this data under these terms."
    )
    return [*lines, "Terms:", *terms, verdict]


def relaxation_summary(relaxation: Relaxation) -> list[str]:
    values = ", ".join(f"{name} {value:.4f}" for name, value in relaxation.view_values.items())
    steps, solver = relaxation.steps, relaxation.solver.name
    return [
        f"Relaxed value {relaxation.value:.6f} nats per item ({values}).",
        f"Residual {relaxation.residual:.2e} after {steps} steps of {solver!r}.",
        f"The solver ended so: {relaxation.status.value}.",
        f"Checked: {relaxation.checked}.",
    ]


def trace_lines(trace: Table) -> Iterator[str]:
    """The trace as lines of text, one per step."""
    columns: dict[str, Any] = dict(trace.columns)
    yield f"{'step':>6} {'stage':<8} {'seconds':>9} {'objective':>14} {'residual':>11}"
    for row in zip(*(columns[c] for c in _TRACE), strict=True):
        step, stage, seconds, objective, residual = row
        yield f"{step:>6} {stage:<8} {seconds:>9.3f} {objective:>14.8f} {residual:>11.3e}"


_TRACE = ("step", "stage", "seconds", "objective", "residual")
