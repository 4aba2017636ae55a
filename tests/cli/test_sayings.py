"""The library's sentences in the words of a command."""

import ast
import re
from pathlib import Path

import click
import numpy as np
import pytest

import fairnepv
from fairnepv.cli import commands, main
from fairnepv.cli.sayings import flag_of, in_our_words
from fairnepv.errors import Status
from fairnepv.options import ALL

SOURCES = Path(fairnepv.__file__).parent


@pytest.fixture
def refusal(tmp_path, monkeypatch, capsys):
    """What a command line is refused for, in one line."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("text", "vision"):
        np.save(f"{name}.npy", rng.standard_normal((30, 12)))
    Path("groups.txt").write_text("a\nb\n" * 15)
    Path("rows.txt").write_text("1\n2\n3\n")

    def run(line):
        posed = "--view text=text.npy --view vision=vision.npy"
        command, _, rest = line.partition(" ")
        monkeypatch.setattr("sys.argv", ["fairnepv", command, *posed.split(), *rest.split()])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code in (1, 2)
        (told,) = capsys.readouterr().err.splitlines()
        return told.removeprefix("fairnepv: ")

    return run


REFUSED = {
    "select -k 5 --tau 0": "--tau must be a finite positive number",
    "select -k 5 --tau inf": "--tau must be",
    "select -k 5 --eps -1": "--eps",
    "select -k 0": "-k must be from 1",
    "select -k 30": "-k must be from 1",
    "select -k 1.5": "-k must be an integer or a fraction",
    "select -k 2 --include rows.txt": "raise -k, or choose k more with --k-more",
    "select -k 5 --effort fast --method magic": "--method must be one of",
    "select -k 5 --node-limit 3": "--node-limit is for method 'exact'",
    "select -k 5 --target-efficiency 0.9 --no-certify": "leave --no-certify out",
    "select -k 5 --memory-limit much": "--memory-limit must be",
    "select -k 5 --memory-limit 1": "--memory-limit is",
    "select -k 5 --nested": "--nested needs several sizes, as in -k 100,500",
    "select -k 5 --quota a=3": "--quota needs groups",
    "select -k 5 --groups rows.txt": "--groups must be 30 labels",
    "select -k 5 --groups groups.txt --quota a=9 --quota b=9": "lower a quota",
    "select -k 5 --priority text=0.5": "--priority",
    "select -k 5 --priority text=0.5 --priority vision=0.6": "--priority must sum to 1",
    "select -k 5 --calibration magic": "--calibration must be one of",
    "select -k 5 --solver magic --method nepv": "--solver must be",
    "select -k 5 --passes 3": "--passes",
    "select -k 5 --effort fast --strict --time-limit 1e-9": "raise --time-limit",
    "relax -k 5 --tol 0": "--tol must be",
    "relax -k 5 --alpha 0.5 --solver plain": "--alpha 0.5",
    "certify -k 5 --tau -1": "--tau must be",
    "compare -k 5 --method magic": "--method must be one of",
    "score --picks rows.txt --tau 0": "--tau must be",
}


@pytest.mark.parametrize(("line", "words"), REFUSED.items())
def test_a_command_refuses_in_its_own_words(refusal, line, words):
    told = refusal(line)
    assert words in told
    for name in ALL:
        assert not re.search(rf"(?<![-\w/.]){name}=", told), told
        assert "_" not in name or not re.search(rf"(?<![\w/.]){name}(?!\w)", told), told


def said() -> dict[str, str]:
    """Every sentence that the library refuses or remarks with, with holes for what is filled in."""
    found = {}
    for path in SOURCES.rglob("*.py"):
        if path.is_relative_to(SOURCES / "cli"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            raised = isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error")
            noted = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
                "append",
                "extend",
            )
            if isinstance(node, ast.Call) and (raised or noted):
                for part in ast.walk(node):
                    text = _text(part)
                    if " " in text:
                        found[text] = f"{path.name}:{node.lineno}"
    return found | {status.value: "errors.py" for status in Status}


def _text(node) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)
    return ""


# No command gets there.
IN_PYTHON_ALONE = (
    "views=",
    "sizes of a curve",
    "progress must be",
    "by_id needs",
)  # no command gets there


def test_every_sentence_of_the_library_has_the_names_of_a_command():
    sentences = said()
    assert len(sentences) > 250
    for text, where in sentences.items():
        if text.startswith(IN_PYTHON_ALONE) or "in_place" in text:
            continue
        told = in_our_words(text)
        for name in ALL:
            spelled = rf"(?<![-\w/.'`]){name}=(?!\{{)"
            assert not re.search(spelled, told), (where, told)
            long = "_" in name and re.search(rf"(?<![\w/.'`]){name}(?![\w'`])", told)
            assert not long, (where, told)


def test_every_flag_is_one_of_some_command():
    known = {
        flag
        for command in commands.commands.values()
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for flag in parameter.opts
    }
    of_python = {"progress", "limit"}  # which no command has
    assert {flag_of(name) for name in ALL if name not in of_python} <= known


@pytest.mark.parametrize(
    "text",
    [
        "the view 'time_limit' has no rows",
        "file time_limit/a.npy: No such file",
        "k items out of n, and the method of the paper is quick",
        "--tau must be positive",
        "what effort and quality mean",
        "",
    ],
)
def test_what_is_no_option_stays(text):
    assert in_our_words(text) == text


def test_a_file_that_is_called_like_an_option_keeps_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("gap").mkdir()
    monkeypatch.setattr("sys.argv", ["fairnepv", "convert", "--verify", "gap"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.startswith("fairnepv: gap has no manifest.json")
    said = "gap must be a finite positive number, not 0; groups is no folder"
    assert in_our_words(said, ["--gap", "0", "--view", "text=groups"]) == (
        "--gap must be a finite positive number, not 0; groups is no folder"
    )
