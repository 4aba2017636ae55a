"""SciPy sparse matrices in `.npz`, put together from members that were checked one by one.

SciPy follows the indices of a file without looking: one that is out of bounds crashes it later on
or, when negative, gives a wrong answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.memory import refuse_expansion, refuse_size, size_in_words
from fairnepv.io.source import Source

if TYPE_CHECKING:
    from fairnepv.io.numpy_files import Archive

MARKS = {"format", "shape", "data"}  # members that every sparse matrix has
_INDICES = {
    "csr": ("indptr", "indices"),
    "csc": ("indptr", "indices"),
    "bsr": ("indptr", "indices"),
    "coo": ("row", "col"),
    "dia": ("offsets",),
}
_AXES = ("row", "column")


def read_sparse(source: Source, archive: Archive) -> Any:
    """The matrix whose members an archive holds."""
    layout = archive.array("format").item()
    layout = layout.decode() if isinstance(layout, bytes) else layout
    if layout not in _INDICES:
        raise InputError(
            f"{source} cannot be read as an .npz archive of a sparse matrix (its format is "
            f"{layout!r}); write it with scipy.sparse.save_npz"
        )
    shape = _shape(source, archive.array("shape"))
    data = archive.array("data")
    indices = [_indices(source, archive, name) for name in _INDICES[layout]]
    stored = data.nbytes + sum(array.nbytes for array in indices)
    refuse_expansion(str(source), stored, 8 * shape[0], "leave rows out that have no values")
    if layout == "coo":
        for axis, (coordinates, size) in enumerate(zip(indices, shape, strict=True)):
            _check_bounds(source, coordinates, size, _AXES[axis], None)
        return sp.coo_array((data, tuple(indices)), shape=shape)
    if layout == "dia":
        _check_diagonals(source, indices[0], shape)
        return sp.dia_array((data, indices[0]), shape=shape)
    indptr, minor = indices
    _check_compressed(source, layout, shape, data, indptr, minor)
    make = {"csr": sp.csr_array, "csc": sp.csc_array, "bsr": sp.bsr_array}[layout]
    return make((data, minor, indptr), shape=shape)


def _shape(source: Source, shape: NDArray[Any]) -> tuple[int, int]:
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise InputError(f"{source} has a broken shape {shape.tolist()}; write the file again")
    rows, columns = int(shape[0]), int(shape[1])
    refuse_unbounded(str(source), (rows, columns))
    return rows, columns


def refuse_unbounded(what: str, shape: tuple[int, int]) -> None:
    """Refuse a shape, which is two numbers, of which a vector would not fit into memory."""
    rows, columns = shape
    needed = 8 * (max(rows, columns) + 1)
    told = f"{what} has shape ({rows:,}, {columns:,}), of which a row or a column alone needs"
    refuse_size(f"{told} {size_in_words(needed)}", needed, "check how it was made")


def _indices(source: Source, archive: Archive, name: str) -> NDArray[Any]:
    if name not in archive.names:
        raise InputError(f"{source} has no {name!r}, which its format needs; write the file again")
    indices = archive.array(name)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise InputError(
            f"{source}:{name} must be a list of integers, not {indices.dtype} of shape "
            f"{indices.shape}; write the file again"
        )
    return indices


def _check_compressed(
    source: Source,
    layout: str,
    shape: tuple[int, int],
    data: NDArray[Any],
    indptr: NDArray[Any],
    minor: NDArray[Any],
) -> None:
    sizes = list(shape)
    if layout == "bsr":
        if data.ndim != 3 or 0 in data.shape[1:]:
            raise InputError(f"{source} has blocks of shape {data.shape[1:]}; write it again")
        sizes = [shape[0] // data.shape[1], shape[1] // data.shape[2]]
    axis = 1 if layout == "csc" else 0
    if (
        len(indptr) != sizes[axis] + 1
        or indptr[0] != 0
        or (indptr[1:] < indptr[:-1]).any()
        or int(indptr[-1]) > min(len(minor), len(data))
    ):
        raise InputError(
            f"{source} is a broken sparse matrix: its indptr does not fit the shape {shape} and "
            f"its {len(data):,} values; write the file again"
        )
    _check_bounds(source, minor[: int(indptr[-1])], sizes[1 - axis], _AXES[1 - axis], indptr)


def _check_diagonals(source: Source, offsets: NDArray[Any], shape: tuple[int, int]) -> None:
    """Refuse diagonals out of bounds: SciPy makes 32-bit numbers of them, whatever they were."""
    rows, columns = shape
    for offset in offsets.tolist():
        if not -rows < offset < columns:
            raise InputError(
                f"{source} is a broken sparse matrix: it names diagonal {offset:,}, but its "
                f"diagonals are {1 - rows:,} to {columns - 1:,}; write the file again"
            )


def _check_bounds(
    source: Source, indices: NDArray[Any], size: int, axis: str, indptr: NDArray[Any] | None
) -> None:
    bad = np.flatnonzero((indices < 0) | (indices >= size))
    if not len(bad):
        return
    where = ""
    if indptr is not None:
        other = "row" if axis == "column" else "column"
        where = f" in {other} {int(np.searchsorted(indptr, bad[0], side='right')) - 1:,}"
    raise InputError(
        f"{source} is a broken sparse matrix: it names {axis} {int(indices[bad[0]]):,}{where}, but "
        f"its {axis}s are 0 to {size - 1:,}; write the file again"
    )
