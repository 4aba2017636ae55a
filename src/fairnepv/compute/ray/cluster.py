"""Ray: blocks are worked on by processes of one machine or of many, and the answer is the same.

A pass is cut into the blocks that the local engine would make. A Ray task works on a run of
consecutive blocks; of a reduction it folds a whole subtree of the fixed tree. So results are those
of the local engine, bit for bit, for any number of workers and when some of them die. Rows in
files are read by the worker that needs them; arrays go to Ray's object store once.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fairnepv.compute.base import Array, R, Source, tree_fold
from fairnepv.compute.local import BLOCK_NUMBERS, LocalEngine
from fairnepv.compute.ray.freight import Slices, owned, pack
from fairnepv.compute.ray.session import Session, join, launch
from fairnepv.compute.ray.worker import Failure, Order, work, work_apart, work_folding

_RUNS = 8  # Ray tasks of a pass per worker: the last one to end keeps the others waiting for little
_LARGE_SUM = 1 << 21  # numbers; a worker makes a partial sum of so many once in a pass,
_FOLDED = 8  # and that many become one before the driver sees them: a power of two
_RUN_BYTES = 1 << 28  # of the results of one task, which are in memory twice for a moment
_GPU_BLOCK = 1 << 24  # numbers of a block that a GPU takes longer for than to be told of it
_GATHERED = 1 << 16  # rows; fewer are gathered where the driver is, in less time than a task takes


@dataclass(frozen=True)
class RayEngine:
    """Make one with `RayEngine.local` or `RayEngine.connect`.

    `blocks` says what the blocks are; passes of a single block, and those over few gathered rows,
    it carries out itself. With a `device`, "cuda" or "cpu", portable tasks compute with PyTorch in
    the workers; each then has a GPU to itself.
    """

    session: Session
    blocks: LocalEngine = field(default_factory=LocalEngine)
    device: str | None = None
    remote: ClassVar[bool] = True  # who has rows in files should leave it to workers to read them

    @classmethod
    def local(cls, workers: int | None = None, device: str | None = None) -> RayEngine:
        """Of a cluster that is started here, on the loopback interface, with so many workers (by
        default one for each core); it ends with this process, or with `close`."""
        return cls(launch(workers, device), _blocks_for(device), device)

    @classmethod
    def connect(cls, address: str = "auto", device: str | None = None) -> RayEngine:
        """Of a cluster that is there: "ray://HOST:PORT", or "auto" for that of this machine."""
        return cls(join(address, device), _blocks_for(device), device)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self.session.close()

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        n = source.n if rows is None else len(rows)
        size = self.blocks.rows_of_pass(source, width, fixed, rows)
        if n <= size or (rows is not None and n < _GATHERED):
            return self.blocks.map(
                task, source, state, *aligned, width=width, fixed=fixed, rows=rows, out=out
            )
        count = -(-n // size)
        few = _RUN_BYTES // (8 * size * max(1, source.row_width, width))
        run = max(1, min(-(-count // (_RUNS * self._workers_for(task))), few))
        jobs = self._jobs(task, None, source, state, aligned, size, run * size, rows)
        start = 0
        for result in self._in_order(jobs):
            if out is None:
                out = np.empty((n, *result.shape[1:]), dtype=result.dtype)
            out[start : start + len(result)] = result
            start += len(result)
        assert out is not None, "a pass has at least one row"
        return out

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
        size = self.blocks.rows_of_block(source, width, fixed, total)
        count = -(-source.n // size)
        if count == 1:
            return self.blocks.reduce(
                task, combine, source, state, *aligned, width=width, total=total, fixed=fixed
            )
        # A power of two, so that what a task folds is a subtree of the tree over all blocks.
        tasks = self._workers_for(task) * (_RUNS if total < _LARGE_SUM else 1)
        run = 1 << max(0, (count // tasks).bit_length() - 1)
        jobs = self._jobs(task, combine, source, state, aligned, size, run * size, None)
        if total >= _LARGE_SUM:
            jobs = self._folded(jobs, combine)
        folded: R = tree_fold(map(owned, self._in_order(jobs)), combine)
        return folded

    def _folded(self, jobs: Iterator[Any], combine: Callable[[Any, Any], Any]) -> Iterator[Any]:
        """Promises of what a worker makes of several partial results."""
        packed = self.session.put(pack(combine))
        while group := tuple(itertools.islice(jobs, _FOLDED)):
            yield self.session.submit(work_folding, False, packed, *group)

    def each(self, task: Callable[..., R], source: Source, states: Iterable[Any]) -> Iterator[R]:
        """The results of `task(source, state)` in order, by one worker each, which has the blocks
        of this engine and one thread."""
        self.session.check()
        packed = self.session.freight.packed(source)
        jobs = (
            self.session.submit(
                work_apart,
                False,
                pack((task, state, self.blocks)),
                packed.key,
                packed.blob,
                *packed.arrays,
            )
            for state in states
        )
        yield from self._in_order(jobs)

    def rows_of_block(self, source: Source, width: int, fixed: bool = False, total: int = 0) -> int:
        return self.blocks.rows_of_block(source, width, fixed, total)

    def _device_of(self, task: Callable[..., Any]) -> str | None:
        """Where workers compute this task; what is made for NumPy alone gains nothing elsewhere."""
        return self.device if getattr(task, "portable", False) else None

    def _workers_for(self, task: Callable[..., Any]) -> int:
        session = self.session
        return session.gpus if self._device_of(task) == "cuda" else session.workers

    def _jobs(
        self,
        task: Callable[..., Any],
        combine: Callable[[Any, Any], Any] | None,
        source: Source,
        state: Any,
        aligned: tuple[Array, ...],
        size: int,
        stretch: int,
        rows: Array | None,
    ) -> Iterator[Any]:
        """Promises of what the task makes of one stretch of rows after the other, each begun when
        it is asked for."""
        self.session.check()
        n = source.n if rows is None else len(rows)
        packed = self.session.freight.packed(source)
        slices = Slices(aligned)
        device = self._device_of(task)
        order = self.session.put(pack(Order(task, combine, state, size, slices.layouts, device)))
        for start in range(0, n, stretch):
            stop = min(start + stretch, n)
            yield self.session.submit(
                work,
                device == "cuda",
                order,
                (start, stop),
                slices.cut(start, stop),
                None if rows is None else rows[start:stop],
                packed.key,
                packed.blob,
                *packed.arrays,
            )

    def _in_order(self, jobs: Iterator[Any]) -> Iterator[Any]:
        """Results in order; the workers have something to do while one of them is waited for."""
        ahead: deque[Any] = deque()
        most = 2 * self.session.workers + 1
        try:
            for job in jobs:
                ahead.append(job)
                if len(ahead) >= most:
                    yield self._first(ahead)
            while ahead:
                yield self._first(ahead)
        finally:
            for job in ahead:  # after an error or an interruption
                self.session.cancel(job)

    def _first(self, ahead: deque[Any]) -> Any:
        """The result that is next; until it is there, its job is one of those to be cancelled."""
        result = self.session.get(ahead[0])
        ahead.popleft()
        if isinstance(result, Failure):
            raise result.error
        return result


def _blocks_for(device: str | None) -> LocalEngine:
    return LocalEngine(block_numbers=_GPU_BLOCK if device == "cuda" else BLOCK_NUMBERS)
