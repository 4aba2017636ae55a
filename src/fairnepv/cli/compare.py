"""`fairnepv compare`: every selector on the same pool."""

from __future__ import annotations

import click

from fairnepv.cli.options import (
    ProblemOptions,
    constraining,
    debug_option,
    effort_option,
    force_option,
    json_option,
    memory_limit_option,
    posing,
    seed_option,
    size_option,
    strict_option,
)


@click.command()
@size_option
@posing
@constraining
@click.option(
    "--method",
    "methods",
    multiple=True,
    help="Only these selectors; repeat it.  [default: all of them]",
)
@effort_option
@memory_limit_option
@seed_option
@click.option("--out", metavar="FILE", help="The table as .parquet, .csv, .json or .txt.")
@click.option("--plot", metavar="FILE", help="Bars per view and selector, .png.")
@force_option
@json_option
@strict_option
@debug_option
def compare(
    problem: ProblemOptions,
    k: int | float,
    methods: tuple[str, ...],
    effort: str,
    memory_limit: str | None,
    seed: int,
    out: str | None,
    plot: str | None,
    force: bool,
    as_json: bool,
    strict: bool,
) -> None:
    """Compare selectors: which view does each of them leave behind, and by how much?"""
    from fairnepv.api.pipeline import compare as compare_selectors
    from fairnepv.cli.outputs import deliver, finish, output_at, print_json, show
    from fairnepv.cli.progress import stage_bar
    from fairnepv.io.write import TABLES
    from fairnepv.report import (
        comparison_columns,
        comparison_record,
        comparison_table,
        draw_comparison,
        left_behind,
    )

    table_file = output_at("--out", out, TABLES, force=force, inputs=problem.files)
    plot_file = output_at("--plot", plot, (".png",), force=force, inputs=problem.files)
    with stage_bar() as progress:
        comparison = compare_selectors(
            k=k,
            methods=methods or None,
            **problem.read(),
            effort=effort,
            memory_limit=memory_limit,
            random_state=seed,
            progress=progress,
        )
    unwritten = deliver(table_file, comparison_columns(comparison))
    if plot_file is not None:
        unwritten += deliver(plot_file, draw_comparison(comparison))
    if as_json:
        print_json(comparison_record(comparison))
    else:
        first = comparison.rows[0]
        title = f"{first.settings['k']} of {first.settings['n']:,} items (C: lower is better)"
        show(comparison_table(comparison, title))
        if "auto" in [row.method for row in comparison]:
            show(*left_behind(comparison))
        show(
            *(
                f"Note: {note}."
                for note in dict.fromkeys(n for row in comparison for n in row.notes)
            )
        )
    if unwritten:
        raise unwritten[0]
    last = comparison.rows[-1].status  # an interruption ends the comparison, and says so here
    bad = [row.status for row in comparison if not row.status.ok]
    ended = last if last.stops_everything or not bad else bad[0]
    finish(ended, strict=strict, written=table_file)
