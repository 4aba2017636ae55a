"""Which tests reach which lines, and how long each test takes: recorded once, by coverage."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Reach(NamedTuple):
    """Seconds of processor time by test, and tests by file and line."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]

    def tests_of(self, file: str, lines: Iterable[int], budget: float) -> list[str]:
        """Those that reach one of the lines, as many as take no more than the budget: of each test
        function the fastest case first, then the second of each, and so on."""
        known = self.lines.get(file, {})
        found = {test for line in lines for test in known.get(str(line), ())}
        turns, cases = {}, defaultdict(int)
        for test in sorted(found, key=lambda test: (self.seconds[test], test)):
            function = test.partition("[")[0]
            turns[test] = (cases[function], self.seconds[test], test)
            cases[function] += 1
        chosen, taken = [], 0.0
        for test in sorted(found, key=turns.__getitem__):
            taken += self.seconds[test]
            if taken > budget:
                break
            chosen.append(test)
        return chosen

    def of(self, kept: Callable[[str], bool]) -> "Reach":
        """What is known of these tests alone."""
        return Reach(
            {test: took for test, took in self.seconds.items() if kept(test)},
            {
                file: {line: [*filter(kept, tests)] for line, tests in lines.items()}
                for file, lines in self.lines.items()
            },
        )

    def beside(self, other: "Reach") -> "Reach":
        """Both, which have no test in common."""
        lines = {file: dict(known) for file, known in self.lines.items()}
        for file, more in other.lines.items():
            known = lines.setdefault(file, {})
            for line, tests in more.items():
                known[line] = [*known.get(line, ()), *tests]
        return Reach(self.seconds | other.seconds, lines)

    def saved(self, file: Path, **more: object) -> None:
        """Tests by their numbers, as a line that all of them reach would name each."""
        number = {test: i for i, test in enumerate(self.seconds)}
        lines = {
            name: {line: [number[test] for test in tests] for line, tests in known.items()}
            for name, known in self.lines.items()
        }
        file.write_text(json.dumps({"seconds": self.seconds, "lines": lines, **more}))

    @staticmethod
    def loaded(file: Path) -> tuple["Reach", dict[str, Any]]:
        """And what was saved with it."""
        told = json.loads(file.read_text())
        seconds = told.pop("seconds")
        names = list(seconds)
        lines = {
            name: {line: [names[i] for i in tests] for line, tests in known.items()}
            for name, known in told.pop("lines").items()
        }
        return Reach(seconds, lines), told


def module_of(test: str) -> str:
    return test.partition("::")[0]


def passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    before = item.session.testsfailed
    item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    return item.session.testsfailed == before


class Recorder:
    """A plugin of pytest: a context of coverage for each test, and for each fixture that several
    tests share, whose lines all of them reach."""

    def __init__(self, root: Path, rooms: Sequence[str], data: Path) -> None:
        import coverage

        self._root, self._test = root, ""
        rooms = [f"{root}/{room}/*" for room in rooms]
        self._coverage = coverage.Coverage(str(data), include=rooms, config_file=False)
        self._seconds: dict[str, float] = {}

    def record(self, items: Mapping[str, pytest.Item], clock: Any) -> Reach:
        self._coverage.start()
        tests = list(items)
        for test, following in zip(tests, [*tests[1:], ""], strict=True):
            self._test = test
            self._coverage.switch_context(test)
            began = clock()
            if passes(items[test], items.get(following)):
                self._seconds[test] = clock() - began
        self._coverage.stop()
        return Reach(self._seconds, self._lines(items))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        module = module_of(self._test)
        self._coverage.switch_context(f"{module} {fixturedef.argname}")
        try:
            return (yield)
        finally:
            self._coverage.switch_context(self._test)

    def _lines(self, items: Mapping[str, pytest.Item]) -> dict[str, dict[str, list[str]]]:
        users = defaultdict(list)
        for test in self._seconds:
            users[test].append(test)
            module = module_of(test)
            for fixture in getattr(items[test], "fixturenames", ()):
                users[f"{module} {fixture}"].append(test)
        data = self._coverage.get_data()
        return {
            Path(file).relative_to(self._root).as_posix(): {
                str(line): sorted({test for context in contexts for test in users[context]})
                for line, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
