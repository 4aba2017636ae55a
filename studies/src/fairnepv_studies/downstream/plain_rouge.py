"""ROUGE-L without any package, for the choice on the validation split, which is made where the
models are trained. Tests hold it against rouge-score, which makes all scores of the tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORD = re.compile(r"[a-z0-9]+")


def mean_rouge_l(texts: Sequence[str], references: Sequence[str]) -> float:
    """Mean F1 of the longest common subsequence of words, in percent."""
    scores = [rouge_l(text, other) for text, other in zip(texts, references, strict=True)]
    return 100 * sum(scores) / len(scores)


def rouge_l(text: str, reference: str) -> float:
    """[Lin 2004, section 3.1], with as much weight on precision as on recall."""
    made, wanted = _WORD.findall(text.lower()), _WORD.findall(reference.lower())
    common = _common(made, wanted)
    if not common:
        return 0.0
    precision, recall = common / len(made), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of their longest common subsequence; a row of the table at a time."""
    row = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for at, match in enumerate(other, 1):
            before, row[at] = row[at], before + 1 if word == match else max(row[at], row[at - 1])
    return row[-1]
