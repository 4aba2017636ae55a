"""Bars: when they appear, where they are shown, what they say of the time that is left."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fairnepv
from fairnepv.loop import Step, bars
from refusals import refused

DATA = {"a": np.random.default_rng(0).standard_normal((50, 8)), "b": np.eye(50)[:, :9] + 0.1}
K = 4
FOUND = fairnepv.select(DATA, K, effort="fast", certify=False)
FAST = {"effort": "fast"}
LONG = {  # every public function that takes long, with what makes it short here
    "select": lambda **o: fairnepv.select(DATA, K, **FAST, **o),
    "several sizes": lambda **o: fairnepv.select(DATA, [2, 3], **FAST, **o),
    "compare": lambda **o: fairnepv.compare(DATA, K, methods=["auto", "random"], **FAST, **o),
    "certify": lambda **o: fairnepv.certify(DATA, K, **o),
    "relax": lambda **o: fairnepv.relax(DATA, K, **o),
    "curve": lambda **o: fairnepv.curve(DATA, 5, **o),
    "stability": lambda **o: fairnepv.stability(FOUND, tau=(), eps=(), **o),
    "tradeoff": lambda **o: fairnepv.tradeoff(DATA, K, "a", points=3, **FAST, **o),
    "extend": lambda **o: fairnepv.extend(FOUND, DATA, 2, **FAST, **o),
}


@pytest.fixture
def shown(monkeypatch):
    """What bars are told, instead of showing it."""
    made = []

    class Told(bars.StageBar):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.stages = []
            made.append(self)

        def __call__(self, row):
            self.stages.append(row.stage)
            super().__call__(row)

    monkeypatch.setattr(bars, "StageBar", Told)
    return made


@pytest.mark.parametrize("name", LONG)
def test_one_bar_shows_the_stages_of_a_call(name, shown):
    LONG[name](progress=True)
    (bar,) = shown  # and none for what it calls in turn
    assert bar.stages


@pytest.mark.parametrize("name", LONG)
def test_scripts_show_no_bar_by_themselves(name, shown):
    LONG[name]()
    LONG[name](progress=False)
    assert not shown


@pytest.mark.parametrize("name", LONG)
def test_who_types_gets_one_and_false_is_never(name, shown, monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    LONG[name](progress=False)
    assert not shown
    LONG[name]()
    assert len(shown) == 1


def test_an_estimator_shows_one_as_well(shown, monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    fairnepv.FairSelector(K, effort="fast").fit(DATA)
    assert len(shown) == 1


def test_a_listener_hears_the_steps_and_shows_nothing(shown, monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    heard = []
    fairnepv.tradeoff(DATA, K, "a", points=3, **FAST, progress=heard.append)
    assert not shown
    assert {"tradeoff", "greedy"} <= {step.stage for step in heard}
    assert [step.details["of"] for step in heard if step.stage == "tradeoff"] == [3, 3]
    heard.clear()
    fairnepv.select(DATA, [3, 2], **FAST, progress=heard.append)
    assert [step.details["k"] for step in heard if step.stage == "sizes"] == [2, 3]


@pytest.mark.parametrize("wrong", [3, "yes", [], 0])
def test_what_is_neither_is_refused(wrong):
    assert "progress must be" in refused(fairnepv.select, DATA, K, progress=wrong)


def test_answers_are_the_same_with_a_bar():
    assert fairnepv.select(DATA, K, progress=True) == fairnepv.select(DATA, K, progress=False)


# --- what it says ---------------------------------------------------------------------------------


def task(**known):
    usual = {
        "elapsed": 75.2,
        "time_remaining": None,
        "total": None,
        "finished": False,
        "fields": {},
    }
    return SimpleNamespace(**{**usual, "finished_time": None, **known})


def test_left_stands_behind_what_is_left_and_nowhere_else():
    assert bars.times_of(task()) == "1:15"
    assert bars.times_of(task(total=1.0)) == "1:15"  # so far no pace is known
    assert bars.times_of(task(total=1.0, time_remaining=30)) == "1:15, 0:30 left"
    assert bars.times_of(task(total=1.0, time_remaining=3700)) == "1:15, 1:01:40 left"
    limited = task(total=1.0, time_remaining=30, fields={"end": time.monotonic() + 9.5})
    assert bars.times_of(limited) == "1:15, 0:09 left"
    done = task(total=1.0, time_remaining=0, finished=True, finished_time=80.0)
    assert bars.times_of(done) == "1:20"


def lines_after(*steps, limit=None):
    """The tasks of a bar that was told these."""
    with bars.progress_bar() as bar:
        listener = bars.StageBar(bar, limit)
        for step in steps:
            listener(step)
        return [
            (one.description, one.total, one.completed, one.fields["said"]) for one in bar.tasks
        ]


def test_a_stage_says_its_step_and_what_is_proven():
    assert lines_after() == [("preparing", None, 0, "")]
    (line,) = lines_after(
        Step("bound", 0, 0, 0.0, 0.5), Step("bound", 3, 0, 0.1, 0.5, details={"bound": 0.7})
    )
    assert line[:3] == ("bound", None, 0.0)
    assert line[3] == "step     3  value 0.50000  at most 0.70000"


def test_where_the_end_is_known_the_bar_knows_it():
    (line,) = lines_after(Step("greedy", 5, 0, 0.1, 0.5, details={"size": 5, "of": 20}))
    assert line[1:3] == (1.0, 0.25)
    steps = [
        Step("relax", i, 0, 0.1, 0.5, residual=r, details={"tol": 1e-4})
        for i, r in enumerate((1, 1e-2))
    ]
    assert lines_after(*steps)[0][1:3] == (1.0, pytest.approx(0.5))
    assert lines_after(Step("swaps", 0, 0, 0.1, 0.5), limit=1000.0)[0][1] == 1.0


def test_stages_within_others_have_a_line_of_their_own():
    turn = Step("stability", 1, 0, 0.1, 0.5, details={"variant": "seed 1", "size": 1, "of": 6})
    whole, stage = lines_after(turn, Step("greedy", 0, 0, 0.0, 0.5))[::-1][::-1]
    assert {whole[0], stage[0]} == {"variants", "greedy"}
    assert ("variants", 6, 1, "now: seed 1") in (whole, stage)


# --- where it is shown ----------------------------------------------------------------------------

SCRIPT = """
import sys, time, numpy as np, fairnepv
from fairnepv.loop import bars
if sys.argv[1] == "typed": sys.ps1 = ">>> "
bars.DELAY = float(sys.argv[2])
wanted = {"True": True, "None": None, "False": False}[sys.argv[3]]
rng = np.random.default_rng(0)
def slow(step): time.sleep(0.02)
import fairnepv.loop.driver as driver
row = driver._row
driver._row = lambda *a: (time.sleep(0.05), row(*a))[1]
data = {"[red]a": rng.standard_normal((200, 20)), "b": rng.standard_normal((200, 20))}
fairnepv.select(data, 15, effort="fast", progress=wanted)
"""


def on_a_terminal(*arguments):
    """What a terminal of 120 columns is sent."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, *arguments]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env=environment) as run:
        os.close(theirs)
        sent, until = b"", time.monotonic() + 120
        while time.monotonic() < until:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    more = os.read(ours, 65536)
                except OSError:  # it is closed
                    break
                if not more:
                    break
                sent += more
        assert run.wait(60) == 0
        assert run.stdout.read() == b""
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", sent.decode())


