"""Cosines between the rows of a pool and a few of them: what coverage and neighbours are told by.

They come from the kernels without ridge, calibration and quality, which a cosine knows nothing of;
a zero row has cosine 0 with everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairnepv.compute import Block, RowBlock
from fairnepv.views.base import Floats, Indices
from fairnepv.views.blocks import inverse_norms
from fairnepv.views.imprint import changed
from fairnepv.views.pool import Pool

_ROUNDING = 1e-6  # by which a squared norm may differ from what it was at the edge


class Anchors(NamedTuple):
    """Small state of a pass: m rows, and the inverses of their norms (m, M)."""

    rows: Indices
    anchors: tuple[Any, ...]  # by view
    inverse: Floats

    def inside(self, block: Block) -> tuple[Indices, Indices]:
        """Where the rows lie in a block, and which of the m they are."""
        which = ((self.rows >= block.start) & (self.rows < block.stop)).nonzero()[0]
        return self.rows[which] - block.start, which


@dataclass(frozen=True)
class CosinePool:
    """`pool` has the bare views and `inverse` (n, M) goes with its passes as an aligned array."""

    pool: Pool
    inverse: Floats

    @classmethod
    def of(cls, pool: Pool) -> CosinePool:
        bare = pool.with_views(pool.names, tuple(view.scaled(None, 0.0) for view in pool.views))
        return cls(bare, inverse_norms(bare.squared_norms))

    def anchors(self, rows: Indices) -> Anchors:
        return Anchors(
            rows, tuple(view.anchor(rows) for view in self.pool.views), self.inverse[rows]
        )


def cosines(block: Block, anchors: Anchors, inverse: Floats) -> Iterator[Floats]:
    """(b, m) for one view after the other, so that only one of them is held at a time."""
    for q, (view, anchor) in enumerate(zip(block.views, anchors.anchors, strict=True)):
        _refuse_other_norms(view, inverse[:, q])
        yield view.cross(anchor) * inverse[:, q, None] * anchors.inverse[:, q]


def check_norms(pool: Pool) -> None:
    """The same look at all rows without cosines, for passes that would not notice; rows in files
    are held against what they were whenever they are read."""
    held = [(name, view) for name, view in pool.items() if not view.in_file]
    if held:
        names, views = zip(*held, strict=True)
        space = CosinePool.of(pool.with_views(names, views))
        space.pool.map(_check_lengths, None, space.inverse)


def _check_lengths(block: Block, state: None, inverse: Floats) -> Floats:
    for q, view in enumerate(block.views):
        _refuse_other_norms(view, inverse[:, q])
    return inverse[:, 0]


def _refuse_other_norms(rows: RowBlock, inverse: Floats) -> None:
    lengths = rows.squared_norms() * inverse**2
    if (abs(lengths - 1.0) > _ROUNDING)[inverse > 0].any():
        raise changed("the data")
