"""Pools: how views become one, by row and by id; the calibrations; and the bounds of a pool."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import fairnepv
from cases import SMALL, paper_instance, random_views
from fairnepv import Calibration, DiagonalView, InputError, KernelView, LocalEngine, Pool
from fairnepv.api.calibration import calibrate
from fairnepv.concave import GAP, certify, diagonal_bound, spectral_bound
from fairnepv.errors import Status
from fairnepv.options import CALIBRATIONS as RULES
from fairnepv.problem import Constraints, Problem
from fairnepv.views import DenseView
from reference import (
    diagonal_value,
    exhaustive,
    kernel,
    soft_min,
    spectral_certificate,
    spectral_value,
    subset_score,
    trace_normalized,
    unit_diagonal,
)
from search_problems import obeys, views_of

TEXT, VISION = random_views(np.random.default_rng(0), 14, [5, 4])
DATA = {"text": TEXT, "vision": VISION}
QUALITY = np.linspace(0.25, 4.0, 14)
WHOLE = np.arange(14)
NO_ZERO_ROW = [case for case in SMALL if case.name != "zero row"]


def _gram(*views):
    Phi = np.hstack(views)
    return Phi.T @ Phi


def _kernel_of(pool, q):
    """L_q of a pool, from what the view answers: exp(offset) (K + eps I)."""
    view, rows = pool.views[q], np.arange(pool.n)
    return math.exp(view.offset) * (view.inner(rows, rows) + view.ridge * np.eye(pool.n))


def _case_data(case):
    return {f"view{q}": view for q, view in enumerate(case.views)}


def _case_eps(case):
    return {f"view{q}": eps for q, eps in enumerate(case.eps)}


# --- Pool.of --------------------------------------------------------------------------------------


def test_from_a_mapping():
    pool = Pool.of(DATA)
    assert pool.names == ("text", "vision")
    assert (pool.n, pool.row_width) == (14, 9)
    np.testing.assert_allclose(pool.gram, _gram(TEXT, VISION), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("sequence", [list, tuple])
def test_from_a_list(sequence):
    pool = Pool.of(sequence([TEXT, VISION]))
    assert pool.names == ("view0", "view1")
    np.testing.assert_allclose(pool.gram, _gram(TEXT, VISION), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "single", [TEXT, sp.csr_array(TEXT), sp.csc_matrix(TEXT)], ids=["array", "csr", "csc"]
)
def test_from_a_single_array(single):
    pool = Pool.of(single)
    assert pool.names == ("view0",)
    np.testing.assert_allclose(pool.gram, _gram(TEXT), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("view", [KernelView(TEXT @ TEXT.T), DiagonalView(QUALITY)])
def test_from_a_single_view(view):
    pool = Pool.of(view)
    assert pool.names == ("view0",)
    assert type(pool.views[0]) is type(view)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array, sp.csc_array], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "columns",
    [
        {"text": slice(0, 5), "vision": slice(5, 9)},
        {"text": [0, 1, 2, 3, 4], "vision": np.array([5, 6, 7, 8])},
        {"text": np.arange(9) < 5, "vision": slice(5, None)},
    ],
    ids=["slices", "indices", "mask"],
)
def test_columns_of_one_array(wrap, columns):
    pool = Pool.of(wrap(np.hstack([TEXT, VISION])), views=columns)
    assert pool.names == ("text", "vision")
    np.testing.assert_allclose(pool.gram, _gram(TEXT, VISION), rtol=1e-13, atol=1e-13)


def test_columns_may_overlap_and_leave_some_out():
    pool = Pool.of(TEXT, views={"all": slice(None), "last": [4, 0]})
    np.testing.assert_allclose(pool.gram, _gram(TEXT, TEXT[:, [4, 0]]), rtol=1e-13, atol=1e-13)


def test_column_slices_share_memory():
    both = np.hstack([TEXT, VISION])
    pool = Pool.of(both, views={"text": slice(0, 5), "vision": slice(5, 9)})
    assert all(np.shares_memory(view.data, both) for view in views_of(pool))


def test_the_order_of_the_mapping_is_the_order_of_the_views():
    pool = Pool.of({"z": TEXT, "a": VISION})
    assert pool.names == ("z", "a")
    assert [view.p for view in pool.views] == [5, 4]


# --- eps ------------------------------------------------------------------------------------------


def test_eps_common_or_by_view():
    np.testing.assert_array_equal(Pool.of(DATA).eps, [0.1, 0.1])
    np.testing.assert_array_equal(Pool.of(DATA, eps=2).eps, [2.0, 2.0])
    by_view = Pool.of(DATA, eps={"vision": 0.5, "text": np.float32(0.25)})
    np.testing.assert_array_equal(by_view.eps, [0.25, 0.5])


@pytest.mark.parametrize("own", [0, 0.0, 0.3])
def test_a_view_may_bring_its_own_eps(own):
    K = TEXT @ TEXT.T + np.eye(14)
    data = {"kernel": KernelView(K, eps=own), "diag": DiagonalView(QUALITY, eps=own), "x": VISION}
    np.testing.assert_array_equal(Pool.of(data, eps=0.2).eps, [own, own, 0.2])
    np.testing.assert_array_equal(Pool.of(data, eps={"x": 0.7}).eps, [own, own, 0.7])


def test_the_users_view_object_is_left_alone():
    view = KernelView(TEXT @ TEXT.T)
    Pool.of({"kernel": view}, eps=0.7)
    assert view.eps is None
    assert view.scale is None


# --- ids ------------------------------------------------------------------------------------------

IDS = {
    "integers": 100 + np.arange(14) * 3,
    "strings": np.array([f"item-{(3 * i) % 14}" for i in range(14)]),
    "objects": np.array([f"item-{(5 * i) % 14}" for i in range(14)], dtype=object),
    "dates": np.datetime64("2024-01-01") + (np.arange(14) * 5) % 14,
}


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
@settings(derandomize=True, max_examples=25, deadline=None)
@given(order=st.permutations(range(14)))
def test_views_are_aligned_by_id(ids, order):
    """A permuted view with its permuted ids is the view itself again."""
    order = np.array(order)
    data = {"text": TEXT, "vision": VISION[order]}
    pool = Pool.of(data, ids={"text": ids, "vision": ids[order]})
    np.testing.assert_array_equal(pool.ids, ids)
    np.testing.assert_array_equal(pool.views[1].rows(WHOLE), VISION)
    np.testing.assert_allclose(pool.gram, _gram(TEXT, VISION), rtol=1e-12, atol=1e-12)


def test_every_kind_of_view_is_aligned_by_id():
    order = np.random.default_rng(1).permutation(14)
    ids = IDS["strings"]
    K = TEXT @ TEXT.T
    data = {
        "x": TEXT,
        "sparse": sp.csr_array(VISION[order]),
        "kernel": KernelView(K[np.ix_(order, order)], eps=0.4),
        "diag": DiagonalView(QUALITY[order], eps=0),
    }
    pool = Pool.of(data, ids={"x": ids} | dict.fromkeys(["sparse", "kernel", "diag"], ids[order]))
    expected = [TEXT @ TEXT.T, VISION @ VISION.T, K, np.diag(QUALITY)]
    for view, dense in zip(pool.views, expected, strict=True):
        np.testing.assert_allclose(view.inner(WHOLE, WHOLE), dense, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(pool.eps, [0.1, 0.1, 0.4, 0.0])


def test_rows_in_the_same_order_are_not_copied():
    ids = list(IDS["integers"])
    pool = Pool.of(DATA, ids={"text": ids, "vision": ids})
    assert np.shares_memory(views_of(pool)[1].data, VISION)


def test_common_ids_are_kept_and_answered_with():
    ids = [f"row {i}" for i in range(14)]
    assert list(Pool.of(DATA, ids=ids).ids) == ids
    assert Pool.of(DATA).ids is None
    selection = fairnepv.select(DATA, 3, ids=ids, method="greedy")
    assert [ids[i] for i in selection.indices] == list(selection.ids)
    without = fairnepv.select(DATA, 3, method="greedy")
    np.testing.assert_array_equal(without.ids, without.indices)


def test_selection_by_id_does_not_depend_on_the_order_of_a_later_view():
    ids = IDS["strings"]
    order = np.random.default_rng(2).permutation(14)
    straight = fairnepv.select(DATA, 4, ids=ids, method="greedy")
    shuffled = fairnepv.select(
        {"text": TEXT, "vision": VISION[order]},
        4,
        ids={"text": ids, "vision": ids[order]},
        method="greedy",
    )
    assert list(shuffled.ids) == list(straight.ids)
    assert shuffled.scores == pytest.approx(straight.scores, abs=1e-12)


@pytest.mark.parametrize("kinds", [("integers", "text"), ("text", "integers")], ids="-".join)
def test_ids_of_different_types_do_not_match(kinds):
    """10 and '10' are different ids, and '10' sorts before '9': never guess."""
    numbers = np.arange(14)
    forms = {"integers": numbers, "text": numbers.astype(str)}
    with pytest.raises(InputError, match=r"text.*vision"):
        Pool.of(DATA, ids={"text": forms[kinds[0]], "vision": forms[kinds[1]][::-1]})


# --- what a pool answers --------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3, 13, 14, 50])
def test_gram_of_mixed_views(rows):
    K = VISION @ VISION.T
    data = {"x": TEXT, "sparse": sp.csr_array(VISION), "kernel": KernelView(K)}
    gram = Pool.of(data, engine=LocalEngine(block_rows=rows)).gram
    assert gram.shape == (5 + 4 + 4, 5 + 4 + 4)  # the kernel has rank 4
    np.testing.assert_allclose(gram[:9, :9], _gram(TEXT, VISION), rtol=1e-12, atol=1e-12)
    # The features of a kernel are not unique; their products with other features are bound to
    # reproduce Phi^T K Phi.
    cross = gram[:9, 9:] @ gram[:9, 9:].T
    both = np.hstack([TEXT, VISION])
    np.testing.assert_allclose(cross, both.T @ K @ both, rtol=1e-10, atol=1e-10)


def test_gram_of_a_sparse_view_is_not_made_from_all_its_rows_at_once():
    """Blocks of sparse rows are made dense for it: 64 MB in one piece, 16 MiB in good ones."""
    n, p = 20_000, 400
    matrix = sp.csr_array((np.ones(n), np.arange(n) % p, np.arange(n + 1)), shape=(n, p))
    pool = Pool.of({"v": matrix})
    tracemalloc.start()
    try:
        gram = pool.gram
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(gram, (n / p) * np.eye(p))
    assert peak < 40e6


def test_the_largest_norms_are_those_of_the_view_at_hand():
    view = DenseView(np.diag([1.0, 3.0, 2.0, 0.5]), eps=1.0)
    assert np.sort(view.largest_norms(2)).tolist() == [4.0, 9.0]
    other = view.scaled(np.array([5.0, 1.0, 1.0, 1.0]), 0.0)
    assert np.sort(other.largest_norms(2)).tolist() == [9.0, 25.0]
    assert np.sort(view.largest_norms(2)).tolist() == [4.0, 9.0]
    assert view.largest_norms(1).tolist() == [9.0]


def test_squared_norms_are_the_diagonals():
    pool = Calibration("unit-diagonal", normalize=True).apply(
        Pool.of(DATA, quality={"text": QUALITY, "vision": QUALITY**2})
    )
    np.testing.assert_allclose(pool.squared_norms, np.stack([QUALITY, QUALITY**2], axis=1))


def test_take_only_and_with_views():
    ids = IDS["strings"]
    pool = calibrate(Pool.of(DATA), {"text": 2.0, "vision": 3.0}, 3).apply(Pool.of(DATA, ids=ids))
    rows = np.array([9, 2, 11])
    part = pool.take(rows)
    assert (part.n, part.names) == (3, pool.names)
    assert list(part.ids) == list(ids[rows])
    np.testing.assert_allclose(part.offsets, np.log([2.0, 3.0]))
    np.testing.assert_allclose(part.gram, _gram(TEXT[rows], VISION[rows]), rtol=1e-12, atol=1e-12)
    alone = pool.only("vision")
    assert alone.names == ("vision",)
    assert alone.views == (pool.views[1],)
    assert alone.ids is pool.ids
    np.testing.assert_allclose(alone.gram, _gram(VISION), rtol=1e-12, atol=1e-12)
    swapped = pool.with_views(("b", "a"), pool.views[::-1])
    np.testing.assert_allclose(swapped.gram, _gram(VISION, TEXT), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pool.gram, _gram(TEXT, VISION), rtol=1e-12, atol=1e-12)


def test_offsets_and_eps_line_up_with_the_names():
    pool = calibrate(Pool.of(DATA), {"vision": 3.0, "text": 2.0}, 3).apply(
        Pool.of(DATA, eps={"vision": 0.3, "text": 0.2})
    )
    np.testing.assert_allclose(pool.offsets, np.log([2.0, 3.0]))
    np.testing.assert_array_equal(pool.eps, [0.2, 0.3])


# --- calibration (Remark 1) -----------------------------------------------------------------------


def _calibrated(rule, quality=None, k=4, eps=0.1, data=DATA):
    pool = Pool.of(data, eps=eps, quality=quality)
    return calibrate(pool, rule, k).apply(pool)


@pytest.mark.parametrize("quality", [None, QUALITY], ids=["plain", "quality"])
@pytest.mark.parametrize("eps", [0.1, {"text": 0.01, "vision": 0.5}])
@pytest.mark.parametrize(
    ("rule", "features"),
    [("unit-diagonal", unit_diagonal), ("trace", trace_normalized), ("none", lambda Phi: Phi)],
    ids=["unit-diagonal", "trace", "none"],
)
def test_kernels_of_the_rules(rule, features, eps, quality):
    """L = diag(sqrt q) Phi Phi^T diag(sqrt q) + eps I, Phi normalised first and the ridge last."""
    pool = _calibrated(rule, quality, eps=eps)
    ridges = eps if isinstance(eps, dict) else dict.fromkeys(DATA, eps)
    for q, (name, Phi) in enumerate(DATA.items()):
        expected = kernel(features(Phi), ridges[name], quality)
        np.testing.assert_allclose(_kernel_of(pool, q), expected, rtol=1e-12, atol=1e-12)


def test_unit_diagonal_and_trace_do_what_they_say():
    unit = _calibrated("unit-diagonal")
    np.testing.assert_allclose(unit.squared_norms, 1.0, rtol=1e-14)
    trace = _calibrated("trace")
    np.testing.assert_allclose(trace.squared_norms.sum(axis=0), 14.0, rtol=1e-14)
    assert np.ptp(trace.squared_norms[:, 0]) > 0.1


@pytest.mark.parametrize("rule", ["unit-diagonal", "trace"])
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_scale_of_a_view_does_not_matter(rule, factor):
    there = _calibrated(rule)
    here = _calibrated(rule, data={"text": factor * TEXT, "vision": VISION})
    np.testing.assert_allclose(_kernel_of(here, 0), _kernel_of(there, 0), rtol=1e-12, atol=1e-12)


def test_explicit_factors_add_their_logarithm():
    pool = _calibrated({"text": 2.5, "vision": 0.125})
    plain = _calibrated("none")
    np.testing.assert_allclose(_kernel_of(pool, 0), 2.5 * _kernel_of(plain, 0), rtol=1e-12)
    np.testing.assert_allclose(_kernel_of(pool, 1), 0.125 * _kernel_of(plain, 1), rtol=1e-12)
    indices = [3, 0, 11]
    with_factors = fairnepv.score(DATA, indices, calibration={"text": 2.5, "vision": 0.125})
    without = fairnepv.score(DATA, indices, calibration="none")
    assert with_factors.scores["text"] - without.scores["text"] == pytest.approx(math.log(2.5))
    assert with_factors.scores["vision"] - without.scores["vision"] == pytest.approx(
        math.log(0.125)
    )


def test_quality_by_view_leaves_the_other_views_alone():
    pool = Pool.of(DATA)
    expected = subset_score(kernel(unit_diagonal(TEXT), 0.1, QUALITY), [1, 5, 9])
    plain = subset_score(kernel(unit_diagonal(VISION), 0.1), [1, 5, 9])
    scored = fairnepv.score(DATA, [1, 5, 9], quality={"text": QUALITY})
    assert scored.scores["text"] == pytest.approx(expected, abs=1e-12)
    assert scored.scores["vision"] == pytest.approx(plain, abs=1e-12)
    assert pool.n == 14


@pytest.mark.parametrize("kind", ["sparse", "kernel", "diagonal"])
@pytest.mark.parametrize("rule", ["unit-diagonal", "trace", "none"])
def test_rules_hold_for_every_kind_of_view(kind, rule):
    values = np.linspace(0.5, 9.0, 14)
    data, Phi = {
        "sparse": (sp.csr_array(TEXT), TEXT),
        "kernel": (KernelView(TEXT @ TEXT.T), TEXT),
        "diagonal": (DiagonalView(values), np.diag(np.sqrt(values))),
    }[kind]
    features = {"unit-diagonal": unit_diagonal, "trace": trace_normalized, "none": np.asarray}
    pool = _calibrated(rule, QUALITY, data={"v": data})
    expected = kernel(features[rule](Phi), 0.1, QUALITY)
    np.testing.assert_allclose(_kernel_of(pool, 0), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", NO_ZERO_ROW, ids=lambda case: case.name)
def test_efficiency_is_a_share_of_the_best_alone(case):
    """exp(d_q) <= 1 for every subset, and the offset is minus the view's own proven bound."""
    pool = Pool.of(_case_data(case), eps=_case_eps(case))
    record = calibrate(pool, "efficiency", case.k)
    Ls = [kernel(unit_diagonal(Phi), eps) for Phi, eps in zip(case.views, case.eps, strict=True)]
    proven = certify(_problem(_case_data(case), case.k, case.tau, _case_eps(case), "unit-diagonal"))
    for name, L in zip(pool.names, Ls, strict=True):
        assert record.offsets[name] == pytest.approx(-proven.by_view[name], abs=1e-12)
        closed_form = min(spectral_value(L, case.k), diagonal_value(L, case.k))
        assert -record.offsets[name] <= closed_form + GAP
        best = max(subset_score(L, S) for S in itertools.combinations(range(pool.n), case.k))
        assert math.exp(best + record.offsets[name]) <= 1


