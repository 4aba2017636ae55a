"""The front door under rules: certificates, sizes, items, groups, priorities, floors; bad input."""

import math
import tracemalloc
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

import cases
import reference
from fairnepv import InputError, Status, certify, exhaustive, score, select
from search_problems import kernels

N, K, TAU = 12, 4, 0.1
EPS = [0.1, 0.05]
VIEWS = cases.clustered_views(np.random.default_rng(11), N, [7, 6], 5, spread=0.6)
DATA = {"text": VIEWS[0], "vision": VIEWS[1]}
LS = kernels(VIEWS, EPS)
GROUPS = np.array(list("aaaabbbbcccc"))
POSED = {
    "tau": TAU,
    "eps": dict(zip(DATA, EPS, strict=True)),
    "calibration": "none",
}


def fair(S, pi=(0.5, 0.5)) -> float:
    return reference.prioritized(reference.subset_scores(LS, list(S)), TAU, np.array(pi))


def best(allowed, k: int = K, pi=(0.5, 0.5)) -> float:
    """The optimum over the k-subsets for which `allowed` holds."""
    return max(fair(S, pi) for S in combinations(range(N), k) if allowed(S))


def chosen(k=K, **options):
    return select(DATA, k, **{**POSED, "method": "exact", **options})


def count(S, label: str) -> int:
    return sum(GROUPS[i] == label for i in S)


# --- Certificates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "exact", "greedy", "nepv", "random", "averaged"])
def test_an_efficiency_is_a_share_of_the_best(method):
    selection = select(DATA, K, **POSED, method=method)
    optimum = best(lambda S: True)
    assert selection.upper_bound >= optimum - 1e-9
    assert selection.gap == pytest.approx(selection.upper_bound - selection.fair_score, abs=1e-9)
    assert 0 < selection.efficiency <= 1
    assert selection.efficiency <= math.exp(selection.fair_score - optimum) + 1e-9


def test_an_exact_answer_has_no_gap_and_never_a_negative_one():
    for seed in range(15):
        views = cases.random_views(np.random.default_rng(seed), 12, [6, 5])
        selection = select(views, 4, method="exact", effort="fast", certify=seed % 2 == 0)
        assert selection.status is Status.OPTIMAL
        assert 0 <= selection.gap <= 2e-9
        assert selection.efficiency <= 1


@pytest.mark.slow
def test_without_a_certificate_only_exact_proves_anything():
    assert chosen(method="auto", certify=False).efficiency is None
    assert chosen(certify=False).efficiency == pytest.approx(1.0, abs=1e-8)


def test_the_fields_of_a_certificate():
    steps = []
    certificate = certify(DATA, K, **POSED, gap=1e-4, include=[3], progress=steps.append)
    allowed = [S for S in combinations(range(N), K) if 3 in S]
    assert certificate.upper_bound >= max(map(fair, allowed))
    assert 0 <= certificate.duality_gap <= 1e-4
    assert certificate.status is Status.CONVERGED
    for q, name in enumerate(DATA):
        own = max(reference.subset_score(LS[q], S) for S in allowed)
        assert own <= certificate.by_view[name] <= own + 0.5
        assert certificate.spectral[name] == pytest.approx(reference.spectral_value(LS[q], K))
        assert certificate.diagonal[name] == pytest.approx(reference.diagonal_value(LS[q], K))
        assert certificate.ranks[name] == VIEWS[q].shape[1]
        assert certificate.rules[name] == "spectral"
    spectral = reference.spectral_certificate(LS, K, TAU)
    assert certificate.spectral_bound == pytest.approx(spectral)
    assert sum(certificate.weights.values()) == pytest.approx(1.0)
    assert certificate.relaxed[certificate.support.tolist().index(3)] == 1.0
    assert {step.stage for step in steps} == {"bound"}
    assert certify(DATA, K, **POSED).upper_bound >= certificate.upper_bound - 2e-3


def test_a_smaller_gap_gives_a_better_bound():
    coarse, fine = (certify(DATA, K, **POSED, gap=gap) for gap in (0.05, 1e-5))
    assert fine.duality_gap <= 1e-5
    assert fine.upper_bound <= coarse.upper_bound
    assert fine.upper_bound >= coarse.upper_bound - 0.05


