"""The record batches of Arrow IPC files and streams, and what they become once decompressed.

Every compressed buffer begins with the number of bytes that it expands to, and Arrow makes that
much room without a question. PyArrow does not tell where the buffers lie, so the few fields that
do are looked up in the FlatBuffers of the format (Schema.fbs, Message.fbs and File.fbs of Arrow).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from fairnepv.errors import InputError
from fairnepv.io.memory import refuse_expansion
from fairnepv.io.places import open_regular, regular_file
from fairnepv.io.source import Source

_IPC_FILE, _FEATHER_1 = b"ARROW1", b"FEA1"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_REMEDY = "write it without compression, or in smaller batches"
_FILE_END = 10  # bytes: the length of the footer, then ARROW1
_CONTINUES = 0xFFFFFFFF  # before the length of a message, but for old files
_DICTIONARY, _BATCH = 2, 3  # kinds of messages
_VERSION_5 = 4  # as it is stored; older messages name their compression in their field 4
_BLOCK = np.dtype([("offset", "<i8"), ("about", "<i4"), ("_", "<i4"), ("body", "<i8")])
_BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])


@dataclass(frozen=True)
class Chunks:
    """A column in chunks."""

    kind: Any  # the Arrow type of the column
    lengths: list[int]  # how many rows each chunk has
    arrays: Callable[[int, int], list[Any]]  # of chunk s; a row takes at least so many bytes
    sample: Callable[[int], Any]  # the first row of chunk s, as a whole one may be large
    at_hand: bool = False  # whether a chunk costs nothing to get: mapped, or decoded already


def open_batches(source: Source, at: int, *, whole: bool) -> Chunks:
    """The record batches of column number `at`."""
    content = _mapped(source)
    if not _is_ipc_file(source):
        return _open_stream(source, content, at)
    parts = file_batches(memoryview(content))
    _refuse_bomb(source, content, [part for part in parts if part.dictionary or whole])
    mapped = None if any(part.compressed for part in parts) else _open_views(content, at)
    return mapped or _open_compressed(source, content, at, parts)


def ipc_schema(source: Source) -> Any:
    content = _mapped(source)
    return (pa.ipc.open_file if _is_ipc_file(source) else pa.ipc.open_stream)(content).schema


def _open_views(content: Any, at: int) -> Chunks | None:
    """Batches that are views of the map, or None where they cannot be.

    All columns are read, since to leave some out Arrow copies the others.
    """
    reader = pa.ipc.open_file(content)
    arrays = []
    for b in range(reader.num_record_batches):
        arrays.append(_valid_column(reader.get_batch(b), at))
        if not _lies_in(arrays[-1], content):
            return None
    return _held(reader.schema.types[at], arrays)


def _open_compressed(source: Source, content: Any, at: int, parts: list[Batch]) -> Chunks:
    """Batches that are decoded again whenever they are asked for."""
    reader = pa.ipc.open_file(content, options=pa.ipc.IpcReadOptions(included_fields=[at]))
    batches = [part for part in parts if not part.dictionary]

    def decode(b: int) -> Any:
        _refuse_bomb(source, content, [batches[b]])
        return _valid_column(reader.get_batch(b), 0)

    return _batches(reader.schema.types[0], [batch.rows for batch in batches], decode)


def _open_stream(source: Source, content: Any, at: int) -> Chunks:
    """The batches of a stream, which has no directory: they are found by walking through it."""
    _refuse_bomb(source, content, list(stream_batches(memoryview(content))))
    reader = pa.ipc.open_stream(content, options=pa.ipc.IpcReadOptions(included_fields=[at]))
    arrays: list[Any] = []
    rows = 0
    try:
        for batch in reader:
            arrays.append(_valid_column(batch, 0))
            rows += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{source.path} is cut short or damaged behind row {rows:,} "
            f"({' '.join(str(error).split())}); write it again"
        ) from error
    if bytes(memoryview(content)[-len(_END_OF_STREAM) :]) != _END_OF_STREAM:
        raise InputError(f"{source.path} is cut short behind row {rows:,}; write it again")
    return _held(reader.schema.types[0], arrays)


def _held(kind: Any, arrays: list[Any]) -> Chunks:
    return _batches(kind, list(map(len, arrays)), arrays.__getitem__, at_hand=True)


def _batches(
    kind: Any, lengths: list[int], decode: Callable[[int], Any], at_hand: bool = False
) -> Chunks:
    def sample(b: int) -> Any:
        array = decode(b)
        array.validate(full=True)
        return array[:1]

    return Chunks(kind, lengths, lambda b, _: [decode(b)], sample, at_hand)


def _refuse_bomb(source: Source, content: Any, batches: list[Batch]) -> None:
    """Refuse batches whose decompression would take too much memory."""
    if any(batch.compressed for batch in batches):
        expanded = sum(batch.expanded for batch in batches)
        refuse_expansion(str(source.path), content.size, expanded, _REMEDY)


def _mapped(source: Source) -> Any:
    """The bytes of a file as an Arrow buffer."""
    if not isinstance(source.path, Path):
        raise InputError(
            f"{source.path} is an Arrow file, which is read from a local disk alone; copy it "
            "there, or write it as Parquet"
        )
    return pa.memory_map(str(regular_file(source.path))).read_buffer()


def _is_ipc_file(source: Source) -> bool:
    with open_regular(source.path) as file:
        magic = file.read(8)
    if magic.startswith(_FEATHER_1):
        raise InputError(
            f"{source.path} is Feather of version 1; write it as version 2 (Arrow IPC) or Parquet"
        )
    if not magic:
        raise InputError(f"{source.path} is empty; write it again")
    return magic.startswith(_IPC_FILE)


def _valid_column(batch: Any, at: int) -> Any:
    """A column whose length is that of its batch and within its buffers."""
    batch.validate()
    return batch.column(at)


def _lies_in(array: Any, content: Any) -> bool:
    """Whether the values of an array are views of `content`, and not decoded."""
    buffers = [buffer for buffer in array.buffers() if buffer is not None and buffer.size]
    begin, end = content.address, content.address + content.size
    return all(begin <= buffer.address < end for buffer in buffers)


# --- sizes, before anything is decompressed -------------------------------------------------------


class Batch(NamedTuple):
    """A record batch, or a dictionary, which is one."""

    rows: int
    expanded: int  # bytes of its buffers in memory
    compressed: bool
    dictionary: bool


def file_batches(content: memoryview) -> list[Batch]:
    """The batches of an IPC file, by the directory at its end: dictionaries first."""
    footer_size = _number(content, len(content) - _FILE_END, "<i")
    begin = len(content) - _FILE_END - footer_size  # of the footer, where the batches end
    footer = _Table.root(content, begin)
    dictionaries, batches = (footer.vector(field, _BLOCK) for field in (2, 3))
    blocks = np.concatenate([dictionaries, batches])
    order = np.argsort(blocks["offset"], kind="stable")
    begins = blocks["offset"][order]
    ends = begins + blocks["about"][order] + blocks["body"][order]
    sizes = np.array([blocks[name] for name in ("offset", "about", "body")])
    if ((sizes < 0) | (sizes > begin)).any() or (begins[1:] < ends[:-1]).any():
        raise ValueError("its batches overlap or lie outside of the file")
    found = []
    for offset, about, _, _ in blocks.tolist():
        begin, _ = _message(content, offset)
        found.append(_batch(content, _Table.root(content, begin), offset + about))
    return found


def stream_batches(content: memoryview) -> Iterator[Batch]:
    """The batches of an IPC stream, up to its end or where it is cut short."""
    at = 0
    while at + 8 <= len(content):
        begin, body = _message(content, at)
        if body == begin or body > len(content):
            return
        message = _Table.root(content, begin)
        at = body + message.number(3, "<q")
        if at < body:
            raise ValueError("a message has a negative length")
        if at <= len(content) and message.number(1, "<B") in (_DICTIONARY, _BATCH):
            yield _batch(content, message, body)


def _message(content: memoryview, at: int) -> tuple[int, int]:
    """Where a message begins and ends; the one at the end of a stream is empty."""
    size = _number(content, at, "<I")
    if size == _CONTINUES:
        at += 4
        size = _number(content, at, "<I")
    return at + 4, at + 4 + size


def _batch(content: memoryview, message: _Table, body: int) -> Batch:
    kind = message.number(1, "<B")
    if kind not in (_DICTIONARY, _BATCH):
        raise ValueError("a batch is no batch")
    about = message.table(2)
    if about is not None and kind == _DICTIONARY:
        about = about.table(1)
    if about is None:
        raise ValueError("a batch has no content")
    buffers = about.vector(2, _BUFFER)
    old = message.number(0, "<h") < _VERSION_5
    compressed = about.table(3) is not None or (old and message.find(4) is not None)
    expanded = sum(buffers["length"].tolist())
    if compressed:
        expanded = sum(_expanded(content, body + begin, size) for begin, size in buffers.tolist())
    rows = about.number(0, "<q")
    if not 0 <= rows <= 8 * expanded:  # a row has a bit at least
        raise ValueError(f"a batch of {expanded:,} bytes promises {rows:,} rows")
    return Batch(rows, expanded, compressed, kind == _DICTIONARY)


def _expanded(content: memoryview, at: int, size: int) -> int:
    """The size that a compressed buffer names; it names -1 if it was left as it is."""
    told = _number(content, at, "<q") if size else 0
    return size - 8 if told == -1 else told


class _Table:
    """A table of a FlatBuffer: its fields are found through a list of offsets."""

    def __init__(self, content: memoryview, at: int) -> None:
        self._content, self._at = content, at
        self._fields = at - _number(content, at, "<i")
        self._size = _number(content, self._fields, "<H")

    @classmethod
    def root(cls, content: memoryview, at: int) -> _Table:
        return cls(content, at + _number(content, at, "<I"))

    def find(self, field: int) -> int | None:
        slot = 4 + 2 * field
        offset = _number(self._content, self._fields + slot, "<H") if slot < self._size else 0
        return self._at + offset if offset else None

    def number(self, field: int, kind: str) -> int:
        at = self.find(field)
        return 0 if at is None else _number(self._content, at, kind)

    def table(self, field: int) -> _Table | None:
        at = self.find(field)
        return None if at is None else _Table.root(self._content, at)

    def vector(self, field: int, kind: np.dtype[Any]) -> Any:
        at = self.find(field)
        if at is None:
            return np.empty(0, kind)
        begin = at + _number(self._content, at, "<I")
        count = _number(self._content, begin, "<I")
        return np.frombuffer(self._content, kind, count, begin + 4)


def _number(content: memoryview, at: int, kind: str) -> int:
    if at < 0:  # which Python would count from the end
        raise ValueError("an offset points before its beginning")
    try:
        return int(struct.unpack_from(kind, content, at)[0])
    except struct.error:
        raise ValueError("an offset points beyond its end") from None