def test_efficiency_counts_quality_in():
    quality = {"text": QUALITY, "vision": 1 / QUALITY}
    record = calibrate(Pool.of(DATA, quality=quality), "efficiency", 4)
    proven = certify(_problem(DATA, 4, 0.1, 0.1, "unit-diagonal", quality=quality))
    for name, Phi in DATA.items():
        L = kernel(unit_diagonal(Phi), 0.1, quality[name])
        assert record.offsets[name] == pytest.approx(-proven.by_view[name], abs=1e-12)
        assert -record.offsets[name] <= min(spectral_value(L, 4), diagonal_value(L, 4)) + GAP
        best = max(subset_score(L, S) for S in itertools.combinations(range(14), 4))
        assert best + record.offsets[name] <= 0


def test_efficiency_is_of_what_the_rules_allow():
    """Rules that shut the best rows out lower the bound, and it is still above all that is left."""
    rules = Constraints(fixed_in=np.array([3]), fixed_out=np.array([0, 7, 9]))
    free, ruled = (calibrate(Pool.of(DATA), "efficiency", 4, r) for r in (None, rules))
    for name, Phi in DATA.items():
        L = kernel(unit_diagonal(Phi), 0.1)
        subsets = [S for S in itertools.combinations(range(14), 4) if obeys(rules, S)]
        best = max(subset_score(L, S) for S in subsets)
        assert best + ruled.offsets[name] <= 0
        assert ruled.offsets[name] >= free.offsets[name]


