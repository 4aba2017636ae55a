"""The record that every method and every bound receives: what is to be chosen, from what, how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.checks import brief
from fairnepv.constraints import Constraints as Constraints
from fairnepv.constraints import Mask as Mask
from fairnepv.constraints import Quotas as Quotas
from fairnepv.constraints import largest as largest
from fairnepv.errors import InputError
from fairnepv.options import DIVERSE, default
from fairnepv.views import Calibration, Pool
from fairnepv.views.base import Floats, Indices
from fairnepv.views.moments import with_moments

WIDEST_GRAM = 4096  # a (P, P) Gram matrix and its eigenvectors: 256 MiB, half a minute

_MOST_LIFT = 1e5  # nats beside which float64 still tells scores apart by the tie tolerance
_MANY = 256  # picks among few rows that a device makes sooner than the host

DEFAULT_UTILITY = DIVERSE  # of `objective.UTILITIES`: log-determinants


class Stream(IntEnum):
    """What random numbers are drawn for; each purpose has a stream of its own."""

    RANDOM_START = 0  # of a relaxation on frames
    CURVATURE = 1  # the check of what it converged to, by attempt
    TENURE = 2  # how long rows are closed in a tabu search, by round
    RANDOM_BASELINE = 3
    KDPP_BASELINE = 4  # by sample
    RELAXED_SAMPLE = 5  # sets drawn from the relaxed x, by sample
    COVERAGE = 6  # rows that coverage is measured on
    FILLED = 7  # rows of a set that was cut short
    SPECTRUM = 8  # vectors that eigenvalues of a wide view are bounded by, by view
    LOT = 9  # sets that a score is held against, by draw
    MAP = 10  # rows that the axes of a map are found from, and the rows that it shows


@dataclass(frozen=True)
class Tolerances:
    """`tie`: candidates this close are tied, and the lowest index wins (docs/method.md#ties).
    `gain`: what a move must bring to be made. `residual`: k ||A_perp||_F at convergence."""

    tie: float = 1e-10
    gain: float = 1e-10
    residual: float = 1e-6


@dataclass(frozen=True)
class Means:
    """What may be held in memory. Less of it takes longer, or forgoes a start or some tightness of
    the bound; `planning` chooses it where there is a limit."""

    table: int = 1 << 27  # numbers of a swap table, or of rows that a relaxation converts once;
    # more of them are made anew in every pass
    confirmed: int = 1 << 22  # float64 numbers of rows whose swaps are confirmed at a time
    support: int | None = None  # rows that the certificate solves its relaxation on, at most
    arena: int = 1 << 24  # float64 numbers of a tabu search among few rows
    relaxation: bool = True  # whether frames are relaxed for a start that is one among several


@dataclass(frozen=True)
class Intake:
    """What was done with rows on the way in: what became of those that lack a view, and which may
    not be chosen for that or for being like another."""

    missing: str = default("missing")
    deduplicate: float | None = None
    ruled_out: Indices = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class Problem:
    """The pool is calibrated already; `calibration` says how, so that it can be done again."""

    pool: Pool
    k: int
    tau: float
    calibration: Calibration
    constraints: Constraints = field(default_factory=Constraints)
    tolerances: Tolerances = field(default_factory=Tolerances)
    random_state: int = default("random_state")
    priorities: Floats | None = None  # (M,) weights in the soft-min, summing to one; None: equal
    floors: Floats | None = None  # (M,) least d_q, -inf where there is none; None: none at all
    means: Means = field(default_factory=Means)
    utility: str = DEFAULT_UTILITY  # what a view is asked for, by its name in `objective`
    intake: Intake = field(default_factory=Intake)

    def __post_init__(self) -> None:
        self.constraints.check(self.pool.n, self.k)
        lift = float(np.abs(self.lifts).max())
        if not lift <= _MOST_LIFT:
            raise InputError(
                f"tau = {self.tau:g} is too large for these priorities, which lift scores by up to "
                f"{lift:.3g} nats, where float64 cannot tell them apart; give a tau of at most "
                f"{0.9 * self.tau * (_MOST_LIFT / lift):.2g}, whose soft-min is all but the "
                "weighted mean"
            )

    @property
    def n(self) -> int:
        return self.pool.n

    @property
    def lifts(self) -> Floats:
        """(M,) -tau log(M pi_q): what priorities pi add to d_q inside of the soft-min.

        -tau log sum_q pi_q exp(-d_q/tau) is the plain soft-min of d_q + lift_q, so nothing else
        needs to know of priorities.
        """
        M = len(self.pool.views)
        if self.priorities is None or np.isinf(self.tau):
            return np.zeros(M)
        return np.asarray(-self.tau * np.log(M * self.priorities))

    @property
    def offsets(self) -> Floats:
        """(M,) what stands beside (1/k) log det (K_q + eps_q I) inside of the soft-min."""
        return np.asarray(self.pool.offsets + self.lifts)

    def rng(self, *purpose: int) -> np.random.Generator:
        """A generator of its own for each purpose, a `Stream` and perhaps a number within it, so
        that resuming needs no stored state."""
        seeds = np.random.SeedSequence(self.random_state, spawn_key=purpose)
        return np.random.default_rng(seeds)

    def ids_of(self, rows: Indices) -> NDArray[Any]:
        """What these rows are called: their ids, or their numbers where the data has no ids."""
        return rows if self.pool.ids is None else self.pool.ids[rows]

    def over(self, pool: Pool, tau: float | None = None) -> Problem:
        """The same task on other views of the same rows, as the baselines pose it."""
        tau = self.tau if tau is None else tau
        if self.pool.views[0].moments is not None:  # the utility asks for them
            quality = self.pool.quality
            mean = quality and sum(quality.values()) / len(quality)
            pool = with_moments(pool, None if quality is None else dict.fromkeys(pool.names, mean))
        return replace(self, pool=pool, tau=tau, priorities=None, floors=None)

    def take(self, rows: Indices) -> Problem:
        """The same task on these rows alone; indices then count within `rows`."""
        pool = self.pool.take(rows, there=self.k >= _MANY)
        return replace(self, pool=pool, constraints=self.constraints.take(rows))

    def work(self) -> float:
        """Multiply-adds of one product of all features with k vectors: the unit of all passes."""
        return float(self.pool.stored) * self.k


def check_k(k: Any, n: int) -> int:
    """k as an integer from 1 to n - 1; a fraction between 0 and 1 counts of n."""
    if isinstance(k, bool | np.bool_) or not isinstance(k, int | float | np.integer | np.floating):
        raise InputError(f"k must be an integer or a fraction between 0 and 1, not {brief(k)}")
    if isinstance(k, float | np.floating):
        if not 0 < k < 1:
            raise InputError(
                f"k must be an integer or a fraction strictly between 0 and 1, not {float(k)!r}"
            )
        return min(max(1, round(float(k) * n)), n - 1)
    if not 1 <= k < n:
        raise InputError(f"k must be from 1 to n - 1 = {n - 1}, not {brief(int(k))}")
    return int(k)


def by_view(pool: Pool, values: Floats) -> Mapping[str, float]:
    """Numbers of the views under their names."""
    return {name: float(value) for name, value in zip(pool.names, values, strict=True)}
