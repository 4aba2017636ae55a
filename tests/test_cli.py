"""The command line: one demo, one table, and one line when something is wrong."""

import re
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fairnepv
from fairnepv import data as embedded
from fairnepv import pipeline
from fairnepv.cli import commands, main
from fairnepv.data import openmoji

SELECTORS = [
    *("auto", "nepv", "greedy", "text-only", "vision-only"),
    *("averaged", "fixed-weight", "concatenated", "k-dpp", "random"),
]


@pytest.fixture
def small(monkeypatch) -> dict[str, np.ndarray]:
    """The embedded pool with every 15th row, so that a demo takes a second."""
    pool = {name: values[::15] for name, values in openmoji().items()}
    monkeypatch.setattr(embedded, "openmoji", lambda: pool)
    return pool


def demo(*arguments: str, columns: int = 80) -> Result:
    result = CliRunner().invoke(commands, ["demo", *arguments], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result


def table(output: str) -> dict[str, list[str]]:
    """The cells of each row of the table, by the first of them, whatever lines are drawn."""
    below = output[output.index("selector") :].splitlines()[1:]
    rows = [re.sub(r"[^\x00-\x7f]", " ", line).split() for line in below]
    rows = [cells for cells in rows if cells]
    end = next(i for i, cells in enumerate(rows) if cells[0] == "Chose")
    return {cells[0]: cells[1:] for cells in rows[:end]}


def run_main(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    """The entry point as the shell calls it: exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["fairnepv", *arguments])
    try:
        main()
        code = 0
    except SystemExit as end:
        code = 0 if end.code is None else int(end.code)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# --- The demo -------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 200])
def test_the_demo_has_a_row_for_every_selector(small, columns):
    """By its whole name, also where the terminal is 80 columns wide."""
    assert list(table(demo("-k", "5", columns=columns).output)) == SELECTORS


def test_the_demo_shows_what_the_library_returns(small):
    output = demo("-k", "4", columns=200).output
    views = {"text": small["text"], "vision": small["vision"]}
    rows = fairnepv.compare(views, 4, ids=small["id"])
    shown = table(output)
    for row in rows:
        d = [f"{value:.3f}" for value in row.scores.values()]
        C = [f"{value:.3f}" for value in row.coverage.values()]
        expected = [*d, row.worst_view, f"{row.fair_score:.4f}", *C]
        assert shown[row.method][:-1] == expected  # but for the seconds
    best = rows["auto"]
    assert f"Chose 4 of 154 items: fair score {best.fair_score:.4f}" in output
    assert f"No 4 items can score above {best.certificate.tightest_bound:.4f}" in output
    assert f"the spectral one, {best.upper_bound:.4f}" in " ".join(output.split())
    assert "First picks: " + ", ".join(best.ids) in output
    assert best.status.value in output
    assert "OpenMoji (CC BY-SA 4.0)" in output


def test_the_seed_reaches_the_selectors(small):
    tables = [table(demo("-k", "4", "--seed", seed, columns=200).output) for seed in "001"]
    scores = [{name: cells[:-1] for name, cells in rows.items()} for rows in tables]
    assert scores[0] == scores[1]
    assert scores[0]["random"] != scores[2]["random"]
    assert scores[0]["greedy"] == scores[2]["greedy"]


def test_progress_stays_out_of_the_output(small):
    result = demo("-k", "4")
    assert "step" not in result.stdout
    assert result.stderr == ""


def test_the_whole_demo_chooses_fifty_of_the_embedded_pool(monkeypatch):
    """The defaults, without the search: the arguments that reach the library."""
    calls = []

    class Stop(Exception):
        pass

    def compare(views, k, **options):
        calls.append((views, k, options))
        raise Stop

    monkeypatch.setattr(pipeline, "compare", compare)
    result = CliRunner().invoke(commands, ["demo"])
    assert isinstance(result.exception, Stop)
    [(views, k, options)] = calls
    assert k == 50
    assert options["random_state"] == 0
    assert {name: view.shape for name, view in views.items()} == {
        "text": (2297, 384),
        "vision": (2297, 1280),
    }


# --- Help, version, errors ------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_the_commands(flag):
    result = CliRunner().invoke(commands, [flag])
    assert result.exit_code == 0
    assert "demo" in result.output
    assert "no view of the data is left behind" in result.output


def test_help_of_the_demo_names_its_options():
    result = CliRunner().invoke(commands, ["demo", "--help"])
    assert result.exit_code == 0
    assert "-k" in result.output
    assert "[default: 50]" in result.output
    assert "--seed" in result.output


def test_version(monkeypatch, capsys):
    code, out, _ = run_main(monkeypatch, capsys, "--version")
    assert code == 0
    assert fairnepv.__version__ in out


@pytest.mark.parametrize("k", ["0", "-3", "154", "100000"])
def test_a_bad_k_is_one_line_and_exit_code_2(monkeypatch, capsys, small, k):
    code, out, err = run_main(monkeypatch, capsys, "demo", "-k", k)
    assert code == 2
    assert out == ""
    assert err == f"fairnepv: k must be from 1 to n - 1 = 153, not {k}\n"


def test_a_negative_seed_is_one_line_and_exit_code_2(monkeypatch, capsys, small):
    code, out, err = run_main(monkeypatch, capsys, "demo", "--seed", "-1")
    assert (code, out) == (2, "")
    assert err == "fairnepv: random_state must be a non-negative integer, not -1\n"


@pytest.mark.parametrize("arguments", [("demo", "-k", "many"), ("demo", "--nope"), ("nope",)])
def test_misuse_is_exit_code_2_and_names_the_culprit(monkeypatch, capsys, arguments):
    code, out, err = run_main(monkeypatch, capsys, *arguments)
    assert (code, out) == (2, "")
    assert arguments[-1] in err
    assert "Traceback" not in err


def test_an_interruption_is_exit_code_130(monkeypatch, capsys, small):
    def compare(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "compare", compare)
    code, out, err = run_main(monkeypatch, capsys, "demo", "-k", "4")
    assert (code, out) == (130, "")
    assert err.strip() == "fairnepv: interrupted"


def test_the_command_is_installed():
    [script] = entry_points(group="console_scripts", name="fairnepv")
    assert script.load() is main


# --- The embedded pool ----------------------------------------------------------------------------


def test_the_embedded_pool_is_whole():
    pool = openmoji()
    assert pool["text"].shape == (2297, 384)
    assert pool["vision"].shape == (2297, 1280)
    assert len(set(pool["id"].tolist())) == len(pool["label"]) == 2297
    assert np.isfinite(pool["text"]).all()
    assert np.isfinite(pool["vision"]).all()


def test_a_damaged_pool_is_said_to_be_damaged(monkeypatch, capsys):
    monkeypatch.setattr(embedded, "_OPENMOJI_SHA256", "0" * 16)
    message = "the embedded pool openmoji.npz is damaged: install fairnepv again"
    with pytest.raises(fairnepv.FairnepvError, match=message):
        openmoji()
    code, out, err = run_main(monkeypatch, capsys, "demo", "-k", "4")
    assert (code, out, err) == (2, "", f"fairnepv: {message}\n")
