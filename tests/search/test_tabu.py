"""Tabu search among few rows, the rows that it is made among, and the effort that pays for it."""

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
from fairnepv import Status
from fairnepv import problem as problem_module
from fairnepv.loop import Budget, Context, pack, run, unpack
from fairnepv.problem import Constraints, Means, Problem
from fairnepv.search import EFFORTS, Found, arena_rows
from fairnepv.search import effort as effort_module
from fairnepv.search.arena import DiverseArena as Arena
from fairnepv.search.effort import Effort, roam
from fairnepv.search.kinds import kind_of
from fairnepv.search.tabu import TabuSearch, TabuState, promising_rows
from frame_problems import paper_problem
from search_problems import (
    STORAGE,
    examples,
    feasible_subsets,
    indices,
    kernels,
    obeys,
    pose,
    random_rules,
    representative,
)

SEEDS = st.integers(0, 10**6)
GAIN = 1e-10


def open_to_all(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(problem.n, dtype=bool), np.zeros(problem.k, dtype=bool)


def allowed_values(Ls, S, tau, rules: Constraints) -> np.ndarray:
    values = reference.swap_values(Ls, S, tau)
    for row, slot in np.ndindex(*values.shape):
        if not obeys(rules, [*S[:slot], row, *S[slot + 1 :]]):
            values[row, slot] = -math.inf
    return values


# --- One swap -------------------------------------------------------------------------------------


@examples(40)
@given(SEEDS, st.sampled_from(list(STORAGE)))
def test_every_swap_is_the_best_that_is_open(seed, storage):
    """Over thirty swaps, updated in place, with rules, closed rows and closed slots."""
    rng = np.random.default_rng(seed)
    n, k, tau, eps = 12, 4, float(rng.choice([0.02, 0.3, math.inf])), [0.1, 0.03]
    views = cases.random_views(rng, n, [5, 4])
    rules = random_rules(rng, n, k) if seed % 2 else Constraints()
    problem = pose([STORAGE[storage](view) for view in views], k, tau, eps, rules=rules)
    Ls, allowed = kernels(views, eps), feasible_subsets(rules, n, k)
    arena = Arena(problem, np.stack(Ls), indices(*allowed[rng.integers(len(allowed))]))
    for _ in range(30):
        rows, slots = rng.random(n) < 0.2, rng.random(k) < 0.2
        values = allowed_values(Ls, arena.indices.tolist(), tau, rules)
        values[rows] = values[:, slots] = -math.inf
        move = arena.best_swap(rows, slots)
        if not np.isfinite(values.max()):
            assert move is None
            continue
        assert move.value == pytest.approx(values.max(), abs=1e-8)
        assert values[move.row, move.slot] == pytest.approx(values.max(), abs=1e-8)
        arena.swap(move)
        assert obeys(rules, arena.indices.tolist())
    fresh = Arena(problem, np.stack(Ls), arena.indices)
    outside = np.setdiff1d(np.arange(n), arena.indices)
    np.testing.assert_allclose(arena.v[:, outside], fresh.v[:, outside], atol=1e-8)
    np.testing.assert_allclose(arena.c[:, outside], fresh.c[:, outside], atol=1e-8)
    np.testing.assert_allclose(arena.totals, fresh.totals, atol=1e-8)


def test_of_equal_swaps_the_lowest_row_wins():
    """Row 3 is there five times: any copy improves the set alike."""
    rng = np.random.default_rng(0)
    views = cases.random_views(rng, 12, [5, 4])
    views = [np.vstack([view, view[[3] * 5]]) for view in views]
    problem = pose(views, 3, 0.1, [0.1, 0.1])
    Ls = np.stack(kernels(views, [0.1, 0.1]))
    for first in range(12, 17):
        closed, slots = open_to_all(problem)
        closed[:first] = True
        move = Arena(problem, Ls, np.array([0, 1, 2])).best_swap(closed, slots)
        assert move.row == first


# --- The search -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases.PAPER_TABLE)
def test_it_reaches_the_optimum_of_the_papers_instance(name):
    start = indices(*cases.PAPER_TABLE[name].subset)
    outcome = run(TabuSearch(paper_problem(), start, swaps=50))
    assert outcome.status is Status.COMPLETE
    assert outcome.state.value == pytest.approx(cases.PAPER_OPTIMUM, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_it_reaches_the_optimum_of_small_pools(seed):
    rng = np.random.default_rng(seed)
    views, eps = cases.clustered_views(rng, 14, [6, 5], 5), [0.1, 0.1]
    outcome = run(TabuSearch(pose(views, 5, 0.05, eps), np.arange(5), swaps=200))
    best, optima = reference.exhaustive(kernels(views, eps), 5, 0.05)
    assert outcome.state.value == pytest.approx(best, abs=1e-9)
    assert tuple(sorted(outcome.state.best.tolist())) in optima


@examples(40)
@given(SEEDS)
def test_states_obey_the_rules_and_values_are_those_of_the_best(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(6, 14)), int(rng.integers(1, 6))
    views, eps = cases.random_views(rng, n, [4, 3]), [0.1, 0.2]
    rules = random_rules(rng, n, k) if seed % 2 else Constraints()
    problem = pose(views, k, 0.1, eps, rules=rules)
    allowed = feasible_subsets(rules, n, k)
    start = indices(*allowed[rng.integers(len(allowed))])
    method, Ls = TabuSearch(problem, start, swaps=60), kernels(views, eps)
    state = method.init()
    before = reference.fair_score(Ls, start, 0.1)
    while method.done(state) is None:
        state = method.step(state)
        assert obeys(rules, state.indices.tolist())
        assert obeys(rules, state.best.tolist())
        value = reference.fair_score(Ls, state.best, 0.1)
        assert state.value == pytest.approx(value, abs=1e-10)
        assert value >= before - 1e-12
        before = value


def test_it_stops_at_its_goal():
    views = cases.clustered_views(np.random.default_rng(1), 40, [6, 5], 8)
    problem = pose(views, 8, 0.05, [0.1, 0.1])
    far = run(TabuSearch(problem, np.arange(8), swaps=200)).state
    outcome = run(TabuSearch(problem, np.arange(8), swaps=200, goal=far.value - 1e-9))
    assert outcome.status is Status.TARGET
    assert outcome.state.swaps <= far.swaps


def test_a_resumed_search_ends_where_the_uninterrupted_one_does():
    views = cases.clustered_views(np.random.default_rng(2), 60, [6, 5], 8)
    problem = pose(views, 8, 0.05, [0.1, 0.1])
    whole = run(TabuSearch(problem, np.arange(8), swaps=120)).state
    half = run(TabuSearch(problem, np.arange(8), swaps=120), budget=Budget(max_steps=2)).state
    assert half.swaps == 50
    state = unpack(TabuState, pack(half))
    resumed = run(TabuSearch(problem, np.arange(8), swaps=120), state=state).state
    for left, right in zip(pack(whole).values(), pack(resumed).values(), strict=True):
        np.testing.assert_array_equal(left, right)


def test_near_copies_and_a_vanishing_ridge_end_well():
    """Inverses that lose all digits cost what could be found, and nothing else."""
    rng = np.random.default_rng(3)
    view = rng.standard_normal((8, 3))
    views = [np.vstack([view, view, view + 1e-9 * rng.standard_normal(view.shape)])] * 2
    for eps in (1e-14, 1e-9, 1e-4):
        problem = pose(views, 6, 0.1, [eps, eps])
        start = np.arange(6)
        outcome = run(TabuSearch(problem, start, swaps=80))
        scores = [reference.row_scores(views, [eps, eps], S) for S in (start, outcome.state.best)]
        before, after = (reference.soft_min(d, 0.1) for d in scores)
        assert after >= before - 1e-9
        assert outcome.status in (Status.COMPLETE, Status.INDEFINITE, Status.NON_FINITE)


# --- Rows that promise most -----------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 7, None])
@pytest.mark.parametrize("storage", STORAGE)
def test_promising_rows_are_those_of_the_highest_tangents(storage, block):
    rng = np.random.default_rng(5)
    views, eps, S = cases.random_views(rng, 30, [6, 4]), [0.1, 0.2], [3, 9, 17, 20]
    problem = pose([STORAGE[storage](view) for view in views], 4, 0.1, eps, block=block)
    Ls = kernels(views, eps)
    d = np.array([reference.subset_score(L, S) for L in Ls])
    w = np.exp(-(d - d.min()) / 0.1)
    w /= w.sum()
    rises = np.full(30, -math.inf)
    for i in set(range(30)) - set(S):
        for j in range(4):
            swapped = [*S[:j], i, *S[j + 1 :]]
            after = np.array([reference.subset_score(L, swapped) for L in Ls])
            rises[i] = max(rises[i], float(w @ np.exp(4 * (after - d))))
    expected = np.sort(np.concatenate([S, np.argsort(-rises)[:8]]))
    assert promising_rows(problem, np.array(S), 12).tolist() == expected.tolist()


@pytest.mark.parametrize("objective", ["diverse", "representative"])
def test_float32_says_who_is_looked_at_and_not_who_is_taken(objective, monkeypatch):
    rng = np.random.default_rng(5)
    views = [view.astype(np.float32) for view in cases.random_views(rng, 200, [6, 4])]
    views[0][100:] = views[0][:100] * np.float32(1 + 1e-6)  # which float32 hardly tells apart
    views[1][100:] = views[1][:100]
    rules = Constraints(fixed_out=indices(*range(30, 50)))
    problem = pose(views, 4, 0.1, [0.1, 0.2], rules=rules)
    problem = problem if objective == "diverse" else representative(problem)
    arena, S = kind_of(problem).arena, indices(3, 9, 17, 20)
    found = []
    for coarse in (False, True):
        monkeypatch.setattr(arena, "worth_float32", staticmethod(lambda _, coarse=coarse: coarse))
        found.append(promising_rows(problem, S, 24).tolist())
    assert found[0] == found[1]
    assert len(found[0]) == 24
    assert set(S.tolist()) < set(found[0])
    assert not set(range(30, 50)) & set(found[0])


def test_rows_that_may_not_come_in_are_not_promising():
    rng = np.random.default_rng(6)
    rules = Constraints(fixed_in=indices(1), fixed_out=indices(*range(10, 30)))
    problem = pose(cases.random_views(rng, 30, [6, 4]), 4, 0.1, [0.1, 0.1], rules=rules)
    rows = promising_rows(problem, indices(1, 2, 3, 4), 20)
    assert set(rows.tolist()) == set(range(10))


# --- The effort -----------------------------------------------------------------------------------


@pytest.mark.parametrize("effort", ["balanced", "thorough"])
def test_time_grows_with_the_work_and_never_falls(effort):
    """Passes times their work, and swaps times theirs, are continuous and rise."""
    chosen, works = EFFORTS[effort], np.geomspace(1e4, 1e14, 400)
    passes = [chosen.passes_for(work) * work for work in works]
    assert all(later >= 0.9 * earlier for earlier, later in pairwise(passes))
    swaps = [chosen.swaps_for(work, 10**6) for work in works]
    assert swaps == sorted(swaps)
    assert swaps[0] > 0


def test_fast_neither_swaps_nor_roams():
    fast = EFFORTS["fast"]
    assert (fast.passes_for(1.0), fast.swaps_for(1e30, 1)) == (0, 0)


def test_roaming_finds_better_sets_and_ends_with_patience():
    views = cases.clustered_views(np.random.default_rng(0), 900, [6, 5], 30)
    problem, start = pose(views, 8, 0.05, [0.1, 0.1]), Found(np.arange(8), Status.COMPLETE)
    effort, Ls = Effort("some", swaps=500, patience=2, floor=1e12), kernels(views, [0.1, 0.1])
    assert arena_rows(problem) == 600
    found = roam(problem, start, effort, Context())
    before, after = (reference.fair_score(Ls, x.indices, 0.05) for x in (start, found))
    assert after > before + 1e-3
    assert roam(problem, start, replace(effort, patience=0), Context()) is start
    again = roam(problem, found, effort, Context())
    assert reference.fair_score(Ls, again.indices, 0.05) >= after - 1e-12


def test_rounds_that_find_nothing_are_counted_and_kernels_kept_for_them(monkeypatch):
    """A round that has found something better begins the count, and the rows, anew."""
    views = cases.random_views(np.random.default_rng(0), 30, [6, 5])
    problem, made = pose(views, 5, 0.05, [0.1, 0.1]), []
    better_at = {1, 4}

    class Search(TabuSearch):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            made.append((options["kernels"], options["number"], options["swaps"]))

    def better(problem, left, right):
        return replace(right) if len(made) - 1 in better_at else left

    monkeypatch.setattr(effort_module, "TabuSearch", Search)
    monkeypatch.setattr(effort_module, "better", better)
    start = Found(np.arange(5), Status.COMPLETE)
    effort = Effort("some", swaps=900, round=30, patience=3, floor=1e15)
    roam(problem, start, effort, Context())
    assert [number for _, number, _ in made] == list(range(8))
    assert [kernels is None for kernels, *_ in made] == [
        at == 0 or at - 1 in better_at for at in range(8)
    ]
    made.clear()
    better_at.clear()
    roam(problem, start, replace(effort, swaps=50), Context())
    assert [swaps for *_, swaps in made] == [30, 20]


def test_roaming_depends_on_the_random_state_alone():
    views = cases.clustered_views(np.random.default_rng(0), 60, [6, 5], 30)
    paths = [
        run(TabuSearch(pose(views, 8, 0.05, [0.1, 0.1], seed=seed), np.arange(8), swaps=100)).state
        for seed in (0, 0, 1)
    ]
    assert paths[0].rows_free.tolist() == paths[1].rows_free.tolist()
    assert paths[0].rows_free.tolist() != paths[2].rows_free.tolist()


def test_the_rows_of_an_arena_fit_its_memory():
    views = cases.random_views(np.random.default_rng(0), 50, [3, 3])
    problem = pose(views, 20, 0.1, [0.1, 0.1])
    assert arena_rows(problem) == 50
    for room in (10, 500, 2000, 4000, 10_000):
        m = arena_rows(replace(problem, means=Means(arena=room)))
        assert 2 * (m**2 + 2 * m * 20) <= room
    start = Found(np.arange(20), Status.COMPLETE)
    tight = replace(problem, means=Means(arena=500))
    assert roam(tight, start, EFFORTS["balanced"], Context()) is start


@pytest.mark.torch
def test_a_device_makes_the_same_swaps(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(problem_module, "_MANY", 1)
    views = cases.clustered_views(np.random.default_rng(0), 900, [9, 8], 30)
    data = dict(zip("ab", views, strict=True))
    here, there = (
        fairnepv.select(data, 8, engine=engine, certify=False) for engine in (None, "torch:cpu")
    )
    assert here.indices.tolist() == there.indices.tolist()
    assert any(row.stage == "tabu" for row in there.trace)


def test_comparisons_are_equal_in_passes():
    """As many as the effort has for the work, in a round number where more would be no use."""
    balanced = EFFORTS["balanced"]
    assert balanced.equal_passes(1.6e10) == 11
    assert balanced.equal_passes(1e8) == 10 + 160
    assert balanced.equal_passes(1e3) == 1000
    assert EFFORTS["fast"].equal_passes(1e3) == 0
