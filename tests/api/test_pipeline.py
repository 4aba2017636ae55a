"""The front door: select, compare, score and exhaustive, as a user meets them."""

import itertools
import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

import cases
import fairnepv
import reference
from fairnepv import (
    DiagonalView,
    InputError,
    KernelView,
    LocalEngine,
    NumericalError,
    RankWarning,
    Selection,
    Status,
    methods,
)
from fairnepv.api import inputs
from fairnepv.compute import local as local_engine
from fairnepv.concave import certify as make_certificate
from fairnepv.data import paper_instance
from fairnepv.loop import Context, Step
from fairnepv.methods import APART, selectors
from fairnepv.methods.baselines import baselines
from fairnepv.methods.plan import Plan
from fairnepv.problem import Constraints
from fairnepv.search import EFFORTS, Found, enumerate_subsets
from search_problems import (
    best_allowed_swap,
    case_kernels,
    examples,
    feasible_subsets,
    indices,
    kernels,
    pose,
    pose_case,
    random_rules,
)

SEEDS = st.integers(0, 10**6)
PAPER = {"k": 5, "tau": 0.15, "calibration": "none"}
OWN = ("auto", "nepv", "greedy-swaps", "greedy")
ONE_SWAPS = "passes of one-swaps"
SHARED = tuple(baselines(()))  # those that are not about one view
BY_CASE = pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
pytestmark = pytest.mark.filterwarnings("ignore::fairnepv.errors.RankWarning")


def named(case: cases.Case) -> dict[str, np.ndarray]:
    return {f"v{q}": view for q, view in enumerate(case.views)}


def knobs(case: cases.Case) -> dict[str, Any]:
    eps = {f"v{q}": e for q, e in enumerate(case.eps)}
    return {"tau": case.tau, "eps": eps, "calibration": "none"}


def select_case(case: cases.Case, **options: Any) -> Selection:
    return fairnepv.select(named(case), case.k, **knobs(case), **options)


def all_methods(names: list[str]) -> list[str]:
    return [*OWN, *(f"{name}-only" for name in names), *SHARED]


def small_pool(seed: int = 0, n: int = 20) -> dict[str, np.ndarray]:
    views = cases.clustered_views(np.random.default_rng(seed), n, [7, 5], 8)
    return {"text": views[0], "vision": views[1]}


# --- The paper's instance -------------------------------------------------------------------------


def test_the_default_finds_the_optimum_of_the_papers_instance():
    result = fairnepv.select(paper_instance(), **PAPER)
    assert result.fair_score == pytest.approx(cases.PAPER_OPTIMUM, abs=1e-9)
    assert round(result.fair_score, 4) == 1.1408
    assert list(result.scores.values()) == pytest.approx([cases.PAPER_OPTIMUM] * 2, abs=1e-9)
    types = [cases.paper_instance()["types"][i] for i in result.indices]
    assert sorted(types) == ["balanced", "text", "text", "vision", "vision"]


@pytest.mark.parametrize("effort", ["balanced", "thorough"])
def test_dense_features_give_the_same_optimum(effort):
    paper = cases.paper_instance()
    data = {name: np.diag(np.sqrt(paper[name])) for name in ("text", "vision")}
    result = fairnepv.select(data, eps=1e-9, effort=effort, **PAPER)
    assert result.fair_score == pytest.approx(cases.PAPER_OPTIMUM, abs=1e-7)


def test_the_papers_pipeline_stops_at_a_one_swap_optimum():
    result = fairnepv.select(paper_instance(), method="nepv", **PAPER)
    Ls = [np.diag(view.values) for view in paper_instance().values()]
    assert cases.PAPER_BALANCED - 1e-9 <= result.fair_score <= cases.PAPER_OPTIMUM + 1e-9
    assert best_allowed_swap(Ls, result.indices.tolist(), 0.15, Constraints()) <= (
        result.fair_score + 1.01e-10
    )


def test_the_papers_table():
    rows = fairnepv.compare(paper_instance(), **PAPER)
    for name in ("text-only", "vision-only", "averaged"):
        expected = cases.PAPER_TABLE[name]
        assert rows[name].fair_score == pytest.approx(expected.fair_score, abs=1e-3)
        assert rows[name].scores == pytest.approx(
            {"text": expected.text, "vision": expected.vision}, abs=1e-3
        )
    assert max(row.fair_score for row in rows) == rows["auto"].fair_score


# --- Methods --------------------------------------------------------------------------------------


def check_record(result: Selection, case: cases.Case) -> None:
    """Every number of a selection, against the dense formulas."""
    Ls, S = case_kernels(case), result.indices.tolist()
    names = list(named(case))
    d = reference.subset_scores(Ls, S)
    assert result.indices.dtype == np.int64
    assert len(set(S)) == len(S) == case.k
    assert 0 <= min(S) <= max(S) < len(case.views[0])
    assert list(result.scores) == names
    assert list(result.scores.values()) == pytest.approx(d, abs=1e-9)
    assert result.fair_score == pytest.approx(reference.soft_min(d, case.tau), abs=1e-9)
    assert result.minimum == pytest.approx(d.min(), abs=1e-9)
    assert d[names.index(result.worst_view)] == pytest.approx(d.min(), abs=1e-9)
    assert list(result.view_weights.values()) == pytest.approx(
        reference.weights(d, case.tau), abs=1e-6
    )
    assert sum(result.view_weights.values()) == pytest.approx(1.0, abs=1e-12)
    assert list(result.coverage.values()) == pytest.approx(
        [reference.coverage(view @ view.T, S) for view in case.views], abs=1e-9
    )


@pytest.mark.sample
@pytest.mark.parametrize("effort", ["fast", "balanced"])
@pytest.mark.parametrize("case", cases.SMALL[::3], ids=lambda case: case.name)
def test_every_method_returns_k_items_and_their_true_scores(case, effort):
    for method in all_methods(list(named(case))):
        result = select_case(case, method=method, effort=effort)
        check_record(result, case)
        again = fairnepv.score(named(case), result.indices, **knobs(case))
        assert again.scores == pytest.approx(result.scores, abs=1e-12)
        assert again.fair_score == pytest.approx(result.fair_score, abs=1e-12)
        assert again.coverage == pytest.approx(result.coverage, abs=1e-12)
        assert again.worst_view == result.worst_view
        assert result.method == method
        assert result.settings["effort"] == effort


@pytest.mark.sample(3)
@BY_CASE
def test_no_baseline_beats_the_default(case):
    rows = fairnepv.compare(named(case), case.k, **knobs(case))
    assert [row.method for row in rows] == all_methods(list(named(case)))
    best = max(rows, key=lambda row: row.fair_score)
    assert rows["auto"].fair_score >= best.fair_score - 1e-10


def test_the_answers_of_all_rivals_are_starts_of_thorough(monkeypatch):
    """Whichever knows the best set, it is found; without searches nothing else would find it."""
    data = {name: cases.uci()[name][::20] for name in ("fou", "pix")}
    best = fairnepv.select(data, 12, certify=False).indices
    for search in ("improve", "refine"):
        monkeypatch.setattr(selectors, search, lambda problem, found, *_, **__: found)
    rivals = ["fou-only", "pix-only", "averaged", "fixed-weight", "concatenated"]
    for knowing in rivals:
        known = {name: lambda *_: Found(np.arange(12), Status.COMPLETE) for name in rivals}
        known[knowing] = lambda *_: Found(best, Status.COMPLETE)
        monkeypatch.setattr(selectors, "baselines", lambda names, known=known: known)
        monkeypatch.setattr(selectors, "check_method", lambda problem, name: name)
        thorough, balanced = (
            fairnepv.select(data, 12, effort=effort, certify=False)
            for effort in ("thorough", "balanced")
        )
        assert sorted(thorough.indices.tolist()) == sorted(best.tolist())
        assert balanced.fair_score < thorough.fair_score - 1e-4