@pytest.mark.slow
def test_a_target_ends_the_search_early():
    views = cases.clustered_views(np.random.default_rng(5), 200, [24, 22], 25)
    whole = select(views, 20, effort="balanced")
    # A little above what greedy has, so that the search must work for it.
    greedy = select(views, 20, method="greedy")
    assert greedy.efficiency < whole.efficiency
    target = 0.5 * (greedy.efficiency + whole.efficiency)
    early = select(views, 20, target_efficiency=target)
    assert early.status is Status.TARGET
    assert early.efficiency >= target
    assert len(early.trace) < len(whole.trace)
    missed = select(views, 20, target_efficiency=1.0)
    assert missed.status is not Status.TARGET
    assert missed.fair_score == whole.fair_score


# --- Sizes ----------------------------------------------------------------------------------------


def test_a_list_of_sizes():
    found = chosen([5, 2, 3])
    assert list(found) == [5, 2, 3]
    for k, selection in found.items():
        assert len(selection.indices) == k
        assert selection.fair_score == pytest.approx(best(lambda S: True, k), abs=1e-9)


def test_nested_sizes_contain_each_other():
    found = chosen([6, 2, 4], nested=True)
    sets = {k: set(selection.indices.tolist()) for k, selection in found.items()}
    assert sets[2] < sets[4] < sets[6]
    assert list(found) == [6, 2, 4]
    assert found[2].fair_score == pytest.approx(best(lambda S: True, 2), abs=1e-9)
    for small, large in ((2, 4), (4, 6)):
        optimum = best(lambda S, own=sets[small]: own <= set(S), large)
        assert found[large].fair_score == pytest.approx(optimum, abs=1e-9)


def test_nested_sizes_by_id_and_with_rules():
    ids = [f"item{i}" for i in range(N)]
    found = chosen([2, 4], nested=True, ids=ids, exclude=["item0"], include=["item5"])
    assert "item5" in found[2].ids
    assert set(found[2].ids) < set(found[4].ids)
    assert "item0" not in found[4].ids


@pytest.mark.sample(2)
@pytest.mark.parametrize("include", [None, [], [7], [7, 2]])
def test_nested_sizes_beside_included_items(include):
    found = chosen([1, 3], nested=True, include=include, include_counts=False)
    more = len(include or [])
    sizes = {k: len(of_size.indices) for k, of_size in found.items()}
    assert sizes == {1: 1 + more, 3: 3 + more}  # by the size that was asked for
    small, large = found.values()
    assert set(include or []) <= set(small.indices.tolist()) < set(large.indices.tolist())


def test_nested_sizes_beside_a_selection():
    first = chosen(2)
    found = chosen([1, 2], nested=True, include=first, include_counts=False)
    assert {k: len(of_size.indices) for k, of_size in found.items()} == {1: 3, 2: 4}
    assert set(first.indices.tolist()) < set(found[1].indices.tolist())


@pytest.mark.parametrize("k", [[], [2, 2], [[2, 3]], [0, 2], [2, N]])
def test_sizes_that_make_no_list_are_refused(k):
    with pytest.raises(InputError):
        chosen(k)


@pytest.mark.sample(1)
@pytest.mark.parametrize("sizes", [[0.5, 3], [3, 0.5], [0.25, 6], (6, 0.25), np.array([0.25, 0.5])])
def test_fractions_are_sizes_like_others(sizes):
    found = chosen(sizes, nested=True)
    assert list(found) == [round(N * k) if k < 1 else k for k in sizes]
    small, large = sorted(found)
    assert set(found[small].indices.tolist()) < set(found[large].indices.tolist())
    assert {k: len(one.indices) for k, one in chosen(sizes).items()} == {k: k for k in found}


def test_fractions_beside_included_items():
    found = chosen([0.25, 4], nested=True, include=[7, 2], include_counts=False)
    assert {k: len(of_size.indices) for k, of_size in found.items()} == {3: 5, 4: 6}


def test_sizes_that_come_to_the_same_are_refused():
    with pytest.raises(InputError, match=r"each once, not \[0\.5, 6\], which come to \[6, 6\]"):
        chosen([0.5, 6])


def test_one_size_cannot_be_nested():
    with pytest.raises(InputError, match="nested"):
        chosen(3, nested=True)


# --- Items ----------------------------------------------------------------------------------------


