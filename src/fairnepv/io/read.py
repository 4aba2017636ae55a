"""What a command reads: features, ids and picks, by the ending of the file."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io import numpy_files, tables
from fairnepv.io.source import Source, parse_source

_ARRAYS = {".npy": numpy_files.read_npy, ".npz": numpy_files.read_npz}
_FEATURES = {**_ARRAYS, ".parquet": tables.read_parquet}
_COLUMNS: dict[str, Any] = {
    ".parquet": tables.read_parquet,
    ".csv": tables.read_csv,
    ".json": tables.read_json,
    ".txt": tables.read_lines,
}


def read_features(text: str) -> Any:
    """The (n, p) array or sparse matrix at FILE[:PART]; a plain column becomes (n, 1)."""
    source = parse_source(text, tuple(_FEATURES))
    array = _FEATURES[source.ending](source)
    if isinstance(array, np.ndarray):
        _refuse_objects(array, source, "numbers")
        if array.ndim == 1 and source.ending == ".parquet":
            return array[:, None]
    return array


def read_ids(text: str) -> NDArray[Any]:
    """One id per row at FILE[:PART]: .npy, .npz, .parquet, .csv, .json or .txt (a line each)."""
    return _read_column(text, "id")


def read_picks(text: str, column: str) -> NDArray[Any]:
    """Picks at FILE[:PART]; `column` is read from the tables that `select --out` writes."""
    return _read_column(text, column)


def read_numbers(text: str) -> NDArray[Any]:
    """One number per row at FILE[:PART], such as weights."""
    array = _read_column(text, "quality")
    if array.dtype.kind in "US":
        try:
            return array.astype(np.float64)
        except ValueError as error:
            stranger = next(value for value in array.tolist() if not _is_number(value))
            raise InputError(f"{text} must hold numbers, not {stranger!r}") from error
    return array


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_column(text: str, default: str) -> NDArray[Any]:
    readers: dict[str, Any] = {
        **_ARRAYS,
        **{e: partial(r, default=default) for e, r in _COLUMNS.items()},
    }
    source = parse_source(text, tuple(readers))
    array = readers[source.ending](source)
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        shape = getattr(array, "shape", ())
        raise InputError(f"{source} must hold one value per row, not shape {shape}")
    return _refuse_objects(_strings(array), source, "strings or integers")


def _strings(array: NDArray[Any]) -> NDArray[Any]:
    """Arrow hands out strings as objects."""
    if array.dtype == object and all(isinstance(value, str) for value in array):
        return array.astype(str)
    return array


def _refuse_objects(array: NDArray[Any], source: Source, wanted: str) -> NDArray[Any]:
    if array.dtype == object:
        kind = type(array.flat[0]).__name__ if array.size else "nothing"
        raise InputError(f"{source} must hold {wanted}, not Python objects ({kind})")
    return array
