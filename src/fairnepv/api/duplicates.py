"""Near-duplicates of each other, of which one row is kept, and rows that lack a view: both are
ruled out as if the user had excluded them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fairnepv.api.tables import from_tables
from fairnepv.checks import check_share
from fairnepv.compute import Block, Engine, block_threads
from fairnepv.compute.clock import check_time
from fairnepv.errors import InputError
from fairnepv.loop import Progress, Step, check_progress
from fairnepv.options import default
from fairnepv.problem import Intake
from fairnepv.views import Pool
from fairnepv.views.base import Floats, Indices
from fairnepv.views.cosines import Anchors, CosinePool, cosines
from fairnepv.views.validity import rows_in_words

_ROUNDING = 1e-9  # of a cosine: what is at the threshold counts, at any block size
_AT_ONCE = 512  # rows that are held against all others in one pass
WITHIN = ("all", "any")


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Groups of rows that are near-duplicates of each other, or of others that are."""

    threshold: float
    within: str  # whether in 'all' views or in 'any'
    lowest: Indices  # (n,) the lowest row of the group of every row, itself where it has no other
    ids: NDArray[Any] | None = None  # of the rows, where they have some

    @property
    def kept(self) -> Indices:
        """The rows that are the lowest of their group, or alone."""
        return np.flatnonzero(self.lowest == np.arange(len(self.lowest)))

    @property
    def dropped(self) -> Indices:
        """The rows that are like a lower one of their group."""
        return np.flatnonzero(self.lowest != np.arange(len(self.lowest)))

    @property
    def groups(self) -> list[Indices]:
        """The rows of every group of two and more, in the order of their lowest rows."""
        order = np.argsort(self.lowest, kind="stable")
        ends = np.flatnonzero(np.diff(self.lowest[order])) + 1
        return [group for group in np.split(order, ends) if len(group) > 1]

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self.groups)

    def __repr__(self) -> str:
        return (
            f"<{len(self)} groups of near-duplicates: {len(self.dropped)} of {len(self.lowest)} "
            f"rows are like a lower one (cosine of {self.threshold:g} in {self.within} views)>"
        )


@from_tables
def near_duplicates(
    data: Any,
    threshold: float = 0.98,
    *,
    within: str = "all",
    views: Mapping[str, Any] | None = None,
    ids: Any = None,
    align: str = default("align"),
    missing: str = default("missing"),
    engine: Engine | str | None = None,
    progress: Progress | None = None,
) -> Duplicates:
    """Rows that are closer to each other than a cosine, in all views or in any, and rows that are
    linked by such: exactly, block by block.

    data, views, ids, align, missing, engine: as for `select`; a row that lacks a view is near
        nothing there.
    threshold: the cosine between rows as they are handed in, above 0 and up to 1.
    progress: called with a `Step` after every pass, of which each looks at 512 rows.

    Every row is compared with every other, in a time that grows with the square of their number.
    """
    least = check_share("threshold", threshold)
    if within not in WITHIN:
        raise InputError(f"within must be 'all' or 'any' (views), not {within!r}")
    listener = check_progress(progress)
    shapes: Any = {"views": views, "ids": ids, "align": align, "missing": missing}
    pool = Pool.of(data, engine=engine, **shapes)
    return Duplicates(least, within, lowest_alike(pool, least, within, listener), pool.ids)


