"""A table of TOML as a dataclass: every key is a field, and a key that is none is refused.

Nothing here needs more than Python, since the machine that trains may have little else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from fairnepv.checks import brief
from fairnepv.errors import InputError
from fairnepv.io.places import open_regular

Record = TypeVar("Record")
LARGEST = 1 << 20  # bytes of a file of settings


def read_toml(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise InputError(f"{path} has more than a megabyte: it is no file of settings")
        return tomllib.loads(content.decode("utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; check the path") from error
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read ({reason}); write it as TOML") from error


def read_fields(kind: type[Record], table: Any, where: str) -> Record:
    """The record that this table describes; `where` names the table in messages.

    Lists become tuples, as TOML knows none; the record checks its values when it is made.
    """
    table = check_table(table, where)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    check_keys(table, list(known), where)
    needed = [
        name
        for name, field in known.items()
        if field.default is MISSING and field.default_factory is MISSING and name not in table
    ]
    if needed:
        raise InputError(f"{where} must say {needed[0]}, and does not")
    try:
        return kind(**{name: plain(value) for name, value in table.items()})
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def check_table(table: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise InputError(f"{where} must be a table with keys, not {brief(table)}")
    return table


def check_keys(table: Mapping[str, Any], known: list[str], where: str) -> None:
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise InputError(f"{where} has an unknown key {brief(key)}; {hint}")


def plain(value: Any) -> Any:
    return tuple(map(plain, value)) if isinstance(value, list) else value


def check_text(argument: str, value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{argument} must be a text, not {brief(value)}")
    return value


def check_below(argument: str, value: Any, most: float) -> float:
    """A number from 0 on that is below `most`."""
    number = value if type(value) in (int, float) else -1.0
    if not 0 <= number < most:
        raise InputError(
            f"{argument} must be a number from 0 to below {most:g}, not {brief(value)}"
        )
    return float(number)
