"""Branch and bound: the enumerated optimum, and bounds that are true at every step on the way."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import cases
import reference
from fairnepv import DiagonalView, InputError, KernelView, Status, select
from fairnepv.concave.topk import price_candidates
from fairnepv.loop import Budget, Outcome, pack, run, unpack
from fairnepv.problem import Constraints, Problem
from fairnepv.search import exact as exact_module
from fairnepv.search.exact import Best, ExactState, Tree, _top_sums
from search_problems import (
    STORAGE,
    Hostile,
    feasible_subsets,
    hostile,
    indices,
    kernels,
    obeys,
    pose,
    random_rules,
    rules_of_each_kind,
    views_of,
)

SURE = 1e-9  # what pruning may give away

Exact = partial(exact_module.Exact, price=price_candidates)


@pytest.fixture
def branching(monkeypatch):
    """No subtree is small enough to be searched to the end, so that nodes are really bounded."""
    monkeypatch.setattr(exact_module, "_SMALL", 1)


def worst_start(pool: Hostile) -> np.ndarray:
    return indices(*pool.subsets[int(np.argmin(pool.F))])


def check_bounds(outcome: Outcome[ExactState], best: float) -> None:
    """At every step: the upper bound never rises and is true, and the value never falls."""
    uppers = [row.details["upper"] for row in outcome.trace if row.details["upper"] is not None]
    assert all(later <= earlier for earlier, later in pairwise(uppers))
    assert all(upper >= best - SURE for upper in uppers)
    values = [row.objective for row in outcome.trace]
    assert all(later >= earlier for earlier, later in pairwise(values))
    assert all(value <= best + SURE for value in values)


def check_optimal(outcome: Outcome[ExactState], best: float) -> None:
    assert outcome.status is Status.OPTIMAL
    assert outcome.state.value == pytest.approx(best, abs=SURE)
    assert best <= outcome.state.upper <= best + 1e-6  # rounding included
    assert len(outcome.state.nodes) == 0
    check_bounds(outcome, best)


# --- The bar --------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("small", [1, 30_000])
@pytest.mark.parametrize(
    "seeds", [range(start, start + 50) for start in range(0, 300, 50)], ids=str
)
def test_the_optimum_of_300_pools_from_the_worst_start(seeds, small, monkeypatch):
    monkeypatch.setattr(exact_module, "_SMALL", small)
    for seed in seeds:
        pool = hostile(seed)
        outcome = run(Exact(pool.problem, worst_start(pool)))
        check_optimal(outcome, pool.best)
        S = tuple(sorted(outcome.state.indices.tolist()))
        assert pool.F[pool.subsets.index(S)] >= pool.best - SURE, seed  # and S is allowed


@pytest.mark.parametrize("small", [1, 30_000])
def test_a_good_start_is_kept_and_proven(small, monkeypatch):
    monkeypatch.setattr(exact_module, "_SMALL", small)
    for seed in range(0, 100, 5):
        pool = hostile(seed)
        best = indices(*pool.subsets[int(np.argmax(pool.F))])
        outcome = run(Exact(pool.problem, best))
        check_optimal(outcome, pool.best)
        assert outcome.state.indices.tolist() == best.tolist()


@pytest.mark.sample(1)
@pytest.mark.parametrize("storage", STORAGE)
def test_a_pool_that_takes_many_nodes(storage, branching):
    rng = np.random.default_rng(3)
    views, eps = cases.random_views(rng, 18, [6, 5]), [0.1, 0.1]
    problem = pose([STORAGE[storage](view) for view in views], 6, 0.05, eps)
    subsets = feasible_subsets(Constraints(), 18, 6)
    d = reference.view_scores(kernels(views, eps), subsets)
    best = max(reference.soft_min(row, 0.05) for row in d)
    outcome = run(Exact(problem, np.arange(6)))
    check_optimal(outcome, best)
    assert 10 < outcome.state.looked < len(subsets) / 10  # it branches, and it prunes


def test_nodes_of_the_highest_bounds_are_looked_at_first(branching, monkeypatch):
    """So that the upper bound falls."""
    monkeypatch.setattr(exact_module, "_BATCH", 2)
    views = cases.random_views(np.random.default_rng(3), 16, [6, 5])
    solver = Exact(pose(views, 5, 0.05, [0.1, 0.1]), np.arange(5))
    state, compared = solver.init(), 0
    while solver.done(state) is None:
        following = solver.step(state)
        left = {node.tobytes() for node in following.nodes}
        for at in np.argsort(-state.bounds, kind="stable")[:2]:
            assert state.nodes[at].tobytes() not in left
            compared += len(state.nodes) > 2
        state = following
    assert compared > 5


def test_the_mean_of_the_views_can_be_maximised_too(branching):
    rng = np.random.default_rng(4)
    views, eps = cases.random_views(rng, 11, [5, 4]), [0.1, 0.1]
    outcome = run(Exact(pose(views, 4, math.inf, eps), np.arange(4)))
    check_optimal(outcome, reference.exhaustive(kernels(views, eps), 4, math.inf)[0])


# --- Rules, floors and ties -----------------------------------------------------------------------


@pytest.mark.parametrize("small", [1, 30_000])
@pytest.mark.parametrize("kind", rules_of_each_kind(12, 5))
def test_rules_of_every_kind(kind, small, monkeypatch):
    monkeypatch.setattr(exact_module, "_SMALL", small)
    rules = rules_of_each_kind(12, 5)[kind]
    views, eps = cases.clustered_views(np.random.default_rng(1), 12, [5, 4], 4), [0.1, 0.1]
    Ls, subsets = kernels(views, eps), feasible_subsets(rules, 12, 5)
    scores = [reference.fair_score(Ls, S, 0.1) for S in subsets]
    start = indices(*subsets[int(np.argmin(scores))])
    outcome = run(Exact(pose(views, 5, 0.1, eps, rules=rules), start))
    check_optimal(outcome, max(scores))
    assert obeys(rules, outcome.state.indices.tolist())


@pytest.mark.parametrize("small", [1, 30_000])
@pytest.mark.parametrize("seed", range(12))
def test_floors_are_met_by_the_best_set_that_meets_them(seed, small, monkeypatch):
    monkeypatch.setattr(exact_module, "_SMALL", small)
    rng = np.random.default_rng(seed)
    views, eps = cases.random_views(rng, 11, [5, 4]), [0.1, 0.1]
    rules = random_rules(rng, 11, 4) if seed % 2 else Constraints()
    subsets = feasible_subsets(rules, 11, 4)
    d = reference.view_scores(kernels(views, eps), subsets)
    F = np.array([reference.soft_min(row, 0.3) for row in d])
    floor = float(np.quantile(d[:, 0], 0.98)) if len(d) > 50 else float(d[:, 0].max())
    floors = np.array([floor - 1e-7, -np.inf])
    best = F[d[:, 0] >= floors[0]].max()
    problem = pose(views, 4, 0.3, eps, rules=rules)
    problem = Problem(problem.pool, 4, 0.3, problem.calibration, constraints=rules, floors=floors)
    start = indices(*subsets[int(np.argmin(F))])
    outcome = run(Exact(problem, start))
    assert outcome.status is Status.OPTIMAL
    assert outcome.state.value == pytest.approx(best, abs=1e-8)
    S = tuple(sorted(outcome.state.indices.tolist()))
    assert d[subsets.index(S), 0] >= floors[0] - 1e-9
    assert seed != 0 or best < F.max() - 1e-3  # the floor costs something


def test_many_ties_are_soon_over(branching):
    """The paper's instance has 500 optimal sets; all of them are bounded at once."""
    paper = cases.paper_instance()
    views = [DiagonalView(paper[name], eps=0) for name in ("text", "vision")]
    problem = pose(views, paper["k"], paper["tau"], [1.0, 1.0])
    outcome = run(Exact(problem, np.arange(5)), budget=Budget(max_steps=2000))
    check_optimal(outcome, cases.PAPER_OPTIMUM)


