"""The formula of F_tau and its derivatives, against dense twins and where digits are scarce."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cases
import reference
from cases import Case
from fairnepv.objective import (
    UTILITIES,
    Standing,
    StiefelObjective,
    ViewFactor,
    entropy_price,
    fair_score,
    scores_and_gains,
    scoring_work,
    soft_min,
    soft_min_weights,
    subset_gains,
    subset_scores,
)
from fairnepv.objective.geometry import EUCLIDEAN
from fairnepv.objective.softmin import merit
from fairnepv.stiefel.maps import MatrixMaps
from fairnepv.views import Calibration, DenseView, DiagonalView, KernelView, Pool
from frame_problems import accurate_point, apply_H, kernels_of, objective_of, point_at, problem_of
from search_problems import STORAGE, kernels, pose, representative

EXAMPLES = settings(derandomize=True, deadline=None, max_examples=60)

SMALL = pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
TAUS = [1e-3, 0.01, 0.15, 1.0, 30.0, 1e3]
SCORES = st.lists(st.floats(-30, 30), min_size=1, max_size=6).map(np.array)
TEMPERATURES = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)
SEEDS = st.integers(0, 2**32 - 1)


def frames(case: Case, count: int = 3) -> list[cases.Array]:
    rng = np.random.default_rng(7)
    return [cases.random_frame(rng, len(case.views[0]), case.k) for _ in range(count)]


# --- the soft-min ---------------------------------------------------------------------------------


@EXAMPLES
@given(SCORES, TEMPERATURES)
def test_soft_min_is_the_papers(d, tau):
    expected = reference.soft_min(d, tau)
    assert soft_min(d, tau) == pytest.approx(expected, rel=1e-13, abs=1e-13 * max(1, tau, 30))


@EXAMPLES
@given(SCORES, TEMPERATURES)
def test_weights_are_the_papers_and_the_gradient_of_the_soft_min(d, tau):
    w = soft_min_weights(d, tau)
    assert w.sum() == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(w, reference.weights(d, tau), atol=1e-14)
    h = 1e-4 * tau
    for q in range(len(d)):
        step = h * (np.arange(len(d)) == q)
        slope = (soft_min(d + step, tau) - soft_min(d - step, tau)) / (2 * h)
        rounding = 1e-13 * max(1, 30 / tau) / 1e-4
        assert slope == pytest.approx(w[q], abs=1e-7 + rounding)


@pytest.mark.parametrize("tau", [1e6, 1e12, 1e300])
def test_a_large_tau_costs_no_digits(tau):
    """There the soft-min is mean - variance / (2 tau)."""
    d = np.random.default_rng(1).normal(size=4)
    assert soft_min(d, tau) == pytest.approx(d.mean() - d.var() / (2 * tau), abs=1e-12)
    w = soft_min_weights(d, tau)
    assert soft_min(d, tau) <= w @ d + entropy_price(w, tau) + 1e-15


@pytest.mark.parametrize("tau", TAUS)
def test_soft_min_works_over_the_first_axis(tau):
    d = np.random.default_rng(0).normal(size=(3, 4, 5))
    F = soft_min(d, tau)
    assert F.shape == (4, 5)
    for i, j in np.ndindex(4, 5):
        assert F[i, j] == pytest.approx(reference.soft_min(d[:, i, j], tau), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("spread", [1e3, 1e6, 1e12])
def test_extreme_spreads_neither_overflow_nor_lose_the_minimum(tau, spread):
    for weakest in (-spread, 0.0, spread):
        d = np.array([weakest, weakest + 2 * spread, weakest + spread])
        F = soft_min(d, tau)  # a warning of overflow would be an error here
        d_min, top = reference.soft_min_bracket(d, tau)
        rounding = 4 * np.spacing(spread)
        assert d_min - rounding <= F <= top + rounding
        if spread > 100 * tau:
            assert pytest.approx(top, abs=rounding) == F
            np.testing.assert_array_equal(soft_min_weights(d, tau), [1.0, 0.0, 0.0])


def test_infinite_tau_is_the_mean_with_equal_weights():
    d = np.array([[-3.0, 1.0], [5.0, 2.0], [1.0, 0.0]])
    np.testing.assert_allclose(soft_min(d, math.inf), d.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(soft_min_weights(d[:, 0], math.inf), np.full(3, 1 / 3), rtol=1e-15)
    # and it is the limit that large temperatures tend to
    np.testing.assert_allclose(soft_min(d, 1e6), d.mean(axis=0), atol=1e-4)


def test_soft_min_tends_to_the_minimum_as_tau_falls():
    d = np.array([0.3, -0.2, 0.1])
    taus = [1.0, 0.1, 0.01, 0.001]
    gaps = [soft_min(d, tau) - d.min() for tau in taus]
    for gap, tau in zip(gaps, taus, strict=True):
        assert 0 <= gap <= tau * math.log(3) + 1e-15
    assert gaps == sorted(gaps, reverse=True)


@EXAMPLES
@given(SCORES, TEMPERATURES, st.integers(2, 4))
def test_repeating_every_view_changes_nothing(d, tau, times):
    rounding = 1e-13 * max(30, tau)
    assert soft_min(np.tile(d, times), tau) == pytest.approx(soft_min(d, tau), abs=rounding)
    np.testing.assert_allclose(
        soft_min_weights(np.tile(d, times), tau), np.tile(soft_min_weights(d, tau), times) / times
    )


@EXAMPLES
@given(SCORES, TEMPERATURES, st.integers(0, 5))
def test_repeating_one_view_shifts_as_the_formula_says(d, tau, q):
    """-tau log of a mean over M + 1 terms: F' = F + tau log((M + 1) / M) - tau log(1 + w_q)."""
    M, q = len(d), q % len(d)
    shift = tau * math.log((M + 1) / M) - tau * math.log1p(soft_min_weights(d, tau)[q])
    expected = soft_min(d, tau) + shift
    assert soft_min(np.append(d, d[q]), tau) == pytest.approx(expected, abs=1e-13 * max(30, tau))


