"""What simulated marks show: motifs as polygons around the origin, and letters as strokes.

A motif is a list of shapes; a shape is its corners and its ink: the motif's own, the accent, or the
ground, which cuts out of what lies below. y grows downwards.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Literal, cast

Point = tuple[float, float]
Ink = Literal["own", "accent", "ground"]
Shape = tuple[list[Point], Ink]

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Motif:
    name: str
    plural: str
    code: str  # six digits, in the manner of the register's design codes
    shapes: Callable[[], list[Shape]]


def on_circle(angle: float, rx: float = 1.0, ry: float | None = None) -> Point:
    """At an angle in degrees; rounded, since machines differ in the last digit of a sine."""
    turn = math.radians(angle)
    return round(rx * math.cos(turn), 9), round((rx if ry is None else ry) * math.sin(turn), 9)


def oval(x: float, y: float, rx: float, ry: float | None = None, corners: int = 40) -> list[Point]:
    points = (on_circle(360 * i / corners, rx, ry) for i in range(corners))
    return [(x + px, y + py) for px, py in points]


def regular(n: int, r: float = 1.0, turn: float = -90.0) -> list[Point]:
    return [on_circle(turn + 360 * i / n, r) for i in range(n)]


def star(n: int, inner: float = 0.45) -> list[Point]:
    radii = (1.0, inner)
    return [on_circle(-90 + 180 * i / n, radii[i % 2]) for i in range(2 * n)]


def bar(x0: float, y0: float, x1: float, y1: float) -> list[Point]:
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def leaf(angle: float, length: float = 1.0, width: float = 0.3, start: float = 0.0) -> list[Point]:
    """A pointed oval from the origin outwards."""
    (dx, dy), half = on_circle(angle), length - start
    steps = [i / 8 for i in range(9)]
    side = [(start + half * t, width * round(math.sin(math.pi * t), 9)) for t in steps]
    both = side + [(along, -across) for along, across in side[::-1]]
    return [(along * dx - across * dy, along * dy + across * dx) for along, across in both]


def _star(n: int) -> list[Shape]:
    return [(star(n), "own")]


def _polygon(n: int) -> list[Shape]:
    return [(regular(n), "own")]


def _sun(n: int) -> list[Shape]:
    rays: list[Shape] = []
    for i in range(n):
        a = 360 * i / n - 90
        rays.append(([on_circle(a - 7, 0.65), on_circle(a, 1.0), on_circle(a + 7, 0.65)], "own"))
    return [*rays, (oval(0, 0, 0.52), "accent")]


def _flower(n: int) -> list[Shape]:
    petals: list[Shape] = [(leaf(360 * i / n - 90, 1.0, 0.26), "own") for i in range(n)]
    return [*petals, (oval(0, 0, 0.22), "accent")]


def _gear(n: int) -> list[Shape]:
    corners: list[Point] = []
    step = 360 / n
    for i in range(n):
        for share, r in ((0.0, 0.75), (0.15, 1.0), (0.4, 1.0), (0.55, 0.75)):
            corners.append(on_circle(step * (i + share), r))
    return [(corners, "own"), (oval(0, 0, 0.32), "ground")]


def _burst(n: int) -> list[Shape]:
    return [(star(n, 0.78), "own"), (oval(0, 0, 0.5), "accent")]


def _rings(n: int) -> list[Shape]:
    inks: tuple[Ink, Ink] = ("own", "ground")
    return [(oval(0, 0, 1 - i / (2 * n)), inks[i % 2]) for i in range(2 * n)]


def _stripes(n: int) -> list[Shape]:
    high = 2 / (2 * n - 1)
    return [(bar(-1, -1 + 2 * i * high, 1, -1 + (2 * i + 1) * high), "own") for i in range(n)]


def _dots(n: int) -> list[Shape]:
    places = [-1 + (2 * i + 1) / n for i in range(n)]
    return [(oval(x, y, 0.7 / n, corners=16), "own") for x in places for y in places]


def _waves(n: int) -> list[Shape]:
    shapes: list[Shape] = []
    xs = [-1 + i / 10 for i in range(21)]
    for i in range(n):
        y = (2 * i + 1 - n) * 0.35
        crest = [(x, y + 0.14 * round(math.sin(2 * math.pi * x), 9)) for x in xs]
        shapes.append((crest + [(x, py + 0.2) for x, py in crest[::-1]], "own"))
    return shapes


def _clover(n: int) -> list[Shape]:
    leaves: list[Shape] = []
    for i in range(n):
        x, y = on_circle(360 * i / n - 90, 0.5)
        leaves.append((oval(x, y - 0.1, 0.42), "own"))
    return [*leaves, (bar(-0.06, 0.1, 0.06, 1), "accent")]


def _tower(n: int) -> list[Shape]:
    teeth: list[Shape] = [
        (bar(-0.6 + 1.2 * i / n, -1, -0.6 + 1.2 * (i + 0.6) / n, -0.7), "own") for i in range(n)
    ]
    return [*teeth, (bar(-0.6, -0.72, 0.54, 1), "own"), (bar(-0.2, 0.4, 0.15, 1), "ground")]


def _pine(n: int) -> list[Shape]:
    tiers: list[Shape] = []
    for i in range(n):
        top, wide = -1 + 1.2 * i / n, 0.4 + 0.5 * i / n
        tiers.append(([(0, top), (wide, top + 0.7), (-wide, top + 0.7)], "own"))
    return [*tiers, (bar(-0.12, 0.6, 0.12, 1), "accent")]


_FORMS: dict[str, Callable[[list[list[float]]], list[Point]]] = {
    "bar": lambda q: bar(*q[0], *q[1]),
    "oval": lambda q: oval(q[0][0], q[0][1], q[1][0], q[1][1]),
    "leaf": lambda q: leaf(*(value for (value,) in q)),
    "poly": lambda q: [(x, y) for x, y in q],
}


def _single() -> list[Motif]:
    """Motifs that do not come in numbers, from data/motifs.txt."""
    text = resources.files("fairnepv_studies.uspto").joinpath("data/motifs.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [_motif(*(part.strip() for part in line.split("|"))) for line in lines]


def _motif(name: str, plural: str, code: str, drawn: str) -> Motif:
    shapes = [_shape(*part.split()) for part in drawn.split(";")]
    return Motif(name, plural, code, lambda: shapes)


def _shape(ink: str, form: str, *numbers: str) -> Shape:
    values = [[float(value) for value in group.split(",")] for group in numbers]
    return _FORMS[form](values), cast(Ink, ink)


# With {n} for a number: name, plural, code, shapes, and the numbers from the most common on.
_FAMILIES: list[tuple[str, str, str, Callable[[int], list[Shape]], tuple[int, ...]]] = [
    ("{n}-pointed star", "{n}-pointed stars", "01010", _star, (5, 6, 4, 7, 8)),
    ("sun with {n} rays", "suns with {n} rays", "01050", _sun, (8, 6, 10, 7)),
    ("flower with {n} petals", "flowers with {n} petals", "05050", _flower, (5, 6, 4, 8, 7)),
    ("gear with {n} teeth", "gears with {n} teeth", "15070", _gear, (8, 6, 10, 9)),
    ("{n}-sided polygon", "{n}-sided polygons", "26150", _polygon, (6, 8, 5, 7)),
    ("set of {n} wavy lines", "sets of {n} wavy lines", "26170", _waves, (3, 2, 4)),
    ("set of {n} rings", "sets of {n} rings", "26011", _rings, (3, 2, 4)),
    ("set of {n} bars", "sets of {n} bars", "26110", _stripes, (3, 4, 5, 2)),
    ("tree with {n} tiers", "trees with {n} tiers", "05010", _pine, (3, 2, 4)),
    ("clover with {n} leaves", "clovers with {n} leaves", "05030", _clover, (4, 3)),
    ("starburst with {n} points", "starbursts with {n} points", "26190", _burst, (10, 9, 8)),
    ("grid of {n} rows of dots", "grids of {n} rows of dots", "26012", _dots, (3, 4, 5)),
    ("tower with {n} battlements", "towers with {n} battlements", "07010", _tower, (3, 4, 5)),
]


@functools.cache
def motifs() -> tuple[Motif, ...]:
    """All motifs, the most common first: families are threaded in between the single ones."""
    most = max(len(counts) for *_, counts in _FAMILIES)
    families = [
        _of_family(name, plural, code, functools.partial(make, n), n)
        for turn in range(most)
        for name, plural, code, make, counts in _FAMILIES
        for n in counts[turn : turn + 1]
    ]
    pairs = itertools.zip_longest(families, _single())
    return tuple(motif for pair in pairs for motif in pair if motif is not None)


def _of_family(
    name: str, plural: str, code: str, shapes: Callable[[], list[Shape]], n: int
) -> Motif:
    number = NUMBERS[n]
    return Motif(name.format(n=number), plural.format(n=number), f"{code}{n % 10}", shapes)


_STROKES = {
    "A": "06 20 46|14 34", "B": "00 06 36 45 44 33 03|33 42 41 30 00",
    "C": "41 30 10 01 05 16 36 45", "D": "00 06 26 44 42 20 00", "E": "40 00 06 46|03 33",
    "F": "40 00 06|03 33", "G": "41 30 10 01 05 16 36 45 43 23", "H": "00 06|40 46|03 43",
    "I": "10 30|20 26|16 36", "J": "40 45 36 16 05", "K": "00 06|40 03 46", "L": "00 06 46",
    "M": "06 00 23 40 46", "N": "06 00 46 40", "O": "10 30 41 45 36 16 05 01 10",
    "P": "06 00 30 41 42 33 03", "Q": "10 30 41 45 36 16 05 01 10|34 46",
    "R": "06 00 30 41 42 33 03|23 46", "S": "41 30 10 01 02 13 33 44 45 36 16 05",
    "T": "00 40|20 26", "U": "00 05 16 36 45 40", "V": "00 26 40", "W": "00 16 23 36 40",
    "X": "00 46|40 06", "Y": "00 23 40|23 26", "Z": "00 40 06 46",
}  # fmt: skip


@functools.cache
def strokes(letter: str) -> tuple[tuple[Point, ...], ...]:
    """Lines of a capital letter in a box four wide and six high."""
    return tuple(
        tuple((float(point[0]), float(point[1])) for point in line.split())
        for line in _STROKES[letter].split("|")
    )
