"""States on disk, so that a driver that was killed goes on where it was.

A selection is a fixed sequence of runs of the loop. A journal keeps, by the number of the run, how
each of them ended, and of the current one the last state that was written. Whoever does the same
selection again gets the ended runs back and goes on with the current one, to the same end.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from fairnepv.errors import InputError, Status
from fairnepv.loop import Kept, Method, Step, pack, unpack

_SHARE = 20.0  # writing may take one part in so many of the time
_LARGEST = 1 << 28  # bytes of a state that is worth writing
_TABLES = """
create table if not exists about (fingerprint text not null);
create table if not exists runs (
    number integer primary key, stage text, steps integer, objective real, status text, state blob
);
"""


class Journal:
    """In one SQLite file, which is whole whenever the process ends."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path = path
        self._number = -1
        self._written, self._took = 0.0, 0.0
        try:
            self._file = sqlite3.connect(path, isolation_level=None)
            self._file.execute("pragma synchronous = off")  # a killed process loses nothing by it
            self._file.executescript(_TABLES)
            known = self._file.execute("select fingerprint from about").fetchone()
            if known is None:
                self._file.execute("insert into about values (?)", (fingerprint,))
        except sqlite3.Error as error:
            raise InputError(
                f"checkpoint {path} cannot be used ({error}); name another file"
            ) from error
        if known is not None and known[0] != fingerprint:
            self.close()
            raise InputError(
                f"checkpoint {path} is of another problem: the data, k or an option differs; name "
                "another file, or remove this one"
            )

    def close(self) -> None:
        self._file.close()

    def resume(self, method: Method[Any]) -> Kept | None:
        """What is known of the next run; None where it is new."""
        self._number += 1
        self._took = 0.0  # the first state of a run is always written
        row = self._file.execute(
            "select stage, steps, objective, status, state from runs where number = ?",
            (self._number,),
        ).fetchone()
        if row is None or row[3] is None:  # what came after a run that had to stop came of that
            self._file.execute("delete from runs where number > ?", (self._number,))
        if row is None:
            return None
        stage, steps, objective, status, blob = row
        if stage != method.stage:
            raise InputError(
                f"checkpoint {self._path} has {stage!r} where {method.stage!r} is next: another "
                "version wrote it; remove it"
            )
        with np.load(io.BytesIO(blob), allow_pickle=False) as arrays:
            state = unpack(get_type_hints(type(method).init)["return"], dict(arrays))
        return Kept(state, steps, objective, None if status is None else Status[status])

    def keep(self, state: Any, row: Step, status: Status | None = None) -> None:
        """The state of the current run after a step, unless writing would take too long; the one
        in which it ended always."""
        began = time.monotonic()
        if status is None and began - self._written < _SHARE * self._took:
            return
        if getattr(state, "stopped", ""):  # in the middle of a step: the state before it is whole
            return
        blob = _blob(pack(state))
        if len(blob) > _LARGEST:
            return
        ended = status is not None and not status.stops_everything
        self._file.execute(
            "insert or replace into runs values (?, ?, ?, ?, ?, ?)",
            (
                self._number,
                row.stage,
                row.step,
                row.objective,
                status.name if status is not None and ended else None,
                blob,
            ),
        )
        self._written = time.monotonic()
        self._took = self._written - began


def _blob(arrays: Mapping[str, Any]) -> bytes:
    written = io.BytesIO()
    try:
        np.savez(written, **arrays)
    except ValueError as error:  # what zipfile makes of an interruption
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
    return written.getvalue()


def fingerprint_of(settings: Mapping[str, Any], *arrays: Any) -> str:
    """Of what decides a selection: all options, and arrays that tell pools and rules apart."""
    seal = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode())
    for array in arrays:
        numbers = np.ascontiguousarray(array)
        seal.update(f"{numbers.dtype} {numbers.shape}".encode())
        seal.update(numbers.view(np.uint8).data if numbers.size else b"")
    return seal.hexdigest()
