"""Bounds: whatever the dual variables, never below the best set; and the solver that finds them."""

import math
import tracemalloc
from dataclasses import replace
from decimal import Decimal, getcontext
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import cases
import fairnepv
import reference
from fairnepv import DiagonalView, KernelView, Status
from fairnepv.concave import Dual, ViewDual, certify, check_proof, costs, price, view_bound
from fairnepv.concave import bounds as bounds_module
from fairnepv.concave import concave as concave_module
from fairnepv.concave.concave import Concave
from fairnepv.concave.state import ConcaveState
from fairnepv.concave.topk import TopK
from fairnepv.loop import Budget, Context, pack, run, unpack
from fairnepv.objective import entropy_price
from fairnepv.objective.majorant import conjugate
from fairnepv.objective.ritz import CRUDE
from fairnepv.problem import Constraints, Problem
from fairnepv.views import kernel as kernel_module
from search_problems import (
    STORAGE,
    examples,
    feasible_subsets,
    hostile,
    indices,
    kernels,
    pose,
    pose_case,
    random_rules,
    views_of,
)

SEEDS = st.integers(0, 10**6)
GAP = 2e-3
getcontext().prec = 60


# --- Any dual variables ---------------------------------------------------------------------------


def random_dual(rng: np.random.Generator, problem: Problem, columns: int) -> Dual:
    """Weights on the simplex, and slopes that are positive definite by a random margin."""
    n, M = problem.n, len(problem.pool.views)
    rows = np.sort(rng.permutation(n)[: rng.integers(1, n + 1)])
    omega = rng.dirichlet(np.full(M, 0.7))
    views = []
    for view in problem.pool.views:
        B = rng.standard_normal((len(rows), columns))
        G = B.T @ view.inner(rows, rows) @ B
        top = np.linalg.eigvalsh(G)[-1] if columns else 0.0
        level = float(10.0 ** rng.uniform(-2, 2))
        B *= math.sqrt(rng.random() * level / top) if top > 0 else 1.0
        views.append(ViewDual(level, B))
    return Dual(omega, rows, tuple(views))


def slopes_of(dual: Dual, Phis: list[np.ndarray]) -> list[np.ndarray]:
    """W_q, p x p."""
    slopes = []
    for own, Phi in zip(dual.views, Phis, strict=True):
        A = own.combine.T @ Phi[dual.rows]
        slopes.append(own.level * np.eye(Phi.shape[1]) - A.T @ A)
    return slopes


def enumerated(problem: Problem, Ls: list[np.ndarray]) -> float:
    subsets = feasible_subsets(problem.constraints, problem.n, problem.k)
    return max(reference.fair_score(Ls, S, problem.tau) for S in subsets)


