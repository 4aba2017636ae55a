"""Gamma from leading eigenpairs: never below the exact one, hardly above, and proven where it is
reported."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from fairnepv.compute import HOST
from fairnepv.concave import concave as concave_module
from fairnepv.concave import costs
from fairnepv.concave.concave import Concave
from fairnepv.concave.state import ConcaveState, HeldOrigin, Origin
from fairnepv.concave.topk import TopK, climb
from fairnepv.loop import Budget, pack, run, unpack
from fairnepv.objective import HeldRows, majorant, ritz
from fairnepv.objective.logdet import LogDet
from fairnepv.problem import Constraints
from search_problems import pose

ROUGH, K, EPS = 1e-4, 12, 0.1
gamma = LogDet().majorant


@pytest.fixture
def small(monkeypatch):
    """Blocks are used for sides of some hundred rows."""
    monkeypatch.setattr(ritz, "_SMALL", 50)
    monkeypatch.setattr(ritz, "_PER_PICK", 2)
    monkeypatch.setattr(ritz, "_PER_VECTOR", 2)
    monkeypatch.setattr(ritz, "_WIDEST", 0.6)
    monkeypatch.setattr("fairnepv.objective.held._SPARSE", 2.0)


def unit_rows(seed: int, m: int = 160, p: int = 400, density: float = 0.05) -> np.ndarray:
    """Rows of length one with some directions that many share."""
    rng = np.random.default_rng(seed)
    Phi = np.where(rng.random((m, p)) < density, rng.random((m, p)), 0.0)
    Phi[:, :3] += rng.random((m, 3)) < 0.2
    return Phi / np.linalg.norm(Phi, axis=1)[:, None]


def held(Phi: np.ndarray, form: str, dtype=np.float32, rough: float = ROUGH) -> HeldRows:
    single, norms = Phi.astype(dtype), (Phi**2).sum(axis=1)
    if form == "features":
        return HeldRows(EPS, norms, features=single, rough=rough)
    if form == "sparse":
        return HeldRows(EPS, norms, sparse=sp.csr_array(single), rough=rough)
    return HeldRows(EPS, norms, kernel=single @ single.T, rough=rough)


def points(seed: int, m: int = 160) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, 1])
    x = reference.capped_simplex(0.02 * rng.standard_normal(m) + K / m, K)
    return x, 0.9 * x + 0.1 * K / m


@pytest.mark.parametrize("form", ["features", "kernel", "sparse"])
@pytest.mark.parametrize("seed", range(4))
def test_a_rough_value_is_above_the_exact_one_and_hardly(seed, form, small):
    Phi = unit_rows(seed) if form != "features" else unit_rows(seed, m=400, p=160)
    basis = None
    for x in points(seed, len(Phi)):
        rough = gamma(held(Phi, form), x, K, basis=basis)
        exact = K * reference.gamma(Phi, EPS, x, K)
        assert rough.basis.shape[1] < K + ritz.SPARE  # not all of them were computed
        assert -1e-6 * K <= rough.value - exact <= ROUGH * K
        prices = reference.gamma_gradient(Phi, EPS, x, K)
        np.testing.assert_allclose(rough.prices, prices, atol=0.05)
        basis = rough.basis


@pytest.mark.parametrize("form", ["kernel", "sparse"])
@pytest.mark.parametrize("seed", range(4))
def test_prices_of_a_rough_point_bound_every_set(seed, form, small):
    """However rough it is."""
    Phi, (x, _) = unit_rows(seed), points(seed)
    slope = gamma(held(Phi, form, rough=0.3), x, K)
    L = reference.kernel(Phi, EPS)
    rng = np.random.default_rng(seed)
    dearest = np.argsort(slope.prices)[-K:]
    for S in [dearest, *(rng.permutation(len(Phi))[:K] for _ in range(20))]:
        bound = slope.value + slope.prices[S].sum() - slope.prices @ x
        assert reference.logdet(L[np.ix_(S, S)]) <= bound + 1e-5


@pytest.mark.parametrize("form", ["features", "kernel", "sparse"])
@pytest.mark.parametrize("seed", range(4))
def test_a_proven_value_is_below_the_exact_one_and_hardly(seed, form, small, monkeypatch):
    Phi = unit_rows(seed) if form != "features" else unit_rows(seed, m=400, p=160)
    x, _ = points(seed, len(Phi))
    near = gamma(held(Phi, form), x, K)
    exact = K * reference.gamma(Phi, EPS, x, K)
    monkeypatch.setattr(majorant.Slope, "at", None)  # no factorisation is needed
    least = majorant.least_gamma(held(Phi, form, np.float64), x, K, near)
    assert -ROUGH * K <= least - exact <= 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_vectors_from_anywhere_prove_nothing_false(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 50)) * 10.0 ** rng.uniform(-1, 1, size=50)
    M = X.T @ X / 60
    lam, U = np.linalg.eigh(M)
    noise = 10.0 ** rng.uniform(-6, 1)
    basis = U[:, -10:] + noise * rng.standard_normal((50, 10))
    basis = basis[:, rng.permutation(10)[: rng.integers(1, 11)]]
    r, mean = ritz.split(lam[::-1], float(np.trace(M)), K)
    exact = ritz.gamma(lam[::-1][:r], mean, EPS, K)
    assert ritz.least_value(M, basis, EPS, K) <= exact + 1e-9


def test_vectors_that_miss_an_eigenvalue_prove_nothing(monkeypatch):
    monkeypatch.setattr(ritz, "_REFINED", 0)
    M = np.diag([9.0, 8.0, *np.full(48, 0.5)])
    assert ritz.least_value(M, np.eye(50)[:, 1:4], EPS, K) == -np.inf
    assert ritz.least_value(M, np.eye(50)[:, :4], EPS, K) > -np.inf


def rough_problem():
    Phi = unit_rows(7, m=500)
    return pose([sp.csr_array(Phi), Phi[:, ::-1][:, :60].copy()], K, 0.05, [EPS, EPS])


@pytest.fixture
def growing(small, monkeypatch):
    monkeypatch.setattr(costs, "_FIRST_ROWS", 120)
    monkeypatch.setattr(costs, "_DENSE_COST", 0.0)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_resumed_solve_goes_where_the_uninterrupted_one_went(steps, growing):
    """Though most points begin with the vectors of another one."""
    problem = rough_problem()
    whole = run(Concave(problem, gap=1e-3))
    assert whole.steps > 2
    half = run(Concave(problem, gap=1e-3), budget=Budget(max_steps=steps))
    state = unpack(ConcaveState, pack(half.state))
    solver = Concave(problem, gap=1e-3)
    resumed = run(solver, state=state, steps=half.steps)
    for name, array in pack(whole.state).items():
        assert pack(resumed.state)[name].tolist() == array.tolist(), name
    assert solver._prove(solver.dual(resumed.state)) == whole.state.bound


def test_a_rough_solver_ends_where_an_exact_one_does(growing, monkeypatch):
    warm = []
    real = majorant.Slope.at.__func__  # type: ignore[attr-defined]

    def at(cls, rows, x, k, each, basis=None):
        warm.append(basis is not None)
        return real(cls, rows, x, k, each, basis)

    monkeypatch.setattr(majorant.Slope, "at", classmethod(at))
    found = [run(Concave(rough_problem(), gap=1e-3)).state]
    assert any(warm)
    monkeypatch.setattr(concave_module, "_float32_suffices", lambda *_: False)
    found.append(run(Concave(rough_problem(), gap=1e-3)).state)
    for one, other in pairwise([*found, found[0]]):
        assert one.value <= other.bound
        assert abs(one.bound - other.bound) <= 1e-3


def test_a_point_is_made_again_from_what_a_state_holds(small):
    """To the last bit; and vectors of other rows are only a start where they are as long."""
    views = (
        held(unit_rows(0), "sparse"),
        held(unit_rows(1, p=40, density=0.5), "features", rough=0.0),
    )
    topk = TopK(views, np.zeros(2), 0.05, K, K, Constraints())
    begin = Origin(np.array([0.5, 0.5]), (None, None))
    point = climb(topk.at(topk.start(), begin), 1.0, 1e-4, 5).point
    kept = HeldOrigin.of(point.origin, [view.place for view in views])
    assert kept.vectors.dtype == np.float32
    assert kept.shapes[0, 1] > 0
    again = topk.at(point.x, kept.beside(views))
    assert (again.value, again.prices.tolist()) == (point.value, point.prices.tolist())
    alone = topk.at(point.x, begin)
    assert alone.prices.tolist() != point.prices.tolist()  # so that it matters
    fewer = tuple(view.take(np.arange(100)) if view.features is None else view for view in views)
    assert kept.beside(fewer).bases[0] is None


@pytest.mark.parametrize("seed", range(20))
def test_columns_become_orthonormal_however_dependent_they_are(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 30)) * 10.0 ** rng.uniform(-3, 3, size=30)
    X[:, 5] = X[:, 4] * (1.0 + 10.0 ** -rng.uniform(0, 9))
    X[:, 6] = 0.0 if seed % 2 else X[:, 7] + 10.0 ** -rng.uniform(0, 9) * X[:, 8]
    X = X.astype(np.float32)
    Q = ritz._orthonormal(X, HOST)
    assert Q.dtype == np.float32
    np.testing.assert_allclose(Q.T @ Q, np.eye(30), atol=1e-5)
    np.testing.assert_allclose(Q @ (Q.T @ X), X, atol=1e-4 * abs(X).max())


# --- views that hardly weigh ----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["kernel", "sparse"])
@pytest.mark.parametrize("seed", range(4))
def test_parts_of_the_rows_prove_at_most_gamma(seed, form, monkeypatch):
    """And nearly as much, as every part has more rows than there are items."""
    Phi, (x, _) = unit_rows(seed), points(seed)
    exact = K * reference.gamma(Phi, EPS, x, K)
    near = gamma(held(Phi, form), x, K)
    for size, slack in ((200, 1e-9), (80, 0.2), (50, 0.5)):
        monkeypatch.setattr(majorant, "_PART", size)
        crude = held(Phi, form, np.float64, rough=ritz.CRUDE)
        least = LogDet().least_majorant(crude, x, K, near)
        assert -slack * K <= least - exact <= 1e-9


@pytest.mark.parametrize("form", ["features", "kernel", "sparse"])
@pytest.mark.parametrize("seed", range(4))
def test_a_crude_value_is_above_the_exact_one(seed, form, small):
    """By what was asked for at most, however few vectors there are to begin with."""
    Phi = unit_rows(seed) if form != "features" else unit_rows(seed, m=400, p=160)
    x, _ = points(seed, len(Phi))
    exact = K * reference.gamma(Phi, EPS, x, K)
    for weight in (1.0, 0.01, 1e-3, 1e-9):
        rows = held(Phi, form).weighing(weight)
        value = gamma(rows, x, K).value
        assert -1e-5 * K <= value - exact <= 2.0 * rows.rough * K


def light_problem():
    """The wide view is scored far above the other: its weight is next to nothing."""
    Phi = unit_rows(7, m=500)
    narrow = unit_rows(8, m=500)[:, :6]
    return pose([sp.csr_array(Phi), narrow], K, 0.05, [EPS, EPS])


def test_a_view_without_weight_is_looked_at_crudely_and_bounds_hold(growing, monkeypatch):
    crude = []
    real = ritz.ritz_pairs

    def pairs(product, start, total, eps, k, rough, place):
        crude.append(rough >= ritz.CRUDE)
        return real(product, start, total, eps, k, rough, place)

    monkeypatch.setattr(majorant, "ritz_pairs", pairs)
    rough = run(Concave(light_problem(), gap=1e-3)).state
    assert any(crude)
    assert rough.weights.min() < 1e-3
    monkeypatch.setattr(concave_module, "_float32_suffices", lambda *_: False)
    exact = run(Concave(light_problem(), gap=1e-3)).state
    assert rough.value <= exact.bound + 1e-9
    assert exact.value <= rough.bound + 1e-9
    assert abs(rough.bound - exact.bound) <= 1.5e-3


def test_a_view_is_looked_at_again_once_its_weight_has_moved():
    before = np.array([1e-9, 1.0])
    still = concave_module._still
    assert still(before, np.array([1e-4, 0.9999])) is before
    assert still(before, moved := np.array([0.01, 0.99])) is moved
    assert still(moved, np.array([0.015, 0.985])) is moved
