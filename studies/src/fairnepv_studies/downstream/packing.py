"""Items as they travel to the machine that trains: one ZIP that is only stored, not compressed.

    items.jsonl      one line per item: id, part, text, strata
    images/000000    the image of the first of them, and so on

The same items give the same bytes on every machine.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairnepv.errors import InputError
from fairnepv_studies.downstream.items import Item
from fairnepv_studies.files import appearing, damaged_file

PARTS = ("train", "validation", "test", "pretrain")
LIST = "items.jsonl"
MOST_BYTES = 1 << 26  # of one image; the corpus has them no larger
_MOST_LIST = 1 << 30  # bytes of the list
_REMEDY = "prepare the study again"


@dataclass(frozen=True)
class Packed:
    item: Item
    part: str  # one of PARTS
    rare: tuple[str, ...] = ()  # in what it is rare, of `strata.KINDS`


def write_pack(path: Path, packed: Sequence[Packed]) -> None:
    with appearing(path) as part, zipfile.ZipFile(part, "w") as archive:
        lines = [
            json.dumps(
                {"id": p.item.id, "part": p.part, "text": p.item.text, "rare": list(p.rare)},
                ensure_ascii=False,
            )
            for p in packed
        ]
        _add(archive, LIST, "".join(f"{line}\n" for line in lines).encode("utf-8"))
        for number, p in enumerate(packed):
            _add(archive, _image_name(number), p.item.image)


def read_pack(path: Path) -> dict[str, Packed]:
    """Items by id, in their order."""
    try:
        with zipfile.ZipFile(path) as archive:
            lines = _member(archive, LIST, _MOST_LIST).decode("utf-8").splitlines()
            found = [_packed(archive, number, line) for number, line in enumerate(lines)]
            if len(archive.namelist()) != len(lines) + 1:
                raise ValueError("it has members that its list does not know")
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise damaged_file(path, error, _REMEDY) from error
    by_id = {packed.item.id: packed for packed in found}
    if len(by_id) < len(found):
        raise damaged_file(path, "an id is there twice", _REMEDY)
    return by_id


def _packed(archive: zipfile.ZipFile, number: int, line: str) -> Packed:
    said = json.loads(line)
    texts = (said["id"], said["text"], said["part"], *said["rare"])
    if len(said) != 4 or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"line {number + 1} of its list is none of ours")
    if said["part"] not in PARTS:
        raise ValueError(f"line {number + 1} of its list has no part of a study")
    image = _member(archive, _image_name(number), MOST_BYTES)
    return Packed(Item(said["id"], said["text"], image), said["part"], tuple(said["rare"]))


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > most:
        raise ValueError(f"{name} is compressed or too large")
    return archive.read(member)


def _image_name(number: int) -> str:
    return f"images/{number:06}"


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Without anything that depends on the clock or the machine."""
    member = zipfile.ZipInfo(name)
    member.create_system, member.external_attr = 3, 0o644 << 16
    archive.writestr(member, content)
