"""A simulated mark as a picture, without fonts: its pixels are the same on all machines. The bytes
of its PNG are not, since compressors differ."""

from __future__ import annotations

import functools
import io
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fairnepv_studies.uspto.marks import ARRANGEMENTS, COLOURS, Mark
from fairnepv_studies.uspto.motifs import Motif, Point, bar, on_circle, oval, regular, strokes
from fairnepv_studies.uspto.raster import Pixel, draw_line, fill_polygon

Colour = tuple[int, int, int]
_WHITE, _DARK_GRAY = (255, 255, 255), (90, 90, 90)
_GROUND, _OWN, _EXTRA, _CARRIER, _WORD, _ACCENT = range(6)  # places in the palette
# where things stand on a canvas from -1 to 1: centre and radius of the motif, box of the word
_LAYOUTS: dict[str | None, tuple[float, float, float, tuple[float, float, float, float]]] = {
    None: (0.0, 0.0, 0.58, (0, 0, 0, 0)),
    "below": (0.0, -0.2, 0.46, (-0.8, 0.55, 0.8, 0.85)),
    "above": (0.0, 0.2, 0.46, (-0.8, -0.85, 0.8, -0.55)),
    "to the left of": (0.45, 0.0, 0.4, (-0.88, -0.16, -0.06, 0.16)),
    "to the right of": (-0.45, 0.0, 0.4, (0.06, -0.16, 0.88, 0.16)),
}
_SMALL = 0.13
_CARRIER_SHAPES = {
    "circle": oval(0, 0, 1.3),
    "oval": oval(0, 0, 1.4, 1.15),
    "square": bar(-1.15, -1.15, 1.15, 1.15),
    "shield": [
        (-1.15, -1.2),
        (1.15, -1.2),
        (1.15, 0.3),
        (0.7, 1.0),
        (0, 1.4),
        (-0.7, 1.0),
        (-1.15, 0.3),
    ],
    "hexagon": regular(6, 1.38),
    "banner": [(-1.4, -1.1), (1.4, -1.1), (1.15, 0), (1.4, 1.1), (-1.4, 1.1), (-1.15, 0)],
}


def draw_picture(mark: Mark) -> bytes:
    """The mark as PNG."""
    canvas = Canvas(mark)
    x, y, r, box = _LAYOUTS[mark.place if mark.word else None]
    if mark.carrier:
        canvas.polygon(_moved(_CARRIER_SHAPES[mark.carrier], x, y, r), _CARRIER)
    for shift in _row(mark.count):
        width = r if mark.count == 1 else 0.95 * r / mark.count
        canvas.motif(mark.motif, x + shift * r, y, width, mark.turn, _OWN, mark.carrier is not None)
    if mark.extra:
        for px, py in _around(mark.arrangement, x, y, r):
            canvas.motif(mark.extra, px, py, _SMALL, 0, _EXTRA, False)
    if mark.word:
        canvas.word(mark.word, box)
    if mark.border:
        canvas.border(mark.border)
    return indexed_png(canvas.pixels, _palette(mark))


def indexed_png(pixels: NDArray[np.uint8], palette: list[Colour]) -> bytes:
    """Pixels (height, width) are places in the palette."""
    picture = Image.frombytes("P", pixels.shape[::-1], pixels.tobytes())
    picture.putpalette([value for colour in palette for value in colour])
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def _row(count: int) -> list[float]:
    return [(2 * i + 1 - count) / count for i in range(count)]


def _around(arrangement: str, x: float, y: float, r: float) -> list[Point]:
    """Centres of the smaller motifs, kept on the canvas."""
    far = r + 1.6 * _SMALL
    places = {
        "on each side of": [(x - far, y), (x + far, y)],
        "above": [(x, y - far)],
        "in the four corners around": [
            (x + sx * far, y + sy * far) for sx in (-0.8, 0.8) for sy in (-0.8, 0.8)
        ],
        "in a row beneath": [(x + shift, y + far) for shift in (-0.32, 0.0, 0.32)],
    }[arrangement]
    assert len(places) == ARRANGEMENTS[arrangement]
    edge = 0.95 - _SMALL
    return [(min(max(px, -edge), edge), min(max(py, -edge), edge)) for px, py in places]


def _moved(points: list[Point], x: float, y: float, r: float, turn: int = 0) -> list[Point]:
    c, s = on_circle(turn)
    return [(x + r * (c * px - s * py), y + r * (s * px + c * py)) for px, py in points]


