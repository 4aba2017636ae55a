"""`fairnepv uspto`: section 6 of the paper, from bulk files to a selection that can be checked."""

from __future__ import annotations

import click

from fairnepv.cli.uspto_features import features
from fairnepv.cli.uspto_ingest import ingest
from fairnepv.cli.uspto_publish import publish, verify
from fairnepv.cli.uspto_run import run
from fairnepv.cli.uspto_simulate import simulate
from fairnepv.cli.uspto_split import split


@click.group()
def uspto() -> None:
    """The real-data protocol: simulate, ingest, features, split, run, publish, verify."""


for _command in (simulate, ingest, features, split, run, publish, verify):
    uspto.add_command(_command)
