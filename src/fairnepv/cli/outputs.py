"""Where results go: checked before any work, written after it; and what the exit code says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fairnepv.errors import FairnepvError, InputError, NumericalError, Status
from fairnepv.io import Output


def output_at(
    option: str,
    text: str | None,
    endings: tuple[str, ...],
    *,
    force: bool,
    inputs: Sequence[Path] = (),
) -> Output | None:
    """The checked output of an option, or None where it was not given."""
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


def apart(**outputs: Output | None) -> None:
    """Refuse two options that name one file."""
    seen: dict[Path, str] = {}
    for option, output in outputs.items():
        if output is not None:
            path = output.path.resolve()
            if path in seen:
                raise InputError(f"--{seen[path]} and --{option} name the same file {output.path}")
            seen[path] = option


def show(*parts: Any) -> None:
    """Tables through Rich, sentences as they are: a path that wraps cannot be copied."""
    from rich.console import Console

    console = Console()
    for part in parts:
        if isinstance(part, str):
            click.echo(part)
        else:
            console.print(part)


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=1, allow_nan=False))


def finish(status: Status, *, strict: bool, written: Output | None = None) -> None:
    """Exit 130 after an interruption, 1 under --strict unless all went well."""
    where = f"; {written.path} holds it, marked {status.name}" if written else ""
    if status is Status.INTERRUPTED:
        raise Interrupted(f"{status.value}{where}")
    if strict and not status.ok:
        raise NumericalError(f"--strict: {status.value}{where}")


class Interrupted(FairnepvError):
    """A run was interrupted and what it had found is reported."""