def lowest_alike(
    pool: Pool, threshold: float, within: str, progress: Progress | None = None
) -> Indices:
    """(n,) for every row the lowest row of its group."""
    space, n, began = CosinePool.of(pool), pool.n, time.monotonic()
    links = np.empty((0, 2), dtype=np.int64)
    with block_threads(float(pool.stored) * _AT_ONCE):
        for start in range(0, n, _AT_ONCE):
            check_time()
            rows = np.arange(start, min(start + _AT_ONCE, n))
            state = (space.anchors(rows), threshold - _ROUNDING, within == "all")
            width = 4 * len(rows)
            found = space.pool.reduce(_near, _joined, state, space.inverse, width=width, fixed=True)
            links = np.concatenate([links, found])
            links = _forest(links) if len(links) > n else links
            if progress is not None:
                seen = {"rows": int(rows[-1]) + 1, "of": n}
                took = time.monotonic() - began
                progress(Step("duplicates", start // _AT_ONCE, 1, took, len(links), details=seen))
    return _lowest_linked(links, n)


def _near(block: Block, state: tuple[Anchors, float, bool], inverse: Floats) -> Indices:
    """(e, 2) links between rows of the block and earlier ones among the anchors."""
    anchors, least, everywhere = state
    if block.stop <= anchors.rows[0]:
        return np.empty((0, 2), dtype=np.int64)
    near: Any = None
    for cosine in cosines(block, anchors, inverse):
        here = cosine >= least
        near = here if near is None else (near & here if everywhere else near | here)
    at, which = near.nonzero()
    links = np.stack([at + block.start, anchors.rows[which]], axis=1)
    links = links[links[:, 0] > links[:, 1]]
    return _forest(links) if len(links) > block.stop - block.start else links


def _joined(one: Indices, other: Indices) -> Indices:
    return np.concatenate([one, other])


def _forest(links: Indices) -> Indices:
    """Fewer links that connect the same rows: each to the lowest of its group."""
    rows, ends = np.unique(links, return_inverse=True)
    lowest = rows[_lowest_linked(ends.reshape(links.shape), len(rows))]
    return np.asarray(np.stack([rows, lowest], axis=1)[rows != lowest])


def _lowest_linked(links: Indices, n: int) -> Indices:
    """(n,) for every row the lowest of all rows that links (e, 2) connect it with."""
    graph = sp.coo_array((np.ones(len(links), bool), (links[:, 0], links[:, 1])), shape=(n, n))
    _, group = connected_components(graph, directed=False)
    _, first = np.unique(group, return_index=True)  # groups by number, and the lowest row of each
    return np.asarray(first[group], dtype=np.int64)


# --- what a problem is told -----------------------------------------------------------------------


def taken_in(
    pool: Pool, options: Mapping[str, Any], included: Indices, excluded: Indices
) -> tuple[Intake, list[str]]:
    """Which rows may not be chosen as they lack a view or are like another, and what to tell the
    user of it. Of a group included rows are kept, else the lowest that may be chosen."""
    lost = np.empty(0, dtype=np.int64) if pool.dropped is None else pool.dropped
    if len(both := np.intersect1d(lost, included)):
        raise InputError(
            f"include names {_called(pool, both[0])}, which lacks a view and is left out; drop it "
            "from include, or use missing='neutral'"
        )
    threshold, alike, notes = options.get("deduplicate"), lost[:0], list(_missing_notes(pool))
    if threshold is not None:
        lowest = lowest_alike(pool, threshold, "all")
        closed = np.zeros(pool.n, dtype=bool)
        closed[excluded] = closed[lost] = True
        alike = _all_but_one(lowest, included, closed)
        notes.append(
            f"{len(alike)} of {pool.n} rows are near-duplicates (cosine of at least "
            f"{threshold:g} in every view) of a row that is kept, and may not be chosen"
        )
    ruled_out = np.union1d(lost, alike)
    return Intake(options.get("missing", default("missing")), threshold, ruled_out), notes


def check_left(intake: Intake, n: int, k: int, excluded: Indices) -> None:
    """Refuse sizes for which too few rows are left, by the names of what leaves them out."""
    left = n - len(np.union1d(excluded, intake.ruled_out))
    if left >= k or not len(intake.ruled_out):
        return  # what `exclude` alone leaves is told by the constraints
    causes = ["exclude"] if len(np.setdiff1d(excluded, intake.ruled_out)) else []
    causes += [f"missing={intake.missing!r}"] if intake.missing == "drop" else []
    causes += [] if intake.deduplicate is None else [f"deduplicate={intake.deduplicate:g}"]
    verb = "leave" if len(causes) > 1 else "leaves"
    raise InputError(
        f"k = {k}, but {' and '.join(causes)} {verb} only {left} of {n} items; lower k or leave "
        "out fewer rows"
    )


def _all_but_one(lowest: Indices, included: Indices, closed: NDArray[np.bool_]) -> Indices:
    """The rows of every group but for the one that is kept, and those that are closed anyhow."""
    n = len(lowest)
    taken = np.zeros(n, dtype=bool)
    taken[included] = True
    rank = np.where(taken, 0, np.where(closed, 2, 1)) * n + np.arange(n)  # the least is kept
    best = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(best, lowest, rank)
    return np.flatnonzero((best[lowest] != rank) & ~taken & ~closed)


def _missing_notes(pool: Pool) -> Iterator[str]:
    told = "; ".join(f"{name}: {rows_in_words(rows)}" for name, rows in pool.lacking.items())
    if pool.dropped is not None:
        yield f"{len(pool.dropped)} of {pool.n} rows lack a view and are left out ({told})"
    elif told:
        yield f"rows that lack a view add nothing in it ({told})"


def _called(pool: Pool, row: int) -> str:
    return f"row {row}" if pool.ids is None else f"id {pool.ids[row : row + 1].tolist()[0]!r}"
