"""The paper, statement by statement: our code against the dense, literal twins of reference.py."""

import contextlib
import math

import numpy as np
import pytest
import scipy.sparse as sp

import cases
import reference
from cases import Array, Case
from fairnepv import exhaustive, score, select
from fairnepv.concave import GAP, certify
from fairnepv.errors import RankWarning
from fairnepv.objective import StiefelObjective, ViewFactor, fair_score, soft_min, subset_scores
from fairnepv.problem import Problem
from fairnepv.search import enumerate_subsets
from fairnepv.stiefel import relax
from fairnepv.stiefel.coordinates import Ambient
from fairnepv.stiefel.scf import scf_step
from fairnepv.views import Calibration, DiagonalView, KernelView, Pool
from frame_problems import (
    apply_H,
    kernels_of,
    objective_of,
    paper_kernels,
    paper_problem,
    point_at,
    problem_of,
)

SMALL = pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
SHIFTS = pytest.mark.parametrize("sigma", [0.0, 0.05, 2.0])


def frames(case: Case, count: int = 3) -> list[Array]:
    rng = np.random.default_rng(len(case.name))
    return [cases.random_frame(rng, len(case.views[0]), case.k) for _ in range(count)]


def stationary_frame(case: Case) -> Array:
    """A maximiser of our own, found to far below the tolerances used here."""
    problem = problem_of(case)
    return relax(problem, coordinates=Ambient(problem.pool)).basis


def dense_H(case: Case, V: Array, sigma: float = 0.0) -> Array:
    """Our operator as a matrix: applied, column by column."""
    return apply_H(point_at(case, V), np.eye(len(V)), sigma)


def our_step(case: Case, V: Array, alpha: float = 1.0, sigma: float = 0.0) -> Array:
    return scf_step(V, point_at(case, V).A_perp, alpha, sigma)


def subsets(case: Case, count: int = 10) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.choice(len(case.views[0]), case.k, replace=False) for _ in range(count)]


# --- Section 3 ------------------------------------------------------------------------------------


@SMALL
def test_lemma_1_embedding(case):
    """At a coordinate selector every g_q is d_q, and f_tau is F_tau."""
    problem, Ls = problem_of(case), kernels_of(case)
    objective = objective_of(problem)
    for S in subsets(case):
        point = objective.at(reference.selector(S, problem.n))
        for factor, L, eps in zip(point.factors, Ls, case.eps, strict=True):
            G = factor.Z.T @ factor.Z + eps * np.eye(case.k)
            np.testing.assert_allclose(G, L[np.ix_(S, S)], rtol=1e-12, atol=1e-12)
        d = reference.subset_scores(Ls, S)
        np.testing.assert_allclose(point.view_values, d, atol=1e-10)
        np.testing.assert_allclose(subset_scores(problem.pool, S, "diverse"), d, atol=1e-10)
        F = reference.fair_score(Ls, S, case.tau)
        assert point.value == pytest.approx(F, abs=1e-10)
        assert fair_score(problem.pool, S, case.tau, "diverse") == pytest.approx(F, abs=1e-10)


@SMALL
def test_lemma_1_the_relaxed_maximum_is_at_least_the_discrete_one(case):
    """From the best selector the relaxation can only climb."""
    problem, Ls = problem_of(case), kernels_of(case)
    best, optima = reference.exhaustive(Ls, case.k, case.tau)
    warm = reference.selector(optima[0], problem.n)
    relaxed = relax(problem, start=warm, coordinates=Ambient(problem.pool))
    assert relaxed.value >= best - 1e-12
    assert enumerate_subsets(problem).value == pytest.approx(best, abs=1e-10)


@SMALL
def test_lemma_1_gauge(case):
    rng = np.random.default_rng(2)
    for V in frames(case):
        Q = cases.random_frame(rng, case.k, case.k)
        expected = reference.f(kernels_of(case), V, case.tau)
        assert point_at(case, V @ Q).value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("k", [1, 2, 4, 7])
