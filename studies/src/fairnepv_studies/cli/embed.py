"""`fairnepv embed`: a folder of images or a column of texts -> features that `select` reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from fairnepv.cli.options import debug_option, force_option, json_option, log_option
from fairnepv.errors import InputError
from fairnepv_studies.cli.encoding import Computing, encoder_options, encoding, said_of

if TYPE_CHECKING:
    from fairnepv_studies.embedding import Survey
    from fairnepv_studies.encoders.base import Kind


class Sources(TypedDict):
    """Where pictures or texts are."""

    images: str | None
    texts: str | None
    ids: str | None


@click.command()
@click.option("--images", metavar="DIR|ZIP|TAR|PARQUET:COLUMN", help="Pictures; names become ids.")
@click.option("--texts", metavar="TABLE[:COLUMN]", help="Texts: .csv, .parquet, .arrow or .txt.")
@click.option("--ids", metavar="COLUMN", help="The column of ids of --texts.  [default: id]")
@click.option(
    "--encoder",
    metavar="NAME",
    help="efficientnet-lite0 or hf:ORG/MODEL@REVISION for images, minilm for texts.  "
    "[default: the first for each]",
)
@click.option("--out", required=True, metavar="FILE", help="Where the features go, .npy.")
@click.option(
    "--cache",
    metavar="FOLDER",
    help="Encoded rows by content.  [default: FILE.cache, which may be deleted afterwards]",
)
@encoder_options
@force_option
@json_option
@log_option
@debug_option
def embed(
    encoder: str | None,
    out: str,
    cache: str | None,
    computing: Computing,
    force: bool,
    as_json: bool,
    **sources: Unpack[Sources],
) -> None:
    """Encode pictures or texts; a run that was stopped goes on where it was.

    \b
    fairnepv embed --images logos --out vision.npy
    fairnepv embed --texts marks.csv:description --out text.npy
    fairnepv select --view vision=vision.npy --ids vision.ids.txt -k 100
    """
    from fairnepv.cli.outputs import output_at, print_json, show
    from fairnepv_studies import embedding
    from fairnepv_studies.encoders import find
    from fairnepv_studies.files import local

    _check_sources(sources)
    output = output_at("--out", out, (".npy",), force=force)
    assert output is not None
    target = output.path
    embedding.check_room(target, force=force)
    kind: Kind = "text" if sources["images"] is None else "image"
    name = encoder or {"text": "minilm", "image": "efficientnet-lite0"}[kind]
    found = find(name, kind, **computing)
    kept = local(cache) if cache else target.with_name(f"{target.name}.cache")
    with _surveyed(sources) as survey, encoding("encoding") as progress:
        description, encoded = embedding.embed(survey, found, target, cache=kept, progress=progress)
    named, rejected = embedding.ids_file(target), len(survey.rejects)
    if as_json:
        print_json({**asdict(description), "ids": str(named), "rejected": rejected})
        return
    show(f"Wrote {target}: {said_of(description, encoded)}", f"Ids are in {named}.")
    if rejected:
        show(f"{rejected:,} left out, see {embedding.rejects_file(target)}.")


def _check_sources(sources: Sources) -> None:
    if (sources["images"] is None) == (sources["texts"] is None):
        raise InputError("give either --images or --texts")
    if sources["ids"] is not None and sources["texts"] is None:
        raise InputError("--ids names a column of --texts; pictures are called by their names")


@contextlib.contextmanager
def _surveyed(sources: Sources) -> Iterator[Survey]:
    from fairnepv.cli.progress import rows_bar
    from fairnepv_studies import embedding

    images = sources["images"]
    if images is None:
        yield embedding.survey_texts(str(sources["texts"]), sources["ids"])
        return
    with contextlib.ExitStack() as stack:
        with rows_bar("opening") as progress:
            survey = stack.enter_context(embedding.survey_pictures(images, progress))
        yield survey
