"""Columns of CSV, JSON and text tables as arrays; the tables that `write` makes among them."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.places import for_arrow
from fairnepv.io.source import Source, choose_part, unreadable
from fairnepv.io.texts import text_array

TEXT_MARK = "# fairnepv "  # how the text tables that `write` makes begin


def read_csv(source: Source, default: str | None = None) -> NDArray[Any]:
    """One column of a CSV file with a header; integers only where all are written plainly."""
    with _reading(source, "CSV"):
        with source.path.open(encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader(file), [])
        if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
            raise InputError(f"{source.path} is not separated by commas; write it again so")
        column = _choose(source, names, default)
        as_text = pyarrow.csv.ConvertOptions(
            include_columns=[column], column_types={column: pa.string()}
        )
        every_line = pyarrow.csv.ParseOptions(ignore_empty_lines=False)
        table = pyarrow.csv.read_csv(
            for_arrow(source.path), convert_options=as_text, parse_options=every_line
        )
        what = f"{source.path}, column {column!r}"
        values = text_array(table.column(0).to_pylist(), what)
        _refuse_gaps(values == "", what)
        return _integers_if_all(values)


def read_json(source: Source, default: str | None = None) -> NDArray[Any]:
    """A list, or one field of the `picks` that `write` puts into a JSON file."""
    with _reading(source, "JSON"):
        content = json.loads(source.path.read_text(encoding="utf-8-sig"))
    if isinstance(content, dict) and isinstance(content.get("picks"), list):
        rows = content["picks"]
        names = list(rows[0]) if rows and isinstance(rows[0], dict) else []
        column = _choose(source, names, default)
        content = [row.get(column) if isinstance(row, dict) else None for row in rows]
    elif source.part is not None:
        raise InputError(f"{source.path} has no {source.part!r}: it is not a file of picks")
    kinds = {type(value) for value in content} if isinstance(content, list) else set()
    if kinds not in ({int}, {str}):
        raise InputError(
            f"{source.path} must hold a list of integers or of strings, or an object with a list "
            "of picks"
        )
    return text_array(content, str(source.path)) if kinds == {str} else np.array(content)


def read_lines(source: Source, default: str | None = None) -> NDArray[Any]:
    """The lines of a text file; of a table that `write` made, the default column."""
    with _reading(source, "text"):
        lines = source.path.read_text(encoding="utf-8-sig").replace("\r\n", "\n").split("\n")
    at = None
    if len(lines) > 1 and lines[0].startswith(TEXT_MARK) and lines[1].startswith("# "):
        header = lines[1][2:].split("\t")
        at = header.index(default) if default in header else 0
        lines = lines[2:]
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise InputError(f"{source.path} has no lines; put one value on each")
    if at is None:
        return _integers_if_all(text_array([line.strip() for line in lines], str(source.path)))
    cells = [line.split("\t") for line in lines]
    if any(len(row) <= at for row in cells):
        raise InputError(f"{source.path} has lines with too few columns; write it again")
    return _integers_if_all(text_array([row[at].strip() for row in cells], str(source.path)))


@contextlib.contextmanager
def _reading(source: Source, kind: str) -> Iterator[None]:
    """Whatever a parser makes of broken bytes becomes one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise unreadable(str(source.path), kind, error) from error


def _choose(source: Source, names: list[str], default: str | None) -> str:
    if source.part is None and default in names:
        source = Source(source.path, default)
    return choose_part(source, names, "column")


def _integers_if_all(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers where every line is one written plainly: "007" stays a name."""
    try:
        numbers = values.astype(np.int64)
    except (ValueError, OverflowError):
        return values
    return numbers if np.array_equal(numbers.astype(values.dtype), values) else values


def _refuse_gaps(missing: NDArray[Any], what: str) -> None:
    rows = np.flatnonzero(missing)
    if len(rows):
        raise InputError(
            f"{what} has {len(rows)} empty row(s), the first is row {rows[0]}; drop or fill them"
        )
