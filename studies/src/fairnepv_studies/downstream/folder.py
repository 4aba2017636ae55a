"""The folder of a study.

    study.json      what was asked for, and of which corpus, split, pool and features
    picks/          one file per choice: the ids in their order
    items.zip       all items that cells need; pretrain.zip those that are set apart, if any are
    tuning.json     what the validation split chose, if anything was to be tuned
    done/           one file per cell, written when it is done
    unfinished/     the state of the cell at hand, until it is done
    scores/         one file per tested cell: its scores, and those of every item
    chat/           the same as JSON lines for those who train elsewhere, if asked for
    cells.csv, results.csv, results.tex, results.md, differences.csv, strata.csv, scores.png
    SHA256SUMS      of all these files

Nothing here needs more than Python: the machine that trains has this folder and little else.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.documents import read_document
from fairnepv.io.locks import held
from fairnepv_studies.downstream.cells import Cell, Record, cells_to_test, tuning_cells
from fairnepv_studies.downstream.items import Item
from fairnepv_studies.downstream.packing import Packed, read_pack
from fairnepv_studies.downstream.recipe import Recipe
from fairnepv_studies.downstream.study import Study, study_of
from fairnepv_studies.files import LARGEST, read_record, write_whole

FORMAT = 1
ABOUT, ITEMS, PRETRAIN, TUNING = "study.json", "items.zip", "pretrain.zip", "tuning.json"
_REMEDY = "prepare the study again"
_AGAIN = "remove it, and the same command makes it again"


@dataclass(frozen=True)
class Picks:
    """What one selector chose at one size; of a selector that draws with one seed."""

    selector: str
    k: int
    seed: int
    ids: list[str]
    status: str  # how the search ended; where picks were given, "GIVEN"

    @property
    def name(self) -> str:
        return picks_name(self.selector, self.k, self.seed)


def picks_name(selector: str, k: int, seed: int) -> str:
    return f"{selector}-k{k}-seed{seed}"


@dataclass(frozen=True)
class StudyFolder:
    path: Path
    study: Study
    data: dict[str, Any]  # see `preparation.data_record`

    @classmethod
    def open(cls, path: Path) -> StudyFolder:
        file = path / ABOUT
        if not file.is_file():
            raise InputError(
                f"{path} is no folder of a study: it has no {ABOUT}; make it with fairnepv "
                "downstream prepare"
            )
        said = read_document(file, _REMEDY, most=LARGEST)
        if said.get("format") != FORMAT or not isinstance(said.get("data"), dict):
            raise InputError(f"{file} has another format than {FORMAT}; {_REMEDY}")
        return cls(path, study_of(said.get("study"), ABOUT), said["data"])

    # --- what cells are made from -----------------------------------------------------------------

    @functools.cached_property
    def items(self) -> dict[str, Packed]:
        return read_pack(self.path / ITEMS)

    def evaluated(self, part: str) -> list[Item]:
        """The items whose descriptions are written, in their order."""
        return [packed.item for packed in self.items.values() if packed.part == part]

    def picks(self, selector: str, k: int, seed: int) -> Picks:
        drawn = k in self.data["drawn"].get(selector, ())
        name = picks_name(selector, k, seed if drawn else 0)
        return read_record(self.path / "picks" / f"{name}.json", Picks, _REMEDY)

    def trained_on(self, cell: Cell) -> list[Item]:
        ids = self.picks(cell.selector, cell.k, cell.seed).ids
        strange = [id for id in ids if id not in self.items or self.items[id].part != "train"]
        if strange or len(set(ids)) < len(ids) or len(ids) != cell.k:
            what = f"{strange[0]!r} is none of its items" if strange else f"not {cell.k} ids"
            raise InputError(f"the picks of {cell} cannot be used ({what}); {_REMEDY}")
        return [self.items[id].item for id in ids]

    # --- cells --------------------------------------------------------------------------------

    @functools.cached_property
    def tested(self) -> list[Cell]:
        return cells_to_test(self.study)

    @functools.cached_property
    def tuning(self) -> list[Cell]:
        return tuning_cells(self.study)

    def cell_file(self, cell: Cell) -> Path:
        return self.path / "done" / f"{cell.name}.json"

    def has(self, cell: Cell) -> bool:
        return self.cell_file(cell).is_file()

    def record(self, cell: Cell) -> Record:
        file = self.cell_file(cell)
        found = read_record(file, Record, _AGAIN)
        if found.cell != cell:
            raise InputError(f"{file} is about {found.cell}; {_AGAIN}")
        return found

    def keep(self, record: Record) -> None:
        content = json.dumps(record.document, indent=1, ensure_ascii=False) + "\n"
        write_whole(self.cell_file(record.cell), content.encode("utf-8"))

    def unfinished(self, cell: Cell) -> Path:
        return self.path / "unfinished" / cell.name

    def recipe(self, cell: Cell) -> Recipe:
        """The recipe of a cell: with its own value of what is tuned, or with the chosen one."""
        if cell.trial is not None:
            assert self.study.tuning is not None
            return self.study.recipe_with(self.study.tuning.values[cell.trial])
        return (
            self.study.recipe if self.study.tuning is None else self.study.recipe_with(self.tuned)
        )

    @property
    def tuned(self) -> Any:
        """The value that the validation split chose."""
        chosen = self.tuning_document.get("chosen")
        if self.study.tuning is None or chosen not in self.study.tuning.values:
            raise InputError(f"{self.path / TUNING} chooses none of the values; {_AGAIN}")
        return chosen

    @property
    def tuning_document(self) -> dict[str, Any]:
        return read_document(self.path / TUNING, "run the cells again, which chooses anew")

    def write(self, name: str, content: bytes | str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content.encode("utf-8") if isinstance(content, str) else content)

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        self.write(name, json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    @contextlib.contextmanager
    def claimed(self, cell: Cell) -> Iterator[bool]:
        """Whether the cell is to be made by this process: it is not done, and nobody else has it.

        The file of the lock goes once the cell is done; whoever opened it before looks again.
        """
        file = self.path / "unfinished" / f".{cell.name}.lock"
        file.parent.mkdir(exist_ok=True)
        with held(file, make=True) as is_ours:
            yield is_ours and not self.has(cell)
            if is_ours and self.has(cell):
                file.unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove the states of cells that are done, and what a kill left of files."""
        states = self.path / "unfinished"
        for lock in states.glob(".*.lock"):
            lock.unlink(missing_ok=True)
        for cell in (*self.tuning, *self.tested):
            if self.has(cell):
                shutil.rmtree(self.unfinished(cell), ignore_errors=True)
        for part in (self.path, *(self.path / p for p in ("picks", "done", "scores", "chat"))):
            for torn in part.glob(".*.part"):
                torn.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it is not there, or a cell is unfinished
            states.rmdir()
