"""Ranks of scores where ties go by position, and what counts as tied."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnepv.objective import soft_min_weights, steepness
from fairnepv.search.ties import (
    blur,
    blurs,
    coarse_error,
    lost_below_zero,
    lowest_tied,
    ranked,
    rounding,
    set_rounding,
    steepest_weights,
    tie_groups,
    worth_coarse,
)
from search_problems import pose


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=400),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.integers(1, 60),
)
def test_the_first_ranks_are_those_of_all_scores(values, tie, first):
    scores = np.array(values, dtype=float) * 1.5
    everything = ranked(scores, tie)
    some = ranked(scores, tie, first)
    assert len(some) >= min(first, len(scores))
    np.testing.assert_array_equal(some, everything[: len(some)])


def test_others_are_not_sorted():
    scores = np.random.default_rng(0).random(10_000)
    assert len(ranked(scores, 1e-10, 20)) == 20


@given(
    st.lists(st.tuples(st.floats(-2, 2), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5),
    st.sampled_from([0.003, 0.02, 0.5, np.inf]),
)
def test_no_weight_exceeds_the_steepest_on_the_way(views, tau):
    """Totals that rise by a part of what they may at most; it is attained."""
    d, most, part = np.array(views).T
    steepest = steepest_weights(d, most, tau)
    assert (soft_min_weights(d + part * most, tau) <= steepest + 1e-12).all()
    for q in range(len(d)):
        alone = d + most * (np.arange(len(d)) != q)
        assert abs(soft_min_weights(alone, tau)[q] - steepest[q]) < 1e-9


# --- what rounding may hide -----------------------------------------------------------------------


def plain(norms, eps, coarse=0.0, looks=0.0, lack=0.0, work=1e9, floors=None):
    """As much of a problem as these questions ask for, with a view for each norm."""
    views = [
        SimpleNamespace(ridge=e, coarse_error=c, look_error=look, lack=lambda margin, own=own: own)
        for e, c, look, own in zip(
            *(np.broadcast_to(part, len(norms)).tolist() for part in (eps, coarse, looks, lack)),
            strict=True,
        )
    ]
    ridges = np.broadcast_to(np.array(eps, dtype=float), len(norms))
    pool = SimpleNamespace(views=views, eps=ridges, largest_norms=np.array(norms, dtype=float))
    return SimpleNamespace(pool=pool, floors=floors, work=lambda: work)


def test_rounding_grows_with_the_longest_row_beside_the_ridge():
    u = np.finfo(np.float64).eps
    norms, eps = np.array([3.0, 8.0]), np.array([0.1, 4.0])
    assert rounding(norms, eps, 1) == pytest.approx(16.0 * u * 30.0, rel=1e-12, abs=0.0)
    assert rounding(norms, eps, 5) == pytest.approx(16.0 * u * 6.0, rel=1e-12, abs=0.0)
    assert rounding(norms[1:] / 1e3, eps[1:], 1) == pytest.approx(0.032 * u, rel=1e-12, abs=0.0)
    assert rounding(norms, np.zeros(2), 1) == np.inf
    assert rounding(norms[:0], eps[:0], 1) == 0.0


def test_scores_of_larger_sets_are_surer_and_no_blur_is_wider_than_a_thousandth():
    rng = np.random.default_rng(0)
    views = [rng.standard_normal((9, 3)), 20.0 * rng.standard_normal((9, 4))]
    problem = pose(views, 3, 0.1, [1e-3, 1e-3])
    longest = max((Phi**2).sum(axis=1).max() for Phi in views) / 1e-3 + 1.0
    sure = steepness(problem) * 16.0 * np.finfo(np.float64).eps * longest
    found = blurs(problem, np.array([1, 2, 4]))
    np.testing.assert_allclose(found, sure / np.array([1, 2, 4]), rtol=1e-3)
    assert blur(problem, 4) == found[2]
    steep = pose(views, 3, 0.1, [1e-13, 1e-13])
    assert blur(steep, 1) == 1e-3


def test_a_view_without_a_ridge_says_nothing_of_rounding():
    pool = SimpleNamespace(eps=np.array([0.0, 0.5]), largest_norms=np.array([9.0, 2.0]))
    problem = SimpleNamespace(pool=pool, priorities=None, floors=None, tau=0.1, lifts=np.zeros(2))
    expected = steepness(problem) * 64.0 * np.finfo(np.float64).eps
    assert blur(problem, 1) == pytest.approx(expected, rel=1e-9, abs=0.0)


def test_what_a_rounded_kernel_lacks_moves_determinants():
    lacking = plain([4.0, 2.0], [0.5, 0.25], lack=[0.05, 0.05]).pool
    assert lost_below_zero(lacking) == pytest.approx(-np.log1p(-0.2))
    assert lost_below_zero(plain([4.0], [0.5]).pool) == 0.0
    assert lost_below_zero(plain([4.0], [0.5], lack=0.5).pool) == np.inf
    assert lost_below_zero(plain([4.0], [0.5], lack=0.9).pool) == np.inf
    # Beside ridges that are asked for, and those of the views.
    problem, eps = plain([4.0, 2.0], [0.5, 0.25], lack=[0.05, 0.05]), np.array([1e-9, 1.0])
    expected = rounding(problem.pool.largest_norms, eps, 1) - np.log1p(-0.2)
    assert set_rounding(problem, eps) == pytest.approx(expected, rel=1e-12)


def test_how_far_float32_may_be_off():
    problem = plain([4.0, 2.0], [0.5, 0.1], coarse=[1e-6, 2e-6], looks=[1e-7, 5e-8])
    assert coarse_error(problem) == pytest.approx(2.0 * 2e-6 * 20.0, rel=1e-12, abs=0.0)
    assert coarse_error(problem, looks=True) == pytest.approx(2e-6, rel=1e-12, abs=0.0)
    assert coarse_error(plain([4.0], [0.0], coarse=1e-6)) == 0.0  # without a ridge
    assert coarse_error(plain([4.0], [0.5], coarse=1e-6, floors=np.zeros(1))) == np.inf
    assert coarse_error(plain([1.1e30], [1e25])) == coarse_error(plain([1.0], [0.9e-30])) == np.inf
    assert coarse_error(plain([1e30], [1e-30])) == 0.0


def test_float32_is_looked_in_where_it_is_quicker_and_good_enough():
    mixed = plain([1.0, 1.0], [1.0, 1.0], coarse=[2.0**-40, 2.0**-20])
    assert worth_coarse(mixed, 0.02)
    assert not worth_coarse(mixed, 0.0201)
    assert not worth_coarse(plain([1.0], [1.0], coarse=2.0**-31), 0.0)
    assert worth_coarse(plain([1.0], [1.0], coarse=2.0**-29), 0.0)
    assert not worth_coarse(plain([1.0], [1.0], coarse=2.0**-20, work=1e8), 0.0)


def test_the_first_of_what_is_tied_with_the_best():
    scores = np.array([0.0, 1.0, 1.5, 1.25])
    assert lowest_tied(scores, 0.5) == 1
    assert lowest_tied(scores, 0.4) == 2
    assert tie_groups(scores, 0.25).tolist() == [1, 0, 0, 0]
    assert tie_groups(scores, 0.2).tolist() == [3, 2, 0, 1]


def test_a_long_run_of_near_scores_is_one_tie():
    scores = 0.9 * np.arange(300.0)[np.random.default_rng(0).permutation(300)]
    assert ranked(scores, 1.0, 2).tolist() == list(range(300))
    scores[scores > 200.0] += 5.0
    best = np.flatnonzero(scores > 200.0)
    assert ranked(scores, 1.0, 2)[: len(best)].tolist() == best.tolist()
