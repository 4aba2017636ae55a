"""One device of PyTorch: rows are resident there or streamed to it, and portable tasks follow.

Blocks are large, as a device has its threads inside of them, and are worked on in the order of the
rows. What a portable task makes of them stays on the device; tasks that know NumPy alone get NumPy.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fairnepv.engines.base import Array, Block, Floats, R, RowBlock, Source, tree_fold
from fairnepv.errors import InputError

_BLOCK_NUMBERS = 1 << 30  # of a block and what is made of it, where there is room for them
_BLOCK_SHARE = 1 / 64  # of the free bytes of a device, as numbers
_HOST_NUMBERS = 1 << 22  # the cores behind torch:cpu have caches
_SHARE = 0.5  # of the free memory of a device, for rows that stay there


class Place:
    """A device: its functions, and the way there and back."""

    def __init__(self, device: Any) -> None:
        from array_api_compat import torch as xp

        self.xp, self.device = xp, device
        self._sent: dict[int, tuple[Any, Any]] | None = None

    def for_a_pass(self) -> Place:
        """The same, that sends an array once, however many blocks ask for it."""
        other = copy.copy(self)
        other._sent = {}
        return other

    def put(self, array: Any) -> Any:
        """Small arrays of a state; a tensor of this device is there already."""
        if self._sent is None:
            return to_device(array, self.device)
        if id(array) not in self._sent:  # which is held, so that no other gets its number
            self._sent[id(array)] = array, to_device(array, self.device)
        return self._sent[id(array)][1]

    def get(self, array: Any) -> Any:
        return to_host(array) if hasattr(array, "cpu") else array

    @staticmethod
    def add_squares(total: Any, terms: Any, weights: Sequence[float]) -> Any:
        for q, weight in enumerate(weights):  # one kernel each, that reads once and writes once
            total.addcmul_(terms[:, q], terms[:, q], value=weight)
        return total

    @staticmethod
    def square_sums(rows: Any) -> Any:
        import torch

        return torch.linalg.vector_norm(rows, dim=1).square_()

    @staticmethod
    def entries_above(matrix: Any, least: float) -> tuple[Any, Any]:
        """Rows first: a maximum reads the matrix once, finding entries takes several turns."""
        rows = (matrix.amax(dim=1) > least).nonzero()[:, 0]
        found, columns = (matrix[rows] > least).nonzero(as_tuple=True)
        return rows[found], columns

    @staticmethod
    def copy(array: Any) -> Any:
        return array.clone()

    @staticmethod
    def add_outer(matrix: Any, vector: Any, scale: float) -> Any:
        return matrix.addr_(vector, vector, alpha=scale)

    @staticmethod
    def inverse(matrix: Any) -> tuple[Any, float]:
        import torch

        C, info = torch.linalg.cholesky_ex(matrix)
        if int(info):
            raise np.linalg.LinAlgError("a kernel is not positive definite")
        logdet = 2.0 * torch.log(C.diagonal()).sum()
        return torch.cholesky_inverse(C), float(logdet)

    @staticmethod
    def trace(matrix: Any) -> float:
        return float(matrix.diagonal().double().sum())

    def eigenvalues(self, matrix: Any) -> Floats:
        import torch

        there = self.put(matrix)
        try:
            return np.asarray(to_host(torch.linalg.eigvalsh(there)))
        except torch.linalg.LinAlgError:  # what is not finite
            return np.full(len(there), np.nan)

    def leading(self, matrix: Any, k: int) -> tuple[Floats, Any]:
        import torch

        first = max(0, len(matrix) - k)
        try:
            lam, Y = torch.linalg.eigh(matrix)
        except torch.linalg.LinAlgError:
            lam, Y = matrix[0] * float("nan"), matrix
        largest = to_host(lam[first:]).astype(np.float64)[::-1]
        return np.maximum(largest, 0.0), Y[:, first:].flip(1)


def to_device(array: Any, device: Any) -> Any:
    import torch

    if isinstance(array, torch.Tensor):
        return array if array.device == device else array.to(device)
    array = np.asarray(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.float64)  # of these PyTorch knows the names alone
    if not array.flags.writeable or not array.flags.c_contiguous:
        array = np.array(array, order="C")
    return torch.from_numpy(array).to(device)


class Stream:
    """Blocks on their way to a device, ahead of the work on them.

    The host fills page-locked memory while the device copies the block before and computes with
    the one before that; PyTorch's allocators keep that memory until the copies are done.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._copying: Any = None

    def send(self, rows: Any) -> Any:
        if self._device.type == "cpu":
            return to_device(rows, self._device)
        import torch

        if self._copying is None:
            self._copying = torch.cuda.Stream(self._device)
        locked = to_device(rows, torch.device("cpu")).pin_memory()
        with torch.cuda.stream(self._copying):
            there = locked.to(self._device, non_blocking=True)
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._copying)
        there.record_stream(computing)
        return there


