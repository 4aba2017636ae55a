"""States on disk, so that a driver that was killed goes on where it was.

A selection is a fixed sequence of runs of the loop. A journal keeps, by the number of the run, how
each of them ended, and of the current one the last state that was written. Whoever does the same
selection again gets the ended runs back and goes on with the current one, to the same end.

What a state claims could only be checked by doing the work again, so states are believed by their
seal (docs/security.md), and nothing of a state is looked at before its seal is. A seal covers the
one before it, and the first covers what tells problems apart.
"""

import contextlib
import hashlib
import hmac
import io
import json
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import CheckpointError, InputError, Status
from fairnepv.io.atomic import whole_file
from fairnepv.loop.driver import Method, S, Step

_SHARE = 20.0  # writing may take one part in so many of the time
_LARGEST = 1 << 28  # bytes of a state that is worth writing
_ROOM = 1 << 16  # bytes of what stands beside it
_PATIENCE = 1.0  # seconds to wait for another process to leave the file
_LONGEST = 1000  # letters of SQL in a file, which SQLite parses before we can look at it
_LITTLE_WORK = 1000  # instructions of SQLite, for the few things that a file of ours holds
_MOST_WORK = 10_000_000  # later: some for every run that is forgotten
_TABLES = {
    "about": "CREATE TABLE about (fingerprint text, seal blob)",
    "runs": "CREATE TABLE runs (number integer primary key, stage text, steps integer, "
    "objective real, status text, state blob, seal blob)",
}
_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # ends a journal that names a further file
_KEY_BYTES = 32


@dataclass(frozen=True)
class StoredRun:
    """What a journal knows of a run: where it was, and how it ended if it did."""

    state: Any
    steps: int
    objective: float
    status: Status | None


