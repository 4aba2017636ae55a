"""Eigenvalues from above: the bound of the paper where not all of them are known."""

from dataclasses import replace
from decimal import Decimal, localcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

import cases
import reference
from fairnepv import certify as certify_data
from fairnepv import select
from fairnepv.api.inputs import pose
from fairnepv.concave import certify, leading, spectral
from fairnepv.concave.leading import by_passes, by_trace, largest_spectrum
from fairnepv.loop import Context
from fairnepv.objective import soft_min
from fairnepv.problem import Means, Problem
from fairnepv.stiefel import relax
from fairnepv.views import DiagonalView, KernelView, moments
from search_problems import pose as pose_rows
from search_problems import representative

SPECTRA = {
    "flat": np.ones(60),
    "one": np.r_[100.0, np.zeros(59)],
    "steep": 10.0 ** -np.arange(60.0),
    "slow": 1.0 / np.arange(1.0, 61.0),
    "heavy tail": np.r_[20.0, 10.0, 9.0, np.full(57, 2.0)],
    "two levels": np.r_[np.full(30, 3.0), np.full(30, 1e-3)],
    "tied": np.repeat([5.0, 4.0, 3.0], 20),
    "zero": np.zeros(60),
}


@pytest.fixture
def nothing_known(monkeypatch):
    """Every view counts as too wide for all of its eigenvalues."""
    monkeypatch.setattr(spectral, "WIDEST_GRAM", 1)


def lower_bounds(lam: np.ndarray, known: int, loss: float) -> np.ndarray:
    return np.sort(lam)[::-1][:known] * (1.0 - loss)


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("known", [0, 1, 5, 20, 60])
@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_no_spectrum_that_is_possible_scores_more(name, known, loss):
    """Of hostile spectra, by what is known of them: log of any ridge, and the sum."""
    lam = np.sort(SPECTRA[name])[::-1]
    low = lower_bounds(lam, known, loss)
    for k in (1, 5, 30, 60):
        for squares in (np.inf, float(lam @ lam)):
            top = largest_spectrum(low, float(lam.sum()), squares, 60, k)
            assert top.shape == (k,)
            assert (np.diff(top) <= 0).all()
            assert top.sum() >= lam[:k].sum() * (1 - 1e-12)
            assert top.sum() <= lam.sum() * (1 + 1e-12)
            for eps in (1e-6, 0.1, 10.0):
                best = np.log(lam[:k] + eps).sum()
                assert np.log(top + eps).sum() >= best - 1e-9 * (1 + abs(best))
    if known == 60 and loss == 0.0:
        np.testing.assert_allclose(top, lam, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_spectrum_is_what_multipliers_prove(seed):
    """The bound is the least that any multipliers prove."""
    rng = np.random.default_rng(seed)
    lam = np.sort(rng.exponential(1.0, 12) ** 2 + 0.1)[::-1]
    low, k = lam[:5] * 0.9, 3
    total, squares = float(lam.sum()), float(lam @ lam)
    top = largest_spectrum(low, total, squares, 12, k)
    given = low, total, squares, 12, k

    def proven(multipliers: np.ndarray) -> float:
        return reference.largest_by_lagrange(*given, multipliers[0], float(np.exp(multipliers[1])))

    least = min(
        minimize(proven, (a, b), method="Nelder-Mead", bounds=[(-50, 50), (-25, 5)]).fun
        for a in (-0.1, 0.1)
        for b in (-1.0, -6.0)
    )
    assert least == pytest.approx(np.log(top).sum(), abs=1e-3)


def test_a_sum_that_is_known_to_rounding_never_lowers_the_bound():
    """Where squares bind, a smaller sum leaves more for the k largest."""
    lam = SPECTRA["heavy tail"]
    total, squares = float(lam.sum()), float(lam @ lam)
    sure = largest_spectrum(lam[:5], total, squares, 60, 4)
    for unsure in (1e-12, 1e-6, 1e-3):
        assert (largest_spectrum(lam[:5], total, squares, 60, 4, unsure) >= sure - 1e-9).all()


def sparse_rows(rng: np.random.Generator, n: int, p: int, density: float) -> sp.csr_array:
    """None of them empty."""
    ones = sp.csr_array((np.ones(n), (np.arange(n), rng.integers(0, p, n))), shape=(n, p))
    return sp.csr_array(sp.random_array((n, p), density=density, rng=rng, format="csr") + ones)


def pool_of(seed: int) -> Problem:
    """Dense, sparse and wide, of one to three views, under all calibrations."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(10, 40)), int(rng.integers(1, 8))
    wide = seed % 5 == 0
    data = {}
    for q in range(int(rng.integers(1, 4))):
        p = int(rng.integers(2 * n, 5 * n)) if wide else int(rng.integers(2, 30))
        if wide or rng.random() < 0.3:
            data[f"v{q}"] = sparse_rows(rng, n, p, 0.1)
        else:
            data[f"v{q}"] = cases.random_views(rng, n, [p])[0]
    objective = "representative" if seed % 2 else "diverse"
    rule = str(rng.choice(["unit-diagonal", "trace", "none"]))
    return pose(data, k, objective=objective, calibration=rule if seed % 2 == 0 else "none")


@pytest.mark.filterwarnings("ignore:k = ")
@pytest.mark.parametrize("block", range(10))
@pytest.mark.parametrize("known", [True, False], ids=["eigenvalues", "trace"])
def test_no_frame_is_above_the_spectral_bound(block, known, monkeypatch):
    """Appendix B: max f_tau <= the spectral bound, on 100 pools, 20 of them wide and sparse,
    whether all eigenvalues are known or none; and for shares of variance Ky Fan's."""
    if not known:
        monkeypatch.setattr(spectral, "WIDEST_GRAM", 1)
    for seed in range(10 * block, 10 * block + 10):
        problem = pool_of(seed)
        found = spectral.spectral_bounds(problem, Context())
        assert all((rank is not None) == known for rank in found.ranks)
        bound = soft_min(found.bounds + problem.lifts, problem.tau)
        assert relax(problem).value <= bound + 1e-9, seed


@pytest.mark.parametrize("size", [1.0, 1e100, 1e-100])
def test_the_spectral_bound_counts_the_rounding_of_its_logarithms(size):
    """One view, whose bound a set of rows of a diagonal kernel attains."""
    for seed in range(40):
        values = size * np.random.default_rng(seed).uniform(0.1, 1.0, 7)
        problem = pose({"v": DiagonalView(values)}, 6, calibration="none", eps=size)
        with localcontext(prec=60):
            logs = [(Decimal(x) + Decimal(size)).ln() for x in np.sort(values)[1:].tolist()]
            exact = sum(logs) / 6
            assert Decimal(float(spectral.spectral_bounds(problem, Context()).bounds[0])) >= exact


def test_the_spectral_bound_counts_the_rounding_of_a_sum_over_rows():
    entry, eps = 1 / 3, 1e-3
    problem = pose(np.full((100_000, 1), entry), 1, calibration="none", eps=eps, center=False)
    with localcontext(prec=60):
        exact = (100_000 * Decimal(entry) ** 2 + Decimal(eps)).ln()
        assert Decimal(float(spectral.spectral_bounds(problem, Context()).bounds[0])) >= exact


@pytest.mark.parametrize("seed", range(6))
def test_what_passes_find_is_between_the_eigenvalues_and_the_trace(seed, nothing_known):
    problem = pool_of(seed)
    for q, view in enumerate(problem.pool.views):
        everyone = np.arange(view.n)
        shares = problem.utility == "representative"
        K = view.moments.gram if shares else view.inner(everyone, everyone)
        lam = np.sort(np.linalg.eigvalsh(K))[::-1][: problem.k]
        sums = [np.log(x + 0.1).sum() for x in (by_trace(problem, q), by_passes(problem, q, 1e12))]
        known = np.log(np.maximum(lam, 0.0) + 0.1).sum() + (problem.k - len(lam)) * np.log(0.1)
        known -= max(0, problem.k - len(by_trace(problem, q))) * np.log(0.1)
        assert known - 1e-9 <= sums[1] <= sums[0] + 1e-9


def test_a_kernel_whose_spectrum_is_not_known(nothing_known):
    X = np.random.default_rng(3).standard_normal((30, 40))
    problem = pose({"kernel": KernelView(X @ X.T)}, 5)
    certificate = certify(problem)
    assert certificate.rules == {"kernel": "trace"}
    assert relax(problem).value <= certificate.spectral_bound


@pytest.mark.slow
def test_a_wide_sparse_pool_as_it_is():
    """More than 4,096 rows and columns: the bound holds, and is far below what the trace allows."""
    rng = np.random.default_rng(0)
    data = {"text": sparse_rows(rng, 4200, 4300, 2e-3)}
    problem = pose(data, 20)
    certificate = certify_data(data, 20)
    assert certificate.rules == {"text": "trace"}
    view = problem.pool.views[0]
    everyone = np.arange(4200)
    exact = reference.spectral_value(view.inner(everyone, everyone) + view.ridge * np.eye(4200), 20)
    by_sum = spectral.spectral_bound(by_trace(problem, 0), view, 20)
    assert exact <= certificate.spectral_bound <= (exact + by_sum) / 2  # of a flat spectrum
    assert relax(problem).value <= certificate.spectral_bound
    assert certificate.diagonal["text"] < relax(problem).value  # which frames need not keep to


def test_centred_sparse_rows_that_moments_act_through_are_bounded(monkeypatch):
    """As those of a view with more columns than second moments are held for."""
    monkeypatch.setattr(moments, "WIDEST_MOMENTS", 0)
    rng = np.random.default_rng(5)
    X = sp.random_array((60, 30), density=0.2, rng=rng, format="csr")
    options: dict[str, Any] = {"objective": "representative", "calibration": "trace"}
    found = certify_data({"words": X}, 4, **options)
    chosen = select({"words": X}, 4, **options)
    assert chosen.fair_score <= min(found.upper_bound, found.spectral_bound) + 1e-12


# --- what is asked of a view ----------------------------------------------------------------------


def test_sums_are_known_but_for_rounding():
    view = SimpleNamespace(n=30, p=12, cancellation=50.0)
    assert leading._unsure(view) == pytest.approx(8.0 * 42 * np.finfo(float).eps * 50.0, rel=1e-12)


@pytest.mark.parametrize("known", [0, 2, 5])
def test_from_what_is_known_of_a_view_follows_the_spectrum_that_it_allows(known):
    """But for rounding, which is next to nothing here."""
    Phi = np.random.default_rng(3).standard_normal((30, 12)) * np.geomspace(2.0, 0.2, 12)
    problem = pose_rows([Phi], 4, 0.1, [0.1])
    lam = np.linalg.eigvalsh(Phi.T @ Phi)[::-1]
    low, squares = lam[:known], float((lam**2).sum())
    for allowed in (squares, np.inf):
        found = leading._from_above(problem, 0, low, allowed)
        expected = leading.largest_spectrum(low, float(lam.sum()), allowed, 12, 4)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("arena", "affordable", "columns"),
    [(1 << 24, np.inf, 8), (4 * 12 * 3, np.inf, 3), (1 << 24, 5.5 * 6 * 30 * 12, 5), (47, 1e9, 0)],
)
def test_as_many_eigenvalues_as_memory_and_work_allow(arena, affordable, columns):
    Phi = np.random.default_rng(3).standard_normal((30, 12)) * np.geomspace(2.0, 0.2, 12)
    problem = replace(pose_rows([Phi], 4, 0.1, [0.1]), means=Means(arena=arena))
    found = leading._some_eigenvalues(problem, 0, affordable)
    assert len(found) == columns
    lam = np.linalg.eigvalsh(Phi.T @ Phi)[::-1][:columns]
    assert (found <= lam + 1e-9).all()
    assert (found >= 0.7 * lam).all()


