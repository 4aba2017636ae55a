"""Pictures where users have them: a folder, a .zip, a .tar, a column of a Parquet file.

They stay where they are and are read when they are needed. One that cannot be read says why, for
the caller to count; it never stops the others.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import hashlib
import itertools
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fairnepv.errors import InputError
from fairnepv.io.checksums import fingerprint
from fairnepv.io.places import open_regular
from fairnepv.io.source import Source, choose_part, split_source, unreadable
from fairnepv_studies.files import local
from fairnepv_studies.packed import Allowance, members_of, open_member, refuse_twins
from fairnepv_studies.pictures import ENDINGS, MOST_BYTES

_AT_ONCE = 32  # rows of a Parquet file
_MOST_HEADER = 1 << 20  # bytes of what a .tar says of one member
_DAMAGED_ZIP = (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, OverflowError)
_TOO_LARGE = f"it has more than {MOST_BYTES >> 20} MiB"
_COLUMNS = ("image", "image_bytes", "image_png", "bytes")  # those that need not be named


@dataclass(frozen=True)
class Pictures:
    ids: Sequence[str]  # paths without their endings, or the ids of a table
    label: Callable[[int], str]  # what a person calls the one at this place
    fetch: Callable[[int], bytes | str]  # the bytes of the one at this place, or why there are none
    describe: Callable[[], dict[str, Any]]

    @functools.cached_property
    def about(self) -> dict[str, Any]:
        """Name, size and checksum, for the sources of a corpus."""
        return self.describe()


@contextlib.contextmanager
def open_pictures(text: str, id_columns: Sequence[str] | None = None) -> Iterator[Pictures]:
    """DIR, ZIP, TAR or PARQUET[:COLUMN]; an `InputError` where there are none.

    A Parquet file must have one of `id_columns`; without them it may have an `id`, or rows count.
    """
    source = split_source(text)
    path = local(str(source.path))
    openers: dict[str, Callable[..., Pictures]]
    openers = {".zip": _zip, ".tar": _tar, ".parquet": functools.partial(_parquet, id_columns)}
    with contextlib.ExitStack() as stack:
        if path.is_dir():
            found = _folder(path)
        elif not path.is_file():
            came = "is no file" if path.exists() else "does not exist"
            raise InputError(f"--images {text}: {path} {came}; check the path")
        elif path.suffix.lower() not in openers:
            raise InputError(
                f"--images {text}: give a folder, a .zip, .tar or .parquet of pictures; a "
                "compressed .tar has to be unpacked first"
            )
        else:
            found = openers[path.suffix.lower()](source, path, stack)
        if not found.ids:
            raise InputError(f"--images {text} has no pictures ({', '.join(ENDINGS)})")
        yield found


def without_ending(name: str) -> str:
    """What pictures are called by: a path within their folder, without .png and the like."""
    return str(PurePosixPath(name).with_suffix("")) if _is_picture(name) else name


def _is_picture(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")


class _Ids(Sequence[str]):
    """Names without their endings, made when they are asked for: there may be millions."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, place: Any) -> Any:
        return without_ending(self._names[place])


def _named(
    names: Sequence[str],
    fetch: Callable[[int], bytes | str],
    describe: Callable[[], dict[str, Any]],
) -> Pictures:
    return Pictures(_Ids(names), names.__getitem__, fetch, describe)


def _folder(path: Path) -> Pictures:
    """Described by its listing: names and sizes, in order of name."""
    sizes = dict(sorted(_files(path)))
    names = list(sizes)

    def fetch(place: int) -> bytes | str:
        try:
            with open_regular(path / names[place]) as stream:
                return _bounded(stream)
        except (OSError, InputError) as error:
            return f"it cannot be opened ({getattr(error, 'strerror', None) or error})"

    def describe() -> dict[str, Any]:
        listing = "".join(f"{name}\t{size}\n" for name, size in sizes.items())
        content = listing.encode("utf-8", "surrogateescape")
        return {
            "name": path.resolve().name,
            "images": len(sizes),
            "bytes": sum(sizes.values()),
            "listing_sha256": hashlib.sha256(content).hexdigest(),
        }

    return _named(names, fetch, describe)


