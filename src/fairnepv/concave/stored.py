"""Stored values, which may come from anybody: each of the type that is asked for, or a ValueError.

Python and NumPy would take nearly anything: 3.7 is no number of rows, and "no" is not false.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairnepv.views.base import Floats, Indices

T = TypeVar("T")
Arrays = Mapping[str, NDArray[Any]]


def typed(record: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A value of this very type."""
    value = record[name]
    if type(value) is not kind:
        raise ValueError(f"{name} must be {kind.__name__}, not {value!r}")
    return value


def number(record: Mapping[str, Any], name: str) -> float:
    """A number; those of a document are finite."""
    return _number(name, record[name])


def numbers(record: Mapping[str, Any], name: str) -> dict[str, float]:
    """A number for every view, by its name."""
    return {view: _number(name, value) for view, value in record[name].items()}


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{name} must be a number, not {value!r}")
    return float(value)


def whole_numbers(arrays: Arrays, name: str) -> Indices:
    """A vector of integers."""
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be whole numbers")
    return array.astype(np.int64)


def real_numbers(arrays: Arrays, name: str, shape: tuple[int, ...] | None = None) -> Floats:
    """Finite numbers, of this shape if one is given; -1 there stands for any length."""
    if arrays[name].dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numbers")
    with np.errstate(over="ignore"):  # of a wider type
        array = arrays[name].astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite numbers")
    if shape is not None and (
        array.ndim != len(shape)
        or any(wanted not in (-1, size) for wanted, size in zip(shape, array.shape, strict=True))
    ):
        raise ValueError(f"{name} has the wrong shape")
    return array
