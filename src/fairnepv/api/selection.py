"""The records that a user gets: a selection, and several of them side by side.

A record that holds arrays equals itself alone (`eq=False`), wherever a result is defined; those of
this module are compared by what was asked and what was found, and `diff` says what differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from fairnepv import __version__
from fairnepv.api import picked
from fairnepv.api.neighbours import Survey, survey, usual_rows
from fairnepv.api.records import selection_record
from fairnepv.api.scores import Optimum as Optimum
from fairnepv.api.scores import Score as Score
from fairnepv.api.scores import SubsetScore as SubsetScore
from fairnepv.api.shown import html_of, lines_of
from fairnepv.compute import block_threads
from fairnepv.compute.clock import OutOfTime
from fairnepv.concave import Certificate
from fairnepv.display import listed
from fairnepv.errors import FairnepvError, Status
from fairnepv.io.frames import Table, Tabular, to_json
from fairnepv.loop import Step
from fairnepv.methods import set_apart
from fairnepv.methods.plan import Plan
from fairnepv.problem import Problem
from fairnepv.search import check_effort
from fairnepv.views import Calibration
from fairnepv.views.base import Floats, Indices
from fairnepv.views.imprint import Imprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OF_THE_DATA = ("problem", "plan", "imprint")  # fields that a stored selection leaves behind
_NAMED = 5  # isolated picks that a note names
_SURVEY = "_survey"  # where a selection keeps what a pass has found
# The settings that say what was asked for; the others say how it was searched for.
_QUESTION = (
    *("objective", "k", "tau", "eps", "center", "calibration", "quality", "include", "exclude"),
    *("quotas", "priorities", "floors", "missing", "deduplicate"),
)


@dataclass(frozen=True, eq=False, repr=False)
class Selection(Score):
    """k chosen items, how well they do, and how well any k items could do.

    `neighbours()` makes a pass over the data, about as dear as fair greedy, which most callers of
    `select` do not need: so it is made when first asked for, and then kept. `coverage` and
    `isolated` ask for it, as they are the names by which results of every kind are read; nothing
    else does. Arrays that were overwritten by then are refused.

    It is a sequence of its row numbers in order of selection, so that `X[selection]` are the rows
    that were chosen. `selection[:50]` are the first 50 row numbers: no Selection, since scores and
    bounds are those of all picks; `score(data, selection[:50])` scores them, and `ids[:50]` names
    them.

    Two selections are equal if they have the same picks with the same ids in the same order and
    the same scores, and were asked for the same: sizes of the data, objective, k, tau, eps, center,
    calibration, rules, priorities, floors. How they were searched for (method, effort, seed,
    limits, seconds, bound, status) does not count; `diff` says what differs.
    """

    indices: Indices  # in order of selection: the first j are a sensible subset
    ids: NDArray[Any]  # of the same items; row numbers where the data had no ids
    gains: Mapping[str, Floats]  # (k,) per view what each item in turn added to log det, or to the
    # share: the mean of them is the score, or the sum
    certificate: Certificate | None  # the bound with its proof, if one was asked for
    proven: float | None  # what branch and bound proved that no set exceeds
    calibration: Calibration
    settings: Mapping[str, Any]  # select(data, **settings) finds the same again
    chosen_from: Mapping[str, Any]  # rows n, columns by view, shards of a first tier, reordered
    trace: tuple[Step, ...]
    status: Status  # how the search ended
    seconds: float  # of the search; reading, calibration and the bound come on top
    run_notes: tuple[str, ...] = ()  # what stages wanted to be known
    problem: Problem | None = None
    plan: Plan | None = None  # by which it was found
    imprint: Imprint | None = None  # of the rows that it was chosen from

    def __getstate__(self) -> dict[str, Any]:
        """A stored selection carries what the data says of it, and not the data."""
        return {**self.looked_around().__dict__, **dict.fromkeys(_OF_THE_DATA)}

    # --- as a sequence of rows, and beside another one ------------------------------------------

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices.tolist())

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> Indices: ...
    def __getitem__(self, at: Any) -> Any:
        """A row number, or those of a slice or of positions."""
        found = self.indices[at]
        return int(found) if np.ndim(found) == 0 else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.indices, dtype, copy=copy is not False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selection):
            return NotImplemented
        return (
            self._question() == other._question()
            and dict(self.scores) == dict(other.scores)
            and self.fair_score == other.fair_score
            and np.array_equal(self.indices, other.indices)
            and self.has_ids == other.has_ids
            and self.ids.tolist() == other.ids.tolist()
        )

    def __hash__(self) -> int:
        return hash((self.objective, self.fair_score, self.indices.tobytes()))

    def _question(self) -> str:
        """What was asked for, as JSON, since stored settings have been that."""
        asked = {name: self.settings.get(name) for name in _QUESTION}
        return to_json([asked, self.chosen_from["n"], self.chosen_from["views"]], indent=None)

    # --- what it looks like, as a table, in a file ----------------------------------------------

    def __repr__(self) -> str:
        return self.headline

    def _repr_html_(self) -> str:
        return html_of(self)

    @property
    def headline(self) -> str:
        return "\n".join(lines_of(self))

    @property
    def table(self) -> Table:
        """One row per item in order of selection: id, row, order, and its gain per view."""
        columns = {
            "id": self.ids,
            "row": self.indices,
            "order": np.arange(len(self)),
            **{f"gain_{name}": gains for name, gains in self.gains.items()},
        }
        return Table(columns, selection_record(self, coverage=self.surveyed), "picks", "id")

    def save(self, path: str | Path) -> None:
        """Write everything but the data to one file, an .npz, which `fairnepv.load` reads."""
        from fairnepv.api.stored import save

        save(path, self)

    def plot(self) -> Figure:
        """A Matplotlib figure: each view with its bound, and its score as picks were added."""
        from fairnepv.report.figures import selection_figure

        figure: Figure = selection_figure(self)
        return figure

    # --- the data that it was chosen from -------------------------------------------------------

    @property
    def posed(self) -> Problem | None:
        """The problem, if its rows are still those that were chosen from."""
        if self.imprint is not None:
            self.imprint.check()
        return self.problem

    @property
    def surveyed(self) -> bool:
        """Whether `neighbours()` are known, so that nothing has to look at the data for them."""
        return _SURVEY in self.__dict__

    def neighbours(self) -> Survey:
        """How near rows and picks are to each other, by one pass over the data."""
        if not self.surveyed:
            problem = self.posed
            assert problem is not None, "stored selections have been surveyed"
            with block_threads(problem.work()):
                found = survey(problem, self.indices, usual_rows(problem))
            self.knowing(found)
        kept: Survey = self.__dict__[_SURVEY]
        return kept

    def looked_around(self) -> Selection:
        """The same selection with `neighbours()` known. If that pass is interrupted, or the time or
        the data is gone by then, the selection says so and has no coverage: it is not lost."""
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
        return found.knowing(Survey.unknown(len(self.scores), len(self.indices)))

    def knowing(self, found: Survey) -> Selection:
        """This selection itself, which keeps what a pass has found."""
        self.__dict__[_SURVEY] = found
        return self

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
        """What a user should know; isolated picks are told of once `neighbours()` are known."""
        return (*self.run_notes, *(self._isolation_notes() if self.surveyed else ()))

    def _isolation_notes(self) -> Iterator[str]:
        for name, positions in self.isolated.items():
            if not len(positions):
                continue
            many = len(positions) > 1
            named = listed(self.ids[positions].tolist(), _NAMED)
            called = ("id" if self.has_ids else "row") + ("s" if many else "")
            yield (
                f"{len(positions)} pick{'s are' if many else ' is'} isolated in view {name!r} "
                f"({called} {named}): nothing in the pool is near {'them' if many else 'it'}; "
                f"look whether {'they are' if many else 'it is'} junk, or weight rows with "
                "quality=typicality(data)"
            )

    def report(self, path: Any, **options: Any) -> Path:
        """Write one self-contained HTML page about this selection (docs/report.md); the options are
        those of `fairnepv.report.write_page`: images, texts, ids, groups, coordinates, ..."""
        from fairnepv.report import write_page

        return write_page(self, path, **options)

    def apply(self, data: Any) -> Any:
        """The chosen rows of `data`, in order of selection and of the kind that it is: a table, an
        array, a list, a mapping from names to columns, a data set (docs/tables.md)."""
        told = self.chosen_from
        return picked.rows_of(self.indices, told["n"], data, told["reordered"])

    def subset(self, dataset: Any) -> Any:
        """The chosen items of a data set of PyTorch, as `torch.utils.data.Subset`."""
        return picked.subset_of(self.indices, self.chosen_from["n"], dataset)

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
        """The efficiency of lots, which the certificate has drawn: that of the mean of
        `certificate.random_scores`. None where there is no certificate, or was no time to draw."""
        lots = None if self.certificate is None else self.certificate.random_score
        bound = self.upper_bound
        return None if bound is None or lots is None else self.units.efficiency(lots, bound)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Tabular):
    """One selection per selector, on the same problem. Two are equal if their selectors are the
    same and have equal selections."""

    rows: tuple[Selection, ...]

    def __iter__(self) -> Iterator[Selection]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Comparison):
            return NotImplemented
        named = [row.method for row in self] == [row.method for row in other]
        return named and self.rows == other.rows

    def __hash__(self) -> int:
        return hash(self.rows)

    def report(self, path: Any, **options: Any) -> Path:
        """The page of the row 'auto', or else of the first one, beside the others."""
        from fairnepv.report import write_page

        return write_page(self, path, **options)

    def __getitem__(self, method: str) -> Selection:
        for row in self.rows:
            if row.method == method:
                return row
        raise KeyError(method)

    @property
    def headline(self) -> str:
        first = self.rows[0]
        of = f"{len(first):,} from {first.chosen_from['n']:,}, {first.objective}"
        return f"Comparison of {len(self)} selectors: {of} ({first.units.mark}: {first.units.unit})"

    @property
    def table(self) -> Table:
        """One row per selector; coverage once it is known of all."""
        first, rows = self.rows[0], self.rows
        covered = list(first.scores) if all(row.surveyed for row in rows) else []
        columns = {
            "method": [row.method for row in rows],
            **{f"{first.units.mark}_{n}": [row.scores[n] for row in rows] for n in first.scores},
            "worst_view": [row.worst_view for row in rows],
            "fair_score": [row.fair_score for row in rows],
            **{f"coverage_{name}": [row.coverage[name] for row in rows] for name in covered},
            "passes": [row.swap_passes for row in rows],
            "budget": [row.budget for row in rows],
            "status": [row.status.name for row in rows],
            "seconds": [row.seconds for row in rows],
        }
        # All rows have the same but for the knobs of the relaxation, which 'nepv' alone has.
        settings = {k: v for row in rows for k, v in row.settings.items() if k != "method"}
        about = {"settings": settings, "chosen_from": dict(first.chosen_from)}
        arrays = {name: np.array(values) for name, values in columns.items()}
        return Table(arrays, {"fairnepv": __version__, **about}, "selectors")

    def save(self, path: str | Path) -> None:
        """Write all selections to one file, an .npz, which `fairnepv.load` reads."""
        from fairnepv.api.stored import save

        save(path, self)

    def plot(self) -> Figure:
        """A Matplotlib figure: bars per view for every selector, with the bounds of the views."""
        from fairnepv.report.figures import comparison_figure

        figure: Figure = comparison_figure(self)
        return figure