def _files(path: Path) -> Iterator[tuple[str, int]]:
    """Names of pictures within a folder, with slashes, and sizes; links are not followed to other
    folders, and hidden ones are not looked into."""
    for folder, inner, files in os.walk(path, onerror=_refuse):
        inner[:] = [name for name in inner if not name.startswith(".")]
        beneath = Path(folder).relative_to(path).as_posix()
        for file in files:
            full = os.path.join(folder, file)
            if _is_picture(file) and os.path.isfile(full):
                yield (file if beneath == "." else f"{beneath}/{file}"), os.path.getsize(full)


def _refuse(error: OSError) -> None:
    raise InputError(f"--images: {error.filename} cannot be listed ({error.strerror})")


def _zip(source: Source, path: Path, stack: contextlib.ExitStack) -> Pictures:
    try:
        file = stack.enter_context(open_regular(path))
        archive = stack.enter_context(zipfile.ZipFile(file))
        found = members_of(archive, path, _is_picture)
    except _DAMAGED_ZIP as error:
        raise unreadable(str(path), "zip", error) from error
    allowance = Allowance(path)
    allowance.foresee(sum(min(member.file_size, MOST_BYTES) for member in found))
    members = _Members(archive, found)
    paid = bytearray(len(found))  # which were read before: every step reads them once more

    def fetch(place: int) -> bytes | str:
        spend = (lambda _: None) if paid[place] else allowance.spend
        try:
            with open_member(archive, members[place], spend) as stream:
                return _bounded(stream)
        except InputError:
            raise
        except Exception as error:  # one damaged member; the others are sound
            return f"it cannot be unpacked ({error})"
        finally:
            paid[place] = 1

    return _named(members.names, fetch, functools.partial(fingerprint, path))


class _Members:
    """The pictures of an archive in the order of their names, in a tenth of the memory that their
    `ZipInfo` take; those are made again when they are needed."""

    _KEPT: tuple[str, ...] = (
        "header_offset",
        "compress_size",
        "file_size",
        "CRC",
        "compress_type",
        "flag_bits",
    )
    if "_end_offset" in zipfile.ZipInfo.__slots__:  # by which later Pythons see overlaps
        _KEPT += ("_end_offset",)

    def __init__(self, archive: zipfile.ZipFile, found: list[zipfile.ZipInfo]) -> None:
        found.sort(key=lambda member: member.filename)
        self.names = [member.filename for member in found]
        self._originals = {
            i: member.orig_filename
            for i, member in enumerate(found)
            if member.orig_filename != member.filename
        }
        kept = ([getattr(member, name) for name in self._KEPT] for member in found)
        self._numbers = np.array(list(kept), np.int64)
        archive.filelist.clear()
        archive.NameToInfo.clear()

    def __getitem__(self, place: int) -> zipfile.ZipInfo:
        member = zipfile.ZipInfo(self.names[place])
        member.orig_filename = self._originals.get(place, self.names[place])
        for name, number in zip(self._KEPT, self._numbers[place].tolist(), strict=True):
            setattr(member, name, number)
        return member


def _tar(source: Source, path: Path, stack: contextlib.ExitStack) -> Pictures:
    try:
        file = stack.enter_context(open_regular(path))
        headers: Any = _Headers(file)
        with tarfile.open(fileobj=headers, mode="r:") as archive:
            found = sorted(_tar_members(archive), key=lambda member: member[0])
    except InputError:
        raise
    except Exception as error:  # `tarfile` has many kinds for broken headers
        raise unreadable(str(path), "tar", error) from error
    refuse_twins(path, [name for name, _, _ in found])

    def fetch(place: int) -> bytes | str:
        _, offset, size = found[place]
        if offset < 0:
            return "it has holes or is a link, which are not read from a .tar"
        if size > MOST_BYTES:
            return _TOO_LARGE
        file.seek(offset)
        return file.read(size)

    names = [name for name, _, _ in found]
    return _named(names, fetch, functools.partial(fingerprint, path))


class _Headers:
    """A file as `tarfile` reads it, whose longer headers have the size that they say."""

    def __init__(self, file: Any) -> None:
        self.name, self.seek, self.tell, self._file = file.name, file.seek, file.tell, file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MOST_HEADER:
            raise tarfile.ReadError("a header has no end")
        content: bytes = self._file.read(size)
        return content


