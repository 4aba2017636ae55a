"""`fairnepv uspto ingest`: bulk files and logos to a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairnepv.cli.options import debug_option, force_option, json_option

if TYPE_CHECKING:
    from rich.table import Table

    from fairnepv.studies.corpus import About


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--images",
    required=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR|ZIP|TAR|PARQUET",
    help="Logos, each named after its serial number.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the corpus.")
@click.option("--min-words", default=40, show_default=True, help="Words of the shortest text.")
@click.option("--max-words", default=100, show_default=True, help="Words of the longest text.")
@force_option
@json_option
@debug_option
def ingest(
    files: tuple[Path, ...],
    images: Path,
    out: Path,
    min_words: int,
    max_words: int,
    force: bool,
    as_json: bool,
) -> None:
    """Bulk trademark XML (plain, .gz or .zip) and logos, joined by serial number, to a corpus."""
    from dataclasses import asdict

    from fairnepv.cli.outputs import print_json, show
    from fairnepv.cli.uspto_bars import steps_bar
    from fairnepv.studies.uspto.ingest import Words
    from fairnepv.studies.uspto.ingest import ingest as make

    with steps_bar() as progress:
        about = make(
            files, images, out, words=Words(min_words, max_words), force=force, progress=progress
        )
    if as_json:
        print_json(asdict(about))
    else:
        show(
            _funnel(about), f"Wrote {out}: {about.n:,} items. What was left out: {out}/rejects.csv"
        )


def _funnel(about: About) -> Table:
    from fairnepv.report.terminal import plain_table

    table = plain_table(f"From case files to items ({about.name})")
    table.add_column("", no_wrap=True)
    table.add_column("left", justify="right", no_wrap=True)
    table.add_column("dropped", justify="right", no_wrap=True)
    before = about.funnel[0][1]
    for what, left in about.funnel:
        table.add_row(what, f"{left:,}", f"{before - left:,}" if before != left else "")
        before = left
    return table
