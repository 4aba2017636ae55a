"""Every refusal that the issues name, by table: in Python an error of ours, on the command line one
line and exit code 2; each says in a sentence or two what is wrong, what was expected and what came,
and nothing is written."""

import contextlib
import io
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from fairnepv.cli import main
from fairnepv.errors import FairnepvError, InputError
from soak import refused_calls, refused_lines
from soak.formats import within
from soak.runner import Group

LONGEST = 480  # letters of a message


@dataclass(frozen=True)
class Said:
    """How something was refused."""

    error: type[BaseException] | None
    message: str


def in_python(call: Callable[[], Any]) -> Said:
    try:
        call()
    except FairnepvError as error:
        return Said(type(error), str(error))
    return Said(None, "")


def on_the_command_line(line: list[str]) -> Said:
    """By the entry point, as the shell has it."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with (
        mock.patch.object(sys, "argv", ["fairnepv", *line]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert (code, out.getvalue()) == (2, ""), (code, out.getvalue(), err.getvalue())
    message = err.getvalue()
    assert message.startswith("fairnepv: "), message
    assert message.count("\n") == 1, message
    return Said(InputError, message.removeprefix("fairnepv: ").rstrip("\n"))


def contents(folder: Path) -> dict[str, bytes]:
    paths = sorted(folder.rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in paths}


def is_told(said: Said, words: tuple[str, ...], error: type[FairnepvError]) -> None:
    """The kind of error, the words that matter, and a sentence or two of them."""
    assert said.error is error, said
    missing = [word for word in words if word not in said.message]
    assert not missing, f"{missing} not in: {said.message}"
    assert "Traceback" not in said.message
    assert "\n" not in said.message
    assert 10 < len(said.message) < LONGEST, said.message
    assert len(re.split(r"[.!?] +(?=[A-Z])", said.message)) <= 2, said.message


def case(number: int, folder: Path) -> None:
    with within(folder):
        refused_lines.write_files()
        before = contents(folder)
        if number < len(refused_calls.CALLS):
            row = refused_calls.CALLS[number]
            is_told(in_python(row.call), row.words, row.error)
        else:
            line = refused_lines.LINES[number - len(refused_calls.CALLS)]
            is_told(on_the_command_line(line.words_of_line), line.words, InputError)
        after = contents(folder)
    assert after == before, sorted(set(after) ^ set(before))


COUNT = len(refused_calls.CALLS) + len(refused_lines.LINES)
GROUP = Group("bad-input", case, COUNT, sample=range(0, COUNT, 9))
