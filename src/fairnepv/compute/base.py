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

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
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

    def coarse_features(self) -> Any:
        """`features` in float32 where that is quicker."""
        return self.features()

    def squared_norms(self) -> Array:
        """(b,) diagonal of the kernel on these rows, ridge excluded."""
        ...

    def cross(self, anchor: Any) -> Array:
        """(b, m) kernel between these rows and `View.anchor(...)`, ridge excluded."""
        ...

    def coarse(self, anchor: Any) -> Array:
        """`cross` in float32 where that is quicker, good to `View.coarse_error`."""
        return self.cross(anchor)

    def onto(self, columns: Any, coarse: bool = False) -> Array:
        """(b, m) products of these rows with columns (p, m) of their feature space, at `place`."""
        product: Array = self.features() @ columns
        return product

    def unscaled(self, anchor: Any, coarse: bool) -> tuple[Array, Array | None]:
        """`cross` or `coarse`, and (b, 1) scales of the rows that are still to be multiplied in,
        if any: a sum over the columns then has less to multiply."""
        return (self.coarse(anchor) if coarse else self.cross(anchor)), None


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


class RowSource(Protocol):
    """Where blocks of rows come from: a pool."""

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

    def lean(self) -> RowSource:
        """The same for a worker: without the engine, and whatever no block needs."""
        ...

    def settled(self, engine: Engine) -> RowSource:
        """The same for another engine: rows lie where that one computes."""
        ...


@dataclass(frozen=True)
class Pass:
    """One walk over rows: `task(block, state, *slices of aligned)` for every block of them.

    `width` says how many numbers the task makes of each row, where that is more than the row itself
    holds; with it an engine keeps the memory of a block in bounds. `total` says how many numbers
    one result of a reduction holds, where that is more than a block does; with it an engine makes
    blocks so large that adding results up is not what takes the time. With `fixed` the partition is
    the canonical one, and `rows` are those to be gathered, where not all are walked over.
    """

    task: Callable[..., Any]
    source: RowSource
    state: Any
    aligned: tuple[Array, ...] = ()
    width: int = 0
    total: int = 0
    fixed: bool = False
    rows: Array | None = None

    @property
    def n(self) -> int:
        """How many rows are walked over."""
        return self.source.n if self.rows is None else len(self.rows)

    @property
    def row_numbers(self) -> int:
        """How many numbers a row takes, or what is made of it."""
        return max(1, self.source.row_width, self.width)

    @property
    def portable(self) -> bool:
        return getattr(self.task, "portable", False)

    def count(self, size: int) -> int:
        """How many blocks of so many rows there are."""
        return -(-self.n // size)

    def spans(self, size: int) -> Iterator[tuple[int, int]]:
        """Where blocks of so many rows start and stop."""
        return ((start, min(start + size, self.n)) for start in range(0, self.n, size))

    def block(self, start: int, stop: int) -> Block:
        if self.rows is None:
            return self.source.block(start, stop)
        return self.source.gather(self.rows, start, stop)

    def slices(self, start: int, stop: int) -> list[Array]:
        return [x[start:stop] for x in self.aligned]

    def run(self, start: int, stop: int) -> Any:
        """What the task makes of one block."""
        return self.task(self.block(start, stop), self.state, *self.slices(start, stop))


@runtime_checkable
class Engine(Protocol):
    """What carries out passes over rows.

    A subclass must have `map` and `reduce`; what else there is suits one that computes with NumPy
    in this process.
    """

    place: Place = HOST  # where portable tasks compute, and their results are
    remote: ClassVar[bool] = False  # whether workers should read rows in files, not this process

    @abstractmethod
    def map(self, pass_: Pass, out: Array | None = None) -> Array:
        """Row-aligned results of the task, in the order of the rows. They go to `out` where it is
        given, which may be one of the aligned arrays."""
        ...

    @abstractmethod
    def reduce(self, pass_: Pass, combine: Callable[[R, R], R]) -> R:
        """Results of the task, combined by `tree_fold`."""
        ...

    def each(
        self, task: Callable[..., R], source: RowSource, states: Iterable[Any]
    ) -> Generator[R, None, None]:
        """The results of `task(source, state)` in order: for work that is larger than a pass, and
        independent. Workers may be ahead, each with a source and an engine of its own; to close
        this before all results are taken ends them."""
        return (task(source, state) for state in states)


def end_to_end(results: Iterable[Array], n: int, out: Array | None = None) -> Array:
    """The results of consecutive blocks as one array of n rows: `out`, where it is given."""
    start = 0
    for result in results:
        if out is None:
            out = np.empty((n, *result.shape[1:]), dtype=result.dtype)
        out[start : start + len(result)] = result
        start += len(result)
    assert out is not None, "a pass has at least one row"
    return out


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