@pytest.mark.parametrize("eps", [1e-1, 1e-4, 1e-7])
def test_duplicates_and_a_small_ridge(eps, branching):
    """The determinant of a pair of duplicates is the ridge and nothing else."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((5, 4))
    Phi = np.vstack([rows, rows, rows[:2]])
    Phi /= np.linalg.norm(Phi, axis=1, keepdims=True)
    problem = pose([Phi], 7, 0.1, [eps])

    def score(S: tuple[int, ...]) -> float:
        singular = np.zeros(7)
        values = np.linalg.svd(Phi[list(S)], compute_uv=False)
        singular[: len(values)] = values
        return float(np.log(singular**2 + eps).mean())

    best = max(score(S) for S in feasible_subsets(Constraints(), 12, 7))
    outcome = run(Exact(problem, np.array([0, 1, 2, 3, 5, 6, 7])))
    assert outcome.status is Status.OPTIMAL
    assert outcome.state.value == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("eps", [1e-12, 1e-16])
def test_a_ridge_below_rounding_breaks_nothing(eps):
    """Duplicates cancel to nothing, and nothing is not a number."""
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((6, 6))
    Phi = np.vstack([rows, rows]) / np.linalg.norm(rows[0])
    outcome = run(Exact(pose([Phi], 4, 0.1, [eps]), np.arange(4)))
    assert outcome.status is Status.INEXACT
    assert math.isfinite(outcome.state.value)
    assert len({int(i) % 6 for i in outcome.state.indices}) == 4


@pytest.mark.parametrize("eps", [1e-3, 1e-9, 1e-17])
@pytest.mark.parametrize("k", [2, 3])
def test_identical_rows_are_worth_their_ridge(k, eps):
    """det = eps^(k-1) (k + eps), however far that is below rounding."""
    outcome = run(Exact(pose([np.ones((7, 1))], k, 0.1, [eps]), np.arange(k)))
    assert outcome.status is (Status.OPTIMAL if eps > 1e-5 else Status.INEXACT)
    expected = ((k - 1) * math.log(eps) + math.log(k + eps)) / k
    assert outcome.state.value == pytest.approx(expected, abs=1e-12)
    tree, nothing = (
        Tree(pose([np.ones((7, 1))], 2, 0.1, [eps]), price_candidates),
        Best(np.arange(2), -np.inf),
    )
    found = tree.search(tree.branch(np.zeros(7, dtype=np.int8)), nothing)
    assert found.value == pytest.approx((math.log(eps) + math.log(2 + eps)) / 2, abs=1e-12)


@pytest.mark.parametrize("power", [-480, -300, 300, 490])
@pytest.mark.parametrize("k", [2, 4])
def test_rows_whose_determinants_float64_has_no_place_for(power, k, branching):
    """The optimum of rows of length one, in units of 2^power."""
    views = [
        np.ldexp(Phi, power) for Phi in cases.random_views(np.random.default_rng(0), 9, [4, 6])
    ]
    posed = pose(views, k, 0.1, [math.ldexp(0.1, 2 * power)] * 2)
    rise = 2 * power * math.log(2)
    best, sets = reference.exhaustive(
        kernels([np.ldexp(X, -power) for X in views], [0.1] * 2), k, 0.1
    )
    found = run(Exact(posed, indices(*range(k))))
    assert found.status is Status.OPTIMAL
    assert tuple(sorted(found.state.indices.tolist())) in sets
    assert found.state.value - rise == pytest.approx(best, abs=1e-9)


def test_rows_of_zeros_are_worth_nothing(branching):
    rng = np.random.default_rng(7)
    Phi = rng.standard_normal((11, 4))
    Phi[3:] = 0.0
    problem = pose([Phi], 6, 0.1, [0.1])
    outcome = run(Exact(problem, np.arange(5, 11)))
    check_optimal(outcome, reference.exhaustive(kernels([Phi], [0.1]), 6, 0.1)[0])


# --- Limits and resumption ------------------------------------------------------------------------


def hard_problem() -> tuple[Problem, float]:
    rng = np.random.default_rng(3)
    views, eps = cases.random_views(rng, 16, [7, 6, 5]), [0.1, 0.1, 0.1]
    problem = pose(views, 6, 0.05, eps)
    subsets = feasible_subsets(Constraints(), 16, 6)
    d = reference.view_scores(kernels(views, eps), subsets)
    return problem, max(reference.soft_min(row, 0.05) for row in d)


@pytest.mark.sample(1)
@pytest.mark.parametrize("limit", [1, 2, 7, 16, 17, 40])
def test_a_node_limit_is_kept_and_leaves_a_true_bound(limit, branching):
    problem, best = hard_problem()
    outcome = run(Exact(problem, np.arange(6), node_limit=limit))
    assert outcome.status is Status.NODE_LIMIT
    assert outcome.state.looked == limit
    check_bounds(outcome, best)
    assert best - SURE <= outcome.state.upper < math.inf
    assert outcome.state.value <= best


def test_a_deadline_leaves_the_best_so_far_and_a_true_bound(branching):
    problem, best = hard_problem()
    outcome = run(Exact(problem, np.arange(6)), budget=Budget(max_steps=3))
    assert outcome.status is Status.STEP_LIMIT
    check_bounds(outcome, best)
    timed = run(Exact(problem, np.arange(6)), budget=Budget(deadline=0.0))
    assert timed.status is Status.TIME_LIMIT
    assert timed.state.indices.tolist() == list(range(6))
    assert timed.state.upper == math.inf


@pytest.mark.sample(1)
@pytest.mark.parametrize("steps", [0, 1, 3, 5])
def test_a_resumed_search_goes_where_the_uninterrupted_one_went(steps, branching):
    problem, best = hard_problem()
    whole = run(Exact(problem, np.arange(6)))
    check_optimal(whole, best)
    half = run(Exact(problem, np.arange(6)), budget=Budget(max_steps=steps))
    assert half.status is Status.STEP_LIMIT
    state = unpack(ExactState, pack(half.state))
    resumed = run(Exact(problem, np.arange(6)), state=state, steps=half.steps)
    assert resumed.status is Status.OPTIMAL
    assert resumed.state.indices.tolist() == whole.state.indices.tolist()
    assert (resumed.state.looked, resumed.steps) == (whole.state.looked, whole.steps)
    assert resumed.state.value == whole.state.value


def test_large_pools_are_refused():
    rng = np.random.default_rng(0)
    views = [rng.standard_normal((2001, 2))]
    with pytest.raises(InputError, match="2000"):
        Exact(pose(views, 3, 0.1, [0.1]), np.arange(3))


# --- The parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "count"),
    [
        *[(7, 0), (7, 1), (7, 3), (7, 6), (90, 7), (90, 60)],
        pytest.param(3000, 5, marks=pytest.mark.slow),  # NumPy sorts smaller arrays whole
    ],
)
def test_sums_of_the_largest_others(m, count):
    rng = np.random.default_rng(count)
    gains = rng.integers(4, size=(5, m)).astype(float)
    gains[1:] += rng.standard_normal((4, m))
    expected = [
        [sum(sorted(np.delete(row, i))[m - 1 - count :]) for i in range(m)] for row in gains
    ]
    np.testing.assert_allclose(_top_sums(gains, count), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_the_bounds_of_a_node_hold_for_every_set_below_it(seed):
    """That by norms for every candidate, and the prices of the relaxation for every set."""
    pool = hostile(seed * 7 + 1, most_rows=9)
    problem = pool.problem
    if problem.k < 3 or problem.constraints:
        problem = pose(cases.random_views(np.random.default_rng(seed), 9, [4, 3]), 4, 0.1, [0.1, 1])
    n, k = problem.n, problem.k
    tree = Tree(problem, price_candidates)
    node = np.zeros(n, dtype=np.int8)
    node[seed % n] = 1
    node[(seed + 3) % n] = -1
    branch = tree.branch(node)
    below = [
        S
        for S in feasible_subsets(Constraints(), n, k)
        if seed % n in S and (seed + 3) % n not in S
    ]
    Ls = [view.whole_kernel() + view.ridge * np.eye(n) for view in problem.pool.views]
    d = reference.view_scores(Ls, below) + problem.offsets
    F = {S: reference.soft_min(row, problem.tau) for S, row in zip(below, d, strict=True)}
    hadamard = tree._with_each(branch)
    nothing = Best(np.arange(k), -np.inf)
    prices, constant = tree.prices(branch, nothing)
    price = dict(zip(branch.rows.tolist(), prices.tolist(), strict=True))
    for S, value in F.items():
        rest = [i for i in S if i != seed % n]
        for row, bound in zip(branch.rows, hadamard, strict=True):
            assert row not in rest or value <= bound + 1e-9
        assert value <= constant + sum(price[i] for i in rest) + 1e-9


def test_children_cover_every_set_of_their_parent():
    """And no set twice: each child chooses one candidate and gives up those before it."""
    problem = pose(cases.random_views(np.random.default_rng(2), 9, [4, 3]), 4, 0.1, [0.1, 0.1])
    tree = Tree(problem, price_candidates)
    node = np.zeros(9, dtype=np.int8)
    node[2], node[5] = 1, -1
    branch = tree.branch(node)
    nothing = Best(np.arange(4), -np.inf)
    prices, constant = tree.prices(branch, nothing)
    children, bounds = tree._children(node, branch, prices, constant, nothing)
    seen: list[tuple[int, ...]] = []
    for child, bound in zip(children, bounds, strict=True):
        chosen, given_up = np.flatnonzero(child == 1), np.flatnonzero(child == -1)
        rules = Constraints(fixed_in=chosen, fixed_out=given_up)
        sets = feasible_subsets(rules, 9, 4)
        seen += sets
        Ls = kernels([view.data for view in views_of(problem.pool)], [0.1, 0.1])
        assert all(reference.fair_score(Ls, S, 0.1) <= bound + 1e-9 for S in sets)
    parent = Constraints(fixed_in=indices(2), fixed_out=indices(5))
    assert sorted(seen) == feasible_subsets(parent, 9, 4)


def test_a_set_too_strained_for_float64_is_no_traceback():
    kernel = KernelView(np.eye(3) + 0.1, eps=0)
    found = select({"a": kernel}, 1, method="exact", quality=np.array([1e-230, 1e-42, 1e-239]))
    assert found.indices.tolist() == [1]


def test_a_set_that_is_all_that_is_left_is_looked_at():
    """A candidate may be ruled out by itself until there are just as many as are to be chosen."""
    problem = pose(cases.random_views(np.random.default_rng(2), 40, [6, 5]), 8, 0.1, [0.1, 0.1])
    tree = Tree(problem, price_candidates)
    kept = np.arange(3, 11)
    tree._thinned = lambda branch, best: (branch.restrict(kept), np.inf)  # type: ignore
    node = np.zeros(40, dtype=np.int8)
    worst = Best(np.arange(8), -1e9)
    _, children, bounds = tree.explore(node, np.inf, worst)
    assert len(children) == len(bounds) == 1
    (child,) = children
    assert set(np.flatnonzero(child == -1)) == set(range(40)) - set(kept.tolist())
    assert set(np.flatnonzero(child >= 0)) == set(kept.tolist())
    fair = reference.fair_score(kernels(views_of_rows(problem), [0.1, 0.1]), kept, 0.1)
    assert bounds[0] >= fair - SURE


def views_of_rows(problem):
    return [view.rows(np.arange(problem.n)) for view in problem.pool.views]


def test_a_goal_is_reached_by_what_is_as_good():
    views = cases.random_views(np.random.default_rng(2), 20, [6, 5])
    problem = pose(views, 4, 0.1, [0.1, 0.1])
    value = Exact(problem, np.arange(4)).init().value
    for goal, status in (
        (value, Status.TARGET),
        (value + 1e-9, None),
        (value - 1.0, Status.TARGET),
    ):
        solver = Exact(problem, np.arange(4), goal=goal)
        assert solver.done(solver.init()) is status
