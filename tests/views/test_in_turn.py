"""Gains of many rows of few columns, which come in blocks, against the literal ones."""

import numpy as np
import pytest
import scipy.sparse as sp

import fairnepv
import reference
from fairnepv.compute import HOST
from fairnepv.objective import UTILITIES, subset_gains, subset_scores
from fairnepv.views import Calibration, KernelView, Pool
from fairnepv.views.in_turn import in_turn, suits

N, K = 200, 150  # more than two blocks


def rows_of(kind: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    X = reference.unit_diagonal(rng.standard_normal((N, 4)))
    if kind == "copies":
        X = X[rng.integers(0, 3, N)]
    if kind == "a column that comes late":
        X[: N // 2, 3] = 0.0
    if kind == "zeros":
        X[::3] = 0.0
    return X


ROWS = ["any", "copies", "a column that comes late", "zeros"]


@pytest.mark.parametrize("eps", [1e-9, 1e-6, 0.1, 1e4])
@pytest.mark.parametrize("kind", ROWS)
def test_gains_are_differences_of_log_determinants(kind, eps):
    X = rows_of(kind)
    S = np.random.default_rng(4).permutation(N)[:K]
    assert suits(K, 4, K, eps)
    known = np.log(np.diagonal(np.linalg.cholesky(X[S] @ X[S].T + eps * np.eye(K)))) * 2.0
    for view in (X, sp.csr_array(X)):
        pool = Pool.of({"view": view}, eps=eps)
        gains = subset_gains(pool, S, "diverse")[:, 0]
        np.testing.assert_allclose(gains, known, atol=max(1e-11, 1e-14 / eps))
        assert gains.mean() == pytest.approx(subset_scores(pool, S, "diverse")[0], abs=1e-8)
    if eps >= 0.1:
        kernel = Pool.of({"view": KernelView(X @ X.T)}, eps=eps)
        np.testing.assert_allclose(gains, subset_gains(kernel, S, "diverse")[:, 0], atol=1e-11)


@pytest.mark.parametrize("eps", [1e-4, 0.1, 1e4])
@pytest.mark.parametrize("kind", ROWS)
def test_shares_are_those_of_ridge_regression(kind, eps):
    X = rows_of(kind)
    S = np.random.default_rng(5).permutation(N)[:K]
    pool = Pool.of({"view": X}, eps=eps)
    pool = UTILITIES["representative"].asked_about(pool, Calibration("none"))
    gains = subset_gains(pool, S, "representative")[:, 0]
    known = [reference.explained(X, eps, S[:j].tolist()) for j in range(K + 1)]
    np.testing.assert_allclose(gains, np.diff(known), atol=1e-12 / min(eps, 1.0))
    assert gains.sum() == pytest.approx(subset_scores(pool, S, "representative")[0], abs=1e-9)


def test_directions_are_what_those_before_leave():
    rng, eps = np.random.default_rng(6), 0.3
    X = rng.standard_normal((K, 3))
    found = np.vstack([block.directions(HOST) for block in in_turn(HOST, X, eps)])
    for i, x in enumerate(X):
        before = X[:i]
        rest = eps * np.linalg.solve(eps * np.eye(3) + before.T @ before, x)
        own = rest / np.sqrt(eps + x @ rest)
        np.testing.assert_allclose(np.outer(found[i], found[i]), np.outer(own, own), atol=1e-12)


@pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")
@pytest.mark.parametrize("objective", UTILITIES)
def test_sparse_picks_without_an_entry_score_as_dense_ones(objective):
    X = np.zeros((40, 2))
    X[35:] = np.random.default_rng(8).standard_normal((5, 2))
    asked = {"objective": objective, "calibration": "none", "center": False}
    dense, sparse = (
        fairnepv.score({"view": view}, range(12), **asked) for view in (X, sp.csr_array(X))
    )
    assert sparse.scores == pytest.approx(dense.scores, abs=1e-12)


@pytest.mark.parametrize("columns", [1, 3, 300])
def test_blocks_of_narrow_rows_are_few(columns):
    """Each takes a tenth of a millisecond, so that thousands of them outlived a time limit."""
    blocks = list(in_turn(HOST, np.ones((1300, columns)), 0.1))
    assert len(blocks) == -(-1300 // max(columns, 64))


@pytest.mark.parametrize(
    ("rows", "trace", "suited"), [(12, 1.0, False), (13, 1.0, True), (13, 1e12, False)]
)
def test_few_rows_and_strained_ones_have_a_factor_of_all(rows, trace, suited):
    assert suits(rows, 3, trace, 0.1) is suited


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")
@pytest.mark.parametrize("objective", UTILITIES)
def test_picks_of_narrow_views_are_the_same_on_a_device(objective):
    rng = np.random.default_rng(7)
    data = {"a": rng.standard_normal((200, 3)), "b": rng.standard_normal((200, 2))}
    asked = {"objective": objective, "effort": "fast", "random_state": 0}
    here, there = (fairnepv.select(data, 40, **asked, engine=e) for e in ("local", "torch:cpu"))
    assert here.indices.tolist() == there.indices.tolist()
    assert list(there.scores.values()) == pytest.approx(list(here.scores.values()), abs=1e-12)
