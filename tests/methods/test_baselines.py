"""Every baseline against its own definition, written down densely."""

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import cases
import fairnepv
import reference
from fairnepv import Calibration, DiagonalView, InputError, KernelView, Status
from fairnepv.loop import Context
from fairnepv.methods import check_method
from fairnepv.methods.baselines import KDppSampler, baselines, refuse
from fairnepv.methods.baselines.sampled import _log_elementary
from fairnepv.problem import Constraints, Problem
from fairnepv.search import EFFORTS
from search_problems import (
    STORAGE,
    best_allowed_swap,
    case_kernels,
    examples,
    feasible_subsets,
    indices,
    kernels,
    obeys,
    pose,
    pose_case,
    random_rules,
)

SEEDS = st.integers(0, 10**6)
GAIN = 1e-10 + 1e-12  # a swap must bring the first; the second is rounding
SAMPLERS = ("k-dpp", "random")
OPTIMISERS = ("view0-only", "averaged", "fixed-weight")
REFINED = ("softmax", "d-optimal", "saturate")  # which begin with a relaxation, or with levels


def select(problem: Problem, name: str, effort: str = "balanced") -> list[int]:
    result = baselines(problem.pool.names)[check_method(problem, name)](
        problem, EFFORTS[effort], Context()
    )
    assert result.status in (Status.LOCAL_OPTIMUM, Status.COMPLETE)
    assert result.indices.dtype == np.int64
    assert len(set(result.indices.tolist())) == len(result.indices) == problem.k
    return result.indices.tolist()


def own_objective(name: str, Ls: list[np.ndarray], tau: float) -> tuple[list[np.ndarray], float]:
    """What a baseline maximises, as kernels and a temperature of `reference.fair_score`."""
    return {
        "view0-only": (Ls[:1], tau),
        "averaged": ([reference.averaged_kernel(Ls)], tau),
        "fixed-weight": (Ls, math.inf),
        "softmax": ([reference.averaged_kernel(Ls)], tau),
        "d-optimal": ([reference.averaged_kernel(Ls)], tau),
        "saturate": (Ls, 1e-6),
    }[name]


def test_there_is_one_baseline_per_view_and_those_of_the_paper():
    names = ["text-only", "vision-only", "averaged", "fixed-weight", "concatenated"]
    related = ["softmax", "d-optimal", "saturate"]  # tests/test_related_work.py
    assert set(baselines(("text", "vision"))) >= {*names, *related, *SAMPLERS}


# --- Those that optimise something of their own ---------------------------------------------------


@pytest.mark.sample
@pytest.mark.parametrize("name", [*OPTIMISERS, *REFINED])
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_no_swap_improves_a_baseline_in_its_own_objective(case, name):
    own, tau = own_objective(name, case_kernels(case), case.tau)
    S = select(pose_case(case), name)
    assert best_allowed_swap(own, S, tau, Constraints()) <= reference.fair_score(own, S, tau) + GAIN


@pytest.mark.sample
@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_a_fast_baseline_is_greedy_in_its_own_objective(case, name):
    own, tau = own_objective(name, case_kernels(case), case.tau)
    assert select(pose_case(case), name, "fast") == reference.fair_greedy(own, case.k, tau)


@pytest.mark.sample
@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("storage", STORAGE)
@examples(12)
@given(SEEDS)
def test_a_baseline_honours_ridges_qualities_factors_and_rules(name, storage, seed):
    rng = np.random.default_rng(seed)
    n, k, eps = 10, 4, [0.01, 0.1, 0.5]
    views = cases.random_views(rng, n, [4, 3, 5])
    quality = list(rng.uniform(0.2, 3, size=(3, n)))
    offsets = rng.normal(size=3)
    rules = random_rules(rng, n, k)
    stored = [STORAGE[storage](view) for view in views]
    problem = pose(stored, k, 0.1, eps, rules=rules, quality=quality)
    rule = Calibration("explicit", offsets=dict(zip(problem.pool.names, offsets, strict=True)))
    pool = rule.apply(problem.pool)
    scaled = [
        math.exp(offset) * L
        for offset, L in zip(offsets, kernels(views, eps, quality), strict=True)
    ]
    own, tau = own_objective(name, scaled, 0.1)
    S = select(replace(problem, pool=pool, calibration=rule), name)
    assert obeys(rules, S)
    assert best_allowed_swap(own, S, tau, rules) <= reference.fair_score(own, S, tau) + GAIN