@pytest.mark.parametrize("storage", STORAGE)
@examples(80)
@given(SEEDS)
def test_any_dual_variables_prove_what_the_twin_says_and_nothing_false(storage, seed):
    """Also with more columns than a set has rows, or than a view has features."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 9))
    k, tau = int(rng.integers(1, n)), float(rng.choice([0.01, 0.2, 1.0, 1e4]))
    views = cases.random_views(rng, n, rng.integers(1, 7, size=rng.integers(1, 4)))
    eps = list(10.0 ** rng.uniform(-3, 1, size=len(views)))
    rules = random_rules(rng, n, k) if rng.random() < 0.5 else Constraints()
    problem = pose([STORAGE[storage](view) for view in views], k, tau, eps, rules=rules)
    dual = random_dual(rng, problem, int(rng.integers(0, 10)))
    bound = price(problem, dual).bound
    assert bound >= enumerated(problem, kernels(views, eps))
    subsets = feasible_subsets(rules, n, k)
    expected = reference.dual_bound(
        views, eps, k, tau, dual.weights, slopes_of(dual, views), subsets
    )
    if storage == "kernel":  # whose rank is known to rounding only
        assert expected - 1e-10 * abs(expected) <= bound
    else:
        assert bound == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_prices_and_bound_of_a_worked_example():
    """Orthogonal rows, W = I: s_i = |phi_i|^2 / k and c = k h(1), by hand."""
    problem = pose([np.diag([1.0, 2.0, 3.0])], 2, 0.1, [0.5])
    nothing = np.empty((3, 0))
    priced = price(problem, Dual(np.ones(1), np.arange(3), (ViewDual(1.0, nothing),)))
    np.testing.assert_allclose(priced.prices, [0.5, 2.0, 4.5], rtol=1e-13)
    assert priced.bound == pytest.approx(6.5 + (0.5 - 1.0), abs=1e-11)


@pytest.mark.parametrize("w", [1e-3, 0.5, 1.0, 2.0, 1e3])
@pytest.mark.parametrize("eps", [1e-6, 0.5, 2.0])
def test_the_conjugate_is_a_maximum(w, eps):
    value = float(conjugate(np.array([w]), eps)[0])
    assert value == pytest.approx(reference.conjugate(w, eps), rel=1e-12)
    t = np.concatenate([[0.0], 10.0 ** np.linspace(-9, 6, 4001)])
    tried = (np.log(t + eps) - w * t).max()
    assert tried <= value + 1e-12
    assert tried >= value - 1e-5


def test_more_columns_than_items_count_only_the_k_least_eigenvalues():
    """The sum over all of them would be far below the optimum."""
    rng = np.random.default_rng(0)
    Phi = 0.05 * rng.standard_normal((8, 6))
    problem = pose([Phi], 2, 0.1, [0.01])
    combine = 0.001 * rng.standard_normal((8, 8))
    bound = price(problem, Dual(np.ones(1), np.arange(8), (ViewDual(50.0, combine),))).bound
    assert bound >= enumerated(problem, kernels([Phi], [0.01]))


@pytest.mark.parametrize("level", [1.0, 0.0, -1.0])
def test_an_indefinite_slope_proves_nothing(level):
    Phi = np.random.default_rng(1).standard_normal((6, 4))
    problem = pose([Phi, Phi], 3, 0.1, [0.1, 0.1])
    steep = ViewDual(level, 2.0 * np.eye(6)[:, :2])
    flat = ViewDual(1.0, np.zeros((6, 1)))
    assert price(problem, Dual(np.array([0.5, 0.5]), np.arange(6), (flat, steep))).bound == np.inf
    assert price(problem, Dual(np.array([1.0, 0.0]), np.arange(6), (flat, flat))).bound < np.inf


def test_a_barely_indefinite_slope_proves_nothing():
    """An eigenvalue of zero to rounding could be negative, and must not count."""
    Phi = np.random.default_rng(2).standard_normal((6, 4))
    problem = pose([Phi], 3, 0.1, [0.1])
    column = np.eye(6)[:, :1]
    for sign in (-1, 0, 1):
        level = float((Phi[0] ** 2).sum()) * (1 + sign * 1e-16)
        dual = Dual(np.ones(1), np.arange(6), (ViewDual(level, column),))
        assert price(problem, dual).bound == np.inf


def test_only_equal_weights_bound_the_mean():
    rng = np.random.default_rng(4)
    views = [rng.standard_normal((8, 6)), 10 * rng.standard_normal((8, 6))]
    problem = pose(views, 2, math.inf, [0.1, 0.1])
    solver = Concave(problem, gap=1e-3)
    dual = solver.dual(run(solver).state)
    assert enumerated(problem, kernels(views, [0.1, 0.1])) <= price(problem, dual).bound < np.inf
    skewed = replace(dual, weights=np.array([1.0, 0.0]))
    assert price(problem, skewed).bound == np.inf


@examples(40)
@given(SEEDS)
def test_further_rules_never_raise_the_bound(seed):
    rng = np.random.default_rng(seed)
    n, k = 9, int(rng.integers(1, 8))
    views = cases.random_views(rng, n, [4, 3])
    rules = random_rules(rng, n, k)
    free = pose(views, k, 0.1, [0.1, 0.1])
    dual = random_dual(rng, free, 2)
    chain = [
        Constraints(),
        Constraints(fixed_in=rules.fixed_in),
        Constraints(fixed_in=rules.fixed_in, fixed_out=rules.fixed_out),
        rules,
    ]
    bounds = [price(replace(free, constraints=r), dual).bound for r in chain]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(bounds))


# --- Rounding -------------------------------------------------------------------------------------


def decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)


def exact_dual_value(
    views: list[np.ndarray], eps: list[float], k: int, tau: float, dual: Dual
) -> Decimal:
    """The bound of slopes of rank one, to 60 digits: their eigenvalues are rational."""
    n, M = len(views[0]), len(views)
    whole = sum(map(Fraction, dual.weights.tolist()))
    prices, total = [Fraction(0)] * n, Decimal(0)
    for Phi, e, own, weight in zip(views, eps, dual.views, dual.weights.tolist(), strict=True):
        omega = Fraction(weight) / whole
        rows = [[Fraction(float(value)) for value in row] for row in Phi]
        b = [Fraction(value) for value in own.combine[:, 0].tolist()]
        a = [
            sum(b_t * rows[t][j] for b_t, t in zip(b, dual.rows.tolist(), strict=True))
            for j in range(Phi.shape[1])
        ]
        level = Fraction(own.level)
        for i, row in enumerate(rows):
            along = sum(x * y for x, y in zip(row, a, strict=True))
            prices[i] += omega / k * (level * sum(x * x for x in row) - along * along)
        steep = level - sum(x * x for x in a)
        assert steep > 0
        p = Phi.shape[1]
        ws = [steep, *([level] * (p - 1))][:k]
        c = sum((exact_conjugate(w, Fraction(e)) for w in ws), Decimal(0))
        c += max(k - p, 0) * Decimal(e).ln()
        total += decimal(omega) * (c / k + Decimal(tau) * (decimal(omega) * M).ln())
    return total + decimal(sum(sorted(prices)[-k:]))


def exact_conjugate(w: Fraction, eps: Fraction) -> Decimal:
    if w * eps >= 1:
        return decimal(eps).ln()
    return -decimal(w).ln() - 1 + decimal(eps * w)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("scale", [0, 3, 140])
@examples(40)
@given(SEEDS)
def test_rounding_never_takes_the_bound_below_its_exact_value(scale, dtype, seed):
    """`scale` is the power of ten by which rows differ; squares may be 1e-290 and 1e290."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(3, 7)), int(rng.integers(1, 3))
    limits = {np.float64: 140.0, np.float32: 3.0, np.float16: 1.0}
    power = min(scale, limits[dtype])
    tau = float(rng.choice([0.01, 1.0, 1e6, 1e12]))
    views = [
        (rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-power, power, size=(n, 1))).astype(
            dtype
        )
        for p in rng.integers(1, 5, size=2)
    ]
    eps = [float(10.0 ** rng.uniform(-3, 1)) for _ in views]
    problem = pose(views, k, tau, eps)
    omega = rng.dirichlet(np.ones(2)) if tau < 10 else np.array([0.5 + 1e-9, 0.5 - 1e-9])
    rows = np.arange(n)
    own, condition = [], 1.0
    for Phi in views:
        b = rng.standard_normal(n) / np.sqrt((Phi.astype(float) ** 2).sum(axis=1) + 1e-280)
        reach = ((b @ Phi.astype(float)) ** 2).sum()
        own.append(ViewDual(float(reach * rng.uniform(1.001, 3.0)), b[:, None]))
        terms = np.abs(b) @ np.sqrt((Phi.astype(float) ** 2).sum(axis=1))
        condition = max(condition, terms**2 / (own[-1].level - reach))
    dual = Dual(omega, rows, tuple(own))
    bound = price(problem, dual).bound
    exact = exact_dual_value([view.astype(float) for view in views], eps, k, tau, dual)
    assert math.isfinite(bound)
    assert Decimal(bound) >= exact
    size = abs(float(exact))
    for_scores = 1e-12 * (1.0 + size)  # what a score that is held against the bound may owe
    # `entropy_price` is rounded up by four units of what the weights are off the uniform ones; a
    # large tau multiplies that, however small the bound is.
    for_weights = 4.0 * tau * float(np.finfo(np.float64).eps * abs(2.0 * omega - 1.0).mean())
    allowed = for_scores + for_weights + 1e-12 * condition * max(size, 1.0)
    assert float(Decimal(bound) - exact) <= allowed


