"""What becomes of a bound that is interrupted, and what a run of its solver reports."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cases
import reference
from fairnepv import DiagonalView, InputError, Status
from fairnepv.compute import clock
from fairnepv.concave import bounds as bounds_module
from fairnepv.concave import certify
from fairnepv.concave.bounds import Solved, _notes, _notes_apart, _proven_in_time, view_bound
from fairnepv.concave.bounds import refuse_unreachable_floors as refuse
from fairnepv.concave.certificate import read_certificate
from fairnepv.concave.concave import Concave
from fairnepv.concave.dual import Dual, price
from fairnepv.loop import MOMENT, Context, run
from search_problems import case_kernels, pose, pose_case


def seconds_for_a_proof(proven, stopped):
    """How much time a solver is given for its last pass."""
    given = []

    def prove(state):
        given.append((clock.left(), state))
        return state

    solver, context = SimpleNamespace(prove=prove), SimpleNamespace(stopped=stopped)
    state: Any = SimpleNamespace(proven=proven)
    assert _proven_in_time(solver, state, context) is state
    ((seconds, seen),) = given
    assert seen is state
    return seconds


@pytest.mark.parametrize("stopped", [None, Status.TIME_LIMIT])
def test_a_bound_is_proven_however_long_that_takes(stopped):
    assert seconds_for_a_proof(False, stopped) == math.inf


def test_after_an_interruption_there_is_a_moment_for_it():
    assert 0 < seconds_for_a_proof(False, Status.INTERRUPTED) <= MOMENT
    assert seconds_for_a_proof(True, Status.INTERRUPTED) == math.inf  # which takes none


def test_what_cannot_be_proven_in_a_moment_is_not():
    def prove(state):
        raise clock.OutOfTime

    solver, context = SimpleNamespace(prove=prove), SimpleNamespace(stopped=Status.INTERRUPTED)
    assert _proven_in_time(solver, SimpleNamespace(proven=False), context) is None


def test_a_solver_reports_its_value_its_gap_and_what_is_proven():
    views = cases.random_views(np.random.default_rng(0), 40, [6, 5])
    problem = pose(views, 6, 0.05, [0.1, 0.1])
    solver = Concave(problem, gap=1e-4)
    state = solver.init()
    assert solver.report(state) == {"objective": state.value, "tol": 1e-4, "support": 40}
    end = run(Concave(problem, gap=1e-4)).state
    found = solver.report(end)
    assert end.proven
    assert found["objective"] == end.value
    assert found["residual"] == max(end.bound - end.value, 0.0) <= 1e-4
    assert found["bound"] == end.bound


# --- shares of the time ---------------------------------------------------------------------------


class Shared(Context):
    """Notes which share of the time that is left every stage gets."""

    def __init__(self):
        super().__init__()
        self.parts = []

    def share(self, part):
        self.parts.append(part)
        return super().share(part)


def views(count, n=30):
    return cases.random_views(np.random.default_rng(1), n, [5, 6, 4][:count])


def test_views_share_what_the_joint_bound_leaves_evenly_and_spectral_bounds_get_as_much():
    context = Shared()
    certify(pose(views(3), 4, 0.1, [0.1] * 3), session=context)
    apart = [part for part in context.parts if part not in (0.4, 0.7)]
    assert apart == [1 / 4, 1 / 3, 1 / 2]
    alone = Shared()
    certify(pose(views(1), 4, 0.1, [0.1]), session=alone)
    assert alone.parts == [0.7]


# --- floors ---------------------------------------------------------------------------------------


def floored(problem, *floors):
    """Under priorities that are all one, floors stand for scores themselves."""
    return replace(problem, floors=np.array(floors))


@pytest.fixture(scope="module")
def case():
    return cases.SMALL[0]


@pytest.fixture(scope="module")
def best_of_views(case):
    problem = pose_case(case)
    return [view_bound(problem, name).bound for name in problem.pool.names]


def test_floors_within_reach_are_left_to_the_search(case):
    Ls = case_kernels(case)
    _, (S, *_) = reference.exhaustive(Ls, case.k, case.tau)
    refuse(floored(pose_case(case), *(reference.subset_scores(Ls, S) - 1e-6)), Context())
    refuse(pose_case(case), Context())


def test_a_floor_above_the_bound_of_its_view_is_refused_by_name(case, best_of_views):
    problem = pose_case(case)
    M = len(problem.pool.names)
    for q, name in enumerate(problem.pool.names):
        floors = np.full(M, -np.inf)
        floors[q] = best_of_views[q] - 1e-6
        refuse(floored(problem, *floors), Context())
        floors[q] = best_of_views[q] + 1e-6
        with pytest.raises(InputError, match=f"of view '{name}' cannot be reached"):
            refuse(floored(problem, *floors), Context())


def test_floors_that_no_set_reaches_together_are_refused():
    """What one view has much of the other has little of: a set of both has half of either."""
    values = np.array([9.0, 9.0, 1.0, 1.0])
    problem = pose([DiagonalView(values), DiagonalView(values[::-1])], 2, 0.1, [1e-9, 1e-9])
    half = math.log(9.0) / 2
    relaxed = math.log(5.0)  # of a half of every row
    refuse(floored(problem, half - 1e-3, half - 1e-3), Context())
    refuse(floored(problem, -np.inf, math.log(9.0) - 1e-3), Context())
    with pytest.raises(InputError, match="cannot be reached together"):
        refuse(floored(problem, relaxed + 0.01, relaxed + 0.01), Context())


def test_each_floor_gets_its_share_of_the_time():
    problem, context = pose(views(3), 4, 0.1, [0.1] * 3), Shared()
    refuse(floored(problem, -9.0, -np.inf, -9.0), context)
    assert [part for part in context.parts if part != 0.7] == [1 / 3, 1 / 2]


def test_what_cannot_be_proven_in_time_is_left_to_the_search(case, best_of_views):
    context = Context()
    context.stopped = Status.TIME_LIMIT
    refuse(floored(pose_case(case), *(np.array(best_of_views) + 9.0)), context)
    assert context.stopped is Status.TIME_LIMIT
    assert not context.notes


# --- what is said of a bound ----------------------------------------------------------------------

DUAL = Dual(np.ones(1), np.zeros(1, dtype=np.int64), ())


def solved(bound, value, status=Status.TIME_LIMIT, state="some"):
    return Solved(bound, DUAL, status, value, state)


def test_a_bound_that_converged_needs_no_note():
    assert _notes(solved(1.0, 0.9), Status.CONVERGED, 1e-3, "nats") == ()


@pytest.mark.parametrize(
    ("status", "because"),
    [
        (Status.TIME_LIMIT, "because time_limit ran out before|: time_limit ran out"),
        (Status.INTERRUPTED, "it was interrupted"),
        (Status.AFFORDED, "its solver stopped .AFFORDED."),
    ],
)
def test_else_it_is_said_why_and_by_how_much_it_may_be_too_high(status, because):
    (note,) = _notes(solved(1.25, 0.9), status, 1e-3, "nats")
    assert "could lower it by up to 0.35 nats" in note
    assert "before the gap was 0.001" in note
    (bare,) = _notes(solved(1.25, -np.inf, state=None), status, 1e-3, "nats")
    assert "only what the lengths of the rows prove" in bare
    for text in (note, bare):
        assert any(part in text.replace("(", ".").replace(")", ".") for part in because.split("|"))


def test_of_views_alone_those_are_named_that_are_far_off():
    own = {"a": solved(1.0, 0.995), "b": solved(1.0, 0.7), "c": solved(1.0, -np.inf)}
    (note,) = _notes_apart(own, 0.01)
    assert "'b' alone is proven, but may be 0.3 too high" in note
    assert _notes_apart({"b": own["b"]}, 0.01) == ()  # which is said of the joint bound


def test_what_no_solver_reached_begins_with_the_largest_rows():
    problem = pose(views(2), 4, 0.1, [0.1, 0.1])
    rows, x = solved(1.0, 0.4, state=None).point(problem)
    norms = sum(own / own.max() for own in problem.pool.squared_norms.T)
    assert rows.tolist() == sorted(np.argsort(-norms)[:4].tolist())
    assert x.tolist() == [1.0] * 4
    state = SimpleNamespace(rows="rows", x="x")
    assert solved(1.0, 0.9, state=state).point(problem) == ("rows", "x")


def test_an_interruption_is_passed_on_where_nobody_else_hears_of_it(monkeypatch):
    """A session of the caller's is told instead, and has what the norms prove."""
    problem = pose(views(2), 4, 0.1, [0.1, 0.1])

    def step(self, state):
        raise KeyboardInterrupt

    monkeypatch.setattr(Concave, "step", step)
    with pytest.raises(KeyboardInterrupt):
        bounds_module._solve(problem, 1e-3, None)
    context = Context()
    found = bounds_module._solve(problem, 1e-3, context)
    assert context.stopped is Status.INTERRUPTED
    assert found.status is Status.INTERRUPTED
    assert found.bound >= found.value


