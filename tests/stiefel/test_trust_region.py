"""Newton steps: the model that they climb, how far they trust it, and when they end."""

from dataclasses import replace

import numpy as np
import pytest

import cases
from cases import Case
from fairnepv.errors import Status
from fairnepv.stiefel import relax
from fairnepv.stiefel.coordinates import Ambient
from fairnepv.stiefel.trust_region import TrustRegion, TrustRegionState, _truncated_cg
from frame_problems import objective_of, problem_of

K = 4


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(2)
    return Case("", cases.clustered_views(rng, 20, [6, 5, 4], 6), K, 0.05, (0.05,) * 3)


@pytest.fixture(scope="module")
def near(case):
    """A frame next to a maximum, where the Hessian is negative definite, and as good as singular
    along no tangent."""
    problem = problem_of(case)
    V = relax(problem, start="random", coordinates=Ambient(problem.pool)).basis
    rng = np.random.default_rng(3)
    Phi = np.hstack(case.views)
    push = Phi @ rng.standard_normal((Phi.shape[1], K))
    f = objective_of(problem)
    return f.at(np.linalg.qr(V + 1e-3 * push / np.linalg.norm(push))[0])


def counted(point):
    """The same point, and how often its Hessian is asked."""
    calls = []

    class Counted:
        def __getattr__(self, name):
            return getattr(point, name)

        def hessian(self, xi):
            calls.append(xi)
            return point.hessian(xi)

    return Counted(), calls


@pytest.mark.parametrize("radius", [1e-4, 1e-3, 3e-3, 1.0])
def test_a_step_stays_in_its_region_and_gains_what_the_model_says(radius, near):
    point, calls = counted(near)
    model = _truncated_cg(point, radius)
    length = np.linalg.norm(model.xi)
    assert model.products == len(calls) >= 1
    assert length <= radius * (1 + 1e-12)
    assert model.at_boundary == (length >= radius * (1 - 1e-9))
    gain = 2.0 * np.vdot(near.A_perp, model.xi) + np.vdot(model.xi, near.hessian(model.xi))
    assert model.gain == pytest.approx(gain, rel=1e-8)
    assert model.gain > 0
    np.testing.assert_allclose(near.V.T @ model.xi, 0.0, atol=1e-9 * length)


def test_within_the_region_the_system_is_solved_the_better_the_nearer(near):
    model = _truncated_cg(near, 1.0)
    assert not model.at_boundary
    left = near.A_perp + near.project(near.hessian(model.xi))
    wanted = min(0.1, max(1e-4, near.residual))
    assert np.linalg.norm(left) <= wanted * np.linalg.norm(near.A_perp)
    ahead = near.objective.at(near.geometry.retract(near.V, model.xi))
    assert ahead.residual < 0.2 * near.residual


def test_the_first_direction_is_the_gradient(near):
    model = _truncated_cg(near, 1e-9)
    expected = 1e-9 * near.A_perp / np.linalg.norm(near.A_perp)
    np.testing.assert_allclose(model.xi, expected, atol=1e-15)
    assert (model.at_boundary, model.products) == (True, 1)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_at_least_as_good_as_the_best_along_the_gradient(seed, case):
    """Wherever it is taken, along directions that bend upwards as well."""
    rng = np.random.default_rng(seed)
    point = objective_of(problem_of(case)).at(cases.random_frame(rng, 20, K))
    A = point.A_perp
    for radius in (0.01, 0.1, 1.0):
        model = _truncated_cg(point, radius)
        t = np.linspace(0.0, radius / np.linalg.norm(A), 500)
        along = 2.0 * t * np.vdot(A, A) + t**2 * np.vdot(A, point.hessian(A))
        assert model.gain >= along.max() * (1 - 1e-9)
        assert np.linalg.norm(model.xi) <= radius * (1 + 1e-12)
        if np.vdot(A, point.hessian(A)) >= 0:
            assert model.at_boundary


@pytest.mark.parametrize("seed", range(6))
def test_regions_shrink_where_the_model_was_wrong_and_grow_where_it_was_right(seed, case):
    problem = problem_of(case._replace(tau=0.01) if seed % 2 else case)
    start = cases.random_frame(np.random.default_rng(seed), 20, K)
    method = TrustRegion(objective_of(problem), start, tol=1e-6)
    state, grown = method.init(), 0
    assert state.radius == np.sqrt(K) / 8
    for _ in range(300):
        if method.done(state) is not None:
            break
        point = method._point(state.V)
        model = _truncated_cg(point, state.radius)
        after = point.objective.at(point.geometry.retract(state.V, model.xi))
        following = method.step(state)
        assert following.passes == state.passes + 2 * model.products + 1 + (
            not np.array_equal(following.V, state.V)
        )
        gained = (after.value - point.value) / model.gain
        if model.gain > 1e-9:  # beside which rounding does not count
            taken = not np.array_equal(following.V, state.V)
            assert taken == (gained > 0.05)
            assert following.stalled == (0 if taken else state.stalled + 1)
            if gained < 0.25:
                assert following.radius == 0.25 * min(state.radius, np.linalg.norm(model.xi))
            elif gained > 0.75 and model.at_boundary:
                assert following.radius == min(2.0 * state.radius, np.sqrt(K))
                grown += 1
            else:
                assert following.radius == state.radius
            assert following.best_residual == pytest.approx(
                min(state.best_residual, after.residual if taken else np.inf)
            )
        state = following
    assert method.done(state) is Status.CONVERGED
    assert grown or seed % 2


def test_it_ends_where_it_is_stuck_and_says_whether_rounding_is_to_blame(case, near):
    far = cases.random_frame(np.random.default_rng(0), 20, K)
    method = TrustRegion(near.objective, far, tol=1e-9)

    def end(V, radius, stalled):
        return method.done(TrustRegionState(V, radius, 1.0, stalled))

    assert end(far, 1.0, 7) is None
    assert end(far, 1.0, 8) is Status.STAGNATED
    assert end(far, 1e-11, 0) is None
    assert end(far, 1e-13, 0) is Status.STAGNATED
    V = relax(problem_of(case), start="random", coordinates=Ambient(problem_of(case).pool)).basis
    strict = TrustRegion(near.objective, V, tol=1e-16)
    for _ in range(3):
        V = strict.step(replace(strict.init(), V=V)).V
    point = near.objective.at(V)
    assert point.residual <= 1e3 * np.sqrt(K) * point.rounding
    assert strict.done(TrustRegionState(V, 1.0, 1.0, 8)) is Status.ROUNDING_FLOOR
    assert strict.done(TrustRegionState(V, 1.0, 1.0, 7)) is None
    assert (
        TrustRegion(near.objective, V, tol=1e-9).done(TrustRegionState(V, 1.0, 1.0, 8))
        is Status.CONVERGED
    )
