"""What a hostile review found in tables, and in what is made of results."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import fairnepv
from fairnepv import InputError

rng = np.random.default_rng(0)
X, Y = rng.standard_normal((30, 4)), rng.standard_normal((30, 5))
QUICK = {"effort": "fast", "certify": False}


def test_rows_of_a_view_in_another_order_are_not_taken():
    order = rng.permutation(30)
    data = {"a": X, "b": Y[order]}
    chosen = fairnepv.select(data, 4, ids={"a": np.arange(30), "b": order}, **QUICK)
    with pytest.raises(InputError, match="rows of view 'b' were found by their ids"):
        chosen.apply(data)
    np.testing.assert_array_equal(chosen.apply(X), X[chosen.indices])


def test_items_of_a_list_in_a_mapping_are_rows_whatever_they_are():
    photos = list(rng.random((30, 6, 6)))
    table = {"emb": X, "photo": photos}
    chosen = fairnepv.select(table, 4, views={"v": "emb"}, **QUICK)
    taken = chosen.apply(table)["photo"]
    assert [id(one) for one in taken] == [id(photos[i]) for i in chosen.indices]


def test_missing_rows_of_a_sparse_view_are_not_forgotten():
    gaps = X.copy()
    gaps[3] = np.nan
    data = {"a": sp.csr_array(gaps), "b": Y}
    chosen = fairnepv.select(data, 4, missing="drop", **QUICK)
    new = {"a": sp.csr_array(X[:5] + 1), "b": Y[:5] + 1}
    with pytest.raises(InputError, match="view 'a' has rows that were missing"):
        fairnepv.extend(chosen, new, 2, missing="drop")


def test_a_set_is_scored_about_the_means_that_it_was_chosen_about():
    data = {"a": X + 3, "b": Y}
    chosen = fairnepv.select(data, 4, center=True, **QUICK)
    alone = fairnepv.score(data, chosen.indices, center=True, calibration="trace")
    assert fairnepv.score(data, chosen, calibration="trace").scores == alone.scores


def test_lists_that_lie_anywhere_are_rows():
    kind = pa.list_view(pa.float64())
    data = pa.table({"e": pa.array(X.tolist(), kind)})
    found = fairnepv.select(data, 4, views={"a": "e"}, **QUICK)
    np.testing.assert_array_equal(found.indices, fairnepv.select({"a": X}, 4, **QUICK).indices)
