"""Fair greedy, its ties, its completion, its order, and the shortlist that it may start from."""

import math
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cases
import reference
from fairnepv import Calibration, DiagonalView, LocalEngine, Pool, Status
from fairnepv.api import inputs as posing
from fairnepv.compute import clock
from fairnepv.loop import Budget, pack, run, unpack
from fairnepv.objective import merit, subset_merit
from fairnepv.problem import Constraints, Problem, Quotas
from fairnepv.search import Greedy, complete, fair_order, shortlist, sprint
from fairnepv.search.frontier import Frontier
from fairnepv.search.greedy import GreedyState
from fairnepv.search.ties import SLACK, blur, lowest_tied
from fairnepv.views import DenseView, SumView
from search_problems import (
    STORAGE,
    case_kernels,
    constrained_greedy,
    examples,
    feasible_subsets,
    indices,
    kernels,
    nearly_doubled,
    obeys,
    pose,
    pose_case,
    random_rules,
    rules_of_each_kind,
)

frontier_module = sys.modules[Frontier.__module__]
greedy_module = sys.modules[Greedy.__module__]
BLOCKS = [1, 3, 7, None]
SEEDS = st.integers(0, 10**6)


def greedy(problem: Problem) -> list[int]:
    outcome = run(Greedy(problem))
    assert outcome.status is Status.COMPLETE
    return outcome.state.indices.tolist()


def diagonal(*values: float, k: int = 1, block: int | None = None) -> Problem:
    return pose([DiagonalView(np.array(values), eps=0)], k, 0.1, [1.0], block=block)


def unit_diagonal(views: list[np.ndarray], k: int, block: int | None = None) -> Problem:
    unit = Calibration("unit-diagonal", normalize=True)
    return Problem(unit.apply(Pool.of(views, engine=LocalEngine(block))), k, 0.05, unit)


# --- Against the reference ------------------------------------------------------------------------


@pytest.mark.slow
@examples(60)
@given(SEEDS)
def test_how_rows_are_refreshed_does_not_show(seed):
    """Windows, shares, batches, blocks and threads only say who is looked at when."""
    rng = np.random.default_rng(seed)
    views, k, eps, tau = nearly_doubled(rng)
    expected = reference.fair_greedy(kernels([v.astype(float) for v in views], eps), k, tau)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier_module, "WINDOW", int(rng.integers(1, 6)))
        patch.setattr(frontier_module, "_SHARE", float(rng.choice([0.0, 0.1, 0.5, 2.0])))
        patch.setattr(frontier_module, "_BATCH", int(rng.integers(1, 20)))
        patch.setattr(frontier_module, "_BATCH_SHARE", 0.0)
        patch.setattr(frontier_module, "_CONFIRM", int(rng.integers(1, 5)))
        problem = pose(views, k, tau, eps, block=int(rng.integers(1, 20)))
        engine = LocalEngine(block_rows=5, threads=int(rng.integers(1, 4)))
        threaded = replace(problem, pool=replace(problem.pool, engine=engine))
        assert greedy(problem) == expected
        assert greedy(threaded) == expected


def test_few_rows_are_refreshed_one_by_one():
    """Otherwise all of this would be for nothing: a pass per pick was what greedy did before."""
    rng = np.random.default_rng(3)
    views = [rng.standard_normal((3000, 20)).astype(np.float32) for _ in range(2)]
    problem = unit_diagonal(views, 60)
    looked_at = []
    explain = Frontier._explain

    def counted(self, rows, since):
        looked_at.append(problem.n if rows is None else len(rows))
        explain(self, rows, since)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Frontier, "_explain", counted)
        greedy(problem)
    assert sum(looked_at) < 0.5 * 60 * problem.n


