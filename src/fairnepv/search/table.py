"""How every row of the pool responds to a subset: v_i = B K_i and c_i = L_ii - K_i . v_i.

All swaps are scored from these (docs/method.md#swaps). After a swap they are
updated, O(n (p + k)) per view, where making them anew costs O(n k (p + k)). Where the ridge allows
it a table is in float32: it says which rows are worth a closer look in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute import HOST, Block, Place, portable
from fairnepv.objective import Standing
from fairnepv.problem import Problem
from fairnepv.search.promises import Promises
from fairnepv.search.subset import Exchange, Inverse, InverseChange, Spectral, Subset
from fairnepv.search.ties import blur, coarse_error, worth_coarse
from fairnepv.views import Pool
from fairnepv.views.base import SURE, Floats, Indices

_OLDEST = 64  # swaps after which a table in float32 is made anew
_UPDATE = 12.0  # an update moves memory and does not multiply: so much longer per multiply-add


class RowSource(NamedTuple):
    """Where a pass gets v (b, M, k) and c (b, M) from."""

    anchors: tuple[Any, ...]
    factors: tuple[Inverse | Spectral, ...]
    eps: Floats
    coarse: bool

    @classmethod
    def of(cls, subset: Subset, *, coarse: bool) -> RowSource:
        pool, factors = subset.problem.pool, subset.factors
        if coarse:
            factors = tuple(map(Inverse, _as_kind(pool, subset.inverses, coarse)))
        return cls(subset.anchors, factors, pool.eps, coarse)

    def responses(self, block: Block, squared_norms: Any) -> tuple[Any, Any]:
        xp, rows, first = block.xp, block.stop - block.start, block.put(self.factors[0][0])
        like = {"dtype": first.dtype, "device": first.device}
        v = xp.empty((rows, len(self.factors), len(first)), **like)
        c = xp.empty((rows, len(self.factors)), **like)
        for q, (view, factor) in enumerate(zip(block.views, self.factors, strict=True)):
            left = factor.respond(block, view, self.anchors[q], squared_norms[:, q], v[:, q])
            c[:, q] = left + float(self.eps[q])
        return v, c


@dataclass(frozen=True)
class SwapTable:
    subset: Subset
    source: RowSource
    joined: Any  # (n, M (k + 1)) v and c of all rows, where these are; None if that is too large
    age: int = 0  # swaps since it was made

    @classmethod
    def of(cls, subset: Subset, *, keep: bool = True, out: Any = None) -> SwapTable:
        """The table is kept where it is not too large, and `keep` asks for it: for a single look it
        is not needed. `out` is the memory of a table that is given up."""
        pool, size = subset.problem.pool, len(subset.indices)
        source = RowSource.of(subset, coarse=worth_float32(subset.problem))
        width = len(pool.views) * size
        if not keep or pool.n * width > subset.problem.means.table:
            return cls(subset, source, None)
        joined = pool.map(
            _respond, source, pool.squared_norms, width=4 * width, fixed=True, out=out
        )
        return cls(subset, source, joined)

    @property
    def aligned(self) -> tuple[Any, ...]:
        """v (n, M, k) and c (n, M), or nothing."""
        return () if self.joined is None else _parts(self.joined, len(self.subset.inverses))

    @property
    def exact(self) -> SwapTable:
        """The table of the same set in float64, not kept."""
        return SwapTable(self.subset, RowSource.of(self.subset, coarse=False), None)

    @property
    def error(self) -> float:
        """How far a log-ratio may be off, for float32 or for a strained set."""
        if self.source.coarse:
            return (1 + self.age) * swap_error(self.subset.problem)
        return self.subset.swap_rounding

    def after(self, moves: Sequence[Exchange], *, reuse: bool = False) -> SwapTable:
        """The table of the set after these swaps; `reuse` gives up this one for its memory."""
        subset = self.subset
        if not moves:
            return self
        if self.joined is None or not self._worth_updating(len(moves)):
            return self._anew(moves, reuse)
        pool, updates = subset.problem.pool, []
        for move in moves:
            updates.append(_updates(pool, move, self.source.coarse))
            subset = subset.exchange(move)
            if subset.strained.any():
                return self._anew(moves, reuse)
        joined = pool.map(
            _update_responses,
            (tuple(updates), pool.eps),
            self.joined,
            width=4 * self.joined.shape[1],
            fixed=True,
            out=self.joined if reuse else None,
        )
        source = RowSource.of(subset, coarse=self.source.coarse)
        return SwapTable(subset, source, joined, self.age + len(moves))

    def _anew(self, moves: Sequence[Exchange], reuse: bool) -> SwapTable:
        indices = self.subset.indices.copy()
        for move in moves:
            indices[move.slot] = move.row
        anew = Subset.of(self.subset.problem, indices)
        return SwapTable.of(anew, out=self.joined if reuse else None)

    def _worth_updating(self, moves: int) -> bool:
        problem, k = self.subset.problem, len(self.subset.indices)
        # Rounding grows from update to update, by the square of what a small ridge magnifies.
        sound = self.source.coarse or blur(problem, k) <= problem.tolerances.gain
        sound &= not self.subset.strained.any()
        p = problem.pool.row_width / len(problem.pool.views)
        cheap = moves * _UPDATE * (p + 4 * k) <= k * (p + k) or moves * 4 <= k <= 50
        return sound and cheap and self.age + moves <= _OLDEST


class Look(NamedTuple):
    """The small state of a look at what every row promises."""

    standing: Standing
    pivots: NDArray[Any]  # (M, k)
    source: RowSource

    def promised(self, block: Block, squared_norms: Any) -> Any:
        """As `Promises` asks."""
        v, c = self.source.responses(block, squared_norms)
        return self.standing.rise(block, v, c, self.pivots)


def promises_of(problem: Problem, indices: Indices) -> Promises:
    subset, pool = Subset.of(problem, indices), problem.pool

    def look(coarse: bool) -> Look:
        pivots = subset.pivots.astype(np.float32 if coarse else np.float64)
        return Look(subset.standing, pivots, RowSource.of(subset, coarse=coarse))

    return Promises(look, (pool.squared_norms,), 4 * (len(pool.views) + 2) * len(indices))


def worth_float32(problem: Problem) -> bool:
    ridged = bool((problem.pool.eps > 0).all())  # or an inverse may be too large for float32
    return ridged and worth_coarse(problem, swap_error(problem))


def swap_error(problem: Problem) -> float:
    """How far the logarithm of a ratio c B_jj + v_j^2 may be off in a table of float32: v = B K
    magnifies what K is off by, at most by the inverse root of the ridge."""
    pool = problem.pool
    held = pool.eps > 0
    ratios = pool.largest_norms[held] / pool.eps[held]
    product = 2.0 * SURE * math.sqrt(problem.k) * 2.0**-24 * float(ratios.max(initial=0.0))
    magnified = 1.0 + math.sqrt(ratios.max(initial=0.0))
    return max(coarse_error(problem), product) * magnified


def _updates(pool: Pool, move: Exchange, coarse: bool) -> tuple[tuple[Any, ResponseChange], ...]:
    """What one exchange changes, by view, in the precision of the table; before it the anchor of
    the row that comes in."""
    row, found = np.array([move.row], dtype=np.int64), []
    for view, own in zip(pool.views, move.changes, strict=True):
        change = ResponseChange.of(own)
        kernel, column, step = _as_kind(pool, change[:3], coarse)
        change = change._replace(kernel=kernel, column=column, step=step)
        found.append((view.anchor(row), change))
    return tuple(found)


class ResponseChange(NamedTuple):
    """How an exchange changes the responses of rows in one view.

    Without slot j the inverse is B_- = B - b b^T / B_jj, b its column: v_- = v - (v_j / B_jj) b,
    and c grows by v_j^2 / B_jj. With the new row i: t = K_- u - K_i, v = v_- + t u^T / s, and c
    falls by t^2 / s.
    """

    kernel: Any  # (k,) of the row that comes, with the set
    column: Any  # (k,) b
    step: Any  # (k,) u / s
    slot: int
    pivot: float  # B_jj
    scale: float  # s

    @classmethod
    def of(cls, change: InverseChange) -> ResponseChange:
        step = change.direction / change.scale
        return cls(change.kernel, change.column, step, change.slot, change.pivot, change.scale)

    def apply(self, v: Any, c: Any, crossed: Any, place: Place = HOST) -> None:
        """v (b, k) and c (b,) after the exchange, in place; `crossed` (b,) is K with the row."""
        xp, column = place.xp, place.put(self.column)
        kernel, gone = place.put(self.kernel), v[:, self.slot] / self.pivot
        t = v @ kernel - gone * (column @ kernel) - crossed
        right = xp.stack([column, place.put(self.step)])
        place.add_product(v, xp.stack([-gone, t], axis=1), right)
        v[:, self.slot] = -t / self.scale  # exactly, where the sum left rounding
        c += gone**2 * self.pivot - t**2 / self.scale


def _as_kind(pool: Pool, arrays: Iterable[Any], coarse: bool) -> tuple[Any, ...]:
    """In the precision of a table."""
    xp = pool.place.xp
    kind = xp.float32 if coarse else xp.float64
    return tuple(xp.astype(x, kind, copy=False) for x in arrays)


@portable
def _respond(block: Block, source: RowSource, squared_norms: Any) -> Any:
    v, c = source.responses(block, squared_norms)
    return block.xp.concat([v.reshape(len(v), -1), c], axis=1)


@portable
def _update_responses(block: Block, state: tuple[tuple[Any, ...], Floats], joined: Any) -> Any:
    """v and c after some exchanges."""
    updates, eps = state
    xp = block.xp
    joined = xp.asarray(joined, copy=True)
    v, c = _parts(joined, len(block.views))
    coarse = joined.dtype == xp.float32
    for q, view in enumerate(block.views):
        for anchor, change in (by_view[q] for by_view in updates):
            K = view.coarse(anchor) if coarse else view.cross(anchor)
            change.apply(v[:, q], c[:, q], xp.astype(K[:, 0], v.dtype, copy=False), block.place)
            c[:, q] = c[:, q].clip(float(eps[q]))
    return joined


def _parts(joined: Any, views: int) -> tuple[Any, Any]:
    n, width = joined.shape
    v = joined[:, : width - views].reshape(n, views, -1)
    return v, joined[:, width - views :]
