"""The selectors of the paper's Section 2: softmax extension, D-optimal design, Saturate."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import cases
import reference
from fairnepv import Calibration, DiagonalView, InputError, Status
from fairnepv.loop import Context, Step, run
from fairnepv.methods import check_method
from fairnepv.methods.baselines import baselines, refuse
from fairnepv.methods.baselines.relaxed import (
    Ascent,
    DesignPoint,
    SoftmaxPoint,
    ascent,
    project,
)
from fairnepv.methods.baselines.saturate import Truncated
from fairnepv.problem import Constraints, Problem
from fairnepv.search import EFFORTS, Found
from search_problems import (
    STORAGE,
    case_kernels,
    examples,
    indices,
    kernels,
    obeys,
    pose,
    pose_case,
    random_rules,
)

SEEDS = st.integers(0, 10**6)
RELAXED: dict[str, Any] = {"softmax": SoftmaxPoint, "d-optimal": DesignPoint}
METHODS = (*RELAXED, "saturate")
BY_CASE = pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
BY_RELAXED = pytest.mark.parametrize("name", RELAXED)
WIDTHS = pytest.mark.parametrize("widths", [[7, 5], [2, 1]], ids=["by rows", "by columns"])


def find(problem: Problem, name: str, session: Context | None = None) -> Found:
    found = baselines(problem.pool.names)[name](problem, EFFORTS["fast"], session or Context())
    assert found.indices.dtype == np.int64
    assert len(set(found.indices.tolist())) == len(found.indices) == problem.k
    assert 0 <= found.indices.min() <= found.indices.max() < problem.n
    return found


def select(problem: Problem, name: str) -> list[int]:
    found = find(problem, check_method(problem, name))
    assert found.status.ok
    return found.indices.tolist()


def beside(views: list[np.ndarray]) -> np.ndarray:
    """Features of the averaged kernel."""
    return np.hstack(views) / math.sqrt(len(views))


def dense_value(name: str, views: list[np.ndarray], eps: list[float]):
    """The relaxed objective of the averaged kernel as a function of x, and a constant off it."""
    if name == "softmax":
        L = reference.averaged_kernel(kernels(views, eps))
        return lambda x: reference.softmax_extension(L, x)
    Phi, lam = beside(views), float(np.mean(eps))
    zero = reference.design_value(Phi, lam, np.zeros(len(Phi)))
    return lambda x: reference.design_value(Phi, lam, x) - zero


def solve(problem: Problem, name: str, tol: float | None = None) -> tuple[Ascent, list[np.ndarray]]:
    """The ascent of a relaxation, and every x that it visits."""
    method = ascent(problem, RELAXED[name])
    method.tol = method.tol if tol is None else tol
    state = method.init()
    visited = [state.x]
    while method.done(state) is None:
        state = method.step(state)
        visited.append(state.x)
        assert len(visited) < 3000
    return method, visited


# --- The relaxed objectives -----------------------------------------------------------------------


@BY_RELAXED
@WIDTHS
@pytest.mark.parametrize("storage", STORAGE)
@examples(8)
@given(SEEDS)
def test_values_and_gradients_are_those_of_the_dense_formulas(name, widths, storage, seed):
    rng = np.random.default_rng(seed)
    views, eps = cases.random_views(rng, 9, widths), [0.05, 0.4]
    problem = pose([STORAGE[storage](view) for view in views], 4, 0.1, eps, block=4)
    at, value = ascent(problem, RELAXED[name]).at, dense_value(name, views, eps)
    x = rng.uniform(0.05, 0.95, size=9)
    assert at(x).value == pytest.approx(value(x), abs=1e-9)
    np.testing.assert_allclose(at(x).gradient, reference.gradient_fd(value, x), atol=1e-5)
    x[:3], x[3:5] = 0.0, 1.0  # what memberships end up as
    assert at(x).value == pytest.approx(value(x), abs=1e-9)
    np.testing.assert_allclose(at(x).gradient, reference.gradient_fd(value, x), atol=1e-5)


@WIDTHS
def test_at_a_subset_the_softmax_extension_is_its_log_determinant(widths):
    views, eps = cases.random_views(np.random.default_rng(1), 8, widths), [0.1, 0.3]
    at = ascent(pose(views, 3, 0.1, eps), SoftmaxPoint).at
    L = reference.averaged_kernel(kernels(views, eps))
    for S in itertools.combinations(range(8), 3):
        expected = reference.logdet(L[np.ix_(S, S)])
        assert at(reference.selector(S, 8).sum(axis=1)).value == pytest.approx(expected, abs=1e-9)


@BY_RELAXED
@WIDTHS
def test_relaxations_weigh_the_views_by_their_factors(name, widths):
    rng = np.random.default_rng(2)
    views, eps, x = cases.random_views(rng, 9, widths), [0.1, 0.1], rng.uniform(size=9)
    problem = pose(views, 3, 0.1, eps)
    rule = Calibration("explicit", offsets={"view0": 1.0, "view1": -2.0})
    scaled = replace(problem, pool=rule.apply(problem.pool), calibration=rule)
    factors = np.exp([1.0, -2.0])
    larger = [math.sqrt(c) * view for c, view in zip(factors, views, strict=True)]
    value = dense_value(name, larger, list(0.1 * factors))
    assert ascent(scaled, RELAXED[name]).at(x).value == pytest.approx(value(x), abs=1e-9)


# --- The ascent -----------------------------------------------------------------------------------


@examples(100)
@given(SEEDS, st.sampled_from([1e-3, 1.0, 50.0]))
def test_projection(seed, scale):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 20))
    k = int(rng.integers(1, n))
    y = scale * rng.standard_normal(n)
    y[rng.integers(n)] = y[0]
    x = project(y, k)
    assert x.min() >= 0.0
    assert x.max() <= 1.0
    assert x.sum() == pytest.approx(k, abs=1e-9)
    np.testing.assert_allclose(x, reference.capped_simplex(y, k), atol=1e-9)


@BY_RELAXED
@BY_CASE
def test_the_ascent_is_feasible_and_monotone_and_ends_where_nothing_is_to_gain(name, case):
    method, visited = solve(pose_case(case), name)
    value = dense_value(name, case.views, list(case.eps))
    values = [value(x) for x in visited]
    np.testing.assert_array_equal(visited[0], np.full(len(visited[0]), case.k / len(visited[0])))
    for x in visited:
        assert x.min() >= 0.0
        assert x.max() <= 1.0
        assert x.sum() == pytest.approx(case.k, abs=1e-9)
    for before, after in itertools.pairwise(values):
        assert after >= before - 1e-9 * max(1.0, abs(before))
    gradient = method.at(visited[-1]).gradient
    assert reference.linear_gap(gradient, visited[-1], case.k) <= RELAXED[name].gap * case.k + 1e-9


@BY_RELAXED
def test_the_ascent_leaves_the_uniform_point(name):
    case = cases.SMALL[7]
    _, visited = solve(pose_case(case), name)
    value = dense_value(name, case.views, list(case.eps))
    assert len(visited) > 2
    assert value(visited[-1]) > value(visited[0]) + 0.1


@BY_CASE
def test_d_optimal_reaches_the_maximum_of_its_relaxation(case):
    lam, Phi = float(np.mean(case.eps)), beside(case.views)
    _, visited = solve(pose_case(case), "d-optimal", tol=1e-8)
    expected = reference.design_maximum(Phi, lam, case.k)
    value = reference.design_value(Phi, lam, visited[-1])
    assert value == pytest.approx(expected, abs=1e-6)
    n = len(Phi)
    for S in itertools.combinations(range(n), case.k):
        assert reference.design_value(Phi, lam, reference.selector(S, n).sum(axis=1)) < value + 1e-6


def test_the_gap_bounds_what_d_optimal_misses():
    case = cases.SMALL[8]
    lam, Phi = float(np.mean(case.eps)), beside(case.views)
    best = reference.design_maximum(Phi, lam, case.k)
    method, visited = solve(pose_case(case), "d-optimal", tol=1e-6)
    missing = [best - reference.design_value(Phi, lam, x) for x in visited]
    gaps = [reference.linear_gap(method.at(x).gradient, x, case.k) for x in visited]
    assert missing[0] > 0.01
    for missed, gap in zip(missing, gaps, strict=True):
        assert missed <= gap + 1e-7


def test_steps_below_rounding_end_the_ascent():
    case = cases.SMALL[2]
    method = ascent(pose_case(case), DesignPoint)
    method.tol = -1.0  # never reached
    outcome = run(method)
    assert outcome.status is Status.ROUNDING_FLOOR
    assert method.gap(outcome.state) < 1e-5


# --- Rounding -------------------------------------------------------------------------------------


@BY_RELAXED
@BY_CASE
def test_the_largest_memberships_are_chosen(name, case):
    problem = pose_case(case)
    _, visited = solve(problem, name)
    S = select(problem, name)
    rest = np.setdiff1d(np.arange(problem.n), S)
    assert visited[-1][S].min() >= visited[-1][rest].max() - 1e-6


@pytest.mark.parametrize("name", METHODS)
def test_of_a_diagonal_kernel_the_largest_entries_are_chosen(name):
    values = np.array([0.5, 3.0, 0.1, 8.0, 2.0, 0.2, 5.0])
    problem = pose([DiagonalView(values, eps=0.1)], 3, 0.1, [1.0])
    assert sorted(select(problem, name)) == [1, 3, 6]


def test_equal_memberships_go_to_the_lowest_rows():
    same = [np.ones((7, 2)), np.ones((7, 3))]
    for name in RELAXED:
        assert select(pose(same, 3, 0.1, [0.1, 0.1]), name) == [0, 1, 2]


def test_most_subsets_have_a_smaller_averaged_determinant_than_softmax():
    """Measured, not guaranteed, and not so for the looser D-optimal design."""
    for case in cases.SMALL:
        L = reference.averaged_kernel(case_kernels(case))
        every = itertools.combinations(range(len(L)), case.k)
        scores = np.array([reference.subset_score(L, S) for S in every])
        own = reference.subset_score(L, select(pose_case(case), "softmax"))
        assert own >= np.quantile(scores, 0.8) - 1e-9, case.name


# --- Saturate -------------------------------------------------------------------------------------


@pytest.mark.sample
@BY_CASE
@pytest.mark.parametrize("block", [3, None])
def test_saturate_against_loops(case, block):
    expected = reference.saturate(case_kernels(case), min(case.eps), case.k)
    assert select(pose_case(case, block=block), "saturate") == expected


@BY_CASE
def test_saturate_raises_the_worst_view(case):
    Ls = case_kernels(case)
    worst = min(reference.subset_scores(Ls, select(pose_case(case), "saturate")))
    every = list(itertools.combinations(range(len(Ls[0])), case.k))
    all_worst = np.array([min(reference.subset_scores(Ls, S)) for S in every])
    assert np.quantile(all_worst, 0.8) - 1e-9 <= worst <= all_worst.max() + 1e-9


def test_saturate_on_one_view_is_greedy():
    case = cases.SMALL[0]
    expected = reference.fair_greedy(case_kernels(case), case.k, case.tau)
    assert select(pose_case(case), "saturate") == expected


def test_saturate_looks_at_the_factors_of_the_views():
    rng = np.random.default_rng(4)
    views, eps = cases.random_views(rng, 12, [4, 5]), [0.1, 0.3]
    problem = pose(views, 4, 0.1, eps)
    rule = Calibration("explicit", offsets={"view0": 1.0, "view1": -0.5})
    scaled = replace(problem, pool=rule.apply(problem.pool), calibration=rule)
    Ls = [math.exp(c) * L for c, L in zip([1.0, -0.5], kernels(views, eps), strict=True)]
    unit = min(math.exp(1.0) * 0.1, math.exp(-0.5) * 0.3)
    expected = reference.saturate(Ls, unit, 4)
    assert select(scaled, "saturate") == expected
    assert sorted(expected) != sorted(reference.saturate(kernels(views, eps), 0.1, 4))


@pytest.mark.parametrize("level", [0.5, 3.0, 6.0, 100.0])
def test_truncated_scores(level):
    rng = np.random.default_rng(8)
    views, eps, S = cases.random_views(rng, 9, [3, 4]), [0.1, 0.1], [5, 2]
    Ls = kernels(views, eps)
    logdets = np.array([reference.logdet(L[np.ix_(S, S)]) for L in Ls])
    others = [i for i in range(9) if i not in S]
    grown = np.array([[reference.logdet(L[np.ix_([*S, i], [*S, i])]) for i in others] for L in Ls])
    truncated = Truncated(np.zeros(2), math.log(0.1), level, logdets, 3)
    expected = [reference.truncated_mean(Ls, [*S, i], 0.1, level) / 3 for i in others]
    np.testing.assert_allclose(truncated.fair_scores(grown - logdets[:, None]), expected)


@examples(40)
@given(SEEDS)
def test_saturate_obeys_the_rules(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(5, 12)), int(rng.integers(1, 5))
    rules = random_rules(rng, n, k)
    problem = pose(cases.random_views(rng, n, [3, 2]), k, 0.1, [0.1, 0.2], rules=rules)
    S = select(problem, "saturate")
    assert obeys(rules, S)
    assert S[: len(rules.fixed_in)] == rules.fixed_in.tolist()


def interrupt_at(turn: int):
    """A listener that gives up at its `turn`-th step."""
    steps = itertools.count()

    def listen(step: Step) -> None:
        if next(steps) == turn:
            raise KeyboardInterrupt

    return listen


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("turn", [0, 1, 2])
def test_what_was_interrupted_is_whole_and_says_so(name, turn):
    found = find(pose_case(cases.SMALL[7]), name, Context(progress=interrupt_at(turn)))
    assert found.status is Status.INTERRUPTED


def test_saturate_keeps_the_best_finished_round_when_interrupted():
    problem = pose_case(cases.SMALL[7])
    first = Context(progress=interrupt_at(5))  # k + 1 = 5 reports make one round
    later = Context(progress=interrupt_at(8))
    kept = [find(problem, "saturate", session) for session in (first, later)]
    assert kept[0].indices.tolist() == kept[1].indices.tolist()
    assert [found.status for found in kept] == [Status.INTERRUPTED] * 2


# --- All three ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
@examples(5)
@given(SEEDS)
def test_the_order_of_rows_and_their_storage_do_not_matter(name, seed):
    rng = np.random.default_rng(seed)
    n, k = 14, int(rng.integers(1, 8))
    views, eps = cases.random_views(rng, n, [4, 6]), [0.1, 0.2]
    plain = select(pose(views, k, 0.1, eps), name)
    order = rng.permutation(n)
    moved = select(pose([view[order] for view in views], k, 0.1, eps, block=5), name)
    assert sorted(order[moved].tolist()) == sorted(plain)
    for make in STORAGE.values():
        assert select(pose([make(view) for view in views], k, 0.1, eps), name) == plain


@pytest.mark.sample
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("eps", [1e-10, 1e-6, 10.0])
@pytest.mark.parametrize("k", [1, 4, 11])
def test_degenerate_pools(name, eps, k):
    """One view or two, duplicates and a row of zeros; the ridge from tiny to large."""
    rng = np.random.default_rng(11)
    views = cases.with_duplicates(cases.random_views(rng, 12, [3, 5]), [(0, 4), (0, 9), (2, 7)])
    views[1][6] = 0.0
    for chosen in (views, views[:1]):
        problem = pose(chosen, k, 0.1, [eps] * len(chosen))
        assert select(problem, name) == select(problem, name)


@pytest.mark.parametrize("name", METHODS)
def test_an_item_that_all_views_see_as_the_largest_is_the_one_item(name):
    views = cases.random_views(np.random.default_rng(3), 10, [4, 4])
    for view in views:
        view[6] *= 30.0
    assert select(pose(views, 1, 0.1, [0.1, 0.1]), name) == [6]


@BY_RELAXED
@pytest.mark.parametrize("rules", [{"fixed_in": indices(1)}, {"fixed_out": indices(1)}])
def test_relaxations_refuse_rules_in_one_sentence(name, rules):
    problem = pose_case(cases.SMALL[2], rules=Constraints(**rules))
    with pytest.raises(InputError) as error:
        select(problem, name)
    expected = f"method '{name}' does not support include, exclude or groups; use 'auto'"
    assert str(error.value) == expected == refuse(problem, name)


def thin(n: int, p: int) -> sp.csr_array:
    """One entry per row: large in shape alone."""
    return sp.csr_array((np.ones(n), np.arange(n) % p, np.arange(n + 1)), shape=(n, p))


@BY_RELAXED
def test_relaxations_refuse_what_is_too_large_on_both_sides(name):
    problem = pose([thin(5000, 3000), thin(5000, 3000)], 3, 0.1, [0.1, 0.1])
    with pytest.raises(InputError, match=rf"'{name}'.* smaller side is 5000 .*more than 4096"):
        select(problem, name)
    assert refuse(problem, "saturate") is None
    for n, p in [(10, 6000), (5000, 8)]:
        assert len(select(pose([thin(n, p)], 3, 0.1, [0.1]), name)) == 3


@pytest.mark.parametrize("name", METHODS)
def test_a_view_without_ridge_is_refused_in_one_sentence(name):
    views = [DiagonalView(np.arange(1.0, 7.0), eps=0), np.eye(6)]
    problem = pose(views, 2, 0.1, [1.0, 0.1])
    with pytest.raises(InputError) as error:
        select(problem, name)
    assert str(error.value) == (
        f"method '{name}' needs a ridge eps above zero in every view; use another one"
    )