@pytest.mark.parametrize("eps", [1e-4, 1e-3, 0.1])
def test_float32_serves_only_where_the_ridge_allows_it(eps):
    """Rows that differ by less than float32 can tell are still told apart."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((6, 12))
    near = np.vstack([base * (1.0 + 1e-9 * j) for j in range(4)])
    problem = pose([near], 6, 0.05, [eps])
    assert greedy(problem) == reference.fair_greedy(kernels([near], [eps]), 6, 0.05)


@pytest.mark.parametrize("foreseen", [False, True])
@pytest.mark.parametrize("step", [-1e-8, 1e-8])
@pytest.mark.parametrize("tau", [0.02, 0.5])
def test_of_two_rows_that_float32_takes_for_one_the_better_is_picked(tau, step, foreseen):
    """One is better in the mean and the other in the worse view, by so much that they are equal; a
    hundredth of a millionth decides. Under quotas no picks are foreseen."""
    logs = np.array([[0.0, 0.3, -3.0], [0.5, 0.2, -3.0]])

    def scores(shift):
        """Of both pairs with the row that is sure to be first."""
        first = np.array([1.0, 1.1])
        pairs = [(first + own + shift * (i == 0)) / 2 for i, own in enumerate(logs.T[:2])]
        return [reference.soft_min(d, tau) for d in pairs]

    low, high = -2.0, 2.0
    for _ in range(100):
        middle = (low + high) / 2
        one, other = scores(middle)
        low, high = (middle, high) if one < other else (low, middle)
    logs[:, 0] += low + step
    values = np.exp(np.hstack([[[1.0], [1.1]], logs]))
    quotas = Quotas(np.zeros(4, dtype=np.int64), indices(0), indices(4))
    rules = Constraints() if foreseen else Constraints(quotas=quotas)
    problem = pose([DiagonalView(v, eps=0.0) for v in values], 2, tau, [1.0, 1.0], rules=rules)
    assert greedy(problem) == [0, 1 if step > 0 else 2]


@pytest.mark.sample
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_greedy_is_the_reference_on_small_pools(case, block):
    expected = reference.fair_greedy(case_kernels(case), case.k, case.tau)
    assert greedy(pose_case(case, block=block)) == expected


@pytest.mark.parametrize("block", BLOCKS)
def test_greedy_is_the_reference_on_the_papers_instance(block):
    paper = cases.paper_instance()
    views = [DiagonalView(paper[name], eps=0) for name in ("text", "vision")]
    problem = pose(views, paper["k"], paper["tau"], [1.0, 1.0], block=block)
    Ls = [np.diag(paper[name]) for name in ("text", "vision")]
    assert greedy(problem) == reference.fair_greedy(Ls, paper["k"], paper["tau"])


@pytest.mark.parametrize("storage", STORAGE)
@examples(40)
@given(SEEDS)
def test_picks_made_several_at_once_are_the_reference(storage, seed):
    """However few rows are raced among, for however many picks, and however many are refreshed."""
    rng = np.random.default_rng(seed)
    views, k, eps, tau = nearly_doubled(rng)
    literal = [view.astype(float) for view in views]
    stored = views if storage == "dense" else [STORAGE[storage](view) for view in literal]
    problem = pose(stored, k, tau, eps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sprint, "_FEW_ROWS", int(rng.integers(1, 30)))
        patch.setattr(sprint, "_MOST", int(rng.integers(1, 20)))
        patch.setattr(frontier_module, "_BATCH", int(rng.integers(1, 20)))
        patch.setattr(frontier_module, "_AHEAD", float(rng.choice([0.0, 1.0, 8.0])))
        assert greedy(problem) == reference.fair_greedy(kernels(literal, eps), k, tau)


@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.parametrize("eps", [1e-3, 0.1])
def test_many_more_picks_than_columns(p, eps):
    """Their directions are folded into few: what they explain stays the same."""
    rng = np.random.default_rng(p)
    views = [rng.standard_normal((70, p)), rng.standard_normal((70, p + 1))]
    problem = pose(views, 45, 0.05, [eps, 3 * eps])
    expected = reference.fair_greedy(kernels(views, [eps, 3 * eps]), 45, 0.05)
    assert greedy(problem) == expected


def test_many_more_picks_than_columns_of_a_sum():
    """Whose coordinates are sums of those of its parts, pick by pick."""
    rng = np.random.default_rng(3)
    rows = [rng.standard_normal((70, p)) for p in (2, 2, 3)]
    parts = tuple(DenseView(Phi, eps=0.1) for Phi in rows)
    weights = (0.5, 2.0, 1.0)
    given = kernels(rows, [0.1] * 3)
    L = np.sum([w * K for w, K in zip(weights, given, strict=True)], axis=0)
    problem = pose([SumView(parts, weights)], 45, 0.05, [0.35])
    assert greedy(problem) == reference.fair_greedy([L], 45, 0.05)


def test_most_picks_are_made_several_at_once(monkeypatch):
    rng, lengths, plain = np.random.default_rng(8), [], sprint.Sprint.run

    def counting(self, *given):
        found = plain(self, *given)
        lengths.append(len(found))
        return found

    monkeypatch.setattr(sprint.Sprint, "run", counting)
    views = [rng.standard_normal((2000, 30)), rng.standard_normal((2000, 40))]
    assert len(greedy(unit_diagonal(views, 60))) == 60
    assert sum(lengths) > 50
    assert len(lengths) < 30


@pytest.mark.parametrize("storage", STORAGE)
@examples(25)
@given(SEEDS, st.sampled_from(BLOCKS), st.booleans())
def test_greedy_is_the_reference_in_every_storage(storage, seed, block, with_quality):
    rng = np.random.default_rng(seed)
    n, M = int(rng.integers(6, 18)), int(rng.integers(1, 4))
    k = int(rng.integers(1, min(n, 8)))
    tau = float(10 ** rng.uniform(-2, 0.5))
    views = cases.random_views(rng, n, rng.integers(1, 7, size=M))
    eps = 10 ** rng.uniform(-3, 0, size=M)
    quality = list(rng.uniform(0.1, 4, size=(M, n))) if with_quality else None
    problem = pose(
        [STORAGE[storage](Phi) for Phi in views], k, tau, eps, block=block, quality=quality
    )
    assert greedy(problem) == reference.fair_greedy(kernels(views, eps, quality), k, tau)


@examples(25)
@given(SEEDS, st.sampled_from(BLOCKS))
def test_greedy_is_the_reference_on_mixed_views(seed, block):
    rng = np.random.default_rng(seed)
    n, k = 15, 6
    views = cases.random_views(rng, n, [5, 4, 3])
    values = rng.uniform(0.1, 3, size=n)
    eps = [0.1, 0.01, 0.3, 0.05]
    stored = [make(Phi) for make, Phi in zip(STORAGE.values(), views, strict=True)]
    problem = pose([*stored, DiagonalView(values)], k, 0.1, eps, block=block)
    Ls = kernels([*views, np.diag(np.sqrt(values))], eps)
    assert greedy(problem) == reference.fair_greedy(Ls, k, 0.1)


def test_greedy_reports_the_fair_score_of_every_partial_set():
    case = cases.SMALL[2]
    Ls = case_kernels(case)
    outcome = run(Greedy(pose_case(case)))
    picks = outcome.state.indices
    assert [row.details["size"] for row in outcome.trace] == list(range(case.k + 1))
    assert [row.passes for row in outcome.trace] == [0] * (case.k + 1)  # so few rows need none
    for row in outcome.trace[1:]:
        partial = picks[: row.details["size"]]
        assert row.objective == pytest.approx(
            reference.fair_score(Ls, partial, case.tau), abs=1e-12
        )


def test_a_resumed_greedy_goes_where_the_uninterrupted_one_went():
    case = cases.SMALL[7]
    problem = pose_case(case, block=3)
    half = run(Greedy(problem), budget=Budget(max_steps=2))
    assert half.status is Status.STEP_LIMIT
    assert len(half.state.indices) == 2
    state = unpack(GreedyState, pack(half.state))
    resumed = run(Greedy(problem), state=state)
    assert resumed.state.indices.tolist() == greedy(problem)


# --- Ties -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [*BLOCKS, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_first_pick_under_unit_diagonal_is_the_first_row(block, dtype):
    rng = np.random.default_rng(3)
    views = [view.astype(dtype) for view in cases.random_views(rng, 300, [17, 40])]
    problem = unit_diagonal(views, 3, block)
    assert greedy(problem)[0] == 0
    assert greedy(replace(problem, constraints=Constraints(fixed_out=np.arange(5))))[0] == 5


@pytest.mark.parametrize("block", BLOCKS)
def test_of_equal_rows_the_lowest_is_picked(block):
    rng = np.random.default_rng(11)
    base = cases.random_views(rng, 6, [5, 4])
    views = [np.tile(view, (5, 1)) for view in base]  # row i repeats row i % 6
    problem = pose(views, 6, 0.1, [0.1, 0.1], block=block)
    picks = greedy(problem)
    assert picks == reference.fair_greedy(kernels(views, [0.1, 0.1]), 6, 0.1)
    first_time = list(dict.fromkeys(i % 6 for i in picks))
    assert picks[: len(first_time)] == first_time  # never a copy before its original


@pytest.mark.sample
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(
    ("logs", "winner"),
    [
        ([0.0, 0.0, 0.0], 0),
        ([0.0, 0.9e-10], 0),
        ([0.0, 1.1e-10], 1),
        ([0.9e-10, 0.0], 0),
        ([-1.0, 0.0, 0.6e-10, 1.2e-10], 2),  # the rule is about the best, not about neighbours
        ([0.0, 0.6e-10, 1.2e-10, 1.8e-10], 2),
        ([0.0, 0.6e-10, 1.2e-10, 1.8e-10, 2.4e-10, -0.5], 3),
        ([0.0, 3e-9, 2.95e-9], 1),
        ([2.95e-9, 0.0, 3e-9], 0),
    ],
)
def test_ties_within_the_tolerance_of_the_best_go_to_the_lowest_row(logs, winner, block):
    assert greedy(diagonal(*np.exp(logs), block=block)) == [winner]


NEAR = st.lists(
    st.one_of(
        st.integers(-5, 5).map(lambda i: i * 0.31e-10),  # around the tie tolerance
        st.integers(-5, 5).map(lambda i: i * 0.31 * SLACK),  # around the slack
        st.sampled_from([-1.0, 0.5, 0.5 + 1e-16, -math.inf]),
    ),
    min_size=1,
    max_size=12,
)


@examples(300)
@given(NEAR, st.sampled_from([1e-10, 3e-10, 0.0]))
def test_the_winner_is_the_lowest_of_those_tied_with_the_best(scores, tie):
    best = max(scores)
    winner = next(i for i, score in enumerate(scores) if score >= best - tie)
    assert lowest_tied(np.array(scores), tie) == winner


# --- Constraints ----------------------------------------------------------------------------------


@pytest.mark.sample
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("case", cases.SMALL[2:9], ids=lambda case: case.name)
def test_fixed_items_come_first_and_barred_ones_never(case, block):
    Ls, n = case_kernels(case), len(case.views[0])
    rules = Constraints(fixed_in=indices(n - 1, 1), fixed_out=indices(0, 3))
    picks = greedy(pose_case(case, block=block, rules=rules))
    allowed = [i for i in range(n) if i not in (0, 3)]
    fixed = [n - 1, 1]
    assert picks == reference.fair_greedy(Ls, case.k, case.tau, candidates=allowed, fixed=fixed)


@examples(60)
@given(SEEDS, st.sampled_from(BLOCKS))
def test_every_choice_is_the_best_of_those_that_leave_the_rules_within_reach(seed, block):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(7, 11)), int(rng.integers(2, 6))
    views = cases.random_views(rng, n, [4, 3])
    rules = random_rules(rng, n, k)
    picks = greedy(pose(views, k, 0.2, [0.1, 0.1], block=block, rules=rules))
    assert obeys(rules, picks)
    assert picks == constrained_greedy(kernels(views, [0.1, 0.1]), k, 0.2, rules)


def test_quotas_can_force_a_poor_item():
    groups = np.array([0, 0, 0, 1])
    rules = Constraints(quotas=Quotas(groups, np.array([0, 1]), np.array([3, 1])))
    problem = diagonal(9.0, 8.0, 7.0, 0.1, k=2)
    assert greedy(problem) == [0, 1]
    assert greedy(replace(problem, constraints=rules)) == [0, 3]


# --- Completing and ordering ----------------------------------------------------------------------


def filled_up(Ls: list[np.ndarray], k: int, tau: float, start: list[int]) -> list[int]:
    """The best items by F_tau(start + i) as it stands; of tied ones the lowest row."""
    others = sorted(set(range(len(Ls[0]))) - set(start))
    scores = {i: reference.fair_score(Ls, [*start, i], tau) for i in others}
    S = list(start)
    while len(S) < k:
        best = max(scores.values())
        S.append(next(i for i, score in scores.items() if score >= best - reference.TIE))
        del scores[S[-1]]
    return S


@pytest.mark.sample
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("size", [0, 1, 2])
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_complete_fills_up_by_the_scores_as_they_stand(case, size, block):
    start = greedy(pose_case(case))[:size]
    filled = complete(pose_case(case, block=block), indices(*start)).tolist()
    assert filled == filled_up(case_kernels(case), case.k, case.tau, start)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("size", [0, 1, 3])
def test_complete_settles_ties_by_row(size, block):
    base = cases.random_views(np.random.default_rng(2), 3, [9, 7])
    views = [np.tile(view, (9, 1)) for view in base]  # row i repeats row i % 3
    eps = [0.1, 0.1]
    filled = complete(pose(views, 12, 0.1, eps, block=block), np.arange(size)).tolist()
    assert filled == filled_up(kernels(views, eps), 12, 0.1, list(range(size)))


def test_complete_under_unit_diagonal_takes_the_first_rows():
    """All single items are tied then, and ties go to the lowest index (docs/method.md#ties)."""
    problem = unit_diagonal(cases.random_views(np.random.default_rng(3), 300, [17, 40]), 10)
    assert complete(problem, indices()).tolist() == list(range(10))


@examples(40)
@given(SEEDS)
def test_complete_obeys_the_rules_from_any_stage_of_greedy(seed):
    rng = np.random.default_rng(seed)
    n, k = 9, int(rng.integers(2, 6))
    rules = random_rules(rng, n, k)
    problem = pose(cases.random_views(rng, n, [4, 3]), k, 0.2, [0.1, 0.1], rules=rules)
    picks = greedy(problem)
    for size in range(len(rules.fixed_in), k + 1):
        filled = complete(problem, indices(*picks[:size])).tolist()
        assert filled[:size] == picks[:size]
        assert len(filled) == k
        assert obeys(rules, filled)


def stopped_after(problem: Problem, picks: int) -> tuple[list[int], bool]:
    search = Greedy(problem)
    state = run(search, budget=Budget(max_steps=picks)).state
    filled, ordered = search.filled(state, Status.TIME_LIMIT)
    assert filled[: len(state.indices)].tolist() == state.indices.tolist()
    return filled.tolist(), ordered


@pytest.mark.parametrize("picks", [0, 1, 6, 11])
def test_a_set_that_time_has_cut_is_filled_by_greedy_among_few_rows(picks, monkeypatch):
    """Nearly as good as greedy from all rows, and far better than the draw; in greedy order."""
    monkeypatch.setattr(greedy_module, "MOMENT", 600.0)
    rng = np.random.default_rng(0)
    views = [rng.standard_normal((500, p)) * np.geomspace(3, 0.1, p) for p in (14, 16)]
    problem = pose(views, 12, 0.1, [0.1, 0.1])
    drawn = np.mean([subset_merit(problem, rng.choice(500, 12, replace=False)) for _ in range(9)])
    best = subset_merit(problem, indices(*greedy(problem)))
    filled, ordered = stopped_after(problem, picks)
    assert len(set(filled)) == 12
    assert ordered
    assert fair_order(problem, indices(*filled)).tolist() == filled
    assert best - subset_merit(problem, indices(*filled)) < 0.3 * (best - drawn)


@examples(20)
@given(SEEDS)
def test_what_time_has_cut_is_filled_by_the_rules(seed):
    rng = np.random.default_rng(seed)
    n, k = 30, int(rng.integers(2, 6))
    rules = random_rules(rng, n, k)
    problem = pose(cases.random_views(rng, n, [4, 3]), k, 0.2, [0.1, 0.1], rules=rules)
    for picks in range(k - len(rules.fixed_in)):
        filled, _ = stopped_after(problem, picks)
        assert len(set(filled)) == k
        assert obeys(rules, filled)


def test_where_no_row_can_be_looked_at_in_time_what_is_known_decides(monkeypatch):
    monkeypatch.setattr(greedy_module, "MOMENT", -1.0)
    rng = np.random.default_rng(1)
    problem = pose([rng.standard_normal((60, 5))], 9, 0.1, [0.1])
    filled, ordered = stopped_after(problem, 4)
    assert len(set(filled)) == 9
    assert not ordered


@examples(40)
@given(SEEDS, st.sampled_from(BLOCKS), st.sampled_from(list(STORAGE)))
def test_fair_order_is_the_greedy_order_within_the_set(seed, block, storage):
    rng = np.random.default_rng(seed)
    views = cases.random_views(rng, 14, [5, 4])
    S = rng.permutation(14)[:6]
    problem = pose([STORAGE[storage](v) for v in views], 6, 0.1, [0.1, 0.1], block=block)
    ordered = fair_order(problem, S).tolist()
    assert sorted(ordered) == sorted(S.tolist())
    assert ordered == reference.fair_greedy(kernels(views, [0.1, 0.1]), 6, 0.1, candidates=S)


@examples(40)
@given(SEEDS)
def test_fair_order_under_rules_starts_with_the_fixed_items(seed):
    rng = np.random.default_rng(seed)
    n, k = 9, int(rng.integers(2, 6))
    rules = random_rules(rng, n, k)
    views = cases.random_views(rng, n, [4, 3])
    allowed = feasible_subsets(rules, n, k)
    S = allowed[rng.integers(len(allowed))]
    problem = pose(views, k, 0.2, [0.1, 0.1], rules=rules)
    ordered = fair_order(problem, rng.permutation(S)).tolist()
    Ls = kernels(views, [0.1, 0.1])
    assert ordered == reference.fair_greedy(Ls, k, 0.2, candidates=S, fixed=rules.fixed_in)


def test_fair_order_of_tied_items_goes_by_row():
    problem = diagonal(*[2.0] * 9, k=4)
    assert fair_order(problem, indices(8, 2, 5, 3)).tolist() == [2, 3, 5, 8]


# --- The shortlist --------------------------------------------------------------------------------


def pool_of(n: int, k: int, rules: Constraints | None = None) -> Problem:
    return pose([np.ones((n, 1))], k, 0.1, [0.1], rules=rules)


@examples(100)
@given(SEEDS, st.integers(0, 4), st.sampled_from([1.0, 1.5, 3.0, 3.01, 100.0]))
def test_shortlist_is_the_reference(seed, levels, c):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(3, 30)), int(rng.integers(1, 3))
    leverage = rng.random(n)
    if levels:  # many exact ties
        leverage = rng.integers(levels, size=n) / levels
    rows = shortlist(pool_of(n, k), leverage, c)
    assert rows.tolist() == sorted(reference.shortlist(leverage, k, c).tolist())


