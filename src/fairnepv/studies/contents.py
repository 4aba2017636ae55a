"""Pictures and texts where users have them: a folder, a .zip, columns of a table.

Pictures stay where they are and are read when they are needed; a picture that cannot be read is
None, for the caller to count.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from fairnepv.errors import InputError
from fairnepv.io.source import Source, choose_part, split_source, unreadable
from fairnepv.studies.pictures import ENDINGS

MOST_BYTES = 64 << 20  # of one picture as it is stored
TEXT_TABLES = (".csv", ".parquet", ".arrow", ".feather", ".txt")


class Pictures(Protocol):
    @property
    def ids(self) -> list[str]: ...
    def read(self, places: Sequence[int]) -> Iterator[bytes | None]:
        """Those at these ascending places."""
        ...


@dataclass(frozen=True)
class FolderPictures:
    folder: Path
    files: list[str]

    @classmethod
    def at(cls, folder: Path) -> FolderPictures:
        found = (file.relative_to(folder).as_posix() for file in folder.rglob("*"))
        return cls(folder, sorted(name for name in found if _is_picture(name)))

    @property
    def ids(self) -> list[str]:
        return [without_ending(name) for name in self.files]

    def read(self, places: Sequence[int]) -> Iterator[bytes | None]:
        for i in places:
            file = self.folder / self.files[i]
            try:
                yield file.read_bytes() if file.stat().st_size <= MOST_BYTES else None
            except OSError:
                yield None


@dataclass(frozen=True)
class ZippedPictures:
    file: Path
    members: list[str]

    @classmethod
    def at(cls, file: Path) -> ZippedPictures:
        try:
            with zipfile.ZipFile(file) as archive:
                return cls(file, sorted(name for name in archive.namelist() if _is_picture(name)))
        except (zipfile.BadZipFile, OSError) as error:
            raise unreadable(str(file), "zip", error) from error

    @property
    def ids(self) -> list[str]:
        return [without_ending(name) for name in self.members]

    def read(self, places: Sequence[int]) -> Iterator[bytes | None]:
        with zipfile.ZipFile(self.file) as archive:
            for i in places:
                yield _member(archive, self.members[i])


@dataclass(frozen=True)
class ColumnPictures:
    """A column of bytes, or of the pairs (bytes, path) that Hugging Face data sets have."""

    file: Path
    column: str
    ids: list[str]

    @classmethod
    def at(cls, source: Source) -> ColumnPictures:
        import pyarrow.parquet as pq

        file = Path(str(source.path))
        try:
            with pq.ParquetFile(file) as table:
                names = table.schema_arrow.names
                column = choose_part(source, names, "column")
                _check_bytes(source, column, table.schema_arrow.field(column).type)
                if "id" in names and column != "id":
                    found = table.read(columns=["id"]).column("id").to_pylist()
                else:
                    found = list(range(table.metadata.num_rows))
        except InputError:
            raise
        except Exception as error:
            raise unreadable(str(file), "Parquet", error) from error
        return cls(file, column, [str(id) for id in found])

    def read(self, places: Sequence[int]) -> Iterator[bytes | None]:
        import pyarrow.parquet as pq

        first, wanted = 0, iter(places)
        at = next(wanted, None)
        with pq.ParquetFile(self.file) as table:
            for group in range(table.num_row_groups):
                stop = first + table.metadata.row_group(group).num_rows
                if at is not None and at < stop:
                    rows = table.read_row_group(group, columns=[self.column])[0].to_pylist()
                while at is not None and at < stop:
                    yield _bytes_of(rows[at - first])
                    at = next(wanted, None)
                first = stop


def pictures_at(text: str) -> Pictures:
    """DIR, ZIP or PARQUET:COLUMN; an `InputError` where there are none."""
    source = split_source(text)
    path = Path(str(source.path))
    found: Pictures
    if path.is_dir():
        found = FolderPictures.at(path)
    elif not path.is_file():
        raise InputError(f"--images {text}: {path} does not exist; check the path")
    elif path.suffix.lower() == ".zip":
        found = ZippedPictures.at(path)
    elif path.suffix.lower() == ".parquet":
        found = ColumnPictures.at(source)
    else:
        raise InputError(f"--images {text}: give a folder, a .zip or a .parquet:COLUMN of pictures")
    if not found.ids:
        raise InputError(f"--images {text} has no pictures ({', '.join(ENDINGS)})")
    return found


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


def without_ending(name: str) -> str:
    """What pictures are called by: a path within their folder, without .png and the like."""
    return str(PurePosixPath(name).with_suffix("")) if _is_picture(name) else name


def _is_picture(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")


def _member(archive: zipfile.ZipFile, name: str) -> bytes | None:
    """Read no further than is allowed, whatever the archive says of its size."""
    try:
        with archive.open(name) as stream:
            content = stream.read(MOST_BYTES + 1)
    except (zipfile.BadZipFile, OSError, RuntimeError, EOFError, ValueError, zipfile.zlib.error):  # type: ignore[attr-defined]
        return None
    return content if len(content) <= MOST_BYTES else None


def _check_bytes(source: Source, column: str, kind: Any) -> None:
    import pyarrow as pa
    from pyarrow.types import is_binary, is_large_binary, is_struct

    inner = kind.field("bytes").type if is_struct(kind) and "bytes" in _fields(kind) else kind
    if not isinstance(inner, pa.DataType) or not (is_binary(inner) or is_large_binary(inner)):
        raise InputError(
            f"{source.path}, column {column!r} must hold pictures as bytes, not {kind}"
        )


def _fields(kind: Any) -> list[str]:
    return [kind.field(i).name for i in range(kind.num_fields)]


def _bytes_of(cell: Any) -> bytes | None:
    found: bytes | None = cell["bytes"] if isinstance(cell, dict) else cell
    return found


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
