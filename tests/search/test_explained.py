"""The search for representative sets: every pick and every swap against dense twins."""

from dataclasses import replace
from functools import partial
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import fairnepv
import reference
from cases import Array
from fairnepv import KernelView
from fairnepv.compute import HOST
from fairnepv.errors import Status
from fairnepv.loop import Context, run
from fairnepv.objective import Standing, subset_gains, subset_merit, subset_scores
from fairnepv.problem import Constraints, Problem, Quotas
from fairnepv.search import EFFORTS, Greedy, greedy, refine
from fairnepv.search.arena import ExplainedArena, _Residuals
from fairnepv.search.explained import frontier as frontiers
from fairnepv.search.explained import swaps
from fairnepv.search.explained.frontier import ExplainedFrontier
from fairnepv.search.explained.local import ExplainedLocal
from fairnepv.search.explained.swaps import ExplainedSet, best_swaps
from fairnepv.search.ties import coarse_error
from fairnepv.views import moments
from fairnepv.views.moments import second_norms, second_shares, with_moments
from search_problems import examples, feasible_subsets, indices, pose, representative

TAU = 0.05
STORAGE = {
    "dense": lambda Phi: Phi,
    "sparse": sp.csr_array,
    "kernel": lambda Phi: KernelView(Phi @ Phi.T),
}
NAME = "representative"


def views_of(seed: int, n: int = 18, widths=(4, 9)) -> list[Array]:
    rng = np.random.default_rng(seed)
    views = [rng.standard_normal((n, p)) / np.sqrt(p) for p in widths]
    if seed % 3 == 1:  # copies
        for Phi in views:
            Phi[5:8] = Phi[4]
    if seed % 3 == 2:
        views[0][3] = 0.0
    return views


def posed(views, k: int, eps, weights=None, storage: str = "dense", **rules) -> Problem:
    problem = pose([STORAGE[storage](Phi) for Phi in views], k, TAU, eps, **rules)
    names = problem.pool.names
    own = None if weights is None else dict.fromkeys(names, weights)
    return replace(problem, pool=with_moments(problem.pool, own), utility=NAME)


def scores(views, eps, S, weights=None) -> Array:
    own = zip(views, eps, strict=True)
    return np.array([reference.explained(Phi, e, S, weights) for Phi, e in own])


def merit(views, eps, S, weights=None) -> float:
    return reference.soft_min(scores(views, eps, S, weights), TAU)


def greedy_twin(views, eps, k, weights=None) -> list[int]:
    S: list[int] = []
    for _ in range(k):
        rows = [i for i in range(len(views[0])) if i not in S]
        merits = np.array([merit(views, eps, [*S, i], weights) for i in rows])
        S.append(rows[int(np.argmax(merits >= merits.max() - 1e-10))])
    return S


@pytest.fixture(params=[4096, 0], ids=["held", "through rows"])
def moments_by(request, monkeypatch):
    """G as a matrix, and acting through the rows."""
    monkeypatch.setattr(moments, "WIDEST_MOMENTS", request.param)


# --- scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("eps", [(1.0, 0.1), (1e-9, 1e-3)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("moments_by")
def test_scores_and_gains(storage, eps, weighted):
    views = views_of(1)
    w = np.linspace(0.5, 2.0, 18) if weighted else None
    problem = posed(views, 5, eps, w, storage)
    S = [4, 9, 5, 0, 17]
    expected = scores(views, eps, S, w)
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if storage == "kernel" else {"rtol": 1e-9}
    np.testing.assert_allclose(
        subset_scores(problem.pool, indices(*S), NAME), expected, **tolerance
    )
    grown = [scores(views, eps, S[:j], w) if j else np.zeros(2) for j in range(6)]
    gains = subset_gains(problem.pool, indices(*S), NAME)
    np.testing.assert_allclose(gains, np.diff(grown, axis=0), atol=1e-7)


