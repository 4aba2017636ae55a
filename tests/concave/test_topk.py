"""The concave relaxation: Gamma, its gradient, the capped simplex and the ascent on it."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cases
import reference
from fairnepv.compute import block_threads, in_order
from fairnepv.concave.topk import TopK, ascend, cap, climb
from fairnepv.objective import HeldRows, held
from fairnepv.objective.logdet import LogDet
from fairnepv.objective.ritz import split
from fairnepv.problem import Constraints, Quotas, largest
from search_problems import examples, feasible_subsets, indices, pose, random_rules

SEEDS = st.integers(0, 10**6)
FREE = Constraints()
gamma = LogDet().majorant


def as_features(Phi: np.ndarray, eps: float) -> HeldRows:
    return HeldRows(eps, (Phi**2).sum(axis=1), features=Phi)


def as_kernel(Phi: np.ndarray, eps: float) -> HeldRows:
    return HeldRows(eps, (Phi**2).sum(axis=1), kernel=Phi @ Phi.T)


FORMS = {"features": as_features, "kernel": as_kernel}


def random_point(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """A point of the capped simplex, every third one with exact zeros and ones."""
    x = reference.capped_simplex(rng.standard_normal(n), k)
    return x if rng.random() < 0.3 else 0.7 * x + 0.3 * k / n


def random_rows(rng: np.random.Generator) -> tuple[np.ndarray, float, int]:
    """Features, a ridge and a size: k above p, duplicates, zero rows and tiny ridges among them."""
    n, p = int(rng.integers(4, 11)), int(rng.integers(1, 9))
    Phi = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-2, 2)
    if rng.random() < 0.3:
        Phi[1] = Phi[0]
    if rng.random() < 0.2:
        Phi[-1] = 0.0
    return Phi, float(10.0 ** rng.uniform(-8, 1)), int(rng.integers(1, n))


def topk(views, eps, tau: float, k: int, form: str = "features", rules=FREE) -> TopK:
    rows = tuple(FORMS[form](Phi, e) for Phi, e in zip(views, eps, strict=True))
    return TopK(rows, np.zeros(len(views)), tau, k, k, rules)


# --- Gamma ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@examples(150)
@given(SEEDS)
def test_gamma_equals_its_twin(form, seed):
    rng = np.random.default_rng(seed)
    Phi, eps, k = random_rows(rng)
    x = random_point(rng, len(Phi), k)
    value = gamma(FORMS[form](Phi, eps), x, k).value
    scale = max((Phi**2).sum(axis=1)) / eps
    expected = k * reference.gamma(Phi, eps, x, k)
    assert value == pytest.approx(expected, abs=1e-12 * max(1.0, scale), rel=1e-11)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_gamma_is_the_log_determinant_where_x_is_a_subset(case, form):
    rng = np.random.default_rng(3)
    for Phi, eps in zip(case.views, case.eps, strict=True):
        L = reference.kernel(Phi, eps)
        for _ in range(5):
            S = np.sort(rng.permutation(len(Phi))[: case.k])
            x = np.zeros(len(Phi))
            x[S] = 1.0
            value = gamma(FORMS[form](Phi, eps), x, case.k).value / case.k
            assert value == pytest.approx(reference.subset_score(L, S), abs=1e-9)


@examples(150)
@given(SEEDS)
def test_gamma_is_concave_and_below_its_tangents(seed):
    rng = np.random.default_rng(seed)
    Phi, eps, k = random_rows(rng)
    rows = as_features(Phi, max(eps, 1e-4))
    left, right = random_point(rng, len(Phi), k), random_point(rng, len(Phi), k)
    t = rng.random()
    ends = [gamma(rows, x, k) for x in (left, right)]
    between = gamma(rows, (1 - t) * left + t * right, k)
    rounding = 1e-9 * max(1.0, abs(between.value))
    assert between.value >= (1 - t) * ends[0].value + t * ends[1].value - rounding
    tangent = ends[0].value + ends[0].prices @ (right - left)
    assert ends[1].value <= tangent + rounding


@pytest.mark.parametrize("form", FORMS)
@examples(100)
@given(SEEDS)
def test_prices_are_the_gradient(form, seed):
    """Against W formed as a matrix, and against differences of the twin where it is smooth."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(5, 10)), int(rng.integers(1, 8))
    k, eps = int(rng.integers(1, n)), float(rng.choice([0.01, 0.1, 1.0]))
    Phi = rng.standard_normal((n, p))
    x = reference.capped_simplex(0.3 * rng.standard_normal(n), k).clip(0.05)
    prices = gamma(FORMS[form](Phi, eps), x, k).prices
    expected = reference.gamma_gradient(Phi, eps, x, k)
    np.testing.assert_allclose(prices, expected, atol=1e-9, rtol=1e-9)
    lam = np.linalg.eigvalsh(Phi.T @ np.diag(x) @ Phi)[::-1]
    r, m = reference.top_k_split(lam, k)
    padded = [*lam, *([0.0] * k)]
    if (r == 0 or padded[r - 1] - m > 1e-2) and m - padded[r] > 1e-2:
        differences = reference.gradient_fd(lambda y: k * reference.gamma(Phi, eps, y, k), x)
        np.testing.assert_allclose(prices, differences, rtol=1e-4, atol=1e-4)


