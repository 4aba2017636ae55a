"""Tables of responses: kept from swap to swap, the same as made anew; and where the search ends."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import cases
import reference
from fairnepv import DiagonalView, KernelView, Status
from fairnepv.compute import Block
from fairnepv.loop import run
from fairnepv.objective import Standing
from fairnepv.problem import Constraints, Means, Problem
from fairnepv.search import LocalSearch
from fairnepv.search import ladders as ladders_module
from fairnepv.search import table as table_module
from fairnepv.search import ties as ties_module
from fairnepv.search.local import best_swaps
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from fairnepv.views.base import SURE
from search_problems import (
    STORAGE,
    best_allowed_swap,
    examples,
    indices,
    kernels,
    pose,
    random_rules,
)

SEEDS = st.integers(0, 10**6)
STORAGES = {**STORAGE, "mixed": None}


def posed(rng: np.random.Generator, storage: str, n: int = 30, k: int = 7, **options):
    """A problem with three views, and its dense kernels with their ridges."""
    views, eps = cases.random_views(rng, n, [9, 5, 3]), [0.1, 0.01, 0.5]
    views[1] = np.where(rng.random(views[1].shape) < 0.6, views[1], 0.0)
    stored = (
        [views[0], sp.csr_array(views[1]), KernelView(views[2] @ views[2].T)]
        if storage == "mixed"
        else [STORAGE[storage](view) for view in views]
    )
    return pose(stored, k, 0.1, eps, **options), kernels(views, eps), eps


def check_table(table: SwapTable, Ls: list[np.ndarray], eps: list[float], tolerance: float) -> None:
    v, c = reference.swap_responses(list(zip(Ls, eps, strict=True)), table.subset.indices.tolist())
    assert len(table.aligned) == 2
    np.testing.assert_allclose(table.aligned[0], v, atol=tolerance)
    np.testing.assert_allclose(table.aligned[1], c, atol=tolerance)


def random_moves(rng: np.random.Generator, subset: Subset, count: int) -> list:
    """Exchanges in a row, each confirmed on the set that those before it made."""
    moves = []
    for _ in range(count):
        outside = np.setdiff1d(np.arange(subset.problem.n), subset.indices)
        move = subset.confirm(int(rng.integers(len(subset.indices))), int(rng.choice(outside)))
        subset = subset.exchange(move)
        moves.append(move)
    return moves


# --- The table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 7, None])
@pytest.mark.parametrize("storage", STORAGES)
def test_a_new_table_is_that_of_the_twin(storage, block):
    rng = np.random.default_rng(1)
    problem, Ls, eps = posed(rng, storage, block=block)
    table = SwapTable.of(Subset.of(problem, rng.permutation(30)[:7]))
    check_table(table, Ls, eps, 1e-10)


@pytest.mark.parametrize("block", [1, 7, None])
@pytest.mark.parametrize("storage", STORAGES)
def test_any_sequence_of_exchanges_keeps_the_table_right(storage, block):
    """One at a time, so that it is updated; every third time a row returns to a slot it had."""
    rng = np.random.default_rng(2)
    problem, Ls, eps = posed(rng, storage, block=block)
    table = SwapTable.of(Subset.of(problem, rng.permutation(30)[:7]))
    slot, gone = 0, -1
    for step in range(40):
        if step % 3 == 2:
            move = table.subset.confirm(slot, gone)
        else:
            (move,) = random_moves(rng, table.subset, 1)
        slot, gone = move.slot, int(table.subset.indices[move.slot])
        table = table.after([move])
        assert table.subset.indices[slot] == move.row
        check_table(table, Ls, eps, 1e-9)
    anew = SwapTable.of(Subset.of(problem, table.subset.indices))
    for kept, made in zip(table.aligned, anew.aligned, strict=True):
        np.testing.assert_allclose(kept, made, atol=1e-9)


@examples(60)
@given(SEEDS, st.sampled_from(list(STORAGES)), st.integers(0, 5))
def test_several_exchanges_at_once(seed, storage, count):
    """Few are made one by one and many are not, which nobody can tell from the table."""
    rng = np.random.default_rng(seed)
    problem, Ls, eps = posed(rng, storage, n=15, k=8)
    table = SwapTable.of(Subset.of(problem, rng.permutation(15)[:8]))
    moves = random_moves(rng, table.subset, count)
    after = table.after(moves)
    expected = table.subset
    for move in moves:
        expected = expected.exchange(move)
    assert after.subset.indices.tolist() == expected.indices.tolist()
    check_table(after, Ls, eps, 1e-8)


@pytest.mark.parametrize("eps", [1e-3, 1e-9])
def test_a_table_of_duplicates_keeps_variances_above_the_ridge(eps):
    """What rounding takes away would otherwise make them smaller than any can be."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((6, 4))
    Phi = np.vstack([rows, rows, rows])
    problem = pose([Phi], 5, 0.1, [eps])
    table = SwapTable.of(Subset.of(problem, np.arange(5)))
    for _ in range(60):
        table = table.after(random_moves(rng, table.subset, 1))
        assert (table.aligned[1] >= eps).all()
    anew = SwapTable.of(Subset.of(problem, table.subset.indices))
    np.testing.assert_allclose(table.aligned[1], anew.aligned[1], rtol=1e-6)


