"""One device of PyTorch: rows are resident there or streamed to it, and portable tasks follow.

Blocks are large, as a device has its threads inside of them, and are worked on in the order of the
rows. What a portable task makes of them stays on the device; tasks that know NumPy alone get NumPy.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fairnepv.compute.base import Block, Engine, Pass, R, RowBlock, RowSource, tree_fold
from fairnepv.compute.clock import check_time
from fairnepv.compute.place import HOST, Floats, Place
from fairnepv.compute.shifted import ShiftedRows
from fairnepv.compute.tensors import Queue, is_sparse, to_device, to_host, whole_float32
from fairnepv.errors import InputError
from fairnepv.io.memory import available_memory, size_in_words

_BLOCK_NUMBERS = 1 << 30  # of a block and what is made of it, where there is room for them
_BLOCK_SHARE = 1 / 64  # of the free bytes of a device, as numbers
_HOST_NUMBERS = 1 << 22  # the cores behind torch:cpu have caches
_SHARE = 0.5  # of the free memory of a device, for rows that stay there
_FEWEST = 64  # rows of a block
_COUNTED = 1 << 16  # rows: to ask how many of so many are marked takes less than to use them all


class TorchPlace(Place):
    """A device: its functions, and the way there and back."""

    def __init__(self, device: Any) -> None:
        import torch
        from array_api_compat import torch as xp

        self.xp, self.device, self.asynchronous = xp, device, True
        self._torch: Any = torch
        self._sent: dict[int, tuple[Any, Any]] | None = None

    def for_a_pass(self) -> TorchPlace:
        """The same, that sends an array once, however many blocks ask for it."""
        other = TorchPlace(self.device)
        other._sent = {}
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return TorchPlace, (self.device,)

    def put(self, array: Any) -> Any:
        """Small arrays of a state; a tensor of this device is there already."""
        if self._sent is None:
            return to_device(array, self.device)
        if id(array) not in self._sent:  # which is held, so that no other gets its number
            self._sent[id(array)] = array, to_device(array, self.device)
        return self._sent[id(array)][1]

    def get(self, array: Any) -> Any:
        there = hasattr(array, "cpu") or isinstance(array, ShiftedRows)
        return to_host(array) if there else array

    def dense(self, features: Any) -> Any:
        if isinstance(features, ShiftedRows):
            return features.toarray()
        return features.to_dense() if is_sparse(features) else features

    def less(self, rows: Any, mean: Any) -> Any:
        return rows.double() - mean

    def less_single(self, rows: Any, mean: Any) -> Any:
        if not rows.is_floating_point():
            return (rows.double() - mean).float()
        out = self._torch.empty(rows.shape, dtype=self._torch.float32, device=rows.device)
        return self._torch.sub(rows, mean, out=out)  # in float64, as the mean is, and one kernel

    def double(self, array: Any) -> Any:
        return array.double()

    def single(self, array: Any) -> Any:
        return array.float()

    @whole_float32()
    def weighted(self, weights: Any, rows: Any) -> Any:
        return weights @ rows

    def add_squares(self, total: Any, terms: Any, weights: Sequence[float]) -> Any:
        for q, weight in enumerate(weights):  # one kernel each, that reads once and writes once
            total.addcmul_(terms[:, q], terms[:, q], value=weight)
        return total

    def add_product(self, matrix: Any, left: Any, right: Any) -> Any:
        return matrix.addmm_(left, right)

    def runs(self, rows: int, width: int) -> list[slice]:
        return [slice(0, rows)]

    def square_sums(self, rows: Any) -> Any:
        return self._torch.linalg.vector_norm(rows, dim=1).square_()

    def row_dots(self, left: Any, right: Any) -> Any:
        return (left * right).sum(dim=1)  # einsum makes a product of every pair of rows

    def entries_above(self, matrix: Any, least: float) -> tuple[Any, Any]:
        """Rows first: a maximum reads the matrix once, finding entries takes several turns."""
        rows = (matrix.amax(dim=1) > least).nonzero()[:, 0]
        found, columns = (matrix[rows] > least).nonzero(as_tuple=True)
        return rows[found], columns

    def some_of(self, marked: Any) -> Any:
        return marked.nonzero()[:, 0] if len(marked) >= _COUNTED else slice(None)

    def nth_largest(self, values: Any, n: int) -> float:
        return float(values.topk(n).values[-1])

    def highest(self, values: Any, n: int) -> Any:
        return values.topk(n, sorted=False).indices.sort().values

    def copy(self, array: Any) -> Any:
        return array.clone()

    def residual(self, row: Any, coefficients: Any, directions: Any) -> Any:
        return row.addmv(directions.T, coefficients, alpha=-1.0)

    def square_root(self, X: Any, eps: float) -> Any:
        ridge = eps**0.5 * self._torch.eye(X.shape[1], dtype=X.dtype, device=X.device)
        return self._torch.linalg.qr(self._torch.cat([X, ridge]), mode="r").R

    def add_outer(self, matrix: Any, vector: Any, scale: float) -> Any:
        return matrix.addr_(vector, vector, alpha=scale)

    def pivots(self, matrix: Any) -> Floats | None:
        C, info = self._torch.linalg.cholesky_ex(matrix)
        return None if int(info) else to_host(C.diagonal()) ** 2

    def inverse_root(self, matrix: Any) -> Any:
        R, info = self._torch.linalg.cholesky_ex(matrix, upper=True)
        return None if int(info) else self.triangular_inverse(R)

    def triangular_inverse(self, R: Any) -> Any:
        identity = self._torch.eye(len(R), dtype=R.dtype, device=R.device)
        return self._torch.linalg.solve_triangular(R, identity, upper=True)

    def inverse(self, matrix: Any) -> tuple[Any, float]:
        C, info = self._torch.linalg.cholesky_ex(matrix)
        if int(info):
            raise np.linalg.LinAlgError("a kernel is not positive definite")
        logdet = 2.0 * self._torch.log(C.diagonal()).sum()
        return self._torch.cholesky_inverse(C), float(logdet)

    def eigenvalues(self, matrix: Any) -> Floats:
        there = self.put(matrix)
        try:
            return np.asarray(to_host(self._torch.linalg.eigvalsh(there)))
        except self._torch.linalg.LinAlgError:  # what is not finite
            return np.full(len(there), np.nan)

    def eigenvectors(self, matrix: Any) -> tuple[Any, Any]:
        with self._failures():
            lam, U = self._torch.linalg.eigh(matrix)
            return lam, U

    def right_vectors(self, matrix: Any) -> tuple[Any, Any]:
        with self._failures():
            _, s, right = self._torch.linalg.svd(matrix)
            return s, right.T

    def solve(self, matrix: Any, right: Any) -> Any:
        with self._failures():
            return self._torch.linalg.solve(matrix, right)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Those of factorisations, as NumPy tells them."""
        try:
            yield
        except self._torch.linalg.LinAlgError as error:
            raise np.linalg.LinAlgError(str(error)) from error

    def leading(self, matrix: Any, k: int) -> tuple[Floats, Any]:
        first = max(0, len(matrix) - k)
        try:
            lam, Y = self._torch.linalg.eigh(matrix)
        except self._torch.linalg.LinAlgError:
            lam, Y = matrix[0] * float("nan"), matrix
        largest = to_host(lam[first:]).astype(np.float64)[::-1]
        return np.maximum(largest, 0.0), Y[:, first:].flip(1)


