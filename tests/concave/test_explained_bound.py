"""The certificate and the exact search of representative sets, against enumeration by the twin."""

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cases
import fairnepv
import reference
from fairnepv import Calibration, InputError, Pool
from fairnepv.concave import certify, check_proof, proof_arrays, read_proof
from fairnepv.concave.dual import Dual, price
from fairnepv.concave.topk import TopK, price_candidates
from fairnepv.loop import run
from fairnepv.objective import UTILITIES, subset_merit, subset_scores
from fairnepv.objective.explained_bound import HeldVariance, VarianceDual, VarianceSlope
from fairnepv.problem import Constraints, Problem
from fairnepv.search.enumeration import enumerate_subsets
from fairnepv.search.exact import Exact
from fairnepv.views import moments
from search_problems import feasible_subsets, hostile_shares, pose, representative

EXPLAINED = UTILITIES["representative"]
EPS = {"text": 0.4, "vision": 1.0}
N, K, TAU = 14, 4, 0.1


def hostile_twin(seed):
    pool = hostile_shares(seed)
    rounding = 1e-8 * max(1.0, 1e-2 / min(pool.problem.pool.eps))
    return pool, rounding


def assert_bounds_hold(pool, certificate, rounding):
    """Above every score to the last bit, and above the twin, whose inverse has a rounding."""
    problem = pool.problem
    best = max(subset_merit(problem, np.array(S)) for S in pool.subsets)
    d = [subset_scores(problem.pool, np.array(S), problem.utility) for S in pool.subsets]
    assert certificate.upper_bound >= max(best, pool.best - rounding)
    own = zip(problem.pool.names, np.max(d, axis=0), pool.d.max(axis=0), strict=True)
    for name, score, twin in own:
        for bounds in (certificate.by_view, certificate.spectral, certificate.diagonal):
            assert bounds[name] >= max(score, twin - rounding)


@pytest.mark.parametrize("seed", range(300))
def test_exact_and_exhaustive_find_every_optimum_and_no_bound_is_below(seed):
    pool, rounding = hostile_twin(seed)
    problem = pool.problem
    assert_bounds_hold(pool, certify(problem), rounding)
    everything = enumerate_subsets(problem)
    assert everything.value == pytest.approx(pool.best, abs=rounding)
    tied = {tuple(sorted(S)) for S in everything.tied.tolist()}
    clear = {S for S, F in zip(pool.subsets, pool.F, strict=True) if pool.best - 1e-11 <= F}
    assert len(tied & clear) or rounding > 1e-8
    outcome = run(Exact(problem, np.array(pool.subsets[0]), price_candidates))
    assert outcome.state.value == pytest.approx(pool.best, abs=rounding)
    assert outcome.state.upper >= pool.best - 1e-12


@pytest.mark.parametrize("seed", range(80))
def test_views_whose_moments_act_through_rows(seed, monkeypatch):
    """As those of very wide views do."""
    monkeypatch.setattr(moments, "WIDEST_MOMENTS", 0)
    pool, rounding = hostile_twin(seed)
    assert_bounds_hold(pool, certify(pool.problem), rounding)
    rng, problem = np.random.default_rng(seed), pool.problem
    rows = np.sort(rng.permutation(problem.n)[: rng.integers(1, problem.n + 1)])
    x = [rng.exponential(size=len(rows)) * rng.integers(2, size=len(rows)) for _ in pool.d[0]]
    levels, axes = (0.0, 10.0 ** rng.uniform(-4, 0)), int(rng.integers(len(rows) + 1))
    forged = tuple(VarianceDual(rng.choice(levels), own, 1e-6, axes) for own in x)
    assert price(problem, Dual(rng.dirichlet(np.ones(len(x))), rows, forged)).bound >= pool.best
    outcome = run(Exact(problem, np.array(pool.subsets[0]), price_candidates))
    assert outcome.state.value == pytest.approx(pool.best, abs=rounding)


