"""What every utility owes: each answer of `objective.Utility` against a dense twin of its formula.

A new utility joins by its name in `UTILITIES` and its twin below.
"""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest

import cases
import reference
from cases import Array, Case
from fairnepv.concave import certify
from fairnepv.concave.concave import Concave
from fairnepv.concave.dual import price
from fairnepv.concave.topk import TopK, price_candidates
from fairnepv.loop import run
from fairnepv.objective import (
    UTILITIES,
    Standing,
    StiefelObjective,
    determinant_of,
    subset_gains,
    subset_merit,
    subset_scores,
    utility_of,
)
from fairnepv.objective.geometry import EUCLIDEAN
from fairnepv.problem import Constraints, Problem
from fairnepv.search.exact import Exact
from fairnepv.search.frontier import Frontier
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from fairnepv.stiefel.coordinates import Ambient
from search_problems import STORAGE, indices, pose, representative


class Twin(NamedTuple):
    """One view's formula, for features Phi (n, p) and a ridge."""

    total: Callable[[Array, float, list[int]], float]  # of a set
    divisor: Callable[[int], float]  # of a size
    frame: Callable[[Array, float, Array], float]  # the total of a frame V


def _logdet_of_set(Phi: Array, eps: float, S: list[int]) -> float:
    return reference.logdet(reference.kernel(Phi, eps)[np.ix_(S, S)]) if S else 0.0


def _logdet_of_frame(Phi: Array, eps: float, V: Array) -> float:
    return reference.logdet(V.T @ reference.kernel(Phi, eps) @ V)


def _explained_of_set(Phi: Array, eps: float, S: list[int]) -> float:
    return reference.explained(Phi, eps, S)


def _explained_of_frame(Phi: Array, eps: float, V: Array) -> float:
    return float(np.trace(V.T @ Phi @ Phi.T @ V) / np.trace(Phi @ Phi.T))


TWINS = {
    "diverse": Twin(_logdet_of_set, float, _logdet_of_frame),
    "representative": Twin(_explained_of_set, lambda size: 1.0, _explained_of_frame),
}

NAMES = pytest.mark.parametrize("name", ["diverse"])  # until the rest is there for all
ROUGH = {"diverse": 1e-9, "representative": 0.2}  # what the value of a majorant may be too large by
ALL = pytest.mark.parametrize("name", UTILITIES)
CASES = pytest.mark.parametrize(
    "case", [case for case in cases.SMALL if case.k > 1], ids=lambda case: case.name
)


def problem_of(case: Case, name: str, storage: str = "dense") -> Problem:
    views = [STORAGE[storage](Phi) for Phi in case.views]
    problem = pose(views, case.k, case.tau, case.eps)
    return representative(problem) if name == "representative" else problem


def totals(case: Case, name: str, S: list[int]) -> Array:
    """(M,) by the twin."""
    own = zip(case.views, case.eps, strict=True)
    return np.array([TWINS[name].total(Phi, eps, S) for Phi, eps in own])


def scores(case: Case, name: str, S: list[int]) -> Array:
    return totals(case, name, S) / TWINS[name].divisor(len(S))


def all_merits(case: Case, name: str) -> dict[tuple[int, ...], float]:
    """F_tau of every set of k rows, by the twin."""
    sets = combinations(range(len(case.views[0])), case.k)
    return {S: reference.soft_min(scores(case, name, list(S)), case.tau) for S in sets}


def indicator(case: Case, S: tuple[int, ...]) -> Array:
    x = np.zeros(len(case.views[0]))
    x[list(S)] = 1.0
    return x


def sample_sets(case: Case, count: int = 4) -> list[list[int]]:
    rng = np.random.default_rng(4)
    return [rng.permutation(len(case.views[0]))[: case.k].tolist() for _ in range(count)]