def exact_prices(Phi: np.ndarray, level: float, b: np.ndarray) -> list[Fraction]:
    """level |phi|^2 - (phi . a)^2 of every row, a = sum_t b_t phi_t, without rounding."""
    rows = [[Fraction(float(value)) for value in row] for row in Phi]
    a = [
        sum(Fraction(float(b_t)) * row[j] for b_t, row in zip(b, rows, strict=True))
        for j in range(Phi.shape[1])
    ]
    along = [sum(x * y for x, y in zip(row, a, strict=True)) for row in rows]
    return [
        Fraction(level) * sum(x * x for x in row) - v * v
        for row, v in zip(rows, along, strict=True)
    ]


def check_prices(Phi: np.ndarray, level: float, b: np.ndarray) -> None:
    problem = pose([Phi], 1, 0.1, [0.1])
    dual = Dual(np.ones(1), np.arange(len(Phi)), (ViewDual(level, b[:, None]),))
    priced = price(problem, dual)
    assert math.isfinite(priced.bound)
    for computed, exact in zip(priced.prices, exact_prices(Phi, level, b), strict=True):
        assert Fraction(float(computed)) >= exact


@examples(30)
@given(SEEDS)
def test_prices_are_rounded_up_where_combinations_cancel(seed):
    """a is the small difference of two large terms, and rows lie along it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(3)
    Phi = np.array([x, x * (1 + 1e-4 * rng.uniform(0.5, 1)), *(rng.uniform(1, 3, size=(3, 1)) * x)])
    b = np.array([1e3, -1e3, 0.0, 0.0, 0.0]) * rng.uniform(0.5, 1)
    reach = float(((b @ Phi) ** 2).sum())
    check_prices(Phi, 1.001 * reach, b)


@pytest.mark.parametrize("p", [2000, 5000])
def test_prices_are_rounded_up_where_many_small_squares_are_lost(p):
    """Each of them is below half a unit of the first."""
    row = np.full(p, math.sqrt(0.45 * 2.0**-53))
    row[0] = 1.0
    check_prices(np.array([row, np.roll(row, 1), np.roll(row, p // 2)]), 1.0, np.zeros(3))


def test_the_entropy_is_rounded_up():
    """At a large tau it is a large multiple of a difference that cancels."""
    problem = pose([np.eye(3), np.eye(3)], 1, 1e12, [0.1, 0.1])
    for j in range(1, 200):
        x = Fraction(j * 7919, 2**45)
        omega = [Fraction(1, 2) + x, Fraction(1, 2) - x]
        exact = Decimal(10**12) * sum(decimal(w) * decimal(2 * w).ln() for w in omega)
        computed = entropy_price(np.array([float(w) for w in omega]), problem.tau)
        assert Decimal(computed) * (1 + Decimal("1e-15")) >= exact
        assert Decimal(computed) <= exact + Decimal(1e12 * 1e-14) * decimal(x)


@pytest.mark.parametrize("block", [1, 7, 100])
def test_the_same_bits_at_any_block_size(block):
    rng = np.random.default_rng(3)
    views = cases.random_views(rng, 500, [7, 5])
    views[1] = sp.csr_array(np.where(rng.random((500, 5)) < 0.4, views[1], 0.0))
    whole, cut = (pose(views, 6, 0.05, [0.1, 0.1], block=b) for b in (None, block))
    dual = random_dual(rng, whole, 4)
    assert price(whole, dual).bound == price(cut, dual).bound
    assert (price(whole, dual).prices == price(cut, dual).prices).all()
    assert certify(whole).upper_bound == certify(cut).upper_bound


@pytest.mark.parametrize("tau", [1.0, 1e6, 1e12])
def test_a_large_tau_does_not_multiply_rounding(tau):
    """All items are fixed, so the bound is tight; F is the mean of the views to rounding."""
    rng = np.random.default_rng(7)
    views = cases.random_views(rng, 8, [6, 5, 4])
    rules = Constraints(fixed_in=indices(1, 3, 4))
    problem = pose(views, 3, tau, [0.1, 0.1, 0.1], rules=rules)
    Ls = kernels(views, [0.1] * 3)
    d = reference.subset_scores(Ls, [1, 3, 4])
    F = d.mean() - d.var() / (2 * tau) if tau > 1 else reference.soft_min(d, tau)
    bound = certify(problem, gap=1e-9).upper_bound
    assert F - 1e-12 <= bound <= F + 1e-6


# --- Kernels --------------------------------------------------------------------------------------


@pytest.mark.sample
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("eps", [1e-3, 1e-6, 1e-8])
def test_a_kernel_that_was_rounded_to_float32_is_bounded_as_it_is(seed, eps):
    """It is indefinite by some 1e-7 and has no sharp rank, and small ridges see both."""
    rng = np.random.default_rng(seed)
    n, p = 10, int(rng.integers(2, 5))
    k = int(rng.integers(p, 8))
    Phi = rng.standard_normal((n, p)).astype(np.float32)
    problem = pose([KernelView(Phi @ Phi.T, eps=eps)], k, 0.1, [eps])
    K = views_of(problem.pool)[0].kernel.astype(float)

    def score(S: tuple[int, ...]) -> float:
        lam = np.linalg.eigvalsh(K[np.ix_(S, S)]).clip(min=0)
        return float(np.log(lam + eps).mean())

    best = max(score(S) for S in feasible_subsets(Constraints(), n, k))
    assert certify(problem).upper_bound >= best


def test_eigenvalues_below_the_rank_tolerance_count():
    values = [1, 1, 1, 1e-6, 9e-7, 8e-7, 7e-7, 3e-7, 2e-7, 1e-7]
    view = KernelView(np.diag(values).astype(np.float32), eps=1e-9)
    best = np.log(np.sort(np.float32(values).astype(float))[-6:] + 1e-9).mean()
    assert best <= certify(pose([view], 6, 0.1, [1e-9])).upper_bound <= best + 0.01


def test_a_kernel_gives_its_smallest_eigenvalue_to_the_ridge(monkeypatch):
    """Without a ridge of its own the bound would be much weaker."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((10, 4))
    L = X @ X.T + 0.5 * np.eye(10)
    problem = pose([KernelView(L, eps=0)], 6, 0.1, [0.0])
    best = max(reference.subset_score(L, S) for S in feasible_subsets(Constraints(), 10, 6))
    shifted = certify(problem, gap=1e-4).upper_bound
    with monkeypatch.context() as patch:
        patch.setattr(KernelView, "smallest_eigenvalue", lambda self, margin=1.0: 0.0)
        plain = certify(problem, gap=1e-4).upper_bound
    assert best <= shifted < plain - 0.01


