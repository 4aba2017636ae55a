"""Constraints against enumeration of all subsets, the checks of k, and the record itself."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairnepv import Calibration, FairnepvError, InputError, Pool
from fairnepv.checks import check_positive, check_seed
from fairnepv.loop import run
from fairnepv.problem import (
    Constraints,
    Problem,
    Quotas,
    Stream,
    Tolerances,
    by_view,
    check_k,
)
from fairnepv.search import Greedy

THOROUGH = settings(derandomize=True, max_examples=300, deadline=None)


def _indices(rows):
    return np.array(sorted(rows), dtype=np.int64)


def _quotas(groups, least, most):
    return Quotas(*(np.array(x, dtype=np.int64) for x in (groups, least, most)))


# --- the literal meaning of the rules -------------------------------------------------------------


def obeys(rules, subset):
    """Every rule by the letter, for a whole selection."""
    chosen = {int(i) for i in subset}
    if not chosen >= {int(i) for i in rules.fixed_in}:
        return False
    if chosen & {int(i) for i in rules.fixed_out}:
        return False
    if rules.quotas is None:
        return True
    for group, (least, most) in enumerate(zip(rules.quotas.least, rules.quotas.most, strict=True)):
        count = sum(1 for i in chosen if rules.quotas.groups[i] == group)
        if not least <= count <= most:
            return False
    return True


def selections(rules, n, k):
    """All k-subsets that obey."""
    return [set(S) for S in itertools.combinations(range(n), k) if obeys(rules, S)]


@st.composite
def tasks(draw):
    """(n, k, rules): small, with every combination of rules, feasible or not."""
    n = draw(st.integers(2, 7))
    k = draw(st.integers(1, n - 1))
    rows = st.sets(st.integers(0, n - 1), max_size=3)
    fixed_in, fixed_out = draw(rows), draw(rows)
    quotas = None
    if draw(st.booleans()):
        groups = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
        least = draw(st.lists(st.integers(0, 2), min_size=3, max_size=3))
        extra = draw(st.lists(st.integers(-1, 3), min_size=3, max_size=3))
        most = [max(0, a + b) for a, b in zip(least, extra, strict=True)]
        quotas = _quotas(groups, least, most)
    return n, k, Constraints(_indices(fixed_in), _indices(fixed_out), quotas)


def feasible(task):
    n, k, rules = task
    return bool(selections(rules, n, k))


# --- the three questions --------------------------------------------------------------------------


@THOROUGH
@given(tasks())
def test_check_refuses_exactly_what_no_subset_can_meet(task):
    n, k, rules = task
    if feasible(task):
        rules.check(n, k)
    else:
        with pytest.raises(InputError):
            rules.check(n, k)


@THOROUGH
@given(tasks())
def test_is_met_by_exactly_the_selections_that_obey(task):
    n, k, rules = task
    for subset in itertools.combinations(range(n), k):
        assert rules.is_met(np.array(subset)) == obeys(rules, subset)
        assert rules.is_met(np.array(subset[::-1])) == obeys(rules, subset)


@THOROUGH
@given(tasks().filter(feasible), st.data())
def test_may_add_on_the_way_to_a_selection(task, data):
    """A row may join iff some selection holds it and all that was picked so far.

    The picks so far are as greedy makes them: items fixed in first, then what may be added.
    """
    n, k, rules = task
    goal = data.draw(st.sampled_from(selections(rules, n, k)))
    fixed = {int(i) for i in rules.fixed_in}
    assume(len(fixed) < k)
    free = sorted(goal - fixed)
    picked = fixed | set(free[: data.draw(st.integers(0, len(free) - 1))])
    possible = [S for S in selections(rules, n, k) if picked <= S]
    allowed = rules.may_add(_indices(picked), n, k)
    assert allowed.shape == (n,)
    assert allowed.dtype == bool
    for i in range(n):
        assert allowed[i] == (i not in picked and any(i in S for S in possible)), i


@THOROUGH
@given(tasks().filter(feasible), st.data())
def test_may_add_for_any_picks(task, data):
    """The same for picks that lack a fixed item, are complete, or lead nowhere."""
    n, k, rules = task
    picked = data.draw(st.sets(st.integers(0, n - 1), max_size=k))
    possible = [S for S in selections(rules, n, k) if picked <= S]
    allowed = rules.may_add(_indices(picked), n, k)
    for i in range(n):
        assert allowed[i] == (i not in picked and any(i in S for S in possible)), i


@THOROUGH
@given(tasks().filter(feasible), st.data())
def test_adding_what_may_be_added_always_ends_in_a_selection(task, data):
    n, k, rules = task
    assume(len(rules.fixed_in) <= k)
    picked = rules.fixed_in
    while len(picked) < k:
        allowed = np.flatnonzero(rules.may_add(picked, n, k))
        assert len(allowed)
        picked = np.append(picked, data.draw(st.sampled_from(allowed.tolist())))
    assert obeys(rules, picked)
    assert len(set(picked.tolist())) == k


@THOROUGH
@given(tasks().filter(feasible), st.data())
def test_may_swap_iff_the_result_is_met(task, data):
    n, k, rules = task
    goal = data.draw(st.sampled_from(selections(rules, n, k)))
    indices = np.array(data.draw(st.permutations(sorted(goal))), dtype=np.int64)
    swaps = rules.may_swap(indices, n)
    assert swaps.blocked.shape == swaps.groups.shape == (n,)
    for row, slot in itertools.product(range(n), range(k)):
        said = not swaps.blocked[row] and swaps.allowed[swaps.groups[row], slot]
        after = indices.copy()
        after[slot] = row
        assert said == (row not in goal and obeys(rules, after)), (row, slot)


def test_no_rules_forbid_nothing():
    rules = Constraints()
    assert not rules
    rules.check(5, 3)
    assert rules.is_met(np.array([4, 0]))
    np.testing.assert_array_equal(rules.may_add(np.array([1]), 4, 3), [True, False, True, True])
    swaps = rules.may_swap(np.array([2, 0]), 4)
    np.testing.assert_array_equal(swaps.blocked, [True, False, True, False])
    assert swaps.allowed.all()
    assert (swaps.groups == 0).all()


@pytest.mark.parametrize(
    "rules",
    [
        Constraints(fixed_in=np.array([1])),
        Constraints(fixed_out=np.array([1])),
        Constraints(quotas=_quotas([0, 0], [0], [2])),
    ],
)
def test_any_rule_counts_as_a_constraint(rules):
    assert rules


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Constraints(np.array([3, 1]), np.array([1, 2])), r"item 1 is in include and in exclude"),
        (Constraints(fixed_in=np.array([0, 1, 2, 3])), r"include has 4 items.*k is only 3"),
        (Constraints(fixed_out=np.arange(6)), r"k = 3, but exclude leaves only 2 of 8"),
        (
            Constraints(quotas=_quotas([0] * 4 + [1] * 4, [5, 0], [9, 9])),
            r"group 0 .*least 5.*only 4",
        ),
        (
            Constraints(quotas=_quotas([0] * 4 + [1] * 4, [3, 0], [2, 9])),
            r"group 0 .*least 3.*most 2",
        ),
        (Constraints(quotas=_quotas([0] * 4 + [1] * 4, [2, 2], [9, 9])), r"ask for 4 items.*k = 3"),
        (Constraints(quotas=_quotas([0] * 4 + [1] * 4, [0, 0], [1, 1])), r"quotas allow 2 .*k = 3"),
        (
            Constraints(np.array([0, 1]), quotas=_quotas([0] * 4 + [1] * 4, [0, 2], [9, 9])),
            r"quotas and include ask for 4 items.*k = 3",
        ),
        (
            Constraints(np.array([0, 1]), quotas=_quotas([0] * 4 + [1] * 4, [0, 0], [1, 9])),
            r"group 0 allows at most 1 .*include has 2",
        ),
        (
            Constraints(
                fixed_out=np.array([0, 1]), quotas=_quotas([0] * 4 + [1] * 4, [3, 0], [9, 9])
            ),
            r"group 0 asks for at least 3 .*only 2 rows of it are not excluded",
        ),
    ],
)
def test_infeasible_rules_are_refused_with_their_reason(rules, message):
    pool = Pool.of({"v": np.eye(8)})
    with pytest.raises(InputError, match=message) as caught:
        Problem(pool, 3, 0.1, Calibration("none"), constraints=rules)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rows", [[8], [-1], [2, 9]])
def test_rows_outside_of_the_pool_cannot_be_fixed_in(rows):
    """No subset of 0..n-1 holds row n, and -1 is not a row either."""
    with pytest.raises(InputError):
        Constraints(fixed_in=np.array(rows)).check(8, 3)


def test_an_item_fixed_in_twice_is_refused_or_counted_once():
    pool = Pool.of({"v": np.random.default_rng(0).standard_normal((6, 4))})
    rules = Constraints(fixed_in=np.array([2, 2]))
    try:
        problem = Problem(pool, 3, 0.1, Calibration("none"), rules)
    except InputError:
        return
    indices = run(Greedy(problem)).state.indices
    assert len(set(indices.tolist())) == 3


def test_an_item_fixed_out_twice_is_one_item():
    rules = Constraints(fixed_out=np.array([2, 2]))
    rules.check(3, 2)
    np.testing.assert_array_equal(rules.may_add(np.array([0]), 3, 2), [False, True, False])


# --- a sub-pool -----------------------------------------------------------------------------------


@THOROUGH
@given(tasks(), st.data())
def test_take_asks_the_same_of_the_rows_that_are_left(task, data):
    n, _, rules = task
    kept = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
    kept |= {int(i) for i in rules.fixed_in}
    rows = np.array(data.draw(st.permutations(sorted(kept))), dtype=np.int64)
    part = rules.take(rows)
    for size in range(1, len(rows) + 1):
        for subset in itertools.combinations(range(len(rows)), size):
            assert part.is_met(np.array(subset)) == rules.is_met(rows[list(subset)])


def test_take_keeps_the_order_of_fixed_items():
    rules = Constraints(np.array([7, 2]), np.array([5, 0]))
    part = rules.take(np.array([2, 5, 7]))
    assert part.fixed_in.tolist() == [2, 0]
    assert part.fixed_out.tolist() == [1]
    assert part.fixed_in.dtype == np.int64


def test_take_of_a_problem_takes_its_pool_and_its_rules():
    X = np.random.default_rng(0).standard_normal((9, 4))
    rules = Constraints(np.array([7]), np.array([0]))
    problem = Problem(Pool.of({"v": X}), 3, 0.2, Calibration("none"), rules, random_state=5)
    part = problem.take(np.array([7, 1, 0, 8]))
    assert (part.n, part.k, part.tau, part.random_state) == (4, 3, 0.2, 5)
    assert part.constraints.fixed_in.tolist() == [0]
    assert part.constraints.fixed_out.tolist() == [2]
    np.testing.assert_array_equal(part.pool.views[0].rows(np.arange(4)), X[[7, 1, 0, 8]])


# --- the record -----------------------------------------------------------------------------------


def _problem(**changes):
    X = np.random.default_rng(0).standard_normal((9, 4))
    pool = Pool.of({"a": X, "b": X[:, :2]})
    fields = {"pool": pool, "k": 3, "tau": 0.1, "calibration": Calibration("none")} | changes
    return Problem(**fields)


def test_the_record_is_frozen():
    problem = _problem()
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.k = 4


def test_defaults_are_those_of_the_design():
    problem = _problem()
    assert problem.tolerances == Tolerances(tie=1e-10, gain=1e-10, residual=1e-6)
    assert not problem.constraints
    assert problem.random_state == 0
    assert problem.n == 9
    assert problem.work() == 9 * 6 * 3


def test_every_purpose_has_its_own_generator():
    purposes = [(stream, *counter) for stream in Stream for counter in ((), (0,), (1,))]
    draws = {purpose: _problem(random_state=3).rng(*purpose).random() for purpose in purposes}
    assert len(set(draws.values())) == len(draws)
    assert _problem(random_state=3).rng(1, 0).random() == draws[1, 0]
    assert _problem(random_state=4).rng(1, 0).random() != draws[1, 0]


def test_streams_keep_their_numbers():
    """Or every selection of an earlier version would come out otherwise."""
    names = ["RANDOM_START", "CURVATURE", "TENURE", "RANDOM_BASELINE", "KDPP_BASELINE"]
    names += ["RELAXED_SAMPLE", "COVERAGE", "FILLED", "SPECTRUM", "LOT", "MAP"]
    assert [(stream.name, stream.value) for stream in Stream] == [
        *zip(names, range(11), strict=True)
    ]
    assert _problem().rng(Stream.TENURE, 3).random() == _problem().rng(2, 3).random()


@pytest.mark.parametrize(("left", "right"), [((), (0,)), ((1,), (1, 0)), ((2, 3), (2, 3, 0))])
def test_a_zero_more_is_another_purpose(left, right):
    """NumPy pads seeds with zeros, so [1] and [1, 0] alone would seed the same generator."""
    assert _problem().rng(*left).random() != _problem().rng(*right).random()


def test_over_changes_the_views_and_nothing_else():
    problem = _problem(random_state=3, constraints=Constraints(np.array([2])))
    alone = problem.over(problem.pool.only("b"))
    assert alone.pool.names == ("b",)
    assert (alone.tau, alone.k, alone.random_state) == (0.1, 3, 3)
    assert alone.constraints is problem.constraints
    assert problem.over(problem.pool, tau=math.inf).tau == math.inf


def test_numbers_by_view():
    assert by_view(_problem().pool, np.array([1.5, -2])) == {"a": 1.5, "b": -2.0}
    with pytest.raises(ValueError, match=r"shorter|longer"):
        by_view(_problem().pool, np.array([1.0]))


# --- checks of numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [int, np.int8, np.int32, np.int64, np.uint16])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_k_as_an_integer(kind, k):
    result = check_k(kind(k), 10)
    assert result == k
    assert type(result) is int


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
@pytest.mark.parametrize(
    ("fraction", "n", "expected"),
    [
        (0.5, 10, 5),
        (0.25, 10, 2),  # 2.5 rounds to even
        (0.75, 10, 8),  # 7.5 likewise
        (0.3125, 16, 5),
        (0.001, 10, 1),  # never less than one item
        (0.999, 10, 9),  # never the whole pool
        (0.5, 2, 1),
        (1e-30, 2, 1),
    ],
)
def test_k_as_a_fraction(kind, fraction, n, expected):
    result = check_k(kind(fraction), n)
    assert result == expected
    assert type(result) is int


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.integers(2, 10**6))
def test_a_fraction_is_within_half_an_item(fraction, n):
    k = check_k(fraction, n)
    assert 1 <= k <= n - 1
    assert abs(k - fraction * n) <= 1 or k in (1, n - 1)
    assert abs(k - min(max(fraction * n, 1), n - 1)) <= 0.5


@pytest.mark.parametrize(
    "k",
    [0, -1, 10, 11, 10**30, np.int64(10), np.int64(0), 1.0, 2.5, 2.0, -0.5, 0.0, math.nan, math.inf,
     -math.inf, np.float64(1.0), np.float32("nan"), True, False, np.True_, "3", None, [3], (3,),
     np.array(3), np.array([3]), 3 + 0j, Fraction(1, 2), b"3"],
    ids=repr,
)  # fmt: skip
def test_other_k_are_refused(k):
    with pytest.raises(InputError, match=r"^k must be") as caught:
        check_k(k, 10)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FairnepvError)
    assert "\n" not in str(caught.value)


def test_the_message_about_k_says_what_came_and_what_goes():
    with pytest.raises(InputError, match=r"1 to n - 1 = 9, not 12"):
        check_k(12, 10)
    with pytest.raises(InputError, match=r"fraction.*not 2\.5"):
        check_k(np.float64(2.5), 10)
    with pytest.raises(InputError, match=r"not 'many'"):
        check_k("many", 10)


def _short(value):
    return str(value)[:20]


@pytest.mark.parametrize("tau", [1e-300, 0.05, 1, 3, np.float32(0.5), np.int8(2), 1e300, 10**30])
def test_tau(tau):
    assert check_positive("tau", tau) == float(tau)
    assert type(check_positive("tau", tau)) is float


@pytest.mark.parametrize(
    "tau",
    [0, -1, 0.0, math.nan, math.inf, "a", True, None, [0.1], 1j, np.False_, 10**400],
    ids=_short,
)
def test_other_tau_are_refused(tau):
    with pytest.raises(InputError, match=r"^tau must be a finite positive number"):
        check_positive("tau", tau)


@pytest.mark.parametrize("seed", [0, 1, np.int64(7), 2**70])
def test_random_state(seed):
    assert check_seed("random_state", seed) == int(seed)
    _problem(random_state=check_seed("random_state", seed)).rng(0)


@pytest.mark.parametrize("seed", [-1, np.int32(-5), 1.0, None, "0", True, np.random.default_rng(0)])
def test_other_random_states_are_refused(seed):
    with pytest.raises(InputError, match=r"^random_state must be a non-negative integer"):
        check_seed("random_state", seed)


# --- priorities -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [2e5, 1e8, 1e14, 1e300])
def test_priorities_refuse_a_tau_whose_lifts_drown_the_scores(tau):
    pool = Pool.of([np.eye(6), np.eye(6)], eps=0.1)
    terms = {"calibration": Calibration("none"), "priorities": np.array([0.8, 0.2])}
    with pytest.raises(InputError, match="give a tau of at most") as error:
        Problem(pool, 3, tau, **terms)
    most = float(str(error.value).split("at most ")[1].split(",")[0])
    assert Problem(pool, 3, most, **terms).tau > 9e4
    assert Problem(pool, 3, tau, Calibration("none")).lifts.tolist() == [0.0, 0.0]
