"""Sparse matrices that a user hands in, made sound."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from fairnepv.errors import InputError


def sound_csr(what: str, value: Any) -> Any:
    """`value` as canonical CSR of a type that SciPy can compute with.

    Indices are checked in the format they come in, before SciPy follows them: a bad one crashes
    it or, when negative, gives a wrong answer (DESIGN 6).
    """
    if not _indices_are_sound(value):
        raise InputError(
            f"{what} is a broken sparse matrix: its index arrays do not fit its shape "
            f"{value.shape}; write the file again"
        )
    try:
        if value.dtype.kind == "f" and value.dtype not in (np.float32, np.float64):
            value = value.astype(np.float32 if value.dtype.itemsize <= 4 else np.float64)
        matrix = sp.csr_array(value)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()  # the user's own arrays stay as they are
            matrix.sum_duplicates()
    except ValueError as error:
        raise InputError(f"{what} cannot be read as a sparse matrix ({error})") from error
    return matrix


def _indices_are_sound(value: Any) -> bool:
    rows, columns = value.shape
    if value.format == "coo":
        i, j = value.coords
        return len(i) == len(j) == len(value.data) and within(i, rows) and within(j, columns)
    if value.format not in ("csr", "csc", "bsr"):
        return True  # built by SciPy itself from Python objects or diagonals
    if value.format == "bsr":
        rows, columns = rows // value.blocksize[0], columns // value.blocksize[1]
    major, minor = (columns, rows) if value.format == "csc" else (rows, columns)
    indptr, indices = value.indptr, value.indices
    return bool(
        len(indptr) == major + 1
        and indptr[0] == 0
        and indptr[-1] <= min(len(indices), len(value.data))
        and (np.diff(indptr) >= 0).all()
        and within(indices[: indptr[-1]], minor)
    )


def within(indices: Any, size: int) -> bool:
    """Whether all indices, an array or a tensor, are from 0 to below `size`."""
    return len(indices) == 0 or bool(indices.min() >= 0 and indices.max() < size)
