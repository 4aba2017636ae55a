"""The record batches of an Arrow IPC file or stream, views of its memory map where they can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from fairnepv.errors import InputError
from fairnepv.io.arrow_sizes import Batch, file_batches, stream_batches
from fairnepv.io.memory import refuse_expansion
from fairnepv.io.places import open_regular, regular_file
from fairnepv.io.source import Source

_IPC_FILE, _FEATHER_1 = b"ARROW1", b"FEA1"
_REMEDY = "write it without compression, or in smaller batches"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


@dataclass
class Batches:
    """One column of the record batches of an IPC file or stream."""

    kind: Any  # the Arrow type of the column
    lengths: list[int]
    decode: Callable[[int], Any]
    at_hand: bool  # whether an array costs nothing to get: mapped, or decoded already

    @classmethod
    def held(cls, kind: Any, arrays: list[Any]) -> Batches:
        return cls(kind, [len(array) for array in arrays], arrays.__getitem__, at_hand=True)

    def arrays(self, s: int, row_bytes: int = 0) -> list[Any]:
        return [self.decode(s)]

    def sample(self, s: int) -> Any:
        array = self.decode(s)
        array.validate(full=True)
        return array[:1]


def open_batches(source: Source, at: int, *, whole: bool = False) -> Batches:
    """The batches of column number `at`; `whole` where all will be held together."""
    content = _mapped(source)
    if not _is_ipc_file(source):
        return _open_stream(source, content, at)
    parts = file_batches(_view(content))
    _refuse_bomb(source, content, [part for part in parts if part.dictionary or whole])
    mapped = None if any(part.compressed for part in parts) else _open_views(content, at)
    return mapped or _open_compressed(source, content, at, parts)


def _open_views(content: Any, at: int) -> Batches | None:
    """Batches that are views of the map, or None where they cannot be.

    All columns are read, since to leave some out Arrow copies the others.
    """
    reader = pa.ipc.open_file(content)
    where = content.read_buffer(content.size())
    arrays = []
    for b in range(reader.num_record_batches):
        arrays.append(_valid_column(reader.get_batch(b), at))
        if not _lies_in(arrays[-1], where):
            return None
    return Batches.held(reader.schema.types[at], arrays)


def _open_compressed(source: Source, content: Any, at: int, parts: list[Batch]) -> Batches:
    """Batches that are decoded again whenever they are asked for."""
    reader = pa.ipc.open_file(content, options=pa.ipc.IpcReadOptions(included_fields=[at]))
    batches = [part for part in parts if not part.dictionary]

    def decode(b: int) -> Any:
        _refuse_bomb(source, content, [batches[b]])
        return _valid_column(reader.get_batch(b), 0)

    lengths = [batch.rows for batch in batches]
    return Batches(reader.schema.types[0], lengths, decode, at_hand=False)


def _open_stream(source: Source, content: Any, at: int) -> Batches:
    """The batches of a stream, which has no directory: they are found by walking through it."""
    whole = _view(content)
    _refuse_bomb(source, content, list(stream_batches(whole)))
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
    if bytes(whole[-len(_END_OF_STREAM) :]) != _END_OF_STREAM:
        raise InputError(f"{source.path} is cut short behind row {rows:,}; write it again")
    return Batches.held(reader.schema.types[0], arrays)


def _view(content: Any) -> memoryview:
    whole = memoryview(content.read_buffer(content.size()))
    content.seek(0)
    return whole


def _refuse_bomb(source: Source, content: Any, batches: list[Batch]) -> None:
    """Refuse batches whose decompression would take too much memory."""
    if any(batch.compressed for batch in batches):
        expanded = sum(batch.expanded for batch in batches)
        refuse_expansion(str(source.path), content.size(), expanded, _REMEDY)


def ipc_schema(source: Source) -> Any:
    with _mapped(source) as content:
        opened = pa.ipc.open_file if _is_ipc_file(source) else pa.ipc.open_stream
        return opened(content).schema


def _mapped(source: Source) -> Any:
    if not isinstance(source.path, Path):
        raise InputError(
            f"{source.path} is an Arrow file, which is read from a local disk alone; copy it "
            "there, or write it as Parquet"
        )
    return pa.memory_map(str(regular_file(source.path)))


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