def test_the_two_ways_to_moments_prove_about_the_same(monkeypatch):
    views = cases.random_views(np.random.default_rng(3), 300, [40, 30])
    narrow = certify(representative(pose(views, 12, 0.05, [1.0, 0.5]))).upper_bound
    monkeypatch.setattr(moments, "WIDEST_MOMENTS", 0)
    sparse = [sp.csr_array(view) for view in views]
    wide = certify(representative(pose(sparse, 12, 0.05, [1.0, 0.5])))
    assert narrow - 5e-3 <= wide.upper_bound <= narrow + 0.03
    proof = read_proof(stored(wide.proof))
    data = dict(zip(proof.terms.eps, sparse, strict=True))
    assert check_proof(Pool.of(data, eps=dict(proof.terms.eps)), proof).holds


@pytest.mark.parametrize("seed", range(40))
def test_any_dual_variables_prove_something_true(seed):
    """Whatever x, level, mass and axes: forged ones as well."""
    pool, _ = hostile_twin(seed)
    problem, rng = pool.problem, np.random.default_rng(seed)
    for wild in (1.0, 1.0, 1e150, 1e-150):
        rows = np.sort(rng.permutation(problem.n)[: rng.integers(1, problem.n + 1)])
        views = tuple(
            VarianceDual(
                float(rng.choice([0.0, wild * 10.0 ** rng.uniform(-6, 0)])),
                rng.exponential(size=len(rows)) * 10.0 ** rng.uniform(-2, 2) * wild,
                float(10.0 ** rng.uniform(-8, 1)),
                int(rng.integers(view.p + 1)),
            )
            for view in problem.pool.views
        )
        weights = rng.dirichlet(np.ones(len(views)))
        assert price(problem, Dual(weights, rows, views)).bound >= pool.best


