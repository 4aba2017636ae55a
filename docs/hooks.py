"""What MkDocs has to be told of this repository, so that its pages are the same files as those of
the site: links that leave docs/ lead to copies under repository/, links that are called by the name
of a file are called by the page's title, and formulas become MathML, which browsers draw without a
script."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = "repository/"  # the part of the site that is not in docs/
PAGES = ("BENCHMARKS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # of the navigation

_LINK = re.compile(r"(!?\[[^\]]*\])\((?![a-z]+:|#|/)([^)\s#]+)(#[^)\s]*)?\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
_FORMULA = re.compile(r"\$\$(.+?)\$\$", re.S)


def on_files(files: Files, config: Any) -> Files:
    """Adds what pages link to and is not in docs/, and what these link to in turn."""
    waiting = [*PAGES, *_targets(files)]
    while waiting:
        name = waiting.pop()
        uri = OUTSIDE + name
        if name.startswith("docs/") or files.get_file_from_path(uri) or not (ROOT / name).is_file():
            continue
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
        if name.endswith(".md"):
            waiting += _linked((ROOT / name).read_text(encoding="utf-8"), name)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    here, titles = page.file.src_uri, dict(_titles(config.nav))

    def link(match: re.Match[str]) -> str:
        label, path, heading = match[1], match[2], match[3] or ""
        target = _uri(_resolved(path, _name(here)))
        if (ROOT / _name(target)).is_dir():
            return label[1:-1]  # a folder is no page
        if label[1:-1].endswith(".md"):
            label = f"[{titles.get(target, label[1:-1])}]"
        return f"{label}({posixpath.relpath(target, posixpath.dirname(here))}{heading})"

    parts = _FENCED.split(markdown)
    parts[::2] = [_FORMULA.sub(_mathml, _LINK.sub(link, part)) for part in parts[::2]]
    return "".join(parts)


def _titles(navigation: list[Any]) -> Iterator[tuple[str, str]]:
    """What the navigation calls every page."""
    for entry in navigation:
        ((title, content),) = entry.items()
        if isinstance(content, str):
            yield content, title
        else:
            yield from _titles(content)


def _mathml(match: re.Match[str]) -> str:
    return f'<div class="formula">{convert(match[1].strip(), display="block")}</div>'


def _targets(files: Files) -> list[str]:
    names = []
    for file in files.documentation_pages():
        names += _linked(file.content_string, f"docs/{file.src_uri}")
    return names


def _linked(markdown: str, name: str) -> list[str]:
    """The files that a page links to, by their names in the repository."""
    return [_resolved(match[2], name) for match in _LINK.finditer(_FENCED.sub("", markdown))]


def _resolved(path: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def _name(uri: str) -> str:
    """Where a page of the site is in the repository."""
    return uri.removeprefix(OUTSIDE) if uri.startswith(OUTSIDE) else f"docs/{uri}"


def _uri(name: str) -> str:
    return name.removeprefix("docs/") if name.startswith("docs/") else OUTSIDE + name
