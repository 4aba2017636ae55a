"""The documentation is true: its blocks run, its commands exist, its site builds.

Blocks of Python run page by page, one after the other, in a folder that holds the files which pages
speak of, with the names of `names()`. Where a fence ```text follows a block at once, it is what the
block prints. A block that cannot run here says why in its title, which readers see too.
"""

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import click
import numpy as np
import pytest

import fairnepv
from fairnepv.cli import commands
from fairnepv.errors import FairnepvError

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SLOW = ("docs/start.md", "docs/insight.md", "docs/report.md")  # more than a few seconds each
NEEDS = {"docs/tables.md": ("pandas", "polars", "torch"), "docs/howto.md": ("datasets", "torch")}
EXCUSES = {"Needs a GPU", "Needs a cluster of Ray"}

_BLOCK = re.compile(
    r"^```python(?P<about>[^\n]*)\n(?P<code>.*?)^```$(?:\n\n^```text\n(?P<output>.*?)^```$)?",
    re.M | re.S,
)
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$|((?:^ {4}\S[^\n]*\n)+)", re.M | re.S)
N, K = 600, 200


def blocks(page):
    return list(_BLOCK.finditer(PAGES[page]))


# --- what pages take for granted ------------------------------------------------------------------


@cache
def _rows():
    """Two simulated views of 600 items, wide enough for 200 picks."""
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((30, 256))
    text = topics[rng.integers(30, size=N)] + rng.standard_normal((N, 256))
    return text.astype(np.float32), rng.standard_normal((N, 320)).astype(np.float32)


def names():
    """Views, tables and texts by the names that all pages use (docs/python.md), and those of few:
    more_text, more_vision, more_ids are candidates that arrive later."""
    text, vision = _rows()
    rng = np.random.default_rng(1)
    ids = np.array([f"item-{i}" for i in range(N)])
    return {
        "__name__": "__main__",
        "np": np,
        "fairnepv": fairnepv,
        "X_text": text,
        "X_vision": vision,
        "text": text,
        "vision": vision,
        "data": {"text": text, "vision": vision},
        "ids": ids,
        "captions": [f"caption of {name}" for name in ids],
        "pictures": [rng.integers(0, 255, (16, 16, 3), dtype=np.uint8) for _ in range(N)],
        "labels": rng.choice(["cat", "dog", "hen"], N),
        "more_text": rng.standard_normal((20, 256)).astype(np.float32),
        "more_vision": rng.standard_normal((20, 320)).astype(np.float32),
        "more_ids": np.array([f"new-{i}" for i in range(20)]),
    }


def table():
    """The same items as a DataFrame."""
    pd = pytest.importorskip("pandas")
    rng, (text, vision) = np.random.default_rng(2), _rows()
    return pd.DataFrame(
        {
            "id": [f"item-{i}" for i in range(N)],
            "text_emb": list(text),
            "img_emb": list(vision),
            "age": rng.integers(18, 80, N),
            "city": rng.choice(["Berne", "Lima", "Osaka"], N),
        }
    )


