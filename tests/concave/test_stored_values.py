"""What is read from files that others may have written is of its type, or refused by name."""

import math

import numpy as np
import pytest

from fairnepv.concave import terms


@pytest.mark.parametrize("value", [3, True, None, "3", 3.0])
def test_a_value_of_another_type_is_refused(value):
    kind = type(value)
    assert terms.typed({"a": value}, "a", kind) is value
    other = str if kind is not str else int
    with pytest.raises(ValueError, match=f"a must be {other.__name__}, not"):
        terms.typed({"a": value}, "a", other)


def test_numbers_are_whole_or_real_and_never_truth_values():
    assert terms.number({"a": 3}, "a") == 3.0
    assert isinstance(terms.number({"a": 3}, "a"), float)
    assert terms.numbers({"a": {"x": 1, "y": 2.5}}, "a") == {"x": 1.0, "y": 2.5}
    assert terms.number_list({"a": [1, 2.5]}, "a") == (1.0, 2.5)
    for read, value in [
        (terms.number, True),
        (terms.numbers, {"x": "1"}),
        (terms.number_list, [1, None]),
    ]:
        with pytest.raises(ValueError, match="a must be a number"):
            read({"a": value}, "a")
    with pytest.raises(ValueError, match="a must be list"):
        terms.number_list({"a": (1, 2)}, "a")


def test_whole_numbers_are_a_vector():
    for kind in ("u1", "i4"):
        found = terms.whole_numbers({"a": np.arange(3, dtype=kind)}, "a")
        assert found.dtype == np.int64
        assert found.tolist() == [0, 1, 2]
    for wrong in (np.arange(3.0), np.zeros((2, 2), dtype=int), np.array([True, False])):
        with pytest.raises(ValueError, match="a must be whole numbers"):
            terms.whole_numbers({"a": wrong}, "a")


def test_real_numbers_are_finite_and_of_their_shape():
    array = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    for shape in (None, (2, 3), (-1, 3), (2, -1)):
        found = terms.real_numbers({"a": array}, "a", shape)
        assert found.dtype == np.float64
        assert found.tolist() == array.tolist()
    for other in ((3, 2), (2, 2), (3, -1), (6,), (-1,), (2, 3, 1)):
        with pytest.raises(ValueError, match="a has the wrong shape"):
            terms.real_numbers({"a": array}, "a", other)
    with pytest.raises(ValueError, match="a must be numbers"):
        terms.real_numbers({"a": np.array(["1"])}, "a")
    with pytest.raises(ValueError, match="a must be numbers"):
        terms.real_numbers({"a": np.array([True])}, "a")


def test_gaps_are_nan_and_only_where_they_may_be():
    gap = np.array([1.0, np.nan])
    assert math.isnan(terms.real_numbers({"a": gap}, "a", gaps=True)[1])
    with pytest.raises(ValueError, match="a must be finite numbers"):
        terms.real_numbers({"a": gap}, "a")
    with pytest.raises(ValueError, match="a must be finite numbers"):
        terms.real_numbers({"a": np.array([np.inf, 1.0])}, "a", gaps=True)
    with pytest.raises(ValueError, match="a must be finite numbers"):
        terms.real_numbers({"a": np.array([np.longdouble("1e400")])}, "a")


def test_texts_are_a_list_of_texts():
    assert terms.texts({"a": ["x", ""]}, "a") == ("x", "")
    assert terms.texts({"a": []}, "a") == ()
    with pytest.raises(ValueError, match="a must be texts"):
        terms.texts({"a": ["x", 1]}, "a")
    with pytest.raises(ValueError, match="a must be list"):
        terms.texts({"a": "x"}, "a")


@pytest.mark.parametrize(
    ("rows", "sound"),
    [
        ([], True),
        ([0, 4], True),
        ([4, 0, 2], True),
        ([0, 5], False),
        ([-1], False),
        ([2, 2], False),
    ],
)
def test_rows_are_of_the_pool_and_each_there_once(rows, sound):
    assert terms.are_rows(np.array(rows, dtype=np.int64), 5) is sound
