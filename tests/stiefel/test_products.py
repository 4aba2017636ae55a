"""What a relaxation multiplies: how often, with which rows, and what is left of them afterwards."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from fairnepv.api.inputs import pose
from fairnepv.compute import LocalEngine, block_threads
from fairnepv.objective import StiefelObjective
from fairnepv.objective.geometry import EUCLIDEAN, Path
from fairnepv.problem import Means, Problem
from fairnepv.stiefel import coordinates as coordinates_module
from fairnepv.stiefel import iteration, make_solver, relax
from fairnepv.stiefel.coordinates import (
    Ambient,
    Coordinates,
    Spanned,
    coordinate_work,
    coordinates_of,
)
from fairnepv.stiefel.lbfgs import Lbfgs
from fairnepv.stiefel.maps import PoolMaps, SpanMaps, random_coefficients
from fairnepv.stiefel.rows import ConvertedView
from fairnepv.stiefel.starts import spectral_start
from fairnepv.views import Pool

K = 8
COSTS = {  # products of all features, by coordinates
    "reduced": {"adjoint": 1, "combine": 1, "images": 1},
    "ambient": {"adjoint": 1, "combine": 1, "images": 1},
    "spanned": {"adjoint": 0, "combine": 2, "images": 3},
}
KINDS = pytest.mark.parametrize("kind", COSTS)


@pytest.fixture
def problem() -> Problem:
    """Sparse rows with scales, and dense ones in float32."""
    rng = np.random.default_rng(18)
    words = sp.random_array((400, 90), density=0.1, rng=rng, format="csr")
    looks = rng.standard_normal((400, 40), dtype=np.float32) * np.arange(1, 41) ** -0.5
    return pose({"words": words, "looks": looks.astype(np.float32)}, K)


def rows_of(coordinates: Coordinates) -> Pool:
    maps = coordinates.maps
    assert isinstance(maps, PoolMaps)
    return maps.pool


def count_calls(coordinates: Coordinates) -> Counter[str]:
    """Calls of the feature maps from now on, without those that they make of each other."""
    calls: Counter[str] = Counter()
    inside: list[str] = []

    def counted(name, product):
        def call(array):
            calls[name] += not inside
            inside.append(name)
            try:
                return product(array)
            finally:
                inside.pop()

        return call

    for name in COSTS["ambient"]:
        setattr(coordinates.maps, name, counted(name, getattr(coordinates.maps, name)))
    return calls


@KINDS
def test_the_spectral_start_takes_at_most_twelve_products(problem, kind):
    coordinates = coordinates_of(problem, kind)
    calls = count_calls(coordinates)
    spectral_start(problem, coordinates)
    assert 0 < sum(COSTS[kind][name] * times for name, times in calls.items()) <= 12


@KINDS
def test_a_step_that_is_taken_at_once_makes_one_adjoint_and_one_image_of_each_view(problem, kind):
    coordinates = coordinates_of(problem, kind)
    pool = problem.pool
    f = StiefelObjective(coordinates.maps, pool.eps, problem.offsets, problem.tau, problem.k)
    ascent = Lbfgs(f, spectral_start(problem, coordinates), tol=1e-9)
    state = ascent.init()
    ascent.report(state)
    seen = []
    for _ in range(8):
        calls = count_calls(coordinates)
        state = ascent.step(state)
        ascent.report(state)
        seen.append(dict(calls))
    assert {"adjoint": 1, "images": 1} in seen
    assert all(calls["images"] == 1 and "combine" not in calls for calls in seen)


@pytest.mark.parametrize("by_rows", [Ambient, Spanned])
def test_converted_rows_give_products_of_the_same_bits(problem, by_rows):
    kind = by_rows.__name__.lower()
    converted, plain = coordinates_of(problem, kind), by_rows(problem.pool)
    assert all(isinstance(view, ConvertedView) for view in rows_of(converted).views)
    V = spectral_start(problem, plain)
    np.testing.assert_array_equal(spectral_start(problem, converted), V)
    for ours, theirs in zip(converted.maps.adjoint(V), plain.maps.adjoint(V), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    J = plain.maps.adjoint(V)
    for ours, theirs in zip(converted.maps.images(J), plain.maps.images(J), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(converted.maps.traces, plain.maps.traces)


@pytest.mark.parametrize("kind", ["ambient", "spanned"])
def test_rows_that_do_not_fit_are_converted_in_every_pass(problem, kind):
    stored = problem.pool.stored
    fits = replace(problem, means=Means(table=stored))
    tight = replace(problem, means=Means(table=stored - 1))
    assert rows_of(coordinates_of(fits, kind)) is not fits.pool
    assert rows_of(coordinates_of(tight, kind)) is tight.pool


@pytest.mark.parametrize("kind", ["ambient", "spanned"])
def test_a_result_keeps_no_copy_of_the_rows(problem, kind):
    found = relax(problem, coordinates=coordinates_of(problem, kind))
    assert rows_of(found.coordinates) is problem.pool
    np.testing.assert_allclose(found.leverage.sum(), K)


def test_a_path_is_the_retraction_of_every_length():
    rng = np.random.default_rng(3)
    V = EUCLIDEAN.orthonormalize(rng.standard_normal((30, 4)))
    xi = EUCLIDEAN.project(V, rng.standard_normal((30, 4)))
    path = Path(EUCLIDEAN, V, xi)
    assert path.widest_angle == pytest.approx(np.linalg.norm(xi, 2))
    for t in (0.0, 1e-3, 0.3, 2.0):
        np.testing.assert_allclose(path.at(t), EUCLIDEAN.retract(V, t * xi), atol=1e-14)


@KINDS
def test_frames_stay_orthonormal_over_many_steps(problem, kind):
    with block_threads(problem.work()):
        coordinates = coordinates_of(problem, kind)
        pool = problem.pool
        f = StiefelObjective(coordinates.maps, pool.eps, problem.offsets, problem.tau, problem.k)
        ascent = Lbfgs(f, spectral_start(problem, coordinates), tol=1e-14)
        state = ascent.init()
        for _ in range(70):
            state = ascent.step(state)
    geometry = coordinates.maps.geometry
    np.testing.assert_allclose(geometry.inner(state.V, state.V), np.eye(K), atol=1e-10)


def test_the_check_takes_as_many_lanczos_steps_as_the_solver_says(problem):
    solver = replace(make_solver(k=K, tol=0.1), lanczos_steps=4)
    assert "and 4 Lanczos steps" in relax(problem, solver).checked


@pytest.mark.parametrize("kind", ["ambient", "reduced"])
def test_the_ascent_remembers_three_steps_and_fewer_of_large_frames(kind, problem, monkeypatch):
    coordinates = coordinates_of(problem, kind)
    f = StiefelObjective(
        coordinates.maps, problem.pool.eps, problem.pool.offsets, problem.tau, problem.k
    )
    for numbers, most in ((1 << 27, 3), (5 * coordinates.dimension * K, 2), (0, 1)):
        monkeypatch.setattr(iteration, "_MEMORY_NUMBERS", numbers)
        method = Lbfgs(f, spectral_start(problem, coordinates), tol=1e-9)
        state, held = method.init(), []
        for _ in range(6):
            state = method.step(state)
            held.append(len(state.S))
            assert len(state.S) == len(state.Y) == len(state.rho)
        assert held == [min(t, most) for t in range(1, 7)]
        assert state.steps == 6


@pytest.mark.parametrize("numbers", [1, 10**7])
def test_products_are_those_of_all_rows_however_many_blocks(numbers):
    """Dense and sparse rows, in blocks of 64 or in one."""
    rng = np.random.default_rng(4)
    words = sp.random_array((300, 9), density=0.3, rng=rng, format="csr")
    looks = rng.standard_normal((300, 5))
    pool = Pool.of([looks, words], eps=0.1, engine=LocalEngine(block_numbers=numbers))
    Phis = [looks, words.toarray()]
    maps = PoolMaps(pool)
    V, Y = rng.standard_normal((300, 3)), tuple(rng.standard_normal((p, 3)) for p in (5, 9))
    for found, Phi in zip(maps.adjoint(V), Phis, strict=True):
        np.testing.assert_allclose(found, Phi.T @ V, atol=1e-12)
    images = [Phi @ y for Phi, y in zip(Phis, Y, strict=True)]
    np.testing.assert_allclose(maps.combine(Y), sum(images), atol=1e-12)
    for found, image in zip(maps.images(Y), images, strict=True):
        np.testing.assert_allclose(found, image, atol=1e-12)
    span = SpanMaps(pool)
    C = np.vstack(Y)
    np.testing.assert_allclose(span.combine(Y), np.vstack([C, np.hstack(Phis).T @ sum(images)]))
    for q, pair in enumerate(span.images(Y)):
        alone = np.vstack([y * (r == q) for r, y in enumerate(Y)])
        np.testing.assert_allclose(pair, np.vstack([alone, np.hstack(Phis).T @ images[q]]))
    np.testing.assert_allclose(maps.traces, [(Phi**2).sum() for Phi in Phis])


def test_the_work_of_each_kind_of_coordinates_is_counted():
    """Products of a step with features and with frames, for a typical solve, and what comes before
    it; a multiply-add of sparse rows counts for twenty."""
    rng = np.random.default_rng(5)
    words = sp.random_array((300, 90), density=0.1, rng=rng, format="csr")
    looks = rng.standard_normal((300, 40))
    problem = pose({"words": words, "looks": looks}, K)
    n, P, stored = 300, 130, 20.0 * words.nnz + 300 * 40
    expected = {
        "spanned": 150 * (3 * stored * K + 16 * P * K**2),
        "ambient": 150 * (2 * stored * K + 10 * n * K**2),
        "reduced": 150 * (2 * P**2 * K + 10 * P * K**2) + n * P**2 + P**3,
    }
    found = coordinate_work(problem)
    assert found.keys() == expected.keys()
    for kind, work in expected.items():
        assert found[kind] == pytest.approx(work)


def test_frames_of_many_rows_and_grams_of_many_columns_are_no_choice(problem, monkeypatch):
    monkeypatch.setattr(coordinates_module, "_EASY_FRAME", 400 * K)
    assert "ambient" in coordinate_work(problem)
    monkeypatch.setattr(coordinates_module, "_EASY_FRAME", 400 * K - 1)
    assert "ambient" not in coordinate_work(problem)
    monkeypatch.setattr(coordinates_module, "WIDEST_GRAM", 130)
    assert "reduced" in coordinate_work(problem)
    monkeypatch.setattr(coordinates_module, "WIDEST_GRAM", 129)
    assert set(coordinate_work(problem)) == {"spanned"}


def test_random_combinations_are_of_one_size_whatever_the_units():
    rng = np.random.default_rng(6)
    Phis = [1e3 * rng.standard_normal((40, 6)), 1e-2 * rng.standard_normal((40, 9))]
    pool = Pool.of([*Phis, np.zeros((40, 2))], eps=0.1)
    found = random_coefficients(pool, 20_000, np.random.default_rng(0))
    for Y, Phi in zip(found, Phis, strict=False):
        assert Y.std() * np.linalg.norm(Phi) == pytest.approx(1.0, abs=0.02)
        assert np.abs(Y).max() * np.linalg.norm(Phi) < 6.0
        assert np.mean((Phi @ Y) ** 2) * 40 == pytest.approx(1.0, rel=0.05)
    assert found[2].shape == (2, 20_000)


def test_columns_of_zeros_and_of_rounding_are_left_out_view_by_view():
    """A column that is zero is no reason to leave out those beside it."""
    rng = np.random.default_rng(7)
    wide, narrow = rng.standard_normal((50, 5)), rng.standard_normal((50, 3))
    wide[:, 2] = 0.0
    narrow[:, 0] = wide[:, 0] - 2.0 * wide[:, 4]  # which the wide view has already
    Phi = np.hstack([narrow, wide, np.zeros((50, 1))])
    gram = Phi.T @ Phi
    R, independent = coordinates_module._triangular_by_views(gram, [3, 5, 1])
    assert len(R) == len(independent) == 6
    np.testing.assert_allclose(R.T @ R, gram, atol=1e-10)
    assert set(independent.tolist()) == {1, 2, 3, 4, 6, 7}
    own = R[:, independent]
    np.testing.assert_allclose(own, np.triu(own), atol=1e-12)
    nothing, none = coordinates_module._triangular_by_views(np.zeros((4, 4)), [1, 3])
    assert (nothing.shape, len(none)) == ((0, 4), 0)
