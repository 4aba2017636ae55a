"""`fairnepv uspto ingest`: bulk files and logos to a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from fairnepv.cli.options import debug_option, force_option, json_option, log_option
from fairnepv.errors import InputError
from fairnepv_studies.cli.embed import Sources
from fairnepv_studies.cli.uspto_corpora import ingest_other

if TYPE_CHECKING:
    from rich.table import Table

    from fairnepv_studies.corpus import About


@click.command()
@click.argument("files", nargs=-1, metavar="[FILES]...")
@click.option(
    "--corpus",
    default="uspto",
    show_default=True,
    metavar="KIND",
    help="uspto: the files named; openmoji: that of the package; folder: --images, --texts.",
)
@click.option(
    "--images",
    metavar="DIR|ZIP|TAR|PARQUET",
    help="Logos, each named after its serial number; of a folder, the images (PARQUET:COLUMN).",
)
@click.option("--texts", metavar="TABLE[:COLUMN]", help="Of --corpus folder.")
@click.option("--ids", metavar="COLUMN", help="Of --corpus folder, in --texts.  [default: id]")
@click.option("--out", required=True, metavar="PATH", help="Folder of the corpus.")
@click.option("--min-words", type=int, help="Words of the shortest description.  [default: 40]")
@click.option("--max-words", type=int, help="Words of the longest description.  [default: 100]")
@force_option
@json_option
@log_option
@debug_option
def ingest(
    files: tuple[str, ...],
    corpus: str,
    out: str,
    min_words: int | None,
    max_words: int | None,
    force: bool,
    as_json: bool,
    **sources: Unpack[Sources],
) -> None:
    """Bulk trademark XML (plain, .gz or .zip) and logos, joined by serial number, to a corpus; or
    another corpus in the same format."""
    from dataclasses import asdict

    from fairnepv.cli.outputs import print_json, show
    from fairnepv_studies.cli.progress import steps_bar

    if corpus == "uspto":
        refuse_others(files, sources)
        from fairnepv_studies.uspto.ingest import Words
        from fairnepv_studies.uspto.ingest import ingest as make

        words = Words(**_given(least=min_words, most=max_words))
        with steps_bar() as progress:
            about = make(
                files, str(sources["images"]), out, words=words, force=force, progress=progress
            )
    else:
        if _given(least=min_words, most=max_words):
            raise InputError("--min-words and --max-words are for bulk files; leave them out")
        about = ingest_other(corpus, files, out, sources, force=force)
    if as_json:
        print_json(asdict(about))
    else:
        rejected = about.rules.get("rejects", {})
        show(
            _funnel(about),
            *(f"{count:>10,}  rejected: {reason}" for reason, count in rejected.items()),
            f"Wrote {out}: {about.n:,} items. What was left out: {out}/rejects.csv",
        )


def _given(**options: int | None) -> dict[str, int]:
    return {name: value for name, value in options.items() if value is not None}


def refuse_others(files: tuple[str, ...], sources: Sources) -> None:
    """What the bulk files need, and what is not for them."""
    if not files:
        raise InputError("name the bulk files (FILE...), or another corpus with --corpus")
    if sources["images"] is None:
        raise InputError("the bulk files have no logos; say where they are with --images")
    if sources["texts"] is not None or sources["ids"] is not None:
        raise InputError("--texts and --ids are for --corpus folder; leave them out")


def _funnel(about: About) -> Table:
    from fairnepv.report.terminal import plain_table

    table = plain_table(f"From source to items ({about.name})")
    table.add_column("", no_wrap=True)
    table.add_column("left", justify="right", no_wrap=True)
    table.add_column("dropped", justify="right", no_wrap=True)
    before = about.funnel[0][1]
    for what, left in about.funnel:
        table.add_row(what, f"{left:,}", f"{before - left:,}" if before != left else "")
        before = left
    return table
