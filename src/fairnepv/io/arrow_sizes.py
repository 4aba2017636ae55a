"""What the record batches of Arrow IPC become once they are decompressed, before they are.

Every compressed buffer begins with the number of bytes that it expands to, and Arrow makes that
much room without a question. PyArrow does not tell where the buffers lie, so the few fields that
do are looked up in the FlatBuffers of the format (Schema.fbs, Message.fbs and File.fbs of Arrow).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

_FILE_END = 10  # bytes: the length of the footer, then ARROW1
_CONTINUES = 0xFFFFFFFF  # before the length of a message, but for old files
_DICTIONARY, _BATCH = 2, 3  # kinds of messages
_VERSION_5 = 4  # as it is stored; older messages name their compression elsewhere
_BLOCK = np.dtype([("offset", "<i8"), ("about", "<i4"), ("_", "<i4"), ("body", "<i8")])
_BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])


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
    """Where a message begins and ends, which is the same at the end of a stream."""
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
    compressed = about.table(3) is not None or message.is_old_and_annotated()
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

    def _find(self, field: int) -> int | None:
        slot = 4 + 2 * field
        offset = _number(self._content, self._fields + slot, "<H") if slot < self._size else 0
        return self._at + offset if offset else None

    def number(self, field: int, kind: str) -> int:
        at = self._find(field)
        return 0 if at is None else _number(self._content, at, kind)

    def is_old_and_annotated(self) -> bool:
        """Whether a message is of before version 5 and has the field that names its compression."""
        return self.number(0, "<h") < _VERSION_5 and self._find(4) is not None

    def table(self, field: int) -> _Table | None:
        at = self._find(field)
        return None if at is None else _Table.root(self._content, at)

    def vector(self, field: int, kind: np.dtype[Any]) -> Any:
        at = self._find(field)
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
