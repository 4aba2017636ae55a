"""One contract suite for views: a constructor and a dense formula each.

Every view stands for K = diag(s) Phi Phi^T diag(s); the tests compare all that it answers with the
literal n x n matrix, once with the rows as they are and once under row scales.
"""

import itertools
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fairnepv
import reference
from fairnepv.compute import LocalEngine
from fairnepv.errors import InputError
from fairnepv.io.read import open_rows
from fairnepv.io.rows import Reordered
from fairnepv.views import (
    DenseView,
    DiagonalView,
    KernelView,
    Pool,
    SparseView,
    SumView,
    View,
    blocks,
)
from fairnepv.views.centering import centered

Array = NDArray[np.float64]

N, P = 23, 6
ROWS = np.array([4, 0, 17, 9, 22])  # in no order, both ends among them
OTHERS = np.array([9, 3, 4, 9])  # shares rows with ROWS, repeats one
MANY = np.array([1, 20, 5, 13, 7, 2, 11, 0, 16])  # more than P: the spectrum is padded
SCALE = np.linspace(0.2, 3.0, N)
SCALE[[3, 9]] = 0.0  # a quality of zero
SCALE.setflags(write=False)


# --- the constructors and their dense formulas ----------------------------------------------------


@dataclass(frozen=True)
class Given:
    """What a constructor yields: the view, K without its ridge, and what else is promised."""

    view: View
    K: Array
    features: Array | None = None  # where the view holds features: exactly these
    stored: int = 0
    precision: float = np.finfo(np.float64).eps  # of the numbers that the kernel came in
    parts: tuple["Given", ...] = ()
    rank: int = 0  # of a kernel: the width of the features that stand for it

    @property
    def p(self) -> int:
        if self.parts:
            return sum(part.p for part in self.parts)
        return self.rank if self.features is None else self.features.shape[1]


def _normal(seed: int, n: int = N, p: int = P) -> Array:
    return np.random.default_rng(seed).standard_normal((n, p))


def _sparse_rows(seed: int) -> Array:
    """A sparse pattern with an empty row and an empty column."""
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((N, 11)) * (rng.random((N, 11)) < 0.4)
    Phi[5] = 0.0
    Phi[:, 3] = 0.0
    return Phi


def _intake(value: Any, eps: float = 0.1) -> View:
    """The view as a user gets it, through the checks of a pool."""
    return Pool.of({"v": value}, eps=eps).views[0]


def _given(value: Any, Phi: Array, stored: int | None = None) -> Given:
    return Given(_intake(value), Phi @ Phi.T, Phi, Phi.size if stored is None else stored)


def dense_float64(tmp: Any) -> Given:
    Phi = _normal(0)
    return _given(Phi, Phi)


def dense_float32(tmp: Any) -> Given:
    Phi = _normal(1).astype(np.float32)
    return _given(Phi, Phi.astype(np.float64))


def dense_float16(tmp: Any) -> Given:
    Phi = (300 * _normal(2)).astype(np.float16)  # squares pass the largest float16, 65504
    return _given(Phi, Phi.astype(np.float64))


def dense_int8(tmp: Any) -> Given:
    Phi = np.random.default_rng(3).integers(-128, 128, (N, P)).astype(np.int8)
    return _given(Phi, Phi.astype(np.float64))


def dense_uint8(tmp: Any) -> Given:
    Phi = np.random.default_rng(3).integers(0, 256, (N, P)).astype(np.uint8)
    return _given(Phi, Phi.astype(np.float64))


def dense_bool(tmp: Any) -> Given:
    Phi = np.random.default_rng(4).random((N, P)) < 0.5
    return _given(Phi, Phi.astype(np.float64))


def dense_big_endian(tmp: Any) -> Given:
    Phi = _normal(5)
    return _given(Phi.astype(">f8"), Phi)


def dense_memmap(tmp: Any) -> Given:
    Phi = _normal(6).astype(np.float32)
    np.save(tmp / "rows.npy", Phi)
    return _given(np.load(tmp / "rows.npy", mmap_mode="r"), Phi.astype(np.float64))


def dense_shards(tmp: Any) -> Given:
    Phi = _normal(6).astype(np.float16)
    for s, rows in enumerate(np.array_split(Phi, 4)):
        np.save(tmp / f"part_{s}.npy", rows)
    return _given(open_rows(tmp), Phi.astype(np.float64))


def dense_reordered(tmp: Any) -> Given:
    """The rows of a file in another order, as a pool has them that was aligned by ids."""
    Phi, order = _normal(6), np.random.default_rng(6).permutation(N)
    np.save(tmp / "rows.npy", Phi)
    return _given(Reordered(open_rows(tmp / "rows.npy"), order), Phi[order])


def dense_fortran(tmp: Any) -> Given:
    Phi = _normal(7)
    return _given(np.asfortranarray(Phi), Phi)


