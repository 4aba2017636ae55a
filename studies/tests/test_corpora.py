"""Corpora of OpenMoji and of folders, their features, and files that do not belong to them."""

import contextlib
import csv
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from corpora import make_corpus
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import png, promising
from test_encoding import Counting
from test_uspto_simulate import files_of, run_killed

from fairnepv.data import has_words, openmoji, tf_idf, vectorizer
from fairnepv.errors import InputError
from fairnepv.io.locks import locked
from fairnepv_studies import encoders, making
from fairnepv_studies.corpora import ingest_folder, ingest_openmoji
from fairnepv_studies.corpus import Checksum, Corpus
from fairnepv_studies.feature_files import checksum_of, feature_views, read_view
from fairnepv_studies.features import encoded_features, text_features
from fairnepv_studies.protocol.pool import open_pool
from fairnepv_studies.protocol.split import read_split, split, write_split
from fairnepv_studies.stores import base, columns, open_pictures
from refusals import refused


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_images(names, folder: str = "images") -> None:
    for i, name in enumerate(names):
        file = Path(folder) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(i))


def write_csv(rows, file: str = "texts.csv", header=("id", "text")) -> None:
    with open(file, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])


def rejects(folder: str = "corpus") -> dict[str, str]:
    with open(f"{folder}/rejects.csv", newline="", encoding="utf-8") as stream:
        return {row["id"]: row["reason"] for row in csv.DictReader(stream)}


def small(n: int = 5) -> Corpus:
    write_images([f"{i}.png" for i in range(n)])
    write_csv([(i, f"a mark with number {i} in blue") for i in range(n)])
    ingest_folder("images", "texts.csv", "corpus")
    return Corpus.open("corpus")


class Pixels(Counting):
    """The bytes of pictures, counted."""

    def __init__(self, **more):
        super().__init__(kind="image", **more)

    def encode(self, batch):
        if len(self.seen) >= self.most:
            time.sleep(600)
        self.seen += batch
        return np.array([np.frombuffer(each[-20:], "<u4") % 997 for each in batch], np.float32)


# --- Corpora --------------------------------------------------------------------------------------


def test_openmoji_is_a_corpus():
    about = ingest_openmoji("corpus")
    corpus, pool = Corpus.open("corpus"), openmoji()
    corpus.check()
    assert about.n == corpus.n == 2297
    assert not about.simulated
    assert corpus.ids == pool.ids.tolist()
    assert corpus.texts == pool.keywords
    assert list(corpus.images()) == pool.pictures
    assert "OpenMoji" in about.notes[0]


def test_the_same_source_gives_the_same_bytes():
    small()
    write_csv([(i, f"a mark with number {i} in blue") for i in range(5)])
    ingest_folder("images", "texts.csv", "again")
    for file in Path("corpus").iterdir():
        assert file.read_bytes() == Path("again", file.name).read_bytes()


def test_a_folder_joins_images_and_texts_by_id():
    write_images(["b.png", "deep/a.JPG", "c.gif", ".hidden.png", "notes.txt"])
    write_csv(
        [("c.gif", "third"), ("deep/a", "  first\tof  all "), ("b", "second")],
        header=("name", "said"),
    )
    about = ingest_folder("images", "texts.csv:said", "corpus", ids="name")
    corpus = Corpus.open("corpus")
    assert corpus.ids == ["b", "c", "deep/a"]
    assert corpus.texts == ["second", "third", "first of all"]
    assert corpus.items["original"].to_pylist()[2] == "  first\tof  all "
    assert corpus.items["words"].to_pylist() == [1, 1, 3]
    assert list(corpus.images()) == [png(0), png(2), png(1)]
    assert about.funnel[-1] == ["with a usable image", 3]


def test_what_does_not_qualify_is_counted_and_listed(command):
    write_images(["good.png", "orphan.png", "twice.png", "twice.jpg", "silent.png"])
    for name, content in {
        "dot": promising(1, 1),
        "wall": promising(50_000, 50_000),
        "torn": png()[:99],
    }.items():
        Path("images", f"{name}.png").write_bytes(content)
    write_images(["mute.png"])
    named = ["good", "twice", "dot", "wall", "torn", "absent"]
    more = [("good", "again"), ("silent", " "), ("", "no"), ("mute", "X 1 ?")]
    write_csv([*((id, "a text") for id in named), *more])
    code, out, err = command(
        "uspto ingest --corpus folder --images images --texts texts.csv --out corpus"
    )
    assert (code, err) == (0, "")
    assert Corpus.open("corpus").ids == ["good"]
    said = rejects()
    assert said == {
        "twice": "several images",
        "absent": "no image",
        "good": "duplicate",
        "silent": "no text",
        "row 8": "no id",
        "orphan": "no text",
        "mute": "no words",
        "dot": "unreadable image",
        "torn": "unreadable image",
        "wall": "unreadable image",
    }
    counted = Counter(said.values())
    assert Corpus.open("corpus").about.rules["rejects"] == counted
    assert all(f"{count}  rejected: {reason}" in out for reason, count in counted.items())