@pytest.mark.parametrize("kind", ["rows", "gram", "targets", "long"])
def test_squares_of_all_eigenvalues_cost_all_entries(kind, monkeypatch):
    """Of the kernel, or of the second moments that are held or act through targets."""
    Phi = np.random.default_rng(3).standard_normal((30, 12))
    if kind == "targets":
        monkeypatch.setattr(moments, "WIDEST_MOMENTS", 0)
    problem = pose_rows([Phi], 4, 0.1, [0.1])
    if kind in ("gram", "targets"):
        problem = representative(problem)
    if kind == "long":
        monkeypatch.setattr(leading, "_MOST_ROWS", 29)
    view = problem.pool.views[0]
    work = leading._squares_work(view)
    expected = {"rows": 30 * 30 * 12, "gram": 12 * 12, "targets": 30 * 30 * 12, "long": np.inf}
    assert work == expected[kind]
    squares = float((np.linalg.eigvalsh(Phi.T @ Phi) ** 2).sum())
    for chunk in (1, 70, 1 << 22):
        monkeypatch.setattr(leading, "_CHUNK", chunk)
        assert leading._sum_of_squares(problem, view) == pytest.approx(squares)
    few = replace(problem, means=Means(arena=64))
    assert leading._sum_of_squares(few, view) == pytest.approx(squares)


@pytest.mark.parametrize("unit", [1e60, 1e-60])
def test_rows_of_any_size_have_eigenvalues(unit):
    """Whose powers neither overflow nor vanish on the way."""
    Phi = np.random.default_rng(3).standard_normal((30, 12)) * np.geomspace(2.0, 0.2, 12)
    usual, found = (
        leading._some_eigenvalues(pose_rows([scale * Phi], 4, 0.1, [0.1]), 0, np.inf)
        for scale in (1.0, unit)
    )
    np.testing.assert_allclose(found / unit**2, usual, rtol=1e-6)
