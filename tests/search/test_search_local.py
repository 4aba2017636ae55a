"""Swaps, the set that they are judged by, and enumeration."""

import itertools
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cases
import fairnepv
import reference
from fairnepv import DiagonalView, InputError, KernelView, Status
from fairnepv.loop import Budget, Context, Outcome, pack, run, unpack
from fairnepv.problem import Constraints, Problem, Quotas
from fairnepv.search import EFFORTS, Found, LocalSearch, better, enumerate_subsets, improve
from fairnepv.search import enumeration as enumeration_module
from fairnepv.search.ladders import SwapLadders
from fairnepv.search.local import LocalState, best_swaps
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from frame_problems import paper_kernels, paper_problem
from search_problems import (
    STORAGE,
    best_allowed_swap,
    case_kernels,
    examples,
    feasible_subsets,
    indices,
    kernels,
    obeys,
    pose,
    pose_case,
    random_rules,
    rules_of_each_kind,
)

BLOCKS = [1, 3, 7, None]
SEEDS = st.integers(0, 10**6)
GAIN = 1e-10  # what a swap must bring to be made
ROUNDING = 1e-12


def first_rows(case: cases.Case) -> np.ndarray:
    return np.arange(case.k)


def search(problem: Problem, start, **budget) -> Outcome[LocalState]:
    return run(LocalSearch(problem, start), budget=Budget(**budget))


# --- The set with its inverses --------------------------------------------------------------------


def check_subset(subset: Subset, Ls: list[np.ndarray], tau: float, tolerance: float) -> None:
    S = subset.indices
    for B, logdet, L in zip(subset.inverses, subset.totals, Ls, strict=True):
        L_S = L[np.ix_(S, S)]
        np.testing.assert_allclose(L_S @ B, np.eye(len(S)), atol=tolerance)
        assert logdet == pytest.approx(np.linalg.slogdet(L_S)[1], abs=tolerance)
    assert subset.value == pytest.approx(reference.fair_score(Ls, S, tau), abs=tolerance)


@pytest.mark.sample
@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_a_subset_knows_its_inverses_and_its_score(case, storage):
    views = [STORAGE[storage](view) for view in case.views]
    problem = pose(views, case.k, case.tau, case.eps)
    subset = Subset.of(problem, first_rows(case))
    check_subset(subset, case_kernels(case), case.tau, 1e-8)


@pytest.mark.sample
@pytest.mark.parametrize("tau", [0.01, 1.0, math.inf])
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_every_exchange_is_judged_and_made_as_from_scratch(case, tau):
    problem, Ls = replace(pose_case(case), tau=tau), case_kernels(case)
    subset = Subset.of(problem, first_rows(case))
    values = reference.swap_values(Ls, subset.indices.tolist(), tau)
    for row in range(case.k, problem.n):
        for slot in range(case.k):
            move = subset.confirm(slot, row)
            assert move.value == pytest.approx(values[row, slot], abs=1e-8)
            after = subset.exchange(move)
            assert after.indices.tolist() == [row if j == slot else j for j in range(case.k)]
            check_subset(after, Ls, tau, 1e-7)
    check_subset(subset, Ls, tau, 1e-8)  # a subset is immutable


@pytest.mark.parametrize("storage", STORAGE)
def test_thirty_exchanges_in_a_row_stay_exact(storage):
    rng = np.random.default_rng(8)
    views, eps = cases.random_views(rng, 40, [12, 7]), [0.1, 0.05]
    problem = pose([STORAGE[storage](view) for view in views], 9, 0.1, eps)
    Ls = kernels(views, eps)
    subset = Subset.of(problem, rng.permutation(40)[:9])
    for _ in range(30):
        row = rng.choice(np.setdiff1d(np.arange(40), subset.indices))
        move = subset.confirm(int(rng.integers(9)), int(row))
        subset = subset.exchange(move)
        assert move.value == pytest.approx(subset.value, abs=1e-12)
    assert len(np.unique(subset.indices)) == 9
    check_subset(subset, Ls, 0.1, 1e-9)


# --- One pass -------------------------------------------------------------------------------------