# --- subsets --------------------------------------------------------------------------------------


@SMALL
def test_subset_scores_are_the_papers(case):
    factors = [2.0, 0.5, 3.0, 0.1][: len(case.views)]
    problem, Ls = problem_of(case, factors=factors), kernels_of(case, factors=factors)
    rng = np.random.default_rng(3)
    for size in range(1, case.k + 2):
        S = rng.choice(problem.n, size=min(size, problem.n), replace=False)
        d = subset_scores(problem.pool, S, "diverse")
        np.testing.assert_allclose(d, reference.subset_scores(Ls, S), rtol=1e-10, atol=1e-10)
        F = fair_score(problem.pool, S, case.tau, "diverse")
        assert pytest.approx(reference.fair_score(Ls, S, case.tau), rel=1e-10, abs=1e-10) == F


@pytest.mark.parametrize("eps", [1e-6, 1e-9, 1e-12, 1e-15])
def test_subset_scores_keep_their_digits_at_a_small_ridge(eps):
    """k equal rows x: det (|x|^2 1 1^T + eps I) = (k |x|^2 + eps) eps^(k-1)."""
    k, x = 6, np.array([3.0, -4.0, 12.0])
    pool = Pool.of({"view": np.tile(x, (10, 1))}, eps=eps)
    expected = (math.log(k * 169 + eps) + (k - 1) * math.log(eps)) / k
    # a row that is computed as 1e-16 of the largest still counts beside a ridge of 1e-15
    assert subset_scores(pool, np.arange(k), "diverse")[0] == pytest.approx(expected, abs=1e-12)


# --- what each item of a subset adds --------------------------------------------------------------


@SMALL
def test_gains_are_differences_of_log_determinants(case):
    factors = [2.0, 0.5, 3.0, 0.1][: len(case.views)]
    problem, Ls = problem_of(case, factors=factors), kernels_of(case, factors=factors)
    rng = np.random.default_rng(4)
    for size in range(1, case.k + 2):
        S = rng.choice(problem.n, size=min(size, problem.n), replace=False)
        gains = subset_gains(problem.pool, S, "diverse")
        assert gains.shape == (len(S), len(Ls))
        for q, L in enumerate(Ls):
            np.testing.assert_allclose(gains[:, q], reference.gains(L, S), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            gains.mean(axis=0), subset_scores(problem.pool, S, "diverse"), atol=1e-9
        )


@pytest.mark.parametrize("eps", [0.1, 1e-9])
@pytest.mark.parametrize("kind", [DenseView, KernelView])
def test_scores_and_gains_together_are_those_alone(kind, eps):
    """To the last bit, whether or not the ridge lets one come from the other."""
    rows = cases.clustered_views(np.random.default_rng(5), 12, [5, 8], 4)
    data = {str(q): X if kind is DenseView else kind(X @ X.T) for q, X in enumerate(rows)}
    pool, S = Pool.of(data, eps=eps), np.array([7, 2, 9, 4])
    d, gains = scores_and_gains(pool, S, "diverse")
    assert d.tolist() == subset_scores(pool, S, "diverse").tolist()
    assert gains.tolist() == subset_gains(pool, S, "diverse").tolist()


@EXAMPLES
@given(SEEDS)
def test_gains_follow_the_order_of_the_items(seed):
    """What an item adds depends on those before it alone; the total on no order at all."""
    rng = np.random.default_rng(seed)
    views = cases.clustered_views(rng, 12, [5, 4], 4)
    pool = Pool.of(views, eps=0.1)
    S = rng.permutation(12)[: rng.integers(2, 9)]
    gains = subset_gains(pool, S, "diverse")
    j = int(rng.integers(1, len(S) + 1))
    np.testing.assert_allclose(subset_gains(pool, S[:j], "diverse"), gains[:j], atol=1e-10)
    np.testing.assert_allclose(
        subset_gains(pool, S[::-1], "diverse").sum(axis=0), gains.sum(axis=0), atol=1e-10
    )
    alone = np.log([[view[i] @ view[i] + 0.1 for view in views] for i in S])
    np.testing.assert_allclose(gains[0], alone[0], atol=1e-12)
    assert (gains <= alone + 1e-10).all()  # others can only take away from it


