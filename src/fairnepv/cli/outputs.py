"""Where results go: checked before any work, written after it; and what the exit code says."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairnepv.display import shown
from fairnepv.errors import FairnepvError, InputError, NumericalError, Status

if TYPE_CHECKING:
    from fairnepv.io.write import Output
    from fairnepv.planning import Forecast


@dataclass(frozen=True)
class Report:
    """How the result of a command is wanted: which files, whether as JSON, and how strictly."""

    files: Mapping[str, str | None]  # by the name of the option
    force: bool = False
    as_json: bool = False
    strict: bool = False


class Outputs:
    """Outputs of one command: checked before any work, none of them a file that is read."""

    def __init__(self, report: Report, inputs: Sequence[Path] = ()) -> None:
        self._report, self._inputs = report, inputs
        self._claimed: list[Path] = []

    def at(self, name: str, endings: tuple[str, ...], *, size: Any = None) -> Output | None:
        """The file of an option; of one of several sizes, with the size in its name."""
        text = self._report.files[name]
        if text is not None and size is not None:
            stem, ending = os.path.splitext(text)
            text = f"{stem}-{size}{ending}"
        force = self._report.force
        output = output_at(f"--{name}", text, endings, force=force, inputs=self._inputs)
        if output is not None:
            self.claim(f"--{name}", output.path)
        return output

    def claim(self, option: str, path: Path) -> None:
        """For this option alone, whatever the others call the same file."""
        for others, why in (
            (self._inputs, "is also read; write to another file"),
            (self._claimed, "is named twice; give each output its own file"),
        ):
            if os.path.realpath(path) in map(os.path.realpath, others):
                raise InputError(f"{option}: {path} {why}")
        self._claimed.append(path)


def output_at(
    option: str,
    text: str | None,
    endings: tuple[str, ...],
    *,
    force: bool,
    inputs: Sequence[Path] = (),
) -> Output | None:
    """The checked output of an option, or None where it was not given."""
    from fairnepv.io.write import Output

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
    from fairnepv.io.write import Table, write_arrays, write_table

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


def finish(
    status: Status,
    *,
    strict: bool,
    written: Output | None = None,
    unwritten: Sequence[FairnepvError] = (),
) -> None:
    """Exit 130 after an interruption, 1 under --strict unless all went well, and with the first
    reason why a file is `unwritten`, if there is one; `written` is a file that says itself how the
    run ended."""
    if unwritten:
        raise unwritten[0]
    where = f"; {written.path} holds it, marked {status.name}" if written else ""
    if status is Status.INTERRUPTED:
        raise Interrupted(f"{status.value}{where}")
    if strict and not status.ok:
        raise NumericalError(f"--strict: {status.value}{where}")


class Interrupted(FairnepvError):
    """A run was interrupted and what it had found is reported."""