def _palette(mark: Mark) -> list[Colour]:
    """Colours that are claimed are those that the description names. Where none is, what stands
    behind the motif is lighter, and reversed drawings are light on black."""
    own, extra, carrier, word = (COLOURS[name] for name in mark.colours)
    ground = COLOURS["black"] if mark.on_black else _WHITE
    if mark.claimed:
        return [ground, own, extra, carrier, word, ground]
    if mark.on_black:
        own, extra, word = (_lighter(ink, 4) for ink in (own, extra, word))
        return [ground, own, extra, _DARK_GRAY, word, _WHITE]
    return [ground, own, extra, _lighter(carrier, 3), word, _lighter(own, 2)]


def _lighter(colour: Colour, by: int) -> Colour:
    r, g, b = (255 - (255 - value) // by for value in colour)
    return r, g, b


class Canvas:
    """Pixels as places in the palette, drawn in the style of a mark."""

    def __init__(self, mark: Mark) -> None:
        self._size, self._style, self._stroke = mark.size, mark.drawing, mark.stroke
        self.pixels = np.full((mark.size, mark.size), _GROUND, np.uint8)

    def motif(
        self, motif: Motif, x: float, y: float, r: float, turn: int, ink: int, on_carrier: bool
    ) -> None:
        ground = _CARRIER if on_carrier and self._style in ("solid", "reversed") else _GROUND
        inks = {"own": ink, "accent": _ACCENT, "ground": ground}
        for points, kind in motif.shapes():
            moved = _moved(points, x, y, r, turn)
            if self._style in ("outlined", "heavy"):
                self._outline(moved, ink, self._stroke * (2 if self._style == "heavy" else 1))
            elif kind == "own" and self._style in ("hatched", "dotted"):
                self._patterned(moved, ink)
            else:
                self.polygon(moved, inks[kind])

    def polygon(self, points: list[Point], ink: int) -> None:
        """Filled; only an outline where the style has nothing filled."""
        if self._style in ("outlined", "heavy"):
            self._outline(points, ink, self._stroke)
        else:
            self._fill(points, ink)

    def word(self, word: str, box: tuple[float, float, float, float]) -> None:
        x0, y0, x1, y1 = box
        step = min((x1 - x0) / (5 * len(word) - 1), (y1 - y0) / 6)
        left = (x0 + x1 - step * (5 * len(word) - 1)) / 2
        top = (y0 + y1 - 6 * step) / 2
        for i, letter in enumerate(word):
            for line in strokes(letter):
                points = [(left + step * (5 * i + px), top + step * py) for px, py in line]
                draw_line(self.pixels, self._places(points), self._stroke + 1, _WORD)

    def border(self, kind: str) -> None:
        edges = {"double line": (0.97, 0.9)}.get(kind, (0.97,))
        for edge in edges:
            if kind == "dotted line":
                for place in _along(edge, 40):
                    self._fill(oval(*place, 0.02, corners=8), _CARRIER)
            elif kind == "scalloped line":
                for place in _along(edge - 0.03, 40):
                    self._outline(oval(*place, 0.06, corners=12), _CARRIER, 1)
            else:
                self._outline(bar(-edge, -edge, edge, edge), _CARRIER, self._stroke)

    def _outline(self, points: list[Point], ink: int, width: int) -> None:
        draw_line(self.pixels, self._places([*points, points[0]]), width, ink)

    def _patterned(self, points: list[Point], ink: int) -> None:
        fill_polygon(self.pixels, self._places(points), ink, self._pattern)
        self._outline(points, ink, self._stroke)

    @functools.cached_property
    def _pattern(self) -> NDArray[np.bool_]:
        """Stripes or dots."""
        x, y = np.arange(self._size), np.arange(self._size)[:, None]
        step = 3 * self._stroke
        if self._style == "hatched":
            return np.asarray((x + y) % step < self._stroke)
        return np.asarray((x % step < self._stroke) & (y % step < self._stroke))

    def _fill(self, points: list[Point], ink: int) -> None:
        fill_polygon(self.pixels, self._places(points), ink)

    def _places(self, points: list[Point]) -> list[Pixel]:
        half = self._size / 2
        return [(math.floor(half + half * x), math.floor(half + half * y)) for x, y in points]


def _along(edge: float, n: int) -> list[Point]:
    """n places along a square."""
    steps = [-edge + 2 * edge * 4 * i / n for i in range(n // 4)]
    sides = [[(t, -edge), (edge, t), (-t, edge), (-edge, -t)] for t in steps]
    return [place for side in sides for place in side]