def test_images_may_lie_in_a_zip_or_a_column():
    small()
    checksum = Corpus.open("corpus").about.checksum
    with zipfile.ZipFile("images.zip", "w") as archive:
        for file in sorted(Path("images").iterdir()):
            archive.write(file, file.name)
    pictures = [png(i) for i in range(5)]
    table = pa.table({"id": list(range(5)), "logo": pictures})
    pq.write_table(table, "plain.parquet", row_group_size=2)
    pairs = [{"bytes": each, "path": None} for each in pictures]
    pq.write_table(pa.table({"id": list("01234"), "logo": pairs}), "pairs.parquet")
    with tarfile.open("images.tar", "w") as archive:
        archive.add("images", arcname=".")
    for source in ("images.zip", "images.tar", "plain.parquet:logo", "pairs.parquet:logo"):
        assert ingest_folder(source, "texts.csv", "corpus", force=True).checksum == checksum


@pytest.mark.parametrize("per_group", [3, 1000])
def test_a_column_is_read_in_any_order_whatever_its_row_groups(per_group, monkeypatch):
    monkeypatch.setattr(columns, "_AT_ONCE", 4)
    contents = [bytes([i]) * (i + 1) for i in range(20)]
    table = pa.table({"id": [f"p{i}" for i in range(20)], "image": contents})
    pq.write_table(table, "a.parquet", row_group_size=per_group)
    order = np.random.default_rng(0).permutation(20).tolist()
    with open_pictures("a.parquet") as pictures:
        assert pictures.ids == [f"p{i}" for i in range(20)]
        for places in (range(20), order, reversed(range(20))):
            assert all(pictures.fetch(i) == contents[i] for i in places)


def test_pictures_that_cannot_be_had_say_why(monkeypatch):
    monkeypatch.setattr(base, "MOST_BYTES", 10)
    large = {"large.png": b"x" * 11, "small.png": b"x" * 10}
    with zipfile.ZipFile("a.zip", "w") as zipped, tarfile.open("a.tar", "w") as tarred:
        Path("images").mkdir()
        for name, content in large.items():
            Path("images", name).write_bytes(content)
            zipped.write(f"images/{name}", name)
            tarred.add(f"images/{name}", name)
    rows = [*large.values(), None]
    pq.write_table(pa.table({"image": pa.array(rows, pa.binary())}), "a.parquet")
    for source in ("images", "a.zip", "a.tar", "a.parquet"):
        with open_pictures(source) as pictures:
            assert "more than" in str(pictures.fetch(0))
            assert pictures.fetch(1) == b"x" * 10
            if source == "a.parquet":
                assert pictures.fetch(2) == "its row holds no bytes"
            if source == "images":
                Path("images/small.png").unlink()
                assert "cannot be opened" in str(pictures.fetch(1))


def test_a_damaged_page_costs_its_rows_alone():
    contents = [png(i) for i in range(8)]
    table = pa.table({"id": [str(i) for i in range(8)], "image": contents})
    pq.write_table(table, "a.parquet", row_group_size=4, compression="none", use_dictionary=False)
    column = pq.read_metadata("a.parquet").row_group(0).column(1)
    content = bytearray(Path("a.parquet").read_bytes())
    start = column.data_page_offset
    content[start : start + 20] = b"\xff" * 20
    Path("a.parquet").write_bytes(content)
    with open_pictures("a.parquet") as pictures:
        assert "cannot be read" in str(pictures.fetch(0))
        assert [pictures.fetch(i) for i in range(4, 8)] == contents[4:]


def test_large_images_are_written_soon(monkeypatch):
    monkeypatch.setattr(making, "_LARGE", 5000)
    corpus = small(12)
    assert pq.read_metadata("corpus/images.parquet").num_row_groups > 3
    assert list(corpus.images()) == [png(i) for i in (0, 1, 10, 11, *range(2, 10))]


def test_names_that_are_not_unicode_are_rejected_like_others(command):
    small()
    Path(os.fsdecode(b"images/\xff.png")).write_bytes(png(9))
    about = ingest_folder("images", "texts.csv", "corpus", force=True)
    assert about.n == 5
    assert rejects() == {r"\udcff": "no text"}


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_texts_may_lie_in_a_table(ending):
    small()
    checksum = Corpus.open("corpus").about.checksum
    table = pa.table(
        {"id": range(5), "text": [f"a mark with number {i} in blue" for i in range(5)]}
    )
    if ending == "parquet":
        pq.write_table(table, "t.parquet")
    else:
        feather.write_feather(table, "t.feather")
    assert ingest_folder("images", f"t.{ending}:text", "other").checksum == checksum


