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


# --- where vectors come from, and how good they are -----------------------------------------------


def test_blocks_begin_where_a_factorisation_would_take_longer():
    """From vectors of a point nearby at ten times their number, from nowhere at larger sides, and
    for a crude value always as if from nowhere."""
    basis = np.zeros((0, 30), dtype=np.float32)

    def begun(side, rough, basis=None, k=20):
        held = None if basis is None else np.zeros((side, basis.shape[1]), dtype=np.float32)
        found = ritz.first_vectors(held, side, k, rough, HOST)
        return None if found is None else found.shape

    fine, crude = 1e-4, ritz.CRUDE
    assert begun(300, fine, basis) is None
    assert begun(301, fine, basis) == (301, 30 + ritz.SPARE)
    assert begun(500, fine) is begun(500, crude) is begun(500, crude, basis) is None
    assert begun(501, fine) == begun(501, crude) == (501, ritz.SPARE + 20 // ritz.SPARE)
    assert begun(501, crude, basis) == (501, 30 + ritz.SPARE)
    assert begun(900, fine, k=150) is None  # six times the items
    assert begun(901, fine, k=150) == (901, ritz.SPARE + 150 // ritz.SPARE)
    assert begun(501, crude, k=150) == (501, ritz.SPARE + 150 // ritz.SPARE)


def test_vectors_nearby_are_kept_beside_random_ones():
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((700, 5)))[0].astype(np.float32)
    found = ritz.first_vectors(basis, 700, 20, 1e-4, HOST)
    assert found[:, :5].tolist() == basis.tolist()
    assert np.linalg.matrix_rank(found) == 5 + ritz.SPARE


@pytest.mark.parametrize("unit", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("rough", [1e-6, 1e-4, 1e-2])
def test_pairs_are_as_good_as_was_asked_for_in_any_units(rough, unit):
    """Gamma is too large by about `rough` per item at most."""
    rng = np.random.default_rng(1)
    lam = unit * np.concatenate([np.geomspace(5.0, 0.9, 10), 0.05 * rng.random(290)])
    Q = np.linalg.qr(rng.standard_normal((300, 300)))[0]
    M, eps = (Q * lam) @ Q.T, 0.1 * unit
    single, total = M.astype(np.float32), float(lam.sum())
    products = []

    def product(V):
        products.append(V.shape[1])
        return single @ V, single @ V

    start = rng.standard_normal((300, 20)).astype(np.float32)
    found = ritz.ritz_pairs(product, start, total, eps, K, rough, HOST)
    r, _ = ritz.split(found.lam, total, K)
    excess = gamma_of(found.lam, total, eps) - gamma_of(np.sort(lam)[::-1], total, eps)
    assert -1e-5 * K <= excess <= 2.0 * rough * K + 1e-5 * K
    assert len(found.lam) == found.Y.shape[1] == found.images.shape[1] <= r + ritz.SPARE
    np.testing.assert_allclose(found.Y.T @ found.Y, np.eye(len(found.lam)), atol=1e-4)
    if rough == 1e-2:
        assert len(products) <= 3  # no more of them than that takes


def gamma_of(lam, total, eps):
    r, mean = ritz.split(lam, total, K)
    return ritz.gamma(lam[:r], mean, eps, K)


def test_where_a_subspace_would_be_as_wide_as_the_matrix_a_factorisation_is_asked_for():
    lam = 5.0 * 0.9 ** np.arange(60)
    M = np.diag(lam).astype(np.float32)
    start = np.random.default_rng(0).standard_normal((60, 20)).astype(np.float32)

    def product(V):
        return M @ V, M @ V

    assert ritz.ritz_pairs(product, start, float(np.trace(M)), EPS, K, 1e-4, HOST) is None
    crude = ritz.ritz_pairs(product, start, float(np.trace(M)), EPS, K, ritz.CRUDE, HOST)
    assert crude is not None
    assert gamma_of(crude.lam, lam.sum(), EPS) >= gamma_of(lam, lam.sum(), EPS) - 1e-5


@pytest.mark.parametrize("noise", [1e-6, 1e-4, 1e-3])
def test_vectors_that_are_a_little_off_prove_nearly_all(noise, monkeypatch):
    """As what residuals may add is allowed for, however many rows the matrix has."""
    monkeypatch.setattr(ritz, "_REFINED", 0)
    rng = np.random.default_rng(3)
    lam = np.concatenate([np.geomspace(5.0, 1.0, 10), 0.05 * rng.random(190)])
    lam = np.sort(lam)[::-1]
    Q = np.linalg.qr(rng.standard_normal((200, 200)))[0]
    M = (Q * lam) @ Q.T
    basis = Q[:, :40] + noise * rng.standard_normal((200, 40)) / np.sqrt(200)
    exact = gamma_of(lam, lam.sum(), EPS)
    found = ritz.least_value((M + M.T) / 2, basis, EPS, K)
    assert exact - 0.05 * K - 1e-9 <= found <= exact + 1e-9
    if noise == 1e-6:
        assert found == pytest.approx(exact, abs=1e-6)
