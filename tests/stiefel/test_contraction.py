"""Theorem 2 where it can be watched: C, delta, and the rates that were predicted and observed."""

from dataclasses import replace

import numpy as np
import pytest

import cases
import reference
from cases import Case
from fairnepv import relax as relax_data
from fairnepv.errors import Status
from fairnepv.loop import Step
from fairnepv.report import relaxation_summary
from fairnepv.stiefel import make_solver, relax
from fairnepv.stiefel.contraction import Theorem2, observed_rate
from fairnepv.stiefel.coordinates import Ambient, Reduced, Spanned
from frame_problems import kernels_of, problem_of

SEVERAL = [
    case
    for case in cases.SMALL
    if len(case.views) > 1 and case.name in ("two views", "warm", "four views", "ridge per view")
]
KNOBS = [(1.0, 0.0), (0.5, 0.0), (1.0, 2.0), (0.5, 2.0)]  # alpha, and sigma in units of 1/k


def maximum(case: Case):
    problem = problem_of(case)
    solver = make_solver(k=case.k, tol=1e-9)
    return relax(problem, solver, coordinates=Ambient(problem.pool))


@pytest.mark.parametrize("case", SEVERAL, ids=lambda case: case.name)
def test_the_predicted_rate_is_that_of_the_jacobian(case):
    """Of the literal step by finite differences, in n dimensions, for all variants."""
    found, Ls = maximum(case), kernels_of(case)
    both = found.curvature, found.least_curvature
    for alpha, shift in KNOBS:
        sigma = shift / case.k
        J = reference.scf_jacobian(Ls, found.basis, case.tau, alpha, sigma)
        np.testing.assert_allclose(J, J.T, atol=1e-4)
        rate = np.abs(np.linalg.eigvals(J)).max()
        assert Theorem2.at(both, case.k, alpha, sigma).rate == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize("case", SEVERAL, ids=lambda case: case.name)
def test_C_is_a_lipschitz_constant_and_not_far_from_the_least(case):
    found, Ls = maximum(case), kernels_of(case)
    theory = found.theorem_2
    assert theory.delta == 1 / case.k
    tangents = reference.tangent_basis(found.basis)
    rng = np.random.default_rng(0)
    mixed = [sum(c * x for c, x in zip(rng.standard_normal(len(tangents)), tangents, strict=True))]
    J = reference.scf_jacobian(Ls, found.basis, case.tau, 1.0, 0.0)
    lam, E = np.linalg.eigh((J + J.T) / 2)
    worst = E[:, np.argmax(np.abs(lam))]
    mixed.append(sum(c * x for c, x in zip(worst, tangents, strict=True)))
    seen = [reference.sensitivity(Ls, found.basis, case.tau, 0.0, x) for x in (*tangents, *mixed)]
    assert max(seen) <= theory.C * (1 + 1e-3)
    assert max(seen) >= theory.C / case.k**0.5 * (1 - 1e-3)


def random_case(M: int, seed: int) -> Case:
    rng = np.random.default_rng([M, seed])
    n, k = int(rng.integers(8, 13)), int(rng.integers(2, 4))
    views = cases.random_views(rng, n, rng.integers(k + 1, 7, M).tolist())
    eps = tuple((10.0 ** rng.uniform(-2, 0, M)).tolist())
    return Case(f"{M} views", views, k, float(rng.choice([0.05, 0.3, 2.0])), eps)