@pytest.mark.parametrize("storage", STORAGE)
def test_gains_of_every_kind_of_view(storage):
    """Row scales count, and so do the offsets of a calibration, once per item."""
    rng = np.random.default_rng(6)
    views, eps = cases.random_views(rng, 9, [4, 3]), [0.1, 0.5]
    quality = list(rng.uniform(0.2, 3, size=(2, 9)))
    pool = Pool.of(
        {name: STORAGE[storage](view) for name, view in zip("ab", views, strict=True)},
        eps=dict(zip("ab", eps, strict=True)),
        quality=dict(zip("ab", quality, strict=True)),
    )
    S = np.array([7, 0, 3, 5, 8])
    plain = np.stack([reference.gains(L, S) for L in kernels(views, eps, quality)], axis=1)
    none = Calibration("none").apply(pool)
    np.testing.assert_allclose(subset_gains(none, S, "diverse"), plain, atol=1e-10)
    offsets = {"a": -2.0, "b": 0.7}
    moved = Calibration("explicit", offsets=offsets).apply(pool)
    expected = plain + list(offsets.values())
    np.testing.assert_allclose(subset_gains(moved, S, "diverse"), expected, atol=1e-10)


@pytest.mark.parametrize("eps", [0.0, 0.3])
def test_gains_of_a_diagonal_view_are_the_logs_of_its_values(eps):
    values = np.array([5.0, 1e-3, 2.0, 1e4, 1.0])
    pool = Pool.of({"d": DiagonalView(values, eps=eps)})
    S = np.array([3, 1, 0, 4])
    np.testing.assert_allclose(
        subset_gains(pool, S, "diverse")[:, 0], np.log(values[S] + eps), atol=1e-13
    )


def equal_rows(eps: float) -> tuple[cases.Array, cases.Array]:
    """Ten equal rows x, and the gains of six: log det is log(j |x|^2 + eps) + (j-1) log eps."""
    x = np.array([3.0, -4.0, 12.0])  # squares to 169, so that nothing rounds
    logdets = [math.log(j * 169 + eps) + (j - 1) * math.log(eps) for j in range(1, 7)]
    return np.tile(x, (10, 1)), np.diff(logdets, prepend=0.0)


@pytest.mark.parametrize("eps", [1e-18, 1e-100, 1e-300])
def test_gains_of_repeated_rows_at_a_ridge_below_rounding(eps):
    """The Gram matrix is singular in float64, and the gains do not go through it."""
    rows, expected = equal_rows(eps)
    S = np.arange(6)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(reference.kernel(rows, eps)[np.ix_(S, S)])
    for view in (rows, KernelView(rows @ rows.T)):
        gains = subset_gains(Pool.of({"view": view}, eps=eps), S, "diverse")[:, 0]
        assert np.isfinite(gains).all()
        if eps == 1e-18:  # a smaller one drowns in the rounding of singular values as well
            np.testing.assert_allclose(gains, expected, atol=1e-9)
    if eps == 1e-18:
        pool = Pool.of({"view": rows}, eps=eps)
        assert gains.mean() == pytest.approx(subset_scores(pool, S, "diverse")[0], abs=1e-9)


def test_gains_follow_the_order_at_a_ridge_below_rounding():
    """A copy adds log(2 eps) whenever it comes, and its original what it has of its own."""
    lengths, eps = np.array([13.0, 5.0, 13.0, 2.0]), 1e-18
    rows = lengths[:, None] * np.eye(3)[[0, 1, 0, 2]]
    pool, own, copy = Pool.of({"view": rows}, eps=eps), np.log(lengths**2), math.log(2 * eps)
    orders = {
        (0, 1, 2, 3): [own[0], own[1], copy, own[3]],
        (2, 0, 3, 1): [own[2], copy, own[3], own[1]],
        (3, 2, 1, 0): [own[3], own[2], own[1], copy],
    }
    for S, expected in orders.items():
        np.testing.assert_allclose(
            subset_gains(pool, np.array(S), "diverse")[:, 0], expected, atol=1e-12
        )


@pytest.mark.parametrize("eps", [1e-6, 1e-9])
def test_gains_of_repeated_rows_at_a_small_ridge(eps):
    rows, expected = equal_rows(eps)
    gains = subset_gains(Pool.of({"view": rows}, eps=eps), np.arange(6), "diverse")[:, 0]
    np.testing.assert_allclose(gains, expected, atol=1e-13 * 169 / eps)