def write_files(folder):
    """The files that pages read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, vision = _rows()
    for name, rows in (("text", text), ("vision", vision)):
        np.save(folder / f"{name}.npy", rows)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(text.ravel()), text.shape[1])
    pq.write_table(pa.table({"emb": lists}), folder / "text.parquet")
    (folder / "laion" / "img_emb").mkdir(parents=True)
    np.save(folder / "laion" / "img_emb" / "img_emb_0.npy", vision)


def brought_along(page, given):
    """What a page has besides: selections that its first blocks take as found."""
    if page == "docs/insight.md":  # selections that it speaks of before it makes them
        quick = {"effort": "fast", "certify": False}
        again, before, after = (
            fairnepv.select(given["data"], k, ids=given["ids"], **quick) for k in (K, 20, 30)
        )
        given.update(again=again, before=before, after=after)
    if page == "docs/report.md":
        given["selection"] = fairnepv.select(given["data"], K, effort="fast")
    if page in ("README.md", "docs/python.md", "docs/howto.md"):
        given["table"] = table()
    return given


# --- blocks of Python -----------------------------------------------------------------------------


def _with_blocks():
    for page in PAGES:
        if any(not block["about"] for block in blocks(page)):
            yield pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW))


@pytest.mark.parametrize("page", list(_with_blocks()))
def test_blocks_run(page, tmp_path, monkeypatch):
    for package in NEEDS.get(page, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    space = brought_along(page, names())
    for block in blocks(page):
        if block["about"]:
            continue
        line = PAGES[page][: block.start()].count("\n") + 2
        code = compile("\n" * (line - 1) + block["code"], page, "exec")
        with redirect_stdout(io.StringIO()) as printed:
            exec(code, space)
        if block["output"] is not None:
            assert printed.getvalue() == block["output"], f"{page}:{line}"


@pytest.mark.parametrize("page", PAGES)
def test_blocks_that_do_not_run_say_why(page):
    for block in blocks(page):
        excuse = re.fullmatch(r'(?: title="(.*)")?', block["about"])
        assert excuse, block["about"]
        assert excuse[1] is None or excuse[1] in EXCUSES


def test_few_blocks_do_not_run():
    left_out = [block for page in PAGES for block in blocks(page) if block["about"]]
    assert len(left_out) <= 5


# --- command lines --------------------------------------------------------------------------------


def _command_lines():
    for page, content in PAGES.items():
        for match in _FENCE.finditer(content):
            if match[1]:  # in another language
                continue
            lines = re.sub(r"\\\n\s*", "", match[2] or match[3] or "")
            for line in map(str.strip, lines.splitlines()):
                if line.startswith("fairnepv ") and " ... " not in line:
                    yield pytest.param(line, id=f"{Path(page).stem}: {line[:60]}")


@pytest.mark.parametrize("line", list(_command_lines()))
def test_commands_have_these_options(line):
    """What stands in a block is a command, and all of its options are."""
    command, words = found(shlex.split(line, comments=True)[1:])
    context = click.Context(command)
    given, _, _ = command.make_parser(context).parse_args(words)
    for parameter in command.params:
        if isinstance(parameter.type, click.Choice) and parameter.name in given:
            values = given[parameter.name]
            for value in values if isinstance(values, list) else [values]:
                parameter.type.convert(value, parameter, context)


def found(words):
    """The command of a line, and what is handed to it."""
    command: click.Command = commands
    context = click.Context(command)
    while isinstance(command, click.Group):
        name, *words = words
        try:
            command = command.get_command(context, name)
        except FairnepvError:
            pytest.skip("the studies are not installed")
        assert command is not None, name
    return command, words


def test_options_in_running_text_exist():
    """`--this` between backticks on the pages about commands is an option of some command."""
    options = [option for command in commands.commands.values() for option in command.params]
    known = {text for option in options for text in (*option.opts, *option.secondary_opts)}
    for page in ("docs/commands.md", "docs/report.md", "docs/recipes.md", "docs/memory.md"):
        said = re.findall(r"`(?!python )[^`\n]*`", PAGES[page])
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(said)):
            assert option in known | {"--help"}, (page, option)


def test_every_command_is_on_the_page_of_commands():
    for name in commands.commands:
        assert f"fairnepv {name}" in PAGES["docs/commands.md"], name


# --- the site and the names on it -----------------------------------------------------------------


def test_every_public_name_is_on_the_page_of_the_api():
    listed = re.findall(r"^::: fairnepv\.(\w+)$", PAGES["docs/api.md"], re.M)
    assert sorted(listed) == sorted(set(fairnepv.__all__) - {"__version__"})


def test_the_navigation_has_every_page():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    for path in (ROOT / "docs").glob("*.md"):
        assert re.search(rf": {re.escape(path.name)}$", navigation, re.M), path.name


@pytest.mark.slow
def test_the_site_builds_and_asks_nothing_of_a_network(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(package)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        content = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="?(\S+?)["\s>]', content)
        loaded += re.findall(r'<link[^>]*rel="?(?:stylesheet|preconnect)[^>]*', content)
        assert not [address for address in loaded if "//" in address], page
    assert "target_efficiency" in (tmp_path / "api.html").read_text(encoding="utf-8")
    assert "<math" in (tmp_path / "certainty.html").read_text(encoding="utf-8")


# --- notebooks ------------------------------------------------------------------------------------


def test_there_are_two_notebooks():
    assert len(NOTEBOOKS) >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path):
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch):
    """In a kernel of their own, as a reader would run them; what they assert holds."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore::DeprecationWarning")
    shutil.copy(path, tmp_path)
    notebook = nbformat.read(tmp_path / path.name, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert any(
        "text/html" in output.get("data", {})
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )
