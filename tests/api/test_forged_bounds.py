"""Bounds that somebody forged with care: every field of the file changed in turn, and dual
variables that are to make arithmetic fail. Whatever is accepted is true under the printed terms."""

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cases
import reference
from fairnepv import (
    Calibration,
    FairnepvError,
    InputError,
    KernelView,
    certify,
    score,
    verify_bound,
)
from fairnepv.concave import Dual, Proof, Terms, ViewDual, proof_arrays, read_proof
from fairnepv.concave.concave import Concave
from fairnepv.report import verified_summary
from fairnepv.report.words import terms_lines
from fairnepv.views.scales import CUT_SHORT
from search_problems import feasible_subsets

N, K = 10, 3
DATA = dict(
    zip(("text", "vision"), cases.random_views(np.random.default_rng(3), N, [5, 4]), strict=True)
)
GROUPS = np.arange(N) % 2
RULED = {"include": [3], "exclude": [0, 7], "groups": GROUPS, "quotas": {0: (1, 2), 1: (1, 2)}}
CALIBRATIONS = ["unit-diagonal", "trace", "none", "efficiency", {"text": 1.5, "vision": 0.8}]


def certified(calibration: Any = "unit-diagonal", **options: Any) -> Proof:
    return certify(DATA, K, tau=0.1, eps=0.2, calibration=calibration, **options).proof


def scaled(Phi: np.ndarray, name: str, calibration: Calibration) -> np.ndarray:
    """Features as the terms of a certificate would have them."""
    if calibration.center:
        Phi = reference.centered(Phi)
    if calibration.normalize:
        return reference.unit_diagonal(Phi)
    return math.sqrt(calibration.factors.get(name, 1.0)) * Phi


def optimum(terms: Terms) -> float:
    """The best that there is under these terms, by looking at everything."""
    rule = terms.calibration
    Ls = [
        math.exp(rule.offsets.get(name, 0.0))
        * reference.kernel(scaled(DATA[name], name, rule), eps)
        for name, eps in terms.eps.items()
    ]
    M = len(Ls)
    weights = np.full(M, 1 / M) if terms.priorities is None else terms.priorities
    subsets = feasible_subsets(terms.constraints, terms.n, terms.k)
    d = reference.view_scores(Ls, subsets)
    return max(reference.prioritized(row, terms.tau, weights) for row in d)


def is_other(terms: Terms, honest: Terms) -> bool:
    theirs, ours = ({**t.record(), **t.arrays()} for t in (terms, honest))
    return theirs.keys() != ours.keys() or any(
        not np.array_equal(theirs[name], value) for name, value in ours.items()
    )


# --- Every field ----------------------------------------------------------------------------------


def other_values(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value, int(value), "yes"]
    if isinstance(value, float | int):
        near = value * (1 + 1e-12)  # which no rounded number would show
        return [value + 1, value - 1, value * 0.5, near, -value, str(value), None, True]
    if isinstance(value, str):
        return [value + "x", "none", "explicit", 3, None]
    return [None, [], 3]