def arrow_texts(**columns) -> None:
    pq.write_table(pa.table(columns), "t.parquet")


def test_types_of_columns_are_not_passed_over():
    """Row numbers, or another column, would stand for what cannot be read."""
    write_images(["1.png", "2.png"])
    said = ["number one", "number two"]
    arrow_texts(id=[1.0, 2.0], text=said)
    assert "column 'id' must hold texts or whole numbers, not double" in refused(
        ingest_folder, "images", "t.parquet", "corpus"
    )
    arrow_texts(id=["1", "2"], text=[0.5, 1.5], note=said)
    assert "column 'text' must hold texts" in refused(
        ingest_folder, "images", "t.parquet", "corpus"
    )
    arrow_texts(
        id=pa.array(["1", "2"]).dictionary_encode(), text=pa.array(said).dictionary_encode()
    )
    ingest_folder("images", "t.parquet", "corpus")
    assert Corpus.open("corpus").texts == said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("id,text\n0,a cat, black\n", "line 2 has more cells than the header"),
        ("id;text\n0;a cat\n", "commas between them"),
    ],
)
def test_tables_that_are_not_what_they_seem(content, said):
    write_images(["0.png"])
    Path("t.csv").write_text(content)
    assert said in refused(ingest_folder, "images", "t.csv", "corpus")


def test_columns_that_nobody_asked_for_may_share_a_name():
    write_images(["0.png"])
    Path("t.csv").write_text("id,,text,\n0,x,a cat,y\n")
    ingest_folder("images", "t.csv", "corpus")
    assert Corpus.open("corpus").texts == ["a cat"]


def test_verdicts_on_one_column_are_not_those_on_another(monkeypatch):
    from fairnepv_studies import corpora

    def interrupted(*_):
        raise KeyboardInterrupt

    good, bad = [png(i) for i in range(3)], [b"torn", png(1), png(2)]
    pq.write_table(pa.table({"id": list("012"), "a": bad, "b": good}), "two.parquet")
    write_csv([(i, "a mark") for i in range(3)])
    with monkeypatch.context() as patch:
        patch.setattr(corpora, "move_in", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ingest_folder("two.parquet:a", "texts.csv", "corpus")
    assert ingest_folder("two.parquet:b", "texts.csv", "corpus").n == 3


def test_a_damaged_tar_is_refused_and_what_has_no_bytes_says_so():
    write_images([f"{i}.png" for i in range(4)])
    with tarfile.open("a.tar", "w") as archive:
        archive.add("images", arcname="x")
        link = tarfile.TarInfo("x/link.png")
        link.type, link.linkname = tarfile.LNKTYPE, "x/0.png"
        archive.addfile(link)
    with open_pictures("a.tar") as pictures:
        assert [pictures.label(i) for i in range(5)][-1] == "x/link.png"
        assert "is a link" in str(pictures.fetch(4))
        assert sorted(pictures.fetch(i) for i in range(4)) == sorted(png(i) for i in range(4))
    content = bytearray(Path("a.tar").read_bytes())
    with tarfile.open("a.tar") as archive:
        places = [member.offset for member in archive]
    for damaged in (
        content[: places[2]] + b"\xff" * 512 + content[places[2] + 512 :],
        content[: places[3] + 100],
        content[: places[3]],
    ):
        Path("b.tar").write_bytes(damaged)
        with pytest.raises(InputError, match="cannot be read as tar"), open_pictures("b.tar"):
            pass


def test_a_damaged_member_of_a_zip_is_one_reject():
    small()
    with zipfile.ZipFile("images.zip", "w") as archive:
        for i in range(5):
            archive.writestr(f"{i}.png", png(i))
    content = bytearray(Path("images.zip").read_bytes())
    content[content.index(b"2.png") + 60] ^= 255
    Path("images.zip").write_bytes(content)
    assert ingest_folder("images.zip", "texts.csv", "other").n == 4
    assert rejects("other") == {"2": "unreadable image"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--corpus emoji", "no corpus 'emoji'; give uspto, openmoji or folder"),
        ("texts.csv --corpus emoji", "no corpus 'emoji'; give uspto, openmoji or folder"),
        ("texts.csv --corpus openmoji", "takes no bulk files"),
        ("--corpus openmoji --min-words 3", "are for bulk files"),
        ("--corpus folder", "takes --images DIR and --texts"),
        ("--corpus folder --images images", "takes --images DIR and --texts"),
        ("--corpus openmoji --images images", "leave --images"),
        ("--corpus folder --images none --texts texts.csv", "none does not exist"),
        ("--corpus folder --images images --texts none.csv", "none.csv does not exist"),
        ("--corpus folder --images images --texts texts.csv:said", "no column 'said'"),
        ("--corpus folder --images images --texts texts.csv --ids key", "no column 'key'"),
        ("--corpus folder --images texts.csv --texts texts.csv", "give a folder, a .zip"),
        ("--corpus folder --images images --texts images/0.png", "give one of .csv"),
        ("--corpus folder --images torn.zip --texts texts.csv", "cannot be read as zip"),
        ("--corpus folder --images torn.parquet:a --texts texts.csv", "cannot be read as Parquet"),
        ("--corpus folder --images t.parquet:id --texts texts.csv", "must hold pictures as bytes"),
        ("--corpus folder --images empty --texts texts.csv", "has no pictures"),
        ("--corpus folder --images images --texts latin.csv", "cannot be read as csv"),
        ("--corpus folder --images images --texts other.csv", "no item qualifies"),
    ],
)
def test_bad_input_is_one_sentence(command, line, said):
    write_images(["0.png"])
    write_csv([(0, "text")])
    write_csv([("x", "text")], "other.csv")
    Path("empty").mkdir()
    Path("torn.zip").write_bytes(b"PK\x03\x04torn")
    Path("torn.parquet").write_bytes(b"PAR1")
    pq.write_table(pa.table({"id": ["0"]}), "t.parquet")
    Path("latin.csv").write_bytes("id,text\n0,café\n".encode("latin-1"))
    code, out, err = command(f"uspto ingest {line} --out corpus")
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert not Path("corpus").exists()


