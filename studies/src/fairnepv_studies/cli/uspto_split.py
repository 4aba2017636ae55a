"""`fairnepv uspto split`: validation, test, and the pool to select from."""

from __future__ import annotations

import click

from fairnepv.cli.options import debug_option, force_option, log_option, seed_option
from fairnepv_studies.protocol import SHARE


@click.command()
@click.argument("corpus", metavar="CORPUS")
@click.option("--validation", default=SHARE, show_default=True, help="Share that validates.")
@click.option("--test", default=SHARE, show_default=True, help="Share that tests.")
@seed_option
@force_option
@log_option
@debug_option
def split(corpus: str, validation: float, test: float, seed: int, force: bool) -> None:
    """Split a corpus, stratified by the length of its descriptions, into CORPUS/split.json."""
    from fairnepv.cli.outputs import show
    from fairnepv_studies.corpus import Corpus
    from fairnepv_studies.protocol.split import split as split_corpus
    from fairnepv_studies.protocol.split import write_split

    opened = Corpus.open(corpus)
    made = split_corpus(opened, validation=validation, test=test, seed=seed)
    path = write_split(opened, made, force=force)
    parts = ", ".join(f"{name} {len(rows):,}" for name, rows in made.parts.items())
    show(
        f"Split {opened.n:,} items ({made.name}) with seed {seed} in {len(made.words_up_to) + 1} "
        f"bins of words: {parts}.",
        f"Wrote {path}.",
    )