def test_a_kernel_too_large_for_its_spectrum_is_bounded_without_a_ridge(monkeypatch):
    monkeypatch.setattr(kernel_module, "_WIDEST_SPECTRUM", 4)
    X = np.random.default_rng(6).standard_normal((8, 8))
    L = X @ X.T
    problem = pose([KernelView(L, eps=0)], 3, 0.1, [0.0])
    best = max(reference.subset_score(L, S) for S in feasible_subsets(Constraints(), 8, 3))
    assert best <= certify(problem).upper_bound < np.inf


def test_a_diagonal_kernel_is_bounded_exactly():
    problem = pose([DiagonalView(np.arange(1.0, 9.0), eps=0)], 3, 0.1, [0.0])
    expected = np.log([6.0, 7.0, 8.0]).mean()
    certificate = certify(problem, gap=1e-6)
    assert expected <= certificate.upper_bound <= expected + 1e-3


# --- The bar --------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "seeds", [range(start, start + 25) for start in range(0, 300, 25)], ids=str
)
def test_no_bound_is_below_the_enumerated_optimum(seeds):
    for seed in seeds:
        pool = hostile(seed)
        certificate = certify(pool.problem)
        assert certificate.status is Status.CONVERGED, seed
        assert certificate.upper_bound >= pool.best, seed
        assert certificate.spectral_bound >= pool.best - 1e-9, seed
        for bound, best in zip(certificate.by_view.values(), pool.d.max(axis=0), strict=True):
            assert bound >= best, seed
        assert 0 <= certificate.duality_gap <= GAP, seed
        assert sum(certificate.weights.values()) == pytest.approx(1.0)
        assert certificate.relaxed.sum() == pytest.approx(pool.problem.k, abs=1e-8)
        proven = price(pool.problem, certificate.proof.dual).bound
        assert proven >= certificate.upper_bound - 1e-12, seed  # Hadamard's may be the better one
        again = check_proof(pool.problem.pool, certificate.proof)
        assert again.upper_bound == pytest.approx(certificate.upper_bound, abs=1e-12), seed


def test_the_bound_is_much_tighter_than_the_spectral_one():
    gaps, spectral = [], []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        views, eps = cases.random_views(rng, 12, [6, 5]), [0.1, 0.1]
        best, _ = reference.exhaustive(kernels(views, eps), 4, 0.1)
        certificate = certify(pose(views, 4, 0.1, eps))
        gaps.append(certificate.upper_bound - best)
        spectral.append(certificate.spectral_bound - best)
    assert np.median(gaps) < 0.2
    assert np.median(spectral) > 3 * np.median(gaps)


