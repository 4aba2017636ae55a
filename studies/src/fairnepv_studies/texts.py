"""Texts where users have them: a column of a table, or the lines of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.places import open_text
from fairnepv.io.source import Source, choose_part, split_source, unreadable
from fairnepv.io.tables import csv_rows
from fairnepv_studies.files import local

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
    path = local(str(source.path))
    if not path.is_file():
        raise InputError(f"--texts {text}: {path} does not exist; check the path")
    if source.ending not in TEXT_TABLES:
        raise InputError(f"--texts {text}: give one of {', '.join(TEXT_TABLES)}")
    try:
        table = _READERS[source.ending](path)
        given = "text" if source.part is None and "text" in table.names else source.part
        cells = table.column(path, given)
        named = ids or ("id" if "id" in table.names else None)
        numbers = table.column(path, named) if named else [str(i) for i in range(len(cells))]
    except InputError:
        raise
    except Exception as error:  # whatever parsers make of damaged bytes
        raise unreadable(str(path), source.ending[1:], error) from error
    return Texts(path, [_cell(value) for value in numbers], [_cell(value) for value in cells])


@dataclass(frozen=True)
class Table:
    """Columns by place, since names may come twice; `kinds` are types that are no text."""

    names: list[str]
    read: Callable[[int], list[Any]]
    kinds: Mapping[int, str]

    def column(self, path: Path, name: str | None) -> list[Any]:
        place = self.names.index(choose_part(Source(path, name), self.names, "column"))
        if place in self.kinds:
            raise InputError(
                f"{path}, column {self.names[place]!r} must hold texts or whole numbers, not "
                f"{self.kinds[place]}; write it as text"
            )
        return self.read(place)


def _lines(path: Path) -> Table:
    with open_text(path) as file:
        lines = file.read().split("\n")
    return Table(["text"], lambda _: [line for line in lines if line.strip()], {})


def _csv(path: Path) -> Table:
    names, *rows = csv_rows(path, padded=True)
    filled = [row for row in rows if row]  # a line without anything is no row
    return Table(names, lambda at: [row[at] if at < len(row) else None for row in filled], {})


def _arrow(path: Path) -> Table:
    import pyarrow as pa

    from fairnepv.io.arrow_files import Column, column_types, counted_chunks

    source = Source(path, None)
    types = column_types(source)
    kinds = {}
    for place, (_, kind) in enumerate(types):
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        if str(inner) not in _PLAIN:
            kinds[place] = str(kind)
    names = [name for name, _ in types]

    def read(place: int) -> list[Any]:
        chunks = counted_chunks(Column(source, names[place], place, None))
        return [value for chunk in chunks for value in chunk.to_pylist()]

    return Table(names, read, kinds)


_PLAIN = (
    *("string", "large_string", "string_view", "null"),
    *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)),
)
_READERS: Mapping[str, Callable[[Path], Table]] = {
    ".txt": _lines,
    ".csv": _csv,
    **dict.fromkeys((".parquet", ".arrow", ".feather"), _arrow),
}


def _cell(value: Any) -> str | None:
    return str(value) if value is not None and str(value).strip() else None
