"""`fairnepv init`: a recipe from the files of a folder, to be read, changed and run."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from fairnepv.cli import options as cli
from fairnepv.cli.outputs import Report, show
from fairnepv.cli.recipe import options_by_key
from fairnepv.cli.select import select
from fairnepv.errors import InputError

_TABLES = (".parquet", ".arrow", ".feather", ".ipc")
_ENDINGS = (".npy", ".npz", *_TABLES, ".safetensors")
_K = 100  # or a tenth of few rows
_WRITTEN = ("view", "ids", "k", "objective", "out", "report")  # not as comments


class Found(NamedTuple):
    """A matrix of numbers that may be a view."""

    name: str
    source: str
    n: int
    p: int


@click.command()
@click.argument("folder", default=".", metavar="[FOLDER]")
@cli.reporting(out="The recipe.  [default: recipe.toml]")
def init(folder: str, report: Report) -> None:
    """Write a recipe for the files in a folder: views of as many rows, ids, and every option.

    \b
    fairnepv init photos
    fairnepv select recipe.toml
    """
    from fairnepv.cli.files import reading
    from fairnepv.io.places import local_path

    report.files["out"] = report.files["out"] or "recipe.toml"
    output = report.output("out", (".toml",))
    where = reading(local_path, "FOLDER", "", folder)
    if not where.is_dir():
        raise InputError(f"FOLDER {folder} is no folder; name one that has the files of the views")
    found = list(_matrices(where))
    wide = [view for view in found if view.p > 1]  # one number per row is a label, or an id
    if not wide:
        raise InputError(
            f"FOLDER {folder} has no file of rows and columns of numbers that could be a view "
            f"({', '.join(_ENDINGS)})"
        )
    n, _ = Counter(view.n for view in wide).most_common(1)[0]
    views = _named_once([view for view in wide if view.n == n])
    others = [view for view in found if view.n != n or view.p == 1]
    ids = next(_ids(where, n), None)
    report.write(output, recipe_text(views, others, ids).encode())
    report.tell()
    show(f"{len(views)} views of {n:,} rows" + (f", ids of {ids}" if ids else "") + ".")
    show(f"Read it, then: fairnepv select {report.files['out']}")


def recipe_text(views: list[Found], others: list[Found], ids: str | None) -> str:
    """A recipe with these views, and every other option of `select` in a comment."""
    n = views[0].n
    lines = [
        "# A recipe for `fairnepv select`. Keys are the options of the command; options that are",
        "# typed win. Files are named as on a command line, from the folder where it is run.",
        "",
        f"k = {min(_K, max(1, n // 10))}  # of {n:,}; a fraction, or a list of sizes",
        'objective = "diverse"  # or "representative", to train on the picks or to label them',
        'out = "picks.parquet"',
        'report = "report.html"  # a page about the result, which opens from disk',
        f"{'' if ids else '# '}ids = {_quoted(ids or 'ids.txt')}",
        "",
    ]
    for key, option in options_by_key(select).items():
        if key not in _WRITTEN:
            help = " ".join((option.help or "").split())
            lines += textwrap.wrap(help, 96, initial_indent="# ", subsequent_indent="# ")
            lines += [f"# {key} = {_example(option)}", ""]
    lines.append("[view]  # last, as all keys below belong to it")
    lines += [f"{_quoted(v.name)} = {_quoted(v.source)}  # {v.n:,} x {v.p:,}" for v in views]
    lines += [f"# {_quoted(v.name)} = {_quoted(v.source)}  # {v.n:,} x {v.p:,}" for v in others]
    return "\n".join(lines) + "\n"


def _example(option: click.Option) -> str:
    """The default, or something that has the right form."""
    default: Any = option.default
    if option.is_flag:
        return "true" if default is True else "false"
    if isinstance(default, int | float) and not isinstance(default, bool):
        return repr(default)
    if isinstance(option.type, click.Choice):
        return _quoted(str(default if isinstance(default, str) else option.type.choices[0]))
    return _quoted(default if isinstance(default, str) else option.metavar or "...")


def _quoted(text: str) -> str:
    """A TOML text: JSON in ASCII is one, but for the halves that JSON writes far letters in."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _matrices(folder: Path) -> Iterator[Found]:
    """Everything that can be a view, by name; what cannot be read is none."""
    from fairnepv.io.arrow_files import column_names
    from fairnepv.io.numpy_files import open_archive
    from fairnepv.io.source import parse_source

    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")) or not (path.is_dir() or path.suffix in _ENDINGS):
            continue
        parts: list[str | None] = [None]
        try:
            if path.suffix in _TABLES:
                parts = [*column_names(parse_source(str(path), _TABLES))]
            elif path.suffix == ".npz":
                with open_archive(parse_source(str(path), (".npz",))) as archive:
                    parts = [None] if "format" in archive.names else [*archive.names]
        except InputError:
            continue
        for part in parts:
            if (view := _matrix(path, part, len(parts) > 1)) is not None:
                yield view


def _matrix(path: Path, part: str | None, several: bool) -> Found | None:
    from fairnepv.io.read import open_rows

    source = str(path) if part is None else f"{path}:{part}"
    try:
        n, p = open_rows(source).shape
    except InputError:
        return None
    name = path.stem if not several or part is None else part
    return Found(name.replace("=", "-"), source, int(n), int(p))


def _named_once(views: list[Found]) -> list[Found]:
    """The same views; of several with one name all but the first get a number behind it."""
    seen: Counter[str] = Counter()
    named = []
    for view in views:
        seen[view.name] += 1
        again = seen[view.name] > 1
        named.append(view._replace(name=f"{view.name}-{seen[view.name]}") if again else view)
    return named


def _ids(folder: Path, n: int) -> Iterator[str]:
    """Files that have n different names: a text of lines, or a column `id`."""
    from fairnepv.io.read import read_ids

    for path in sorted(folder.iterdir()):
        texts = path.suffix in (".txt", ".csv", *_TABLES) or path.stem == "ids"
        if path.name.startswith(".") or not texts or not path.is_file():
            continue
        source = f"{path}:id" if path.suffix in (".csv", *_TABLES) else str(path)
        try:
            found = read_ids(source)
        except InputError:
            continue
        if len(found) == n and len(set(found.tolist())) == n:
            yield source