@pytest.mark.parametrize("shift", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("M", [1, 2, 3])
def test_the_numbers_of_the_theorem_are_those_of_a_dense_twin(M, seed, shift):
    """delta: the gap between the k-th and the next eigenvalue of H, formed; C: delta times the norm
    of the derivative of the literal step; what suffices: by Davis and Kahan from these."""
    case = random_case(M, seed)
    found, Ls = maximum(case), kernels_of(case)
    sigma = shift / case.k
    theory = Theorem2.at((found.curvature, found.least_curvature), case.k, 1.0, sigma)
    lam = np.linalg.eigvalsh(reference.H(Ls, found.basis, case.tau, sigma))[::-1]
    delta = lam[case.k - 1] - lam[case.k]
    assert theory.delta == pytest.approx(delta, rel=1e-6)
    J = reference.scf_jacobian(Ls, found.basis, case.tau, 1.0, sigma)
    C = delta * np.linalg.norm(J, 2)
    assert pytest.approx(C, rel=1e-4) == theory.C
    assert theory.sufficient == pytest.approx(delta / (2 * case.k**0.5), rel=1e-6)
    tangents = reference.tangent_basis(found.basis)
    seen = [reference.sensitivity(Ls, found.basis, case.tau, sigma, x) for x in tangents]
    assert max(seen) <= theory.C * (1 + 1e-3)
    assert theory.rate == pytest.approx(np.abs(np.linalg.eigvals(J)).max(), rel=1e-4)


@pytest.mark.parametrize("kind", [Ambient, Reduced, Spanned])
@pytest.mark.parametrize("case", SEVERAL[:3], ids=lambda case: case.name)
def test_predicted_and_observed_rates_agree_near_a_fixed_point(case, kind):
    """Whichever variants contract there reach it at the rate that Theorem 2's quantities say, and
    those that do not go away. Within the joint range of the views, as all coordinates hold that;
    rates are those of n dimensions, where the step leads back from the rest of them at once."""
    found = maximum(case)
    problem, both = problem_of(case), (found.curvature, found.least_curvature)
    Phi = np.hstack(case.views)
    U, s, _ = np.linalg.svd(Phi, full_matrices=False)
    U = U[:, s > 1e-9 * s[0]]
    push = U @ (U.T @ cases.random_frame(np.random.default_rng(1), problem.n, case.k))
    V0 = reference.polar(found.basis + 1e-4 * push)
    seen = 0
    for name, (alpha, shift) in zip(
        ("plain", "damped", "shifted", "damped-shifted"), KNOBS, strict=True
    ):
        sigma = shift / case.k
        knobs = {"alpha": alpha} if alpha < 1 else {}
        knobs |= {"sigma": sigma} if sigma else {}
        predicted = Theorem2.at(both, case.k, alpha, sigma).rate
        steps = 400 if predicted < 0.97 else 60
        solver = make_solver(name, k=case.k, tol=1e-10, max_steps=steps, **knobs)
        run = relax(problem, solver, start=V0, coordinates=kind(problem.pool))
        if predicted < 0.97:
            assert run.status is Status.CONVERGED
            assert run.theorem_2.rate == pytest.approx(predicted, rel=0.02)
            assert run.contraction == pytest.approx(predicted, abs=0.03)
            seen += 1
        elif predicted > 1.03:
            assert max(row.residual for row in run.trace) > 10 * run.trace[0].residual
    assert seen


def test_the_observed_rate_is_that_of_the_last_steps():
    rows = [Step("scf", t, 0, 0.0, 0.0, residual=5.0 if t < 20 else 0.5**t) for t in range(41)]
    assert observed_rate(rows) == pytest.approx(0.5)
    assert observed_rate(rows[:5]) is None
    assert (
        observed_rate([Step("ascent", t, 0, 0.0, 0.0, residual=0.5**t) for t in range(9)]) is None
    )


@pytest.mark.parametrize("length", [6, 7, 8, 9, 13, 21, 22, 40])
def test_of_fewer_steps_the_later_half_tells_the_rate(length):
    """Which must be three at least."""
    steps = min((length - 1) // 2, 10)
    factors = [0.9] * (length - 1 - steps) + [0.4] * steps
    residuals = np.cumprod([7.0, *factors])
    rows = [Step("scf", t, 0, 0.0, 0.0, residual=r) for t, r in enumerate(residuals)]
    assert observed_rate(rows) == (pytest.approx(0.4) if steps >= 3 else None)
    still = [*rows[:-1], replace(rows[-1], residual=0.0)]
    assert observed_rate(still) is None


def test_what_the_theorem_says_is_printed_where_it_says_something():
    data = cases.random_views(np.random.default_rng(3), 30, [4, 5])
    converged = relax_data(data, 3, solver="shifted", sigma=1.0, tau=2.0, tol=1e-4)
    assert converged.status is Status.CONVERGED
    text = " ".join(relaxation_summary(converged))
    assert "Contraction: the residual changed by a factor of 0." in text
    assert "Theorem 2 here: C = " in text
    cut = relax_data(data, 3, solver="plain", max_steps=2)
    assert cut.theorem_2 is None
    assert "Theorem 2" not in " ".join(relaxation_summary(cut))
    shares = relax_data(data, 3, objective="representative")
    assert shares.theorem_2 is None  # which is about log-determinants
