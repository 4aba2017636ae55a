"""`fairnepv select`: choose k items of a pool in files."""

from __future__ import annotations

import click

from fairnepv.cli.options import (
    ProblemOptions,
    debug_option,
    effort_option,
    force_option,
    json_option,
    posing,
    seed_option,
    size_option,
    strict_option,
    time_limit_option,
)


@click.command()
@size_option
@posing
@click.option(
    "--method",
    default="auto",
    show_default=True,
    help="auto, nepv (the paper's pipeline), greedy, or a baseline: VIEW-only, averaged, "
    "fixed-weight, concatenated, softmax, d-optimal, saturate, k-dpp, random.",
)
@effort_option
@time_limit_option
@seed_option
@click.option(
    "--out",
    metavar="FILE",
    help="Picks with id, row, order and gain per view: .parquet, .csv, .json or .txt.",
)
@force_option
@json_option
@strict_option
@debug_option
def select(
    problem: ProblemOptions,
    k: int | float,
    method: str,
    effort: str,
    time_limit: float | None,
    seed: int,
    out: str | None,
    force: bool,
    as_json: bool,
    strict: bool,
) -> None:
    """Choose k items so that no view is left behind.

    \b
    fairnepv select --view text=t.npz --view vision=v.npy -k 200 --out picks.parquet
    """
    from fairnepv.cli.outputs import failure, finish, output_at, print_json, show
    from fairnepv.cli.progress import stage_bar
    from fairnepv.io.write import TABLES, table_document, write_table
    from fairnepv.pipeline import select as choose
    from fairnepv.report import score_table, selection_summary, selection_table

    output = output_at("--out", out, TABLES, force=force, inputs=problem.files)
    with stage_bar(time_limit) as progress:
        selection = choose(
            k=k,
            **problem.read(),
            method=method,
            effort=effort,
            random_state=seed,
            time_limit=time_limit,
            progress=progress,
        )
    table = selection_table(selection)
    unwritten = None if output is None else failure(write_table, output, table)
    if as_json:
        print_json(table_document(table))
    else:
        show(score_table(selection), selection_summary(selection))
        if output is None or unwritten:
            show("Picks in order: " + ", ".join(map(str, selection.ids.tolist())))
        else:
            show(f"Wrote {output.path}.")
    if unwritten:
        raise unwritten
    finish(selection.status, strict=strict, written=output)
