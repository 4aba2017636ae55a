"""Tables of every kind, and their columns as rows or values: what `tables.py` asks for by name.

It is loaded where a column is asked for, since PyArrow is loaded with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.tables import LENDING
from fairnepv.errors import InputError
from fairnepv.io.capsules import as_column, check_name, column_rows, column_values, read_columns
from fairnepv.io.read import open_rows, read_picks, table_source
from fairnepv.io.source import Source
from fairnepv.io.taken import read_with_gaps
from fairnepv.views.intake import is_column


class Table(Protocol):
    """Named columns of the same rows, wherever they lie."""

    def rows(self, name: str) -> Any:
        """(n, p) numbers of a column, as a view takes them."""

    def values(self, name: str, gaps: bool = False) -> NDArray[Any]:
        """(n,) values; rows without one are refused, or with `gaps` None and NaN."""


def open_table(data: Any, names: Sequence[str], missing: str | None = None) -> Table:
    """The table that `data` is, with these columns; rows may be `missing`."""
    if isinstance(data, str | Path):
        return _FileTable(data, gaps=missing not in (None, "refuse"))
    if isinstance(data, Mapping):
        return _Mapped(data)
    if any(hasattr(data, way) for way in LENDING) and not is_column(data):
        return _Lent(data, names)
    raise InputError(
        "views= names columns of a table (pandas, Polars, PyArrow, DuckDB, Hugging Face, a mapping "
        f"from names to columns, or the path of a Parquet or Arrow file), but data is "
        f"{type(data).__name__}; columns of an array have numbers, as in {{'text': slice(0, 384)}}"
    )


def column_of(value: Any, what: str) -> NDArray[Any]:
    """(n,) values of one column of any kind; none may be missing."""
    return column_values(as_column(value, what), what)


class _Held(ABC):
    """A table in memory, whose columns Arrow can have."""

    @abstractmethod
    def column(self, name: str) -> Any:
        """A column as a chunked array."""

    def rows(self, name: str) -> Any:
        return column_rows(self.column(name), f"column {name!r}")

    def values(self, name: str, gaps: bool = False) -> NDArray[Any]:
        return column_values(self.column(name), f"column {name!r}", gaps=gaps)


class _Lent(_Held):
    """A table of another library, which lends its columns."""

    def __init__(self, data: Any, names: Sequence[str]) -> None:
        self.columns = read_columns(data, names)

    def column(self, name: str) -> Any:
        return self.columns[name]


class _Mapped(_Held):
    """A mapping from names to columns, which may be of any kind."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        if data and all(any(hasattr(v, way) for way in LENDING[1:]) for v in data.values()):
            raise InputError(f"data holds several tables ({', '.join(map(str, data))}); take one")
        self.data = data

    def column(self, name: str) -> Any:
        return as_column(self._value(name), f"column {name!r}")

    def rows(self, name: str) -> Any:
        """Values with rows and columns are taken as they are, others read as any column."""
        value = self._value(name)
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype != object:
            return value[:, None]
        return super().rows(name) if _is_flat(value) else value

    def _value(self, name: str) -> Any:
        check_name(name, list(self.data))
        return self.data[name]


def _is_flat(value: Any) -> bool:
    """Whether this is a column of Arrow or of objects, or has one value per row."""
    if isinstance(value, list | tuple):
        first: Any = next((row for row in value if row is not None), None)
        return not isinstance(first, list | tuple) and np.ndim(first) == 0
    return is_column(value) or getattr(value, "ndim", 0) == 1


class _FileTable:
    """A Parquet or Arrow file, or a folder of them, whose views stay there; in memory are those of
    which some rows have no value, if there may be `gaps`."""

    def __init__(self, path: str | Path, gaps: bool) -> None:
        (self.source, self.names), self.gaps = table_source(path), gaps

    def rows(self, name: str) -> Any:
        return (read_with_gaps if self.gaps else open_rows)(self._at(name))

    def values(self, name: str, gaps: bool = False) -> NDArray[Any]:
        return read_picks(self._at(name), name)

    def _at(self, name: str) -> Source:
        check_name(name, self.names, str(self.source.path))
        return self.source.with_part(name)
