"""Centred views: the mean of all rows is taken off every row before anything else.

Products are held against dense rows by tests/contracts/test_views.py.
"""

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import fairnepv
import reference
from fairnepv import InputError, LocalEngine
from fairnepv.api.inputs import pool_of
from fairnepv.concave import proof_arrays, read_proof
from fairnepv.errors import UnsupportedError
from fairnepv.io.read import open_rows
from fairnepv.report.words import terms_lines
from fairnepv.views import DenseView, DiagonalView, KernelView, Pool, SumView, View
from fairnepv.views.centering import centered

N, K = 120, 6
RNG = np.random.default_rng(5)
DENSE = RNG.standard_normal((N, 9)) + 3.0
TEXT = sp.random(N, 40, 0.2, random_state=1, format="csr") + sp.csr_array(np.eye(N, 40))
ANGLES = RNG.uniform(0, 6, N)


class Waves(View):
    """A view of somebody else's."""

    def __init__(self) -> None:
        self.n, self.p = N, 7

    def raw_rows(self, rows):
        return 2.0 + np.cos(np.outer(ANGLES[rows], np.arange(1, 8)))


def views() -> dict[str, Any]:
    return {
        "dense": DENSE.astype(np.float32),
        "text": TEXT,
        "kernel": KernelView(DENSE @ DENSE.T),
        "diagonal": DiagonalView(np.linspace(1.0, 2.0, N)),
        "own": Waves(),
    }


def literal() -> dict[str, Any]:
    """The same views as dense rows that are centred already."""
    given = {
        "dense": DENSE.astype(np.float32).astype(np.float64),
        "text": TEXT.toarray(),
        "kernel": DENSE,
        "diagonal": np.diag(np.sqrt(np.linspace(1.0, 2.0, N))),
        "own": Waves().raw_rows(slice(None)),
    }
    return {name: reference.centered(rows) for name, rows in given.items()}


@pytest.mark.parametrize("engine", ["local", "torch:cpu"])
@pytest.mark.parametrize("method", ["greedy", "auto", "averaged"])
def test_a_selection_is_that_of_rows_that_are_centred_already(engine, method):
    if engine != "local":
        pytest.importorskip("torch")
    found = fairnepv.select(views(), K, center=True, engine=engine, method=method)
    expected = fairnepv.select(literal(), K, method=method)
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.scores == pytest.approx(expected.scores, rel=1e-10)
    assert found.upper_bound == pytest.approx(expected.upper_bound, rel=1e-6)
    assert found.coverage == pytest.approx(expected.coverage, rel=1e-9)
    assert found.settings["center"] is True
    assert expected.settings["center"] is False


@pytest.mark.ray
def test_workers_of_ray_have_the_means_too(tmp_path):
    pytest.importorskip("ray")
    from fairnepv.compute.ray.engine import RayEngine

    np.save(tmp_path / "rows.npy", DENSE)
    data = {**views(), "file": open_rows(tmp_path / "rows.npy")}
    here = fairnepv.select(data, K, center=True, method="greedy")
    with RayEngine.local(2) as engine:
        there = fairnepv.select(data, K, center=True, method="greedy", engine=engine)
    np.testing.assert_array_equal(there.indices, here.indices)
    assert there.fair_score == here.fair_score


@settings(derandomize=True, max_examples=15, deadline=None)
@given(
    shift=st.lists(st.integers(-1000, 1000), min_size=5, max_size=5),
    seed=st.integers(0, 99),
)
def test_a_constant_that_is_added_to_all_rows_changes_nothing(shift, seed):
    """Numbers of few digits, so that nothing is rounded before centring."""
    rows = np.random.default_rng(seed).integers(-64, 64, (40, 5)) / 16.0
    moved = rows + np.array(shift, dtype=float)
    options: Any = {"center": True, "calibration": "trace", "method": "greedy", "certify": False}
    for wrap in (np.asarray, lambda X: KernelView(X @ X.T)):
        one, other = (fairnepv.select({"v": wrap(X)}, 4, **options) for X in (rows, moved))
        np.testing.assert_array_equal(one.indices, other.indices)
        assert one.fair_score == pytest.approx(other.fair_score, abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int16, np.float64])
