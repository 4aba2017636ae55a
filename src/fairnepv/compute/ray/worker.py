"""In a worker of a cluster: one stretch of rows, by the engine that a single process would take.

That is the local engine with one thread, or PyTorch on the device of the worker; blocks are those
that the driver says.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import socket
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from fairnepv.compute.base import HOST, Array, Block, RowBlock, Source, tree_fold
from fairnepv.compute.device import TorchEngine
from fairnepv.compute.local import LocalEngine, few_threads, keep_freed_memory
from fairnepv.compute.ray.freight import Layout, owned, settle_source, unpack_source
from fairnepv.errors import InputError


class Order(NamedTuple):
    """What all tasks of a pass have in common."""

    task: Callable[..., Any]
    combine: Callable[[Any, Any], Any] | None  # None: the results of all rows are wanted
    state: Any
    size: int  # rows of a block
    layouts: tuple[Layout, ...]
    device: str | None  # of PyTorch, or None for NumPy


class Failure(NamedTuple):
    """What a task raised. Ray would print it for every task whose result is not wanted any more."""

    error: Exception


def work(order: bytes, *arguments: Any) -> Any:
    """A stretch of a pass."""
    with _reported() as failures:
        return _work_on(pickle.loads(order), *arguments)
    return failures[0]


def work_folding(combine: bytes, *results: Any) -> Any:
    """Neighbouring stretches of a reduction."""
    with _reported() as failures:
        failures += [result for result in results if isinstance(result, Failure)]
        if not failures:
            return tree_fold(map(owned, results), pickle.loads(combine))
    return failures[0]


def work_apart(order: bytes, key: str, blob: bytes, *arrays: Array) -> Any:
    """A task on a whole source, which makes passes of its own."""
    with _reported() as failures:
        task, state, blocks = pickle.loads(order)
        with _host_named():
            source = unpack_source(key, blob, arrays)
        with few_threads(0.0):
            return task(source.settled(replace(blocks, threads=1)), state)
    return failures[0]


@contextlib.contextmanager
def _reported() -> Iterator[list[Failure]]:
    """What is raised becomes a result."""
    keep_freed_memory()
    failures: list[Failure] = []
    try:
        yield failures
    except Exception as error:
        error.add_note(f"in a worker on {socket.gethostname()}:\n{traceback.format_exc()}")
        failures.append(Failure(error))


def _work_on(
    order: Order,
    span: tuple[int, int],
    parts: list[Array],
    rows: Array | None,
    key: str,
    blob: bytes,
    *arrays: Array,
) -> Any:
    """The results of a stretch of rows laid end to end, or those of its blocks combined."""
    engine = _engine(order.device, order.size)
    place = getattr(engine, "place", HOST)
    with _host_named():
        source: Source = unpack_source(key, blob, arrays)
        if order.device is not None:
            source = settle_source(key, source, engine)
    stretch = Stretch(source, *span, rows, place)
    aligned = tuple(layout.restored(parts) for layout in order.layouts)
    with few_threads(0.0):  # of PyTorch as well, which the engine has imported
        if order.combine is None:
            return place.get(engine.map(order.task, stretch, order.state, *aligned))
        return place.get(engine.reduce(order.task, order.combine, stretch, order.state, *aligned))


@functools.cache
def _engine(device: str | None, size: int) -> Any:
    return LocalEngine(size, threads=1) if device is None else TorchEngine(device, size)


class Stretch:
    """Consecutive rows of a source, or some that are gathered, as a source of their own; its blocks
    know where they are in the whole."""

    def __init__(
        self, source: Source, start: int, stop: int, rows: Array | None, place: Any
    ) -> None:
        self._source, self._start, self._rows = source, start, rows
        self._place = place if place is HOST else place.for_a_pass()
        self.n, self.row_width = stop - start, source.row_width

    def block(self, first: int, last: int) -> Block:
        start, stop = self._start + first, self._start + last
        with _host_named():
            if self._rows is None:
                block = self._source.block(start, stop)
            else:
                block = self._source.gather(self._rows, first, last)
        if self._place is HOST:
            return replace(block, start=start, stop=stop)
        views = tuple(FromHost.of(view, self._place) for view in block.views)
        return replace(block, start=start, stop=stop, views=views)

    def gather(self, rows: Array, start: int, stop: int) -> Block:
        raise NotImplementedError("rows were gathered before")

    def lean(self) -> Source:
        return self

    def settled(self, engine: Any) -> Source:
        return self


class FromHost:
    """Rows on a device that are asked about anchors of the host, as the driver makes them."""

    def __init__(self, block: RowBlock, place: Any) -> None:
        self._block, self.place = block, place

    @classmethod
    def of(cls, block: RowBlock, place: Any) -> RowBlock:
        return block if block.place is HOST else cls(block, place)

    def features(self) -> Any:
        return self._block.features()

    def squared_norms(self) -> Any:
        return self._block.squared_norms()

    def cross(self, anchor: Any) -> Any:
        return self._block.cross(self.place.put(anchor))

    def coarse(self, anchor: Any) -> Any:
        return self._block.coarse(self.place.put(anchor))


@contextlib.contextmanager
def _host_named() -> Iterator[None]:
    """Files that cannot be read: on which machine?"""
    try:
        yield
    except InputError as error:
        raise InputError(
            f"{error} (said by a worker on {socket.gethostname()}; workers must see the same files "
            "as the driver)"
        ) from None
