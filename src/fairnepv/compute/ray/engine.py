"""Ray: blocks are worked on by processes of one machine or of many, and the answer is the same.

A pass is cut into the blocks that the local engine would make. A Ray task works on a run of
consecutive blocks; of a reduction it folds a whole subtree of the fixed tree. So results are those
of the local engine, bit for bit, for any number of workers and when some of them die. Rows in
files are read by the worker that needs them; arrays go to Ray's object store once.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairnepv.compute.base import Array, Engine, Pass, R, RowSource, end_to_end, tree_fold
from fairnepv.compute.clock import OutOfTime, check_time, deadline_on_the_wall, left
from fairnepv.compute.local import BLOCK_NUMBERS, LocalEngine
from fairnepv.compute.ray.connection import ClusterConnection, out_of_memory
from fairnepv.compute.ray.join import join_cluster
from fairnepv.compute.ray.start import start_cluster
from fairnepv.compute.ray.transport import Slices, pack, writable
from fairnepv.compute.ray.worker import Failure, Order, work, work_apart, work_folding

_RUNS = 8  # Ray tasks of a pass per worker: the last one to end keeps the others waiting for little
_LARGE_SUM = 1 << 21  # numbers of a partial sum that a worker makes only once in a pass
_FOLDED = 8  # large partial sums that a worker adds up for the driver: a power of two
_RUN_BYTES = 1 << 28  # of the results of one task, which are in memory twice for a moment
_GPU_BLOCK = 1 << 24  # numbers of a block that a GPU takes longer for than to be told of it
_GATHERED = 1 << 16  # rows; fewer are gathered where the driver is, in less time than a task takes


@dataclass(frozen=True)
class RayEngine(Engine):
    """Make one with `RayEngine.local` or `RayEngine.connect`.

    `blocks` says what the blocks are; passes of a single block, and those over few gathered rows,
    it carries out itself. With a `device`, "cuda" or "cpu", portable tasks compute with PyTorch in
    the workers; each then has a GPU to itself.
    """

    connection: ClusterConnection
    blocks: LocalEngine = field(default_factory=LocalEngine)
    device: str | None = None
    remote: ClassVar[bool] = True

    @classmethod
    def local(cls, workers: int | None = None, device: str | None = None) -> RayEngine:
        """The engine of a cluster that is started here, on the loopback interface, with so many
        workers (by default one for each core); it ends with this process, or with `close`."""
        return cls(start_cluster(workers, device), _blocks_for(device), device)

    @classmethod
    def connect(cls, address: str = "auto", device: str | None = None) -> RayEngine:
        """The engine of a cluster that is there: "ray://HOST:PORT", or "auto" for that of this
        machine."""
        return cls(join_cluster(address, device), _blocks_for(device), device)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self.connection.close()

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def map(self, pass_: Pass, out: Array | None = None) -> Array:
        n, size = pass_.n, self.blocks.rows_of(pass_)
        if n <= size or (pass_.rows is not None and n < _GATHERED):
            return self.blocks.map(pass_, out)
        most = _RUN_BYTES // (8 * size * pass_.row_numbers)
        run = max(1, min(-(-pass_.count(size) // (_RUNS * self._workers_for(pass_))), most))
        return end_to_end(self._in_order(self._jobs(pass_, size, run)), n, out)

    def reduce(self, pass_: Pass, combine: Callable[[R, R], R]) -> R:
        size = self.blocks.rows_of(pass_)
        if pass_.n <= size:
            return self.blocks.reduce(pass_, combine)
        # A power of two, so that what a task folds is a subtree of the tree over all blocks.
        large = pass_.total >= _LARGE_SUM
        tasks = self._workers_for(pass_) * (1 if large else _RUNS)
        run = 1 << max(0, (pass_.count(size) // tasks).bit_length() - 1)
        jobs = self._jobs(pass_, size, run, combine)
        if large:
            jobs = self._folded(jobs, combine)
        folded: R = tree_fold(map(writable, self._in_order(jobs)), combine)
        return folded

    def each(
        self, task: Callable[..., R], source: RowSource, states: Iterable[Any]
    ) -> Generator[R, None, None]:
        """By one worker each, which has the blocks of this engine and one thread."""
        self.connection.check()
        sent = self.connection.sender.send(source)
        jobs = (
            self.connection.submit(work_apart, False, pack((task, state, self.blocks)), *sent)
            for state in states  # which have deadlines of their own
        )
        yield from self._in_order(jobs)

    def _device_of(self, pass_: Pass) -> str | None:
        """Where workers compute this task; what is made for NumPy alone gains nothing elsewhere."""
        return self.device if pass_.portable else None

    def _workers_for(self, pass_: Pass) -> int:
        gpu = self._device_of(pass_) == "cuda"
        return self.connection.gpus if gpu else self.connection.workers

    def _jobs(
        self, pass_: Pass, size: int, run: int, combine: Callable[[Any, Any], Any] | None = None
    ) -> Iterator[Any]:
        """Promises of what the task makes of one run of blocks after the other, each begun when it
        is asked for."""
        self.connection.check()
        sent = self.connection.sender.send(pass_.source)
        slices, device = Slices(pass_.aligned), self._device_of(pass_)
        deadline = deadline_on_the_wall()
        common = Order(pass_.task, combine, pass_.state, size, slices.layouts, device, deadline)
        order = self.connection.put(pack(common))
        for start, stop in pass_.spans(run * size):
            check_time()
            rows = None if pass_.rows is None else pass_.rows[start:stop]
            given = order, (start, stop), slices.cut(start, stop), rows, *sent
            yield self.connection.submit(work, device == "cuda", *given)

    def _folded(self, jobs: Iterator[Any], combine: Callable[[Any, Any], Any]) -> Iterator[Any]:
        """Promises of what a worker makes of several partial results."""
        packed = self.connection.put(pack(combine))
        while group := tuple(itertools.islice(jobs, _FOLDED)):
            yield self.connection.submit(work_folding, False, packed, *group)

    def _in_order(self, jobs: Iterator[Any]) -> Generator[Any, None, None]:
        """Results in order; the workers have something to do while one of them is waited for."""
        ahead: deque[Any] = deque()
        most = 2 * self.connection.workers + 1
        try:
            for job in jobs:
                ahead.append(job)
                if len(ahead) >= most:
                    yield self._first(ahead)
            while ahead:
                yield self._first(ahead)
        except (OutOfTime, GeneratorExit) as end:
            if isinstance(end, OutOfTime) or left() <= 0:
                ahead.clear()  # workers know the deadline, too, and are needed for what comes next
            raise
        finally:
            self.connection.cancel(ahead)  # after an error or an interruption, or if closed early

    def _first(self, ahead: deque[Any]) -> Any:
        """The result that is next; until it is there, its job is one of those to be cancelled."""
        result = self.connection.get(ahead[0])
        ahead.popleft()
        if isinstance(result, Failure):
            if isinstance(result.error, MemoryError):  # of a worker, and not of this process
                raise out_of_memory() from result.error
            raise result.error
        return result


def _blocks_for(device: str | None) -> LocalEngine:
    return LocalEngine(block_numbers=_GPU_BLOCK if device == "cuda" else BLOCK_NUMBERS)