@pytest.mark.parametrize("p", [3, 5, 12])
def test_proposition_1_spectral_optimum(k, p):
    """One view: the maximum is the mean of the k largest log eigenvalues, and the frame spans them.

    For k > p the last k - p eigenvalues are the ridge, and any completion does.
    """
    rng = np.random.default_rng(10 * k + p)
    case = Case("one view", cases.random_views(rng, 12, [p]), k, 0.1, (0.05,))
    (L,) = kernels_of(case)
    problem = problem_of(case)
    expected = reference.spectral_value(L, k)
    certificate = certify(problem)
    assert certificate.spectral_bound == pytest.approx(expected, abs=1e-10)
    assert certificate.upper_bound <= expected + GAP
    dominant = reference.top_eigenvectors(L, k)
    assert point_at(case, dominant).value == pytest.approx(expected, abs=1e-10)
    for V in frames(case):
        assert point_at(case, V).value <= expected + 1e-12
    for start in ("spectral", "random"):
        relaxed = relax(problem, start=start)
        assert relaxed.value == pytest.approx(expected, abs=1e-10)
        inside = dominant[:, -min(k, p) :]  # the part of the eigenspace that is unique
        np.testing.assert_allclose(relaxed.basis @ (relaxed.basis.T @ inside), inside, atol=1e-5)


def test_proposition_1_freedom_inside_a_tied_eigenspace():
    """diag(5, 2, 2, 2, 1), k = 2: any unit vector of the tied space beside the first is optimal."""
    problem = paper_problem().over(Pool.of({"view": DiagonalView(np.array([5, 2, 2, 2, 1]), 0.0)}))
    pool = problem.pool
    objective = StiefelObjective(Ambient(pool).maps, pool.eps, pool.offsets, 0.1, 2)
    rng = np.random.default_rng(0)
    for _ in range(5):
        V = np.zeros((5, 2))
        V[0, 0] = 1.0
        V[1:4, 1:] = cases.random_frame(rng, 3, 1)
        point = objective.at(V)
        assert point.value == pytest.approx(math.log(10) / 2, abs=1e-14)
        assert point.residual < 1e-14


# --- Section 4.1: gradient, operator, gap ---------------------------------------------------------


@SMALL
def test_proposition_2_gradient_by_finite_differences(case):
    """grad f = 2 A_tau(V), over all n x k matrices."""
    for V in frames(case, 2):
        gradient = reference.riemannian_gradient_fd(kernels_of(case), V, case.tau)
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(2 * point_at(case, V).A, gradient, atol=2e-5 * scale)


@SMALL
def test_proposition_2_weights_and_identity(case):
    """w_q is the softmax of -g_q / tau, A the paper's sum, and V^T A = I/k."""
    Ls = kernels_of(case)
    for V in frames(case):
        point = point_at(case, V)
        g = reference.view_values(Ls, V)
        np.testing.assert_allclose(point.weights, reference.weights(g, case.tau), atol=1e-7)
        A = reference.A(Ls, V, case.tau)
        np.testing.assert_allclose(point.A, A, atol=1e-8 * (1 + np.abs(A).max()))
        np.testing.assert_allclose(V.T @ point.A, np.eye(case.k) / case.k, atol=1e-10)


@SMALL
def test_proposition_2_stationarity(case):
    """Our A is V/k where finite differences find no normal gradient, and nowhere else."""
    Ls = kernels_of(case)
    V = stationary_frame(case)
    np.testing.assert_allclose(point_at(case, V).A, V / case.k, atol=1e-6)
    gradient = reference.riemannian_gradient_fd(Ls, V, case.tau)
    normal = gradient - V @ (V.T @ gradient)
    np.testing.assert_allclose(normal, 0, atol=1e-5 * (1 + np.abs(gradient).max()))
    for W in frames(case):
        assert np.linalg.norm(reference.A_perp(Ls, W, case.tau)) > 1e-3
        assert np.linalg.norm(point_at(case, W).A - W / case.k) > 1e-3


@SMALL
def test_theorem_1_nepv_form_and_gauge(case):
    """H is the paper's operator, symmetric, H V = A everywhere, and H(VQ) = H(V)."""
    rng = np.random.default_rng(3)
    Ls = kernels_of(case)
    for V in frames(case):
        H = dense_H(case, V)
        scale = 1 + np.abs(H).max()
        np.testing.assert_allclose(H, reference.H(Ls, V, case.tau), atol=1e-8 * scale)
        np.testing.assert_allclose(H, H.T, atol=1e-12 * scale)
        np.testing.assert_allclose(H @ V, reference.A(Ls, V, case.tau), atol=1e-8 * scale)
        Q = cases.random_frame(rng, case.k, case.k)
        np.testing.assert_allclose(dense_H(case, V @ Q), H, atol=1e-8 * scale)


@SMALL
def test_theorem_1_at_a_stationary_point(case):
    """H(V) V = V/k, and H(V) = V V^T / k (the remark after it); nowhere else."""
    V = stationary_frame(case)
    point = point_at(case, V)
    np.testing.assert_allclose(apply_H(point, V), V / case.k, atol=1e-6)
    np.testing.assert_allclose(dense_H(case, V), V @ V.T / case.k, atol=1e-6)
    for W in frames(case):
        assert np.linalg.norm(apply_H(point_at(case, W), W) - W / case.k) > 1e-3


@pytest.mark.sample
@SMALL
@SHIFTS
def test_proposition_3_decomposition_and_gap(case, sigma):
    """H = d V V^T + A_perp V^T + V A_perp^T, and lambda_k - lambda_{k+1} >= d everywhere."""
    d = 1 / case.k + sigma
    for V in frames(case):
        H, A_perp = dense_H(case, V, sigma), point_at(case, V).A_perp
        scale = 1 + np.abs(H).max()
        decomposed = d * V @ V.T + A_perp @ V.T + V @ A_perp.T
        np.testing.assert_allclose(H, decomposed, atol=1e-9 * scale)
        lam = np.linalg.eigvalsh(H)[::-1]
        assert lam[case.k - 1] - lam[case.k] >= d - 1e-9 * scale
    V = stationary_frame(case)
    lam = np.linalg.eigvalsh(dense_H(case, V, sigma))[::-1]
    assert lam[case.k - 1] - lam[case.k] == pytest.approx(d, abs=1e-6)


@pytest.mark.sample
@SMALL
@SHIFTS
def test_proposition_4_spectrum(case, sigma):
    """All n eigenvalues of our H from the singular values of the twin's A_perp, in closed form."""
    for V in frames(case):
        expected = reference.closed_form_spectrum(kernels_of(case), V, case.tau, sigma)
        lam = np.linalg.eigvalsh(dense_H(case, V, sigma))
        np.testing.assert_allclose(lam, expected, atol=1e-7 * (1 + np.abs(expected).max()))


@pytest.mark.sample
@SMALL
@SHIFTS
def test_corollary_1_inertia(case, sigma):
    """(k, n - k - r, r) as (positive, zero, negative), r the rank of our A_perp."""
    n, k = len(case.views[0]), case.k
    for V in [*frames(case), stationary_frame(case)]:
        s = np.linalg.svd(point_at(case, V).A_perp, compute_uv=False)
        lam = np.linalg.eigvalsh(dense_H(case, V, sigma))
        lost = 1e-5 if s[0] < 1e-5 else 1e-9 * s[0]  # the last frame is stationary up to 1e-6
        r = int((s > lost).sum())
        assert r <= min(k, n - k)
        # a singular value s makes a negative eigenvalue of about -s^2/d, and no smaller
        d = 1 / k + sigma
        least = (np.sqrt(d**2 + 4 * s[s > lost] ** 2) - d).min(initial=1e-8) / 4
        inertia = tuple(
            int(count.sum()) for count in (lam > d / 2, np.abs(lam) <= least, lam < -least)
        )
        assert inertia == (k, n - k - r, r)
        positive = np.sort(lam)[-k:]
        assert positive.min() >= d - 1e-6