def test_a_sample_of_the_rows_stands_for_all(monkeypatch):
    """Of a wide view with many rows: the share of what the sample has."""
    monkeypatch.setattr(moments, "WIDEST_MOMENTS", 0)
    monkeypatch.setattr(moments, "TARGETS", 10)
    monkeypatch.setattr(moments, "SAMPLE", 10)
    views, eps = views_of(0), (0.5, 0.5)
    problem = posed(views, 3, eps)
    assert [view.moments.sampled for view in problem.pool.views] == [10, 10]
    rows = np.sort(np.random.default_rng(0).choice(18, 10, replace=False))
    w = np.zeros(18)
    w[rows] = 1.0
    S = [2, 7, 11]
    np.testing.assert_allclose(
        subset_scores(problem.pool, indices(*S), NAME), scores(views, eps, S, w), rtol=1e-10
    )


@pytest.mark.usefixtures("moments_by")
@pytest.mark.parametrize("storage", STORAGE)
def test_second_norms(storage):
    views = views_of(0)
    w = np.linspace(0.5, 2.0, 18)
    problem = posed(views, 3, (1.0, 1.0), w, storage)
    for q, Phi in enumerate(views):
        K = Phi @ Phi.T
        expected = np.diagonal(K @ np.diag(w) @ K)
        np.testing.assert_allclose(second_norms(problem.pool)[:, q], expected, rtol=1e-9)


# --- greedy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("few", [(1024,), (3,), (9, 3)], ids=["all rows run", "three", "levels"])
@pytest.mark.parametrize("seed", range(6))
def test_greedy_is_the_twin(seed, few, monkeypatch):
    monkeypatch.setattr(frontiers, "FEW", few)
    views, eps = views_of(seed), [(1.0, 1.0), (0.1, 0.02)][seed % 2]
    w = np.linspace(0.5, 2.0, 18) if seed > 3 else None
    problem = posed(views, 7, eps, w)
    state = run(Greedy(problem)).state
    assert state.indices.tolist() == greedy_twin(views, eps, 7, w)
    assert state.value == pytest.approx(merit(views, eps, state.indices, w), abs=1e-10)


@pytest.mark.torch
@pytest.mark.parametrize("few", [1024, 3], ids=["all rows run", "three"])
@pytest.mark.parametrize("seed", range(6))
def test_a_device_makes_the_same_picks_at_once(seed, few, monkeypatch):
    """Also where some of them do not hold, and leave directions behind that are no picks."""
    torch_engine = pytest.importorskip("fairnepv.compute.device").TorchEngine("cpu")
    monkeypatch.setitem(frontiers.FEW_THERE, "cpu", (few,))
    views, eps = views_of(seed), [(1.0, 1.0), (0.1, 0.02)][seed % 2]
    w = np.linspace(0.5, 2.0, 18) if seed > 3 else None
    problem = posed(views, 7, eps, w)
    there = replace(problem, pool=problem.pool.settled(torch_engine))
    search = Greedy(there)
    state = run(search).state
    assert state.indices.tolist() == greedy_twin(views, eps, 7, w)
    frontier: Any = search._latest
    assert frontier._dash is not None
    rebuilt = ExplainedFrontier(there, partial(Standing.of, there), state.indices)
    for trail, own in zip(frontier.trails, rebuilt.trails, strict=True):
        np.testing.assert_allclose(trail.gammas, own.gammas, atol=1e-12)
        for name in ("first", "second"):
            found, expected = (np.asarray(getattr(x, name)) for x in (trail, own))
            np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.torch
def test_a_device_says_that_a_score_is_not_a_number():
    torch_engine = pytest.importorskip("fairnepv.compute.device").TorchEngine("cpu")
    problem = posed(views_of(0), 7, (1.0, 1.0))
    there = replace(problem, pool=problem.pool.settled(torch_engine))
    frontier = ExplainedFrontier(there, partial(Standing.of, there), indices())
    frontier.totals = frontier.totals * np.nan
    runners = frontier._runners(there.pool, np.arange(18))
    with pytest.raises(np.linalg.LinAlgError, match="not a number"):
        frontier._run(runners, 3)


