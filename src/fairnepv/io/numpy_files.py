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
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.documents import is_size
from fairnepv.io.memory import refuse_expansion
from fairnepv.io.places import open_regular
from fairnepv.io.ranges import number_rows
from fairnepv.io.rows import FileVersion, NumberRows, file_version, missing_rows
from fairnepv.io.source import Source, choose_part, parse_source, reading

_NPY, _ZIP = b"\x93NUMPY", b"PK"
_REMEDY = "save it with np.savez or np.save, which are read without loading"
_VERSIONS = {(1, 0): "<H", (2, 0): "<I", (3, 0): "<I"}  # and what the length of a header is
_LONGEST_HEADER = 1 << 16  # bytes
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

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) == 2 and self.dtype.kind in "fiub"


def read_npy(source: Source) -> Any:
    """Rows that stay in the file; what is not a matrix of numbers is loaded, for the caller to
    judge."""
    file = file_version(source)
    with _opened(source, _NPY, "a .npy file") as stream:
        header = _read_header(stream, str(source))
        _check_size(str(source), header, file.size)
        if not header.is_matrix:
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

    def __init__(self, source: Source, file: FileVersion, stream: IO[bytes]) -> None:
        self._source, self._file, self._stream = source, file, stream
        self._zip = members = zipfile.ZipFile(stream)
        self.names = [info.filename.removesuffix(".npy") for info in members.infolist()]
        self._members = dict(zip(self.names, members.infolist(), strict=True))
        self._stored = self._expanded = 0  # bytes of the members that were read
        if len(self._members) < len(self.names):
            twice, _ = Counter(self.names).most_common(1)[0]
            raise InputError(f"{source.path} has {twice!r} more than once; write the file again")

    def array(self, name: str) -> NDArray[Any]:
        """A member in memory; the sizes of all that were asked for so far are compared."""
        info, where = self._members[name], self._where(name)
        what = f"{self._source.path} up to its {name!r}" if self._stored else where
        self._stored += info.compress_size
        self._expanded += info.file_size
        refuse_expansion(what, self._stored, self._expanded, _REMEDY)
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
        if not header.is_matrix:
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


@contextmanager
def open_archive(source: Source) -> Iterator[Archive]:
    file = file_version(source)
    with _opened(source, _ZIP, "an .npz archive") as stream:
        yield Archive(source, file, stream)


def _stored(file: FileVersion, header: Header, begin: int, origin: str) -> NumberRows:
    n, p = header.shape
    return number_rows(
        file, header.dtype, (n, p), begin + header.offset, origin=origin, fortran=header.fortran
    )


def _read_header(stream: IO[bytes], where: str) -> Header:
    version = np.lib.format.read_magic(stream)
    if version not in _VERSIONS:
        known = ", ".join(f"{major}.{minor}" for major, minor in _VERSIONS)
        raise InputError(
            f"{where} is a .npy file of version {version[0]}.{version[1]}, not one of {known}; "
            "write it again"
        )
    _check_header_length(stream, where, _VERSIONS[version])
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    else:  # 3.0 differs in the names of fields, which are refused in any case
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype.hasobject:
        raise InputError(
            f"{where} holds Python objects, which are never loaded from a file; save it as an "
            "array of numbers (or of fixed-width strings)"
        )
    if dtype.kind == "V":
        what = "bfloat16 or raw bytes" if dtype.itemsize == 2 else "records or raw bytes"
        raise InputError(
            f"{where} has dtype {dtype}, which is {what} to NumPy; save it as float32, or as "
            "safetensors"
        )
    _check_shape(where, shape, dtype)
    return Header(shape, fortran, dtype, stream.tell())


def _check_header_length(stream: IO[bytes], where: str, field: str) -> None:
    """Refuse a long header before it is read: the file may be one large hole."""
    begin = stream.tell()
    (length,) = struct.unpack(field, stream.read(struct.calcsize(field)))
    if length > _LONGEST_HEADER:
        raise InputError(f"{where} has a header of {length:,} bytes; write it again")
    stream.seek(begin)


def _check_shape(where: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse shapes that NumPy takes: -1 and True for sizes, and one of 2^62 beside one of 0."""
    largest = math.prod(filter(None, shape)) * dtype.itemsize
    if not all(is_size(size) for size in shape) or not is_size(largest):
        raise InputError(f"{where} has the impossible shape {shape}; write it again")
    if not dtype.itemsize:
        raise InputError(f"{where} has dtype {dtype}, which holds nothing; write it again")


def _check_size(where: str, header: Header, size: int) -> None:
    """Compare the bytes that are there with those that the header promises."""
    missing = header.offset + header.bytes - size
    if missing < 0:
        raise InputError(
            f"{where} has {-missing:,} bytes behind its array of shape {header.shape}; write it "
            "again, one array to a file"
        )
    if missing > 0:
        what = f"{missing:,} bytes of its array of shape {header.shape}"
        if len(header.shape) == 2 and not header.fortran:
            n, p = header.shape
            what = missing_rows(n, p * header.dtype.itemsize, size - header.offset)
        raise InputError(f"{where} is cut short: {what} are missing; write or copy it again")


@contextmanager
def _opened(source: Source, magic: bytes, kind: str) -> Iterator[IO[bytes]]:
    """A file with the right first bytes: NumPy would take a stranger for a pickle."""
    with open_regular(source.path) as stream, reading(source, kind):
        found = stream.read(len(magic))
        if found != magic:
            single = found == _NPY[:2]
            hint = "it holds a single array, so call it .npy" if single else "write it again"
            raise InputError(f"{source} is not {kind}; {hint}")
        stream.seek(0)
        yield stream
