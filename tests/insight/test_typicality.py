"""Qualities that keep junk out: against dense loops, their symmetries, and bad input."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cases
import fairnepv
import reference
from fairnepv import DiagonalView, InputError, LocalEngine
from search_problems import STORAGE, examples

SEEDS = st.integers(0, 10**6)


def by_loops(view: np.ndarray, sample: Any, neighbours: int) -> np.ndarray:
    K = view @ view.T
    density = np.array([reference.density(K, i, sample, neighbours) for i in range(len(K))])
    return np.array([min(max(x / np.median(density), 0.05), 1.0) for x in density])


@pytest.mark.sample
@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("neighbours", [1, 4, 29])
def test_typicality_by_loops(storage, neighbours):
    views = [np.abs(view) for view in cases.random_views(np.random.default_rng(0), 30, [6, 4])]
    stored = {f"v{q}": STORAGE[storage](view) for q, view in enumerate(views)}
    found = fairnepv.typicality(stored, neighbours=neighbours)
    assert list(found) == ["v0", "v1"]
    for view, quality in zip(views, found.values(), strict=True):
        assert quality == pytest.approx(by_loops(view, range(30), neighbours), abs=1e-9)
        assert quality.min() < 1


def test_a_sample_stands_for_the_pool():
    view = np.abs(np.random.default_rng(1).normal(size=(60, 5)))
    found = fairnepv.typicality({"v": view}, neighbours=3, sample=20, random_state=4)["v"]
    sample = np.random.default_rng(4).choice(60, size=20, replace=False).tolist()
    assert found == pytest.approx(by_loops(view, sample, 3), abs=1e-9)
    other = fairnepv.typicality({"v": view}, neighbours=3, sample=20, random_state=5)["v"]
    assert found.tolist() != other.tolist()


@given(SEEDS)
@examples(20)
def test_qualities_follow_their_rows(seed):
    rng = np.random.default_rng(seed)
    view, order = rng.normal(size=(15, 4)), rng.permutation(15)
    plain = fairnepv.typicality([view], neighbours=3)["view0"]
    moved = fairnepv.typicality([view[order]], neighbours=3)["view0"]
    assert moved == pytest.approx(plain[order], abs=1e-9)


def test_blocks_and_scale_do_not_matter():
    view = np.random.default_rng(2).normal(size=(50, 4))
    plain = fairnepv.typicality([view])["view0"]
    assert fairnepv.typicality([view], engine=LocalEngine(7))["view0"].tolist() == plain.tolist()
    assert fairnepv.typicality([1e3 * view])["view0"] == pytest.approx(plain, abs=1e-12)


def test_a_row_is_not_its_own_neighbour_but_its_duplicate_is():
    view = np.vstack([np.eye(8), np.ones((10, 8)), np.eye(8)[:1]])
    found = fairnepv.typicality([view], neighbours=1)["view0"]
    assert found[0] == found[18] == found[8] == 1.0  # duplicates have a neighbour
    assert found[1] < 1


def test_junk_gets_the_least_quality_and_stays_out():
    rng = np.random.default_rng(3)
    (rows,) = cases.clustered_views(rng, 200, [16], 6, spread=0.1)
    text = np.hstack([rows, np.zeros((200, 3))])
    text[[5, 6, 7]] = np.eye(19)[16:]
    data = {"text": text}
    quality = fairnepv.typicality(data)
    assert quality["text"][[5, 6, 7]].tolist() == [0.05] * 3
    assert np.median(quality["text"]) == pytest.approx(1.0, abs=1e-3)
    options: dict[str, Any] = {"certify": False, "effort": "fast"}
    assert {5, 6, 7} <= set(fairnepv.select(data, 9, **options).indices.tolist())
    sound = fairnepv.select(data, 9, quality=quality, **options)
    assert not {5, 6, 7} & set(sound.indices.tolist())


def test_a_zero_row_is_as_odd_as_can_be():
    view = np.abs(np.random.default_rng(0).normal(size=(20, 3)))
    view[4] = 0.0
    assert fairnepv.typicality([view], neighbours=2)["view0"][4] == 0.05


def test_views_in_which_all_are_alone_tell_no_outliers():
    data = {"diagonal": DiagonalView(np.arange(1.0, 21.0)), "opposed": np.diag([1.0, -1.0] * 10)}
    found = fairnepv.typicality(data, neighbours=2)
    assert all((quality == 1.0).all() for quality in found.values())


def test_columns_of_one_array():
    rows = np.random.default_rng(0).normal(size=(30, 6))
    split = fairnepv.typicality(rows, views={"a": [0, 1, 2], "b": [3, 4, 5]})
    assert split["b"] == pytest.approx(fairnepv.typicality({"b": rows[:, 3:]})["b"], abs=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"neighbours": 0}, "neighbours must be at least 1"),
        ({"neighbours": 2.0}, "neighbours must be a whole number"),
        ({"neighbours": True}, "neighbours must be a whole number"),
        ({"neighbours": 30}, "neighbours must be below the 30 sampled rows.*lower it"),
        ({"neighbours": 10, "sample": 10}, "neighbours must be below the 10 sampled rows"),
        ({"sample": 1}, "sample must be at least 2"),
        ({"sample": "all"}, "sample must be a whole number"),
        ({"random_state": -1}, "random_state must be a non-negative integer"),
        ({"engine": 3}, "engine must be 'local'"),
        ({"data": []}, "data has no views"),
        ({"data": [np.full((30, 2), np.nan)]}, "view0"),
    ],
)
def test_bad_arguments(options, words):
    data = np.random.default_rng(0).normal(size=(30, 4))
    with pytest.raises(InputError, match=words):
        fairnepv.typicality(**{"data": [data], **options})