def test_what_is_known_of_rows_is_the_same_however_it_came_about(monkeypatch):
    """After a batch, after a rebuild, in float32 and in float64."""
    monkeypatch.setattr(frontiers, "FEW", (20, 5))
    rng = np.random.default_rng(3)
    views = [rng.standard_normal((300, p)).astype(np.float32) / p**0.5 for p in (6, 12)]
    problem = posed(views, 12, (1.0, 0.5))
    judge = partial(Standing.of, problem)
    grown = ExplainedFrontier(problem, judge, indices())
    for _ in range(10):
        grown.extend(grown.best_addition())
    if grown._known == 10:
        rebuilt = ExplainedFrontier(problem, judge, grown.indices, coarse=False)
        np.testing.assert_allclose(grown.gains(), rebuilt.gains(), rtol=1e-4, atol=1e-7)
    rebuilt = ExplainedFrontier(problem, judge, grown.indices)
    rebuilt._look_closer_than(0.0, np.ones(len(rebuilt.totals)))
    exact = ExplainedFrontier(problem, judge, grown.indices, coarse=False)
    np.testing.assert_allclose(rebuilt.gains(), exact.gains(), rtol=1e-9)
    assert rebuilt.best_addition() == grown.best_addition()


def test_float32_decides_nothing(monkeypatch):
    rng = np.random.default_rng(5)
    views = [rng.standard_normal((800, p)).astype(np.float32) for p in (8, 16)]
    problem = posed([Phi / np.linalg.norm(Phi, axis=1)[:, None] for Phi in views], 40, (1.0, 1.0))
    found = run(Greedy(problem)).state.indices
    monkeypatch.setattr(frontiers, "FEW", (100, 16))
    assert run(Greedy(problem)).state.indices.tolist() == found.tolist()
    monkeypatch.setattr(frontiers, "COARSEST", -1.0)
    assert run(Greedy(problem)).state.indices.tolist() == found.tolist()


@pytest.mark.parametrize("few", [(4,), (12, 4)])
def test_of_more_equal_rows_than_run_the_lowest_is_chosen(few, monkeypatch):
    """Rows of six kinds, all as good as each other, in another order than that of their kinds."""
    order = np.random.default_rng(1).permutation(60)
    kinds = np.repeat(np.eye(6), 10, axis=0)[order].astype(np.float32)
    problem = posed([kinds, kinds[:, ::-1].copy()], 6, (1.0, 1.0))
    monkeypatch.setattr(frontiers, "FEW", few)
    lowest = np.sort(np.unique(kinds.argmax(axis=1), return_index=True)[1])
    assert run(Greedy(problem)).state.indices.tolist() == lowest.tolist()


def test_greedy_keeps_the_rules():
    views, eps = views_of(0), (1.0, 1.0)
    groups = np.arange(18) % 3
    quotas = Quotas(groups, np.array([2, 0, 1]), np.array([2, 3, 9]))
    rules = Constraints(indices(4), indices(1, 2), quotas)
    chosen = run(Greedy(posed(views, 6, eps, rules=rules))).state.indices
    assert chosen[0] == 4
    assert not set(chosen) & {1, 2}
    assert rules.is_met(chosen)


# --- swaps ----------------------------------------------------------------------------------------


