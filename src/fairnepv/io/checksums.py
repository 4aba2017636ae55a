"""What a file is known by, whoever holds it."""

from __future__ import annotations

import hashlib
from typing import Any

from fairnepv.io.places import AnyPath, open_regular

_BLOCK = 1 << 20


def fingerprint(place: AnyPath) -> dict[str, Any]:
    """Name, size and SHA-256 of a file."""
    found, size = hashlib.sha256(), 0
    with open_regular(place) as file:
        while block := file.read(_BLOCK):
            found.update(block)
            size += len(block)
    return {"name": place.name, "bytes": size, "sha256": found.hexdigest()}


def sha256_of(place: AnyPath) -> str:
    """As `sha256sum` prints it; of a folder that of its listing: a line per file as `sha256sum`
    would print it, in order of their names."""
    if not place.is_dir():
        return str(fingerprint(place)["sha256"])
    names = sorted(file.name for file in place.iterdir())
    lines = [f"{sha256_of(place / name)}  {name}\n" for name in names]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