@pytest.mark.parametrize("eps", [1e-12, 1e-13, 1e-14, 1e-15])
def test_gains_add_up_to_the_score_where_the_ridge_is_near_rounding(eps):
    rows = reference.unit_diagonal(np.random.default_rng(0).standard_normal((4, 3)))
    pool, S = Pool.of({"view": np.tile(rows, (2, 1))}, eps=eps), np.arange(8)
    score = subset_scores(pool, S, "diverse")[0]
    assert subset_gains(pool, S, "diverse").mean() == pytest.approx(score, abs=1e-6)


@SMALL
def test_standing_scores_every_addition(case):
    """log-determinant ratios of shape (M,), (M, n) or (M, n, 1) give F_tau of the larger sets."""
    factors = [2.0, 0.5, 3.0, 0.1][: len(case.views)]
    Ls = kernels_of(case, factors=factors)
    problem = problem_of(case, factors=factors)
    S, others = [0, 1], list(range(2, problem.n))
    logdets = np.array([reference.logdet(L[np.ix_(S, S)]) for L in Ls])
    grown = np.array([[reference.logdet(L[np.ix_([*S, i], [*S, i])]) for i in others] for L in Ls])
    # Standing keeps the factor on L apart, as an offset
    logs = np.log(factors)
    plain = logdets - len(S) * logs
    ratios = grown - logdets[:, None] - logs[:, None]
    standing = Standing(plain, problem.pool.offsets, len(S) + 1, case.tau)
    expected = [reference.fair_score(Ls, [*S, i], case.tau) for i in others]
    np.testing.assert_allclose(standing.fair_scores(ratios), expected, atol=1e-10)
    np.testing.assert_allclose(standing.fair_scores(ratios[:, :, None])[:, 0], expected, atol=1e-10)
    assert standing.fair_scores(ratios[:, 0]) == pytest.approx(expected[0], abs=1e-10)


# --- one view on a frame --------------------------------------------------------------------------

SHAPES = [(1, 1), (1, 4), (3, 5), (4, 4), (5, 4), (9, 2)]  # (p, k): on both sides of p = k


@pytest.mark.parametrize(("p", "k"), SHAPES)
@pytest.mark.parametrize("eps", [1e-2, 1.0])
def test_view_factor_against_the_dense_gram_matrix(p, k, eps):
    rng = np.random.default_rng(p + 10 * k)
    Z, Y = rng.standard_normal((2, p, k))
    G = Z.T @ Z + eps * np.eye(k)
    G_inv = np.linalg.inv(G)
    factor = ViewFactor(Z, eps)
    assert factor.total == pytest.approx(reference.logdet(G), abs=1e-11)
    np.testing.assert_allclose(factor.J, Z @ G_inv, atol=1e-11)
    np.testing.assert_allclose(factor.N, eps * G_inv, atol=1e-11)
    np.testing.assert_allclose(
        factor.curvature(Y), (np.eye(p) - Z @ G_inv @ Z.T) @ Y @ G_inv, atol=1e-9
    )


@pytest.mark.parametrize(("p", "k"), SHAPES)
@pytest.mark.parametrize("eps", [1e-6, 1e-9, 1e-12])
def test_view_factor_keeps_its_digits_at_a_small_ridge(p, k, eps):
    """Exact through the singular values: Z G^-1 = P s/(s^2 + eps) R^T, eps G^-1 likewise."""
    rng = np.random.default_rng(p + 10 * k)
    Z, Y = rng.standard_normal((2, p, k))
    P, s, Rt = np.linalg.svd(Z)
    s_p, s_k = np.zeros(p), np.zeros(k)  # padded: the missing ones are zero exactly
    s_p[: len(s)] = s_k[: len(s)] = s
    inverse = Rt.T @ np.diag(1 / (s_k**2 + eps)) @ Rt
    factor = ViewFactor(Z, eps)
    assert factor.total == pytest.approx(np.log(s_k**2 + eps).sum(), abs=1e-11)
    r = len(s)
    J = P[:, :r] @ np.diag(s / (s**2 + eps)) @ Rt[:r]
    np.testing.assert_allclose(factor.J, J, rtol=0, atol=1e-12 * np.abs(J).max() / s[-1])
    np.testing.assert_allclose(factor.N, eps * inverse, rtol=0, atol=1e-13 / s[-1] ** 2)
    # (I - J Z^T) Y G^-1 = P eps/(s_p^2 + eps) P^T Y R 1/(s_k^2 + eps) R^T; nothing grows as 1/eps
    left, right = eps / (s_p**2 + eps), 1 / (s_k**2 + eps)
    expected = P @ (np.outer(left, right) * (P.T @ Y @ Rt.T)) @ Rt
    np.testing.assert_allclose(
        factor.curvature(Y), expected, rtol=0, atol=1e-11 * np.linalg.norm(Y) / s[-1] ** 2
    )