def all_swaps(views, eps, S, w=None) -> Array:
    """(n, k, M) gains of exchanging slot j for row i."""
    here = scores(views, eps, S, w)
    found = np.full((len(views[0]), len(S), len(views)), np.nan)
    for i in range(len(views[0])):
        for j in range(len(S)):
            if i not in S:
                found[i, j] = scores(views, eps, [*S[:j], i, *S[j + 1 :]], w) - here
    return found


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("moments_by")
def test_gains_of_all_swaps(seed, storage):
    views, eps, S = views_of(seed), (1.0, 0.05), [4, 9, 5, 0, 17]
    w = np.linspace(0.5, 2.0, 18)
    problem = posed(views, 5, eps, w, storage)
    chosen = ExplainedSet.of(problem, indices(*S))
    expected, rows = all_swaps(views, eps, S, w), np.setdiff1d(np.arange(18), S)
    sizes = swaps._sizes(problem)
    found = chosen.look(coarse=False).gains(problem.pool.block(0, 18), *sizes)
    for q in range(2):
        np.testing.assert_allclose(found[q][rows], expected[rows, :, q], atol=1e-9)
    merits = [[merit(views, eps, chosen.with_row(j, i), w) for j in range(5)] for i in rows]
    best = best_swaps(chosen, above=-np.inf, coarse=False)
    tops = {slot: tops[0] for slot, tops in best.moves()}
    for j in range(5):
        column = np.array(merits)[:, j]
        assert tops[j] == rows[int(np.argmax(column >= column.max() - 1e-10))]


def test_an_arena_stays_what_it_would_be_made_anew():
    views, eps = views_of(1, n=30), (0.5, 1.0)
    problem = posed(views, 6, eps, np.linspace(0.5, 2.0, 30))
    arena = ExplainedArena(
        problem, ExplainedArena.held_kernels(problem), indices(3, 9, 1, 22, 28, 17)
    )
    rng = np.random.default_rng(0)
    for _ in range(20):
        move = arena.best_swap(rng.random(30) < 0.3, np.zeros(6, dtype=bool))
        assert move is not None
        arena.swap(move)
        fresh = ExplainedArena(problem, arena.kernels, arena.indices)
        for own, other in zip(arena.views, fresh.views, strict=True):
            for name in ("v", "y", "c", "b", "T", "H"):
                np.testing.assert_allclose(getattr(own, name), getattr(other, name), atol=1e-10)
        np.testing.assert_allclose(
            arena.totals,
            scores(views, eps, arena.indices.tolist(), np.linspace(0.5, 2.0, 30)),
            atol=1e-10,
        )
        assert move.value == pytest.approx(subset_merit(problem, arena.indices), abs=1e-10)


@examples(30)
@given(st.integers(0, 10_000), st.sampled_from([1e-6, 0.01, 0.3, 1.0, 10.0]))
def test_no_one_swap_improves_a_local_optimum(seed, eps):
    views = views_of(seed, n=14)
    problem = posed(views, 4, (eps, eps))
    rng = np.random.default_rng(seed)
    start = rng.permutation(14)[:4]
    outcome = run(ExplainedLocal(problem, start))
    S = outcome.state.indices.tolist()
    assert outcome.state.value == pytest.approx(merit(views, (eps, eps), S), abs=1e-7)
    if outcome.status is Status.LOCAL_OPTIMUM:
        best = max(
            merit(views, (eps, eps), [*S[:j], i, *S[j + 1 :]])
            for i in range(14)
            if i not in S
            for j in range(4)
        )
        assert best <= outcome.state.value + 1e-8


@pytest.mark.parametrize("seed", [4, 6, 12, 25])
def test_more_items_than_the_rank_are_no_local_optimum_where_swaps_have_too_few_digits(seed):
    """At such a ridge an inverse costs a swap eight digits, which improvements hid behind."""
    rng, eps, k = np.random.default_rng(seed), 1e-4, 14
    views = [rng.standard_normal((40, 2)) @ rng.standard_normal((2, p)) for p in (9, 6)]
    views = [reference.unit_diagonal(Phi) for Phi in views]
    problem = posed(views, k, (eps, eps))
    outcome = run(ExplainedLocal(problem, np.arange(k)))
    S = outcome.state.indices.tolist()
    if outcome.status is Status.LOCAL_OPTIMUM:
        swaps = ([*S[:j], i, *S[j + 1 :]] for i in range(40) if i not in S for j in range(k))
        best = max(subset_merit(problem, np.array(T)) for T in swaps)
        assert best <= outcome.state.value + 1e-9


