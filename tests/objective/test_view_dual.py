"""What dual variables of log-determinants prove, against the same matrices formed at length, and as
if a digit were worth a hundredth."""

from types import SimpleNamespace

import numpy as np
import pytest

import reference
from fairnepv import KernelView
from fairnepv.concave.dual import Dual, row_prices
from fairnepv.objective import majorant
from fairnepv.objective.held import HeldRows
from fairnepv.objective.majorant import ViewDual, conjugate, least_gamma
from fairnepv.views import DenseView
from search_problems import pose

EPS, N, P, R = 0.3, 14, 6, 3
ROWS = np.array([1, 2, 5, 7, 8, 9, 11])
LEVEL, UNIT = 1.5, 2e-5


@pytest.fixture(scope="module")
def Phi():
    return np.random.default_rng(3).standard_normal((N, P)) * np.linspace(1.5, 0.3, P)


@pytest.fixture
def coarse(monkeypatch):
    monkeypatch.setattr(majorant, "HALF_UNIT", UNIT)
    for kind in (DenseView, KernelView):
        monkeypatch.setattr(kind, "cancellation", 1.5)


def combination(Phi, columns=R, most=1.2):
    """B (m, r) for which W = level I - Phi_T^T B B^T Phi_T is positive definite."""
    B = np.random.default_rng(4).standard_normal((len(ROWS), columns))
    return B * np.sqrt(most) / np.linalg.norm(Phi[ROWS].T @ B, 2)


def problem_of(Phi, k, shift):
    """Rows, or where there is a shift the kernel that has so much on its diagonal besides."""
    return pose([KernelView(Phi @ Phi.T + shift * np.eye(N)) if shift else Phi], k, 0.1, [EPS])


def slack_of(view):
    return 4.0 * (view.p + len(ROWS) + 16) * UNIT * view.cancellation


def size_of(Phi, B, shift):
    lengths = np.sqrt((Phi[ROWS] ** 2).sum(axis=1) + 2.0 * shift)  # with the shift twice
    return np.linalg.norm(np.abs(B).T @ lengths)


def exact_constant(Phi, B, k, shift, error=0.0):
    """sum_j h(w_j) of the k smallest eigenvalues of W, those beyond its depths at the level."""
    depths = np.linalg.eigvalsh(B.T @ Phi[ROWS] @ Phi[ROWS].T @ B)
    w = np.concatenate([np.sort(LEVEL - depths - error), np.full(k, LEVEL)])[:k]
    return sum(-np.log(v) - 1.0 + (EPS + shift) * v for v in w)


@pytest.mark.parametrize("shift", [0.0, 0.05])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_constant_is_above_the_exact_one_by_rounding_alone(k, shift, Phi):
    B = combination(Phi)
    view = problem_of(Phi, k, shift).pool.views[0]
    exact, found = (
        exact_constant(Phi, B, k, shift),
        ViewDual(LEVEL, B, shift).constant(view, ROWS, k),
    )
    assert exact <= found + 1e-9
    assert found == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("shift", [0.0, 0.05])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_constant_allows_for_rounding_of_every_product(k, shift, Phi, coarse):
    B = combination(Phi)
    view = problem_of(Phi, k, shift).pool.views[0]
    G = B.T @ Phi[ROWS] @ Phi[ROWS].T @ B
    error = slack_of(view) * size_of(Phi, B, shift) ** 2 + 8.0 * R * UNIT * np.linalg.norm(G)
    assert 0.01 < error < 0.3  # so that there is something to see
    expected = exact_constant(Phi, B, k, shift, error)
    assert ViewDual(LEVEL, B, shift).constant(view, ROWS, k) == pytest.approx(expected, rel=1e-9)


def test_what_is_not_positive_definite_proves_nothing(Phi):
    view = problem_of(Phi, 4, 0.0).pool.views[0]
    for most, sure in ((LEVEL - 1e-3, True), (LEVEL, False), (LEVEL + 1e-3, False)):
        found = ViewDual(LEVEL, combination(Phi, most=most)).constant(view, ROWS, 4)
        assert np.isfinite(found) == sure
    assert ViewDual(0.0, np.zeros((len(ROWS), 0))).constant(view, ROWS, 4) == np.inf
    assert np.isfinite(ViewDual(1e-3, np.zeros((len(ROWS), 0))).constant(view, ROWS, 4))
    with np.errstate(over="ignore", invalid="ignore"):
        huge = ViewDual(LEVEL, 1e200 * combination(Phi)).constant(view, ROWS, 4)
    assert huge == np.inf


def test_items_beyond_the_rank_count_with_the_ridge_alone(Phi):
    """A set of k > p rows has k - p eigenvalues of zero."""
    k = P + 3
    view = problem_of(Phi, k, 0.0).pool.views[0]
    B = combination(Phi)
    exact = exact_constant(Phi, B, P, 0.0) + 3.0 * np.log(EPS)
    assert ViewDual(LEVEL, B).constant(view, ROWS, k) == pytest.approx(exact, abs=1e-9)
    kernel = np.linalg.matrix_rank(Phi @ Phi.T)
    assert kernel == P