def features(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return dict(zip(EPS, cases.random_views(rng, N, [6, 9]), strict=True))


def posed(data: dict[str, np.ndarray]) -> Problem:
    none, raw = Calibration("none"), Pool.of(data, eps=EPS)
    pool = UTILITIES["representative"].asked_about(raw, none)
    return Problem(pool, K, TAU, none, utility="representative")


@pytest.fixture(scope="module")
def proof():
    return certify(posed(features())).proof


def stored(proof) -> dict[str, np.ndarray]:
    file = io.BytesIO()
    np.savez(file, **proof_arrays(proof))
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        return dict(archive)


def best_of(data: dict[str, np.ndarray]) -> float:
    own = [(data[name], eps) for name, eps in EPS.items()]
    scores = [
        reference.soft_min(np.array([reference.explained(Phi, eps, S) for Phi, eps in own]), TAU)
        for S in feasible_subsets(Constraints(), N, K)
    ]
    return max(scores)


def test_a_proof_is_stored_read_and_checked(proof):
    verified = check_proof(Pool.of(features(), eps=EPS), read_proof(stored(proof)))
    assert verified.holds
    assert verified.upper_bound == pytest.approx(proof.upper_bound, abs=1e-12)
    assert best_of(features()) <= verified.upper_bound <= best_of(features()) + 0.15


def test_the_objective_is_a_term(proof):
    arrays = stored(proof)
    about = json.loads(str(arrays["about"]))
    assert about["terms"]["objective"] == "representative"
    for name in ("diverse", "other", 3, None):
        about["terms"]["objective"] = name
        with pytest.raises(InputError):
            read_proof({**arrays, "about": np.array(json.dumps(about))})
    with pytest.raises(InputError, match="objective"):
        proof.terms.refuse_other(replace(proof.terms, objective="diverse"))


def test_old_proofs_of_diverse_sets_are_read():
    data = features()
    none = Calibration("none")
    problem = Problem(none.apply(Pool.of(data, eps=EPS)), K, TAU, none)
    arrays = stored(certify(problem).proof)
    about = json.loads(str(arrays["about"]))
    about["format"] = "fairnepv bound 1"
    with pytest.raises(InputError, match="center"):
        read_proof({**arrays, "about": np.array(json.dumps(about))})
    del about["terms"]["objective"], about["terms"]["center"]
    read = read_proof({**arrays, "about": np.array(json.dumps(about))})
    assert read.terms.objective == "diverse"
    assert check_proof(Pool.of(data, eps=EPS), read).holds


CHANGES = {
    "x": lambda x: 0.5 * x,
    "level": lambda x: 0.3 * x + 0.01,
    "mass": lambda x: x + 0.5,
    "axes": lambda x: 1,
}


@pytest.mark.parametrize("field", CHANGES)
def test_forged_dual_variables_prove_no_less_than_the_truth(proof, field):
    dual, own = proof.dual, proof.dual.views[0]
    changed = replace(own, **{field: CHANGES[field](getattr(own, field))})
    forged = replace(proof, dual=replace(dual, views=(changed, *dual.views[1:])))
    verified = check_proof(Pool.of(features(), eps=EPS), forged)
    assert verified.upper_bound >= best_of(features())
    smaller = replace(proof, upper_bound=proof.upper_bound - 1e-6)
    assert not check_proof(Pool.of(features(), eps=EPS), smaller).holds


DAMAGE = {
    "joint/x-0": [lambda x: -x, lambda x: x[1:], lambda x: x[:, None], lambda x: x * np.nan],
    "joint/levels": [lambda x: x - 9, lambda x: x[:1], lambda x: x * np.inf],
    "joint/masses": [lambda x: x - 9, lambda x: x[:1], lambda x: x + np.nan],
    "joint/axes": [lambda x: x + 99, lambda x: x - 99, lambda x: x + 0.5, lambda x: x[:1]],
    "alone-1/x-0": [lambda x: x.astype(str), lambda x: x[:0]],
    "alone-0/rows": [lambda x: x + N, lambda x: x[::-1]],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_arrays_are_refused(proof, name):
    for change in DAMAGE[name]:
        arrays = stored(proof)
        arrays[name] = change(arrays[name])
        with pytest.raises(InputError):
            check_proof(Pool.of(features(), eps=EPS), read_proof(arrays))


def test_every_array_is_needed(proof):
    arrays = stored(proof)
    for name in arrays:
        rest = {key: value for key, value in arrays.items() if key != name}
        with pytest.raises(InputError):
            read_proof(rest)


def test_other_data_does_not_bear_the_claim_out(proof):
    assert not check_proof(Pool.of(features(seed=1), eps=EPS), proof).holds


@pytest.mark.parametrize("seed", range(20))
def test_the_majorant_is_above_every_set_and_next_to_its_lower_bound(seed):
    rng = np.random.default_rng(seed)
    n, p, k = 12, int(rng.integers(2, 16)), int(rng.integers(1, 8))
    Phi, eps = cases.random_views(rng, n, [p])[0], float(10.0 ** rng.uniform(-1, 1))
    problem = representative(pose([Phi], k, 1.0, [eps]))
    view = problem.pool.views[0]
    rows = HeldVariance.of(view, np.arange(n), p)
    kernels = HeldVariance.of_kernels(eps, Phi @ Phi.T, Phi @ Phi.T @ Phi @ Phi.T / np.sum(Phi**2))
    subsets = feasible_subsets(Constraints(), n, k)[:: max(1, 2 * k)]
    for held in (rows, kernels):
        x = 0.7 * reference.capped_simplex(rng.standard_normal(n), k) + 0.3 * k / n
        slope = VarianceSlope.at(held, x, k)
        constant = slope.value - slope.prices @ x
        for S in subsets:
            assert constant + slope.prices[list(S)].sum() >= reference.explained(Phi, eps, S) - 1e-9
        assert slope.least <= slope.value + 1e-12
        assert slope.least >= slope.value - 0.1  # exact where M and C commute
    topk = TopK((rows,), np.zeros(1), 1.0, k, k, Constraints(), utility=EXPLAINED)
    for S in subsets[:5]:
        value = topk.at(np.isin(np.arange(n), S).astype(float)).value
        assert value == pytest.approx(reference.explained(Phi, eps, S), abs=0.1)


@pytest.mark.parametrize("objective", list(UTILITIES))
def test_dual_variables_of_one_objective_prove_nothing_of_the_other(objective):
    """Those of log-determinants once proved shares below zero, and those of shares raised."""
    rng = np.random.default_rng(0)
    data = {"text": rng.standard_normal((9, 3)), "vision": rng.standard_normal((9, 4))}
    proof = fairnepv.certify(data, 3, objective=objective, eps=0.1).proof
    (other,) = set(UTILITIES) - {objective}
    with pytest.raises(InputError, match="dual variables do not fit"):
        fairnepv.verify_bound(data, replace(proof, terms=replace(proof.terms, objective=other)))


def _several_views(seed: int) -> tuple[dict[str, Any], int, dict[str, Any], float]:
    """Views of other widths, spectra, lengths and ridges."""
    rng = np.random.default_rng([9, seed])
    n, M, k = int(rng.integers(40, 500)), int(rng.integers(2, 6)), int(rng.integers(2, 20))
    data, eps = {}, {}
    for q in range(M):
        p = int(rng.integers(2, 60))
        X = rng.standard_normal((n, p)) * (np.arange(1, p + 1) ** -rng.uniform(0, 1.5))
        if rng.random() < 0.4:
            X *= 10 ** rng.uniform(-1, 1, (n, 1))
        data[f"v{q}"], eps[f"v{q}"] = X, float(10 ** rng.uniform(-3, 1))
    tau = float(10 ** rng.uniform(-3.5, -1))
    rule = str(rng.choice(["none", "trace", "unit-diagonal"]))
    options = {"objective": "representative", "tau": tau, "eps": eps, "calibration": rule}
    return data, k, options, float(rng.choice([2e-3, 1e-2, 5e-4]))


@pytest.mark.parametrize(("seed", "bound"), [(163, 0.6975), (158, 0.6408)])
def test_a_view_that_gains_weight_on_the_way_binds(seed, bound):
    """Its tangent of another point overestimated it for ever: bounds were 0.001 to 0.017 higher."""
    data, k, options, gap = _several_views(seed)
    found = fairnepv.certify(data, k, gap=gap, **options)
    assert found.upper_bound <= bound


def test_a_gap_is_not_nothing_while_the_bound_can_fall():
    """The value of the relaxation is estimated from above, and was taken for the value."""
    data, k, options, gap = _several_views(50)
    found = fairnepv.certify(data, k, gap=gap, **options)
    assert found.upper_bound - found.duality_gap <= 0.17769  # which another run has proven


@pytest.mark.parametrize("seed", range(6))
def test_the_norms_of_rows_prove_a_bound_by_themselves(seed):
    rng = np.random.default_rng(seed)
    views, eps, k = cases.random_views(rng, 12, [4, 5]), [0.1, 30.0], 3
    problem = representative(pose(views, k, 0.05, eps))
    dual = Dual.by_norms(problem)
    best = enumerate_subsets(problem).value
    assert best <= price(problem, dual).bound <= 1.0 + 1e-6
    for view, Phi, e in zip(problem.pool.views, views, eps, strict=True):
        alone = UTILITIES["representative"].bound_by_norms(view, k, 0.0)
        most = np.sort((Phi**2).sum(axis=1))[-k:].sum()
        assert (alone.level, alone.x.tolist(), alone.axes) == (0.0, [0.0], 0)
        assert alone.mass == pytest.approx(most)
        # D = d I with the best d: (1 - d)^2 + d^2 t / eps is t / (t + eps).
        no_rows = np.zeros(1, dtype=np.int64)
        pricing = alone.pricing(view, no_rows, 0.7)
        assert pricing.flat
        together = alone.constant(view, no_rows, k) + float(pricing.by_norms(most)) / 0.7
        assert together == pytest.approx(most / (most + e), rel=1e-9)
        assert together >= most / (most + e)


@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_rows_that_vanish_beside_their_ridge_are_bounded(seed):
    rng = np.random.default_rng(seed)
    data = 1e-50 * np.outer(rng.standard_normal(3), rng.standard_normal(3))
    options: Any = {"eps": 0.1, "objective": "representative", "center": False}
    chosen = fairnepv.select(data, 1, **options, calibration="none")
    assert 0 < chosen.fair_score <= chosen.upper_bound < 1e-11
