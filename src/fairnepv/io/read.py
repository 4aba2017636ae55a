"""What a command reads: features, ids and picks, by ending or by kind of folder."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.display import shown_uri
from fairnepv.errors import InputError
from fairnepv.io import arrow_files, folders, manifest, numpy_files, safetensors, table_rows, tables
from fairnepv.io.rows import HeldRows, RowFile
from fairnepv.io.source import TABLE_ENDINGS, Source, parse_source
from fairnepv.io.texts import KINDS, as_texts

_ARRAYS = {".npy": numpy_files.read_npy, ".npz": numpy_files.read_npz}
_FEATURES: dict[str, Any] = {
    **_ARRAYS,
    **dict.fromkeys(TABLE_ENDINGS, table_rows.TableRows),
    ".safetensors": safetensors.read_safetensors,
}
FEATURE_ENDINGS = tuple(_FEATURES)
_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(TABLE_ENDINGS, table_rows.read_column),
    ".csv": tables.read_csv,
    ".json": tables.read_json,
    ".txt": tables.read_lines,
}


def read_features(given: str | Source) -> Any:
    """The rows at PATH[:PART]: a `RowFile`, which leaves them in their file, or a sparse matrix.

    What is no matrix of numbers comes as an array, for the caller to refuse in its own words.
    """
    source = parse_source(given, tuple(_FEATURES), folders=True)
    if source.path.is_dir():
        return folders.open_folder(source)
    return _FEATURES[source.ending](source)


def open_rows(path: Any) -> RowFile | Any:
    """Rows of numbers at PATH[:PART], as a view for `select`; they stay in their files, but for
    SciPy's sparse .npz, which is a `csr_array` in memory.

    PATH is a .npy, .npz, .parquet, .arrow, .feather or .safetensors file, or a folder of shards, a
    Hugging Face data set or what `fairnepv convert` wrote (docs/files.md). `rows[start:stop]` and
    `rows[indices]` give arrays.
    """
    rows = read_features(path if isinstance(path, Source) else str(path))
    if isinstance(rows, RowFile):
        return rows
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind in "fiub":
        return HeldRows(rows, shown_uri(str(path)))
    if isinstance(rows, np.ndarray):
        raise InputError(
            f"{path} must hold a matrix of numbers, not {rows.dtype} of shape {rows.shape}"
        )
    return rows.tocsr()


def table_source(path: Any) -> tuple[Source, list[str]]:
    """A Parquet or Arrow file, or a folder of them, and the names of its columns."""
    source = parse_source(str(path), TABLE_ENDINGS, folders=True)
    if source.part is not None:
        raise InputError(f"{path} names a column; give the path of the table alone")
    if source.path.is_dir():
        names = folders.table_columns(source)
        if not names:
            raise InputError(f"{source.path} is no folder of tables; name a file of it")
        return source, names
    return source, arrow_files.column_names(source)


def read_ids(given: str | Source) -> NDArray[Any]:
    """One id per row at PATH[:PART]: .npy, .npz, a table, .csv, .json or .txt (a line each), a
    folder of tables or one that `fairnepv convert` wrote."""
    return read_picks(given, "id")


def converted_ids(given: str | Source) -> NDArray[Any] | None:
    """The ids that a converted folder brings along; None of any other source."""
    source = parse_source(given, tuple(_FEATURES), folders=True)
    return manifest.read_ids(source) if source.path.is_dir() and manifest.is_at(source) else None


def id_column(given: str | Source) -> NDArray[Any] | None:
    """The column `id` of the table that features come from; None where there is none."""
    source = parse_source(given, tuple(_FEATURES), folders=True)
    if source.path.is_dir():
        found = "id" in folders.table_columns(source)
    else:
        found = source.ending in TABLE_ENDINGS and "id" in arrow_files.column_names(source)
    return read_ids(source.with_part("id")) if found else None


def read_numbers(given: str | Source) -> NDArray[Any]:
    """One number per row at FILE[:PART], such as weights."""
    array = read_picks(given, "quality")
    if array.dtype.kind not in KINDS + "S":
        return array
    numbers = []
    for text in array.tolist():
        try:
            numbers.append(float(text))
        except ValueError as error:
            raise InputError(f"{given} must hold numbers, not {text!r}") from error
    return np.array(numbers)


def read_picks(given: str | Source, column: str) -> NDArray[Any]:
    """One value per row at PATH[:PART]; without a part `column` is read from tables that have it,
    such as those that `select --out` writes."""
    source = parse_source(given, (*_ARRAYS, *_COLUMNS), folders=True)
    if source.path.is_dir():
        array = folders.read_folder_ids(source, column)
    elif source.ending in _ARRAYS:
        array = _ARRAYS[source.ending](source)
    else:
        array = _COLUMNS[source.ending](source, column)
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        shape = getattr(array, "shape", ())
        raise InputError(f"{source} must hold one value per row, not shape {shape}")
    array = as_texts(array, str(source))
    if array.dtype == object:
        kind = type(array.flat[0]).__name__ if array.size else "nothing"
        raise InputError(f"{source} must hold strings or integers, not Python objects ({kind})")
    return array