@pytest.mark.parametrize(
    "case",
    [case for case in cases.SMALL if len(case.views[0]) <= 10],
    ids=lambda case: case.name,
)
def test_a_longer_run_reaches_the_maximum_of_the_relaxation(case):
    """The gap closes: bound and value meet at what a slow solver finds."""
    problem = pose_case(case)
    certificate = certify(problem, gap=1e-4)
    maximum = reference.relaxed_maximum(case.views, case.eps, case.k, case.tau)
    narrow = case.k > min(view.shape[1] for view in case.views)  # the bound knows the rank as well
    assert certificate.upper_bound <= maximum + 2e-4
    assert certificate.upper_bound >= maximum - 1e-6 or narrow


def test_a_view_alone_is_bounded_under_the_same_rules():
    rng = np.random.default_rng(12)
    views, eps = cases.random_views(rng, 10, [4, 5]), [0.1, 0.2]
    rules = random_rules(rng, 10, 4)
    problem = pose(views, 4, 0.1, eps, rules=rules)
    subsets = feasible_subsets(rules, 10, 4)
    for q, L in enumerate(kernels(views, eps)):
        best = max(reference.subset_score(L, S) for S in subsets)
        bound = view_bound(problem, f"view{q}", gap=1e-3).bound
        assert best <= bound
        free = view_bound(replace(problem, constraints=Constraints()), f"view{q}", gap=1e-3).bound
        assert bound <= free + 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_views_alone_are_bounded_nearly_as_well_as_by_themselves(seed, monkeypatch):
    """From the joint solution, to ten times its gap; and no worse than that unless it is said."""
    monkeypatch.setattr(bounds_module, "_CHEAP", 0.0)
    problem = wider_pool(seed, n=400, k=12)
    certificate = certify(problem, gap=1e-3)
    assert certificate.notes == ()
    assert check_proof(problem.pool, certificate.proof).holds
    for name, bound in certificate.by_view.items():
        own = view_bound(problem, name, gap=1e-4).bound
        assert own - 1e-4 <= bound <= own + 1e-2


def test_a_loose_bound_of_a_view_alone_is_said(monkeypatch):
    """Here none is solved for, as if time were over."""
    real = bounds_module.view_bound

    def unsolved(*given, **options):
        return replace(real(*given, **options), bound=math.inf)

    monkeypatch.setattr(bounds_module, "_CHEAP", 0.0)
    monkeypatch.setattr(bounds_module, "view_bound", unsolved)
    problem = wider_pool(0, n=400, k=12)
    certificate = certify(problem, gap=1e-3)
    own = {name: real(problem, name, gap=1e-4).bound for name in certificate.by_view}
    loose = [name for name, bound in certificate.by_view.items() if bound - own[name] > 1e-2]
    assert loose
    assert [note.split("'")[1] for note in certificate.notes] == loose
    assert all("alone is proven" in note for note in certificate.notes)
    assert check_proof(problem.pool, certificate.proof).holds


@pytest.mark.parametrize("eps", [1e-13, 1e-100, 1e-300])
def test_a_vanishing_ridge_costs_a_narrow_view_no_digits(eps):
    """Three of seven terms are log eps whatever is chosen; the rest is as with any ridge."""
    Phi = np.random.default_rng(0).standard_normal((14, 4))
    certificate = certify(pose([Phi], 7, 0.1, [eps]))
    rest = max(
        np.linalg.slogdet(Phi[list(S)].T @ Phi[list(S)])[1] for S in combinations(range(14), 7)
    )
    best = (rest + 3 * math.log(eps)) / 7
    assert best <= certificate.upper_bound <= best + 0.1


def test_zero_rows_in_the_view_that_binds():
    """No item helps it, so every price is zero, and the bound is log eps."""
    rng = np.random.default_rng(1)
    zero = np.zeros((12, 3))
    zero[:2] = 1.0
    rules = Constraints(fixed_out=indices(0, 1))
    problem = pose([rng.standard_normal((12, 5)), zero], 3, 0.01, [1e-3, 1e-3], rules=rules)
    best = enumerated(problem, kernels([views_of(problem.pool)[0].data, zero], [1e-3, 1e-3]))
    assert best <= certify(problem).upper_bound <= best + 1e-6


# --- The rows that matter -------------------------------------------------------------------------


@pytest.fixture
def few_rows(monkeypatch):
    """T starts with a handful of rows, however cheap all of them would be."""
    monkeypatch.setattr(costs, "_FIRST_ROWS", 8)
    monkeypatch.setattr(costs, "_DENSE_COST", 0.0)


def wider_pool(seed: int, rules: Constraints | None = None, n: int = 150, k: int = 5) -> Problem:
    rng = np.random.default_rng(seed)
    views = cases.clustered_views(rng, n, [8, 6], 12, spread=0.4)
    views[1] = sp.csr_array(np.where(rng.random(views[1].shape) < 0.6, views[1], 0.0))
    return pose(views, k, 0.05, [0.1, 0.05], rules=rules)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["free", "rules"])
