"""The convergence study: knobs by validation, and cycles found where there are some only."""

from dataclasses import replace

import numpy as np
import pytest

import cases
import reference
from fairnepv.loop import Step
from fairnepv.stiefel import SOLVERS, make_solver, relax
from fairnepv_studies.convergence import (
    ALPHAS,
    SIGMAS,
    convergence_study,
    cycle_period,
    halves,
    validate,
)
from frame_problems import paper_problem, problem_of

CASE = cases.Case("", cases.random_views(np.random.default_rng(3), 30, [6, 5]), 3, 0.05, (0.1, 0.1))


def traced(objectives, weights=None):
    """A relaxation whose trace has these objectives, and weights of the first view."""
    weights = np.full(len(objectives), 0.5) if weights is None else weights
    rows = tuple(
        Step("scf", i, 0, 0.1 * i, float(f), 1.0, (float(w), 1.0 - float(w)))
        for i, (f, w) in enumerate(zip(objectives, weights, strict=True))
    )
    return replace(relax(problem_of(CASE)), trace=rows)


@pytest.mark.parametrize("period", [2, 3, 7, 12])
def test_a_cycle_is_found_with_its_shortest_period(period):
    wave = np.random.default_rng(period).uniform(size=period)
    assert cycle_period(traced(np.tile(wave, 60))) == period


def test_a_cycle_between_mirror_images_shows_in_the_weights():
    assert cycle_period(traced(np.ones(100), np.tile([0.1, 0.9], 50))) == 2


@pytest.mark.parametrize(
    "objectives",
    [
        np.ones(200),
        1 - 0.9 ** np.arange(200),
        np.linspace(0, 1, 200),
        np.random.default_rng(0).uniform(size=200),
        np.tile([0.0, 1e-6], 100),
        np.tile([0.0, 1.0], 10),
    ],
    ids=["still", "converging", "climbing", "wandering", "rounding", "too short to tell"],
)
def test_no_cycle_is_seen_where_there_is_none(objectives):
    assert cycle_period(traced(objectives)) is None


def test_the_plain_iteration_cycles_on_the_papers_instance():
    """docs/method.md#plain-iteration; the literal iteration of the reference does the same."""
    problem = paper_problem()
    plain = relax(problem, make_solver("plain", k=5, max_steps=200), start="random")
    assert cycle_period(plain) == 2
    Ls = [np.diag(values) for values in (cases.paper_instance()[v] for v in ("text", "vision"))]
    V = [plain.basis]
    for _ in range(2):
        V.append(reference.scf_step(Ls, V[-1], 0.15))
    assert reference.chordal(V[0], V[1]) > 0.1
    assert reference.chordal(V[0], V[2]) < 0.05 * reference.chordal(V[0], V[1])


def test_validation_takes_the_knob_with_the_lowest_residual():
    problem = problem_of(CASE)
    found = validate(problem, steps=30, start="random")

    def final(name, **knobs):
        solver = make_solver(name, k=3, max_steps=30, tol=1e-6 / 3, **knobs)
        return relax(problem, solver, start="random").trace[-1].residual

    dampings = {alpha: final("damped", alpha=alpha) for alpha in ALPHAS}
    shifts = {sigma / 3: final("shifted", sigma=sigma / 3) for sigma in SIGMAS}
    assert found["damped"] == {"alpha": min(dampings, key=dampings.__getitem__)}
    assert found["shifted"] == {"sigma": min(shifts, key=shifts.__getitem__)}
    assert set(found["damped-shifted"]) == {"alpha", "sigma"}


def test_halves_are_two_parts_of_the_rows():
    problem = problem_of(CASE)
    left, right = halves(problem)
    rows = np.concatenate([half.pool.views[0].rows(np.arange(half.n)) for half in (left, right)])
    whole = problem.pool.views[0].rows(np.arange(problem.n))
    assert left.n == right.n == 15
    np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(whole, axis=0))


def test_the_study_has_every_solver_and_the_default_converges():
    study = convergence_study(*halves(problem_of(CASE)), steps=40, validation_steps=20)
    assert list(study) == list(SOLVERS)
    default = study["accelerated"]
    assert default.first_below(1e-6) is not None
    assert default.period is None
    assert not default.wanders
    for name, result in study.items():
        assert len(result.trace["step"]) <= 41 or name == "accelerated"
        assert result.relaxation.value <= default.relaxation.value + 1e-6
    assert default.first_below(0.0) is None