def dense_strided(tmp: Any) -> Given:
    wide = _normal(8, 2 * N, 3 * P)
    part = wide[::-2, 1::3][:, ::-1]
    assert not part.flags.c_contiguous
    assert not part.flags.f_contiguous
    return _given(part, part.copy())


def dense_nested_list(tmp: Any) -> Given:
    Phi = _normal(9)
    return _given(Phi.tolist(), Phi)


def dense_one_column(tmp: Any) -> Given:
    Phi = _normal(10, N, 1)
    return _given(Phi, Phi)


def sparse_csr(tmp: Any) -> Given:
    Phi = _sparse_rows(11)
    return _given(sp.csr_array(Phi), Phi, np.count_nonzero(Phi))


def sparse_csr_matrix(tmp: Any) -> Given:
    Phi = _sparse_rows(12)
    return _given(sp.csr_matrix(Phi), Phi, np.count_nonzero(Phi))


def sparse_csc(tmp: Any) -> Given:
    Phi = _sparse_rows(13)
    return _given(sp.csc_array(Phi), Phi, np.count_nonzero(Phi))


def sparse_coo(tmp: Any) -> Given:
    Phi = _sparse_rows(14)
    return _given(sp.coo_array(Phi), Phi, np.count_nonzero(Phi))


def sparse_float32(tmp: Any) -> Given:
    Phi = _sparse_rows(15).astype(np.float32)
    return _given(sp.csr_array(Phi), Phi.astype(np.float64), np.count_nonzero(Phi))


def sparse_int(tmp: Any) -> Given:
    Phi = (100 * _sparse_rows(16)).astype(np.int8)
    return _given(sp.csr_array(Phi), Phi.astype(np.float64), np.count_nonzero(Phi))


def messy_csr(seed: int = 17) -> tuple[Any, Array]:
    """CSR with columns out of order, an entry in two parts and explicit zeros."""
    Phi = _sparse_rows(seed)
    coo = sp.coo_array(Phi)
    row, column = coo.coords
    row = np.concatenate([row, row[:7], [0, 5]])
    column = np.concatenate([column, column[:7], [3, 3]])
    data = np.concatenate([coo.data, 0.5 * coo.data[:7], [0.0, 0.0]])
    dense = np.zeros_like(Phi)
    np.add.at(dense, (row, column), data)
    order = np.lexsort((np.random.default_rng(0).random(len(row)), row))  # by row, else at random
    indptr = np.searchsorted(row[order], np.arange(N + 1))
    matrix = sp.csr_array((data[order], column[order], indptr), shape=Phi.shape)
    assert not matrix.has_canonical_format
    return matrix, dense


def sparse_messy(tmp: Any) -> Given:
    matrix, dense = messy_csr()
    return _given(matrix, dense, np.count_nonzero(dense) + 2)  # explicit zeros stay stored


def kernel_full(tmp: Any) -> Given:
    Phi = _normal(18, N, 2 * N)
    K = Phi @ Phi.T
    return Given(_intake(KernelView(K)), K, stored=N * N, rank=N)


def kernel_deficient(tmp: Any) -> Given:
    Phi = _normal(19, N, 4)
    K = Phi @ Phi.T
    return Given(_intake(KernelView(K)), K, stored=N * 4, rank=4)


def kernel_float32(tmp: Any) -> Given:
    Phi = _normal(20, N, 5)
    K = (Phi @ Phi.T).astype(np.float32)
    precision = float(np.finfo(np.float32).eps)
    view = _intake(KernelView(K))
    return Given(view, K.astype(np.float64), stored=N * 5, precision=precision, rank=5)


def kernel_int(tmp: Any) -> Given:
    Phi = np.random.default_rng(21).integers(-3, 4, (N, 5))
    K = Phi @ Phi.T
    return Given(_intake(KernelView(K)), K.astype(np.float64), stored=N * 5, rank=5)


def diagonal(tmp: Any) -> Given:
    values = np.random.default_rng(22).uniform(0.1, 100.0, N)
    values[2] = 0.0
    return Given(_intake(DiagonalView(values)), np.diag(values), np.diag(np.sqrt(values)), N - 1)


def diagonal_float32(tmp: Any) -> Given:
    values = np.random.default_rng(23).uniform(0.1, 100.0, N).astype(np.float32)
    exact = values.astype(np.float64)
    return Given(_intake(DiagonalView(values)), np.diag(exact), np.diag(np.sqrt(exact)), N)


class Harmonics(View):
    """A view as a stranger writes one: rows are computed when they are asked for, never stored."""

    def __init__(self, angles: Array, p: int, eps: float | None = None) -> None:
        self.angles, self.n, self.p, self.eps = angles, len(angles), p, eps

    def raw_rows(self, rows: NDArray[np.int64] | slice) -> Array:
        return np.cos(np.outer(self.angles[rows], np.arange(1, self.p + 1)))


