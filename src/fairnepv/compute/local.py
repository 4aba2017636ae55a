"""The default engine: one process, blocks on as many threads as BLAS would take.

Inside of a block BLAS has one thread. Elementwise work then runs on all cores as well, and results
do not depend on the number of threads.
"""

import contextlib
import ctypes
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any

from fairnepv.compute.base import Array, Engine, Pass, R, RowSource, end_to_end, tree_fold
from fairnepv.compute.clock import check_time
from fairnepv.errors import InputError

BLOCK_NUMBERS = 1 << 21  # float64 numbers in a block: 16 MiB, some multiples of a core's cache
_GATHERED = 512  # rows of a block of gathered ones: worth a thread, and memory that stays cached
_KEPT_BYTES = 1 << 26  # of freed memory that the process keeps
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD = -1, -3, 1 << 25  # malloc.h
_SMALL_PRODUCTS = {"SkylakeX", "Cooperlake", "SapphireRapids"}  # as OpenBLAS calls its kernels
_SMALL_WORK = 1e9  # multiply-adds of the largest product; below, a second thread costs more


@dataclass(frozen=True)
class LocalEngine(Engine):
    """`block_rows` is for tests and measurements; the default suits the width of the pool.

    `threads`: by default as many as BLAS has where nobody has limited it, and one for small work.
    `block_numbers`: float64 numbers in a block; sums of `fixed` passes depend on it.
    """

    block_rows: int | None = None
    threads: int | None = None
    block_numbers: int = BLOCK_NUMBERS

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}")

    def map(self, pass_: Pass, out: Array | None = None) -> Array:
        return end_to_end(self._results(pass_), pass_.n, out)

    def reduce(self, pass_: Pass, combine: Callable[[R, R], R]) -> R:
        folded: R = tree_fold(self._results(pass_), combine)
        return folded

    def _results(self, pass_: Pass) -> Iterator[Any]:
        """What the task makes of one block after the other; a block is made by the thread that
        works on it."""
        spans = pass_.spans(self.rows_of(pass_))
        return in_order([functools.partial(pass_.run, *span) for span in spans], self.threads)

    def rows_of(self, pass_: Pass) -> int:
        """How many rows a block of this pass has; gathered ones come in smaller blocks."""
        size = self.rows_of_block(pass_.source, pass_.width, pass_.fixed, pass_.total)
        return size if pass_.rows is None else min(size, -(-pass_.n // -(-pass_.n // _GATHERED)))

    def rows_of_block(
        self, source: RowSource, width: int, fixed: bool = False, total: int = 0
    ) -> int:
        """How many rows a block has, of a pass that makes `width` numbers of each."""
        canonical = max(64, max(self.block_numbers, total) // max(1, source.row_width, width))
        return canonical if fixed or self.block_rows is None else self.block_rows

    def threads_for(self, work: float) -> int:
        """How many blocks are worked on at once, where a product takes so many multiply-adds."""
        return self.threads or (_cores() if work > _SMALL_WORK else 1)


def in_order(calls: Sequence[Callable[[], R]], wanted: int | None = None) -> Iterator[R]:
    """Results in order; a few calls are worked on ahead of the one that is waited for. None is
    begun once time is up.

    Not for a task on a block, which has such a thread already.
    """
    threads = min(wanted or _cores(), len(calls))
    with _blas_threads(1):
        if threads <= 1:
            for call in calls:
                check_time()
                yield call()
            return
        ahead: deque[Future[R]] = deque()
        try:
            for i, call in enumerate(calls):
                check_time()
                ahead.append(_begin(call, threads, ahead, len(calls) - i))
                while ahead and (ahead[0].done() or len(ahead) > 2 * threads):
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:  # after an error, an interruption or the deadline
                future.cancel()


def _begin(call: Callable[[], R], threads: int, ahead: deque[Future[R]], left: int) -> Future[R]:
    """A promise of the result of the call, by one of the workers; or made at once, here, while all
    of these are busy: to wake a thread takes as long as a small block does."""
    busy = sum(not future.done() for future in ahead)
    if busy < min(threads, left // 2):
        return _workers(threads - 1).submit(copy_context().run, call)
    future: Future[R] = Future()
    try:
        future.set_result(call())
    except Exception as error:  # it is told in the order of the blocks
        future.set_exception(error)
    return future


@functools.cache
def _workers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="fairnepv")


# --- threads ------------------------------------------------------------------------------------

_allowed: ContextVar[int | None] = ContextVar("cores", default=None)
_limited: ContextVar[int | None] = ContextVar("threads of BLAS, as set here", default=None)


def _cores() -> int:
    """How many threads this work may take: by default as many as BLAS has."""
    allowed = _allowed.get()
    return allowed or max((library.num_threads for library in _blas()), default=1)


@contextlib.contextmanager
def block_threads(work: float) -> Iterator[None]:
    """Passes share the cores over blocks if a product of `work` multiply-adds is worth it; BLAS has
    one thread, for between the passes problems are small.

    Small factorizations are hurt by threads: on a busy two-core machine the same run took 0.3 s
    with one thread and 7 s with two (docs/method.md#plain-iteration).
    """
    token = _allowed.set(_cores() if work > _SMALL_WORK else 1)
    keep_freed_memory()
    try:
        with _blas_threads(1):
            yield
    finally:
        _allowed.reset(token)


@functools.cache
def keep_freed_memory() -> None:
    """Let glibc keep some freed memory for the next request, instead of giving it back at once.

    A pass makes the same temporaries for every block; getting their pages anew each time took
    most of the time of gathered passes. This holds for the process from then on.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # other C libraries have none
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)


@contextlib.contextmanager
def few_threads(work: float) -> Iterator[None]:
    """For dense algebra between passes: BLAS has all cores where products of `work` multiply-adds
    are worth it, and one else."""
    with _blas_threads(_cores() if work > _SMALL_WORK else 1):
        yield


@functools.cache
def _blas() -> tuple[Any, ...]:
    """The BLAS libraries of this process, to ask and set their threads."""
    import scipy.linalg  # noqa: F401 (its BLAS must be loaded before the libraries are listed)
    from threadpoolctl import ThreadpoolController

    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


@functools.cache
def has_small_products() -> bool:
    """Whether this BLAS multiplies small matrices without copying them first, as OpenBLAS does with
    AVX-512."""
    return any(library.info().get("architecture") in _SMALL_PRODUCTS for library in _blas())


@contextlib.contextmanager
def _blas_threads(threads: int) -> Iterator[None]:
    """BLAS has so many threads, and PyTorch on the host.

    This is not threadpoolctl's own context, which takes a hundred times as long: a greedy search
    makes hundreds of small passes, for which BLAS is not even asked again.
    """
    if _limited.get() == threads:
        yield
        return
    torch = sys.modules.get("torch")  # which has threads of its own on the host
    libraries = _blas() if torch is None else (*_blas(), torch)
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(threads)
    token = _limited.set(threads)
    try:
        yield
    finally:
        _limited.reset(token)
        for library, earlier in zip(libraries, before, strict=True):
            library.set_num_threads(earlier)
