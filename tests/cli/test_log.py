"""`--log-file`: one run's story as lines of JSON, however it ends."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import click
import numpy as np
import pytest

import fairnepv
from fairnepv.cli import commands, log
from fairnepv.cli.log import Rows, Stages, plain
from fairnepv.loop import Step

VIEWS = "--view text=text.npy --view vision=vision.npy"
SELECT = f"select {VIEWS} -k 4 --log-file run.log"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    for name in ("text", "vision"):
        np.save(f"{name}.npy", rng.standard_normal((40, 6)))
    return tmp_path


def story(name="run.log"):
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def events(lines, event):
    return [line for line in lines if line["event"] == event]


# --- what a line tells ----------------------------------------------------------------------------


def test_a_selection_tells_its_story(command):
    code, _, err = command(f"{SELECT} --out picks.csv --seed 0")
    assert (code, err) == (0, "")
    lines = story()
    assert [lines[0]["event"], lines[1]["event"], lines[-1]["event"]] == ["begin", "options", "end"]
    assert len({line["run"] for line in lines}) == 1
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)
    begin, options, end = lines[0], lines[1], lines[-1]
    assert begin["arguments"][:3] == ["select", "--view", "text=text.npy"]
    assert begin["versions"]["fairnepv"] == fairnepv.__version__
    assert begin["machine"]["cores"] == os.cpu_count()
    assert (options["k"], options["random_state"], options["effort"]) == (4, 0, "balanced")
    files = events(lines, "input")
    assert [Path(line["path"]).name for line in files] == ["text.npy", "vision.npy"]
    assert files[0]["bytes"] == Path("text.npy").stat().st_size
    stages = {line["stage"]: line for line in events(lines, "stage")}
    assert {"bound", "greedy"} <= set(stages)
    assert stages["bound"]["upper_bound"] >= stages["greedy"]["objective"]
    (result,) = events(lines, "result")
    assert result["found"]["settings"]["k"] == 4
    written = {Path(line["path"]).name for line in events(lines, "output")}
    assert written == {"picks.csv", "picks.csv.settings.json"}
    assert "Wrote picks.csv" in events(lines, "said")[-1]["text"]
    assert (end["code"], end["status"], end["inputs"], end["outputs"]) == (
        0,
        result["found"]["status"],
        2,
        2,
    )
    assert end["peak_bytes"] > 1e7


def test_a_second_run_goes_below_the_first(command):
    command(f"{SELECT} --effort fast --json")
    first = Path("run.log").read_text()
    command(f"compare {VIEWS} -k 4 --method greedy --method random --log-file run.log")
    assert Path("run.log").read_text().startswith(first)
    lines = story()
    assert len({line["run"] for line in lines}) == 2
    assert [line["selector"] for line in events(lines, "turn")] == ["greedy", "random"]
    assert [line["method"] for line in events(lines, "result")[1:]] == ["greedy", "random"]


@pytest.mark.parametrize(
    "line",
    [
        f"certify {VIEWS} -k 4 --out bound.npz",
        f"relax {VIEWS} -k 4",
        f"score {VIEWS} --picks picks.json",
        f"verify-bound proven.npz {VIEWS}",
    ],
)
def test_other_commands_tell_their_result(line, command):
    assert command(f"select {VIEWS} -k 4 --out picks.json --bound proven.npz").code == 0
    assert command(f"{line} --log-file other.log").code == 0
    lines = story("other.log")
    (result,) = events(lines, "result")
    assert result["found"]
    assert lines[-1]["code"] == 0


def test_rows_that_are_converted_are_told(command):
    assert command("convert text.npy --out shards --log-file run.log").code == 0
    lines = story()
    assert events(lines, "rows")[-1] == {
        **events(lines, "rows")[-1],
        "what": "converting",
        "done": 40,
        "of": 40,
    }
    assert Path(events(lines, "output")[-1]["path"]).name == "shards"


def every_command(group, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from every_command(found, (*path, name))
        else:
            yield " ".join((*path, name)), found


def test_every_command_has_the_option():
    found = dict(every_command(commands))
    assert {"select", "uspto run", "downstream run"} <= set(found)
    for name, command_ in found.items():
        assert "log_file" in {option.name for option in command_.params}, name


# --- how a run ends -------------------------------------------------------------------------------


def test_a_refusal_is_the_end(command):
    code, _, err = command(f"select {VIEWS} -k 400 --log-file run.log")
    end = story()[-1]
    assert (end["event"], end["code"]) == ("end", code) == ("end", 2)
    assert err == f"fairnepv: {end['message']}\n"


def test_an_option_that_is_wrong_is_the_end_too(command):
    assert command(f"select {VIEWS} -k 4 --effort none --log-file run.log").code == 2
    assert "'none' is not one of" in story()[-1]["message"]


def test_an_error_that_nobody_has_foreseen_has_no_code(command, monkeypatch):
    monkeypatch.setattr(fairnepv, "select", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command(SELECT)
    assert story()[-1]["message"] == "ZeroDivisionError: division by zero"
    assert story()[-1]["code"] is None
    assert log.path_of_log() is None


def test_help_ends_well(command):
    assert command("select --log-file run.log --help").code == 0
    assert story()[-1]["code"] == 0


def test_a_run_out_of_time_says_so(command):
    assert command(f"{SELECT} --effort thorough --time-limit 0.2").code == 0
    assert story()[-1]["status"] in ("TIME_LIMIT", "LOCAL_OPTIMUM", "OPTIMAL")


PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from fairnepv.cli import main; main()"
)


def running(line):
    """The command in a process of its own, once a search has begun."""
    for name in ("text", "vision"):
        np.save(f"{name}.npy", np.random.default_rng(1).standard_normal((4000, 64)))
    arguments = [sys.executable, "-c", PROGRAM, *line.split()]
    process = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while not (Path("run.log").exists() and '"stage"' in Path("run.log").read_text()):
        assert process.poll() is None
    return process


LONG = f"select {VIEWS} -k 100 --effort thorough --log-file run.log"


@pytest.mark.slow
def test_ctrl_c_is_an_end(folder):
    process = running(f"{LONG} --out picks.json")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    lines = story()
    assert (lines[-1]["code"], lines[-1]["status"]) == (130, "INTERRUPTED")
    assert err.endswith(f"fairnepv: {lines[-1]['message']}\n")
    assert "picks.json" in {Path(line["path"]).name for line in events(lines, "output")}


@pytest.mark.slow
@pytest.mark.kill
def test_a_kill_leaves_whole_lines_and_no_end(folder, command):
    process = running(LONG)
    process.kill()
    process.communicate(timeout=60)
    assert story()[-1]["event"] != "end"
    torn = Path("run.log").read_text()[:-7]
    Path("run.log").write_text(torn)
    assert command(f"{SELECT} --effort fast").code == 0
    written = Path("run.log").read_text()
    assert written.startswith(torn + "\n{")
    assert json.loads(written.splitlines()[-1])["code"] == 0


# --- where it goes, and what it may hold ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("text.npy", "exists and is no log of a run"),
        (".", "is no regular file"),
        ("/dev/null", "is no regular file"),
        ("gone/run.log", "cannot be written (No such file or directory)"),
        ("s3://bucket/run.log", "is not on a local disk"),
    ],
)
def test_what_is_no_log_is_not_written_to(name, said, command):
    before = Path("text.npy").read_bytes()
    code, out, err = command(f"select {VIEWS} -k 4 --log-file {name}")
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("fairnepv: --log-file")
    assert err.count("\n") == 1
    assert Path("text.npy").read_bytes() == before


def test_no_output_takes_the_place_of_the_log(command):
    code, _, err = command(f"select {VIEWS} -k 4 --log-file x.json --out x.json --force")
    assert code == 2
    assert "--out: x.json is the log file" in err
    assert story("x.json")[-1]["code"] == 2


def test_no_line_tells_a_secret_or_moves_a_cursor(command):
    code, _, _ = command(
        "select -k 4 --log-file run.log --engine ray://me:hunter2@head:10001 --view",
        "te\x1b[2Jxt=s3://me:hunter2@bucket/a.npy",
    )
    assert code == 2
    content = Path("run.log").read_bytes()
    assert b"hunter2" not in content
    assert all(byte == 10 or 32 <= byte < 127 for byte in content)
    assert "\\x1b[2J" in story()[0]["arguments"][-1]


def test_a_disk_that_is_full_ends_the_log_and_not_the_run(command, monkeypatch):
    opened = log._opened

    class Full:
        def __init__(self, file):
            self.file, self.left = file, 3

        def write(self, content):
            self.left -= 1
            if self.left < 0:
                raise OSError(28, "No space left on device")
            return self.file.write(content)

        def close(self):
            self.file.close()

    monkeypatch.setattr(log, "_opened", lambda path: Full(opened(path)))
    code, out, err = command(f"{SELECT} --effort fast")
    assert code == 0
    assert "Chose 4 of 40" in out
    assert err == (
        "fairnepv: run.log cannot be written any more (No space left on device), the run goes on "
        "without its log\n"
    )
    assert len(story()) == 3


def test_warnings_are_told(command, monkeypatch):
    def select(**_):
        warnings.warn("look here", UserWarning, stacklevel=1)
        raise fairnepv.InputError("enough")

    monkeypatch.setattr(fairnepv, "select", select)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        command(SELECT)
    (line,) = events(story(), "warning")
    assert (line["kind"], line["text"]) == ("UserWarning", "look here")


def test_a_recipe_may_name_the_log(command):
    Path("recipe.toml").write_text(
        'k = 4\nlog-file = "run.log"\n[view]\ntext = "text.npy"\nvision = "vision.npy"\n'
    )
    assert command("select recipe.toml").code == 0
    assert story()[1]["view"] == ["text=text.npy", "vision=vision.npy"]


def test_the_log_is_as_private_as_other_files(command):
    os.umask(before := os.umask(0o077))
    command(f"{SELECT} --effort fast")
    assert stat.S_IMODE(Path("run.log").stat().st_mode) == 0o666 & ~before


# --- stages and rows ------------------------------------------------------------------------------


def step(stage, number, seconds, objective=0.0, **details):
    return Step(stage, number, 1, seconds, objective, details=details)


def told_of(lines):
    """A teller into a list, of how stages did."""
    return lambda event, **facts: lines.append(facts) if event == "stage" else None


def test_a_stage_that_comes_a_thousand_times_has_two_lines():
    told = []
    stages = Stages(told_of(told))
    for run in range(1000):
        stages.hear(step("swaps", 0, 0.0))
        stages.hear(step("swaps", 1, 0.5, objective=run))
        stages.hear(step("tabu", 0, 0.25))
    stages.tell_rest()
    assert [facts["stage"] for facts in told] == ["swaps", "tabu", "swaps"]
    last = told[-1]
    assert (last["runs"], last["steps"], last["stage_seconds"]) == (1000, 1000, 500.0)
    assert last["objective"] == 999


def test_a_long_stage_has_a_line_now_and_then(monkeypatch):
    told, clock = [], iter(range(0, 100000, 3))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    stages = Stages(told_of(told))
    for number in range(100):
        stages.hear(step("bound", number, float(number)))
    assert 5 <= len(told) < 60
    assert [facts["steps"] for facts in told] == sorted(facts["steps"] for facts in told)


def test_a_run_that_goes_on_from_a_checkpoint_counts_from_there():
    told = []
    stages = Stages(told_of(told))
    for number in range(7, 10):
        stages.hear(step("swaps", number, float(number - 7)))
    stages.tell_rest()
    assert (told[0]["runs"], told[0]["steps"], told[0]["stage_seconds"]) == (1, 2, 2.0)


def test_rows_have_a_line_at_the_start_and_at_the_end():
    told = []
    rows = Rows(lambda event, **facts: told.append(facts["done"]))
    for done in range(1, 501):
        rows.hear("images", done, 500)
    assert told == [1, 500]


def test_values_are_plain():
    value = {"a\n": (np.float64("nan"), float("inf"), np.arange(2), Path("x"), range(1)), 3: None}
    assert plain(value) == {"a\\n": ["nan", "inf", [0, 1], "x", "range(0, 1)"], "3": None}
    assert plain(list(range(1000)))[-1] == "... 1,000 in all"
