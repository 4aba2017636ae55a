"""Every script under examples/ runs as a reader would run it; what it asserts holds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path):
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("number", [0, 1])
def test_snippets_of_contributing_run(number, tmp_path):
    """In a process of their own, as a reader would run them."""
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    code = snippets[number]
    if number == 1:  # the method
        code += "\nfrom fairnepv.search import EFFORTS\nfrom fairnepv.api.inputs import pose\n"
        code += "rows = np.random.default_rng(0).standard_normal((30, 5))\n"
        code += "import scipy.sparse as sp\n"
        code += "for objective in 'diverse', 'representative':\n"
        code += "    posed = pose([rows, sp.csr_array(rows)], 4, objective=objective)\n"
        code += "    print(crowded(posed, EFFORTS['fast'], Context()).indices)\n"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_links_into_the_docs_resolve():
    """Pages and headings that code cites, and links between the pages."""
    folders = ("src", "studies", "tests")
    sources = [path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py")]
    cited = [(ROOT, link) for path in sources for link in _CITED.findall(path.read_text())]
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "studies/README.md"]
    cited += [(page.parent, link) for page in pages for link in _LINKED.findall(page.read_text())]
    assert len(cited) > 50
    for folder, link in cited:
        file, _, heading = link.partition("#")
        page = folder / file
        assert page.exists(), link
        assert not heading or heading in map(_anchor, _HEADINGS.findall(page.read_text())), link


_CITED = re.compile(r"docs/[\w./-]+\.md(?:#[\w-]+)?")
_LINKED = re.compile(r"\]\((?!https?:)([\w./-]+\.md(?:#[\w-]+)?)\)")
_HEADINGS = re.compile(r"^#+ (.*)$", re.M)


def _anchor(heading):
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
