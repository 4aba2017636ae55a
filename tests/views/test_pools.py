"""The bars of the default solver on real pools, checked in n dimensions and not by its own word."""

import functools
import itertools

import numpy as np
import pytest

import cases
from fairnepv import Status, relax
from fairnepv.objective import StiefelObjective
from fairnepv.stiefel.coordinates import Ambient
from fairnepv.views import Calibration, Pool

TAUS, SIZES = (1, 0.15, 0.05, 0.01), (5, 20, 60)


def standardized(X: np.ndarray) -> np.ndarray:
    X = X.astype(np.float64)
    return (X - X.mean(axis=0)) / X.std(axis=0)


@functools.cache
def pool(name: str) -> dict[str, np.ndarray]:
    uci = cases.uci()
    if name == "uci, three views":
        return {view: uci[view] for view in ("fou", "kar", "zer")}
    if name == "uci, standardized":
        return {view: standardized(uci[view]) for view in ("fou", "fac", "kar", "zer")}
    return dict(uci) if name == "uci, all views" else dict(cases.openmoji())


def check(name: str, k: int, tau: float, eps: float) -> None:
    """Converged, monotone, and stationary by an evaluation of the rows themselves."""
    result = relax(pool(name), k, tau=tau, eps=eps)
    assert result.status is Status.CONVERGED, result.status
    objectives = [row.objective for row in result.trace]
    assert min(np.diff(objectives), default=0.0) >= -1e-10
    unit = Calibration("unit-diagonal", normalize=True).apply(Pool.of(pool(name), eps=eps))
    point = StiefelObjective(Ambient(unit).maps, unit.eps, unit.offsets, tau, k).at(result.basis)
    assert point.residual <= 1.01e-6
    assert point.value == pytest.approx(result.value, abs=1e-9)


UCI = ("uci, three views", "uci, all views", "uci, standardized")


@pytest.mark.sample
@pytest.mark.parametrize("eps", [0.1, 1e-3])
@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("name", UCI)
def test_default_solver_converges_on_uci(name, k, eps):
    for tau in TAUS:
        check(name, k, tau, eps)


@pytest.mark.sample
@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("name", UCI)
def test_default_solver_converges_on_uci_with_a_tiny_ridge(name, k):
    """eps = 1e-6, also with k above the width of a view: no rounding floor is left there."""
    for tau in (1, 0.01):
        check(name, k, tau, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("eps", [0.1, 1e-3])
def test_default_solver_converges_on_openmoji(eps):
    for tau in TAUS:
        check("openmoji", 5, tau, eps)


LARGER = [  # every k with every tau, and every tau with every ridge
    *zip(itertools.repeat(20), TAUS, itertools.cycle((0.1, 1e-3)), strict=False),
    *zip(itertools.repeat(60), TAUS, itertools.cycle((1e-3, 0.1)), strict=False),
    (20, 0.05, 1e-6),
    (60, 0.05, 1e-6),
]


@pytest.mark.slow
@pytest.mark.parametrize(("k", "tau", "eps"), LARGER)
def test_default_solver_converges_on_openmoji_with_larger_k(k, tau, eps):
    check("openmoji", k, tau, eps)