@pytest.mark.parametrize("shift", [0.0, 0.05])
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_prices_are_those_of_the_matrix_by_rounding_alone(share, shift, Phi):
    B, problem = combination(Phi), problem_of(Phi, 4, shift)
    A = B.T @ Phi[ROWS]
    W = LEVEL * np.eye(P) - A.T @ A
    exact = share / 4 * np.einsum("ip,pq,iq->i", Phi, W, Phi)
    dual = Dual(np.array([share]), ROWS, (ViewDual(LEVEL, B, shift),))
    np.testing.assert_allclose(row_prices(problem, dual), exact, atol=1e-9)
    assert (row_prices(problem, dual) >= exact - 1e-12).all()
    np.testing.assert_allclose(row_prices(problem, dual, coarse=True), exact, atol=1e-4)


@pytest.mark.parametrize("shift", [0.0, 0.05])
def test_prices_allow_for_rounding_of_every_product(shift, Phi, coarse):
    B, problem = combination(Phi), problem_of(Phi, 4, shift)
    slack, norms = slack_of(problem.pool.views[0]), (Phi**2).sum(axis=1)
    size, sizes = size_of(Phi, B, shift), norms + 2.0 * shift
    assert ((1.0 - slack) * np.linalg.norm(Phi @ Phi[ROWS].T @ B, axis=1) > 0.0).all()
    sure = (1.0 - slack) * np.linalg.norm(Phi @ Phi[ROWS].T @ B, axis=1)
    sure = np.maximum(sure - slack * size * np.sqrt(sizes), 0.0)
    expected = (LEVEL * (norms + slack * sizes) - sure**2) * (1.0 + 8.0 * UNIT) / 4
    dual = Dual(np.ones(1), ROWS, (ViewDual(LEVEL, B, shift),))
    np.testing.assert_allclose(row_prices(problem, dual), expected, rtol=1e-9)


@pytest.mark.parametrize("shift", [0.0, 0.05, -0.02])
def test_norms_alone_prove_what_equal_eigenvalues_have(shift, Phi, coarse):
    """k log(mean + eps) for the k largest norms, whatever the kernel gives to its ridge."""
    k = 4
    problem = pose([KernelView(Phi @ Phi.T + 0.1 * np.eye(N))], k, 0.1, [EPS])
    view, norms = problem.pool.views[0], (Phi**2).sum(axis=1) + 0.1
    dual = ViewDual.by_norms(view, k, shift)
    mean = np.sort(norms)[-k:].mean() - shift
    assert dual.level == pytest.approx(1.0 / (mean + EPS + max(shift, 0.0)))
    assert dual.width == 0
    slack = 4.0 * (view.p + 1 + 16) * UNIT * view.cancellation
    whole = dual.level * (norms - shift + slack * (norms + abs(shift))) / k * (1.0 + 8.0 * UNIT)
    prices = row_prices(problem, Dual(np.ones(1), np.zeros(1, dtype=np.int64), (dual,)))
    np.testing.assert_allclose(prices, whole, rtol=1e-9)
    if shift >= 0:
        bound = dual.constant(view, ROWS[:1], k) + mean * k * dual.level
        assert bound == pytest.approx(k * np.log(mean + EPS + shift))


def test_no_more_columns_than_items_and_one_row_for_each_of_the_set(Phi):
    view = problem_of(Phi, 4, 0.0).pool.views[0]
    B = combination(Phi, columns=4)
    assert ViewDual(LEVEL, B).fits(view, ROWS, 4)
    assert not ViewDual(LEVEL, B).fits(view, ROWS, 3)
    assert not ViewDual(LEVEL, B).fits(view, ROWS[1:], 4)
    assert not ViewDual(LEVEL, combination(Phi, columns=9)).fits(view, ROWS, 9)
    B = B.copy()
    B[0, 0] = np.nan
    assert not ViewDual(LEVEL, B).fits(view, ROWS, 4)


def test_the_conjugate_is_the_largest_value_over_all_t():
    t = np.concatenate([[0.0], np.logspace(-6, 6, 200_001)])
    for eps in (0.0, 0.2, 3.0):
        for w in (1e-3, 0.4, 4.999, 5.001, 80.0):
            with np.errstate(divide="ignore"):
                largest = (np.log(t + eps) - w * t).max()
            assert conjugate(np.array([w]), eps)[0] == pytest.approx(largest, abs=1e-6)


def held(form, Phi, **options):
    norms = (Phi**2).sum(axis=1)
    own = {"features": Phi} if form == "features" else {"kernel": Phi @ Phi.T}
    return HeldRows(EPS, norms, **own, **options)


@pytest.mark.parametrize("form", ["features", "kernel"])
def test_the_least_value_of_exact_rows_is_gamma(form, Phi):
    x = np.linspace(0.05, 0.7, N)
    k = 5
    x *= k / x.sum()
    least = least_gamma(held(form, Phi), x, k, SimpleNamespace(basis=None))
    assert least == pytest.approx(k * reference.gamma(Phi, EPS, x, k), abs=1e-9)