@pytest.mark.parametrize("eps", [1e-4, 1e-9, 1e-14])
@pytest.mark.parametrize(("p", "k"), SHAPES)
def test_log_det_is_as_sure_as_it_says(p, k, eps):
    """Also where the Gram matrix is singular to rounding and a QR takes its place."""
    rng = np.random.default_rng(p * k)
    Z = rng.standard_normal((p, 1)) @ rng.standard_normal((1, k)) + 1e-6 * rng.standard_normal(
        (p, k)
    )
    factor = ViewFactor(Z, eps)
    exact = np.zeros(k)
    singular = np.linalg.svd(Z, compute_uv=False)
    exact[: len(singular)] = singular**2
    side = (Z.T @ Z if p >= k else Z @ Z.T) + eps * np.eye(min(p, k))
    assert abs(factor.total - np.log(exact + eps).sum()) <= 100 * k * factor.rounding
    assert factor.rounding <= 10 * np.finfo(float).eps * max(1e5, np.sqrt(np.linalg.cond(side)))


# --- frames ---------------------------------------------------------------------------------------


@SMALL
def test_point_is_the_papers_at_random_frames(case):
    factors = [2.0, 0.5, 3.0, 0.1][: len(case.views)]
    objective = objective_of(problem_of(case, factors=factors))
    Ls = kernels_of(case, factors=factors)
    for V in frames(case):
        point = objective.at(V)
        scale = 1 + np.abs(reference.A(Ls, V, case.tau)).max()
        g = reference.view_values(Ls, V)
        np.testing.assert_allclose(point.view_values, g, atol=1e-9)
        assert point.value == pytest.approx(reference.f(Ls, V, case.tau), abs=1e-9)
        np.testing.assert_allclose(point.weights, reference.weights(g, case.tau), atol=1e-7)
        np.testing.assert_allclose(point.A, reference.A(Ls, V, case.tau), atol=1e-8 * scale)
        A_perp = reference.A_perp(Ls, V, case.tau)
        np.testing.assert_allclose(point.A_perp, A_perp, atol=1e-8 * scale)
        assert point.residual == pytest.approx(case.k * np.linalg.norm(A_perp), rel=1e-7)


@SMALL
def test_gradient_agrees_with_finite_differences(case):
    for V in frames(case, 2):
        gradient = reference.riemannian_gradient_fd(kernels_of(case), V, case.tau)
        point = point_at(case, V)
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(2 * point.A, gradient, atol=2e-5 * scale)
        np.testing.assert_allclose(
            2 * point.A_perp, EUCLIDEAN.project(V, gradient), atol=2e-5 * scale
        )


@SMALL
def test_hessian_agrees_with_finite_differences(case):
    """Half of the Grassmann Hessian, on horizontal directions."""
    rng = np.random.default_rng(11)
    Ls = kernels_of(case)
    for V in frames(case, 2):
        point = point_at(case, V)
        xi = EUCLIDEAN.project(V, rng.standard_normal(V.shape))
        xi /= np.linalg.norm(xi)
        expected = reference.hessian_fd(Ls, V, case.tau, xi)
        image = 2 * point.hessian(xi)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(image, expected, atol=1e-4 * scale)
        np.testing.assert_allclose(V.T @ image, 0, atol=1e-10 * scale)


@SMALL
def test_hessian_is_symmetric(case):
    rng = np.random.default_rng(12)
    for V in frames(case, 2):
        point = point_at(case, V)
        xi, eta = (EUCLIDEAN.project(V, rng.standard_normal(V.shape)) for _ in range(2))
        left, right = np.vdot(eta, point.hessian(xi)), np.vdot(xi, point.hessian(eta))
        size = np.linalg.norm(point.hessian(xi)) * np.linalg.norm(eta)
        assert left == pytest.approx(right, abs=1e-11 * size)


@SMALL
@pytest.mark.parametrize("sigma", [0.0, 0.7])
def test_apply_H_is_the_dense_operator(case, sigma):
    rng = np.random.default_rng(13)
    for V in frames(case, 2):
        X = rng.standard_normal((len(V), 3))
        H = reference.H(kernels_of(case), V, case.tau, sigma)
        scale = np.abs(H).max()
        np.testing.assert_allclose(
            apply_H(point_at(case, V), X, sigma), H @ X, rtol=1e-8, atol=1e-8 * scale
        )


# --- frames where digits are scarce ---------------------------------------------------------------


@pytest.mark.parametrize("eps", [1e-6, 1e-9, 1e-10, 1e-12])
@pytest.mark.parametrize("widths", [(3, 2), (3, 12), (9, 12)], ids=str)
def test_point_keeps_its_digits_at_a_small_ridge(eps, widths):
    """k = 6: both views narrower than k, one of them, none of them."""
    rng = np.random.default_rng(1)
    case = Case("", cases.random_views(rng, 20, widths), 6, 0.1, (eps, 3 * eps))
    for V in frames(case):
        point = point_at(case, V)
        value, A = accurate_point(case, V)
        assert point.value == pytest.approx(value, abs=1e-11)
        np.testing.assert_allclose(point.A, A, rtol=0, atol=1e-10 * np.abs(A).max())
        A_perp = EUCLIDEAN.project(V, A)
        np.testing.assert_allclose(point.A_perp, A_perp, rtol=0, atol=1e-10 * np.abs(A).max())