def test_a_refusal_removes_what_it_made_and_nothing_else(command):
    write_images(["0.png"])
    write_csv([("x", "text")], "other.csv")
    line = "uspto ingest --corpus folder --images images --texts other.csv --out {}"
    assert command(line.format("new/deep/corpus"))[0] == 2
    assert not Path("new").exists()
    Path("there").mkdir()
    Path("there/notes.txt").write_text("mine")
    assert command(line.format("there"))[0] == 2
    assert [file.name for file in Path("there").iterdir()] == ["notes.txt"]


def test_a_corpus_is_replaced_only_by_force():
    small()
    assert "--force" in refused(ingest_folder, "images", "texts.csv", "corpus")
    assert Corpus.open("corpus").n == 5
    ingest_folder("images", "texts.csv", "corpus", force=True)
    Path("file").write_text("")
    assert "is a file" in refused(ingest_openmoji, "file")


def test_of_two_that_make_a_corpus_the_second_is_refused():
    small()
    with locked(Path("corpus")):
        assert "another run is at work in corpus" in refused(
            ingest_folder, "images", "texts.csv", "corpus", force=True
        )
        assert not list(Path("corpus").glob(".ingest-*"))
    ingest_folder("images", "texts.csv", "corpus", force=True)


# --- Features -------------------------------------------------------------------------------------


def test_the_text_view_is_the_papers_and_keeps_its_vocabulary():
    corpus = small()
    description = text_features(corpus, idf_on="all")
    found, again = read_view(corpus, "text")
    assert again == description
    expected = tf_idf(corpus.texts)
    assert (found != expected).nnz == 0
    np.testing.assert_allclose(sp.linalg.norm(found, axis=1), 1)
    assert description.preprocessing["sublinear_tf"] is True
    with open("corpus/features/text_vocabulary.csv", encoding="utf-8") as stream:
        words = list(csv.DictReader(stream))
    assert [row["word"] for row in words] == ["blue", "in", "mark", "number", "with"]
    assert {float(row["idf"]) for row in words} == {1.0}


def test_the_text_view_is_fitted_on_the_selection_pool_unless_told_otherwise():
    """Words that only items have that test are no columns, and weigh nothing."""
    corpus = small(20)
    assert "make it with fairnepv uspto split" in refused(text_features, corpus)
    assert not Path("corpus/features").exists()
    made = split(corpus, validation=0.2, test=0.2)
    texts = list(corpus.texts)
    for row in made.test:
        texts[row] = texts[row].replace("blue", "red")
    corpus = replace_texts(corpus, texts)
    write_split(corpus, split(corpus, validation=0.2, test=0.2))
    description = text_features(corpus)
    assert description.preprocessing["idf_on"] == "pool"
    found, _ = read_view(corpus, "text")
    rows = read_split(corpus).pool
    expected = tf_idf([corpus.texts[row] for row in rows])
    assert (found[rows] != expected).nnz == 0
    assert "red" not in Path("corpus/features/text_vocabulary.csv").read_text()
    open_pool(corpus, ["text"])
    write_split(corpus, split(corpus, validation=0.2, test=0.2, seed=1), force=True)
    assert "fitted on the selection pool of another split" in refused(open_pool, corpus, ["text"])
    text_features(corpus, idf_on="all")
    open_pool(corpus, ["text"])
    assert "red" in Path("corpus/features/text_vocabulary.csv").read_text()