def test_rows_far_from_zero_keep_their_digits(dtype):
    """Years, in float32 and as whole numbers: the mean is a hundred times the spread."""
    years = (2000 + np.round(10 * RNG.standard_normal((300, 6)))).astype(dtype)
    years += (np.eye(300, 6) * 3).astype(dtype)
    view = centered(Pool.of({"v": years})).views[0]
    exact = reference.centered(years.astype(np.float64))
    np.testing.assert_allclose(view.raw_squared_norms(), (exact**2).sum(1), rtol=1e-12)
    rows = np.arange(0, 300, 7)
    anchor = view.anchor(rows)
    np.testing.assert_allclose(view.block(0, 300).cross(anchor), exact @ exact[rows].T, atol=1e-9)
    lengths = np.linalg.norm(exact, axis=1)
    apart = np.abs(view.block(0, 300).coarse(anchor) - exact @ exact[rows].T)
    assert view.single
    assert (apart <= view.coarse_error * np.outer(lengths, lengths[rows])).all()


def test_means_have_the_same_bits_whoever_computes_them(tmp_path):
    rows = RNG.standard_normal((5000, 30)).astype(np.float32) + 1
    np.save(tmp_path / "rows.npy", rows)
    engines = [None, LocalEngine(block_rows=7), LocalEngine(threads=1), LocalEngine(threads=3)]
    pools = [Pool.of({"v": rows}, engine=e) for e in engines]
    pools.append(Pool.of({"v": open_rows(tmp_path / "rows.npy")}))
    means = [vars(centered(pool).views[0])["center"].mean for pool in pools]
    for mean in means:
        np.testing.assert_array_equal(mean, means[0])
    np.testing.assert_allclose(means[0], rows.mean(axis=0, dtype=np.float64), rtol=1e-12)