@pytest.mark.parametrize("eps", [1e-9, 1e-12])
def test_A_perp_is_orthogonal_to_the_frame_where_the_identity_is_not_accurate(eps):
    """V^T A = I/k is lost to rounding in a view of full width and low rank; A_perp must not care.

    A - V/k, by the letter of the paper, leaves 1e-5 and more here (docs/method.md#closed-form).
    """
    rng = np.random.default_rng(2)
    low = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 8))
    case = Case("", [low, rng.standard_normal((30, 8))], 5, 0.1, (eps, eps))
    for V in frames(case):
        point = point_at(case, V)
        letter = point.A - V / case.k
        assert case.k * np.linalg.norm(V.T @ letter) > 1e-8  # else this pool tests nothing
        size = max(1.0, np.linalg.norm(point.A_perp))
        assert case.k * np.linalg.norm(V.T @ point.A_perp) < 1e-14 * size


@pytest.mark.parametrize("eps", [1e-6, 1e-9, 1e-12])
def test_rounding_floor_is_reached_and_not_undercut_at_a_maximum(eps):
    """At the top eigenspace of one narrow view the residual is rounding: of the promised size."""
    rng = np.random.default_rng(4)
    Phi = rng.standard_normal((30, 8))
    V = np.linalg.svd(Phi)[0][:, :6]
    point = point_at(Case("", [Phi], 6, 0.1, (eps,)), V)
    assert point.residual <= 1e3 * point.rounding
    assert point.rounding < 1e-9


# --- what changes nothing -------------------------------------------------------------------------


def random_case(seed: int) -> tuple[Case, np.random.Generator]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 12))
    k = int(rng.integers(1, n))
    widths = rng.integers(1, 8, size=int(rng.integers(1, 4)))
    views = cases.random_views(rng, n, [int(p) for p in widths])
    eps = tuple(float(e) for e in 10.0 ** rng.uniform(-3, 0, len(views)))
    return Case("random", views, k, float(10 ** rng.uniform(-2, 1)), eps), rng


@EXAMPLES
@given(SEEDS)
def test_a_rotated_frame_is_the_same_point(seed):
    case, rng = random_case(seed)
    V = cases.random_frame(rng, len(case.views[0]), case.k)
    Q = cases.random_frame(rng, case.k, case.k)
    one, other = point_at(case, V), point_at(case, V @ Q)
    scale = 1 + np.abs(one.A).max()
    assert other.value == pytest.approx(one.value, abs=1e-9)
    np.testing.assert_allclose(other.weights, one.weights, atol=1e-7)
    np.testing.assert_allclose(other.A, one.A @ Q, atol=1e-8 * scale)
    assert other.residual == pytest.approx(one.residual, rel=1e-7, abs=1e-9)
    X = rng.standard_normal((len(V), 2))
    np.testing.assert_allclose(apply_H(other, X), apply_H(one, X), atol=1e-7 * scale)


@EXAMPLES
@given(SEEDS, st.floats(-3, 3))
def test_common_rescaling_adds_a_constant(seed, exponent):
    """L_q -> c L_q for all q: f and F grow by log c, weights and A stay (Remark 1)."""
    case, rng = random_case(seed)
    c = 10.0**exponent
    scaled = case._replace(
        views=[math.sqrt(c) * Phi for Phi in case.views], eps=tuple(c * e for e in case.eps)
    )
    by_factor = problem_of(case, factors=[c] * len(case.views))
    V = cases.random_frame(rng, len(case.views[0]), case.k)
    S = rng.choice(len(V), size=case.k, replace=False)
    one = point_at(case, V)
    scale = 1 + np.abs(one.A).max()
    for problem in (problem_of(scaled), by_factor):
        other = objective_of(problem).at(V)
        assert other.value == pytest.approx(one.value + math.log(c), abs=1e-8)
        np.testing.assert_allclose(other.A, one.A, atol=1e-7 * scale)
        F = fair_score(problem_of(case).pool, S, case.tau, "diverse")
        assert fair_score(problem.pool, S, case.tau, "diverse") == pytest.approx(
            F + math.log(c), abs=1e-8
        )


@EXAMPLES
@given(SEEDS, st.integers(0, 2))
def test_repeated_views_on_frames_and_subsets(seed, q):
    case, rng = random_case(seed)
    M, q = len(case.views), q % len(case.views)
    V = cases.random_frame(rng, len(case.views[0]), case.k)
    S = rng.choice(len(V), size=case.k, replace=False)
    one = point_at(case, V)
    scale = 1 + np.abs(one.A).max()
    twice = case._replace(views=[*case.views, *case.views], eps=(*case.eps, *case.eps))
    other = point_at(twice, V)
    assert other.value == pytest.approx(one.value, abs=1e-9)
    np.testing.assert_allclose(other.A, one.A, atol=1e-8 * scale)

    extra = case._replace(views=[*case.views, case.views[q]], eps=(*case.eps, case.eps[q]))
    growth = case.tau * math.log((M + 1) / M)
    shift = growth - case.tau * math.log1p(one.weights[q])
    assert point_at(extra, V).value == pytest.approx(one.value + shift, abs=1e-8)
    pool = problem_of(case).pool
    w = soft_min_weights(subset_scores(pool, S, "diverse"), case.tau)
    shift = growth - case.tau * math.log1p(w[q])
    F = fair_score(problem_of(extra).pool, S, case.tau, "diverse")
    assert pytest.approx(fair_score(pool, S, case.tau, "diverse") + shift, abs=1e-8) == F