def _angles(n: int, seed: int = 24) -> Array:
    return np.random.default_rng(seed).uniform(0.0, 2 * np.pi, n)


def toy(tmp: Any) -> Given:
    view = Harmonics(_angles(N), P)
    return _given(view, view.raw_rows(slice(None)))


def _sum(parts: list[Given], weights: tuple[float, ...]) -> Given:
    K = sum(w * part.K for w, part in zip(weights, parts, strict=True))
    blocks = [part.features for part in parts]
    features = None
    if all(block is not None for block in blocks):
        features = np.hstack([np.sqrt(w) * x for w, x in zip(weights, blocks, strict=True)])
    view = SumView(tuple(part.view for part in parts), weights)
    return Given(view, K, features, sum(part.stored for part in parts), parts=tuple(parts))


def _rescaled(part: Given, scale: Array) -> Given:
    view = part.view.scaled(scale, 0.0)
    features = None if part.features is None else scale[:, None] * part.features
    K = scale[:, None] * part.K * scale
    return Given(view, K, features, part.stored, rank=part.rank)


def sum_dense(tmp: Any) -> Given:
    return _sum([dense_float32(tmp), dense_fortran(tmp)], (0.5, 2.0))


def sum_mixed(tmp: Any) -> Given:
    parts = [dense_float64(tmp), sparse_float32(tmp), diagonal(tmp)]
    return _sum(parts, (0.5, 0.25, 2.0))


def sum_of_toys(tmp: Any) -> Given:
    return _sum([toy(tmp), sparse_csr(tmp)], (0.5, 2.0))


def sum_of_scaled(tmp: Any) -> Given:
    """As the averaged kernel has it: the parts are calibrated, each by its own scales."""
    parts = [
        _rescaled(dense_float64(tmp), np.linspace(1.0, 2.0, N)),
        _rescaled(kernel_deficient(tmp), np.linspace(0.0, 3.0, N)),
        _rescaled(sparse_csr(tmp), np.linspace(2.0, 0.5, N)),
    ]
    return _sum(parts, (1.0, 0.5, 0.125))


CONSTRUCTORS: list[Callable[[Any], Given]] = [
    dense_float64,
    dense_float32,
    dense_float16,
    dense_int8,
    dense_uint8,
    dense_bool,
    dense_big_endian,
    dense_memmap,
    dense_shards,
    dense_reordered,
    dense_fortran,
    dense_strided,
    dense_nested_list,
    dense_one_column,
    sparse_csr,
    sparse_csr_matrix,
    sparse_csc,
    sparse_coo,
    sparse_float32,
    sparse_int,
    sparse_messy,
    kernel_full,
    kernel_deficient,
    kernel_float32,
    kernel_int,
    diagonal,
    diagonal_float32,
    toy,
    sum_dense,
    sum_mixed,
    sum_of_toys,
    sum_of_scaled,
]


def about_the_mean(make: Callable[[Any], Given]) -> Callable[[Any], Given]:
    """The same view under center=True, and the literal centred rows."""

    def made(tmp: Any) -> Given:
        given = make(tmp)
        features = None if given.features is None else reference.centered(given.features)
        K = reference.centered(reference.centered(given.K).T)
        rank, stored = given.rank, given.stored
        view: Any = centered(Pool(("v",), (given.view,), LocalEngine())).views[0]
        if isinstance(given.view, KernelView):  # of full rank no longer
            rank = min(given.rank, N - 1)
            stored = N * rank
        parts = tuple(replace(part, rank=min(part.rank, N - 1)) for part in given.parts)
        return replace(
            given, view=view, K=K, features=features, rank=rank, stored=stored, parts=parts
        )

    made.__name__ = f"centered_{make.__name__}"
    return made


CENTERED = [about_the_mean(make) for make in CONSTRUCTORS if make is not sum_of_scaled]


@pytest.fixture(params=CONSTRUCTORS + CENTERED, ids=lambda make: make.__name__)
def unscaled(request: Any, tmp_path: Any) -> Given:
    return request.param(tmp_path)


@pytest.fixture(params=["plain", "scaled"])
def given_view(request: Any, unscaled: Given) -> Given:
    if request.param == "plain":
        return unscaled
    features = None if unscaled.features is None else SCALE[:, None] * unscaled.features
    return replace(
        unscaled,
        view=unscaled.view.scaled(SCALE, 0.3),
        K=SCALE[:, None] * unscaled.K * SCALE,
        features=features,
    )


def _dense(x: Any) -> Array:
    return x.toarray() if hasattr(x, "toarray") else x


