"""Two distributions: the library knows nothing of the studies, and each names what it imports."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairnepv import cli

ROOT = Path(__file__).parents[2]
SOURCES = {"fairnepv": ROOT / "src", "fairnepv_studies": ROOT / "studies" / "src"}
PROJECTS = {"fairnepv": ROOT, "fairnepv_studies": ROOT / "studies"}
MODULES = {  # distributions whose modules have other names
    "scikit-learn": "sklearn",
    "pillow": "PIL",
    "ray[client]": "ray",
}


def imported(package: str) -> set[str]:
    """Top-level names of everything that the files of a package import, at any depth."""
    found: set[str] = set()
    for file in SOURCES[package].rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {package}


def declared(package: str, *extras: str) -> Iterator[str]:
    """Modules of the distributions that a package asks for."""
    project = tomllib.loads((PROJECTS[package] / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    for requirement in wanted:
        name = re.split(r"[<>=!;~ ]", requirement)[0]
        yield MODULES.get(name, name.replace("-", "_"))


def test_the_library_imports_what_it_declares_and_nothing_of_the_studies() -> None:
    lent = {"pandas", "polars", "duckdb", "IPython"}  # loaded where they are or are asked for
    assert imported("fairnepv") - lent == {*declared("fairnepv", "ray", "torch")}
    assert not imported("fairnepv") & {"lxml", "fairnepv_studies", "transformers"}


def test_the_studies_import_what_they_declare() -> None:
    """Those of the extra are imported by their names where an encoder is asked for."""
    assert imported("fairnepv_studies") == {*declared("fairnepv_studies")}
    text = "".join(file.read_text("utf-8") for file in SOURCES["fairnepv_studies"].rglob("*.py"))
    for name in {*declared("fairnepv_studies", "encoders")} - {*declared("fairnepv_studies")}:
        assert f'"{name}"' in text


def test_the_command_of_the_library_loads_neither_studies_nor_what_only_they_need() -> None:
    code = "import sys, fairnepv, fairnepv.cli; print(*sorted(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert not loaded & {"fairnepv_studies", "lxml", "torch", "transformers", "matplotlib"}


def test_commands_join_by_entry_point() -> None:
    points = importlib.metadata.entry_points(group="fairnepv.commands")
    assert {point.name for point in points} >= {"embed", "synthetic", "uspto"}
    for point in points:
        assert point.load().name == point.name


@pytest.mark.parametrize("name", ["embed", "synthetic", "uspto"])
def test_without_the_studies_a_command_of_theirs_says_what_to_install(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())
    code, out, err = command(f"{name} --help")
    assert (code, out) == (2, "")
    assert "`pip install fairnepv-studies`" in err
    assert "`pip install ./studies`" in err


def test_without_the_studies_help_lists_the_library_alone(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())
    code, out, _ = command("--help")
    assert code == 0
    assert "select" in out
    assert "uspto" not in out