@pytest.mark.parametrize("most", [(1, 9, 2), (3, 3, 3), (2, 1, 30)])
def test_shortlist_has_as_many_of_each_group_as_a_set_may_have(most):
    """And no more than k, whatever the quota allows."""
    leverage = np.random.default_rng(1).random(30)
    groups = np.arange(30) % 3
    rules = Constraints(quotas=Quotas(groups, indices(0, 0, 0), indices(*most)))
    order = np.argsort(-leverage)
    expected = set(order[:3].tolist())
    for group, count in enumerate(most):
        expected |= set(order[groups[order] == group][: min(count, 3)].tolist())
    assert shortlist(pool_of(30, 3, rules), leverage, 1.0).tolist() == sorted(expected)


def test_shortlist_takes_three_times_k_unless_told():
    leverage = np.linspace(1, 0, 20)
    assert shortlist(pool_of(20, 4), leverage).tolist() == list(range(12))


@pytest.mark.parametrize("offset", [0.0, 0.3e-10, 0.5e-10, 0.7e-10])
def test_leverages_equal_to_rounding_are_tied_wherever_they_lie(offset):
    """The lower row goes first, also where the values lie on two sides of a decimal grid."""
    leverage = np.array([0.25, 0.5 + offset - 1e-15, 0.5 + offset + 1e-15, 0.25])
    assert shortlist(pool_of(4, 1), leverage, 1.0).tolist() == [1]