@dataclass(frozen=True)
class TorchEngine(Engine):
    """`device`: "cpu", "cuda" or "cuda:1"; by default a GPU where there is one.

    `memory`: bytes of rows that may stay on the device; by default half of what is free.
    """

    device: Any = None
    block_rows: int | None = None
    memory: int | None = None
    place: TorchPlace = field(init=False, compare=False, repr=False)
    _numbers: int = field(init=False, compare=False, repr=False)

    @property
    def room(self) -> int:
        """Bytes of rows that may stay on the device; those of the host are on torch:cpu already."""
        if self.memory is not None:
            return self.memory
        return 1 << 62 if self.device.type == "cpu" else int(_SHARE * _free_bytes(self.device))

    def __post_init__(self) -> None:
        for name in ("block_rows", "memory"):
            value, least = getattr(self, name), 1 if name == "block_rows" else 0
            if value is not None and (type(value) is not int or value < least):
                raise InputError(f"{name} must be a whole number from {least} on, not {value!r}")
        device = _device(self.device)
        object.__setattr__(self, "device", device)
        object.__setattr__(self, "place", TorchPlace(device))
        numbers = _HOST_NUMBERS
        if device.type != "cpu":  # now, so that all passes have the same blocks
            numbers = min(_BLOCK_NUMBERS, int(_BLOCK_SHARE * _free_bytes(device)))
        object.__setattr__(self, "_numbers", numbers)

    def map(self, pass_: Pass, out: Any = None) -> Any:
        for start, stop, result in self._results(pass_):
            if out is None and stop - start == pass_.n:
                return result
            if out is None:
                out = self._empty_like(result, pass_.n)
            out[start:stop] = result
        assert out is not None, "a pass has at least one row"
        return out

    def reduce(self, pass_: Pass, combine: Callable[[R, R], R]) -> R:
        folded: R = tree_fold((result for _, _, result in self._results(pass_)), combine)
        return folded

    def rows_of_block(self, source: RowSource, width: int) -> int:
        """One partition for all passes: sums come out the same from run to run."""
        return self.block_rows or max(_FEWEST, self._numbers // max(1, source.row_width, width))

    def _results(self, pass_: Pass) -> Iterator[tuple[int, int, Any]]:
        """(start, stop, result) in order; a block that does not fit is made again in halves, and
        all that follow are so small."""
        import torch

        place, queued = self.place.for_a_pass(), Queue(self.device)
        size, start = self.rows_of_block(pass_.source, pass_.width), 0
        while start < pass_.n:
            queued.wait()
            check_time()
            stop = min(start + size, pass_.n)
            try:
                result = self._on(pass_, start, stop, place)
            except RuntimeError as error:
                full = _full(error, self.device, f"a block of {stop - start:,} rows")
                if full is None:
                    raise
                if stop - start <= _FEWEST:
                    raise full from error
            else:
                queued.add()
                yield start, stop, result
                start = stop
                continue
            # Out of reach of the error, which holds what the block had made so far.
            size = max(_FEWEST, (stop - start) // 2)
            numbers = size * pass_.row_numbers
            object.__setattr__(self, "_numbers", min(self._numbers, numbers))
            torch.cuda.empty_cache()

    def _empty_like(self, result: Any, n: int) -> Any:
        shape = (n, *result.shape[1:])
        if not hasattr(result, "new_empty"):
            return np.empty(shape, result.dtype)
        try:
            return result.new_empty(shape)
        except RuntimeError as error:
            full = _full(error, self.device, f"what {n:,} rows come to")
            if full is None:
                raise
            raise full from error

    def _on(self, pass_: Pass, start: int, stop: int, place: TorchPlace) -> Any:
        task, state = pass_.task, pass_.state
        block, parts = pass_.block(start, stop), pass_.slices(start, stop)
        with whole_float32():
            if pass_.portable:
                put = self.place.put  # which does not keep what it sent, as that of the pass does
                there = tuple(Moved(v, put) if v.place is HOST else v for v in block.views)
                block = replace(block, views=there, place=place)
                return task(block, state, *(to_device(x, self.device) for x in parts))
            here = tuple(Moved(view, self.place.get) for view in block.views)
            block = Block(block.start, block.stop, here)
            return task(block, state, *map(self.place.get, parts))


class Moved(RowBlock):
    """Rows whose answers are moved, by `get` to the host or by `put` to the device."""

    def __init__(self, block: RowBlock, move: Callable[[Any], Any]) -> None:
        self._block, self._move = block, move

    def features(self) -> Any:
        return self._move(self._block.features())

    def squared_norms(self) -> Any:
        return self._move(self._block.squared_norms())

    def cross(self, anchor: Any) -> Any:
        return self._move(self._block.cross(anchor))

    def coarse(self, anchor: Any) -> Any:
        return self._move(self._block.coarse(anchor))


def _full(error: RuntimeError, device: Any, what: str) -> InputError | None:
    """What to say of a device without memory for this; None for an error that says something else.
    Libraries under PyTorch have words of their own for it."""
    import torch

    words = str(error)
    known = isinstance(error, torch.OutOfMemoryError)
    if not known and "ALLOC_FAILED" not in words and "INSUFFICIENT_RESOURCES" not in words:
        return None
    asked = re.search(r"allocate ([\d.]+) ([KMG]?)i?B", words)
    unit = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    least = int(float(asked[1]) * unit[asked[2]]) if asked else 0
    if device.type == "cuda":
        least += torch.cuda.memory_allocated(device)
    return InputError(
        f"{device} has no memory left ({_free_bytes(device) / 2**30:.1f} GiB are free) for {what} "
        f"and what is made of it: the least that would do is {size_in_words(least)} in all; keep "
        "fewer rows there (TorchEngine(memory=BYTES)), or lower k"
    )


def _device(named: Any) -> Any:
    try:
        import array_api_compat  # noqa: F401
        import torch
    except ImportError as error:
        raise InputError(
            f"engine 'torch' needs {error.name}, which is not installed; pip install "
            "'fairnepv[torch]'"
        ) from error
    if named is None:
        named = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(named)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"engine 'torch:{named}': there is no such device; name cpu or cuda"
        ) from error
    if device.type == "cpu":
        if device.index:
            raise InputError(f"engine 'torch:{named}': the processor has no numbers; name cpu")
        return torch.device("cpu")  # as tensors say it
    if device.type != "cuda":
        raise InputError(f"engine 'torch:{named}': only cpu and cuda are supported")
    if not torch.cuda.is_available():
        raise InputError(
            f"engine 'torch:{named}' needs a GPU, but PyTorch {torch.__version__} finds none; use "
            "engine='local', or install a build of PyTorch for your GPU"
        )
    if (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"engine 'torch:{named}': there are {torch.cuda.device_count()} GPU(s), counted from 0"
        )
    if device.index is None:  # as tensors say it
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _free_bytes(device: Any) -> int:
    import torch

    if device.type == "cpu":
        return available_memory()
    return int(torch.cuda.mem_get_info(device)[0])