def test_a_terminal_shows_stage_times_and_what_is_left():
    told = on_a_terminal("script", "2", "True")
    assert "greedy" in told
    assert re.search(r"\d:\d\d, \d:\d\d left", told)
    assert not re.search(r"(?<!\d:\d\d )left", told)
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("typed", "delay", "wanted", "appears"),
    [
        ("typed", "0.2", "None", True),
        ("typed", "600", "None", False),  # it was over before
        ("script", "0.2", "None", False),
        ("typed", "0.2", "False", False),
    ],
)
def test_it_appears_by_itself_where_somebody_waits(typed, delay, wanted, appears):
    assert ("greedy" in on_a_terminal(typed, delay, wanted)) is appears


def test_without_a_terminal_nothing_is_sent(capfd):
    fairnepv.select(DATA, K, progress=True)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def notebook(monkeypatch):
    """A kernel of Jupyter, as far as we ask it: what its displays showed, one after the other."""
    pictures = []

    class Handle:
        def update(self, picture):
            pictures.append(picture)

    def display(picture, display_id):
        assert display_id is True
        pictures.append(picture)
        return Handle()

    kernel: Any = ModuleType("IPython")
    output: Any = ModuleType("IPython.display")
    kernel.get_ipython = lambda: SimpleNamespace(kernel=object())
    output.display, output.HTML = display, str
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", output)
    monkeypatch.setattr(bars, "_PAINTED", 0.001)
    return pictures


def test_a_notebook_shows_a_bar_and_takes_it_away(notebook, capfd):
    views = dict(zip(("<script>", "b"), DATA.values(), strict=True))
    fairnepv.compare(views, K, methods=["<script>-only", "auto"], progress=True)
    assert notebook[0].startswith("<table>")
    assert any("<progress" in picture and "value=" in picture for picture in notebook)
    assert notebook[-1] == ""
    assert not any("<script>" in picture for picture in notebook)
    assert capfd.readouterr() == ("", "")


def test_a_notebook_shows_one_by_itself_only_after_a_while(notebook, monkeypatch):
    fairnepv.select(DATA, K, **FAST)
    assert not notebook  # it was quick
    monkeypatch.setattr(bars, "DELAY", 0.0)
    fairnepv.select(DATA, K, **FAST)
    assert notebook


def test_a_bar_ends_with_the_call_however_that_ends(notebook):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), bars.stage_bar():
        interrupt()
    assert notebook[-1] == ""
