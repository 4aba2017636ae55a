"""What the scores of all cells say: means over seeds, and paired differences with intervals.

A difference is paired twice: cells of equal size and seed were trained alike, and wrote about the
same items. The bootstrap draws seeds and items together, with the same draws for all cells, so an
interval is about other seeds and other items of the same kind, not about other corpora.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairnepv_studies.downstream.cells import Cell
from fairnepv_studies.downstream.scoring import BERT, BLEU, ROUGE, Floats, Scored, bleu_of_many
from fairnepv_studies.downstream.study import Study

ALL = "all"
_SEED = 20  # of the bootstrap: anybody gets the same intervals
_PIECE = 1 << 22  # numbers of a block of draws

Strata = Mapping[str, NDArray[np.int64]]  # places of items among those tested, by name


@dataclass(frozen=True)
class Mean:
    """Of one selector at one size in one stratum."""

    stratum: str
    items: int
    k: int
    selector: str
    seeds: int
    means: dict[str, float]  # by score
    spreads: dict[str, float]  # standard deviations; empty for one seed


@dataclass(frozen=True)
class Gap:
    """A selector less a baseline: the mean over matched seeds."""

    stratum: str
    items: int
    k: int
    selector: str
    baseline: str
    score: str
    seeds: int
    difference: float
    low: float
    high: float
    better: int  # seeds in which the selector is ahead


@dataclass(frozen=True)
class Summary:
    scores: tuple[str, ...]
    means: list[Mean]
    gaps: list[Gap]

    def of(self, stratum: str) -> list[Mean]:
        return [mean for mean in self.means if mean.stratum == stratum]


def summarise(study: Study, scored: Mapping[Cell, Scored], strata: Strata) -> Summary:
    """Of the cells that are there: a selector without any at some size has no row."""
    first = next(iter(scored.values()))
    scores = (BLEU, ROUGE) if first.bertscore_f1 is None else (BLEU, ROUGE, BERT)
    means: list[Mean] = []
    gaps: list[Gap] = []
    for number, (stratum, rows) in enumerate(strata.items()):
        values = {cell: found.of(rows) for cell, found in scored.items()}
        for k in study.sizes:
            means += _means(study, values, stratum, len(rows), k)
        draws = _draw(len(rows), study, number)
        resampled = {cell: _resampled(found, rows, draws.items) for cell, found in scored.items()}
        for k in study.sizes:
            for score in scores:
                gaps += _gaps(study, values, resampled, draws, (stratum, len(rows), k, score))
    return Summary(scores, means, gaps)


def _means(
    study: Study, values: Mapping[Cell, Mapping[str, float]], stratum: str, items: int, k: int
) -> list[Mean]:
    found = []
    for selector in study.selectors:
        name = selector.name
        cells = [Cell(name, k, seed) for seed in range(study.seeds_of(name))]
        own = [values[cell] for cell in cells if cell in values]
        if own:
            columns = {score: [one[score] for one in own] for score in own[0]}
            several = columns if len(own) > 1 else {}
            found.append(
                Mean(
                    *(stratum, items, k, name, len(own)),
                    {score: statistics.fmean(column) for score, column in columns.items()},
                    {score: statistics.stdev(column) for score, column in several.items()},
                )
            )
    return found


# --- the bootstrap --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draws:
    items: NDArray[np.int32]  # (resamples, items): how often each is drawn
    seeds: Floats  # (resamples, seeds) in [0, 1): scaled to as many seeds as a pair has


def _draw(items: int, study: Study, number: int) -> Draws:
    rng = np.random.default_rng([_SEED, number])
    b = study.scoring.resamples
    counts = np.empty((b, items), dtype=np.int32)
    for at in range(b):
        counts[at] = np.bincount(rng.integers(items, size=items), minlength=items)
    return Draws(counts, rng.random((b, study.seeds)))


def _resampled(
    found: Scored, rows: NDArray[np.int64], draws: NDArray[np.int32]
) -> dict[str, Floats]:
    """Every score of a cell on every draw of items."""
    columns = [found.bleu_counts[rows].astype(np.float64), found.rouge_l[rows][:, None]]
    if found.bertscore_f1 is not None:
        columns.append(found.bertscore_f1[rows][:, None])
    table = np.hstack(columns)
    step = max(1, _PIECE // len(rows))
    parts = [draws[at : at + step] @ table for at in range(0, len(draws), step)]
    sums = np.concatenate(parts)
    width = found.bleu_counts.shape[1]
    scores = {BLEU: bleu_of_many(sums[:, :width]), ROUGE: sums[:, width] / len(rows)}
    if found.bertscore_f1 is not None:
        scores[BERT] = sums[:, width + 1] / len(rows)
    return scores


def _gaps(
    study: Study,
    values: Mapping[Cell, Mapping[str, float]],
    resampled: Mapping[Cell, Mapping[str, Floats]],
    draws: Draws,
    where: tuple[str, int, int, str],
) -> list[Gap]:
    stratum, items, k, score = where
    found = []
    for name in study.challengers:
        for other in study.against:
            pairs = [(Cell(name, k, s), Cell(other, k, s)) for s in range(study.seeds)]
            pairs = [pair for pair in pairs if pair[0] in values and pair[1] in values]
            if not pairs:
                continue
            ahead = [values[one][score] - values[two][score] for one, two in pairs]
            apart = np.array([resampled[one][score] - resampled[two][score] for one, two in pairs])
            low, high = _interval(apart, draws.seeds, study.scoring.level)
            found.append(
                Gap(
                    *(stratum, items, k, name, other, score, len(pairs)),
                    *(statistics.fmean(ahead), low, high),
                    sum(gap > 0 for gap in ahead),
                )
            )
    return found


def _interval(apart: Floats, draws: Floats, level: float) -> tuple[float, float]:
    """Of the mean over seeds; apart: (seeds, resamples). The percentile interval."""
    seeds, b = apart.shape
    chosen = (draws[:, :seeds] * seeds).astype(np.int64)  # (b, seeds)
    means = apart[chosen, np.arange(b)[:, None]].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def strata_of(rare: Sequence[Sequence[str]], kinds: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """All items, then the rare and the common ones of each kind; empty strata are left out."""
    from fairnepv_studies.downstream.strata import NAMES

    found = {ALL: np.arange(len(rare), dtype=np.int64)}
    for kind in kinds:
        for is_rare in (True, False):
            rows = [at for at, own in enumerate(rare) if (kind in own) == is_rare]
            if rows:
                found[NAMES[kind, is_rare]] = np.array(rows, dtype=np.int64)
    return found