@pytest.mark.parametrize("seed", range(5))
def test_an_active_set_ends_where_the_full_solve_ends(seed, kind, few_rows, monkeypatch):
    rules = random_rules(np.random.default_rng(seed), 150, 5) if kind == "rules" else None
    problem = wider_pool(seed, rules)
    few = run(Concave(problem, gap=GAP), budget=Budget(max_steps=200))
    assert few.status is Status.CONVERGED
    assert few.trace[0].details["support"] < 60
    monkeypatch.setattr(costs, "_DENSE_COST", 1e12)
    full = run(Concave(problem, gap=GAP), budget=Budget(max_steps=200))
    assert len(full.state.rows) == 150 - len(problem.constraints.fixed_out)
    assert abs(few.state.bound - full.state.bound) <= GAP
    assert few.state.bound >= full.state.value - 1e-9
    assert full.state.bound >= few.state.value - 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_rows_to_start_with_cost_no_truth_and_little_tightness(seed, few_rows):
    rng = np.random.default_rng(seed)
    views, eps = cases.random_views(rng, 14, [5, 4]), [0.1, 0.05]
    problem = pose(views, 3, 0.05, eps)
    for q, L in enumerate(kernels(views, eps)):
        best = max(reference.subset_score(L, S) for S in combinations(range(14), 3))
        cold = view_bound(problem, f"view{q}", gap=1e-3).bound
        for size in (3, 6):
            start = np.sort(rng.permutation(14)[:size]), np.full(size, 3 / size)
            solved = view_bound(problem, f"view{q}", gap=1e-3, start=start)
            bound, dual = solved.bound, solved.dual
            assert bound >= best
            assert bound == pytest.approx(cold, abs=1e-3)
            assert price(problem.over(problem.pool.only(f"view{q}")), dual).bound >= bound


def test_rows_join_sooner_where_passes_are_dear(few_rows, monkeypatch):
    problem, steps, bounds = wider_pool(2, n=600, k=9), [], []
    for cheap in (0.0, math.inf):
        monkeypatch.setattr(concave_module, "_CHEAP", cheap)
        outcome = run(Concave(problem, gap=1e-3))
        assert outcome.status is Status.CONVERGED
        supports = [row.details["support"] for row in outcome.trace]
        limit = concave_module._DOUBLED if cheap else concave_module._GROWTH
        assert all(b <= a + max(9, limit * a) for a, b in pairwise(supports))
        steps.append(outcome.steps)
        bounds.append(outcome.state.bound)
    assert steps[1] < steps[0]
    assert bounds[1] == pytest.approx(bounds[0], abs=1e-3)


def test_no_point_is_evaluated_twice(few_rows, monkeypatch):
    """Neither the first one, but for a crude look that weighs the views, nor that at which the
    value is made exact."""
    seen = {"at": [], "least_value": []}
    for name, points in seen.items():
        real = getattr(TopK, name)

        def evaluate(topk, x, *near, real=real, points=points, **weights):
            if topk.views[0].rough < CRUDE:
                points.append(getattr(x, "x", x).tobytes())
            return real(topk, x, *near, **weights)

        monkeypatch.setattr(TopK, name, evaluate)
    monkeypatch.setattr(concave_module, "_float32_suffices", lambda *_: True)
    solver = Concave(wider_pool(2, n=600, k=9), gap=1e-3)
    solver.dual(run(solver).state)
    assert all(len(set(points)) == len(points) > 0 for points in seen.values())


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_a_resumed_solve_goes_where_the_uninterrupted_one_went(steps, few_rows):
    problem = wider_pool(1)
    whole = run(Concave(problem, gap=2e-4))
    assert whole.steps > 4
    half = run(Concave(problem, gap=2e-4), budget=Budget(max_steps=steps))
    state = unpack(ConcaveState, pack(half.state))
    resumed = run(Concave(problem, gap=2e-4), state=state, steps=half.steps)
    assert resumed.state.bound == whole.state.bound
    assert resumed.steps == whole.steps
    assert resumed.state.rows.tolist() == whole.state.rows.tolist()
    assert resumed.state.best_x.tolist() == whole.state.best_x.tolist()


@pytest.mark.parametrize("seed", [3, 24])
def test_the_bound_never_rises_and_is_proven_at_every_step(seed, few_rows, monkeypatch):
    """Though a single step may prove less than those before it."""
    problem = wider_pool(seed)
    solver = Concave(problem, gap=1e-5)
    proven, bounds = [], []
    monkeypatch.setattr(
        concave_module, "price", lambda *given: proven.append(price(*given)) or proven[-1]
    )
    state = solver.init()
    assert state.bound == np.inf  # nothing is claimed before a pass
    state = solver.step(state)
    while solver.done(state) is None:
        assert price(problem, solver.dual(state)).bound == pytest.approx(state.bound, abs=1e-12)
        assert len(state.rows) == len(np.unique(state.rows)) == len(state.x)
        assert state.x.sum() == pytest.approx(5, abs=1e-8)
        bounds.append(state.bound)
        state = solver.step(state)
    assert bounds == sorted(bounds, reverse=True)
    assert any(later.bound > earlier.bound + 1e-9 for earlier, later in pairwise(proven))


def test_a_step_that_proves_less_keeps_the_better_dual_variables(few_rows):
    solver = Concave(wider_pool(0), gap=1e-3)
    start = replace(solver.step(solver.init()), bound=-100.0, proven=True)
    after = solver.step(start)
    assert after.rows.tolist() != start.rows.tolist()  # T has grown
    assert after.bound == -100.0
    assert after.best_rows.tolist() == start.best_rows.tolist()
    assert after.best_x.tolist() == start.best_x.tolist()