def _tar_members(archive: tarfile.TarFile) -> Iterator[tuple[str, int, int]]:
    """Names, places and sizes; the place of what has no bytes of its own is -1. `tarfile` takes a
    broken header for the end, so whether that is there is looked at here."""
    for member in archive:
        if _is_picture(member.name) and not member.isdir():
            whole = member.isreg() and not member.issparse()
            yield member.name, member.offset_data if whole else -1, member.size
        archive.members = []  # type: ignore[attr-defined]  # it would keep them all
    stream: Any = archive.fileobj
    stream.seek(archive.offset)
    end = stream.read(tarfile.BLOCKSIZE)
    if any(end) or len(end) < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("a header is broken, or the end is missing")


def _bounded(stream: Any) -> bytes | str:
    """No further than is allowed, whatever is said of its size."""
    content: bytes = stream.read(MOST_BYTES + 1)
    return content if len(content) <= MOST_BYTES else _TOO_LARGE


def _parquet(
    id_columns: Sequence[str] | None, source: Source, path: Path, stack: contextlib.ExitStack
) -> Pictures:
    """A column of bytes, or of the pairs (bytes, path) that Hugging Face data sets have."""
    import pyarrow.parquet as pq
    from pyarrow.types import is_struct

    from fairnepv.io.arrow_files import counted_chunks
    from fairnepv.io.table_rows import Column

    try:
        file = stack.enter_context(pq.ParquetFile(path, memory_map=True))
        names = file.schema_arrow.names
        named = source.part or next((name for name in _COLUMNS if name in names), None)
        column = choose_part(Source(path, named), names, "column")
        _check_bytes(path, column, file.schema_arrow.field(column).type)
        ids = next((id for id in id_columns or ("id",) if id in names and id != column), None)
        if ids is not None:
            found: Sequence[Any]
            chunks = counted_chunks(Column(Source(path, None), ids, names.index(ids), None))
            found = [id for chunk in chunks for id in chunk.to_pylist()]
        elif id_columns is None:
            found = range(file.metadata.num_rows)
        else:
            raise InputError(
                f"{path} has no column {' or '.join(id_columns)}; it has {', '.join(names)}"
            )
        # One picture that stands in many rows is held once.
        leaf = f"{column}.bytes" if is_struct(file.schema_arrow.field(column).type) else column
        once = stack.enter_context(pq.ParquetFile(path, memory_map=True, read_dictionary=[leaf]))
    except InputError:
        raise
    except Exception as error:  # PyArrow's words for damaged bytes are of many kinds
        raise unreadable(str(path), "Parquet", error) from error
    return Pictures(
        ["" if id is None else str(id) for id in found],
        "row {}".format,
        _Column(once, column).fetch,
        functools.partial(fingerprint, path),
    )


class _Column:
    """One column, read forward some rows at a time, however large its row groups are."""

    def __init__(self, file: Any, column: str) -> None:
        self._file, self._column = file, column
        rows = (file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))
        self._starts = list(itertools.accumulate(rows, initial=0))[:-1]
        self._group, self._batches = -1, iter(())
        self._held: Any = []  # the rows at hand
        self._first = 0  # their place

    def fetch(self, place: int) -> bytes | str:
        try:
            cell = self._cell(place)
        except Exception as error:  # PyArrow's words for damaged pages are of many kinds
            self._group = -1
            return f"it cannot be read ({' '.join(str(error).split())[:100]})"
        content = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(content, bytes):
            return "its row holds no bytes"
        return content if len(content) <= MOST_BYTES else _TOO_LARGE

    def _cell(self, place: int) -> Any:
        group = bisect.bisect_right(self._starts, place) - 1
        if group != self._group or place < self._first:
            self._begin(group)
        while place >= self._first + len(self._held):
            self._first += len(self._held)
            self._held = next(self._batches).column(0)
        return self._held[place - self._first].as_py()

    def _begin(self, group: int) -> None:
        self._group, self._first, self._held = group, self._starts[group], []
        self._batches = self._file.iter_batches(
            _AT_ONCE, row_groups=[group], columns=[self._column]
        )


def _check_bytes(path: Path, column: str, kind: Any) -> None:
    import pyarrow as pa
    from pyarrow.types import is_binary, is_large_binary, is_struct

    inner = kind.field("bytes").type if is_struct(kind) and "bytes" in _fields(kind) else kind
    if not isinstance(inner, pa.DataType) or not (is_binary(inner) or is_large_binary(inner)):
        raise InputError(f"{path}, column {column!r} must hold pictures as bytes, not {kind}")


def _fields(kind: Any) -> list[str]:
    return [kind.field(i).name for i in range(kind.num_fields)]
