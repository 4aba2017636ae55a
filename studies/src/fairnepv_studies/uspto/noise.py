"""What is wrong with one simulated record in twenty, in the ways of real files.

Each kind is a function from a sound record to an odd one. What the record should be read as is
known here, since it was sound before: `Record.text` stays what cleaning should give back.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image

from fairnepv_studies.uspto.applications import Case

SHARE = 0.05
LATER, STALE = 20250301, 20230101  # transactions of records that come a second time


@dataclass(frozen=True)
class Record:
    """A case file with its images, and what a reader should make of it."""

    case: Case
    images: list[tuple[str, bytes]]  # name and content
    original: str | None  # the description as it stands in the file
    text: str | None  # the same, cleaned
    kind: str = ""  # of the noise
    image_state: str = ""  # "no image", "several images", "unreadable image", or nothing wrong
    malformed: bool = False
    again: Case | None = None  # in a later file
    again_original: str | None = None
    again_text: str | None = None

    def saying(self, original: str, text: str | None = None) -> Record:
        """With another description."""
        case = replace(self.case, statements=_described(self.case, [original]))
        text = original if text is None else text
        return replace(self, case=case, original=original, text=text)

    def showing(self, state: str, *images: tuple[str, bytes]) -> Record:
        return replace(self, images=list(images), image_state=state)


Lot = np.random.Generator
Other = Callable[[], Record]  # an earlier record, as it was before any noise


def disturb(record: Record, kind: str, rng: Lot, other: Other) -> Record:
    return replace(KINDS[kind](record, rng, other), kind=kind)


def _described(case: Case, texts: list[str]) -> list[tuple[str, list[str]]]:
    others = [pair for pair in case.statements if not pair[0].startswith("DM")]
    return [*others, ("DM0000", texts)]


def _no_description(record: Record, rng: Lot, other: Other) -> Record:
    statements = [pair for pair in record.case.statements if not pair[0].startswith("DM")]
    return replace(
        record, case=replace(record.case, statements=statements), original=None, text=None
    )


def _only_other_statements(record: Record, rng: Lot, other: Other) -> Record:
    statements = [("D10000", [record.text or ""]), ("PM0001", ["A PSEUDO MARK"])]
    return replace(
        record, case=replace(record.case, statements=statements), original=None, text=None
    )


def _too_short(record: Record, rng: Lot, other: Other) -> Record:
    return record.saying(f"{' '.join((record.text or '').split()[:12])}.")


def _too_long(record: Record, rng: Lot, other: Other) -> Record:
    return record.saying(" ".join([record.text or ""] * 3))


def _doubled_lead_in(record: Record, rng: Lot, other: Other) -> Record:
    lead_in = "The mark consists of "
    text = lead_in + (record.text or "").replace(lead_in, "")
    return record.saying(text.replace(lead_in, f"{lead_in}The design consists of ", 1), text)


def _doubled_stop(record: Record, rng: Lot, other: Other) -> Record:
    return record.saying(f"{record.text}.", record.text)


def _lower_case(record: Record, rng: Lot, other: Other) -> Record:
    return record.saying((record.text or "").lower())


def _odd_characters(record: Record, rng: Lot, other: Other) -> Record:
    """Curly quotes, a zero-width space, and white space of every kind between words."""
    spaces = (" ", "  ", "\n", "\t", "\u00a0", "\r\n")
    words = (record.text or "").split(" ")
    odd = "".join(word + spaces[int(rng.integers(len(spaces)))] for word in words[:-1]) + words[-1]
    for quote in "“”":
        odd = odd.replace('"', quote, 1)
    return record.saying(odd.replace("mark", "ma\u200brk", 1), record.text)


def _entities(record: Record, rng: Lot, other: Other) -> Record:
    """An ampersand and angle brackets, which are written as references."""
    text = f"{record.text} Shown <as> filed & amended."
    return replace(record.saying(text), case=replace(record.saying(text).case, mark="B & <G>"))


def _design_codes(record: Record, rng: Lot, other: Other) -> Record:
    return record.saying(f"{record.text} Design search codes: 26.01.02, 05.03.08", record.text)


def _in_pieces(record: Record, rng: Lot, other: Other) -> Record:
    words = (record.text or "").split(" ")
    cut = int(rng.integers(5, len(words) - 5))
    texts = [" ".join(words[:cut]), " ".join(words[cut:])]
    return replace(record, case=replace(record.case, statements=_described(record.case, texts)))


def _odd_drawing_code(record: Record, rng: Lot, other: Other) -> Record:
    codes = ("3T19", "5", "3000", None, "0")
    return replace(
        record, case=replace(record.case, drawing_code=codes[int(rng.integers(len(codes)))])
    )


def _no_serial(record: Record, rng: Lot, other: Other) -> Record:
    return replace(record, case=replace(record.case, serial="PENDING"), malformed=True)


def _no_image(record: Record, rng: Lot, other: Other) -> Record:
    return record.showing("no image")


def _truncated_image(record: Record, rng: Lot, other: Other) -> Record:
    name, content = record.images[0]
    return record.showing("unreadable image", (name, content[: len(content) // 2]))


def _tiny_image(record: Record, rng: Lot, other: Other) -> Record:
    return record.showing("unreadable image", (record.images[0][0], claiming(1, 1)))


def _enormous_image(record: Record, rng: Lot, other: Other) -> Record:
    return record.showing("unreadable image", (record.images[0][0], claiming(50_000, 50_000)))


def claiming(width: int, height: int) -> bytes:
    """A PNG of one pixel whose header claims this size."""
    buffer = io.BytesIO()
    Image.new("L", (1, 1)).save(buffer, "PNG")
    content = buffer.getvalue()
    header = b"IHDR" + struct.pack(">II", width, height) + content[24:29]
    return content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:]


def _two_images(record: Record, rng: Lot, other: Other) -> Record:
    name, content = record.images[0]
    return record.showing("several images", (name, content), (f"more/{name}", content))


def _duplicate_image(record: Record, rng: Lot, other: Other) -> Record:
    return replace(record, images=[(record.images[0][0], other().images[0][1])])


def _duplicate_text(record: Record, rng: Lot, other: Other) -> Record:
    text = other().text
    assert text is not None
    return record.saying(text)


def _amended(record: Record, rng: Lot, other: Other) -> Record:
    """A later transaction says it better."""
    amended = replace(record.case, transaction_date=LATER)
    old = record.saying(f"{record.text} As originally filed.")
    return replace(old, again=amended, again_original=record.original, again_text=record.text)


def _stale(record: Record, rng: Lot, other: Other) -> Record:
    """An earlier transaction comes in a later file."""
    stale = replace(record.case, transaction_date=STALE, mark="STALE")
    return replace(record, again=stale, again_original=record.original, again_text=record.text)


KINDS: dict[str, Callable[[Record, Lot, Other], Record]] = {
    "no description": _no_description,
    "only other statements": _only_other_statements,
    "too short": _too_short,
    "too long": _too_long,
    "doubled lead-in": _doubled_lead_in,
    "doubled full stop": _doubled_stop,
    "lower case": _lower_case,
    "odd characters": _odd_characters,
    "entities": _entities,
    "trailing design codes": _design_codes,
    "text in pieces": _in_pieces,
    "odd drawing code": _odd_drawing_code,
    "no serial number": _no_serial,
    "no image": _no_image,
    "truncated image": _truncated_image,
    "1 x 1 image": _tiny_image,
    "50,000 x 50,000 image": _enormous_image,
    "two images": _two_images,
    "duplicate image": _duplicate_image,
    "duplicate text": _duplicate_text,
    "amended later": _amended,
    "stale repeat": _stale,
}
