"""JSON that was stored, perhaps by somebody else: bounded, and the same to every reader.

Python's own parser takes numbers that are none (NaN, Infinity, 1e999), of two values under one name
the last, and whatever nesting there is, over which those stumble who walk through it later.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from fairnepv.errors import InputError
from fairnepv.io.places import open_regular

MOST_BYTES = 256 << 20  # a split of ten million items has 20 MB
DEEPEST = 32  # levels of lists and objects; ours have six
_DIGITS = 20  # of a whole number: all of 64 bits, with a sign


def read_document(file: Path, remedy: str, *, most: int = MOST_BYTES) -> Any:
    """What a JSON file says; an `InputError` of one sentence where it is none."""
    with open_regular(file) as stream:
        content = stream.read(most + 1)
    try:
        if len(content) > most:
            raise ValueError(f"it has more than {most:,} bytes")
        return parse_document(content)
    except ValueError as error:
        raise InputError(f"{file} cannot be read ({error}); {remedy}") from error


def parse_document(content: bytes | str) -> Any:
    """A `ValueError` says what no document of ours has."""
    try:
        document = json.loads(
            content,
            object_pairs_hook=_each_once,
            parse_constant=_no_number,
            parse_float=_number,
            parse_int=_whole_number,
        )
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep") from None
    _check_levels(document)
    return document


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two values under one name some readers see the first, and some the last."""
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a name is there twice")
    return document


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:_DIGITS]} is too large for a number")
    return number


def _whole_number(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"{text[:_DIGITS]}... is too large for a number")
    return int(text)


def _check_levels(document: Any) -> None:
    """Level by level, since whoever calls himself for every level has a limit of his own."""
    level = [document]
    for _ in range(DEEPEST + 1):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    raise ValueError(f"it is nested more than {DEEPEST} levels deep")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, list):
        return value
    elif isinstance(value, dict):
        return [*value, *value.values()]
    return []


def _check_text(text: str) -> None:
    """Half a letter, as in "\\ud800", can be neither written nor shown."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a text holds half of a letter") from None