class Journal:
    """The states of one run after the other, in one SQLite file, which is whole whenever the
    process ends.

    A file that cannot be written any more costs the journal, which `notes` then say, and not the
    selection.
    """

    def __init__(self, path: Path, fingerprint: str, key: bytes) -> None:
        self.notes: list[str] = []
        self._path, self._key = path, key
        self._number = -1
        self._written, self._took = 0.0, 0.0
        self._before = self._seal(fingerprint)  # the seal of the last run that has ended
        self._file: sqlite3.Connection | None = None
        was_there = os.path.lexists(path)
        try:
            self._file = _open(path)
            self._begin(self._file, fingerprint)
            self._file.set_progress_handler(lambda: 1, _MOST_WORK)
        except CheckpointError:
            self.close()
            raise
        except (sqlite3.Error, OSError, ValueError) as error:
            self.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise InputError(
                    f"another selection is using the checkpoint {path}; wait for it, or name "
                    "another file"
                ) from error
            if not was_there:
                _remove_empty(path)
            reason = getattr(error, "strerror", None) or error
            raise CheckpointError(
                f"checkpoint {path} cannot be used ({reason}); name another file"
            ) from error

    def _begin(self, file: sqlite3.Connection, fingerprint: str) -> None:
        file.execute("begin exclusive")
        schema = "select type, name, tbl_name, sql from sqlite_master order by name"
        found = file.execute(schema).fetchmany(len(_TABLES) + 1)
        if not found:
            for table in _TABLES.values():
                file.execute(table)
            file.execute("insert into about values (?, ?)", (fingerprint, self._before))
        elif found != [("table", name, name, sql) for name, sql in _TABLES.items()]:
            raise sqlite3.DatabaseError("it is no checkpoint of this version")
        known = file.execute("select fingerprint, seal from about").fetchmany(2)
        if len(known) != 1 or not _same(known[0][1], self._seal(known[0][0])):
            raise CheckpointError(
                f"checkpoint {self._path} is not sealed with your key {_key_path()}: somebody else "
                "wrote it, or another machine, or it was changed since, so its claims cannot be "
                "believed; remove it to begin anew, or set XDG_STATE_HOME to where its key is"
            )
        if known[0][0] != fingerprint:
            raise CheckpointError(
                f"checkpoint {self._path} is of another problem: the data, k or an option differs, "
                "or the version of fairnepv; name another file, or remove this one"
            )
        file.execute("commit")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def resume(self, method: Method[Any]) -> StoredRun | None:
        """What is known of the next run; None where it is new."""
        self._number += 1
        self._took = 0.0  # the first state of a run is always written
        row = self._read()
        if row is None or row[3] is None:  # what came after a run that had to stop came of that
            self._write("delete from runs where number > ?", (self._number,))
        if row is None:
            return None
        stage, steps, objective, status, blob, seal = row
        if stage != method.stage:
            raise CheckpointError(
                f"checkpoint {self._path} has {stage!r} where {method.stage!r} is next: another "
                "version of a library wrote it; remove it"
            )
        with np.load(io.BytesIO(blob), allow_pickle=False) as arrays:
            state = unpack(get_type_hints(type(method).init)["return"], dict(arrays))
        if status is not None:
            self._before = seal
        return StoredRun(state, steps, objective, None if status is None else Status[status])

    def keep(self, state: Any, row: Step, status: Status | None = None) -> None:
        """The state of the current run after a step, unless writing would take too long; the one
        in which it ended always."""
        began = time.monotonic()
        if status is None and began - self._written < _SHARE * self._took:
            return
        # A state that says "stopped" is in the middle of a step: the one before it is whole.
        if self._file is None or getattr(state, "stopped", False):
            return
        blob = _blob(state)
        if len(blob) > _LARGEST:
            return
        ended = status.name if status is not None and not status.stops_everything else None
        values = (row.stage, row.step, float(row.objective), ended, blob)
        seal = self._seal(self._before, self._number, *values)
        self._write(
            "insert or replace into runs values (?, ?, ?, ?, ?, ?, ?)",
            (self._number, *values, seal),
        )
        if ended is not None:
            self._before = seal
        self._written = time.monotonic()
        self._took = self._written - began

    def _read(self) -> tuple[Any, ...] | None:
        """The row of the current run, if it is as it was written."""
        if self._file is None:
            return None
        columns = "stage, steps, objective, status, state, seal"
        query = f"select {columns} from runs where number = ?"
        row: tuple[Any, ...] | None = (None,)  # without a seal, for a file that cannot be read
        with contextlib.suppress(sqlite3.Error):
            row = self._file.execute(query, (self._number,)).fetchone()
        if row is None or _same(row[-1], self._seal(self._before, self._number, *row[:-1])):
            return row
        raise CheckpointError(
            f"checkpoint {self._path} was damaged or changed after it was written (run "
            f"{self._number}); remove it to begin anew"
        )

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        if self._file is None:
            return
        try:
            self._file.execute(statement, values)
        except sqlite3.Error as error:
            self.notes.append(
                f"checkpoint {self._path} could not be written any more ({error}), so that a run "
                "that is cut short goes on from an earlier state; see that its disk has room"
            )
            self.close()

    def _seal(self, *values: Any) -> bytes:
        seal = hmac.new(self._key, digestmod="sha256")
        for value in values:
            written = value if isinstance(value, bytes) else repr(value).encode()
            seal.update(f"{type(value).__name__} {len(written)} ".encode())
            seal.update(written)
        return seal.digest()


def _same(seal: Any, expected: bytes) -> bool:
    return isinstance(seal, bytes) and hmac.compare_digest(seal, expected)


def _open(path: Path) -> sqlite3.Connection:
    """A file that may come from anybody: what SQLite would do by itself is bounded or refused."""
    whole = os.path.realpath(path)  # SQLite names files beside it by where a link leads
    if os.path.lexists(whole) and not stat.S_ISREG(os.stat(whole).st_mode):
        raise OSError("it is no regular file")
    for beside in ("-wal", "-shm"):
        if os.path.lexists(whole + beside):
            raise OSError(f"a file {beside} lies beside it, which is not ours")
    _check_rollback(Path(whole + "-journal"))
    file = sqlite3.connect(whole, timeout=_PATIENCE, isolation_level=None)
    file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST + _ROOM)
    file.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    file.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _LONGEST)
    file.set_progress_handler(lambda: 1, _LITTLE_WORK)
    file.execute("pragma trusted_schema = off")
    file.execute("pragma cell_size_check = on")
    file.execute("pragma locking_mode = exclusive")  # until it is closed: one selection at a time
    file.execute("pragma synchronous = off")  # a killed process loses nothing by it
    return file


