"""JSON that was stored, perhaps by somebody else: manifests, headers, records of a corpus.

It is read more strictly than Python does: a name that occurs twice, a number that is none, half of
a letter or nesting without an end is refused here, and not where the value is used. Readers check
the type of every value.
"""

import json
import math
from collections import Counter
from typing import Any, NoReturn, TypeGuard

from fairnepv.errors import InputError
from fairnepv.io.memory import size_in_words
from fairnepv.io.places import AnyPath, open_regular

LARGEST_DOCUMENT = 1 << 24  # bytes; Python needs up to thirty times as much to hold it
DEEPEST = 32  # levels of lists and objects; ours have six
_DIGITS = 40  # of a whole number that is looked at at all


def read_document(path: AnyPath, remedy: str, *, most: int = LARGEST_DOCUMENT) -> dict[str, Any]:
    """The JSON object in a file; the remedy says what to do about one that is none."""
    document = read_json(path, remedy, most=most)
    if not isinstance(document, dict):
        raise InputError(f"{path} must hold a JSON object; {remedy}")
    return document


def read_json(path: AnyPath, remedy: str, *, most: int = LARGEST_DOCUMENT) -> Any:
    """Whatever JSON is in a file of at most so many bytes."""
    try:
        with open_regular(path) as file:
            content = file.read(most + 1)
        if len(content) > most:
            words = size_in_words(most)
            raise InputError(f"{path} has more than {words}, which is not read; {remedy}")
        return parse_document(content)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); {remedy}") from error


def parse_document(content: bytes) -> Any:
    """JSON, or a `ValueError` that says what is wrong with it."""
    try:
        document = json.loads(
            content,
            object_pairs_hook=_once,
            parse_constant=_refuse_constant,
            parse_float=_number,
            parse_int=_whole_number,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_levels(document)
    try:
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:  # of "\\ud800", which can be neither written nor shown
        raise ValueError("a text holds half of a letter") from None
    return document


def is_size(value: Any) -> TypeGuard[int]:
    """Whether something read from a document is a number of rows or bytes; True is none."""
    return type(value) is int and 0 <= value < 2**63


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:_DIGITS]} is too large a number")
    return number


def _whole_number(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"{text[:_DIGITS]}... is too large a number")
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without a name that occurs twice: some readers see the first, and some the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{ascii(twice)[:_DIGITS]} occurs twice")
    return found


def _check_levels(document: Any) -> None:
    """Refuse deep nesting, level by level: recursion has a limit of its own."""
    level = [document]
    for _ in range(DEEPEST + 1):
        inner = [value for value in level if isinstance(value, dict | list)]
        level = [
            x for value in inner for x in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise ValueError("it is nested too deeply")
