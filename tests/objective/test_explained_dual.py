"""What dual variables of explained variance prove, against the same matrices formed at length, and
as if a digit were worth a hundredth."""

from dataclasses import replace

import numpy as np
import pytest

import reference
from fairnepv.concave.dual import Dual, row_prices
from fairnepv.objective import explained_bound, shrinkage
from fairnepv.objective.explained_bound import (
    HeldVariance,
    VarianceDual,
    VarianceSlope,
    norm_bound,
)
from fairnepv.views import DenseView
from search_problems import pose, representative

EPS, N, P, K = 0.3, 14, 6, 2
ROWS, LEVEL, MASS = np.array([1, 2, 5, 7, 8, 9, 11]), 0.05, 1e-3
X = np.linspace(0.1, 0.6, len(ROWS))
UNIT, SKEW, OFF = 1e-4, 0.03, 0.02


@pytest.fixture(scope="module")
def Phi():
    return np.random.default_rng(3).standard_normal((N, P)) * np.linspace(1.5, 0.3, P)


@pytest.fixture
def problem(Phi):
    return representative(pose([Phi], K, 0.1, [EPS]))


@pytest.fixture
def view(problem):
    return problem.pool.views[0]


def prices_of(problem, dual, share):
    return row_prices(problem, Dual(np.array([share]), ROWS, (dual,)))


@pytest.fixture
def C(Phi):
    return Phi.T @ Phi / (Phi**2).sum()


@pytest.fixture
def coarse(monkeypatch):
    """Digits are worth much, and axes are far from orthonormal."""
    real = shrinkage.Principal.of
    monkeypatch.setattr(explained_bound, "HALF_UNIT", UNIT)
    monkeypatch.setattr(DenseView, "cancellation", 3.0)
    monkeypatch.setattr(
        shrinkage.Principal,
        "of",
        staticmethod(lambda view, r: replace(real(view, r), skew=SKEW, off=OFF)),
    )


def axes_of(C, r):
    """(r, r) and (p, r): the leading eigenvectors of C, and D on them."""
    lam, V = np.linalg.eigh(C)
    return lam[::-1][:r], V[:, ::-1][:, :r]


def twin(Phi, C, r, level=LEVEL, mass=MASS):
    """Variances along the axes, those beside them, the axes and D."""
    lam, V = axes_of(C, r)
    T = Phi[ROWS] @ V
    M = T.T @ np.diag(X) @ T + mass * np.eye(r)
    D = reference.shrinkage(M, np.diag(lam), EPS, level)
    return lam, axes_of(C, P)[0][r:], V, D


def top(matrix, rest, k):
    return np.sort([*np.linalg.eigvalsh(matrix), *rest])[-k:].sum()


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("r", [3, P])
def test_the_constant_is_above_the_exact_one_by_rounding_alone(r, k, view, Phi, C):
    lam, rest, _, D = twin(Phi, C, r)
    left = np.sqrt(lam)[:, None] * (np.eye(r) - D)
    exact = top(left.T @ left, rest, k)
    found = VarianceDual(LEVEL, X, MASS, r).constant(view, ROWS, k)
    assert exact <= found + 1e-9
    assert found == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("k", [1, 3, 9])
@pytest.mark.parametrize("r", [3, P])
def test_the_constant_allows_for_rounding_of_every_product(r, k, view, Phi, C, coarse):
    lam, rest, _, D = twin(Phi, C, r)
    left = np.sqrt(lam)[:, None] * (np.eye(r) - D)
    unit, size = 4.0 * (r + 16) * UNIT, np.linalg.norm(D)
    whole = top(left.T @ left, rest, k) + 2.0 * k * unit * (left**2).sum()
    length = np.sqrt(whole) + unit * np.sqrt(lam.sum()) * (1.0 + size)
    length = (length + 2.0 * np.sqrt(lam[0]) * SKEW * size) * np.sqrt(1.0 + SKEW)
    expected = (length**2 + OFF * np.sqrt(min(k, P))) * (1.0 + 64.0 * UNIT)
    found = VarianceDual(LEVEL, X, MASS, r).constant(view, ROWS, k)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("r", [3, P])
def test_prices_are_above_the_exact_ones_by_rounding_alone(r, share, problem, Phi, C):
    lam, _, V, D = twin(Phi, C, r)
    J = np.sqrt(lam)[:, None] * D @ V.T / np.sqrt(EPS)
    exact = share * ((Phi @ J.T) ** 2).sum(axis=1)
    prices = prices_of(problem, VarianceDual(LEVEL, X, MASS, r), share)
    assert (exact <= prices + 1e-9).all()
    np.testing.assert_allclose(prices, exact, rtol=1e-6)


