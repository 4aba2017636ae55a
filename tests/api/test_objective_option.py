"""The objective through the doors of the library: scores, defaults, units, and what is refused."""

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fairnepv
import reference
from fairnepv import DiagonalView, FairSelector, InputError, KernelView, Selection, UnsupportedError
from fairnepv.errors import CheckpointError
from fairnepv.objective import UNITS
from fairnepv.options import OBJECTIVES, default
from fairnepv.search.effort import EFFORTS

N, K = 14, 4
RNG = np.random.default_rng(5)
TEXT, VISION = RNG.standard_normal((N, 5)) + 1.0, RNG.standard_normal((N, 7))
DATA = {"text": TEXT, "vision": VISION}
ASKED: dict[str, Any] = {"objective": "representative"}
FAST: dict[str, Any] = {**ASKED, "certify": False, "effort": "fast"}
USUAL = OBJECTIVES["representative"]


def share(
    rows: Any, S: Any, weights: Any = None, *, center: bool = True, eps: float = 1.0
) -> float:
    """By hand: centred rows of unit length."""
    rows = rows - rows.mean(axis=0) if center else rows
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return reference.explained(rows, eps, list(S), weights)


def found(**options: Any) -> Selection:
    return fairnepv.select(DATA, K, **{**FAST, **options})


# --- scores ---------------------------------------------------------------------------------------


def test_scores_are_shares_of_variance():
    S = [3, 1, 8]
    score = fairnepv.score(DATA, S, **ASKED)
    d = np.array([share(TEXT, S), share(VISION, S)])
    assert list(score.scores.values()) == pytest.approx(d, abs=1e-12)
    assert score.fair_score == pytest.approx(reference.soft_min(d, USUAL["tau"]), abs=1e-12)
    assert score.objective == "representative"
    assert all(0 < value < 1 for value in score.scores.values())


def test_quality_is_how_much_there_is_to_explain():
    w = np.random.default_rng(0).uniform(0.1, 2.0, N)
    score = fairnepv.score({"text": TEXT}, [2, 5], quality=w, center=False, **ASKED)
    assert score.scores["text"] == pytest.approx(share(TEXT, [2, 5], w, center=False), abs=1e-12)


KINDS: dict[str, tuple[Any, np.ndarray]] = {
    "sparse": (sp.csr_array(VISION.clip(0)), VISION.clip(0)),
    "kernel": (KernelView(TEXT @ TEXT.T), TEXT),
    "diagonal": (DiagonalView(np.arange(1.0, N + 1)), np.diag(np.sqrt(np.arange(1.0, N + 1)))),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("center", [True, False])
def test_views_of_every_kind(kind, center):
    view, rows = KINDS[kind]
    score = fairnepv.score({"view": view}, [1, 4, 6], center=center, **ASKED)
    expected = share(rows, [1, 4, 6], center=center)
    assert score.scores["view"] == pytest.approx(expected, abs=1e-9)


def test_an_objective_that_does_not_exist_is_refused():
    for call in (fairnepv.score, fairnepv.select, fairnepv.certify, fairnepv.plan):
        with pytest.raises(InputError, match="one of diverse, representative, not 'typical'"):
            call(DATA, [1, 2] if call is fairnepv.score else K, objective="typical")


# --- defaults -------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_defaults_are_those_of_the_objective(objective):
    selection = found(objective=objective)
    assert selection.settings["objective"] == selection.objective == objective
    for name, value in OBJECTIVES[objective].items():
        wanted = dict.fromkeys(DATA, value) if name == "eps" else value
        assert selection.settings[name] == wanted
        assert default(name, objective) == value
        again = found(objective=objective, **{name: value})
        assert again.scores == selection.scores
        assert str(value) in fairnepv.select.__doc__


def test_none_is_as_the_objective_wants():
    plain = found()
    assert found(tau=None, eps=None, center=None).scores == plain.scores
    assert found(tau=0.5).settings["eps"] == plain.settings["eps"]


def test_a_calibration_of_an_earlier_result_brings_its_center():
    score = fairnepv.score(DATA, [1, 2], calibration=found(center=False).calibration, **ASKED)
    assert score.scores["text"] == pytest.approx(share(TEXT, [1, 2], center=False), abs=1e-12)


# --- selections -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["auto", "greedy", "text-only", "averaged", "fixed-weight", "concatenated", "random"],
)
def test_methods_that_work(method):
    selection = found(method=method, effort="balanced")
    S = selection.indices
    assert selection.scores == pytest.approx({"text": share(TEXT, S), "vision": share(VISION, S)})
    sums = {name: float(gains.sum()) for name, gains in selection.gains.items()}
    assert sums == pytest.approx(selection.scores)
    best = fairnepv.exhaustive(DATA, K, **ASKED)
    assert selection.fair_score <= best.fair_score + 1e-12
    if method == "text-only":
        alone = fairnepv.exhaustive({"text": TEXT}, K, **ASKED)
        assert set(S) == set(alone.indices)