@examples(15)
@given(st.integers(0, 10_000))
def test_refined_sets_are_mostly_the_optimum(seed):
    views, eps = views_of(seed, n=12), (1.0, 0.3)
    problem, context = posed(views, 3, eps), Context()
    found = refine(problem, greedy(problem, context), EFFORTS["balanced"], context)
    best = max(merit(views, eps, list(S)) for S in combinations(range(12), 3))
    assert subset_merit(problem, found.indices) >= best - 1e-9


# --- what a look in float32 may not decide ------------------------------------------------------

ALONE: dict[str, Any] = {
    "objective": NAME,
    "method": "greedy",
    "certify": False,
    "center": False,
    "calibration": "none",
}


def test_sparse_rows_are_chosen_as_dense_ones():
    """Products of sparse views are as sure as float64 only where they are made in it."""
    X = np.random.default_rng(8).standard_normal((6000, 3))
    options = {**ALONE, "calibration": "trace", "eps": 1e-3}
    dense, sparse = (fairnepv.select({"v": x}, 20, **options) for x in (X, sp.csr_array(X)))
    assert sparse.indices.tolist() == dense.indices.tolist()


def test_what_float32_hides_of_a_variance_counts():
    """Rows that a pick leaves with little variance, of which next to nothing is to be explained
    along it: in b float32 then hides nothing, and in c it hides which row is the best."""
    n, eps = 2000, 1e-3
    across = 0.03 * (1.0 + 1e-5 * np.random.default_rng(1).random(n))
    X = np.zeros((n + 50, 3))
    X[:n, 0], X[:n, 1] = across, np.sqrt(1.0 - across**2)
    X[n, 1], X[n + 1 :, 0] = 1.0, 1.0
    quality = np.where(np.arange(n + 50) <= n, 1e-9, 1.0)
    rules = {"include": [n], "exclude": np.arange(n + 1, n + 50), "quality": quality}
    found = fairnepv.select({"v": sp.csr_array(X)}, 3, eps=eps, **rules, **ALONE)
    first, longest = found.indices.tolist()[:2], np.argsort(across)[-20:].tolist()
    reached = [scores([X], (eps,), [*first, i], quality)[0] for i in longest if i not in first]
    assert found.scores["v"] >= max(reached) - 1e-9


@pytest.mark.torch
def test_few_rows_of_a_device_are_chosen_from_on_the_host():
    """A shortlist of more rows than run at once, whose second moments are on the device."""
    X = np.random.default_rng(0).standard_normal((400, 6)).astype(np.float32)
    options = {"objective": NAME, "method": "nepv", "effort": "fast", "certify": False}
    here, there = (fairnepv.select({"v": X}, 100, engine=e, **options) for e in (None, "torch:cpu"))
    assert here.indices.tolist() == there.indices.tolist()


@pytest.mark.parametrize("engine", ["local", pytest.param("torch:cpu", marks=pytest.mark.torch)])
def test_more_rows_may_be_nearly_as_good_than_run(engine):
    """A thousand rows within the slack of each other, of which two hundred are tied."""
    X = (1.0 + 1e-9 * np.arange(1000) / 1000)[:, None]
    found = fairnepv.select({"v": X}, 2, engine=engine, eps=1.0, **ALONE)
    first = np.sort(X[:, 0] ** 2 / (X[:, 0] ** 2 + 1.0))
    best = X[found.indices[0], 0] ** 2 / (X[found.indices[0], 0] ** 2 + 1.0)
    assert best >= first[-1] - 1e-10
    assert found.indices[0] == 799


def test_scores_that_are_no_numbers_end_in_a_status():
    rng = np.random.default_rng(7)
    n, p = int(rng.choice([600, 5000])), int(rng.choice([1, 2, 5]))
    X = rng.standard_normal((n, p)) * 10 ** rng.uniform(3, 9)
    found = fairnepv.select({"v": X}, 20, eps=float(10 ** rng.uniform(-4, 1)), **ALONE)
    assert len(set(found.indices.tolist())) == 20


