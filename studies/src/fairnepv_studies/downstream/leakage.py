"""Items that are nearly others: nothing that a model is tested on may stand in a pool.

Two items are near duplicates if they have the same id, the same text, the same bytes or pixels of
their images, or

- of their images, difference hashes of 256 bits that differ in at most `MOST_BITS`: which of two
  neighbours is brighter, in a grid of 17 x 16 grey means; or
- of their texts, sets of `SHINGLE` words in a row (lower case, letters and digits) whose Jaccard
  index, the share that both have of all that either has, is at least `LEAST_JACCARD`.

Both are computed exactly, for all pairs, a block of items at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv_studies.pictures import decode

MOST_BITS = 8  # of 256
LEAST_JACCARD = 0.8
SHINGLE = 3  # words
RULE = (
    f"same id, text, bytes or pixels; difference hashes of 256 bits of the images that differ in "
    f"at most {MOST_BITS}; or sets of {SHINGLE} words in a row with a Jaccard index of at least "
    f"{LEAST_JACCARD:g}"
)
_SIDE = 16
_BLOCK = 256  # items that are compared with all others at once
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Prints:
    """What items are compared by."""

    exact: dict[str, list[str]]  # by what: ids, texts, checksums of images
    hashes: NDArray[np.uint8]  # (n, 32)
    shingles: Any  # (n, width), sparse, ones


def difference_hash(image: bytes) -> NDArray[np.uint8]:
    grey = decode(image).convert("L").resize((_SIDE + 1, _SIDE), resample=4)  # means of boxes
    pixels = np.asarray(grey, dtype=np.int16)
    return np.packbits(pixels[:, 1:] > pixels[:, :-1])


def shingles_of(text: str) -> set[str]:
    """A text of fewer words is one shingle."""
    words = _WORD.findall(text.lower())
    return {" ".join(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1))}


def prints_of(exact: dict[str, list[str]], texts: Sequence[str], images: Iterable[bytes]) -> Prints:
    hashes = [difference_hash(image) for image in images]
    return Prints(exact, np.array(hashes).reshape(len(hashes), -1), _incidence(texts))


def _incidence(texts: Sequence[str]) -> Any:
    import scipy.sparse as sp

    columns: dict[str, int] = {}
    rows = [[columns.setdefault(s, len(columns)) for s in shingles_of(text)] for text in texts]
    starts = np.cumsum([0, *map(len, rows)])
    places = np.fromiter((at for row in rows for at in row), dtype=np.int64, count=starts[-1])
    ones = np.ones(len(places), dtype=np.float32)
    return sp.csr_array((ones, places, starts), shape=(len(texts), max(1, len(columns))))


def near_duplicates(
    prints: Prints, asked: NDArray[np.int64], others: NDArray[np.int64]
) -> dict[int, str]:
    """Those of the rows `asked` that nearly are one of the rows `others`, each with why."""
    found: dict[int, str] = {}
    for what, values in prints.exact.items():
        known = {values[row] for row in others.tolist()}
        for row in asked.tolist():
            if values[row] in known:
                found.setdefault(row, f"same {what}")
    sizes = prints.shingles.sum(axis=1)
    turned = prints.shingles[others].T.tocsc()
    for start in range(0, len(asked), _BLOCK):
        block = asked[start : start + _BLOCK]
        bits = np.array([_nearest(prints.hashes[row], prints.hashes[others]) for row in block])
        both = (prints.shingles[block] @ turned).toarray()
        either = sizes[block][:, None] + sizes[others][None, :] - both
        # Counts are whole, so the comparison is exact.
        alike = (both >= LEAST_JACCARD * either - 1e-4).any(axis=1)
        for row, distance, text in zip(block.tolist(), bits, alike, strict=True):
            if distance <= MOST_BITS:
                found.setdefault(row, "near image")
            if text:
                found.setdefault(row, "near text")
    return found


def _nearest(one: NDArray[np.uint8], others: NDArray[np.uint8]) -> int:
    """In how many bits the nearest of the others differs."""
    if not len(others):
        return 8 * len(one) + 1
    return int(np.bitwise_count(one[None, :] ^ others).sum(axis=1, dtype=np.int64).min())
