"""The split: stratified, disjoint, a function of seed and items, and refused where it is not so."""

import json
import shutil
from fractions import Fraction

import numpy as np
import pytest
from corpora import make_corpus
from hypothesis import given
from hypothesis import strategies as st

from fairnepv.errors import InputError
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.protocol.split import (
    apportion,
    quantile_edges,
    read_split,
    split,
    write_split,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("split") / "corpus", 230)


def strata(made, corpus):
    words = corpus.items.column("words").to_numpy()
    return np.array([sum(w > edge for edge in made.words_up_to) for w in words])


def test_parts_are_disjoint_and_all_there(corpus):
    made = split(corpus, validation=0.1, test=0.2, seed=3)
    together = np.concatenate(list(made.parts.values()))
    assert sorted(together.tolist()) == list(range(230))
    assert {name: len(rows) for name, rows in made.parts.items()} == {
        "validation": 23,
        "test": 46,
        "pool": 161,
    }


def test_every_bin_gives_its_share_within_rounding(corpus):
    made = split(corpus, validation=0.1, test=0.2)
    bins = strata(made, corpus)
    assert len(set(bins.tolist())) == 10
    for stratum in range(10):
        size = (bins == stratum).sum()
        for rows, share in ((made.validation, 0.1), (made.test, 0.2)):
            assert abs((bins[rows] == stratum).sum() - share * size) < 1


def test_bins_hold_about_as_many_items(corpus):
    sizes = np.bincount(strata(split(corpus), corpus))
    assert sizes.min() > 10  # of 230, with 35 different counts of words
    assert sizes.max() < 40


def test_a_corpus_without_items_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no items to split"):
        split(make_corpus(tmp_path / "c", 0))


def test_a_seed_decides(corpus):
    first, again, other = (split(corpus, seed=seed) for seed in (0, 0, 1))
    assert first.content == again.content
    assert first.validation.tolist() != other.validation.tolist()
    assert json.loads(other.content)["seed"] == 1


def test_the_split_is_the_same_on_every_machine(tmp_path):
    """Written down once; it must never change."""
    made = split(make_corpus(tmp_path / "c", 20), validation=0.2, test=0.2)
    assert (made.validation.tolist(), made.test.tolist()) == PINNED


PINNED = ([3, 5, 8, 13], [1, 4, 6, 7])


SHARES = st.tuples(st.integers(0, 100), st.integers(0, 100)).filter(lambda s: sum(s) < 100)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), SHARES)
def test_apportioned_counts_are_within_rounding_and_fit(sizes, percent):
    shares = [p / 100 for p in percent]
    parts = apportion(sizes, *shares)
    for counts, share in zip(parts, (Fraction(p, 100) for p in percent), strict=True):
        assert all(abs(c - share * size) < 1 for c, size in zip(counts, sizes, strict=True))
        assert abs(sum(counts) - share * sum(sizes)) <= Fraction(1, 2)
    assert all(a + b <= size for a, b, size in zip(*parts, sizes, strict=True))


@pytest.mark.parametrize(("n", "share", "taken"), [(30, 0.4, 12), (50, 0.45, 22), (100, 0.45, 45)])
def test_bins_that_validation_used_up_are_not_asked_again(n, share, taken):
    validation, test = apportion([n // 10] * 10, share, share)
    assert (sum(validation), sum(test)) == (taken, taken)
    assert max(map(sum, zip(validation, test, strict=True))) <= n // 10


@given(st.lists(st.integers(1, 60), min_size=1, max_size=80))
def test_edges_leave_no_bin_empty(words):
    edges = quantile_edges(np.array(words))
    assert set(np.searchsorted(edges, words).tolist()) == set(range(len(edges) + 1))


def test_what_is_written_is_read_back(corpus, tmp_path):
    folder = shutil.copytree(corpus.folder, tmp_path / "c")
    own = Corpus.open(folder)
    made = split(own, seed=7)
    write_split(own, made)
    assert read_split(own).content == made.content == (folder / "split.json").read_bytes()
    write_split(own, made)  # the same again is no conflict
    with pytest.raises(InputError, match="holds another split"):
        write_split(own, split(own, seed=8))
    write_split(own, split(own, seed=8), force=True)
    assert read_split(own).seed == 8


def test_a_changed_split_is_refused(corpus, tmp_path):
    own = Corpus.open(shutil.copytree(corpus.folder, tmp_path / "c"))
    path = write_split(own, split(own))
    document = json.loads(path.read_bytes())
    changes: list = [
        ("seed", 1),
        ("test", document["test"][1:]),
        ("checksums", {}),
        ("format", True),
    ]
    for key, value in [*changes, ("more", [])]:
        path.write_text(json.dumps({**document, key: value}))
        with pytest.raises(InputError, match="it was changed; split again"):
            read_split(own)
    wrong = [{"seed": float("inf")}, {"seed": 1.0}, {"shares": {}}, {"shares": 1}, {"corpus": 5}]
    wrong += [{"shares": {"validation": share, "test": 0.1}} for share in (False, "0.1", None)]
    odd = [json.dumps({**document, **fields}) for fields in wrong]
    for torn in ("{", "[]", "[" * 100_000, *odd):
        path.write_text(torn)
        with pytest.raises(InputError, match=r"cannot be read|must hold a JSON object"):
            read_split(own)


def test_another_corpus_s_split_is_refused(corpus, tmp_path):
    other = make_corpus(tmp_path / "other", 230, seed=1)
    write_split(other, split(other))
    with pytest.raises(InputError, match="splits another corpus"):
        read_split(corpus, other.folder / "split.json")


@pytest.mark.parametrize("shares", [(0.5, 0.5), (-0.1, 0.2), (0.2, -0.1), (float("nan"), 0.1)])
def test_shares_that_leave_nothing_are_refused(corpus, shares):
    with pytest.raises(InputError, match="shares of validation and test"):
        split(corpus, validation=shares[0], test=shares[1])


def test_a_pool_of_one_is_refused(tmp_path):
    with pytest.raises(InputError, match="leaves 1 of 2 items"):
        split(make_corpus(tmp_path / "c", 2), validation=0.5, test=0.0)
