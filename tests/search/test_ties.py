"""Ranks of scores where ties go by position."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairnepv.objective import soft_min_weights
from fairnepv.search.ties import ranked, steepest_weights


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
