"""What travels to workers, and how: rows by reference, slices of aligned arrays by value.

Rows in files travel as the names of these. Arrays of a source go to the object store once, however
many sources share them, and come out there without a copy.
"""

from __future__ import annotations

import functools
import io
import pickle
import uuid
import weakref
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute.base import Array, Engine, RowSource
from fairnepv.errors import InputError
from fairnepv.io.rows import FileVersion

_LARGE = 1 << 16  # bytes of an array that is worth an entry in the object store
_COMPARED, _PAGE = 64, 1 << 12  # places of a mapped file that are looked at again, bytes of each
_RECENT_SOURCES = 2  # in a worker: the pool, and perhaps one that is scaled otherwise


# --- sources: in the driver -----------------------------------------------------------------------


class Sender:
    """Sources and their arrays that one connection has sent, for as long as they are alive here."""

    def __init__(self, put: Callable[[Any], Any]) -> None:
        self._put = put
        self._sources: dict[int, tuple[Any, ...]] = {}
        self._arrays: dict[int, tuple[int, Any]] = {}  # with the checksum of what was sent

    def send(self, source: RowSource) -> tuple[Any, ...]:
        """What `receive_source` takes, as promises."""
        if id(source) not in self._sources:
            arrays: list[Array] = []
            blob = pack(source.lean(), arrays)
            sent = map(self._send_array, arrays)
            self._sources[id(source)] = uuid.uuid4().hex, self._put(blob), *sent
            weakref.finalize(source, self._sources.pop, id(source), None)
        return self._sources[id(source)]

    def _send_array(self, array: Array) -> Any:
        """A promise of the array; it is sent again if it was written to since another source had
        it, for it may be the caller's."""
        checksum, known = _checksum(array), self._arrays.get(id(array))
        if known is None:
            weakref.finalize(array, self._arrays.pop, id(array), None)
        if known is None or known[0] != checksum:
            known = self._arrays[id(array)] = checksum, self._put(array)
        return known[1]


def _checksum(array: Array) -> int:
    """A checksum of the numbers, in less time than it takes to send them."""
    numbers = np.ascontiguousarray(array.T if array.flags.f_contiguous else array)
    return zlib.crc32(numbers.view(np.uint8).data)


def pack(thing: Any, arrays: list[Array] | None = None) -> bytes:
    """Bytes for `_Unpickler`; large arrays go to the list instead, where there is one."""
    written = io.BytesIO()
    _pickler()(written, arrays).dump(thing)
    return written.getvalue()


@functools.cache
def _pickler() -> Any:
    from ray.cloudpickle import CloudPickler  # for what workers cannot import

    class Pickler(CloudPickler):  # type: ignore[misc]
        def __init__(self, file: Any, arrays: list[Array] | None) -> None:
            super().__init__(file)
            self.arrays = arrays

        def persistent_id(self, thing: Any) -> Any:
            return None if self.arrays is None else _reference(thing, self.arrays)

        def reducer_override(self, thing: Any) -> Any:
            if type(thing) is not np.ndarray or thing.dtype.isbuiltin != 1 or thing.dtype.hasobject:
                return super().reducer_override(thing)
            fortran = thing.flags.f_contiguous and not thing.flags.c_contiguous
            order: Any = "F" if fortran else "C"
            return _make_array, (thing.tobytes(order), thing.dtype.str, thing.shape, order)

    return Pickler


def _make_array(numbers: bytes, kind: str, shape: tuple[int, ...], order: Any) -> Array:
    """With the one dtype that NumPy has for its kind: beside a copy of it, which is what pickle
    makes, indexing and `ufunc.at` took 15 times as long."""
    return np.ndarray(shape, np.dtype(kind), numbers, order=order)


def _reference(thing: Any, arrays: list[Array]) -> Any:
    """What stands for a large array: its file, or its place in the list."""
    if not isinstance(thing, np.ndarray) or thing.nbytes < _LARGE or thing.dtype.hasobject:
        return None
    mapped = MappedArray.of(thing)
    if mapped is not None:
        return mapped
    arrays.append(thing)
    return len(arrays) - 1


# --- sources: in a worker -------------------------------------------------------------------------


class _Unpickler(pickle.Unpickler):
    def __init__(self, blob: bytes, arrays: tuple[Array, ...]) -> None:
        super().__init__(io.BytesIO(blob))
        self._arrays = arrays

    def persistent_load(self, name: Any) -> Any:
        return name.open() if isinstance(name, MappedArray) else usual_dtype(self._arrays[name])


@functools.lru_cache(_RECENT_SOURCES)
def _received(key: str) -> dict[str, RowSource]:
    """What is kept of a source from one task to the next: itself, and its rows on the device."""
    return {}


