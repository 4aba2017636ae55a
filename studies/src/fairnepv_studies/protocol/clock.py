"""The clock of a selection that may be cut short and go on: what earlier parts took is added."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import NamedTuple

from fairnepv.errors import InputError
from fairnepv.io.documents import read_json
from fairnepv.loop import Progress, Step
from fairnepv_studies.files import write_whole

_EVERY = 1.0  # seconds between two writings
_BOUND = "bound"  # the stage that proves
_REMEDY = "remove it and run again"


class Spent(NamedTuple):
    """Seconds."""

    bound: float = 0.0
    search: float = 0.0


class Clock:
    """Hears every step, and writes down beside the state that it leaves what was spent so far; so a
    kill loses the seconds of a step, or of `_EVERY`, and no more."""

    def __init__(self, state: Path | None, progress: Progress | None) -> None:
        """Without a file for states every part begins anew, and so does its clock."""
        self._file = None if state is None else state.with_suffix(".seconds")
        known = state is not None and state.is_file()
        self._earlier = _read(self._file) if self._file is not None and known else Spent()
        self._progress = progress
        self._began = time.monotonic()
        self._proven = 0.0  # when the bound took its last step
        self._written = -math.inf

    def __call__(self, row: Step) -> None:
        now = time.monotonic() - self._began
        if row.stage == _BOUND:
            self._proven = now
        if now - self._written >= _EVERY:
            self.write()
        if self._progress is not None:
            self._progress(row)

    def write(self) -> None:
        now = time.monotonic() - self._began
        self._written = now
        if self._file is not None:
            spent = self._together(now - self._proven, now)
            write_whole(self._file, json.dumps(spent).encode())

    def spent(self, search: float) -> Spent:
        """In all, now that the search of this part is known to have taken so long."""
        return self._together(search, time.monotonic() - self._began)

    def _together(self, search: float, now: float) -> Spent:
        return Spent(self._earlier.bound + now - search, self._earlier.search + search)


def _read(file: Path) -> Spent:
    if not file.is_file():
        return Spent()
    try:
        bound, search = map(float, read_json(file, _REMEDY))
    except (TypeError, ValueError) as error:
        raise InputError(f"{file} holds no two numbers of seconds; {_REMEDY}") from error
    return Spent(bound, search)
