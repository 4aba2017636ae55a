"""How every row of the pool responds to a subset, kept from swap to swap.

With B = L_S^-1 and K_i the kernel of row i with the set, swaps are scored from v_i = B K_i and
c_i = L_ii - K_i . v_i (DESIGN 3.4). Exchanging slot j changes B by two rank-one terms, so that v
and c follow from their old values and one new column of the kernel: O(n (p + k)) per view, where
making them anew costs O(n k (p + k)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fairnepv.engines import Block
from fairnepv.search.subset import Exchange, Subset
from fairnepv.search.ties import blur
from fairnepv.views.base import Floats

_MOST_NUMBERS = 1 << 27  # of a table: 1 GiB; a larger one is made anew in every pass, in blocks


class RowSource(NamedTuple):
    """Where a pass gets v (b, M, k) and c - eps (b, M) from: a table, or the rows themselves."""

    anchors: tuple[Any, ...]
    inverses: tuple[Floats, ...]
    eps: Floats

    def responses(
        self, block: Block, squared_norms: Floats, table: tuple[Floats, ...]
    ) -> tuple[Floats, Floats]:
        if table:
            return table[0], table[1]
        v = np.empty((block.stop - block.start, len(self.inverses), len(self.inverses[0])))
        c = np.empty(v.shape[:2])
        for q, (view, B) in enumerate(zip(block.views, self.inverses, strict=True)):
            K = view.cross(self.anchors[q])  # (b, k)
            np.matmul(K, B, out=v[:, q])
            explained = np.einsum("ij,ij->i", K, v[:, q])
            c[:, q] = np.maximum(squared_norms[:, q] - explained, 0.0) + self.eps[q]
        return v, c


@dataclass(frozen=True)
class SwapTable:
    subset: Subset
    source: RowSource
    aligned: tuple[
        Floats, ...
    ]  # v (n, M, k) and c (n, M), or nothing where they would be too large

    @classmethod
    def of(cls, subset: Subset, *, keep: bool = True) -> SwapTable:
        """Kept where it is not too large; who looks only once need not keep it."""
        pool, size = subset.problem.pool, len(subset.indices)
        anchors = tuple(view.anchor(subset.indices) for view in pool.views)
        source = RowSource(anchors, subset.inverses, pool.eps)
        width = len(pool.views) * size
        if not keep or pool.n * width > _MOST_NUMBERS:
            return cls(subset, source, ())
        joined = pool.map(_respond, source, pool.squared_norms, width=2 * width, fixed=True)
        return cls(subset, source, _parts(joined, len(pool.views)))

    def after(self, moves: Sequence[Exchange]) -> SwapTable:
        """The table of the set after these swaps."""
        subset = self.subset
        problem, size = subset.problem, len(subset.indices)
        # Rounding grows from update to update, by the square of what a small ridge magnifies.
        few = len(moves) * 4 <= size and blur(problem, size) <= problem.tolerances.gain
        if not (few and self.aligned):
            for move in moves:
                subset = subset.exchange(move)
            return SwapTable.of(Subset.of(problem, subset.indices)) if moves else self
        table = self
        for move in moves:
            table = table._exchanged(move)
        return table

    def _exchanged(self, move: Exchange) -> SwapTable:
        pool = self.subset.problem.pool
        row = np.array([move.row], dtype=np.int64)
        state = _Update(
            tuple(view.anchor(row) for view in pool.views),
            tuple(view.inner(row, self.subset.indices)[0] for view in pool.views),
            self.subset.inverses,
            move.slot,
            tuple(u for _, u, _ in move.updates),
            tuple(s for _, _, s in move.updates),
            pool.eps,
        )
        joined = pool.map(
            _update_responses, state, *self.aligned, width=2 * self.aligned[0][0].size, fixed=True
        )
        after = self.subset.exchange(move)
        return SwapTable(after, self.source, _parts(joined, len(pool.views)))


class _Update(NamedTuple):
    anchors: tuple[Any, ...]  # of the row that comes in
    kernels: tuple[Floats, ...]  # its kernel with the set
    inverses: tuple[Floats, ...]
    slot: int
    directions: tuple[Floats, ...]  # u: the new inverse is B_- + u u^T / s
    scales: tuple[float, ...]
    eps: Floats


def _respond(block: Block, source: RowSource, squared_norms: Floats) -> Floats:
    v, c = source.responses(block, squared_norms, ())
    return np.concatenate([v.reshape(len(v), -1), c], axis=1)


def _update_responses(block: Block, state: _Update, v: Floats, c: Floats) -> Floats:
    """v and c after an exchange.

    Without slot j the inverse is B_- = B - b b^T / B_jj, b its column: v_- = v - (v_j / B_jj) b,
    and c grows by v_j^2 / B_jj. With the new row i: t = K_- u - K_i, v = v_- + t u^T / s, and c
    falls by t^2 / s.
    """
    views, size = v.shape[1], v.shape[2]
    joined = np.empty((len(v), views * (size + 1)))
    for q, view in enumerate(block.views):
        B, u, s = state.inverses[q], state.directions[q], state.scales[q]
        pivot = B[state.slot, state.slot]
        gone = v[:, q, state.slot] / pivot
        out = joined[:, q * size : (q + 1) * size]
        np.subtract(v[:, q], gone[:, None] * B[state.slot], out=out)
        t = out @ state.kernels[q] - view.cross(state.anchors[q])[:, 0]
        out += t[:, None] * (u / s)
        out[:, state.slot] = -t / s  # exactly, where the subtraction left rounding
        grown = c[:, q] + gone**2 * pivot - t**2 / s
        joined[:, views * size + q] = np.maximum(grown, state.eps[q])
    return joined


def _parts(joined: Floats, views: int) -> tuple[Floats, Floats]:
    n, width = joined.shape
    v = joined[:, : width - views].reshape(n, views, -1)
    return v, joined[:, width - views :]
