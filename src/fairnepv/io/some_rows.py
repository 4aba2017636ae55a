"""Values of some rows of a column, gaps among them: the texts and pictures that a page shows.

Of tables only the chunks with these rows are decoded, of folders only the files of these rows are
read. Unlike features and ids a caption may be missing: it is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.arrow_files import BINARIES, TEXTS, choose_column, open_chunks, reading_table
from fairnepv.io.capsules import taken
from fairnepv.io.places import local_path, open_regular
from fairnepv.io.read import read_picks
from fairnepv.io.source import TABLE_ENDINGS, Source, choose_part, parse_source, reading
from fairnepv.io.tables import csv_rows

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
_LARGEST = 1 << 26  # bytes of a picture that is read
_OTHERS = (".csv", ".txt", ".json", ".npy", ".npz")


def read_texts(given: str | Source, rows: NDArray[np.int64], n: int) -> list[str | None]:
    """The texts of these rows at FILE[:COLUMN], which has n of them."""
    source = parse_source(given, (*TABLE_ENDINGS, *_OTHERS))
    if source.ending in TABLE_ENDINGS:
        return [None if value is None else str(value) for value in _of_table(source, rows, n)]
    values = _of_csv(source) if source.ending == ".csv" else read_picks(source, "text").tolist()
    _check_length(source, len(values), n)
    return [None if values[row] in (None, "") else str(values[row]) for row in rows]


def read_pictures(
    given: str | Source, rows: NDArray[np.int64], n: int, names: Sequence[str]
) -> list[bytes | None]:
    """The bytes of the pictures of these rows: a column of them in a table, or the files of a
    folder that are called by the `names` of the rows."""
    source = parse_source(given, TABLE_ENDINGS, folders=True)
    if not source.path.is_dir():
        return [_content(value, source) for value in _of_table(source, rows, n)]
    folder = local_path(str(source.path))
    by_name = {p.stem: p for p in sorted(folder.iterdir()) if p.suffix.lower() in PICTURES}
    if rows.size and not any(name in by_name for name in names):
        raise InputError(
            f"{folder} has no picture of any item; call the files by the ids of the rows, as in "
            f"{names[0]}.png"
        )
    return [_bytes_of(by_name[name]) if name in by_name else None for name in names]


def check_texts(given: str) -> None:
    """Refuse a file or a column that is not there, before any work is done."""
    source = parse_source(given, (*TABLE_ENDINGS, *_OTHERS))
    if source.ending in TABLE_ENDINGS:
        choose_column(source)


def check_pictures(given: str) -> None:
    """The same for a file or a folder of pictures."""
    source = parse_source(given, TABLE_ENDINGS, folders=True)
    if not source.path.is_dir():
        choose_column(source)


def _bytes_of(path: Path) -> bytes | None:
    if not path.is_file() or path.stat().st_size > _LARGEST:
        return None
    with open_regular(path) as file:
        return file.read()


def _content(value: Any, source: Source) -> bytes | None:
    """Bytes, or the bytes in a record with a path, as Hugging Face has pictures."""
    if isinstance(value, dict):
        value = value.get("bytes")
    if value is None or isinstance(value, bytes):
        return value
    raise InputError(
        f"{source} holds {type(value).__name__}, not pictures; name a column of bytes (PNG, JPEG, "
        "...), or a folder with files that are called by their ids"
    )


def _of_table(source: Source, rows: NDArray[np.int64], n: int) -> list[Any]:
    column = choose_column(source)
    with reading_table(source):
        chunks = open_chunks(column)
        ends = np.cumsum(chunks.lengths)
        _check_length(source, int(ends[-1]) if len(ends) else 0, n)
        kind = chunks.kind.value_type if pa.types.is_dictionary(chunks.kind) else chunks.kind
        if kind.id not in TEXTS | BINARIES | {pa.lib.Type_STRUCT} and kind.num_fields:
            raise InputError(f"{column} has type {kind}, which is neither texts nor pictures")
        found: dict[int, Any] = {}
        for chunk in np.unique(np.searchsorted(ends, rows, side="right")):
            first = int(ends[chunk] - chunks.lengths[chunk])
            wanted = rows[(rows >= first) & (rows < ends[chunk])]
            whole = pa.chunked_array(chunks.arrays(int(chunk), 0))
            whole.validate(full=True)
            values = taken(whole, wanted - first).to_pylist()
            found.update(zip(wanted.tolist(), values, strict=True))
    return [found[row] for row in rows.tolist()]


def _of_csv(source: Source) -> list[str]:
    with reading(source.path, "CSV"):
        lines = csv_rows(source.path, padded=True)
        names = next(lines)
        at = names.index(choose_part(source, names, "column", "text"))
        return [line[at] if len(line) > at else "" for line in lines]


def _check_length(source: Source, found: int, n: int) -> None:
    if found != n:
        raise InputError(
            f"{source} has {found:,} rows and the pool {n:,}; give one for every row of the pool, "
            "in its order"
        )