@pytest.mark.sample
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_a_pass_finds_the_best_row_for_every_slot(case, block):
    problem, Ls = pose_case(case, block=block), case_kernels(case)
    S = first_rows(case).tolist()
    best = best_swaps(SwapTable.of(Subset.of(problem, indices(*S))))
    values = reference.swap_values(Ls, S, case.tau)
    first, last = (best.rungs[ends] for ends in best.ends())
    assert first["slot"].tolist() == list(range(case.k))
    winners = [int(np.argmax(x >= x.max() - 1e-9)) for x in values.T]
    assert first["row"].tolist() == winners
    fair = [values[row, j] for j, row in enumerate(winners)]
    np.testing.assert_allclose(first["score"], fair, atol=1e-9)
    np.testing.assert_allclose(last["score"], values.max(axis=0), atol=1e-9)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", rules_of_each_kind(10, 4))
def test_a_pass_offers_only_what_the_rules_allow(kind, block):
    rules = rules_of_each_kind(10, 4)[kind]
    rng = np.random.default_rng(4)
    views, eps = cases.random_views(rng, 10, [5, 4]), [0.1, 0.1]
    Ls = kernels(views, eps)
    problem = pose(views, 4, 0.1, eps, block=block, rules=rules)
    for S in feasible_subsets(rules, 10, 4)[::17]:
        values = reference.swap_values(Ls, S, 0.1)
        for row, slot in np.ndindex(*values.shape):
            if not obeys(rules, [*S[:slot], row, *S[slot + 1 :]]):
                values[row, slot] = -math.inf
        best = values.max(axis=0)
        slots = [int(j) for j in np.argsort(-best) if np.isfinite(best[j])]
        expected = [(j, (int(values[:, j].argmax()),)) for j in slots]
        assert best_swaps(SwapTable.of(Subset.of(problem, indices(*S)))).moves() == expected


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(
    "logs", [[0, 0.6, 1.2], [0, 0.6, 1.2, 1.8, 2.4], [1.2, 0.6, 0], [5, 0, 5], [0.5, 0, 0.8]]
)
def test_near_ties_between_rows_are_settled_alike_at_any_block_size(logs, block):
    """The lowest row within 1e-10 of the best takes the slot, however the rows are cut."""
    values = np.exp(np.array([-1.0, *np.array(logs) * 1e-10]))
    problem = pose([DiagonalView(values, eps=0)], 1, 0.1, [1.0], block=block)
    winner = 1 + next(i for i, log in enumerate(logs) if log * 1e-10 >= max(logs) * 1e-10 - GAIN)
    assert search(problem, [0]).state.indices.tolist() == [winner]


@pytest.mark.parametrize("offset", [0.0, 0.3e-10, 0.5e-10, 0.7e-10])
def test_moves_equal_to_rounding_are_tied_wherever_they_lie(offset):
    """The lower row goes first, also where the scores lie on two sides of a decimal grid."""
    scores = np.array([0.5 + offset + 1e-15, 0.5 + offset - 1e-15, 0.9])
    best = SwapLadders.of(np.arange(3), indices(7, 4, 9), scores, 1e-10)
    assert best.moves() == [(2, (9,)), (1, (4,)), (0, (7,))]


def test_a_swap_that_improves_is_not_hidden_by_a_near_tie():
    """Slot 0 could gain 0.96e-10, which is too little, and slot 1 could gain 1.04e-10."""
    values = np.exp([0.0, 0.0, 1.92e-10, 2.08e-10])
    groups = Quotas(np.array([0, 1, 0, 1]), np.array([1, 1]), np.array([1, 1]))
    rules = Constraints(quotas=groups)
    problem = pose([DiagonalView(values, eps=0)], 2, 0.1, [1.0], rules=rules)
    assert search(problem, [0, 1]).state.indices.tolist() == [0, 3]


# --- One-swap optima ------------------------------------------------------------------------------


def check_one_swap_optimum(
    outcome: Outcome[LocalState], Ls: list[np.ndarray], tau: float, rules: Constraints
) -> None:
    S = outcome.state.indices.tolist()
    F = reference.fair_score(Ls, S, tau)
    assert outcome.status is Status.LOCAL_OPTIMUM
    assert obeys(rules, S)
    assert outcome.state.value == pytest.approx(F, abs=1e-9)
    assert best_allowed_swap(Ls, S, tau, rules) <= F + GAIN + ROUNDING


def check_never_decreases(outcome: Outcome[LocalState]) -> None:
    values = [row.objective for row in outcome.trace]
    assert all(later >= earlier for earlier, later in pairwise(values))


