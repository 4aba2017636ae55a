"""Pictures in a column of a Parquet file."""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.places import fingerprint
from fairnepv.io.rows import FileVersion
from fairnepv.io.source import Source, choose_part, unreadable
from fairnepv_studies.stores.base import Pictures, if_allowed

_AT_ONCE = 32  # rows of a Parquet file
_COLUMNS = ("image", "image_bytes", "image_png", "bytes")  # those that need not be named


def pictures_in_column(
    id_columns: Sequence[str] | None, source: Source, path: Path, stack: contextlib.ExitStack
) -> Pictures:
    """A column of bytes, or of the pairs (bytes, path) that Hugging Face data sets have."""
    import pyarrow.parquet as pq
    from pyarrow.types import is_struct

    from fairnepv.io.arrow_files import Column, counted_chunks

    version = FileVersion.of(path)
    stack.callback(version.check)  # once all pictures were read
    try:
        file = stack.enter_context(pq.ParquetFile(path, memory_map=True))
        names = file.schema_arrow.names
        named = source.part or next((name for name in _COLUMNS if name in names), None)
        column = choose_part(Source(path, named), names, "column")
        _check_bytes(path, column, file.schema_arrow.field(column).type)
        ids = next((id for id in id_columns or ("id",) if id in names and id != column), None)
        if ids is not None:
            found: Sequence[Any]
            chunks = counted_chunks(Column(Source(path, None), ids, names.index(ids), None))
            found = [id for chunk in chunks for id in chunk.to_pylist()]
        elif id_columns is None:
            found = range(file.metadata.num_rows)
        else:
            raise InputError(
                f"{path} has no column {' or '.join(id_columns)}; it has {', '.join(names)}"
            )
        # One picture that stands in many rows is held once.
        leaf = f"{column}.bytes" if is_struct(file.schema_arrow.field(column).type) else column
        once = stack.enter_context(pq.ParquetFile(path, memory_map=True, read_dictionary=[leaf]))
    except InputError:
        raise
    except Exception as error:  # PyArrow's words for damaged bytes are of many kinds
        raise unreadable(str(path), "Parquet", error) from error
    return Pictures(
        ["" if id is None else str(id) for id in found],
        "row {}".format,
        _Column(once, column, version).fetch,
        functools.partial(fingerprint, path),
    )


class _Column:
    """One column, read forward some rows at a time, however large its row groups are."""

    def __init__(self, file: Any, column: str, version: FileVersion) -> None:
        self._file, self._column, self._version = file, column, version
        rows = (file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))
        self._starts = list(itertools.accumulate(rows, initial=0))[:-1]
        self._group, self._batches = -1, iter(())
        self._held: Any = []  # the rows at hand
        self._first = 0  # their place

    def fetch(self, place: int) -> bytes | str:
        self._version.check(place, place + 1)  # a map of a file that is cut kills the process
        try:
            cell = self._cell(place)
        except Exception as error:  # PyArrow's words for damaged pages are of many kinds
            self._group = -1
            return f"it cannot be read ({' '.join(str(error).split())[:100]})"
        content = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(content, bytes):
            return "its row holds no bytes"
        return if_allowed(content)

    def _cell(self, place: int) -> Any:
        group = bisect.bisect_right(self._starts, place) - 1
        if group != self._group or place < self._first:
            self._begin(group)
        while place >= self._first + len(self._held):
            self._first += len(self._held)
            self._held = next(self._batches).column(0)
        return self._held[place - self._first].as_py()

    def _begin(self, group: int) -> None:
        self._group, self._first, self._held = group, self._starts[group], []
        self._batches = self._file.iter_batches(
            _AT_ONCE, row_groups=[group], columns=[self._column]
        )


def _check_bytes(path: Path, column: str, kind: Any) -> None:
    import pyarrow as pa
    from pyarrow.types import is_binary, is_large_binary, is_struct

    inner = kind.field("bytes").type if is_struct(kind) and "bytes" in _fields(kind) else kind
    if not isinstance(inner, pa.DataType) or not (is_binary(inner) or is_large_binary(inner)):
        raise InputError(f"{path}, column {column!r} must hold pictures as bytes, not {kind}")


def _fields(kind: Any) -> list[str]:
    return [kind.field(i).name for i in range(kind.num_fields)]
