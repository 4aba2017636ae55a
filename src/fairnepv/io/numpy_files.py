"""`.npy` and the members of an `.npz` archive, mapped into memory unless they are compressed.

Whatever NumPy and zlib make of bytes that are not what their name says, the caller gets one
sentence: the formats have many ways to be broken, hence the wide nets. Sizes are compared before
anything is read: a header may promise more than its file holds, and an archive may hold a thousand
times what it weighs.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.memory import available_memory, size_in_words
from fairnepv.io.ranges import number_rows
from fairnepv.io.rows import Fingerprint, NumberRows, row_range
from fairnepv.io.source import Source, choose_part, parse_source, unreadable

_NPY, _ZIP = b"\x93NUMPY", b"PK"
_LARGEST_EXPANSION = 100
_SMALL = 1 << 26  # bytes; below, an archive may expand as it likes
_LOCAL_HEADER = 30  # bytes of a member's own header in a zip file, before its name


class Header(NamedTuple):
    """What the first bytes of a .npy file promise."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int  # where the numbers begin

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(source: Source) -> Any:
    """Rows that stay in the file; what is not a matrix of numbers is loaded, for the caller to
    judge."""
    file = Fingerprint.of(source.path)
    with _opened(source, _NPY, "a .npy file") as stream, _reading(source, "a .npy file"):
        header = _read_header(stream, str(source))
        _check_size(str(source), header, file.size)
        if not _is_matrix(header):
            stream.seek(0)
            return np.lib.format.read_array(stream, allow_pickle=False)
    return _stored(file, header, 0, str(source))


def read_npz(source: Source) -> Any:
    """One member of an archive, or the sparse matrix that its members make up."""
    from fairnepv.io import sparse_files

    with open_archive(source) as archive:
        if source.part is None and set(archive.names) >= sparse_files.MARKS:
            return sparse_files.read_sparse(source, archive)
        return archive.rows(choose_part(source, archive.names, "key"))


def read_archive(text: str) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz archive by name."""
    source = parse_source(text, (".npz",))
    with open_archive(source) as archive:
        return {name: archive.array(name) for name in archive.names}


class Archive:
    """An open .npz archive; the sizes of a member are compared before it is read."""

    def __init__(self, source: Source, file: Fingerprint, stream: IO[bytes]) -> None:
        self._source, self._file, self._stream = source, file, stream
        self._zip = members = zipfile.ZipFile(stream)
        self._members = {info.filename.removesuffix(".npy"): info for info in members.infolist()}
        self.names = list(self._members)

    def array(self, name: str) -> NDArray[Any]:
        """A member in memory."""
        info, where = self._members[name], self._where(name)
        self._refuse_bomb(info, where)
        with self._zip.open(info) as stream:
            _check_size(where, _read_header(stream, where), info.file_size)
        with self._zip.open(info) as stream:
            array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
            stream.read()  # to the end, where the checksum is compared
        return array

    def rows(self, name: str) -> Any:
        """A member that stays in the file where it can: `np.savez` does not compress."""
        info, where = self._members[name], self._where(name)
        if info.compress_type != zipfile.ZIP_STORED:
            return self.array(name)
        with self._zip.open(info) as stream:
            header = _read_header(stream, where)
        _check_size(where, header, info.file_size)
        if not _is_matrix(header):
            return self.array(name)
        begin = self._begin(info)
        if begin + info.file_size > self._file.size:
            raise InputError(f"{where} reaches beyond the end of the file; write the file again")
        return _stored(self._file, header, begin, where)

    def _where(self, name: str) -> str:
        return f"{self._source.path}:{name}"

    def _begin(self, info: zipfile.ZipInfo) -> int:
        """Where the bytes of a member begin: its own header may be longer than the directory's."""
        self._stream.seek(info.header_offset)
        name, extra = struct.unpack("<HH", self._stream.read(_LOCAL_HEADER)[26:])
        return int(info.header_offset + _LOCAL_HEADER + name + extra)

    def _refuse_bomb(self, info: zipfile.ZipInfo, where: str) -> None:
        size, stored = info.file_size, max(1, info.compress_size)
        told = f"{where} expands from {size_in_words(stored)} to {size_in_words(size)}"
        if size > _SMALL and size > _LARGEST_EXPANSION * stored:
            raise InputError(
                f"{told}, more than {_LARGEST_EXPANSION}-fold; save it with np.savez or np.save, "
                "or as a sparse matrix, if that is meant"
            )
        if size > available_memory():
            raise InputError(
                f"{told}, more than the {size_in_words(available_memory())} of memory that are "
                "free; save it with np.savez or np.save, which are read without loading"
            )