@pytest.mark.sample
@pytest.mark.parametrize("block", [3, None])
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_no_swap_improves_what_the_search_returns(case, block):
    problem, Ls = pose_case(case, block=block), case_kernels(case)
    rng = np.random.default_rng(1)
    for _ in range(3):
        start = rng.permutation(problem.n)[: case.k]
        outcome = search(problem, start)
        check_one_swap_optimum(outcome, Ls, case.tau, problem.constraints)
        check_never_decreases(outcome)
        assert outcome.state.value >= reference.fair_score(Ls, start, case.tau) - ROUNDING


@examples(50)
@given(
    SEEDS,
    st.sampled_from([1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1.0]),
    st.sampled_from([1e-3, 1.0, 1e4]),
    st.sampled_from(["dense", "sparse"]),
)
def test_a_local_optimum_is_one_at_any_ridge(seed, ridge, scale, storage):
    """Also where k exceeds the rank of a view, and the inverse of a kernel holds few digits."""
    rng = np.random.default_rng(seed)
    n, k, widths = 14, int(rng.integers(2, 8)), rng.integers(1, 12, size=2)
    views = [scale * rng.normal(size=(n, p)) for p in widths]
    if seed % 2:  # columns that depend on each other
        views[0] = views[0] @ np.diag(rng.random(widths[0]) < 0.7) @ rng.normal(size=(widths[0], 9))
    eps, rules = [ridge, ridge], random_rules(rng, n, k) if seed % 3 == 0 else Constraints()
    problem = pose([STORAGE[storage](x) for x in views], k, 0.1, eps, rules=rules)
    start = next(S for S in map(rng.permutation, [n] * 10_000) if obeys(rules, S[:k]))[:k]
    outcome = search(problem, start)
    S = outcome.state.indices.tolist()
    if scale**2 < 1e10 * ridge:
        assert outcome.status is Status.LOCAL_OPTIMUM
    if outcome.status is not Status.LOCAL_OPTIMUM:
        assert outcome.status in (Status.INEXACT, Status.INDEFINITE)
        return
    F = reference.soft_min(reference.row_scores(views, eps, S), 0.1)
    values = reference.row_swap_values(views, eps, S, 0.1)
    better = np.argwhere(values > F + 1.1 * GAIN)
    assert not any(obeys(rules, [*S[:slot], row, *S[slot + 1 :]]) for row, slot in better)


def test_the_swap_that_an_inverse_hid_is_found():
    rng = np.random.default_rng(1)
    views = [reference.unit_diagonal(rng.normal(size=(60, p))) for p in (8, 6)]
    problem = pose(views, 14, 0.1, [1e-8, 1e-8])
    outcome = search(problem, np.arange(14))
    values = reference.row_swap_values(views, [1e-8, 1e-8], outcome.state.indices, 0.1)
    assert outcome.status is Status.LOCAL_OPTIMUM
    assert values.max() <= outcome.state.value + GAIN


def test_nothing_is_claimed_where_scores_are_rounding():
    """A kernel of rank 2 is known to 1e-16 of its entries, and the ridge is as small."""
    Phi = np.random.default_rng(2).normal(size=(12, 2))
    problem = pose([KernelView(Phi @ Phi.T)], 5, 0.1, [1e-13])
    outcome = search(problem, np.arange(5))
    assert outcome.status is Status.INEXACT
    assert outcome.status.ok


@pytest.mark.parametrize("width", [3, 9])
def test_strained_sets_respond_as_accurately_as_they_are_scored(width):
    rng = np.random.default_rng(3)
    views, eps = [rng.normal(size=(20, width)) @ rng.normal(size=(width, 3 * width))], [1e-7]
    views.append(rng.normal(size=(20, 3)))
    subset = Subset.of(pose(views, 8, 0.1, [*eps, 1e-9]), np.arange(8))
    assert subset.strained.tolist() == [width < 8, True]
    best = best_swaps(SwapTable.of(subset))
    values = reference.row_swap_values(views, [*eps, 1e-9], range(8), 0.1)
    first, _ = best.ends()
    np.testing.assert_allclose(best.rungs["score"][first], values.max(axis=0), atol=1e-10)