def test_rows_are_never_copied_whole():
    rows = RNG.standard_normal((20_000, 200)).astype(np.float32)  # 16 MB
    pool = Pool.of({"v": rows})
    tracemalloc.start()
    try:
        view = centered(pool).views[0]
        view.block(0, 100).cross(view.anchor(np.arange(5)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert vars(view)["data"] is vars(pool.views[0])["data"]
    assert peak < 0.4 * rows.nbytes


def test_a_wide_sparse_view_is_not_filled_in():
    rows = sp.random(500, 50_000, 0.0005, random_state=0, format="csr")  # dense: 200 MB
    rows += sp.csr_array((np.ones(500), (np.arange(500), np.arange(500))), shape=rows.shape)
    tracemalloc.start()
    try:
        found = fairnepv.select({"v": rows}, 10, center=True, method="greedy", certify=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6
    chosen = rows[found.indices].toarray() - np.asarray(rows.mean(axis=0))
    L = reference.kernel(reference.unit_diagonal(chosen), 0.1)
    assert found.fair_score == pytest.approx(np.linalg.slogdet(L)[1] / 10, abs=1e-9)


# --- what travels --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(views()))
def test_parts_and_copies_keep_the_mean_of_the_pool(name):
    view = centered(Pool.of({name: views()[name]})).views[0]
    Phi, some = literal()[name], np.array([5, 80, 3, 44])
    K = Phi[some] @ Phi[some].T
    for part in (view.take(some), pickle.loads(pickle.dumps(view)).take(some)):
        np.testing.assert_allclose(part.inner(np.arange(4), np.arange(4)), K, atol=1e-10)
    order = np.random.default_rng(0).permutation(N)
    np.testing.assert_allclose(
        view.reordered(order).squared_norms, (Phi**2).sum(1)[order], atol=1e-10
    )
    lean = pickle.loads(pickle.dumps(view.lean()))
    np.testing.assert_allclose(
        lean.block(0, N).cross(view.anchor(some)), Phi @ Phi[some].T, atol=1e-10
    )


def test_views_are_aligned_before_they_are_centred():
    order = np.random.default_rng(1).permutation(N)
    names = np.arange(N)
    data = {"a": DENSE, "text": TEXT[order]}
    found = fairnepv.select(data, K, ids={"a": names, "text": names[order]}, center=True)
    expected = fairnepv.select({"a": DENSE, "text": TEXT}, K, center=True)
    np.testing.assert_array_equal(found.ids, expected.indices)


def test_rows_that_are_overwritten_are_found_out():
    rows = DENSE.copy()
    found = fairnepv.select({"v": rows}, K, center=True)
    rows[found.indices[0], 0] += 1.0
    with pytest.raises(InputError, match="overwritten"):
        found.neighbours()


def test_shards_are_about_the_mean_of_the_pool():
    options: Any = {"method": "greedy", "hierarchical": 3}
    found = fairnepv.select(views(), K, center=True, **options)
    np.testing.assert_array_equal(found.indices, fairnepv.select(literal(), K, **options).indices)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array, lambda X: KernelView(X @ X.T)])
def test_a_view_without_variance_is_refused(wrap):
    rows = np.tile([0.1, 0.7, 0.0, 1.3], (30, 1))
    with pytest.raises(InputError, match="view 'v' has no variance: all its rows are equal"):
        fairnepv.select({"v": wrap(rows), "w": DENSE[:30]}, 3, center=True)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_a_row_that_is_the_mean_is_an_all_zero_row(wrap):
    half = RNG.standard_normal((10, 4))
    rows = 0.1 + np.vstack([half, -half, np.zeros((1, 4))])
    words = r"view 'v' has 1 all-zero row\(s\) once the mean of all rows is taken off, .* row 20"
    with pytest.raises(InputError, match=words):
        fairnepv.select({"v": wrap(rows)}, 3, center=True)
    found = fairnepv.select({"v": wrap(rows)}, 3, center=True, calibration="trace")
    assert 20 not in found.indices


def test_what_cannot_be_centred_says_so():
    near = sp.csr_array(1000.0 + RNG.standard_normal((30, 5)) / 10)
    with pytest.raises(InputError, match="view 'v' is sparse, and row 0 is so near to the mean"):
        fairnepv.select({"v": near}, 3, center=True)
    for own in (KernelView(np.eye(20), eps=0.0), DiagonalView(np.ones(20), eps=0.0)):
        with pytest.raises(InputError, match=r"with eps = 0 .* positive definite"):
            fairnepv.select({"v": own}, 3, center=True)
    part = DenseView(DENSE, eps=0.1).scaled(np.linspace(1, 2, N), 0.0)
    with pytest.raises(UnsupportedError, match="sum of views that were scaled"):
        centered(Pool(("v",), (SumView((part,), (1.0,)),), LocalEngine()))
    with pytest.raises(InputError, match="center must be True or False"):
        fairnepv.select({"v": DENSE}, 3, center="no")


# --- calibrations, bounds, plans ------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["unit-diagonal", "trace", "none", "efficiency"])
def test_the_calibration_of_a_result_brings_it_along(rule):
    data = {"dense": DENSE, "text": TEXT}
    found = fairnepv.select(data, K, center=True, calibration=rule)
    assert found.calibration.center
    again = fairnepv.score(data, found.indices, calibration=found.calibration)
    assert again.scores == found.scores
    with pytest.raises(InputError, match=r"center is False, but .* one of centred views"):
        fairnepv.score(data, found.indices, calibration=found.calibration, center=False)
    assert fairnepv.verify_bound(data, found, center=True).holds
    assert fairnepv.verify_bound(data, found).holds
    with pytest.raises(InputError, match="other terms: center is True, expected False"):
        fairnepv.verify_bound(data, found, center=False)


def test_a_bound_says_whether_it_is_about_centred_views():
    data = {"dense": DENSE, "text": TEXT}
    proof = fairnepv.certify(data, K, center=True).proof
    stored = proof_arrays(proof)
    read = read_proof(stored)
    assert read.terms.calibration.center
    assert any(line.startswith("center: rows less the mean") for line in terms_lines(read.terms))
    plain = proof_arrays(fairnepv.certify(data, K).proof)
    about = str(plain["about"]).replace('"center": false, ', "").replace("bound 2", "bound 1")
    older = {**plain, "about": np.array(about.replace('"objective": "diverse", ', ""))}
    assert "center" not in about
    assert fairnepv.verify_bound(data, read_proof(older)).holds
    # Whoever lies about it poses another problem, and is held to that one.
    forged = {**stored, "about": np.array(str(stored["about"]).replace("true", "false", 1))}
    verified = fairnepv.verify_bound(data, read_proof(forged))
    best = fairnepv.select(data, K, certify=False)
    assert not verified.claimed.terms.calibration.center
    assert verified.upper_bound >= best.fair_score
    assert not verified.holds or proof.upper_bound >= best.fair_score


def test_more_can_be_chosen_about_another_mean():
    old = fairnepv.select({"v": DENSE[:100]}, 5, center=True)
    more = fairnepv.extend(old, {"v": DENSE}, 3)
    assert more.settings["center"]
    assert not any("other rows" in note for note in more.notes)
    notes = fairnepv.diff(old, fairnepv.select({"v": DENSE[:100]}, 5)).notes
    assert any(note.startswith("center is True in a and False in b") for note in notes)


def test_plans_count_the_passes():
    plain, about = (fairnepv.plan({"v": DENSE}, K, center=center) for center in (False, True))
    assert about.passes == plain.passes + 2


def test_a_centred_pool_stays_as_it_is():
    pool = pool_of({"v": DENSE}, {"eps": 0.1, "center": True})
    assert centered(pool) is pool
