"""Second moments G = sum_t w_t phi_t phi_t^T of a view over the pool: what picks should explain.

Kernel entries of second order are K2 = K diag(w) K = Phi G Phi^T. G is held where a view has few
columns; of a wider one it acts through the rows, or through a sample of them that is stated.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairnepv.compute import HOST, Block, Place, portable
from fairnepv.compute.clock import check_time
from fairnepv.errors import InputError

if TYPE_CHECKING:
    from fairnepv.views.base import Floats, Indices, View
    from fairnepv.views.pool import Pool

WIDEST_MOMENTS = 4096  # columns of a view whose G is held: 128 MiB
TARGETS = 20_000  # rows of a wider view up to which all of them count
SAMPLE = 4096  # and so many are drawn of more
_CHUNK = 1024  # rows that G acts through at a time
_SMALLEST, _LARGEST = 1e-260, 1e290  # kernel entries of second order, with digits to spare


@dataclass(frozen=True, eq=False)
class Moments:
    """`apply` multiplies columns in the feature space by G."""

    trace: float  # tr G = sum_t w_t K_tt
    gram: Any = None  # (p, p) G, at the place of the view's blocks
    targets: Any = None  # or rows (m, p) of the host, dense or CSR, times the root of their weights
    sampled: int | None = None  # so many of the rows, where these are not all
    norms: Any = None  # (n,) diagonal of K2, once `second_norms` has made it

    def apply(self, Y: Any, place: Place) -> Any:
        """G Y, (p, m), at the place where Y is."""
        if self.gram is not None:
            return place.put(self.gram) @ Y
        here, total = place.get(Y), np.zeros(Y.shape)
        for start in range(0, self.targets.shape[0], _CHUNK):
            check_time()
            part = self.targets[start : start + _CHUNK]
            total += part.T @ np.asarray(part @ here)
        return place.put(total)

    def take(self, rows: Indices) -> Moments:
        """The same moments beside some of the rows: what is to be explained stays the pool."""
        return replace(self, norms=None if self.norms is None else self.norms[rows])


def with_moments(pool: Pool, weights: Any = None) -> Pool:
    """The pool with moments of every view that has none; `weights` (n,) of the rows by view name,
    or None for ones. One pass over the rows for all views whose G is held."""
    missing = [name for name, view in pool.items() if view.moments is None]
    if not missing:
        return pool
    views = {name: view.as_features() for name, view in pool.items()}
    narrow = {name: views[name] for name in missing if views[name].p <= WIDEST_MOMENTS}
    grams = _grams(pool.with_views(tuple(narrow), tuple(narrow.values())), weights)
    for name in missing:
        own = None if weights is None else weights[name]
        made = _held(grams[name]) if name in grams else _through_rows(views[name], own)
        _check_size(name, views[name], made.trace)
        views[name] = views[name]._with(moments=made)
    return replace(pool, views=tuple(views.values()))


def _check_size(name: str, view: View, trace: float) -> None:
    """Kernel entries of second order are the squares of squared norms: the trace has their usual
    size, and with it the longest row the largest."""
    usual, largest = trace * trace, trace * float(view.largest_norms(1)[0])
    if not trace > 0.0:  # nothing to explain, which is for others to say
        return
    if not (usual > _SMALLEST and largest < _LARGEST):
        change = "multiply" if largest < 1.0 else "divide"
        raise InputError(
            f"view {name!r} has values whose second moments float64 cannot compute with; {change} "
            "the view by a constant, or use calibration 'trace' or 'unit-diagonal'"
        )


def second_norms_left(pool: Pool) -> float:
    """Multiply-adds of the second norms that are not known yet."""
    own = [(view.moments, view.p) for view in pool.views]
    sides = [
        p * (p if moments.gram is not None else moments.targets.shape[0])
        for moments, p in own
        if moments is not None and moments.norms is None
    ]
    return float(pool.n) * sum(sides)


def second_norms(pool: Pool) -> Floats:
    """(n, M) diagonals of K2: a pass over the rows of every view, kept with its moments."""
    for name, view in pool.items():
        own, alone = view.moments, pool.only(name)
        if own.norms is None:
            if own.gram is not None:
                found = alone.map(_held_norms, own.gram, width=2 * view.p, fixed=True)
            else:
                width = 2 * own.targets.shape[0]
                found = alone.map(_target_norms, own.targets, width=width, fixed=True)
            vars(own)["norms"] = np.asarray(pool.place.get(found))
    return np.stack([view.moments.norms for view in pool.views], axis=1)


def second_shares(pool: Pool) -> Floats:
    """(n, M) the same over tr G of every view, so that gains come out as shares."""
    traces = np.array([view.moments.trace for view in pool.views])
    return np.asarray(second_norms(pool) / traces)


def second_shares_at(pool: Pool, rows: Indices) -> Floats:
    """(m, M) the same of few rows, without a pass over all."""
    own = [view.moments for view in pool.views]
    if any(moments.norms is None for moments in own):
        return second_shares(pool.take(rows, there=True))
    return np.stack([moments.norms[rows] / moments.trace for moments in own], axis=1)


def columns_of(view: View, indices: Indices) -> Any:
    """(p, m) features of few rows as columns, dense, at the place of the view's blocks."""
    if view.array_anchors:
        return view.anchor(indices).T
    rows = view.rows(indices)
    rows = rows.toarray() if hasattr(rows, "toarray") else rows
    return view.block_place.put(np.ascontiguousarray(rows.T))


