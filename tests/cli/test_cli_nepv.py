"""The letters of the paper on the command line."""

import json
import shlex

import numpy as np
import pytest
from click.testing import CliRunner

import fairnepv
from cases import PAPER_ONE_SWAP
from fairnepv.cli import commands

VIEWS = "--view text=text.npy --view vision=vision.npy -k 5"
PAPER = (
    f"select {VIEWS} --tau 0.15 --eps 1e-12 --calibration none "
    "--method nepv --solver plain --start random --max-steps 50 --oversampling 2.6"
)


@pytest.fixture(autouse=True)
def instance(tmp_path, monkeypatch):
    """As docs/method.md writes it."""
    monkeypatch.chdir(tmp_path)
    for file, q in (("text.npy", [100, 0.1, 3]), ("vision.npy", [0.1, 100, 3])):
        np.save(file, np.diag(np.sqrt(np.repeat(q, 5))))


def run(line):
    found = CliRunner().invoke(commands, shlex.split(line))
    return found.exit_code, found.output, found.exception


def test_the_documented_command_gives_what_the_paper_has():
    code, out, _ = run(PAPER)
    assert code == 0
    assert "fair score 1.1197" in out
    words = "relaxed by solver plain, alpha = 1, sigma = 0, tol = 1e-06, at most 50 steps"
    assert words in " ".join(out.split())


def test_stored_settings_repeat_it():
    assert run(f"{PAPER} --out picks.json")[0] == 0
    with open("picks.json") as file:
        settings = json.load(file)["settings"]
    data = {name: np.load(f"{name}.npy") for name in ("text", "vision")}
    again = fairnepv.select(data, **settings)
    assert again.fair_score == pytest.approx(PAPER_ONE_SWAP, abs=1e-9)
    told = {"solver": "plain", "start": "random", "max_steps": 50, "oversampling": 2.6}
    assert {name: again.settings[name] for name in told} == told


def test_a_comparison_takes_them_too():
    knobs = "--solver shifted --sigma 0.4 --passes 0 --effort fast"
    code, out, _ = run(f"compare {VIEWS} --method nepv --method greedy {knobs} --json")
    assert code == 0
    rows = {row["method"]: row["settings"] for row in json.loads(out)["selectors"]}
    assert (rows["nepv"]["sigma"], rows["nepv"]["passes"]) == (0.4, 0)
    assert "sigma" not in rows["greedy"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"select {VIEWS} --solver plain", "solver is for method 'nepv', not 'auto'"),
        (f"select {VIEWS} --method nepv --solver newton", "solver must be one of"),
        (f"select {VIEWS} --method nepv --passes -1", "passes"),
        (f"compare {VIEWS} --method greedy --tol 0.1", "tol is for method 'nepv', not 'greedy'"),
    ],
)
def test_refusals(line, said):
    code, out, error = run(line)
    assert code != 0
    assert said in f"{out} {error}"