@pytest.mark.slow
@examples(5)
@given(SEEDS)
def test_a_view_that_binds_in_a_random_pool(seed):
    rng = np.random.default_rng(seed)
    data = {"a": rng.normal(size=(30, 3)), "b": rng.normal(size=(30, 12))}
    options = {"effort": "thorough", "certify": False}
    default = fairnepv.select(data, 6, **options)
    binding = default.worst_view
    assert default.view_weights[binding] > 0.9
    alone = fairnepv.select(data, 6, method=f"{binding}-only", **options)
    assert default.fair_score >= alone.fair_score - 1e-10


@pytest.mark.slow
def test_the_search_alone_finds_nearly_every_optimum():
    """Without branch and bound, which comes with the bound and finds them all."""
    missed = []
    for case in cases.SMALL:
        optimum, _ = reference.exhaustive(case_kernels(case), case.k, case.tau)
        result = select_case(case, certify=False)
        check_record(result, case)
        assert result.fair_score <= optimum + 1e-9
        if result.fair_score < optimum - 1e-9:
            missed.append(case.name)
    assert len(missed) <= 1, missed


@pytest.mark.sample(6)
@BY_CASE
def test_the_optimum_of_a_small_pool_is_found_and_proven(case):
    optimum, _ = reference.exhaustive(case_kernels(case), case.k, case.tau)
    result = select_case(case)
    check_record(result, case)
    assert result.status is Status.OPTIMAL
    assert result.fair_score == pytest.approx(optimum, abs=1e-9)
    assert optimum <= result.upper_bound <= optimum + 1.1e-6  # which is what rounding may leave
    assert 1 - 1.1e-6 <= result.efficiency <= 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", cases.SMALL[::4], ids=lambda case: case.name)
def test_more_effort_never_does_worse(case):
    scores = [
        select_case(case, effort=effort, certify=False).fair_score
        for effort in ("fast", "balanced", "thorough")
    ]
    assert scores[1] >= scores[0] - 1e-12
    assert scores[2] >= scores[0] - 1e-12


@pytest.mark.sample(4)
@BY_CASE
def test_the_default_is_at_a_one_swap_optimum(case):
    result = select_case(case, certify=False)
    best = best_allowed_swap(case_kernels(case), result.indices.tolist(), case.tau, Constraints())
    assert result.status is Status.LOCAL_OPTIMUM
    assert best <= result.fair_score + 1.01e-10


def test_what_a_failed_proof_found_is_swapped_before_it_is_a_local_optimum(monkeypatch):
    case = cases.SMALL[0]
    problem, Ls = pose_case(case), case_kernels(case)
    subsets = itertools.combinations(range(problem.n), case.k)
    worst = min(subsets, key=lambda S: reference.fair_score(Ls, S, case.tau))
    found = Found(indices(*worst), Status.NODE_LIMIT, upper=9.0)
    monkeypatch.setattr("fairnepv.methods.selectors._exact", lambda *_: found)
    effort = replace(EFFORTS["balanced"], provable=math.comb(problem.n, case.k) - 1)
    plan = Plan("auto", effort, certificate=make_certificate(problem))
    result = methods.find(problem, plan, Context())
    best = best_allowed_swap(Ls, result.indices.tolist(), case.tau, Constraints())
    assert result.status is Status.LOCAL_OPTIMUM
    assert result.upper == 9.0
    assert best <= reference.fair_score(Ls, result.indices, case.tau) + 1.01e-10


@BY_CASE
def test_fast_is_fair_greedy(case):
    expected = reference.fair_greedy(case_kernels(case), case.k, case.tau)
    assert select_case(case, effort="fast").indices.tolist() == expected
    assert select_case(case, method="greedy", effort="thorough").indices.tolist() == expected


@pytest.mark.sample
@pytest.mark.parametrize("method", ["auto", "nepv", "v0-only", "averaged", "random", "k-dpp"])
@BY_CASE
def test_picks_come_in_greedy_order_within_the_set(case, method):
    result = select_case(case, method=method)
    S = result.indices.tolist()
    assert reference.fair_greedy(case_kernels(case), case.k, case.tau, candidates=S) == S


def test_the_random_state_drives_the_samplers_and_not_greedy():
    data = small_pool()
    for method in ("random", "k-dpp"):
        sets = [
            tuple(fairnepv.select(data, 5, method=method, random_state=seed).indices)
            for seed in (0, 0, 1)
        ]
        assert sets[0] == sets[1] != sets[2]
    greedy = [fairnepv.select(data, 5, method="greedy", random_state=s).indices for s in (0, 1)]
    assert greedy[0].tolist() == greedy[1].tolist()


# --- The record -----------------------------------------------------------------------------------


@pytest.mark.sample(6)
@BY_CASE
def test_the_bound_bounds(case):
    """Also for a method that proves nothing by itself."""
    Ls = case_kernels(case)
    result = select_case(case, method="greedy")
    optimum, _ = reference.exhaustive(Ls, case.k, case.tau)
    assert result.upper_bound == result.certificate.upper_bound >= optimum
    for L, bound in zip(Ls, result.certificate.by_view.values(), strict=True):
        assert bound >= reference.exhaustive([L], case.k, case.tau)[0]
    assert result.certificate.spectral_bound == pytest.approx(
        reference.spectral_certificate(Ls, case.k, case.tau), abs=1e-9
    )
    assert result.gap == pytest.approx(result.upper_bound - result.fair_score, abs=1e-15)
    assert result.efficiency == pytest.approx(math.exp(-result.gap), abs=1e-15)
    assert 0 < result.efficiency <= 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("M", [1, 3])
def test_an_attained_bound_is_not_exceeded_by_rounding(M):
    """For one diagonal kernel, repeated or not, the best items attain the bound."""
    values = np.random.default_rng(0).uniform(1e-3, 1e3, size=40)
    data = {f"v{q}": DiagonalView(values, eps=0) for q in range(M)}
    for k in (1, 7, 39):
        result = fairnepv.select(data, k, calibration="none")
        assert sorted(result.indices) == sorted(np.argsort(-values)[:k])
        assert result.efficiency == pytest.approx(1.0, abs=1e-9)
        assert result.efficiency <= 1.0


@pytest.mark.sample(6)
@BY_CASE
def test_gains_tell_what_each_item_added_in_its_turn(case):
    for method in ("auto", "random"):
        result = select_case(case, method=method)
        assert list(result.gains) == list(named(case))
        for (name, gains), L in zip(result.gains.items(), case_kernels(case), strict=True):
            expected = reference.gains(L, result.indices.tolist())
            np.testing.assert_allclose(gains, expected, rtol=1e-9, atol=1e-9)
            assert gains.mean() == pytest.approx(result.scores[name], abs=1e-9)


def test_gains_are_calibrated_like_the_scores():
    result = fairnepv.select(small_pool(), 6, calibration="efficiency")
    unit = fairnepv.select(small_pool(), 6)
    for name, gains in result.gains.items():
        assert gains.mean() == pytest.approx(result.scores[name], abs=1e-12)
        first = math.log(1.1) + result.calibration.offsets[name]  # one row of length one
        assert gains[0] == pytest.approx(first, abs=1e-12)
        assert unit.gains[name][0] == pytest.approx(math.log(1.1), abs=1e-12)


