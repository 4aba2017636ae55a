"""The default engine: one process, blocks one after another, BLAS threads inside a block."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairnepv.engines.base import Array, R, Source, tree_fold
from fairnepv.errors import InputError

_BLOCK_NUMBERS = 1 << 21  # float64 numbers in a block: 16 MiB, some multiples of a core's cache
_SMALL_WORK = 1e9  # multiply-adds of the largest product; below, a second BLAS thread costs more


@dataclass(frozen=True)
class LocalEngine:
    """`block_rows` is for tests and measurements; the default suits the width of the pool."""

    block_rows: int | None = None

    def __post_init__(self) -> None:
        if self.block_rows is not None and self.block_rows < 1:
            raise InputError(f"block_rows must be at least 1, not {self.block_rows}")

    def map(
        self,
        task: Callable[..., Array],
        source: Source,
        state: Any,
        *aligned: Array,
        width: int = 0,
        fixed: bool = False,
    ) -> Array:
        rows = self._rows(source, width, fixed)
        return np.concatenate(list(_results(task, source, state, aligned, rows)))

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
        rows = self._rows(source, width, fixed, total)
        return tree_fold(_results(task, source, state, aligned, rows), combine)

    def _rows(self, source: Source, width: int, fixed: bool, total: int = 0) -> int:
        canonical = max(64, max(_BLOCK_NUMBERS, total) // max(1, source.row_width, width))
        return canonical if fixed or self.block_rows is None else self.block_rows


def _results(
    task: Callable[..., R], source: Source, state: Any, aligned: tuple[Array, ...], rows: int
) -> Iterator[R]:
    for start in range(0, source.n, rows):
        stop = min(start + rows, source.n)
        yield task(source.block(start, stop), state, *(x[start:stop] for x in aligned))


@functools.cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401 (its BLAS must be loaded before the libraries are listed)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def few_threads(work: float) -> contextlib.AbstractContextManager[Any]:
    """One BLAS thread while products are of at most `work` multiply-adds and that is little.

    Small factorizations are hurt by threads: on a busy two-core machine the same run took 0.3 s
    with one thread and 7 s with two (DESIGN 3.2).
    """
    if work > _SMALL_WORK:
        return contextlib.nullcontext()
    limit: contextlib.AbstractContextManager[Any] = _controller().limit(limits=1)
    return limit
