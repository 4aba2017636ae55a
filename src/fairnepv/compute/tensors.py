"""The way between NumPy and PyTorch: arrays and CSR matrices to a device and back."""

import contextlib
import functools
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.compute.shifted import ShiftedRows

_MOST_INT32 = (1 << 31) - 1
_QUEUED = 2  # blocks that a device is told of before it has done them: the host copies meanwhile


def to_device(array: Any, device: Any) -> Any:
    import torch

    if isinstance(array, ShiftedRows):
        return array.moved(functools.partial(to_device, device=device))
    if isinstance(array, torch.Tensor):
        return array if array.device == device else array.to(device)
    if sp.issparse(array):
        crow, col, values = (to_device(x, device) for x in csr_parts(array))
        return csr_tensor(crow, col, values, array.shape)
    array = np.asarray(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.float64)  # of these PyTorch knows the names alone
    held = shared(array)
    there = torch.from_numpy(np.array(array, order="C")) if held is None else held
    return there.to(device)


def shared(array: NDArray[Any]) -> Any:
    """A tensor of the same memory, or None where PyTorch takes none of it."""
    import torch

    known = array.dtype.isnative and (array.dtype.kind != "u" or array.dtype.itemsize == 1)
    if not (known and array.flags.writeable and array.flags.c_contiguous):
        return None
    return torch.from_numpy(array)


def to_host(tensor: Any) -> Any:
    if isinstance(tensor, ShiftedRows):
        return tensor.moved(to_host)
    if isinstance(tensor, np.ndarray) or sp.issparse(tensor):
        return tensor
    if is_sparse(tensor):
        crow, col, values = map(to_host, csr_parts(tensor))
        return sp.csr_array((values, col, crow), shape=tuple(tensor.shape))
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return tensor.detach().cpu().numpy()


def is_sparse(tensor: Any) -> bool:
    """Whether this is a CSR tensor; SciPy's arrays are none."""
    return str(getattr(tensor, "layout", "")) == "torch.sparse_csr"


def csr_parts(matrix: Any) -> tuple[Any, Any, Any]:
    """Row ends, columns and values of a CSR matrix, SciPy's or a tensor."""
    if sp.issparse(matrix):
        return matrix.indptr, matrix.indices, matrix.data
    return matrix.crow_indices(), matrix.col_indices(), matrix.values()


def csr_tensor(crow: Any, col: Any, values: Any, shape: tuple[int, int]) -> Any:
    """Nothing is checked: rows that are numbered anew may name a column twice."""
    import torch

    silence_csr_warning()
    if len(col) > _MOST_INT32:
        col = col.long()
    return torch.sparse_csr_tensor(crow.to(col.dtype), col, values, shape, check_invariants=False)


@functools.cache
def silence_csr_warning() -> None:
    """Have PyTorch say here, unheard, what it says once in a process: that CSR tensors are new to
    it, and in some versions that it does not check them, which is no user's concern."""
    import torch

    none = torch.zeros(0, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)
        torch.sparse_csr_tensor(
            none.new_zeros(2), none, none.float(), (1, 1), check_invariants=False
        )


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


class Queue:
    """The blocks that a device was told of. It works on them later than the host says so: without
    waiting for it, a clock that is asked between blocks would tell nothing of when they end."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._told: deque[Any] = deque()

    def add(self) -> None:
        """Note the block that the device was told of last."""
        if self._device.type == "cuda":
            import torch

            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(self._device))
            self._told.append(event)

    def wait(self) -> None:
        """Until few enough of them are left for another one to be told of."""
        while len(self._told) >= _QUEUED:
            self._told.popleft().synchronize()


def on_one_device(arrays: list[Any]) -> list[Any]:
    """Arrays and tensors: all on the device of those that are tensors, if any is."""
    devices = [x.device for x in arrays if hasattr(x, "new_empty")]
    return [to_device(x, devices[0]) for x in arrays] if devices else arrays


@contextlib.contextmanager
def whole_float32() -> Iterator[None]:
    """Products in all 24 bits, whatever a user allows PyTorch elsewhere: what a coarse product may
    be off by is counted on."""
    import torch

    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # before PyTorch 2.9
        allowed = torch.get_float32_matmul_precision()
        try:
            torch.set_float32_matmul_precision("highest")
            yield
        finally:
            torch.set_float32_matmul_precision(allowed)
        return
    found = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]
    knobs = [knob for knob in found if knob.fp32_precision in ("tf32", "bf16")]
    before = [knob.fp32_precision for knob in knobs]
    try:
        for knob in knobs:
            knob.fp32_precision = "ieee"
        yield
    finally:
        for knob, precision in zip(knobs, before, strict=True):
            knob.fp32_precision = precision
