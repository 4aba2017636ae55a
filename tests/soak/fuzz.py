"""Mutated files of every format, read by a process that may use so much memory and no more: there is
an answer or a `FairnepvError`, and never a signal, a hang or another error."""
# cases: fuzz

import faulthandler
import json
import os
import resource
import select
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv.errors import FairnepvError
from soak.formats import NAMES, format_of, within
from soak.mutator import mutated
from soak.runner import Group

MEMORY = 3 << 30  # bytes of address space, of which the libraries themselves take 1.5 GiB
PATIENCE = 20.0  # seconds for one file
OFTEN = 2000  # files that a process reads before a fresh one takes its place


def damage(number: int, folder: Path) -> Any:
    """Write the files of a case, one of them changed; what reads them, and by which name."""
    rng = np.random.default_rng([23, 7, number])
    chosen = format_of(NAMES[number % len(NAMES)])
    changed = sorted(chosen.files)[rng.integers(len(chosen.files))]
    for name, content in chosen.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mutated(rng, content) if name == changed else content)
    return chosen


def outcome(number: int, folder: Path) -> str:
    """Empty, or what went wrong."""
    chosen = damage(number, folder)
    with within(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            chosen.read(chosen.given)
        except FairnepvError as error:
            return "" if len(str(error).splitlines()) == 1 else f"{error!r} has several lines"
        except BaseException:
            return f"{chosen.name}: {traceback.format_exc(limit=-6)}"
    return ""


def serve() -> None:
    """Answer to numbers and folders, a line each."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints does not answer
    for line in sys.stdin:
        number, folder = json.loads(line)
        print(json.dumps(outcome(number, Path(folder))), file=answers, flush=True)


class Reader:
    """A process that reads, or the next one when it has died, hung or read enough."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._read = 0

    def ask(self, number: int, folder: Path) -> str:
        process = self._fresh()
        assert process.stdin is not None
        assert process.stdout is not None
        self._read += 1
        process.stdin.write(json.dumps([number, str(folder)]) + "\n")
        process.stdin.flush()
        # The first answer of a process waits for what it imports.
        patience = PATIENCE if self._read > 1 else 6 * PATIENCE
        ready, _, _ = select.select([process.stdout], [], [], patience)
        answer = process.stdout.readline() if ready else ""
        if answer:
            found: str = json.loads(answer)
            return found
        self.close()
        if not ready:
            return f"no answer within {patience:g} seconds"
        return f"the reader ended by {process.returncode} (a signal, if that is negative)"

    def _fresh(self) -> "subprocess.Popen[str]":
        if self._process is None or self._read >= OFTEN:
            self.close()
            command = [sys.executable, "-m", "soak.fuzz"]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            here = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            small = {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
            self._process = subprocess.Popen(
                command, text=True, env={**os.environ, **here, **small}, **pipes
            )
            self._read = 0
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
        self._process = None


_READER = Reader()


def case(number: int, folder: Path) -> None:
    said = _READER.ask(number, folder)
    assert not said, said


GROUP = Group("fuzz", case, 70_000, sample=range(0, 70_000, 350), patience=300.0)

if __name__ == "__main__":
    serve()
