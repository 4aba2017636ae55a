"""What is chosen, what is left out of the evaluation, and what travels."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from downstream_studies import CODES, DOCUMENT, make_split_corpus, make_study, prepared
from pictures import stored
from PIL import Image

import fairnepv
from fairnepv.errors import InputError
from fairnepv_studies.corpus import IMAGES, ITEMS, Corpus
from fairnepv_studies.downstream import leakage
from fairnepv_studies.downstream.candidates import candidates_of
from fairnepv_studies.downstream.items import Item
from fairnepv_studies.downstream.medoids import k_means_medoids
from fairnepv_studies.downstream.packing import Packed, read_pack, write_pack
from fairnepv_studies.downstream.preparation import prepare
from fairnepv_studies.downstream.selecting import Selecting
from fairnepv_studies.downstream.strata import rare_motifs, rare_wordings
from fairnepv_studies.protocol.split import read_split


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    prepared(folder)
    return folder


def image_of(pixels):
    return stored(Image.fromarray(pixels))


def study_folder(base):
    from fairnepv_studies.downstream.folder import StudyFolder

    return StudyFolder.open(base / "study")


def test_every_part_is_apart_from_every_other(base):
    folder, corpus = study_folder(base), Corpus.open(base / "corpus")
    split = read_split(corpus)
    of_split = {name: {corpus.ids[r] for r in rows} for name, rows in split.parts.items()}
    apart = read_pack(folder.path / "pretrain.zip")
    parts = {"pretrain": set(apart)}
    for part in ("train", "validation", "test"):
        parts[part] = {id for id, packed in folder.items.items() if packed.part == part}
    for one, other in itertools.combinations(parts, 2):
        assert not parts[one] & parts[other]
    assert parts["train"] | parts["pretrain"] <= of_split["pool"]
    assert parts["validation"] <= of_split["validation"]
    assert parts["test"] <= of_split["test"]
    assert len(parts["test"]) == DOCUMENT["data"]["test"]
    assert len(parts["pretrain"]) == round(0.2 * len(of_split["pool"]))
    items = zip(corpus.ids, corpus.texts, corpus.images(), strict=True)
    known = {id: Item(id, text, image) for id, text, image in items}
    assert all(packed.item == known[id] for id, packed in folder.items.items())


def test_picks_are_those_of_select(base):
    folder, corpus = study_folder(base), Corpus.open(base / "corpus")
    candidates = candidates_of(corpus, make_study())
    views = candidates.pool.views
    ids = [corpus.ids[row] for row in candidates.rows]
    ours = fairnepv.select(views, 8, objective="representative", effort="fast")
    assert folder.picks("ours", 8, 0).ids == [ids[i] for i in ours.indices]
    assert folder.picks("ours", 8, 1) == folder.picks("ours", 8, 0)
    for seed in range(3):
        drawn = fairnepv.select(views, 4, method="random", random_state=seed)
        assert folder.picks("random", 4, seed).ids == [ids[i] for i in drawn.indices]
    local = make_study(
        selectors=[
            {"name": "ours", "objective": "representative", "local": True, "eps": 0.3},
            {"name": "random", "method": "random"},
        ],
        baselines=["random"],
    )
    selecting = Selecting(local, candidates, base)
    near = fairnepv.select(
        fairnepv.local_features(views), 4, objective="representative", eps=0.3, random_state=1
    )
    assert set(selecting.choose("ours", 4, 1).ids) == {ids[i] for i in near.indices}


def test_a_study_that_is_prepared_chooses_nothing_again(base, monkeypatch):
    folder = study_folder(base)
    gone = folder.path / "picks" / "random-k4-seed1.json"
    before = {file: file.read_bytes() for file in folder.path.rglob("*") if file.is_file()}
    gone.unlink()
    chosen = []
    choose = Selecting.choose
    monkeypatch.setattr(
        Selecting, "choose", lambda self, *unit: chosen.append(unit) or choose(self, *unit)
    )
    prepare(make_study(), base, base / "study")
    assert chosen == [("random", 4, 1)]
    assert before == {file: file.read_bytes() for file in folder.path.rglob("*") if file.is_file()}


def test_another_study_in_the_same_folder_is_refused(base):
    with pytest.raises(InputError, match=r"was begun with another .*sizes"):
        prepare(make_study(sizes=[4, 9]), base, base / "study")
    (base / "other").mkdir(exist_ok=True)
    (base / "other" / "file").write_text("mine")
    with pytest.raises(InputError, match="not empty and no folder of a study"):
        prepare(make_study(), base, base / "other")


REFUSED = [
    ({"sizes": [4, 500]}, "k = 500 does not fit the"),
    ({"views": ["text", "smell"]}, "smell"),
    ({"corpus": "nowhere"}, "is no corpus"),
    ({"selectors": [{"name": "a", "method": "nobody"}, DOCUMENT["selectors"][2]]}, "nobody"),
    ({"selectors": [{"name": "a", "tau": -1.0}, DOCUMENT["selectors"][2]]}, "tau"),
    ({"selectors": [{"name": "a", "solver": "plain"}, DOCUMENT["selectors"][2]]}, "solver is for"),
    ({"selectors": [{"name": "a", "run": "main"}, DOCUMENT["selectors"][2]]}, "has no run 'main'"),
    (
        {"selectors": [{"name": "a", "picks": "no-{k}.csv"}, DOCUMENT["selectors"][2]]},
        "no-4.csv",
    ),
    (
        {
            "selectors": [
                {"name": "a", "method": "greedy", "seeds": 3},
                DOCUMENT["selectors"][2],
            ]
        },
        "chooses the same whatever the seed is",
    ),
]


@pytest.mark.parametrize(("other", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_cannot_be_chosen_is_refused_before_anything_is(base, other, said):
    asked = {"baselines": ["random"], **other} if "selectors" in other else other
    with pytest.raises(InputError, match=re.escape(said)):
        prepare(make_study(**asked), base, base / "refused")
    assert not (base / "refused").exists()


def test_a_corpus_without_images_is_refused(tmp_path):
    make_split_corpus(tmp_path / "corpus")
    (tmp_path / "corpus" / IMAGES).unlink()
    with pytest.raises(InputError, match=r"has no images\.parquet"):
        prepare(make_study(), tmp_path, tmp_path / "study")


def test_picks_from_files(base):
    folder, corpus = study_folder(base), Corpus.open(base / "corpus")
    candidates = candidates_of(corpus, make_study())
    ids = [corpus.ids[row] for row in candidates.rows]
    for k in (4, 8):
        (base / f"mine-{k}.txt").write_text("".join(f"{id}\n" for id in ids[:k]))
    selectors = [{"name": "mine", "picks": "mine-{k}.txt"}, DOCUMENT["selectors"][2]]
    asked = {"selectors": selectors, "baselines": ["random"]}
    again = prepare(make_study(**asked), base, base / "from-files")
    assert again.picks("mine", 8, 1).ids == ids[:8]
    tested = folder.evaluated("test")[0].id
    apart = next(iter(read_pack(folder.path / "pretrain.zip")))
    wrong = {
        tested: "not among the items that may be chosen",
        apart: "set apart",
        "nobody": "is not in the corpus",
        ids[0]: "expected 4 different picks",
    }
    for id, said in wrong.items():
        (base / "mine-4.txt").write_text("".join(f"{id}\n" for id in [*ids[:3], id]))
        with pytest.raises(InputError, match=said):
            prepare(make_study(**asked), base, base / "refused")


# --- near duplicates ------------------------------------------------------------------------------


def rewrite(corpus: Corpus, texts=None, images=None) -> Corpus:
    """The corpus with some other texts or images, and everything that follows from these."""
    import hashlib

    import pyarrow as pa
    from corpora import add_features

    from fairnepv_studies.corpus import Checksum
    from fairnepv_studies.protocol.split import split, write_split

    table = pq.read_table(corpus.folder / ITEMS).to_pydict()
    pictures = list(corpus.images())
    for row, text in (texts or {}).items():
        table["text"][row], table["words"][row] = text, len(text.split())
    for row, image in (images or {}).items():
        pictures[row] = image
    table["image_sha256"] = [hashlib.sha256(image).hexdigest() for image in pictures]
    checksum = Checksum()
    for item in zip(table["id"], table["text"], table["image_sha256"], strict=True):
        checksum.add(*item)
    pq.write_table(pa.table(table), corpus.folder / ITEMS)
    pq.write_table(pa.table({"id": table["id"], "image": pictures}), corpus.folder / IMAGES)
    replace(corpus.about, checksum=checksum.hexdigest()).write(corpus.folder)
    again = Corpus.open(corpus.folder)
    add_features(again)
    write_split(again, split(again, validation=0.15, test=0.15), force=True)
    return again


def test_near_duplicates_of_the_pool_are_not_evaluated(tmp_path):
    corpus = make_split_corpus(tmp_path / "corpus")
    parts, words = read_split(corpus).parts, corpus.words
    tested, donor = next(  # of equal length, so that the split stays as it is
        (one, two)
        for one, two in itertools.product(parts["test"][1:].tolist(), parts["pool"][1:].tolist())
        if words[one] == words[two] > 12
    )
    texts = {donor: " ".join(["other", *corpus.texts[tested].split()[1:]])}
    pixels = np.random.default_rng(5).integers(0, 250, size=(16, 16, 3), dtype=np.uint8)
    seen, alike = parts["test"][0], parts["pool"][0]
    pair = {
        int(seen): image_of(pixels),
        int(alike): image_of(pixels + 2),
    }  # hardly brighter throughout
    corpus = rewrite(corpus, texts, pair)
    left_out = candidates_of(corpus, make_study()).left_out["test"]
    assert left_out[corpus.ids[seen]] == "near image"
    assert left_out[corpus.ids[tested]] == "near text"
    assert len(left_out) == 2


def test_near_duplicates_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    words = np.array(list("abcdefg"))
    texts = [" ".join(rng.choice(words, size=rng.integers(1, 7))) for _ in range(60)]
    images = [image_of(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)) for _ in range(60)]
    prints = leakage.prints_of({"id": [str(i) for i in range(60)]}, texts, images)
    bits = np.unpackbits(prints.hashes, axis=1)
    for row in range(10):  # as another one, but for 4 to 13 bits
        bits[row] = bits[row + 20]
        bits[row, rng.choice(256, size=4 + row, replace=False)] ^= 1
    prints = replace(prints, hashes=np.packbits(bits, axis=1))
    asked, others = np.arange(20), np.arange(20, 60)
    found = leakage.near_duplicates(prints, asked, others)
    expected = {}
    for row in range(20):
        near_image = near_text = False
        for other in range(20, 60):
            bits = np.unpackbits(prints.hashes[row]) != np.unpackbits(prints.hashes[other])
            near_image |= sum(bits) <= 8
            one, two = (
                {tuple(t.split()[i : i + 3]) for i in range(max(1, len(t.split()) - 2))}
                for t in (texts[row], texts[other])
            )
            near_text |= 5 * len(one & two) >= 4 * len(one | two)
        if near_image or near_text:
            expected[row] = "near image" if near_image else "near text"
    assert found == expected
    assert {"near image", "near text"} == set(expected.values())
    assert len(expected) < 20


def test_an_exact_copy_is_named_as_such():
    images = [image_of(np.full((16, 16, 3), grey, dtype=np.uint8)) for grey in (9, 99)]
    exact = {"id": ["a", "b"], "image": ["x", "x"]}
    prints = leakage.prints_of(exact, ["one text", "another here"], images)
    assert leakage.near_duplicates(prints, np.array([0]), np.array([1])) == {0: "same image"}
    assert leakage.near_duplicates(prints, np.array([0]), np.array([], dtype=np.int64)) == {}


# --- strata, medoids, packs -----------------------------------------------------------------------


def test_rare_motifs_and_wordings():
    codes = [["a"]] * 98 + [["a", "b"], ["c"], ["b"], ["c", "a"], []]
    asked = [100, 101, 102, 0]
    assert rare_motifs(codes, range(100), asked, 0.01) == {100, 101}
    texts = ["common words here", 'common "XYZZY" words', "rare marvel words", "common words"]
    assert rare_wordings(texts, [0, 1, 3], [0, 1, 2, 3], 0.25) == {2}
    assert rare_wordings(texts, [0, 1, 3], [0, 1, 2, 3], 0.5) == {0, 2}  # quoted words are not told


def test_strata_of_a_corpus_are_packed(base):
    corpus, folder = Corpus.open(base / "corpus"), study_folder(base)
    of_item = dict(zip(corpus.ids, corpus.items.column("design_codes").to_pylist(), strict=True))
    pool = candidates_of(corpus, make_study()).rows
    rare = sum(CODES[2] in of_item[corpus.ids[row]] for row in pool) <= 0.01 * len(pool)
    for id, packed in folder.items.items():
        if packed.part == "test":
            assert ("motif" in packed.rare) == (rare and of_item[id] == [CODES[2]])
    tested = [packed for packed in folder.items.values() if packed.part == "test"]
    both = [p for p in folder.items.values() if p.part in ("test", "validation")]
    assert sum("wording" in p.rare for p in both) == round(0.25 * len(both))
    assert 0 < sum("wording" in p.rare for p in tested) < len(tested)


def test_medoids_stand_for_clusters():
    rng = np.random.default_rng(0)
    centres = np.eye(5)
    rows = np.repeat(centres, 8, axis=0) + 0.01 * rng.standard_normal((40, 5))
    chosen = k_means_medoids({"one": rows, "two": rows[:, ::-1]}, 5, 0)
    assert sorted(chosen // 8) == [0, 1, 2, 3, 4]
    for row in chosen:
        own = rows[row // 8 * 8 : row // 8 * 8 + 8]
        unit = own / np.linalg.norm(own, axis=1, keepdims=True)
        apart = np.linalg.norm(unit - unit.mean(axis=0), axis=1)
        assert apart.argmin() == row % 8
    twins = np.ones((6, 3))
    assert len(set(k_means_medoids({"one": twins + 1e-9 * rng.random((6, 3))}, 6, 1))) == 6


def test_a_pack_is_read_again_and_its_bytes_are_its_own(tmp_path):
    packed = [
        Packed(Item(f"../{i}\n{i}", f"text {i} é", bytes([i]) * 5), "train", ("motif",) * (i % 2))
        for i in range(5)
    ]
    write_pack(tmp_path / "a.zip", packed)
    write_pack(tmp_path / "b.zip", packed)
    assert list(read_pack(tmp_path / "a.zip").values()) == packed
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_damaged_pack_is_one_sentence(tmp_path, base):
    whole = (base / "study" / "items.zip").read_bytes()
    file = tmp_path / "items.zip"
    for content in (b"", whole[:-30], whole.replace(b'"part": "test"', b'"part": "tess"')):
        file.write_bytes(content)
        with pytest.raises(InputError, match="cannot be read"):
            read_pack(file)
    shutil.copy(base / "study" / "items.zip", file)
    assert read_pack(file)
