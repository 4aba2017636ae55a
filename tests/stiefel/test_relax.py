"""Solvers of the relaxation: Algorithm 1 by the letter, the default solver, starts and statuses."""

import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import cases
import reference
from cases import Array, Case
from fairnepv import relax as relax_data
from fairnepv.api.inputs import pose
from fairnepv.compute.clock import Limit, limited, now
from fairnepv.errors import FairnepvError, InputError, NumericalError, Status
from fairnepv.loop import Context, Step
from fairnepv.objective import StiefelObjective
from fairnepv.objective.geometry import EUCLIDEAN
from fairnepv.problem import Problem
from fairnepv.stiefel import SOLVERS, Relaxation, lbfgs, make_solver, relax, starts
from fairnepv.stiefel.coordinates import Ambient, Reduced, Spanned, choose_coordinates
from fairnepv.stiefel.curvature import largest_curvature
from fairnepv.stiefel.scf import scf_step
from fairnepv.stiefel.starts import start_frame
from fairnepv.stiefel.trust_region import TrustRegion
from fairnepv.views import Calibration, DiagonalView, KernelView, Pool
from frame_problems import (
    accurate_point,
    kernels_of,
    objective_of,
    paper_kernels,
    paper_problem,
    point_at,
    problem_of,
)

SMALL = pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
STARTS = pytest.mark.parametrize("start", ["spectral", "random", "warm", "selector"])
COORDINATES = pytest.mark.parametrize("coordinates", [Ambient, Reduced, Spanned])
VARIANTS = [name for name in SOLVERS if name != "accelerated"]


def start_of(name: str, problem: Problem) -> object:
    """A start of each kind; the frame sticks out of the range of the views, as a user's would."""
    rng = np.random.default_rng(3)
    if name == "warm":
        return cases.random_frame(rng, problem.n, problem.k)
    if name == "selector":
        return rng.choice(problem.n, problem.k, replace=False)
    return name


def check_frame(relaxed: Relaxation, case: Case) -> None:
    """What the record says of its frame, against the twins at `basis`."""
    V, Ls = relaxed.basis, kernels_of(case)
    np.testing.assert_allclose(V.T @ V, np.eye(case.k), atol=1e-12)
    assert relaxed.value == pytest.approx(reference.f(Ls, V, case.tau), abs=1e-9)
    g = reference.view_values(Ls, V)
    np.testing.assert_allclose(list(relaxed.view_values.values()), g, atol=1e-9)
    w = reference.weights(g, case.tau)
    np.testing.assert_allclose(list(relaxed.view_weights.values()), w, atol=1e-7)
    np.testing.assert_allclose(relaxed.leverage, reference.leverage(V), atol=1e-9)
    assert relaxed.leverage.sum() == pytest.approx(case.k, abs=1e-9)


def residual_of(case: Case, V: Array) -> float:
    return case.k * float(np.linalg.norm(reference.A_perp(kernels_of(case), V, case.tau)))


# --- geometry -------------------------------------------------------------------------------------


def test_retract_is_the_polar_factor():
    rng = np.random.default_rng(0)
    V = cases.random_frame(rng, 9, 4)
    xi = EUCLIDEAN.project(V, rng.standard_normal(V.shape))
    np.testing.assert_allclose(EUCLIDEAN.retract(V, xi), reference.polar(V + xi), atol=1e-13)
    np.testing.assert_allclose(EUCLIDEAN.retract(V, 0 * xi), V, atol=1e-14)


def test_orthonormalize_keeps_the_subspace_and_completes_a_dependent_one():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((9, 4))
    Q = EUCLIDEAN.orthonormalize(X)
    np.testing.assert_allclose(Q.T @ Q, np.eye(4), atol=1e-14)
    assert reference.chordal(Q, X) < 1e-12
    np.testing.assert_allclose(
        EUCLIDEAN.orthonormalize(Q), Q, atol=1e-14
    )  # a frame comes back as it was
    X[:, 3] = X[:, 0]
    Q = EUCLIDEAN.orthonormalize(X)
    np.testing.assert_allclose(Q.T @ Q, np.eye(4), atol=1e-14)
    np.testing.assert_allclose(Q @ (Q.T @ X), X, atol=1e-13)


# --- Algorithm 1 ----------------------------------------------------------------------------------