@examples(40)
@given(SEEDS, st.sampled_from(BLOCKS), st.sampled_from(list(STORAGE)))
def test_no_allowed_swap_improves_under_rules(seed, block, storage):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(7, 12)), int(rng.integers(2, 6))
    tau = float(rng.choice([0.02, 0.3, math.inf]))
    views, eps = cases.random_views(rng, n, [4, 3, 2]), [0.1, 0.01, 0.3]
    rules = random_rules(rng, n, k) if rng.random() < 0.8 else Constraints()
    allowed = feasible_subsets(rules, n, k)
    start = allowed[rng.integers(len(allowed))]
    stored = [STORAGE[storage](view) for view in views]
    problem = pose(stored, k, tau, eps, block=block, rules=rules)
    outcome = search(problem, start)
    Ls = kernels(views, eps)
    check_one_swap_optimum(outcome, Ls, tau, rules)
    check_never_decreases(outcome)
    assert outcome.state.value >= reference.fair_score(Ls, start, tau) - ROUNDING


@pytest.mark.parametrize("kind", rules_of_each_kind(12, 4))
def test_every_step_on_the_way_obeys_the_rules(kind):
    rules = rules_of_each_kind(12, 4)[kind]
    views = cases.clustered_views(np.random.default_rng(6), 12, [5, 4], 4)
    problem = pose(views, 4, 0.1, [0.1, 0.1], rules=rules)
    start = feasible_subsets(rules, 12, 4)[0]
    method = LocalSearch(problem, indices(*start))
    state, seen = method.init(), 0
    while method.done(state) is None:
        state = method.step(state)
        assert obeys(rules, state.indices.tolist())
        seen += 1
    assert seen == state.passes > 0


def test_swaps_of_one_pass_do_not_break_a_quota_together():
    """Rows 2 and 3 would each improve one slot, but only one of them may come in."""
    Phi = np.array([[0.1, 0.0], [0.0, 0.1], [1.0, 0.0], [0.0, 1.0]])
    rules = Constraints(quotas=Quotas(np.array([0, 0, 1, 1]), np.array([0, 0]), np.array([2, 1])))
    problem = pose([Phi], 2, 0.1, [0.01], rules=rules)
    best = best_swaps(SwapTable.of(Subset.of(problem, indices(0, 1))))
    assert best.moves() == [(0, (2,)), (1, (3,))]
    outcome = search(problem, [0, 1])
    check_one_swap_optimum(outcome, kernels([Phi], [0.01]), 0.1, rules)
    assert outcome.state.indices.tolist() == [2, 1]
    free = search(replace(problem, constraints=Constraints()), [0, 1])
    assert (free.state.indices.tolist(), free.state.swaps) == ([2, 3], 2)
    assert free.state.passes == 2  # both in the first, and a second to make sure


@pytest.mark.parametrize("tau", [0.1, math.inf])
@pytest.mark.parametrize("M", [1, 3])
@pytest.mark.parametrize("k", [1, 7])
def test_edges_are_solved_to_optimality(k, M, tau):
    """For k = 1 and k = n - 1 one swap reaches every subset."""
    rng = np.random.default_rng(k + M)
    views, eps = cases.random_views(rng, 8, [4] * M), [0.1] * M
    outcome = search(pose(views, k, tau, eps), np.arange(k))
    best, optima = reference.exhaustive(kernels(views, eps), k, tau)
    assert outcome.state.value == pytest.approx(best, abs=1e-9)
    assert tuple(sorted(outcome.state.indices.tolist())) in optima


def test_fixing_everything_leaves_nothing_to_do():
    rng = np.random.default_rng(0)
    rules = Constraints(fixed_in=indices(5, 1, 3))
    problem = pose(cases.random_views(rng, 8, [4, 4]), 3, 0.1, [0.1, 0.1], rules=rules)
    outcome = search(problem, [5, 1, 3])
    assert outcome.status is Status.LOCAL_OPTIMUM
    assert outcome.state.indices.tolist() == [5, 1, 3]
    assert outcome.state.swaps == 0