@pytest.mark.sample
@SMALL
@SHIFTS
@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_corollary_2_fixed_points(case, sigma, alpha):
    """A stationary subspace stays where it is under our step; any other one moves."""
    V = stationary_frame(case)
    residual = reference.A_perp(kernels_of(case), V, case.tau)
    most = 2 * case.k * np.linalg.norm(residual) + 1e-12
    assert reference.chordal(our_step(case, V, alpha, sigma), V) <= most
    for W in frames(case):
        assert reference.chordal(our_step(case, W, alpha, sigma), W) > 1e-4


@pytest.mark.sample
@SMALL
@SHIFTS
def test_lemma_3_angles(case, sigma):
    """Our step turns by arctan(2 s_j / d) / 2, the angles to the twin's top-k eigenspace."""
    Ls = kernels_of(case)
    for V in frames(case):
        V_next = our_step(case, V, sigma=sigma)
        theta = reference.rotation_angles(Ls, V, case.tau, sigma)
        np.testing.assert_allclose(reference.principal_angles(V, V_next), theta, atol=1e-7)
        assert theta.max() < math.pi / 4
        top = reference.top_eigenvectors(reference.H(Ls, V, case.tau, sigma), case.k)
        assert reference.chordal(V_next, top) < 1e-7


@SMALL
def test_lemma_3_a_larger_shift_turns_less(case):
    for V in frames(case):
        turns = np.array(
            [
                reference.principal_angles(V, our_step(case, V, sigma=sigma))
                for sigma in (0.0, 0.1, 1.0, 10.0)
            ]
        )
        moving = turns[0] > 1e-6  # at most min(k, n - k) angles are not zero
        assert moving.any()
        assert (np.diff(turns[:, moving], axis=0) < 0).all()


def test_golden_ratio_remark():
    """k = 1, sigma = 0, c = 1: the Fibonacci matrix, phi and -1/phi, and a tilt of 31.7 degrees."""
    pool = Pool.of({"view": KernelView(np.array([[1.0, 1.0], [1.0, 3.0]]), eps=0.0)})
    objective = StiefelObjective(Ambient(pool).maps, pool.eps, pool.offsets, 1.0, 1)
    V = np.array([[1.0], [0.0]])
    point = objective.at(V)
    assert np.linalg.norm(point.A_perp) == pytest.approx(1.0, abs=1e-14)
    H = apply_H(point, np.eye(2))
    np.testing.assert_allclose(H, [[1, 1], [1, 0]], atol=1e-14)
    phi = (1 + math.sqrt(5)) / 2
    np.testing.assert_allclose(np.linalg.eigvalsh(H), [-1 / phi, phi], atol=1e-14)
    turned = scf_step(V, point.A_perp, 1.0, 0.0)
    tilt = math.atan2(turned[1, 0], turned[0, 0])
    assert tilt == pytest.approx(math.atan(2) / 2, abs=1e-14)
    assert math.degrees(tilt) == pytest.approx(31.7, abs=0.05)


def test_golden_ratio_remark_rank_drop():
    """As c tends to 0 the rank of H falls from 2k to k."""
    ranks = []
    for c in (1.0, 1e-3, 0.0):
        pool = Pool.of({"view": KernelView(np.array([[1.0, c], [c, 3.0]]), eps=0.0)})
        objective = StiefelObjective(Ambient(pool).maps, pool.eps, pool.offsets, 1.0, 1)
        H = apply_H(objective.at(np.array([[1.0], [0.0]])), np.eye(2))
        ranks.append(np.linalg.matrix_rank(H, tol=1e-10))
    assert ranks == [2, 2, 1]