def test_a_step_depends_on_its_state_alone(few_rows):
    """Whatever the solver has looked at in between."""
    solver = Concave(wider_pool(3), gap=1e-4)
    first = solver.step(solver.init())
    second = solver.step(first)
    again = solver.step(solver.init())
    assert pack(again).keys() == pack(first).keys()
    for name, array in pack(first).items():
        assert pack(again)[name].tolist() == array.tolist()
    assert solver.step(again).bound == second.bound
    assert solver.step(first).rows.tolist() == second.rows.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_a_solver_in_float32_ends_where_one_in_float64_does(seed, few_rows, monkeypatch):
    problem = wider_pool(seed)
    found = {}
    for single in (True, False):
        monkeypatch.setattr(concave_module, "_float32_suffices", lambda *_, s=single: s)
        solver = Concave(problem, gap=1e-3)
        outcome = run(solver)
        assert outcome.status is Status.CONVERGED
        assert price(problem, solver.dual(outcome.state)).bound == outcome.state.bound
        found[single] = outcome.state
    assert abs(found[True].bound - found[False].bound) <= 1e-3
    assert found[True].bound >= found[False].value  # a value is one in float64 at the end
    assert found[False].bound >= found[True].value


def test_float32_is_not_used_beside_a_small_ridge():
    Phi = np.random.default_rng(0).standard_normal((20, 4))
    suffices = concave_module._float32_suffices
    assert suffices(pose([Phi, Phi], 3, 0.1, [0.1, 0.1]), 5e-3)
    assert not suffices(pose([Phi, Phi], 3, 0.1, [0.1, 1e-4]), 5e-3)
    assert not suffices(pose([Phi, Phi], 3, 0.1, [0.1, 0.1]), 1e-6)
    assert not suffices(pose([1e-15 * Phi], 3, 0.1, [0.1]), 5e-3)


