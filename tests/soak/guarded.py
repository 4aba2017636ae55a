"""A process that may use so much memory and no more carries out what may kill it: whoever asks gets
an answer, or learns by which signal it has ended or that it hangs."""

import faulthandler
import importlib
import json
import os
import resource
import select
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairnepv.errors import FairnepvError
from soak.formats import within

MEMORY = 3 << 30  # bytes of address space, of which the libraries themselves take 1.5 GiB
OFTEN = 2000  # cases of a process before a fresh one takes its place
FIRST = 6.0  # times the patience: the first answer waits for what is imported


def serve(module: str) -> None:
    """Answer to numbers and folders, a line each, by `inside(number, folder)` of the module."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    inside = importlib.import_module(module).inside
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints does not answer
    for line in sys.stdin:
        number, folder = json.loads(line)
        print(json.dumps(inside(number, Path(folder))), file=answers, flush=True)


def trouble(name: str, task: Callable[[], object], folder: Path) -> str:
    """Nothing, or what went wrong with the task in this folder."""
    with within(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            task()
        except BaseException:
            return f"{name}: {traceback.format_exc(limit=-6)}"
    return ""


def refused(ask: Callable[[], object], *words: str) -> None:
    """One sentence of ours, with these words."""
    try:
        found = ask()
    except FairnepvError as error:
        said = str(error)
        assert len(said.splitlines()) == 1, said
        for word in words:
            assert word in said, (word, said)
        return
    raise AssertionError(f"it went on, to {found!r:.200}")


class Guarded:
    """Such a process, or the next one when it has died, hung or done enough."""

    def __init__(self, module: str, patience: float) -> None:
        self._module, self._patience = module, patience
        self._process: subprocess.Popen[str] | None = None
        self._done = 0

    def case(self, number: int, folder: Path) -> None:
        """One of a group, carried out there."""
        said = self.ask(number, folder)
        assert not said, said

    def ask(self, number: int, folder: Path) -> str:
        """What `inside` says: nothing, or what went wrong."""
        process = self._fresh()
        assert process.stdin is not None
        assert process.stdout is not None
        self._done += 1
        process.stdin.write(json.dumps([number, str(folder)]) + "\n")
        process.stdin.flush()
        patience = self._patience * (1.0 if self._done > 1 else FIRST)
        ready, _, _ = select.select([process.stdout], [], [], patience)
        answer = process.stdout.readline() if ready else ""
        if answer:
            found: str = json.loads(answer)
            return found
        if ready:
            process.wait(self._patience)  # until it has ended by itself, and told by what
        self.close()
        if not ready:
            return f"no answer within {patience:g} seconds"
        return f"the process ended by {process.returncode} (a signal, if that is negative)"

    def _fresh(self) -> "subprocess.Popen[str]":
        if self._process is None or self._done >= OFTEN:
            self.close()
            command = [sys.executable, "-m", "soak.guarded", self._module]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            here = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            small = {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
            self._process = subprocess.Popen(
                command, text=True, env={**os.environ, **here, **small}, **pipes
            )
            self._done = 0
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
        self._process = None


if __name__ == "__main__":
    serve(sys.argv[1])
