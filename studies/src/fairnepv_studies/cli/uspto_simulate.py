"""`fairnepv uspto simulate`: a corpus of our own in the register's format."""

from __future__ import annotations

import click

from fairnepv.cli.options import debug_option, force_option, log_option, seed_option


@click.command()
@click.option("--n", default=20_000, show_default=True, help="Applications to simulate.")
@seed_option
@click.option("--out", required=True, metavar="PATH", help="Folder to write to.")
@force_option
@log_option
@debug_option
def simulate(n: int, seed: int, out: str, force: bool) -> None:
    """Drawn marks with descriptions, as bulk XML and a zip of images (simulated)."""
    from fairnepv.cli.outputs import show
    from fairnepv_studies.cli.progress import steps_bar
    from fairnepv_studies.uspto.simulate import simulate as make

    with steps_bar() as progress:
        cases = make(n, seed, out, force=force, progress=progress)
    show(
        f"Wrote {out}: {cases:,} simulated case files of {n:,} marks; no record of the USPTO.",
        f"Next: fairnepv uspto ingest {out}/applications-*.xml --images {out}/images.zip "
        "--out corpus",
    )
