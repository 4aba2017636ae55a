"""Columns of CSV, JSON and text tables as arrays; the tables that `write` makes among them."""

import contextlib
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.places import AnyPath, open_text
from fairnepv.io.source import Source, choose_part, reading
from fairnepv.io.texts import text_array

TEXT_MARK = "# fairnepv "  # how the text tables that `write` makes begin
SETTINGS = "settings"  # a column in which CSV tables of earlier versions have their settings
BESIDE = ".settings.json"  # behind the name of a table: the file that has its settings
GUARDED = "guarded_columns"  # in settings: the columns whose texts are guarded
LISTED = "lines_are"  # in settings beside a list: the column that its lines are
_LONGEST_CELL = 1 << 28  # letters; Python allows 2^17, which settings of a selection may exceed
GUARD = "'"  # goes before what a spreadsheet would take for a formula, or this reader for a gap


def csv_rows(path: AnyPath, *, padded: bool = False) -> Iterator[list[str]]:
    """The header of a CSV file, then its rows, of which an empty line has no cells; rows that are
    too short are refused unless the caller pads them (`padded`)."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))  # of the whole process
    with open_text(path, newline="") as file:
        rows = csv.reader(file, strict=True)
        names = next(rows, [])
        if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
            raise InputError(
                f"{path} is not separated by commas; write it again with commas between them"
            )
        yield names
        for row in rows:
            if row and len(row) != len(names) and not (padded and len(row) < len(names)):
                than = "more" if len(row) > len(names) else "fewer"
                raise ValueError(f"line {rows.line_num} has {than} cells than the header")
            yield row


def read_csv(source: Source, default: str | None = None) -> NDArray[Any]:
    """One column of a CSV file with a header; integers only where all are written plainly."""
    with reading(source.path, "CSV"):
        rows = csv_rows(source.path)
        names = next(rows)
        column = choose_part(source, names, "column", default)
        at, about = names.index(column), ""
        cells: list[str] = []
        for row in rows:
            if row and not cells and names.count(SETTINGS) == 1:
                about = row[names.index(SETTINGS)]
            cells.append(row[at] if row else "")
    what = f"{source.path}, column {column!r}"
    gaps = [row for row, cell in enumerate(cells) if not cell]
    if gaps:
        raise InputError(
            f"{what} has {len(gaps)} empty row(s), the first is row {gaps[0]}; drop or fill them"
        )
    if column != SETTINGS and column in _guarded(about, source.path):
        cells = [cell.removeprefix(GUARD) for cell in cells]
    return _integers_if_all(text_array(cells, what))


def read_json(source: Source, default: str | None = None) -> NDArray[Any]:
    """A list, or one field of the `picks` that `write` puts into a JSON file."""
    with reading(source.path, "JSON"), open_text(source.path) as file:
        content = json.load(file)
    if isinstance(content, dict) and isinstance(content.get("picks"), list):
        rows = content["picks"]
        names = list(rows[0]) if rows and isinstance(rows[0], dict) else []
        column = choose_part(source, names, "column", default)
        content = [row.get(column) if isinstance(row, dict) else None for row in rows]
    elif source.part is not None:
        raise InputError(f"{source.path} has no {source.part!r}: it is not a file of picks")
    kinds = {type(value) for value in content} if isinstance(content, list) else set()
    if kinds not in ({int}, {str}):
        raise InputError(
            f"{source.path} must hold a list of integers or of strings, or an object with a list "
            "of picks"
        )
    if kinds == {str}:
        return text_array(content, str(source.path))
    # A type that holds all; NumPy would make floats of small and large ones.
    unsigned = min(content) >= 0 and 2**63 <= max(content) < 2**64
    return np.array(content, np.uint64 if unsigned else None)


def read_lines(source: Source, default: str | None = None) -> NDArray[Any]:
    """The lines of a text file; of a table that `write` made, the default column."""
    with reading(source.path, "text"), open_text(source.path) as file:
        lines = file.read().split("\n")
    at = None
    if len(lines) > 1 and lines[0].startswith(TEXT_MARK) and lines[1].startswith("# "):
        header = lines[1][2:].split("\t")
        at = header.index(default) if default in header else 0
        guarded = header[at] in _guarded(lines[0].removeprefix(TEXT_MARK))
        lines = lines[2:]
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise InputError(f"{source.path} has no lines; put one value on each")
    if at is None:
        listed = _settings_beside(source.path).get(LISTED)
        if listed == "id" and default == "row":
            raise InputError(f"{source.path} lists ids, not row numbers; say what rows are called")
        if isinstance(listed, str) and listed in _guarded("", source.path):
            with reading(source.path, "text"):
                return text_array([json.loads(line) for line in lines], str(source.path))
        return _integers_if_all(text_array([line.strip() for line in lines], str(source.path)))
    cells = [line.split("\t") for line in lines]
    if any(len(row) <= at for row in cells):
        raise InputError(f"{source.path} has lines with too few columns; write it again")
    with reading(source.path, "text"):
        texts = [json.loads(row[at]) if guarded else row[at].strip() for row in cells]
        return _integers_if_all(text_array(texts, str(source.path)))


def lists_ids(source: Source) -> bool:
    """Whether a text is a list of ids that `write` made, as what lies beside it tells."""
    return _settings_beside(source.path).get(LISTED) == "id"


def beside(path: Path) -> Path:
    """The file that has the settings of a table without room for them."""
    return path.with_name(path.name + BESIDE)


def _guarded(about: str, path: AnyPath | None = None) -> list[str]:
    """The columns of which `write` says that their texts are guarded, in the table or beside it;
    other people's have none."""
    settings = _settings(about) or ({} if path is None else _settings_beside(path))
    guarded = settings.get(GUARDED)
    return [name for name in guarded if isinstance(name, str)] if isinstance(guarded, list) else []


def _settings_beside(path: AnyPath) -> dict[str, Any]:
    """The settings in the file beside a local table; none where there is no such file of ours."""
    if not isinstance(path, Path) or not beside(path).is_file():
        return {}
    with contextlib.suppress(OSError, UnicodeError), open_text(beside(path)) as file:
        return _settings(file.read())
    return {}


def _settings(text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        settings = json.loads(text)
        return settings if isinstance(settings, dict) else {}
    return {}


def _integers_if_all(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers where every line is one written plainly: "007" stays a name."""
    if values.dtype.kind == "U" and values.dtype.itemsize > 4 * len(str(-(2**63))):
        return values  # wider than any number; NumPy would take seconds to find out
    try:
        numbers = values.astype(np.int64)
    except (ValueError, OverflowError):
        return values
    return numbers if np.array_equal(numbers.astype(values.dtype), values) else values