def test_losses_are_what_one_subset_has_less_than_another():
    rows = fairnepv.compare(small_pool(), 6, methods=["auto", "text-only"])
    fair, single = rows["auto"], rows["text-only"]
    losses = single.losses(fair)
    assert list(losses) == ["text", "vision"]
    for name, loss in losses.items():
        assert loss == fair.scores[name] - single.scores[name]
    assert losses["text"] < 0 < losses["vision"]
    assert fair.losses(single) == {name: -loss for name, loss in losses.items()}
    assert fair.losses(fair) == {"text": 0.0, "vision": 0.0}
    again = fairnepv.score(small_pool(), single.indices)  # a plain Score knows it as well
    assert again.losses(fair) == pytest.approx(losses, abs=1e-12)


def test_settings_tell_how_the_selection_was_made():
    data = small_pool()
    result = fairnepv.select(
        data, 0.3, tau=0.3, eps={"text": 0.1, "vision": 0.2}, effort="thorough", random_state=7
    )
    expected = {
        "objective": "diverse",
        "center": False,
        "method": "auto",
        "effort": "thorough",
        "k": 6,
        "tau": 0.3,
        "eps": {"text": 0.1, "vision": 0.2},
        "calibration": "unit-diagonal",
        "oversampling": 3.0,
        "quality": None,
        "include": None,
        "exclude": None,
        "missing": "refuse",
        "deduplicate": None,
        "quotas": None,
        "priorities": None,
        "floors": None,
        "random_state": 7,
        "hierarchical": False,
        "certify": True,
        "gap": 2e-3,
        "target_efficiency": None,
        "node_limit": None,
        "time_limit": None,
        "memory_limit": None,
    }
    assert dict(result.settings) == expected
    expected = {"n": 20, "views": {"text": 7, "vision": 5}, "shards": None, "reordered": []}
    assert dict(result.chosen_from) == expected
    assert result.calibration.rule == "unit-diagonal"
    assert result.seconds > 0


def test_the_trace_tells_what_each_stage_did():
    result = fairnepv.select(small_pool(), 6)
    assert all(isinstance(row, Step) for row in result.trace)
    stages = [row.stage for row in result.trace]
    others = [stage for stage in stages if stage != "bound"]
    assert stages == ["bound"] * (len(stages) - len(others)) + others  # the bound comes first
    assert others[0] == "greedy"
    assert others[-1] == "exact"
    assert set(stages) == {"bound", "greedy", "swaps", "exact"}
    assert result.trace[-1].objective == pytest.approx(result.fair_score, abs=1e-9)
    searched = fairnepv.select(small_pool(), 6, certify=False)
    assert {row.stage for row in searched.trace} == {"greedy", "tabu", "swaps"}
    swaps = [row.objective for row in searched.trace if row.stage == "swaps"]
    assert min(abs(value - searched.fair_score) for value in swaps) < 1e-9
    nepv = fairnepv.select(small_pool(), 6, method="nepv", certify=False)
    last = [row.residual for row in nepv.trace if row.stage == "ascent"][-1]
    assert last <= nepv.settings["tol"]
    assert all(row.seconds >= 0 and math.isfinite(row.objective) for row in result.trace)


def test_ids_name_the_items():
    data = small_pool()
    plain = fairnepv.select(data, 5)
    assert plain.ids.tolist() == plain.indices.tolist()
    ids = np.array([f"item-{i:02d}" for i in range(20)])
    named_items = fairnepv.select(data, 5, ids=ids)
    assert named_items.indices.tolist() == plain.indices.tolist()
    assert named_items.ids.tolist() == ids[plain.indices].tolist()


def test_views_are_aligned_by_their_ids():
    data = small_pool()
    plain = fairnepv.select(data, 5)
    ids = np.arange(100, 120)
    order = np.random.default_rng(1).permutation(20)
    shuffled = {"text": data["text"], "vision": data["vision"][order]}
    aligned = fairnepv.select(shuffled, 5, ids={"text": ids, "vision": ids[order]})
    assert aligned.indices.tolist() == plain.indices.tolist()
    assert aligned.ids.tolist() == ids[plain.indices].tolist()
    assert aligned.fair_score == plain.fair_score


@pytest.mark.parametrize("method", ["auto", "greedy", "random"])
def test_without_a_certificate_there_is_no_bound(method):
    result = fairnepv.select(small_pool(), 5, method=method, certify=False)
    assert (result.upper_bound, result.gap, result.efficiency) == (None, None, None)
    with_bound = fairnepv.select(small_pool(), 5, method=method)
    assert with_bound.indices.tolist() == result.indices.tolist()
    assert with_bound.upper_bound is not None


# --- Input in its many forms ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fraction", "k"),
    [(0.3, 6), (0.29, 6), (0.5, 10), (1e-9, 1), (0.9999, 19), (np.float32(0.1), 2)],
)
def test_k_may_be_a_fraction(fraction, k):
    result = fairnepv.select(small_pool(), fraction, effort="fast")
    assert len(result.indices) == k == result.settings["k"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("k", [1, 2, 18, 19])
def test_k_at_its_ends(k):
    result = fairnepv.select(small_pool(), k)
    assert len(set(result.indices.tolist())) == k


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int16, np.uint8, bool])
def test_narrow_types_are_read_in_float64(dtype):
    rng = np.random.default_rng(2)
    data = {"a": rng.normal(size=(24, 9)), "b": rng.normal(size=(24, 6))}
    data = {name: (3 * view).astype(dtype) for name, view in data.items()}
    for view in data.values():
        view[~view.any(axis=1)] = 1  # no zero rows
    wide = {name: view.astype(np.float64) for name, view in data.items()}
    narrow = fairnepv.select(data, 6)
    assert narrow.indices.tolist() == fairnepv.select(wide, 6).indices.tolist()
    Ls = kernels([reference.unit_diagonal(view) for view in wide.values()], [0.1, 0.1])
    expected = reference.subset_scores(Ls, narrow.indices)
    assert list(narrow.scores.values()) == pytest.approx(expected, abs=1e-12)


