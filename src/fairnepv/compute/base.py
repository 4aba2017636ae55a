"""The block map-reduce seam: everything that touches n rows goes through here.

A *task* is a pure function of (aligned row block, small replicated state, aligned slices of row
arrays). An engine calls it on consecutive blocks and either lays the results end to end (`map`)
or combines them (`reduce`) along a fixed binary tree over the block numbers, so that the result
depends on the partition into blocks and on nothing else: not on threads, workers or their order.
With `fixed=True` the partition itself is canonical, a function of the source alone: what is summed
or multiplied there comes out the same to the last bit at any block size. A pass may also go over
some rows only (`rows`), which are gathered.
Tasks are module-level functions and their states plain records, so that they travel to workers.

A task that is `portable` computes where the engine keeps the rows: it takes its functions from
`block.xp`, brings small arrays there by `block.put` and what it makes for the host back by
`block.get`; with NumPy all of these do nothing. Other tasks see NumPy arrays on any engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from fairnepv.compute.place import HOST as HOST
from fairnepv.compute.place import Place as Place

R = TypeVar("R")
Task = TypeVar("Task", bound=Callable[..., Any])
Array = NDArray[Any]


def portable(task: Task) -> Task:
    """Mark a task that asks its block for functions and never NumPy itself."""
    task.portable = True  # type: ignore[attr-defined]
    return task


class RowBlock(Protocol):
    """Consecutive rows of one view; what a task may ask of them."""

    place: Place = HOST  # where the answers are

    def features(self) -> Any:
        """The calibrated rows, (b, p) float64: an array, or CSR for a sparse view."""
        ...

    def squared_norms(self) -> Array:
        """(b,) diagonal of the kernel on these rows, ridge excluded."""
        ...

    def cross(self, anchor: Any) -> Array:
        """(b, m) kernel between these rows and `View.anchor(...)`, ridge excluded."""
        ...

    def coarse(self, anchor: Any) -> Array:
        """`cross` in float32 where that is quicker, good to `View.coarse_error`."""
        return self.cross(anchor)


@dataclass(frozen=True)
class Block:
    """The same consecutive rows `start:stop` of every view of a pool, or of the rows gathered."""

    start: int
    stop: int
    views: tuple[RowBlock, ...]
    place: Place = HOST

    @property
    def xp(self) -> Any:
        """The array functions of the place where these rows are."""
        return self.place.xp

    def put(self, array: Any) -> Any:
        return self.place.put(array)

    def get(self, array: Any) -> Any:
        return self.place.get(array)


class Source(Protocol):
    """Where blocks come from: a pool."""

    @property
    def n(self) -> int: ...

    @property
    def row_width(self) -> int:
        """How many numbers one row holds over all views, for choosing a block size."""
        ...

    def block(self, start: int, stop: int) -> Block: ...

    def gather(self, rows: Array, start: int, stop: int) -> Block:
        """Rows `rows[start:stop]` as a block."""
        ...

    def lean(self) -> Source:
        """The same for a worker: without the engine, and whatever no block needs."""
        ...

    def settled(self, engine: Any) -> Source:
        """The same for another engine: rows lie where that one computes."""
        ...


class Engine(Protocol):
    """One that computes elsewhere has a `place` besides: `xp`, `put` and `get`, as `Host` has.

    One with processes to work for it has `each(task, source, states)`, the results of
    `task(source, state)` in order: for work that is larger than a pass, and independent.
    """

    def map(
        self,
        task: Callable[..., Array],
        source: Source,
        state: Any,
        *aligned: Array,
        width: int = 0,
        fixed: bool = False,
        rows: Array | None = None,
        out: Array | None = None,
    ) -> Array:
        """Row-aligned results of `task(block, state, *slices)`, in row order, or in that of `rows`.

        `width` says how many numbers the task makes of each row, where that is more than the
        row itself holds; with it an engine keeps the memory of a block in bounds. Results go to
        `out` where it is given, which may be one of the aligned arrays.
        """
        ...

    def reduce(
        self,
        task: Callable[..., R],
        combine: Callable[[R, R], R],
        source: Source,
        state: Any,
        *aligned: Array,
        width: int = 0,
        total: int = 0,
        fixed: bool = False,
    ) -> R:
        """Results of `task(block, state, *slices)` combined by `tree_fold`.

        `total` says how many numbers one result holds, where that is more than a block does; with
        it an engine makes blocks so large that adding results up is not what takes the time.
        """
        ...


def tree_fold(results: Iterable[R], combine: Callable[[R, R], R]) -> R:
    """Combine results along a binary tree over their positions, keeping O(log) of them alive.

    The shape of the tree depends on the number of results alone, and neighbours meet in row
    order. As a sum it is pairwise summation, which also keeps rounding errors small.
    """
    pending: list[tuple[int, R]] = []  # (level, partial result), levels strictly decreasing
    for result in results:
        level = 0
        while pending and pending[-1][0] == level:
            result = combine(pending.pop()[1], result)
            level += 1
        pending.append((level, result))
    if not pending:
        raise ValueError("a pool has at least one block")
    _, total = pending.pop()
    while pending:
        total = combine(pending.pop()[1], total)
    return total
