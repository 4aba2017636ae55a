"""`--log-file`: the story of one run, a JSON object per line, for people and for programs.

The file is appended to, and every line has the run's id, so that a run that was stopped and the
one that went on tell their story one below the other (docs/commands.md has the events). Texts go
through `display.shown`: no address tells its password, no name moves a cursor.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from fairnepv.display import shown
from fairnepv.errors import InputError, Status
from fairnepv.io.touched import READ, WRITTEN, listening

if TYPE_CHECKING:
    from fairnepv.loop import Progress, Step

ARGUMENTS = "fairnepv.arguments"  # what was typed, in the `meta` of the root context
_PULSE = 10.0  # seconds between two lines of a stage that goes on
_LONGEST = 100  # items of a list; the rest is counted
_MOST_FILES = 200  # lines about files of either kind; the rest is counted
_PACKAGES = ("numpy", "scipy", "scikit-learn", "pyarrow", "torch", "ray", "fairnepv-studies")
_BEGIN = b'{"time": "'  # of every line

_story: Story | None = None


class Story:
    """The lines of one run. What cannot be written any more is given up, and not the run."""

    def __init__(self, path: Path, context: click.Context) -> None:
        self.path = path
        self.status: Status | None = None  # how the work of the command ended
        self.stages, self.rows = Stages(self.tell), Rows(self.tell)
        self._file = _opened(path)
        self._run = secrets.token_hex(4)
        self._began = time.monotonic()
        self._context: click.Context | None = context  # until its options have been told
        self._lock = threading.RLock()
        self._files: dict[tuple[str, str], int] = {}
        self._whole = ExitStack()
        self._whole.enter_context(listening(self._touched))

    def tell(self, event: str, **facts: Any) -> None:
        with self._lock:
            if event != "begin":
                self._tell_options()
            self._write(event, facts)

    def _tell_options(self) -> None:
        """Once: when the log begins, no other option has been looked at yet."""
        context, self._context = self._context, None
        if context is not None:
            given = context.params.items()
            asked = {n: v for n, v in given if not (v is None or v is False or v == ())}
            self._write("options", asked)

    def end(self, code: int | None, message: str) -> None:
        """The last line: how it ended, how long the stages took, and what it needed."""
        self.stages.tell_rest()
        named = {} if self.status is None else {"status": self.status.name}
        inputs, outputs = (sum(how == kind for how, _ in self._files) for kind in (READ, WRITTEN))
        self.tell(
            "end",
            code=code,
            **({"message": message} if message else {}),
            **named,
            inputs=inputs,
            outputs=outputs,
            **_needed(),
        )
        self.close()

    def close(self) -> None:
        self._whole.close()
        self._file.close()

    def _touched(self, how: str, path: Any) -> None:
        """The first time that a file is read, and every state in which one was written; what the
        run wrote itself is no input."""
        if how == READ and (WRITTEN, str(path)) in self._files:
            return
        with self._lock, contextlib.suppress(OSError):
            found = path.stat()
            modified = 0 if how == READ else found.st_mtime_ns
            if self._files.get((how, str(path)), -1) >= modified:
                return
            self._files[how, str(path)] = modified
            if sum(kind == how for kind, _ in self._files) > _MOST_FILES:
                return
            when = datetime.fromtimestamp(found.st_mtime_ns / 1e9, UTC).isoformat()
            size = {} if path.is_dir() else {"bytes": found.st_size}
            self.tell(how, path=str(path), **size, modified=when)

    def _write(self, event: str, facts: Mapping[str, Any]) -> None:
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "run": self._run,
            "seconds": round(time.monotonic() - self._began, 3),
            "event": event,
        }
        text = json.dumps(line | plain(facts), allow_nan=False) + "\n"
        try:
            self._file.write(text.encode("ascii"))  # one call: lines of other runs stay whole
        except OSError as error:
            said = f"{self.path} cannot be written any more ({error.strerror}), the run goes on"
            click.echo(f"fairnepv: {shown(said)} without its log", err=True)
            self._file.close()
            self._file = open(os.devnull, "wb", buffering=0)  # noqa: SIM115  # until it is closed
        except ValueError:  # a thread that tells something after the end
            return


def _opened(path: Path) -> IO[bytes]:
    """To be appended to; a file that is no log is none, whatever it is called."""
    try:
        known = path.is_file() and path.stat().st_size > 0
        if path.exists() and not path.is_file():
            raise InputError(f"--log-file {path} is no regular file; name a file to append to")
        file = open(path, "ab+", buffering=0)  # noqa: SIM115  # until the story ends
    except OSError as error:
        raise InputError(
            f"--log-file {path} cannot be written ({error.strerror}); name another file"
        ) from error
    if known:
        file.seek(0)
        if file.read(len(_BEGIN)) != _BEGIN:
            file.close()
            raise InputError(f"--log-file {path} exists and is no log of a run; name another file")
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":  # a kill or a full disk has torn it
            file.write(b"\n")
    return file


def plain(value: Any) -> Any:
    """A value as JSON knows it; texts, also in keys, as a person may see them."""
    if isinstance(value, Mapping):
        return {shown(name): plain(one) for name, one in value.items()}
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple | set | frozenset):
        listed = [plain(one) for one in [*value][:_LONGEST]]
        return listed + [f"... {len(value):,} in all"] * (len(value) > _LONGEST)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return shown(value)


def _needed() -> dict[str, Any]:
    """The time and the memory that the run took, where the system says."""
    from fairnepv.io.memory import peak_memory

    peak = peak_memory()
    if peak is None:
        return {}
    return {"processor_seconds": round(time.process_time(), 3), "peak_bytes": peak}


# --- the story of the command that runs -----------------------------------------------------------


def begin(context: click.Context, parameter: click.Parameter, path: str | None) -> None:
    """The callback of the option."""
    global _story
    if path is None or context.resilient_parsing:
        return
    from fairnepv.cli.files import reading
    from fairnepv.io.places import local_path

    _story = Story(reading(local_path, "--log-file", "", path), context)
    context.find_root().call_on_close(_forget)
    typed = context.find_root().meta.get(ARGUMENTS, [])
    _story.tell("begin", command=context.command_path, arguments=typed, **_surroundings())


def _forget() -> None:
    global _story
    if _story is not None:
        _story.close()
    _story = None


def _surroundings() -> dict[str, Any]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from fairnepv import __version__
    from fairnepv.io.memory import available_memory

    versions = {"fairnepv": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    machine = {"system": system, "cores": os.cpu_count(), "free_bytes": available_memory()}
    return {"versions": versions, "machine": machine, "folder": os.getcwd(), "process": os.getpid()}


def path_of_log() -> Path | None:
    return None if _story is None else _story.path


def tell(event: str, **facts: Any) -> None:
    """A line, where there is a log."""
    if _story is not None:
        _story.tell(event, **facts)


def tell_status(status: Status) -> None:
    """How the work ended, for the last line."""
    if _story is not None:
        _story.status = status


def tell_end(code: int | None, message: str = "") -> None:
    if _story is not None:
        _story.end(code, message)


# --- stages ---------------------------------------------------------------------------------------


@dataclass
class Stage:
    """What a stage has taken so far, over all of its runs."""

    runs: int = 0
    steps: int = 0
    seconds: float = 0.0
    objective: float = math.nan
    passes: int = 0
    upper_bound: float | None = None
    reached: float = 0.0  # seconds of the run at hand
    said: float = field(default_factory=lambda: time.monotonic())  # when there was a line last
    said_steps: int = -1  # that it told

    def hear(self, row: Step, *, begins: bool) -> None:
        self.runs += begins
        self.steps += not begins
        self.seconds += max(0.0, row.seconds - (0.0 if begins else self.reached))
        self.reached, self.objective, self.passes = row.seconds, row.objective, row.passes
        self.upper_bound = row.details.get("upper", row.details.get("bound"))

    @property
    def facts(self) -> dict[str, Any]:
        bound = {} if self.upper_bound is None else {"upper_bound": self.upper_bound}
        seconds = {"stage_seconds": round(self.seconds, 3), "objective": self.objective}
        return {"runs": self.runs, "steps": self.steps, **seconds, "passes": self.passes, **bound}


class Stages:
    """A listener to the loop. A stage has a line when it begins and when it is left for the first
    time, then one each ten seconds at the most, and a last one: a search may change its stage a
    thousand times."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._stages: dict[str, Stage] = {}
        self._last = ""

    def hear(self, row: Step) -> None:
        from fairnepv.loop.bars import OVERALL

        if row.stage in OVERALL:
            _, running = OVERALL[row.stage]
            told = row.details
            self._tell("turn", of=told["of"], done=told["size"], **{running: told[running]})
            return
        before = self._stages.get(self._last)
        if before is not None and row.stage != self._last and before.said_steps < 0:
            self._line(self._last)
        if row.stage not in self._stages:
            self._tell("stage begins", stage=row.stage)
        stage = self._stages.setdefault(row.stage, Stage())
        stage.hear(row, begins=row.stage != self._last or row.step == 0)
        self._last = row.stage
        if time.monotonic() - stage.said >= _PULSE:
            self._line(row.stage)

    def _line(self, name: str) -> None:
        stage = self._stages[name]
        stage.said, stage.said_steps = time.monotonic(), stage.steps
        self._tell("stage", stage=name, **stage.facts)

    def tell_rest(self) -> None:
        """The last lines, of stages that have gone on since theirs."""
        for name, stage in self._stages.items():
            if stage.said_steps != stage.steps:
                self._line(name)


@contextlib.contextmanager
def also_told(listener: Progress | None) -> Iterator[Progress | None]:
    """A listener to the loop that tells the log, too."""
    story = _story
    if story is None:
        yield listener
        return

    def hear(row: Step) -> None:
        story.stages.hear(row)
        if listener is not None:
            listener(row)

    try:
        yield hear
    finally:
        story.stages.tell_rest()


class Rows:
    """A listener to rows, items or cells that are done: a line at the start, at the end, and each
    ten seconds at the most."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._said: dict[str, float] = {}

    def hear(self, what: str, done: int, of: int | None) -> None:
        now = time.monotonic()
        if what not in self._said or done == of or now - self._said[what] >= _PULSE:
            self._said[what] = now
            self._tell("rows", what=what, done=done, of=of)


def tell_rows(what: str, done: int, of: int | None) -> None:
    if _story is not None:
        _story.rows.hear(what, done, of)
