"""A step of the bound's solver from a stored state is that of a run that was not interrupted."""

import pickle
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.inputs import pose
from fairnepv.concave.concave import Concave


def test_a_view_that_gains_weight_on_the_way_is_looked_at_alike_after_a_resumption() -> None:
    """At the start 'wide' hardly matters and is looked at crudely; on the way it gains weight and
    is factored, as its side is one that only crude looks are not factored at."""
    rng = np.random.default_rng(528)
    for choices in (3, 3, 2, 3):  # the pool by which it was found
        rng.choice(choices)
    topics = rng.integers(0, 200, 1500)
    data = {name: _rows(rng, topics, p) for name, p in (("narrow", 120), ("wide", 570))}
    factors = {"narrow": 3.808683202653129, "wide": 2.2008254556557167}
    problem = pose(data, 100, tau=0.01, eps=0.1, calibration=factors)
    solver = Concave(problem, gap=2e-3)
    state = solver.step(solver.init())
    assert solver.done(state) is None
    again = Concave(problem, gap=2e-3).step(pickle.loads(pickle.dumps(state)))
    expected = solver.step(state)
    np.testing.assert_array_equal(again.rows, expected.rows)
    np.testing.assert_array_equal(again.x, expected.x)
    assert (again.bound, again.value) == (expected.bound, expected.value)


def test_a_bound_of_float32_keeps_its_proof_where_that_was_given_up_later() -> None:
    """The best dual variables may be those of a step before float32 was found to be too coarse."""
    rng = np.random.default_rng(1)
    data = {name: rng.standard_normal((60, p)) for name, p in (("narrow", 5), ("wide", 40))}
    problem = pose(data, 4)
    solver = Concave(problem, gap=2e-3)
    state = solver.prove(solver.step(solver.init()))
    expected = solver.dual(state)
    assert not state.best_double
    later = pickle.loads(pickle.dumps(replace(state, double=True)))
    found = Concave(problem, gap=2e-3).dual(later)
    np.testing.assert_array_equal(found.weights, expected.weights)
    for own, other in zip(found.views, expected.views, strict=True):
        np.testing.assert_array_equal(own.combine, other.combine)


def _rows(rng: np.random.Generator, topics: NDArray[np.int64], p: int) -> NDArray[np.float32]:
    decay = rng.uniform(0.0, 1.0)
    X = rng.standard_normal((200, p))[topics] + 0.5 * rng.standard_normal((len(topics), p))
    X *= np.arange(1, p + 1) ** -decay
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