def test_a_certificate_says_how_far_its_bound_may_be_off():
    problem = pose(views(2), 4, 0.1, [0.1, 0.1])
    found = certify(problem, gap=1e-4)
    assert found.status is Status.CONVERGED
    assert 0.0 <= found.duality_gap <= 1e-4
    joint = bounds_module._solve(problem, 1e-4, None)
    assert found.duality_gap == pytest.approx(max(found.upper_bound - joint.value, 0.0), abs=1e-12)
    assert found.upper_bound <= joint.bound
    assert found.support.tolist() == joint.point(problem)[0].tolist()
    assert found.relaxed.tolist() == joint.point(problem)[1].tolist()


# --- what calibration has proven ------------------------------------------------------------------


@pytest.mark.parametrize(("proven", "again"), [(0.5e-3, False), (1e-3, False), (2e-3, True)])
def test_what_calibration_has_proven_of_a_view_is_enough_where_it_is_near_nothing(
    proven, again, monkeypatch
):
    """After it no view reaches more than nothing; else the view is solved for."""
    problem, seen = pose(views(1), 4, 0.1, [0.1]), []
    (name,) = problem.pool.names
    evidence = replace(problem.calibration, evidence={name: DUAL})
    monkeypatch.setattr(bounds_module, "proven", lambda alone, dual: proven)
    monkeypatch.setattr(bounds_module, "diagonal_bound", lambda *_: 9.0)

    def solve(*given, **options):
        seen.append(given)
        return solved(0.7, 0.6)

    monkeypatch.setattr(bounds_module, "_solve", solve)
    found = view_bound(replace(problem, calibration=evidence), name, gap=1e-3)
    assert bool(seen) == again
    assert found.bound == (0.7 if again else proven)
    if not again:
        assert (found.dual, found.status, found.value) == (DUAL, Status.CONVERGED, 0.0)
    stopped = Context()
    stopped.stopped = Status.TIME_LIMIT
    seen.clear()
    view_bound(replace(problem, calibration=evidence), name, gap=1e-3, session=stopped)
    assert seen  # which says what norms prove