def test_closed_form_steps_are_the_literal_algorithm_in_200_random_cases():
    """Frames, not only subspaces: alignment settles the gauge; every fourth case has n < 2k."""
    rng = np.random.default_rng(4)
    narrow = 0
    for trial in range(200):
        n = int(rng.integers(3, 13))
        k = int(rng.integers(n // 2 + 1, n)) if trial % 4 == 0 else int(rng.integers(1, n))
        narrow += n < 2 * k
        views = cases.random_views(rng, n, rng.integers(1, 8, size=int(rng.integers(1, 4))))
        eps = tuple(float(e) for e in rng.uniform(0.05, 1, len(views)))
        case = Case("", views, k, float(rng.choice([0.05, 0.15, 1.0])), eps)
        alpha = float(rng.choice([1.0, 0.5, rng.uniform(0.05, 1)]))
        sigma = float(rng.choice([0.0, 1 / k, rng.uniform(0, 3)]))
        V = cases.random_frame(rng, n, k)
        ours = scf_step(V, point_at(case, V).A_perp, alpha, sigma)
        literal = reference.scf_step(kernels_of(case), V, case.tau, alpha, sigma)
        np.testing.assert_allclose(ours, literal, atol=1e-11)
        np.testing.assert_allclose(ours.T @ ours, np.eye(k), atol=1e-13)
    assert narrow >= 50


@pytest.mark.sample
@pytest.mark.parametrize(
    "case",
    [case for case in cases.SMALL if case.name != "k above p"],
    ids=lambda case: case.name,
)
@pytest.mark.parametrize("name", VARIANTS)
def test_variants_follow_the_trajectory_of_the_literal_algorithm(case, name):
    problem = problem_of(case)
    solver = make_solver(name, k=case.k, tol=1e-6, max_steps=25)
    assert (solver.alpha < 1, solver.sigma > 0) == ("damped" in name, "shifted" in name)
    V0 = cases.random_frame(np.random.default_rng(5), problem.n, case.k)
    relaxed = relax(problem, solver, start=V0, coordinates=Ambient(problem.pool))
    V, history = reference.scf(
        kernels_of(case), V0, case.tau, solver.alpha, solver.sigma, tol=1e-6, max_steps=25
    )
    values, residuals = zip(*history, strict=True)
    # Algorithm 1 returns V_Tmax without a look at it, where we look once more
    assert len(relaxed.trace) == len(history) + (residuals[-1] >= 1e-6)
    rows = relaxed.trace[: len(history)]
    np.testing.assert_allclose([row.objective for row in rows], values, atol=1e-9)
    scaled = [row.residual / case.k for row in rows]
    np.testing.assert_allclose(scaled, residuals, rtol=1e-6, atol=1e-9)
    assert reference.chordal(relaxed.basis, V) < 1e-6


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_algorithm_1_stops_by_its_unscaled_rule(tol):
    """||A - V/k||_F < tol, without the factor k of our own residual."""
    case = next(case for case in cases.SMALL if case.name == "warm")
    solver = make_solver("shifted", k=case.k, tol=tol)
    relaxed = relax(problem_of(case), solver, start="random")
    assert relaxed.status is Status.CONVERGED
    V = relaxed.basis
    A = reference.A(kernels_of(case), V, case.tau)
    unscaled = np.linalg.norm(A - V / case.k)
    assert unscaled < tol <= relaxed.trace[-2].residual / case.k
    assert relaxed.residual == pytest.approx(case.k * unscaled, rel=1e-6)
    assert relaxed.residual > tol  # a scaled rule would have gone on


def test_algorithm_1_stops_at_t_max():
    relaxed = relax(paper_problem(), make_solver("plain", k=5, max_steps=7), start="random")
    assert relaxed.status is Status.STEP_LIMIT
    assert [row.step for row in relaxed.trace] == list(range(8))


def test_long_runs_of_algorithm_1_stay_orthonormal():
    """Plain SCF cycles here (docs/method.md#plain-iteration), and its frame stays a frame."""
    relaxed = relax(paper_problem(), make_solver("plain", k=5, max_steps=500), start="random")
    assert relaxed.status is Status.STEP_LIMIT
    assert relaxed.residual > 0.1
    np.testing.assert_allclose(relaxed.basis.T @ relaxed.basis, np.eye(5), atol=1e-13)


def test_default_shifts_and_dampings_are_those_of_the_names():
    k = 8
    chosen = {name: make_solver(name, k=k) for name in VARIANTS}
    assert {name: (s.alpha, s.sigma) for name, s in chosen.items()} == {
        "plain": (1.0, 0.0),
        "damped": (0.5, 0.0),
        "shifted": (1.0, 1 / k),
        "damped-shifted": (0.5, 1 / k),
    }
    knobs = make_solver("damped-shifted", k=k, alpha=0.2, sigma=3)
    assert (knobs.alpha, knobs.sigma) == (0.2, 3.0)


# --- the default solver ---------------------------------------------------------------------------


@pytest.mark.sample
@SMALL
@STARTS
@COORDINATES
def test_default_solver_reaches_stationarity_monotonically(case, start, coordinates):
    problem = problem_of(case)
    relaxed = relax(problem, start=start_of(start, problem), coordinates=coordinates(problem.pool))
    check_frame(relaxed, case)
    assert residual_of(case, relaxed.basis) <= 1.01e-6  # the twin's rounding on top
    if relaxed.status is Status.DEGENERATE:
        assert case.name == "k above p"
        return
    assert relaxed.status is Status.CONVERGED
    assert relaxed.residual <= 1e-6
    values = np.array([row.objective for row in relaxed.trace])
    assert np.diff(values).min(initial=0.0) >= -1e-12 * max(1, abs(values[-1]))
    assert relaxed.value == pytest.approx(values[-1], rel=1e-13)
    assert relaxed.value >= reference.f(kernels_of(case), relaxed.basis, case.tau) - 1e-9


@pytest.mark.sample
@pytest.mark.parametrize("tau", [1.0, 0.15, 0.05, 0.01])
@pytest.mark.parametrize("eps", [0.1, 1e-3])
@pytest.mark.parametrize("k", [3, 9, 16])
def test_default_solver_over_temperatures_and_ridges(tau, eps, k):
    """k below, within and above the widths of the views, on rows of unit length."""
    rng = np.random.default_rng(6)
    views = [reference.unit_diagonal(X) for X in cases.clustered_views(rng, 60, [12, 8, 5], 7)]
    case = Case("", views, k, tau, (eps,) * 3)
    relaxed = relax(problem_of(case))
    assert relaxed.status is Status.CONVERGED
    check_frame(relaxed, case)
    assert residual_of(case, relaxed.basis) <= 1.05e-6


@pytest.mark.parametrize("seed", [2, 4, 6])
def test_newton_steps_that_do_not_gain_are_rejected(seed):
    """Far from a maximum, with a sharp soft-min, the model is often wrong."""
    rng = np.random.default_rng(seed)
    case = Case("", cases.clustered_views(rng, 20, [6, 5, 4], 6), 5, 0.01, (1e-3,) * 3)
    start = cases.random_frame(rng, 20, 5)
    method = TrustRegion(objective_of(problem_of(case)), start, tol=1e-6)
    state, rejected = method.init(), 0
    for _ in range(400):
        if method.done(state) is not None:
            break
        successor = method.step(state)
        before, after = (method.report(s)["objective"] for s in (state, successor))
        assert after >= before - 1e-12
        if np.array_equal(successor.V, state.V):
            rejected += 1
            assert successor.radius < state.radius
        state = successor
    assert method.done(state) is Status.CONVERGED
    assert rejected > 3
    assert residual_of(case, state.V) <= 1.05e-6


@pytest.mark.parametrize("k", [2, 6, 10])
@STARTS
def test_one_view_reaches_the_spectral_value(k, start):
    """Proposition 1 gives the global maximum: no start may end below it."""
    rng = np.random.default_rng(7)
    case = Case("", cases.random_views(rng, 25, [14]), k, 0.05, (1e-2,))
    problem = problem_of(case)
    relaxed = relax(problem, start=start_of(start, problem))
    expected = reference.spectral_value(kernels_of(case)[0], k)
    assert relaxed.value == pytest.approx(expected, abs=1e-11)


def test_tolerance_is_on_the_scaled_residual_and_can_be_tightened():
    case = cases.SMALL[2]
    problem = problem_of(case)
    for tol in (1e-2, 1e-3, 1e-5, 1e-9):
        relaxed = relax(problem, make_solver(k=case.k, tol=tol), start="random")
        assert relaxed.status is Status.CONVERGED
        assert residual_of(case, relaxed.basis) <= tol + 1e-11


@pytest.mark.parametrize("narrow", [2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_small_ridge_reaches_the_tolerance_or_says_that_rounding_stopped_it(narrow, seed):
    """eps = 1e-6 and k above the width of a view; f and its gradient by singular values."""
    rng = np.random.default_rng(seed)
    case = Case("", cases.random_views(rng, 30, [narrow, 12]), 7, 0.05, (1e-6, 1e-6))
    relaxed = relax(problem_of(case), start="random")
    assert relaxed.status in (Status.CONVERGED, Status.ROUNDING_FLOOR)
    value, A = accurate_point(case, relaxed.basis)
    assert relaxed.value == pytest.approx(value, abs=1e-9)
    residual = case.k * np.linalg.norm(EUCLIDEAN.project(relaxed.basis, A))
    if relaxed.status is Status.CONVERGED:
        assert residual <= 1.05e-6
    assert residual <= 1e-3


def near_duplicates(seed: int, clusters: int, k: int, eps: float) -> Case:
    """Unit rows a thousandth apart: views of full width whose rank is nearly the clusters'."""
    rng = np.random.default_rng(seed)
    views = cases.clustered_views(rng, 45, [12, 7, 11], clusters, 1e-3)
    return Case("", [reference.unit_diagonal(X) for X in views], k, 0.15, (eps,) * 3)


@pytest.mark.parametrize("seed", [2, 7, 11])
@COORDINATES
def test_small_ridge_on_near_duplicates_is_solved_or_said_to_be_at_the_floor(seed, coordinates):
    """k above the number of clusters; the rounding of f, not of its gradient, is what is large."""
    case = near_duplicates(seed, 4, 6, 1e-6)
    problem = problem_of(case)
    relaxed = relax(problem, start="random", coordinates=coordinates(problem.pool))
    assert relaxed.status in (Status.CONVERGED, Status.ROUNDING_FLOOR)


@pytest.mark.parametrize(
    ("seed", "k", "eps"), [(0, 3, 1e-6), (1, 3, 1e-6), (16, 12, 1e-3), (7, 12, 1e-3)]
)
@COORDINATES
def test_converged_is_true_in_n_dimensions(seed, k, eps, coordinates):
    """Directions that reduced coordinates leave out must not hide a residual."""
    case = near_duplicates(seed, 1, k, eps)
    problem = problem_of(case)
    relaxed = relax(problem, start="random", coordinates=coordinates(problem.pool))
    _, A = accurate_point(case, relaxed.basis)
    residual = k * np.linalg.norm(EUCLIDEAN.project(relaxed.basis, A))
    if relaxed.status is Status.CONVERGED:
        assert residual <= 1.1e-6
    else:
        assert relaxed.status is Status.ROUNDING_FLOOR


def test_a_residual_is_that_of_n_dimensions_but_where_a_run_was_stopped(monkeypatch):
    """Which costs a pass more."""
    monkeypatch.setattr(Reduced, "left_out", lambda self, Y: 0.5)
    problem = problem_of(cases.SMALL[0])
    solver = make_solver("shifted", k=problem.k, max_steps=3)
    whole = relax(problem, solver, coordinates=Reduced(problem.pool))
    own = whole.trace[-1].residual
    assert whole.residual == pytest.approx(np.hypot(own, 0.5 * problem.k))
    context = Context(time_limit=1e-9)
    stopped = relax(problem, solver, coordinates=Reduced(problem.pool), session=context)
    assert stopped.status is Status.TIME_LIMIT
    assert stopped.residual == pytest.approx(whole.trace[0].residual)  # of the start


@pytest.mark.parametrize(("largest", "kind"), [(45 * 12, Ambient), (45 * 12 - 1, Spanned)])
def test_last_steps_are_taken_in_n_dimensions_where_frames_are_few_numbers(
    largest, kind, monkeypatch
):
    """Else in the span; as in the test above, what reduced coordinates leave out has a residual."""
    monkeypatch.setattr("fairnepv.stiefel.solve.LARGEST_FRAME", largest)
    problem = problem_of(near_duplicates(7, 1, 12, 1e-3))
    assert problem.n > problem.pool.width
    relaxed = relax(problem, start="random", coordinates=Reduced(problem.pool))
    assert type(relaxed.coordinates) is kind
    assert [row.stage for row in relaxed.trace].count("newton") > 2


# --- coordinates ----------------------------------------------------------------------------------


@SMALL
def test_reduced_frames_are_the_same_points(case):
    """lower, the maps, lift and leverage against the n dimensions."""
    problem = problem_of(case)
    reduced = Reduced(problem.pool)
    if case.k >= reduced.dimension:
        pytest.skip("degenerate")
    Phi = np.hstack(case.views)
    assert reduced.dimension == np.linalg.matrix_rank(Phi)
    rng = np.random.default_rng(8)
    V = EUCLIDEAN.orthonormalize(Phi @ rng.standard_normal((Phi.shape[1], case.k)))
    Y = reduced.lower(V)
    assert Y.shape == (reduced.dimension, case.k)
    assert reference.chordal(reduced.lift(Y), V) < 1e-9
    np.testing.assert_allclose(reduced.leverage(Y), reference.leverage(V), atol=1e-9)
    for Z, view in zip(reduced.maps.adjoint(Y), case.views, strict=True):
        singular = np.linalg.svd(view.T @ V, compute_uv=False)
        np.testing.assert_allclose(
            np.linalg.svd(Z, compute_uv=False), singular, atol=1e-9 * max(1, singular[0])
        )


@pytest.mark.parametrize("faint", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("name", ["accelerated", "damped-shifted"])
def test_what_one_view_has_faintly_and_another_much_of_costs_no_digits(name, faint):
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((120, 6))
    wide = rng.standard_normal((120, 10)) @ rng.standard_normal((10, 20))
    views = [wide + faint * Z @ rng.standard_normal((6, 20)), Z @ rng.standard_normal((6, 12))]
    case = Case("faint", views, 6, 0.05, (1e-3, 1e-3))
    problem = problem_of(case)
    reduced = Reduced(problem.pool)
    np.testing.assert_allclose(reduced.R.T @ reduced.R, problem.pool.gram, atol=1e-7)
    solver = make_solver(name, k=case.k, max_steps=100)
    check_frame(relax(problem, solver, coordinates=reduced), case)


def in_range(case: Case) -> Array:
    rng = np.random.default_rng(9)
    Phi = np.hstack(case.views)
    return EUCLIDEAN.orthonormalize(Phi @ rng.standard_normal((Phi.shape[1], case.k)))


def conflicted(seed: int) -> Case:
    """A pool with several maxima, where a start that is a little different may end in another."""
    rng = np.random.default_rng(seed)
    n, widths = int(rng.integers(10, 30)), [int(p) for p in rng.integers(2, 7, 3)]
    views = cases.clustered_views(rng, n, widths, 5)
    return Case(f"conflicted {seed}", views, int(rng.integers(2, 6)), 0.05, (0.05,) * 3)


@pytest.mark.sample
@pytest.mark.parametrize(
    "case", [*cases.SMALL, *map(conflicted, (13, 19, 45))], ids=lambda case: case.name
)
@pytest.mark.parametrize("start", ["spectral", "sketch", "frame in the range", "selector"])
def test_the_same_start_leads_to_the_same_subspace_in_both_coordinates(case, start):
    if start == "selector" and case.name.startswith("conflicted"):
        pytest.skip("a coordinate frame sticks out of the range, so the two starts differ")
    problem = problem_of(case)
    frame = in_range(case)
    given = {"frame in the range": frame, "selector": np.arange(case.k)}.get(start, start)
    one, other = (
        relax(problem, start=given, coordinates=kind(problem.pool)) for kind in (Ambient, Reduced)
    )
    assert one.value == pytest.approx(other.value, abs=1e-10)
    if other.status is Status.DEGENERATE:
        return
    assert max(one.curvature, other.curvature) < -1e-2  # the maximum is a point, not a ridge
    assert reference.chordal(one.basis, other.basis) < 1e-4
    np.testing.assert_allclose(one.leverage, other.leverage, atol=1e-4)


@pytest.mark.sample
@SMALL
@pytest.mark.parametrize("start", ["spectral", "sketch", "frame in the range"])
def test_starts_in_the_range_are_the_same_subspace_in_both_coordinates(case, start):
    problem = problem_of(case)
    reduced = Reduced(problem.pool)
    if case.k >= reduced.dimension:
        pytest.skip("degenerate")
    given = in_range(case) if start.startswith("frame") else start
    ambient, whole = start_frame(problem, Ambient(problem.pool), given)
    frame, held = start_frame(problem, reduced, given)
    assert whole
    assert held
    assert reference.chordal(ambient, reduced.lift(frame)) < 1e-9


def test_variants_run_alike_in_both_coordinates():
    case = cases.SMALL[7]
    problem = problem_of(case)
    for name in VARIANTS:
        solver = make_solver(name, k=case.k, max_steps=20)
        one, other = (
            relax(problem, solver, start="sketch", coordinates=kind(problem.pool))
            for kind in (Ambient, Reduced)
        )
        np.testing.assert_allclose(
            [row.objective for row in one.trace], [row.objective for row in other.trace], atol=1e-8
        )


def test_reduced_coordinates_are_chosen_where_they_pay():
    rng = np.random.default_rng(10)

    def chosen(views: object, k: int) -> type:
        return type(choose_coordinates(Problem(Pool.of(views), k, 0.1, Calibration("none"))))

    assert chosen(cases.random_views(rng, 2000, [8, 6]), 5) is Reduced
    assert chosen([sp.random_array((30, 5000), density=0.01, rng=rng, format="csr")], 5) is Ambient
    assert chosen(cases.random_views(rng, 20, [60, 60]), 5) is Ambient


@pytest.mark.parametrize("scale", [1e1, 1e2, 1e3, 1e5])
@COORDINATES
def test_views_of_different_scale_are_not_lost(scale, coordinates):
    """Explicit factors bring both views to one scale; the features may lie far apart.

    The pool is that of scale 1 in other units, so value, residual and subspace are the same.
    """
    rng = np.random.default_rng(11)
    case = Case("", cases.random_views(rng, 40, [5, 4]), 3, 0.15, (0.1, 0.1))
    units = [scale, 1 / scale]
    stretched = case._replace(
        views=[c * Phi for c, Phi in zip(units, case.views, strict=True)],
        eps=tuple(c**2 * eps for c, eps in zip(units, case.eps, strict=True)),
    )
    problem = problem_of(stretched, factors=[c**-2 for c in units])
    relaxed = relax(problem, start="random", coordinates=coordinates(problem.pool))
    assert relaxed.value == pytest.approx(
        reference.f(kernels_of(case), relaxed.basis, case.tau), abs=1e-9
    )
    assert residual_of(case, relaxed.basis) <= 1.05e-6


# --- starts ---------------------------------------------------------------------------------------


def test_a_warm_start_from_the_answer_stays_there():
    case = cases.SMALL[5]
    problem = problem_of(case)
    cold = relax(problem)
    warm = relax(problem, start=cold.basis)
    assert len(warm.trace) <= 3
    assert reference.chordal(warm.basis, cold.basis) < 1e-6


@COORDINATES
def test_a_warm_frame_need_not_be_orthonormal(coordinates):
    """It names a subspace, in whatever basis."""
    case = cases.SMALL[7]
    problem = problem_of(case)
    V = in_range(case)
    T = np.triu(np.random.default_rng(25).uniform(1, 3, (case.k, case.k)))
    relaxed = relax(problem, start=V @ T, coordinates=coordinates(problem.pool))
    expected = reference.f(kernels_of(case), V, case.tau)
    assert relaxed.trace[0].objective == pytest.approx(expected, abs=1e-9)
    check_frame(relaxed, case)


def test_random_starts_follow_the_seed():
    case = cases.SMALL[6]
    first, again, other = (
        relax(problem_of(case, random_state=seed), start="random").trace[0].objective
        for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.sample
@SMALL
@COORDINATES
def test_spectral_start_is_nearly_the_dominant_subspace_of_the_averaged_kernel(case, coordinates):
    """In the size of what it captures of the kernel; eigenvectors of close eigenvalues may mix."""
    problem = problem_of(case)
    where = coordinates(problem.pool)
    if case.k >= where.dimension:
        pytest.skip("degenerate")
    V = where.lift(start_frame(problem, where, "spectral")[0])
    average = reference.averaged_kernel(kernels_of(case))
    dominant = reference.top_eigenvectors(average, case.k)
    captured = np.trace(V.T @ average @ V) / np.trace(dominant.T @ average @ dominant)
    least = 0.9 if coordinates is Spanned else 0.95  # two subspace iterations, for few passes
    assert least < captured <= 1 + 1e-12


@pytest.mark.parametrize("name", SOLVERS)
def test_selector_starts_are_pushed_off_the_axes(name):
    """Algorithm 1 has no escape of its own: without the push it would stand still."""
    S = list(range(10, 15))
    relaxed = relax(paper_problem(), make_solver(name, k=5, max_steps=60), start=S)
    first, last = relaxed.trace[0], relaxed.trace[-1]
    assert first.objective == pytest.approx(cases.PAPER_BALANCED, abs=0.1)  # close to the subset,
    assert first.residual > 1e-3  # but not on it
    assert last.objective > first.objective + 1


@pytest.mark.parametrize(
    "start",
    [
        "spectrum",
        None,
        3,
        np.ones((7, 2)),
        np.ones((12, 3), dtype=complex),
        np.full((12, 3), np.nan),
        np.full((12, 3), np.inf),
        [0, 1],
        [0, 1, 1],
        [0, 1, 12],
        [-1, 0, 1],
        [0.0, 1.0, 2.0],
        [[0, 1], [2]],
    ],
    ids=str,
)
def test_bad_starts_are_refused(start):
    rng = np.random.default_rng(12)
    with pytest.raises(InputError, match="start"):
        relax_data(cases.random_views(rng, 12, [4, 5]), 3, start=start)


def test_a_bad_start_is_refused_where_no_solver_would_look_at_it():
    """k = 3 of a pool of rank 2 is degenerate and needs no start, but the input is still wrong."""
    with pytest.raises(InputError, match="start"):
        relax_data(cases.random_views(np.random.default_rng(12), 12, [2]), 3, start="spectrum")


@pytest.mark.parametrize("frame", [np.zeros((12, 3)), np.ones((12, 3))], ids=["zero", "dependent"])
def test_a_frame_that_spans_too_little_is_refused_or_used_soundly(frame):
    """Never an answer that is not stationary or a frame that is not orthonormal."""
    case = Case("", cases.random_views(np.random.default_rng(13), 12, [4, 5]), 3, 0.1, (0.1, 0.1))
    try:
        relaxed = relax(problem_of(case), start=frame)
    except InputError:
        return
    check_frame(relaxed, case)
    assert residual_of(case, relaxed.basis) <= 1.05e-6


@pytest.mark.parametrize(
    "knobs",
    [
        {"solver": "newton"},
        {"tol": 0},
        {"tol": -1e-3},
        {"tol": math.nan},
        {"tol": math.inf},
        {"tol": "1e-6"},
        {"max_steps": 0},
        {"max_steps": "10"},
        {"alpha": 0.5},
        {"sigma": 0.1},
        {"solver": "plain", "alpha": 0.5},
        {"solver": "plain", "sigma": 0.1},
        {"solver": "damped", "alpha": 1.0},
        {"solver": "damped", "alpha": 0.0},
        {"solver": "damped", "alpha": -0.1},
        {"solver": "damped", "alpha": math.nan},
        {"solver": "damped", "alpha": "half"},
        {"solver": "damped", "sigma": 0.1},
        {"solver": "shifted", "sigma": 0.0},
        {"solver": "shifted", "sigma": -1.0},
        {"solver": "shifted", "sigma": math.inf},
        {"solver": "shifted", "sigma": math.nan},
        {"solver": "shifted", "sigma": "one"},
        {"solver": "damped-shifted", "alpha": 1.5},
        {"time_limit": 0},
        {"time_limit": math.nan},
    ],
    ids=str,
)
@pytest.mark.parametrize("widths", [[4, 5], [2]], ids=["relaxed", "degenerate"])
def test_contradictory_knobs_are_refused(knobs, widths):
    """Also where the solver would have had nothing to do; the message names the knob."""
    name = next(iter(set(knobs) - {"solver"}), "solver")
    with pytest.raises(InputError, match=rf"\b{name}\b"):
        relax_data(cases.random_views(np.random.default_rng(14), 12, widths), 3, **knobs)


# --- stationary is not optimal --------------------------------------------------------------------

PAPER_MAXIMUM = math.log(50.05)  # pairs of specialists turned by 45 degrees: G_q = 50.05 I in both
SUBSETS = {
    "text": [0, 1, 2, 3, 4],
    "vision": [5, 6, 7, 8, 9],
    "balanced": [10, 11, 12, 13, 14],
    "optimum": [0, 1, 5, 6, 10],
}


@pytest.mark.parametrize("subset", SUBSETS)
@COORDINATES
def test_selector_starts_leave_the_saddle_of_diagonal_kernels(subset, coordinates):
    problem = paper_problem()
    S = SUBSETS[subset]
    # every coordinate frame is stationary, and none of these is a maximum
    assert np.linalg.norm(reference.A_perp(paper_kernels(), np.eye(15)[:, S], 0.15)) < 1e-14
    relaxed = relax(problem, start=S, coordinates=coordinates(problem.pool))
    assert relaxed.status is Status.CONVERGED
    assert relaxed.value == pytest.approx(PAPER_MAXIMUM, abs=1e-9)
    assert relaxed.value == pytest.approx(
        reference.f(paper_kernels(), relaxed.basis, 0.15), abs=1e-9
    )


@pytest.mark.sample
@pytest.mark.parametrize("subset", SUBSETS)
@pytest.mark.parametrize("name", SOLVERS)
def test_a_stationary_warm_start_is_escaped_or_called_a_saddle(subset, name):
    """Exactly stationary, with ascent directions: no gradient will ever move it."""
    V = reference.selector(SUBSETS[subset], 15)
    relaxed = relax(paper_problem(), make_solver(name, k=5, max_steps=300), start=V)
    if name == "accelerated":
        assert relaxed.status is Status.CONVERGED
        assert relaxed.value == pytest.approx(PAPER_MAXIMUM, abs=1e-9)
        assert "no direction of ascent" in relaxed.checked
    else:  # Algorithm 1 by the letter stays; what it stopped at is said
        assert relaxed.status is Status.SADDLE
        assert not relaxed.status.ok
        assert relaxed.curvature > 1
        assert "a direction of ascent" in relaxed.checked
        np.testing.assert_array_equal(relaxed.basis, V)


def test_converged_always_says_what_was_checked():
    relaxed = relax(problem_of(cases.SMALL[2]))
    assert relaxed.status is Status.CONVERGED
    assert relaxed.curvature < 0
    products = int(re.search(r"(\d+) Lanczos steps", relaxed.checked)[1])
    assert 1 <= products <= 30
    assert "residual" in relaxed.checked
    assert f"{relaxed.curvature:.3g}" in relaxed.checked
    limited = relax(problem_of(cases.SMALL[2]), make_solver(k=4, max_steps=1), start="random")
    assert limited.curvature is None
    assert "not looked at" in limited.checked


@pytest.mark.parametrize("case", [cases.SMALL[i] for i in (0, 1, 4, 8, 10)], ids=lambda c: c.name)
def test_curvature_is_the_largest_eigenvalue_of_the_hessian(case):
    """k times half the largest one, from finite differences on a basis of the tangent space."""
    rng = np.random.default_rng(15)
    n, k = len(case.views[0]), case.k
    for V in (cases.random_frame(rng, n, k), relax(problem_of(case)).basis):
        normal = np.linalg.svd(V)[0][:, k:]
        tangents = [np.outer(u, e) for u in normal.T for e in np.eye(k)]
        images = [reference.hessian_fd(kernels_of(case), V, case.tau, xi) for xi in tangents]
        H = np.array([[np.vdot(xi, image) for image in images] for xi in tangents]) / 2
        top = k * np.linalg.eigvalsh((H + H.T) / 2)[-1]
        found = largest_curvature(point_at(case, V), rng)
        assert found.largest == pytest.approx(top, rel=1e-4, abs=1e-4)
        assert np.linalg.norm(found.direction) == pytest.approx(1.0)
        quotient = np.vdot(found.direction, point_at(case, V).hessian(found.direction))
        assert k * quotient == pytest.approx(found.largest, abs=1e-8)


@pytest.mark.parametrize("kind", [Ambient, Reduced, Spanned])
def test_what_lanczos_finds_depends_on_the_subspace_alone(kind):
    """Signs of columns are those of a library, and engines would find other frames by them."""
    rng = np.random.default_rng(6)
    problem = problem_of(Case("drawn", cases.random_views(rng, 30, [9, 8]), 4, 0.05, (0.05, 0.05)))
    coordinates = kind(problem.pool)
    objective = replace(objective_of(problem), maps=coordinates.maps)
    V, _ = start_frame(problem, coordinates, "sketch")
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    one, other = (
        largest_curvature(objective.at(frame), np.random.default_rng(1), products=3)
        for frame in (V, V * [1.0, -1.0, -1.0, 1.0])
    )
    turned = largest_curvature(objective.at(V @ turn), np.random.default_rng(1), products=3)
    assert one.largest == pytest.approx(other.largest, abs=1e-9)
    assert one.largest == pytest.approx(turned.largest, abs=1e-9)


# --- statuses and what a result says --------------------------------------------------------------


def test_degenerate_when_k_reaches_the_joint_rank():
    rng = np.random.default_rng(16)
    base = cases.random_views(rng, 20, [3, 2])
    views = [base[0], base[1], base[0] @ rng.standard_normal((3, 4))]  # the third adds no rank
    Q = np.linalg.svd(np.hstack(views))[0][:, :5]
    factors = [2.0, 0.5, 3.0]
    for k, degenerate in ((4, False), (5, True), (7, True)):
        case = Case("", views, k, 0.1, (0.1, 0.2, 0.3))
        relaxed = relax(problem_of(case, factors=factors))
        Ls = kernels_of(case, factors=factors)
        assert (relaxed.status is Status.DEGENERATE) == degenerate
        if not degenerate:
            continue
        assert relaxed.status.ok
        assert "joint rank" in relaxed.status.value
        assert "global maximum" in relaxed.checked
        expected = reference.spectral_certificate(Ls, k, case.tau)
        assert relaxed.value == pytest.approx(expected, abs=1e-10)
        np.testing.assert_allclose(relaxed.leverage, reference.leverage(Q), atol=1e-9)
        V = relaxed.basis
        np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-12)
        assert reference.f(Ls, V, case.tau) == pytest.approx(expected, abs=1e-9)
        w = reference.weights(reference.view_values(Ls, V), case.tau)
        np.testing.assert_allclose(list(relaxed.view_weights.values()), w, atol=1e-8)


@pytest.mark.parametrize("storage", ["kernel", "wide sparse"])
def test_degenerate_also_in_n_dimensions(storage):
    """A kernel, or a wide sparse view, of rank 3 and k = 5: two directions mean nothing at all.

    Leverage must come from the range alone, or noise would order the candidates
    (docs/method.md#coordinates).
    """
    rng = np.random.default_rng(17)
    if storage == "kernel":
        Phi = rng.standard_normal((30, 3))
        view = KernelView(Phi @ Phi.T)
    else:
        Phi = sp.random_array((3, 6000), density=0.01, rng=rng, format="csr").toarray()
        Phi = Phi[rng.integers(0, 3, 30)]
        view = sp.csr_array(Phi)
    relaxed = relax_data({"view": view}, 5, calibration="none")
    L = reference.kernel(Phi, 0.1)
    assert relaxed.value == pytest.approx(reference.spectral_value(L, 5), abs=1e-9)
    Q = np.linalg.svd(Phi, full_matrices=False)[0][:, :3]
    np.testing.assert_allclose(relaxed.leverage, reference.leverage(Q), atol=1e-8)
    assert relaxed.status is Status.DEGENERATE


@pytest.mark.parametrize("limit", [1, 5])
def test_step_limit(limit):
    relaxed = relax(problem_of(cases.SMALL[3]), make_solver(k=4, max_steps=limit), start="random")
    assert relaxed.status is Status.STEP_LIMIT
    assert sum(row.step > 0 for row in relaxed.trace) == limit
    assert "max_steps" in relaxed.status.value
    check_frame(relaxed, cases.SMALL[3])


def test_step_limit_is_shared_by_the_stages(monkeypatch):
    """An ascent that loses patience at once hands over to Newton."""
    monkeypatch.setattr(lbfgs, "_PATIENCE", 1)
    problem = problem_of(cases.SMALL[3])
    whole = relax(problem, start="random")
    stages = [row.stage for row in whole.trace]
    assert set(stages) == {"ascent", "newton"}
    steps = sum(row.step > 0 for row in whole.trace)
    limited = relax(problem, make_solver(k=4, max_steps=steps - 1), start="random")
    assert limited.status is Status.STEP_LIMIT
    assert sum(row.step > 0 for row in limited.trace) == steps - 1
    assert limited.trace[-1].stage == "newton"


@pytest.mark.parametrize("solver", SOLVERS)
def test_time_limit(solver):
    rng = np.random.default_rng(18)
    relaxed = relax_data(
        cases.random_views(rng, 12, [4, 5]), 3, solver=solver, start="random", time_limit=1e-9
    )
    assert relaxed.status is Status.TIME_LIMIT
    assert not relaxed.steps
    assert "time_limit" in relaxed.status.value
    np.testing.assert_allclose(relaxed.basis.T @ relaxed.basis, np.eye(3), atol=1e-13)


def test_strict_raises_what_the_status_says():
    rng = np.random.default_rng(19)
    views = cases.random_views(rng, 12, [4, 5])
    with pytest.raises(NumericalError, match=re.escape(Status.STEP_LIMIT.value)):
        relax_data(views, 3, start="random", max_steps=1, strict=True)
    assert relax_data(views, 3, strict=True).status is Status.CONVERGED


def test_lost_definiteness_is_a_status_or_an_error_of_ours():
    """A ridge of 1e-15 beside eigenvalues of 1e7, and a view that has width but no rank."""
    rng = np.random.default_rng(20)
    X = rng.standard_normal((30, 3))
    data = {"low": 1e3 * np.hstack([X, X, X]), "other": rng.standard_normal((30, 9))}
    for solver in ("accelerated", "plain"):
        try:
            status = relax_data(
                data, 6, eps=1e-15, calibration="none", solver=solver, start="random"
            ).status
        except FairnepvError:  # and never a LinAlgError
            continue
        assert status is not Status.CONVERGED


@pytest.mark.parametrize("name", SOLVERS)
def test_the_trace_has_objective_residual_weights_shift_and_seconds(name):
    heard: list[Step] = []
    case = cases.SMALL[5]
    solver = make_solver(name, k=case.k, max_steps=30)
    relaxed = relax(
        problem_of(case), solver, start="random", session=Context(progress=heard.append)
    )
    assert relaxed.trace == tuple(heard)
    assert len(relaxed.trace) > 3
    seconds = 0.0
    for row in relaxed.trace:
        assert math.isfinite(row.objective)
        assert row.residual >= 0
        assert len(row.weights) == len(case.views)
        assert sum(row.weights) == pytest.approx(1.0)
        assert row.shift == (solver.sigma if name in VARIANTS else None)
        seconds = 0.0 if row.step == 0 else seconds
        assert row.seconds >= seconds
        seconds = row.seconds
    last = relaxed.trace[-1]
    assert (last.objective, last.residual) == (relaxed.value, relaxed.residual)
    assert last.weights == tuple(relaxed.view_weights.values())
    assert relaxed.solver is solver


def test_progress_reaches_the_front_door():
    heard: list[Step] = []
    rng = np.random.default_rng(21)
    relaxed = relax_data(cases.random_views(rng, 12, [4, 5]), 3, progress=heard.append)
    assert tuple(heard) == relaxed.trace != ()


# --- the front door and other storage -------------------------------------------------------------


def test_relax_is_still_a_function_after_the_package_has_been_used():
    """`fairnepv.relax` is a function of the interface and also the name of a package inside."""
    script = (
        "import numpy, fairnepv\n"
        "X = numpy.random.default_rng(0).standard_normal((20, 4))\n"
        "fairnepv.select({'a': X}, 3)\n"
        "print(fairnepv.relax({'a': X}, 3).status.name)\n"
        "import fairnepv.stiefel.scf\n"
        "print(fairnepv.relax({'a': X}, 3).status.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stderr, done.stdout.split()) == ("", ["CONVERGED", "CONVERGED"])


def test_the_front_door_calibrates_rows_and_keeps_offsets():
    rng = np.random.default_rng(22)
    views = cases.random_views(rng, 30, [5, 7])
    relaxed = relax_data(views, 4, tau=0.1, start="random")
    unit = [reference.unit_diagonal(X) for X in views]
    case = Case("", unit, 4, 0.1, (0.1, 0.1))
    assert residual_of(case, relaxed.basis) <= 1.05e-6
    check_frame(relaxed, case)
    factors = {"view0": 2.0, "view1": 0.5}
    relaxed = relax_data(views, 4, tau=0.1, eps=0.1, calibration=factors, start="random")
    Ls = [c * reference.kernel(X, 0.1) for c, X in zip(factors.values(), views, strict=True)]
    assert relaxed.value == pytest.approx(reference.f(Ls, relaxed.basis, 0.1), abs=1e-10)
    assert 4 * np.linalg.norm(reference.A_perp(Ls, relaxed.basis, 0.1)) <= 1.05e-6


def test_storage_does_not_matter():
    """Dense, sparse, kernel and diagonal views of the same kernels relax to the same value."""
    rng = np.random.default_rng(23)
    X = rng.standard_normal((18, 6)) * (rng.random((18, 6)) < 0.6)
    q = rng.uniform(0.5, 3, 18)
    V0 = cases.random_frame(rng, 18, 4)
    Ls = [reference.kernel(X, 0.1), np.diag(q) + 0.1 * np.eye(18)]
    values = []
    for first in (X, sp.csr_array(X), KernelView(X @ X.T)):
        for second in (DiagonalView(q), KernelView(np.diag(q)), np.diag(np.sqrt(q))):
            relaxed = relax_data(
                {"a": first, "b": second}, 4, eps=0.1, calibration="none", start=V0
            )
            assert relaxed.status is Status.CONVERGED
            V = relaxed.basis
            assert relaxed.value == pytest.approx(reference.f(Ls, V, 0.05), abs=1e-9)
            assert 4 * np.linalg.norm(reference.A_perp(Ls, V, 0.05)) <= 1.05e-6
            values.append(relaxed.value)
    np.testing.assert_allclose(values, values[0], atol=1e-10)


def test_wide_sparse_view_in_n_dimensions():
    rng = np.random.default_rng(24)
    wide = sp.random_array((60, 6000), density=0.02, rng=rng, format="csr")
    dense = rng.standard_normal((60, 5))
    relaxed = relax_data({"wide": wide, "dense": dense}, 8)
    assert isinstance(relaxed.coordinates, Ambient)
    assert relaxed.status is Status.CONVERGED
    case = Case(
        "",
        [reference.unit_diagonal(wide.toarray()), reference.unit_diagonal(dense)],
        8,
        0.05,
        (0.1, 0.1),
    )
    check_frame(relaxed, case)
    assert residual_of(case, relaxed.basis) <= 1.05e-6
    assert relaxed.trace[-1].passes > 2 * len(relaxed.trace)


# --- a slice of UCI multiple features -------------------------------------------------------------


def uci_case(names: list[str], k: int, eps: float, every: int = 4) -> Case:
    pool = cases.uci()
    views = [reference.unit_diagonal(pool[name][::every].astype(np.float64)) for name in names]
    return Case("", views, k, 0.05, (eps,) * len(names))


@pytest.mark.parametrize(
    ("names", "k"),
    [(["fou", "kar", "zer"], 60), (["fou", "mor", "zer"], 20), (["kar", "mor"], 20)],
    ids=str,
)
@pytest.mark.parametrize("eps", [0.1, 1e-3])
def test_uci_with_k_above_the_width_of_a_view(names, k, eps):
    case = uci_case(names, k, eps)
    assert min(X.shape[1] for X in case.views) < k
    relaxed = relax(problem_of(case))
    assert relaxed.status is Status.CONVERGED
    assert residual_of(case, relaxed.basis) <= 1.05e-6
    values = np.array([row.objective for row in relaxed.trace])
    assert np.diff(values).min(initial=0.0) >= -1e-12 * max(1, abs(values[-1]))
    np.testing.assert_allclose(relaxed.leverage, reference.leverage(relaxed.basis), atol=1e-8)
    assert relaxed.value >= reference.f(kernels_of(case), np.eye(len(case.views[0]), k), 0.05)


@pytest.mark.parametrize(
    ("names", "k"), [(["fou", "mor"], 20), (["fou", "kar", "zer"], 60)], ids=str
)
def test_uci_at_the_smallest_ridge(names, k):
    case = uci_case(names, k, 1e-6)
    relaxed = relax(problem_of(case))
    assert relaxed.status in (Status.CONVERGED, Status.ROUNDING_FLOOR)
    value, A = accurate_point(case, relaxed.basis)
    assert relaxed.value == pytest.approx(value, abs=1e-8)
    residual = case.k * np.linalg.norm(EUCLIDEAN.project(relaxed.basis, A))
    assert residual <= (2e-6 if relaxed.status is Status.CONVERGED else 1e-3)


def test_float32_data_is_relaxed_in_float64():
    """Straight from the archive through the front door; k above the six columns of mor."""
    pool = {name: cases.uci()[name][::4] for name in ("fou", "mor")}
    relaxed = relax_data(pool, 20)
    case = uci_case(["fou", "mor"], 20, 0.1)
    assert relaxed.status is Status.CONVERGED
    assert residual_of(case, relaxed.basis) <= 1.05e-6


# --- the span of the columns ----------------------------------------------------------------------


def rows_of(pair: Array, Phi: Array) -> Array:
    """The n rows that a pair stands for."""
    return Phi @ pair[: len(pair) // 2]


@st.composite
def pools(draw: st.DrawFn) -> Case:
    """Dense, rank-deficient and duplicate views, some in other units, ridges down to 1e-5."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(12, 40))
    views = cases.random_views(rng, n, draw(st.lists(st.integers(2, 6), min_size=1, max_size=3)))
    if draw(st.booleans()):
        views.append(views[0].copy())
    if draw(st.booleans()):
        views[-1][:, 0] = views[-1][:, 1]
    if draw(st.booleans()):
        views[0][views[0] < 0.5] = 0.0
    units = draw(st.sampled_from([1.0, 1e3]))
    views[-1] *= units
    eps = [draw(st.sampled_from([1e-1, 1e-3, 1e-5])) for _ in views]
    eps[-1] *= units**2
    tau = draw(st.sampled_from([0.05, 0.5]))
    return Case("", views, draw(st.integers(1, 4)), tau, tuple(eps))


@settings(max_examples=40, deadline=None)
@given(pools(), st.booleans())
def test_pairs_do_what_their_rows_do(case, sparse):
    """Inner products, projection, retraction, points and Hessians against n dimensions."""
    stored = [sp.csr_array(X) for X in case.views] if sparse else case.views
    problem = problem_of(case._replace(views=stored))
    Phi = np.hstack(case.views)
    if np.linalg.matrix_rank(Phi) <= case.k:
        return
    rng = np.random.default_rng(1)
    spanned = Spanned(problem.pool)
    geometry = spanned.maps.geometry
    V = start_frame(problem, spanned, "sketch")[0]
    X = geometry.random(V, rng)
    rows = rows_of(V, Phi)
    np.testing.assert_allclose(rows.T @ rows, np.eye(case.k), atol=1e-8)
    size = np.linalg.norm(rows_of(X, Phi))
    close = {"atol": 1e-8 * size, "rtol": 1e-8}
    np.testing.assert_allclose(geometry.inner(V, X), rows.T @ rows_of(X, Phi), **close)
    assert geometry.norm(X) == pytest.approx(size, rel=1e-9)
    xi = geometry.project(V, X / size)
    np.testing.assert_allclose(
        rows_of(geometry.retract(V, xi), Phi), reference.polar(rows + rows_of(xi, Phi)), atol=1e-7
    )
    here = replace(objective_of(problem), maps=spanned.maps).at(V)
    there = objective_of(problem).at(rows)
    assert here.value == pytest.approx(there.value, abs=1e-8)
    scale = 1e-7 * np.linalg.norm(there.A)
    np.testing.assert_allclose(rows_of(here.A, Phi), there.A, atol=scale)
    np.testing.assert_allclose(rows_of(here.A_perp, Phi), there.A_perp, atol=scale)
    expected = there.hessian(rows_of(xi, Phi))
    np.testing.assert_allclose(
        rows_of(here.hessian(xi), Phi), expected, atol=1e-6 * np.linalg.norm(expected) + scale
    )


@settings(max_examples=25, deadline=None)
@given(pools())
def test_the_span_leads_where_the_range_leads(case):
    """From one frame to points of the same value, residual and leverage.

    Where columns depend on each other, C is not unique and lengths are sure to the root of rounding
    only: now and then a run then stagnates, and says so, at a value that is less sure.
    """
    Phi = np.hstack(case.views)
    if np.linalg.matrix_rank(Phi) <= case.k:
        return
    lengths = np.linalg.norm(Phi, axis=0)
    independent = lengths.all() and np.linalg.matrix_rank(Phi / lengths) == Phi.shape[1]
    sure = 1e-7 if independent else 1e-4
    problem = problem_of(case)
    V = in_range(case)
    try:
        one, other = (
            relax(problem, start=V, coordinates=kind(problem.pool)) for kind in (Spanned, Ambient)
        )
    except NumericalError:  # not even the start has a sound Gram matrix
        assert not independent
        return
    assert one.trace[0].objective == pytest.approx(other.trace[0].objective, abs=1e-6)
    if independent:
        assert one.status in (Status.CONVERGED, Status.ROUNDING_FLOOR)
    value, A = accurate_point(case, one.basis)
    assert one.value == pytest.approx(value, abs=sure)
    residual = case.k * np.linalg.norm(EUCLIDEAN.project(one.basis, A))
    assert one.residual == pytest.approx(residual, abs=10 * sure)
    np.testing.assert_allclose(one.leverage, reference.leverage(one.basis), atol=10 * sure)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_runs_in_the_span(name):
    case = cases.SMALL[7]
    problem = problem_of(case)
    solver = make_solver(name, k=case.k, max_steps=45)
    one, other = (
        relax(problem, solver, start="sketch", coordinates=kind(problem.pool))
        for kind in (Spanned, Ambient)
    )
    steps = min(len(one.trace), len(other.trace), 12)
    np.testing.assert_allclose(
        [row.objective for row in one.trace[:steps]],
        [row.objective for row in other.trace[:steps]],
        atol=1e-7,
    )
    check_frame(one, case)


def test_nearly_dependent_columns_are_made_orthonormal_in_the_span():
    case = cases.SMALL[7]
    spanned, Phi = Spanned(problem_of(case).pool), np.hstack(case.views)
    rng = np.random.default_rng(5)
    C = rng.standard_normal((Phi.shape[1], 3))
    for last in (C[:, 0] + 1e-9 * C[:, 2], C[:, 0], 0 * C[:, 0]):
        C[:, 2] = last
        V = spanned.maps.geometry.orthonormalize(spanned.maps.combine(spanned.maps.split(C)))
        rows = rows_of(V, Phi)
        np.testing.assert_allclose(rows.T @ rows, np.eye(3), atol=1e-10)
        X = Phi @ C
        np.testing.assert_allclose(rows @ (rows.T @ X), X, atol=1e-8 * np.linalg.norm(X))


@pytest.mark.parametrize("condition", [1e2, 1e8, 1e12])
@pytest.mark.parametrize("kind", [Ambient, Spanned])
def test_ill_conditioned_frames_become_orthonormal_and_keep_their_span(kind, condition):
    rng = np.random.default_rng(8)
    views = [rng.standard_normal((400, p)) * (rng.random((400, p)) < 0.3) for p in (40, 30)]
    Phi, k = np.hstack(views), 12
    Q, R = np.linalg.qr(Phi)
    U, W = (np.linalg.qr(rng.standard_normal(shape))[0] for shape in ((70, k), (k, k)))
    C = np.linalg.solve(R, U * np.logspace(0, -np.log10(condition), k) @ W)
    assert np.linalg.cond(Phi @ C) == pytest.approx(condition, rel=1e-2)
    maps = kind(Pool.of([sp.csr_array(x) for x in views])).maps
    found = maps.geometry.orthonormalize(maps.combine((C[:40], C[40:])))
    V = found if kind is Ambient else Phi @ found[:70]
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-12)
    U = Q @ U  # the span of Phi C, whose faintest direction is sure to condition times rounding
    assert np.linalg.norm(V - U @ (U.T @ V)) < 1e-15 * condition + 1e-12
    if kind is Spanned:
        np.testing.assert_allclose(found[70:], Phi.T @ V, atol=1e-12 * np.linalg.norm(Phi, 2))


@pytest.mark.parametrize(("n", "kind"), [(100_000, Ambient), (110_000, Spanned)])
def test_only_small_frames_travel(n, kind):
    """In several sparse views n dimensions take fewer products, but longer messages; what is chosen
    is the same on every engine, or answers would not be."""
    columns = (np.arange(n)[:, None] + np.array([0, 311, 622])) % 1400
    parts = np.ones(3 * n), columns.ravel(), np.arange(0, 3 * n + 1, 3)
    views = [sp.csr_array(parts, (n, 1400)) for _ in range(3)]
    problem = Problem(Pool.of(views), 20, 0.05, Calibration("none"))
    assert type(choose_coordinates(problem)) is kind


def test_the_budget_of_passes_holds_and_shortens_the_check():
    case = cases.SMALL[7]
    problem = problem_of(case)
    free = relax(problem, coordinates=Spanned(problem.pool))
    needed = free.trace[-1].passes
    tight = replace(free.solver, max_passes=needed - 1)
    cut = relax(problem, tight, coordinates=Spanned(problem.pool))
    assert cut.status is Status.PASS_LIMIT
    assert cut.trace[-1].passes <= needed - 1
    assert cut.curvature is None
    checked = relax(
        problem, replace(tight, max_passes=needed + 3), coordinates=Spanned(problem.pool)
    )
    assert checked.status is Status.CONVERGED
    assert "and 3 Lanczos steps" in checked.checked


def test_wide_pools_of_many_rows_are_relaxed_in_the_span():
    rng = np.random.default_rng(26)
    wide = sp.random_array((60_000, 4500), density=1e-3, rng=rng, format="csr")
    dense = rng.standard_normal((60_000, 5))
    problem = Problem(Pool.of({"wide": wide, "dense": dense}), 300, 0.05, Calibration("none"))
    assert isinstance(choose_coordinates(problem), Spanned)


def test_a_point_that_an_iteration_has_reported_is_not_computed_again(monkeypatch):
    """Nor is any product made for the record of a solve that time or Ctrl-C has cut."""
    problem = pose(cases.random_views(np.random.default_rng(5), 30, [6, 7]), 4)
    frames, at = [], StiefelObjective.at

    def counted(objective, V):
        frames.append(V)
        return at(objective, V)

    monkeypatch.setattr(StiefelObjective, "at", counted)
    for steps in (2, 300):
        frames.clear()
        relax(problem, make_solver(k=4, max_steps=steps))
        assert len({id(V) for V in frames}) == len(frames)  # all are alive
    step = lbfgs.Lbfgs.step
    for lost in (2, 4):
        frames.clear()
        monkeypatch.setattr(
            lbfgs.Lbfgs,
            "step",
            lambda *a, at=lost: step(*a) if a[1].steps < at else interrupted(*a),
        )
        assert relax(problem, session=Context()).status is Status.INTERRUPTED
        assert len({id(V) for V in frames}) == len(frames)


def interrupted(iteration, state):
    """A step that Ctrl-C ends after its first product."""
    iteration._point(state.V.copy())
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", [Ambient, Reduced, Spanned])
def test_a_start_in_haste_is_a_frame_of_the_last_block(kind, monkeypatch):
    """Better than a random one, and of fewer products than the whole."""
    problem = pose(cases.random_views(np.random.default_rng(6), 60, [20, 25]), 4)
    coordinates = kind(problem.pool)
    monkeypatch.setattr(starts, "_STILL_TO_COME", math.inf)
    values = {}
    for name, seconds in (("hasty", 1e6), ("whole", None)):
        with limited(Limit(None if seconds is None else now() + seconds)):
            frame = start_frame(problem, coordinates, "spectral")[0]
        lifted = coordinates.lift(frame)
        np.testing.assert_allclose(lifted.T @ lifted, np.eye(4), atol=1e-10)
        values[name] = sum(np.vdot(Z, Z) for Z in coordinates.maps.adjoint(frame))
    frame = start_frame(problem, coordinates, "sketch")[0]
    drawn = sum(np.vdot(Z, Z) for Z in coordinates.maps.adjoint(frame))
    assert drawn < values["hasty"] <= values["whole"] * (1 + 1e-9)