@pytest.mark.sample
@SMALL
@SHIFTS
@pytest.mark.parametrize("alpha", [1.0, 0.4])
def test_lemma_4_compression(case, sigma, alpha):
    """Our closed-form step is the one through the 2k x 2k matrix, which holds H exactly."""
    n, k = len(case.views[0]), case.k
    Ls = kernels_of(case)
    for V in frames(case):
        if n < 2 * k:  # the lemma assumes n >= 2k; the dense operator is the twin for the rest
            expected = reference.scf_step(Ls, V, case.tau, alpha, sigma)
        else:
            expected = reference.scf_step_compressed(Ls, V, case.tau, alpha, sigma)
            A_perp = point_at(case, V).A_perp
            Q = np.linalg.qr(np.hstack([V, A_perp]))[0]
            Q[:, :k] = V
            R22 = Q[:, k:].T @ A_perp
            M = np.block([[(1 / k + sigma) * np.eye(k), R22.T], [R22, np.zeros((k, k))]])
            H = dense_H(case, V, sigma)
            np.testing.assert_allclose(Q @ M @ Q.T, H, atol=1e-9 * (1 + np.abs(H).max()))
        np.testing.assert_allclose(our_step(case, V, alpha, sigma), expected, atol=1e-7)


# --- Appendix A.2 and Theorem 2 -------------------------------------------------------------------


@SMALL
def test_lemma_2_inverse_gram(case):
    """|G(V)^-1 - G(W)^-1| <= 7/2 |L| eta / (lambda_min lambda_min), with our inverses."""
    rng = np.random.default_rng(5)
    for V in frames(case):
        for turn in (0.3, 0.05, 1e-3):
            xi = rng.standard_normal(V.shape)
            xi -= V @ (V.T @ xi)
            W = reference.polar(V + turn * xi / np.linalg.norm(xi))
            W = W @ reference.polar(W.T @ V)  # aligned: V^T W is positive semidefinite
            assert reference.chordal(V, W) < 0.5
            for Phi, eps, L in zip(case.views, case.eps, kernels_of(case), strict=True):
                inverses = [ViewFactor(Phi.T @ X, eps).N / eps for X in (V, W)]
                for X, inverse in zip((V, W), inverses, strict=True):
                    expected = np.linalg.inv(X.T @ L @ X)
                    size = np.abs(expected).max()
                    np.testing.assert_allclose(inverse, expected, atol=1e-7 * size)
                change = np.linalg.norm(inverses[0] - inverses[1], 2)
                assert change <= reference.inverse_gram_bound(L, V, W)


