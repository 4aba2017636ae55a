"""Where results go: checked before any work, written after it; and what the exit code says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairnepv.display import shown
from fairnepv.errors import FairnepvError, InputError, NumericalError, Status

if TYPE_CHECKING:
    from fairnepv.io import Output
    from fairnepv.planning import Forecast


def output_at(
    option: str,
    text: str | None,
    endings: tuple[str, ...],
    *,
    force: bool,
    inputs: Sequence[Path] = (),
) -> Output | None:
    """The checked output of an option, or None where it was not given."""
    from fairnepv.io import Output

    if text is None:
        return None
    try:
        output = Output.at(text, endings, force=force)
    except InputError as error:
        raise InputError(f"{option}: {error}") from error
    for path in inputs:
        if path.exists() and output.path.exists() and path.samefile(output.path):
            raise InputError(f"{option}: {path} is also read; write to another file")
    return output


def deliver(output: Output | None, content: Any) -> list[FairnepvError]:
    """Write a table, a picture or named arrays; what kept a file from being written is returned,
    so that the result can be shown before it is raised."""
    from fairnepv.io import Table, write_arrays, write_table

    if output is None:
        return []
    try:
        if isinstance(content, Table):
            write_table(output, content)
        elif isinstance(content, bytes):
            output.write(content)
        else:
            write_arrays(output, content)
    except FairnepvError as error:
        return [error]
    return []


def show(*parts: Any) -> None:
    """Tables through Rich, sentences as they are: a path that wraps cannot be copied.

    A text is one line, whatever the names in it hold; several lines are a list.
    """
    from rich.console import Console

    class OurConsole(Console):
        def on_broken_pipe(self) -> None:  # Rich would exit with 1, which means something here
            raise BrokenPipeError

    console = OurConsole()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 160  # a pipe has no width, and a table that is cut has no numbers
    for part in parts:
        if isinstance(part, list):
            show(*part)
        elif isinstance(part, str):
            click.echo(shown(part))
        else:
            console.print(part)


def show_plan(forecasts: Sequence[Forecast], *, as_json: bool) -> None:
    """What would be taken, where everything is asked for, as a command does."""
    from fairnepv.report import forecast_record, forecast_summary, forecast_table

    whole = [forecast.with_optional() for forecast in forecasts]
    if as_json:
        records = [forecast_record(forecast) for forecast in whole]
        print_json(records if len(records) > 1 else records[0])
        return
    for forecast in whole:
        show(forecast_table(forecast), forecast_summary(forecast))


def print_json(document: Any) -> None:
    from fairnepv.io.write import to_json

    click.echo(to_json(document))


def finish(status: Status, *, strict: bool, written: Output | None = None) -> None:
    """Exit 130 after an interruption, 1 under --strict unless all went well.

    `written` is a file that says itself how the run ended.
    """
    where = f"; {written.path} holds it, marked {status.name}" if written else ""
    if status is Status.INTERRUPTED:
        raise Interrupted(f"{status.value}{where}")
    if strict and not status.ok:
        raise NumericalError(f"--strict: {status.value}{where}")


class Interrupted(FairnepvError):
    """A run was interrupted and what it had found is reported."""
