"""safetensors: eight bytes of length, a JSON header with offsets, then the numbers themselves."""

import itertools
import math
from typing import Any, TypeGuard

import numpy as np

from fairnepv.errors import InputError
from fairnepv.io.documents import LARGEST_DOCUMENT, is_size, parse_document
from fairnepv.io.places import open_regular
from fairnepv.io.ranges import number_rows
from fairnepv.io.rows import FileVersion, NumberRows, file_version, missing_rows
from fairnepv.io.source import Source, choose_part

_MOST_AXES = 64  # of an array of NumPy
_BFLOAT16 = "BF16"
_KINDS = {"F16": "<f2", _BFLOAT16: "<u2", "F32": "<f4", "F64": "<f8", "BOOL": "?"}
_KINDS |= {"I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}
_KINDS |= {"U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8"}


def read_safetensors(source: Source) -> NumberRows:
    """A tensor with two axes, which stays in the file."""
    file = file_version(source)
    tensors, begin = _read_header(source, file)
    name = choose_part(source, list(tensors), "tensor")
    kind, shape, (first, last) = _checked(source, name, tensors[name])
    _refuse_overlaps(source, tensors)
    where = f"{source.path}:{name}"
    if len(shape) != 2:
        raise InputError(f"{where} must have two axes, rows and columns, not shape {shape}")
    (rows, columns), stored = shape, np.dtype(_KINDS[kind])
    if begin + last > file.size:
        missing = missing_rows(rows, columns * stored.itemsize, file.size - begin - first)
        raise InputError(f"{where} is cut short: {missing} are missing; write or copy it again")
    bfloat16 = kind == _BFLOAT16
    return number_rows(file, stored, (rows, columns), begin + first, where, bfloat16=bfloat16)


def _read_header(source: Source, file: FileVersion) -> tuple[dict[str, Any], int]:
    """The tensors by name, and where their bytes begin."""
    try:
        with open_regular(source.path) as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(LARGEST_DOCUMENT, file.size - 8):
                raise InputError(
                    f"{source.path} is not a safetensors file: its header would have {length:,} "
                    f"of {file.size:,} bytes; write it again"
                )
            header = parse_document(stream.read(length))
    except InputError:
        raise
    except (OSError, ValueError) as error:
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
    kind, shape = entry.get("dtype"), entry.get("shape")
    offsets = _offsets(source, name, entry)
    if not _are_sizes(shape) or len(shape) > _MOST_AXES or math.prod(filter(None, shape)) >= 2**60:
        raise InputError(f"{where} has no sound shape in the header; write it again")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(f"{where} has dtype {str(kind)[:20]}; save it as F16, BF16, F32 or F64")
    size = math.prod(shape) * np.dtype(_KINDS[kind]).itemsize
    if offsets[1] - offsets[0] != size:
        raise InputError(
            f"{where} has {offsets[1] - offsets[0]:,} bytes, but its shape {shape} of {kind} needs "
            f"{size:,}; write it again"
        )
    return kind, shape, offsets


def _offsets(source: Source, name: str, entry: Any) -> list[int]:
    """Where the bytes of a tensor begin and end."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not (_are_sizes(offsets) and len(offsets) == 2 and offsets[0] <= offsets[1]):
        raise InputError(f"{source.path}:{name} has no sound offsets in the header; write it again")
    return offsets


def _refuse_overlaps(source: Source, tensors: dict[str, Any]) -> None:
    """No two tensors share a byte: one of them would be read as another."""
    spans = sorted((_offsets(source, name, tensors[name]), name) for name in tensors)
    for (one, name), (other, following) in itertools.pairwise(spans):
        if other[0] < one[1]:
            raise InputError(f"{source.path}:{name} and {following!r} overlap; write it again")


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(map(is_size, values))