def test_the_baselines_optimise_different_things():
    rng = np.random.default_rng(1)
    views, eps = cases.clustered_views(rng, 40, [6, 9], 8), [0.1, 0.1]
    problem = pose(views, 8, 0.05, eps)
    Ls = kernels(views, eps)
    sets = {name: select(problem, name) for name in (*OPTIMISERS, "view1-only")}
    objectives = {name: own_objective(name, Ls, 0.05) for name in OPTIMISERS}
    objectives["view1-only"] = (Ls[1:], 0.05)
    for name, (own, tau) in objectives.items():
        scores = {other: reference.fair_score(own, S, tau) for other, S in sets.items()}
        assert max(scores, key=scores.__getitem__) == name


def test_no_searched_rival_depends_on_the_random_state():
    views = cases.clustered_views(np.random.default_rng(1), 60, [6, 9], 12)
    for name in (*OPTIMISERS, "view1-only"):
        problems = (pose(views, 8, 0.05, [0.1, 0.1], seed=seed) for seed in range(4))
        assert len({tuple(select(problem, name)) for problem in problems}) == 1


def test_the_papers_baselines_collapse_a_view():
    paper = cases.paper_instance()
    views = {name: DiagonalView(paper[name], eps=0) for name in ("text", "vision")}
    problem = pose(list(views.values()), 5, 0.15, [1.0, 1.0])
    Ls = [np.diag(paper["text"]), np.diag(paper["vision"])]
    rows = {"view0-only": "text-only", "view1-only": "vision-only", "averaged": "averaged"}
    for name, row in rows.items():
        S = select(problem, name)
        expected = cases.PAPER_TABLE[row]
        assert reference.subset_scores(Ls, S) == pytest.approx(
            [expected.text, expected.vision], abs=1e-3
        )
        assert reference.fair_score(Ls, S, 0.15) == pytest.approx(expected.fair_score, abs=1e-3)
    specialists = select(problem, "fixed-weight")
    assert max(specialists) < 10
    assert reference.subset_scores(Ls, specialists).mean() == pytest.approx(math.log(10) / 2)


# --- Concatenation --------------------------------------------------------------------------------


def concatenation_kernel(views: list[np.ndarray], eps: float) -> np.ndarray:
    """Normalised rows side by side, normalised as a whole, with a ridge."""
    beside = np.hstack([reference.unit_diagonal(view) for view in views])
    return reference.kernel(beside / math.sqrt(len(views)), eps)


@pytest.mark.sample
@pytest.mark.parametrize("block", [3, None])
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_concatenated_is_greedy_on_normalised_rows_side_by_side(case, block):
    L = concatenation_kernel(case.views, np.mean(case.eps))
    S = select(pose_case(case, block=block), "concatenated", "fast")
    assert reference.fair_greedy([L], case.k, case.tau) == S


@pytest.mark.sample(8)
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_no_swap_improves_concatenated_in_its_own_objective(case):
    own = [concatenation_kernel(case.views, np.mean(case.eps))]
    S, begun = (
        select(pose_case(case), "concatenated"),
        select(pose_case(case), "concatenated", "fast"),
    )
    score = reference.fair_score(own, S, case.tau)
    assert best_allowed_swap(own, S, case.tau, Constraints()) <= score + GAIN
    assert score >= reference.fair_score(own, begun, case.tau) - GAIN


