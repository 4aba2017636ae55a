"""Whether the folder of a study is what its cells and its corpus give: everything that can be
computed is computed again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv.errors import InputError
from fairnepv.loop import Progress
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.downstream.candidates import Candidates, candidates_of
from fairnepv_studies.downstream.cells import Cell, Record, cell_key
from fairnepv_studies.downstream.execution import tuning_document
from fairnepv_studies.downstream.export import ELSEWHERE, FOLDER, chat_files
from fairnepv_studies.downstream.folder import (
    ABOUT,
    FORMAT,
    ITEMS,
    PRETRAIN,
    TUNING,
    StudyFolder,
    picks_name,
)
from fairnepv_studies.downstream.packing import write_pack
from fairnepv_studies.downstream.preparation import (
    data_record,
    packed_items,
    units_of,
    what_of,
)
from fairnepv_studies.downstream.report import (
    FIGURE,
    SUMS,
    TABLES,
    compute,
    finished,
    score_file,
    tables,
)
from fairnepv_studies.downstream.scoring import (
    BERT,
    Scored,
    read_scored,
    signatures,
    text_checksum,
)
from fairnepv_studies.downstream.selecting import GIVEN, Selecting
from fairnepv_studies.downstream.study import MEDOIDS, study_document
from fairnepv_studies.files import LARGEST
from fairnepv_studies.progress import StageProgress
from fairnepv_studies.protocol.differences import Difference, check_same
from fairnepv_studies.protocol.published_files import bounded, check_sums, holds, read_published

TOLERANCE = 1e-6  # in points of a percent; scores are stored with six digits
BERT_TOLERANCE = 0.01  # networks differ between machines
UNCHECKED = (
    "that models write these texts (repeat a cell for that), losses and counts of tokens but for "
    "their number, seconds, devices and versions, the model itself, the figure, and that searches "
    "would choose the same items again (--choose-again)"
)
UNCHECKED_ALONE = (
    "the corpus: its items, its split, what may be chosen, near duplicates, strata and draws"
)
_CHEAP = ("random", MEDOIDS)  # methods that are always asked again


def verify(
    path: Path,
    corpus: Corpus | None = None,
    *,
    choose_again: bool = False,
    listen: StageProgress | None = None,
    search: Progress | None = None,
) -> Iterator[str]:
    """A sentence for everything that was checked; a `Difference` names the first that is not so."""
    if not (path / SUMS).is_file():
        raise InputError(f"{path} has no {SUMS}; make it with fairnepv downstream report")
    try:
        yield from _verify(path, corpus, choose_again, listen, search)
    except InputError as error:  # what is refused as input elsewhere is a difference here
        raise Difference(str(error)) from error
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise Difference(f"a document is not as a study writes it ({error!r})") from error


def _verify(
    path: Path,
    corpus: Corpus | None,
    choose_again: bool,
    listen: StageProgress | None,
    search: Progress | None,
) -> Iterator[str]:
    yield check_sums(path, (ABOUT, ITEMS, *TABLES, FIGURE))
    folder = StudyFolder.open(path)
    _check_about(folder)
    cells = finished(folder)
    units = units_of(folder.study, folder.data["drawn"])
    if corpus is not None:
        yield from _check_corpus(folder, corpus, choose_again, search)
    records = {cell: folder.record(cell) for cell in (*folder.tuning, *cells)}
    for record in records.values():
        _check_record(folder, record)
    _check_one_model(records)
    yield f"cells: {len(cells)} tested and {len(folder.tuning)} for tuning, each from its picks"
    if folder.study.tuning is not None:
        found = tuning_document(folder, records)
        check_same(TUNING, folder.tuning_document, found)
        yield f"tuning: {found['knob']} is {found['chosen']} by the validation texts"
    scored = _check_scores(folder, {cell: records[cell] for cell in cells}, listen)
    yield f"scores: of {len(scored)} cells computed again, none off by more than {TOLERANCE:g}"
    said = signatures(folder.study.scoring.bertscore)
    for name, content in tables(folder, scored, said)[0].items():
        if not holds(path, name, content):
            raise Difference(f"{name} does not say what the cells say")
    yield f"tables: {', '.join(TABLES)} say the same"
    yield _check_no_more(folder, units)


def _check_about(folder: StudyFolder) -> None:
    """A document that says all that `prepare` says of this study, and nothing else."""
    said = read_published(folder.path, ABOUT)
    check_same(f"{ABOUT}, study", said["study"], study_document(folder.study))
    if sorted(said) != ["data", "format", "made_by", "study", "what"] or said["format"] != FORMAT:
        raise Difference(f"{ABOUT} has other entries than a study has")
    parts = {packed.part for packed in folder.items.values()}
    if parts != {"train", "validation", "test"}:
        raise Difference(f"{ITEMS} has the parts {', '.join(sorted(parts))}")
    for part in ("validation", "test"):
        check_same(f"items that {part}", folder.data["counts"][part], len(folder.evaluated(part)))


# --- the corpus -----------------------------------------------------------------------------------


def _check_corpus(
    folder: StudyFolder, corpus: Corpus, choose_again: bool, search: Progress | None
) -> Iterator[str]:
    corpus.check()
    corpus.check_images()
    candidates = candidates_of(corpus, folder.study)
    selecting = Selecting(folder.study, candidates, Path(), search)
    drawn = folder.data["drawn"] if _has_files(folder) else selecting.check()
    check_same(ABOUT, folder.data, json.loads(json.dumps(data_record(candidates, drawn))))
    check_same(
        "what it is", read_published(folder.path, ABOUT)["what"], what_of(folder.study, candidates)
    )
    yield f"corpus: {corpus.about.name}, {corpus.n:,} items; split, pool and left out are its own"
    chosen = _check_picks(folder, candidates)
    _check_pack(folder, candidates, chosen)
    yield f"items: {len(folder.items):,} of the corpus, no test item in any pool"
    yield from _choose_again(folder, selecting, choose_again)


def _has_files(folder: StudyFolder) -> bool:
    """Files of picks lie on the machine that prepared the study."""
    return any(selector.picks is not None for selector in folder.study.selectors)


def _check_picks(folder: StudyFolder, candidates: Candidates) -> set[str]:
    """All that was chosen, which is of the pool."""
    selectable = {candidates.corpus.ids[row] for row in candidates.rows.tolist()}
    chosen: set[str] = set()
    for name, k, seed in units_of(folder.study, folder.data["drawn"]):
        picks = folder.picks(name, k, seed)
        check_same(f"picks of {name}", [picks.selector, picks.k, picks.seed], [name, k, seed])
        if len(picks.ids) != k or len(set(picks.ids)) < k:
            raise Difference(f"picks of {name} at k = {k}: not {k} different ones")
        outside = next((id for id in picks.ids if id not in selectable), None)
        if outside is not None:
            raise Difference(f"pick {outside!r} of {name} may not be chosen")
        chosen.update(picks.ids)
    return chosen


def _check_pack(folder: StudyFolder, candidates: Candidates, chosen: set[str]) -> None:
    """Texts, images, parts and strata, as bytes of files that are written again."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        for name, packed in packed_items(candidates, chosen).items():
            there = folder.path / name
            if not packed or (name == PRETRAIN and not there.is_file()):  # it need not be kept
                continue
            again = Path(place) / name
            write_pack(again, packed)
            if not holds(folder.path, name, again.read_bytes()):
                raise Difference(f"{name} does not hold the items of the corpus")