def close(found, expected, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_every_utility_has_a_twin():
    assert set(TWINS) == set(UTILITIES)


# --- Sets -----------------------------------------------------------------------------------------


@ALL
@CASES
@pytest.mark.parametrize("storage", STORAGE)
def test_scores(name, case, storage):
    problem = problem_of(case, name, storage)
    for S in sample_sets(case):
        d = scores(case, name, S)
        close(subset_scores(problem.pool, indices(*S), name), d)
        close(subset_merit(problem, indices(*S)), reference.soft_min(d, case.tau))


@ALL
@CASES
def test_many_totals_at_once_and_what_each_item_adds(name, case):
    problem, sets = problem_of(case, name), sample_sets(case)
    utility = utility_of(problem)
    for q, view in enumerate(problem.pool.views):
        expected = [totals(case, name, S)[q] for S in sets]
        close(utility.totals(view, np.array(sets)), expected)
        close([utility.total(view, indices(*S)) for S in sets], expected)
    for S in sets:
        grown = np.array([totals(case, name, S[:j]) for j in range(case.k + 1)])
        close(subset_gains(problem.pool, indices(*S), name), np.diff(grown, axis=0))


@NAMES
@CASES
@pytest.mark.parametrize("storage", STORAGE)
def test_the_gain_of_adding_is_a_difference_of_totals(name, case, storage):
    problem = problem_of(case, name, storage)
    for S in sample_sets(case):
        S = S[:-1]
        judge = partial(Standing.of, problem)
        frontier = Frontier(problem, judge, indices(*S), coarse=False)
        rows = [i for i in range(problem.n) if i not in S]
        changes = frontier.variances[:, rows] + problem.pool.eps[:, None]
        here = totals(case, name, S)
        expected = np.array([totals(case, name, [*S, i]) - here for i in rows]).T
        close(frontier.utility.gains(changes), expected, 1e-6)
        merits = frontier.standing(case.k).fair_scores(expected)
        fair = [reference.soft_min(scores(case, name, [*S, i]), case.tau) for i in rows]
        close(merits, fair)
        assert merits[rows.index(frontier.best_addition())] >= max(fair) - 1e-8


@NAMES
@CASES
@pytest.mark.parametrize("storage", STORAGE)
def test_the_gains_of_all_swaps_are_differences_of_totals(name, case, storage):
    problem = problem_of(case, name, storage)
    utility = determinant_of(problem)
    for S in sample_sets(case, 2):
        subset = Subset.of(problem, indices(*S))
        v, c = SwapTable.of(subset).aligned
        rows = [i for i in range(problem.n) if i not in S]
        changes = utility.swap_changes(c[rows, :, None], subset.pivots, v[rows])  # (m, M, k)
        here = totals(case, name, S)
        close(subset.totals, here)
        for i, gains in zip(rows, utility.swap_gains(changes), strict=True):
            for j in range(case.k):
                swapped = [*S[:j], i, *S[j + 1 :]]
                expected = totals(case, name, swapped) - here
                close(gains[:, j], expected, 1e-6)
                close(subset.confirm(j, i).gains, expected, 1e-6)


@NAMES
@CASES
def test_no_swap_that_improves_is_ruled_out(name, case):
    """And the tangent of F_tau is above it wherever it is taken."""
    problem = problem_of(case, name)
    for S in sample_sets(case, 2):
        subset = Subset.of(problem, indices(*S))
        standing, table = subset.standing, SwapTable.of(subset)
        v, c = table.aligned
        rise = standing.rise(problem.pool.block(0, problem.n), v, c, subset.pivots)
        utility = standing.determinant
        gains = utility.swap_gains(utility.swap_changes(c[:, :, None], subset.pivots, v))
        merits = standing.fair_scores(gains.transpose(1, 0, 2))  # (n, k)
        for value in (subset.value, subset.value - 0.3, *np.quantile(merits, [0.5, 0.9])):
            needed = standing.needed_rise(value - 1e-10)
            assert (rise[merits > value] > needed).all()
        constant, slopes = standing.ceiling(gains[0, :, 0])
        bound = constant + np.einsum("q,iqj->ij", slopes, gains)
        assert (bound >= merits - 1e-10).all()


# --- Frames ---------------------------------------------------------------------------------------


def f_tau(case: Case, name: str, V: Array) -> float:
    own = zip(case.views, case.eps, strict=True)
    g = np.array([TWINS[name].frame(Phi, eps, V) for Phi, eps in own])
    return reference.soft_min(g / TWINS[name].divisor(case.k), case.tau)


def frame_and_tangents(case: Case) -> tuple[Array, list[Array]]:
    rng = np.random.default_rng(8)
    V = cases.random_frame(rng, len(case.views[0]), case.k)
    raw = [rng.standard_normal(V.shape) for _ in range(3)]
    tangents = [EUCLIDEAN.project(V, X) for X in raw]
    return V, [xi / np.linalg.norm(xi) for xi in tangents]


def point_of(case: Case, name: str, V: Array):
    problem = problem_of(case, name)
    pool = problem.pool
    args = Ambient(pool).maps, pool.eps, problem.offsets, problem.tau, problem.k
    return StiefelObjective(*args, utility_of(problem)).at(V)


FRAMES = pytest.mark.parametrize(
    "case",
    [case for case in cases.SMALL if 1 < case.k < len(case.views[0]) and case.tau > 0.05],
    ids=lambda case: case.name,
)


@ALL
@FRAMES
def test_value_and_gradient_on_frames(name, case):
    V, tangents = frame_and_tangents(case)
    point, h = point_of(case, name, V), 1e-5
    close(point.value, f_tau(case, name, V))
    for xi in tangents:
        ends = [f_tau(case, name, EUCLIDEAN.retract(V, t * xi)) for t in (h, -h)]
        slope = 2.0 * np.vdot(point.A_perp, xi)
        assert slope == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5, abs=1e-6)
    shares = point.weights / TWINS[name].divisor(case.k)
    along = point.objective.utility.along_frame(np.eye(case.k), point.factors, shares)
    close(V.T @ point.A, along, 1e-7)


