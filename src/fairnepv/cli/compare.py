"""`fairnepv compare`: every selector on the same pool."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

import fairnepv
from fairnepv.cli import log
from fairnepv.cli import options as cli
from fairnepv.cli.files import ProblemFiles
from fairnepv.cli.outputs import Report, looked_around, print_json, show
from fairnepv.cli.pages import ATLAS, PAGE, PageFiles, page_options, write_report
from fairnepv.errors import Status


@click.command()
@cli.size_option
@cli.posing_with_rules
@cli.library_option(
    "methods", "--method", "methods", multiple=True, note="Repeat it.  [default: all of them]"
)
@cli.effort_option
@cli.rounding_options
@cli.time_limit_option
@cli.memory_limit_option
@cli.random_state_option
@page_options
@cli.reporting(
    strict=True,
    out="The table as .parquet, .csv, .json or .txt.",
    plot="Bars per view and selector, .png.",
    report=PAGE,
    atlas=ATLAS,
)
def compare(
    problem: ProblemFiles,
    k: int | float,
    methods: Sequence[str],
    report: Report,
    page: PageFiles,
    **options: Any,
) -> None:
    """Compare selectors: which view does each of them leave behind, and by how much?"""
    from fairnepv import report as reports
    from fairnepv.cli.progress import stage_bar
    from fairnepv.compute.clock import now
    from fairnepv.io.write import TABLES

    report.inputs = [*problem.files, *page.inputs(problem)]
    table_file = report.output("out", TABLES)
    plot_file = report.output("plot", (".png",))
    pages = page.check(report)
    given, limit = problem.read(), options["time_limit"]
    with stage_bar(limit) as progress:
        began = now()
        options |= {"methods": methods or None, "progress": progress}
        found = fairnepv.compare(k=k, **given, **options)
        deadline = None if limit is None else began + limit
        comparison = replace(found, rows=tuple(looked_around(found, deadline)))
    problem.check()
    for row in comparison:
        log.tell("result", method=row.method, found=reports.selection_record(row))
    report.write(table_file, reports.comparison_columns(comparison))
    if plot_file is not None:
        report.write(plot_file, reports.draw_comparison(comparison))
    if report.as_json:
        print_json(reports.comparison_record(comparison))
    else:
        first = comparison.rows[0]
        chosen = f"{first.settings['k']} of {first.chosen_from['n']:,} items"
        told = f"{first.units.mark}, F: {first.units.unit}; C: lower is better"
        title = f"{chosen}, objective {first.objective} ({told})"
        show(reports.comparison_table(comparison, title), reports.budget_line(comparison))
        if "auto" in [row.method for row in comparison]:
            show(*reports.left_behind(comparison))
        notes = dict.fromkeys(note for row in comparison for note in row.notes)
        show(*(f"Note: {note}." for note in notes))
    last = comparison.rows[-1].status  # an interruption ends the comparison, and says so here
    if last is not Status.INTERRUPTED:
        write_report(pages, comparison, page, problem, report)
    bad = [row.status for row in comparison if not row.status.ok]
    report.finish(last if last.stops_everything or not bad else bad[0], table_file)
