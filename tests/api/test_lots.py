"""What lots reach stands beside every efficiency."""

import pickle

import numpy as np
import pytest

import cases
from fairnepv import Status, certify, compare, score, select
from fairnepv.objective import subset_scores
from fairnepv.report import comparison_record, selection_record, selection_summary
from fairnepv.search import Found

K, N = 6, 60
RNG = np.random.default_rng(8)
DATA = dict(zip("ab", cases.clustered_views(RNG, N, [8, 9], 9), strict=True))
GROUPS = np.arange(N) % 3
RULES = {"include": [4, 5], "exclude": [9], "groups": GROUPS, "quotas": {0: (2, 2), 1: (1, 3)}}


@pytest.mark.parametrize("objective", ["diverse", "representative"])
def test_lots_are_scored_as_any_set(objective):
    """Their mean, by the one function that scores, over the bound of the selection."""
    found = select(DATA, K, objective=objective, effort="fast", random_state=3)
    scores = found.certificate.random_scores
    assert len(scores) == 5
    assert len(set(scores)) == 5
    expected = found.units.efficiency(float(np.mean(scores)), found.upper_bound)
    assert found.random_efficiency == pytest.approx(expected, rel=1e-12)
    assert 0 <= found.random_efficiency < found.efficiency
    again = certify(DATA, K, objective=objective, random_state=3)
    assert again.random_scores == scores
    assert certify(DATA, K, objective=objective, random_state=4).random_scores != scores


def test_a_set_that_lots_exceed_says_so(monkeypatch):
    """In the units of the objective, with what to try; a lot itself does not."""
    data = {"a": np.repeat(np.eye(8), 5, axis=0), "b": np.repeat(np.eye(8), 5, axis=0)}
    alike = Found(np.arange(5), Status.COMPLETE)
    assert not any("random sets" in note for note in select(data, 5, effort="fast").notes)
    monkeypatch.setattr("fairnepv.api.search.find", lambda *_: alike)
    found = select(data, 5, method="greedy")
    (note,) = (note for note in found.notes if "random sets" in note)
    lots = float(np.mean(found.certificate.random_scores))
    assert found.fair_score < lots
    assert f"{lots:.4f} ({found.fair_score:.4f} here)" in note
    assert not any("random sets" in note for note in select(data, 5, method="random").notes)
    share = select(data, 5, method="greedy", objective="representative")
    assert any(f"({100 * share.fair_score:.2f}% here)" in note for note in share.notes)


@pytest.mark.parametrize("seed", range(4))
def test_a_set_that_ties_with_lots_is_not_below_them(seed):
    """One row of unit length is as good as any other, but for rounding of their mean."""
    rng = np.random.default_rng(seed)
    found = select({name: rng.standard_normal((30, 5)) for name in "ab"}, 1, effort="fast")
    assert not any("random sets" in note for note in found.notes)


def test_lots_keep_the_rules(monkeypatch):
    drawn = []

    def watched(pool, indices, utility):
        drawn.append(indices)
        return subset_scores(pool, indices, utility)

    monkeypatch.setattr("fairnepv.api.search.subset_scores", watched)
    found = certify(DATA, K, **RULES)
    assert len(drawn) == 5
    for rows, value in zip(drawn, found.random_scores, strict=True):
        assert {4, 5} <= set(rows.tolist())
        assert 9 not in rows
        assert (GROUPS[rows] == 0).sum() == 2
        assert 1 <= (GROUPS[rows] == 1).sum() <= 3
        assert score(DATA, rows).fair_score == pytest.approx(value, abs=1e-12)


def test_every_door_shows_them():
    found = select(DATA, K, effort="fast")
    text = " ".join(selection_summary(found))
    assert (
        f"random sets reach {100 * found.random_efficiency:.1f}% of the bound, the mean of 5"
        in text
    )
    assert selection_record(found)["random_efficiency"] == found.random_efficiency
    assert pickle.loads(pickle.dumps(found)).random_efficiency == found.random_efficiency
    rows = compare(DATA, K, methods=["greedy", "random"], effort="fast")
    for row, record in zip(rows, comparison_record(rows)["selectors"], strict=True):
        assert (
            record["random_efficiency"] == row.random_efficiency == rows["random"].random_efficiency
        )


def test_without_a_bound_or_time_there_are_none():
    assert select(DATA, K, certify=False, effort="fast").random_efficiency is None
    hurried = select(DATA, K, time_limit=1e-9)
    assert hurried.random_efficiency is None
    assert "random sets" not in " ".join(selection_summary(hurried))
