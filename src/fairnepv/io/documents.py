"""JSON that says what is in other files: manifests, states of data sets, headers of tensors.

It is read more strictly than Python does: a name that occurs twice, a number that is none or
nesting without an end is damage, and everything that a document says is asked for by its type.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, TypeGuard

from fairnepv.errors import InputError
from fairnepv.io.memory import size_in_words
from fairnepv.io.places import Place, open_regular

LARGEST_DOCUMENT = 1 << 24  # bytes; Python needs up to thirty times as much to hold it


def read_document(path: Place, remedy: str) -> dict[str, Any]:
    """The JSON object in a file; the remedy says what to do about one that is none."""
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST_DOCUMENT + 1)
        if len(content) > LARGEST_DOCUMENT:
            most = size_in_words(LARGEST_DOCUMENT)
            raise InputError(f"{path} has more than {most}, which is not read; {remedy}")
        document = parse_document(content)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); {remedy}") from error
    if not isinstance(document, dict):
        raise InputError(f"{path} must hold a JSON object; {remedy}")
    return document


def parse_document(content: bytes) -> Any:
    """JSON, or a `ValueError` that says what is wrong with it."""
    try:
        return json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_size(value: Any) -> TypeGuard[int]:
    """Whether something read from a document is a number of rows or bytes; True is none."""
    return type(value) is int and 0 <= value < 2**63


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{twice!r} occurs twice")
    return found
