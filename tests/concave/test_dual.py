"""The sum that is a bound, and which dual variables are taken at all."""

from dataclasses import replace

import numpy as np
import pytest

import cases
import reference
from fairnepv import InputError
from fairnepv.concave import dual as dual_module
from fairnepv.concave.dual import Dual, price, row_prices
from fairnepv.concave.proof import proven
from fairnepv.concave.spectral import score_rounding
from fairnepv.objective.explained_bound import VarianceDual
from fairnepv.objective.majorant import ViewDual
from fairnepv.problem import Constraints
from search_problems import indices, pose, representative

N, K, TAU, EPS = 12, 4, 0.1, [0.2, 0.3]
ROWS = indices(0, 3, 5, 11)


@pytest.fixture
def problem():
    return pose(cases.random_views(np.random.default_rng(1), N, [5, 6]), K, TAU, EPS)


def dual_of(weights=(0.3, 0.7), rows=ROWS, level=0.4):
    flat = ViewDual(level, np.zeros((len(rows), 0)))
    return Dual(np.array(weights), rows, (flat, flat))


def entropy(w, tau=TAU):
    return tau * sum(x * np.log(len(w) * x) for x in w if x > 0)


@pytest.mark.parametrize("weights", [(0.3, 0.7), (1.0, 0.0)])
@pytest.mark.parametrize("rules", [Constraints(), Constraints(fixed_out=indices(0, 1, 2))])
def test_a_bound_is_the_sum_of_its_parts_and_of_what_rounding_may_hide(
    weights, rules, problem, monkeypatch
):
    unit = 1e-3
    monkeypatch.setattr(dual_module, "HALF_UNIT", unit)
    problem, dual = replace(problem, constraints=rules), dual_of(weights)
    constants = [
        w * (own.constant(view, ROWS, K) / K + view.offset)
        for w, own, view in zip(weights, dual.views, problem.pool.views, strict=True)
    ]
    norms = problem.pool.squared_norms
    prices = sum(w * 0.4 * norms[:, q] / K for q, w in enumerate(weights))
    np.testing.assert_allclose(row_prices(problem, dual), prices)
    allowed = np.setdiff1d(np.arange(N), rules.fixed_out)
    best = allowed[np.argsort(-prices[allowed])[:K]]
    terms = [*constants, entropy(weights), prices[best].sum()]
    expected = sum(terms) + 4.0 * (K + 2 + 16) * unit * np.abs(terms).sum()
    found = price(problem, dual)
    assert sorted(found.best.tolist()) == sorted(best.tolist())
    assert found.bound == pytest.approx(expected, rel=1e-9)


def test_it_is_above_every_set(problem):
    Ls = [view.whole_kernel() + view.ridge * np.eye(N) for view in problem.pool.views]
    best, _ = reference.exhaustive(Ls, K, TAU)
    for level in (0.05, 0.2, 0.4, 2.0):
        assert price(problem, dual_of(level=level)).bound >= best


def test_a_row_of_which_nothing_is_known_is_no_cheap_one(problem, monkeypatch):
    monkeypatch.setattr(dual_module, "row_prices", lambda *_: np.array([np.nan] * N))
    assert price(problem, dual_of()).bound == np.inf


def test_a_view_without_weight_need_prove_nothing(problem):
    nothing = ViewDual(-1.0, np.zeros((len(ROWS), 0)))  # whose constant is infinite
    dual = replace(dual_of((1.0, 0.0)), views=(dual_of().views[0], nothing))
    assert np.isfinite(price(problem, dual).bound)
    assert proven(problem, dual) == price(problem, dual).bound


SOUND = dual_of()
FOREIGN = VarianceDual(0.0, np.zeros(len(ROWS)), 0.0, 0)


@pytest.mark.parametrize(
    "damaged",
    [
        replace(SOUND, views=SOUND.views[:1]),
        replace(SOUND, views=(SOUND.views[0], FOREIGN)),
        replace(SOUND, views=(FOREIGN, SOUND.views[1])),
        replace(SOUND, weights=np.ones(1)),
        replace(SOUND, weights=np.array([0.3, 0.7001])),
        replace(SOUND, weights=np.array([1.3, -0.3])),
        replace(SOUND, weights=np.array([np.nan, 1.0])),
        dual_of(rows=indices()),
        dual_of(rows=indices(0, 3, 3, 11)),
        dual_of(rows=indices(0, 5, 3, 11)),
        dual_of(rows=indices(-1, 3, 5, 11)),
        dual_of(rows=indices(0, 3, 5, 12)),
        replace(SOUND, rows=indices(0, 3, 5)),
    ],
    ids=str,
)
def test_what_cannot_be_about_the_data_is_refused(damaged, problem):
    with pytest.raises(InputError, match="do not fit"):
        proven(problem, damaged)


def test_what_can_be_is_priced(problem):
    assert proven(problem, SOUND) == price(problem, SOUND).bound
    assert np.isfinite(proven(problem, dual_of((0.0, 1.0))))
    assert np.isfinite(proven(problem, dual_of(rows=indices(*range(N)))))
    nearly = replace(SOUND, weights=np.array([0.3, 0.7 + 1e-10]))
    assert proven(problem, nearly) == pytest.approx(proven(problem, SOUND), abs=1e-8)


def test_dual_variables_of_one_objective_prove_nothing_of_another(problem):
    share = VarianceDual(0.0, np.full(len(ROWS), 0.1), 0.0, 2)
    dual = replace(SOUND, views=(share, share))
    assert np.isfinite(proven(representative(problem), dual))
    for mixed in ((share, SOUND.views[1]), (SOUND.views[0], share)):
        with pytest.raises(InputError, match="do not fit"):
            proven(representative(problem), replace(dual, views=mixed))


@pytest.mark.parametrize(("score", "hidden"), [(0.0, 1e-12), (3.0, 4e-12), (-9.0, 1e-11)])
def test_a_bound_is_above_what_a_score_owes_to_rounding(score, hidden):
    assert score_rounding(score) == pytest.approx(hidden, rel=1e-9, abs=0.0)
