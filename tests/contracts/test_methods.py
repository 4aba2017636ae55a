"""What every selector of the catalogue keeps to: k items, the rules, one score, the same twice."""

import numpy as np
import pytest

import fairnepv
import reference
from fairnepv import UnsupportedError
from fairnepv.methods import OWN_METHODS
from fairnepv.methods.baselines import baselines
from fairnepv.methods.baselines.catalogue import FACTOR_THE_AVERAGE

N, K = 14, 4
NAMES = [*OWN_METHODS, *baselines(("a", "b"))]


def rows(seed):
    rng = np.random.default_rng(seed)
    return {"a": rng.standard_normal((N, 5)), "b": rng.standard_normal((N, 6))}


@pytest.mark.sample  # every method, and every seed with some
@pytest.mark.parametrize("method", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_k_items_that_score_what_they_score(method, seed):
    data = rows(seed)
    chosen = fairnepv.select(data, K, method=method)
    assert len(set(chosen.indices.tolist())) == K
    assert set(chosen.indices.tolist()) <= set(range(N))
    Ls = [reference.kernel(reference.unit_diagonal(Phi), 0.1) for Phi in data.values()]
    d = reference.subset_scores(Ls, chosen.indices)
    assert [*chosen.scores.values()] == pytest.approx(d, abs=1e-12)
    assert chosen.fair_score == pytest.approx(reference.soft_min(d, 0.05), abs=1e-12)
    best, _ = reference.exhaustive(Ls, K, 0.05)
    assert chosen.fair_score <= best + 1e-12
    assert chosen.upper_bound >= best - 1e-12


@pytest.mark.parametrize("method", NAMES)
def test_the_same_twice(method):
    one, other = (fairnepv.select(rows(7), K, method=method, random_state=3) for _ in range(2))
    assert one.indices.tolist() == other.indices.tolist()


@pytest.mark.parametrize("method", NAMES)
def test_rules_are_kept_or_refused(method):
    groups = np.arange(N) % 3
    rules = {"include": [2], "exclude": [0, 5], "groups": groups, "quotas": {0: 2}}
    if method in FACTOR_THE_AVERAGE:
        with pytest.raises(UnsupportedError, match=f"'{method}' does not support include"):
            fairnepv.select(rows(1), K, method=method, **rules)
        return
    picks = fairnepv.select(rows(1), K, method=method, **rules).indices.tolist()
    assert picks[0] == 2
    assert not {0, 5} & set(picks)
    assert np.count_nonzero(groups[picks] == 0) == 2


@pytest.mark.parametrize("method", NAMES)
def test_a_plan_of_it_can_be_made(method):
    assert fairnepv.plan(rows(1), K, method=method).passes > 0
