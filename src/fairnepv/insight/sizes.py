"""`curve`: how the fair score changes as more items are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.duplicates import check_left
from fairnepv.api.inputs import count_items, pose
from fairnepv.api.tables import from_tables
from fairnepv.checks import brief, check_flag
from fairnepv.compute import block_threads
from fairnepv.compute.clock import apart
from fairnepv.concave import GAP
from fairnepv.concave import certify as make_certificate
from fairnepv.errors import InputError, Status, UnsupportedError
from fairnepv.io.frames import Table, Tabular
from fairnepv.loop import Context
from fairnepv.loop.bars import telling
from fairnepv.objective import soft_min, subset_gains, utility_of
from fairnepv.options import CurveOptions, ProblemOptions
from fairnepv.problem import Problem, check_k
from fairnepv.search import Found, greedy
from fairnepv.signatures import checked, part, takes
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Floats, Indices

_REACH = 100  # the largest size where none is asked for
_GREEDY = 0.6  # of the time that is left, before what bounds get
_BOUNDS = 5  # sizes at which bounds are proven where none are named
_STRAIGHT = 1e-10  # nats by which a bend must leave the chord, and by which one beats another


@dataclass(frozen=True, eq=False, repr=False)
class Curve(Tabular):
    """F_tau and the views' scores of the first items of one fair-greedy order, by how many they
    are. Nats per item fall with the size; shares of variance rise."""

    objective: str
    sizes: Indices
    fair_scores: Floats
    scores: Mapping[str, Floats]
    bounds: Mapping[int, float]  # proven: no set of that size scores above
    indices: Indices  # the greedy order: the first j are the set of size j
    ids: NDArray[Any]
    status: Status

    @property
    def headline(self) -> str:
        knee = "" if self.knee is None else f", knee at {self.knee:,}"
        first, last = (f"{size:,}" for size in self.sizes[[0, -1]])
        return f"Curve of sizes {first} to {last}, {self.objective}{knee} ({self.status.name})"

    @property
    def table(self) -> Table:
        """One row per size; a bound is nan where none was proven."""
        columns = {
            "size": self.sizes,
            "fair_score": self.fair_scores,
            **{f"score_{name}": values for name, values in self.scores.items()},
            "bound": np.array([self.bounds.get(size, np.nan) for size in self.sizes.tolist()]),
        }
        about = {"objective": self.objective, "knee": self.knee, "status": self.status.name}
        return Table(columns, about, "sizes")

    @property
    def knee(self) -> int | None:
        """The size whose F_tau is farthest above or below the chord from first to last size.

        Of equally far ones the smallest; None where there are fewer than three sizes or no bend.
        """
        x, y = self.sizes, self.fair_scores
        if len(x) < 3:
            return None
        chord = y[0] + (y[-1] - y[0]) * (x - x[0]) / (x[-1] - x[0])
        bend = np.abs(y - chord)
        if bend.max() <= _STRAIGHT:
            return None
        return int(x[np.argmax(bend >= bend.max() - _STRAIGHT)])

    def largest_with(self, *, fair_score: float) -> int | None:
        """The largest size whose F_tau is at least this; None where there is none."""
        return max(self._with(fair_score), default=None)

    def smallest_with(self, *, fair_score: float) -> int | None:
        """The smallest such size: how many items explain this share of the variance."""
        return min(self._with(fair_score), default=None)

    def _with(self, fair_score: Any) -> list[int]:
        real = isinstance(fair_score, int | float | np.integer | np.floating)
        if not real or isinstance(fair_score, bool) or np.isnan(fair_score):
            raise InputError(f"fair_score must be a number, not {brief(fair_score)}")
        sizes: list[int] = self.sizes[self.fair_scores >= fair_score].tolist()
        return sizes


@takes(CurveOptions)
@telling
@apart
@from_tables
def curve(
    data: Any,
    k_max: int | float | None = None,
    *,
    sizes: Any = None,
    bounds: bool = False,
    **options: Unpack[CurveOptions],
) -> Curve:
    """F_tau against the size of the set, from one fair-greedy run.

    k_max: the largest size, also as a fraction of n; by default the largest of `sizes`, or 100.
    sizes: those to report; by default all, from the number of included items on.
    bounds: also prove what no set of these sizes can exceed; without `sizes`, at five of them.

    What belongs to one size (quotas, floors, calibration 'efficiency') has no curve. There are as
    many bounds as `time_limit` leaves time for.
    """
    given = checked("curve", CurveOptions, options)
    bounds = check_flag("bounds", bounds)
    problem = part(ProblemOptions, options)
    _refuse_one_size(problem)
    wanted = None if sizes is None else _check_sizes(sizes)
    # No scale depends on the size here, so the problem is posed at the least, where n is known.
    least = max(1, count_items(problem.get("include")))
    context = Context(time_limit=given["time_limit"], progress=given["progress"])
    posed = _reaching(pose(data, least, session=context, **problem), k_max, wanted)
    reported = np.arange(least, posed.k + 1) if wanted is None else wanted
    if reported[0] < least or reported[-1] > posed.k:
        raise InputError(
            f"sizes must be from {least} to {posed.k}, but they reach from {reported[0]} to "
            f"{reported[-1]}; change them or k_max"
        )
    with block_threads(posed.work()):
        with context.share(_GREEDY if bounds else 1.0):
            found = context.despite_interruption(lambda: greedy(posed, context))
        proven: dict[int, float] = {}
        if bounds:
            with context.absorbing_interruption():
                _add_bounds(proven, posed, _proven_sizes(reported, wanted), context)
        return context.despite_interruption(
            lambda: _curve_of(posed, found, reported, proven, context.stopped or found.status)
        )


def _curve_of(
    problem: Problem, found: Found, sizes: Indices, proven: Mapping[int, float], status: Status
) -> Curve:
    gains = subset_gains(problem.pool, found.indices, problem.utility)
    divisors = [utility_of(problem).divisor(size) for size in sizes.tolist()]
    d = gains.cumsum(axis=0)[sizes - 1].T / divisors
    return Curve(
        problem.utility,
        sizes,
        np.asarray(soft_min(d + problem.lifts[:, None], problem.tau)),
        dict(zip(problem.pool.names, d, strict=True)),
        proven,
        found.indices,
        problem.ids_of(found.indices),
        status,
    )


def _add_bounds(
    proven: dict[int, float], problem: Problem, sizes: Indices, context: Context
) -> None:
    """Add the bound of every size; those that are not proven in time are left out."""
    for turn, size in enumerate(sizes.tolist()):
        if context.stopped:
            break
        with context.share(1.0 / (len(sizes) - turn)):
            certificate = make_certificate(replace(problem, k=size), gap=GAP, session=context)
            proven[size] = certificate.upper_bound


def _proven_sizes(reported: Indices, wanted: Indices | None) -> Indices:
    if wanted is not None or len(reported) <= _BOUNDS:
        return reported
    places = np.linspace(0, len(reported) - 1, _BOUNDS).round().astype(np.int64)
    return reported[places]


# --- what is asked for ----------------------------------------------------------------------------


def _refuse_one_size(problem: ProblemOptions) -> None:
    """Refuse what belongs to one size, which has no curve."""
    calibration = problem.get("calibration")
    if isinstance(calibration, str) and calibration == "efficiency":
        raise InputError(
            "calibration 'efficiency' scales views by what they reach at one k, so scores of "
            "different sizes cannot be compared; use another one, or the calibration of a result"
        )
    for name in ("groups", "quotas", "floors"):
        if problem.get(name) is not None:
            raise UnsupportedError(
                f"{name} belong to one size; use select at the sizes of interest"
            )
    if not check_flag("include_counts", problem.get("include_counts", True)):
        raise InputError("sizes of a curve count included items too; leave include_counts out")


def _check_sizes(sizes: Any) -> Indices:
    given = plain_array(sizes, "sizes")
    if given.ndim != 1 or not len(given) or given.dtype.kind not in "iu":
        raise InputError(
            f"sizes must be a list of whole numbers, as in [10, 20], not {brief(sizes)}"
        )
    return np.unique(given).astype(np.int64)


def _reaching(problem: Problem, k_max: Any, wanted: Indices | None) -> Problem:
    """The problem at the largest size of the curve."""
    if k_max is None and wanted is not None:
        k_max = int(wanted[-1])
    if k_max is not None:
        k = check_k(k_max, problem.n)
        check_left(problem.intake, problem.n, k, problem.constraints.fixed_out)
        return replace(problem, k=k)
    free = problem.n - len(np.unique(problem.constraints.fixed_out))
    return replace(problem, k=max(problem.k, min(_REACH, free, problem.n - 1)))
