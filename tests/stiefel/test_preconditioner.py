"""The preconditioner of the ascent: its formula for the Hessian, and that it inverts its model."""

from dataclasses import replace

import numpy as np
import pytest

import cases
import reference
from fairnepv import relax as relax_data
from fairnepv.errors import Status
from fairnepv.objective.geometry import EUCLIDEAN
from fairnepv.stiefel import relax
from fairnepv.stiefel.coordinates import Ambient, Reduced
from fairnepv.stiefel.preconditioner import Preconditioner
from frame_problems import kernels_of, objective_of, problem_of

NAMES = [case.name for case in cases.SMALL]
WIDE = [case for case in cases.SMALL if case.name not in ("k above p", "all but one")]


def stationary(case) -> np.ndarray:
    return relax(problem_of(case), start="random", coordinates=Ambient(problem_of(case).pool)).basis


def tangent(rng: np.random.Generator, V: np.ndarray) -> np.ndarray:
    return EUCLIDEAN.project(V, rng.standard_normal(V.shape))


@pytest.mark.parametrize("case", WIDE, ids=lambda case: case.name)
def test_the_three_terms_are_the_hessian_where_the_gradient_vanishes(case):
    """Against central differences of the gradient, which know none of the formulas."""
    V, Ls = stationary(case), kernels_of(case)
    x = tangent(np.random.default_rng(1), V)
    expected = reference.hessian_fd(Ls, V, case.tau, x)
    found = -2 / case.k * sum(reference.hessian_terms(Ls, V, case.tau, x))
    np.testing.assert_allclose(
        EUCLIDEAN.project(V, found), expected, atol=2e-4 * np.linalg.norm(expected)
    )


def model(case, V: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The negative Hessian as the preconditioner models it: C_q by its mean, no transposed term."""
    Ls = kernels_of(case)
    w = reference.weights(reference.view_values(Ls, V), case.tau)
    rest = min(len(V), sum(Phi.shape[1] for Phi in case.views)) - case.k
    off = np.eye(len(V)) - V @ V.T
    D = np.eye(case.k)
    for w_q, L, C, eps in zip(w, Ls, reference.schur_complements(Ls, V), case.eps, strict=True):
        mean = eps + np.trace(off @ (C - eps * off)) / rest
        D -= w_q * mean * np.linalg.inv(V.T @ L @ V)
    lam, E = np.linalg.eigh(D)
    floor = max(1e-6, min(1.0, case.k * np.linalg.norm(reference.A_perp(Ls, V, case.tau))))
    D = E @ np.diag(np.maximum(lam, floor)) @ E.T
    return 2 / case.k * (x @ D + reference.hessian_terms(Ls, V, case.tau, x)[2])


@pytest.mark.parametrize("where", ["at a solution", "anywhere"])
@pytest.mark.parametrize("case", WIDE, ids=lambda case: case.name)
def test_it_inverts_its_model(case, where):
    rng = np.random.default_rng(2)
    V = (
        stationary(case)
        if where == "at a solution"
        else cases.random_frame(rng, len(case.views[0]), case.k)
    )
    guess = Preconditioner(objective_of(problem_of(case)).at(V))
    x = tangent(rng, V)
    found = EUCLIDEAN.project(V, guess.solve(model(case, V, x)))
    np.testing.assert_allclose(found, x, atol=1e-6 * np.linalg.norm(x))


@pytest.mark.parametrize("case", cases.SMALL, ids=NAMES)
def test_it_is_symmetric_and_positive_on_tangent_vectors(case):
    rng = np.random.default_rng(3)
    V = cases.random_frame(rng, len(case.views[0]), case.k)
    guess = Preconditioner(objective_of(problem_of(case)).at(V))
    x, y = tangent(rng, V), tangent(rng, V)
    scale = np.linalg.norm(x) * np.linalg.norm(guess.solve(y))
    assert np.vdot(x, guess.solve(y)) == pytest.approx(np.vdot(guess.solve(x), y), abs=1e-9 * scale)
    assert np.vdot(x, guess.solve(x)) > 0


def test_it_is_the_same_in_both_coordinates():
    """Where the joint range has the dimension that n dimensions assume of it."""
    rng = np.random.default_rng(4)
    case = cases.Case("", cases.random_views(rng, 30, [5, 6]), 4, 0.1, (0.1, 0.2))
    problem = problem_of(case)
    reduced = Reduced(problem.pool)
    Q = reduced.lift(np.eye(reduced.dimension))
    Y = cases.random_frame(rng, reduced.dimension, case.k)
    x = tangent(rng, Y)
    small = Preconditioner(replace(objective_of(problem), maps=reduced.maps).at(Y))
    large = Preconditioner(objective_of(problem).at(Q @ Y))
    np.testing.assert_allclose(large.solve(Q @ x), Q @ small.solve(x), atol=1e-9)


def test_the_ascent_stays_short_where_the_hessian_is_ill_conditioned():
    """k above the width of the binding view and a small tau: hundreds of steps without it."""
    uci = cases.uci()
    views = {name: uci[name] for name in ("fou", "kar", "zer")}
    relaxed = relax_data(views, 60, tau=0.05)
    assert relaxed.status is Status.CONVERGED
    assert {row.stage for row in relaxed.trace} == {"ascent"}
    assert len(relaxed.trace) < 150