def test_pictures_are_encoded_and_described():
    corpus = small()
    encoder = Pixels()
    description, encoded = encoded_features(corpus, "vision", encoder)
    rows, read = read_view(corpus, "vision")
    np.testing.assert_array_equal(rows, Pixels().encode(list(corpus.images())))
    assert read == description
    assert (description.encoder, description.version) == (encoder.name, encoder.version)
    assert (encoded.encoded, encoded.reused) == (5, 0)
    assert feature_views(corpus) == ["vision"]


def test_a_grown_corpus_encodes_what_is_new_where_the_cache_is_shared():
    cache = Path("shared")
    encoded_features(small(5), "vision", Pixels(), cache=cache)
    shutil.rmtree("corpus")
    _, encoded = encoded_features(small(8), "vision", Pixels(), cache=cache)
    assert (encoded.encoded, encoded.reused) == (3, 5)
    assert not Path("corpus/cache").exists()


def test_features_of_another_corpus_are_refused():
    encoded_features(small(5), "vision", Pixels())
    shutil.move("corpus", "first")
    small(6)
    shutil.copytree("first/features", "corpus/features")
    assert "features of another corpus" in refused(read_view, Corpus.open("corpus"), "vision")


def test_features_that_were_changed_are_refused():
    corpus = small()
    encoded_features(corpus, "vision", Pixels())
    rows = np.load("corpus/features/vision.npy")
    rows[2, 1] += 1
    np.save("corpus/features/vision.npy", rows)
    assert "do not have the checksum in vision.json" in refused(read_view, corpus, "vision")


def test_a_corpus_whose_images_were_changed_is_not_encoded():
    corpus = small()
    table = pq.read_table("corpus/images.parquet").to_pydict()
    table["image"][3] = png(99)
    pq.write_table(pa.table(table), "corpus/images.parquet")
    assert "row 3" in refused(encoded_features, corpus, "vision", Pixels())
    items = pq.read_table("corpus/items.parquet").to_pydict()
    items["text"][0] = "another"
    pq.write_table(pa.table(items), "corpus/items.parquet")
    assert "has changed since" in refused(text_features, Corpus.open("corpus"), idf_on="all")


def replace_texts(corpus: Corpus, texts: list[str]) -> Corpus:
    """As if the corpus had been made so."""
    checksum = Checksum()
    for item in zip(corpus.ids, texts, corpus.image_hashes, strict=True):
        checksum.add(*item)
    rows = corpus.items.set_column(1, "text", [texts]).drop_columns(["words"])
    rows = rows.append_column("words", [[len(text.split()) for text in texts]])
    pq.write_table(rows, corpus.folder / "items.parquet")
    replace(corpus.about, checksum=checksum.hexdigest()).write(corpus.folder)
    return Corpus.open(corpus.folder)


@pytest.mark.parametrize(
    ("silent", "said"),
    [(1, "1 of the 5 texts of corpus have no words"), (4, "(0, 1, 2, ...)"), (5, "5 of the 5")],
)
def test_texts_without_words_are_named(silent, said):
    whole = small()
    texts = [*["X ?"] * silent, *whole.texts[silent:]]
    message = refused(text_features, replace_texts(whole, texts), idf_on="all")
    assert said in message
    assert "ingest again" in message
    assert not Path("corpus/features/text.npz").exists()


@given(text=st.text() | st.text("aB1_ .\u0130\u0307\u00df-", max_size=4))
@settings(deadline=None)
def test_a_text_has_words_where_the_vectorizer_finds_some(text):
    assert has_words(text) == bool(vectorizer().build_analyzer()(text))
    if has_words(text):
        np.testing.assert_allclose(sp.linalg.norm(tf_idf([text]), axis=1), 1)


# --- Damaged --------------------------------------------------------------------------------------


def featured(n: int = 5) -> Corpus:
    corpus = small(n)
    text_features(corpus, idf_on="all")
    encoded_features(corpus, "vision", Pixels())
    return corpus


def save(file: str, array: np.ndarray) -> None:
    np.save(file, array, allow_pickle=True)


def said_instead(file: str, **fields) -> None:
    Path(file).write_text(json.dumps({**json.loads(Path(file).read_text()), **fields}))


