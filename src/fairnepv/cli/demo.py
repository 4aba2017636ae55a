"""`fairnepv demo`: the embedded pool, both objectives, an answer in words, tables, two pictures."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from shutil import which
from typing import TYPE_CHECKING, Any

import click

import fairnepv
from fairnepv.cli import options as cli
from fairnepv.cli.outputs import Report, print_json, show
from fairnepv.errors import FairnepvError, InputError, Status
from fairnepv.options import DIVERSE, REPRESENTATIVE

if TYPE_CHECKING:
    from fairnepv.api.selection import Comparison, Selection
    from fairnepv.data import Pictograms
    from fairnepv.data.probe import Probe
    from fairnepv.report.demo import Trial

_MARK = "NOTICE.txt"  # also how a later demo knows the folder as its own
# Ours and the best rivals; `averaged` is `concatenated` under representative, and below it else.
_METHODS = ("auto", "fixed-weight", "concatenated", "text-only", "vision-only", "random")
_QUICK: dict[str, Any] = {"methods": _METHODS, "effort": "fast", "gap": 0.01}
_OBJECTIVES: dict[str, dict[str, Any]] = {
    DIVERSE: {"calibration": "efficiency"},
    REPRESENTATIVE: {},
}
_LEGEND = (
    "F: the fair score, from the worst view to the mean and nearer the worst (nats per item under",
    "`diverse`); probe: the share of the other pictograms whose group logistic regression names,",
    "trained on the picks (* the best); random: views of one draw, the probe of several. `auto` is",
    "ours. All by effort `fast`, greedy alone; the default searches on.",
)
_DRAWS = 10  # by lot, for the probe
_SHOWN = 60  # picks in the picture
CREDIT = "Pictograms: OpenMoji (CC BY-SA 4.0); keywords: OpenMoji and Unicode CLDR (Unicode-3.0)."


@click.command()
@click.option("-k", default=200, show_default=True, help="How many items to choose.")
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
    """Choose 200 of 2,297 pictograms by keywords and by looks, under both objectives: which view is
    left behind, and what can be learned from the picks?"""
    from fairnepv.cli.progress import stage_bar
    from fairnepv.data import openmoji
    from fairnepv.data.probe import Probe
    from fairnepv.report.demo import demo_answer, demo_record, demo_table

    folder = _folder(out, report.force)
    pool = openmoji()
    options = {"ids": pool.ids, "random_state": random_state, **_QUICK}
    with stage_bar() as progress:
        found = [
            _compared(pool.views, k, progress=progress, objective=objective, **rule, **options)
            for objective, rule in _OBJECTIVES.items()
        ]
    diverse, representative = _tried(found, Probe(pool.views, pool.groups), random_state)
    answer = demo_answer(diverse, representative, "pictograms", "group")
    files = _write(folder, pool, diverse, representative)
    pages = _write_pages(folder, pool, (representative, diverse))
    if report.as_json:
        print_json(demo_record((diverse, representative), answer))
    else:
        show(*answer, demo_table(diverse), demo_table(representative))
        show(*_LEGEND)
        for trial in (diverse, representative):
            first = ", ".join(map(str, pool.titles[trial.ours.indices[:8]]))
            show(f"First picks of `{trial.objective}`: {first}.")
        show(f"Look at {files[0]} (the picks) and {files[1]} (the numbers above).")
        show(
            f"Open {pages[0]} and {pages[1]} in a browser: every pick, and all of this to explore."
        )
        show("Try next:", f"  {_next_command(folder)}", CREDIT)


def _compared(*arguments: Any, **options: Any) -> Comparison:
    """All selectors or none: half a comparison would be told as if it were the whole."""
    comparison = fairnepv.compare(*arguments, **options)
    if comparison.rows[-1].status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return comparison


def _tried(comparisons: Sequence[Comparison], probe: Probe, random_state: int) -> Iterator[Trial]:
    """How probes do that are trained on the picks; by lot, the mean over several draws."""
    import numpy as np

    from fairnepv.report.demo import LOT, Trial

    k = len(comparisons[0].rows[0].indices)
    lots = probe.drawn(k, _DRAWS, np.random.default_rng(random_state))
    mean, spread = float(lots.mean()), float(lots.std(ddof=1))
    for comparison in comparisons:
        chosen = {row.method: row.indices for row in comparison if row.method != LOT}
        accuracy = {method: probe.accuracy(picks) for method, picks in chosen.items()}
        yield Trial(comparison, {**accuracy, LOT: mean}, spread, _DRAWS)


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


def _write(folder: Path, pool: Pictograms, diverse: Trial, representative: Trial) -> list[Path]:
    """Both pictures, and the two views with their ids for the next command."""
    from fairnepv.io.write import Output, write_array
    from fairnepv.report import contact_sheet
    from fairnepv.report.demo import draw_demo

    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FairnepvError(f"{folder} cannot be made ({error.strerror})") from error
    Output(folder / _MARK).write(f"Made by `fairnepv demo`. {CREDIT}\n".encode())
    pictures = [folder / "picks.png", folder / "scores.png"]
    panels = _panels(pool, diverse, representative)
    Output(pictures[0]).write(contact_sheet(panels, CREDIT))
    title = f"{len(diverse.ours.indices)} of {len(pool.ids):,} pictograms"
    Output(pictures[1]).write(draw_demo(diverse, representative, title))
    for name, rows in pool.views.items():
        write_array(Output(folder / f"{name}.npy"), rows)
    Output(folder / "ids.txt").write("\n".join(pool.ids).encode() + b"\n")
    return pictures


def _write_pages(folder: Path, pool: Pictograms, trials: Sequence[Trial]) -> list[Path]:
    """A page per objective, on which the other selectors are those of the table."""
    title = f"{len(trials[0].ours.indices)} of {len(pool.ids):,} pictograms"
    shown = {"images": pool.pictures, "texts": pool.titles, "groups": pool.groups, "title": title}
    return [
        trial.comparison.report(folder / f"report-{trial.objective}.html", **shown)
        for trial in trials
    ]


def _panels(
    pool: Pictograms, diverse: Trial, representative: Trial
) -> dict[str, tuple[list[bytes], str]]:
    """The first picks of both objectives and of a draw, with what a probe learns from all."""
    from fairnepv.report.demo import LOT

    def panel(trial: Trial, row: Selection, which: str) -> tuple[list[bytes], str]:
        shown = [pool.pictures[i] for i in row.indices[:_SHOWN]]
        accuracy = trial.accuracy[row.method]
        return shown, f"a probe trained on {which} gets {accuracy:.1%} right"

    k = len(diverse.ours.indices)
    both = (representative, diverse)
    panels = {trial.objective: panel(trial, trial.ours, f"all {k}") for trial in both}
    drawn = f"{k} by lot ({diverse.draws} draws)"
    return {**panels, LOT: panel(diverse, diverse.comparison[LOT], drawn)}


def _next_command(folder: Path) -> str:
    views = (f"--view {quote(f'{name}={folder / name}.npy')}" for name in ("text", "vision"))
    ids = quote(str(folder / "ids.txt"))
    chosen = "--objective representative -k 20 --out picks.csv"
    beside = Path(sys.argv[0]).name == "fairnepv" and not which("fairnepv")  # such as in a .venv
    called = quote(sys.argv[0]) if beside else "fairnepv"
    return f"{called} select {' '.join(views)} --ids {ids} {chosen}"