def _close(actual: Any, expected: Array, given: Given, precision: float | None = None) -> None:
    """Equal up to rounding of sums over K's largest entry."""
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == np.float64
    assert actual.shape == expected.shape
    tolerance = 100 * (precision or np.finfo(np.float64).eps) * max(np.abs(given.K).max(), 1e-300)
    np.testing.assert_allclose(actual, expected, rtol=1e-13, atol=tolerance)


# --- the contract ---------------------------------------------------------------------------------


def test_shape(given_view):
    view, K = given_view.view, given_view.K
    assert view.n == len(K)
    assert view.p == given_view.p
    assert _dense(view.rows(ROWS)).shape == (len(ROWS), view.p)
    assert _dense(view.block(2, 9).features()).shape == (7, view.p)


def test_squared_norms(given_view):
    _close(given_view.view.squared_norms, np.diag(given_view.K), given_view)


def test_rows(given_view):
    rows = _dense(given_view.view.rows(ROWS))
    if given_view.features is not None:
        _close(rows, given_view.features[ROWS], given_view)
    _close(rows @ rows.T, given_view.K[np.ix_(ROWS, ROWS)], given_view, N * given_view.precision)


@pytest.mark.sample
@pytest.mark.parametrize("size", [1, 5, N, N + 4])
def test_block_features(given_view, size):
    blocks = [given_view.view.block(a, min(a + size, N)) for a in range(0, N, size)]
    stacked = [block.features() for block in blocks]
    assert all(x.dtype == np.float64 for x in stacked)
    Phi = np.vstack([_dense(x) for x in stacked])
    if given_view.features is not None:
        _close(Phi, given_view.features, given_view)
    _close(Phi @ Phi.T, given_view.K, given_view, N * given_view.precision)


@pytest.mark.sample
@pytest.mark.parametrize("size", [1, 5, N])
def test_block_squared_norms(given_view, size):
    blocks = [given_view.view.block(a, min(a + size, N)) for a in range(0, N, size)]
    norms = np.concatenate([block.squared_norms() for block in blocks])
    _close(norms, np.diag(given_view.K), given_view)


@pytest.mark.sample
@pytest.mark.parametrize("size", [1, 5, N])
@pytest.mark.parametrize("indices", [ROWS, OTHERS, MANY], ids=["rows", "repeats", "many"])
def test_cross(given_view, size, indices):
    anchor = given_view.view.anchor(indices)
    crosses = [given_view.view.block(a, min(a + size, N)).cross(anchor) for a in range(0, N, size)]
    _close(np.vstack(crosses), given_view.K[:, indices], given_view)


@pytest.mark.sample
@pytest.mark.parametrize("columns", [1, 2, 8])
def test_cross_combined(given_view, columns):
    combine = np.random.default_rng(0).standard_normal((len(ROWS), columns))
    anchor = given_view.view.combined(given_view.view.anchor(ROWS), combine)
    crosses = [given_view.view.block(a, min(a + 9, N)).cross(anchor) for a in range(0, N, 9)]
    _close(np.vstack(crosses), given_view.K[:, ROWS] @ combine, given_view)


def test_gathered_rows_are_blocks(given_view):
    """In the order asked for, repeats included."""
    for indices in (ROWS, OTHERS, np.array([3])):
        block = given_view.view.gather(indices)
        _close(
            block.cross(given_view.view.anchor(ROWS)),
            given_view.K[np.ix_(indices, ROWS)],
            given_view,
        )
        _close(block.squared_norms(), np.diag(given_view.K)[indices], given_view)


@pytest.mark.sample
@pytest.mark.parametrize("coarse", [False, True])
def test_a_trail_grows_by_one(given_view, coarse):
    """Coordinates are those of the Cholesky factor of L[S, S], pick by pick."""
    view, K, eps = given_view.view, given_view.K, 0.5
    trail, block = view.trail(len(ROWS) + 3, coarse), view.block(0, N)
    for t, row in enumerate(ROWS):
        here = ROWS[: t + 1]
        v = trail.coordinates(np.array([row]))[:, 0] if t else np.empty(0)
        trail.add(int(row), v, float(np.sqrt(K[row, row] + eps - v @ v)))
        C = np.linalg.cholesky(K[np.ix_(here, here)] + eps * np.eye(t + 1))
        directions = np.linalg.solve(C, K[here]).T
        assert len(trail) == t + 1
        _explains(trail.coordinates(OTHERS), directions[OTHERS].T, given_view)
        for first in {0, t}:
            made = block.cross(trail.directions(first))
            if coarse:
                scale = np.abs(directions).max()
                np.testing.assert_allclose(made, directions[:, first:], atol=1e-4 * scale)
            else:
                _close(made, directions[:, first:], given_view)


def _explains(v, expected, given_view):
    """Coordinates; of more picks than a view has columns fewer numbers with the same products."""
    if len(v) < len(expected):
        v, expected = v.T @ v, expected.T @ expected
    _close(v, expected, given_view)