@examples(60)
@given(SEEDS)
def test_both_forms_agree_and_their_slopes_are_one_matrix(seed):
    """W = level I - Phi^T B B^T Phi explains the prices, and B has fewer than k columns."""
    rng = np.random.default_rng(seed)
    Phi, eps, k = random_rows(rng)
    eps = max(eps, 1e-3)
    Phi = Phi / max(1.0, np.abs(Phi).max())
    x = random_point(rng, len(Phi), k)
    slopes = [gamma(FORMS[form](Phi, eps), x, k) for form in FORMS]
    assert slopes[0].value == pytest.approx(slopes[1].value, abs=1e-9)
    for slope in slopes:
        assert slope.combination().shape[1] < k
        A = slope.combination().T @ Phi
        W = slope.level * np.eye(Phi.shape[1]) - A.T @ A
        assert np.linalg.eigvalsh(W)[0] > 0
        priced = np.einsum("ij,jk,ik->i", Phi, W, Phi)
        np.testing.assert_allclose(slope.prices, priced, atol=1e-7 * slope.level)


@pytest.mark.parametrize(
    ("lam", "k", "r"),
    [
        ([5.0], 1, 0),
        ([3.0, 2.0, 1.0], 1, 0),  # the whole trace is at least the largest
        ([3.0, 3.0, 3.0], 3, 0),  # equal ones share
        ([10.0, 1.0, 1.0], 3, 1),
        ([10.0, 5.0, 0.0, 0.0], 4, 2),
        ([10.0, 5.0, 1.0], 3, 2),  # r is at most k - 1
        ([2.0, 0.0], 4, 1),  # fewer eigenvalues than items
        ([0.0, 0.0], 2, 0),
    ],
)
def test_the_split_is_that_of_the_definition(lam, k, r):
    found, mean = split(np.array(lam), sum(lam), k)
    assert found == r
    assert mean == pytest.approx(sum(lam[r:]) / (k - r))
    again, other = reference.top_k_split(np.array(lam), k)
    assert again == r
    assert other == pytest.approx(mean)


@examples(200)
@given(SEEDS)
def test_the_split_of_random_eigenvalues(seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 8))
    lam = np.sort(10.0 ** rng.uniform(-4, 2, size=rng.integers(1, 10)))[::-1]
    total = float(lam.sum())
    r, mean = reference.top_k_split(lam, k)
    found = split(lam[:k], total, k)
    assert found[0] == r
    assert found[1] == pytest.approx(mean, rel=1e-8, abs=1e-13 * total)


@pytest.mark.parametrize("shift", [0.0, 0.3, -0.1])
def test_held_rows_move_a_shift_from_the_kernel_to_the_ridge(shift):
    """A negative one, by which a rounded kernel becomes definite, stays out of the ridge."""
    Phi = np.random.default_rng(0).standard_normal((9, 3))
    rows = indices(1, 4, 5, 8)
    held = HeldRows.of(pose([Phi], 3, 0.1, [0.2]).pool.views[0], rows, shift)
    assert held.eps == 0.2 + max(shift, 0.0)
    K = Phi[rows] @ Phi[rows].T - shift * np.eye(4)
    kernel = held.kernel if held.kernel is not None else held.features @ held.features.T
    np.testing.assert_allclose(kernel, K, atol=1e-14)
    np.testing.assert_allclose(held.norms, np.diag(K), atol=1e-14)