@pytest.mark.parametrize("storage", STORAGES)
def test_swaps_read_from_a_kept_table_are_those_of_the_set(storage):
    rng = np.random.default_rng(4)
    problem, Ls, _ = posed(rng, storage)
    table = SwapTable.of(Subset.of(problem, rng.permutation(30)[:7]))
    for move in random_moves(rng, table.subset, 10):
        table = table.after([move])
    S = table.subset.indices.tolist()
    values = reference.swap_values(Ls, S, 0.1)
    best = best_swaps(table)
    first, last = best.ends()
    np.testing.assert_allclose(best.rungs["score"][last], values.max(axis=0), atol=1e-9)
    assert best.rungs["row"][first].tolist() == values.argmax(axis=0).tolist()


@pytest.mark.parametrize("storage", STORAGE)
def test_every_swap_above_a_threshold_is_ranked(storage):
    """However little it is above, and of the others none is. Rows have neighbours that are nearly
    like them, so that the best swaps change hardly anything."""
    rng = np.random.default_rng(6)
    views, eps = cases.random_views(rng, 10, [9, 5]), [0.1, 0.01]
    views = [np.repeat(view, 3, axis=0) for view in views]
    views = [view + 1e-3 * rng.standard_normal(view.shape) for view in views]
    Ls = kernels(views, eps)
    problem = pose([STORAGE[storage](view) for view in views], 7, 0.1, eps)
    start = run(LocalSearch(problem, np.arange(0, 21, 3))).state.indices
    table = SwapTable.of(Subset.of(problem, start))
    values = reference.swap_values(Ls, start.tolist(), 0.1)
    tops = values.max(axis=0)
    for top in tops:
        moves = best_swaps(table, above=top - 1e-9).moves(above=top - 1e-9)
        assert sorted(slot for slot, _ in moves) == np.flatnonzero(tops >= top).tolist()
        for slot, rows in moves:
            assert values[rows[0], slot] == pytest.approx(tops[slot], abs=1e-9)


def test_few_exchanges_update_a_table_and_do_not_remake_it(monkeypatch):
    rng = np.random.default_rng(7)
    problem, _, _ = posed(rng, "dense", k=8)
    table = SwapTable.of(Subset.of(problem, np.arange(8)))
    made = []
    monkeypatch.setattr(SwapTable, "of", classmethod(lambda cls, subset, out: made.append(out)))
    table.after(random_moves(rng, table.subset, 2))
    assert made == []
    table.after(random_moves(rng, table.subset, 3))
    table.after(random_moves(rng, table.subset, 3), reuse=True)
    assert [out is table.joined for out in made] == [False, True]


def test_a_table_that_is_made_anew_may_take_the_memory_of_the_old():
    rng = np.random.default_rng(8)
    problem, _, _ = posed(rng, "dense", k=8)
    table = SwapTable.of(Subset.of(problem, np.arange(8)))
    moves = random_moves(rng, table.subset, 3)
    memory, expected = table.joined, table.after(moves)
    after = table.after(moves, reuse=True)
    assert after.joined is memory
    np.testing.assert_array_equal(after.joined, expected.joined)


# --- Tables that are too large --------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
def test_without_room_for_a_table_the_same_items_are_found(storage):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rules = random_rules(rng, 30, 7) if seed % 2 else Constraints()
        problem, _, _ = posed(rng, storage, rules=rules)
        start = rules.best_set(rng.standard_normal(30), 7)
        kept = run(LocalSearch(problem, start))
        tight = replace(problem, means=Means(table=30 * 3 * 7 - 1))
        assert SwapTable.of(Subset.of(tight, start)).aligned == ()
        anew = run(LocalSearch(tight, start))
        assert kept.state.indices.tolist() == anew.state.indices.tolist()
        assert (kept.state.swaps, kept.state.passes) == (anew.state.swaps, anew.state.passes)
        assert kept.state.swaps > 0


