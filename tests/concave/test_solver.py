"""The parts of the bound's solver: how precisely T is solved, what joins it, and what is proven
where float32 has misled it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import cases
from fairnepv.concave import concave as concave_module
from fairnepv.concave import costs
from fairnepv.concave.concave import Concave, _expected_x
from fairnepv.loop import run
from fairnepv.problem import Constraints
from search_problems import indices, pose, representative

GAP = 1e-3


@pytest.fixture
def problem():
    views = cases.clustered_views(np.random.default_rng(2), 60, [6, 5], 8, spread=0.4)
    return pose(views, 5, 0.05, [0.1, 0.1])


def state_of(rows, passes, gap):
    return SimpleNamespace(rows=rows, passes=passes, gap=gap)


def test_T_is_solved_as_precisely_as_it_is_going_to_matter(problem):
    """Everything to the end; a first sample to what it misses anyway; later ones to a part of what
    the last one missed."""
    solver, everything = Concave(problem, gap=GAP), np.arange(60)
    some = everything[::2]
    wanted = 0.7 * GAP
    assert solver._precision(everything, state_of(everything, 0, np.inf)) == wanted
    assert solver._precision(some, state_of(some, 0, np.inf)) == 0.04
    assert solver._precision(some, state_of(everything, 3, 0.1)) == 0.25 * 0.1
    assert solver._precision(some, state_of(some, 3, 1e-3)) == wanted
    shut = pose(problem.pool.views, 5, 0.05, [0.1, 0.1], rules=Constraints(fixed_out=indices(7, 9)))
    open_rows = np.setdiff1d(everything, [7, 9])
    alone = Concave(shut, gap=GAP)
    assert alone._precision(open_rows, state_of(open_rows, 0, np.inf)) == wanted


def test_where_rows_are_cheap_and_T_is_full_there_is_no_later(problem, monkeypatch):
    solver = Concave(representative(problem), gap=GAP)
    rows = np.arange(60)
    assert solver._precision(rows, state_of(rows, 3, 0.1)) == 0.7 * GAP
    assert solver._precision(rows, state_of(rows[1:], 3, 0.1)) == 0.25 * 0.1
    few = rows[:20]
    assert solver._precision(few, state_of(few, 3, 0.1)) == 0.25 * 0.1


def test_rows_that_join_get_what_is_usual_at_their_price():
    rng = np.random.default_rng(0)
    prices = np.sort(rng.random(200))
    x = prices**2 * 0.4
    joining = np.array([0.05, 0.3, 0.5, 0.9])
    found = _expected_x(prices, x, joining)
    np.testing.assert_allclose(found, joining**2 * 0.4, atol=0.02)
    assert (np.diff(found) > 0).all()
    # A price that is dearer than any is worth no more, and none is worth all or nothing.
    assert _expected_x(prices, x, np.array([9.0]))[0] == pytest.approx(x[-10:].mean())
    assert _expected_x(prices, np.ones(200), joining).tolist() == [0.5] * 4
    bare = _expected_x(prices, np.where(prices > 0.99, 1.0, 0.0), np.array([0.1]))
    assert bare[0] == pytest.approx(1e-3 * (prices > 0.99).mean())
    # Where a dearer row of T has less, that is an accident.
    dented = np.where((prices > 0.4) & (prices < 0.6), 0.0, x)
    assert (np.diff(_expected_x(prices, dented, np.linspace(0.1, 0.9, 30))) >= 0).all()
    assert _expected_x(np.array([1.0]), np.array([0.3]), np.array([1.0, 2.0])).tolist() == [0.3] * 2


def misled(problem, monkeypatch, bounds):
    """What a solver in float32 says of its best state where its dual variables prove `bounds`, one
    after the other."""
    monkeypatch.setattr(concave_module, "_float32_suffices", lambda *_: True)
    monkeypatch.setattr(costs, "_DENSE_COST", 0.0)
    state = Concave(problem, gap=GAP).step(Concave(problem, gap=GAP).init())
    assert not state.best_double
    state = replace(state, proven=False)
    solver, asked = Concave(problem, gap=GAP), []

    def prove(dual):
        asked.append(dual)
        return bounds[len(asked) - 1]

    monkeypatch.setattr(solver, "_prove", prove)
    dual, bound = solver._proving(state)
    return asked, dual, bound - state.bound


def test_what_float32_proves_is_taken_where_it_is_what_was_expected(problem, monkeypatch):
    state = Concave(problem, gap=GAP).step(Concave(problem, gap=GAP).init())
    asked, dual, _ = misled(problem, monkeypatch, [state.bound - 1.0, -np.inf])
    assert len(asked) == 1
    assert dual is asked[0]


@pytest.mark.parametrize("exact", [1.0, 3.0])
def test_else_the_better_of_its_proof_and_that_of_float64_is(exact, problem, monkeypatch):
    asked, dual, _ = misled(problem, monkeypatch, [1e3 + 2.0, 1e3 + exact])
    assert len(asked) == 2
    assert dual is asked[1 if exact < 2.0 else 0]
    assert asked[0].views[0].combine.tolist() != asked[1].views[0].combine.tolist()


def test_what_is_not_a_number_is_not_what_was_expected(problem, monkeypatch):
    asked, dual, _ = misled(problem, monkeypatch, [np.inf, 1e3])
    assert dual is asked[1]


@pytest.mark.parametrize("gap", [1e-4, 1e-2])
def test_steps_count_what_they_spend(problem, gap, monkeypatch):
    monkeypatch.setattr(costs, "_FIRST_ROWS", 20)
    monkeypatch.setattr(costs, "_DENSE_COST", 0.0)
    solver = Concave(problem, gap=gap)
    state = solver.init()
    assert (state.passes, state.evaluations, state.spent) == (0, 0, 0.0)
    while solver.done(state) is None:
        following = solver.step(state)
        more = following.evaluations - state.evaluations
        one = costs.evaluation_work(problem, len(following.rows), state.weights)
        assert 1 <= more <= concave_module._EVALUATIONS + 1
        assert following.spent - state.spent == pytest.approx(more * one)
        assert state.passes < following.passes <= state.passes + 2
        assert following.bound <= state.bound
        if following.double == state.double:
            hardly = following.gap > 0.98 * state.gap
            assert following.slow == (state.slow + 1 if hardly else 0)
        state = following
    assert state.gap <= gap


def test_steps_that_hardly_help_are_counted_in_a_row(problem, monkeypatch):
    solver = Concave(problem, gap=1e-9)
    state = solver.step(solver.init())
    for slow in (0, 3):
        for share, expected in ((1e-3, slow + 1), (0.9, 0)):
            monkeypatch.setattr(concave_module, "_SLOW", share)
            again = solver.step(replace(state, slow=slow))
            assert 1e-3 < again.gap / state.gap < 0.9
            assert again.slow == expected


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_a_budget_ends_it_with_a_proof(share, problem, monkeypatch):
    monkeypatch.setattr(costs, "_FIRST_ROWS", 20)
    monkeypatch.setattr(costs, "_DENSE_COST", 0.0)
    whole = run(Concave(problem, gap=1e-5)).state
    solver = Concave(problem, gap=1e-5, budget=share * whole.spent)
    cut = run(solver).state
    assert cut.stuck
    assert cut.proven
    assert cut.bound >= whole.value
    assert cut.evaluations < whole.evaluations
    assert cut.passes <= whole.passes


def test_a_state_says_whether_its_best_point_is_one_of_float64(problem, monkeypatch):
    """Also where the run had begun in float32, and where a later step proves less."""
    monkeypatch.setattr(concave_module, "_float32_suffices", lambda *_: True)
    monkeypatch.setattr(costs, "_DENSE_COST", 0.0)
    solver = Concave(problem, gap=1e-9)
    single = solver.step(solver.init())
    assert not single.best_double
    finer = replace(single, double=True, bound=np.inf)
    assert Concave(problem, gap=1e-9).step(finer).best_double
    worse = replace(finer, bound=-np.inf)
    for known in (False, True):
        kept = Concave(problem, gap=1e-9).step(replace(worse, best_double=known))
        assert kept.best_double == known
        assert kept.best_x is worse.best_x
    monkeypatch.setattr(concave_module, "_float32_suffices", lambda *_: False)
    assert Concave(problem, gap=1e-9).init().best_double


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("cheap", [True, False])
@pytest.mark.parametrize(("further", "share"), [(0.4, 10.0), (0.6, 10.0), (0.6, 0.1)])
def test_float32_is_given_up_where_it_misled_or_all_digits_are_cheap(
    further, share, cheap, single, problem, monkeypatch
):
    """And only where the gap that is wanted is not reached; the run goes on from there."""
    monkeypatch.setattr(concave_module, "_float32_suffices", lambda *_: single)
    monkeypatch.setattr(concave_module, "is_cheap", lambda *_: cheap)
    solver = Concave(problem, gap=GAP)
    state = replace(solver.step(solver.init()), proven=False, stuck=True, slow=3, double=not single)
    state = replace(state, bound=state.value + share * GAP - further * GAP)
    monkeypatch.setattr(solver, "_proving", lambda s: (None, s.bound + further * GAP))
    found = solver.prove(state)
    assert found.proven
    assert found.passes == state.passes + 1
    assert found.bound == pytest.approx(state.value + share * GAP)
    finer = share > 1 and single and (cheap or further > 0.5)
    if finer:
        assert (found.double, found.stuck, found.slow) == (True, False, 0)
    else:
        assert (found.double, found.stuck, found.slow) == (not single, True, 3)
