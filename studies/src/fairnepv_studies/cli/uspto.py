"""`fairnepv uspto`: section 6 of the paper, from bulk files to a selection that can be checked."""

from __future__ import annotations

import click

from fairnepv_studies.cli.uspto_features import features
from fairnepv_studies.cli.uspto_ingest import ingest
from fairnepv_studies.cli.uspto_publish import publish, verify
from fairnepv_studies.cli.uspto_run import run
from fairnepv_studies.cli.uspto_simulate import simulate
from fairnepv_studies.cli.uspto_split import split


@click.group()
def uspto() -> None:
    """The real-data protocol: simulate, ingest, features, split, run, publish, verify."""


for _command in (simulate, ingest, features, split, run, publish, verify):
    uspto.add_command(_command)