# --- The budget -----------------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [0, 1, 2, 3])
def test_the_pass_budget_ends_the_search_with_the_best_so_far(passes):
    rng = np.random.default_rng(2)
    views, eps = cases.clustered_views(rng, 60, [8, 6], 12), [0.1, 0.1]
    problem = pose(views, 10, 0.05, eps)
    full = search(problem, np.arange(10))
    assert full.state.passes > 3
    outcome = search(problem, np.arange(10), max_passes=passes)
    assert outcome.status is Status.PASS_LIMIT
    assert outcome.state.passes == passes
    row = full.trace[passes]
    assert outcome.state.value == row.objective
    start = reference.fair_score(kernels(views, eps), range(10), 0.05)
    assert (outcome.state.value > start + GAIN) == (passes > 0)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_resumed_search_goes_where_the_uninterrupted_one_went(steps):
    problem = paper_problem()
    start = cases.PAPER_TABLE["text-only"].subset
    whole = search(problem, start)
    half = search(problem, start, max_steps=steps)
    assert half.status is Status.STEP_LIMIT
    state = unpack(LocalState, pack(half.state))
    resumed = run(LocalSearch(problem, indices(*start)), state=state)
    assert resumed.state.indices.tolist() == whole.state.indices.tolist()
    assert resumed.state.passes == whole.state.passes


@pytest.mark.parametrize("value", [cases.PAPER_ONE_SWAP, cases.PAPER_BALANCED])
def test_one_swaps_stop_where_the_paper_stops(value):
    start = {
        cases.PAPER_ONE_SWAP: [0, 5, 10, 11, 12],
        cases.PAPER_BALANCED: [10, 11, 12, 13, 14],
    }
    outcome = search(paper_problem(), start[value])
    assert outcome.state.value == pytest.approx(value, abs=1e-12)
    assert outcome.state.swaps == 0
    check_one_swap_optimum(outcome, paper_kernels(), 0.15, Constraints())


# --- Effort ---------------------------------------------------------------------------------------


def found(*rows: int) -> Found:
    return Found(indices(*rows), Status.COMPLETE)


def test_fast_leaves_a_start_as_it_is():
    start = found(*cases.PAPER_TABLE["text-only"].subset)
    assert improve(paper_problem(), start, EFFORTS["fast"], Context()) is start


@pytest.mark.sample
@pytest.mark.parametrize("effort", ["balanced", "thorough"])
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_improve_ends_at_a_one_swap_optimum_no_worse_than_its_start(case, effort):
    problem, Ls = pose_case(case), case_kernels(case)
    result = improve(problem, found(*range(case.k)), EFFORTS[effort], Context())
    F = reference.fair_score(Ls, result.indices, case.tau)
    assert result.status is Status.LOCAL_OPTIMUM
    start = reference.fair_score(Ls, range(case.k), case.tau)
    assert start <= F + ROUNDING
    assert best_allowed_swap(Ls, result.indices.tolist(), case.tau, Constraints()) <= F + 2 * GAIN


def test_the_better_of_two_is_the_left_one_when_they_are_tied():
    problem = pose([DiagonalView(np.exp([0.0, 0.5e-10, 2e-10]), eps=0)], 1, 0.1, [1.0])
    assert better(problem, found(0), found(1)).indices.tolist() == [0]
    assert better(problem, found(1), found(0)).indices.tolist() == [1]
    assert better(problem, found(0), found(2)).indices.tolist() == [2]
    assert better(problem, found(2), found(0)).indices.tolist() == [2]


# --- Enumeration ----------------------------------------------------------------------------------


@pytest.mark.sample
@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_enumeration_is_the_reference(case, storage):
    views = [STORAGE[storage](view) for view in case.views]
    result = enumerate_subsets(pose(views, case.k, case.tau, case.eps))
    best, optima = reference.exhaustive(case_kernels(case), case.k, case.tau)
    assert result.value == pytest.approx(best, abs=1e-9)
    assert tuple(result.indices.tolist()) == optima[0]
    assert result.ties == len(optima)
    assert result.subsets == math.comb(len(case.views[0]), case.k)


def test_enumeration_counts_the_optima_of_the_papers_instance():
    result = enumerate_subsets(paper_problem())
    assert result.value == pytest.approx(cases.PAPER_OPTIMUM, abs=1e-12)
    assert result.ties == cases.PAPER_OPTIMA
    assert result.subsets == 3003
    assert result.indices.tolist() == [0, 1, 5, 6, 10]


