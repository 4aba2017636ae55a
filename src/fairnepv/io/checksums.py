"""What a file is known by, whoever holds it."""

from __future__ import annotations

import hashlib

from fairnepv.io.places import Place

_BLOCK = 1 << 20


def sha256_of(place: Place) -> str:
    """As `sha256sum` prints it; of a folder that of its listing: a line per file as `sha256sum`
    would print it, in order of their names."""
    found = hashlib.sha256()
    if place.is_dir():
        for name, file in sorted((file.name, file) for file in place.iterdir()):
            found.update(f"{sha256_of(file)}  {name}\n".encode())
        return found.hexdigest()
    with place.open("rb") as stream:
        while block := stream.read(_BLOCK):
            found.update(block)
    return found.hexdigest()