@pytest.mark.parametrize("r", [3, P])
def test_prices_allow_for_rounding_of_every_product(r, problem, view, Phi, C, coarse):
    lam, _, V, D = twin(Phi, C, r)
    size, unit = np.linalg.norm(D), 4.0 * (P + 16) * UNIT * view.cancellation
    J = np.sqrt(lam)[:, None] * D @ V.T / np.sqrt(EPS)
    products = np.linalg.norm(J) + np.sqrt(lam.sum() * r / EPS) * size
    skewed = 2.0 * np.sqrt(lam[0]) * SKEW * size
    error = unit * products + skewed * np.sqrt((1.0 + SKEW) / EPS)
    dual = VarianceDual(LEVEL, X, MASS, r)
    pricing = dual.pricing(view, ROWS, 0.7)
    assert not pricing.flat
    assert pricing.error == pytest.approx(error, rel=1e-6)
    assert pricing.unit == pytest.approx(unit)
    raised = np.linalg.norm(Phi @ J.T, axis=1) + error * np.linalg.norm(Phi, axis=1)
    prices = prices_of(problem, dual, 0.7)
    np.testing.assert_allclose(prices, 0.7 * raised**2 * (1.0 + 8.0 * unit), rtol=1e-6)


def test_a_multiple_of_the_identity_needs_no_axes(problem, view, Phi, coarse):
    """(1 - d)^2 + d^2 t / eps, with the d that is best for norms that sum to t."""
    norms = (Phi**2).sum(axis=1)
    t = np.sort(norms)[-K:].sum()
    dual = VarianceDual.by_norms(view, K)
    d = EPS / (t + EPS)
    assert dual.constant(view, ROWS, K) == pytest.approx((1 - d) ** 2 * (1 + 8 * (P + 16) * UNIT))
    pricing, unit = dual.pricing(view, ROWS, 0.7), 4.0 * (P + 16) * UNIT * view.cancellation
    assert pricing.flat
    expected = 0.7 * d**2 * norms / EPS * (1.0 + 4.0 * unit)
    np.testing.assert_allclose(pricing.by_norms(norms), expected)
    np.testing.assert_allclose(prices_of(problem, dual, 0.7), expected)


def test_norms_alone_bound_the_share(view, Phi, coarse):
    t = np.sort((Phi**2).sum(axis=1))[-K:].sum()
    margin = 1.0 + 8.0 * (P + K + 8) * UNIT * view.cancellation
    assert norm_bound(view, K) == pytest.approx(t / (t + EPS) * margin)


def slope_of(x, k, rest=0):
    rng = np.random.default_rng(5)
    Z = rng.standard_normal((9, 4)) * 30.0
    held = HeldVariance(0.5, np.ones(9), Z, np.array([0.8, 0.5, 0.3, 0.1]), np.full(rest, 0.01))
    return Z, VarianceSlope.at(held, x, k)


def test_directions_without_rows_get_a_little_mass_where_rank_is_a_limit():
    x = np.linspace(0.1, 0.5, 9)
    Z, slope = slope_of(x, 3, rest=2)
    mean = np.trace(Z.T @ np.diag(x) @ Z) / 4
    assert slope.mass == pytest.approx(1e-6 * mean, rel=1e-9)
    for k, rest in ((4, 0), (9, 0), (6, 2)):
        assert slope_of(x, k, rest)[1].mass == 0.0
    assert slope_of(x, 5, rest=2)[1].mass > 0.0
    assert slope_of(np.zeros(9), 3)[1].mass == 0.0


def test_what_fits_a_view_are_numbers_that_are_not_negative_and_axes_that_it_has(view):
    sound = VarianceDual(0.0, np.zeros(len(ROWS)), 0.0, P)
    assert sound.fits(view, ROWS, K)
    assert replace(sound, axes=0).fits(view, ROWS, K)
    for other in (
        replace(sound, axes=P + 1),
        replace(sound, axes=1.5),
        replace(sound, level=-1e-9),
        replace(sound, mass=-1e-9),
        replace(sound, mass=np.inf),
        replace(sound, x=np.full(len(ROWS), -1e-9)),
        replace(sound, x=np.full(len(ROWS), np.nan)),
        replace(sound, x=np.zeros(len(ROWS) - 1)),
    ):
        assert not other.fits(view, ROWS, K)


def test_of_a_view_that_acts_through_targets_there_are_no_more_axes_than_rows(Phi, monkeypatch):
    from fairnepv.views import moments

    monkeypatch.setattr(moments, "WIDEST_MOMENTS", 0)
    wide = representative(pose([Phi], K, 0.1, [EPS])).pool.views[0]
    few = ROWS[:3]
    assert VarianceDual(LEVEL, X[:3], MASS, 3).fits(wide, few, K)
    assert not VarianceDual(LEVEL, X[:3], MASS, 4).fits(wide, few, K)


def test_what_was_made_for_one_view_is_not_taken_for_another(view, Phi):
    dual = VarianceDual(LEVEL, X, MASS, P)
    here = dual.constant(view, ROWS, K)
    assert dual.constant(view, ROWS, K) == here
    other = representative(pose([2.0 * Phi], K, 0.1, [EPS])).pool.views[0]
    fresh = VarianceDual(LEVEL, X, MASS, P).constant(other, ROWS, K)
    assert dual.constant(other, ROWS, K) == fresh != here
