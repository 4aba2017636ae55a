"""What `fairnepv convert` writes beside its shards, and the folder read again by it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.documents import is_size, read_document
from fairnepv.io.numpy_files import read_npy
from fairnepv.io.places import AnyPath, map_each, regular_file, sha256_of
from fairnepv.io.rows import RowFile, Shards, row_range
from fairnepv.io.source import Source

NAME = "manifest.json"
IDS = "ids.npy"
FORMAT = "fairnepv rows 1"
DTYPES = ("float16", "float32", "float64")
_REMEDY = "convert the data again"
MOST_SHARDS = 50_000  # each of which is opened before the first row is read

Progress = Callable[[int, int], None]  # rows done, rows in all


@dataclass(frozen=True)
class Shard:
    file: str
    rows: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    n: int
    p: int
    dtype: str
    shards: tuple[Shard, ...]
    ids: Shard | None = None
    sources: tuple[str, ...] = ()
    made_by: str = ""
    format: str = FORMAT


def is_at(source: Source) -> bool:
    return source.holds(NAME)


def read(source: Source) -> Manifest:
    """The manifest of a folder, with every number in it checked."""
    return source.once(NAME, lambda: _read(source.path / NAME))


def _read(path: AnyPath) -> Manifest:
    content = read_document(path, _REMEDY)
    if content.get("format") != FORMAT:
        raise _broken(f"{path} has the format {content.get('format')!r}, not {FORMAT!r}")
    n, p, dtype, entries, ids = (content.get(x) for x in ("n", "p", "dtype", "shards", "ids"))
    if not (is_size(n) and is_size(p) and dtype in DTYPES and isinstance(entries, list)):
        raise _broken(
            f"{path} must name numbers n and p, one of {', '.join(DTYPES)} as dtype and a list of "
            "shards"
        )
    if len(entries) > MOST_SHARDS:
        raise _broken(f"{path} names {len(entries):,} shards, more than {MOST_SHARDS:,}")
    shards = tuple(_shard(path, entry) for entry in entries)
    names = None if ids is None else _shard(path, ids)
    files = {shard.file for shard in shards}
    if len(files) < len(shards):
        raise _broken(
            f"{path} names {len(shards):,} shards in {len(files):,} files, but each has its own"
        )
    if not files or sum(shard.rows for shard in shards) != n:
        raise InputError(f"{path} contradicts itself: its shards do not add up to {n:,} rows")
    if names is not None and names.rows != n:
        raise InputError(f"{path} contradicts itself: it has {names.rows:,} ids for {n:,} rows")
    return Manifest(n, p, dtype, shards, names)


def open_rows(source: Source) -> RowFile:
    """The rows of a converted folder; shapes and sizes are checked, checksums by `verify`."""
    about = read(source)
    files = [source.inside(shard.file) for shard in about.shards]
    parts = map_each(lambda file: read_npy(_existing(file)), files, waits=source.is_remote)
    for shard, rows in zip(about.shards, parts, strict=True):
        expected = (shard.rows, about.p)
        if rows.shape != expected or rows.dtype != np.dtype(about.dtype):
            raise _broken(
                f"{source.path / shard.file} holds {rows.dtype} of shape {rows.shape}, but {NAME} "
                f"says {about.dtype} of shape {expected}"
            )
    return Shards(parts, str(source))


def read_ids(source: Source) -> NDArray[Any] | None:
    about = read(source)
    if about.ids is None:
        return None
    file = source.inside(about.ids.file)
    ids = read_npy(_existing(file))
    if not isinstance(ids, np.ndarray) or ids.shape != (about.n,):
        raise InputError(f"{file} must hold {about.n:,} ids; convert again")
    return ids


def verify(folder: AnyPath, progress: Progress | None = None) -> Manifest:
    """Compare every checksum; one pass over all bytes."""
    source = Source(folder)
    if not is_at(source):
        raise InputError(f"{folder} has no {NAME}; name a folder that `fairnepv convert` wrote")
    about = read(source)
    first, wrong = 0, []
    for shard in about.shards:
        if _differs(source, shard):
            wrong.append(f"{shard.file} ({row_range(first, first + shard.rows)})")
        first += shard.rows
        if progress is not None:
            progress(first, about.n)
    if about.ids is not None and _differs(source, about.ids):
        wrong.append(about.ids.file)
    if wrong:
        differ = f"{', '.join(wrong)} differ from the checksums in {NAME}"
        raise _broken(f"{folder} is not what was written: {differ}")
    open_rows(source)
    return about


def _differs(source: Source, shard: Shard) -> bool:
    return sha256_of(_existing(source.inside(shard.file)).path) != shard.sha256


def _existing(source: Source) -> Source:
    if not source.path.exists():
        raise _broken(f"{source.path} is missing, though {NAME} names it")
    regular_file(source.path)
    return source


def _shard(path: AnyPath, entry: Any) -> Shard:
    entry = entry if isinstance(entry, dict) else {}
    name, rows, digest = (entry.get(x) for x in ("file", "rows", "sha256"))
    if not isinstance(name, str) or Path(name).name != name:
        raise _broken(f"{path}: {name!r} is not a file of the folder")
    if not (is_size(rows) and isinstance(digest, str)):
        raise _broken(f"{path} says of {name!r} no number of rows or no checksum")
    return Shard(name, rows, digest)


def _broken(what: str) -> InputError:
    return InputError(f"{what}; {_REMEDY}")