def test_efficiency_of_a_diagonal_pool_is_attained():
    """Where the bound is the best subset itself, a view alone reaches exactly 1."""
    paper = paper_instance()
    data = {name: DiagonalView(paper[name], eps=0) for name in ("text", "vision")}
    quality = {name: paper[name] for name in data}
    ones = {name: DiagonalView(np.ones(15), eps=0) for name in data}
    scored = fairnepv.score(ones, [0, 1, 2, 3, 4], calibration="efficiency", quality=quality)
    assert math.exp(scored.scores["text"]) == pytest.approx(1.0, abs=1e-10)
    assert scored.scores["vision"] == pytest.approx(math.log(0.1 / 100), abs=1e-10)


CALIBRATIONS = [*RULES, {"text": 0.7, "vision": 11.0}]


@pytest.mark.parametrize("quality", [None, {"vision": QUALITY}], ids=["plain", "quality"])
@pytest.mark.parametrize("calibration", CALIBRATIONS, ids=str)
def test_a_recorded_calibration_scores_the_same_again(calibration, quality):
    settings_ = {"eps": {"text": 0.05, "vision": 0.2}, "tau": 0.1, "quality": quality}
    selection = fairnepv.select(DATA, 4, calibration=calibration, method="greedy", **settings_)
    again = fairnepv.score(DATA, selection.indices, calibration=selection.calibration, **settings_)
    assert again.scores == pytest.approx(selection.scores, abs=1e-12)
    assert again.fair_score == pytest.approx(selection.fair_score, abs=1e-12)
    assert again.worst_view == selection.worst_view
    assert again.coverage == pytest.approx(selection.coverage, abs=1e-12)
    assert again.view_weights == pytest.approx(selection.view_weights, abs=1e-10)


