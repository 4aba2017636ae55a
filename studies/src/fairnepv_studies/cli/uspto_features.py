"""`fairnepv uspto features`: text and vision views of a corpus."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from fairnepv.cli.options import debug_option, json_option, log_option
from fairnepv_studies.cli.encoding import Computing, encoder_options, encoding, said_of

if TYPE_CHECKING:
    from fairnepv_studies.feature_files import Description


@click.command()
@click.argument("corpus", metavar="CORPUS")
@click.option(
    "--vision",
    default="efficientnet-lite0",
    show_default=True,
    metavar="ENCODER",
    help="efficientnet-lite0, or hf:ORG/MODEL@REVISION from the local Hugging Face cache.",
)
@click.option(
    "--idf-on",
    type=click.Choice(["pool", "all"]),
    default="pool",
    show_default=True,
    help="Texts that words and their weights are taken from: those of the selection pool (split "
    "first), or all, those that test among them.",
)
@click.option("--minilm", is_flag=True, help="A dense text view too, by all-MiniLM-L6-v2.")
@click.option(
    "--cache",
    metavar="FOLDER",
    help="Encoded rows by content, to be shared between corpora.  [default: CORPUS/cache]",
)
@encoder_options
@json_option
@log_option
@debug_option
def features(
    corpus: str,
    vision: str,
    idf_on: str,
    minilm: bool,
    cache: str | None,
    computing: Computing,
    as_json: bool,
) -> None:
    """Encode the texts and images of CORPUS; a run that was stopped goes on where it was.

    \b
    fairnepv uspto features corpus
    fairnepv uspto features corpus --vision hf:facebook/dinov2-base@COMMIT --minilm
    """
    from fairnepv.cli.outputs import print_json, show
    from fairnepv_studies.corpus import Corpus
    from fairnepv_studies.encoders import find
    from fairnepv_studies.features import encoded_features, text_features
    from fairnepv_studies.files import local

    opened = Corpus.open(corpus)
    kept = None if cache is None else local(cache)
    wanted = {"vision": find(vision, "image", **computing)}
    if minilm:
        wanted["minilm"] = find("minilm", "text", **computing)
    text = text_features(opened, idf_on=idf_on)
    found: list[Description] = [text]
    lines = [f"text: {text.shape[0]:,} x {text.shape[1]:,} sublinear TF-IDF, rows of unit length."]
    for view, encoder in wanted.items():
        with encoding(view) as progress:
            description, encoded = encoded_features(
                opened, view, encoder, cache=kept, progress=progress
            )
        found.append(description)
        lines.append(f"{view}: {said_of(description, encoded)}")
    if as_json:
        print_json(_document(found))
        return
    show(
        f"Features of {opened.about.name}, {opened.n:,} items, in {opened.folder / 'features'}:",
        *lines,
    )


def _document(found: list[Description]) -> dict[str, Any]:
    return {description.view: asdict(description) for description in found}
