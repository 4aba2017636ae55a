"""Logo images by serial number."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairnepv.studies.pictures import RULE
from fairnepv.studies.stores import Pictures, open_pictures

RULES = {
    "images": RULE,
    "several images": "a serial number with more than one image is rejected",
    "duplicates": "of items with the same image bytes or the same cleaned text the first stays",
}
_COLUMNS = ("serial_number", "serial", "serial-number", "id")
_SERIAL = re.compile(r"[0-9]{1,8}")  # tables that hold numbers lose their zeros


@dataclass(frozen=True)
class Images:
    pictures: Pictures
    where: dict[int, int]  # the place of every serial number's first
    several: dict[int, list[int]]  # the places, of serial numbers that have more than one

    @property
    def about(self) -> dict[str, Any]:
        return self.pictures.about

    def of(self, serial: str) -> bytes | str:
        return self.pictures.fetch(self.where[int(serial)])

    def labels(self, serial: str) -> list[str]:
        return [self.pictures.label(place) for place in self.several[int(serial)]]


@contextlib.contextmanager
def open_images(text: str) -> Iterator[Images]:
    with open_pictures(text, _COLUMNS) as pictures:
        where: dict[int, int] = {}
        several: dict[int, list[int]] = {}
        for place, id in enumerate(pictures.ids):
            stem = id.rpartition("/")[2]
            if _SERIAL.fullmatch(stem):
                serial = int(stem)
                first = where.setdefault(serial, place)
                if first != place:
                    several.setdefault(serial, [first]).append(place)
        yield Images(pictures, where, several)
