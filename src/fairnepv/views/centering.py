"""Views about their means: from every row the mean of the rows of the pool is taken off before
rows are brought to one length or weighted.

Dense rows stay as they are stored, and blocks take the mean off; sparse rows are not filled in
(`centered_sparse`); of a kernel a centred copy is made, H K H with H = I - 1 1^T / n.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import numpy as np

from fairnepv.compute import Block, LocalEngine
from fairnepv.compute.clock import check_time
from fairnepv.errors import InputError, UnsupportedError
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.blocks import Center, DenseBlock, column_sums
from fairnepv.views.centered_sparse import CenteredSparseView
from fairnepv.views.dense import DenseView
from fairnepv.views.kernel import DiagonalView, KernelView
from fairnepv.views.pool import Pool, measured_in_files
from fairnepv.views.sparse import SparseView
from fairnepv.views.sum import SumView
from fairnepv.views.tensor_rows import TensorRows

_ROUNDING = 32 * 2.0**-53  # of the usual length of rows: what is left of a row that is the mean
_CANCELLED = 1e-6  # of squared lengths: sparse products lose no more than their last six digits
_CHUNK_NUMBERS = 1 << 20


def centered(pool: Pool) -> Pool:
    """The pool with the mean of all its rows taken off, view by view; two passes over the rows.

    What is taken from it later keeps these means.
    """
    if pool.centered:
        return pool
    views = []
    for name, view in pool.items():
        check_time()
        made = _centered(pool, name, view)
        if not made.raw_squared_norms().any():
            raise InputError(
                f"view {name!r} has no variance: all its rows are equal, so that nothing is left "
                "of it once the mean is taken off; drop the view or use center=False"
            )
        views.append(made)
    return replace(pool, views=tuple(views), centered=True)


def _centered(pool: Pool, name: str, view: View) -> View:
    if view.absent is not None and type(view) not in (DenseView, SparseView):
        raise UnsupportedError(
            f"view {name!r} is a {type(view).__name__}, which cannot be centred where rows are "
            "left out; hand in its rows, or use center=False"
        )
    if isinstance(view, KernelView):
        return view.centered(name)
    if isinstance(view, DiagonalView):  # as the sparse rows that it stands for
        return _centered(pool, name, SparseView(view.data)._with(eps=_own_ridge(name, view)))
    if isinstance(view, SparseView):
        return _centered_sparse(name, view)
    if isinstance(view, SumView):
        return _centered_sum(pool, name, view)
    if type(view) is not DenseView:
        return _centered_rows(pool, name, view)
    usual = float(view.raw_squared_norms().sum() / _count(view))
    found = view.centered(Center(_mean(pool, name, view), _ROUNDING**2 * usual))
    return measured_in_files(name, found, pool.engine)


def _centered_rows(pool: Pool, name: str, view: View) -> View:
    """Somebody else's view: its rows are what counts, and no other answer of its own."""
    usual = float(view.raw_squared_norms().mean())
    center = Center(_mean(pool, name, view), _ROUNDING**2 * usual)
    return view._given_to(OwnRows(view, center), np.arange(view.n))


def _count(view: View) -> int:
    """How many rows a view has, but for those that lack it."""
    return view.n if view.absent is None else int(view.n - view.absent.sum())


def _mean(pool: Pool, name: str, view: Any) -> Floats:
    """(p,) in float64. Sums are of differences to the first row: they are exact where all rows are
    equal, and keep the digits of rows that are far from zero beside their spread."""
    first = 0 if view.absent is None else int(np.argmin(view.absent))
    origin: Floats = np.asarray(view.raw_rows(np.array([first])), dtype=np.float64)[0]
    dense = type(view) is DenseView
    if dense and isinstance(view.data, TensorRows):
        kept = None if view.absent is None else np.flatnonzero(~view.absent)
        data = view.data if kept is None else view.data.part(kept)
        return np.asarray(origin + data.column_sums(origin) / _count(view))
    # By blocks of the host in any case, and by those of the workers, which have the same rows.
    engine = pool.engine if pool.engine.remote and view.in_file else LocalEngine()
    unread = view._with(_there=None) if dense else OwnRows(view, None)
    source = Pool((name,), (unread._with(single=False, array_anchors=False),), engine)
    absent = () if view.absent is None else (view.absent,)
    total = source.reduce(_sum_rows, operator.add, origin, *absent, fixed=True)
    return np.asarray(origin + total / _count(view))