def test_alike_rows_are_enumerated_at_a_ridge_that_vanishes():
    X = np.repeat(np.eye(3), 2, axis=0) * 1e3
    posed = {"objective": NAME, "eps": 1e-14, "calibration": "none", "center": False}
    best = fairnepv.exhaustive({"v": X}, 3, **posed)
    assert best.scores["v"] == pytest.approx(1.0)
    assert {row // 2 for row in best.indices.tolist()} == {0, 1, 2}


def hostile(seed: int) -> dict[str, Any]:
    """Sparse rows beside dense ones: doubled, tied, apart by 1e-6, long means, of any scale."""
    rng = np.random.default_rng([17, seed])
    n, p = int(rng.integers(150, 600)), int(rng.choice([6, 20, 200, 3000]))
    X = sp.random_array((n, p), density=min(1.0, rng.choice([2, 8, 30]) / p), rng=rng).tolil()
    X[:, 0] = rng.choice([0.0, 1.0, 30.0])  # common to all: most of the mean
    X[np.arange(n), rng.integers(1, p, n)] = rng.random(n) + 0.5
    X = X.tocsr()
    kind = seed % 4
    if kind == 0:  # every row five times
        X = X[np.arange(n) % max(1, n // 5)]
    if kind == 1:  # and a little apart
        X = X[np.arange(n) % max(1, n // 5)]
        X.data *= 1.0 + 1e-6 * rng.random(len(X.data))
    if kind == 2:  # rows of ones, many of which are tied
        X.data[:] = 1.0
    scale = 10.0 ** rng.integers(-3, 4)
    D = rng.standard_normal((n, 12)) @ rng.standard_normal((12, 24))
    D = D[np.arange(n) % max(1, n // 5)] if kind < 2 else D
    views = {"sparse": sp.csr_array(X * scale), "dense": np.float32(D)}
    return views if seed % 3 else {"sparse": views["sparse"]}


@pytest.mark.sample(24)
@pytest.mark.parametrize("seed", range(120))
def test_what_float32_sees_of_sparse_rows_decides_nothing(seed, monkeypatch):
    """The items of looks in float64, whether or not rows are centred."""
    rng, data = np.random.default_rng(seed), hostile(seed)
    options = {**ALONE, "center": bool(seed % 2), "tau": float(rng.choice([0.005, 0.02, 0.3]))}
    options |= {"calibration": str(rng.choice(["trace", "unit-diagonal"]))}
    options |= {"eps": float(10.0 ** rng.uniform(-3, 1))}
    seen = []

    def noted(problem, **of):
        seen.append(coarse_error(problem, **of))
        return seen[-1]

    monkeypatch.setattr(frontiers, "FEW", (120, 30))
    monkeypatch.setattr(frontiers, "coarse_error", noted)
    coarse = fairnepv.select(data, 15, **options)
    monkeypatch.setattr(frontiers, "coarse_error", lambda problem, **_: np.inf)
    exact = fairnepv.select(data, 15, **options)
    assert seen
    assert coarse.indices.tolist() == exact.indices.tolist()


def test_a_copy_of_an_item_is_not_worth_a_swap():
    """It promises nothing, which is more than any other swap of the best set does."""
    rng = np.random.default_rng(3)
    Phi = rng.standard_normal((12, 4)) * [3.0, 2.0, 1.0, 0.5]
    subsets = feasible_subsets(Constraints(), 12, 3)
    best = max(subsets, key=lambda S: reference.explained(Phi, 0.3, S))
    doubled = np.vstack([Phi, Phi[list(best)]])
    problem = representative(pose([doubled], 3, 0.1, [0.3]))
    arena = ExplainedArena(problem, ExplainedArena.held_kernels(problem), indices(*best))
    move = arena.best_swap(np.zeros(15, dtype=bool), np.zeros(3, dtype=bool))
    assert move is not None
    others = {
        (row, slot): reference.explained(doubled, 0.3, [*best[:slot], row, *best[slot + 1 :]])
        for row in set(range(15)) - set(best)
        for slot in range(3)
        if row != 12 + slot
    }
    assert (move.row, move.slot) in others
    assert others[move.row, move.slot] == pytest.approx(max(others.values()), abs=1e-9)
    assert move.value == pytest.approx(max(others.values()), abs=1e-9)
    assert max(others.values()) < reference.explained(doubled, 0.3, list(best))


def test_swaps_that_rounding_hides_are_scored_one_by_one_and_keep_the_rules():
    """A row that is there already, or one too many of its group, is passed over; of the others the
    first that improves the set is taken."""
    rng = np.random.default_rng(4)
    Phi, groups = rng.standard_normal((8, 4)), np.array([0, 0, 0, 0, 1, 1, 1, 1])
    Phi[[5, 6]] *= 3.0
    quotas = Quotas(groups, indices(1, 1), indices(2, 2))
    problem = pose([Phi], 3, 0.1, [0.3], rules=Constraints(quotas=quotas))
    search = ExplainedLocal(representative(problem), indices(0, 1, 4))
    value = reference.explained(Phi, 0.3, [0, 1, 4])
    found, made = search._scored(indices(0, 1, 4), [(2, (3, 0, 5)), (0, (1, 4, 6))], value)
    assert found.tolist() == [6, 1, 5]
    assert made == 2
    found, made = search._scored(indices(0, 1, 4), [(2, (3, 0))], value)
    assert (found.tolist(), made) == ([0, 1, 4], 0)


@pytest.mark.parametrize("eps", [0.3, 10.0])
def test_what_is_left_beside_a_set_is_updated_as_it_is_made_anew(eps):
    """Without a slot, whose columns are zero then, and with another row in it."""
    rng = np.random.default_rng(6)
    Phi, S, slot, row = rng.standard_normal((9, 5)), [1, 4, 6, 7], 2, 3
    K, trace = Phi @ Phi.T, (Phi**2).sum()
    L, K2 = K + eps * np.eye(9), K @ K / trace

    def check(found, chosen, slots):
        T = np.linalg.inv(L[np.ix_(chosen, chosen)])
        v = L[:, chosen] @ T  # a chosen row has the ridge in common with its slot
        H = T @ K2[np.ix_(chosen, chosen)] @ T
        others = np.setdiff1d(np.arange(9), [*S, row])
        R = K - K[:, chosen] @ T @ K[chosen]
        np.testing.assert_allclose(found.T[np.ix_(slots, slots)], T, atol=1e-10)
        np.testing.assert_allclose(found.H[np.ix_(slots, slots)], H, atol=1e-10)
        np.testing.assert_allclose(found.v[:, slots][others], v[others], atol=1e-10)
        np.testing.assert_allclose(found.c[others], (np.diag(R) + eps)[others], atol=1e-10)
        np.testing.assert_allclose(found.b[others], np.diag(R @ R)[others] / trace, atol=1e-10)
        y = (R @ K[:, chosen] @ T / trace)[others]
        np.testing.assert_allclose(found.y[:, slots][others], y, atol=1e-10)

    residuals = _Residuals(L, K2, np.array(S), HOST)
    check(residuals, S, range(4))
    residuals.remove(slot)
    rest = [j for j in range(4) if j != slot]
    check(residuals, [S[j] for j in rest], rest)
    for matrix in (residuals.T, residuals.H):
        assert not matrix[slot].any()
        assert not matrix[:, slot].any()
    for matrix in (residuals.v, residuals.y):
        assert not matrix[:, slot].any()
    residuals.add(slot, row, np.array(S))
    check(residuals, [*S[:slot], row, *S[slot + 1 :]], range(4))


def test_swaps_are_counted_from_step_to_step():
    """As many at least as rows that are others afterwards."""
    Phi = np.random.default_rng(7).standard_normal((60, 9)) * np.linspace(2.0, 0.3, 9)
    search = ExplainedLocal(representative(pose([Phi], 6, 0.1, [0.3])), np.arange(6))
    state = search.init()
    for _ in range(20):
        following = search.step(state)
        others = len(np.setdiff1d(following.indices, state.indices))
        assert following.passes == state.passes + 1
        assert following.swaps - state.swaps >= others
        assert (following.swaps == state.swaps) == following.finished
        state = following
        if state.finished:
            break
    assert state.finished
    assert state.swaps >= 3


@pytest.mark.parametrize("seed", range(6))
def test_an_arena_makes_the_swaps_that_scores_would_have_made(seed):
    """One in each slot at most, each on those before it."""
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((60, 9)) * np.linspace(2.0, 0.3, 9)
    problem = representative(pose([Phi, rng.standard_normal((60, 4))], 6, 0.1, [0.3, 0.5]))
    start = rng.permutation(60)[:6]
    search = ExplainedLocal(problem, start)
    value = search.init().value
    moves = [(slot, tuple(rng.permutation(60)[:5].tolist())) for slot in rng.permutation(6)]
    ladder = SimpleNamespace(tie=0.0, moves=lambda above: moves)
    chosen = ExplainedSet.of(problem, start)
    assert not chosen.strained
    found, made = search._made(chosen, ladder, value)
    expected, scored = search._scored(start, moves, value)
    assert found.tolist() == expected.tolist()
    assert made == scored > 0
    assert made <= 6


def test_what_rounding_is_multiplied_by_is_the_longest_row_times_the_largest_pivot():
    rng = np.random.default_rng(8)
    Phis, eps = [rng.standard_normal((30, 6)), 5.0 * rng.standard_normal((30, 4))], [0.3, 0.01]
    chosen = ExplainedSet.of(representative(pose(Phis, 5, 0.1, eps)), indices(1, 4, 6, 7, 9))
    rows = np.ix_(chosen.indices, chosen.indices)
    pivots = [
        np.diag(np.linalg.inv((Phi @ Phi.T)[rows] + e * np.eye(5))).max()
        for Phi, e in zip(Phis, eps, strict=True)
    ]
    norms = [(Phi**2).sum(axis=1).max() for Phi in Phis]
    strain = max(norm * pivot for norm, pivot in zip(norms, pivots, strict=True))
    assert chosen.strain == pytest.approx(strain)
    assert chosen.rounding == pytest.approx(16.0 * np.finfo(float).eps * strain)


@pytest.fixture
def rough(monkeypatch):
    """A frontier that looks in float32, at rows of a hundred times the usual length."""
    monkeypatch.setattr(frontiers, "FEW", (40, 20))
    monkeypatch.setattr(frontiers, "WORTH", 0.0)
    rng = np.random.default_rng(9)
    Phi = (100.0 * rng.standard_normal((300, 12))).astype(np.float32)
    problem = representative(pose([Phi], 5, 0.1, [1e6]))
    monkeypatch.setattr(type(problem.pool.views[0]), "look_error", 1e-7)
    found = ExplainedFrontier(problem, partial(Standing.of, problem), indices())
    assert found._rough is not None
    return problem, found


def test_what_rows_alone_explain_in_float32_is_as_sure_as_it_says(rough):
    problem, found = rough
    b, drift = found._rough
    off = abs(b[0] - second_shares(problem.pool)[:, 0]).max()
    assert 0.0 < off <= np.sqrt(drift[0])
    assert np.sqrt(drift[0]) < 1e-2 * b[0].max()


def test_where_that_is_not_sure_enough_all_digits_are_made(rough):
    problem, found = rough
    exact = second_shares(problem.pool).T
    assert abs(found._field.b - exact).max() > 0.0
    found._look_closer_than(0.0, np.ones(1))
    np.testing.assert_allclose(found._field.b, exact, rtol=1e-12)
    assert found._rough is None
    assert found._coarse  # which is as sure as can be now
    found._field.drift = np.ones(1)
    found._look_closer_than(0.0, np.ones(1))
    assert not found._coarse
    np.testing.assert_allclose(found._field.b, exact, rtol=1e-12)
