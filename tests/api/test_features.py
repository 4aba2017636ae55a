"""Views of attributes, of texts and of several vectors per item."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import fairnepv
from refusals import refused

N = 40
RNG = np.random.default_rng(1)
AGE = RNG.integers(18, 80, N)
CITY = [["Berne", "Lima", None][i % 3] for i in range(N)]
TABLE = {"age": AGE, "city": CITY, "member": AGE > 40, "day": AGE.astype("M8[D]")}


def test_attributes_are_standardised_and_one_hot():
    rows = fairnepv.attributes(pa.table(TABLE), ["age", "city", "member"])
    assert rows.shape == (N, 1 + 3 + 2)
    np.testing.assert_allclose(rows[:, 0], (AGE - AGE.mean()) / AGE.std())
    for i in range(N):
        for j in range(N):  # rows that differ in a category are at a distance of 1 there
            apart = ((rows[i, 1:4] - rows[j, 1:4]) ** 2).sum()
            assert apart == pytest.approx(0.0 if CITY[i] == CITY[j] else 1.0)
    np.testing.assert_array_equal(rows[:, 4] > 0, AGE <= 40)


def test_attributes_of_one_column_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"city": pandas.Categorical(CITY)})
    rows = fairnepv.attributes(frame, "city")
    np.testing.assert_array_equal(rows, fairnepv.attributes(TABLE, ["city"]))


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["city"], {"missing": "refuse"}, "column 'city' has no value in 13 rows: 2, 5, 8"),
        (["day"], {}, "column 'day' holds dates"),
        (["cty"], {}, "did you mean 'city'"),
        ([], {}, "columns is empty"),
        (5, {}, "columns must be the name of a column or a list of names, not 5"),
        ([0], {}, "columns must be the name of a column or a list of names, not [0]"),
        (["age", "few"], {}, "but 'age' has 40 and 'few' has 3"),
        (["gap"], {}, "column 'gap' has no number in 1 row: 3"),
        (["same"], {}, "column 'same' has the same number in every row"),
        (["names"], {}, "1,001 different values"),
        (["city"], {"missing": "drop"}, "missing must be 'category' or 'refuse'"),
    ],
)
def test_attributes_that_are_refused(columns, options, said):
    gap = np.where(np.arange(N) == 3, np.nan, 1.0 * np.arange(N))
    table = {**TABLE, "gap": gap, "same": np.ones(N), "few": np.arange(3)}
    if columns == ["names"]:
        table = {"names": [f"name {i}" for i in range(1001)]}
    assert said in refused(fairnepv.attributes, table, columns, **options)


def test_decimals_are_numbers():
    """They were categories, one for every amount."""
    amounts = pa.array([Decimal(int(age)) / 4 for age in AGE], pa.decimal128(6, 2))
    found = fairnepv.attributes(pa.table({"amount": amounts}), "amount")
    np.testing.assert_allclose(found, fairnepv.attributes(TABLE, "age"), atol=1e-12)
    gap = pa.array([None, Decimal(1), Decimal(2)], pa.decimal128(6, 2))
    assert "no number in 1 row: 0" in refused(fairnepv.attributes, pa.table({"x": gap}), "x")


@pytest.mark.parametrize("scale", [1e-200, 1e306])
def test_attributes_of_any_size(scale):
    """Their squares are no numbers of float64."""
    found = fairnepv.attributes({"age": AGE * scale}, "age")
    np.testing.assert_allclose(found, fairnepv.attributes(TABLE, "age"), rtol=1e-9)


def test_a_view_of_few_categories_is_warned_of_and_widened():
    table = {"e": RNG.standard_normal((N, 20)), "age": AGE, "city": CITY}
    who = fairnepv.attributes(table, ["age", "city"])
    with pytest.warns(fairnepv.RankWarning, match="exceeds the rank 4 of view 'who'"):
        fairnepv.select(table, 8, views={"e": "e", "who": who})
    wide = fairnepv.widened(who, 64)
    found = fairnepv.select(table, 8, views={"e": "e", "who": wide})  # without a warning
    assert set(found.scores) == {"e", "who"}
    cities = [CITY[i] for i in found.indices]
    assert len(set(cities)) == 3


def test_widened_rows_are_near_as_the_kernel_has_it():
    rows = RNG.standard_normal((30, 3))
    wide = fairnepv.widened(rows, 20_000, bandwidth=1.5).astype(float)
    squares = ((rows[:, None] - rows[None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(wide @ wide.T, np.exp(-squares / 4.5), atol=0.04)
    np.testing.assert_array_equal(wide, fairnepv.widened(rows, 20_000, bandwidth=1.5))
    usual = fairnepv.widened(rows, 20_000).astype(float)
    median = np.median(np.sqrt(squares[np.triu_indices(30, 1)]))
    np.testing.assert_allclose(usual @ usual.T, np.exp(-squares / (2 * median**2)), atol=0.04)
    assert "most rows are equal" in refused(fairnepv.widened, np.ones((9, 2)), 8)
    assert "features must be an even number, not 65" in refused(fairnepv.widened, rows, 65)


@pytest.mark.parametrize("off", [1e4, 1e9])
def test_bandwidth_does_not_depend_on_where_rows_are(off):
    """Lengths cancelled: rows that are far from zero were told to be equal."""
    rows = RNG.standard_normal((30, 2))
    near, far = (fairnepv.widened(x, 2000).astype(float) for x in (rows, rows + off))
    np.testing.assert_allclose(far @ far.T, near @ near.T, atol=1e-5)


def test_texts_are_tf_idf():
    words = ["red fox", "red hen runs", "blue hen", "blue fox runs", "green hen fox", "green runs"]
    rows = fairnepv.texts(pa.array(words))
    assert rows.shape == (6, 6)
    np.testing.assert_allclose((rows.toarray() ** 2).sum(axis=1), 1.0, rtol=1e-6)
    similar = (rows @ rows.T).toarray()
    assert similar[0, 2] == 0.0 < similar[0, 1]
    alone = [*words, "lonely words"]
    assert "no word that other rows have in 1 row: 6" in refused(fairnepv.texts, alone)
    assert "column must hold texts" in refused(fairnepv.texts, [1, 2])
    assert "has no value in 1 row(s), the first is row 1" in refused(fairnepv.texts, ["a", None])


@pytest.mark.parametrize("how", ["mean", "max"])
def test_pooled_by_id(how):
    ids = ["b", "a", "b", "c", "a", "b"]
    rows = RNG.standard_normal((6, 3))
    names, found = fairnepv.pooled(rows, ids, how=how)
    assert names.tolist() == ["b", "a", "c"]
    for name, row in zip(names, found, strict=True):
        own = rows[[i for i, other in enumerate(ids) if other == name]]
        np.testing.assert_allclose(row, own.mean(axis=0) if how == "mean" else own.max(axis=0))


@pytest.mark.parametrize("how", ["mean", "max"])
def test_pooled_lists_of_vectors(how):
    crops = [RNG.standard_normal((i % 4, 3)).tolist() for i in range(N)]
    column = pa.chunked_array([pa.array(crops[:11]), pa.array(crops[11:])])
    found = fairnepv.pooled(column, how=how)
    for row, own in zip(found, crops, strict=True):
        if own:
            expected = np.mean(own, axis=0) if how == "mean" else np.max(own, axis=0)
            np.testing.assert_allclose(row, expected)
        else:
            assert np.isnan(row).all()  # which select may leave out
    apart = [pa.array(part, column.type) for part in (crops[:1], crops[1:], [None])]
    np.testing.assert_array_equal(
        fairnepv.pooled(pa.chunked_array(apart), how=how), np.vstack([found, np.full(3, np.nan)])
    )
    sliced = fairnepv.pooled(column[5:20], how=how)
    np.testing.assert_array_equal(sliced, found[5:20])


def test_pooled_that_are_refused():
    assert "ids must be one per row, 4 in all, not 3" in refused(
        fairnepv.pooled, np.ones((4, 2)), ["a", "b", "c"]
    )
    assert "vectors of different lengths: 2 in row 0 and 1 in row 1" in refused(
        fairnepv.pooled, [[[1.0, 2.0]], [[1.0]]]
    )
    parts = pa.chunked_array([[[[1.0, 2.0]]], [[], [[1.0]]]])
    assert "different lengths: 2 before row 2 and 1 there" in refused(fairnepv.pooled, parts)
    assert "no vector in any row" in refused(fairnepv.pooled, parts[1:2])
    assert "must hold a list of vectors per row" in refused(fairnepv.pooled, [[1.0, 2.0]])
    assert "how must be" in refused(fairnepv.pooled, [[[1.0]]], how="sum")