@contextmanager
def open_archive(source: Source) -> Iterator[Archive]:
    file = Fingerprint.of(source.path)
    kind = "an .npz archive"
    with _opened(source, _ZIP, kind) as stream, _reading(source, kind):
        yield Archive(source, file, stream)


def _stored(file: Fingerprint, header: Header, begin: int, origin: str) -> NumberRows:
    n, p = header.shape
    return number_rows(
        file, header.dtype, (n, p), begin + header.offset, origin=origin, fortran=header.fortran
    )


def _is_matrix(header: Header) -> bool:
    return len(header.shape) == 2 and header.dtype.kind in "fiub"


def _read_header(stream: IO[bytes], where: str) -> Header:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    else:  # 3.0 differs in the names of fields, which are refused in any case
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype.hasobject:
        raise _holds_objects(where)
    if dtype.kind == "V":
        what = "bfloat16 or raw bytes" if dtype.itemsize == 2 else "records or raw bytes"
        raise InputError(
            f"{where} has dtype {dtype}, which is {what} to NumPy; save it as float32, or as "
            "safetensors"
        )
    return Header(shape, fortran, dtype, stream.tell())


def _check_size(where: str, header: Header, size: int) -> None:
    """The bytes that are there against those that the header promises."""
    missing = header.offset + header.bytes - size
    if missing < 0:
        raise InputError(
            f"{where} has {-missing:,} bytes behind its array of shape {header.shape}; write it "
            "again, one array to a file"
        )
    if missing > 0:
        raise InputError(f"{where} is cut short: {_missing(header, size)}; write or copy it again")


def _missing(header: Header, size: int) -> str:
    lost = header.offset + header.bytes - size
    if len(header.shape) != 2 or header.fortran:
        return f"{lost:,} bytes of its array of shape {header.shape} are missing"
    n, p = header.shape
    whole = max(0, size - header.offset) // (p * header.dtype.itemsize)
    return f"{row_range(whole, n)} of {n:,} are missing"


@contextmanager
def _opened(source: Source, magic: bytes, kind: str) -> Iterator[IO[bytes]]:
    """A file with the right first bytes: NumPy would take a stranger for a pickle."""
    try:
        stream = source.path.open("rb")
    except OSError as error:
        raise InputError(f"{source} cannot be opened ({error.strerror})") from error
    with stream:
        _check_magic(source, stream, magic, kind)
        yield stream


def _check_magic(source: Source, stream: IO[bytes], magic: bytes, kind: str) -> None:
    with _reading(source, kind):
        found = stream.read(len(magic))
        stream.seek(0)
    if found == magic:
        return
    hint = "it holds a single array, so call it .npy" if found == _NPY[:2] else "write it again"
    raise InputError(f"{source} is not {kind}; {hint}")


@contextmanager
def _reading(source: Source, kind: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if "allow_pickle" in str(error) or "Python objects" in str(error):
            raise _holds_objects(str(source)) from error
        raise unreadable(str(source), kind, error) from error


def _holds_objects(where: str) -> InputError:
    return InputError(
        f"{where} holds Python objects, which are never loaded from a file; save it as an array of "
        "numbers (or of fixed-width strings)"
    )
