"""Every option once: what users see of it, in Python, in a type checker and on the command line,
is what `fairnepv.options` says."""

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import fairnepv
from fairnepv import options
from fairnepv.cli import commands
from fairnepv.options import ALL
from fairnepv.search.effort import EFFORTS
from fairnepv.signatures import checked, completed, options_of

SOURCE = Path(fairnepv.__file__).parent
VERBS = {
    "select": options.SelectOptions,
    "compare": options.CompareOptions,
    "certify": options.CertifyOptions,
    "verify_bound": options.ProblemOptions,
    "plan": options.PlanOptions,
    "score": options.ScoreOptions,
    "exhaustive": options.ExhaustiveOptions,
    "relax": options.RelaxOptions,
}


@pytest.mark.parametrize("verb", VERBS)
def test_signatures_and_docstrings_show_every_option(verb):
    function = getattr(fairnepv, verb)
    parameters = inspect.signature(function).parameters
    assert inspect.Parameter.VAR_KEYWORD not in {p.kind for p in parameters.values()}
    for name, option in options_of(VERBS[verb]).items():
        assert parameters[name].default == option.default
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"\n    {name}: {option.help[:20]}" in function.__doc__
    assert all(len(line) <= 100 for line in function.__doc__.splitlines())


def test_an_option_is_the_same_wherever_it_is_taken():
    for kind in VERBS.values():
        for name, option in options_of(kind).items():
            assert option == ALL[name]
            assert option.help.endswith(".")
            assert option.help != ""


@pytest.mark.parametrize("verb", VERBS)
def test_misspelt_options_are_refused_in_the_words_of_python(verb):
    with pytest.raises(TypeError, match=r"\(\) got an unexpected keyword argument 'tua'"):
        getattr(fairnepv, verb)([[1.0]], 1, tua=0.1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tua'"):
        fairnepv.FairSelector(tua=0.1)  # type: ignore[call-arg]


def test_defaults_are_right_values():
    given = completed("select", options.SelectOptions, {})
    assert checked("select", options.SelectOptions, given) == given


def test_names_of_efforts_and_calibrations():
    assert tuple(EFFORTS) == options.EFFORTS
    assert ALL["calibration"].help.startswith(", ".join(options.CALIBRATIONS))


# --- the command line -----------------------------------------------------------------------------

CALLED = {"priorities": "priority", "quotas": "quota", "floors": "floor",
          "views": "view"}  # fmt: skip
# --k-more, what only Python has, and what is about the exit code there.
NOT_THERE = {"include_counts", "progress", "strict"}


@pytest.mark.parametrize("verb", ["select", "compare", "certify", "score", "relax"])
def test_commands_have_the_options_of_the_functions(verb):
    """Those that are repeated say their default in words, as their help shows."""
    parameters = {p.name: p for p in commands.commands[verb].params}
    not_there = NOT_THERE | ({"gap"} if verb == "compare" else set())
    if verb == "relax":
        not_there |= {"include", "exclude", "deduplicate", "groups", "quotas", "floors"}
    if verb == "certify":
        not_there |= {"random_state"}
    for name, option in options_of(VERBS[verb]).items():
        if name in not_there:
            continue
        parameter = parameters[CALLED.get(name, name)]
        assert isinstance(parameter, click.Option)
        if not parameter.multiple:
            assert parameter.default == option.default
        if name != "views":
            assert parameter.help.startswith(option.help)


# --- one place ------------------------------------------------------------------------------------


def _stated(tree):
    """(name, default, line) of every argument and field whose default is written out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            spec = node.args
            for arg, value in zip(spec.args[::-1], spec.defaults[::-1], strict=False):
                yield arg.arg, value
            for arg, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
                yield arg.arg, value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        elif isinstance(node, ast.Call):
            flags = [a.value for a in node.args if isinstance(a, ast.Constant)]
            for keyword in node.keywords:
                if keyword.arg == "default" and flags and str(flags[0]).startswith("--"):
                    yield str(flags[0])[2:].replace("-", "_"), keyword.value
                elif keyword.arg is not None and flags[:1] == ["--"]:
                    yield keyword.arg, keyword.value


def test_no_default_is_stated_twice():
    twice = []
    for path in SOURCE.rglob("*.py"):
        for name, value in _stated(ast.parse(path.read_text())):
            if not isinstance(value, ast.Constant) or name not in ALL:
                continue
            known = {ALL[name].default, *(own.get(name) for own in options.OBJECTIVES.values())}
            if value.value in known and not isinstance(value.value, bool | None):
                twice.append(f"{path.relative_to(SOURCE)}:{value.lineno} {name}")
    assert not twice


# --- type checkers --------------------------------------------------------------------------------


def _mypy(tmp_path, text):
    (tmp_path / "user.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "user.py"]
    command += ["--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), "--config-file="]
    found = subprocess.run(
        [*command, "--ignore-missing-imports"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.splitlines()


@pytest.mark.slow
def test_a_type_checker_finds_what_is_misspelt(tmp_path):
    pytest.importorskip("mypy")
    calls = {
        **{verb: f"fairnepv.{verb}(data, 3, tua=0.1)" for verb in VERBS},
        "verify_bound": "fairnepv.verify_bound(data, chosen, tua=0.1)",
        "several": "fairnepv.select(data, [3, 5], tua=0.1)",
        "FairSelector": "fairnepv.FairSelector(3, tua=0.1)",
        "curve": "fairnepv.curve(data, 3, tua=0.1)",
        "tradeoff": "fairnepv.tradeoff(data, 3, 'text', tua=0.1)",
        "extend": "fairnepv.extend(chosen, data, 3, tua=0.1)",
        "value": "fairnepv.select(data, 3, tau='hot')",
    }
    names = [n for n in fairnepv.__all__ if n != "__version__"]
    lines = ["import fairnepv", "def use(data: object, chosen: fairnepv.Selection) -> None:"]
    lines += [f"    {call}" for call in calls.values()]
    lines += [f"    reveal_type(fairnepv.{name})" for name in names]
    lines += ["    reveal_type(fairnepv.select(data, 3, tau=0.1, effort='fast'))"]
    lines += ["    reveal_type(fairnepv.select(data, [3], nested=True))"]
    said = _mypy(tmp_path, "\n".join(lines) + "\n")
    by_line = {}
    for line in said:
        if line.startswith("user.py:"):
            _, number, text = line.split(":", 2)
            by_line.setdefault(int(number), []).append(text)
    for number, name in enumerate(calls, start=3):
        assert any("error:" in text for text in by_line.get(number, [])), (name, said)
    for number, name in enumerate(names, start=3 + len(calls)):
        [text] = by_line[number]
        assert "error:" not in text, name
        assert 'Revealed type is "Any"' not in text, name
    assert [by_line[len(lines) - 1], by_line[len(lines)]] == [
        [' note: Revealed type is "fairnepv.api.selection.Selection"'],
        [' note: Revealed type is "dict[int, fairnepv.api.selection.Selection]"'],
    ]
