"""Cells of a study: one selector, size and seed each, trained and written by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from fairnepv_studies.downstream.items import Item
from fairnepv_studies.downstream.recipe import Recipe, recipe_document
from fairnepv_studies.downstream.study import Study


class Cell(NamedTuple):
    selector: str
    k: int
    seed: int
    trial: int | None = None  # number in the grid of what is tuned; None: this cell is tested

    @property
    def name(self) -> str:
        of = f"{self.selector}-k{self.k}-seed{self.seed}"
        return of if self.trial is None else f"tuning{self.trial}-{of}"

    @property
    def part(self) -> str:
        """Whose descriptions it writes."""
        return "test" if self.trial is None else "validation"

    def __str__(self) -> str:
        of = f"{self.selector!r}, k = {self.k}, seed {self.seed}"
        return of if self.trial is None else f"{of}, value {self.trial + 1} of what is tuned"


def cells_to_test(study: Study) -> list[Cell]:
    """In an order in which a study that is cut short has something of every selector."""
    most = max(study.seeds_of(selector.name) for selector in study.selectors)
    return [
        Cell(selector.name, k, seed)
        for seed in range(most)
        for k in study.sizes
        for selector in study.selectors
        if seed < study.seeds_of(selector.name)
    ]


def tuning_cells(study: Study) -> list[Cell]:
    tuning = study.tuning
    if tuning is None:
        return []
    return [
        Cell(tuning.selector, tuning.k, seed, trial)
        for trial in range(len(tuning.values))
        for seed in range(tuning.seeds)
    ]


@dataclass(frozen=True)
class Record:
    """What a finished cell leaves."""

    selector: str
    k: int
    seed: int
    trial: int | None
    key: str  # of all that it was made from: `cell_key`
    model: dict[str, Any]  # the identity of the model that was trained
    texts: list[str]
    losses: list[float | None]  # None: no finite number
    counts: dict[str, int]
    device: str
    versions: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def cell(self) -> Cell:
        return Cell(self.selector, self.k, self.seed, self.trial)

    @property
    def document(self) -> dict[str, Any]:
        return asdict(self)


def cell_key(
    recipe: Recipe,
    model: Mapping[str, Any],
    train: Sequence[Item],
    evaluate: Sequence[Item],
    seed: int,
) -> str:
    """Of everything that decides a cell but the machine: a cell that is there with another key was
    made from something else."""
    found = hashlib.sha256()
    said = {"recipe": recipe_document(recipe), "model": dict(model), "seed": seed}
    _add(found, json.dumps(said, sort_keys=True).encode())
    for items in (train, evaluate):
        _add(found, str(len(items)).encode())
        for item in items:
            for part in (item.id.encode(), item.text.encode(), item.image):
                _add(found, part)
    return found.hexdigest()


def _add(found: Any, part: bytes) -> None:
    found.update(len(part).to_bytes(8, "little"))
    found.update(part)
