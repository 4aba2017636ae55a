"""`local_features`: products of rows are the similarities that it promises."""

import numpy as np
import pytest
import scipy.sparse as sp

import fairnepv
import reference
from fairnepv import InputError, KernelView, LocalEngine


def views(n: int = 40):
    rng = np.random.default_rng(2)
    return [rng.standard_normal((n, p)) + 3.0 for p in (3, 6)]


@pytest.mark.parametrize("company", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_products_are_similarities(company, power):
    """Where every row is a landmark, to float32 and to what is too faint to be kept."""
    Phis = views()
    found = fairnepv.local_features(Phis, company=company, power=power)
    assert list(found) == ["view0", "view1"]
    for q, F in enumerate(found.values()):
        expected = reference.nearness(Phis, q, company, power)
        np.testing.assert_allclose(F.astype(float) @ F.T, expected, atol=1e-4)
        assert F.dtype == np.float32


@pytest.mark.parametrize("store", [sp.csr_array, lambda X: KernelView(X @ X.T)])
def test_views_of_any_kind(store):
    Phis = views()
    dense = fairnepv.local_features(Phis)
    other = fairnepv.local_features([store(Phi) for Phi in Phis])
    for name, F in dense.items():
        G = other[name].astype(float)
        np.testing.assert_allclose(G @ G.T, F.astype(float) @ F.T, atol=1e-4)


def test_few_landmarks_stand_for_many_and_are_always_the_same():
    Phis = views(300)
    found = fairnepv.local_features(Phis, landmarks=60)["view0"]
    again = fairnepv.local_features(Phis, landmarks=60, engine=LocalEngine(17))["view0"]
    np.testing.assert_allclose(found, again, atol=1e-5)
    expected = reference.nearness(Phis, 0, 0.8, 2)
    assert np.abs(found @ found.T - expected).mean() < 0.02


def test_a_row_at_the_mean_is_near_to_all_alike():
    X = np.vstack([np.eye(4), -np.eye(4), np.zeros(4)])
    F = fairnepv.local_features({"x": X}, power=1)["x"].astype(float)
    np.testing.assert_allclose((F @ F.T)[-1], 0.5, atol=1e-4)


def test_items_to_train_on():
    found = fairnepv.select(
        fairnepv.local_features(views(60)), 6, objective="representative", eps=0.3
    )
    assert len(set(found.indices)) == 6
    assert found.upper_bound >= found.fair_score


@pytest.mark.parametrize(
    ("option", "value"), [("company", 1.5), ("company", "much"), ("power", 0), ("landmarks", 0)]
)
def test_wrong_options(option, value):
    with pytest.raises(InputError, match=option):
        fairnepv.local_features(views(), **{option: value})
