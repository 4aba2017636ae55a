"""The records that a user gets, and the one way to fill them from a problem and indices.

A record that holds arrays equals itself alone (`eq=False`), here and wherever a result is defined:
two runs differ in their seconds, and `diff` says what differs between two selections.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fairnepv.api.neighbours import Survey, survey, usual_rows
from fairnepv.compute import block_threads
from fairnepv.compute.clock import OutOfTime
from fairnepv.concave import Certificate
from fairnepv.display import shown
from fairnepv.errors import FairnepvError, Status
from fairnepv.loop import Step
from fairnepv.methods import set_apart
from fairnepv.methods.plan import Plan
from fairnepv.objective import (
    UNITS,
    Nats,
    fair_value,
    scores_and_gains,
    soft_min_weights,
    subset_scores,
)
from fairnepv.problem import Problem, by_view
from fairnepv.search import Enumeration, check_effort
from fairnepv.views import Calibration
from fairnepv.views.base import Floats, Indices
from fairnepv.views.imprint import Imprint

_OF_THE_DATA = ("problem", "plan", "imprint")  # fields that a stored selection leaves behind
_NAMED = 5  # isolated picks that a note names
_SURVEY = "_survey"  # where a selection keeps what a pass has found


@dataclass(frozen=True, eq=False, repr=False)
class Score:
    """How one subset does in every view, and what follows from it: d_q(S) in nats per item for the
    objective 'diverse', the share of variance explained for 'representative'."""

    objective: str
    scores: Mapping[str, float]
    fair_score: float
    view_weights: Mapping[str, float]

    if TYPE_CHECKING:  # a value here, and there what a pass finds when it is asked for

        @property
        def coverage(self) -> Mapping[str, float]:
            """C_q(S), mean cosine distance to the nearest pick; low is good."""

    @property
    def units(self) -> Nats:
        """In what the scores are told."""
        return UNITS[self.objective]

    @property
    def worst_view(self) -> str:
        return min(self.scores, key=self.scores.__getitem__)

    @property
    def minimum(self) -> float:
        return min(self.scores.values())

    def losses(self, against: Score) -> dict[str, float]:
        """Per view what this subset has less than the other, in the units of their scores."""
        return {name: against.scores[name] - value for name, value in self.scores.items()}


@dataclass(frozen=True)
class SubsetScore(Score):
    """The score of a subset that somebody has chosen: numbers alone, which are compared."""

    coverage: Mapping[str, float]

    def __hash__(self) -> int:
        return hash(self.fair_score)


@dataclass(frozen=True, eq=False, repr=False)
class Selection(Score):
    """k chosen items, how well they do, and how well any k items could do.

    `neighbours()` makes a pass over the data, about as dear as fair greedy, which most callers of
    `select` do not need: so it is made when first asked for, and then kept. `coverage` and
    `isolated` ask for it, as they are the names by which results of every kind are read; nothing
    else does. Arrays that were overwritten by then are refused.
    """

    indices: Indices  # in order of selection: the first j are a sensible subset
    ids: NDArray[Any]  # of the same items; row numbers where the data had no ids
    gains: Mapping[str, Floats]  # (k,) per view what each item in turn added to log det, or to the
    # share: the mean of them is the score, or the sum
    certificate: Certificate | None
    proven: float | None  # what branch and bound proved that no set exceeds
    calibration: Calibration
    settings: Mapping[str, Any]  # select(data, **settings) finds the same again
    chosen_from: Mapping[str, Any]  # rows n, columns by view, shards of a first tier
    trace: tuple[Step, ...]
    status: Status
    seconds: float  # of the search; reading, calibration and the bound come on top
    run_notes: tuple[str, ...] = ()  # what stages wanted to be known
    problem: Problem | None = None
    plan: Plan | None = None  # by which it was found
    imprint: Imprint | None = None  # of the rows that it was chosen from

    def __getstate__(self) -> dict[str, Any]:
        """A stored selection carries what the data says of it, and not the data."""
        return {**self.looked_around().__dict__, **dict.fromkeys(_OF_THE_DATA)}

    @property
    def posed(self) -> Problem | None:
        """The problem, if its rows are still those that were chosen from."""
        if self.imprint is not None:
            self.imprint.check()
        return self.problem

    def neighbours(self) -> Survey:
        """How near rows and picks are to each other, by one pass over the data."""
        if _SURVEY not in self.__dict__:
            problem = self.posed
            assert problem is not None, "stored selections have been surveyed"
            with block_threads(problem.work()):
                found = survey(problem, self.indices, usual_rows(problem))
            self.__dict__[_SURVEY] = found
        kept: Survey = self.__dict__[_SURVEY]
        return kept

    def looked_around(self) -> Selection:
        """The same with that pass made. If it is interrupted or the time or the data is gone by
        then, the selection says so and has no coverage: the picks are not lost for it."""
        try:
            self.neighbours()
            return self
        except KeyboardInterrupt:
            found = replace(self, status=Status.INTERRUPTED)
        except OutOfTime:
            note = "coverage is not known, since time_limit left no time to look at all rows again"
            found = replace(self, run_notes=(*self.run_notes, note))
        except FairnepvError as error:
            note = f"coverage is not known, since the data could not be read again: {error}"
            found = replace(self, run_notes=(*self.run_notes, note))
        found.__dict__[_SURVEY] = Survey.unknown(len(self.scores), len(self.indices))
        return found

    @property
    def coverage(self) -> Mapping[str, float]:
        """C_q(S), mean cosine distance to the nearest pick; low is good. Asks `neighbours()`."""
        means = (self.neighbours().distances / self.chosen_from["n"]).tolist()
        return dict(zip(self.scores, means, strict=True))

    @property
    def isolated(self) -> Mapping[str, Indices]:
        """Per view the positions of picks that nothing is near to. Asks `neighbours()`."""
        return dict(zip(self.scores, self.neighbours().isolated(len(self.indices)), strict=True))

    @property
    def notes(self) -> tuple[str, ...]:
        """What should be known of this; of isolated picks once `neighbours()` were asked for."""
        return (*self.run_notes, *(self._isolation_notes() if _SURVEY in self.__dict__ else ()))

    def _isolation_notes(self) -> Iterator[str]:
        for name, positions in self.isolated.items():
            if not len(positions):
                continue
            many = len(positions) > 1
            named = self.ids[positions[:_NAMED]].tolist()
            listed = ", ".join(map(str, named)) + (", ..." if len(positions) > _NAMED else "")
            called = ("id" if self.has_ids else "row") + ("s" if many else "")
            yield (
                f"{len(positions)} pick{'s are' if many else ' is'} isolated in view {name!r} "
                f"({called} {listed}): nothing in the pool is near {'them' if many else 'it'}; "
                f"look whether {'they are' if many else 'it is'} junk, or weight rows with "
                "quality=typicality(data)"
            )

    def __repr__(self) -> str:
        say = self.units.shown
        scores = ", ".join(f"{shown(name)}: {say(value)}" for name, value in self.scores.items())
        return (
            f"<Selection of {len(self.indices)} from {self.chosen_from['n']} by {self.method!r}, "
            f"{self.objective}: fair score {say(self.fair_score)} ({scores}), {self.status.name}>"
        )

    @property
    def method(self) -> str:
        return str(self.settings["method"])

    @property
    def swap_passes(self) -> int:
        """Passes of one-swaps over all rows that led here, over all starts."""
        swaps = [(step.step, step.passes) for step in self.trace if step.stage == "swaps"]
        # A run ends where no step follows; of one that a checkpoint knew, the last step is told.
        pairs = itertools.pairwise([*swaps, (0, 0)])
        return sum(passes for (step, passes), (after, _) in pairs if after != step + 1)

    @property
    def budget(self) -> str:
        """What refined this set, as a comparison has it: of most methods passes of one-swaps."""
        apart = set_apart(self.method, check_effort(self.settings["effort"]))
        if apart is not None:
            return apart
        most = self.settings["passes"]
        allowed = "" if most is None else f" of at most {most}"
        return f"{self.swap_passes}{allowed} passes of one-swaps"

    @property
    def has_ids(self) -> bool:
        """Whether the data named its rows; `ids` are the row numbers themselves otherwise."""
        return self.ids is not self.indices

    @property
    def upper_bound(self) -> float | None:
        """No k items that the constraints allow score above this; None when none was asked for."""
        bounds = [] if self.certificate is None else [self.certificate.upper_bound]
        bounds += [] if self.proven is None else [self.proven]
        return min(bounds, default=None)

    @property
    def gap(self) -> float | None:
        """Bound minus score, in the units of both; rounding does not make it negative."""
        if self.upper_bound is None:
            return None
        return max(self.upper_bound - self.fair_score, 0.0)

    @property
    def efficiency(self) -> float | None:
        """At least this share of the best possible: exp(-gap) per item for 'diverse', score over
        bound for 'representative'."""
        bound = self.upper_bound
        return None if bound is None else self.units.efficiency(self.fair_score, bound)

    @property
    def random_efficiency(self) -> float | None:
        """The same of what lots reach, which the certificate has drawn: the mean score of
        `certificate.random_scores`. None where there is no certificate, or was no time to draw."""
        lots = None if self.certificate is None else self.certificate.random_score
        bound = self.upper_bound
        return None if bound is None or lots is None else self.units.efficiency(lots, bound)


@dataclass(frozen=True, eq=False)
class Optimum(SubsetScore):
    """The discrete optimum of a small pool, by enumeration."""

    indices: Indices
    ids: NDArray[Any]
    subsets: int  # how many were looked at
    ties: int  # how many are optimal

    __eq__, __hash__ = object.__eq__, object.__hash__  # as all results that hold arrays

    def suboptimality(self, other: Score) -> float:
        """max_S F_tau(S) - F_tau(S') [FairNEPv, appendix B]."""
        return self.fair_score - other.fair_score


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """One selection per selector, on the same problem."""

    rows: tuple[Selection, ...]

    def __iter__(self) -> Iterator[Selection]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.rows))

    def __getitem__(self, method: str) -> Selection:
        for row in self.rows:
            if row.method == method:
                return row
        raise KeyError(method)


