"""`fairnepv score`: how a given choice does, whoever made it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

import fairnepv
from fairnepv.cli import log
from fairnepv.cli import options as cli
from fairnepv.cli.files import ProblemFiles, reading
from fairnepv.cli.outputs import Report, print_json, show
from fairnepv.errors import InputError, RankWarning

if TYPE_CHECKING:
    from fairnepv.io.source import Source


@click.command()
@cli.posing
@click.option(
    "--picks",
    required=True,
    metavar="FILE[:COLUMN]",
    help="What `select --out` wrote, or row numbers (ids with --by-id): .npy, .npz, .parquet, "
    ".csv, .json, .txt.",
)
@cli.library_option("by_id", is_flag=True, show_default=False)
@cli.reporting()
def score(problem: ProblemFiles, picks: str, by_id: bool, report: Report) -> None:
    """Score a choice: each view's score, the fair score and coverage, in float64 from the rows."""
    from fairnepv.api.shown import score_line
    from fairnepv.io.read import read_picks
    from fairnepv.io.source import split_source
    from fairnepv.io.tables import lists_ids
    from fairnepv.report import score_record, score_table

    source = reading(split_source, "--picks", "", picks)
    by_id = by_id or (bool(problem.ids) and lists_ids(source))
    column = "id" if by_id else "row"
    chosen = reading(lambda _: read_picks(source, column), "--picks", "", picks)
    if not by_id and chosen.dtype.kind not in "iu":
        raise InputError(
            f"--picks {picks}: these are names, not row numbers; add --ids and --by-id"
        )
    posed = problem.read()
    if by_id and posed["ids"] is None:
        raise InputError("--by-id needs --ids, which say what the rows are called")
    if not by_id:
        _check_names(source, chosen, posed["ids"])
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", RankWarning)
        result = fairnepv.score(indices=chosen, by_id=by_id, **posed)
    problem.check()
    log.tell("result", k=len(chosen), found=score_record(result))
    if report.as_json:
        print_json({"k": len(chosen), **score_record(result), "settings": problem.settings})
    else:
        terms = ", ".join(f"{name} = {value}" for name, value in problem.knobs.items())
        show(f"{len(chosen)} items: {score_line(result)}.")
        show(f"Terms, of your options and not of {picks}: {terms}.")
        show(score_table(result), *(f"Note: {note.message}." for note in notes))


def _check_names(picks: Source, rows: Any, ids: Any) -> None:
    """A table that `select` wrote names its rows; other names stand there once rows have moved."""
    from fairnepv.io.read import read_picks

    names = next(iter(ids.values())) if isinstance(ids, Mapping) else ids
    try:
        written = read_picks(picks, column="id")
    except InputError:  # it has no names
        return
    if names is None or len(written) != len(rows) or list(written) == list(rows):
        return
    for row, name in zip(rows.tolist(), written.tolist(), strict=True):
        if 0 <= row < len(names) and str(names[row]) != str(name):
            raise InputError(
                f"--picks {picks.text}: row {row} is {names[row]!s} by --ids, but was {name} when "
                "it was picked, so the rows have moved; score by --by-id"
            )