@pytest.mark.sample
def test_a_trail_that_foresees_picks_is_one_that_grew_by_them(given_view):
    """What is left of a kernel is its Schur complement, and picks are adopted one by one."""
    view, K, eps = given_view.view, given_view.K, 0.5
    C = np.linalg.cholesky(K[np.ix_(ROWS, ROWS)] + eps * np.eye(len(ROWS)))
    explained = np.linalg.solve(C, K[ROWS])  # (m, n)
    trail = view.trail(len(ROWS), False)
    trail.add(int(ROWS[0]), np.empty(0), float(C[0, 0]))
    v, left = trail.left_of(OTHERS)
    _explains(v, explained[:1, OTHERS], given_view)
    _close(left, K[np.ix_(OTHERS, OTHERS)] - v.T @ v, given_view)
    trail.foresee(ROWS[1:], trail.coordinates(ROWS[1:]), C[1:, 1:])
    for t in range(1, len(ROWS)):
        assert len(trail) == t
        trail.adopt()
        _explains(trail.coordinates(OTHERS), explained[: t + 1, OTHERS], given_view)


def test_a_coarse_cross_is_within_its_error(given_view):
    view = given_view.view
    coarse = view.block(0, N).coarse(view.anchor(ROWS))
    lengths = np.sqrt(np.outer(np.diag(given_view.K), np.diag(given_view.K)[ROWS]))
    slack = 1e-12 * lengths.max()
    assert (np.abs(coarse - given_view.K[:, ROWS]) <= view.coarse_error * lengths + slack).all()


@pytest.mark.sample
def test_a_look_along_directions_is_within_its_error(given_view):
    """Beside the longest row, whatever rows as they came were before a mean was taken off."""
    view = given_view.view.as_features()
    block, columns = view.block(0, N), np.random.default_rng(5).standard_normal((view.p, 6))
    exact, coarse = block.onto(columns), block.onto(columns, True)
    longest = np.sqrt(view.squared_norms.max()) * np.linalg.norm(columns, axis=0)
    assert (np.abs(coarse - exact) <= view.look_error * longest + 1e-12 * longest).all()


@pytest.mark.parametrize("coarse", [False, True])
def test_scales_may_be_multiplied_in_later(given_view, coarse):
    view = given_view.view
    block, anchor = view.block(0, N), view.anchor(ROWS)
    product, scale = block.unscaled(anchor, coarse)
    expected = block.coarse(anchor) if coarse else block.cross(anchor)
    whole = product if scale is None else product * scale
    np.testing.assert_allclose(whole, expected, rtol=1e-5 if coarse else 1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 15, 16, 100])
@pytest.mark.parametrize("columns", [1, 2, 8, 24, 25, 60, 97])
@pytest.mark.parametrize("cut", [slice(None), slice(1, 9), slice(None, None, 2)])
@pytest.mark.parametrize("small_products", [False, True])
def test_products_of_any_width_are_within_their_error(
    size, columns, cut, small_products, monkeypatch
):
    """Few columns are multiplied in another way than many, by what BLAS does best."""
    monkeypatch.setattr(blocks, "has_small_products", lambda: small_products)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((size, 20)).astype(np.float32)[:, cut]
    anchor = rng.standard_normal((columns, rows.shape[1]))
    view, scale = DenseView(rows), rng.random(size) + 0.5
    coarse = view.scaled(scale, 0.0).block(0, size).coarse(anchor)
    exact = scale[:, None] * (rows.astype(np.float64) @ anchor.T)
    lengths = np.outer(scale * np.linalg.norm(rows, axis=1), np.linalg.norm(anchor, axis=1))
    assert coarse.shape == exact.shape
    assert (np.abs(coarse - exact) <= view.coarse_error * lengths).all()


def test_float32_is_not_for_rows_that_it_cannot_hold():
    """Of such rows a coarse product is one in float64."""
    rng = np.random.default_rng(0)
    for factor in (1e-30, 1.0, 1e30):
        rows = rng.standard_normal((20, 6)) * factor
        view = DenseView(rows)
        coarse = view.block(0, 20).coarse(view.anchor(np.arange(5)) / factor)
        np.testing.assert_allclose(
            coarse, rows @ rows[:5].T / factor, rtol=1e-4, atol=1e-5 * factor
        )
        assert (view.coarse_error < 1e-12) == (factor != 1.0)


def test_inner(given_view):
    _close(given_view.view.inner(ROWS, OTHERS), given_view.K[np.ix_(ROWS, OTHERS)], given_view)
    one = np.array([22])
    _close(given_view.view.inner(one, ROWS), given_view.K[np.ix_(one, ROWS)], given_view)


