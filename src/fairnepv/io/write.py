"""Files that appear whole or not at all, and only where the user meant them to."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairnepv.display import shown
from fairnepv.errors import InputError
from fairnepv.io.atomic import check_writable, whole_file, write_errors
from fairnepv.io.frames import Table as Table
from fairnepv.io.frames import arrow_table, by_row
from fairnepv.io.frames import to_json as to_json
from fairnepv.io.places import local_path, real_path
from fairnepv.io.source import check_ending, refuse_folder
from fairnepv.io.tables import GUARD, GUARDED, LISTED, TEXT_MARK, beside

TABLES = (".parquet", ".csv", ".json", ".txt")
_APART = (".csv", ".txt")  # tables without room for settings
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
_BLANKS = re.compile(r"^\s|[\t\r\n\ud800-\udfff]|\s$")


@dataclass(frozen=True)
class Output:
    """A file to be written, checked before any work is done."""

    path: Path

    @classmethod
    def at(cls, text: str, endings: tuple[str, ...], *, force: bool) -> Output:
        path = local_path(text)
        check_ending(path, endings)
        refuse_folder(path)
        for folder in (path.parent, real_path(path).parent):
            check_writable(folder)
        output = cls(path)
        for file in output.files:
            if os.path.lexists(file) and not force:
                raise InputError(f"{file} exists already; add --force to replace it")
        return output

    @property
    def files(self) -> list[Path]:
        """This file, and where it is a table without room for settings, that which has them."""
        apart = self.path.suffix.lower() in _APART
        return [self.path, beside(self.path)] if apart else [self.path]

    @contextlib.contextmanager
    def part(self) -> Iterator[Path]:
        """A file to be written, which takes the place of the output at the end."""
        with write_errors(self.path), whole_file(real_path(self.path)) as part:
            yield part

    def write(self, content: bytes) -> None:
        with self.part() as part:
            part.write_bytes(content)


def write_table(output: Output, table: Table) -> list[Path]:
    """Parquet keeps `about` in its metadata, JSON beside the rows, text in a comment; CSV, and text
    of a table that is a list, which other programs read, have it in a file beside them. Returns
    what was written."""
    makers: dict[str, Callable[[Table], bytes | Apart]] = {
        ".parquet": _parquet,
        ".csv": _csv,
        ".txt": _text,
        ".json": _json,
    }
    try:
        content = makers[output.path.suffix.lower()](table)
    except UnicodeError as error:
        raise InputError(
            f"{output.path} cannot hold texts with half a character (a lone surrogate), and there "
            "is one; write .json or .txt"
        ) from error
    if not isinstance(content, Apart):
        output.write(content)
        return [output.path]
    settings = Output(beside(output.path))
    with output.part() as part:  # on a full disk neither of them
        part.write_bytes(content.content)
        settings.write((to_json(content.about) + "\n").encode())
    return [output.path, settings.path]


@dataclass(frozen=True)
class Apart:
    """The bytes of a table, and what is written beside it."""

    content: bytes
    about: Mapping[str, Any]


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def write_array(output: Output, array: NDArray[Any]) -> None:
    """One array as .npy, without a copy of it in memory."""
    with output.part() as part, part.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def write_arrays(output: Output, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Named arrays as .npz."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # the stubs take names for flags
    output.write(buffer.getvalue())


def table_document(table: Table) -> dict[str, Any]:
    """The table as plain values, for JSON; dates and bytes, which it does not know, as text."""
    columns = {}
    for name, values in table.columns.items():
        plain = values.tolist()
        columns[name] = [*map(_as_text, plain)] if values.dtype.kind in "SM" else plain
    return {**table.about, table.rows_are: by_row(columns)}


def _parquet(table: Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(arrow_table(table), buffer)
    return buffer.getvalue()


def _csv(table: Table) -> Apart:
    """CSV, in which what a spreadsheet would run, or begins so, has an apostrophe before it."""
    columns, about = _columns(table, _FORMULA.match, _apostrophe)
    rows = [[*columns], *zip(*columns.values(), strict=True)]
    return Apart("".join(",".join(map(_quoted, row)) + "\n" for row in rows).encode(), about)


def _apostrophe(cell: str) -> str:
    return GUARD + cell if not cell or cell.startswith(GUARD) or _FORMULA.match(cell) else cell


def csv_line(cells: Iterable[Any]) -> str:
    """A line of a table that we do not read again; what a spreadsheet would run is guarded."""
    texts = (
        GUARD + cell if isinstance(cell, str) and _FORMULA.match(cell) else cell for cell in cells
    )
    return ",".join(_quoted("" if text is None else str(text)) for text in texts) + "\n"


def _quoted(cell: str) -> str:
    """A cell as the module csv writes it, but for carriage returns, which that leaves bare."""
    special = any(mark in cell for mark in ',"\r\n')
    return '"{}"'.format(cell.replace('"', '""')) if special else cell


def _json(table: Table) -> bytes:
    return (to_json(table_document(table)) + "\n").encode()


def _text(table: Table) -> Apart | bytes:
    """A list alone, or lines of tabs below a comment and a heading; a column with a text that would
    not survive those has all of them as JSON."""
    columns, about = _columns(table, _BLANKS.search, json.dumps)
    if table.listed is not None:
        # The ids of data without ids are its row numbers.
        are_rows = table.columns[table.listed] is table.columns.get("row")
        about = {**about, LISTED: "row" if are_rows else table.listed}
        return Apart(("\n".join(columns[table.listed]) + "\n").encode(), about)
    lines = [TEXT_MARK + to_json(about, indent=None), "# " + "\t".join(map(shown, columns))]
    lines += map("\t".join, zip(*columns.values(), strict=True))
    return ("\n".join(lines) + "\n").encode()


def _columns(
    table: Table, suspect: Callable[[str], Any], guard: Callable[[str], str]
) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Columns as texts, and `about`, which names those that had to be guarded so that reading
    gives the same texts again."""
    columns, guarded = {}, []
    for name, values in table.columns.items():
        cells = [None if value is None else _as_text(value) for value in values.tolist()]
        texts = [] if values.dtype.kind in "biuf" else [cell for cell in cells if cell is not None]
        if "" in texts or any(map(suspect, texts)):
            cells = [None if cell is None else guard(cell) for cell in cells]
            guarded.append(name)
        columns[name] = [cell or "" for cell in cells]
    return columns, {**table.about, **({GUARDED: guarded} if guarded else {})}
