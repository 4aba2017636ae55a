"""Eigenvectors of weighted kernels: of few products, or of a factorisation, against dense ones."""

import numpy as np
import pytest

import cases
import reference
from fairnepv.objective.geometry import EUCLIDEAN
from fairnepv.stiefel import eigen
from fairnepv.stiefel.coordinates import Ambient, Reduced
from fairnepv.stiefel.eigen import Weighted, leading
from frame_problems import problem_of


def weighted(views, w, kind=Ambient):
    """H in some coordinates, and dense in those."""
    problem = problem_of(cases.Case("", views, 2, 0.1, (1.0,) * len(views)))
    coordinates = kind(problem.pool)
    size = coordinates.dimension if kind is Reduced else problem.n
    H = Weighted.by_weights(coordinates.maps, np.array(w))
    return H, H(np.eye(size))


@pytest.fixture
def views():
    return cases.random_views(np.random.default_rng(0), 15, [4, 6])


def test_kernels_are_weighed_over_their_traces_and_shifted(views):
    H, dense = weighted(views, [0.3, 0.7])
    expected = sum(
        w * Phi @ Phi.T / (Phi**2).sum() for w, Phi in zip([0.3, 0.7], views, strict=True)
    )
    np.testing.assert_allclose(dense, expected, atol=1e-12)
    V = cases.random_frame(np.random.default_rng(1), 15, 3)
    X = np.random.default_rng(2).standard_normal((15, 4))
    shifted = H.shifted(0.2, V)
    np.testing.assert_allclose(shifted(X), (expected + 0.2 * V @ V.T) @ X, atol=1e-12)
    np.testing.assert_allclose(H(X), expected @ X, atol=1e-12)


def test_a_view_of_zeros_counts_for_nothing(views):
    with_zeros, _ = weighted([*views, np.zeros((15, 2))], [0.2, 0.5, 0.3])
    _, without = weighted(views, [0.2, 0.5])
    np.testing.assert_allclose(with_zeros(np.eye(15)), without, atol=1e-12)


@pytest.mark.parametrize("kind", [Ambient, Reduced])
def test_of_short_vectors_all_is_factored_at_once(views, kind):
    H, dense = weighted(views, [0.3, 0.7], kind)
    near = cases.random_frame(np.random.default_rng(3), len(dense), 3)
    found = leading(H, 3, near, 1e-3)
    lam, E = np.linalg.eigh(dense)
    np.testing.assert_allclose(found.values[:3], lam[::-1][:3], atol=1e-12)
    assert reference.chordal(found.vectors[:, :3], E[:, -3:]) < 1e-7
    assert found.products == 1
    assert 0 < found.error < 1e-13 * len(dense)


def counting(H):
    calls = []
    real = H._maps.adjoint

    class Counted:
        def __getattr__(self, name):
            return getattr(H._maps, name)

        def adjoint(self, X):
            calls.append(X.shape[1])
            return real(X)

    return Weighted(Counted(), H._shares), calls


@pytest.mark.parametrize("enough", [1e-3, 1e-6, 1e-10])
def test_products_are_counted_and_the_error_is_what_is_lacking(views, enough, monkeypatch):
    monkeypatch.setattr(eigen, "_HELD", 0)
    wide = cases.random_views(np.random.default_rng(4), 80, [30, 40])
    H, dense = weighted(wide, [0.6, 0.4])
    near = cases.random_frame(np.random.default_rng(5), 80, 4)
    counted, calls = counting(H)
    found = leading(counted, 4, near, enough)
    assert found.products == len(calls)
    assert calls[0] == 14  # ten more than are wanted, which brings them sooner
    lam = np.linalg.eigvalsh(dense)[::-1]
    lacking = lam[:4].sum() - found.values[:4].sum()
    assert -1e-12 <= lacking <= found.error <= enough
    m = found.vectors.shape[1]
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(m), atol=1e-8)
    np.testing.assert_allclose(
        np.diag(found.vectors.T @ dense @ found.vectors), found.values, atol=1e-8
    )


@pytest.mark.parametrize("beyond", [1, 2, 5])
def test_vectors_that_are_exact_but_not_the_largest_do_not_hide_these(beyond, monkeypatch):
    """There is no residual to follow: what is random beside them shows the others."""
    monkeypatch.setattr(eigen, "_HELD", 0)
    k = 3
    rows = np.diag(np.sqrt(np.arange(1.0, k + beyond + 1)))
    H, dense = weighted([rows], [1.0])
    found = leading(H, k, np.eye(k + beyond)[:, :k], 1e-10)
    lam = np.linalg.eigvalsh(dense)[::-1]
    np.testing.assert_allclose(found.values[:k], lam[:k], atol=1e-9)


def test_it_ends_where_rounding_leaves_nothing_to_find(views, monkeypatch):
    monkeypatch.setattr(eigen, "_HELD", 0)
    H, dense = weighted(views, [0.3, 0.7])
    found = leading(H, 3, cases.random_frame(np.random.default_rng(6), 15, 3), 0.0)
    assert found.products < 100
    np.testing.assert_allclose(found.values[:3], np.linalg.eigvalsh(dense)[::-1][:3], atol=1e-12)
    assert H.geometry is EUCLIDEAN


def test_a_slow_way_is_gone_to_its_end(monkeypatch):
    """Patience is for products that bring nothing: there are more than that here, and each brings
    something."""
    monkeypatch.setattr(eigen, "_HELD", 0)
    size, k = 400, 2
    lam = 1.0 - 1e-3 * np.linspace(0.0, 1.0, size) ** 2
    H, dense = weighted([np.diag(np.sqrt(lam))], [1.0])
    near = cases.random_frame(np.random.default_rng(7), size, k)
    found = leading(H, k, near, 1e-13)
    assert found.products > eigen._PATIENCE + 5
    exact = np.sort(np.diag(dense))[::-1][:k].sum()
    assert exact - found.values[:k].sum() <= 1e-12


class Noisy:
    """Maps whose products are off by a little, another time by another little."""

    def __init__(self, maps, noise):
        self._maps, self._noise = maps, noise
        self._rng = np.random.default_rng(0)

    def __getattr__(self, name):
        return getattr(self._maps, name)

    def combine(self, Y):
        X = self._maps.combine(Y)
        return X + self._noise * self._rng.standard_normal(X.shape)


def test_patience_ends_what_rounding_keeps_from_its_aim(monkeypatch):
    """So many products after the last that brought anything."""
    monkeypatch.setattr(eigen, "_HELD", 0)
    wide = cases.random_views(np.random.default_rng(4), 80, [30, 40])
    H, dense = weighted(wide, [0.6, 0.4])
    noisy = Weighted(Noisy(H._maps, 1e-10), H._shares)
    found = leading(noisy, 4, cases.random_frame(np.random.default_rng(5), 80, 4), 0.0)
    assert eigen._PATIENCE < found.products < 2 * eigen._PATIENCE
    lam = np.linalg.eigvalsh(dense)[::-1]
    np.testing.assert_allclose(found.values[:4], lam[:4], atol=1e-5)
