"""safetensors: eight bytes of length, a JSON header with offsets, then the numbers themselves."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from fairnepv.errors import InputError
from fairnepv.io.ranges import number_rows
from fairnepv.io.rows import Fingerprint, NumberRows, row_range
from fairnepv.io.source import Source, choose_part

_LARGEST_HEADER = 100_000_000  # the limit of the format itself
_BFLOAT16 = "BF16"
_KINDS = {
    "F16": "<f2",
    _BFLOAT16: "<u2",
    "F32": "<f4",
    "F64": "<f8",
    "I8": "i1",
    "U8": "u1",
    "I16": "<i2",
    "U16": "<u2",
    "I32": "<i4",
    "U32": "<u4",
    "I64": "<i8",
    "U64": "<u8",
    "BOOL": "?",
}


def read_safetensors(source: Source) -> NumberRows:
    """A tensor with two axes, which stays in the file."""
    file = Fingerprint.of(source.path)
    tensors, begin = _read_header(source, file)
    name = choose_part(source, list(tensors), "tensor")
    kind, shape, (first, last) = _checked(source, name, tensors[name])
    where = f"{source.path}:{name}"
    if len(shape) != 2:
        raise InputError(f"{where} must have two axes, rows and columns, not shape {shape}")
    rows, columns = shape
    if begin + last > file.size:
        width = columns * np.dtype(_KINDS[kind]).itemsize
        whole = max(0, file.size - begin - first) // width
        raise InputError(
            f"{where} is cut short: {row_range(whole, rows)} of {rows:,} are missing; write or "
            "copy it again"
        )
    return number_rows(
        file,
        np.dtype(_KINDS[kind]),
        (rows, columns),
        begin + first,
        origin=where,
        bfloat16=kind == _BFLOAT16,
    )


def _read_header(source: Source, file: Fingerprint) -> tuple[dict[str, Any], int]:
    """The tensors by name, and where their bytes begin."""
    try:
        with source.path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(_LARGEST_HEADER, file.size - 8):
                raise InputError(
                    f"{source.path} is not a safetensors file: its header would have {length:,} "
                    f"of {file.size:,} bytes; write it again"
                )
            header = json.loads(stream.read(length))
    except OSError as error:
        raise InputError(f"{source.path} cannot be opened ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{source.path} is not a safetensors file: its header cannot be read ({error}); write "
            "it again"
        ) from error
    if not isinstance(header, dict):
        raise InputError(f"{source.path} is not a safetensors file: its header names no tensors")
    header.pop("__metadata__", None)
    return header, 8 + length


def _checked(source: Source, name: str, entry: Any) -> tuple[str, list[int], list[int]]:
    """Type, shape and offsets of a tensor, which must agree."""
    where = f"{source.path}:{name}"
    entry = entry if isinstance(entry, dict) else {}
    kind, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not (_are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
        raise InputError(f"{where} has no sound shape and offsets in the header; write it again")
    if kind not in _KINDS:
        raise InputError(f"{where} has dtype {kind}; save it as F16, BF16, F32 or F64")
    size = math.prod(shape) * np.dtype(_KINDS[kind]).itemsize
    if offsets[1] - offsets[0] != size:
        raise InputError(
            f"{where} has {offsets[1] - offsets[0]:,} bytes, but its shape {shape} of {kind} needs "
            f"{size:,}; write it again"
        )
    return kind, shape, offsets


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(x) is int and x >= 0 for x in values)
