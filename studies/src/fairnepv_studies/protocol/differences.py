"""Where what is published and what was found part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fairnepv.checks import brief
from fairnepv.errors import NumericalError
from fairnepv_studies.protocol.results import ROUNDING

TOLERANCE = ROUNDING
_BY_THE_WAY = ("made_by", "details")  # who made the same numbers, and how fast


class Difference(NumericalError):
    """What is published is not what was found."""


def check_same(what: str, published: Any, found: Any) -> None:
    """Of one type and value throughout: 1 is neither 1.0 nor true."""
    if not isinstance(found, dict):
        if json.dumps(published) != json.dumps(found):
            raise Difference(f"{what}: {_apart(str(published), str(found))}")
        return
    if not isinstance(published, dict):
        raise Difference(f"{what}: published {brief(published)}, expected several entries")
    if other := sorted({*published} ^ {*found}):
        is_it = "is missing" if other[0] in found else "is not expected"
        raise Difference(f"{what}, {other[0]} {is_it}")
    for name, value in sorted(found.items()):
        if name not in _BY_THE_WAY:
            check_same(f"{what}, {name}", published[name], value)
        elif type(published[name]) is not type(value):
            raise Difference(f"{what}, {name}: published {brief(published[name])}")


def _apart(published: str, found: str) -> str:
    """Two texts from shortly before the place where they part."""
    pairs = enumerate(zip(published, found, strict=False))
    parted = next((i for i, (a, b) in pairs if a != b), min(len(published), len(found)))
    at = max(0, parted - 30)
    seen, dots = slice(at, at + 60), "..." if at else ""
    return f"published {dots}{published[seen]}, found {dots}{found[seen]}"


def check_close(what: str, published: Any, found: Any) -> None:
    if isinstance(found, Mapping):
        if not isinstance(published, Mapping) or list(published) != list(found):
            raise Difference(f"{what}: published {brief(published)}, found {dict(found)}")
        for name, value in found.items():
            check_close(f"{what}, view {name}", published[name], value)
    elif not is_number(published) or not abs(published - found) <= TOLERANCE:
        raise Difference(f"{what}: published {brief(published)}, found {found!r}")


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and bool(np.isfinite(float(value)))