def contracting_case(k: int, ratio: float) -> Case:
    """One view, lambda_{k+1} / lambda_k = ratio, in a random orthonormal basis."""
    rng = np.random.default_rng(k)
    n, eps = 3 * k + 2, 0.1
    lam = np.concatenate([np.linspace(10, 20, k), 10 * ratio * np.linspace(1, 0.5, n - k)])
    Phi = cases.random_frame(rng, n, n) * np.sqrt(lam - eps)
    return Case("contracting", [Phi], k, 0.1, (eps,))


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("share", [0.0, 0.45, 0.9], ids=lambda share: f"shift{share}")
def test_theorem_2_contraction(k, share):
    """M = 1 and C_DK = 2 sqrt(k), where C = sigma + ratio/k is a local Lipschitz constant of H.

    The hypothesis C_DK C < 1/k + sigma then reads sigma (2 sqrt(k) - 1) < (1 - 2 sqrt(k) ratio)/k,
    which needs ratio < 1/(2 sqrt(k)) and sigma < 1/(k (2 sqrt(k) - 1)).
    """
    C_DK = 2 * math.sqrt(k)
    ratio = 0.4 / C_DK
    sigma = share * (1 - C_DK * ratio) / (k * (C_DK - 1))
    case = contracting_case(k, ratio)
    (L,) = kernels_of(case)
    lam = np.linalg.eigvalsh(L)[::-1]
    assert lam[k] / lam[k - 1] == pytest.approx(ratio)
    assert sigma < 1 / (k * (C_DK - 1))
    C, delta = sigma + ratio / k, 1 / k + sigma
    rho = C_DK * C / delta
    assert rho < 1  # the hypothesis (12)
    V_star = reference.top_eigenvectors(L, k)
    rng = np.random.default_rng(k)
    for distance in (1e-2, 1e-4):
        for _ in range(5):
            xi = rng.standard_normal(V_star.shape)
            V = reference.polar(V_star + distance * (xi - V_star @ (V_star.T @ xi)))
            before = reference.chordal(V, V_star)
            change = dense_H(case, V, sigma) - dense_H(case, V_star, sigma)
            assert np.linalg.norm(change, 2) <= C * before * (1 + 10 * distance)
            V_next = our_step(case, V, sigma=sigma)
            after = reference.chordal(V_next, V_star)
            assert after <= rho * before
            # The step itself is better than the theorem: no C_DK in it, to first order.
            assert after <= C / delta * before * (1 + 10 * distance)
            expected = reference.scf_step(kernels_of(case), V, case.tau, sigma=sigma)
            assert reference.chordal(V_next, expected) < 1e-8
    # Along the slowest direction, the k-th eigenvector towards the next one, the rate is C / delta.
    slow = V_star.copy()
    slowest = np.linalg.eigh(L)[1][:, -k - 1]
    column = int(np.argmin(np.linalg.norm(L @ V_star, axis=0)))  # the k-th eigenvector
    slow[:, column] = math.cos(1e-4) * slow[:, column] + math.sin(1e-4) * slowest
    after = reference.chordal(our_step(case, slow, sigma=sigma), V_star)
    assert after == pytest.approx(C / delta * math.sin(1e-4), rel=1e-4)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_theorem_2_geometric_convergence(k):
    """d_ch(V_t, V*) <= rho^t d_ch(V_0, V*), by our iteration, down to rounding."""
    C_DK = 2 * math.sqrt(k)
    ratio, sigma = 0.4 / C_DK, 0.2 / (k * (C_DK - 1))
    rho = C_DK * (sigma + ratio / k) / (1 / k + sigma)
    assert rho < 1
    case = contracting_case(k, ratio)
    V_star = reference.top_eigenvectors(kernels_of(case)[0], k)
    rng = np.random.default_rng(k)
    xi = rng.standard_normal(V_star.shape)
    V = reference.polar(V_star + 0.02 * (xi - V_star @ (V_star.T @ xi)))
    start = reference.chordal(V, V_star)
    for t in range(1, 40):
        V = our_step(case, V, sigma=sigma)
        assert reference.chordal(V, V_star) <= rho**t * start + 1e-13


# --- Appendix B -----------------------------------------------------------------------------------


@SMALL
def test_appendix_b_certificate(case):
    """U_{k,q} per view, their soft-min above every frame, every subset and the relaxed maximum.

    Our own bound is about subsets alone, and never worse by more than its duality gap.
    """
    problem, Ls = problem_of(case), kernels_of(case)
    certificate = certify(problem)
    U = [reference.spectral_value(L, case.k) for L in Ls]
    np.testing.assert_allclose(list(certificate.spectral.values()), U, atol=1e-9)
    expected = reference.spectral_certificate(Ls, case.k, case.tau)
    assert certificate.spectral_bound == pytest.approx(expected, abs=1e-9)
    assert certificate.upper_bound <= certificate.spectral_bound + GAP
    assert (np.array(list(certificate.by_view.values())) <= np.array(U) + GAP).all()
    hadamard = [reference.diagonal_value(L, case.k) for L in Ls]
    np.testing.assert_allclose(list(certificate.diagonal.values()), hadamard, atol=1e-10)
    assert certificate.spectral_bound >= relax(problem).value - 1e-12
    best, _ = reference.exhaustive(Ls, case.k, case.tau)
    assert certificate.spectral_bound >= best
    assert certificate.upper_bound >= best
    for V in frames(case):
        point = point_at(case, V)
        assert certificate.spectral_bound >= point.value
        assert (np.array(U) >= point.view_values - 1e-10).all()