def test_a_table_of_just_the_largest_size_is_kept():
    problem, _, _ = posed(np.random.default_rng(0), "dense")
    problem = replace(problem, means=Means(table=30 * 3 * 7))
    assert SwapTable.of(Subset.of(problem, np.arange(7))).aligned


# --- In float32 -----------------------------------------------------------------------------------


@pytest.fixture
def any_size_in_float32(monkeypatch):
    monkeypatch.setattr(ties_module, "_LITTLE_WORK", 0.0)


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_no_swap_improves_though_float32_left_out_most_of_a_crowd(
    any_size_in_float32, monkeypatch, seed
):
    """Rows of a crowd need not be tied: in a narrow view many are only nearly so."""
    monkeypatch.setattr(ladders_module, "_CROWD", 1)
    view = np.random.default_rng(seed).standard_normal((150, 2))
    view /= np.linalg.norm(view, axis=1, keepdims=True)
    problem, Ls = pose([view], 8, 0.1, [0.01]), kernels([view], [0.01])
    found = run(LocalSearch(problem, np.arange(8)))
    assert found.status is Status.LOCAL_OPTIMUM
    S = found.state.indices.tolist()
    gain = best_allowed_swap(Ls, S, 0.1, Constraints()) - reference.fair_score(Ls, S, 0.1)
    assert gain <= 1e-9


@pytest.mark.parametrize("scale", [1e21, 1e-25, 0.0])
def test_views_beyond_the_range_of_float32_are_searched_in_float64(any_size_in_float32, scale):
    """A table of infinities would say that no swap improves. Scale 0: a view without a ridge."""
    rng = np.random.default_rng(0)
    views = cases.random_views(rng, 40, [8, 5])
    if scale:
        views[1] *= scale
        eps = [0.1, 0.1 * scale**2]
        problem, Ls = pose(views, 6, 0.1, eps), kernels(views, eps)
    else:
        diagonal = 10.0 ** -rng.uniform(50, 60, size=40)
        problem = pose([views[0], DiagonalView(diagonal, eps=0)], 6, 0.1, [0.1, 0.0])
        Ls = [*kernels(views[:1], [0.1]), np.diag(diagonal)]
    assert not SwapTable.of(Subset.of(problem, np.arange(6))).source.coarse
    found = run(LocalSearch(problem, np.arange(6)))
    S = found.state.indices.tolist()
    assert best_allowed_swap(Ls, S, 0.1, Constraints()) <= reference.fair_score(Ls, S, 0.1) + 1e-9


