"""What becomes of a bound that is interrupted, and what a run of its solver reports."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import cases
from fairnepv import Status
from fairnepv.compute import clock
from fairnepv.concave.bounds import _proven_in_time
from fairnepv.concave.concave import Concave
from fairnepv.loop import MOMENT, run
from search_problems import pose


def seconds_for_a_proof(proven, stopped):
    """How much time a solver is given for its last pass."""
    given = []

    def prove(state):
        given.append(clock.left())
        return state

    solver, context = SimpleNamespace(prove=prove), SimpleNamespace(stopped=stopped)
    state = SimpleNamespace(proven=proven)
    assert _proven_in_time(solver, state, context) is state
    return given[0]


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