@pytest.mark.parametrize("storage", STORAGE)
def test_concatenated_normalises_whatever_the_scales(storage):
    rng = np.random.default_rng(5)
    views = cases.random_views(rng, 20, [5, 7])
    quality = list(rng.uniform(0.1, 5, size=(2, 20)))
    stored = [STORAGE[storage](1000 * view) for view in views]
    problem = pose(stored, 6, 0.1, [0.1, 0.1], quality=quality)
    L = concatenation_kernel(views, 0.1)
    assert select(problem, "concatenated", "fast") == reference.fair_greedy([L], 6, 0.1)


def test_concatenated_obeys_the_rules():
    rng = np.random.default_rng(6)
    views = cases.random_views(rng, 12, [4, 3])
    rules = Constraints(fixed_in=indices(9, 4), fixed_out=indices(0, 1))
    S = select(pose(views, 5, 0.1, [0.1, 0.1], rules=rules), "concatenated", "fast")
    L = concatenation_kernel(views, 0.1)
    assert reference.fair_greedy([L], 5, 0.1, candidates=range(2, 12), fixed=[9, 4]) == S


# --- k-DPP ----------------------------------------------------------------------------------------


def total_variation(p: dict, q: dict) -> float:
    return sum(abs(p.get(S, 0.0) - q.get(S, 0.0)) for S in {*p, *q}) / 2


DPP_POOLS = {
    "two views": ([3, 4], [0.1, 0.3], 2),
    "k three": ([3, 4], [0.05, 0.05], 3),
    "k above rank": ([1, 1], [0.2, 0.1], 3),
    "rank one": ([1], [0.3], 2),
    "almost all": ([4, 2], [0.1, 0.1], 5),
    "one item": ([3, 2], [0.1, 0.1], 1),
    "wide": ([9, 4], [0.1, 0.3], 2),
    "wide, k four": ([20], [0.05], 4),
    "wide of low rank": ([2, 2, 2, 2], [0.1, 0.1, 0.2, 0.1], 3),
}  # those with more columns than the six rows are sampled from the kernel of the rows


@pytest.mark.sample(2)
@pytest.mark.parametrize("pool", DPP_POOLS)
def test_samples_follow_the_k_dpp_of_the_averaged_kernel(pool):
    widths, eps, k = DPP_POOLS[pool]
    rng = np.random.default_rng(12)
    views = cases.clustered_views(rng, 6, widths, 3)  # alike in pairs, so diversity matters
    views = [np.exp(0.5 * rng.normal(size=(6, 1))) * view for view in views]
    L = reference.averaged_kernel(kernels(views, eps))
    target = reference.kdpp_probabilities(L, k)
    sampler = KDppSampler(pose(views, k, 0.1, eps))
    assert sampler.by_rows == (sum(widths) > 6)
    draws = 4000
    counts = Counter(tuple(sorted(sampler.draw(rng).tolist())) for _ in range(draws))
    drawn = {S: count / draws for S, count in counts.items()}
    tolerance = 0.035
    assert total_variation(drawn, target) < tolerance
    # The test has teeth: other distributions that one might sample by mistake are not that close.
    uniform = dict.fromkeys(target, 1 / len(target))
    ridged = reference.kdpp_probabilities(L + 0.5 * np.trace(L) / 6 * np.eye(6), k)
    assert total_variation(uniform, target) > 2 * tolerance
    assert total_variation(ridged, target) > 2 * tolerance
    if k > 1:
        items = reference.kdpp_probabilities(np.diag(np.diag(L)), k)  # diversity ignored
        assert total_variation(items, target) > 2 * tolerance