@examples(60)
@given(SEEDS)
def test_a_look_in_float32_leads_to_the_same_swaps(seed):
    """Near-ties and duplicates included; scores are those of float64 in either case."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(20, 60)), int(rng.integers(2, 12))
    views = cases.random_views(rng, n, [6, 9])
    views = [np.vstack([view, view[:5], view[:5] * (1.0 + 1e-7)]) for view in views]
    problem = pose(views, k, 0.1, [0.3, 0.5], block=int(rng.integers(1, 30)))
    subset = Subset.of(problem, rng.permutation(n)[:k])
    looks: dict[tuple[float, bool, float], object] = {}
    for work in (np.inf, 0.0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ties_module, "_LITTLE_WORK", work)
            for keep in (True, False):
                table = SwapTable.of(subset, keep=keep)
                assert table.source.coarse == (work == 0.0)
                for above in (-np.inf, subset.value):
                    looks[work, keep, above] = best_swaps(table, above=above).moves()
    for keep in (True, False):
        for above in (-np.inf, subset.value):
            assert looks[0.0, keep, above] == looks[np.inf, keep, above]


@pytest.mark.parametrize("seed", range(8))
def test_a_search_in_float32_ends_where_one_in_float64_does(seed, any_size_in_float32, monkeypatch):
    rng = np.random.default_rng(seed)
    views = cases.random_views(rng, 80, [10, 14])
    problem, start = pose(views, 9, 0.1, [0.3, 0.5]), rng.permutation(80)[:9]
    coarse = run(LocalSearch(problem, start))
    monkeypatch.setattr(ties_module, "_LITTLE_WORK", np.inf)
    exact = run(LocalSearch(problem, start))
    assert coarse.state.indices.tolist() == exact.state.indices.tolist()
    assert coarse.status is exact.status is Status.LOCAL_OPTIMUM


def test_tables_in_float32_stay_within_their_error(any_size_in_float32):
    rng = np.random.default_rng(1)
    views = cases.random_views(rng, 40, [10, 14])
    problem = pose(views, 8, 0.1, [0.3, 0.5])
    table = SwapTable.of(Subset.of(problem, rng.permutation(40)[:8]))
    for _ in range(12):
        table = table.after(random_moves(rng, table.subset, 1), reuse=True)
        assert table.joined.dtype == np.float32
        v, c = reference.swap_responses(
            list(zip(kernels(views, [0.3, 0.5]), [0.3, 0.5], strict=True)),
            table.subset.indices.tolist(),
        )
        pivots = np.stack([np.diagonal(B) for B in table.subset.inverses])
        exact = np.log(c[:, :, None] * pivots + v**2)
        found = np.log(table.aligned[1][:, :, None] * pivots + table.aligned[0] ** 2)
        outside = np.setdiff1d(np.arange(40), table.subset.indices)
        assert np.abs(exact - found)[outside].max() <= table.error
    assert table.age > 1


def test_a_small_ridge_is_not_for_float32(any_size_in_float32):
    rng = np.random.default_rng(1)
    problem = pose(cases.random_views(rng, 40, [10, 14]), 8, 0.1, [1e-4, 0.5])
    assert not SwapTable.of(Subset.of(problem, np.arange(8))).source.coarse


# --- Which swaps need a logarithm -----------------------------------------------------------------


@examples(300)
@given(SEEDS)
def test_no_swap_that_exceeds_the_value_is_discarded(seed):
    """Whatever the ratios: tiny, huge, zero, or such that the value is reached exactly."""
    rng = np.random.default_rng(seed)
    M, k = int(rng.integers(1, 5)), int(rng.integers(1, 30))
    tau = float(rng.choice([1e-3, 0.05, 1.0, math.inf]))
    floors = rng.standard_normal(M) if rng.random() < 0.3 else None
    standing = Standing(k * rng.standard_normal(M), 0.3 * rng.standard_normal(M), k, tau, floors)
    log_ratios = rng.standard_normal((M, 200)) * 10.0 ** rng.uniform(-8, 1, size=200)
    reached = standing.fair_scores(log_ratios)
    here = float(standing.fair_scores(np.zeros(M)))
    rise = rise_of(standing, np.exp(log_ratios))
    for value in (here, here + 1e-10, here - 0.1, here + 0.1, *reached[:5]):
        kept = rise > standing.needed_rise(value - 1e-10)
        assert kept[reached > value].all()


def test_most_hopeless_swaps_are_discarded():
    """Otherwise the test above would be passed by keeping everything."""
    standing = Standing(np.array([1.0, 2.0]), np.zeros(2), 4, 0.1)
    here = float(standing.fair_scores(np.zeros(2)))
    rise = rise_of(standing, np.array([[0.5, 1.0, 1.0, 2.0], [0.5, 1.0, 0.9, 2.0]]))
    kept = rise > standing.needed_rise(here + 1e-6)
    assert kept.tolist() == [False, False, False, True]


def rise_of(standing: Standing, ratios: np.ndarray) -> np.ndarray:
    """Swaps for one slot with these ratios (M, m), a third of them for the sake of v."""
    c = (ratios / 3.0).T
    v = np.sqrt(2.0 * ratios / 3.0).T[:, :, None]
    return standing.rise(Block(0, len(v), ()), v, c, np.ones((len(ratios), 1)))[:, 0]


# --- Where the search ends ------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("seed", range(3))
def test_the_search_ends_where_no_swap_improves(seed, storage):
    rng = np.random.default_rng(seed)
    problem, Ls, _ = posed(rng, storage, n=40, k=9)
    outcome = run(LocalSearch(problem, rng.permutation(40)[:9]))
    assert outcome.status is Status.LOCAL_OPTIMUM
    S = outcome.state.indices.tolist()
    F = reference.fair_score(Ls, S, 0.1)
    assert outcome.state.value == pytest.approx(F, abs=1e-10)
    assert reference.swap_values(Ls, S, 0.1).max() <= F + 1e-6
    assert outcome.state.swaps > 2


@examples(25)
@given(SEEDS)
def test_the_search_ends_where_no_allowed_swap_improves(seed):
    rng = np.random.default_rng(seed)
    rules = random_rules(rng, 14, 5)
    problem, Ls, _ = posed(rng, "mixed", n=14, k=5, rules=rules)
    outcome = run(LocalSearch(problem, rules.best_set(rng.standard_normal(14), 5)))
    S = outcome.state.indices.tolist()
    F = reference.fair_score(Ls, S, 0.1)
    assert best_allowed_swap(Ls, S, 0.1, rules) <= F + 1e-6


def with_floors(problem: Problem, floors: list[float]) -> Problem:
    return Problem(
        problem.pool, problem.k, problem.tau, problem.calibration, floors=np.array(floors)
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_floor_that_can_be_met_is_met(seed):
    """The search pays any price in F for a view that is below its floor."""
    rng = np.random.default_rng(seed)
    problem, Ls, _ = posed(rng, "dense", n=16, k=4)
    free = run(LocalSearch(problem, np.arange(4))).state.indices
    floor = reference.subset_score(Ls[2], free) + 0.05
    alone = run(LocalSearch(problem.over(problem.pool.only("view2")), np.arange(4))).state
    assert alone.value > floor
    held = with_floors(problem, [-math.inf, -math.inf, floor])
    outcome = run(LocalSearch(held, alone.indices))
    S = outcome.state.indices.tolist()
    assert reference.subset_score(Ls[2], S) >= floor - 1e-9
    start = reference.fair_score(Ls, alone.indices, 0.1)
    assert reference.fair_score(Ls, S, 0.1) >= start - 1e-9


def test_a_goal_ends_the_search_early():
    problem, _, _ = posed(np.random.default_rng(5), "dense", n=40, k=9)
    whole = run(LocalSearch(problem, np.arange(9)))
    goal = whole.trace[1].objective
    assert goal < whole.state.value
    early = run(LocalSearch(problem, np.arange(9), goal=goal))
    assert early.status is Status.TARGET
    assert early.state.value >= goal
    assert early.state.passes < whole.state.passes
    assert indices(*early.state.indices).tolist() != list(range(9))


@pytest.mark.parametrize("eps", [1.0, 1e-6, 1e-13])
def test_a_table_is_updated_where_rounding_allows_it(eps, monkeypatch):
    """It grows from update to update: beside a small ridge the table is made anew."""
    monkeypatch.setattr(table_module, "worth_float32", lambda _: False)
    rng = np.random.default_rng(4)
    problem = pose([rng.standard_normal((40, 9))], 8, 0.1, [eps])
    table = SwapTable.of(Subset.of(problem, rng.permutation(40)[:8]))
    assert not table.subset.strained.any()
    assert (ties_module.blur(problem, 8) <= problem.tolerances.gain) == (eps == 1.0)
    moves = random_moves(rng, table.subset, 1)
    assert table.after(moves).age == (eps == 1.0)


def test_a_strained_set_has_its_table_made_anew(monkeypatch):
    monkeypatch.setattr(table_module, "worth_float32", lambda _: False)
    monkeypatch.setattr(table_module, "blur", lambda *_: 0.0)
    rng = np.random.default_rng(4)
    views = [rng.standard_normal((40, 9)), rng.standard_normal((40, 9))]
    for eps, age in (([1.0, 1.0], 1), ([1.0, 1e-7], 0)):
        posed_here = pose(views, 12, 0.1, eps)
        table = SwapTable.of(Subset.of(posed_here, np.arange(12)))
        assert table.subset.strained.any() == (not age)
        assert table.after(random_moves(rng, table.subset, 1)).age == age


def test_how_far_a_table_in_float32_may_be_off():
    """Rounding of products with the inverse, where that is more than what float32 makes of rows;
    and the inverse magnifies it."""
    rng = np.random.default_rng(5)
    views = [rng.standard_normal((40, 9)).astype(np.float32), 3.0 * rng.standard_normal((40, 5))]
    for k in (1, 4, 39):
        problem = pose(views, k, 0.1, [0.5, 0.02])
        own = zip(views, [0.5, 0.02], strict=True)
        ratio = max((view**2).sum(axis=1).max() / e for view, e in own)
        product = 2.0 * SURE * math.sqrt(k) * 2.0**-24 * ratio
        expected = max(ties_module.coarse_error(problem), product) * (1.0 + math.sqrt(ratio))
        assert table_module.swap_error(problem) == pytest.approx(expected, rel=1e-6)