def test_items_that_must_and_must_not_be_chosen():
    selection = chosen(include=[7, 2], exclude=[0, 4, 9])
    S = set(selection.indices.tolist())
    assert {7, 2} <= S
    assert not S & {0, 4, 9}
    optimum = best(lambda S: {7, 2} <= set(S) and not set(S) & {0, 4, 9})
    assert selection.fair_score == pytest.approx(optimum, abs=1e-9)
    assert selection.indices.tolist()[:2] == [7, 2]  # they come first, in their order
    found = exhaustive(DATA, K, **POSED, include=[7, 2], exclude=[0, 4, 9])
    assert found.fair_score == pytest.approx(optimum, abs=1e-9)


def test_more_items_beside_included_ones():
    selection = chosen(2, include=[7, 2], include_counts=False)
    optimum = best(lambda S: {7, 2} <= set(S), 4)
    assert selection.fair_score == pytest.approx(optimum, abs=1e-9)
    assert selection.settings["k"] == 4


def test_items_are_named_by_their_ids():
    ids = np.arange(100, 100 + N)
    by_id = chosen(ids=ids, include=[107, 102], exclude=[100])
    by_row = chosen(include=[7, 2], exclude=[0])
    assert by_id.indices.tolist() == by_row.indices.tolist()
    assert by_id.ids.tolist() == [100 + i for i in by_row.indices]
    words = [f"item{i}" for i in range(N)]
    again = chosen(ids=words, include=chosen(2, ids=words))
    assert set(chosen(2).indices.tolist()) <= set(again.indices.tolist())


def test_including_everything_leaves_nothing_to_choose():
    selection = chosen(include=[1, 3, 5, 7])
    assert selection.indices.tolist() == [1, 3, 5, 7]
    assert selection.upper_bound >= selection.fair_score
    assert selection.gap <= 2e-3


# --- Groups ---------------------------------------------------------------------------------------


QUOTAS = {
    "exact": {"a": 2, "b": 1, "c": 1},
    "at most": {"a": (None, 1), "b": (None, 1)},
    "at least": {"c": (3, None)},
    "range": {"a": (1, 2), "b": (0, 1), "c": (1, 3)},
    "none": {"a": 0},
}


def within(S, quotas) -> bool:
    for label, quota in quotas.items():
        low, high = quota if isinstance(quota, tuple) else (quota, quota)
        if count(S, label) < (low or 0) or count(S, label) > (K if high is None else high):
            return False
    return True


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", QUOTAS)
def test_quotas_by_brute_force(kind):
    quotas = QUOTAS[kind]
    selection = chosen(groups=GROUPS, quotas=quotas, include=[5] if kind == "exact" else None)
    S = selection.indices.tolist()
    assert within(S, quotas)
    optimum = best(lambda S: within(S, quotas) and (kind != "exact" or 5 in S))
    assert selection.fair_score == pytest.approx(optimum, abs=1e-9)
    heuristic = chosen(groups=GROUPS, quotas=quotas, method="auto")
    assert within(heuristic.indices.tolist(), quotas)


@pytest.mark.parametrize("quotas", [None, "proportional"])
def test_groups_are_kept_in_proportion_where_nothing_else_is_said(quotas):
    selection = chosen(groups=GROUPS, quotas=quotas)
    optimum = best(lambda S: all(1 <= count(S, label) <= 2 for label in "abc"))
    assert selection.fair_score == pytest.approx(optimum, abs=1e-9)


class NotAvailable:
    """As pandas.NA: nothing is equal to it or different from it."""

    def __eq__(self, other):
        return self

    __ne__ = __eq__
    __hash__ = object.__hash__

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