@pytest.mark.parametrize("rule", ["trace", "efficiency"])
def test_a_recorded_calibration_is_not_made_anew(rule):
    """Other data and another k are measured with the old yardstick."""
    crowded = {"text": TEXT + 9, "vision": VISION}  # its spectral bound is the smaller one
    selection = fairnepv.select(crowded, 4, calibration=rule, method="greedy")
    other = {"text": 10 * TEXT[:9] + 90, "vision": VISION[:9]}
    scored = fairnepv.score(other, [0, 5], calibration=selection.calibration)
    record = selection.calibration
    for name, Phi in other.items():
        features = (
            unit_diagonal(Phi) if rule == "efficiency" else math.sqrt(record.factors[name]) * Phi
        )
        expected = subset_score(kernel(features, 0.1), [0, 5]) + record.offsets.get(name, 0.0)
        assert scored.scores[name] == pytest.approx(expected, abs=1e-12)
    fresh = fairnepv.score(other, [0, 5], calibration=rule)
    assert fresh.scores["text"] != pytest.approx(scored.scores["text"], abs=1e-3)


@pytest.mark.parametrize("calibration", ["trace", "efficiency", {"text": 0.7, "vision": 11.0}])
@pytest.mark.parametrize("data", [{"text": TEXT}, DATA | {"more": TEXT}, {"a": TEXT, "b": VISION}])
def test_a_recorded_calibration_is_refused_for_other_views(calibration, data):
    record = calibrate(Pool.of(DATA), calibration, 4)
    with pytest.raises(InputError, match=r"text.*vision"):
        fairnepv.score(data, [0, 1], calibration=record)


