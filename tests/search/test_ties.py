"""Ranks of scores where ties go by position."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairnepv.search.ties import ranked


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
