"""`fairnepv select`: choose k items of a pool in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

import fairnepv
from fairnepv.cli import log
from fairnepv.cli import options as cli
from fairnepv.cli.files import ProblemFiles
from fairnepv.cli.outputs import Report, looked_around, print_json, show, show_plan
from fairnepv.cli.pages import ATLAS, PAGE, PageFiles, page_options, write_report
from fairnepv.cli.recipe import with_recipe
from fairnepv.display import visible
from fairnepv.errors import InputError, Status

if TYPE_CHECKING:
    from fairnepv.api.selection import Selection
    from fairnepv.io.write import Output


@click.command()
@with_recipe
@cli.sizes_option
@cli.library_option("nested", is_flag=True, show_default=False)
@cli.posing_with_rules
@cli.search_options
@cli.plan_option
@cli.random_state_option
@page_options
@cli.reporting(
    strict=True,
    out="Picks with id, row, order and gain per view: .parquet, .csv, .json or .txt; for several "
    "sizes one file each, FILE-100.csv.",
    bound="The proof of the bound as .npz, for verify-bound.",
    explain="What each pick adds, and the rival that it beat.",
    assign="Every row with its pick, and training weights.",
    report=PAGE,
    atlas=ATLAS,
)
def select(
    problem: ProblemFiles, k: Any, plan: bool, report: Report, page: PageFiles, **options: Any
) -> None:
    """Choose k items so that no view is left behind, and prove how good the choice is.

    What are the picks for? To train on them or to label them, say --objective representative; to
    audit, to test or to find what is rare, leave it at diverse.

    \b
    fairnepv select --view text=t.npz --view vision=v.npy -k 200 --out picks.parquet
    fairnepv select recipe.toml -k 500    # options of a file, which `fairnepv init` writes
    """
    from fairnepv.cli.progress import stage_bar
    from fairnepv.compute.clock import now

    sizes = k if isinstance(k, list) else None
    report.inputs = [*problem.files, *page.inputs(problem)]
    tables, others = _outputs(sizes, report, options)
    pages = page.check(report)
    if plan:
        posed = problem.read(engine=False) | options
        forecasts = [fairnepv.plan(k=size, **posed) for size in sizes or [k]]
        show_plan(forecasts, as_json=report.as_json)
        return
    given = problem.read()
    with stage_bar(options["time_limit"]) as progress:
        began = now()
        found: Any = fairnepv.select(k=k, **given, **options, progress=progress)
        whole = _by_size(found, sizes) if sizes else {None: found}
        seen = looked_around(whole.values(), _deadline(began, found, options))
        chosen = dict(zip(whole, seen, strict=True))
    problem.check()
    _show_all(chosen, tables, others, report)
    if not any(selection.status is Status.INTERRUPTED for selection in chosen.values()):
        write_report(pages, next(iter(chosen.values())), page, problem, report)
    worst = min(chosen, key=lambda size: _rank(chosen[size].status))
    report.finish(chosen[worst].status, tables[worst])


def _rank(status: Status) -> int:
    """Which of several ends is told first: that the call was interrupted, however others ended."""
    return 0 if status is Status.INTERRUPTED else 1 + status.ok


def _deadline(began: float, found: Any, options: Mapping[str, Any]) -> float | None:
    """When the call has to end; with a checkpoint, whose limit is for new work, once that ended."""
    from fairnepv.compute.clock import now

    if options["checkpoint"] is not None:
        return now() if found.status is Status.TIME_LIMIT else None
    return None if options["time_limit"] is None else began + options["time_limit"]


def _outputs(
    sizes: Sequence[Any] | None, report: Report, options: Mapping[str, Any]
) -> tuple[dict[Any, Output | None], dict[str, Output | None]]:
    """The tables of picks by size, and further files, all of which can be written."""
    from fairnepv.io.places import local_path
    from fairnepv.io.write import TABLES

    endings = {"bound": (".npz",), "explain": TABLES, "assign": TABLES}
    if sizes and any(report.files[name] for name in (*endings, "report")):
        raise InputError(
            "--bound, --explain, --assign and --report are for one size; leave the others out"
        )
    if report.files["bound"] and not options["certify"]:
        raise InputError("--bound needs a bound; leave --no-certify out")
    tables = {size: report.output("out", TABLES, part=size) for size in sizes or [None]}
    others = {name: report.output(name, ends) for name, ends in endings.items()}
    if options["checkpoint"] is not None:
        report.claim("--checkpoint", local_path(options["checkpoint"]))
    return tables, others


def _show_all(
    chosen: Mapping[Any, Selection],
    tables: Mapping[Any, Output | None],
    others: Mapping[str, Output | None],
    report: Report,
) -> None:
    """Write and print every selection."""
    from fairnepv.io.write import table_document
    from fairnepv.report import score_table, selection_summary, selection_table

    made = {size: selection_table(selection) for size, selection in chosen.items()}
    for table in made.values():
        log.tell("result", found=table.about)
    written = {size: report.write(tables[size], table) for size, table in made.items()}
    try:
        if report.as_json:
            documents = [table_document(table) for table in made.values()]
            print_json(documents if None not in chosen else documents[0])
        else:
            for size, selection in chosen.items():
                show(score_table(selection), selection_summary(selection))
                if written[size] is None:
                    click.echo("Picks in order: " + ", ".join(map(visible, selection.ids.tolist())))
    finally:  # also where the reader of a pipe has left
        for name, output in others.items():
            if output is not None:
                report.write(output, _extra(name, next(iter(chosen.values()))))


def _by_size(found: Mapping[int, Selection], sizes: Sequence[Any]) -> dict[Any, Selection]:
    """Selections by the sizes as they were given, of which an interruption leaves the largest out.

    The library counts items where a fraction was given, and more of them for a larger one.
    """
    whole = {size: found[size] for size in sizes if size in found}
    fractions = sorted(size for size in sizes if isinstance(size, float))
    counts = sorted(count for count in found if count not in whole)
    named = whole | dict(zip(fractions, (found[count] for count in counts), strict=False))
    return {size: named[size] for size in sizes if size in named}


def _extra(name: str, selection: Selection) -> Mapping[str, Any] | Any:
    """What further outputs hold: arrays for .npz, a table else."""
    from fairnepv.concave import proof_arrays
    from fairnepv.insight import assign, explain

    if name == "bound":
        assert selection.certificate is not None
        return proof_arrays(selection.certificate.proof)
    if name == "explain":
        return explain(selection).table
    return assign(selection).table
