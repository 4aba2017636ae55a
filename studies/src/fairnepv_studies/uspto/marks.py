"""What a simulated mark consists of, drawn by lot.

A few motifs are very common and many are rare, as in life: the chance of a motif is inverse to its
place in the list. How a mark is drawn and how it is worded are independent lots, so that pictures
that look alike are described differently and the other way round.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv_studies.uspto.motifs import Motif, motifs

DRAWINGS = ("solid", "outlined", "heavy", "hatched", "dotted", "reversed")
WORDINGS = ("plain", "composite", "listed", "directed", "colours first", "fanciful")
CARRIERS = ("circle", "oval", "square", "shield", "hexagon", "banner")
BORDERS = ("single line", "double line", "dotted line", "scalloped line")
PLACES = ("below", "above", "to the left of", "to the right of")
# Where smaller motifs would stand in the way of the word.
_TAKEN = {
    "on each side of": ("to the left of", "to the right of"),
    "above": ("above",),
    "in a row beneath": ("below",),
}
ARRANGEMENTS = {
    "on each side of": 2,
    "above": 1,
    "in the four corners around": 4,
    "in a row beneath": 3,
}
COLOURS = {
    "black": (20, 20, 20), "red": (200, 30, 40), "blue": (30, 70, 180), "green": (30, 130, 60),
    "gold": (205, 160, 40), "orange": (235, 125, 30), "purple": (110, 50, 150),
    "gray": (130, 130, 130), "teal": (20, 140, 140), "brown": (120, 75, 40),
    "pink": (235, 120, 170), "yellow": (245, 215, 60), "navy": (15, 30, 90),
    "maroon": (110, 15, 40),
}  # fmt: skip
_DARK = ("black", "navy", "maroon", "brown", "purple")  # not seen on a black ground
_SYLLABLES = (
    "VE", "LO", "TRA", "MI", "KA", "NO", "RU", "SE", "LI", "DO", "PA", "ZU", "BRI", "FEN", "GOR",
    "HAL", "JU", "WEX", "QUI", "TY", "CLA", "SOR", "NIM", "DRE", "BEL", "VOR",
)  # fmt: skip
_GRAYS = ("black", "gray", "black", "gray")


@dataclass(frozen=True)
class Mark:
    """Everything that is drawn, and both styles."""

    motif: Motif
    count: int  # of the motif, in a row
    extra: Motif | None  # a smaller one
    arrangement: str  # of the smaller ones; key of ARRANGEMENTS
    carrier: str | None  # behind the motif
    border: str | None  # around everything
    word: str | None
    place: str  # of the word, seen from the motif
    colours: tuple[str, ...]  # of motif, smaller motif, carrier and border, word
    claimed: bool  # whether colour is a feature of the mark
    drawing: str
    wording: str
    size: int  # pixels of a side
    turn: int  # degrees
    stroke: int  # pixels

    @property
    def on_black(self) -> bool:
        return self.drawing == "reversed"

    @property
    def codes(self) -> list[str]:
        found = [self.motif.code, *([self.extra.code] if self.extra else [])]
        return list(dict.fromkeys(found))

    @property
    def drawing_code(self) -> str:
        return "3" if self.word else "2"


def lot(seed: int, item: int, purpose: int) -> np.random.Generator:
    """A stream of its own for every item and purpose, so that items can be made in any order."""
    return np.random.default_rng([seed, item, purpose])


def draw_mark(seed: int, item: int) -> Mark:
    rng = lot(seed, item, 0)
    claimed = bool(rng.random() < 0.55)
    drawing, arrangement = _one(rng, DRAWINGS), _one(rng, tuple(ARRANGEMENTS))
    free = [place for place in PLACES if place not in _TAKEN.get(arrangement, ())]
    return Mark(
        motif=_skewed(rng, motifs()),
        count=int(_skewed(rng, (1, 1, 2, 3))),
        extra=_skewed(rng, motifs()) if rng.random() < 0.55 else None,
        arrangement=arrangement,
        carrier=_skewed(rng, CARRIERS) if rng.random() < 0.45 else None,
        border=_skewed(rng, BORDERS) if rng.random() < 0.3 else None,
        word=_word(rng) if rng.random() < 0.7 else None,
        place=_one(rng, free),
        colours=_different(rng, drawing) if claimed else tuple(_one(rng, _GRAYS) for _ in range(4)),
        claimed=claimed,
        drawing=drawing,
        wording=_one(rng, WORDINGS),
        size=int(_one(rng, (160, 176, 192, 224))),
        turn=int(_one(rng, (0, 0, 0, -15, 15, 30, 180))),
        stroke=int(rng.integers(2, 5)),
    )


def _word(rng: np.random.Generator) -> str:
    return "".join(_one(rng, _SYLLABLES) for _ in range(int(rng.integers(2, 4))))


def _different(rng: np.random.Generator, drawing: str) -> tuple[str, ...]:
    """Four colours, all of which can be seen on their ground and on each other."""
    names = [name for name in COLOURS if drawing != "reversed" or name not in _DARK]
    chosen: list[str] = []
    for _ in range(4):
        chosen.append(_skewed(rng, [name for name in names if name not in chosen]))
    return tuple(chosen)


def _one(rng: np.random.Generator, of: Sequence[Any]) -> Any:
    return of[int(rng.integers(len(of)))]


def _skewed(rng: np.random.Generator, of: Sequence[Any]) -> Any:
    """Zipf: the one in place r with a chance of 1 / r, up to scale."""
    return of[int(np.searchsorted(_shares(len(of)), rng.random(), side="right"))]


@functools.cache
def _shares(n: int) -> NDArray[np.float64]:
    sums = np.cumsum(1.0 / np.arange(1, n + 1))
    return np.asarray(sums[:-1] / sums[-1])