VISION, TEXT = "corpus/features/vision.npy", "corpus/features/text.npz"
DAMAGE = {
    "no bytes": (VISION, lambda: Path(VISION).write_bytes(b"")),
    "cut off": (VISION, lambda: Path(VISION).write_bytes(Path(VISION).read_bytes()[:-3])),
    "no header": (VISION, lambda: Path(VISION).write_bytes(b"\x93NUMPY\x01\x00v\x00{")),
    "objects": (VISION, lambda: save(VISION, np.array([{}], dtype=object))),
    "an archive": (VISION, lambda: shutil.copy(TEXT, VISION)),
    "few rows": (VISION, lambda: save(VISION, np.zeros((4, 5), np.float32))),
    "many rows": (VISION, lambda: save(VISION, np.zeros((6, 5), np.float32))),
    "another type": (VISION, lambda: save(VISION, np.zeros((5, 5), np.float64))),
    "one axis": (VISION, lambda: save(VISION, np.zeros(25, np.float32))),
    "junk": (TEXT, lambda: Path(TEXT).write_bytes(b"junk")),
    "cut zip": (TEXT, lambda: Path(TEXT).write_bytes(Path(TEXT).read_bytes()[:700])),
    "no matrix": (TEXT, lambda: np.savez(TEXT, a=np.zeros(3))),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_features_are_one_sentence_that_names_the_file(damage):
    corpus = featured()
    file, act = DAMAGE[damage]
    act()
    said = refused(read_view, corpus, Path(file).stem)
    assert said.startswith(file)
    assert said.endswith("make the features again")


@pytest.mark.slow
@given(
    file=st.sampled_from([VISION, TEXT]),
    places=st.lists(st.integers(0, 10**6), max_size=3),
    cut=st.integers(0, 10**6),
    byte=st.integers(0, 255),
)
@settings(max_examples=150, deadline=None)
def test_whatever_is_done_to_features_is_found_out(tmp_path_factory, file, places, cut, byte):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("damaged"))
        corpus = featured(3)
        checksum = read_view(corpus, Path(file).stem)[1].checksum
        content = bytearray(Path(file).read_bytes())
        for place in places:
            content[place % len(content)] = byte
        if cut % 2:
            del content[cut % len(content) :]
        Path(file).write_bytes(content)
        try:
            found = checksum_of(read_view(corpus, Path(file).stem)[0])
        except InputError as error:
            found = str(error)
        assert found == checksum or found.startswith(file)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"corpus": None}, "corpus is no str"),
        ({"checksum": 5}, "checksum is no str"),
        ({"shape": 5}, "shape is no tuple"),
        ({"more": 5}, "unexpected keyword"),
        ({"shape": [4, 5]}, "describes 4 x 5 features, and the corpus has 5 items"),
        ({"shape": [6, 5]}, "describes 6 x 5 features"),
        ({"shape": []}, "make the features again"),
        ({"shape": [5, "5"]}, "one of shape is no int"),
        ({"shape": [5.0, 5]}, "one of shape is no int"),
        ({"dtype": "float16"}, "holds 5 x 5 float32"),
    ],
)
def test_a_description_that_is_not_one_is_refused(fields, said):
    corpus = featured()
    said_instead("corpus/features/vision.json", **fields)
    message = refused(read_view, corpus, "vision")
    assert said in message
    assert message.endswith("make the features again")


NOT_RECORDS = [b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000]


@pytest.mark.parametrize("content", NOT_RECORDS)
def test_a_document_that_is_not_one_is_refused(content):
    corpus = featured()
    for file, read in (
        ("corpus/features/vision.json", lambda: read_view(corpus, "vision")),
        ("corpus/corpus.json", lambda: Corpus.open("corpus")),
    ):
        Path(file).write_bytes(content)
        assert refused(read).startswith((f"{file} cannot be read (", f"{file} must hold a JSON"))


@pytest.mark.parametrize(
    "fields",
    [
        *({"checksum": 5}, {"n": "5"}, {"simulated": 1}, {"funnel": {}}, {"sources": ["x"]}),
        *({"funnel": [5]}, {"notes": [None]}, {"n": True}, {"kind": None}, {"rules": []}),
    ],
)
def test_what_corpus_json_says_has_its_type(fields):
    small()
    said_instead("corpus/corpus.json", **fields)
    (name,) = fields
    said = refused(Corpus.open, "corpus")
    assert "corpus.json cannot be read (" in said
    assert f"{name} is no " in said


