"""The files of a publication: those that are listed, with their checksums, and no others."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fairnepv.io.documents import parse_document
from fairnepv.io.places import open_regular, sha256_of
from fairnepv_studies.files import LARGEST
from fairnepv_studies.protocol.differences import Difference
from fairnepv_studies.protocol.publication import COPIED, ITEMS, MANIFEST, RESULTS, SUMS

_LARGEST_SUMS = 1 << 24  # bytes of the list of checksums: a hundred for every file


NEEDED = (MANIFEST, RESULTS, ITEMS, "split.json", *COPIED)


def check_sums(folder: Path, needed: Collection[str] = NEEDED) -> str:
    """Every file that is listed, and no other; none of them a link to what is not published."""
    listed = _listed(folder)
    present = set()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise Difference(f"{name} is no file of its own: a publication holds no links")
        if path.is_file() and name != SUMS:
            present.add(name)
    for name in sorted({*listed, *present}):
        if name not in present:
            raise Difference(f"{name} is missing: {SUMS} lists it")
        if name not in listed:
            raise Difference(f"{name} is not listed in {SUMS}")
        if sha256_of(folder / name) != listed[name]:
            raise Difference(f"{name} does not have the checksum in {SUMS}: it was changed")
    for name in needed:
        if name not in listed:
            raise Difference(f"{name} is missing")
    return f"checksums: {len(listed)} files"


def _listed(folder: Path) -> dict[str, str]:
    listed: dict[str, str] = {}
    for line in bounded(folder, SUMS, _LARGEST_SUMS).decode("utf-8").splitlines():
        found = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if not found:
            raise Difference(f"{SUMS} has a line that is no checksum: {line[:80]!r}")
        if found[2] in listed:
            raise Difference(f"{SUMS} lists {found[2][:80]} twice")
        listed[found[2]] = found[1]
    return listed


def refuse_more(published: Path, manifest: Any, checked: Collection[str] = ()) -> None:
    """Files that nobody checks: readers may take them for checked ones."""
    proofs = (entry["proof"] for entry in manifest["bounds"])
    known = {*NEEDED, *proofs}
    for name in _listed(published):
        if name not in known and name not in checked:
            raise Difference(f"{name[:80]} is not expected: nothing vouches for it")


def read_published(folder: Path, name: str) -> Any:
    """The JSON in a file."""
    try:
        return parse_document(bounded(folder, name))
    except ValueError as error:
        raise Difference(f"{name} cannot be read ({error})") from error


def bounded(folder: Path, name: str, most: int = LARGEST) -> bytes:
    """The bytes of a file that has at most so many, whatever its size is said to be."""
    with open_regular(folder / name) as file:
        content: bytes = file.read(most + 1)
    if len(content) > most:
        raise Difference(f"{name} cannot be read (it has more than {most:,} bytes)")
    return content


def holds(folder: Path, name: str, content: bytes) -> bool:
    """Whether a file has these bytes; no more of it is read."""
    with open_regular(folder / name) as file:
        return bool(file.read(len(content) + 1) == content)
