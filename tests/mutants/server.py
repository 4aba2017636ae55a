"""A pytest that collects once and forks for every mutant: a child has a function's code changed."""

import ast
import contextlib
import gc
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from mutants.mutations import Mutant, mutated
from mutants.reach import Reach, Recorder, passes

ENDED = {0: "survived", 1: "killed", 2: "not made"}
_PATIENCE = 5.0  # seconds of processor time beyond ten times what a test needs
_ASLEEP = 60.0  # seconds on end; some tests wait for others, of whom a busy machine knows
_LOOK = 0.02


class Server:
    """`work` is given the server once all is collected; nothing runs but what it asks for."""

    def __init__(self, root: Path, work: Callable[["Server"], None]) -> None:
        self._root, self._work = root, work
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[tuple[str, str], list[FunctionType]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        from hypothesis import Phase, settings

        phases = [Phase.explicit, Phase.generate]  # a failure is enough, it need not be small
        busy = settings.get_profile("busy")
        settings.register_profile("mutants", busy, phases=phases, database=None)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()
        self._functions = _functions_below(self._root)
        gc.freeze()
        self._work(self)
        return True

    @property
    def tests(self) -> list[str]:
        return list(self._items)

    def reach(self, tests: Sequence[str], rooms: Sequence[str]) -> Reach:
        """Each of these once, in a child."""
        items = {test: self._items[test] for test in tests}
        with tempfile.TemporaryDirectory(prefix="fairnepv-mutants-") as folder:
            found = Path(folder) / "reach.json"

            def record() -> int:
                recorder = Recorder(self._root, rooms, found.with_suffix(".coverage"))
                items[tests[0]].config.pluginmanager.register(recorder)
                recorder.record(items, time.process_time).saved(found)
                return 0

            _forked(Path(folder), record)
            reach, _ = Reach.loaded(found)
        for test in items.keys() - reach.seconds.keys():
            print(f"left out, as it fails without a mistake: {test}", file=sys.stderr)
        return reach

    def attempt(self, mutant: Mutant, tests: Sequence[str], reach: Reach) -> tuple[str, str]:
        """How it ended, and which test ended it."""
        folder = Path(tempfile.mkdtemp(prefix="fairnepv-mutant-"))
        seconds = [reach.seconds[test] for test in tests]
        try:
            code = _forked(folder, lambda: self._meet(mutant, tests, seconds, folder))
            last = folder / "last"
            by = last.read_text() if code and last.exists() else ""
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return ENDED.get(code, "too long"), by

    def _meet(
        self, mutant: Mutant, tests: Sequence[str], seconds: Sequence[float], folder: Path
    ) -> int:
        try:
            self._change(mutant)
        except (ValueError, SyntaxError):  # a method without its `super()`, say
            return 2
        items = [self._items[test] for test in tests]
        for item, following, usual in zip(items, [*items[1:], None], seconds, strict=False):
            (folder / "last").write_text(item.nodeid)
            limit = int(time.process_time() + 10.0 * usual + _PATIENCE) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            if not passes(item, following):
                return 1
        return 0

    def _change(self, mutant: Mutant) -> None:
        file = self._root / mutant.file
        tree = mutated(file, mutant)
        name, _, line = mutant.within.partition(":")
        if not line:
            _set_constant(file, tree, name)
            return
        code = next(
            code
            for code in _codes(compile(tree, str(file), "exec"))
            if (code.co_qualname, code.co_firstlineno) == (name, int(line))
        )
        for function in self._functions[(str(file), mutant.within)]:
            function.__code__ = code


def _functions_below(root: Path) -> dict[tuple[str, str], list[FunctionType]]:
    """All that were made, also those that are wrapped, by file, qualified name and line."""
    found = defaultdict(list)
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(str(root)):
            code = thing.__code__
            found[(code.co_filename, f"{code.co_qualname}:{code.co_firstlineno}")].append(thing)
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _set_constant(file: Path, tree: ast.Module, name: str) -> None:
    """In its module, and in those that have imported it from there."""
    home = next(m for m in sys.modules.values() if getattr(m, "__file__", "") == str(file))
    statement = next(
        part
        for part in tree.body
        if isinstance(part, ast.Assign) and getattr(part.targets[0], "id", "") == name
    )
    names = dict(vars(home))
    before = names[name]
    exec(compile(ast.Module([statement], []), str(file), "exec"), names)
    for module in list(sys.modules.values()):
        if vars(module).get(name) is before and module.__name__.startswith("fairnepv"):
            setattr(module, name, names[name])


def _forked(folder: Path, task: Callable[[], int]) -> int:
    """What a child returns; a negative number when it was ended. A busy machine may let it wait as
    long as it likes, but it may not sleep for long."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setsid()
            os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            silence = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silence, stream)
            code = task()
        finally:
            os._exit(code)
    asleep = 0.0
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        time.sleep(_LOOK)
        asleep = asleep + _LOOK if _sleeps(child) else 0.0
        if asleep > _ASLEEP:
            os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it has left behind
    return os.waitstatus_to_exitcode(ended[1])


def _sleeps(process: int) -> bool:
    """Whether none of its threads could go on if it were given a core."""
    threads = Path(f"/proc/{process}/task").glob("*/stat")
    try:
        return all(thread.read_text().rpartition(")")[2].split()[0] == "S" for thread in threads)
    except OSError:  # it has just ended
        return False