@pytest.mark.sample
@pytest.mark.parametrize("indices", [ROWS, MANY, np.arange(N), np.array([3]), OTHERS[:3]], ids=len)
def test_spectrum(given_view, indices):
    spectrum = given_view.view.spectrum(indices)
    expected = np.linalg.eigvalsh(given_view.K[np.ix_(indices, indices)])[::-1]
    assert (spectrum >= 0).all()
    assert (np.diff(spectrum) <= 0).all()
    _close(spectrum, expected.clip(min=0), given_view)


def test_take(given_view):
    part = given_view.view.with_eps(0.7).take(MANY)
    K = given_view.K[np.ix_(MANY, MANY)]
    assert part.n == len(MANY)
    assert part.ridge == 0.7
    assert part.offset == given_view.view.offset
    few, all_rows = np.array([7, 1, 4]), np.arange(len(MANY))
    _close(part.squared_norms, np.diag(K), given_view)
    _close(part.inner(few, all_rows), K[few], given_view)
    _close(part.block(2, 8).cross(part.anchor(few)), K[2:8][:, few], given_view)
    rows = _dense(part.rows(all_rows))
    _close(rows @ rows.T, K, given_view, N * given_view.precision)
    expected = np.linalg.eigvalsh(K)[::-1].clip(min=0)
    _close(part.spectrum(all_rows), expected, given_view)
    again = part.take(few)
    _close(again.inner(np.arange(3), np.arange(3)), K[np.ix_(few, few)], given_view)


def test_take_keeps_repeats_apart(given_view):
    part = given_view.view.take(OTHERS)
    order = np.arange(len(OTHERS))
    _close(part.inner(order, order), given_view.K[np.ix_(OTHERS, OTHERS)], given_view)


def test_stored(given_view):
    assert given_view.view.stored == given_view.stored


def test_scaling_replaces_and_leaves_the_original(unscaled):
    view = unscaled.view
    scaled = view.scaled(np.full(N, 2.0), 1.5)
    assert (scaled.offset, view.offset) == (1.5, 0.0)
    _close(scaled.squared_norms, 4 * np.diag(unscaled.K), unscaled)
    again = scaled.scaled(SCALE, 0.0)  # other scales, not further ones
    _close(again.inner(ROWS, MANY), (SCALE[:, None] * unscaled.K * SCALE)[ROWS][:, MANY], unscaled)
    back = again.scaled(None, 0.0)
    _close(back.inner(ROWS, MANY), unscaled.K[np.ix_(ROWS, MANY)], unscaled)
    _close(view.inner(ROWS, MANY), unscaled.K[np.ix_(ROWS, MANY)], unscaled)


def test_ridge_is_carried_and_excluded_from_the_kernel(given_view):
    other = given_view.view.with_eps(5.0)
    assert other.ridge == 5.0
    assert given_view.view.ridge != 5.0
    assert other.offset == given_view.view.offset
    _close(other.squared_norms, np.diag(given_view.K), given_view)
    _close(other.inner(ROWS, ROWS), given_view.K[np.ix_(ROWS, ROWS)], given_view)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(cuts=st.sets(st.integers(1, N - 1)), picks=st.lists(st.integers(0, N - 1), min_size=1))
@pytest.mark.parametrize(
    "make",
    [dense_float32, sparse_messy, kernel_deficient, diagonal, sum_mixed],
    ids=lambda f: f.__name__,
)
def test_any_partition_into_blocks_gives_the_same_kernel(make, cuts, picks):
    given = make(None)
    view, K = given.view.scaled(SCALE, 0.0), SCALE[:, None] * given.K * SCALE
    if isinstance(view, SumView):  # scale its parts; a scaled sum is tested above
        parts = tuple(part.scaled(SCALE, 0.0) for part in view.parts)
        view = SumView(parts, view.weights)
    indices = np.array(picks)
    anchor = view.anchor(indices)
    edges = [0, *sorted(cuts), N]
    blocks = [view.block(a, b) for a, b in itertools.pairwise(edges)]
    _close(np.vstack([block.cross(anchor) for block in blocks]), K[:, indices], given)
    _close(np.concatenate([block.squared_norms() for block in blocks]), np.diag(K), given)


# --- a view of the user's own ---------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["local", "torch:cpu"])
@pytest.mark.parametrize(
    "options",
    [
        {"method": "greedy"},
        pytest.param({"method": "nepv"}, marks=pytest.mark.slow),
        pytest.param({"eps": 1e-6, "calibration": "none"}, marks=pytest.mark.slow),
    ],
)
def test_a_view_of_the_users_own_is_selected_from_as_its_rows_are(engine, options):
    if engine != "local":
        pytest.importorskip("torch")
        pytest.importorskip("array_api_compat")
    own, beside = Harmonics(_angles(150), 12), _normal(3, 150, 10)
    dense = own.raw_rows(slice(None))
    found = fairnepv.select({"toy": own, "b": beside}, 9, engine=engine, **options)
    expected = fairnepv.select({"toy": dense, "b": beside}, 9, **options)
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.fair_score == pytest.approx(expected.fair_score, rel=1e-9)
    assert found.certificate.upper_bound == pytest.approx(expected.certificate.upper_bound, 1e-5)


