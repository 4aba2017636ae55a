"""What a prepared study needs a GPU for, on a machine that has PyTorch and little else:

python -m fairnepv_studies.downstream pretrain FOLDER --out FOLDER_OF_MODEL
python -m fairnepv_studies.downstream cells FOLDER --model FOLDER_OF_MODEL --time-limit 540
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairnepv.errors import FairnepvError, InputError
from fairnepv_studies.downstream.execution import Execution, ModelWorker, Turn, is_first, source_of
from fairnepv_studies.downstream.folder import PRETRAIN, StudyFolder
from fairnepv_studies.downstream.packing import read_pack
from fairnepv_studies.progress import StageProgress

if TYPE_CHECKING:
    from fairnepv_studies.downstream.pretraining import Pretrained

# Options of the command, as `pretraining.Pretraining` has them.
PRETRAINING: Mapping[str, Any] = {
    "size": str,
    "epochs": int,
    "batch_size": int,
    "at_once": int,
    "learning_rate": float,
    "seed": int,
}


def main(given: Sequence[str] | None = None) -> int:
    """Exit code: 0 if all is done, 3 if time ran out before, 2 for wrong input."""
    said = _parser().parse_args(given)
    try:
        folder = StudyFolder.open(said.folder)
        return _pretrain(folder, said) if said.stage == "pretrain" else _cells(folder, said)
    except FairnepvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from there", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fairnepv_studies.downstream")
    stages = parser.add_subparsers(dest="stage", required=True)
    cells = stages.add_parser("cells", help="train and write every cell that is not done yet")
    cells.add_argument("--model", help="where the model lies on this machine")
    cells.add_argument("--time-limit", type=float, help="seconds; no cell begins that needs more")
    pretraining = stages.add_parser("pretrain", help="a small model from what is set apart")
    pretraining.add_argument("--out", type=Path, required=True, help="folder of the model, new")
    for name, kind in PRETRAINING.items():
        pretraining.add_argument(f"--{name.replace('_', '-')}", type=kind)
    for stage in (cells, pretraining):
        stage.add_argument("folder", type=Path, help="of the study, as `prepare` made it")
    return parser


def _cells(folder: StudyFolder, said: argparse.Namespace) -> int:
    source = source_of(folder.study, said.model)
    lines = Lines() if is_first() else None
    run = Execution(folder, source, ModelWorker(), lines, said.time_limit)
    left = run.carry_out()
    if left:
        print(f"{len(left)} cells are left; the same command goes on with {left[0]}")
        return 3
    print("all cells are done")
    return 0


def _pretrain(folder: StudyFolder, said: argparse.Namespace) -> int:
    settings = {name: getattr(said, name) for name in PRETRAINING}
    steps = Steps()
    made = pretrain_from(folder, said.out, settings, steps)
    print(f"{said.out}: {made.parameters:,} parameters, {made.items:,} items, {made.seconds}")
    print(f"validation losses by step: {made.validation_losses}")
    return 0


def pretrain_from(
    folder: StudyFolder, out: Path, settings: Mapping[str, Any], progress: StageProgress
) -> Pretrained:
    """On what the study sets apart, with its recipe; settings that are None are as usual."""
    from fairnepv_studies.downstream.pretraining import Pretraining, pretrain

    file = folder.path / PRETRAIN
    if not file.is_file():
        raise InputError(
            f"{folder.path} sets nothing apart to pretrain on; say a share as pretrain in [data], "
            "and prepare the study in a new folder"
        )
    items = [packed.item for packed in read_pack(file).values()]
    asked = Pretraining(**{name: value for name, value in settings.items() if value is not None})
    held = folder.evaluated("validation")
    return pretrain(out, items, held, folder.study.recipe, asked, progress)


class Steps:
    """A line for every stage, and one every ten seconds."""

    def __init__(self) -> None:
        self._stage, self._said = "", 0.0

    def __call__(self, stage: str, done: int, of: int) -> None:
        now = time.monotonic()
        if stage != self._stage or now - self._said >= 10:
            self._stage, self._said = stage, now
            print(f"{stage}: {done:,} of {of:,}", file=sys.stderr, flush=True)


class Lines:
    """A line for every cell, and for what takes longer than ten seconds one more."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._said = 0.0

    def __call__(self, turn: Turn) -> None:
        now = time.monotonic()
        if turn.number == self._number and now - self._said < 10:
            return
        self._number, self._said = turn.number, now
        print(said_of(turn), file=sys.stderr, flush=True)


def said_of(turn: Turn) -> str:
    left = "" if turn.seconds_left is None else f", {in_minutes(turn.seconds_left)} left"
    stage = f"{turn.stage} {turn.done:,} of {turn.stage_of:,}"
    return f"cell {turn.number + 1} of {turn.of}: {turn.cell}; {stage}{left}"


def in_minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    sys.exit(main())