def test_data_is_shared_under_every_rule():
    for rule in CALIBRATIONS:
        pool = _calibrated(rule, QUALITY)
        assert all(
            np.shares_memory(v.data, x) for v, x in zip(pool.views, DATA.values(), strict=True)
        )


# --- bounds (appendix B) --------------------------------------------------------------------------


def _problem(data, k, tau, eps, rule="none", quality=None):
    pool = Pool.of(data, eps=eps, quality=quality)
    record = calibrate(pool, rule, k)
    return Problem(record.apply(pool), k, tau, record)


def _dense_kernels(case, features=np.asarray):
    return [kernel(features(Phi), eps) for Phi, eps in zip(case.views, case.eps, strict=True)]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_certificate_is_the_papers(case):
    certificate = certify(_problem(_case_data(case), case.k, case.tau, _case_eps(case)))
    Ls = _dense_kernels(case)
    expected = spectral_certificate(Ls, case.k, case.tau)
    assert certificate.spectral_bound == pytest.approx(expected, abs=1e-9)
    assert certificate.status is Status.CONVERGED
    assert certificate.upper_bound <= certificate.spectral_bound + GAP
    for (name, Phi), L in zip(_case_data(case).items(), Ls, strict=True):
        assert certificate.spectral[name] == pytest.approx(spectral_value(L, case.k), abs=1e-9)
        assert certificate.diagonal[name] == pytest.approx(diagonal_value(L, case.k), abs=1e-10)
        assert certificate.by_view[name] <= certificate.spectral[name] + GAP
        assert certificate.by_view[name] <= certificate.diagonal[name]
        assert certificate.ranks[name] == np.linalg.matrix_rank(Phi)
        assert certificate.rules[name] == "spectral"


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        *itertools.product(SMALL, ["none", "trace"]),
        *itertools.product(NO_ZERO_ROW, ["unit-diagonal"]),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_no_subset_is_above_its_certificate(case, rule):
    features = {"none": np.asarray, "unit-diagonal": unit_diagonal, "trace": trace_normalized}
    certificate = certify(_problem(_case_data(case), case.k, case.tau, _case_eps(case), rule))
    Ls = _dense_kernels(case, features[rule])
    best, _ = exhaustive(Ls, case.k, case.tau)
    assert certificate.upper_bound >= best
    assert certificate.spectral_bound >= best - 1e-14
    for L, bound in zip(Ls, certificate.by_view.values(), strict=True):
        assert bound >= exhaustive([L], case.k, case.tau)[0]
    hadamard = soft_min(np.array(list(certificate.diagonal.values())), case.tau)
    assert hadamard >= best - 1e-14