@pytest.mark.parametrize("engine", ["local", "torch:cpu"])
def test_a_view_of_the_users_own_is_planned_for(engine):
    if engine != "local":
        pytest.importorskip("torch")
    own = Harmonics(_angles(150), 12, eps=0.3)
    forecast = fairnepv.plan({"toy": own}, 9, engine=engine)
    assert forecast.passes > 0
    assert fairnepv.select({"toy": own}, 9, engine=engine).settings["eps"] == {"toy": 0.3}


def test_a_view_of_the_users_own_is_checked():
    angles = _angles(30)
    angles[7] = np.nan
    with pytest.raises(InputError, match=r"view 'toy' has 4 value\(s\) that are NaN.*row 7"):
        fairnepv.select({"toy": Harmonics(angles, 4)}, 3)
    with pytest.raises(InputError, match="eps for view 'toy' must be a finite positive number"):
        fairnepv.select({"toy": Harmonics(_angles(30), 4, eps=-1.0)}, 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"offset": 2.0}, "keeps something of its own as 'offset'"),
        ({"scale": 3.0}, "keeps something of its own as 'scale'"),
        ({"rows": np.ones(3)}, "keeps something of its own as 'rows'"),
        ({"p": None}, "must have a whole number p, not None"),
        ({"n": True}, "must have a whole number n, not True"),
        ({"raw": lambda rows: np.ones((len(rows), 5))}, r"shape \(1, 4\), not \(1, 5\)"),
        ({"raw": lambda rows: [[1.0] * 4]}, r"shape \(1, 4\), not list"),
        ({"raw": lambda rows: sp.csr_array(np.ones((1, 4)))}, r"\(1, 4\), not csr_array"),
        ({"raw": lambda rows: np.ones((1, 4), complex)}, "dtype complex128; expected real"),
    ],
)
def test_a_view_of_the_users_own_that_breaks_the_contract_is_refused(changes, words):
    class Broken(Harmonics):
        def raw_rows(self, rows):
            own = vars(self).get("raw", super().raw_rows)
            return own(rows)

    view = Broken(_angles(30), 4)
    vars(view).update(changes)
    with pytest.raises(InputError, match=f"view 'toy'.*{words}"):
        fairnepv.select({"toy": view}, 3)


def test_a_view_of_a_pool_can_be_handed_in_again():
    pool = Pool.of({"toy": Harmonics(_angles(30), 4)})
    view = pool.views[0].scaled(np.full(30, 2.0), 1.5)
    again = fairnepv.select({"toy": view}, 3)
    assert again.scores == fairnepv.select({"toy": Harmonics(_angles(30), 4)}, 3).scores


# --- accuracy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("scaled", [False, True])
def test_spectrum_of_rows_keeps_tiny_eigenvalues(wrap, scaled):
    """Singular values down to 1e-12 of the largest; a Gram matrix would lose all below 1e-8."""
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    W = np.linalg.qr(rng.standard_normal((12, 8)))[0]
    singular = 10.0 ** -np.array([0, 1, 2, 4, 6, 8, 10, 12])
    rows = (U * singular) @ W.T
    view = _intake(wrap(rows))
    if scaled:
        root = np.linspace(1.0, 4.0, 8)
        view = _intake(wrap(rows / root[:, None])).scaled(root, 0.0)
    spectrum = view.spectrum(np.arange(8))
    np.testing.assert_allclose(np.sqrt(spectrum), singular, rtol=1e-3, atol=0)


def test_spectrum_of_a_diagonal_kernel_is_exact():
    values = np.array([3.0, 1e-30, 0.1, 100.0, 1e-9, 0.7])
    spectrum = _intake(DiagonalView(values)).spectrum(np.array([1, 2, 4, 5]))
    np.testing.assert_array_equal(spectrum, [0.7, 0.1, 1e-9, 1e-30])


def test_kernel_features_have_the_rank_of_the_kernel(tmp_path):
    given = kernel_deficient(tmp_path)
    features = given.view.block(0, N).features()
    assert int(features.any(axis=0).sum()) == 4
    assert np.linalg.matrix_rank(features) == 4


# --- the data is shared, never copied and never written to ----------------------------------------


def _frozen(array: Any) -> Any:
    array.setflags(write=False)
    return array


