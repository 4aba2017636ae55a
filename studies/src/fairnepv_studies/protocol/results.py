"""What the protocol reports of a selection, and means over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from fairnepv.api.selection import Score
from fairnepv.errors import InputError, NumericalError
from fairnepv.objective import UNITS, Nats
from fairnepv.options import DIVERSE

LABELS = {
    "nepv": "FairNEPv, the paper's pipeline",
    "auto": "fairnepv, default",
    "greedy-swaps": "Fair greedy, one-swaps",
    "greedy": "Fair greedy",
    "averaged": "Averaged kernel",
    "fixed-weight": "Fixed weights",
    "concatenated": "Concatenation",
    "random": "Random",
}
ROUNDING = 1e-9  # by which a score may exceed its bound, and two machines may differ
_PLAIN = Nats()
BOUND = "(bound)"  # the selector of the seconds that a certificate took


class Unit(NamedTuple):
    """One selection of a run."""

    k: int
    method: str
    seed: int

    @property
    def name(self) -> str:
        return f"k{self.k}-{self.method}-seed{self.seed}"

    def __str__(self) -> str:
        return f"{self.method!r}, k = {self.k}, seed {self.seed}"


@dataclass(frozen=True)
class Result:
    k: int
    method: str
    seed: int
    fair_score: float
    scores: Mapping[str, float]  # d_q, or shares of variance
    view_weights: Mapping[str, float]
    coverage: Mapping[str, float]  # C_q
    upper_bound: float  # proven for this k; one certificate for all selectors
    efficiency: float
    status: str
    notes: list[str]
    rows: list[int]  # of the corpus, in order of selection
    ids: list[str]
    objective: str = DIVERSE  # which results from before there were several do not name

    @classmethod
    def read(cls, document: Any, where: str) -> Result:
        try:
            result = cls(**document)
            _ = result.told_in
        except (TypeError, KeyError) as error:
            raise InputError(f"{where} holds no result of a run ({error})") from error
        return result

    @property
    def unit(self) -> Unit:
        return Unit(self.k, self.method, self.seed)

    @property
    def record(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def told_in(self) -> Nats:
        """In what its scores are told."""
        return UNITS[self.objective]

    @property
    def numbers(self) -> dict[str, float]:
        """The columns of every table, in their order."""
        return {
            "fair_score": self.fair_score,
            **{f"{self.told_in.mark}_{view}": score for view, score in self.scores.items()},
            "minimum": min(self.scores.values()),
            **{f"coverage_{view}": c for view, c in self.coverage.items()},
            "upper_bound": self.upper_bound,
            "efficiency": self.efficiency,
        }


def measures(score: Score, bound: float) -> dict[str, Any]:
    """The numbers of a result as the library scores it, beside a bound that holds for it."""
    if not score.fair_score <= bound + ROUNDING:
        raise NumericalError(
            f"the bound {bound!r} is no bound: the fair score is {score.fair_score!r}, above it"
        )
    return {
        "fair_score": score.fair_score,
        "scores": dict(score.scores),
        "view_weights": dict(score.view_weights),
        "coverage": dict(score.coverage),
        "upper_bound": bound,
        "efficiency": score.units.efficiency(score.fair_score, bound),
    }


class Summary(NamedTuple):
    """Means over the seeds of a selector, and their standard deviations where there are several."""

    k: int
    method: str
    seeds: int
    means: dict[str, float]
    spreads: dict[str, float]
    told_in: Nats

    def mean(self, name: str) -> str:
        return printed(self.means[name], self._units_of(name))

    def spread(self, name: str) -> str:
        return printed(self.spreads[name], self._units_of(name))

    def _units_of(self, name: str) -> Nats:
        """Distances and efficiencies are plain numbers whatever the objective is."""
        return _PLAIN if name == "efficiency" or name.startswith("coverage_") else self.told_in


def summarise(results: Iterable[Result]) -> list[Summary]:
    """One row per size and selector, in the order of the results."""
    groups: dict[tuple[int, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.k, result.method), []).append(result)
    return [_summary(*key, rows) for key, rows in groups.items()]


def _summary(k: int, method: str, rows: Sequence[Result]) -> Summary:
    numbers = [row.numbers for row in rows]
    columns = {name: [row[name] for row in numbers] for name in numbers[0]}
    means = {name: statistics.fmean(values) for name, values in columns.items()}
    several = columns if len(rows) > 1 else {}
    spreads = {name: statistics.stdev(values) for name, values in several.items()}
    return Summary(k, method, len(rows), means, spreads, rows[0].told_in)


def best_methods(results: Iterable[Result], k: int) -> set[str]:
    """The selectors with the highest mean fair score at this size, as far as tables print it."""
    rows = [row for row in summarise(results) if row.k == k]
    best = max(rows, key=lambda row: row.means["fair_score"]).mean("fair_score")
    return {row.method for row in rows if row.mean("fair_score") == best}


def printed(number: float, units: Nats) -> str:
    """As in every table; nothing is less than zero by rounding alone."""
    return units.short(round(number, 3) + 0.0)


def label(method: str) -> str:
    """As tables and figures for readers call a selector."""
    if method.endswith("-only"):
        view = method.removesuffix("-only")
        return f"{view[:1].upper()}{view[1:]} only"
    return LABELS.get(method, method)