@pytest.mark.sample(1)
@pytest.mark.parametrize("eps", [1e-15, 1e-12, 1e-8])
def test_the_bound_stays_a_bound_when_the_ridge_drowns_in_rounding(eps):
    """The k - p eigenvalues of K that are zero come out as rounding of either sign."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        Phi = 100 * rng.standard_normal((8, 3)) @ rng.standard_normal((3, 4))  # rank 3 of 4
        certificate = certify(_problem({"v": Phi}, 4, 0.1, eps))
        singular = np.linalg.svd(Phi, compute_uv=False)[:3]
        exact = (np.log(singular**2 + eps).sum() + math.log(eps)) / 4  # in exact arithmetic
        assert certificate.spectral_bound >= exact
        subsets = itertools.combinations(range(8), 4)
        assert certificate.upper_bound >= max(view_score(Phi, eps, S) for S in subsets)


def test_offsets_shift_the_bounds():
    data, plain = DATA, certify(_problem(DATA, 3, 0.1, 0.1))
    shifted = certify(_problem(data, 3, 0.1, 0.1, {"text": 2.0, "vision": 0.5}))
    for bounds in ("by_view", "spectral", "diagonal"):
        before, after = getattr(plain, bounds), getattr(shifted, bounds)
        assert after["text"] - before["text"] == pytest.approx(math.log(2.0))
        assert after["vision"] - before["vision"] == pytest.approx(math.log(0.5))


def test_diagonal_kernels_have_their_bounds_exactly():
    paper = paper_instance()
    data = {name: DiagonalView(paper[name], eps=0) for name in ("text", "vision")}
    certificate = certify(_problem(data, 5, 0.15, 0.1))
    for name in data:
        assert certificate.by_view[name] == pytest.approx(math.log(100), abs=1e-10)
        assert certificate.spectral[name] == pytest.approx(math.log(100), abs=1e-10)
        assert certificate.diagonal[name] == pytest.approx(math.log(100), abs=1e-10)
        assert certificate.ranks[name] == 15


def test_wide_views_are_bounded_by_their_traces(monkeypatch):
    """Past the widest Gram matrix: one view from above, the narrow ones each by its own Gram."""
    monkeypatch.setattr("fairnepv.concave.spectral.WIDEST_GRAM", 7)
    rng = np.random.default_rng(3)
    a, b, wide = random_views(rng, 12, [5, 6, 9])
    case_k, tau = 4, 0.2
    certificate = certify(_problem({"a": a, "b": b, "wide": wide}, case_k, tau, 0.1))
    Ls = [kernel(Phi, 0.1) for Phi in (a, b, wide)]
    expected = [spectral_value(L, 4) for L in Ls]
    found = list(certificate.spectral.values())
    assert found[:2] == pytest.approx(expected[:2], abs=1e-10)
    assert expected[2] - 1e-10 <= found[2] <= expected[2] + 0.3
    assert certificate.spectral_bound == pytest.approx(soft_min(np.array(found), tau), abs=1e-10)
    assert certificate.upper_bound <= certificate.spectral_bound + GAP
    assert certificate.diagonal["wide"] == pytest.approx(diagonal_value(Ls[2], 4), abs=1e-10)
    assert certificate.rules == {"a": "spectral", "b": "spectral", "wide": "trace"}
    assert certificate.ranks == {"a": 5, "b": 6, "wide": None}
    assert certificate.upper_bound >= exhaustive(Ls, case_k, tau)[0]


def test_eigenvalues_that_cost_more_than_the_problem_are_left_out(monkeypatch):
    """So many multiply-adds for any problem, and so many products of its own besides."""
    rng = np.random.default_rng(3)
    narrow, wide = random_views(rng, 40, [3, 30])
    problem = _problem({"narrow": narrow, "wide": wide}, 4, 0.2, 0.1)
    work = 30**2 * 40 / 2 + 4 * 30**3
    for cheap, products, known in [
        (work, 0.0, True),
        (work - 1, 0.0, False),
        (0.0, work / problem.work(), True),
        (0.0, 0.99 * work / problem.work(), False),
    ]:
        monkeypatch.setattr("fairnepv.concave.spectral._CHEAP", cheap)
        monkeypatch.setattr("fairnepv.concave.spectral._PRODUCTS", products)
        rules = certify(problem).rules
        assert rules == {"narrow": "spectral", "wide": "spectral" if known else "trace"}


def test_a_sparse_view_with_a_large_vocabulary_is_certified():
    """Few rows of many columns: the eigenvalues of the kernel itself."""
    wide = sp.random_array((40, 50_000), density=1e-3, rng=np.random.default_rng(0), format="csr")
    certificate = certify(_problem({"wide": wide}, 5, 0.1, 0.1))
    L = kernel(wide.toarray(), 0.1)
    assert certificate.rules["wide"] == "spectral"
    assert certificate.spectral_bound == pytest.approx(spectral_value(L, 5), abs=1e-9)
    assert certificate.upper_bound <= min(spectral_value(L, 5), diagonal_value(L, 5)) + GAP
    assert certificate.diagonal["wide"] == pytest.approx(diagonal_value(L, 5), abs=1e-10)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_bound_takes_no_kernel_of_all_rows(kind):
    """Where few columns make every row affordable, n^2 numbers would not be."""
    n = 3000
    views = random_views(np.random.default_rng(5), n, [6, 9])
    data = {name: kind(view) for name, view in zip("ab", views, strict=True)}
    problem = _problem(data, 8, 0.05, 0.1, "unit-diagonal")
    tracemalloc.start()
    certificate = certify(problem)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert certificate.status is Status.CONVERGED
    assert len(certificate.proof.dual.rows) == n
    assert peak < 8 * n * n / 4


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
def test_ranks_count_what_is_there(rank):
    rng = np.random.default_rng(4)
    Phi = rng.standard_normal((20, rank)) @ rng.standard_normal((rank, 5))
    data = {"dense": Phi, "sparse": sp.csr_array(Phi), "kernel": KernelView(Phi @ Phi.T)}
    certificate = certify(_problem(data, 3, 0.1, 0.1))
    assert certificate.ranks == dict.fromkeys(data, rank)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(3, 8),
    p=st.integers(1, 5),
    eps=st.sampled_from([1e-6, 1e-3, 0.1, 10.0]),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    data=st.data(),
)
def test_bounds_bound(seed, n, p, eps, scale, data):
    k = data.draw(st.integers(1, n - 1))
    Phi = scale * np.random.default_rng(seed).standard_normal((n, p))
    view = Pool.of({"v": Phi}, eps=eps).views[0]
    L = kernel(Phi, eps)
    exact = max(view_score(Phi, eps, S) for S in itertools.combinations(range(n), k))
    lam = np.linalg.eigvalsh(Phi.T @ Phi)[::-1]
    assert spectral_bound(lam, view, k) >= exact - 1e-13 * abs(exact)
    assert diagonal_bound(view, k) >= exact - 1e-13 * abs(exact)
    assert diagonal_bound(view, k) == pytest.approx(diagonal_value(L, k), abs=1e-10)


def view_score(Phi, eps, S):
    """d(S) from singular values, exact where the determinant would round the ridge away."""
    lam = np.zeros(len(S))
    singular = np.linalg.svd(Phi[list(S)], compute_uv=False)
    lam[: len(singular)] = singular**2
    return float(np.log(lam + eps).mean())