def _choose_again(folder: StudyFolder, selecting: Selecting, everything: bool) -> Iterator[str]:
    asked = []
    for name, k, seed in units_of(folder.study, folder.data["drawn"]):
        selector = folder.study.selector(name)
        given = selector.picks is not None or selector.run is not None
        picks = folder.picks(name, k, seed)
        if selector.picks is not None:
            check_same(f"status of {name}", picks.status, GIVEN)
        if given or not (everything or selector.method in _CHEAP):
            continue
        again = selecting.choose(name, k, seed)
        check_same(f"picks of {name}, k = {k}, seed {seed}", asdict(picks), asdict(again))
        asked.append(name)
    if asked:
        yield f"chosen again, the same: {', '.join(dict.fromkeys(asked))}"


# --- cells and scores -----------------------------------------------------------------------------


def _check_record(folder: StudyFolder, record: Record) -> None:
    cell = record.cell
    brought = record.device == ELSEWHERE
    train, asked = folder.trained_on(cell), folder.evaluated(cell.part)
    recipe = folder.study.recipe if brought else folder.recipe(cell)
    if record.key != cell_key(recipe, record.model, train, asked, cell.seed):
        raise Difference(f"the key of {cell} is not that of its recipe, model, items and seed")
    if len(record.texts) != len(asked) or not all(isinstance(t, str) for t in record.texts):
        raise Difference(f"{cell} has {len(record.texts)} texts for {len(asked)} items")
    steps = 0 if brought else recipe.steps_for(len(train))
    if len(record.losses) != steps:
        raise Difference(f"{cell} has {len(record.losses)} losses, its recipe has {steps} steps")
    for name, count in record.counts.items():
        if type(count) is not int or count < 0:
            raise Difference(f"{cell}: {name} is {count!r}")
    check_same(f"trained items of {cell}", record.counts.get("train_items"), len(train))
    for name, seconds in record.seconds.items():
        if type(seconds) is not float or not 0 <= seconds < math.inf:
            raise Difference(f"{cell}: seconds of {name} are {seconds!r}")
    if not all(isinstance(version, str) for version in record.versions.values()):
        raise Difference(f"{cell}: versions are no texts")