LETTERS = ["a", "b", "c", "d"] * (N // 4)
MISSING = {
    "None": [None, *LETTERS[1:]],
    "NaN among strings": np.array([math.nan, *LETTERS[1:]], dtype=object),
    "NaN among numbers": np.array([math.nan] + [1.0] * (N - 1)),
    "NaT": np.array(["NaT"] + ["2024-01-01"] * (N - 1), dtype="datetime64[D]"),
    "NA": [NotAvailable(), *LETTERS[1:]],
    "Arrow, strings": pa.array([None, *LETTERS[1:]]),
    "Arrow, numbers": pa.array([None, *range(N - 1)]),
    "Arrow, dictionary": pa.array([None, *LETTERS[1:]]).dictionary_encode(),
    "Arrow, chunks": pa.chunked_array([pa.array([None], pa.string()), LETTERS[1:]]),
}


@pytest.mark.parametrize("labels", MISSING.values(), ids=MISSING)
def test_missing_labels_are_counted_and_are_no_group(labels):
    with pytest.raises(InputError, match=r"no label in 1 row\(s\), the first is row 0"):
        chosen(4, groups=labels)


def test_several_missing_labels():
    with pytest.raises(InputError, match=r"no label in 3 row\(s\), the first is row 2"):
        chosen(4, groups=["a", "b", math.nan, None, float("nan"), *LETTERS[5:]])


LABELS = {
    "integers": ([1, 2] * (N // 2), {"1": (2, 2), "2": (2, 2)}),
    "NumPy's and Python's integers": ([np.int64(1), 2, 1, 2] * (N // 4), {"1": 2, "2": 2}),
    "integers as objects": (np.array([10, 9] * (N // 2), dtype=object), {"9": 2, "10": 2}),
    "booleans": ([True, False] * (N // 2), {"False": 2, "True": 2}),
    "names that end in NUL": (["a", "a\0"] * (N // 2), {"a": 2, "a\0": 2}),
    "variable width": (np.array(LETTERS, dtype=np.dtypes.StringDType()), dict.fromkeys("abcd", 1)),
    "Arrow": (pa.array(LETTERS).dictionary_encode(), dict.fromkeys("abcd", 1)),
    "a word that reads like nothing": (["nan", "None", "", "NA"] * (N // 4), None),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize(("labels", "sizes"), LABELS.values(), ids=LABELS)
def test_labels_of_every_kind(labels, sizes):
    quotas = chosen(4, groups=labels).settings["quotas"]
    assert len(quotas) == 4 if sizes is None else list(quotas) == list(sizes)
    assert {low for low, _ in quotas.values()} == {4 // len(quotas)}


@pytest.mark.parametrize("labels", [[1, "1"], [True, 1], ["a", b"a"], [1, 1.0], ["a", ("a",)]])
def test_labels_of_two_types_are_refused(labels):
    for given in (labels * (N // 2), np.fromiter(labels * (N // 2), dtype=object)):
        with pytest.raises(InputError, match="groups mix types of labels"):
            chosen(4, groups=given)


@pytest.mark.parametrize("label", [(1, 2), [1, 2], 0.5, {"a": 1}, 1j, np.ones(2)], ids=repr)
def test_labels_that_name_no_group_are_refused(label):
    with pytest.raises(InputError, match="groups must be integers or strings"):
        chosen(4, groups=[label] * N)


def test_one_long_label_does_not_widen_the_others():
    labels = ["x" * 2_000_000] + ["a"] * (N - 1)
    tracemalloc.start()
    found = chosen(4, groups=labels, quotas={"a": 4}, method="greedy", certify=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0 not in found.indices
    assert peak < 2_000_000 * N  # an array of strings would take four times this


def test_a_group_has_one_quota():
    with pytest.raises(InputError, match="name one group twice, as 1 and as '1'"):
        chosen(4, groups=[1, 2] * (N // 2), quotas={1: 2, "1": 1})


@pytest.mark.parametrize("most", [10**6, 10**40])
def test_a_quota_may_be_more_than_there_is(most):
    found = chosen(4, groups=[1, 2] * (N // 2), quotas={1: (1, most), 2: (0, 2)})
    assert sum(i % 2 for i in found.indices.tolist()) <= 2
    with pytest.raises(InputError, match="asks for at least"):
        chosen(4, groups=[1, 2] * (N // 2), quotas={1: most})


def test_groups_of_numbers_take_quotas_by_number_or_by_text():
    groups = np.repeat([1, 2, 3], 4)
    by_number, by_text = (chosen(groups=groups, quotas=quotas) for quotas in ({1: 3}, {"1": 3}))
    assert sum(i < 4 for i in by_number.indices) == 3
    assert by_number.indices.tolist() == by_text.indices.tolist()


# --- Views against each other ---------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("weight", [0.05, 0.3, 0.9])
def test_priorities_by_brute_force(weight):
    pi = (weight, 1 - weight)
    selection = chosen(priorities={"text": weight, "vision": 1 - weight})
    assert selection.fair_score == pytest.approx(best(lambda S: True, pi=pi), abs=1e-9)
    assert selection.upper_bound >= best(lambda S: True, pi=pi) - 1e-9
    scored = score(
        DATA, selection.indices, **POSED, priorities={"vision": 1 - weight, "text": weight}
    )
    assert scored.fair_score == pytest.approx(selection.fair_score, abs=1e-12)


def test_equal_priorities_are_none():
    assert chosen(priorities={"text": 0.5, "vision": 0.5}).fair_score == chosen().fair_score


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["exact", "auto"])
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_floors_by_brute_force(share, method):
    """A floor between what the fair choice gives a view and the most it can have."""
    free = chosen()
    top = max(reference.subset_score(LS[0], S) for S in combinations(range(N), K))
    floor = (1 - share) * free.scores["text"] + share * top
    selection = chosen(floors={"text": floor}, method=method)
    optimum = best(lambda S: reference.subset_score(LS[0], S) >= floor)
    assert selection.scores["text"] >= floor - 1e-9
    assert selection.status.ok
    assert selection.fair_score <= optimum + 1e-9
    if method == "exact":
        assert selection.fair_score == pytest.approx(optimum, abs=1e-9)
        assert optimum < free.fair_score
    assert 0 < selection.efficiency <= 1


def test_everything_at_once():
    quotas, pi = {"a": (1, 2), "c": (1, None)}, (0.4, 0.6)
    selection = chosen(
        include=[5],
        exclude=[8],
        groups=GROUPS,
        quotas=quotas,
        priorities={"text": 0.4, "vision": 0.6},
    )
    optimum = best(lambda S: 5 in S and 8 not in S and within(S, quotas), pi=pi)
    assert selection.fair_score == pytest.approx(optimum, abs=1e-9)


# --- Bad input ------------------------------------------------------------------------------------


BAD = {
    "an item in both": ({"include": [1, 2], "exclude": [2]}, "include and in exclude"),
    "too many items": ({"include": [0, 1, 2, 3, 4]}, "k is only 4"),
    "nothing left": ({"exclude": list(range(9))}, "leaves only 3"),
    "nothing left beside": ({"include": list(range(8)), "include_counts": False}, "nothing to ch"),
    "a row twice": ({"include": [1, 1]}, "more than once"),
    "a row out of range": ({"include": [N]}, "0 to 11"),
    "a negative row": ({"exclude": [-1]}, "0 to 11"),
    "rows as fractions": ({"exclude": [1.5]}, "row numbers"),
    "include_counts of another type": ({"include_counts": 1}, "True or False"),
    "an unknown id": ({"ids": [f"i{i}" for i in range(N)], "include": ["i99"]}, "no row has"),
    "an unknown id to exclude": ({"ids": np.arange(50, 50 + N), "exclude": [3]}, "no row has"),
    "ids of another type": ({"ids": np.arange(N), "include": ["a"]}, "same type"),
    "quotas without groups": ({"quotas": {"a": 1}}, "need groups"),
    "groups of another length": ({"groups": GROUPS[1:]}, "12 labels"),
    "groups that are fractions": ({"groups": np.linspace(0, 1, N)}, "integers or strings"),
    "an unknown group": ({"groups": GROUPS, "quotas": {"z": 1}}, "no row belongs"),
    "a quota above k": ({"groups": GROUPS, "quotas": {"a": (5, None)}}, "k = 4"),
    "quotas above k": ({"groups": GROUPS, "quotas": {"a": 3, "b": 2}}, "in all"),
    "quotas below k": ({"groups": GROUPS, "quotas": dict.fromkeys("abc", 1)}, "in all"),
    "a quota below what is included": (
        {"groups": GROUPS, "quotas": {"a": 1}, "include": [0, 1]},
        "at most 1",
    ),
    "a quota of excluded rows": (
        {"groups": GROUPS, "quotas": {"a": 2}, "exclude": [0, 1, 2]},
        "only 1 rows",
    ),
    "a negative quota": ({"groups": GROUPS, "quotas": {"a": -1}}, "at least 0"),
    "a fractional quota": ({"groups": GROUPS, "quotas": {"a": 1.5}}, "whole"),
    "a quota upside down": ({"groups": GROUPS, "quotas": {"a": (3, 1)}}, "swap"),
    "an empty quota": ({"groups": GROUPS, "quotas": {"a": (None, None)}}, "number or"),
    "quotas as a list": ({"groups": GROUPS, "quotas": [1, 2, 1]}, "must map"),
    "a negative quality": ({"quality": [-1.0] + [1.0] * (N - 1)}, "not negative"),
    "a quality that is NaN": ({"quality": [math.nan] + [1.0] * (N - 1)}, "finite"),
    "an infinite quality": ({"quality": [math.inf] + [1.0] * (N - 1)}, "finite"),
    "no quality at all": ({"quality": np.zeros(N)}, "every row"),
    "a time limit of zero": ({"time_limit": 0}, "time_limit"),
    "a negative time limit": ({"time_limit": -1.0}, "time_limit"),
    "a node limit of zero": ({"node_limit": 0}, "node_limit"),
    "a negative node limit": ({"node_limit": -5}, "node_limit"),
    "a fractional node limit": ({"node_limit": 2.5}, "node_limit"),
    "a node limit of another method": ({"node_limit": 5, "method": "auto"}, "exact"),
    "a gap of zero": ({"gap": 0.0}, "gap"),
    "a negative gap": ({"gap": -1e-3}, "gap"),
    "a target of zero": ({"target_efficiency": 0.0}, "target_efficiency"),
    "a target above one": ({"target_efficiency": 1.5}, "target_efficiency"),
    "a target that is NaN": ({"target_efficiency": math.nan}, "target_efficiency"),
    "a target without a bound": ({"target_efficiency": 0.9, "certify": False}, "certify"),
    "priorities above one": ({"priorities": {"text": 0.9, "vision": 0.9}}, "sum to 1"),
    "priorities below one": ({"priorities": {"text": 0.2, "vision": 0.2}}, "sum to 1"),
    "a negative priority": ({"priorities": {"text": 1.5, "vision": -0.5}}, "positive"),
    "a priority of zero": ({"priorities": {"text": 1.0, "vision": 0.0}}, "positive"),
    "a missing priority": ({"priorities": {"text": 1.0}}, "vision"),
    "a priority of a stranger": (
        {"priorities": {"text": 0.5, "vision": 0.3, "sound": 0.2}},
        "not views",
    ),
    "priorities as a list": ({"priorities": [0.5, 0.5]}, "must map"),
    "a priority that is NaN": ({"priorities": {"text": math.nan, "vision": 0.5}}, "finite"),
    "a floor of a stranger": ({"floors": {"sound": 0.0}}, "not views"),
    "a floor that is NaN": ({"floors": {"text": math.nan}}, "finite"),
    "a floor as a word": ({"floors": {"text": "high"}}, "finite number"),
    "floors as a number": ({"floors": 0.1}, "must map"),
    "a floor out of reach": ({"floors": {"text": 50.0}}, "cannot be reached"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_words(case):
    options, words = BAD[case]
    with pytest.raises(InputError, match=words):
        chosen(**options)


@pytest.mark.parametrize("gap", [0, -1.0, math.nan, math.inf, "small"])
def test_certify_refuses_what_is_no_gap(gap):
    with pytest.raises(InputError, match="gap"):
        certify(DATA, K, **POSED, gap=gap)


@pytest.mark.parametrize("method", ["exact", "auto"])
def test_floors_that_cannot_be_reached_together(method):
    """Each alone could be; the views want different items."""
    rng = np.random.default_rng(0)
    strong = np.repeat([10.0, 0.1], 6)
    views = {
        "left": rng.standard_normal((12, 6)) * strong[:, None],
        "right": rng.standard_normal((12, 6)) * strong[::-1, None],
    }
    options = {"eps": 0.1, "calibration": "none", "tau": 0.1}
    tops = {name: exhaustive({name: view}, 4, **options).fair_score for name, view in views.items()}
    floors = {name: top - 0.3 for name, top in tops.items()}
    with pytest.raises(InputError, match="together"):
        select(views, 4, **options, method=method, floors=floors)
    for name, floor in floors.items():
        selection = select(views, 4, **options, method=method, floors={name: floor})
        assert selection.scores[name] >= floor - 1e-9


def test_floors_just_out_of_reach_are_refused_by_exact_and_admitted_by_the_rest():
    """Too close for the bound to tell, which only a whole search finds out."""
    top = max(reference.subset_score(LS[0], S) for S in combinations(range(N), K))
    bound = certify(DATA, K, **POSED).by_view["text"]
    floor = min(top + 1e-4, 0.5 * (top + bound))
    assert top < floor < bound
    with pytest.raises(InputError, match="no 4 items reach the floors"):
        chosen(floors={"text": floor})
    assert chosen(floors={"text": floor}, method="greedy").status is Status.FLOORS_MISSED
    with pytest.raises(InputError, match="no 4 items reach the floors"):
        exhaustive(DATA, K, **POSED, floors={"text": floor})