def _remove_empty(path: Path) -> None:
    """What SQLite leaves of a file that it has made and could not write."""
    with contextlib.suppress(OSError):
        if os.lstat(path).st_size == 0:
            path.unlink()


def _check_rollback(journal: Path) -> None:
    """What SQLite undoes half a writing by. One that names a further file has that removed."""
    if not os.path.lexists(journal):
        return
    if not stat.S_ISREG(os.lstat(journal).st_mode):
        raise OSError(f"{journal.name} beside it is no regular file")
    with journal.open("rb") as file:
        file.seek(-min(len(_SUPER_JOURNAL), os.fstat(file.fileno()).st_size), os.SEEK_END)
        if file.read() == _SUPER_JOURNAL:
            raise OSError(f"{journal.name} beside it is of several files")


def pack(state: Any) -> dict[str, Any]:
    """The fields of a state as arrays, ready for `numpy.savez`; None is left out."""
    values = {f.name: getattr(state, f.name) for f in fields(state)}
    return {name: np.asarray(value) for name, value in values.items() if value is not None}


def unpack(kind: type[S], arrays: Mapping[str, NDArray[Any]]) -> S:
    """The inverse of `pack`: zero-dimensional arrays become plain numbers and strings again."""
    values: dict[str, Any] = {f.name: None for f in fields(kind)}  # type: ignore[arg-type]
    for name, array in arrays.items():
        values[name] = array.item() if np.ndim(array) == 0 else np.asarray(array)
    return kind(**values)


def _blob(state: Any) -> bytes:
    written = io.BytesIO()
    try:
        np.savez(written, **pack(state))
    except ValueError as error:  # what zipfile makes of an interruption
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
    return written.getvalue()


def fingerprint_of(settings: Mapping[str, Any], *arrays: Any) -> str:
    """Of what decides a selection: all options, arrays that tell pools and rules apart, and the
    version, by whose rules states claim what they claim."""
    # In their order: which view is the first decides which numbers are its.
    seal = hashlib.sha256(json.dumps([_version(), settings], default=repr).encode())
    for array in arrays:
        numbers = np.ascontiguousarray(array)
        seal.update(f"{numbers.dtype} {numbers.shape}".encode())
        seal.update(numbers.view(np.uint8).data if numbers.size else b"")
    return seal.hexdigest()


def _version() -> str:
    try:
        return metadata.version("fairnepv")
    except metadata.PackageNotFoundError:  # a source tree
        return ""


# --- the key --------------------------------------------------------------------------------------


def own_key() -> bytes:
    """Random bytes that only this user can read, made when they are first asked for."""
    path = _key_path()
    try:
        if not path.exists():
            _make_key(path)
        if not path.is_file() or path.stat().st_size != _KEY_BYTES:
            raise OSError(None, "it is no key")
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise OSError(None, "others may read it")
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"checkpoints are sealed with a key of yours, but {path} cannot be used "
            f"({error.strerror}); set XDG_STATE_HOME to a folder of your own that lasts"
        ) from error


def _key_path() -> Path:
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    folder = given if given.is_absolute() else Path(os.path.expanduser("~/.local/state"))
    if not folder.is_absolute():
        raise CheckpointError(
            "checkpoints are sealed with a key of yours, but you have no home folder to keep it "
            "in; set XDG_STATE_HOME to a folder of your own that lasts"
        )
    return folder / "fairnepv" / "key"


def _make_key(path: Path) -> None:
    """Whole at once, and of several processes that come first at the same time only one does."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with whole_file(path, mode=0o600, replace=False) as part:
        part.write_bytes(secrets.token_bytes(_KEY_BYTES))