@pytest.mark.parametrize(
    "fields",
    [{"kind": "register"}, {"n": -1}, {"format": 2}, {"funnel": []}, {"funnel": [["x", 4]]}],
)
def test_a_corpus_that_contradicts_itself_is_refused(fields):
    small()
    said_instead("corpus/corpus.json", **fields)
    assert "ingest again" in refused(Corpus.open, "corpus")


@pytest.mark.parametrize(
    ("column", "change", "said"),
    [
        ("words", lambda words: [words[0] + 1, *words[1:]], "words are not those of the texts"),
        ("words", lambda words: [None, *words[1:]], "words are not those of the texts"),
        ("id", lambda ids: [ids[1], *ids[1:]], "an id is there twice"),
    ],
)
def test_what_is_said_of_items_is_computed(column, change, said):
    """With a checksum that fits."""
    corpus = small()
    table = pq.read_table(ITEMS)
    values = pa.array(change(table[column].to_pylist()), table[column].type)
    table = table.set_column(table.column_names.index(column), column, values)
    pq.write_table(table, ITEMS)
    checksum = Checksum()
    for row in table.to_pylist():
        checksum.add(row["id"], row["text"], row["image_sha256"])
    said_instead("corpus/corpus.json", checksum=checksum.hexdigest())
    assert said in refused(Corpus.open(corpus.folder).check)


def test_simulated_marks_cannot_be_called_real(tmp_path):
    corpus = make_corpus(tmp_path / "c", 3, simulated=False)
    corpus.check()
    low = make_corpus(tmp_path / "d", 3, simulated=False, seed=-60)  # ids from 10000000 on
    assert "says that nothing is simulated, and 10000000 is" in refused(low.check)


@pytest.mark.parametrize(
    "line",
    [
        "simulate --n 3 --out s3://me:secret@bucket/raw",
        "ingest a.xml --images images --out s3://me:secret@bucket/corpus",
        "ingest s3://me:secret@bucket/a.xml --images images --out c",
        "ingest a.xml --images s3://bucket/images.zip --out c",
        "ingest --corpus openmoji --out gs://bucket/corpus",
        "ingest --corpus folder --images images --texts s3://bucket/t.csv --out c",
        "features s3://me:secret@bucket/corpus",
        "features corpus --cache s3://me:secret@bucket/cache",
        "split s3://me:secret@bucket/corpus",
        "run hdfs://bucket/corpus",
        "publish s3://bucket/corpus --out p",
        "verify s3://bucket/p corpus",
    ],
)
def test_corpora_are_on_a_local_disk(command, folder, line):
    small()
    Path("a.xml").touch()
    before = sorted(path.name for path in folder.iterdir())
    code, _, err = command(f"uspto {line}")
    assert code == 2
    assert "://... is not on a local disk" in err
    assert "secret" not in err
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_path_that_was_a_uri_is_no_folder(folder):
    assert "give it as text" in refused(ingest_openmoji, Path("s3://bucket/corpus"))
    assert not list(folder.iterdir())


def shorter(file: str) -> None:
    pq.write_table(pq.read_table(file).slice(0, 3), file)


def without(file: str, column: str, instead: list | None = None) -> None:
    table = pq.read_table(file).drop_columns([column])
    pq.write_table(table if instead is None else table.append_column(column, [instead]), file)


ITEMS, IMAGES = "corpus/items.parquet", "corpus/images.parquet"
TORN = {
    "items junk": (ITEMS, lambda: Path(ITEMS).write_bytes(b"junk")),
    "items cut off": (ITEMS, lambda: Path(ITEMS).write_bytes(Path(ITEMS).read_bytes()[:-9])),
    "items empty": (ITEMS, lambda: Path(ITEMS).write_bytes(b"")),
    "items short": (ITEMS, lambda: shorter(ITEMS)),
    "items without texts": (ITEMS, lambda: without(ITEMS, "text")),
    "items with a gap": (ITEMS, lambda: without(ITEMS, "text", [*"abcd", None])),
    "items with numbers": (ITEMS, lambda: without(ITEMS, "id", list(range(5)))),
    "images junk": (IMAGES, lambda: Path(IMAGES).write_bytes(b"junk")),
    "images short": (IMAGES, lambda: shorter(IMAGES)),
    "images without images": (IMAGES, lambda: without(IMAGES, "image")),
    "images with a gap": (IMAGES, lambda: without(IMAGES, "image", [*[b"x"] * 4, None])),
}


@pytest.mark.parametrize("damage", TORN)
def test_a_damaged_corpus_is_one_sentence_that_names_the_file(command, monkeypatch, damage):
    small()
    monkeypatch.setattr(encoders, "find", lambda *_, **__: Pixels())
    file, act = TORN[damage]
    act()
    code, _, err = command("uspto features corpus --idf-on all")
    assert code == 2
    assert err.startswith(f"fairnepv: {file} cannot be read (")
    assert err.endswith("ingest again\n")


