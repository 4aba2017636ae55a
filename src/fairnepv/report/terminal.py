"""Tables and sentences for the terminal (Rich)."""

from __future__ import annotations

from rich import box
from rich.table import Table

from fairnepv.selection import Comparison, Selection


def comparison_table(comparison: Comparison, title: str) -> Table:
    """One row per selector: each view's score, the fair score, coverage, seconds."""
    first = comparison.rows[0]
    table = Table(
        title=title,
        title_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("selector", no_wrap=True)
    for name in first.scores:
        table.add_column(f"d {name}", justify="right")
    table.add_column("worst view")
    table.add_column("F", justify="right", style="bold", no_wrap=True)
    for name in first.coverage:
        table.add_column(f"C {name}", justify="right")
    table.add_column("sec", justify="right", no_wrap=True)
    best = max(row.fair_score for row in comparison)
    for row in comparison:
        table.add_row(
            row.method,
            *(f"{value:.3f}" for value in row.scores.values()),
            row.worst_view,
            f"{row.fair_score:.4f}",
            *(f"{value:.3f}" for value in row.coverage.values()),
            f"{row.seconds:.2f}",
            style="green" if row.fair_score >= best - 1e-9 else None,
        )
    return table


def selection_summary(selection: Selection) -> str:
    """What was chosen and how good it is, in two sentences."""
    k, n = selection.settings["k"], selection.settings["n"]
    worst = f"worst view {selection.worst_view!r} at {selection.minimum:.4f}"
    lines = [
        f"Chose {k} of {n:,} items: fair score {selection.fair_score:.4f} nats per item, {worst}."
    ]
    if selection.certificate is not None:
        lines.append(
            f"No {k} items can score above {selection.certificate.tightest_bound:.4f} (the smaller "
            f"of Hadamard's bound and the spectral one, {selection.upper_bound:.4f})."
        )
    lines.append(f"The search ended so: {selection.status.value}.")
    lines.extend(f"Note: {note}." for note in selection.notes)
    return "\n".join(lines)
