"""A mark as a model is trained on it: what is seen, and what is to be written."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Item:
    id: str
    text: str  # the description to be written
    image: bytes = field(repr=False)  # the file of the image, as the corpus has it
