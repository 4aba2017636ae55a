"""What searches refuse, and what they say then."""

import math

import numpy as np
import pytest

from fairnepv import InputError
from fairnepv.objective import subset_scores
from fairnepv.search import refuse_missed_floors
from fairnepv.search.effort import EFFORTS, check_effort
from fairnepv.search.enumeration import enumerate_subsets, misses_floors
from search_problems import indices, pose


def problem_with(floors):
    rng = np.random.default_rng(0)
    views = [rng.standard_normal((9, 3)), rng.standard_normal((9, 4))]
    problem = pose(views, 3, 0.1, [0.1, 0.1])
    object.__setattr__(problem, "floors", floors)
    return problem


def test_a_floor_is_missed_where_a_score_is_below_it_by_more_than_rounding():
    S = indices(1, 4, 6)
    assert not misses_floors(problem_with(None), S)
    refuse_missed_floors(problem_with(None), S)
    d = subset_scores(problem_with(None).pool, S, "diverse")
    for met in (d, d - 0.1, np.array([-np.inf, d[1]]), d + 1e-13):
        assert not misses_floors(problem_with(met), S)
        refuse_missed_floors(problem_with(met), S)
    floors = np.array([d[0] - 0.1, d[1] + 1e-3])
    assert misses_floors(problem_with(floors), S)
    said = rf"no 3 items reach the floors.* view 'view1' at {d[1]:.4f}, below its floor"
    with pytest.raises(InputError, match=said):
        refuse_missed_floors(problem_with(floors), S)
    with pytest.raises(InputError, match=f"'view0' at {d[0]:.4f}"):
        refuse_missed_floors(problem_with(d + 0.1), S)


def test_more_subsets_than_the_limit_are_not_looked_at():
    problem = problem_with(None)
    count = math.comb(9, 3)
    assert enumerate_subsets(problem, limit=count).subsets == count
    with pytest.raises(InputError, match=r"look at 84 subsets .* more than the limit of 83"):
        enumerate_subsets(problem, limit=count - 1)


def test_an_effort_has_a_name():
    for name, effort in EFFORTS.items():
        assert check_effort(name) is effort
    for wrong in ("much", None, 3, ["thorough"]):
        with pytest.raises(InputError, match=r"effort must be one of .*, not "):
            check_effort(wrong)