# --- The capped simplex ---------------------------------------------------------------------------


def check_cap(y: np.ndarray, k: int, rules: Constraints) -> np.ndarray:
    x = cap(y, k, rules)
    assert ((x >= 0) & (x <= 1)).all()
    assert x.sum() == pytest.approx(k, abs=1e-9)
    assert (x[rules.fixed_in] == 1).all()
    assert (x[rules.fixed_out] == 0).all()
    quotas = {}
    if rules.quotas is not None:
        sums = np.bincount(rules.quotas.groups, x, minlength=len(rules.quotas.least))
        assert (sums >= rules.quotas.least - 1e-9).all()
        assert (sums <= rules.quotas.most + 1e-9).all()
        quotas = {
            "groups": rules.quotas.groups.tolist(),
            "least": rules.quotas.least.tolist(),
            "most": rules.quotas.most.tolist(),
        }
    expected = reference.entropy_projection(
        np.maximum(y, 1e-200), k, rules.fixed_in.tolist(), rules.fixed_out.tolist(), **quotas
    )
    np.testing.assert_allclose(x, expected, atol=1e-9)
    return x


@examples(150)
@given(SEEDS, st.sampled_from([1, 10, 100, 400]))
def test_cap_is_the_nearest_point_in_relative_entropy(seed, digits):
    """`digits` is the dynamic range: multiplication may leave entries of any size."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 12))
    k = int(rng.integers(1, n))
    y = 10.0 ** (-digits * rng.random(n))
    rules = random_rules(rng, n, k) if rng.random() < 0.7 else FREE
    check_cap(y, k, rules)


@pytest.mark.parametrize(
    ("y", "k", "x"),
    [
        ([1, 1e-18, 1e-18, 1e-18], 2, [1, 1 / 3, 1 / 3, 1 / 3]),
        ([1, 1, 1e-30, 2e-30, 1e-30], 3, [1, 1, 1 / 4, 1 / 2, 1 / 4]),
        ([1e-300, 1, 0], 1, [0, 1, 0]),
        ([1, 1, 1], 3, [1, 1, 1]),
        ([1, 2, 1], 2, [0.5, 1, 0.5]),
    ],
)
def test_cap_of_extreme_entries(y, k, x):
    np.testing.assert_allclose(cap(np.array(y, float), k, FREE), x, atol=1e-12)


def test_cap_without_room_and_with_nothing_but_room():
    y = np.array([0.3, 0.1, 0.9, 0.2])
    full = Constraints(fixed_in=indices(1, 3))
    assert check_cap(y, 2, full).tolist() == [0, 1, 0, 1]
    rest = Constraints(fixed_out=indices(0))
    assert check_cap(y, 3, rest).tolist() == [0, 1, 1, 1]


def test_cap_gives_all_room_to_a_group_that_needs_it():
    """Several other groups are left with nothing, and none of them keeps a share."""
    quotas = Quotas(indices(0, 0, 0, 1, 1, 2, 2), indices(2, 0, 0), indices(3, 2, 2))
    x = check_cap(np.ones(7), 2, Constraints(quotas=quotas))
    assert x[3:].max() < 1e-12


def test_cap_is_optimal_among_feasible_points():
    """By the definition, on pools small enough to sample: no feasible point is nearer."""
    rng = np.random.default_rng(5)
    rules = random_rules(np.random.default_rng(1), 8, 4)
    y = rng.random(8) + 0.1
    x = cap(y, 4, rules)
    subsets = np.array([np.isin(range(8), S) for S in feasible_subsets(rules, 8, 4)], float)

    def distance(z: np.ndarray) -> float:
        used = z > 0
        return float((z[used] * np.log(z[used] / y[used])).sum())

    for weights in rng.dirichlet(np.full(len(subsets), 0.5), size=300):
        other = weights @ subsets
        for t in (1.0, 0.1, 0.01):
            assert distance(x + t * (other - x)) >= distance(x) - 1e-12


# --- The best set ---------------------------------------------------------------------------------


@examples(200)
@given(SEEDS)
def test_the_best_set_is_that_of_enumeration(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 11))
    k = int(rng.integers(1, n))
    rules = random_rules(rng, n, k) if rng.random() < 0.8 else FREE
    scores = rng.integers(4, size=n) * 1.0 if rng.random() < 0.4 else rng.standard_normal(n)
    best = rules.best_set(scores, k)
    allowed = feasible_subsets(rules, n, k)
    assert tuple(sorted(best.tolist())) in allowed
    top = max(sum(scores[i] for i in S) for S in allowed)
    assert scores[best].sum() == pytest.approx(top, abs=1e-12)


@examples(100)
@given(SEEDS)
def test_the_largest_are_the_first_of_a_stable_sort(seed):
    rng = np.random.default_rng(seed)
    n, room = int(rng.integers(1, 30)), int(rng.integers(-1, 32))
    scores = rng.integers(5, size=40) * 1.0  # with many ties
    scores[rng.random(40) < 0.1] = np.nan
    rows = np.sort(rng.permutation(40)[:n])
    keys = np.where(np.isnan(scores), np.inf, -scores)  # what is no number comes last
    ordered = sorted(rows.tolist(), key=lambda i: (keys[i], i))
    assert largest(scores, rows, room).tolist() == ordered[: max(room, 0)]


# --- The ascent -----------------------------------------------------------------------------------


@pytest.mark.sample
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_the_ascent_never_falls_and_its_bound_bounds(case, form):
    relaxed = topk(case.views, case.eps, case.tau, case.k, form)
    Ls = [reference.kernel(Phi, e) for Phi, e in zip(case.views, case.eps, strict=True)]
    best, _ = reference.exhaustive(Ls, case.k, case.tau)
    point, eta = relaxed.at(relaxed.start()), 1.0
    for _ in range(25):
        before = point.value
        point, eta = ascend(point, eta)
        assert point.value >= before - 1e-13
        assert point.x.sum() == pytest.approx(case.k, abs=1e-9)
        assert point.bound >= best - 1e-9
        assert point.bound >= point.value - 1e-9
        expected = reference.relaxed_value(case.views, case.eps, point.x, case.k, case.tau)
        assert point.value == pytest.approx(expected, abs=1e-8)
        if eta == 0:
            break


@pytest.mark.parametrize("seed", range(4))
def test_the_ascent_reaches_the_maximum(seed):
    rng = np.random.default_rng(seed)
    n, k, tau = 8, int(rng.integers(2, 6)), float(rng.choice([0.05, 0.3]))
    views, eps = cases.random_views(rng, n, [5, 3]), [0.1, 0.3]
    relaxed = topk(views, eps, tau, k)
    point, eta = relaxed.at(relaxed.start()), 1.0
    bound = point.bound
    for _ in range(600):
        if bound - point.value < 1e-5 or eta == 0:
            break
        point, eta = ascend(point, eta)
        bound = min(bound, point.bound)
    maximum = reference.relaxed_maximum(views, eps, k, tau)
    assert point.value >= maximum - 1e-3
    assert point.value <= bound
    assert bound >= maximum - 1e-6  # the slow solver stops a little short


def test_the_ascent_obeys_the_rules_on_the_way():
    rng = np.random.default_rng(2)
    rules = random_rules(rng, 10, 4)
    relaxed = topk(cases.random_views(rng, 10, [4, 4]), [0.1, 0.1], 0.1, 4, rules=rules)
    point, eta = relaxed.at(relaxed.start()), 1.0
    for _ in range(30):
        point, eta = ascend(point, eta)
        assert (point.x[rules.fixed_in] == 1).all()
        assert (point.x[rules.fixed_out] == 0).all()
        sums = np.bincount(rules.quotas.groups, point.x, minlength=3)
        assert ((sums >= rules.quotas.least - 1e-9) & (sums <= rules.quotas.most + 1e-9)).all()
        if eta == 0:
            break
    assert math.isfinite(point.bound)


# --- The mixed ascent -----------------------------------------------------------------------------


@pytest.mark.sample
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_a_climb_never_falls_and_its_bound_bounds(case, form):
    relaxed = topk(case.views, case.eps, case.tau, case.k, form)
    Ls = [reference.kernel(Phi, e) for Phi, e in zip(case.views, case.eps, strict=True)]
    best, _ = reference.exhaustive(Ls, case.k, case.tau)
    start = relaxed.at(relaxed.start())
    values = [climb(start, 1.0, 0.0, most).point.value for most in range(12)]
    assert values[0] == start.value
    assert all(later >= earlier - 1e-13 for earlier, later in pairwise(values))
    found = climb(start, 1.0, 1e-4, 200)
    assert found.evaluations <= 200
    assert found.tightest.bound >= best - 1e-9
    assert found.tightest.bound - found.point.value <= 1e-4 or found.eta == 0


@pytest.mark.parametrize("tau", [0.05, 0.002])
def test_mixing_spares_most_evaluations(tau):
    views = cases.clustered_views(np.random.default_rng(1), 200, [24, 16], 20, spread=0.4)
    relaxed = topk(
        [Phi / np.linalg.norm(Phi, axis=1)[:, None] for Phi in views], [0.1] * 2, tau, 12
    )
    point, eta, plain = relaxed.at(relaxed.start()), 1.0, 0
    found = climb(point, eta, 1e-3, 200)
    assert found.tightest.bound - found.point.value <= 1e-3
    bound = point.bound
    while bound - point.value > 1e-3:
        point, eta = ascend(point, eta)
        bound, plain = min(bound, point.bound), plain + 1  # or more, where a step was halved
    assert found.evaluations <= plain / 2


def test_a_climb_obeys_the_rules():
    rng = np.random.default_rng(2)
    rules = random_rules(rng, 10, 4)
    relaxed = topk(cases.random_views(rng, 10, [4, 4]), [0.1, 0.1], 0.1, 4, rules=rules)
    for most in range(15):
        x = climb(relaxed.at(relaxed.start()), 1.0, 0.0, most).point.x
        assert (x[rules.fixed_in] == 1).all()
        assert (x[rules.fixed_out] == 0).all()
        sums = np.bincount(rules.quotas.groups, x, minlength=3)
        assert ((sums >= rules.quotas.least - 1e-9) & (sums <= rules.quotas.most + 1e-9)).all()


@pytest.mark.parametrize("form", FORMS)
@examples(40)
@given(SEEDS)
def test_float32_is_good_to_six_digits(form, seed):
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((9, 6))
    Phi /= np.linalg.norm(Phi, axis=1)[:, None]
    x, k = random_point(rng, 9, 4), 4
    exact, rows = gamma(FORMS[form](Phi, 0.1), x, k), FORMS[form](Phi, 0.1)
    held = HeldRows(
        rows.eps,
        rows.norms,
        None if rows.features is None else rows.features.astype(np.float32),
        None if rows.kernel is None else rows.kernel.astype(np.float32),
    )
    single = gamma(held, x, k)
    assert single.value == pytest.approx(exact.value, abs=1e-4)
    np.testing.assert_allclose(single.prices, exact.prices, atol=1e-3)
    assert single.combination().dtype == np.float64


def test_chunks_and_threads_change_nothing(monkeypatch):
    """One chunk is the whole; several have the same bits on any number of threads."""
    rng = np.random.default_rng(0)
    rows, x = as_features(rng.standard_normal((100, 7)), 0.1), random_point(rng, 100, 5)
    whole = gamma(rows, x, 5)
    monkeypatch.setattr(held, "_CHUNK", 16)
    parts = gamma(rows, x, 5)
    assert parts.value == pytest.approx(whole.value, abs=1e-10)
    np.testing.assert_allclose(parts.prices, whole.prices, atol=1e-10)
    with block_threads(math.inf):
        shared = gamma(rows, x, 5, in_order)
    assert shared.value == parts.value
    assert shared.prices.tolist() == parts.prices.tolist()