def changed_texts(document: Any, way: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every leaf replaced, every name dropped, and one added to every object."""
    place = document
    for step in way:
        place = place[step]
    if isinstance(place, dict):
        yield f"{way} more", _changed(document, (*way, "more"), 1.0)
        for name in place:
            yield f"{way} without {name}", _changed(document, (*way, name), _ABSENT)
            yield from changed_texts(document, (*way, name))
        return
    for value in other_values(place):
        yield f"{way} = {value!r}", _changed(document, way, value)


_ABSENT = object()


def _changed(document: Any, way: tuple[str, ...], value: Any) -> Any:
    other = copy.deepcopy(document)
    place = other
    for step in way[:-1]:
        place = place[step]
    if value is _ABSENT:
        del place[way[-1]]
    else:
        place[way[-1]] = value
    return other


def changed_arrays(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    yield "one more", {**arrays, "more": np.zeros(1)}
    for name, array in arrays.items():
        if name == "about":
            continue
        yield f"no {name}", {other: arrays[other] for other in arrays if other != name}
        for what, changed in (
            ("+ 1", array + 1),
            ("- 1", array - 1),
            ("* 0", array * 0),
            ("reversed", array[::-1]),
            ("shorter", array[1:]),
            ("scaled", array * 0.999),
            ("text", array.astype(str)),
        ):
            yield f"{name} {what}", {**arrays, name: changed}


def forgeries(proof: Proof) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    arrays = dict(proof_arrays(proof))
    about = json.loads(str(arrays["about"]))
    for what, other in changed_texts(about):
        yield what, {**arrays, "about": np.array(json.dumps(other))}
    yield from changed_arrays(arrays)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("calibration", "ruled"),
    [
        *((calibration, False) for calibration in [*CALIBRATIONS, "cut short"]),
        ("unit-diagonal", True),
        ("trace", "centred"),
    ],
    ids=str,
)
def test_every_field_is_computed_again_checked_or_printed(calibration, ruled):
    options = {**RULED, "priorities": {"text": 0.3, "vision": 0.7}} if ruled is True else {}
    options |= {"center": True} if ruled == "centred" else {}
    proof = certified(cut_short() if calibration == "cut short" else calibration, **options)
    honest = verified_summary(verify_bound(DATA, proof))
    accepted, refused = 0, 0
    for what, arrays in forgeries(proof):
        try:
            read = read_proof(arrays)
            with np.errstate(all="ignore"):
                verified = verify_bound(DATA, read)
        except FairnepvError:
            refused += 1
            continue
        if not verified.holds:
            refused += 1
            continue
        accepted += 1
        terms = verified.claimed.terms
        assert verified.claimed.upper_bound >= optimum(terms) - 1e-9, what
        if is_other(terms, proof.terms):
            assert verified_summary(verified) != honest, what
    assert refused > accepted > 0


def test_an_honest_certificate_says_its_terms():
    verified = verify_bound(DATA, certified({"text": 1.5, "vision": 0.8}, **RULED))
    summary = "\n".join(verified_summary(verified))
    assert "3 of 10 items, tau = 0.1" in summary
    assert "view 'vision': eps = 0.2" in summary
    assert f"'text' L times exp {math.log(1.5)!r}" in summary
    assert "explicit" in summary
    assert "include: 1 row(s), 3 (of the certificate)" in summary
    assert "exclude: 2 row(s), 0, 7" in summary
    assert "groups of the rows: 0, 1, 0, 1, 0, 1, 0, 1, ... (sha256 as int64 " in summary
    assert "quotas 0: 1 to 2, 1: 1 to 2 (of the certificate)" in summary
    assert summary.endswith("The bound holds under these terms.")


@pytest.mark.parametrize(
    ("honest", "forged"),
    [
        ({"tau": 0.05}, {"tau": 0.05 * (1 - 1e-12)}),
        ({"eps": 0.2}, {"eps": 0.2 * (1 - 1e-12)}),
        ({"priorities": {"text": 0.5, "vision": 0.5}}, {"priorities": {"text": 0.5 - 1e-12}}),
        ({"calibration": {"text": 1.5}}, {"calibration": {"text": 1.5 * (1 - 1e-12)}}),
        ({"exclude": range(9)}, {"exclude": [*range(8), 9]}),
        ({"groups": np.arange(12) % 2}, {"groups": np.arange(12) // 6}),
        (
            {"groups": np.arange(12) % 10, "quotas": {9: 1}},
            {"groups": np.arange(12) % 10, "quotas": {9: 0}},
        ),
    ],
    ids=str,
)
def test_terms_that_differ_in_anything_are_printed_differently(honest, forged):
    """Numbers were rounded to six digits, long lists cut, and groups not shown at all."""
    rng = np.random.default_rng(0)
    data = {"text": rng.standard_normal((12, 3)), "vision": rng.standard_normal((12, 3))}

    def terms(options: dict[str, Any]) -> list[str]:
        whole = {"priorities": 1.0, "calibration": 2.3}
        filled = {
            name: {**value, "vision": whole[name] - value["text"]} if name in whole else value
            for name, value in options.items()
        }
        return list(terms_lines(certify(data, 3, **filled).proof.terms))

    assert terms(honest) != terms(forged)


def test_priorities_that_do_not_sum_to_one_are_refused():
    """A tau of 1e12 made a bound of -902 out of 9e-10 beyond one, under terms that were all named
    and seemed to agree."""
    even = {"text": 0.5, "vision": 0.5}
    proof = certify(DATA, K, tau=1e12, priorities=even).proof
    assert verify_bound(DATA, proof, tau=1e12, priorities=even).holds
    assert proof.terms.priorities is not None
    forged = replace(proof.terms, priorities=proof.terms.priorities * (1 + 9e-10))
    with pytest.raises(InputError, match="cannot be posed"):
        verify_bound(DATA, replace(proof, terms=forged), tau=1e12, priorities=even)
    with pytest.raises(InputError, match="cannot be posed"):
        read_proof(proof_arrays(replace(proof, terms=forged)))


def test_small_priorities_are_compared_by_their_digits():
    """1e-8 was close enough to 1e-12, which tau = 0.05 makes 0.46 nats."""
    proof = certified(priorities={"text": 1e-8, "vision": 1 - 1e-8})
    with pytest.raises(InputError, match="priorities is"):
        verify_bound(DATA, proof, priorities={"text": 1e-12, "vision": 1 - 1e-12})


@pytest.mark.parametrize("kind", [str, complex, "datetime64[s]", bool])
def test_numbers_of_other_kinds_are_refused(kind):
    arrays = dict(proof_arrays(certified(priorities={"text": 0.3, "vision": 0.7})))
    for name in ("priorities", "joint/weights", "joint/combine-0"):
        with pytest.raises(InputError, match=f"{name} must be numbers"):
            read_proof({**arrays, name: np.nan_to_num(arrays[name]).astype(kind)})


def test_wild_claims_are_printed_too():
    for claim in (1e305, -1e305):
        verified = verify_bound(DATA, replace(certified(), upper_bound=claim))
        assert repr(claim) in verified_summary(verified)[0]


# --- Calibrations that no rule gives --------------------------------------------------------------


@pytest.mark.parametrize("rule", ["unit-diagonal", "trace", "none", "efficiency"])
@pytest.mark.parametrize(
    "forged",
    [
        {"offsets": dict.fromkeys(DATA, -100.0)},
        {"offsets": dict.fromkeys(DATA, -1e-3)},
        {"normalize": False, "factors": dict.fromkeys(DATA, 1e-9)},
        {"normalize": True, "offsets": dict.fromkeys(DATA, -1.0)},
    ],
)
def test_offsets_and_factors_that_the_rule_does_not_give_are_refused(rule, forged):
    """The bound follows from its dual variables, for a problem that nobody asked about."""
    pool_of_forger = Calibration(**{"rule": rule, **forged})
    proof = certified(pool_of_forger)
    assert proof.terms.calibration.rule == rule
    with pytest.raises(InputError, match="another calibration than its rule and the data give"):
        verify_bound(DATA, proof)


def test_a_calibration_of_an_earlier_result_is_named_by_who_knows_it():
    """Its rule gives other numbers at another size; whoever reuses it says so."""
    calibration = certify(DATA, 4, eps=0.2, calibration="efficiency").proof.terms.calibration
    proof = certified(calibration)
    with pytest.raises(InputError, match="another calibration"):
        verify_bound(DATA, proof)
    assert verify_bound(DATA, proof, calibration=calibration).holds


def cut_short() -> Calibration:
    """What 'efficiency' comes to where Ctrl-C is pressed in its first step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Concave, "step", interrupted)
        return certify(DATA, K, eps=0.2, calibration="efficiency").proof.terms.calibration


def interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_a_calibration_that_was_cut_short_is_a_term():
    """Its rule gives other numbers to whoever has time, so that a bound under it was refused."""
    calibration = cut_short()
    assert calibration.rule == CUT_SHORT
    proof = read_proof(proof_arrays(certified(calibration)))
    verified = verify_bound(DATA, proof)
    assert verified.holds
    assert verified.claimed.upper_bound >= optimum(proof.terms)
    summary = "\n".join(verified_summary(verified))
    assert "efficiency, cut short, rows of unit length, 'text' L times exp" in summary
    assert "nobody computes again" in summary
    assert all(repr(offset) in summary for offset in calibration.offsets.values())
    assert verify_bound(DATA, proof, calibration=calibration).holds
    with pytest.raises(InputError, match="another calibration"):
        verify_bound(DATA, proof, calibration="efficiency")


@pytest.mark.parametrize(
    "forged",
    [
        {"normalize": False},
        {"factors": dict.fromkeys(DATA, 0.5)},
        {"offsets": {}},
        {"offsets": {"text": -1.0}},
        {"rule": "explicit"},
    ],
    ids=str,
)
def test_of_what_was_cut_short_the_form_is_checked(forged):
    proof = certified(cut_short())
    terms = replace(proof.terms, calibration=replace(proof.terms.calibration, **forged))
    with pytest.raises(InputError, match="calibration"):
        verify_bound(DATA, replace(proof, terms=terms))


# --- What a verifier expects ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "expected",
    [
        {"k": 4},
        {"k": 0.4},
        {"tau": 0.05},
        {"eps": 0.1},
        {"calibration": "none"},
        {"calibration": {"text": 1.0, "vision": 1.0}},
        {"include": [4]},
        {"exclude": []},
        {"groups": GROUPS[::-1].copy(), "quotas": RULED["quotas"]},
        {"groups": GROUPS, "quotas": {0: 1}},
        {"priorities": {"text": 0.5, "vision": 0.5}},
    ],
    ids=str,
)
def test_terms_that_are_not_expected_are_refused(expected):
    with pytest.raises(InputError, match=r"other terms|another calibration"):
        verify_bound(DATA, certified(**RULED), **expected)


