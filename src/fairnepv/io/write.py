"""Files that appear whole or not at all, and only where the user meant them to."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairnepv.errors import FairnepvError, InputError
from fairnepv.io.places import local_path
from fairnepv.io.source import check_ending, refuse_folder
from fairnepv.io.tables import TEXT_MARK

TABLES = (".parquet", ".csv", ".json", ".txt")


@dataclass(frozen=True)
class Output:
    """A file to be written, checked before any work is done."""

    path: Path

    @classmethod
    def at(cls, text: str, endings: tuple[str, ...], *, force: bool) -> Output:
        path = local_path(text)
        check_ending(path, endings)
        refuse_folder(path)
        if not path.parent.is_dir():
            raise InputError(f"the folder {path.parent} does not exist; make it first")
        if not os.access(path.parent, os.W_OK):
            raise InputError(f"the folder {path.parent} cannot be written to; name another one")
        if os.path.lexists(path) and not force:
            raise InputError(f"{path} exists already; add --force to replace it")
        return cls(path)

    def write(self, content: bytes) -> None:
        """Through a file beside it, so that an interruption leaves the old one or the new one."""
        target = self.path.resolve()  # a link stays a link
        try:
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                os.chmod(temporary, _mode(target))
                os.replace(temporary, target)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):  # it is in its place already
                    os.unlink(temporary)
                raise
        except OSError as error:
            raise FairnepvError(f"{self.path} cannot be written ({error.strerror})") from error


@dataclass(frozen=True)
class Table:
    """Columns of equal length, and what holds for the table as a whole."""

    columns: Mapping[str, NDArray[Any]]
    about: Mapping[str, Any]
    rows_are: str  # what a row is called in JSON, such as "picks"


def write_table(output: Output, table: Table) -> None:
    """Parquet keeps `about` in its metadata, JSON beside the rows, text in a comment; CSV, which
    has no room for it, in a last column of its first row."""
    makers = {".parquet": _parquet, ".csv": _csv, ".json": _json, ".txt": _text}
    output.write(makers[output.path.suffix.lower()](table))


def to_json(document: Any) -> str:
    return json.dumps(document, indent=1, allow_nan=False)


def _plain_values(values: NDArray[Any]) -> list[Any]:
    plain: list[Any] = values.tolist()
    return [_as_text(value) for value in plain] if values.dtype.kind in "SM" else plain


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def write_array(output: Output, array: NDArray[Any]) -> None:
    output.write(array_content(array))


def array_content(array: NDArray[Any]) -> bytes:
    """An array as the bytes of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def write_arrays(output: Output, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Named arrays as .npz."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # the stubs take names for flags
    output.write(buffer.getvalue())


def table_document(table: Table) -> dict[str, Any]:
    """The table as plain values, for JSON; dates and bytes, which it does not know, as text."""
    columns = {name: _plain_values(values) for name, values in table.columns.items()}
    names, cells = list(columns), zip(*columns.values(), strict=True)
    return {**table.about, table.rows_are: [dict(zip(names, row, strict=True)) for row in cells]}


def _parquet(table: Table) -> bytes:
    arrow = pa.table({name: pa.array(values) for name, values in table.columns.items()})
    arrow = arrow.replace_schema_metadata({"fairnepv": json.dumps(table.about)})
    buffer = io.BytesIO()
    pq.write_table(arrow, buffer)
    return buffer.getvalue()


def _csv(table: Table) -> bytes:
    names, rows = _cells(table)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, "settings"])
    for i, row in enumerate(rows):
        writer.writerow([*row, json.dumps(table.about) if i == 0 else ""])
    return text.getvalue().encode()


def _json(table: Table) -> bytes:
    return (to_json(table_document(table)) + "\n").encode()


def _text(table: Table) -> bytes:
    names, rows = _cells(table)
    lines = [f"{TEXT_MARK}{json.dumps(table.about)}", "# " + "\t".join(names)]
    lines += ["\t".join(_one_line(cell) for cell in row) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _cells(table: Table) -> tuple[list[str], list[tuple[str, ...]]]:
    columns = [[_as_text(value) for value in values.tolist()] for values in table.columns.values()]
    return list(table.columns), list(zip(*columns, strict=True))


def _one_line(cell: str) -> str:
    return " ".join(cell.split()) if any(c in cell for c in "\t\r\n") else cell


def _mode(target: Path) -> int:
    """That of the file that is replaced, or what open() would give; mkstemp makes private ones."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
