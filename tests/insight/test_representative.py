"""Questions about representative picks, each against loops that score sets."""

from typing import Any

import numpy as np
import pytest

import fairnepv

N, K = 13, 4
RNG = np.random.default_rng(8)
DATA = {"text": RNG.standard_normal((N, 6)), "vision": RNG.standard_normal((N, 8))}
ASKED: dict[str, Any] = {"objective": "representative"}
FAST: dict[str, Any] = {**ASKED, "certify": False, "effort": "fast"}


def scored(S: Any, **options: Any) -> fairnepv.Score:
    return fairnepv.score(DATA, list(S), **{**ASKED, **options})


@pytest.fixture
def chosen() -> fairnepv.Selection:
    return fairnepv.select(DATA, K, **FAST)


@pytest.mark.parametrize("eps", [1.0, 1e-8], ids=["usual", "strained"])
def test_what_picks_bring_and_who_could_have_their_place(eps):
    chosen = fairnepv.select(DATA, K, eps=eps, **FAST)
    explanation, S = fairnepv.explain(chosen), chosen.indices.tolist()
    assert explanation.objective == "representative"
    for place in range(K):
        rest = [row for row in S if row != S[place]]
        lost = {q: chosen.scores[q] - d for q, d in scored(rest, eps=eps).scores.items()}
        own = {q: values[place] for q, values in explanation.contributions.items()}
        assert own == pytest.approx(lost, abs=1e-9)
        values = {i: scored([*rest, i], eps=eps).fair_score for i in range(N) if i not in S}
        best = max(values.values())
        assert values[int(explanation.rivals[place])] == pytest.approx(best, abs=1e-9)
        assert explanation.margins[place] == pytest.approx(chosen.fair_score - best, abs=1e-9)


def test_curves_rise(chosen):
    curve = fairnepv.curve(DATA, 8, **ASKED)
    assert (np.diff(curve.fair_scores) > 0).all()
    for size, value in zip(curve.sizes, curve.fair_scores, strict=True):
        assert value == pytest.approx(scored(curve.indices[:size]).fair_score)
    assert curve.smallest_with(fair_score=float(curve.fair_scores[4])) == 5
    assert curve.objective == "representative"


def test_variants_are_graded_by_the_same_objective(chosen):
    stability = fairnepv.stability(chosen, seeds=(), tau=(2,), eps=(0.5,))
    for variant in stability.variants:
        assert variant.fair_score == pytest.approx(scored(variant.indices).fair_score)


def test_items_are_assigned_by_centred_cosines(chosen):
    rows = {name: x - x.mean(axis=0) for name, x in DATA.items()}
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in rows.values()]
    cosine = np.mean([x @ x[chosen.indices].T for x in unit], axis=0)
    assert (fairnepv.assign(chosen).pick == cosine.argmax(axis=1)).all()


def test_extensions_keep_the_objective_unless_told_otherwise(chosen):
    grown = {name: np.vstack([x, x[:4] + 0.3]) for name, x in DATA.items()}
    more = fairnepv.extend(chosen, grown, 2, certify=False, effort="fast")
    assert (more.objective, more.settings["eps"]) == ("representative", chosen.settings["eps"])
    assert more.indices[:K].tolist() == chosen.indices.tolist()
    assert not more.notes  # shares of another pool are others
    other = fairnepv.extend(chosen, grown, 2, objective="diverse", certify=False, effort="fast")
    assert other.settings["eps"] == dict.fromkeys(DATA, 0.1)
    assert not other.settings["center"]


def test_differences_say_that_objectives_differ(chosen):
    other = fairnepv.select(DATA, K, certify=False, effort="fast")
    notes = " ".join(fairnepv.diff(chosen, other).notes)
    assert "objective is representative in a and diverse in b" in notes


def test_trade_offs_rise_to_what_a_view_has_alone():
    """Floors are held against bounds."""
    found = fairnepv.tradeoff(DATA, K, "text", points=3, **{**FAST, "effort": "balanced"})
    assert (found.scores["text"] >= found.floors - 1e-9).all()
    assert (np.diff(found.floors) > 0).all()


def test_typicality_weighs_what_is_to_be_explained():
    quality = fairnepv.typicality(DATA, neighbours=3)
    assert fairnepv.select(DATA, K, quality=quality, **FAST).settings["quality"]