def second_inner(view: View, left: Indices, right: Indices) -> Floats:
    """K2[left, right]."""
    if view.moments.gram is None:
        return target_products(view, left) @ target_products(view, right).T
    place = view.block_place
    Y = view.moments.apply(columns_of(view, right), place)
    found: Floats = place.get(columns_of(view, left).T @ Y)
    return found


def target_products(view: View, rows: Indices) -> Floats:
    """(m, t) products of few rows with the targets that G acts through, some at a time."""
    targets = view.moments.targets
    products = np.empty((len(rows), targets.shape[0]))
    for start in range(0, len(rows), _CHUNK):
        check_time()
        some = slice(start, start + _CHUNK)
        products[some] = HOST.dense(view.rows(rows[some]) @ targets.T)
    return products


def _held(gram: Any) -> Moments:
    return Moments(float(gram.trace()), gram=gram)


def _grams(pool: Pool, weights: Any) -> dict[str, Any]:
    """G of all views, (p, p) each, where their blocks are; of none, if there are none."""
    if not pool.names:
        return {}
    aligned = () if weights is None else (np.stack([weights[n] for n in pool.names], axis=1),)
    found = pool.reduce(_block_moments, operator.add, None, *aligned, width=pool.width, fixed=True)
    ends = np.cumsum([0, *(view.p**2 for view in pool.views)])
    return {
        name: found[ends[q] : ends[q + 1]].reshape(view.p, view.p)
        for q, (name, view) in enumerate(pool.items())
    }


def _through_rows(view: View, weights: Floats | None) -> Moments:
    """All rows, or a sample of them: every one that is drawn stands for as many."""
    rows, sampled = np.arange(view.n), None
    if view.n > TARGETS:
        rng = np.random.default_rng(0)  # the same whatever the random state of a search
        rows, sampled = np.sort(rng.choice(view.n, SAMPLE, replace=False)), SAMPLE
    own = np.ones(len(rows)) if weights is None else weights[rows]
    own = own * (view.n / len(rows))
    targets = view.rows(rows)
    roots = np.sqrt(own)[:, None]
    targets = targets.multiply(roots).tocsr() if hasattr(targets, "tocsr") else targets * roots
    trace = float(own @ view.squared_norms_at(rows))
    return Moments(trace, targets=targets, sampled=sampled)


@portable
def _block_moments(block: Block, state: None, *weights: Any) -> Any:
    """G of every view on these rows, one after the other in one array."""
    found = []
    for q, view in enumerate(block.views):
        X = block.place.dense(view.features())
        weighed = X * weights[0][:, q : q + 1] if weights else X
        found.append((weighed.T @ X).reshape(-1))
    return block.xp.concat(found)


@portable
def _held_norms(block: Block, gram: Any) -> Any:
    (view,) = block.views
    X = block.place.dense(view.features())
    return (X * (X @ block.put(gram))).sum(axis=1)


def _target_norms(block: Block, targets: Any) -> Floats:
    (view,) = block.views
    products = view.features() @ targets.T
    return np.asarray(HOST.square_sums(HOST.dense(products)))