def _exercise(view: View) -> None:
    """Every question once."""
    _ = view.squared_norms, view.stored
    for block in (view.block(0, view.n), view.block(1, 2)):
        (
            block.features(),
            block.squared_norms(),
            block.cross(view.combined(view.anchor(ROWS), np.eye(len(ROWS)))),
        )
    view.rows(ROWS), view.inner(ROWS, OTHERS), view.spectrum(ROWS), view.take(ROWS)


@pytest.mark.parametrize(
    "array",
    [
        _frozen(_normal(0)),
        _frozen(_normal(0).astype(np.float32)),
        _frozen(np.asfortranarray(_normal(0))),
        _frozen(_normal(0, 2 * N)[::2]),
        _frozen(np.ones((N, P), dtype=np.int8)),
    ],
    ids=["float64", "float32", "fortran", "strided", "int8"],
)
def test_dense_data_is_shared(array):
    before = array.tobytes()
    view = _intake(array)
    assert isinstance(view, DenseView)
    scaled = view.scaled(SCALE, 0.1).with_eps(0.2)
    assert np.shares_memory(view.data, array)
    assert scaled.data is view.data
    _exercise(scaled)
    assert array.tobytes() == before


def test_memory_map_stays_a_map(tmp_path):
    np.save(tmp_path / "rows.npy", _normal(0))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    view: Any = _intake(mapped)
    assert np.shares_memory(view.data, mapped)
    assert np.shares_memory(view.block(3, 8).features(), mapped)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix])
def test_sparse_data_is_shared(make):
    matrix = make(_sparse_rows(0))
    arrays = (matrix.data, matrix.indices, matrix.indptr)
    before = [_frozen(x).tobytes() for x in arrays]
    view = _intake(matrix)
    assert isinstance(view, SparseView)
    scaled = view.scaled(SCALE, 0.1).with_eps(0.2)
    assert np.shares_memory(view.data.data, matrix.data)
    assert scaled.data is view.data
    _exercise(scaled)
    assert [x.tobytes() for x in arrays] == before


def test_messy_sparse_data_is_not_tidied_in_place():
    matrix, _ = messy_csr()
    arrays = (matrix.data, matrix.indices, matrix.indptr)
    before = [x.copy() for x in arrays]
    _exercise(_intake(matrix).scaled(SCALE, 0.0))
    for array, copy in zip((matrix.data, matrix.indices, matrix.indptr), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert not matrix.has_canonical_format


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kernel_data_is_shared(dtype):
    Phi = _normal(0)
    K = _frozen((Phi @ Phi.T).astype(dtype))
    before = K.tobytes()
    view: Any = _intake(KernelView(K))
    scaled = view.scaled(SCALE, 0.1)
    assert np.shares_memory(view.kernel, K)
    assert scaled.kernel is view.kernel
    _exercise(scaled)
    assert K.tobytes() == before


def test_diagonal_data_is_not_written_to():
    values = _frozen(np.linspace(0.1, 5.0, N))
    before = values.tobytes()
    _exercise(_intake(DiagonalView(values)).scaled(SCALE, 0.0))
    assert values.tobytes() == before


@pytest.mark.parametrize("order", ["C", "F"])
def test_blocks_of_a_float64_array_are_views(order):
    array = np.array(_normal(0), order=order)
    block = _intake(array).block(4, 11)
    assert np.shares_memory(block.features(), array)
    np.testing.assert_array_equal(block.features(), array[4:11])


def test_scaling_costs_a_vector_and_not_a_copy():
    array = np.random.default_rng(0).standard_normal((2000, 500)).astype(np.float32)  # 4 MB
    view = _intake(array)
    _ = view.squared_norms
    tracemalloc.start()
    try:
        scaled = view.scaled(np.full(2000, 0.5), 0.0)
        scaled.block(0, 50).cross(scaled.anchor(np.arange(5)))
        _ = scaled.squared_norms
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.2 * array.nbytes


def test_float16_rows_do_not_overflow():
    view = _intake(np.full((3, 4), 6e4, dtype=np.float16))
    exact = float(np.float16(6e4)) ** 2 * 4
    np.testing.assert_array_equal(view.squared_norms, np.full(3, exact))
    np.testing.assert_array_equal(view.block(0, 3).squared_norms(), np.full(3, exact))
    np.testing.assert_array_equal(view.inner(np.array([0]), np.array([1, 2])), [[exact, exact]])


def test_the_smallest_eigenvalue_follows_the_scale():
    """It is kept by the view that it was asked of, and not by one with other scales."""
    K = np.diag([3.0, 2.0, 1.0])
    view = KernelView(K, eps=0.1)
    assert view.smallest_eigenvalue() == pytest.approx(1.0)
    scaled = view.scaled(np.array([1.0, 0.5, 2.0]), 0.0)
    assert scaled.smallest_eigenvalue() == pytest.approx(0.5)
    assert view.smallest_eigenvalue() == pytest.approx(1.0)