@EXAMPLES
@given(SEEDS)
def test_one_view_is_its_own_soft_min(seed):
    case, rng = random_case(seed)
    case = case._replace(views=case.views[:1], eps=case.eps[:1])
    V = cases.random_frame(rng, len(case.views[0]), case.k)
    S = rng.choice(len(V), size=case.k, replace=False)
    (L,) = kernels_of(case)
    point = point_at(case, V)
    np.testing.assert_array_equal(point.weights, [1.0])
    assert point.value == pytest.approx(reference.logdet(V.T @ L @ V) / case.k, abs=1e-9)
    pool = problem_of(case).pool
    for tau in (1e-3, case.tau, 1e3, math.inf):
        assert fair_score(pool, S, tau, "diverse") == pytest.approx(
            reference.subset_score(L, S), abs=1e-9
        )


# --- other coordinates ----------------------------------------------------------------------------


@SMALL
def test_the_objective_asks_for_nothing_but_products(case):
    """The same numbers from feature maps that are one dense matrix."""
    maps = MatrixMaps(np.hstack(case.views), [Phi.shape[1] for Phi in case.views])
    objective = StiefelObjective(
        maps, np.array(case.eps), np.zeros(len(case.eps)), case.tau, case.k
    )
    (V,) = frames(case, 1)
    one, other = point_at(case, V), objective.at(V)
    scale = 1 + np.abs(one.A).max()
    assert other.value == pytest.approx(one.value, abs=1e-10)
    np.testing.assert_allclose(other.A, one.A, atol=1e-10 * scale)


def test_scoring_reads_float32_rows_in_float64():
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((12, 4)).astype(np.float32)
    pool = Pool.of({"view": DenseView(rows)}, eps=1e-3)
    S = np.arange(6)
    (L,) = [reference.kernel(rows.astype(np.float64), 1e-3)]
    assert subset_scores(pool, S, "diverse")[0] == pytest.approx(
        reference.subset_score(L, S), abs=1e-11
    )


@pytest.mark.parametrize("tau", [1e6, 1e12, 1e16, 1e100, 1e300])
def test_soft_min_does_not_cancel_for_a_large_tau(tau):
    """F = mean - var/(2 tau) + ..., which is the mean to rounding here."""
    d = np.array([0.0, 1.0, 5.0])
    assert soft_min(d, tau) == pytest.approx(d.mean() - d.var() / (2 * tau), abs=1e-9)


def test_soft_min_of_a_vanishing_tau_is_the_minimum():
    assert soft_min(np.array([0.3, 0.1, 0.2]), 1e-320) == pytest.approx(0.1)


# --- floors ---------------------------------------------------------------------------------------


def test_a_missed_floor_costs_more_than_any_score_and_more_where_it_is_missed_by_more():
    floors = np.array([0.5, -np.inf, 0.2])
    met = np.array([0.5, -40.0, 0.2])
    assert merit(met, 0.1, floors) == soft_min(met, 0.1)
    assert merit(met - 0.5e-9, 0.1, floors) == soft_min(met - 0.5e-9, 0.1)  # but for rounding
    paid = []
    for step in ([2e-9, 0, 0], [0.01, 0, 0], [0.01, 0, 0.02], [0.5, 0, 0.5], [30.0, 0, 0]):
        d = met - np.array(step)
        paid.append(soft_min(d, 0.1) - merit(d, 0.1, floors))
        assert paid[-1] == pytest.approx(1e4 + 1e3 * (sum(step) - 1e-9), rel=1e-3)
    assert paid == sorted(paid)


def test_floors_hold_for_each_of_many_sets():
    d = np.random.default_rng(0).normal(size=(3, 4, 5))
    floors = np.array([-0.3, 0.1, -np.inf])
    found = merit(d, 0.2, floors)
    assert found.shape == (4, 5)
    for at in np.ndindex(4, 5):
        assert found[at] == pytest.approx(merit(d[(slice(None), *at)], 0.2, floors))


# --- what rounding leaves -------------------------------------------------------------------------


def test_rounding_is_that_of_the_value_and_of_views_that_weigh():
    case = cases.SMALL[0]
    V = frames(case, 1)[0]
    u = np.finfo(np.float64).eps
    for offset in (-1e6, 0.0, 1e6):
        f = objective_of(problem_of(case))
        point = replace(f, offsets=f.offsets + offset).at(V)
        own = max(w * part.rounding for w, part in zip(point.weights, point.factors, strict=True))
        assert point.rounding == pytest.approx(max(u * max(1.0, abs(point.value)), own))
        assert point.rounding >= u


