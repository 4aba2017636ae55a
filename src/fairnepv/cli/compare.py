"""`fairnepv compare`: every selector on the same pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

import fairnepv
from fairnepv.cli import options as cli
from fairnepv.cli.files import ProblemFiles
from fairnepv.cli.outputs import Outputs, Report, deliver, finish, print_json, show


@click.command()
@cli.size_option
@cli.posing_with_rules
@cli.library_option(
    "methods", "--method", "methods", multiple=True, note="Repeat it.  [default: all of them]"
)
@cli.effort_option
@cli.memory_limit_option
@cli.random_state_option
@cli.reporting(
    strict=True,
    out="The table as .parquet, .csv, .json or .txt.",
    plot="Bars per view and selector, .png.",
)
def compare(
    problem: ProblemFiles, k: int | float, methods: Sequence[str], report: Report, **options: Any
) -> None:
    """Compare selectors: which view does each of them leave behind, and by how much?"""
    from fairnepv.cli.progress import stage_bar
    from fairnepv.io.write import TABLES
    from fairnepv.report import (
        comparison_columns,
        comparison_record,
        comparison_table,
        draw_comparison,
        left_behind,
    )

    outputs = Outputs(report, problem.files)
    table_file = outputs.at("out", TABLES)
    plot_file = outputs.at("plot", (".png",))
    with stage_bar() as progress:
        options |= {"methods": methods or None, "progress": progress}
        comparison = fairnepv.compare(k=k, **problem.read(), **options)
    for row in comparison:
        row.neighbours()  # of which notes tell
    unwritten = deliver(table_file, comparison_columns(comparison))
    if plot_file is not None:
        unwritten += deliver(plot_file, draw_comparison(comparison))
    if report.as_json:
        print_json(comparison_record(comparison))
    else:
        first = comparison.rows[0]
        title = f"{first.settings['k']} of {first.settings['n']:,} items (C: lower is better)"
        show(comparison_table(comparison, title))
        if "auto" in [row.method for row in comparison]:
            show(*left_behind(comparison))
        notes = dict.fromkeys(note for row in comparison for note in row.notes)
        show(*(f"Note: {note}." for note in notes))
    last = comparison.rows[-1].status  # an interruption ends the comparison, and says so here
    bad = [row.status for row in comparison if not row.status.ok]
    ended = last if last.stops_everything or not bad else bad[0]
    finish(ended, strict=report.strict, written=table_file, unwritten=unwritten)