def _sum_rows(block: Block, origin: Floats, *absent: Any) -> Floats:
    (rows,) = block.views
    assert isinstance(rows, DenseBlock)
    kept = rows.data[~absent[0]] if absent and absent[0].any() else rows.data
    return column_sums(kept, origin)


class OwnRows(View):
    """The rows of somebody else's view, less their mean where there is a center."""

    def __init__(self, view: View, center: Center | None) -> None:
        self._own, self._center = view, center
        self.n, self.p, self.eps = view.n, view.p, view.eps

    def raw_rows(self, rows: Indices | slice) -> Any:
        found = self._own.raw_rows(rows)
        return found if self._center is None else self.place.less(found, self._center.mean)

    def raw_squared_norms(self) -> Floats:
        norms, center = super().raw_squared_norms(), self._center
        return norms if center is None else np.where(norms > center.least, norms, 0.0)

    def numbers_at(self, indices: Indices) -> Any:
        return self._own.numbers_at(indices)


def _centered_sum(pool: Pool, name: str, view: SumView) -> View:
    """The sum of the centred parts."""
    if any(part.scale is not None for part in view.parts):
        raise UnsupportedError(
            f"view {name!r} is a sum of views that were scaled before it is centred; hand in the "
            "views as they are"
        )
    parts = tuple(_centered(pool, name, part) for part in view.parts)
    return view._given_to(SumView(parts, view.weights), np.arange(view.n))


# --- sparse rows ---------------------------------------------------------------------------------


def _centered_sparse(name: str, view: SparseView) -> View:
    mean = np.zeros(view.p)
    for chunk in _chunks(view):
        rows = view.raw_rows(chunk).astype(np.float64)
        kept = rows if view.absent is None else rows[np.flatnonzero(~view.absent[chunk])]
        mean += kept.sum(axis=0)
    mean /= _count(view)
    products = np.concatenate([view.raw_rows(c).astype(np.float64) @ mean for c in _chunks(view)])
    given, mu = view.raw_squared_norms(), float(mean @ mean)
    norms = given - 2.0 * products + mu
    if view.absent is not None:
        norms[view.absent] = 0.0
    lost = np.flatnonzero(norms <= _CANCELLED * (given + mu))
    norms[lost] = 0.0
    lost = lost if view.absent is None else lost[~view.absent[lost]]
    _refuse_lost_digits(name, view, mean, lost)
    made = CenteredSparseView(view, mean, products, norms)._with(absent=view.absent)
    return made.scaled(None, 0.0)


def _refuse_lost_digits(name: str, view: SparseView, mean: Floats, lost: Indices) -> None:
    """Rows that nearly vanish beside their mean have to be the mean."""
    least = _ROUNDING * float(np.sqrt(view.raw_squared_norms().mean()))
    for row in lost:
        check_time()
        left = view.raw_rows(np.array([row])).toarray()[0] - mean
        if np.linalg.norm(left) > least:
            raise InputError(
                f"view {name!r} is sparse, and row {row} is so near to the mean of all rows that "
                "their difference would lose its digits in sparse products; hand in the view as a "
                "dense array (toarray), or use center=False"
            )


def _chunks(view: SparseView) -> list[slice]:
    """Some rows at a time: a copy of all values in float64 may be larger than the data."""
    size = max(1, view.n * _CHUNK_NUMBERS // max(1, view.stored))
    return [slice(start, min(start + size, view.n)) for start in range(0, view.n, size)]


def _own_ridge(name: str, view: DiagonalView) -> float:
    if view.ridge == 0:
        raise InputError(
            f"view {name!r}: with eps = 0 a kernel must be positive definite, which no centred one "
            "is; give it a positive eps"
        )
    return view.ridge