# --- representative sets of many rows -------------------------------------------------------------


def share_by_singular_values(Phi, eps, S):
    """As the twin has it, but at the digits of a small ridge."""
    _, s, axes = np.linalg.svd(Phi[S], full_matrices=False)
    along = ((axes @ Phi.T) ** 2).sum(axis=1)
    return float(along @ (s**2 / (s**2 + eps)) / (Phi**2).sum())


@pytest.mark.parametrize("eps", [1.0, 1e-3, 1e-9, 1e-14])
def test_contributions_of_many_rows_of_few_columns_add_up(eps):
    rng = np.random.default_rng(2)
    Phi = rng.standard_normal((40, 4))
    problem = representative(pose([Phi], 30, 0.1, [eps]))
    chosen = rng.permutation(40)[:30]
    own = subset_gains(problem.pool, chosen, "representative")[:, 0]
    shares = [share_by_singular_values(Phi, eps, chosen[: j + 1]) for j in range(30)]
    np.testing.assert_allclose(np.cumsum(own), shares, atol=1e-13)
    total = subset_scores(problem.pool, chosen, "representative")[0]
    assert total == pytest.approx(shares[-1], abs=1e-13)
    if eps > 1e-6:
        assert total == pytest.approx(reference.explained(Phi, eps, chosen), abs=1e-9)


# --- what has no answer ---------------------------------------------------------------------------


def test_a_gram_matrix_that_is_singular_without_a_ridge_is_refused():
    Z = np.random.default_rng(0).standard_normal((5, 3))
    dependent = Z.copy()
    dependent[:, 2] = 0.0
    ViewFactor(Z, 0.0)
    ViewFactor(dependent, 1e-12)
    for none in (dependent, dependent.T):
        with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
            ViewFactor(none, 0.0)


def test_a_frame_that_is_lost_is_not_restored():
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 2)))[0]
    np.testing.assert_allclose(EUCLIDEAN.restore(3.0 * V), V, atol=1e-12)
    with pytest.raises(np.linalg.LinAlgError, match="lost"):
        EUCLIDEAN.restore(np.column_stack([V[:, 0], np.zeros(6)]))


# --- how long scores take -------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [1.0, 1e-13])
@pytest.mark.parametrize("objective", ["diverse", "representative"])
@pytest.mark.parametrize("p", [3, 40])
def test_the_work_of_scores_is_that_of_a_factor_of_the_rows(p, objective, eps):
    """Two, or nine where the rows themselves are factored, for every pair and number of a row; many
    rows of few columns come in blocks of 64; shares ask for products with second moments, too."""
    Phi = np.random.default_rng(0).standard_normal((100, p))
    for k in (5, 30, 90):
        problem = pose([Phi, Phi], k, 0.1, [eps, eps])
        if objective == "representative":
            problem = representative(problem)
        if k > 4 * p and eps == 1.0:
            own = 30.0 * k * min(k, 64) ** 2
        elif objective == "representative":
            own = 4.0 * k**2 * (p + k / 3)
        else:
            own = (2.0 if eps == 1.0 else 9.0) * k**2 * (p + k / 3)
        besides = 4.0 * k * p * p / 2 if objective == "representative" else 0.0
        assert scoring_work(problem) == pytest.approx(2 * (own + besides))


@pytest.mark.parametrize("eps", [0.5, 1e-6])
@pytest.mark.parametrize("objective", ["diverse", "representative"])
def test_without_an_item_a_set_loses_what_is_said(objective, eps):
    """Where its kernel can be inverted to some digits."""
    Phi = np.random.default_rng(5).standard_normal((20, 9))
    problem = pose([Phi], 6, 0.1, [eps])
    problem = problem if objective == "diverse" else representative(problem)
    S, asked = [2, 3, 5, 7, 11, 13], UTILITIES[objective]
    view = problem.pool.views[0]
    pivots = np.diag(np.linalg.inv(reference.kernel(Phi, eps)[np.ix_(S, S)]))
    found = asked.removals(view, np.array(S), pivots)
    whole = asked.total(view, np.array(S))
    lost = [whole - asked.total(view, np.delete(np.array(S), j)) for j in range(6)]
    np.testing.assert_allclose(found, lost, atol=1e-8)


@pytest.mark.parametrize("cancellation", [1e9, 1e11])
def test_norms_bound_scores_with_what_centred_rows_lose(cancellation, monkeypatch):
    Phi = np.random.default_rng(0).standard_normal((20, 9))
    view = pose([Phi], 4, 0.1, [0.1]).pool.views[0]
    logs = np.log(np.sort((Phi**2).sum(axis=1))[-4:] + 0.1)
    monkeypatch.setattr(type(view), "cancellation", cancellation)
    allowance = (9 + 8) * cancellation * np.finfo(float).eps
    found = UTILITIES["diverse"].norm_bound(view, 4)
    assert found - logs.mean() == pytest.approx(allowance, rel=1e-3)
