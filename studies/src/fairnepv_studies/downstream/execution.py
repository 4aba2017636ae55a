"""The cells of a prepared study, one after the other: what is done is not done again.

This is the stage for the machine with the GPU. It needs the folder of the study and PyTorch,
Transformers, PEFT and Pillow; scores and tables are made afterwards, anywhere.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from fairnepv.errors import InputError
from fairnepv.io.locks import locked
from fairnepv_studies.downstream.cells import Cell, Record, cell_key
from fairnepv_studies.downstream.folder import TUNING, StudyFolder
from fairnepv_studies.downstream.items import Item
from fairnepv_studies.downstream.plain_rouge import mean_rouge_l
from fairnepv_studies.downstream.recipe import ModelSource, Recipe
from fairnepv_studies.downstream.study import Study
from fairnepv_studies.progress import StageProgress

_PAUSE = 0.5  # seconds between two looks at cells that other processes have at hand
_SPARE = 1.1  # of the longest cell so far, which the next one may need


class Written(Protocol):
    """What the work of a cell gives (`cell_work.Written`)."""

    @property
    def texts(self) -> list[str]: ...
    @property
    def losses(self) -> list[float]: ...
    @property
    def counts(self) -> dict[str, int]: ...
    @property
    def device(self) -> str: ...
    @property
    def versions(self) -> dict[str, str]: ...


class Worker(Protocol):
    """Who trains and writes: the model half of the evaluation, or a stand-in in tests."""

    def check(self, model: ModelSource, recipe: Recipe) -> None:
        """Refuse what cannot be trained here, before any work."""
        ...

    def identity(self, model: ModelSource) -> dict[str, Any]: ...

    def train_and_write(
        self,
        folder: Path,
        model: ModelSource,
        recipe: Recipe,
        train: Sequence[Item],
        evaluate: Sequence[Item],
        seed: int,
        progress: StageProgress,
    ) -> Written: ...


class ModelWorker:
    """The real one; it is loaded when the first cell is asked for."""

    def check(self, model: ModelSource, recipe: Recipe) -> None:
        from fairnepv_studies.downstream.cell_work import check_model

        check_model(model)

    def identity(self, model: ModelSource) -> dict[str, Any]:
        from fairnepv_studies.downstream.models import identity

        return identity(model)

    def train_and_write(self, *given: Any) -> Written:
        from fairnepv_studies.downstream.cell_work import train_and_write

        written: Written = train_and_write(*given)
        return written


@dataclass
class Turn:
    """What a listener hears: the cell at hand, its stage, and how far the study is."""

    cell: Cell
    number: int  # of the cell among those that are left, from 0
    of: int
    stage: str
    done: int  # of the stage
    stage_of: int
    seconds_left: float | None  # None until a cell is done


Listener = Callable[[Turn], None]


def is_first() -> bool:
    """Whether this process writes files: of those that `accelerate launch` starts, one does."""
    return os.environ.get("RANK", "0") == "0"


def alone() -> bool:
    """Whether this process trains by itself; others may then work at other cells of the folder."""
    return int(os.environ.get("WORLD_SIZE", "1")) == 1


@dataclass
class Execution:
    """One run of this stage; several may work in one folder, after each other or at once."""

    folder: StudyFolder
    model: ModelSource
    worker: Worker
    listener: Listener | None = None
    time_limit: float | None = None  # seconds; a cell that would not end in time is not begun
    _began: float = field(default_factory=lambda: time.monotonic())
    _spent: list[float] = field(default_factory=list)  # seconds of the cells of this run
    _of: int = 0  # cells that were left when it began
    _made: dict[Cell, Record] = field(default_factory=dict)

    def carry_out(self) -> list[Cell]:
        """The cells that are left at the end: none, or those that time did not allow."""
        path = self.folder.path
        if not is_first():  # of the processes of one run the first has the folder
            return self._all()
        with locked(path, shared=alone()):
            left = self._all()
        if not left:
            with contextlib.suppress(InputError), locked(path):  # others may still be at work
                self.folder.clean()
        return left

    def _all(self) -> list[Cell]:
        folder = self.folder
        for cell in filter(folder.has, (*folder.tuning, *folder.tested)):
            self._made[cell] = folder.record(cell)
        self.worker.check(self.model, folder.study.recipe)
        known = self.worker.identity(self.model)
        self._check_made(known)
        self._of = len(folder.tuning) + len(folder.tested) - len(self._made)
        untuned = self._go_through(folder.tuning, known)
        if untuned:
            return [*untuned, *(cell for cell in folder.tested if not folder.has(cell))]
        self._recipe()  # writes down what was chosen, should a kill have come before
        return self._go_through(folder.tested, known)

    def _go_through(self, cells: Sequence[Cell], known: Mapping[str, Any]) -> list[Cell]:
        """Make these cells; what another process has at hand is waited for."""
        while left := [cell for cell in cells if not self.folder.has(cell)]:
            before = len(self._spent)
            for cell in left:
                if not self._has_time():
                    return [cell for cell in left if not self.folder.has(cell)]
                with self._claimed(cell) as mine:
                    if mine:
                        self._make(cell, known)
            if len(self._spent) == before:
                time.sleep(_PAUSE)
        return []

    def _claimed(self, cell: Cell) -> contextlib.AbstractContextManager[bool]:
        """Processes that work together have the folder for themselves, and every cell in common."""
        return self.folder.claimed(cell) if alone() else contextlib.nullcontext(True)

    def _check_made(self, known: Mapping[str, Any]) -> None:
        """Cells that are there were made from what the others are made from."""
        for cell, record in self._made.items():
            if record.model != known:
                raise InputError(
                    f"the cell {cell} was made with another model ({_short(record.model)}, now "
                    f"{_short(known)}); go on with that one, or prepare the study in a new folder"
                )

    def _make(self, cell: Cell, known: Mapping[str, Any]) -> None:
        folder, number, of = self.folder, len(self._spent), self._of
        recipe = folder.recipe(cell) if cell.trial is not None else self._recipe()
        train, evaluate = folder.trained_on(cell), folder.evaluated(cell.part)
        began = time.monotonic()

        def progress(stage: str, done: int, stage_of: int) -> None:
            if self.listener is not None:
                left = self._left(of - number, time.monotonic() - began)
                self.listener(Turn(cell, number, of, stage, done, stage_of, left))

        progress("beginning", 0, 1)
        state = folder.unfinished(cell)
        written = self.worker.train_and_write(
            state, self.model, recipe, train, evaluate, cell.seed, progress
        )
        seconds = time.monotonic() - began
        self._spent.append(seconds)
        parts = {name: float(s) for name, s in getattr(written, "seconds", {}).items()}
        record = Record(
            *cell,
            key=cell_key(recipe, known, train, evaluate, cell.seed),
            model=dict(known),
            texts=list(written.texts),
            losses=[float(loss) if math.isfinite(loss) else None for loss in written.losses],
            counts=dict(written.counts),
            device=written.device,
            versions=dict(written.versions),
            seconds={**parts, "cell": seconds},
        )
        self._made[cell] = record
        if is_first():
            (folder.path / "done").mkdir(exist_ok=True)
            folder.keep(record)
            shutil.rmtree(state, ignore_errors=True)

    def _recipe(self) -> Recipe:
        study = self.folder.study
        return study.recipe if study.tuning is None else study.recipe_with(self._chosen)

    @functools.cached_property
    def _chosen(self) -> Any:
        """Of what is tuned, once all of its cells are there; every process finds the same."""
        for cell in self.folder.tuning:
            if cell not in self._made:  # another process made it
                self._made[cell] = self.folder.record(cell)
        document = tuning_document(self.folder, self._made)
        if is_first():
            self.folder.write_json(TUNING, document)
        return document["chosen"]

    def _left(self, cells: int, of_this: float) -> float | None:
        """Seconds, as the cells of this run went; the first one, which loads the model, does not
        count where there are others."""
        paced = self._spent[1:] or self._spent
        if not paced:
            return None
        pace = sum(paced) / len(paced)
        return max(0.0, pace * cells - of_this)

    def _has_time(self) -> bool:
        if self.time_limit is None:
            return True
        next_one = _SPARE * max(self._spent[1:] or self._spent, default=0.0)
        fits = time.monotonic() - self._began + next_one <= self.time_limit
        return agreed(fits)


def agreed(said: bool) -> bool:
    """What the first process says, where there are several: all of them go on, or none."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return said
    from fairnepv_studies.downstream.models import need

    distributed = need("torch.distributed")
    if not distributed.is_initialized():
        return said
    shared = [said]
    distributed.broadcast_object_list(shared)
    return bool(shared[0])


def tuning_document(folder: StudyFolder, made: Mapping[Cell, Record]) -> dict[str, Any]:
    """The mean ROUGE-L of every value over its seeds; the first of the best is chosen."""
    tuning = folder.study.tuning
    assert tuning is not None
    references = [item.text for item in folder.evaluated("validation")]
    scores = []
    for trial in range(len(tuning.values)):
        own = [mean_rouge_l(made[c].texts, references) for c in folder.tuning if c.trial == trial]
        scores.append(round(sum(own) / len(own), 6))
    chosen = tuning.values[scores.index(max(scores))]
    values = list(tuning.values)
    return {"knob": tuning.knob, "values": values, "rouge_l": scores, "chosen": chosen}


def source_of(study: Study, given: str | None) -> ModelSource:
    """The model of the study, or the same one where it lies on this machine."""
    return study.model if given is None else ModelSource(given)


def local_model(model: ModelSource, base: Path) -> ModelSource:
    """A folder is found beside the study file, too."""
    beside = base / model.name
    return replace(model, name=str(beside)) if beside.is_dir() else model


def _short(identity: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {str(value)[:12]}" for name, value in sorted(identity.items()))
