"""`fairnepv uspto publish` and `fairnepv uspto verify`: a run for others, and whether it holds."""

from __future__ import annotations

import click

from fairnepv.cli.options import debug_option, force_option, log_option


@click.command()
@click.argument("corpus", metavar="CORPUS")
@click.option("--run", "name", default="main", show_default=True, help="Which run.")
@click.option("--out", required=True, metavar="FOLDER", help="Where to; it must not exist yet.")
@click.option("--features", is_flag=True, help="The features of the run, too, beside the indices.")
@force_option
@log_option
@debug_option
def publish(corpus: str, name: str, out: str, features: bool, force: bool) -> None:
    """Publish a run: identifiers, features, split, selections, scores, bounds, checksums."""
    from fairnepv.cli.outputs import show
    from fairnepv_studies.corpus import Corpus
    from fairnepv_studies.files import local
    from fairnepv_studies.protocol.pool import open_pool
    from fairnepv_studies.protocol.publication import publish as publish_run
    from fairnepv_studies.protocol.run import Run

    opened = Corpus.open(corpus)
    run = Run.open(opened, name)
    pool = open_pool(opened, run.settings.views)
    files = publish_run(run, pool, local(out), force=force, features=features)
    show(
        f"Published {len(run.results)} selections ({run.settings.corpus_name}) in {out}: "
        f"{len(files)} files. To check them:",
        f"  fairnepv uspto verify {out} {corpus}",
    )


@click.command()
@click.argument("published", metavar="PUBLISHED")
@click.argument("corpus", metavar="CORPUS")
@log_option
@debug_option
def verify(published: str, corpus: str) -> None:
    """Check a publication against its corpus: every score and bound is computed again.

    Exit code 1 at the first difference, which is named. A bound without a proof takes as long as
    it took the run.
    """
    from fairnepv.cli.outputs import show
    from fairnepv.cli.progress import stage_bar
    from fairnepv.errors import NumericalError
    from fairnepv_studies.corpus import Corpus
    from fairnepv_studies.files import local
    from fairnepv_studies.protocol.verification import UNCHECKED
    from fairnepv_studies.protocol.verification import verify as verify_publication

    try:
        for sentence in verify_publication(local(published), Corpus.open(corpus), stage_bar):
            show(f"ok  {sentence}")
    except NumericalError as error:
        raise NumericalError(f"{published} differs: {error}") from error
    show(f"Not checked: {UNCHECKED}.", f"{published} is what {corpus} gives.")