@pytest.mark.parametrize("kind", rules_of_each_kind(12, 4))
def test_shortlist_keeps_the_rules_within_reach(kind):
    rules = rules_of_each_kind(12, 4)[kind]
    rng = np.random.default_rng(5)
    for _ in range(20):
        leverage = rng.random(12)
        rows = shortlist(pool_of(12, 4, rules), leverage, 1.0)
        assert rows.tolist() == sorted(set(rows.tolist()))
        assert set(rules.fixed_in.tolist()) <= set(rows.tolist())
        assert not set(rules.fixed_out.tolist()) & set(rows.tolist())
        best = [i for i in np.argsort(-leverage) if i not in rules.fixed_out][:4]
        assert set(best) <= set(rows.tolist())
        assert any(obeys(rules, S) for S in combinations(rows.tolist(), 4))


@pytest.mark.parametrize("seen", [False, True])
def test_a_set_is_filled_up_though_time_is_up(seen):
    """Or all of it would be thrown away and greedy begun once more, later still."""
    problem = pose(cases.random_views(np.random.default_rng(3), 90, [6, 4]), 8, 0.1, [0.1, 0.1])
    search = Greedy(problem)
    state = GreedyState(indices(5), 0.0)
    if seen:
        search._at(state.indices)
    with clock.limited(clock.Limit(clock.now() - 1.0)):
        found, _ = search.filled(state, Status.TIME_LIMIT)
    assert len(set(found.tolist())) == 8


