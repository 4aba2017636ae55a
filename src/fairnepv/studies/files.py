"""Files of a corpus: written whole or not at all, and known by their content."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_BLOCK = 1 << 20


def write_whole(file: Path, content: bytes) -> None:
    """Whole or not at all. The name beside it is always the same, so that a run that is started
    again after a kill leaves nothing behind."""
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(content)
    with contextlib.suppress(FileNotFoundError):  # another run wrote the same, and was faster
        os.replace(part, file)


def csv_content(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Names of files may hold what UTF-8 does not know."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def fingerprint(path: Path) -> dict[str, Any]:
    """Name, size and SHA-256 of a file."""
    found, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
            size += len(block)
    return {"name": path.name, "bytes": size, "sha256": found.hexdigest()}