def alike(arrays: list[Any]) -> list[Any]:
    """All on the device of those that are tensors, if any is."""
    devices = [x.device for x in arrays if hasattr(x, "new_empty")]
    if not devices:
        return arrays
    return [to_device(x.toarray() if hasattr(x, "toarray") else x, devices[0]) for x in arrays]


def side_by_side(arrays: list[Any]) -> Any:
    if hasattr(arrays[0], "new_empty"):
        import torch

        return torch.cat(arrays, dim=1)
    return np.hstack(arrays)


def to_host(tensor: Any) -> Any:
    if isinstance(tensor, np.ndarray):
        return tensor
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return tensor.detach().cpu().numpy()


@dataclass(frozen=True)
class TorchEngine:
    """`device`: "cpu", "cuda" or "cuda:1"; by default a GPU where there is one.

    `memory`: bytes of rows that may stay on the device; by default half of what is free.
    """

    device: Any = None
    block_rows: int | None = None
    memory: int | None = None
    place: Place = field(init=False, compare=False, repr=False)
    _numbers: int = field(init=False, compare=False, repr=False)

    @property
    def room(self) -> int:
        return _room(self.device) if self.memory is None else self.memory

    def __post_init__(self) -> None:
        for name in ("block_rows", "memory"):
            value, least = getattr(self, name), 1 if name == "block_rows" else 0
            if value is not None and (type(value) is not int or value < least):
                raise InputError(f"{name} must be a whole number from {least} on, not {value!r}")
        device = _device(self.device)
        object.__setattr__(self, "device", device)
        object.__setattr__(self, "place", Place(device))
        object.__setattr__(self, "_numbers", _block_numbers(device))

    def map(
        self,
        task: Callable[..., Any],
        source: Source,
        state: Any,
        *aligned: Any,
        width: int = 0,
        fixed: bool = False,
        rows: Any = None,
        out: Any = None,
    ) -> Any:
        n, place = source.n if rows is None else len(rows), self.place.for_a_pass()
        size = self.rows_of_block(source, width)
        for start in range(0, n, size):
            stop = min(start + size, n)
            result = self._on(task, source, state, aligned, rows, start, stop, place)
            if out is None and size >= n:
                return result
            if out is None:
                out = _empty_like(result, n)
            out[start:stop] = result
        assert out is not None, "a pass has at least one row"
        return out

    def reduce(
        self,
        task: Callable[..., R],
        combine: Callable[[R, R], R],
        source: Source,
        state: Any,
        *aligned: Any,
        width: int = 0,
        total: int = 0,
        fixed: bool = False,
    ) -> R:
        size, place = self.rows_of_block(source, width), self.place.for_a_pass()
        results: Iterable[R] = (
            self._on(task, source, state, aligned, None, start, min(start + size, source.n), place)
            for start in range(0, source.n, size)
        )
        return tree_fold(results, combine)

    def rows_of_block(self, source: Source, width: int) -> int:
        """One partition for all passes: sums come out the same from run to run."""
        return self.block_rows or max(64, self._numbers // max(1, source.row_width, width))

    def _on(
        self,
        task: Callable[..., Any],
        source: Source,
        state: Any,
        aligned: tuple[Any, ...],
        rows: Any,
        start: int,
        stop: int,
        place: Place,
    ) -> Any:
        with _out_of_memory(self.device, stop - start):
            block = source.block(start, stop) if rows is None else source.gather(rows, start, stop)
            parts = [x[start:stop] for x in aligned]
            if getattr(task, "portable", False):
                there = tuple(_Uploaded.of(view, self.place) for view in block.views)
                block = replace(block, views=there, place=place)
                return task(block, state, *(to_device(x, self.device) for x in parts))
            here = tuple(_Fetched(view, self.place) for view in block.views)
            block = Block(block.start, block.stop, here)
            return task(block, state, *map(self.place.get, parts))


class _Fetched:
    """Rows of a device as NumPy sees them."""

    def __init__(self, block: RowBlock, place: Place) -> None:
        self._block, self._place = block, place

    def features(self) -> Any:
        return self._place.get(self._block.features())

    def squared_norms(self) -> Array:
        return np.asarray(self._place.get(self._block.squared_norms()))

    def cross(self, anchor: Any) -> Array:
        return np.asarray(self._place.get(self._block.cross(anchor)))

    def coarse(self, anchor: Any) -> Array:
        return np.asarray(self._place.get(self._block.coarse(anchor)))


class _Uploaded(_Fetched):
    """Rows that only NumPy can multiply, whose products go to the device."""

    @classmethod
    def of(cls, block: RowBlock, place: Place) -> RowBlock:
        return block if getattr(block, "on_device", False) else cls(block, place)

    def features(self) -> Any:
        features = self._block.features()
        dense = features.toarray() if hasattr(features, "toarray") else features
        return self._place.put(dense)

    def squared_norms(self) -> Any:
        return self._place.put(self._block.squared_norms())

    def cross(self, anchor: Any) -> Any:
        return self._place.put(self._block.cross(anchor))

    def coarse(self, anchor: Any) -> Any:
        return self._place.put(self._block.coarse(anchor))


@contextlib.contextmanager
def _out_of_memory(device: Any, rows: int) -> Iterator[None]:
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        free = _free_bytes(device) / 2**30
        raise InputError(
            f"{device} has no memory left ({free:.1f} GiB are free) for a block of {rows:,} rows "
            "and what is made of it; keep fewer rows there (TorchEngine(memory=BYTES)), take "
            "smaller blocks (block_rows), or lower k"
        ) from error


def _empty_like(result: Any, n: int) -> Any:
    shape = (n, *result.shape[1:])
    return (
        result.new_empty(shape) if hasattr(result, "new_empty") else np.empty(shape, result.dtype)
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
    except RuntimeError as error:
        raise InputError(
            f"engine 'torch:{named}': there is no such device; name cpu or cuda"
        ) from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"engine 'torch:{named}': only cpu and cuda are supported")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"engine 'torch:{named}' needs a GPU, but PyTorch {torch.__version__} finds none; use "
            "engine='local', or install a build of PyTorch for your GPU"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"engine 'torch:{named}': there are {torch.cuda.device_count()} GPU(s), counted from 0"
        )
    if device.type == "cuda" and device.index is None:  # as tensors say it
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _room(device: Any) -> int:
    if device.type == "cpu":
        return 1 << 62  # rows of the host are there already
    return int(_SHARE * _free_bytes(device))


def _block_numbers(device: Any) -> int:
    """When the engine is made, so that all its passes have the same blocks."""
    if device.type == "cpu":
        return _HOST_NUMBERS
    return min(_BLOCK_NUMBERS, int(_BLOCK_SHARE * _free_bytes(device)))


def _free_bytes(device: Any) -> int:
    import torch

    return int(torch.cuda.mem_get_info(device)[0])
