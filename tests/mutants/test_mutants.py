"""The tool itself: which mistakes it makes, which tests meet them, and how they end."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mutants.__main__ import JUDGED, ROOT, TESTS, interval, judged_as
from mutants.mutations import mutants, mutated
from mutants.reach import Reach

TEXT = '''
"""A module."""
LIMIT = 3
UNTOUCHED: int = 4


class Thing:
    field: int = 5

    @property
    def half(self):
        """Its half."""
        assert self.field > 0
        return self.field / 2


def clipped(x, most=9):
    if x < LIMIT:
        raise ValueError(f"{x} is below {LIMIT + 1}")
    total = 0
    for _ in range(most):
        total += min(x, 7)
    return total
'''


@pytest.fixture
def module(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(TEXT)
    return file


def test_every_small_mistake_and_nothing_in_text_defaults_or_declarations(module):
    found = mutants(module, module.parent)
    assert [(mutant.within, mutant.told) for mutant in found] == [
        ("LIMIT", "3  ->  4"),
        ("Thing.half:10", "return self.field / 2  ->  return None"),
        ("Thing.half:10", "self.field / 2  ->  self.field * 2"),
        ("Thing.half:10", "self.field / 2  ->  2 / self.field"),
        ("Thing.half:10", "2  ->  3"),
        ("clipped:17", "x < LIMIT  ->  not x < LIMIT"),
        ("clipped:17", "x < LIMIT  ->  x <= LIMIT"),
        ("clipped:17", "x < LIMIT  ->  x >= LIMIT"),
        ("clipped:17", "raise ValueError(f'{x} is below {LIMIT + 1}')  ->  pass"),
        ("clipped:17", "0  ->  1"),
        ("clipped:17", "total += min(x, 7)  ->  total -= min(x, 7)"),
        ("clipped:17", "total += min(x, 7)  ->  pass"),
        ("clipped:17", "min(x, 7)  ->  max(x, 7)"),
        ("clipped:17", "7  ->  8"),
        ("clipped:17", "return total  ->  return None"),
    ]


def test_what_no_result_can_show_is_known(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        "def f(x, y):\n"
        "    expect(2 * len(x))\n"
        "    geometry.dot(x, y)\n"
        "    with few_threads(3 * len(x)):\n"
        "        return g(zip(x, y, strict=True), fixed=True)\n"
    )
    shown = [mutant.told for mutant in mutants(file, tmp_path) if not mutant.idle]
    assert shown == [
        "geometry.dot(x, y)  ->  pass",
        "return g(zip(x, y, strict=True), fixed=True)  ->  return None",
        "zip(x, y, strict=True)  ->  zip(y, x, strict=True)",
        "True  ->  False",
    ]


@pytest.mark.parametrize("file", JUDGED)
def test_what_was_judged_still_stands_there(file):
    there = set(map(judged_as, _of_a_journal(file)))
    assert [name for name in JUDGED[file] if name not in there] == []


def _of_a_journal(file):
    for mutant in mutants(ROOT / file, ROOT):
        where = f"{file}:{mutant.first}"
        yield {"where": where, "within": mutant.within, "told": mutant.told}


def test_a_mutant_has_its_mistake_and_no_other(module):
    text = ast.unparse(ast.parse(TEXT)).splitlines()
    for mutant in mutants(module, module.parent):
        other = ast.unparse(mutated(module, mutant)).splitlines()
        assert sum(a != b for a, b in zip(text, other, strict=True)) == 1, mutant.told


def test_of_each_test_function_the_fastest_case_meets_a_mutant_first():
    seconds = {"t::a[1]": 0.3, "t::a[2]": 0.1, "t::b": 0.2, "t::c": 9.0}
    reach = Reach(seconds, {"x.py": {"4": ["t::a[1]", "t::b"], "5": ["t::a[2]"], "6": ["t::c"]}})
    assert reach.tests_of("x.py", [4, 5], 1.0) == ["t::a[2]", "t::b", "t::a[1]"]
    assert reach.tests_of("x.py", [4, 5], 0.35) == ["t::a[2]", "t::b"]
    assert reach.tests_of("x.py", [7], 1.0) == reach.tests_of("y.py", [4, 5], 1.0) == []


def test_what_tests_reach_is_kept_and_joined(tmp_path):
    one = Reach({"t::a": 1.0, "u::b": 2.0}, {"x.py": {"4": ["t::a", "u::b"]}})
    other = Reach({"v::c": 3.0}, {"x.py": {"4": ["v::c"], "5": ["v::c"]}})
    both = one.of(lambda test: test == "u::b").beside(other)
    assert both.seconds == {"u::b": 2.0, "v::c": 3.0}
    assert both.lines == {"x.py": {"4": ["u::b", "v::c"], "5": ["v::c"]}}
    both.saved(tmp_path / "reach", library="a")
    assert Reach.loaded(tmp_path / "reach") == (both, {"library": "a"})


def test_the_interval_is_wilsons():
    assert interval(85, 100) == pytest.approx((0.7672, 0.9069), abs=5e-5)
    assert interval(0, 0)[0] == 0.0


OWN_TESTS = """
import time
import pytest
from module import Thing, clipped

def test_half():
    assert Thing().half == 2.5

def test_clipped():
    assert clipped(8) == 63
    with pytest.raises(ValueError, match="below"):
        clipped(2)
"""
WORK = """
import sys
from pathlib import Path
import pytest
from hypothesis import settings
from mutants.mutations import mutants
from mutants.server import Server

settings.register_profile("busy")
root = Path.cwd()

def work(server):
    (root / "sub").mkdir(exist_ok=True)
    reach = server.reach(server.tests, ["."])
    for mutant in mutants(root / "module.py", root):
        tests = reach.tests_of(mutant.file, mutant.lines, 60.0)
        print(mutant.told, "|", *server.attempt(mutant, tests, reach))

sys.exit(pytest.main(["-q", "-s", "test_module.py"], plugins=[Server(root, work)]))
"""


@pytest.mark.slow
def test_mutants_end_as_they_should(module):
    folder = module.parent
    (folder / "test_module.py").write_text(OWN_TESTS)
    paths = [str(TESTS), str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    line = [sys.executable, "-c", WORK]
    ended = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
    told = [line.split(" | ") for line in ended.stdout.splitlines() if " | " in line]
    assert ended.returncode == 0, ended.stderr
    survived = [what for what, end in told if end.startswith("survived")]
    assert survived == ["3  ->  4", "x < LIMIT  ->  x <= LIMIT"]
    assert len(told) == 15
    killed = dict(told)["self.field / 2  ->  self.field * 2"]
    assert killed.strip() == "killed test_module.py::test_half"
    assert not list(Path(folder).glob("fairnepv-mutant*"))
