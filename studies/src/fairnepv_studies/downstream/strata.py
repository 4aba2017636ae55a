"""Which of the evaluated items are rare, told from the corpus alone.

- rare motif: the rarest design code of the item stands in at most a given share of the pool's
  items. Only corpora of the register have design codes; of the simulated ones a code is a motif.
- rare wording: the given share of the evaluated items with the highest mean inverse document
  frequency of their words, counted in the pool; what stands between quotation marks is the wording
  of the mark itself and does not count.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

MOTIF, WORDING = "motif", "wording"
KINDS = (MOTIF, WORDING)
NAMES = {  # by kind and whether items are rare in it
    (MOTIF, True): "rare motif",
    (MOTIF, False): "common motif",
    (WORDING, True): "rare wording",
    (WORDING, False): "common wording",
}
_QUOTED = re.compile(r'"[^"]*"')
_WORD = re.compile(r"\w+")


def rare_motifs(
    codes: Sequence[Sequence[str]], pool: Sequence[int], asked: Sequence[int], share: float
) -> set[int]:
    """Those of the rows `asked` that have a code which at most this share of the pool has."""
    counts = Counter(code for row in pool for code in set(codes[row]))
    most = share * len(pool)
    return {row for row in asked if any(counts[code] <= most for code in codes[row])}


def rare_wordings(
    texts: Sequence[str], pool: Sequence[int], asked: Sequence[int], share: float
) -> set[int]:
    counts = Counter(word for row in pool for word in _words(texts[row]))

    def rarity(row: int) -> float:
        words = sorted(_words(texts[row]))
        idf = (math.log((len(pool) + 1) / (counts[word] + 1)) for word in words)
        return round(math.fsum(idf) / len(words), 9) if words else 0.0

    ordered = sorted(asked, key=lambda row: (-rarity(row), row))
    return set(ordered[: round(share * len(ordered))])


def _words(text: str) -> set[str]:
    return set(_WORD.findall(_QUOTED.sub(" ", text.lower())))
