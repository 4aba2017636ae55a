"""The operations of a place that deserve more than the array standard."""

import numpy as np
import pytest

from fairnepv.compute import HOST


@pytest.fixture(params=["host", pytest.param("torch", marks=pytest.mark.torch)])
def place(request):
    if request.param == "host":
        return HOST
    torch = pytest.importorskip("torch")
    return pytest.importorskip("fairnepv.compute.device").TorchPlace(torch.device("cpu"))


def test_triangular_factors(place):
    X = np.random.default_rng(0).standard_normal((9, 6))
    L = X.T @ X
    root = place.get(place.inverse_root(place.put(L.copy())))
    np.testing.assert_allclose(np.tril(root, -1), 0.0)
    np.testing.assert_allclose(root.T @ L @ root, np.eye(6), atol=1e-10)
    leading = [np.linalg.det(L[:size, :size]) for size in range(7)]  # that of no rows is 1
    pivots = place.pivots(place.put(L.copy()))
    np.testing.assert_allclose(pivots, np.divide(leading[1:], leading[:-1]))
    for factor in (place.pivots, place.inverse_root):
        assert factor(place.put(L - 100.0 * np.eye(6))) is None


@pytest.mark.parametrize("size", [1, 7, 8, 100, 1000])
@pytest.mark.parametrize("kind", ["distinct", "tied", "closed", "rising", "falling"])
def test_the_highest_are_the_largest_values_ascending(size, kind):
    rng = np.random.default_rng(size)
    values = rng.permutation(size).astype(np.float32)
    if kind == "tied":
        values = np.floor(values / 10.0)
    elif kind == "closed":  # as rows that the rules forbid
        values[rng.random(size) < 0.95] = -np.inf
    elif kind != "distinct":
        values = np.sort(values)[:: 1 if kind == "rising" else -1]
    for n in {1, min(3, size), max(1, size // 9), size}:
        found = HOST.highest(values, n)
        assert (np.diff(found) > 0).all()
        np.testing.assert_array_equal(np.sort(values[found]), np.sort(values)[size - n :])


def test_values_that_are_not_numbers_are_highest_too():
    """Somebody has to find out."""
    values = np.full(100, np.nan)
    assert len(HOST.highest(values, 5)) == 5
    values[:90] = np.arange(90)
    assert set(range(90, 100)) <= set(HOST.highest(values, 12).tolist())
