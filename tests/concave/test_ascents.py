"""How ascents of the relaxation end, what they count, and when the relaxation of a node is left."""

import numpy as np
import pytest

import cases
from fairnepv.concave import topk as topk_module
from fairnepv.concave.topk import TopK, climb, price_candidates
from fairnepv.objective import HeldRows, Standing
from fairnepv.problem import Constraints

EPS, TAU, K = 0.1, 0.05, 4


@pytest.fixture
def rows():
    views = cases.clustered_views(np.random.default_rng(3), 30, [6, 5], 6)
    return tuple(HeldRows(EPS, (Phi**2).sum(axis=1), kernel=Phi @ Phi.T) for Phi in views)


@pytest.fixture
def relaxed(rows):
    return TopK(rows, np.zeros(2), TAU, K, K, Constraints())


@pytest.fixture
def evaluations(monkeypatch):
    made, real = [], TopK.at

    def at(self, x, origin=None):
        made.append(x)
        return real(self, x, origin)

    monkeypatch.setattr(TopK, "at", at)
    return made


@pytest.mark.parametrize("most", [1, 3, 40])
def test_evaluations_are_counted_and_no_more_are_made_than_are_allowed(most, relaxed, evaluations):
    start = relaxed.at(relaxed.start())
    evaluations.clear()
    found = climb(start, 1.0, 1e-9, most)
    assert found.evaluations == len(evaluations) <= most
    assert found.point.value >= start.value
    assert found.tightest.bound <= start.bound
    assert found.tightest.bound >= found.point.value - 1e-12


def test_it_ends_as_soon_as_the_bound_is_near_enough(relaxed, evaluations):
    start = relaxed.at(relaxed.start())
    tight = climb(start, 1.0, 1e-6, 200)
    assert tight.tightest.bound - tight.point.value <= 1e-6
    loose = climb(start, 1.0, 0.05, 200)
    assert 0 < loose.evaluations < tight.evaluations < 200
    assert climb(start, 1.0, start.bound - start.value, 200).evaluations == 0
    assert climb(tight.tightest, 1.0, 1e-5, 200).evaluations == 0


def test_where_no_step_helps_none_is_made(relaxed):
    start = relaxed.at(relaxed.start())
    assert climb(start, 0.0, 1e-9, 200) == (start, start, 0.0, 0)


def test_mixing_past_points_shortens_the_way(relaxed, monkeypatch):
    start = relaxed.at(relaxed.start())
    mixed = climb(start, 1.0, 1e-6, 1000).evaluations
    monkeypatch.setattr(topk_module, "_MEMORY", 1)
    plain = climb(start, 1.0, 1e-6, 1000).evaluations
    assert mixed < 0.8 * plain


def priced(rows, best, sure=1e-9):
    standing = Standing(np.zeros(2), np.zeros(2), K, TAU)
    prices, constant = price_candidates(rows, standing, K, best, sure)
    return constant + np.sort(prices)[-K:].sum()


def test_the_relaxation_of_a_node_is_left_once_its_bound_says_enough(rows, relaxed, evaluations):
    first = relaxed.at(relaxed.start())
    solved = climb(first, 1.0, 1e-7, 500)
    bound, value = solved.tightest.bound, solved.point.value
    evaluations.clear()
    assert priced(rows, first.bound + 1e-6) == pytest.approx(first.bound)
    assert len(evaluations) == 1
    # A set that is better by less than `sure` is not looked for.
    assert priced(rows, first.bound - 1e-3, 2e-3) == pytest.approx(first.bound)
    assert len(evaluations) == 2
    # What can be shown with some more work is shown, and no more than that.
    between = bound + 0.3 * (first.bound - bound)
    evaluations.clear()
    assert bound <= priced(rows, between) <= between
    some = len(evaluations)
    assert 1 < some <= topk_module._EVALUATIONS
    # Where the value itself is far above, nothing is to be had.
    evaluations.clear()
    assert priced(rows, value - 10.0) <= first.bound
    assert len(evaluations) <= some + 1


def test_the_bound_of_a_node_never_exceeds_that_of_the_flattest_point(rows, relaxed):
    first = relaxed.at(relaxed.start())
    for best in np.linspace(first.value - 1.0, first.bound, 9):
        assert priced(rows, float(best)) <= first.bound + 1e-12
