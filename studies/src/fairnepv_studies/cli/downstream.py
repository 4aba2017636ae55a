"""`fairnepv downstream`: does the chosen subset train a better model?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairnepv.cli.options import debug_option, force_option, log_option

if TYPE_CHECKING:
    from fairnepv_studies.downstream.execution import Listener, Turn
    from fairnepv_studies.downstream.folder import StudyFolder
    from fairnepv_studies.downstream.summary import Summary


@click.group()
def downstream() -> None:
    """Fine-tune a model on every selector's picks, and score what it writes.

    \b
    fairnepv downstream init study.toml          a commented study to edit
    fairnepv downstream run study.toml --out study
    fairnepv downstream verify study corpus

    run is prepare, cells and report; the cells may be run on another machine.
    """


model_option = click.option(
    "--model",
    metavar="FOLDER",
    help="Where the model lies on this machine, if not as the study says.",
)
limit_option = click.option(
    "--time-limit",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Begin no cell that would end later; the same command goes on with the rest.",
)
out_option = click.option(
    "--out", required=True, metavar="FOLDER", help="The folder of the study, new or begun."
)
partial_option = click.option(
    "--partial", is_flag=True, help="Tables of the cells that are there; captions say so."
)


@downstream.command()
@click.argument("study", metavar="STUDY.TOML")
@force_option
@log_option
@debug_option
def init(study: str, force: bool) -> None:
    """Write a commented study file."""
    from importlib import resources

    from fairnepv.cli.outputs import show
    from fairnepv.io.write import Output

    text = resources.files("fairnepv_studies.downstream").joinpath("study.toml").read_bytes()
    Output.at(study, (".toml",), force=force).write(text)
    show(f"Wrote {study}. Edit it, then", f"  fairnepv downstream run {study} --out FOLDER")


@downstream.command()
@click.argument("study", metavar="STUDY.TOML")
@out_option
@model_option
@limit_option
@log_option
@debug_option
def run(study: str, out: str, model: str | None, time_limit: float | None) -> None:
    """Carry out a study: prepare, cells, report. The same command goes on after an interruption."""
    from fairnepv_studies.downstream.execution import ModelWorker, local_model, source_of
    from fairnepv_studies.downstream.scoring import check_scoring

    asked, base = _study(study)
    check_scoring(asked.scoring.bertscore)
    ModelWorker().check(
        local_model(asked.model if model is None else source_of(asked, model), base), asked.recipe
    )
    folder = _prepared(study, out)
    if _cells(folder, model, time_limit, base):
        _report(folder, partial=False)


@downstream.command()
@click.argument("study", metavar="STUDY.TOML")
@out_option
@log_option
@debug_option
def prepare(study: str, out: str) -> None:
    """Choose by every selector, and pack all items that cells need into one folder."""
    from fairnepv.cli.outputs import show

    folder = _prepared(study, out)
    counts = folder.data["counts"]
    show(
        f"{folder.path}: {len(folder.tested)} cells to test and {len(folder.tuning)} to tune by.",
        f"{counts['pool']:,} items may be chosen, {counts['pretrain']:,} are set apart for "
        f"pretraining; {counts['validation']:,} validate and {counts['test']:,} test.",
        f"Next: fairnepv downstream cells {out}",
    )


@downstream.command()
@click.argument("folder", metavar="FOLDER")
@click.option("--out", required=True, metavar="FOLDER", help="Of the model; it must not exist yet.")
@click.option("--size", help="tiny, 25M, 40M or 80M parameters.  [default: 25M]")
@click.option("--epochs", type=click.IntRange(min=1), help="Passes over the items.  [default: 8]")
@click.option("--batch-size", type=click.IntRange(min=1), help="Of a step.  [default: 256]")
@click.option("--at-once", type=click.IntRange(min=1), help="Of which are held.  [default: 256]")
@click.option("--learning-rate", type=float, help="The highest.  [default: 0.001]")
@click.option("--seed", type=click.IntRange(min=0), help="Of weights and order.  [default: 0]")
@log_option
@debug_option
def pretrain(folder: str, out: str, **settings: Any) -> None:
    """Make a small model on what a prepared study sets apart (pretrain in [data]).

    No cell is trained on, tuned by or tested with any of these items.
    """
    from fairnepv.cli.outputs import show
    from fairnepv_studies.cli.progress import steps_bar
    from fairnepv_studies.downstream.__main__ import pretrain_from
    from fairnepv_studies.files import local

    with steps_bar() as progress:
        made = pretrain_from(_opened(folder), local(out), settings, progress)
    last = made.validation_losses[-1][1]
    show(
        f"{out}: {made.parameters:,} parameters trained on {made.items:,} items, validation loss "
        f"{last:.4f}.",
        f"Next: fairnepv downstream cells {folder} --model {out}",
    )


@downstream.command()
@click.argument("folder", metavar="FOLDER")
@model_option
@limit_option
@log_option
@debug_option
def cells(folder: str, model: str | None, time_limit: float | None) -> None:
    """Train and write every cell of a prepared study that is not done yet.

    Several such commands may work in one folder at once, on one GPU or on several: each takes the
    next cell that nobody has.

    On a machine without this command: python -m fairnepv_studies.downstream cells FOLDER
    """
    from fairnepv.cli.outputs import show

    if _cells(_opened(folder), model, time_limit, Path()):
        show(f"All cells are done. Next: fairnepv downstream report {folder}")


@downstream.command()
@click.argument("folder", metavar="FOLDER")
@partial_option
@log_option
@debug_option
def report(folder: str, partial: bool) -> None:
    """Score what the cells wrote, and write tables, figure and checksums."""
    _report(_opened(folder), partial=partial)


@downstream.command()
@click.argument("study", metavar="STUDY.TOML")
@out_option
@log_option
@debug_option
def export(study: str, out: str) -> None:
    """Write the chosen items as chat turns with images, for those who train elsewhere.

    Files are in OUT/chat; `fairnepv downstream score` takes the predictions back.
    """
    from fairnepv.cli.outputs import show
    from fairnepv_studies.downstream.export import FOLDER
    from fairnepv_studies.downstream.export import export as export_study

    folder = _prepared(study, out)
    names = export_study(folder)
    lists = [name for name in names if name.endswith(".jsonl")]
    show(
        f"Wrote {len(names) - len(lists):,} images and {len(lists)} lists in {out}/{FOLDER}.",
        "Predictions of the test items, one JSON object per line with selector, k, seed, id and "
        "text, are taken back by",
        f"  fairnepv downstream score {out} predictions.jsonl",
    )


@downstream.command()
@click.argument("folder", metavar="FOLDER")
@click.argument("predictions", metavar="PREDICTIONS...", nargs=-1, required=True)
@partial_option
@log_option
@debug_option
def score(folder: str, predictions: tuple[str, ...], partial: bool) -> None:
    """Take predictions that were made elsewhere into the tables of a study."""
    from fairnepv.cli.outputs import show
    from fairnepv.io.locks import locked
    from fairnepv_studies.downstream.export import bring
    from fairnepv_studies.files import local

    opened = _opened(folder)
    with locked(opened.path):
        brought = bring(opened, [local(name) for name in predictions])
    show(f"{len(brought)} cells were taken in.")
    _report(opened, partial=partial)


@downstream.command()
@click.argument("folder", metavar="FOLDER")
@click.argument("corpus", metavar="[CORPUS]", required=False)
@click.option("--choose-again", is_flag=True, help="Run every selector again, which takes long.")
@log_option
@debug_option
def verify(folder: str, corpus: str | None, choose_again: bool) -> None:
    """Check a study: every score from its texts, every table from its scores.

    With the corpus also picks, items, near duplicates and strata. Exit code 1 at the first
    difference, which is named.
    """
    from fairnepv.cli.outputs import show
    from fairnepv.cli.progress import stage_bar
    from fairnepv.errors import InputError, NumericalError
    from fairnepv_studies.corpus import Corpus
    from fairnepv_studies.downstream.verification import UNCHECKED, UNCHECKED_ALONE
    from fairnepv_studies.downstream.verification import verify as verify_study
    from fairnepv_studies.files import local

    if choose_again and corpus is None:
        raise InputError("--choose-again needs the corpus; name it after the folder")
    opened = None if corpus is None else Corpus.open(corpus)
    try:
        with stage_bar() as search:
            for sentence in verify_study(
                local(folder), opened, choose_again=choose_again, search=search
            ):
                show(f"ok  {sentence}")
    except NumericalError as error:
        raise NumericalError(f"{folder} differs: {error}") from error
    show(f"Not checked: {UNCHECKED}.")
    if opened is None:
        show(f"Nor without the corpus: {UNCHECKED_ALONE}.")
    show(f"{folder} holds.")


# --- the stages -----------------------------------------------------------------------------------


def _study(name: str) -> Any:
    from fairnepv_studies.downstream.study import read_study
    from fairnepv_studies.files import local

    path = local(name)
    return read_study(path), path.parent


def _opened(name: str) -> StudyFolder:
    from fairnepv_studies.downstream.folder import StudyFolder
    from fairnepv_studies.files import local

    return StudyFolder.open(local(name))


def _prepared(study: str, out: str) -> StudyFolder:
    from fairnepv.cli.outputs import Interrupted
    from fairnepv.cli.progress import stage_bar
    from fairnepv_studies.downstream.preparation import prepare as prepare_study
    from fairnepv_studies.files import local

    asked, base = _study(study)
    try:
        with stage_bar() as progress:
            return prepare_study(asked, base, local(out), progress)
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"interrupted; what was chosen is kept in {out}; the same command goes on from there"
        ) from error


def _cells(folder: StudyFolder, model: str | None, time_limit: float | None, base: Path) -> bool:
    """Whether all are done."""
    from fairnepv.cli.outputs import Interrupted, show
    from fairnepv_studies.downstream.execution import (
        Execution,
        ModelWorker,
        local_model,
        source_of,
    )

    source = local_model(source_of(folder.study, model), base)
    try:
        with _cells_bar() as listener:
            left = Execution(folder, source, ModelWorker(), listener, time_limit).carry_out()
    except KeyboardInterrupt as error:
        done = sum(map(folder.has, (*folder.tuning, *folder.tested)))
        raise Interrupted(
            f"interrupted; {done} of {len(folder.tuning) + len(folder.tested)} cells are kept in "
            f"{folder.path}, and the same command goes on from there"
        ) from error
    if left:
        show(f"Time is up: {len(left)} cells are left; the same command goes on with {left[0]}.")
    return not left


@contextlib.contextmanager
def _cells_bar() -> Iterator[Listener]:
    """A line for the study, whose time left is that of its cells, and one for the cell at hand."""
    from fairnepv.cli import log
    from fairnepv.cli.progress import progress_bar
    from fairnepv_studies.downstream.__main__ import in_minutes

    with progress_bar() as bar:
        study = bar.add_task("cells", total=None, said="")
        cell = bar.add_task("", total=None, said="")

        def listen(turn: Turn) -> None:
            left = "" if turn.seconds_left is None else f", {in_minutes(turn.seconds_left)} left"
            said = f"{turn.number + 1} of {turn.of}{left}"
            log.tell_rows("cells", turn.number, turn.of)
            log.tell_rows(f"{turn.cell}: {turn.stage}", turn.done, turn.stage_of)
            bar.update(study, total=turn.of, completed=turn.number, said=said)
            bar.update(
                cell,
                description=turn.stage,
                total=turn.stage_of,
                completed=turn.done,
                said=str(turn.cell),
            )

        yield listen


def _report(folder: StudyFolder, *, partial: bool) -> None:
    from fairnepv.cli.outputs import show
    from fairnepv.io.locks import locked
    from fairnepv_studies.cli.progress import steps_bar
    from fairnepv_studies.downstream.report import write_report

    with locked(folder.path), steps_bar() as progress:
        files, summary = write_report(folder, partial=partial, progress=progress)
    show(*_tables(summary))
    show(*(folder.path / "results.md").read_text("utf-8").partition("\n")[0].split(". "))
    show(f"Wrote {', '.join(files)} in {folder.path}.")


def _tables(summary: Summary) -> list[Any]:
    from fairnepv.report.terminal import plain_table
    from fairnepv_studies.downstream.tables import markdown_gaps, markdown_means

    made = []
    for title, (heading, *rows) in (*markdown_means(summary), *markdown_gaps(summary)):
        table = plain_table(title)
        for i, name in enumerate(heading):
            justify: Any = "right" if i else "left"
            table.add_column(name, justify=justify, no_wrap=True)
        for row in rows:
            table.add_row(*row)
        made.append(table)
    return made