def score_subset(problem: Problem, indices: Indices) -> SubsetScore:
    """The record of one subset, from the original rows in float64."""
    covered = survey(problem, indices, indices[:0]).distances / problem.n
    fields = _score_fields(problem, subset_scores(problem.pool, indices, problem.utility))
    return SubsetScore(**fields, coverage=by_view(problem.pool, covered))


def _score_fields(problem: Problem, d: Floats) -> dict[str, Any]:
    pool = problem.pool
    return {
        "objective": problem.utility,
        "scores": by_view(pool, d),
        "fair_score": fair_value(problem, d),
        "view_weights": by_view(pool, soft_min_weights(d + problem.lifts, problem.tau)),
    }


def make_selection(problem: Problem, indices: Indices, **run: Any) -> Selection:
    """Scores are made by one thread, which the last moment of a limit can count on: on a busy
    machine several took thirty times as long for a thousand items, and in quiet half as long."""
    d, gains = scores_and_gains(problem.pool, indices, problem.utility)
    return Selection(
        **_score_fields(problem, d),
        indices=indices,
        ids=_ids(problem, indices),
        gains={name: gains[:, q] for q, name in enumerate(problem.pool.names)},
        calibration=problem.calibration,
        problem=problem,
        imprint=Imprint.of(problem.pool, indices),
        **run,
    )


def make_optimum(problem: Problem, found: Enumeration) -> Optimum:
    score = vars(score_subset(problem, found.indices))
    ids = _ids(problem, found.indices)
    return Optimum(**score, indices=found.indices, ids=ids, subsets=found.subsets, ties=found.ties)


def _ids(problem: Problem, indices: Indices) -> NDArray[Any]:
    return indices if problem.pool.ids is None else problem.pool.ids[indices]
