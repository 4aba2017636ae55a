"""Runs the cases of groups one after the other, and keeps in a journal how each ended.

A case is a function of its number and of an empty folder; it raises when something is wrong. A line
of the journal tells one case. Whoever starts the same run again repeats those that failed and those
of other sources alone.
"""

import hashlib
import json
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fairnepv.errors import RankWarning

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src" / "fairnepv"
_TOLD = 5.0  # seconds between two lines of progress
_NOTHING_SHOWN = (pytest.skip.Exception, pytest.fail.Exception)  # to pytest no `Exception`


@dataclass(frozen=True)
class Group:
    """Cases 0 to count - 1; `sample` are those that pytest runs."""

    name: str
    case: Callable[[int, Path], None]
    count: int
    sample: Sequence[int]
    patience: float = 120.0  # seconds after which a case counts as one that hangs
    known: dict[int, str] | None = None  # cases that fail, with the reason


@dataclass(frozen=True)
class Outcome:
    """What one line of the journal tells."""

    group: str
    case: int
    ok: bool
    seconds: float
    source: str
    error: str = ""


class TooLong(BaseException):
    """A case has taken more than its group's patience; no handler of errors stops it."""


def digest(others: Collection[str] = ()) -> str:
    """Of the library and of what cases are made of, but for modules of other groups: a case that
    passed with other sources tells nothing."""
    apart = {"runner", "groups", "table", "__main__", "test_soak", *others}
    own = [file for file in HERE.glob("*.py") if file.stem not in apart]
    state = hashlib.sha256()
    for file in sorted([*SOURCES.rglob("*.py"), *HERE.parent.glob("*.py"), *own]):
        state.update(file.read_bytes())
    return state.hexdigest()[:16]


def carry_out(group: Group, number: int, source: str) -> Outcome:
    """One case, in a folder of its own that is gone afterwards."""
    began = time.monotonic()
    error = ""
    with tempfile.TemporaryDirectory(prefix="fairnepv-soak-") as folder:
        try:
            with _patience(group.patience), strict_warnings():
                group.case(number, Path(folder))
        except (Exception, TooLong, *_NOTHING_SHOWN):
            error = traceback.format_exc(limit=-4)
    return Outcome(group.name, number, not error, time.monotonic() - began, source, error)


@contextmanager
def strict_warnings() -> Iterator[None]:
    """As in tests: a warning is an error, but that of ranks, which results tell as notes."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RankWarning)
        yield


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    def give_up(*_: Any) -> None:
        raise TooLong(f"this case has taken more than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


class Journal:
    """Outcomes as lines of JSON, each written at once. A line that a kill has torn is none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def passed(self, group: str, source: str) -> dict[int, float]:
        """Seconds of the cases that passed."""
        if not self.path.exists():
            return {}
        found = {}
        for line in self.path.read_text().splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if (told["group"], told["source"], told["ok"]) == (group, source, True):
                found[told["case"]] = told["seconds"]
        return found

    def add(self, outcome: Outcome) -> None:
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, 2)
                torn = file.read(1) != b"\n"
                file.write(b"\n" * torn)
            file.write(json.dumps(vars(outcome)).encode() + b"\n")


def run(
    group: Group,
    journal: Journal,
    *,
    source: str,
    count: int | None = None,
    seconds: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """The cases of a group that are not done, as far as the time goes; what its line at the end
    tells."""
    group = replace(group, count=min(group.count, count or group.count))
    done = journal.passed(group.name, source)
    done = {number: took for number, took in done.items() if number < group.count}
    began, told, failures, took = time.monotonic(), 0.0, 0, sum(done.values())
    passed, known = len(done), 0
    for number in (n for n in range(group.count) if n not in done):
        elapsed = time.monotonic() - began
        if seconds is not None and elapsed > seconds:
            break
        if elapsed - told > _TOLD:
            told = elapsed
            say(f"{group.name}: {passed + failures:,} of {group.count:,}, {failures} failed")
        outcome = carry_out(group, number, source)
        journal.add(outcome)
        took += outcome.seconds
        if outcome.ok:
            passed += 1
        elif number in (group.known or {}):
            known += 1
        else:
            failures += 1
            say(f"{group.name} {number} failed\n{outcome.error}{how_to_repeat(group, number)}")
    record = {"group": group.name, "cases": passed + failures + known, "of": group.count}
    record |= {"known": known} if known else {}
    return {**record, "failures": failures, "seconds": round(took, 1)}


def how_to_repeat(group: Group, number: int) -> str:
    return f"Repeat it by: python -m soak --group {group.name} --case {number}"


def say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
