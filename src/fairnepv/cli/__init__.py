"""The command `fairnepv`: arguments, one library call, a report."""

from __future__ import annotations

import sys

import click

from fairnepv import __version__
from fairnepv.cli.demo import demo
from fairnepv.errors import FairnepvError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def commands() -> None:
    """Choose k items out of n so that no view of the data is left behind."""


commands.add_command(demo)


def main() -> None:
    """Entry point: an error is one line on stderr and exit code 2, an interruption 130."""
    try:
        commands(standalone_mode=False)
    except FairnepvError as error:
        click.echo(f"fairnepv: {error}", err=True)
        sys.exit(2)
    except click.ClickException as error:
        click.echo(f"fairnepv: {error.format_message()}", err=True)
        sys.exit(2)
    except click.Abort:
        click.echo("fairnepv: interrupted", err=True)
        sys.exit(130)