def test_what_lots_reach_is_their_mean():
    found = certify(pose(views(2), 4, 0.1, [0.1, 0.1]))
    assert found.random_score is None
    assert replace(found, random_scores=(1.0, 2.0, 6.0)).random_score == 3.0


def test_what_could_not_be_proven_in_a_moment_leaves_what_norms_prove(monkeypatch):
    problem = pose(views(2), 4, 0.1, [0.1, 0.1])
    monkeypatch.setattr(bounds_module, "_proven_in_time", lambda *_: None)
    context = Context()
    context.stopped = None
    found = bounds_module._solve(problem, 1e-3, context)
    assert found.state is None
    assert found.bound == price(problem, Dual.by_norms(problem)).bound
    assert found.status is Status.TIME_LIMIT


# --- what is stored of a certificate --------------------------------------------------------------


def stored(found):
    return json.loads(json.dumps(found.stored))


def test_a_certificate_survives_its_way_through_text_and_arrays():
    found = certify(pose(views(2), 4, 0.1, [0.1, 0.1]))
    found = replace(found, notes=("a", "b"), random_scores=(0.5, 0.25), status=Status.AFFORDED)
    read = read_certificate(stored(found), dict(found.arrays))
    assert read.stored == found.stored
    assert read.by_view == found.by_view
    assert read.upper_bound == found.upper_bound
    assert read.support.tolist() == found.support.tolist()
    assert read.relaxed.tolist() == found.relaxed.tolist()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("notes", ["a", 1]),
        ("ranks", {"view0": 5, "view1": 2.5}),
        ("ranks", {"view0": 5}),
        ("rules", {"view0": "trace", "view1": "other"}),
        ("weights", {"view0": 1.0}),
        ("spectral_bound", "1.0"),
        ("status", 3),
        ("random_scores", [None]),
    ],
)
def test_what_is_not_of_its_type_is_refused(name, wrong):
    found = certify(pose(views(2), 4, 0.1, [0.1, 0.1]))
    read_certificate(stored(found), dict(found.arrays))
    with pytest.raises((ValueError, KeyError)):
        read_certificate({**stored(found), name: wrong}, dict(found.arrays))


@pytest.mark.parametrize("support", [[0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 30], [-1, 0, 1, 2]])
def test_a_solution_on_rows_that_are_none_is_refused(support):
    found = certify(pose(views(2), 4, 0.1, [0.1, 0.1]))
    arrays = dict(found.arrays)
    whole = {**arrays, "support": np.arange(4), "relaxed": np.ones(4)}
    assert read_certificate(stored(found), dict(whole)).support.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="none of its pool"):
        read_certificate(stored(found), {**whole, "support": np.array(support)})
