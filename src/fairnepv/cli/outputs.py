"""Where results go: checked before any work, written after it; and what the exit code says."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairnepv.cli import log
from fairnepv.cli.sayings import in_our_words, is_of_ours
from fairnepv.display import shown
from fairnepv.errors import FairnepvError, InputError, NumericalError, Status

if TYPE_CHECKING:
    from fairnepv.api.selection import Selection
    from fairnepv.io.write import Output
    from fairnepv.planning import Forecast


@dataclass
class Report:
    """How the result of a command is wanted, and its files: checked before any work, written after
    it, and none of them a file that is read."""

    files: dict[str, str | None]  # by the name of the option
    force: bool = False
    as_json: bool = False
    strict: bool = False
    inputs: Sequence[Path] = ()  # what will be read
    claimed: list[Path] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)  # and not told yet
    failures: list[FairnepvError] = field(default_factory=list)  # why files were not written

    def output(self, name: str, endings: tuple[str, ...], *, part: Any = None) -> Output | None:
        """The file of an option; of one of several sizes or views, with that in its name."""
        text = self.files[name]
        if text is not None and part is not None:
            stem, ending = os.path.splitext(text)
            text = f"{stem}-{part}{ending}"
        output = output_at(f"--{name}", text, endings, force=self.force)
        if output is not None:
            for file in output.files:
                self.claim(f"--{name}", file)
        return output

    def claim(self, option: str, path: Path) -> None:
        """For this option alone, whatever the others call the same file."""
        for read in self.inputs:
            if _is_same(read, path) or (read.exists() and path.exists() and read.samefile(path)):
                raise InputError(f"{option}: {read} is also read; write to another file")
        story = log.path_of_log()
        if story is not None and _is_same(story, path):
            raise InputError(f"{option}: {path} is the log file; give each its own file")
        if any(_is_same(other, path) for other in self.claimed):
            raise InputError(f"{option}: {path} is named twice; give each output its own file")
        self.claimed.append(path)

    def write(self, output: Output | None, content: Any) -> Path | None:
        """Write a table, a picture, an array or named ones, and return where. What keeps a file
        from being written is raised at the end, so that the result is shown before."""
        from fairnepv.io.write import Table, write_array, write_arrays, write_table

        if output is None:
            return None
        written = [output.path]
        try:
            if isinstance(content, Table):
                written = write_table(output, content)
            elif isinstance(content, bytes):
                output.write(content)
            elif isinstance(content, Mapping):
                write_arrays(output, content)
            else:
                write_array(output, content)
        except FairnepvError as error:
            self.failures.append(error)
            return None
        self.written.extend(written)
        return output.path

    def tell(self) -> None:
        """Say which files were written since this was said last; not among JSON."""
        if self.written and not self.as_json:
            *others, last = map(str, self.written)
            show(f"Wrote {', '.join(others)} and {last}." if others else f"Wrote {last}.")
        self.written.clear()

    def finish(self, status: Status, written: Output | None = None) -> None:
        """Exit 130 after an interruption, 1 under --strict unless all went well, and with the first
        reason why a file was not written, if there is one; `written` is a file that says itself how
        the run ended."""
        log.tell_status(status)
        self.tell()
        if self.failures:
            raise self.failures[0]
        where = "" if written is None else f"; {_held(written)}, marked {status.name}"
        if status is Status.INTERRUPTED:
            raise Interrupted(f"{status.value}{where}")
        if self.strict and not status.ok:
            raise NumericalError(f"--strict: {status.value}{where}")


def _held(written: Output) -> str:
    """Where a result is, and where it is told how the run ended."""
    apart = [file for file in written.files[1:] if file.exists()]
    return " and ".join(map(str, [written.path, *apart])) + (" hold it" if apart else " holds it")


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def looked_around(chosen: Iterable[Selection], deadline: float | None) -> list[Selection]:
    """The selections with their `neighbours()` known, as far as the time that is left allows, or a
    moment."""
    from fairnepv.compute.clock import Limit, limited, now
    from fairnepv.loop import MOMENT

    with limited(Limit(None if deadline is None else max(deadline, now() + MOMENT))):
        return [selection.looked_around() for selection in chosen]


def output_at(
    option: str, text: str | None, endings: tuple[str, ...], *, force: bool
) -> Output | None:
    """The checked output of an option, or None where it was not given."""
    from fairnepv.io.write import Output

    try:
        return None if text is None else Output.at(text, endings, force=force)
    except InputError as error:
        raise InputError(f"{option}: {error}") from error


_OF_THE_LIBRARY = ("Note: ", "Why the ")  # lines that end in a sentence of the library


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
            told = part.startswith(_OF_THE_LIBRARY) and is_of_ours()
            said = in_our_words(part) if told else part
            log.tell("said", text=said)
            click.echo(shown(said))
        else:
            console.print(part)


def show_plan(forecasts: Sequence[Forecast], *, as_json: bool) -> None:
    """Show what a command would take, which asks for everything."""
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


class Interrupted(FairnepvError):
    """A run was interrupted and what it had found is reported."""