def test_terms_that_are_expected_are_accepted():
    proof = certified(**RULED, priorities={"text": 0.3, "vision": 0.7})
    assert verify_bound(
        DATA,
        proof,
        k=K,
        tau=0.1,
        eps={"text": 0.2, "vision": 0.2},
        calibration="unit-diagonal",
        priorities={"text": 0.3, "vision": 0.7},
        **RULED,
    ).holds
    with pytest.raises(InputError, match="a bound has no floors"):
        verify_bound(DATA, proof, floors={"text": 0.0})


# --- Dual variables that make arithmetic fail -----------------------------------------------------


def test_a_row_whose_price_overflows_is_not_cheap():
    """Prices that are not a number sorted behind all others, so that k rows of zeros were the
    dearest and a bound of log eps was proven."""
    X = 1e80 * np.random.default_rng(0).standard_normal((12, 5))
    X[:5] = 0
    options = {"calibration": "none", "exclude": [0]}
    proof = certify({"a": X}, 4, **options).proof
    U, s, _ = np.linalg.svd(X, full_matrices=False)
    level = 1e150
    dual = Dual(
        np.ones(1), np.arange(12), (ViewDual(level, (U / s * math.sqrt(level / 2))[:, :4]),)
    )
    forged = replace(proof, dual=dual, alone={"a": dual}, upper_bound=0.0, by_view={"a": 0.0})
    with np.errstate(all="ignore"):
        assert not verify_bound({"a": X}, forged).holds


@pytest.mark.parametrize("seed", range(5))
def test_norms_hold_where_squares_of_scales_vanish(seed):
    """A factor of 1e-290 times a quality of 1e-33 has few digits left, though the norms that it
    belongs to are of moderate size: bounds were too low by 0.15."""
    rng = np.random.default_rng(seed)
    X = 1e145 * rng.uniform(0.5, 2.0, (6, 1))
    options = {
        "calibration": "trace",
        "eps": 1e-40,
        "quality": 10.0 ** rng.uniform(-33.5, -32.5, 6),
    }
    bound = certify({"a": X}, 1, **options)
    verified = verify_bound({"a": X}, bound, quality=options["quality"])
    best = max(score({"a": X}, [row], **options).fair_score for row in range(6))
    assert min(bound.upper_bound, verified.upper_bound) >= best - 1e-9


WILD = st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e-150, 1e-8, 1e8, 1e150, 1e300, 1e307, 0.3])


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["features", "kernel"]),
    WILD,
    WILD,
    st.sampled_from([0.0, -1e-12, -1.0, -1e8, -1e20, -1e150, 1e-3]),
    st.integers(0, 2**32 - 1),
)
def test_no_dual_variables_prove_less_than_the_truth(kind, level, scale, shift, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((8, 4)) * 10.0 ** rng.integers(-3, 4, (8, 1))
    view = X if kind == "features" else KernelView(X @ X.T, eps=0.1)
    proof = certify({"a": view}, 3, calibration="none").proof
    L = reference.kernel(X, 0.1)
    best = max(
        reference.subset_score(L, S) for S in feasible_subsets(proof.terms.constraints, 8, 3)
    )
    (own,) = proof.dual.views
    near = ViewDual(own.level, own.combine * (1.0 + rng.choice([0.0, 1e-9, -1e-9])), shift)
    noise = rng.standard_normal((len(proof.dual.rows), 3))
    wild = ViewDual(level, (scale * noise).clip(-1.7e308, 1.7e308), shift)
    # W = level I - Phi^T B B^T Phi as close to singular as it gets, at any scale
    U, s, _ = np.linalg.svd(X[proof.dual.rows], full_matrices=False)
    tight = ViewDual(level, (U / s * math.sqrt(abs(level) * (1 - 1e-9)))[:, :3], shift)
    for view_dual in (near, wild, tight):
        dual = replace(proof.dual, views=(view_dual,))
        with np.errstate(all="ignore"):
            verified = verify_bound({"a": view}, replace(proof, dual=dual, alone={"a": dual}))
        assert verified.upper_bound >= best - 1e-9 * (1 + abs(best))


def test_more_columns_than_a_proof_has_are_refused():
    proof = certified()
    m = len(proof.dual.rows)
    wide = tuple(replace(own, combine=np.zeros((m, 20_000))) for own in proof.dual.views)
    with pytest.raises(InputError, match="do not fit"):
        verify_bound(DATA, replace(proof, dual=replace(proof.dual, views=wide)))
