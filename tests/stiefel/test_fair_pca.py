"""Fair PCA, the relaxation of the representative objective: its solvers, its dual, its record."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar

import cases
import reference
from cases import Array, Case
from fairnepv.errors import Status, UnsupportedError
from fairnepv.loop import Budget, Context, run
from fairnepv.methods import Nepv
from fairnepv.objective import UTILITIES, StiefelObjective, subset_scores
from fairnepv.problem import Problem
from fairnepv.stiefel import DUAL, SOLVERS, make_solver, relax
from fairnepv.stiefel import dual as dual_module
from fairnepv.stiefel import eigen as eigen_module
from fairnepv.stiefel.coordinates import Ambient, Reduced, Spanned
from fairnepv.stiefel.dual import least_bound
from fairnepv.stiefel.eigen import Weighted, leading
from fairnepv.views import Calibration, DiagonalView, KernelView, Pool

NONE = Calibration("none")
SMALL = pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
PAIRS = [case for case in cases.SMALL if len(case.views) == 2 and case.name != "k above p"]


def pose(views, k: int, tau: float, *, priorities=None, quality=None, engine=None) -> Problem:
    names = [f"view{q}" for q in range(len(views))]
    pool = Pool.of(dict(zip(names, views, strict=True)), eps=1.0, quality=quality, engine=engine)
    return Problem(
        UTILITIES["representative"].asked_about(pool, NONE),
        k,
        tau,
        NONE,
        priorities=None if priorities is None else np.array(priorities),
        utility="representative",
    )


def shares(views: list[Array], weights: Array | None = None) -> list[Array]:
    """K_q / tr K_q, dense."""
    roots = np.ones(len(views[0])) if weights is None else np.sqrt(weights)
    kernels = [(roots[:, None] * Phi) @ (roots[:, None] * Phi).T for Phi in views]
    return [K / np.trace(K) for K in kernels]


def view_shares(Ks: list[Array], V: Array) -> Array:
    return np.array([np.trace(V.T @ K @ V) for K in Ks])


def dual_of(Ks: list[Array], w: Array, k: int, tau: float, offsets: Array | float = 0.0) -> float:
    """What bounds every frame by weights w."""
    H = sum(w_q * K for w_q, K in zip(w, Ks, strict=True))
    entropy = sum(w_q * math.log(len(w) * w_q) for w_q in w if w_q > 0)
    return float(
        np.linalg.eigvalsh(H)[-k:].sum() + w @ (offsets + np.zeros(len(w))) + tau * entropy
    )


def scan(Ks: list[Array], k: int, tau: float, offsets: Array | float = 0.0) -> float:
    """The least bound of two views, which is convex in one number."""
    found = minimize_scalar(
        lambda x: dual_of(Ks, np.array([x, 1 - x]), k, tau, offsets),
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": 1e-8},
    )
    return float(found.fun)


def check(relaxed, Ks: list[Array], tau: float, offsets: Array | float = 0.0) -> None:
    """What the record says of its frame."""
    V = relaxed.basis
    g = view_shares(Ks, V)
    np.testing.assert_allclose(V.T @ V, np.eye(V.shape[1]), atol=1e-12)
    np.testing.assert_allclose(list(relaxed.view_values.values()), g, atol=1e-8)
    assert relaxed.value == pytest.approx(reference.soft_min(g + offsets, tau), abs=1e-8)
    np.testing.assert_allclose(relaxed.leverage, reference.leverage(V), atol=1e-8)


# --- the dual -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case.name)
@pytest.mark.parametrize("tau", [1e-3, 0.05, 1.0])
@pytest.mark.parametrize("coordinates", [Ambient, Reduced])
def test_two_views_reach_the_least_bound(case, tau, coordinates):
    """Two views never mix [Tantipongpipat], so that a frame attains the bound."""
    problem, Ks = pose(case.views, case.k, tau), shares(case.views)
    relaxed = relax(problem, make_solver(DUAL, k=case.k), coordinates=coordinates(problem.pool))
    least = scan(Ks, case.k, tau)
    check(relaxed, Ks, tau)
    assert relaxed.status in (Status.GLOBAL, Status.DEGENERATE)
    assert relaxed.upper_bound >= least - 1e-9
    assert least - 1.1e-6 <= relaxed.value <= least + 1e-9


@SMALL
def test_no_start_of_the_ascent_ends_above_the_bound(case):
    problem = pose(case.views, case.k, case.tau)
    relaxed = relax(problem, make_solver(DUAL, k=case.k))
    found = [
        relax(problem, start=cases.random_frame(np.random.default_rng(seed), problem.n, case.k))
        for seed in range(4)
    ]
    assert all(other.value <= relaxed.upper_bound + 1e-10 for other in found)
    if relaxed.status is Status.GLOBAL:
        assert relaxed.upper_bound - relaxed.value <= 1e-6
        assert max(other.value for other in found) <= relaxed.value + 1e-6


@pytest.mark.parametrize("k", [1, 3, 8])
def test_one_view_is_pca(k):
    Phi = cases.random_views(np.random.default_rng(1), 30, [9])
    relaxed = relax(pose(Phi, k, 0.05), make_solver(DUAL, k=k))
    (K,) = shares(Phi)
    expected = np.linalg.eigvalsh(K)[-k:].sum()
    assert relaxed.value == pytest.approx(expected, abs=1e-7)
    assert relaxed.upper_bound == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("faint", [1e-5, 1e-6])
def test_no_frame_passes_the_bound_where_a_view_has_faintly_what_another_has_much_of(faint):
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((120, 6))
    wide = rng.standard_normal((120, 10)) @ rng.standard_normal((10, 20))
    views = [wide + faint * Z @ rng.standard_normal((6, 20)), Z @ rng.standard_normal((6, 12))]
    problem, solver = pose(views, 6, 0.05), make_solver(DUAL, k=6, tol=1e-8)
    one, other = (
        relax(problem, solver, coordinates=kind(problem.pool)) for kind in (Reduced, Ambient)
    )
    check(one, shares(views), 0.05)
    assert one.status is Status.GLOBAL
    assert one.upper_bound >= other.value - 1e-12


def test_a_repeated_view_changes_nothing():
    Phi = cases.random_views(np.random.default_rng(2), 20, [7])
    one, two = (relax(pose(Phi * m, 3, 0.05), make_solver(DUAL, k=3)) for m in (1, 2))
    assert one.value == pytest.approx(two.value, abs=1e-7)


@pytest.mark.parametrize("tau", [1e-6, 1e3, math.inf])
def test_cold_and_hot(tau):
    views = cases.random_views(np.random.default_rng(3), 25, [7, 9])
    Ks = shares(views)
    relaxed = relax(pose(views, 4, tau), make_solver(DUAL, k=4))
    assert relaxed.status is Status.GLOBAL
    check(relaxed, Ks, tau)
    if tau < 1:  # the worst view
        assert relaxed.value == pytest.approx(scan(Ks, 4, tau), abs=1.1e-6)
    else:  # PCA of the mean
        expected = np.linalg.eigvalsh(sum(Ks) / 2)[-4:].sum()
        assert relaxed.value == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("tau", [1e-6, 1e-7, 1e-9])
@pytest.mark.parametrize("seed", [0, 1])
def test_weights_are_found_where_tau_drowns_in_rounding(seed, tau):
    views = cases.random_views(np.random.default_rng(seed), 15, [7] * 4)
    relaxed = relax(pose(views, 3 if seed == 0 else 1, tau), make_solver(DUAL, k=3))
    check(relaxed, shares(views), tau)
    assert relaxed.status in (Status.GLOBAL, Status.MIXED)
    assert relaxed.value <= relaxed.upper_bound < relaxed.value + 0.02


def test_priorities_are_offsets_of_the_dual():
    views = cases.random_views(np.random.default_rng(4), 25, [7, 9])
    tau, priorities = 0.05, np.array([0.9, 0.1])
    problem = pose(views, 4, tau, priorities=priorities)
    relaxed = relax(problem, make_solver(DUAL, k=4))
    check(relaxed, shares(views), tau, problem.lifts)
    assert relaxed.value == pytest.approx(scan(shares(views), 4, tau, problem.lifts), abs=1.1e-6)
    assert relaxed.view_values["view0"] > relax(pose(views, 4, tau)).view_values["view0"]


def test_quality_weighs_rows():
    rng = np.random.default_rng(5)
    views = cases.random_views(rng, 25, [7, 9])
    weights = rng.uniform(0, 2, 25)
    problem = pose(views, 4, 0.05, quality=weights)
    Ks = shares(views, weights)
    for solver in (DUAL, "accelerated"):
        relaxed = relax(problem, make_solver(solver, k=4))
        check(relaxed, Ks, 0.05)
        assert relaxed.value == pytest.approx(scan(Ks, 4, 0.05), abs=1.1e-6)
    traces = [view.moments.trace for view in problem.pool.views]
    np.testing.assert_allclose(traces, [weights @ (Phi**2).sum(axis=1) for Phi in views])


def test_a_mixture_is_told_and_its_gap_is_reported():
    """Three lines in a plane, 60 degrees apart: half of the identity has half of each, and the best
    vector lies on one of them and has a quarter of the others."""
    angles = np.pi / 3 * np.arange(3)
    views = [np.array([[np.cos(a)], [np.sin(a)]]) for a in angles]
    relaxed = relax(pose(views, 1, 0.05), make_solver(DUAL, k=1))
    assert relaxed.status is Status.MIXED
    assert relaxed.upper_bound == pytest.approx(0.5, abs=1e-6)
    best = reference.soft_min(np.array([1.0, 0.25, 0.25]), 0.05)
    assert relaxed.value == pytest.approx(best, abs=1e-6)
    assert f"{relaxed.upper_bound - relaxed.value:.3g}" in relaxed.checked


def test_commuting_kernels_cross_where_the_optimum_is():
    """Of two diagonal kernels, eigenvalues cross at equal weights: a kink of the dual."""
    views = [DiagonalView(np.array(d)) for d in ([4.0, 1, 1, 1], [1.0, 4, 1, 1])]
    relaxed = relax(pose(views, 1, 0.05), make_solver(DUAL, k=1))
    assert relaxed.status is Status.GLOBAL
    assert relaxed.value == pytest.approx(2.5 / 7, abs=1e-6)  # half of each item


def test_a_set_may_explain_more_than_any_frame():
    """Every view has a subspace of its own for the rows of a set, so that the relaxation does not
    bound sets: here each of two rows explains two kernels that have nothing in common."""
    views = [np.array([[1.0], [1.0]]), np.array([[1.0], [-1.0]])]
    relaxed = relax(pose(views, 1, 0.05), make_solver(DUAL, k=1))
    assert relaxed.value == pytest.approx(0.5, abs=1e-6)
    pool = Pool.of(views, eps=1e-9)
    problem = UTILITIES["representative"].asked_about(pool, NONE)
    np.testing.assert_allclose(subset_scores(problem, np.array([0]), "representative"), 1.0)


@SMALL
def test_more_items_than_rank_explain_everything(case):
    rank = np.linalg.matrix_rank(np.hstack(case.views))
    if rank >= len(case.views[0]):
        pytest.skip("no k is as large as the rank")
    for solver in (DUAL, *SOLVERS):
        relaxed = relax(pose(case.views, rank, case.tau), make_solver(solver, k=rank))
        assert relaxed.status is Status.DEGENERATE
        assert relaxed.value == relaxed.upper_bound == pytest.approx(1.0, abs=1e-12)


def test_storage_does_not_matter():
    views = cases.random_views(np.random.default_rng(6), 25, [7, 9])
    kinds = (lambda X: X, sp.csr_array, lambda X: KernelView(X @ X.T))
    found = [
        relax(pose([kind(X) for X in views], 4, 0.05), make_solver(DUAL, k=4)) for kind in kinds
    ]
    for other in found[1:]:
        assert other.value == pytest.approx(found[0].value, abs=1.1e-6)
        np.testing.assert_allclose(other.leverage, found[0].leverage, atol=1e-2)


def test_the_diverse_objective_has_no_dual():
    views = cases.random_views(np.random.default_rng(7), 12, [4, 5])
    problem = Problem(NONE.apply(Pool.of(views)), 3, 0.05, NONE)
    with pytest.raises(UnsupportedError, match="representative"):
        relax(problem, make_solver(DUAL, k=3))


@pytest.mark.parametrize("solver", [DUAL, *SOLVERS])
def test_time_limit(solver):
    problem = pose(cases.random_views(np.random.default_rng(8), 30, [9, 8]), 3, 0.05)
    session = Context(time_limit=1e-9)
    with session.needed("rows were read"):
        relaxed = relax(problem, make_solver(solver, k=3), session=session)
    assert relaxed.status is Status.TIME_LIMIT
    assert not relaxed.steps
    assert relaxed.leverage.sum() == pytest.approx(3)


def test_the_trace_has_the_bound():
    problem = pose(cases.random_views(np.random.default_rng(9), 30, [9, 8]), 3, 0.01)
    relaxed = relax(problem, make_solver(DUAL, k=3))
    uppers = [row.details["upper"] for row in relaxed.trace if row.stage == "dual"]
    assert uppers == sorted(uppers, reverse=True)
    assert uppers[-1] == relaxed.upper_bound


def test_cuts_leave_the_least_bound_and_a_mixture():
    """Weak duality and its equality, for cuts at random."""
    rng = np.random.default_rng(10)
    for tau in (1e-4, 0.05, 2.0):
        for M in (2, 3, 5):
            cuts = rng.uniform(0, 1, (7, M))
            w, mixed = least_bound(cuts, tau)
            assert w.sum() == pytest.approx(1.0)
            value = (cuts @ w).max() + tau * float(w @ np.log(M * np.maximum(w, 1e-300)))
            assert mixed <= value + 1e-12
            assert value - mixed <= 1e-9


# --- eigenvectors by products ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Ambient, Spanned])
def test_blocks_find_what_factorisations_find(kind, monkeypatch):
    monkeypatch.setattr(eigen_module, "_HELD", 0)
    rng = np.random.default_rng(11)
    views = [
        X * (1 + np.arange(X.shape[1])) ** -0.5 for X in cases.random_views(rng, 120, [30, 40])
    ]
    problem, Ks, w = pose(views, 6, 0.05), shares(views), np.array([0.3, 0.7])
    coordinates = kind(problem.pool)
    near = coordinates.lower(cases.random_frame(rng, 120, 6))
    found = leading(Weighted.by_weights(coordinates.maps, w), 6, near, 1e-9)
    lam = np.linalg.eigvalsh(0.3 * Ks[0] + 0.7 * Ks[1])[::-1]
    lacking = lam[:6].sum() - found.values[:6].sum()
    assert -1e-12 <= lacking <= found.error <= 1e-9
    relaxed = relax(problem, make_solver(DUAL, k=6), coordinates=coordinates)
    check(relaxed, Ks, 0.05)
    assert relaxed.status is Status.GLOBAL
    assert relaxed.value == pytest.approx(scan(Ks, 6, 0.05), abs=1.2e-6)


# --- Algorithm 1 ----------------------------------------------------------------------------------


def literal_step(Ks: list[Array], V: Array, tau: float, alpha: float, sigma: float) -> Array:
    w = reference.weights(view_shares(Ks, V), tau)
    H = sum(w_q * K for w_q, K in zip(w, Ks, strict=True)) + sigma * V @ V.T
    return reference.align_and_damp(reference.top_eigenvectors(H, V.shape[1]), V, alpha)


@pytest.mark.parametrize("name", SOLVERS[1:])
@pytest.mark.parametrize("coordinates", [Ambient, Reduced, Spanned])
def test_algorithm_1_takes_the_leading_eigenvectors_of_the_weighted_kernels(name, coordinates):
    rng = np.random.default_rng(12)
    views = cases.random_views(rng, 25, [7, 9])
    Ks, problem = shares(views), pose(views, 4, 0.15)
    V0 = Reduced(problem.pool).lift(
        Reduced(problem.pool).lower(cases.random_frame(rng, 25, 4))
    )  # in the range, where all coordinates agree
    solver = make_solver(name, k=4, max_steps=6)
    relaxed = relax(problem, solver, start=V0, coordinates=coordinates(problem.pool))
    V = V0
    for row in relaxed.trace:
        assert row.objective == pytest.approx(
            reference.soft_min(view_shares(Ks, V), 0.15), abs=1e-6
        )
        V = literal_step(Ks, V, 0.15, solver.alpha, solver.sigma)


@SMALL
@pytest.mark.parametrize("coordinates", [Ambient, Reduced])
def test_the_ascent_reaches_stationarity(case: Case, coordinates):
    problem, Ks = pose(case.views, case.k, case.tau), shares(case.views)
    relaxed = relax(problem, start="random", coordinates=coordinates(problem.pool))
    check(relaxed, Ks, case.tau)
    if relaxed.status is Status.DEGENERATE:
        return
    assert relaxed.status is Status.CONVERGED
    V, w = relaxed.basis, np.array(list(relaxed.view_weights.values()))
    A = sum(w_q * K for w_q, K in zip(w, Ks, strict=True)) @ V
    relative = case.k * np.linalg.norm(A - V @ (V.T @ A)) / np.trace(V.T @ A)
    assert relative <= 1.1e-6
    assert relaxed.residual == pytest.approx(relative, abs=1e-9)


# --- rounding -------------------------------------------------------------------------------------


def test_leverage_of_the_dual_is_rounded():
    views = cases.clustered_views(np.random.default_rng(13), 80, [9, 8], 6)
    problem, context = pose(views, 6, 0.05), Context()
    found = Nepv(oversampling=5.0).start_from(problem, context)
    assert len(set(found.indices.tolist())) == 6
    assert not context.notes
    assert any(row.stage == "dual" for row in context.trace)


@pytest.mark.torch
def test_a_device_leads_to_the_same_frame():
    pytest.importorskip("torch")
    views = cases.random_views(np.random.default_rng(14), 60, [7, 9])
    found = [
        relax(pose(views, 4, 0.05, engine=engine), make_solver(DUAL, k=4))
        for engine in (None, "torch:cpu")
    ]
    assert found[0].value == pytest.approx(found[1].value, abs=1e-9)
    np.testing.assert_allclose(found[0].leverage, found[1].leverage, atol=1e-6)


def ended(status, monkeypatch):
    """A relaxation whose dual says that it ended so, where it is as good as solved."""
    real = dual_module.Dual.done

    def done(self, state):
        return status if real(self, state) is Status.GLOBAL else None

    monkeypatch.setattr(dual_module.Dual, "done", done)
    views = cases.random_views(np.random.default_rng(3), 25, [7, 9])
    return relax(pose(views, 4, 0.05), make_solver(DUAL, k=4)).status


def test_a_frame_within_the_tolerance_of_the_bound_is_global_however_it_was_found(monkeypatch):
    assert ended(Status.MIXED, monkeypatch) is Status.GLOBAL


def test_a_run_that_was_stopped_is_never_called_global(monkeypatch):
    assert ended(Status.TIME_LIMIT, monkeypatch) is Status.TIME_LIMIT


def test_steps_that_bring_bound_and_frame_no_closer_are_counted(monkeypatch):
    """By a thousandth of what they are apart, at least."""
    views = cases.random_views(np.random.default_rng(9), 25, [7, 9, 5])
    problem = pose(views, 4, 0.01)
    coordinates = Ambient(problem.pool)
    f = StiefelObjective(
        coordinates.maps, problem.pool.eps, problem.offsets, 0.01, 4, UTILITIES["representative"]
    )
    start = cases.random_frame(np.random.default_rng(0), 25, 4)
    method = dual_module.Dual(f, start, tol=1e-12)
    state, seen = method.init(), set()
    for _ in range(40):
        following = method.step(state)
        closer = following.upper - following.value < 0.999 * (state.upper - state.value)
        assert following.stalled == (0 if closer else state.stalled + 1)
        assert following.upper <= state.upper
        assert following.value >= state.value
        seen.add(closer)
        state = following
    assert seen == {True, False}


def test_the_dual_alone_gets_there_by_blocks(monkeypatch):
    """From anywhere, as each step looks as closely as the tolerance asks for."""
    monkeypatch.setattr(eigen_module, "_HELD", 0)
    views = cases.random_views(np.random.default_rng(12), 60, [20, 30])
    problem = pose(views, 4, 0.05)
    f = StiefelObjective(
        Ambient(problem.pool).maps,
        problem.pool.eps,
        problem.offsets,
        0.05,
        4,
        UTILITIES["representative"],
    )
    start = cases.random_frame(np.random.default_rng(0), 60, 4)
    outcome = run(dual_module.Dual(f, start, tol=1e-6), budget=Budget(max_steps=100))
    assert outcome.status is Status.GLOBAL
    assert outcome.state.upper == pytest.approx(scan(shares(views), 4, 0.05), abs=1.1e-6)
