"""What `fairnepv convert` writes beside its shards, and the folder read again by it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.numpy_files import read_npy
from fairnepv.io.rows import RowFile, Shards, row_range
from fairnepv.io.source import Source

NAME = "manifest.json"
IDS = "ids.npy"
FORMAT = "fairnepv rows 1"
_HASHED_AT_ONCE = 1 << 22

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
    format: str = field(default=FORMAT)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def is_at(folder: Path) -> bool:
    return (folder / NAME).is_file()


def read(folder: Path) -> Manifest:
    """The manifest of a folder, with every number in it plausible."""
    path = folder / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("format") != FORMAT:
            raise InputError(
                f"{path} has the format {content.get('format')!r}, not {FORMAT!r}; convert the "
                "data again"
            )
        shards = tuple(_shard(entry) for entry in content["shards"])
        ids = content["ids"] and _shard(content["ids"])
        found = Manifest(
            int(content["n"]), int(content["p"]), str(content["dtype"]), shards, ids or None
        )
    except InputError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path} cannot be read ({error!r}); convert the data again") from error
    if not shards or sum(shard.rows for shard in shards) != found.n:
        raise InputError(f"{path} contradicts itself: its shards do not add up to {found.n:,} rows")
    return found


def open_rows(folder: Path) -> RowFile:
    """The rows of a converted folder; shapes and sizes are checked, checksums by `verify`."""
    about = read(folder)
    parts = [_open_shard(folder, about, shard) for shard in about.shards]
    return Shards(parts, str(folder))


def read_ids(folder: Path) -> NDArray[Any] | None:
    about = read(folder)
    if about.ids is None:
        return None
    ids = read_npy(Source(_existing(folder, about.ids)))
    if not isinstance(ids, np.ndarray) or ids.shape != (about.n,):
        raise InputError(f"{folder / about.ids.file} must hold {about.n:,} ids; convert again")
    return ids


def verify(folder: Path, progress: Progress | None = None) -> Manifest:
    """Compare every checksum; one pass over all bytes."""
    if not is_at(folder):
        raise InputError(f"{folder} has no {NAME}; name a folder that `fairnepv convert` wrote")
    about = read(folder)
    first, wrong = 0, []
    for shard in about.shards:
        if checksum(_existing(folder, shard)) != shard.sha256:
            wrong.append(f"{shard.file} ({row_range(first, first + shard.rows)})")
        first += shard.rows
        if progress is not None:
            progress(first, about.n)
    if about.ids is not None and checksum(_existing(folder, about.ids)) != about.ids.sha256:
        wrong.append(about.ids.file)
    if wrong:
        raise InputError(
            f"{folder} is not what was written: {', '.join(wrong)} differ from the checksums in "
            f"{NAME}; convert the data again"
        )
    open_rows(folder)
    return about


def checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_HASHED_AT_ONCE):
            digest.update(piece)
    return digest.hexdigest()


def _open_shard(folder: Path, about: Manifest, shard: Shard) -> RowFile:
    path = _existing(folder, shard)
    rows = read_npy(Source(path))
    expected = (shard.rows, about.p)
    if getattr(rows, "shape", None) != expected or rows.dtype != np.dtype(about.dtype):
        raise InputError(
            f"{path} holds {rows.dtype} of shape {rows.shape}, but {NAME} says {about.dtype} of "
            f"shape {expected}; convert the data again"
        )
    assert isinstance(rows, RowFile)
    return rows


def _existing(folder: Path, shard: Shard) -> Path:
    path = folder / shard.file
    if not path.is_file():
        raise InputError(f"{path} is missing, though {NAME} names it; convert the data again")
    return path


def _shard(entry: dict[str, Any]) -> Shard:
    name = str(entry["file"])
    if Path(name).name != name:
        raise ValueError(f"{name!r} is not a file of the folder")
    return Shard(name, int(entry["rows"]), str(entry["sha256"]))
