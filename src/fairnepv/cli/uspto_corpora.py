"""`fairnepv uspto ingest --corpus openmoji | folder`: other sources in the same folder format."""

from __future__ import annotations

from pathlib import Path

import click

from fairnepv.cli.options import debug_option, force_option
from fairnepv.errors import InputError


@click.command()
@click.option("--corpus", required=True, metavar="KIND", help="openmoji or folder.")
@click.option("--images", metavar="DIR|ZIP|PARQUET:COLUMN", help="Of --corpus folder.")
@click.option("--texts", metavar="TABLE[:COLUMN]", help="Of --corpus folder.")
@click.option("--ids", metavar="COLUMN", help="The column of ids of --texts.  [default: id]")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FOLDER")
@force_option
@debug_option
def ingest(
    corpus: str,
    images: str | None,
    texts: str | None,
    ids: str | None,
    out: Path,
    force: bool,
) -> None:
    """Make a corpus of OpenMoji, or of a folder of images and a table of texts."""
    ingest_other(corpus, out, images=images, texts=texts, ids=ids, force=force)


def ingest_other(
    corpus: str,
    out: Path,
    *,
    images: str | None,
    texts: str | None,
    ids: str | None,
    force: bool,
) -> None:
    """What the command does for every corpus but the register's."""
    from fairnepv.cli.outputs import show
    from fairnepv.cli.progress import rows_bar
    from fairnepv.studies.corpora import ingest_folder, ingest_openmoji

    if corpus == "openmoji":
        if images or texts or ids:
            raise InputError(
                "--corpus openmoji comes with the package; leave --images, --texts and --ids out"
            )
        about = ingest_openmoji(out, force=force)
    elif corpus == "folder":
        if images is None or texts is None:
            raise InputError("--corpus folder takes --images DIR and --texts TABLE[:COLUMN]")
        with rows_bar("images") as progress:
            about = ingest_folder(images, texts, out, ids=ids, force=force, progress=progress)
    else:
        raise InputError(f"there is no corpus {corpus!r}; give uspto, openmoji or folder")
    rejected = about.rules["rejects"]
    show(
        *(f"{count:>10,}  {what}" for what, count in about.funnel),
        *(f"{count:>10,}  rejected: {reason}" for reason, count in rejected.items()),
        f"Wrote {out}.",
    )
