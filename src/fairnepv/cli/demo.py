"""`fairnepv demo`: the embedded pool, every selector, a table, sentences and two pictures."""

from __future__ import annotations

import io
import math
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

import fairnepv
from fairnepv.cli import options as cli
from fairnepv.cli.outputs import Report, print_json, show
from fairnepv.errors import FairnepvError, InputError

if TYPE_CHECKING:
    from fairnepv.api.selection import Comparison
    from fairnepv.data import Pictograms

_MARK = "NOTICE.txt"  # also how a later demo knows the folder as its own
_VIEW_FILES = {"text": "text.npz", "vision": "vision.npy"}
CREDIT = "Pictograms: OpenMoji (CC BY-SA 4.0); keywords: OpenMoji and Unicode CLDR (Unicode-3.0)."


@click.command()
@click.option("-k", default=50, show_default=True, help="How many items to choose.")
@cli.random_state_option
@click.option(
    "--out",
    default="fairnepv-demo",
    show_default=True,
    metavar="FOLDER",
    help="Where pictures and data go; those of an earlier demo are replaced.",
)
@cli.reporting(force=True)
def demo(k: int, random_state: int, out: str, report: Report) -> None:
    """Choose 50 of 2,297 pictograms by keywords and by looks, and compare every selector."""
    from fairnepv.cli.progress import stage_bar
    from fairnepv.data import openmoji
    from fairnepv.report import comparison_record, comparison_table, left_behind, selection_summary

    folder = _folder(out, report.force)
    pool = openmoji()
    with stage_bar() as progress:
        comparison = fairnepv.compare(
            pool.views,
            k,
            ids=pool.ids,
            calibration="efficiency",
            random_state=random_state,
            progress=progress,
        )
    files = _write(folder, pool, comparison)
    if report.as_json:
        print_json(comparison_record(comparison))
    else:
        best = comparison.rows[0]
        title = f"OpenMoji, {len(pool.ids):,} pictograms (d, F: nats per item; C: low is good)"
        show(comparison_table(comparison, title), selection_summary(best), "")
        show(*left_behind(comparison), "")
        show("First picks: " + ", ".join(map(str, pool.titles[best.indices[:8]])) + ".")
        show(f"Look at {files[0]} (the picks) and {files[1]} (the scores).")
        show("Try next:", f"  {_next_command(folder)}", CREDIT)
    report.finish(comparison.rows[-1].status)


def _folder(out: str, force: bool) -> Path:
    """Looked at before the search: a new or empty folder, or one that a demo has made."""
    from fairnepv.io.places import local_path

    folder = local_path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {out}: this is a file; name a folder")
    if not folder.parent.is_dir():
        raise InputError(f"--out {out}: the folder {folder.parent} does not exist; make it first")
    if folder.is_dir() and any(folder.iterdir()) and not (force or (folder / _MARK).exists()):
        raise InputError(
            f"--out {out}: the folder holds files of yours; add --force to write beside them"
        )
    return folder


def _write(folder: Path, pool: Pictograms, comparison: Comparison) -> list[Path]:
    """Both pictures, and the two views with their ids for the next command."""
    import scipy.sparse as sp

    from fairnepv.io.write import Output, array_content
    from fairnepv.report import contact_sheet, draw_comparison

    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FairnepvError(f"{folder} cannot be made ({error.strerror})") from error
    rows = [comparison.rows[0]]
    rows += [row for row in comparison if row.method in ("text-only", "vision-only")]
    panels = {
        row.method: (
            [pool.pictures[i] for i in row.indices],
            "keeps " + ", ".join(f"{math.exp(d):.0%} of {v}" for v, d in row.scores.items()),
        )
        for row in rows
    }
    Output(folder / _MARK).write(f"Made by `fairnepv demo`. {CREDIT}\n".encode())
    pictures = [folder / "picks.png", folder / "scores.png"]
    Output(pictures[0]).write(contact_sheet(panels, CREDIT))
    title = f"{rows[0].settings['k']} of {len(pool.ids):,} pictograms, efficiency calibration"
    Output(pictures[1]).write(draw_comparison(comparison, title))
    views = pool.views
    sparse = io.BytesIO()
    sp.save_npz(sparse, views["text"])
    Output(folder / _VIEW_FILES["text"]).write(sparse.getvalue())
    Output(folder / _VIEW_FILES["vision"]).write(array_content(views["vision"]))
    Output(folder / "ids.txt").write("\n".join(pool.ids).encode() + b"\n")
    return pictures


def _next_command(folder: Path) -> str:
    views = (f"--view {quote(f'{name}={folder / file}')}" for name, file in _VIEW_FILES.items())
    ids = quote(str(folder / "ids.txt"))
    return f"fairnepv select {' '.join(views)} --ids {ids} -k 20 --out picks.csv"
