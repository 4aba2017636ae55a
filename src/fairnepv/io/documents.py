"""JSON that somebody else may have written: read in one way only, or refused."""

from __future__ import annotations

import json
from typing import Any


def parse_document(text: str | bytes) -> Any:
    """What a JSON text says; a ValueError where readers would differ about it.

    Names come once in an object: of two values under one name some readers see the first, and some
    the last. Infinity is read where a bound may be infinite, NaN never; nesting ends somewhere.
    """
    try:
        return json.loads(text, object_pairs_hook=_each_once, parse_constant=_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a name is there twice")
    return document


def _constant(name: str) -> float:
    if name == "NaN":
        raise ValueError("NaN is no number")
    return float(name)