class Tensor:
    """Something with `__array__` and nothing else, as tensors of other libraries have."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._values if dtype is None else self._values.astype(dtype)


@pytest.mark.slow
def test_the_same_data_in_other_clothes_gives_the_same_answer():
    data = small_pool()
    expected = fairnepv.select(data, 6)
    table = np.hstack(list(data.values()))
    clothes = [
        ({name: Tensor(view) for name, view in data.items()}, {}),
        ({name: sp.csr_array(view) for name, view in data.items()}, {}),
        ({"text": sp.coo_array(data["text"]), "vision": data["vision"]}, {}),
        ({"text": data["text"], "vision": KernelView(data["vision"] @ data["vision"].T)}, {}),
        ({name: np.asfortranarray(view) for name, view in data.items()}, {}),
        ({name: view[::-1][::-1] for name, view in data.items()}, {}),
        ({name: view.tolist() for name, view in data.items()}, {}),
        (table, {"views": {"text": slice(0, 7), "vision": slice(7, 12)}}),
    ]
    for dressed, options in clothes:
        result = fairnepv.select(dressed, 6, **options)
        assert result.indices.tolist() == expected.indices.tolist()
        assert result.scores == pytest.approx(expected.scores, abs=1e-9)
        assert result.upper_bound == pytest.approx(expected.upper_bound, abs=1e-9)


def test_a_list_of_views_gets_names():
    result = fairnepv.select(list(small_pool().values()), 5)
    assert list(result.scores) == ["view0", "view1"]
    alone = fairnepv.select(small_pool()["text"], 5)
    assert list(alone.scores) == ["view0"]


def test_the_data_is_not_written_to():
    data = small_pool()
    before = {name: view.copy() for name, view in data.items()}
    for view in data.values():
        view.setflags(write=False)
    fairnepv.compare(data, 5)
    for name, view in data.items():
        np.testing.assert_array_equal(view, before[name])


# --- Calibration ----------------------------------------------------------------------------------


def calibrated(views: list[np.ndarray], rule: Any, eps: float) -> list[np.ndarray]:
    if rule == "unit-diagonal":
        return [reference.kernel(reference.unit_diagonal(view), eps) for view in views]
    if rule == "trace":
        return [reference.kernel(reference.trace_normalized(view), eps) for view in views]
    plain = [reference.kernel(view, eps) for view in views]
    if rule == "none":
        return plain
    return [c * L for c, L in zip(rule.values(), plain, strict=True)]


@pytest.mark.parametrize("rule", ["unit-diagonal", "trace", "none", {"text": 0.2, "vision": 30.0}])
def test_scores_under_each_calibration(rule):
    data = small_pool()
    Ls = calibrated(list(data.values()), rule, 0.1)
    result = fairnepv.select(data, 6, calibration=rule)
    S = result.indices.tolist()
    assert list(result.scores.values()) == pytest.approx(reference.subset_scores(Ls, S), abs=1e-9)
    assert best_allowed_swap(Ls, S, 0.05, Constraints()) <= result.fair_score + 1.01e-10
    assert result.certificate.upper_bound >= result.fair_score
    assert result.certificate.spectral_bound == pytest.approx(
        reference.spectral_certificate(Ls, 6, 0.05), abs=1e-9
    )
    for calibration in (rule, result.calibration):
        again = fairnepv.score(data, S, calibration=calibration)
        assert again.scores == pytest.approx(result.scores, abs=1e-12)


def test_quality_comes_after_the_calibration():
    data = small_pool()
    quality = np.random.default_rng(3).uniform(0.1, 4, size=20)
    views = [reference.unit_diagonal(view) for view in data.values()]
    common = fairnepv.select(data, 6, quality=quality)
    Ls = kernels(views, [0.1, 0.1], [quality, quality])
    expected = reference.subset_scores(Ls, common.indices)
    assert list(common.scores.values()) == pytest.approx(expected, abs=1e-9)
    assert best_allowed_swap(Ls, common.indices.tolist(), 0.05, Constraints()) <= (
        common.fair_score + 1.01e-10
    )
    one = fairnepv.score(data, common.indices, quality={"vision": quality})
    Ls = kernels(views, [0.1, 0.1], [np.ones(20), quality])
    expected = reference.subset_scores(Ls, common.indices)
    assert list(one.scores.values()) == pytest.approx(expected, abs=1e-9)


@pytest.mark.sample(1)
@pytest.mark.parametrize("k", [2, 6, 12])
def test_efficiencies_never_exceed_one(k):
    data = small_pool()
    methods = ["greedy", "text-only", "vision-only", "averaged", "fixed-weight", "random"]
    for row in fairnepv.compare(data, k, calibration="efficiency", methods=methods):
        assert max(row.scores.values()) <= 0
        assert row.fair_score <= 0
    result = fairnepv.select(data, k, calibration="efficiency", certify=False)
    unit = fairnepv.score(data, result.indices)
    own = fairnepv.certify(data, k).by_view
    for name in data:
        assert result.scores[name] == pytest.approx(unit.scores[name] - own[name], abs=1e-9)
    again = fairnepv.score(data, result.indices, calibration=result.calibration)
    assert again.scores == pytest.approx(result.scores, abs=1e-12)


# --- Determinism ----------------------------------------------------------------------------------


def real_pool(name: str, every: int) -> dict[str, np.ndarray]:
    pool = cases.uci() if name == "uci" else cases.openmoji()
    return {view: rows[::every] for view, rows in pool.items()}


BY_POOL = pytest.mark.parametrize("name", ["uci", "openmoji"])
BY_EFFORT = pytest.mark.parametrize("effort", ["fast", "balanced"])


@pytest.mark.sample(1)
@BY_EFFORT
@BY_POOL
def test_the_answer_does_not_depend_on_the_block_size(name, effort):
    """Nor does the bound, which is asked for where the search is short."""
    data = real_pool(name, 8 if effort == "fast" else 16)
    n = len(data[next(iter(data))])
    options = {"effort": effort, "certify": effort == "fast"}
    results = [
        fairnepv.select(data, 10, engine=LocalEngine(rows), **options) for rows in (7, 100, n)
    ]
    assert len({tuple(result.indices.tolist()) for result in results}) == 1
    assert len({result.fair_score for result in results}) == 1
    assert len({result.upper_bound for result in results}) == 1
    if effort == "fast":
        assert results[0].indices[0] == 0  # a tie of all n


@pytest.mark.slow
@pytest.mark.parametrize(
    ("views", "tau", "eps"),
    [
        # rounding moves the step at which the relaxation stops, and so the shortlist
        (("fou", "fac", "kar", "pix", "zer", "mor"), 0.5, 1e-3),
        # k exceeds the widths, and the inverse of L[S, S] has few sound digits
        (("fou", "kar", "zer"), 0.15, 1e-6),
    ],
    ids=["stopping", "small ridge"],
)
def test_the_papers_pipeline_does_not_depend_on_the_block_size(views, tau, eps):
    """Two pools on which rounding once decided; k = 80 makes for many close calls."""
    pool = real_pool("uci", 4)
    data = {name: pool[name] for name in views}
    options = {"tau": tau, "eps": eps, "method": "nepv", "certify": False}
    answers = {
        rows: fairnepv.select(data, 80, engine=LocalEngine(rows), **options).indices.tolist()
        for rows in (11, 100)
    }
    assert answers[11] == answers[100]


@pytest.mark.sample(1)
@BY_EFFORT
@BY_POOL
def test_the_answer_does_not_depend_on_the_number_of_threads(monkeypatch, name, effort):
    monkeypatch.setattr(local_engine, "_SMALL_WORK", 0.0)  # or small work gets one thread always
    data, results = real_pool(name, 40 if name == "uci" else 80), []
    for threads in (1, 2):
        with threadpool_limits(threads):
            results.append(fairnepv.select(data, 4, effort=effort))
    assert results[0].indices.tolist() == results[1].indices.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("rows", [7, 100])
def test_ties_are_settled_alike_at_any_block_size(rows):
    """Every row eight times over, so nearly every comparison is a tie."""
    base = cases.clustered_views(np.random.default_rng(4), 20, [6, 5], 7)
    data = [np.tile(view, (8, 1)) for view in base]
    whole = fairnepv.select(data, 9, engine=LocalEngine(160))
    cut = fairnepv.select(data, 9, engine=LocalEngine(rows))
    assert cut.indices.tolist() == whole.indices.tolist()
    assert cut.upper_bound == whole.upper_bound
    greedy = fairnepv.select(data, 9, method="greedy", engine=LocalEngine(rows)).indices
    assert all(i < 20 or i - 20 in greedy for i in greedy)  # of copies the lowest


# --- Properties -----------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("method", [*OWN, "a-only", "averaged", "fixed-weight"])
@examples(4)
@given(SEEDS)
def test_permuting_candidates_permutes_the_answer(method, seed):
    """Where no two candidates are tied, in its order too."""
    rng = np.random.default_rng(seed)
    n, k = 24, int(rng.integers(2, 7))
    data = {"a": rng.normal(size=(n, 8)), "b": rng.normal(size=(n, 6))}
    quality = rng.uniform(0.5, 2.0, size=n)
    order = rng.permutation(n)
    permuted = {name: view[order] for name, view in data.items()}
    options = {"calibration": "trace", "method": method, "certify": False}
    plain = fairnepv.select(data, k, quality=quality, **options)
    moved = fairnepv.select(permuted, k, quality=quality[order], **options)
    assert order[moved.indices].tolist() == plain.indices.tolist()
    assert moved.fair_score == pytest.approx(plain.fair_score, abs=1e-9)


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", [*OWN, "a-only", "averaged", "fixed-weight", "k-dpp", "random"])
@examples(4)
@given(SEEDS, st.sampled_from([1e-3, 0.7, 2.0, 450.0]))
def test_a_common_scale_changes_nothing(method, seed, scale):
    """Not for the concatenation, which normalises the rows and not the ridge."""
    rng = np.random.default_rng(seed)
    data = {"a": rng.normal(size=(20, 6)), "b": rng.normal(size=(20, 5))}
    scaled = {name: scale * view for name, view in data.items()}
    options = {"calibration": "none", "method": method}
    plain = fairnepv.select(data, 5, eps=0.1, **options)
    other = fairnepv.select(scaled, 5, eps=0.1 * scale**2, **options)
    assert other.indices.tolist() == plain.indices.tolist()
    shift = 2 * math.log(scale)
    assert other.fair_score == pytest.approx(plain.fair_score + shift, abs=1e-9)
    # The dual variables are found in float32 and differ; what they prove, to no more than that.
    assert other.upper_bound == pytest.approx(plain.upper_bound + shift, abs=1e-5)


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", [*OWN, *SHARED])
@examples(4)
@given(SEEDS)
def test_repeating_every_view_changes_nothing(method, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(20, 6)), rng.normal(size=(20, 5))
    once = fairnepv.select({"a": a, "b": b}, 5, method=method)
    twice = fairnepv.select({"a": a, "b": b, "c": a, "d": b}, 5, method=method)
    if method != "k-dpp":  # the same distribution, but other draws
        assert twice.indices.tolist() == once.indices.tolist()
        assert twice.fair_score == pytest.approx(once.fair_score, abs=1e-9)
    assert twice.upper_bound == pytest.approx(once.upper_bound, abs=1e-9)


def test_repeating_one_view_behaves_as_the_formula_says():
    case = next(case for case in cases.SMALL if case.name == "repeated view")
    result = select_case(case)
    d = list(result.scores.values())
    assert d[0] == pytest.approx(d[2], abs=1e-12)
    assert result.fair_score == pytest.approx(reference.soft_min(np.array(d), case.tau), abs=1e-12)
    assert result.view_weights["v0"] == pytest.approx(result.view_weights["v2"], abs=1e-9)


@pytest.mark.slow
@examples(4)
@given(SEEDS)
def test_one_view_is_single_view_selection(seed):
    rng = np.random.default_rng(seed)
    view = rng.normal(size=(16, 6))
    L = reference.kernel(reference.unit_diagonal(view), 0.1)
    by_tau = [fairnepv.select({"a": view}, 5, tau=tau) for tau in (0.01, 1.0)]
    assert by_tau[0].indices.tolist() == by_tau[1].indices.tolist()
    for result in by_tau:
        d = reference.subset_score(L, result.indices)
        assert result.fair_score == result.scores["a"] == pytest.approx(d, abs=1e-12)
        assert result.view_weights == {"a": 1.0}
        assert result.fair_score == pytest.approx(reference.exhaustive([L], 5, 1.0)[0], abs=1e-9)
        certificate = result.certificate
        assert certificate.upper_bound == certificate.by_view["a"] >= result.fair_score
        assert certificate.spectral_bound == certificate.spectral["a"]
        assert certificate.spectral_bound == pytest.approx(reference.spectral_value(L, 5), abs=1e-9)
    options = {"effort": "fast", "certify": False}
    fast = {
        method: fairnepv.select({"a": view}, 5, method=method, **options).indices.tolist()
        for method in ("auto", "a-only", "averaged", "fixed-weight", "concatenated")
    }
    assert all(reference.fair_greedy([L], 5, 0.05) == S for S in fast.values())


@examples(10)
@given(SEEDS)
def test_a_single_view_baseline_looks_at_that_view_alone(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(22, 6)), rng.normal(size=(22, 6))
    inside = fairnepv.select({"a": a, "b": b}, 5, method="a-only", certify=False)
    alone = fairnepv.select({"a": a}, 5, method="a-only", certify=False)
    assert set(inside.indices) == set(alone.indices)
    assert inside.scores["a"] == pytest.approx(alone.fair_score, abs=1e-12)


# --- Rank -----------------------------------------------------------------------------------------


def low_rank_pool() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        "narrow": rng.normal(size=(20, 3)),
        "collinear": rng.normal(size=(20, 2)) @ rng.normal(size=(2, 9)),
        "wide": rng.normal(size=(20, 9)),
    }


@pytest.mark.filterwarnings("error")
def test_exceeding_a_views_rank_is_said_aloud():
    with pytest.warns(RankWarning) as caught:
        result = fairnepv.select(low_rank_pool(), 5)
    assert [str(w.message) for w in caught] == list(result.notes[:2])
    assert all("isolated in view" in note for note in result.notes[2:])
    assert "rank 3 of view 'narrow'" in result.notes[0]
    assert "(2 of 5 terms)" in result.notes[0]
    assert "rank 2 of view 'collinear'" in result.notes[1]
    assert {w.filename for w in caught} == {__file__}  # it points at the caller
    assert result.scores["narrow"] < result.scores["wide"]


@pytest.mark.filterwarnings("error")
def test_widths_warn_where_no_certificate_was_asked_for():
    with pytest.warns(RankWarning, match="'narrow'") as caught:
        fairnepv.select(low_rank_pool(), 5, certify=False)
    assert {w.filename for w in caught} == {__file__}


@pytest.mark.filterwarnings("error")
def test_score_warns_the_caller_too():
    with pytest.warns(RankWarning, match="'narrow'") as caught:
        fairnepv.score(low_rank_pool(), range(5))
    assert {w.filename for w in caught} == {__file__}


@pytest.mark.filterwarnings("error")
def test_within_the_rank_there_is_nothing_to_say():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fairnepv.select(low_rank_pool(), 2).notes == ()
        assert fairnepv.select(paper_instance(), **PAPER).notes == ()
        fairnepv.score(low_rank_pool(), [1, 2])


# --- Limits and interruption ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "nepv", "greedy", "text-only", "averaged"])
def test_out_of_time_there_are_still_k_items(method):
    result = fairnepv.select(small_pool(), 6, method=method, time_limit=1e-9)
    assert result.status is Status.TIME_LIMIT
    assert not result.status.ok
    assert len(set(result.indices.tolist())) == 6
    score = fairnepv.score(small_pool(), result.indices)
    assert result.fair_score == pytest.approx(score.fair_score, abs=1e-12)


@pytest.mark.slow
def test_enough_time_makes_no_difference():
    free = fairnepv.select(small_pool(), 6)
    limited = fairnepv.select(small_pool(), 6, time_limit=3600)
    assert limited.indices.tolist() == free.indices.tolist()
    assert limited.status is free.status is Status.OPTIMAL


class Interrupt:
    """A progress callback that presses Ctrl-C at every step of a stage from the `after`th on."""

    def __init__(self, stage: str, after: float = 0) -> None:
        self.stage, self.after, self.seen = stage, after, 0

    def __call__(self, row: Step) -> None:
        if row.stage == self.stage:
            self.seen += 1
            if self.seen > self.after:
                raise KeyboardInterrupt


STAGES = {
    ("auto", "balanced"): ["greedy", "tabu", "swaps"],
    ("auto", "thorough"): ["greedy", "ascent", "tabu", "swaps"],
    ("nepv", "balanced"): ["greedy", "ascent", "swaps"],
}


@pytest.mark.sample
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize(
    ("method", "effort", "stage"), [(*run, stage) for run in STAGES for stage in STAGES[run]]
)
def test_an_interruption_returns_the_best_so_far(method, effort, stage, after):
    data, k = real_pool("uci", 10), 8
    del data["mor"]  # binds alone, and then the ascent takes a single step
    callback = Interrupt(stage, after)
    result = fairnepv.select(
        data, k, method=method, effort=effort, progress=callback, certify=False
    )
    assert callback.seen > after
    assert result.status is Status.INTERRUPTED
    assert len(set(result.indices.tolist())) == k
    assert result.fair_score == fairnepv.score(data, result.indices).fair_score
    if method == "auto" and stage != "greedy":  # greedy was in hand by then
        greedy = fairnepv.select(data, k, method="greedy", certify=False)
        assert result.fair_score >= greedy.fair_score - 1e-12


def test_an_interrupted_greedy_keeps_its_picks():
    data = small_pool()
    whole = fairnepv.select(data, 6, method="greedy")
    result = fairnepv.select(data, 6, method="greedy", progress=Interrupt("greedy", 4))
    assert result.status is Status.INTERRUPTED
    assert set(whole.indices[:4]) <= set(result.indices)
    steps = [row for row in result.trace if row.stage != "bound"]
    assert len(steps) == 5  # the start and four picks


def test_an_interrupted_comparison_returns_the_rows_so_far():
    class Once(Interrupt):
        def __call__(self, row: Step) -> None:
            try:
                super().__call__(row)
            finally:
                self.after = math.inf if self.seen > self.after else self.after

    methods = ["greedy", "text-only", "averaged"]
    rows = fairnepv.compare(small_pool(), 6, methods=methods, progress=Once("greedy", 9))
    assert [row.method for row in rows] == ["greedy", "text-only"]
    assert [row.status for row in rows] == [Status.COMPLETE, Status.INTERRUPTED]


def test_strict_raises_where_the_status_would_tell():
    assert issubclass(NumericalError, fairnepv.FairnepvError)
    with pytest.raises(NumericalError, match="time limit reached"):
        fairnepv.select(small_pool(), 6, time_limit=1e-9, strict=True)
    with pytest.raises(NumericalError, match="interrupted"):
        fairnepv.select(small_pool(), 6, strict=True, progress=Interrupt("swaps"))
    assert fairnepv.select(small_pool(), 6, strict=True).status.ok


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", True])
def test_a_time_limit_is_a_positive_number(bad):
    with pytest.raises(InputError, match="time_limit"):
        fairnepv.select(small_pool(), 6, time_limit=bad)


def test_progress_hears_of_every_step():
    heard: list[Step] = []
    result = fairnepv.select(small_pool(), 6, progress=heard.append)
    assert tuple(heard) == result.trace
    assert {row.stage for row in heard} == {"bound", "greedy", "swaps", "exact"}


# --- Compare, score, exhaustive -------------------------------------------------------------------


def test_a_comparison_has_a_row_per_selector():
    data = small_pool()
    rows = fairnepv.compare(data, 4)
    names = all_methods(["text", "vision"])
    assert [row.method for row in rows] == names
    assert len(rows) == len(rows.rows) == len(names)
    for name in names:
        budget = {} if name in APART else {"passes": 1000}
        alone = fairnepv.select(data, 4, method=name, **budget)
        assert rows[name].indices.tolist() == alone.indices.tolist()
        assert rows[name].fair_score == alone.fair_score
        assert rows[name].upper_bound == alone.upper_bound
        assert rows[name].status is alone.status
    with pytest.raises(KeyError, match="best"):
        rows["best"]


def test_a_comparison_of_some_selectors():
    rows = fairnepv.compare(small_pool(), 6, methods=["random", "auto"], random_state=3)
    assert [row.method for row in rows] == ["random", "auto"]
    drawn = fairnepv.select(small_pool(), 6, method="random", random_state=3)
    assert rows["random"].indices.tolist() == drawn.indices.tolist()
    with pytest.raises(InputError, match="method must be one of"):
        fairnepv.compare(small_pool(), 6, methods=["auto", "best"])


def test_a_comparison_announces_every_selector_before_its_turn():
    heard: list[Step] = []
    rows = fairnepv.compare(small_pool(), 6, progress=heard.append)
    names = all_methods(["text", "vision"])
    turns = [step for step in heard if step.stage == "compare"]
    assert [step.details["selector"] for step in turns] == names
    assert [step.details["size"] for step in turns] == list(range(len(names)))
    assert {step.details["of"] for step in turns} == {len(names)}
    assert [step.step for step in turns] == list(range(len(names)))
    assert [step.seconds for step in turns] == sorted(step.seconds for step in turns)
    scores = [row.fair_score for row in rows]
    assert [step.objective for step in turns[1:]] == list(np.maximum.accumulate(scores)[:-1])
    # what follows an announcement is the trace of that selector, and nothing else is heard
    starts = [*(i for i, step in enumerate(heard) if step.stage == "compare"), len(heard)]
    assert {step.stage for step in heard[: starts[0]]} == {"bound"}  # one for all of them
    for row, begin, end in zip(rows, starts, starts[1:], strict=False):
        assert tuple(heard[begin + 1 : end]) == row.trace


def test_select_announces_nothing():
    heard: list[Step] = []
    fairnepv.select(small_pool(), 6, progress=heard.append)
    assert "compare" not in {step.stage for step in heard}


def test_every_row_gets_the_same_budget():
    """So that a comparison compares objectives: fast leaves every start as it is."""
    fast = fairnepv.compare(small_pool(), 6, effort="fast")
    stages = {row.method: {step.stage for step in row.trace} for row in fast}
    assert all("swaps" not in seen for seen in stages.values()), stages
    assert {row.swap_passes for row in fast} == {0}


@pytest.mark.parametrize("objective", ["diverse", "representative"])
@pytest.mark.parametrize("passes", [1, 2, None])
def test_passes_of_every_row_are_counted(passes, objective):
    """No row has more passes than it says, and what is not one-swaps is said."""
    rows = fairnepv.compare(small_pool(), 6, passes=passes, objective=objective)
    allowed = {row.settings["passes"] for row in rows if row.method not in APART}
    assert len(allowed) == 1
    assert passes is None or allowed == {passes}
    for row in rows:
        seen = {step.stage for step in row.trace}
        if row.method in APART:
            assert row.budget == APART[row.method]
            continue
        assert "tabu" not in seen
        assert "swaps" in seen
        used = max(step.passes for step in row.trace if step.stage == "swaps")
        assert row.swap_passes == used <= max(allowed)
        assert row.budget == f"{used} of at most {max(allowed)} {ONE_SWAPS}"
    assert rows["greedy"].swap_passes == rows["random"].swap_passes == 0


def test_a_default_without_swaps_is_said_to_have_less():
    rows = fairnepv.compare(small_pool(), 6, effort="fast", passes=2)
    assert rows["auto"].budget == rows["greedy"].budget == "less: no swaps"
    assert rows["averaged"].budget == f"{rows['averaged'].swap_passes} of at most 2 {ONE_SWAPS}"


def test_passes_are_those_of_all_searches():
    """One of which a checkpoint knew, and tells the last step alone; one from its start on."""
    found = fairnepv.select(small_pool(), 6, method="greedy-swaps")
    steps = [(5, 5), (3, 3), (0, 0), (1, 1), (2, 2)]
    trace = [Step("swaps", step, passes, 0.0, 0.0) for step, passes in steps]
    trace.insert(1, Step("tabu", 1, 40, 0.0, 0.0))
    assert replace(found, trace=tuple(trace)).swap_passes == 5 + 3 + 2
    assert replace(found, trace=()).swap_passes == 0


def test_rows_of_a_comparison_are_selections_that_can_be_made_again():
    for row in fairnepv.compare(small_pool(), 6, passes=1):
        again = fairnepv.select(small_pool(), **row.settings)
        assert again.indices.tolist() == row.indices.tolist(), row.method


def test_passes_are_refused_where_nothing_is_refined_by_them():
    for method in APART:
        with pytest.raises(InputError, match=f"passes are for methods .* not for '{method}'"):
            fairnepv.select(small_pool(), 6, method=method, passes=1)
    with pytest.raises(InputError, match="passes are for methods"):
        fairnepv.compare(small_pool(), 6, methods=["auto", "random"], passes=1)


def test_greedy_with_swaps_is_a_one_swap_optimum():
    found = fairnepv.select(small_pool(), 6, method="greedy-swaps")
    alone = fairnepv.select(small_pool(), 6, method="greedy")
    assert found.status is Status.LOCAL_OPTIMUM
    assert found.fair_score >= alone.fair_score
    kept = fairnepv.select(small_pool(), 6, method="greedy-swaps", passes=0)
    assert kept.indices.tolist() == alone.indices.tolist()


def test_score_takes_rows_in_any_form():
    data = small_pool()
    rows = [4, 17, 2]
    forms = [rows, tuple(rows), np.array(rows), np.array(rows, dtype=np.int32), [2, 4, 17]]
    scores = [fairnepv.score(data, form) for form in forms]
    expected = reference.subset_scores(calibrated(list(data.values()), "unit-diagonal", 0.1), rows)
    for score in scores:
        assert list(score.scores.values()) == pytest.approx(expected, abs=1e-12)
        assert score.fair_score == pytest.approx(reference.soft_min(expected, 0.05), abs=1e-12)


def test_score_of_all_rows_and_of_one():
    data = small_pool()
    Ls = calibrated(list(data.values()), "unit-diagonal", 0.1)
    for rows in (range(20), [11]):
        score = fairnepv.score(data, list(rows))
        expected = reference.subset_scores(Ls, list(rows))
        assert list(score.scores.values()) == pytest.approx(expected, abs=1e-9)
    assert score.scores == pytest.approx(dict.fromkeys(data, math.log(1.1)), abs=1e-12)
    everything = fairnepv.score(data, range(20))
    assert everything.coverage == pytest.approx(dict.fromkeys(data, 0.0), abs=1e-12)


@pytest.mark.parametrize(
    "bad", [[], [[1, 2]], [1.0, 2.0], [0, 20], [-1, 2], [3, 3], "ab", [True, False], None]
)
def test_score_refuses_what_is_no_subset(bad):
    with pytest.raises(InputError, match="indices") as error:
        fairnepv.score(small_pool(), bad)
    assert "\n" not in str(error.value)


IDS = {
    "strings": np.array([f"item-{(7 * i) % 20}" for i in range(20)]),
    "objects": np.array([f"{(11 * i) % 20}" for i in range(20)], dtype=object),
    "integers": (13 * np.arange(20)) % 20 - 10,
    "large": 2**62 + (13 * np.arange(20)) % 20,
    "bytes": np.array([b"%d" % ((17 * i) % 20) for i in range(20)]),
    "dates": np.datetime64("2024-02-01") + (7 * np.arange(20)) % 20,
}


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
def test_score_takes_ids_for_rows(ids):
    data, rows = small_pool(), [4, 19, 0, 17]
    expected = fairnepv.score(data, rows)
    for picks in (ids[rows], ids[rows].tolist() if ids.dtype.kind in "iUO" else ids[rows]):
        by_id = fairnepv.score(data, picks, by_id=True, ids=ids)
        assert by_id == expected
    everything = fairnepv.score(data, ids[::-1], by_id=True, ids=ids)
    assert everything.scores == pytest.approx(fairnepv.score(data, range(20)).scores, abs=1e-12)


def test_score_by_id_of_a_selection():
    ids = {"text": IDS["strings"], "vision": IDS["strings"][::-1]}
    data = small_pool()
    data["vision"] = data["vision"][::-1]
    chosen = fairnepv.select(data, 6, ids=ids)
    score = fairnepv.score(data, chosen.ids, by_id=True, ids=ids)
    assert score.scores == chosen.scores
    assert score.coverage == chosen.coverage
    rows = fairnepv.score(data, chosen.indices, ids=ids)  # of the first view
    assert rows == score


def test_numbers_may_stand_for_names_that_look_like_them():
    data, ids = small_pool(), np.arange(20)[::-1].astype(str)
    assert fairnepv.score(data, [0, 1], by_id=True, ids=ids) == fairnepv.score(data, [19, 18])


def test_integer_ids_are_no_row_numbers():
    data, ids = small_pool(), np.arange(20)[::-1]
    assert fairnepv.score(data, [0, 1], by_id=True, ids=ids) == fairnepv.score(data, [19, 18])
    assert fairnepv.score(data, [0, 1], ids=ids) == fairnepv.score(data, [0, 1])


def all_tied(case: cases.Case, rules: Constraints) -> list[tuple[int, ...]]:
    """The optima among the allowed subsets, in lexicographic order."""
    Ls, n = case_kernels(case), len(case.views[0])
    scores = {S: reference.fair_score(Ls, S, case.tau) for S in feasible_subsets(rules, n, case.k)}
    best = max(scores.values())
    return [S for S, score in scores.items() if score >= best - reference.TIE]


@pytest.mark.sample
@pytest.mark.parametrize("seed", [None, 0, 1])
@BY_CASE
def test_enumeration_lists_all_tied_optima(monkeypatch, case, seed):
    """Without rules, and with rules that some subset meets."""
    rng = np.random.default_rng(seed)
    n = len(case.views[0])
    rules = Constraints() if seed is None else random_rules(rng, n, case.k)
    expected = all_tied(case, rules)
    for batch in (1 << 20, 7 * case.k**2):  # all at once, and seven subsets at a time
        monkeypatch.setattr("fairnepv.search.enumeration._BATCH_NUMBERS", batch)
        found = enumerate_subsets(pose_case(case, rules=rules))
        assert [tuple(S) for S in found.tied.tolist()] == expected
        assert tuple(found.indices.tolist()) == expected[0]
        assert found.ties == len(expected)


def test_copies_of_an_item_are_tied():
    """Row 0 twice more: whoever takes one of the three is tied with whoever takes another."""
    rng = np.random.default_rng(2)
    views = cases.with_duplicates(cases.random_views(rng, 8, [4, 3]), [(0, 5), (0, 7)])
    problem = pose([5 * view for view in views], 3, 0.1, [0.1, 0.1])
    alone = enumerate_subsets(problem.take(indices(0, 1, 2, 3, 4, 6)))
    assert 0 in alone.indices
    assert alone.ties == 1
    tied = enumerate_subsets(problem).tied
    rows = np.array([0, 1, 2, 3, 4, 6])[alone.indices]
    expected = [sorted([copy, *rows[rows != 0].tolist()]) for copy in (0, 5, 7)]
    assert tied.tolist() == sorted(expected)


@pytest.mark.sample(6)
@BY_CASE
def test_exhaustive_is_the_reference(case):
    optimum = fairnepv.exhaustive(named(case), case.k, **knobs(case))
    best, optima = reference.exhaustive(case_kernels(case), case.k, case.tau)
    assert optimum.fair_score == pytest.approx(best, abs=1e-9)
    assert tuple(optimum.indices.tolist()) == optima[0]
    assert optimum.ids.tolist() == optimum.indices.tolist()
    assert (optimum.subsets, optimum.ties) == (math.comb(len(case.views[0]), case.k), len(optima))
    greedy = select_case(case, method="greedy")
    lost = best - reference.fair_score(case_kernels(case), greedy.indices, case.tau)
    assert optimum.suboptimality(greedy) == pytest.approx(lost, abs=1e-9)
    score = fairnepv.score(named(case), optimum.indices, **knobs(case))
    assert optimum.suboptimality(score) == pytest.approx(0.0, abs=1e-12)
    assert optimum.coverage == pytest.approx(score.coverage, abs=1e-12)


def test_exhaustive_on_the_papers_instance():
    optimum = fairnepv.exhaustive(paper_instance(), **PAPER)
    assert optimum.fair_score == pytest.approx(cases.PAPER_OPTIMUM, abs=1e-12)
    assert optimum.ties == cases.PAPER_OPTIMA
    nepv = fairnepv.select(paper_instance(), method="nepv", **PAPER)
    assert optimum.suboptimality(nepv) == pytest.approx(
        cases.PAPER_OPTIMUM - nepv.fair_score, abs=1e-12
    )


def test_exhaustive_refuses_large_pools_with_the_count():
    with pytest.raises(InputError, match=f"{math.comb(30, 12):,} subsets"):
        fairnepv.exhaustive(small_pool(n=30), 12)
    with pytest.raises(InputError, match="more than the limit of 100"):
        fairnepv.exhaustive(small_pool(), 2, limit=100)


# --- what reviews and newcomers found -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_more_effort_never_ends_with_less(seed):
    views = cases.clustered_views(np.random.default_rng(seed), 120, [6, 9], 7)
    scores = [
        fairnepv.select(views, 8, eps=1e-2, effort=effort, certify=False).fair_score
        for effort in ("fast", "balanced", "thorough")
    ]
    assert scores[0] <= scores[1] + 1e-12
    assert scores[1] <= scores[2] + 1e-12


def test_the_nepv_start_leaves_saddles():
    """Distinct diagonal kernels: the spectral start is an axis frame, stationary and no maximum."""
    rng = np.random.default_rng(1)
    a = rng.uniform(0.01, 10, 40)
    b = rng.uniform(0.5, 2, 40) / a
    data = {"a": fairnepv.DiagonalView(a, eps=0), "b": fairnepv.DiagonalView(b, eps=0)}
    chosen = fairnepv.select(data, 6, calibration="none", method="nepv")
    reached = [row.objective for row in chosen.trace if row.stage == "ascent"][-1]
    assert reached >= fairnepv.relax(data, 6, calibration="none").value - 1e-2


def test_the_relaxation_has_the_same_bits_at_any_block_size():
    uci = {name: cases.uci()[name][::2] for name in ("fou", "pix")}
    one, *others = (
        fairnepv.relax(uci, 30, tol=1e-3, engine=fairnepv.LocalEngine(rows)).leverage
        for rows in (7, 100, 777, None)
    )
    for other in others:
        np.testing.assert_array_equal(one, other)


def wide_pool(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    wide = sp.random_array((n, 6000), density=0.01, rng=rng, format="csr")
    return {"wide": wide, "narrow": rng.standard_normal((n, 8))}


def test_compare_leaves_out_what_cannot_be_done_on_large_wide_pools(monkeypatch):
    monkeypatch.setattr("fairnepv.methods.baselines.catalogue.WIDEST_GRAM", 39)
    data = wide_pool(40)
    methods = [row.method for row in fairnepv.compare(data, 4, effort="fast")]
    left_out = {"k-dpp", "softmax", "d-optimal"}
    assert set(methods) == {*OWN, *baselines(tuple(data))} - left_out
    with pytest.raises(InputError, match=r"k-dpp.*smaller side is 40 "):
        fairnepv.select(data, 4, method="k-dpp")
    with pytest.raises(InputError, match=r"k-dpp.*smaller side is 40 "):
        fairnepv.compare(data, 4, methods=["auto", "k-dpp"])


def test_a_wide_view_of_a_small_pool_is_like_any_other():
    """Six thousand columns on forty rows: every selector, and the spectral bound."""
    data = wide_pool(40)
    rows = fairnepv.compare(data, 4, effort="fast")
    assert [row.method for row in rows] == all_methods(["wide", "narrow"])
    views = [data["wide"].toarray(), data["narrow"]]
    Ls = calibrated(views, "unit-diagonal", 0.1)
    certificate = rows["auto"].certificate
    assert certificate.spectral_bound == pytest.approx(
        reference.spectral_certificate(Ls, 4, 0.05), abs=1e-9
    )
    assert rows["auto"].fair_score <= certificate.upper_bound <= certificate.spectral_bound
    assert certificate.ranks == {"wide": 40, "narrow": 8}


@pytest.mark.parametrize("eps", [1e-16, 1e-100, 1e-300])
@pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")
def test_a_vanishing_ridge_ends_in_a_status(eps):
    rng = np.random.default_rng(3)
    data = {"a": rng.standard_normal((60, 6)), "b": rng.standard_normal((60, 9))}
    chosen = fairnepv.select(data, 12, eps=eps)
    assert len(set(chosen.indices.tolist())) == 12
    assert chosen.status is Status.INDEFINITE


def test_coverage_does_not_know_of_quality():
    rng = np.random.default_rng(4)
    data = {"a": rng.standard_normal((30, 5))}
    quality = np.where(np.arange(30) < 10, 0.0, 1.0)
    plain, weighed = (fairnepv.score(data, [0, 1, 20], quality=q) for q in (None, quality))
    assert weighed.coverage == plain.coverage


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "gpu"}, "there is no engine 'gpu'; name 'local'"),
        ({"progress": "on"}, "progress must be"),
        ({"quality": np.zeros(20)}, "0 in every row"),
    ],
)
def test_things_of_the_wrong_kind_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        fairnepv.select(np.random.default_rng(5).standard_normal((20, 4)), 3, **options)


def test_methods_to_compare_may_be_one_and_not_none():
    data = np.random.default_rng(6).standard_normal((20, 4))
    assert [row.method for row in fairnepv.compare(data, 3, methods="greedy")] == ["greedy"]
    with pytest.raises(InputError, match="methods is empty"):
        fairnepv.compare(data, 3, methods=[])


def test_results_print_in_a_few_lines():
    data = np.random.default_rng(7).standard_normal((20, 4))
    rows = fairnepv.compare(data, 3, methods=["greedy", "random"])
    assert repr(rows).count("\n") == 3  # a headline, names of columns, and the rows
    assert "3 from 20 by 'greedy'" in repr(rows["greedy"])
    assert str(rows["greedy"].status) == Status.COMPLETE.value


# --- one way to a search --------------------------------------------------------------------------


def test_a_comparison_poses_its_problem_once(monkeypatch):
    posed, pose_once = [], inputs.pose
    monkeypatch.setattr(
        "fairnepv.api.plan.pose",
        lambda *given, **more: posed.append(given) or pose_once(*given, **more),
    )
    methods = ["greedy", "averaged", "random"]
    rows = fairnepv.compare(low_rank_pool(), 2, methods=methods, effort="fast")
    assert [row.method for row in rows] == methods
    assert len(posed) == 1
    assert len({id(row.problem) for row in rows}) == 1


def test_tiers_are_visited_only_where_there_are_tiers(monkeypatch):
    monkeypatch.setattr("fairnepv.api.search.find_in_tiers", None)
    monkeypatch.setattr("fairnepv.api.search.shards_of", None)
    fast = {"effort": "fast", "certify": False}
    assert len(fairnepv.select(low_rank_pool(), 2, **fast).indices) == 2
    with pytest.raises(TypeError):
        fairnepv.select(low_rank_pool(), 2, hierarchical=2, **fast)
