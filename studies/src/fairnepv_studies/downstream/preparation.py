"""A study made ready: what is chosen, and every item that cells need, in one folder.

Everything that needs the corpus, its features and the library happens here; the folder then goes to
the machine that trains.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv import __version__
from fairnepv.errors import InputError
from fairnepv.io.locks import locked
from fairnepv.loop import Progress, Step
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.downstream.candidates import Candidates, candidates_of
from fairnepv_studies.downstream.fields import check_table
from fairnepv_studies.downstream.folder import (
    ABOUT,
    FORMAT,
    ITEMS,
    PRETRAIN,
    Picks,
    StudyFolder,
    picks_name,
)
from fairnepv_studies.downstream.items import Item
from fairnepv_studies.downstream.leakage import RULE
from fairnepv_studies.downstream.packing import Packed, write_pack
from fairnepv_studies.downstream.selecting import Selecting
from fairnepv_studies.downstream.study import Study, study_document
from fairnepv_studies.files import local, read_record
from fairnepv_studies.protocol.publication import corpus_record

Unit = tuple[str, int, int]  # selector, size and seed of a choice


def open_corpus(study: Study, base: Path) -> Corpus:
    """Relative to the folder of the study file."""
    return Corpus.open(base / local(study.corpus))


def prepare(study: Study, base: Path, out: Path, progress: Progress | None = None) -> StudyFolder:
    """Into a new folder, or into the one where the same study was begun. Choices that are there are
    not made again.

    base: what paths in the study are relative to.
    """
    corpus = open_corpus(study, base)
    corpus.check()
    candidates = candidates_of(corpus, study)
    selecting = Selecting(study, candidates, base, progress)
    drawn = selecting.check()
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist; make it first")
    if out.exists() and not (out / ABOUT).is_file() and any(out.iterdir()):
        raise InputError(f"{out} is not empty and no folder of a study; name another one")
    document = {
        "format": FORMAT,
        "what": what_of(study, candidates),
        "made_by": f"fairnepv {__version__}",
        "study": study_document(study),
        "data": data_record(candidates, drawn),
    }
    out.mkdir(exist_ok=True)
    with locked(out):
        _begin(out, document)
        folder = StudyFolder.open(out)
        picks = _choose(folder, selecting, units_of(study, drawn), progress)
        _pack(folder, candidates, picks)
    return folder


def what_of(study: Study, candidates: Candidates) -> str:
    name = candidates.corpus.about.name
    return (
        f"Downstream evaluation on {name} items: {study.model.name} fine-tuned on what each of "
        f"{len(study.selectors)} selectors chose of {len(candidates.rows):,}, tested on "
        f"{len(candidates.test):,}"
    )


def data_record(candidates: Candidates, drawn: dict[str, list[int]]) -> dict[str, Any]:
    """All that the corpus and the study decide."""
    corpus, pool = candidates.corpus, candidates.pool
    parts = {
        "pool": candidates.rows,
        "pretrain": candidates.pretrain,
        "validation": candidates.validation,
        "test": candidates.test,
    }
    return {
        "corpus": corpus_record(corpus.about),
        "split": {"seed": pool.split.seed, "checksum": pool.split.checksum},
        "features": {view: asdict(d) for view, d in pool.descriptions.items()},
        "counts": {name: len(rows) for name, rows in parts.items()},
        "checksums": {name: _checksum(corpus, rows) for name, rows in parts.items()},
        "near_duplicates": RULE,
        "left_out": candidates.left_out,
        "drawn": drawn,
    }


def _checksum(corpus: Corpus, rows: Any) -> str:
    listed = "".join(f"{json.dumps(corpus.ids[row])}\n" for row in rows.tolist())
    return hashlib.sha256(listed.encode()).hexdigest()


def units_of(study: Study, drawn: dict[str, list[int]]) -> list[Unit]:
    """What is to be chosen: once where the seed does not matter."""
    return [
        (selector.name, k, seed)
        for selector in study.selectors
        for k in study.sizes
        for seed in range(study.seeds_of(selector.name) if k in drawn.get(selector.name, ()) else 1)
    ]


def _begin(out: Path, document: dict[str, Any]) -> None:
    """Another study in the same folder is refused."""
    file = out / ABOUT
    content = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if file.is_file():
        known = json.loads(file.read_text("utf-8"))
        told = {name: check_table(known, ABOUT).get(name) for name in ("study", "data")}
        for name, value in told.items():
            if value != json.loads(content)[name]:
                what = _other(value, json.loads(content)[name])
                raise InputError(
                    f"{out} was begun with another {what or name}; prepare this study in a folder "
                    "of its own"
                )
        return
    for part in ("picks", "done"):
        (out / part).mkdir(exist_ok=True)
    from fairnepv_studies.files import write_whole

    write_whole(file, content.encode("utf-8"))


def _other(before: Any, now: Any) -> str:
    both = {*before, *now} if isinstance(before, dict) else set()
    return ", ".join(sorted(name for name in both if before.get(name) != now.get(name)))


def _choose(
    folder: StudyFolder, selecting: Selecting, units: Sequence[Unit], progress: Progress | None
) -> list[Picks]:
    began = time.monotonic()
    files = {unit: folder.path / "picks" / f"{picks_name(*unit)}.json" for unit in units}
    left = [unit for unit in units if not files[unit].is_file()]
    for done, (name, k, seed) in enumerate(left):
        if progress is not None:
            said = {"selector": f"{name}, k {k}", "size": done, "of": len(left)}
            progress(Step("compare", done, 0, time.monotonic() - began, 0.0, details=said))
        picks = selecting.choose(name, k, seed)
        folder.write_json(f"picks/{picks.name}.json", asdict(picks))
    return [read_record(file, Picks, "remove it and prepare again") for file in files.values()]


def _pack(folder: StudyFolder, candidates: Candidates, picks: Sequence[Picks]) -> None:
    wanted = packed_items(candidates, {id for choice in picks for id in choice.ids})
    for name, packed in wanted.items():
        if packed and not (folder.path / name).is_file():
            write_pack(folder.path / name, packed)


def packed_items(candidates: Candidates, chosen: set[str]) -> dict[str, list[Packed]]:
    """By file; trained ones in the order of the corpus, evaluated ones in theirs."""
    corpus = candidates.corpus
    trained = np.array([r for r in candidates.rows.tolist() if corpus.ids[r] in chosen], np.int64)
    parts = {
        "train": trained,
        "validation": candidates.validation,
        "test": candidates.test,
        "pretrain": candidates.pretrain,
    }
    wanted = {row for rows in parts.values() for row in rows.tolist()}
    images = {row: image for row, image in enumerate(corpus.images()) if row in wanted}

    def packed(part: str) -> list[Packed]:
        return [
            Packed(
                Item(corpus.ids[row], corpus.texts[row], images[row]),
                part,
                candidates.rare.get(row, ()),
            )
            for row in parts[part].tolist()
        ]

    used = [*packed("train"), *packed("validation"), *packed("test")]
    return {ITEMS: used, PRETRAIN: packed("pretrain")}
