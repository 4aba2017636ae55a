"""What a file is known by, whoever holds it."""

from __future__ import annotations

import hashlib
from typing import Any

from fairnepv.io.places import AnyPath, open_regular


def fingerprint(path: AnyPath) -> dict[str, Any]:
    """Name, size and SHA-256 of a file."""
    with open_regular(path) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return {"name": path.name, "bytes": file.tell(), "sha256": sha256}


def sha256_of(path: AnyPath) -> str:
    """The SHA-256 of a file; of a folder that of its listing: a line per file as `sha256sum` would
    print it, in order of their names."""
    if not path.is_dir():
        return str(fingerprint(path)["sha256"])
    names = sorted(file.name for file in path.iterdir())
    lines = [f"{sha256_of(path / name)}  {name}\n" for name in names]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