def test_concatenated_rows_stay_centred():
    """Of one view they are its own rows of unit length, whatever the calibration."""
    unit = fairnepv.select({"text": TEXT}, K, method="concatenated", **FAST)
    trace = fairnepv.select({"text": TEXT}, K, method="concatenated", calibration="trace", **FAST)
    greedy = fairnepv.select({"text": TEXT}, K, method="greedy", **FAST)
    assert set(unit.indices) == set(trace.indices) == set(greedy.indices)


def test_rules_and_weights_hold():
    groups = ["ab"[i % 2] for i in range(N)]
    options: dict[str, Any] = {"include": [3], "exclude": [0, 1], "groups": groups}
    selection = found(**options, priorities={"text": 0.8, "vision": 0.2}, effort="balanced")
    chosen = set(selection.indices.tolist())
    assert selection.indices[0] == 3
    assert not chosen & {0, 1}
    assert sum(groups[i] == "a" for i in chosen) == 2
    d = np.array(list(selection.scores.values()))
    pi = np.array([0.8, 0.2])
    assert selection.fair_score == pytest.approx(reference.prioritized(d, USUAL["tau"], pi))


def test_several_sizes_and_tiers():
    sizes = fairnepv.select(DATA, [2, 4], nested=True, **FAST)
    assert set(sizes[2].indices) <= set(sizes[4].indices)
    tiers = fairnepv.select(DATA, 3, hierarchical=2, **{**FAST, "effort": "balanced"})
    assert tiers.scores == pytest.approx(fairnepv.score(DATA, tiers.indices, **ASKED).scores)


def test_selectors_of_scikit_learn():
    selector = FairSelector(k=K, **FAST).fit(DATA)
    assert selector.selection_.objective == "representative"
    assert selector.get_params()["tau"] is None


def test_what_is_stored_says_its_objective():
    selection = pickle.loads(pickle.dumps(found()))
    assert selection.objective == "representative"
    assert repr(selection).startswith(f"Selection of {K} from {N} by 'auto', representative\n")
    assert "%" in repr(selection)


def test_no_rank_is_exceeded_by_shares(recwarn):
    narrow = fairnepv.select({"text": TEXT[:, :2], "vision": VISION}, K, **FAST)
    assert not narrow.notes
    assert not recwarn


def test_checkpoints_tell_objectives_and_weights_apart(tmp_path):
    path = tmp_path / "run"
    options = {"checkpoint": path, "effort": "balanced"}
    first = found(**options)
    assert (found(**options).indices == first.indices).all()
    same = {"tau": 0.02, "eps": 1.0, "center": True}
    with pytest.raises(CheckpointError, match="another problem"):
        found(**options, **same, objective="diverse")
    with pytest.raises(CheckpointError, match="another problem"):
        found(**options, quality=np.linspace(0.5, 1.0, N))


# --- units ----------------------------------------------------------------------------------------


def test_efficiencies_and_goals():
    nats, shares = UNITS["diverse"], UNITS["representative"]
    assert nats.efficiency(-1.0, -1.0) == 1.0
    assert nats.goal(0.5, nats.efficiency(-0.3, 0.5)) == pytest.approx(-0.3)
    assert shares.efficiency(0.45, 0.5) == pytest.approx(0.9)
    assert shares.goal(0.5, 0.9) == pytest.approx(0.45)
    assert shares.efficiency(0.5, 0.4) == 1.0
    assert shares.efficiency(-1e-12, 0.4) == 0.0
    assert shares.efficiency(0.0, 0.0) == 1.0
    assert shares.rounded_up(0.54321) == "54.33%"
    assert nats.rounded_up(-0.54321) == "-0.5432"
    assert shares.rounded_up(np.inf) == "nothing"


# --- what is refused ------------------------------------------------------------------------------

FACTORS = {"text": 2.0, "vision": 1.0}


@pytest.mark.parametrize(
    "options",
    [
        {"calibration": "efficiency"},
        {"calibration": FACTORS},
        *({"method": name} for name in ("softmax", "d-optimal", "saturate", "k-dpp")),
    ],
    ids=str,
)
def test_what_shares_do_not_support_is_one_refusal(options):
    with pytest.raises(UnsupportedError, match="objective 'representative' does not support"):
        found(**options)


def test_factors_of_an_earlier_result_are_refused_everywhere():
    rule = fairnepv.select(DATA, K, calibration=FACTORS, effort="fast", certify=False).calibration
    for call, size in ((fairnepv.score, [1, 2]), (fairnepv.exhaustive, 2), (fairnepv.relax, 2)):
        with pytest.raises(UnsupportedError, match="factors on L"):
            call(DATA, size, calibration=rule, **ASKED)
    with pytest.raises(UnsupportedError, match="'efficiency'"):
        fairnepv.plan(DATA, K, calibration="efficiency", **ASKED)


