"""`.npy` and the members of an `.npz` archive, mapped into memory unless they are compressed.

Whatever NumPy and zlib make of bytes that are not what their name says, the caller gets one
sentence: the formats can be broken in many ways, so that every exception counts. Sizes are compared
before anything is read: a header may promise more than its file holds, and an archive may hold a
thousand times what it weighs.
"""

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
from fairnepv.io.memory import refuse_expansion, refuse_unbounded
from fairnepv.io.places import open_regular
from fairnepv.io.ranges import number_rows
from fairnepv.io.rows import FileVersion, file_version, missing_rows
from fairnepv.io.source import Source, choose_part, parse_source, reading

_NPY, _ZIP = b"\x93NUMPY", b"PK"
_REMEDY = "save it with np.savez or np.save, which are read without loading"
_VERSIONS = {(1, 0): "<H", (2, 0): "<I", (3, 0): "<I"}  # and what the length of a header is
_LONGEST_HEADER = 1 << 16  # bytes
_SPARSE = {"format", "shape", "data"}  # members that every sparse matrix has
_INDICES: dict[str, tuple[str, ...]] = {"coo": ("row", "col"), "dia": ("offsets",)}
_INDICES |= dict.fromkeys(("csr", "csc", "bsr"), ("indptr", "indices"))
_AXES = ("row", "column")
_LOCAL_HEADER = 30  # bytes of a member's own header in a zip file, before its name


class Header(NamedTuple):
    """What the first bytes of a .npy file promise."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int  # where the numbers begin

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
    return number_rows(file, header.dtype, header.shape, header.offset, str(source), header.fortran)


def read_npz(source: Source) -> Any:
    """One member of an archive, or the sparse matrix that its members make up."""
    with open_archive(source) as archive:
        if source.part is None and set(archive.names) >= _SPARSE:
            return _read_sparse(source, archive)
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
        info, where = self._members[name], f"{self._source.path}:{name}"
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
        info, where = self._members[name], f"{self._source.path}:{name}"
        if info.compress_type != zipfile.ZIP_STORED:
            return self.array(name)
        with self._zip.open(info) as stream:
            header = _read_header(stream, where)
        _check_size(where, header, info.file_size)
        if not header.is_matrix:
            return self.array(name)
        self._stream.seek(info.header_offset)  # its own may be longer than in the directory
        name_length, extra = struct.unpack("<HH", self._stream.read(_LOCAL_HEADER)[26:])
        begin = int(info.header_offset + _LOCAL_HEADER + name_length + extra)
        if begin + info.file_size > self._file.size:
            raise InputError(f"{where} reaches beyond the end of the file; write the file again")
        at = begin + header.offset
        return number_rows(self._file, header.dtype, header.shape, at, where, header.fortran)


@contextmanager
def open_archive(source: Source) -> Iterator[Archive]:
    file = file_version(source)
    with _opened(source, _ZIP, "an .npz archive") as stream:
        yield Archive(source, file, stream)


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
    missing = header.offset + math.prod(header.shape) * header.dtype.itemsize - size
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
    """A file with the right first bytes: NumPy takes what it does not know for a pickle."""
    with open_regular(source.path) as stream, reading(source, kind):
        found = stream.read(len(magic))
        if found != magic:
            single = found == _NPY[:2]
            hint = "it holds a single array, so call it .npy" if single else "write it again"
            raise InputError(f"{source} is not {kind}; {hint}")
        stream.seek(0)
        yield stream


# --- SciPy's sparse matrices ----------------------------------------------------------------------


def _read_sparse(source: Source, archive: Archive) -> Any:
    """The matrix whose members an archive holds, which are checked one by one: SciPy follows the
    indices without looking, and one that is out of bounds crashes it later on or, when negative,
    gives a wrong answer."""
    import scipy.sparse as sp

    layout = archive.array("format").item()
    layout = layout.decode() if isinstance(layout, bytes) else layout
    if layout not in _INDICES:
        raise InputError(
            f"{source} cannot be read as an .npz archive of a sparse matrix (its format is "
            f"{layout!r}); write it with scipy.sparse.save_npz"
        )
    sizes = archive.array("shape")
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or (sizes < 0).any():
        raise InputError(f"{source} has a broken shape {sizes.tolist()}; write the file again")
    shape = int(sizes[0]), int(sizes[1])
    data = archive.array("data")
    indices = [_indices(source, archive, name) for name in _INDICES[layout]]
    stored = data.nbytes + sum(array.nbytes for array in indices)
    refuse_unbounded(str(source), shape, stored)
    if layout == "coo":
        for axis, (coordinates, size) in enumerate(zip(indices, shape, strict=True)):
            _check_bounds(source, coordinates, size, _AXES[axis], None)
        return sp.coo_array((data, tuple(indices)), shape=shape)
    if layout == "dia":
        _check_diagonals(source, indices[0], shape)
        return sp.dia_array((data, indices[0]), shape=shape)
    indptr, minor = indices
    _check_compressed(source, layout, shape, data, indptr, minor)
    return getattr(sp, f"{layout}_array")((data, minor, indptr), shape=shape)


def _indices(source: Source, archive: Archive, name: str) -> NDArray[Any]:
    if name not in archive.names:
        raise InputError(f"{source} has no {name!r}, which its format needs; write the file again")
    indices = archive.array(name)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise InputError(
            f"{source}:{name} must be a list of integers, not {indices.dtype} of shape "
            f"{indices.shape}; write the file again"
        )
    return indices


def _check_compressed(
    source: Source,
    layout: str,
    shape: tuple[int, int],
    data: NDArray[Any],
    indptr: NDArray[Any],
    minor: NDArray[Any],
) -> None:
    sizes = list(shape)
    if layout == "bsr":
        if data.ndim != 3 or 0 in data.shape[1:]:
            raise InputError(f"{source} has blocks of shape {data.shape[1:]}; write it again")
        sizes = [shape[0] // data.shape[1], shape[1] // data.shape[2]]
    axis = 1 if layout == "csc" else 0
    if (
        len(indptr) != sizes[axis] + 1
        or indptr[0] != 0
        or (indptr[1:] < indptr[:-1]).any()
        or int(indptr[-1]) > min(len(minor), len(data))
    ):
        raise InputError(
            f"{source} is a broken sparse matrix: its indptr does not fit the shape {shape} and "
            f"its {len(data):,} values; write the file again"
        )
    _check_bounds(source, minor[: int(indptr[-1])], sizes[1 - axis], _AXES[1 - axis], indptr)


def _check_diagonals(source: Source, offsets: NDArray[Any], shape: tuple[int, int]) -> None:
    """Refuse diagonals out of bounds: SciPy makes 32-bit numbers of them, whatever they were."""
    rows, columns = shape
    for offset in offsets.tolist():
        if not -rows < offset < columns:
            raise InputError(
                f"{source} is a broken sparse matrix: it names diagonal {offset:,}, but its "
                f"diagonals are {1 - rows:,} to {columns - 1:,}; write the file again"
            )


def _check_bounds(
    source: Source, indices: NDArray[Any], size: int, axis: str, indptr: NDArray[Any] | None
) -> None:
    bad = np.flatnonzero((indices < 0) | (indices >= size))
    if not len(bad):
        return
    where = ""
    if indptr is not None:
        other = "row" if axis == "column" else "column"
        where = f" in {other} {int(np.searchsorted(indptr, bad[0], side='right')) - 1:,}"
    raise InputError(
        f"{source} is a broken sparse matrix: it names {axis} {int(indices[bad[0]]):,}{where}, but "
        f"its {axis}s are 0 to {size - 1:,}; write the file again"
    )