class Interruption:
    """A listener that interrupts every run after some steps."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, row) -> None:
        if row.step >= self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interruption_leaves_a_proven_bound(after, few_rows):
    rng = np.random.default_rng(9)
    views, eps = cases.random_views(rng, 40, [6, 5]), [0.1, 0.1]
    problem = pose(views, 2, 0.05, eps)
    best, _ = reference.exhaustive(kernels(views, eps), 2, 0.05)
    session = Context(progress=Interruption(after))
    certificate = certify(problem, gap=1e-9, session=session)
    assert certificate.status is Status.INTERRUPTED
    assert best <= certificate.upper_bound < np.inf
    assert certificate.notes
    again = check_proof(problem.pool, certificate.proof)
    assert again.upper_bound == pytest.approx(certificate.upper_bound, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_the_norms_of_rows_prove_a_bound_by_themselves(seed):
    rng = np.random.default_rng(seed)
    views, eps = cases.random_views(rng, 12, [4, 5]), [0.1, 0.3]
    problem = pose(views, 3, 0.05, eps)
    best, _ = reference.exhaustive(kernels(views, eps), 3, 0.05)
    dual = Dual.by_norms(problem)
    assert best <= price(problem, dual).bound < np.inf
    stopped = Context()
    stopped.stopped = Status.INTERRUPTED  # before the bound begins
    certificate = certify(problem, session=stopped)
    assert best <= certificate.upper_bound < np.inf
    assert certificate.status is Status.INTERRUPTED
    assert "lengths of the rows" in certificate.notes[0]
    again = check_proof(problem.pool, certificate.proof)
    assert again.holds
    assert again.upper_bound == pytest.approx(certificate.upper_bound, abs=1e-12)


def test_a_sparse_view_without_a_single_entry_is_bounded():
    problem = pose([sp.csr_array((9, 4))], 3, 0.1, [0.1])
    assert certify(problem).upper_bound == pytest.approx(math.log(0.1), abs=1e-9)


def test_rows_without_any_feature_can_be_held(few_rows):
    """The first rows of a sparse view may all be empty."""
    rng = np.random.default_rng(3)
    table = np.zeros((200, 5))
    table[160:168] = rng.standard_normal((8, 5))
    problem = pose([rng.standard_normal((200, 6)), sp.csr_array(table)], 3, 0.1, [0.1, 0.1])
    few = certify(problem)
    assert few.status is Status.CONVERGED
    full = certify(pose([views_of(problem.pool)[0].data, table], 3, 0.1, [0.1, 0.1]))
    assert abs(few.upper_bound - full.upper_bound) <= GAP


def test_a_wide_sparse_view_needs_no_matrix_of_its_columns():
    n, p, k = 300, 5000, 10
    rng = np.random.default_rng(8)
    table = sp.random_array((n, p), density=0.01, rng=rng, format="csr")
    problem = pose([table, rng.standard_normal((n, 6))], k, 0.05, [0.1, 0.1])
    tracemalloc.start()
    try:
        certificate = certify(problem)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * p * p / 8
    assert certificate.status is Status.CONVERGED
    greedy = reference.fair_greedy(
        kernels([table.toarray(), views_of(problem.pool)[1].data], [0.1, 0.1]), k, 0.05
    )
    Ls = kernels([table.toarray(), views_of(problem.pool)[1].data], [0.1, 0.1])
    F = reference.fair_score(Ls, greedy, 0.05)
    assert F <= certificate.upper_bound <= F + 0.3


@pytest.mark.parametrize("gap", [0.1, 2e-3])
def test_the_bound_of_nearly_alike_rows_does_not_drown_in_float32(gap):
    """All eigenvalues but one are below what float32 can tell from zero beside that one."""
    rows = 1.0 + 1e-3 * np.random.default_rng(0).standard_normal((600, 20))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    problem = pose([rows], 300, 0.1, [0.1])
    assert concave_module._float32_suffices(problem, gap)
    certificate = certify(problem, gap=gap)
    assert certificate.status is Status.CONVERGED
    assert certificate.duality_gap <= gap
    assert check_proof(problem.pool, certificate.proof).holds


# --- Kernels that rounding has made indefinite ----------------------------------------------------


@pytest.mark.filterwarnings("ignore:k = 3 exceeds the rank")
@pytest.mark.parametrize(
    ("dtype", "lost", "eps"),
    [("float16", 4e-3, 1e-6), ("float16", 4e-3, 1e-2), ("float32", 5e-7, 1e-6)],
)
def test_nothing_is_proven_of_eigenvalues_below_zero_that_scores_count_as_zero(dtype, lost, eps):
    """Hadamard's bound of K + eps I was 2.8 nats below a set that exists, and the sets that branch
    and bound and enumeration called best were not."""
    rng, n, k = np.random.default_rng(0), 9, 3
    noise = np.triu(rng.uniform(-lost, lost, (n, n)), 1)
    noise[0] = 0.0
    K = (np.diag([1.0] + [0.0] * (n - 1)) + noise + noise.T).astype(dtype)
    data, terms = {"a": KernelView(K)}, {"calibration": "none", "eps": eps}
    subsets = combinations(range(n), k)
    best = max(fairnepv.score(data, list(S), **terms).fair_score for S in subsets)
    certificate = fairnepv.certify(data, k, **terms)
    assert certificate.upper_bound >= best
    assert certificate.spectral_bound >= best
    assert min(certificate.diagonal.values()) >= best
    assert fairnepv.exhaustive(data, k, **terms).fair_score == pytest.approx(best, abs=1e-12)
    assert fairnepv.select(data, k, method="exact", **terms).status is Status.INEXACT


@pytest.mark.filterwarnings("ignore:k = 3 exceeds the rank")
@pytest.mark.parametrize(("dtype", "eps"), [("float16", 1e-2), ("float32", 1e-6)])
def test_a_kernel_that_is_symmetric_but_for_rounding_has_one_score_in_any_order(dtype, eps):
    """Scores read what lies below the diagonal of the items in their order, and bounds both sides:
    a set scored up to 0.15 above its bound."""
    rng, n, k = np.random.default_rng(0), 8, 3
    K = np.tensordot(*[rng.standard_normal((n, 2))] * 2, axes=(1, 1))
    K /= K.max()
    K += np.triu(rng.uniform(0.3, 0.9, (n, n)) * n * np.finfo(dtype).eps, 1)
    data, terms = {"a": KernelView(K.astype(dtype))}, {"calibration": "none", "eps": eps}
    bound = fairnepv.certify(data, k, **terms).upper_bound
    for S in combinations(range(n), k):
        score, reverse = (fairnepv.score(data, rows, **terms).fair_score for rows in (S, S[::-1]))
        assert reverse == pytest.approx(score, abs=1e-8)
        assert score <= bound


@pytest.mark.parametrize("ridge", [None, 0])
@pytest.mark.parametrize("large", [1e8, 1e12, 1e14])
def test_no_score_of_a_graded_kernel_passes_its_bound(large, ridge):
    """Rows that are nearly orthogonal, one of them long: Hadamard's bound is tight, and eigenvalues
    of the short ones owed 1e-16 of the long one's to rounding."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        Q = np.linalg.qr(rng.standard_normal((6, 6)))[0][:5]
        lengths = rng.uniform(0.8, 1.2, 5) * np.where(np.arange(5) == seed % 5, large, 1.0) ** 0.5
        K = lengths[:, None] * (Q @ Q.T) * lengths
        data, options = {"a": KernelView((K + K.T) / 2, eps=ridge)}, {"calibration": "none"}
        bound = fairnepv.certify(data, 3, **options).upper_bound
        for rows in combinations(range(5), 3):
            assert fairnepv.score(data, rows, **options).fair_score <= bound + 1e-9


@pytest.mark.filterwarnings("ignore:k = 3 exceeds the rank")
@pytest.mark.parametrize("objective", ["diverse", "representative"])
@pytest.mark.parametrize("seed", [0, 1, 3, 5, 6, 7])
def test_no_set_of_sparse_rows_far_from_zero_passes_the_bound(seed, objective):
    """Their products are less those with the mean, and rounded as what is taken off is large."""
    rng = np.random.default_rng(seed)
    X, eps = rng.standard_normal((8, 2)), 10.0 ** rng.uniform(-8, -5)
    X[:, 0] += 10.0 ** rng.uniform(1.5, 2.5)
    options = {"objective": objective, "calibration": "none", "center": True}
    bound = fairnepv.certify({"v": sp.csr_array(X)}, 3, eps=eps, gap=1e-9, **options)
    Phi, sets = reference.centered(X), combinations(range(8), 3)
    if objective == "diverse":
        best = max(reference.row_scores([Phi], [eps], S)[0] for S in sets)
    else:
        C, best = Phi.T @ Phi / np.sum(Phi**2), 0.0
        for S in sets:
            _, singular, V = np.linalg.svd(Phi[list(S)], full_matrices=False)
            shares = singular**2 / (singular**2 + eps)
            best = max(best, shares @ np.einsum("ij,jk,ik->i", V, C, V))
    assert bound.upper_bound >= best
