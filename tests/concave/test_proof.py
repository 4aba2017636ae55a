"""Proofs on their way to somebody else: stored, read back, checked, and refused when damaged."""

import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import cases
import reference
from fairnepv import Calibration, DiagonalView, InputError, KernelView, Pool, verify_bound
from fairnepv import certify as certify_data
from fairnepv.concave import (
    Proof,
    certify,
    check_proof,
    diagonal_bound,
    proof_arrays,
    read_proof,
)
from fairnepv.problem import Constraints, Problem, Quotas
from search_problems import feasible_subsets, hostile, indices

N, K, TAU = 12, 4, 0.1
EPS = {"text": 0.1, "vision": 0.05}


def features(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return dict(zip(EPS, cases.random_views(rng, N, [5, 4]), strict=True))


def pool_of(data: dict[str, np.ndarray], **options) -> Pool:
    return Pool.of(data, eps=EPS, **options)


RULES = Constraints(
    fixed_in=indices(3),
    fixed_out=indices(0, 7),
    quotas=Quotas(np.arange(N) % 3, indices(1, 0, 1), indices(2, 2, 2)),
)


def posed(data: dict[str, np.ndarray]) -> Problem:
    calibration = Calibration("explicit", offsets={"text": 0.3, "vision": -0.2})
    return Problem(
        calibration.apply(pool_of(data)),
        K,
        TAU,
        calibration,
        constraints=RULES,
        priorities=np.array([0.3, 0.7]),
    )


@pytest.fixture(scope="module")
def proof() -> Proof:
    return certify(posed(features())).proof


def stored(proof: Proof) -> dict[str, np.ndarray]:
    """Through a file that numpy wrote."""
    file = io.BytesIO()
    np.savez(file, **proof_arrays(proof))
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        return dict(archive)


def edited(proof: Proof, **changes) -> dict[str, np.ndarray]:
    """The arrays of a proof with some entries of its text replaced."""
    arrays = stored(proof)
    about = json.loads(str(arrays["about"]))
    for path, value in changes.items():
        place, (*way, last) = about, path.split("__")
        for step in way:
            place = place[step]
        place[last] = value
    return {**arrays, "about": np.array(json.dumps(about))}


# --- There and back -------------------------------------------------------------------------------


def test_a_proof_survives_the_way_through_a_file(proof):
    read = read_proof(stored(proof))
    assert (read.upper_bound, read.by_view) == (proof.upper_bound, proof.by_view)
    for own, other in [
        (proof.dual, read.dual),
        *((proof.alone[name], read.alone[name]) for name in EPS),
    ]:
        assert own.weights.tolist() == other.weights.tolist()
        assert own.rows.tolist() == other.rows.tolist()
        for left, right in zip(own.views, other.views, strict=True):
            assert (left.level, left.shift) == (right.level, right.shift)
            assert (left.combine == right.combine).all()
    ours, theirs = proof.terms, read.terms
    assert (ours.n, ours.k, ours.tau, ours.eps) == (theirs.n, theirs.k, theirs.tau, theirs.eps)
    assert ours.calibration == theirs.calibration
    assert ours.priorities.tolist() == theirs.priorities.tolist()
    assert ours.constraints.fixed_in.tolist() == theirs.constraints.fixed_in.tolist()
    assert ours.constraints.fixed_out.tolist() == theirs.constraints.fixed_out.tolist()
    quotas = ours.constraints.quotas, theirs.constraints.quotas
    assert quotas[0].groups.tolist() == quotas[1].groups.tolist()
    assert quotas[0].least.tolist() == quotas[1].least.tolist()
    assert quotas[0].most.tolist() == quotas[1].most.tolist()
    assert ours.quality is theirs.quality is False


def test_an_open_archive_is_read_as_it_is(proof):
    file = io.BytesIO()
    np.savez(file, **proof_arrays(proof))
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        assert read_proof(archive).upper_bound == proof.upper_bound


def test_a_proof_without_rules_and_priorities():
    calibration = Calibration("none")
    problem = Problem(calibration.apply(pool_of(features())), K, TAU, calibration)
    read = read_proof(stored(certify(problem).proof))
    assert read.terms.priorities is None
    assert not read.terms.constraints
    assert check_proof(pool_of(features()), read).holds


def test_checking_reproduces_the_claims(proof):
    verified = check_proof(pool_of(features()), read_proof(stored(proof)))
    assert verified.holds
    assert verified.upper_bound == pytest.approx(proof.upper_bound, abs=1e-12)
    for name, bound in verified.by_view.items():
        assert bound == pytest.approx(proof.by_view[name], abs=1e-12)


def test_what_was_verified_says_so(proof):
    verified = check_proof(pool_of(features()), proof)
    said = repr(verified)
    assert f"the bound holds: no {K} items score above {verified.upper_bound:.6g}" in said
    forged = replace(proof, upper_bound=proof.upper_bound - 1.0)
    assert "does NOT hold" in repr(check_proof(pool_of(features()), forged))


def test_what_is_proven_is_true(proof):
    data = features()
    subsets = feasible_subsets(RULES, N, K)
    Ls = [
        math.exp(offset) * reference.kernel(data[name], EPS[name])
        for name, offset in proof.terms.calibration.offsets.items()
    ]
    d = reference.view_scores(Ls, subsets)
    verified = check_proof(pool_of(data), proof)
    best = max(reference.prioritized(row, TAU, np.array([0.3, 0.7])) for row in d)
    assert best <= verified.upper_bound <= best + 0.5
    for bound, own in zip(verified.by_view.values(), d.max(axis=0), strict=True):
        assert bound >= own


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_proofs_of_any_pool_hold_for_it(seed):
    """Kernels without a ridge, diagonals, sparse views, rules and priorities among them."""
    pool = hostile(seed, most_rows=9)
    proof = read_proof(stored(certify(pool.problem).proof))
    bare = tuple(view.scaled(None, 0.0) for view in pool.problem.pool.views)
    verified = check_proof(pool.problem.pool.with_views(pool.problem.pool.names, bare), proof)
    assert verified.holds
    assert verified.upper_bound >= pool.best


# --- What does not follow -------------------------------------------------------------------------


def test_a_smaller_claim_does_not_hold(proof):
    smaller = replace(proof, upper_bound=proof.upper_bound - 1e-6)
    assert not check_proof(pool_of(features()), smaller).holds
    assert check_proof(pool_of(features()), replace(proof, upper_bound=9.0)).holds


@pytest.mark.parametrize("name", list(EPS))
def test_a_smaller_claim_about_a_view_does_not_hold(proof, name):
    by_view = {**proof.by_view, name: proof.by_view[name] - 1e-6}
    assert not check_proof(pool_of(features()), replace(proof, by_view=by_view)).holds


def test_other_data_does_not_bear_the_claim_out(proof):
    data = features()
    assert not check_proof(pool_of({**data, "text": 3 * data["text"]}), proof).holds
    assert not check_proof(pool_of(features(seed=1)), proof).holds
    swapped = data["vision"].copy()
    swapped[[3, 4]] = 5 * swapped[[4, 3]]
    assert not check_proof(pool_of({**data, "vision": swapped}), proof).holds


@pytest.mark.parametrize("what", ["level", "combine", "weights", "rows"])
def test_tampered_dual_variables_do_not_prove_the_claim(proof, what):
    """They prove something else, and never less than the truth."""
    rng = np.random.default_rng(2)
    best = check_proof(pool_of(features()), proof).upper_bound
    dual, own = proof.dual, proof.dual.views[0]
    tampered = {
        "level": replace(dual, views=(replace(own, level=0.8 * own.level), *dual.views[1:])),
        "combine": replace(dual, views=(replace(own, combine=0.9 * own.combine), *dual.views[1:])),
        "weights": replace(dual, weights=dual.weights[::-1].copy()),
        "rows": replace(dual, rows=np.sort(rng.permutation(N)[: len(dual.rows)])),
    }[what]
    verified = check_proof(pool_of(features()), replace(proof, dual=tampered))
    assert not verified.holds
    assert verified.upper_bound > best


def kernel_proof(eps: float = 0.0) -> tuple[dict[str, KernelView], Proof]:
    X = np.random.default_rng(4).standard_normal((8, 8))
    data = {"a": KernelView(X @ X.T + 0.2 * np.eye(8), eps=eps)}
    return data, certify_data(data, 3, calibration="none").proof


@pytest.mark.parametrize("excess", [1e-3, 1.0, math.nan])
def test_a_shift_above_the_smallest_eigenvalue_proves_nothing(excess):
    data, proof = kernel_proof()
    pool = Pool.of(data)
    (own,) = proof.dual.views
    assert own.shift > 0.1
    assert check_proof(pool, proof).holds
    greedy = replace(proof.dual, views=(replace(own, shift=own.shift + excess),))
    alone = dict.fromkeys(proof.alone, greedy)
    hadamard = diagonal_bound(proof.terms.pose(pool).pool.views[0], 3)
    found = check_proof(pool, replace(proof, dual=greedy, alone=alone))
    assert found.upper_bound == pytest.approx(hadamard)  # which needs no dual variables
    assert not found.holds


def test_a_shift_is_checked_with_room_for_another_machine():
    """Eigenvalues differ in their last digits elsewhere, and proofs must hold there as well."""
    data, proof = kernel_proof()
    nudged = KernelView(data["a"].kernel - 1e-15 * np.eye(8), eps=0.0)
    assert check_proof(Pool.of({"a": nudged}), proof).holds


def test_rows_of_features_have_no_eigenvalue_to_give_away(proof):
    own = proof.dual.views[0]
    dual = replace(proof.dual, views=(replace(own, shift=1e-9), *proof.dual.views[1:]))
    assert not check_proof(pool_of(features()), replace(proof, dual=dual)).holds


# --- The wrong problem ----------------------------------------------------------------------------


def test_data_of_another_shape_is_refused(proof):
    data = features()
    with pytest.raises(InputError, match="rows"):
        check_proof(pool_of({name: view[:-1] for name, view in data.items()}), proof)
    with pytest.raises(InputError, match="in this order"):
        check_proof(pool_of({name: data[name] for name in reversed(data)}), proof)
    with pytest.raises(InputError, match="views"):
        check_proof(Pool.of({"text": data["text"]}), proof)


def test_another_ridge_is_refused(proof):
    with pytest.raises(InputError, match="eps"):
        check_proof(Pool.of(features(), eps=0.1), proof)


def test_quality_must_be_given_as_it_was(proof):
    quality = np.linspace(0.5, 1.5, N)
    with pytest.raises(InputError, match="no quality"):
        check_proof(pool_of(features(), quality=quality), proof)
    weighed = certify_data(features(), K, eps=EPS, quality=quality)
    assert verify_bound(features(), weighed, quality=quality).holds
    assert not verify_bound(features(), weighed, quality=4 * quality).holds
    with pytest.raises(InputError, match="same quality"):
        verify_bound(features(), weighed)


@pytest.mark.parametrize("calibration", ["unit-diagonal", "trace", "none", "efficiency"])
def test_the_front_door_checks_under_any_calibration(calibration):
    certificate = certify_data(features(), K, eps=EPS, calibration=calibration, include=[2])
    verified = verify_bound(features(), read_proof(stored(certificate.proof)))
    assert verified.holds
    assert verified.upper_bound == pytest.approx(certificate.upper_bound, abs=1e-12)


@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_views_that_bring_their_own_ridge_can_be_checked(eps):
    data, proof = kernel_proof(eps)
    assert verify_bound(data, proof).holds
    with pytest.raises(InputError, match="eps"):
        verify_bound({"a": KernelView(data["a"].kernel, eps=0.25)}, proof)
    diagonal = {"a": DiagonalView(np.arange(1.0, 9.0), eps=eps), "b": features()["text"][:8]}
    certificate = certify_data(diagonal, 3, calibration="none")
    assert verify_bound(diagonal, certificate).holds


# --- Damage ---------------------------------------------------------------------------------------


def test_every_entry_is_needed(proof):
    arrays = stored(proof)
    optional = {"groups", "priorities"}  # without them it is another problem
    for name in set(arrays) - optional:
        rest = {key: value for key, value in arrays.items() if key != name}
        with pytest.raises(InputError, match="no bound"):
            read_proof(rest)
    about = json.loads(str(arrays["about"]))
    for name in about:
        rest = {key: value for key, value in about.items() if key != name}
        with pytest.raises(InputError, match="no bound"):
            read_proof({**arrays, "about": np.array(json.dumps(rest))})
    for name in set(about["terms"]) - {"center"}:  # older bounds say nothing of it
        rest = {key: value for key, value in about["terms"].items() if key != name}
        with pytest.raises(InputError, match="no bound"):
            read_proof(edited(proof, terms=rest))


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "3", '"text"', "null", "{}"])
def test_a_text_that_is_no_record_is_refused(proof, text):
    with pytest.raises(InputError):
        read_proof({**stored(proof), "about": np.array(text)})


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "fairnepv bound 99"},
        {"upper_bound": None},
        {"upper_bound": math.nan},
        {"upper_bound": "high"},
        {"by_view": {"text": 1.0}},
        {"by_view": {"text": 1.0, "vision": math.nan}},
        {"by_view": 3.0},
        {"terms__k": 0},
        {"terms__k": -1},
        {"terms__k": N + 1},
        {"terms__k": "many"},
        {"terms__tau": 0.0},
        {"terms__tau": -1.0},
        {"terms__tau": math.nan},
        {"terms__tau": math.inf},
        {"terms__eps": {}},
        {"terms__eps": [0.1, 0.1]},
        {"terms__eps": {"text": "small", "vision": 0.1}},
        {"terms__calibration": {"law": "none"}},
        {"terms__calibration": None},
        {"terms__n": "all"},
    ],
    ids=str,
)
def test_a_record_that_makes_no_sense_is_refused(proof, changes):
    with pytest.raises(InputError):
        read_proof(edited(proof, **changes))