@pytest.mark.parametrize("widths", [[60], [60, 5], [9, 60, 30], [25, 35]], ids=str)
def test_appendix_b_certificate_of_wide_views_on_few_rows(monkeypatch, widths):
    """n rows stand in for more columns than a Gram matrix may have: the bound is still U_{k,q}."""
    monkeypatch.setattr("fairnepv.concave.spectral.WIDEST_GRAM", 40)
    rng = np.random.default_rng(len(widths))
    views = cases.random_views(rng, 20, widths)
    case = cases.Case("wide", views, 6, 0.1, tuple(rng.uniform(0.01, 1, len(views))))
    certificate = certify(problem_of(case))
    U = [reference.spectral_value(L, case.k) for L in kernels_of(case)]
    np.testing.assert_allclose(list(certificate.spectral.values()), U, atol=1e-9)
    assert (np.array(list(certificate.by_view.values())) <= np.array(U) + GAP).all()
    assert set(certificate.rules.values()) == {"spectral"}
    assert list(certificate.ranks.values()) == [min(20, p) for p in widths]


@pytest.mark.parametrize("rank", [None, 3])
def test_appendix_b_certificate_of_a_sparse_view_of_many_columns(rank):
    """Five thousand columns as they are, and of low rank, where log eps fills the bound."""
    rng = np.random.default_rng(7)
    rows = sp.random_array((30, 5000), density=0.01, rng=rng, format="csr")
    if rank is not None:
        rows = sp.csr_array(rows[np.arange(30) % rank])
    pool = Pool.of({"wide": rows}, eps=0.1)
    certificate = certify(Problem(pool, 5, 0.1, Calibration("none")))
    U = reference.spectral_value(reference.kernel(rows.toarray(), 0.1), 5)
    assert certificate.spectral_bound == pytest.approx(U, abs=1e-9)
    assert certificate.upper_bound <= U + GAP
    assert certificate.ranks == {"wide": rank or 30}


def test_appendix_b_certificate_needs_the_smaller_side_alone(monkeypatch):
    """Thirty rows of four thousand columns take seconds otherwise."""
    sizes = []

    def counting(gram, **options):
        sizes.append(len(gram))
        return np.linalg.eigvalsh(gram)

    monkeypatch.setattr("fairnepv.compute.place.eigvalsh", counting)
    case = cases.Case(
        "few rows",
        cases.random_views(np.random.default_rng(0), 30, [200, 9]),
        4,
        0.1,
        (0.1, 0.1),
    )
    certify(problem_of(case))
    assert {30, 9} <= set(sizes)
    assert max(sizes) == 30


@SMALL
@pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")
def test_appendix_b_suboptimality_against_enumeration(case):
    """The report of a subset: d_q, their minimum, and how far its F_tau is from the best."""
    names = [f"view{q}" for q in range(len(case.views))]
    data = dict(zip(names, case.views, strict=True))
    options = {
        "tau": case.tau,
        "eps": dict(zip(names, case.eps, strict=True)),
        "calibration": "none",
    }
    Ls = kernels_of(case)
    best, optima = reference.exhaustive(Ls, case.k, case.tau)
    optimum = exhaustive(data, case.k, **options)
    assert optimum.fair_score == pytest.approx(best, abs=1e-10)
    assert tuple(sorted(optimum.indices.tolist())) in optima
    S = subsets(case, 1)[0]
    narrow = any(case.k > Phi.shape[1] for Phi in case.views)
    with pytest.warns(RankWarning) if narrow else contextlib.nullcontext():
        record = score(data, S, **options)
    d = reference.subset_scores(Ls, S)
    np.testing.assert_allclose(list(record.scores.values()), d, atol=1e-10)
    assert record.minimum == pytest.approx(d.min(), abs=1e-10)
    lost = best - reference.fair_score(Ls, S, case.tau)
    assert optimum.suboptimality(record) == pytest.approx(lost, abs=1e-10)


