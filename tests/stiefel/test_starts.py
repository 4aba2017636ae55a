"""Frames as given: a start of Algorithm 1 is iterated as it is, and 'random' is uniform."""

import numpy as np
import pytest

import cases
import reference
from cases import Case
from fairnepv import InputError
from fairnepv import relax as relax_data
from fairnepv.stiefel import make_solver, relax
from fairnepv.stiefel.coordinates import Ambient, Reduced, Spanned
from fairnepv.stiefel.starts import start_frame
from frame_problems import kernels_of, problem_of

VARIANTS = ("plain", "damped", "shifted", "damped-shifted")


def tall(seed: int, k: int = 3) -> Case:
    """More rows than columns, so that a frame sticks out of the joint range."""
    rng = np.random.default_rng(seed)
    views = cases.clustered_views(rng, 24, [4, 5], 5)
    return Case("tall", views, k, 0.1, (0.05, 0.1))


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("seed", range(4))
def test_a_frame_outside_of_the_range_follows_the_literal_algorithm(name, seed):
    """As a user hands it in, in coordinates of our choice."""
    case = tall(seed)
    solver = make_solver(name, k=case.k, tol=1e-6, max_steps=25)
    V0 = cases.random_frame(np.random.default_rng(seed), 24, case.k)
    relaxed = relax(problem_of(case), solver, start=V0)
    V, history = reference.scf(
        kernels_of(case), V0, case.tau, solver.alpha, solver.sigma, tol=1e-6, max_steps=25
    )
    rows = relaxed.trace[: len(history)]
    np.testing.assert_allclose([row.objective for row in rows], [f for f, _ in history], atol=1e-8)
    assert reference.chordal(relaxed.basis, V) < 1e-6
    assert "all n dimensions" in relaxed.notes[0]


def test_projecting_it_would_lead_elsewhere():
    """What happened without a word: other values along the whole path."""
    case = tall(0)
    problem = problem_of(case)
    V0 = cases.random_frame(np.random.default_rng(0), 24, case.k)
    solver = make_solver("plain", k=case.k, max_steps=5)
    given = relax(problem, solver, start=V0)
    moved = relax(problem, solver, start=V0, coordinates=Reduced(problem.pool))
    assert abs(given.trace[0].objective - moved.trace[0].objective) > 0.1
    assert "projection" in moved.notes[0]


def test_a_frame_in_the_range_needs_no_n_dimensions():
    case = tall(1)
    problem = problem_of(case)
    inside = relax(problem).basis
    found = relax(problem, make_solver("shifted", k=case.k, max_steps=5), start=inside)
    assert found.notes == ()
    assert isinstance(found.coordinates, Reduced)


def test_rows_and_frames_that_stick_out_are_said_to_be_projected_by_the_ascent():
    case = tall(2)
    problem = problem_of(case)
    for start in (np.arange(case.k), cases.random_frame(np.random.default_rng(2), 24, case.k)):
        assert "projection" in relax(problem, start=start).notes[0]
    for name in ("spectral", "random", "sketch"):
        assert relax(problem, start=name).notes == ()
    (note,) = relax_data(case.views, case.k, solver="damped", start="random", max_steps=9).notes
    assert "all n dimensions" in note


@pytest.mark.parametrize("kind", [Ambient, Reduced, Spanned])
def test_random_starts_are_uniform(kind):
    """Leverage of every direction has the mean k / dimension, whatever the views have most of; that
    of a sketch leans to what they have."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((12, 6)) * np.array([30.0, 10.0, 3.0, 1.0, 0.5, 0.2])
    case = Case("", [rows], 2, 0.1, (0.1,))
    problem = problem_of(case)
    coordinates = kind(problem.pool)
    U = np.linalg.svd(rows, full_matrices=True)[0]
    within = 12 if kind is Ambient else 6

    def mean_share(start: str) -> np.ndarray:
        total = np.zeros(12)
        for seed in range(150):
            posed = problem_of(case, random_state=seed)
            V = coordinates.lift(start_frame(posed, coordinates, start)[0])
            total += np.square(U.T @ V).sum(axis=1) / 150
        return total

    shares = mean_share("random")
    np.testing.assert_allclose(shares[:within], 2 / within, atol=0.1)
    np.testing.assert_allclose(shares[within:], 0.0, atol=1e-8)
    assert mean_share("sketch")[0] > 0.9


@pytest.mark.parametrize("kind", [Ambient, Reduced, Spanned])
def test_rows_as_a_start_are_pushed_off_their_axes_by_a_hundredth(kind):
    """In the direction in which they are moved most."""
    views = [np.random.default_rng(6).standard_normal((20, 25)) * np.geomspace(1.0, 0.01, 25)]
    problem = problem_of(Case("", views, 5, 0.1, (0.1,)))
    rows, coordinates = np.array([2, 3, 5, 7, 11]), kind(problem.pool)
    V = coordinates.lift(start_frame(problem, coordinates, rows)[0])
    angles = reference.principal_angles(V, np.eye(20)[:, rows])
    assert 1e-3 < angles[0] <= 0.0101


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_none_spoils_a_frame(wrong):
    case = tall(3)
    V = cases.random_frame(np.random.default_rng(3), 24, case.k)
    V[5, 1] = wrong
    with pytest.raises(InputError, match="NaN or infinite"):
        relax(problem_of(case), start=V)