@pytest.mark.parametrize("scale", [1e21, 1.0, 1e-25])
def test_rows_of_any_scale_are_ranked(scale):
    """Variances beyond the range of float32, whose logarithms are not."""
    views, eps = cases.random_views(np.random.default_rng(3), 30, [6, 4]), [0.1, 0.1 * scale**2]
    views[1] *= scale
    problem = pose(views, 8, 0.1, eps)
    found = run(Greedy(problem))
    assert found.status is Status.COMPLETE
    assert found.state.indices.tolist() == reference.fair_greedy(kernels(views, eps), 8, 0.1)


def test_tiny_variances_without_a_ridge_are_told_apart():
    diagonal = 10.0 ** -np.random.default_rng(0).uniform(50, 60, size=50)
    problem = pose([DiagonalView(diagonal, eps=0)], 5, 0.1, [0.0])
    assert run(Greedy(problem)).state.indices.tolist() == np.argsort(-diagonal)[:5].tolist()


@pytest.mark.parametrize("seed", [3, 7])
def test_what_a_missed_floor_costs_is_not_judged_in_float32(seed):
    """Its price multiplies what a score is off by: rows that are nearly alike changed places."""
    rng = np.random.default_rng(seed)
    n, k, eps, tau = 300, 8, 1e-3, 0.05
    base = rng.standard_normal((3, 64))
    base /= np.linalg.norm(base, axis=1)[:, None]
    crowd = base[rng.integers(3, size=n)] * rng.uniform(0.9, 1.1, (n, 1))
    crowd += 3e-4 * rng.standard_normal((n, 64))
    data = {"a": crowd.astype("f4"), "b": rng.standard_normal((n, 12)).astype("f4") / 4}
    options = {"tau": tau, "eps": eps, "calibration": "none", "floors": {"a": 2.0}}
    problem = posing.pose(data, k, **options)
    Ls = [X.astype(float) @ X.astype(float).T + eps * np.eye(n) for X in data.values()]
    expected: list[int] = []
    for size in range(1, k + 1):
        rows = [i for i in range(n) if i not in expected]
        sets = [[*expected, i] for i in rows]
        d = np.array([[np.linalg.slogdet(L[np.ix_(S, S)])[1] / size for S in sets] for L in Ls])
        expected.append(rows[int(merit(d, tau, problem.floors).argmax())])
    assert greedy(problem) == expected


@pytest.mark.parametrize(("eps", "floors"), [(1e-11, None), (1e-8, np.array([-50.0]))])
def test_rows_that_rounding_cannot_tell_apart_go_by_position_though_few_are_raced(eps, floors):
    """The highest of them lie at the end, so that none of the first are raced. Where a floor makes
    all of it a thousand times less sure, float32 has no part in that."""
    values = 1.0 + 1e-6 * np.arange(300)
    problem = replace(pose([DiagonalView(values, eps=eps)], 4, 0.1, [1.0]), floors=floors)
    assert 1e-4 < blur(problem, 1) < 1e-3
    assert greedy(problem) == [0, 1, 2, 3]
