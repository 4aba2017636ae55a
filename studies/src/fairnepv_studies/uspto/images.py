"""Logo images by serial number."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv_studies.pictures import RULE
from fairnepv_studies.stores import Pictures, open_pictures

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
    serials: NDArray[np.int64]  # ascending
    places: NDArray[np.int64]  # of their pictures

    @property
    def about(self) -> dict[str, Any]:
        return self.pictures.about

    def places_of(self, serial: str) -> list[int]:
        first, last = np.searchsorted(self.serials, [int(serial), int(serial) + 1])
        found: list[int] = self.places[first:last].tolist()
        return found

    def of(self, serial: str) -> bytes | str:
        return self.pictures.fetch(self.places_of(serial)[0])


@contextlib.contextmanager
def open_images(text: str) -> Iterator[Images]:
    with open_pictures(text, _COLUMNS) as pictures:
        serials = np.fromiter(map(_serial, pictures.ids), np.int64, len(pictures.ids))
        places = np.flatnonzero(serials >= 0)
        places = places[np.argsort(serials[places], kind="stable")]
        yield Images(pictures, serials[places], places)


def source_by_names(pictures: Pictures) -> dict[str, Any]:
    """What simulated pictures are known by as a source: the bytes of their files depend on who
    compressed them, and their pixels are in the checksum of the corpus."""
    names = sorted(pictures.label(place) for place in range(len(pictures.ids)))
    listing = "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")
    return {
        "name": pictures.about["name"],
        "images": len(names),
        "names_sha256": hashlib.sha256(listing).hexdigest(),
    }


def _serial(id: str) -> int:
    """-1 where it is none. Some archives have backslashes, and tables may hold 87703889.0."""
    stem = id.replace("\\", "/").rpartition("/")[2].removesuffix(".0")
    return int(stem) if _SERIAL.fullmatch(stem) else -1
