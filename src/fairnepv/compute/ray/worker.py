"""In a worker of a cluster: one stretch of rows, by the engine that a single process would take.

That is the local engine with one thread, or PyTorch on the device of the worker; blocks are those
that the driver says.
"""

import contextlib
import functools
import pickle
import socket
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fairnepv.compute.base import HOST, Array, Block, Engine, Pass, Place, RowBlock, tree_fold
from fairnepv.compute.clock import OutOfTime, by_the_wall
from fairnepv.compute.device import Moved, TorchEngine
from fairnepv.compute.local import LocalEngine, few_threads, keep_freed_memory
from fairnepv.compute.ray.transport import Layout, receive_source, settle_source, writable
from fairnepv.errors import InputError


class Order(NamedTuple):
    """What all tasks of a pass have in common."""

    task: Callable[..., Any]
    combine: Callable[[Any, Any], Any] | None  # None: the results of all rows are wanted
    state: Any
    size: int  # rows of a block
    layouts: tuple[Layout, ...]
    device: str | None  # of PyTorch, or None for NumPy
    deadline: float | None = None  # after which no block is begun, in seconds of `time.time`


class Failure(NamedTuple):
    """What a task raised. Ray would print it for every task whose result is not wanted any more."""

    error: BaseException


def _returning_failures(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, that returns what it raises."""

    @functools.wraps(work)
    def attempt(*arguments: Any) -> Any:
        keep_freed_memory()
        try:
            return work(*arguments)
        except OutOfTime as late:
            return Failure(late)
        except Exception as error:
            error.add_note(f"in a worker on {socket.gethostname()}:\n{traceback.format_exc()}")
            return Failure(error)

    return attempt


@_returning_failures
def work(
    packed: bytes, span: tuple[int, int], parts: list[Array], rows: Array | None, *sent: Any
) -> Any:
    """The results of a stretch of rows laid end to end, or those of its blocks combined."""
    order: Order = pickle.loads(packed)
    engine = _engine(order.device, order.size)
    place = engine.place.for_a_pass() if isinstance(engine, TorchEngine) else engine.place
    with _naming_host():
        source = receive_source(*sent)
        if order.device is not None:
            source = settle_source(sent[0], engine)
    aligned = tuple(layout.restored(parts) for layout in order.layouts)
    part = Stretch(order.task, source, order.state, aligned, span=span, gathered=rows, place=place)
    # Threads of PyTorch are few as well, which the engine has imported.
    with few_threads(0.0), by_the_wall(order.deadline):
        if order.combine is None:
            return place.get(engine.map(part))
        return place.get(engine.reduce(part, order.combine))


@_returning_failures
def work_folding(combine: bytes, *results: Any) -> Any:
    """Neighbouring stretches of a reduction."""
    for result in results:
        if isinstance(result, Failure):
            return result
    return tree_fold(map(writable, results), pickle.loads(combine))


@_returning_failures
def work_apart(packed: bytes, *sent: Any) -> Any:
    """A task on a whole source, which makes passes of its own."""
    task, state, blocks = pickle.loads(packed)
    with _naming_host():
        source = receive_source(*sent)
    with few_threads(0.0):
        return task(source.settled(replace(blocks, threads=1)), state)


@functools.cache
def _engine(device: str | None, size: int) -> Engine:
    return LocalEngine(size, threads=1) if device is None else TorchEngine(device, size)


@dataclass(frozen=True)
class Stretch(Pass):
    """The part of a pass that is over rows (first, last), which may be `gathered` ones; its blocks
    are as large as the driver says, and know where they are in the whole."""

    span: tuple[int, int] = (0, 0)
    gathered: Array | None = None  # not `rows`, for which an engine chooses other blocks
    place: Place = HOST

    @property
    def n(self) -> int:
        first, last = self.span
        return last - first

    def block(self, start: int, stop: int) -> Block:
        first, _ = self.span
        with _naming_host():
            if self.gathered is None:
                block = self.source.block(first + start, first + stop)
            else:
                block = self.source.gather(self.gathered, start, stop)
        views = tuple(v if v.place is HOST else FromHost(v, self.place) for v in block.views)
        return replace(block, start=first + start, stop=first + stop, views=views)


class FromHost(Moved):
    """Rows on a device that are asked about anchors of the host, as the driver makes them."""

    def __init__(self, block: RowBlock, place: Place) -> None:
        super().__init__(block, lambda answer: answer)
        self.place = place

    def cross(self, anchor: Any) -> Any:
        return super().cross(self.place.put(anchor))

    def coarse(self, anchor: Any) -> Any:
        return super().coarse(self.place.put(anchor))


@contextlib.contextmanager
def _naming_host() -> Iterator[None]:
    """What is wrong with a file is said with the machine that tried to read it."""
    try:
        yield
    except InputError as error:
        raise InputError(
            f"{error} (said by a worker on {socket.gethostname()}; workers must see the same files "
            "as the driver)"
        ) from None
