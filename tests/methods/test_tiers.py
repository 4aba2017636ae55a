"""Selection in two tiers: the same numbers as the whole pool, every rule, a bound that holds."""

import gc
import itertools
import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import cases
import fairnepv
import reference
from fairnepv import InputError, LocalEngine, Status
from fairnepv.api.inputs import pose
from fairnepv.compute import clock
from fairnepv.errors import UnsupportedError
from fairnepv.io.rows import Columns, HeldRows, RowFile, Shards
from fairnepv.loop import Context, pack, run, unpack
from fairnepv.methods.plan import Plan
from fairnepv.methods.tiers import FirstTier, ShardsState, find_in_tiers, shards_of
from fairnepv.planning import foresee
from fairnepv.search import EFFORTS
from fairnepv.search.greedy import Greedy
from fairnepv.views import Pool
from search_problems import examples, kernels

N, K = 60, 4
VIEWS = cases.clustered_views(np.random.default_rng(3), N, [7, 5], 9, spread=0.5)
DATA = {"text": VIEWS[0], "vision": VIEWS[1]}
IDS = np.array([f"item-{(7 * i) % N:02}" for i in range(N)])


def runs(n, count):
    """The rows of each shard, as documented: even runs of rows."""
    starts = [s * n // count for s in range(count + 1)]
    return [list(range(a, b)) for a, b in itertools.pairwise(starts)]


def in_files(rows, *lengths):
    """Rows as if they lay in several files."""
    ends = np.cumsum(lengths)
    parts = np.split(rows, ends[:-1])
    return Shards([HeldRows(part, f"file {s}") for s, part in enumerate(parts)], "files")


# --- The same numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"effort": "fast"}, {"method": "nepv"}])
def test_one_shard_is_the_whole_pool(options):
    flat = fairnepv.select(DATA, K, **options)
    tiered = fairnepv.select(DATA, K, **options, hierarchical=1)
    assert tiered.indices.tolist() == flat.indices.tolist()
    assert (tiered.status, tiered.upper_bound) == (flat.status, flat.upper_bound)


@examples(60)
@given(data=st.data())
def test_it_is_what_the_slow_twin_does(data):
    """Uncalibrated kernels, some rows repeated across shards."""
    n, k = data.draw(st.integers(10, 24), "n"), data.draw(st.integers(1, 4), "k")
    count = data.draw(st.integers(2, (n - 1) // k), "shards") if n > 2 * k else 2
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6), "seed"))
    views = cases.clustered_views(rng, n, [5, 4], 6, spread=0.4)
    views = cases.with_duplicates(views, [(0, n - 1), (1, n // 2)])
    tau = data.draw(st.sampled_from([0.02, 0.1, 1.0]), "tau")
    found = fairnepv.select(
        views, k, tau=tau, calibration="none", method="greedy", certify=False, hierarchical=count
    )
    Ls = kernels(views, [0.1, 0.1])
    expected = reference.tiered_greedy(Ls, runs(n, count), k, tau)
    assert found.indices.tolist() == expected
    assert found.fair_score == pytest.approx(reference.fair_score(Ls, expected, tau), abs=1e-9)


@pytest.mark.sample(6)
@pytest.mark.parametrize("rule", ["trace", "unit-diagonal", "efficiency", {"text": 3, "vision": 1}])
@pytest.mark.parametrize(
    "store", [np.asarray, sp.csr_array, lambda X: fairnepv.KernelView(X @ X.T)]
)
def test_scales_are_those_of_the_whole_pool(rule, store):
    """Shards whose rows differ in length by orders would be calibrated apart from each other."""
    grown = np.repeat([1.0, 100.0, 0.1], N // 3)[:, None]
    data = {"text": store(grown * VIEWS[0]), "vision": store(VIEWS[1])}
    quality = np.linspace(0.5, 1.0, N)
    options = {"calibration": rule, "quality": quality, "priorities": {"text": 0.3, "vision": 0.7}}
    problem = pose(data, K, **options)
    state = run(FirstTier(problem, shards_of(problem.pool, K, 3))).state
    weights = {"priorities": options["priorities"], "quality": quality}
    score = fairnepv.score(data, state.best, calibration=problem.calibration, **weights)
    assert state.value == pytest.approx(score.fair_score, abs=1e-9)
    found = fairnepv.select(data, K, **options, hierarchical=3, certify=False, effort="fast")
    score = fairnepv.score(data, found.indices, calibration=found.calibration, **weights)
    assert found.fair_score == pytest.approx(score.fair_score, abs=1e-9)
    assert found.fair_score >= state.value - 1e-9


def test_what_is_chosen_does_not_depend_on_whether_a_bound_is_wanted():
    with_bound = fairnepv.select(DATA, K, hierarchical=4)
    assert with_bound.indices.tolist() == (
        fairnepv.select(DATA, K, hierarchical=4, certify=False).indices.tolist()
    )


def test_the_best_set_of_a_shard_is_not_lost():
    """Greedy among all winners is sometimes led astray by those of other shards."""
    worse = 0
    for seed in range(40):
        data = cases.random_views(np.random.default_rng(seed), 60, [4, 4])
        problem = pose(data, 3, tau=0.5)
        plan = Plan("greedy", EFFORTS["fast"], shards=shards_of(problem.pool, 3, 5))
        state = run(FirstTier(problem, plan.shards)).state
        found = find_in_tiers(problem, plan, Context()).indices
        second = np.unique(state.winners)
        among = second[
            fairnepv.select([x[second] for x in data], 3, tau=0.5, effort="fast").indices
        ]
        alone, score = fairnepv.score(data, among, tau=0.5), fairnepv.score(data, found, tau=0.5)
        assert score.fair_score >= max(alone.fair_score, state.value) - 1e-9
        worse += alone.fair_score < state.value - 1e-6
    assert worse


def test_the_best_set_of_a_shard_is_improved_where_it_wins():
    """No swap with another winner improves what is returned, whoever it comes from."""
    came_from_a_shard = 0
    for seed in range(12):
        data = cases.random_views(np.random.default_rng(seed), 80, [5, 4])
        problem = pose(data, 3)
        plan = Plan("nepv", EFFORTS["balanced"], shards=shards_of(problem.pool, 3, 4))
        state = run(FirstTier(problem, plan.shards)).state
        found = find_in_tiers(problem, plan, Context()).indices
        rows = np.unique(state.winners)
        best = reference.swap_values(
            kernels([reference.unit_diagonal(x)[rows] for x in data], [0.1, 0.1]),
            np.searchsorted(rows, found).tolist(),
            0.05,
        )
        score = fairnepv.score(data, found).fair_score
        assert best.max() <= score + 1e-8
        came_from_a_shard += (
            score
            > fairnepv.select([x[rows] for x in data], 3, method="nepv", certify=False).fair_score
            + 1e-8
        )
    assert came_from_a_shard


@pytest.mark.parametrize("method", ["nepv", "greedy-swaps"])
@pytest.mark.parametrize("passes", [0, 1, 2])
def test_passes_are_those_of_both_searches_among_the_winners(method, passes):
    """Of the method's own set and of the best that a shard had, if that is improved, too."""
    spent = set()
    for seed in range(6):
        data = cases.random_views(np.random.default_rng(seed), 80, [5, 4])
        options = {"method": method, "passes": passes, "hierarchical": 4, "certify": False}
        found = fairnepv.select(data, 3, **options)
        assert found.swap_passes <= passes == found.settings["passes"]
        assert found.budget == f"{found.swap_passes} of at most {passes} passes of one-swaps"
        assert fairnepv.select(data, **found.settings).indices.tolist() == found.indices.tolist()
        spent.add(found.status)
    assert Status.SPENT in spent or passes != 1


# --- The bound ------------------------------------------------------------------------------------


@pytest.mark.slow
@examples(25)
@given(data=st.data())
def test_the_bound_is_above_the_optimum_of_the_whole_pool(data):
    n, k = data.draw(st.integers(9, 13), "n"), data.draw(st.integers(2, 3), "k")
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6), "seed"))
    views = cases.clustered_views(rng, n, [5, 4], 5, spread=0.6)
    excluded = data.draw(st.sampled_from([None, [0], [1, 2]]), "excluded")
    effort = data.draw(st.sampled_from(["fast", "balanced"]), "effort")
    count = data.draw(st.integers(2, (n - 1) // k), "shards")
    found = fairnepv.select(views, k, exclude=excluded, effort=effort, hierarchical=count)
    optimum = fairnepv.exhaustive(views, k, exclude=excluded)
    assert found.fair_score <= optimum.fair_score + 1e-9
    assert optimum.fair_score <= found.upper_bound + 1e-9
    assert found.efficiency <= math.exp(found.fair_score - optimum.fair_score) + 1e-9
    assert found.status is not Status.OPTIMAL  # nothing of the kind was proven
    assert fairnepv.verify_bound(views, found).holds


def test_it_is_the_bound_of_the_whole_pool():
    whole = fairnepv.certify(DATA, K)
    assert fairnepv.select(DATA, K, hierarchical=5).upper_bound == whole.upper_bound


# --- Rules ----------------------------------------------------------------------------------------


@st.composite
def ruled(draw):
    """Rules that some set of k rows can meet, often only just."""
    n = draw(st.integers(12, 40))
    k = draw(st.integers(2, 6))
    labels = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    if draw(st.booleans()):
        labels = np.sort(labels)  # a shard has few of the groups then
    rows = draw(st.permutations(range(n)))
    kept = rows[:k]  # a set that is allowed
    include = list(kept[: draw(st.integers(0, k - 1))])
    exclude = list(rows[k : k + draw(st.integers(0, n - k - 1))])
    quotas = {}
    for label in np.unique(labels).tolist():
        has = int((labels[kept] == label).sum())
        slack = draw(st.sampled_from([0, 0, 1, None]))
        if slack is not None:
            quotas[label] = (max(0, has - slack), has + slack)
    count = draw(st.integers(1, (n - 1) // k))
    return n, k, labels, include, exclude, quotas, count


@pytest.mark.slow
@examples(80)
@given(rules=ruled(), seed=st.integers(0, 1000), effort=st.sampled_from(["fast", "balanced"]))
def test_every_rule_is_kept(rules, seed, effort):
    n, k, labels, include, exclude, quotas, count = rules
    views = cases.random_views(np.random.default_rng(seed), n, [8, 7])
    named = {"groups": labels, "quotas": quotas} if quotas else {}
    found = fairnepv.select(
        views,
        k,
        include=include,
        exclude=exclude,
        **named,
        effort=effort,
        certify=False,
        hierarchical=count,
    )
    chosen = found.indices.tolist()
    assert len(set(chosen)) == k
    assert chosen[: len(include)] == include
    assert not set(chosen) & set(exclude)
    for label, (least, most) in quotas.items():
        assert least <= (labels[chosen] == label).sum() <= most


def test_a_group_per_shard_still_leaves_a_choice():
    """Quotas of one each, but every shard sends k: otherwise the second tier had nothing to do."""
    labels = np.repeat(np.arange(K), N // K)
    ones = dict.fromkeys(range(K), 1)
    problem = pose(DATA, K, groups=labels, quotas=ones)
    state = run(FirstTier(problem, shards_of(problem.pool, K, K))).state
    assert np.bincount(labels[state.winners]).tolist() == [K] * K
    assert not len(state.best)  # no shard alone can meet them
    found = fairnepv.select(DATA, K, groups=labels, quotas=ones, hierarchical=K)
    assert sorted(labels[found.indices]) == list(range(K))


def test_included_items_are_complemented_in_every_shard():
    """A copy of an included item is never chosen by another shard, which greedy alone would."""
    views = [x.copy() for x in VIEWS]
    for view in views:
        view[[0, 20, 40]] = view[50]  # the first of every shard wins ties
    problem = pose(views, K, include=[50])
    state = run(FirstTier(problem, shards_of(problem.pool, K, 3))).state
    assert not set(state.winners) & {0, 20, 40}
    assert (state.winners == 50).sum() == 3
    free = run(FirstTier(pose(views, K), shards_of(problem.pool, K, 3))).state
    assert {0, 20, 40} <= set(free.winners)


def test_floors_are_kept_or_said_to_be_missed():
    free = fairnepv.select(DATA, K, hierarchical=3, certify=False)
    floor = free.scores["text"] + 0.02
    kept = fairnepv.select(DATA, K, hierarchical=3, floors={"text": floor})
    assert kept.status.ok
    assert kept.scores["text"] >= floor - 1e-9
    bound = fairnepv.certify(DATA, K).by_view["text"]
    missed = fairnepv.select(DATA, K, hierarchical=3, floors={"text": bound - 1e-4})
    assert missed.status is Status.FLOORS_MISSED


def test_a_shard_that_is_all_excluded_sends_nobody():
    found = fairnepv.select(DATA, K, exclude=range(20), hierarchical=3, certify=False)
    assert found.indices.min() >= 20
    state_of = run(FirstTier(pose(DATA, K, exclude=list(range(20))), (0, 20, 40, N))).state
    assert len(state_of.winners) == 2 * K


def test_ids_come_back():
    found = fairnepv.select(
        DATA, K, ids=IDS, include=["item-14"], exclude=["item-07"], hierarchical=4
    )
    assert found.ids.tolist() == IDS[found.indices].tolist()
    assert found.ids[0] == "item-14"
    assert "item-07" not in found.ids


def test_sizes_may_be_nested():
    found = fairnepv.select(DATA, [3, 5], nested=True, hierarchical=3, certify=False)
    assert set(found[3].indices) <= set(found[5].indices)
    assert [found[k].settings["hierarchical"] for k in (3, 5)] == [3, 3]


# --- What a shard is ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "k", "wanted", "expected"),
    [
        (100, 4, False, ()),
        (100, 4, 1, (0, 100)),
        (100, 4, 3, (0, 33, 66, 100)),
        (100, 4, True, (0, 20, 40, 60, 80, 100)),  # five shards of 20, and 20 winners
        (100, 60, True, (0, 100)),
        (100, 33, 3, (0, 33, 66, 100)),
    ],
)
def test_even_runs_of_rows(n, k, wanted, expected):
    assert shards_of(Pool.of([np.ones((n, 2))]), k, wanted) == expected


@pytest.mark.parametrize(
    ("lengths", "k", "expected"),
    [
        ((20, 20, 20), 5, (0, 20, 40, 60)),
        ((20, 20, 20), 10, (0, 20, 40, 60)),
        ((20, 20, 20), 11, (0, 60)),
        ((5, 5, 30, 20), 5, (0, 10, 40, 60)),
        ((30, 25, 5), 5, (0, 30, 60)),
        ((60,), 5, (0, 60)),
    ],
)
def test_files_are_shards_unless_they_are_small(lengths, k, expected):
    rows = in_files(VIEWS[0], *lengths)
    assert shards_of(Pool.of({"text": rows, "vision": VIEWS[1]}), k, True) == expected
    some = Columns(rows, slice(0, 3))
    assert shards_of(Pool.of([some]), k, True) == expected
    assert shards_of(Pool.of([VIEWS[1], rows]), 15, True) == (0, 30, 60)  # of the first view only
    assert shards_of(Pool.of([rows]), 5, 2) == (0, 30, 60)


def test_files_give_what_their_rows_give():
    files = {"text": in_files(VIEWS[0], 25, 20, 15), "vision": VIEWS[1]}
    found = fairnepv.select(files, K, hierarchical=True, effort="fast", certify=False)
    Ls = kernels([reference.unit_diagonal(x) for x in VIEWS], [0.1, 0.1])
    rows = [list(range(25)), list(range(25, 45)), list(range(45, 60))]
    assert found.indices.tolist() == reference.tiered_greedy(Ls, rows, K, 0.05)
    assert found.chosen_from["shards"] == 3
    assert found.settings["hierarchical"] is True  # the shards are those of the files


class Watched(RowFile):
    """Rows that remember how many were asked for at once."""

    def __init__(self, rows):
        self.array, self.shape, self.dtype = rows, rows.shape, rows.dtype
        self.origin, self.file_bytes, self.asked = "watched", rows.nbytes, []

    def read(self, start, stop):
        self.asked.append(("read", stop - start))
        return self.array[start:stop]

    def gather(self, indices):
        self.asked.append(("gather", len(indices)))
        return self.array[indices]


def test_a_shard_is_read_once_and_held_alone():
    rows = Watched(np.random.default_rng(0).standard_normal((400, 6)))
    problem = pose([rows], 5)
    rows.asked.clear()
    run(FirstTier(problem, shards_of(problem.pool, 5, 8)))
    assert rows.asked == [("gather", 50)] * 8


# --- Limits ---------------------------------------------------------------------------------------


def stop_at(shard):
    def progress(step):
        if step.stage == "shards" and step.details["size"] == shard:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("shard", [0, 1, 3])
@pytest.mark.parametrize("rules", [{}, {"groups": np.arange(N) % 3}, {"include": [59, 3]}])
def test_an_interruption_returns_what_is_in_hand(shard, rules):
    found = fairnepv.select(
        DATA, K, hierarchical=5, certify=False, progress=stop_at(shard), **rules
    )
    assert found.status is Status.INTERRUPTED
    problem = pose(DATA, K, **rules)
    assert len(found.indices) == K
    assert problem.constraints.is_met(found.indices)
    assert any(f"{shard} of 5 shards" in note for note in found.run_notes)
    if shard and "groups" not in rules:
        state = run(FirstTier(problem, shards_of(problem.pool, K, 5)[: shard + 1])).state
        assert set(found.indices) == set(state.best)


def failing(monkeypatch, error, at):
    """Greedy that meets with an error at its step of this number, all shards counted."""
    step, made = Greedy.step, []

    def fails(self, state):
        made.append(state)
        if len(made) == at:
            raise error
        return step(self, state)

    monkeypatch.setattr(Greedy, "step", fails)


def test_a_status_says_that_swaps_have_seen_the_winners_alone():
    found = fairnepv.select(DATA, K, method="nepv", hierarchical=3, certify=False)
    assert found.status is Status.LOCAL_AMONG_WINNERS
    assert found.status.ok
    assert "winners of the shards" in str(found.status)
    one = fairnepv.select(DATA, K, method="nepv", hierarchical=1, certify=False)
    assert one.status is Status.LOCAL_OPTIMUM


def test_an_interruption_within_a_shard_keeps_its_picks(monkeypatch):
    whole = fairnepv.select([x[:20] for x in VIEWS], K, effort="fast", certify=False)
    failing(monkeypatch, KeyboardInterrupt, 3)
    found = fairnepv.select(DATA, K, hierarchical=3, certify=False)
    assert found.status is Status.INTERRUPTED
    assert set(whole.indices[:2]) <= set(found.indices)
    assert found.indices.max() < 20


def test_a_shard_that_float64_cannot_do_says_so(monkeypatch):
    """The sets of shards before it are in hand."""
    whole = fairnepv.select([x[:20] for x in VIEWS], K, effort="fast", certify=False)
    failing(monkeypatch, np.linalg.LinAlgError, K + 1)
    found = fairnepv.select(DATA, K, hierarchical=3, certify=False)
    assert found.status is Status.INDEFINITE
    assert found.fair_score >= whole.fair_score - 1e-9
    assert any("2 of 3 shards" in note for note in found.run_notes)


def test_an_interruption_in_the_second_tier_keeps_the_best_shard():
    def progress(step):
        if step.stage == "greedy":
            raise KeyboardInterrupt

    found = fairnepv.select(DATA, K, hierarchical=3, certify=False, progress=progress)
    problem = pose(DATA, K)
    state = run(FirstTier(problem, shards_of(problem.pool, K, 3))).state
    assert found.status is Status.INTERRUPTED
    assert found.fair_score >= state.value - 1e-9


class Ahead(LocalEngine):
    """Says whether what it has made of all states was taken, or is not wanted any more."""

    closed = False

    def each(self, task, source, states):
        try:
            yield from (task(source, state) for state in list(states))
        finally:
            type(self).closed = True


@pytest.mark.parametrize("ending", ["interrupted", "out of time"])
def test_workers_that_are_ahead_are_told_of_the_end(monkeypatch, ending):
    """Not when the garbage collector comes by: their cluster may be closed by then."""

    def progress(step):
        if step.stage == "shards" and step.step == 2:
            if ending == "interrupted":
                raise KeyboardInterrupt
            late = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600.0, time=time.time)
            monkeypatch.setattr(clock, "time", late)

    monkeypatch.setattr(Ahead, "closed", False)
    gc.disable()
    try:
        options = {"certify": False, "engine": Ahead(), "progress": progress, "time_limit": 60.0}
        found = fairnepv.select(DATA, K, hierarchical=5, **options)
        assert Ahead.closed
    finally:
        gc.enable()
    assert any("looked at 2 of 5 shards" in note for note in found.notes)


def test_out_of_time_there_are_still_k_items():
    found = fairnepv.select(DATA, K, hierarchical=3, time_limit=1e-9, exclude=[0, 1])
    assert found.status is Status.TIME_LIMIT
    assert len(set(found.indices.tolist())) == K
    assert not {0, 1} & set(found.indices.tolist())


def test_a_time_limit_is_heard_within_a_shard():
    problem = pose(DATA, K)
    tier = FirstTier(problem, (0, 30, N), deadline=time.monotonic() - 1.0)
    state = tier.step(tier.init())
    assert tier.done(state) is Status.TIME_LIMIT
    assert len(state.best) == K  # filled up


def test_one_line_of_progress_for_every_shard():
    heard = []
    found = fairnepv.select(
        DATA, K, hierarchical=5, certify=False, effort="fast", progress=heard.append
    )
    lines = [step for step in heard if step.stage == "shards"]
    assert [step.details["size"] for step in lines] == list(range(6))
    assert {step.details["of"] for step in lines} == {5}
    assert [step.details["winners"] for step in lines] == [K * s for s in range(6)]
    values = [step.objective for step in lines[1:]]
    assert values == sorted(values)
    greedy = [step for step in heard if step.stage == "greedy"]
    assert len(greedy) == K + 1  # of the second tier
    assert [step for step in found.trace if step.stage == "shards"] == lines


def test_the_first_tier_goes_on_from_a_stored_state():
    problem = pose(DATA, K)
    tier = FirstTier(problem, shards_of(problem.pool, K, 4))
    whole = run(tier).state
    state = tier.step(tier.step(tier.init()))
    again = run(tier, state=unpack(ShardsState, pack(state)), steps=2)
    assert again.steps == 4
    for name in ("winners", "best", "value", "done", "stopped"):
        assert np.array_equal(getattr(again.state, name), getattr(whole, name))


# --- Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, -2, 2.5, "4", None, [2]])
def test_hierarchical_is_yes_no_or_a_number(bad):
    with pytest.raises(InputError, match="hierarchical must be True, False or a number of shards"):
        fairnepv.select(DATA, K, hierarchical=bad)
    with pytest.raises(InputError, match="hierarchical must be"):
        fairnepv.plan(DATA, K, hierarchical=bad)


@pytest.mark.parametrize("method", ["exact", "averaged", "text-only", "k-dpp", "random"])
def test_methods_about_the_whole_pool_are_refused(method):
    with pytest.raises(UnsupportedError, match=f"does not support method '{method}'.*'auto'"):
        fairnepv.select(DATA, K, method=method, hierarchical=3)


def test_shards_that_would_be_kept_whole_are_refused():
    with pytest.raises(InputError, match=r"at most 4 rows, but k = 4 .*; give at most 14"):
        fairnepv.select(DATA, K, hierarchical=15)
    assert fairnepv.select(DATA, K, hierarchical=14, certify=False).status.ok


# --- Plans ----------------------------------------------------------------------------------------


def test_a_plan_counts_both_tiers():
    n, k, p = 100_000, 100, 64
    problem = pose([np.ones((n, p), np.float32)], k)
    chosen = EFFORTS["balanced"]

    def stages(**options):
        plan = Plan("auto", chosen, **options)
        found = foresee(problem, [plan], certify=False).stages
        return {stage.name: stage for stage in found}

    flat, tiered = stages(), stages(shards=tuple(range(0, n + 1, n // 20)))
    shards, greedy = tiered["shards"], tiered["greedy"]
    assert "20 shards of up to 5,000 rows" in shards.note
    assert shards.operations == flat["greedy"].operations
    assert shards.memory < flat["greedy"].memory / 4
    assert greedy.operations == pytest.approx(flat["greedy"].operations * 2000 / n)
    assert greedy.passes == pytest.approx(flat["greedy"].passes * 2000 / n)
    assert "among 2,000 winners" in tiered["swaps"].note
    assert tiered["swaps"].memory < flat["swaps"].memory / 4


def test_a_plan_counts_the_shard_that_a_file_is_read_into():
    rows = Watched(np.ones((1000, 8), np.float32))
    options = {"certify": False, "effort": "fast", "hierarchical": 4}
    from_file = fairnepv.plan([rows], 5, **options)
    from_array = fairnepv.plan([rows.array], 5, **options)
    memory = [{s.name: s.memory for s in f.stages}["shards"] for f in (from_file, from_array)]
    assert memory[0] - memory[1] >= 250 * 8 * 4
    assert not rows.asked