@ALL
@FRAMES
def test_hessian_on_frames(name, case):
    """Along a retraction of second order, f_tau bends as the Hessian says."""
    V, tangents = frame_and_tangents(case)
    point, h = point_of(case, name, V), 1e-3
    for xi in tangents:
        values = {t: f_tau(case, name, EUCLIDEAN.retract(V, t * h * xi)) for t in range(-2, 3)}
        bend = -values[-2] + 16 * values[-1] - 30 * values[0] + 16 * values[1] - values[2]
        expected = bend / (12 * h**2)
        scale = np.linalg.norm(point.hessian(xi))
        found = 2.0 * np.vdot(xi, point.hessian(xi))
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4 * (1 + scale))
    one, other = tangents[:2]
    both = np.vdot(one, point.hessian(other)), np.vdot(other, point.hessian(one))
    assert both[0] == pytest.approx(both[1], rel=1e-7, abs=1e-9)  # symmetric


# --- The concave majorant -------------------------------------------------------------------------


def relaxation(case: Case, name: str) -> TopK:
    problem = problem_of(case, name)
    k, utility, everyone = problem.k, utility_of(problem), np.arange(problem.n)
    held = partial(utility.held, rows=everyone, k=k, shift=0.0, dtype=np.float64, rough=0.0)
    rows = tuple(held(view) for view in problem.pool.views)
    return TopK(rows, problem.offsets, problem.tau, k, k, Constraints(), utility=utility)


def interior(case: Case, seed: int) -> Array:
    n = len(case.views[0])
    x = reference.capped_simplex(np.random.default_rng(seed).standard_normal(n), case.k)
    return 0.7 * x + 0.3 * case.k / n


@ALL
@CASES
def test_the_majorant_is_above_every_set_and_tight(name, case):
    topk = relaxation(case, name)
    for S, F in list(all_merits(case, name).items())[::7]:
        value = topk.at(indicator(case, S)).value
        assert value >= F - 1e-8
        assert value == pytest.approx(F, abs=1e-6)


@ALL
@CASES
def test_the_majorant_is_concave_with_its_gradient(name, case):
    topk = relaxation(case, name)
    for seed in range(4):
        left, right = interior(case, seed), interior(case, seed + 9)
        ends = topk.at(left), topk.at(right)
        least = [topk.least_value(end) for end in ends]  # where values may be rough
        for t in (0.2, 0.5, 0.9):
            between = topk.at((1 - t) * left + t * right).value
            assert between >= (1 - t) * least[0] + t * least[1] - 1e-9
        assert least[1] <= ends[0].value + ends[0].prices @ (right - left) + 1e-8
        assert [end.value for end in ends] == pytest.approx(least, abs=ROUGH[name])


@ALL
@CASES
def test_prices_bound_every_set(name, case):
    """Those of a point, and those that a stored proof is checked by."""
    merits, topk, problem = all_merits(case, name), relaxation(case, name), problem_of(case, name)
    point = topk.at(interior(case, 1))
    solver = Concave(problem, gap=1e-2)
    priced = price(problem, solver.dual(run(solver).state))
    constants = (
        point.value - point.prices @ point.x,
        priced.bound - priced.prices[priced.best].sum(),
    )
    assert point.bound >= max(merits.values()) - 1e-9
    assert certify(problem).upper_bound >= max(merits.values())
    for S, F in merits.items():
        rows = list(S)
        bounds = (point.prices[rows].sum(), priced.prices[rows].sum())
        assert min(np.add(constants, bounds)) >= F - 1e-9


@ALL
@CASES
def test_branch_and_bound_finds_the_best_set(name, case):
    problem, merits = problem_of(case, name), all_merits(case, name)
    outcome = run(Exact(problem, np.arange(case.k), price_candidates))
    assert outcome.state.value == pytest.approx(max(merits.values()), abs=1e-8)
    assert outcome.state.upper >= max(merits.values()) - 1e-9