DAMAGE = {
    "weights that are negative": ("joint/weights", lambda w: np.array([1.5, -0.5])),
    "weights that do not sum to one": ("joint/weights", lambda w: 0.9 * w),
    "weights that are NaN": ("joint/weights", lambda w: w * np.nan),
    "weights of too many views": ("joint/weights", lambda w: np.append(w, 0.0)),
    "weights as a matrix": ("joint/weights", lambda w: w[:, None]),
    "weights as text": ("joint/weights", lambda w: np.array(["a", "b"])),
    "too few levels": ("joint/levels", lambda x: x[:1]),
    "one level": ("joint/levels", lambda x: x[0]),
    "levels that are NaN": ("joint/levels", lambda x: x * np.nan),
    "infinite levels": ("joint/levels", lambda x: x + np.inf),
    "shifts that are NaN": ("joint/shifts", lambda x: x * np.nan),
    "too many shifts": ("alone-0/shifts", lambda x: np.append(x, 0.0)),
    "rows out of range": ("joint/rows", lambda x: x + N),
    "negative rows": ("joint/rows", lambda x: x - N),
    "rows in disorder": ("joint/rows", lambda x: x[::-1]),
    "rows twice": ("joint/rows", lambda x: np.sort(np.append(x[1:], x[1]))),
    "rows as fractions": ("joint/rows", lambda x: x + 0.5),
    "no rows": ("joint/rows", lambda x: x[:0]),
    "rows as a matrix": ("joint/rows", lambda x: x[:, None]),
    "a combination of other rows": ("joint/combine-0", lambda B: B[1:]),
    "a combination as a vector": ("joint/combine-0", lambda B: B.ravel()),
    "a combination with NaN": ("alone-1/combine-0", lambda B: np.where(B[0, 0] == B, np.nan, B)),
    "include out of range": ("include", lambda x: x + N),
    "include as fractions": ("include", lambda x: x + 0.5),
    "include what is excluded": ("include", lambda x: indices(0)),
    "exclude as a matrix": ("exclude", lambda x: x[:, None]),
    "too few groups": ("groups", lambda x: x[1:]),
    "a group without a quota": ("groups", lambda x: x + 1),
    "a negative group": ("groups", lambda x: x - 1),
    "groups as text": ("groups", lambda x: x.astype(str)),
    "quotas of another length": ("least", lambda x: x[1:]),
    "quotas that cannot be met": ("most", lambda x: 0 * x),
    "priorities of another length": ("priorities", lambda x: x[:1]),
    "priorities that are negative": ("priorities", lambda x: np.array([1.5, -0.5])),
    "priorities that do not sum to one": ("priorities", lambda x: 2 * x),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_arrays_are_refused(proof, damage):
    name, change = DAMAGE[damage]
    arrays = stored(proof)
    arrays[name] = change(arrays[name])
    with pytest.raises(InputError):
        check_proof(pool_of(features()), read_proof(arrays))


def test_weights_of_a_mean_cannot_be_chosen(proof):
    """At tau = inf the score is the mean of the views, which other weights do not bound."""
    averaged = replace(proof, terms=replace(proof.terms, tau=math.inf))
    assert not check_proof(pool_of(features()), averaged).holds


@pytest.mark.parametrize("wrong", [3, -1])
def test_rows_of_a_group_without_a_quota_cannot_be_posed(wrong, proof):
    """One of them is enough."""
    arrays = stored(proof)
    groups = arrays["groups"].copy()
    assert groups.max() == 2
    groups[5] = wrong
    with pytest.raises(InputError, match="cannot be posed"):
        read_proof({**arrays, "groups": groups})