def receive_source(key: str, blob: bytes, *arrays: Array) -> Any:
    """The source, which keeps what it has read."""
    known = _received(key)
    if "source" not in known:
        known["source"] = _Unpickler(blob, arrays).load()
    return known["source"]


def settle_source(key: str, engine: Engine) -> Any:
    """The source that was received, with its rows on the device, to which they go once."""
    known = _received(key)
    if "settled" not in known:
        known["settled"] = known["source"].settled(engine)
    return known["settled"]


def usual_dtype(array: Array) -> Array:
    """An array that came through Ray, with the one dtype that NumPy has for its kind."""
    return array.view(np.dtype(array.dtype.str)) if array.dtype.isbuiltin else array


def writable(result: Any) -> Any:
    """The result of a task as if it had been made here: arrays of Ray cannot be written to, and a
    reduction adds to one of its partial results."""
    if isinstance(result, np.ndarray):
        return usual_dtype(result).copy(order="K")
    if isinstance(result, tuple):
        parts = map(writable, result)
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return result


# --- arrays in memory maps ------------------------------------------------------------------------


@dataclass(frozen=True)
class MappedArray:
    """An array that lies in a memory map, which a worker opens itself."""

    file: FileVersion
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: Array) -> MappedArray | None:
        mapped: Any = array
        while isinstance(mapped, np.ndarray) and not isinstance(mapped, np.memmap):
            mapped = mapped.base
        # Of a slice of a memmap, `offset` is that of the whole: addresses tell where it begins.
        while isinstance(mapped, np.memmap) and isinstance(mapped.base, np.memmap):
            mapped = mapped.base
        if not isinstance(mapped, np.memmap) or mapped.filename is None or mapped.mode == "c":
            return None
        if any(stride < 0 for stride in array.strides):
            return None
        offset = mapped.offset + _address(array) - _address(mapped)
        file = FileVersion.of(Path(mapped.filename))
        found = cls(file, offset, array.dtype, array.shape, array.strides)
        found._compare(array)
        return found

    def _compare(self, array: Array) -> None:
        """A map stays with the file that it was made of; workers open the one of that name now."""
        run = max(1, _PAGE // max(1, array.nbytes // len(array)))
        starts = np.linspace(0, len(array) - 1, _COMPARED).astype(np.int64)
        rows = np.unique(np.minimum(starts[:, None] + np.arange(run), len(array) - 1))
        try:
            same = self.open()[rows].tobytes() == array[rows].tobytes()
        except (TypeError, ValueError):  # it is shorter
            same = False
        if not same:
            raise InputError(
                f"{self.file.path} was replaced since it was mapped into memory, and workers would "
                "read other rows than this process; map it again"
            )

    def open(self) -> Array:
        self.file.check(0, self.shape[0])
        whole = np.memmap(str(self.file.path), np.uint8, mode="r")
        return np.ndarray(self.shape, np.dtype(self.dtype.str), whole, self.offset, self.strides)


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


# --- slices of aligned arrays ---------------------------------------------------------------------


class Layout(NamedTuple):
    """How an aligned array lies in the rows that travel; without `strides` it is all of them."""

    at: int
    offset: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None

    def restored(self, parts: list[Array]) -> Array:
        part = usual_dtype(parts[self.at])
        if self.strides is None:
            return part
        shape, strides = (len(part), *self.shape), (part.strides[0], *self.strides)
        return np.ndarray(shape, part.dtype, part, self.offset, strides)


class Slices:
    """Row-aligned arrays, to be cut for workers.

    Some are columns of one larger array: then rows of that travel, once, and a worker finds the
    columns in them. What it computes with lies in memory as it does here: NumPy sums differently
    where numbers are not side by side.
    """

    def __init__(self, aligned: tuple[Array, ...]) -> None:
        self._wholes: dict[int, tuple[int, Array]] = {}  # by the identity of what owns the memory
        self.layouts = tuple(map(self._layout, aligned))

    def cut(self, start: int, stop: int) -> list[Array]:
        cut = [x[start:stop] for _, x in self._wholes.values()]
        return [x if x.flags.c_contiguous else x.copy(order="K") for x in cut]

    def _layout(self, array: Array) -> Layout:
        whole, row = array.base, array.strides[0]
        if (
            array.flags.c_contiguous
            or not isinstance(whole, np.ndarray)
            or not whole.flags.c_contiguous
            or whole.dtype != array.dtype
            or whole.nbytes != len(array) * row
        ):
            return Layout(self._number(array, array))
        offset = _address(array) - _address(whole)
        number = self._number(whole, whole.reshape(len(array), -1))
        return Layout(number, offset, array.shape[1:], array.strides[1:])

    def _number(self, owner: Array, rows: Array) -> int:
        return self._wholes.setdefault(id(owner), (len(self._wholes), rows))[0]
