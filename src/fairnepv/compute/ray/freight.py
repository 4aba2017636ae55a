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
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute.base import Array, Source
from fairnepv.errors import InputError
from fairnepv.io.rows import FileVersion

_LARGE = 1 << 16  # bytes of an array that is worth an entry in the object store
_COMPARED, _PAGE = 64, 1 << 12  # places of a mapped file that are looked at again, bytes of each
_KEPT_SOURCES = 2  # in a worker: the pool, and perhaps one that is scaled otherwise


class Packed(NamedTuple):
    """A source on its way: what `unpack_source` takes, as promises."""

    key: str
    blob: Any
    arrays: tuple[Any, ...]


class Freight:
    """What one session has sent, for as long as it is alive here."""

    def __init__(self, put: Callable[[Any], Any]) -> None:
        self._put = put
        self._sources: dict[int, Packed] = {}
        self._arrays: dict[int, tuple[int, Any]] = {}  # with the checksum of what was sent

    def packed(self, source: Source) -> Packed:
        if id(source) not in self._sources:
            arrays: list[Array] = []
            blob = pack(source.lean(), arrays)
            sent = tuple(map(self._sent, arrays))
            self._sources[id(source)] = Packed(uuid.uuid4().hex, self._put(blob), sent)
            weakref.finalize(source, self._sources.pop, id(source), None)
        return self._sources[id(source)]

    def _sent(self, array: Array) -> Any:
        """Again if it was written to since another source had it: it may be the caller's."""
        checksum, known = _checksum(array), self._arrays.get(id(array))
        if known is None:
            weakref.finalize(array, self._arrays.pop, id(array), None)
        if known is None or known[0] != checksum:
            known = self._arrays[id(array)] = checksum, self._put(array)
        return known[1]


def _checksum(array: Array) -> int:
    """In less time than it takes to send it."""
    numbers = np.ascontiguousarray(array.T if array.flags.f_contiguous else array)
    return zlib.crc32(numbers.view(np.uint8).data)


def pack(thing: Any, arrays: list[Array] | None = None) -> bytes:
    """Bytes for `Unpacker`; large arrays go to the list instead, where there is one."""
    written = io.BytesIO()
    _packer()(written, arrays).dump(thing)
    return written.getvalue()


@functools.cache
def _packer() -> Any:
    from ray.cloudpickle import CloudPickler  # for what workers cannot import

    class Packer(CloudPickler):  # type: ignore[misc]
        def __init__(self, file: Any, arrays: list[Array] | None) -> None:
            super().__init__(file)
            self.arrays = arrays

        def persistent_id(self, thing: Any) -> Any:
            return None if self.arrays is None else _name(self.arrays, thing)

        def reducer_override(self, thing: Any) -> Any:
            if (
                type(thing) is np.ndarray
                and thing.dtype.isbuiltin == 1
                and not thing.dtype.hasobject
            ):
                order: Any = (
                    "C" if thing.flags.c_contiguous or not thing.flags.f_contiguous else "F"
                )
                return _array, (thing.tobytes(order), thing.dtype.str, thing.shape, order)
            return super().reducer_override(thing)

    return Packer


def _array(numbers: bytes, kind: str, shape: tuple[int, ...], order: Any) -> Array:
    """With the one dtype that NumPy has for its kind: beside a copy of it, which is what pickle
    makes, indexing and `ufunc.at` took 15 times as long."""
    return np.ndarray(shape, np.dtype(kind), numbers, order=order)


def usual(array: Array) -> Array:
    """An array that came through Ray, with the same."""
    return array.view(np.dtype(array.dtype.str)) if array.dtype.isbuiltin else array


def owned(result: Any) -> Any:
    """What a task made, as if it had been made here: Ray's arrays cannot be written to, and whoever
    combines partial results adds to one of them."""
    if isinstance(result, np.ndarray):
        return usual(result).copy(order="K")
    if isinstance(result, tuple):
        parts = map(owned, result)
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return result


def _name(arrays: list[Array], thing: Any) -> Any:
    """What stands for a large array: its file, or its place in the list."""
    if not isinstance(thing, np.ndarray) or thing.nbytes < _LARGE or thing.dtype.hasobject:
        return None
    mapped = MappedArray.of(thing)
    if mapped is not None:
        return mapped
    arrays.append(thing)
    return len(arrays) - 1


class Unpacker(pickle.Unpickler):
    def __init__(self, blob: bytes, arrays: tuple[Array, ...]) -> None:
        super().__init__(io.BytesIO(blob))
        self._arrays = arrays

    def persistent_load(self, name: Any) -> Any:
        return name.opened() if isinstance(name, MappedArray) else usual(self._arrays[name])


class Last:
    """In a worker: the things that were made last, by their keys."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            while len(self._kept) >= self._most:
                self._kept.popitem(last=False)
            self._kept[key] = make()
        self._kept.move_to_end(key)
        return self._kept[key]


_unpacked, _settled = Last(_KEPT_SOURCES), Last(_KEPT_SOURCES)


def unpack_source(key: str, blob: bytes, arrays: tuple[Array, ...]) -> Any:
    """In a worker: the source, which keeps what it has read from one task to the next."""
    return _unpacked.get(key, lambda: Unpacker(blob, arrays).load())


def settle_source(key: str, source: Source, engine: Any) -> Any:
    """In a worker: the source with its rows on the device, to which they go once."""
    return _settled.get(key, lambda: source.settled(engine))


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
        places = np.linspace(0, len(array) - 1, _COMPARED).astype(np.int64)
        rows = np.unique(np.minimum(places[:, None] + np.arange(run), len(array) - 1))
        try:
            same = self.opened()[rows].tobytes() == array[rows].tobytes()
        except (TypeError, ValueError):  # it is shorter
            same = False
        if not same:
            raise InputError(
                f"{self.file.path} was replaced since it was mapped into memory, and workers would "
                "read other rows than this process; map it again"
            )

    def opened(self) -> Array:
        self.file.check(0, self.shape[0])
        whole = np.memmap(str(self.file.path), np.uint8, mode="r")
        return np.ndarray(self.shape, np.dtype(self.dtype.str), whole, self.offset, self.strides)


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class Layout(NamedTuple):
    """How an aligned array lies in the rows that travel; without `strides` it is all of them."""

    at: int
    offset: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None

    def restored(self, parts: list[Array]) -> Array:
        part = usual(parts[self.at])
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
            return Layout(self._place(array, array))
        offset = _address(array) - _address(whole)
        place = self._place(whole, whole.reshape(len(array), -1))
        return Layout(place, offset, array.shape[1:], array.strides[1:])

    def _place(self, owner: Array, rows: Array) -> int:
        return self._wholes.setdefault(id(owner), (len(self._wholes), rows))[0]
