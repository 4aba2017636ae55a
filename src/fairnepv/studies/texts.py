"""Texts where users have them: a column of a table, or the lines of a file."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.source import Source, choose_part, split_source, unreadable

TEXT_TABLES = (".csv", ".parquet", ".arrow", ".feather", ".txt")


@dataclass(frozen=True)
class Texts:
    """Rows of a table; a cell that is empty is None."""

    path: Path
    ids: list[str | None]
    texts: list[str | None]


def texts_at(text: str, ids: str | None = None) -> Texts:
    """TABLE[:COLUMN]; ids from the column named, or `id`, or the numbers of rows.

    Of a .txt every line is a text.
    """
    source = split_source(text)
    path = Path(str(source.path))
    if not path.is_file():
        raise InputError(f"--texts {text}: {path} does not exist; check the path")
    if source.ending not in TEXT_TABLES:
        raise InputError(f"--texts {text}: give one of {', '.join(TEXT_TABLES)}")
    try:
        columns = _columns(path, source.ending)
    except Exception as error:
        raise unreadable(str(path), source.ending[1:], error) from error
    given = "text" if source.part is None and "text" in columns else source.part
    cells = columns[choose_part(Source(path, given), list(columns), "column")]
    if ids is not None:
        choose_part(Source(path, ids), list(columns), "column")
    name = ids or ("id" if "id" in columns else None)
    numbers = columns[name] if name else [str(i) for i in range(len(cells))]
    return Texts(path, [_cell(value) for value in numbers], [_cell(value) for value in cells])


def _columns(path: Path, ending: str) -> dict[str, list[Any]]:
    if ending == ".txt":
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        return {"text": [line for line in lines if line.strip()]}
    if ending == ".csv":
        return _csv_columns(path)
    import pyarrow.feather
    import pyarrow.parquet

    read = pyarrow.parquet.read_table if ending == ".parquet" else pyarrow.feather.read_table
    table = read(path)
    plain = [f.name for f in table.schema if str(f.type) in _PLAIN]
    return {name: table.column(name).to_pylist() for name in plain}


_PLAIN = (
    "string",
    "large_string",
    "string_view",
    *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)),
)


def _csv_columns(path: Path) -> dict[str, list[Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, strict=True)
        names = next(rows, [])
        cells: list[list[Any]] = [[] for _ in names]
        for row in rows:
            if row:  # a line without anything is no row
                for i, column in enumerate(cells):
                    column.append(row[i] if i < len(row) else None)
    if len(set(names)) < len(names):
        raise ValueError("two columns have the same name")
    return dict(zip(names, cells, strict=True))


def _cell(value: Any) -> str | None:
    return str(value) if value is not None and str(value).strip() else None