@pytest.mark.parametrize("kind", rules_of_each_kind(10, 4))
def test_enumeration_under_rules(kind):
    rules = rules_of_each_kind(10, 4)[kind]
    views, eps = cases.random_views(np.random.default_rng(9), 10, [4, 3]), [0.1, 0.2]
    result = enumerate_subsets(pose(views, 4, 0.1, eps, rules=rules))
    Ls = kernels(views, eps)
    scores = {S: reference.fair_score(Ls, S, 0.1) for S in feasible_subsets(rules, 10, 4)}
    assert result.subsets == len(scores)
    assert tuple(result.indices.tolist()) == max(scores, key=scores.__getitem__)
    assert result.value == pytest.approx(max(scores.values()), abs=1e-9)


@pytest.mark.parametrize("ridge", [1e-8, 1e-13, 1e-16, 1e-300])
@pytest.mark.parametrize("numbers", [40, 1 << 20])
def test_enumeration_at_a_tiny_ridge(monkeypatch, ridge, numbers):
    """Determinants of the kernel are rounding there; a negative one was no subset at all."""
    monkeypatch.setattr(enumeration_module, "_BATCH_NUMBERS", numbers)
    views = [np.random.default_rng(q).normal(size=(8, 3 - q)) for q in range(2)]
    result = enumerate_subsets(pose(views, 4, 0.1, [ridge, ridge]))
    scores = {
        S: reference.soft_min(reference.row_scores(views, [ridge, ridge], S), 0.1)
        for S in itertools.combinations(range(8), 4)
    }
    assert tuple(result.indices.tolist()) == max(scores, key=scores.__getitem__)
    assert result.value == pytest.approx(max(scores.values()), abs=1e-9)


@pytest.mark.parametrize("numbers", [1, 40, 1 << 20])
@pytest.mark.parametrize(
    "logs", [[0, 0, 0, 0], [0, 0.6, 1.2, 0.3], [0, 0.6, 1.2, 1.8], [1.8, 1.2, 0.6, 0]]
)
def test_tied_optima_are_counted_alike_in_any_batches(monkeypatch, logs, numbers):
    """Of those within 1e-10 of the best the first is returned, and all of them are counted."""
    monkeypatch.setattr(enumeration_module, "_BATCH_NUMBERS", numbers)
    values = np.exp(np.array(logs) * 1e-10)
    result = enumerate_subsets(pose([DiagonalView(values, eps=0)], 1, 0.1, [1.0]))
    tied = [i for i, log in enumerate(logs) if log >= max(logs) - 1]
    assert result.indices.tolist() == tied[:1]
    assert result.ties == len(tied)


def test_enumeration_refuses_what_would_take_too_long():
    problem = pose([np.eye(60)], 10, 0.1, [0.1])
    with pytest.raises(InputError) as error:
        enumerate_subsets(problem)
    message = str(error.value)
    assert f"{math.comb(60, 10):,}" in message
    assert "n = 60" in message
    assert "k = 10" in message
    assert "select()" in message
    assert "\n" not in message


def test_enumeration_looks_at_exactly_as_many_as_the_limit_allows():
    problem = pose([np.eye(6)], 3, 0.1, [0.1])
    assert enumerate_subsets(problem, limit=20).subsets == 20
    with pytest.raises(InputError, match="more than the limit of 19"):
        enumerate_subsets(problem, limit=19)


@pytest.mark.filterwarnings("ignore:k = 8 exceeds the rank")
@pytest.mark.parametrize(
    ("dtype", "eps"), [("float16", 1e-2), ("float32", 1e-4), ("float64", 1e-3)]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_kernel_that_was_rounded_has_no_local_optimum_that_is_none(dtype, eps, seed):
    """Swaps take K as it stands, and scores count its eigenvalues below zero as zero."""
    rows = reference.unit_diagonal(np.random.default_rng(seed).standard_normal((30, 5)))
    view = KernelView((rows @ rows.T).astype(dtype), eps=eps)
    found = fairnepv.select({"a": view}, 8, method="nepv", calibration="none", certify=False)
    assert (found.status is Status.LOCAL_OPTIMUM) == (dtype == "float64")
    if found.status is Status.LOCAL_OPTIMUM:
        L = reference.kernel(rows, eps)
        others = sorted(set(range(30)) - set(found.indices.tolist()))
        swapped = [
            reference.subset_score(L, [*np.delete(found.indices, j), i])
            for j in range(8)
            for i in others
        ]
        assert max(swapped) <= reference.subset_score(L, found.indices) + 1e-9
