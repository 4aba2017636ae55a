"""Tensors that a user hands in: rows where they are, or one clear sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from fairnepv.compute.base import tree_fold
from fairnepv.compute.place import Floats
from fairnepv.compute.tensors import csr_parts, csr_tensor, silence_csr_warning, to_device, to_host
from fairnepv.errors import InputError
from fairnepv.io.rows import Indices, RowFile, Rows
from fairnepv.views.blocks import Center
from fairnepv.views.validity import within

_CHUNK_NUMBERS = 1 << 26  # float64 numbers of rows whose squares are summed at a time
_WHOLE = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bool")
_REAL = ("float64", "float32", "float16", "bfloat16", *_WHOLE)


class TensorRows(RowFile):
    """A tensor where it is; rows come to the host when asked for."""

    resident = True
    in_file = False
    file_bytes = 0

    def __init__(self, tensor: Any, origin: str) -> None:
        self.tensor, self.origin = tensor, origin
        self.shape = tuple(tensor.shape)
        self.dtype = _numpy_type(tensor.dtype)

    @property
    def home_engine(self) -> str | None:
        """A GPU, by the name of the engine there."""
        return _engine_of(self.tensor.device)

    def squared_norms(self, center: Center | None = None) -> Floats:
        mean = 0.0 if center is None else to_device(center.mean, self.tensor.device)
        parts = [((rows.double() - mean) ** 2).sum(dim=1) for rows in self._chunks()]
        norms = np.concatenate([to_host(part) for part in parts])
        return norms if center is None else np.where(norms > center.least, norms, 0.0)

    def column_sums(self, origin: Floats) -> Floats:
        """(p,) sums of the rows less `origin` (p,)."""
        there = to_device(origin, self.tensor.device)
        parts = [to_host((rows.double() - there).sum(dim=0)) for rows in self._chunks()]
        return np.asarray(tree_fold(parts, np.add))

    def _chunks(self) -> Any:
        return self.tensor.split(max(1, _CHUNK_NUMBERS // self.shape[1]))

    def read(self, start: int, stop: int) -> Rows:
        return np.asarray(to_host(self.tensor[start:stop]))

    def gather(self, indices: Indices) -> Rows:
        return np.asarray(to_host(self.part(indices).tensor))

    def filled(self, gaps: Any) -> TensorRows:
        """With zeros for these rows (n,); a copy, where they are."""
        there = to_device(gaps, self.tensor.device)[:, None]
        return TensorRows(self.tensor.masked_fill(there, 0), self.origin)

    def part(self, indices: Indices) -> TensorRows:
        """These rows, where they are."""
        return TensorRows(self.tensor[to_device(indices, self.tensor.device)], self.origin)

    def __getstate__(self) -> dict[str, Any]:
        """Whoever unpickles this need not have the device; of a part only that part is stored."""
        tensor = self.tensor.clone() if self.tensor.device.type == "cpu" else self.tensor.cpu()
        return {**super().__getstate__(), "tensor": tensor}


class SparseRows:
    """A CSR tensor on a device; slices and index arrays give SciPy's arrays of these rows."""

    format = "csr"

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.shape, self.device = tensor, tuple(tensor.shape), tensor.device
        self.dtype, self.home_engine = _numpy_type(tensor.dtype), _engine_of(tensor.device)
        crow, col, values = csr_parts(tensor)
        self.parts, self.nnz = (crow.long(), col, values), len(values)
        self.indptr: Indices = to_host(self.parts[0])

    @property
    def nbytes(self) -> int:
        return sum(int(x.nbytes) for x in self.parts)

    def squared_norms(self) -> Floats:
        crow, _, values = self.parts
        return np.asarray(to_host(row_sums(crow, values.double() ** 2)))

    def __getitem__(self, key: Any) -> Any:
        rows = np.arange(self.shape[0])[key] if isinstance(key, slice) else np.asarray(key)
        crow, col, values = gathered(self.parts, to_device(rows, self.device))
        return to_host(csr_tensor(crow, col, values, (len(rows), self.shape[1])))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are for the host."""
        return sp.csr_array, (self[:],)


def _engine_of(device: Any) -> str | None:
    return f"torch:{device}" if device.type == "cuda" else None


def row_sums(crow: Any, values: Any) -> Any:
    import torch

    return torch.segment_reduce(values, "sum", lengths=crow.diff())


def gathered(parts: tuple[Any, Any, Any], rows: Any) -> tuple[Any, Any, Any]:
    """These rows of a CSR matrix, as one of their own."""
    import torch

    crow, col, values = parts
    first, lengths = crow[rows], crow[rows + 1] - crow[rows]
    ends = torch.cat([crow.new_zeros(1), lengths.cumsum(0)])
    total = int(ends[-1])
    shifts = torch.repeat_interleave(first - ends[:-1], lengths, output_size=total)
    at = torch.arange(total, device=crow.device) + shifts
    return ends, col[at], values[at]


def tensor_rows(value: Any, what: str) -> Any:
    """A tensor where it is, or as an array where NumPy or SciPy can read it; anything else as it
    came."""
    kind = type(value).__module__.partition(".")[0]
    lent = not isinstance(value, np.ndarray) and hasattr(value, "__dlpack_device__")
    if kind != "torch" and not (lent and int(value.__dlpack_device__()[0]) != 1):
        return value  # DLPack tells arrays of other libraries on a device from those of the host
    try:
        import torch
    except ImportError as error:
        raise InputError(
            f"{what} lies on a device, which takes PyTorch; pip install 'fairnepv[torch]'"
        ) from error
    if kind == "torch" and not isinstance(value, torch.Tensor):
        return value
    tensor = value.detach() if kind == "torch" else _borrowed(value, what)
    _check(tensor, what)
    if tensor.layout != torch.strided:
        return _sparse_rows(tensor, what)
    if tensor.device.type == "cpu" and tensor.dtype != torch.bfloat16:
        return np.asarray(tensor.resolve_conj().resolve_neg().numpy())
    return TensorRows(tensor, what)


def _borrowed(value: Any, what: str) -> Any:
    import torch

    try:
        return torch.utils.dlpack.from_dlpack(value)
    except (BufferError, RuntimeError, ValueError, TypeError) as error:
        reason = str(error).split(". ")[0].split("\n")[0]
        raise InputError(f"{what} cannot be read by PyTorch ({reason})") from error


def _check(tensor: Any, what: str) -> None:
    """Before anything is asked of it that only plain tensors can answer."""
    kind = str(tensor.dtype)
    if tensor.is_nested:
        raise InputError(f"{what} is a nested tensor; give all rows the same length (to_padded)")
    if tensor.is_quantized:
        raise InputError(f"{what} is quantized ({kind}); hand in tensor.dequantize()")
    if tensor.device.type == "meta":
        raise InputError(f"{what} is on the device 'meta', where tensors have no values")
    if tensor.device.type not in ("cpu", "cuda"):
        raise InputError(
            f"{what} is on the device {str(tensor.device)!r}, but only cpu and cuda are supported; "
            "hand in tensor.cpu()"
        )
    if tensor.ndim != 2:
        raise InputError(f"{what} must have two dimensions, not shape {tuple(tensor.shape)}")
    if tensor.is_complex():
        raise InputError(f"{what} has dtype {kind}; expected real numbers (float or integer)")
    if kind.removeprefix("torch.") not in _REAL:
        raise InputError(
            f"{what} has dtype {kind}, which nothing can be computed with; hand in tensor.float()"
        )


def _sparse_rows(tensor: Any, what: str) -> Any:
    """As CSR with sorted columns. Indices are checked here, before anybody follows them: when
    PyTorch does it on a GPU, nothing can be done with that GPU afterwards."""
    import torch

    found = _items(tensor)
    n, p = tensor.shape
    if found is None or not (within(found[0], n) and within(found[1], p)):
        raise InputError(
            f"{what} is a broken sparse tensor: its index tensors do not fit its shape {(n, p)}"
        )
    i, j, values = found
    if not bool(((i * p + j).diff() > 0).all()):
        whole = torch.sparse_coo_tensor(
            torch.stack([i, j]), values, (n, p), check_invariants=False
        ).coalesce()
        (i, j), values = whole.indices(), whole.values()
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()  # as SciPy has it
    crow = torch.cat([i.new_zeros(1), torch.bincount(i, minlength=n).cumsum(0)])
    narrow = j.int() if max(p, len(j)) < 1 << 31 else j
    rows = csr_tensor(crow, narrow, values, (n, p))
    return to_host(rows) if rows.device.type == "cpu" else SparseRows(rows)


def _items(tensor: Any) -> tuple[Any, Any, Any] | None:
    """Rows, columns and values one by one; None where the ends of rows make no sense."""
    import torch

    silence_csr_warning()
    if tensor.layout in (torch.sparse_bsr, torch.sparse_bsc):
        tensor = tensor.to_sparse_coo()
    if tensor.layout == torch.sparse_coo:
        i, j = tensor._indices()
        return i, j, tensor._values()
    by_row = tensor.layout == torch.sparse_csr
    ends = (tensor.crow_indices() if by_row else tensor.ccol_indices()).long()
    inner = (tensor.col_indices() if by_row else tensor.row_indices()).long()
    lengths, values = ends.diff(), tensor.values()
    if not (int(ends[0]) == 0 and int(ends[-1]) == len(values) and bool((lengths >= 0).all())):
        return None
    outer = torch.arange(len(lengths), device=ends.device).repeat_interleave(lengths)
    return (outer, inner, values) if by_row else (inner, outer, values)


def _numpy_type(kind: Any) -> np.dtype[Any]:
    name = str(kind).removeprefix("torch.")
    return np.dtype("float32" if name == "bfloat16" else name)
