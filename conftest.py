"""What all tests have in common: two speeds, a state folder of their own, and command lines."""

import gc
import json
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from fairnepv.cli import main

# Tests pass on a busy machine, too.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


# Fifteen thousand cases are no garbage: not looked through while they are made, nor ever after.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what `sample` leaves out as slow, and puts first the files that take longest."""
    functions = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample"):
            functions[item.nodeid.partition("[")[0]].append(item)
    for cases in functions.values():
        fast = set(_sampled(cases))
        for case in cases:
            if case not in fast:
                case.add_marker("slow")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("ray"):
        return 0
    return 1 if "studies" in item.path.parts else 2


def _sampled(cases: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """`sample(count)`: so many, evenly spaced; without a count: each value of each parameter."""
    mark = cases[0].get_closest_marker("sample")
    assert mark is not None
    if mark.args:
        count = min(mark.args[0], len(cases))
        yield from (cases[i * len(cases) // count] for i in range(count))
        return
    values = [
        {(name, id(value)) for name, value in case.callspec.params.items()}  # type: ignore[attr-defined]
        for case in cases
    ]
    unseen, used = set().union(*values), Counter[object]()

    def worth(case: int) -> tuple[int, int]:
        """How many values it has first, and otherwise how rarely its values were used."""
        return len(values[case] & unseen), -sum(used[value] for value in values[case])

    while unseen:
        best = max(range(len(cases)), key=worth)
        unseen -= values[best]
        used.update(values[best])
        yield cases[best]


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory):
    """Keys of checkpoints are not the user's, nor are they left in the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON on stdout, with nothing around it and nothing on stderr."""
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out)


@pytest.fixture
def command(monkeypatch, capsys):
    """A command line through the entry point; later arguments are taken as they are."""

    def run(line: str, *arguments: object) -> Ended:
        words = [*shlex.split(line), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", ["fairnepv", *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Ended(code, *capsys.readouterr())

    return run
