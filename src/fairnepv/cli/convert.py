"""`fairnepv convert`: rows in any format become shards that are read without loading them."""

from dataclasses import asdict
from typing import Any

import click

from fairnepv import __version__
from fairnepv.cli import options as cli
from fairnepv.cli.outputs import Report, print_json, show
from fairnepv.errors import InputError


@click.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@click.option("--out", metavar="FOLDER", help="Where the shards go: a new folder.")
@click.option(
    "--dtype",
    default="float32",
    show_default=True,
    type=click.Choice(["float16", "float32"]),
    help="The type of the numbers.",
)
@click.option(
    "--rows-per-shard",
    type=click.IntRange(min=1),
    metavar="N",
    help="[default: as many as make 256 MiB]",
)
@click.option(
    "--ids",
    metavar="FILE[:COLUMN]",
    help="Row ids.  [default: those of converted folders, or the column id of tables]",
)
@click.option("--no-ids", is_flag=True, help="Leave ids out.")
@click.option("--verify", metavar="FOLDER", help="Only compare the checksums of such a folder.")
@cli.reporting(force=True)
def convert(
    sources: tuple[str, ...],
    out: str | None,
    ids: str | None,
    no_ids: bool,
    verify: str | None,
    report: Report,
    **options: Any,
) -> None:
    """Write rows of any format as .npy shards with ids and checksums; several sources end to end.

    \b
    fairnepv convert embeddings.parquet:text --ids embeddings.parquet:id --out text
    fairnepv select --view text=text --view vision=vision -k 200
    """
    from fairnepv.cli.progress import rows_bar
    from fairnepv.io.conversion import convert as convert_rows
    from fairnepv.io.manifest import verify as verify_folder
    from fairnepv.io.source import split_source

    if verify is not None and (sources or out):
        raise InputError("--verify takes a folder and nothing else; leave SOURCE and --out out")
    if verify is not None:
        with rows_bar("checksums") as progress:
            about = verify_folder(split_source(verify).path, progress)
        said = f"{verify} is what was written"
    elif not sources or out is None:
        raise InputError("name one SOURCE or more and --out FOLDER, or --verify FOLDER")
    elif ids is not None and no_ids:
        raise InputError("--ids and --no-ids contradict; give one of them")
    else:
        with rows_bar("converting") as progress:
            about = convert_rows(
                sources,
                out,
                **options,
                ids="" if no_ids else ids,
                force=report.force,
                made_by=f"fairnepv {__version__}",
                progress=progress,
            )
        said = f"Wrote {out}"
    if report.as_json:
        print_json(asdict(about))
        return
    named = "with ids" if about.ids else "without ids"
    show(
        f"{said}: {about.n:,} rows of {about.p:,} {about.dtype} in {len(about.shards):,} shard(s), "
        f"{named}."
    )