def test_pages_that_are_damaged_are_one_sentence():
    """Whatever Parquet makes of flipped bytes; those it does not see the checksums do."""
    content = (small().folder / "items.parquet").read_bytes()
    for place in range(0, len(content), 37):
        flipped = bytearray(content)
        flipped[place] ^= 0xFF
        Path(ITEMS).write_bytes(flipped)
        with contextlib.suppress(InputError):
            Corpus.open("corpus").check()


@pytest.mark.encoders
def test_the_command_makes_both_views_and_says_what_it_reused(command):
    small(3)
    code, out, err = command("uspto features corpus --idf-on all")
    assert (code, err) == (0, "")
    assert "3 x 1,280 by efficientnet-lite0 0.1.0; 3 encoded, 0 known before." in out
    before = {file: file.read_bytes() for file in Path("corpus/features").iterdir()}
    code, out, _ = command("uspto features corpus --idf-on all --json")
    assert set(json.loads(out)) == {"text", "vision"}
    assert {file: file.read_bytes() for file in Path("corpus/features").iterdir()} == before


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("none", "is no corpus"),
        ("corpus --vision resnet", "no image encoder 'resnet'"),
        ("corpus --vision hf:a@b", "must be hf:ORG/MODEL@REVISION"),
        ("corpus --threads 0", "--threads"),
        ("corpus --device tpu", "--device"),
    ],
)
def test_features_of_bad_input(command, line, said):
    small(2)
    code, out, err = command(f"uspto features {line}")
    assert (code, out) == (2, "")
    assert said in err
    assert not Path("corpus/features").exists()


def test_an_encoder_that_is_missing_is_said_before_anything_is_made(command, monkeypatch):
    small(2)
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    code, _, err = command("uspto features corpus --idf-on all")
    assert code == 2
    assert "pip install 'fairnepv-studies[encoders]'" in err
    assert not Path("corpus/features").exists()


# --- Killed ---------------------------------------------------------------------------------------


def features_one_by_one(folder: str, most: float = math.inf) -> None:
    """Of so many pictures, after which it waits to be killed."""
    from fairnepv_studies import encoding

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "BATCH", 1)
        encoded_features(Corpus.open(folder), "vision", Pixels(most=most))


@pytest.mark.slow
@pytest.mark.kill
def test_a_folder_killed_at_any_moment_ends_in_the_same_bytes():
    write_images([f"{i:03}.png" for i in range(100)])
    Path("images/torn.png").write_bytes(b"torn")
    write_csv([*((f"{i:03}", f"mark number {i}") for i in range(100)), ("torn", "torn")])
    assert run_killed("never", "folder", ".", "whole") == 0
    for moment in ("table:1", "replace:1", "replace:3", "table:2", "replace:5", "rmtree:1"):
        assert run_killed(moment, "folder", ".", "out") == -signal.SIGKILL
        assert moment == "rmtree:1" or not Path("out/corpus.json").exists()
    assert run_killed("never", "folder", ".", "out") == 0
    assert files_of(Path("out")) == files_of(Path("whole"))


def test_a_folder_goes_on_with_the_verdicts_it_had(monkeypatch):
    from fairnepv_studies import corpora

    def interrupted(*_):
        raise KeyboardInterrupt

    write_images([f"{i}.png" for i in range(5)])
    write_csv([(i, "a mark") for i in range(5)])
    with monkeypatch.context() as patch:
        patch.setattr(corpora, "move_in", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ingest_folder("images", "texts.csv", "corpus")
    monkeypatch.setattr(corpora, "verdict_on", interrupted)
    assert ingest_folder("images", "texts.csv", "corpus").n == 5
    write_images(["6.png"])
    with pytest.raises(KeyboardInterrupt):  # of other images nothing is known yet
        ingest_folder("images", "texts.csv", "corpus", force=True)


@pytest.mark.sample(1)
@pytest.mark.kill
@pytest.mark.parametrize("done", [0, 2, 7])
def test_features_killed_and_started_again_have_the_same_bytes(done):
    small(12)
    shutil.copytree("corpus", "whole")
    features_one_by_one("whole")
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    code = f"import test_corpora; test_corpora.features_one_by_one('corpus', {done})"
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path})
    while len(list(Path("corpus").rglob("cache/*/*.npy"))) < done:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert "has no features" in refused(read_view, Corpus.open("corpus"), "vision")
    features_one_by_one("corpus")
    for file in Path("whole").rglob("*"):
        if file.is_file():
            assert file.read_bytes() == Path("corpus", file.relative_to("whole")).read_bytes()
    read_view(Corpus.open("corpus"), "vision")
