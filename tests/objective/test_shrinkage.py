"""The D that bounds explained variance, against its twin, and where it is computed."""

import numpy as np
import pytest

import reference
from fairnepv.compute import HOST
from fairnepv.objective import shrinkage as shrinkage_module
from fairnepv.objective.explained_bound import HeldVariance, VarianceSlope
from fairnepv.objective.shrinkage import axes_worth, shrinkage, shrinkage_for, sound_shrinkage
from search_problems import pose, representative


def place_of(name):
    if name == "host":
        return HOST
    from fairnepv.compute.device import TorchEngine

    return TorchEngine("cpu").place


PLACES = pytest.mark.parametrize(
    "place", ["host", pytest.param("torch", marks=pytest.mark.torch)], indirect=True
)


@pytest.fixture
def place(request):
    return place_of(request.param)


def moments(seed, r):
    """M of some rows, and the diagonal of R with R^T R = C."""
    rng = np.random.default_rng(seed)
    roots = np.sort(rng.uniform(0.05, 1.0, r))[::-1]
    Z = rng.standard_normal((3 * r, r)) * roots
    return Z.T @ Z, roots / np.linalg.norm(roots)


@PLACES
@pytest.mark.parametrize("r", [5, 40, 300])  # of which the last is by squares
def test_the_matrix_and_its_level_are_those_of_the_twin(place, r):
    M, roots = moments(r, r)
    C, k = np.diag(roots**2), max(1, r // 3)
    X = roots[:, None] * M
    made = shrinkage_for(place.put(M), place.put(X), 2.0, k, place)
    level = reference.shrinkage_level(M, C, 2.0, k)
    assert made.level == pytest.approx(level, rel=1e-6)
    expected = reference.shrinkage(M, C, 2.0, made.level)
    np.testing.assert_allclose(place.get(made.D), expected, atol=1e-7)
    again = shrinkage(place.put(M), place.put(X), 2.0, made.level, place)
    np.testing.assert_allclose(place.get(again.D), expected, atol=1e-7)
    rough = shrinkage_for(place.put(M), place.put(X), 2.0, k, place, single=True)
    np.testing.assert_allclose(place.get(rough.D), expected, atol=2e-3)


@PLACES
def test_numbers_that_make_no_matrix_prove_with_none(place):
    M = np.full((3, 3), np.nan)
    assert not sound_shrinkage(place.put(M), place.put(M), 1.0, 1.0, place).any()
    with pytest.raises(np.linalg.LinAlgError):
        place.solve(place.put(np.zeros((2, 2))), place.put(np.eye(2)))


@PLACES
def test_a_slope_is_the_same_at_every_place(place):
    rng = np.random.default_rng(2)
    roots, x = np.sort(rng.uniform(0.1, 1.0, 12))[::-1], rng.uniform(0.0, 0.4, 30)
    Z = rng.standard_normal((30, 12))
    here = VarianceSlope.at(HeldVariance(0.5, np.ones(30), Z, roots), x, 4)
    held = HeldVariance(0.5, np.ones(30), place.put(Z.astype(np.float32)), roots, place=place)
    there = VarianceSlope.at(held, x, 4)
    assert there.value == pytest.approx(here.value, rel=1e-4)
    np.testing.assert_allclose(there.prices, here.prices, rtol=1e-2)
    assert there.least <= here.value


def uneven(variances, n=300):
    """A view whose rows have such squared singular values, in a rotated basis."""
    rng = np.random.default_rng(4)
    U, _ = np.linalg.qr(rng.standard_normal((n, len(variances))))
    V, _ = np.linalg.qr(rng.standard_normal((len(variances), len(variances))))
    return U * np.sqrt(variances) @ V.T


def worth(variances, k, eps):
    problem = representative(pose([uneven(np.asarray(variances))], k, 0.1, [eps]))
    return axes_worth(problem.pool.views[0], k)


def test_axes_that_can_have_no_part_in_D_are_left_out():
    """Those with less than half of the variance that bounds the others, at an even x."""
    k, eps, n = 6, 0.02, 300
    variances = 30.0 * 0.93 ** np.arange(160)
    C = np.diag(variances / variances.sum())
    level = reference.shrinkage_level(np.diag(variances * k / n), C, eps, k)
    expected = int((np.diag(C) > level / 2.0).sum())
    assert k + 5 < expected < 155
    assert worth(variances, k, eps) == expected


@pytest.mark.parametrize("more", [1, 2, 5])
def test_axes_of_one_variance_but_for_rounding_are_all_worth_it_or_none(more):
    """Though some of them lie above the level and some below."""
    k, eps, n = 6, 0.02, 300
    variances = 30.0 * 0.93 ** np.arange(160)
    at = worth(variances, k, eps)
    lying = 1e-8 * np.arange(more + 1)[::-1] - 0.5e-8
    for _ in range(60):  # the level hardly depends on them
        C = np.diag(variances / variances.sum())
        level = reference.shrinkage_level(np.diag(variances * k / n), C, eps, k)
        variances[at : at + more + 1] = level / 2.0 * variances.sum() * (1.0 + lying)
    above = int((variances / variances.sum() > level / 2.0).sum())
    assert at < above < at + more + 1
    assert worth(variances, k, eps) == at + more + 1


def test_few_axes_are_all_kept():
    assert worth(30.0 * 0.5 ** np.arange(40), 6, 0.02) == 40
    assert worth(30.0 * 0.93 ** np.arange(160), 160, 0.02) == 160


def test_eigenvectors_say_how_far_they_are_off(monkeypatch):
    """As if a digit were worth a thousandth."""
    unit = 1e-3
    monkeypatch.setattr(shrinkage_module, "HALF_UNIT", unit)
    Phi = np.random.default_rng(6).standard_normal((30, 7))
    view = representative(pose([Phi], 3, 0.1, [0.2])).pool.views[0]
    C = Phi.T @ Phi / (Phi**2).sum()
    lam, V, skew, off = shrinkage_module.eigenvectors(view)
    np.testing.assert_allclose(lam, np.linalg.eigvalsh(C)[::-1], atol=1e-12)
    np.testing.assert_allclose(V * lam @ V.T, C, atol=1e-12)
    allowance = 4.0 * (7 + 8) ** 1.5 * unit
    assert skew == pytest.approx(allowance, rel=1e-9)
    assert off == pytest.approx(allowance * np.linalg.norm(C), rel=1e-9)
    axes = shrinkage_module.Principal.of(view, 3)
    assert (axes.V.shape, axes.lam.tolist()) == ((7, 3), lam[:3].tolist())
    assert axes.rest.tolist() == lam[3:].tolist()
    np.testing.assert_allclose(axes.roots**2, lam[:3])
    assert axes.skewed(0.5) == pytest.approx(np.sqrt(lam[0]) * skew)


@pytest.mark.parametrize("eps", [0.05, 2.0])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_level_is_where_the_trace_is_k(k, eps):
    rng = np.random.default_rng(k)
    s, m = rng.uniform(0.1, 2.0, 9), rng.uniform(0.0, 1.0, 9)
    level = shrinkage_module._level(s, m, eps, k)
    y = np.clip((s / np.sqrt(level) - m) / eps, 0.0, 1.0)
    assert y.sum() == pytest.approx(k, abs=1e-9)
    assert shrinkage_module._level(s[:k], m[:k], eps, k) == 0.0
    faint = np.concatenate([s[:k], np.full(3, 1e-17)])
    assert shrinkage_module._level(faint, np.ones(k + 3), eps, k) == 0.0


def test_of_few_axes_small_variances_have_all_digits():
    """Which a square of the matrix would lose."""
    rng = np.random.default_rng(8)
    s = np.geomspace(1.0, 1e-12, 6)
    U, V = (np.linalg.qr(rng.standard_normal((6, 6)))[0] for _ in range(2))
    power, found, vectors = shrinkage_module._half_power((U * s) @ V.T, HOST)
    np.testing.assert_allclose(np.sort(found)[::-1], s, rtol=1e-3)
    np.testing.assert_allclose(power, (V * s) @ V.T, atol=1e-15)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-12)


def test_a_matrix_with_one_number_that_is_none_proves_with_none(monkeypatch):
    M = np.diag([2.0, 1.0])
    sound = sound_shrinkage(M, M, 1.0, 0.0)
    assert sound.any()
    spoilt = np.where(np.eye(2, dtype=bool), sound, np.nan)
    made = shrinkage_module.Shrinkage(spoilt, np.eye(2), 0.0)
    monkeypatch.setattr(shrinkage_module, "shrinkage", lambda *_: made)
    assert not sound_shrinkage(M, M, 1.0, 0.0).any()
