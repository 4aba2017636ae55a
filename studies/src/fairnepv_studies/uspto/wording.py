"""The description of a simulated mark, in the register's manner: it names every element drawn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairnepv_studies.uspto.marks import ARRANGEMENTS, Mark, lot
from fairnepv_studies.uspto.motifs import NUMBERS

LEAST, MOST = 40, 100  # words that a description should have
_SHOWN = {
    "plain": ("stylized {}", "{} design", "{}"),
    "composite": ("pictorial representation of {}", "graphic rendering of {}", "design of {}"),
    "listed": ("image of {}", "depiction of {}", "drawing of {}"),
    "directed": ("figure of {}", "stylized {}", "shape of {}"),
    "colours first": ("colored {}", "{}", "stylized {}"),
    "fanciful": ("fanciful {}", "whimsical {}", "abstract {}", "artistic interpretation of {}"),
}
_LETTERING = ("stylized wording", "word", "term", "literal element", "stylized lettering")
_MORE = {
    "plain": (
        "The elements appear together as one design.",
        "The background of the mark is plain and no other matter appears in the drawing.",
        "The mark is shown as it appears on the goods, their packaging and related materials.",
    ),
    "composite": (
        "The foregoing elements in combination create a single unitary commercial impression.",
        "Said composite is displayed against a plain field, which is not a part of the mark.",
        "Each of said elements is integral to the composite as depicted in the drawing.",
    ),
    "listed": (
        "No element other than those listed here is a part of the mark as shown.",
        "The elements are listed in the order of their prominence within the drawing.",
        "The area outside of the listed elements is background and is left empty.",
    ),
    "directed": (
        "All directions are given as seen by a viewer who faces the mark.",
        "The space between the elements is empty and serves to separate them from each other.",
        "The elements are aligned with one another along the axis of the drawing.",
    ),
    "colours first": (
        "The colors appear in flat areas without shading or gradation of any kind.",
        "Any white areas in the drawing represent background and are not a part of the mark.",
        "The tones that appear in the drawing are uniform across each of the elements.",
    ),
    "fanciful": (
        "The overall arrangement is whimsical and evokes a hand drawn emblem or badge.",
        "The impression is one of playful balance between the parts of the emblem.",
        "The emblem as a whole suggests movement, warmth and a friendly character.",
    ),
}
_GROUND = re.compile("background|field|white|empty")  # sentences about what is not drawn


@dataclass(frozen=True)
class Elements:
    """Phrases for what is drawn; None where it is not."""

    main: str
    extra: str | None
    carrier: str | None
    word: str | None
    border: str | None
    ground: str | None

    def all(self) -> list[str]:
        found = (self.main, self.extra, self.carrier, self.word, self.border, self.ground)
        return [phrase for phrase in found if phrase is not None]


def describe_mark(mark: Mark, seed: int, item: int) -> str:
    rng = lot(seed, item, 2)
    elements = _elements(mark, rng)
    text = f"{_STYLES[mark.wording](elements)} {_colour_sentence(mark)}"
    if mark.wording == "colours first":
        text = f"{_colour_sentence(mark)} {_STYLES[mark.wording](elements)}"
    more = [_MORE[mark.wording][i] for i in rng.permutation(3)]
    if mark.on_black:
        more = [sentence for sentence in more if not _GROUND.search(sentence)]
    while more and len(text.split()) < LEAST + int(rng.integers(1, 12)):
        text = f"{text} {more.pop()}"
    return text


def _elements(mark: Mark, rng: np.random.Generator) -> Elements:
    own, extra, carrier, word = (f"{name} " if mark.claimed else "" for name in mark.colours)
    main = _counted(mark.count, _shown(mark, rng), own, mark.motif.name, mark.motif.plural)
    small = None
    if mark.extra:
        number = ARRANGEMENTS[mark.arrangement]
        named = _counted(number, "smaller {}", extra, mark.extra.name, mark.extra.plural)
        small = f"{named} {mark.arrangement} the {_main(mark)}"
    lettering = _LETTERING[int(rng.integers(len(_LETTERING)))]
    return Elements(
        main=main,
        extra=small,
        carrier=f"{_a(f'{carrier}{mark.carrier}')} behind the {_main(mark)}"
        if mark.carrier
        else None,
        word=f'the {lettering} "{mark.word}" in {word}letters {mark.place} the {_main(mark)}'
        if mark.word
        else None,
        border=f"a border formed by {_a(f'{carrier}{mark.border}')} around the entire design"
        if mark.border
        else None,
        ground="a solid black background" if mark.on_black else None,
    )


def _main(mark: Mark) -> str:
    return mark.motif.name if mark.count == 1 else mark.motif.plural


def _shown(mark: Mark, rng: np.random.Generator) -> str:
    ways = _SHOWN[mark.wording]
    return ways[int(rng.integers(len(ways)))]


def _counted(count: int, way: str, colour: str, name: str, plural: str) -> str:
    """'a stylized red heart', 'a depiction of two red hearts', 'two fanciful red hearts'."""
    if way.startswith("{}") or not way.endswith(" of {}"):
        if count == 1:
            return _a(way.format(f"{colour}{name}"))
        return f"{NUMBERS[count]} {way.format(f'{colour}{plural}')}"
    inner = _a(f"{colour}{name}") if count == 1 else f"{NUMBERS[count]} {colour}{plural}"
    return _a(way.format(inner))


def _a(phrase: str) -> str:
    return f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}"


def _colour_sentence(mark: Mark) -> str:
    if not mark.claimed:
        return "Color is not claimed as a feature of the mark."
    parts = [True, mark.extra is not None, mark.carrier or mark.border, mark.word is not None]
    shown = [name for name, drawn in zip(mark.colours, parts, strict=True) if drawn]
    names = list(dict.fromkeys([*shown, *(["black"] if mark.on_black else [])]))
    if len(names) == 1:
        return f"The color {names[0]} is claimed as a feature of the mark."
    return f"The colors {_joined(names)} are claimed as a feature of the mark."


def _joined(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"


def _plain(elements: Elements) -> str:
    first, *rest = elements.all()
    return f"The mark consists of {first}{', with ' + _joined(rest) if rest else ''}."


def _composite(elements: Elements) -> str:
    first, *rest = elements.all()
    more = f"; said design further comprising {'; '.join(rest)}" if rest else ""
    return f"The mark consists of a composite design featuring {first}{more}."


def _listed(elements: Elements) -> str:
    order = ("first", "second", "third", "fourth", "fifth", "sixth")
    phrases = [f"{n}, {phrase}" for n, phrase in zip(order, elements.all(), strict=False)]
    return f"The mark consists of the following elements: {'; '.join(phrases)}."


def _directed(elements: Elements) -> str:
    sentences = [f"The mark consists of {elements.main} as the central element."]
    if elements.carrier:
        sentences.append(f"There is {elements.carrier}.")
    if elements.extra:
        sentences.append(f"It is shown together with {elements.extra}.")
    if elements.word:
        sentences.append(f"One reads {elements.word}.")
    if elements.border:
        sentences.append(f"There is {elements.border}.")
    if elements.ground:
        sentences.append(f"All of it stands on {elements.ground}.")
    return " ".join(sentences)


def _colours_first(elements: Elements) -> str:
    return f"The mark consists of {_joined(elements.all())}."


def _fanciful(elements: Elements) -> str:
    first, *rest = elements.all()
    more = f" It is accompanied by {_joined(rest)}." if rest else ""
    return f"The mark consists of {first} that dominates the emblem.{more}"


_STYLES: dict[str, Callable[[Elements], str]] = {
    "plain": _plain,
    "composite": _composite,
    "listed": _listed,
    "directed": _directed,
    "colours first": _colours_first,
    "fanciful": _fanciful,
}
