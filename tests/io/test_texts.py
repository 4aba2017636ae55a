"""Texts as arrays: none is as wide as the longest where that is waste, and none loses its end."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairnepv
from fairnepv.errors import InputError
from fairnepv.io import texts
from fairnepv.io.conversion import convert
from fairnepv.io.read import read_ids
from fairnepv.views.arrays import plain_array

N = 40
ROWS = np.random.default_rng(0).standard_normal((N, 6))
NAMES = [f"i{i}" for i in range(N - 1)] + ["x" * 1000]


@pytest.fixture(autouse=True)
def narrow(tmp_path, monkeypatch):
    """In an empty folder, where even these few are too wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(texts, "NARROW", 1 << 10)


def write_names(ending: str) -> str:
    path = Path(f"ids{ending}")
    if ending == ".parquet":
        pq.write_table(pa.table({"id": NAMES}), path)
    elif ending == ".json":
        path.write_text(json.dumps(NAMES))
    else:
        path.write_text("\n".join(["id", *NAMES] if ending == ".csv" else NAMES))
    return str(path)


@pytest.mark.parametrize("ending", [".parquet", ".json", ".csv", ".txt"])
def test_one_long_id_does_not_widen_the_others(ending):
    ids = read_ids(write_names(ending))
    assert ids.dtype.kind == "T"
    assert ids.tolist() == NAMES


def test_ordinary_ids_are_of_one_width():
    assert texts.text_array(NAMES[:-1], "ids").dtype == "<U3"
    assert texts.text_array([], "ids").shape == (0,)
    assert plain_array(("a", "bc"), "ids").dtype == "<U2"


def test_long_ids_choose_what_short_ones_do():
    """Everything that is done with ids: alignment, include, groups, explanations, differences."""
    short = [*NAMES[:-1], "x"]
    order = np.random.default_rng(1).permutation(N)
    results = []
    for names in (short, NAMES):
        ids = {"a": names, "b": [names[i] for i in order]}
        results.append(
            fairnepv.select(
                {"a": ROWS, "b": ROWS[order]}, 4, ids=ids, include=[names[-1], "i3"], exclude=["i4"]
            )
        )
    one, two = results
    assert two.ids.dtype.kind == "T"
    np.testing.assert_array_equal(one.indices, two.indices)
    assert two.ids.tolist() == [NAMES[i] for i in two.indices]
    explained = fairnepv.explain(two)
    assert [pick["id"] for pick in explained.rows()] == two.ids.tolist()
    assert fairnepv.diff(one, two).jaccard == pytest.approx(3 / 5)  # one item goes by another name
    assert fairnepv.diff(two, two).jaccard == 1.0


def test_long_labels_are_groups():
    labels = ["a", "b", "c" * 5000] * (N // 3) + ["a"]
    chosen = fairnepv.select(ROWS, 4, groups=labels, quotas={"c" * 5000: 3})
    assert sum(labels[i] == "c" * 5000 for i in chosen.indices) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ids": [*NAMES[1:], "i1"]}, "the first is 'i1'"),
        ({"ids": NAMES, "include": ["stranger"]}, "for example 'stranger'"),
        ({"ids": NAMES, "include": ["i1"], "exclude": ["i1"]}, "item 'i1' is in include and in"),
        ({"ids": NAMES, "include": [3]}, "for example '3'"),
        ({"ids": {"view0": NAMES, "b": NAMES}}, "ids names views"),
    ],
)
def test_long_ids_are_refused_as_short_ones_are(options, words):
    with pytest.raises(InputError, match=words):
        fairnepv.select(ROWS, 4, **options)


def test_long_ids_are_not_converted():
    np.save("a.npy", ROWS)
    with pytest.raises(InputError, match="the longest has 1,000 letters"):
        convert(["a.npy"], "out", ids=write_names(".txt"))


@pytest.mark.parametrize("array", [list, tuple, lambda x: np.array(x, dtype=object)])
@pytest.mark.parametrize("what", ["ids", "include"])
def test_a_nul_at_the_end_is_refused(array, what):
    """'a' and 'a\\0' are one to NumPy."""
    names = array(["a\0", "a", *NAMES[: N - 2]])
    options = {what: names} if what != "include" else {"ids": NAMES, "include": array(["i0\0"])}
    expected = rf"{what} has '(a|i0)\\x00' in row 0, which ends in a NUL"
    with pytest.raises(InputError, match=expected):
        fairnepv.select(ROWS, 4, **options)


@pytest.mark.parametrize("array", [list, tuple, lambda x: np.array(x, dtype=object)])
def test_groups_that_differ_by_a_nul_are_two(array):
    quotas = {"a": 1, "a\0": (3, None)}
    groups = array(["a", "a\0"] * (N // 2))
    picks = fairnepv.select(ROWS, 4, groups=groups, quotas=quotas, effort="fast").indices
    assert sorted(picks % 2) == [0, 1, 1, 1]


def test_a_nul_in_a_column_is_refused_by_file_and_row():
    pq.write_table(pa.table({"id": ["b", "a", "a\0"]}), "t.parquet")
    with pytest.raises(InputError, match=r"t.parquet, column 'id' has 'a\\x00' in row 2"):
        read_ids("t.parquet")


def test_half_a_character_is_refused():
    with pytest.raises(InputError, match="ids has half a character"):
        texts.text_array([*NAMES, "\ud800"], "ids")
