"""A study is verified from its texts and its corpus: whatever is changed is found and named."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from downstream_studies import carried_out, prepared

from fairnepv.errors import InputError
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.downstream.export import export
from fairnepv_studies.downstream.folder import StudyFolder
from fairnepv_studies.downstream.packing import read_pack, write_pack
from fairnepv_studies.downstream.report import (
    FIGURE,
    SUMS,
    TABLES,
    finished,
    sums,
    write_report,
)
from fairnepv_studies.downstream.study import read_study, study_document
from fairnepv_studies.downstream.verification import verify
from fairnepv_studies.protocol.differences import Difference


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = prepared(tmp_path_factory.mktemp("verified"))
    carried_out(folder)
    export(folder)
    write_report(folder)
    return folder.path


@pytest.fixture
def path(original, tmp_path):
    shutil.copytree(original, tmp_path / "study")
    return tmp_path / "study"


@pytest.fixture(scope="module")
def corpus(original):
    return Corpus.open(original.parent / "corpus")


def seal(path: Path) -> None:
    """Checksums that fit again, as whoever tampers would write them."""
    (path / SUMS).write_text(sums(StudyFolder(path, None, {})))


def difference(path: Path, corpus: Corpus | None = None) -> str:
    seal(path)
    with pytest.raises(Difference) as found:
        list(verify(path, corpus))
    return str(found.value)


def edit(path: Path, name: str, change: Any) -> None:
    document = json.loads((path / name).read_text())
    change(document)
    (path / name).write_text(json.dumps(document))


def test_a_study_that_is_as_it_was_holds(path, corpus):
    said = list(verify(path, corpus))
    assert any(s.startswith("chosen again, the same: k-medoids, random") for s in said)
    assert any("no test item in any pool" in s for s in said)
    assert any("14 tested and 2 for tuning" in s for s in said)
    again = list(verify(path, corpus, choose_again=True))
    assert any("chosen again, the same: ours, k-medoids, random" in s for s in again)
    alone = list(verify(path))
    assert not any("corpus" in s for s in alone)


def test_a_file_that_was_changed_or_added_is_named(path):
    for name in ("results.csv", "done/ours-k4-seed0.json", "items.zip", FIGURE):
        content = (path / name).read_bytes()
        (path / name).write_bytes(content + b" ")
        with pytest.raises(Difference, match="does not have the checksum"):
            list(verify(path))
        (path / name).write_bytes(content)
    (path / "more.txt").write_text("trust me")
    assert "more.txt is not expected" in difference(path)
    (path / "more.txt").unlink()
    (path / SUMS).unlink()
    with pytest.raises(InputError, match="has no SHA256SUMS"):
        list(verify(path))


CELL = "done/ours-k4-seed1.json"


def _longer(values: list[Any]) -> None:
    values.append(values[-1])


FORGED_CELLS = {
    "selector": lambda d: d.update(selector="random"),
    "k": lambda d: d.update(k=8),
    "seed": lambda d: d.update(seed=0),
    "trial": lambda d: d.update(trial=0),
    "key": lambda d: d.update(key="0" * 64),
    "model": lambda d: d["model"].update(weights_sha256="1" * 64),
    "texts": lambda d: d["texts"].__setitem__(0, "better words"),
    "a text": lambda d: _longer(d["texts"]),
    "no text": lambda d: d["texts"].__setitem__(0, 5),
    "losses": lambda d: _longer(d["losses"]),
    "a loss": lambda d: d["losses"].__setitem__(0, "low"),
    "counts": lambda d: d["counts"].update(train_items=5),
    "a count": lambda d: d["counts"].update(truncated_train=-1),
    "device": lambda d: d.update(device=5),
    "elsewhere": lambda d: d.update(device="elsewhere"),
    "versions": lambda d: d["versions"].update(torch=2),
    "seconds": lambda d: d["seconds"].update(cell=-1.0),
    "more": lambda d: d.update(note="the best"),
}


@pytest.mark.parametrize("field", FORGED_CELLS)
def test_a_forged_cell_is_found(path, field):
    edit(path, CELL, FORGED_CELLS[field])
    assert difference(path)


SCORES = "scores/ours-k8-seed0.json"
FORGED_SCORES = {
    "texts": lambda d: d.update(texts="0" * 64),
    "signatures": lambda d: d["signatures"].update(bleu="other"),
    "scores": lambda d: d["scores"].update(bleu=99.0),
    "items bleu": lambda d: d["items"]["bleu"].__setitem__(0, 99.0),
    "items rouge": lambda d: d["items"]["rouge_l"].__setitem__(0, 99.0),
    "items bert": lambda d: d["items"].update(bertscore_f1=[99.0] * 12),
    "counts": lambda d: d["bleu_counts"][0].__setitem__(0, 60),
    "more": lambda d: d.update(note="x"),
    "fewer": lambda d: d.pop("items"),
}


@pytest.mark.parametrize("field", FORGED_SCORES)
def test_forged_scores_are_found(path, field):
    edit(path, SCORES, FORGED_SCORES[field])
    assert difference(path)


@pytest.mark.parametrize("name", [*TABLES, "chat/test.jsonl", "chat/train/ours-k4-seed0.jsonl"])
def test_a_forged_table_is_found(path, name):
    content = (path / name).read_bytes()
    (path / name).write_bytes(content.replace(b"1", b"2", 1))
    assert name in difference(path)


@pytest.mark.parametrize("field", ["knob", "values", "rouge_l", "chosen"])
def test_a_forged_choice_is_found(path, field):
    other = {"knob": "warmup", "values": [3e-4, 1e-4], "rouge_l": [1.0, 2.0]}
    document = json.loads((path / "tuning.json").read_text())
    other["chosen"] = next(v for v in document["values"] if v != document["chosen"])
    edit(path, "tuning.json", lambda d: d.update({field: other[field]}))
    assert difference(path)


ABOUT = "study.json"
FORGED_STUDIES = {
    "format": lambda d: d.update(format=2),
    "made_by": lambda d: d.pop("made_by"),
    "more": lambda d: d.update(note="x"),
    "corpus": lambda d: d["data"]["corpus"].update(simulated=False),
    "what": lambda d: d.update(what="marks of the register"),
    "counts": lambda d: d["data"]["counts"].update(pool=9),
    "checksums": lambda d: d["data"]["checksums"].update(test="0" * 64),
    "split": lambda d: d["data"]["split"].update(seed=1),
    "features": lambda d: d["data"]["features"]["text"].update(encoder="better"),
    "near_duplicates": lambda d: d["data"].update(near_duplicates="none"),
    "left_out": lambda d: d["data"]["left_out"]["test"].update(x="near text"),
    "drawn": lambda d: d["data"]["drawn"].pop("random"),
    "sizes": lambda d: d["study"].update(sizes=[4]),
    "seeds": lambda d: d["study"].update(seeds=1),
    "selectors": lambda d: d["study"]["selectors"][2].update(seeds=2),
    "baselines": lambda d: d["study"].update(baselines=["random"]),
    "recipe": lambda d: d["study"]["recipe"].update(warmup=0.5),
    "steps": lambda d: d["study"]["recipe"].update(steps=4),
    "data": lambda d: d["study"]["data"].update(test=11),
    "pretrain": lambda d: d["study"]["data"].update(pretrain=0.1),
    "tuning": lambda d: d["study"].pop("tuning"),
    "resamples": lambda d: d["study"]["scoring"].update(resamples=101),
    "rare": lambda d: d["study"]["scoring"].update(rare_wording=0.5),
    "model": lambda d: d["study"]["model"].update(name="larger"),
    "views": lambda d: d["study"].update(views=["text"]),
}


@pytest.mark.parametrize("field", FORGED_STUDIES)
def test_a_forged_study_is_found(path, corpus, field):
    edit(path, ABOUT, FORGED_STUDIES[field])
    assert difference(path, corpus)


FORGED_PICKS = {
    "selector": lambda d: d.update(selector="nobody"),
    "k": lambda d: d.update(k=5),
    "seed": lambda d: d.update(seed=1),
    "ids": lambda d: d["ids"].reverse(),
    "twice": lambda d: d["ids"].__setitem__(0, d["ids"][1]),
    "fewer": lambda d: d["ids"].pop(),
}


@pytest.mark.parametrize("field", FORGED_PICKS)
@pytest.mark.parametrize("name", ["random-k8-seed0", "ours-k8-seed0"])
def test_forged_picks_are_found(path, corpus, field, name):
    edit(path, f"picks/{name}.json", FORGED_PICKS[field])
    assert difference(path, corpus)


def test_picks_that_test_are_found(path, corpus):
    """Leakage: a test item among the picks, and packed as if it were of the pool."""
    folder = StudyFolder.open(path)
    tested = folder.evaluated("test")[0].id
    edit(path, "picks/ours-k4-seed0.json", lambda d: d["ids"].__setitem__(0, tested))
    assert f"pick '{tested}' of ours may not be chosen" in difference(path, corpus)


@pytest.mark.parametrize("what", ["text", "image", "part", "rare", "order"])
def test_forged_items_are_found(path, corpus, what):
    from dataclasses import replace

    packed = list(read_pack(path / "items.zip").values())
    at = next(i for i, p in enumerate(packed) if p.part == "test")
    own = packed[at]
    changed = {
        "text": replace(own, item=replace(own.item, text="easy")),
        "image": replace(own, item=replace(own.item, image=b"easy")),
        "part": replace(own, part="validation"),
        "rare": replace(own, rare=() if own.rare else ("wording",)),
        "order": packed[at + 1],
    }
    if what == "order":
        packed[at + 1] = own
    packed[at] = changed[what]
    write_pack(path / "items.zip", packed)
    assert difference(path, corpus)


def test_another_corpus_is_told(path, tmp_path):
    from downstream_studies import make_split_corpus

    other = make_split_corpus(tmp_path / "corpus", n=100)
    assert "study.json" in difference(path, other)


def test_the_published_study_is_one_that_is_understood_today(tmp_path):
    """Its items are not published, so that it is not verified here: it is read, and asks for what
    its file asks for. (A key that the study had not known made one folder unreadable.)"""
    place = Path(__file__).parents[1] / "downstream"
    with tarfile.open(place / "published.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = StudyFolder.open(tmp_path)
    said = json.loads((tmp_path / "study.json").read_text())["study"]
    assert said == study_document(folder.study) == study_document(read_study(place / "study.toml"))
    cells = finished(folder)
    assert len(cells) == 180
    assert len({len(folder.record(cell).texts) for cell in cells}) == 1
    published = "".join((tmp_path / "results.md").read_text().partition("**k = 100**")[1:])
    tables = published.partition("**ROUGE-L at")[0].strip()
    assert tables in (place.parents[1] / "BENCHMARKS.md").read_text()