@pytest.mark.parametrize("view", [KernelView(np.eye(N), eps=0), DiagonalView(np.ones(N), eps=0)])
def test_a_ridge_of_zero_is_refused(view):
    with pytest.raises(InputError, match="view 'odd' brings eps = 0"):
        fairnepv.select({"text": TEXT, "odd": view}, K, center=False, **FAST)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("calibration", ["unit-diagonal", "trace", "none"])
def test_a_view_without_variance_is_named(center, calibration):
    data = {"text": TEXT, "flat": np.ones((N, 3)) if center else np.zeros((N, 3))}
    with pytest.raises(InputError, match=r"view 'flat' (has no variance|is all zeros)"):
        fairnepv.select(data, K, center=center, calibration=calibration, **FAST)


@pytest.mark.parametrize(
    ("scale", "word"),
    [(1e-100, "multiply"), (1e-90, "multiply"), (1e77, "divide"), (1e100, "divide")],
)
def test_views_whose_second_moments_overflow_or_vanish_are_refused(scale, word):
    """Gains would be no numbers or zero, and every set a local optimum."""
    data, ridges = {"text": TEXT, "far": TEXT * scale}, {"text": 1.0, "far": scale**2}
    told = f"view 'far' has values whose second moments .*; {word} the view by a constant"
    with pytest.raises(InputError, match=told):
        fairnepv.select(data, K, calibration="none", **FAST | {"eps": ridges})
    unit = fairnepv.select(data, K, **FAST)
    same = fairnepv.select({"text": TEXT, "far": TEXT}, K, **FAST)
    assert unit.fair_score == pytest.approx(same.fair_score, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_calibration_brings_such_views_to_a_scale_that_a_bound_is_verified_on(scale):
    data = {"far": TEXT * scale}
    bound = fairnepv.certify(data, K, **ASKED)
    assert fairnepv.verify_bound(data, bound, k=K, **ASKED).holds


@pytest.mark.parametrize("least", [1.01, -0.1])
def test_floors_are_shares(least):
    with pytest.raises(InputError, match="floors of view 'text' must be a share of variance"):
        found(floors={"text": least})


def test_efforts_do_not_depend_on_the_objective():
    assert all(found(effort=name).objective == "representative" for name in EFFORTS)


# --- bounds ---------------------------------------------------------------------------------------


def test_bounds_are_shares_too(tmp_path):
    selection = fairnepv.select(DATA, K, **ASKED)
    best = fairnepv.exhaustive(DATA, K, **ASKED)
    assert best.fair_score <= selection.upper_bound + 1e-12
    assert 0 < selection.efficiency <= 1
    ratio = selection.fair_score / selection.upper_bound
    assert selection.efficiency == pytest.approx(min(ratio, 1.0))
    certificate = fairnepv.certify(DATA, K, **ASKED)
    verified = fairnepv.verify_bound(DATA, certificate, k=K, **ASKED)
    assert verified.holds
    assert verified.claimed.terms.objective == "representative"
    with pytest.raises(InputError, match="objective is 'representative', expected 'diverse'"):
        fairnepv.verify_bound(DATA, certificate, objective="diverse")


def test_targets_are_shares_of_the_bound():
    options = {**ASKED, "target_efficiency": 0.5}
    selection = fairnepv.select(DATA, K, **options)
    assert selection.efficiency >= 0.5


def test_compare_leaves_determinants_out_and_says_so():
    rows = fairnepv.compare(DATA, K, effort="fast", **ASKED)
    assert not {"softmax", "d-optimal", "saturate", "k-dpp"} & {row.method for row in rows}
    assert any(
        "softmax, d-optimal, saturate, k-dpp: left out" in note for note in rows["auto"].notes
    )
    with pytest.raises(UnsupportedError, match="does not support method 'saturate'"):
        fairnepv.compare(DATA, K, methods=["auto", "saturate"], **ASKED)


def test_exact_finds_the_optimum():
    exact = fairnepv.select(DATA, K, method="exact", **ASKED)
    best = fairnepv.exhaustive(DATA, K, **ASKED)
    assert exact.fair_score == pytest.approx(best.fair_score, abs=1e-12)
    assert exact.status is fairnepv.Status.OPTIMAL


def test_a_proof_that_nobody_asked_for_is_not_waited_for():
    """Nodes are dear here: 3,000 of them took minutes on sixty rows."""
    rng = np.random.default_rng(0)
    data = {"text": rng.standard_normal((25, 6)) + 2, "vision": rng.standard_normal((25, 9))}
    trace = fairnepv.select(data, 7, **ASKED).trace
    spent = [s.details["nodes"] for s in trace if s.stage == "exact"]
    assert max(spent, default=0) <= 150  # 12, and one subtree that is searched to the end
