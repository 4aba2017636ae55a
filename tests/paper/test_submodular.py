"""Section 3.1: the regularized log-determinant of one view is submodular, and monotone where every
eigenvalue of L is at least one; greedy then has 1 - 1/e of the optimum."""

import math
from itertools import combinations

import numpy as np
import pytest

import cases
import reference
from fairnepv import select

EPS = 1.0  # so that no eigenvalue of Phi Phi^T + eps I is below one


def value(L: np.ndarray, S: tuple[int, ...]) -> float:
    """f(S) = log det L_S, f(empty) = 0."""
    return reference.logdet(L[np.ix_(S, S)]) if S else 0.0


def pools() -> list[np.ndarray]:
    rng = np.random.default_rng(6)
    found = [cases.random_views(rng, 9, [p])[0] for p in (2, 5, 12)]
    found.append(cases.clustered_views(rng, 9, [4], 3, 0.05)[0])
    found.append(10.0 * found[0])
    return found


@pytest.mark.parametrize("Phi", pools(), ids=lambda Phi: f"{Phi.shape}")
@pytest.mark.parametrize("eps", [1e-3, EPS])
def test_a_single_view_is_submodular_and_monotone_from_eps_1(Phi, eps):
    """f(S + i) - f(S) never rises as S grows, at any ridge; it is never negative at eps >= 1."""
    L, n = reference.kernel(Phi, eps), len(Phi)
    f = {S: value(L, S) for size in range(5) for S in combinations(range(n), size)}
    monotone = True
    for S in (S for S in f if len(S) <= 2):
        for i in set(range(n)) - set(S):
            gain = f[tuple(sorted((*S, i)))] - f[S]
            monotone &= gain >= -1e-12
            for j in set(range(n)) - {*S, i}:
                larger = tuple(sorted((*S, j)))
                assert f[tuple(sorted((*larger, i)))] - f[larger] <= gain + 1e-10
    assert monotone or eps < 1


@pytest.mark.filterwarnings("ignore:k = ")
@pytest.mark.parametrize("Phi", pools(), ids=lambda Phi: f"{Phi.shape}")
@pytest.mark.parametrize("k", [2, 4])
def test_greedy_has_its_guarantee(Phi, k):
    """Ours, of one view with eps = 1: at least (1 - 1/e) of the optimum of log det L_S."""
    L = reference.kernel(Phi, EPS)
    found = select([Phi], k, method="greedy", effort="fast", eps=EPS, calibration="none")
    best = max(value(L, S) for S in combinations(range(len(Phi)), k))
    greedy = value(L, tuple(found.indices.tolist()))
    assert greedy == pytest.approx(k * found.fair_score, abs=1e-9)
    assert best + 1e-12 >= greedy >= (1 - 1 / math.e) * best
