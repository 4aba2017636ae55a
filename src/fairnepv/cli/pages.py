"""`--report`: the options of a page, checked before any work, and the page written after it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import click

from fairnepv.cli import options as cli
from fairnepv.cli import words
from fairnepv.cli.certify import terms_of
from fairnepv.cli.files import ProblemFiles, reading
from fairnepv.cli.outputs import Report, show
from fairnepv.errors import FairnepvError, InputError

if TYPE_CHECKING:
    from fairnepv.api.selection import Comparison, Selection
    from fairnepv.io.write import Output

PAGE = "A page about the result, .html, which opens from disk; --images, --texts, --labels and "
PAGE += "--coordinates are for it."
ATLAS = "What embedding-atlas reads, .parquet; with --report."

_OPTIONS = {
    "images": click.option(
        "--images",
        metavar="FOLDER|FILE[:COLUMN]",
        help="Pictures for --report: a folder of files that are called by id, or a column of bytes "
        "in a table.",
    ),
    "texts": click.option(
        "--texts", metavar="FILE[:COLUMN]", help="Texts for --report, one per row."
    ),
    "labels": click.option(
        "--labels",
        metavar="FILE[:COLUMN]",
        help="Groups for --report to filter by.  [default: those of --groups]",
    ),
    "coordinates": click.option(
        "--coordinates",
        multiple=True,
        metavar="FILE[:COLUMN]",
        help="Two numbers per row, where --report draws it; NAME=FILE for one view.  [default: "
        "principal components]",
    ),
}


@dataclass(frozen=True)
class PageFiles:
    """What a page shows besides the result, as the names of files."""

    images: str | None
    texts: str | None
    labels: str | None
    coordinates: Sequence[str]

    def check(self, report: Report) -> tuple[Output | None, Output | None]:
        """The page and the table for an atlas, which can be written from files that are there."""
        from fairnepv.io.some_rows import check_pictures, check_texts

        page, atlas = report.output("report", (".html",)), report.output("atlas", (".parquet",))
        if page is None and (atlas or any((self.images, self.texts, self.labels))):
            raise InputError(
                "--images, --texts, --labels and --atlas are for --report; name a file for it"
            )
        for option, text, look in (
            ("--images", self.images, check_pictures),
            ("--texts", self.texts, check_texts),
        ):
            if text is not None:
                reading(look, option, "", text)
        return page, atlas

    def inputs(self, problem: ProblemFiles) -> list[Path]:
        """What is read, so that no output replaces it."""
        named = [self.images, self.texts, self.labels, *self._places(problem).values()]
        paths = [problem.source(text).path for text in named if text is not None]
        return [path for path in paths if isinstance(path, Path) and not path.is_dir()]

    def _places(self, problem: ProblemFiles) -> dict[str, str]:
        return words.files_by_view("--coordinates", self.coordinates, list(problem.views))

    def read(self, problem: ProblemFiles) -> dict[str, Any]:
        """The options of `write_page`."""
        from fairnepv.io.read import read_features, read_picks

        places = {
            name: _plain(reading(read_features, "--coordinates", "", text))
            for name, text in self._places(problem).items()
        }
        labels = None
        if self.labels is not None:
            labels = reading(lambda text: read_picks(text, "group"), "--labels", "", self.labels)
        coordinates = places.get("", places or None)
        material = {"images": self.images, "texts": self.texts, "groups": labels}
        return {**material, "coordinates": coordinates}


def _plain(rows: Any) -> Any:
    from fairnepv.io.rows import RowFile

    return rows[:] if isinstance(rows, RowFile) else rows


page_options = cli.handed_on("page", lambda own: PageFiles(**own), _OPTIONS)


def write_report(
    outputs: tuple[Output | None, Output | None],
    chosen: Selection | Comparison,
    page: PageFiles,
    problem: ProblemFiles,
    report: Report,
) -> None:
    """Write the page, if one is wanted; what keeps it from being written is raised at the end."""
    from fairnepv.cli.progress import stage_bar
    from fairnepv.report import write_page

    output, atlas = outputs
    if output is None:
        return
    try:
        with stage_bar() as progress:
            write_page(
                chosen,
                output.path,
                **page.read(problem),
                atlas=None if atlas is None else atlas.path,
                made=_made(problem, chosen, report.files.get("bound")),
                progress=progress,
            )
    except FairnepvError as error:
        report.failures.append(error)
        return
    if not report.as_json:
        show(f"Wrote {output.path}: open it in a browser.")


def _made(problem: ProblemFiles, chosen: Any, bound: str | None) -> Any:
    """The command that was run, and the one that checks its bound."""
    from fairnepv.report.page.run import Made

    command, rows = join(["fairnepv", *sys.argv[1:]]), getattr(chosen, "rows", (chosen,))
    certificate, k = rows[0].certificate, rows[0].settings["k"]
    if certificate is None:
        return Made(command, "")
    terms = terms_of(k, problem, certificate)
    verify = join(["fairnepv", "verify-bound", bound or "bound.npz", *terms])
    first = join(["fairnepv", "certify", *terms, "--out", "bound.npz"])
    return Made(command, verify if bound else f"{first}\n{verify}")
