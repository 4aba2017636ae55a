"""A small corpus, a study of it, and a stand-in for training, for tests of the downstream study."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from corpora import add_features, make_corpus

from fairnepv_studies.corpus import ITEMS, Corpus
from fairnepv_studies.downstream.execution import Execution
from fairnepv_studies.downstream.folder import StudyFolder
from fairnepv_studies.downstream.preparation import prepare
from fairnepv_studies.downstream.study import Study, study_of
from fairnepv_studies.protocol.split import split, write_split

CODES = ("010101", "020202", "030303")

DOCUMENT: dict[str, Any] = {
    "corpus": "corpus",
    "sizes": [4, 8],
    "seeds": 2,
    "baselines": ["random", "k-medoids"],
    "selectors": [
        {"name": "ours", "objective": "representative", "effort": "fast"},
        {"name": "k-medoids", "method": "k-medoids"},
        {"name": "random", "method": "random", "seeds": 3},
    ],
    "data": {"test": 12, "pretrain": 0.2},
    "recipe": {"steps": 3},
    "tuning": {"knob": "learning_rate", "values": [1e-4, 3e-4], "selector": "random", "k": 4},
    "scoring": {"resamples": 100},
}


def make_split_corpus(folder: Path, n: int = 120) -> Corpus:
    """With features, a split and design codes, of which the last is rare."""
    corpus = make_corpus(folder, n)
    table = pq.read_table(folder / ITEMS)
    codes = [[CODES[2 if i % 40 == 0 else i % 2]] for i in range(n)]
    table = table.append_column("design_codes", pa.array(codes, pa.list_(pa.string())))
    pq.write_table(table, folder / ITEMS)
    corpus = Corpus.open(folder)
    add_features(corpus)
    write_split(corpus, split(corpus, validation=0.15, test=0.15))
    return corpus


def make_study(**other: Any) -> Study:
    return study_of({**DOCUMENT, **other}, "study.toml")


def prepared(base: Path, name: str = "study", **other: Any) -> StudyFolder:
    """Beside corpus/, which is made unless it is there."""
    if not (base / "corpus").is_dir():
        make_split_corpus(base / "corpus")
    return prepare(make_study(**other), base, base / name)


def carried_out(folder: StudyFolder, worker: StandIn | None = None, **other: Any) -> list[Any]:
    """The cells that are left."""
    return Execution(folder, folder.study.model, worker or StandIn(), **other).carry_out()


@dataclass
class Made:
    texts: list[str]
    losses: list[float]
    counts: dict[str, int]
    device: str = "stand-in"
    versions: dict[str, str] = field(default_factory=lambda: {"stand-in": "1"})
    seconds: dict[str, float] = field(default_factory=lambda: {"training": 0.25})


@dataclass
class StandIn:
    """Writes what was trained on and what is asked for, mixed by lot that only the cell decides."""

    sha: str = "0" * 64
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    when_called: Callable[[], None] = lambda: None

    def check(self, model: Any, recipe: Any) -> None:
        pass

    def identity(self, model: Any) -> dict[str, Any]:
        return {"weights_sha256": self.sha}

    def train_and_write(
        self,
        folder: Path,
        model: Any,
        recipe: Any,
        train: Sequence[Any],
        evaluate: Sequence[Any],
        seed: int,
        progress: Any,
    ) -> Made:
        self.calls.append((folder.name, len(train), seed, recipe.learning_rate))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state").write_text("begun")
        self.when_called()
        lot = "".join([str(seed), str(recipe.learning_rate), *(item.id for item in train)])
        rng = random.Random(hashlib.sha256(lot.encode()).hexdigest())
        texts = []
        for done, item in enumerate(evaluate):
            own, other = item.text.split(), rng.choice(train).text.split()
            at = rng.randint(1, len(own))
            texts.append(" ".join(own[:at] + other[at:]))
            progress("writing", done + 1, len(evaluate))
        steps = recipe.steps_for(len(train))
        counts = {"train_items": len(train), "truncated_train": 0}
        return Made(texts, [3.0 / (1 + step) for step in range(steps)], counts)
