"""D made of rows T alone, against the same matrices formed at length."""

from dataclasses import replace

import numpy as np
import pytest

import reference
from fairnepv.objective import spanned
from fairnepv.objective.spanned import Spanned, root_of, share_products, span
from fairnepv.views import moments
from search_problems import pose, representative

EPS, N, P, K = 0.3, 14, 6, 2
SETS = [[0, 3, 4], [1, 2, 5, 7, 8, 9, 11]]  # narrower and wider than the view


@pytest.fixture
def Phi():
    return np.random.default_rng(3).standard_normal((N, P)) * np.linspace(1.5, 0.3, P)


@pytest.fixture
def view(Phi, monkeypatch):
    monkeypatch.setattr(moments, "WIDEST_MOMENTS", 0)
    found = representative(pose([Phi], K, 0.1, [EPS])).pool.views[0]
    assert found.moments.gram is None
    return found


def made(view, rows, r=99):
    x = np.linspace(0.1, 0.6, len(rows))
    return x, Spanned.of(view, np.array(rows), x, r, 1e-3, 0.05)


@pytest.mark.parametrize("r", [2, 99])
@pytest.mark.parametrize("rows", SETS, ids=len)
def test_the_matrix_is_that_of_the_twin_on_the_leading_axes(rows, r, view, Phi):
    x, found = made(view, rows, r)
    C = Phi.T @ Phi / (Phi**2).sum()
    T = Phi[rows]
    axes = np.linalg.svd(T)[2][: min(r, len(rows), P)].T  # of the span of T
    M = axes.T @ T.T @ np.diag(x) @ T @ axes + 1e-3 * np.eye(axes.shape[1])
    D = reference.shrinkage(M, axes.T @ C @ axes, EPS, 0.05)
    assert 0.01 < np.linalg.eigvals(D).real.max() < 0.99  # so that there is something to see
    expected = axes @ (np.eye(len(D)) - D) @ axes.T
    np.testing.assert_allclose(T.T @ found.S @ T, expected, atol=1e-6)
    np.testing.assert_allclose(found.K, T @ T.T, atol=1e-12)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("rows", SETS, ids=len)
def test_the_constant_is_above_the_exact_one_by_rounding_alone(rows, k, view, Phi):
    _, found = made(view, rows)
    C = Phi.T @ Phi / (Phi**2).sum()
    T = Phi[rows]
    kept = T.T @ found.S @ T  # I - D
    exact = np.sort(np.linalg.eigvalsh(kept.T @ C @ kept))[-k:].sum()
    assert exact <= found.constant(k) <= exact * (1.0 + 1e-6)


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("rows", SETS, ids=len)
def test_prices_are_above_the_exact_ones_by_rounding_alone(rows, share, view, Phi):
    _, found = made(view, rows)
    C = Phi.T @ Phi / (Phi**2).sum()
    T = Phi[rows]
    D = np.eye(P) - T.T @ found.S @ T
    exact = share * np.einsum("ip,pq,iq->i", Phi @ D.T, C, Phi @ D.T) / EPS
    pricing, norms = found.pricing(share), (Phi**2).sum(axis=1)
    prices = pricing.prices(view.block(0, N), norms, False)
    assert (exact <= prices).all()
    np.testing.assert_allclose(prices, exact, rtol=1e-7)
    coarse = pricing.prices(view.block(0, N), norms, True)
    np.testing.assert_allclose(coarse, exact, rtol=1e-3)
    assert pricing.width == 2 * N + len(rows)
    assert not pricing.flat


def test_the_constant_allows_for_rounding_of_every_product(view, Phi, monkeypatch):
    """As it would be if a digit were worth a hundredth."""
    unit, k, m = 0.01, 2, len(SETS[0])
    _, found = made(view, SETS[0])
    monkeypatch.setattr(spanned, "_unit", lambda *_: unit)
    trace, H, S = np.trace(found.K), found.H, found.S
    L = np.linalg.cholesky(found.K + 4.0 * unit * trace * np.eye(m))
    W = H @ S @ L
    whole = np.sort(np.linalg.eigvalsh(W.T @ W))[-k:].sum() + 4.0 * k * unit * (W**2).sum()
    sizes = np.linalg.norm(S) * np.linalg.norm(L) * (np.linalg.norm(H) + np.sqrt(trace))
    expected = (np.sqrt(whole) + 4.0 * unit * sizes) ** 2
    assert found.constant(k) == pytest.approx(expected, rel=1e-9)


def test_prices_allow_for_rounding_of_every_product(view, Phi, monkeypatch):
    unit = 0.01
    _, found = made(view, SETS[0])
    monkeypatch.setattr(spanned, "_unit", lambda *_: unit)
    pricing = found.pricing(0.7)
    lengths = np.linalg.norm(Phi[SETS[0]], axis=1)
    products = np.linalg.norm(np.abs(found.H @ found.S) @ lengths)
    made_of = np.linalg.norm(found.S) * np.linalg.norm(found.H) * np.linalg.norm(lengths)
    error = unit * (1.0 + products + made_of) / np.sqrt(EPS)
    assert (pricing.error, pricing.unit) == (pytest.approx(error), unit)
    norms = (Phi**2).sum(axis=1)
    exact = pricing._replace(error=0.0, unit=0.0).prices(view.block(0, N), norms, False)
    raised = (np.sqrt(exact / 0.7) + error * np.sqrt(norms)) ** 2 * 0.7 * (1.0 + 8.0 * unit)
    np.testing.assert_allclose(pricing.prices(view.block(0, N), norms, False), raised)


def test_rounding_grows_with_the_numbers_that_a_product_sums(view):
    u = 2.0**-53
    assert spanned._unit(view, 3) == pytest.approx(
        4.0 * (P + 3 + 16) * u * view.cancellation, rel=1e-9, abs=0.0
    )


def test_a_kernel_that_is_none_proves_nothing(view):
    _, found = made(view, SETS[0])
    none = Spanned(view, found.rows, -np.eye(3), found.S, found.H)
    assert none.constant(2) == np.inf


def test_the_axes_of_a_kernel_are_orthonormal_and_leave_out_what_rounding_made():
    T = np.random.default_rng(0).standard_normal((5, 3))
    lam, B = span(T @ T.T)
    assert B.shape == (5, 3)
    assert (np.diff(lam) < 0).all()
    P_ = T.T @ B
    np.testing.assert_allclose(P_.T @ P_, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(T @ P_, T @ T.T @ B, atol=1e-12)
    assert span(1e-18 * (T @ T.T))[1].shape == (5, 3)
    assert span(np.zeros((3, 3)))[1].shape == (3, 0)


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (4, 4)])
def test_a_root_has_the_same_products_of_columns(shape):
    X = np.random.default_rng(1).standard_normal(shape)
    root = root_of(X)
    assert root.shape == (shape[1], shape[1])
    np.testing.assert_allclose(root.T @ root, X.T @ X, atol=1e-12)


def test_products_with_targets_are_shares(view, Phi):
    rows = np.array([2, 5])
    expected = Phi[rows] @ Phi.T / np.sqrt((Phi**2).sum())
    np.testing.assert_allclose(share_products(view, rows), expected, atol=1e-12)


def test_a_matrix_that_overflows_proves_nothing(view):
    """Of a file that was forged: LAPACK has no eigenvalues of what is not finite."""
    _, found = made(view, SETS[0])
    assert replace(found, S=1e200 * found.S).constant(K) == np.inf