@pytest.mark.sample(1)
@pytest.mark.parametrize("k", [1, 4, 7])
def test_samples_of_a_diagonal_kernel_without_ridge(k):
    """Items are then drawn in proportion to products of their values."""
    values = np.array([5.0, 1.0, 0.2, 3.0, 0.01, 1.0, 2.0, 0.5])
    problem = pose([DiagonalView(values, eps=0)], k, 0.1, [1.0])
    sampler, rng = KDppSampler(problem), np.random.default_rng(0)
    counts = Counter(tuple(sorted(sampler.draw(rng).tolist())) for _ in range(3000))
    drawn = {S: count / 3000 for S, count in counts.items()}
    target = reference.kdpp_probabilities(np.diag(values), k)
    assert all(len(set(S)) == k for S in drawn)
    assert total_variation(drawn, target) < 0.06


def test_k_dpp_returns_the_best_of_ten_samples():
    case = cases.SMALL[7]
    problem, Ls = pose_case(case), case_kernels(case)
    sampler = KDppSampler(problem)
    samples = [sampler.draw(problem.rng(4, i)).tolist() for i in range(10)]
    scores = [reference.fair_score(Ls, S, case.tau) for S in samples]
    assert len({tuple(sorted(S)) for S in samples}) > 3
    assert select(problem, "k-dpp") == samples[int(np.argmax(scores))]


def test_k_dpp_weighs_the_views_by_their_factors():
    """Under efficiency calibration L_q carries a factor, and the average is of those."""
    rng = np.random.default_rng(7)
    views, eps, k = cases.random_views(rng, 6, [2, 3]), [0.1, 0.1], 2
    problem = pose(views, k, 0.1, eps)
    rule = Calibration("explicit", offsets={"view0": 3.0, "view1": -1.0})
    sampler = KDppSampler(replace(problem, pool=rule.apply(problem.pool), calibration=rule))
    Ls = [math.exp(c) * L for c, L in zip([3.0, -1.0], kernels(views, eps), strict=True)]
    counts = Counter(tuple(sorted(sampler.draw(rng).tolist())) for _ in range(3000))
    drawn = {S: count / 3000 for S, count in counts.items()}
    target = reference.kdpp_probabilities(reference.averaged_kernel(Ls), k)
    unweighted = reference.kdpp_probabilities(reference.averaged_kernel(kernels(views, eps)), k)
    assert total_variation(drawn, target) < 0.04 < total_variation(unweighted, target) / 2


@pytest.mark.parametrize("rules", [{"fixed_in": indices(1)}, {"fixed_out": indices(1)}])
def test_k_dpp_refuses_rules_in_one_sentence(rules):
    problem = pose_case(cases.SMALL[2], rules=Constraints(**rules))
    refused = "'k-dpp' does not support include, exclude or groups"
    with pytest.raises(InputError, match=refused) as error:
        select(problem, "k-dpp")
    assert "\n" not in str(error.value)


def square_root(views: list[np.ndarray]) -> np.ndarray:
    """Features (n, n) of the same averaged kernel as that of the views."""
    beside = np.hstack(views) / math.sqrt(len(views))
    lam, U = np.linalg.eigh(beside @ beside.T)
    return U * np.sqrt(lam.clip(min=0.0))


@pytest.mark.parametrize("k", [1, 3, 6])
def test_rows_and_columns_lead_to_the_same_samples(k):
    """One kernel from more columns than rows, and from as many."""
    views = cases.clustered_views(np.random.default_rng(3), 8, [7, 5], 4)
    wide = KDppSampler(pose(views, k, 0.1, [0.1, 0.1]))
    square = KDppSampler(pose([square_root(views)], k, 0.1, [0.1]))
    assert wide.by_rows
    assert not square.by_rows
    np.testing.assert_allclose(wide.lam, square.lam, rtol=1e-10)
    np.testing.assert_allclose(wide.size_weights, square.size_weights, atol=1e-12)
    every = np.arange(len(wide.lam))
    by_rows, by_columns = wide._eigenvectors(every), square._eigenvectors(every)
    np.testing.assert_allclose(np.abs(by_rows), np.abs(by_columns), atol=1e-9)
    for seed in range(50):
        one, two = (sampler.draw(np.random.default_rng(seed)) for sampler in (wide, square))
        assert one.tolist() == two.tolist()


