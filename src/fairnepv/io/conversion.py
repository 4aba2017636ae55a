"""Any dense rows -> a folder of `.npy` shards with ids and checksums, whole or not at all."""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.display import shown_uri
from fairnepv.errors import InputError
from fairnepv.io.atomic import check_writable, whole_folder, write_errors
from fairnepv.io.manifest import IDS, MOST_SHARDS, NAME, Manifest, Progress, Shard, is_at
from fairnepv.io.memory import size_in_words
from fairnepv.io.places import local_path, real_path, sha256_of
from fairnepv.io.read import converted_ids, id_column, open_rows, read_ids
from fairnepv.io.rows import RowFile, Rows
from fairnepv.io.source import Source, split_source
from fairnepv.io.texts import same_kind
from fairnepv.io.write import to_json

_SHARD_BYTES = 1 << 28
_BLOCK_NUMBERS = 1 << 21  # that are read together


def convert(
    sources: Sequence[str],
    folder: str,
    *,
    dtype: str = "float32",
    rows_per_shard: int | None = None,
    ids: str | None = None,
    force: bool = False,
    made_by: str = "fairnepv",
    progress: Progress | None = None,
) -> Manifest:
    """Write the rows of all sources, end to end, into a new folder, and say what is in it.

    Ids are those of the file `ids`; of None those that every source brings along, if it does; of
    "" there are none.
    """
    target = local_path(folder)
    read = [split_source(text) for text in sources]
    _check_target(target, read, force)
    rows = _open_alike(read)
    n, p = sum(map(len, rows)), rows[0].shape[1]
    if not n or not p:
        raise InputError(f"{', '.join(sources)} has no numbers to convert: shape ({n}, {p})")
    names = _ids(read, ids, n)
    row_bytes = p * np.dtype(dtype).itemsize
    _check_space(target, n * row_bytes)
    size = rows_per_shard or max(1, _SHARD_BYTES // row_bytes)
    if n > size * MOST_SHARDS:
        raise InputError(
            f"{n:,} rows in shards of {size:,} are more than {MOST_SHARDS:,} files; put at least "
            f"{-(-n // MOST_SHARDS):,} rows into each"
        )
    with write_errors(target), whole_folder(real_path(target)) as temporary:
        shards = tuple(_write_shards(rows, temporary, np.dtype(dtype), size, progress))
        written = None
        if names is not None:
            np.save(temporary / IDS, names, allow_pickle=False)
            written = Shard(IDS, n, sha256_of(temporary / IDS))
        about = Manifest(n, p, dtype, shards, written, tuple(map(shown_uri, sources)), made_by)
        (temporary / NAME).write_text(to_json(asdict(about)) + "\n", encoding="utf-8")
    return about


def _open_alike(sources: Sequence[Source]) -> list[RowFile]:
    """Dense rows that can be laid end to end."""
    rows = [open_rows(source) for source in sources]
    for source, found in zip(sources, rows, strict=True):
        if not isinstance(found, RowFile):
            raise InputError(
                f"{source.text} is a sparse matrix of shape {found.shape}; leave it as it is, "
                "since SciPy's .npz is read without this"
            )
    for other in rows[1:]:
        if other.shape[1] != rows[0].shape[1]:
            raise InputError(
                f"{rows[0]} has {rows[0].shape[1]:,} columns and {other} has {other.shape[1]:,}; "
                "they cannot be laid end to end"
            )
    return rows


def _check_target(target: Path, sources: Sequence[Source], force: bool) -> None:
    check_writable(target.parent)
    for source in sources:
        read = source.path
        if isinstance(read, Path) and real_path(read).is_relative_to(real_path(target)):
            raise InputError(
                f"{target} holds {source.text}, which is read; write to another folder"
            )
    around = next((path for path in real_path(target).parents if is_at(Source(path))), None)
    if around is not None:
        raise InputError(f"{target} is inside of {around}, which is converted rows; name another")
    if not os.path.lexists(target):
        return
    if not force:
        raise InputError(f"{target} exists already; add --force to replace it")
    ours = target.is_dir() and (is_at(Source(target)) or not any(target.iterdir()))
    if target.is_symlink() or not ours:
        raise InputError(
            f"{target} is not a folder that `fairnepv convert` wrote, so it is not replaced; name "
            "another one"
        )


def _check_space(target: Path, needed: int) -> None:
    """Refuse a full disk at once, and not after hours of writing."""
    free = shutil.disk_usage(target.parent).free
    if needed > free:
        raise InputError(
            f"{target} needs {size_in_words(needed)}, but only {size_in_words(free)} of disk are "
            "free; use --dtype float16, or another disk"
        )


def _write_shards(
    rows: Sequence[RowFile],
    folder: Path,
    dtype: np.dtype[Any],
    size: int,
    progress: Progress | None,
) -> Iterator[Shard]:
    """Write shards of `size` rows; the last one has what is left."""
    n, p = sum(map(len, rows)), rows[0].shape[1]
    pieces = _pieces(rows, dtype, size)
    about = {"descr": dtype.newbyteorder("<").str, "fortran_order": False}
    for number, first in enumerate(range(0, n, size)):
        path, at, last = folder / f"part_{number:05d}.npy", first, min(n, first + size)
        with path.open("wb") as file:
            stream = _Summed(file)
            np.lib.format.write_array_header_1_0(stream, {**about, "shape": (last - first, p)})
            while at < last:
                piece = next(pieces)
                stream.write(piece.data)
                at += len(piece)
                if progress is not None:
                    progress(at, n)
        yield Shard(path.name, last - first, stream.sha256.hexdigest())


class _Summed:
    """A file with the checksum of all that is written to it, for which it need not be read again,
    and which is that of the rows even where the disk damages them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.sha256 = file, hashlib.sha256()

    def write(self, content: Any) -> None:
        self._file.write(content)
        self.sha256.update(content)


def _pieces(rows: Sequence[RowFile], dtype: np.dtype[Any], size: int) -> Iterator[Rows]:
    """All rows in the new type, in pieces that end where a shard does."""
    step, done = max(1, _BLOCK_NUMBERS // rows[0].shape[1]), 0
    for source in rows:
        for start in range(0, len(source), step):
            block, at = source[start : start + step], start
            for piece in np.split(block, range(size - done % size, len(block), size)):
                yield _converted(source, at, piece, dtype)
                at += len(piece)
            done += len(block)


def _converted(source: RowFile, first: int, block: Rows, dtype: np.dtype[Any]) -> Rows:
    with np.errstate(over="ignore", invalid="ignore"):
        converted = np.ascontiguousarray(block, dtype=dtype.newbyteorder("<"))
    bad = ~np.isfinite(converted)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        value = block[row, column]
        if not np.isfinite(value):
            raise InputError(
                f"{source} has {value} in row {first + row:,}; drop or impute such rows"
            )
        hint = "use --dtype float32" if dtype == np.float16 else "divide the rows by a constant"
        raise InputError(
            f"{source} has {value} in row {first + row:,}, too large for {dtype} (at most "
            f"{np.finfo(dtype).max:g}); {hint}"
        )
    return converted


def _ids(sources: Sequence[Source], file: str | None, n: int) -> NDArray[Any] | None:
    if file == "":
        return None
    if file is not None:
        ids, what = read_ids(file), f"the ids of {file}"
    else:
        own = []
        for source in sources:
            brought = converted_ids(source)
            own.append(id_column(source) if brought is None else brought)
        found = [part for part in own if part is not None]
        if len(found) < len(own):
            return None
        what = f"the ids of {', '.join(source.text for source in sources)}"
        if not all(same_kind(part, found[0]) for part in found):
            raise InputError(f"{what} differ in type; give --ids")
        ids = np.concatenate(found)
    if len(ids) != n:
        raise InputError(f"{what}: there are {len(ids):,} for {n:,} rows; give one for each row")
    values, counts = np.unique(ids, return_counts=True)
    if len(values) < n:
        raise InputError(
            f"{what} repeat, such as {values[counts > 1].tolist()[0]!r}; give unique ones with "
            "--ids, or --no-ids"
        )
    if ids.dtype.kind == "T":
        longest = max(map(len, ids.tolist()))
        raise InputError(
            f"{what} differ too much in length: the longest has {longest:,} letters, and ids.npy "
            "would give as many to each; shorten it, or give --no-ids"
        )
    return ids
