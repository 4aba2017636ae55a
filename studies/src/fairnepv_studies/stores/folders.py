"""Pictures in a folder and those below it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.places import open_regular
from fairnepv_studies.stores.base import Pictures, bounded, is_picture, named_pictures


def pictures_in_folder(path: Path) -> Pictures:
    """Described by its listing: names and sizes, in order of name."""
    sizes = dict(sorted(_files(path)))
    names = list(sizes)

    def fetch(place: int) -> bytes | str:
        try:
            with open_regular(path / names[place]) as stream:
                return bounded(stream)
        except (OSError, InputError) as error:
            return f"it cannot be opened ({getattr(error, 'strerror', None) or error})"

    def describe() -> dict[str, Any]:
        listing = "".join(f"{name}\t{size}\n" for name, size in sizes.items())
        content = listing.encode("utf-8", "surrogateescape")
        return {
            "name": path.resolve().name,
            "images": len(sizes),
            "bytes": sum(sizes.values()),
            "listing_sha256": hashlib.sha256(content).hexdigest(),
        }

    return named_pictures(names, fetch, describe)


def _files(path: Path) -> Iterator[tuple[str, int]]:
    """Names of pictures within a folder, with slashes, and sizes; links are not followed to other
    folders, and hidden ones are not looked into."""
    for folder, inner, files in os.walk(path, onerror=_refuse):
        inner[:] = [name for name in inner if not name.startswith(".")]
        beneath = Path(folder).relative_to(path).as_posix()
        for file in files:
            full = os.path.join(folder, file)
            if is_picture(file) and os.path.isfile(full):
                yield (file if beneath == "." else f"{beneath}/{file}"), os.path.getsize(full)


def _refuse(error: OSError) -> None:
    raise InputError(f"--images: {error.filename} cannot be listed ({error.strerror})")