def thin(n: int, p: int) -> sp.csr_array:
    """One entry per row: large in shape alone."""
    return sp.csr_array((np.ones(n), np.arange(n) % p, np.arange(n + 1)), shape=(n, p))


def test_k_dpp_refuses_what_is_too_large_on_both_sides():
    problem = pose([thin(5000, 3000), thin(5000, 3000)], 3, 0.1, [0.1, 0.1])
    with pytest.raises(InputError, match=r"smaller side is 5000 .*more than 4096") as error:
        select(problem, "k-dpp")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("n", "p"), [(10, 6000), (5000, 8), (4096, 5000), (5000, 4096)])
def test_k_dpp_takes_what_is_small_on_one_side(n, p):
    problem = pose([thin(n, p)], 3, 0.1, [0.1])
    assert refuse(problem, "k-dpp") is None
    if min(n, p) < 100:
        assert len(select(problem, "k-dpp")) == 3


@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e150])
def test_elementary_symmetric_polynomials(scale):
    lam = np.array([0.5, 3.0, 1e-3, 2.0, 7.0]) * scale
    table = _log_elementary(lam, 4)
    assert table.shape == (6, 5)
    for j, t in np.ndindex(table.shape):
        terms = [
            sum(math.log(lam[i]) for i in chosen) for chosen in itertools.combinations(range(j), t)
        ]
        expected = np.logaddexp.reduce(terms) if terms else -math.inf
        assert table[j, t] == pytest.approx(expected, abs=1e-9)


# --- Random ---------------------------------------------------------------------------------------


@examples(60)
@given(SEEDS)
def test_random_obeys_the_rules(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(5, 12)), int(rng.integers(1, 5))
    rules = random_rules(rng, n, k)
    problem = pose(cases.random_views(rng, n, [3]), k, 0.1, [0.1], rules=rules, seed=seed)
    S = select(problem, "random")
    assert obeys(rules, S)
    assert S[: len(rules.fixed_in)] == rules.fixed_in.tolist()


@pytest.mark.sample(1)
@pytest.mark.parametrize("rules", [Constraints(indices(4), indices(0, 6)), Constraints()])
def test_random_draws_every_allowed_subset_alike(rules):
    views = cases.random_views(np.random.default_rng(0), 7, [3])
    counts = Counter(
        tuple(sorted(select(pose(views, 3, 0.1, [0.1], rules=rules, seed=seed), "random")))
        for seed in range(2500)
    )
    allowed = feasible_subsets(rules, 7, 3)
    assert set(counts) == set(allowed)
    expected = 2500 / len(allowed)
    chi_square = sum((counts[S] - expected) ** 2 / expected for S in allowed)
    spread = math.sqrt(2 * (len(allowed) - 1))
    assert abs(chi_square - (len(allowed) - 1)) < 4 * spread


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_depend_on_the_random_state_alone(name):
    views = cases.random_views(np.random.default_rng(0), 30, [5, 5])
    eps = [0.1, 0.1]
    drawn = {seed: select(pose(views, 6, 0.1, eps, seed=seed), name) for seed in range(4)}
    assert len({tuple(S) for S in drawn.values()}) == 4
    for seed, S in drawn.items():
        assert select(pose(views, 6, 0.1, eps, seed=seed, block=7), name, "fast") == S


@pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")
def test_averaged_claims_nothing_of_kernels_that_rounding_made_indefinite():
    """Of 60 such pools 14 had a better swap. Eigenvalues of a sum are as low as those of its parts
    together may make them."""
    rng = np.random.default_rng(0)
    halves = [X @ X.T for X in (rng.standard_normal((14, 3)), rng.standard_normal((14, 2)))]
    data = [KernelView(np.maximum(K, K.T).astype(np.float16)) for K in halves]
    found = fairnepv.select(data, 7, method="averaged", eps=1e-3, calibration="none", certify=False)
    assert found.status is Status.INEXACT