# --- Appendix C -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [1e-3, 0.15, 1.0, 100.0])
def test_appendix_c_identity(tau):
    """Our soft-min is d_min + tau log M - tau log sum exp(-Delta_q / tau), and (D-Fair)."""
    rng = np.random.default_rng(0)
    for M in (1, 2, 5):
        for spread in (0.0, 0.01, 1.0, 30.0):
            d = rng.normal(scale=spread, size=M) + 3
            ours = soft_min(d, tau)
            assert ours == pytest.approx(reference.soft_min_identity(d, tau), rel=1e-12)
            assert ours == pytest.approx(reference.soft_min(d, tau), rel=1e-11)


@pytest.mark.parametrize("tau", [1e-3, 0.15, 1.0, 100.0])
def test_appendix_c_bracket(tau):
    """d_min <= F <= d_min + tau log M; the lower end when tied, the upper end when one is far."""
    rng = np.random.default_rng(1)
    for M in (1, 2, 5):
        for spread in (0.01, 1.0, 30.0):
            d = rng.normal(scale=spread, size=M)
            low, high = reference.soft_min_bracket(d, tau)
            assert low - 1e-12 <= soft_min(d, tau) <= high + 1e-12
        assert soft_min(np.full(M, 0.7), tau) == pytest.approx(0.7, abs=1e-13 * max(1, tau))
        far = np.append(-1.0, np.full(M - 1, -1.0 + 50 * tau))
        assert soft_min(far, tau) == pytest.approx(-1 + tau * math.log(M), abs=1e-12 * max(1, tau))


@pytest.mark.parametrize("row", cases.PAPER_TABLE)
def test_appendix_c_worked_table(row):
    """Every line of the table, to its three digits, from our scores of diagonal kernels."""
    expected = cases.PAPER_TABLE[row]
    problem = paper_problem()
    S = np.array(expected.subset)
    text, vision = subset_scores(problem.pool, S, "diverse")
    assert (round(text, 3), round(vision, 3)) == (expected.text, expected.vision)
    F = fair_score(problem.pool, S, problem.tau, "diverse")
    assert round(F, 3) == expected.fair_score
    assert pytest.approx(reference.fair_score(paper_kernels(), S, problem.tau), abs=1e-12) == F
    low, high = reference.soft_min_bracket(np.array([text, vision]), problem.tau)
    end = low if row in ("exact", "fairnepv") else high
    assert pytest.approx(end, abs=2e-5) == F


def paper_data() -> dict[str, DiagonalView]:
    paper = cases.paper_instance()
    return {name: DiagonalView(paper[name], eps=0.0) for name in ("text", "vision")}


def test_appendix_c_enumeration():
    optimum = exhaustive(paper_data(), 5, tau=0.15, calibration="none")
    assert optimum.fair_score == pytest.approx(cases.PAPER_OPTIMUM, abs=1e-12)
    assert optimum.ties == cases.PAPER_OPTIMA
    assert optimum.subsets == math.comb(15, 5)


def test_section_5_default_returns_the_enumerated_optimum():
    """Two specialists of each side and one balanced item; the paper's pipeline at most that."""
    selection = select(paper_data(), 5, tau=0.15, calibration="none")
    assert round(selection.fair_score, 4) == 1.1408
    kinds = np.bincount(selection.indices // 5, minlength=3)
    np.testing.assert_array_equal(kinds, [2, 2, 1])
    pipeline = select(paper_data(), 5, tau=0.15, calibration="none", method="nepv")
    assert cases.PAPER_BALANCED - 1e-12 <= pipeline.fair_score <= cases.PAPER_OPTIMUM + 1e-12


@pytest.mark.parametrize("row", ["text-only", "vision-only", "averaged", "fixed-weight"])
def test_section_5_baselines(row):
    """Single views collapse the other one; the averages may tie but never beat the optimum."""
    selection = select(paper_data(), 5, tau=0.15, calibration="none", method=row)
    if row.endswith("only"):
        assert selection.fair_score == pytest.approx(cases.PAPER_TABLE[row].fair_score, abs=5e-4)
    d = reference.subset_scores(paper_kernels(), selection.indices)
    np.testing.assert_allclose(list(selection.scores.values()), d, atol=1e-12)
    assert selection.fair_score < cases.PAPER_OPTIMUM - 1e-3