def _check_one_model(records: Mapping[Cell, Record]) -> None:
    models = {json.dumps(record.model, sort_keys=True) for record in records.values()}
    if len(models) > 1:
        raise Difference(f"cells are of {len(models)} different models")


def _check_scores(
    folder: StudyFolder, records: Mapping[Cell, Record], listen: StageProgress | None
) -> dict[Cell, Scored]:
    """As they are published, once they are found to be those of the texts."""
    references = [item.text for item in folder.evaluated("test")]
    said = signatures(folder.study.scoring.bertscore)
    texts = {cell: record.texts for cell, record in records.items()}
    found = {}
    for cell, again in compute(folder, texts, references, listen).items():
        name = score_file(cell)
        document = read_published(folder.path, name)
        if sorted(document) != ["bleu_counts", "items", "scores", "signatures", "texts"]:
            raise Difference(f"{name} has other entries than scores have")
        check_same(f"{name}, signatures", document["signatures"], said)
        check_same(f"{name}, texts", document["texts"], text_checksum(texts[cell], references))
        published = read_scored(document)
        _check_items(name, published, again)
        check_same(f"{name}, scores", document["scores"], published.of())
        found[cell] = published
    return found


def _check_items(name: str, published: Scored, again: Scored) -> None:
    if not np.array_equal(published.bleu_counts, again.bleu_counts):
        raise Difference(f"{name}: the counts of n-grams are not those of the texts")
    pairs = {
        "sentence BLEU": (published.sentence_bleu, again.sentence_bleu, TOLERANCE),
        "ROUGE-L": (published.rouge_l, again.rouge_l, TOLERANCE),
        BERT: (published.bertscore_f1, again.bertscore_f1, BERT_TOLERANCE),
    }
    for what, (one, two, most) in pairs.items():
        if (one is None) != (two is None):
            raise Difference(f"{name}: {what} is missing, or was not asked for")
        if one is not None and two is not None and not np.abs(one - two).max() <= most:
            raise Difference(f"{name}: {what} of an item is not that of its text")


# --- files ----------------------------------------------------------------------------------------


def _check_no_more(folder: StudyFolder, units: Any) -> str:
    """Files that nobody checks: readers may take them for checked ones."""
    known = {ABOUT, ITEMS, PRETRAIN, *TABLES, FIGURE}
    known |= {f"picks/{picks_name(*unit)}.json" for unit in units}
    known |= {f"done/{cell.name}.json" for cell in (*folder.tuning, *folder.tested)}
    known |= {score_file(cell) for cell in folder.tested}
    if folder.study.tuning is not None:
        known.add(TUNING)
    chat = 0
    if (folder.path / FOLDER).is_dir():
        for name, content in chat_files(folder):
            if not holds(folder.path, name, content):
                raise Difference(f"{name} does not hold what the study gives")
            known.add(name)
            chat += 1
    lines = bounded(folder.path, SUMS, LARGEST).decode("utf-8").splitlines()
    for name in (line[66:] for line in lines):
        if name not in known:
            raise Difference(f"{name[:80]} is not expected: nothing vouches for it")
    return f"files: all expected{f', {chat:,} of them chat' if chat else ''}"
