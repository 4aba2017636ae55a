"""Exhaustive search for small pools: the discrete optimum itself [FairNEPv, appendix B]."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairnepv.compute.clock import check_time
from fairnepv.errors import InputError
from fairnepv.objective import (
    FLOOR_ROUNDING,
    lifted_floors,
    merit,
    steepness,
    subset_merit,
    subset_scores,
    utility_of,
)
from fairnepv.options import default
from fairnepv.problem import Problem
from fairnepv.search.ties import lost_below_zero, rounding
from fairnepv.views.base import Floats, Indices

_MOST_WORK = 1e12  # subsets times k^3 operations of a determinant
_BATCH_NUMBERS = 1 << 20


@dataclass(frozen=True)
class Enumeration:
    indices: Indices  # the optimum; of tied ones the first in lexicographic order
    value: float
    subsets: int  # how many were looked at
    tied: NDArray[np.int64]  # (t, k) all that lie within the tie tolerance of the best

    @property
    def ties(self) -> int:
        return len(self.tied)


def enumerate_subsets(problem: Problem, limit: int = default("limit")) -> Enumeration:
    """Every k-subset that the constraints allow, scored by F_tau."""
    n, k = problem.n, problem.k
    count = math.comb(n, k)
    if count > limit:
        raise InputError(
            f"enumeration would look at {count:,} subsets (n = {n}, k = {k}), more than the limit "
            f"of {limit:,}; use select(), which searches and bounds instead"
        )
    if count * k**3 > _MOST_WORK:
        raise InputError(
            f"enumeration would take {count:,} determinants of size {k}; use select(), which "
            "searches and bounds instead"
        )
    rules, looked, unsure = problem.constraints, 0, _unsure(problem)
    subsets, scores = np.empty((0, k), dtype=np.int64), np.empty(0)  # those tied with the best
    for batch in _batches(n, k):
        check_time()
        if rules:
            batch = batch[[rules.is_met(subset) for subset in batch]]
        looked += len(batch)
        batch, batch_scores = _contenders(problem, batch, scores.max(initial=-np.inf), unsure)
        subsets = np.concatenate([subsets, batch])
        scores = np.concatenate([scores, batch_scores])
        tied = scores >= scores.max(initial=-np.inf) - problem.tolerances.tie
        subsets, scores = subsets[tied], scores[tied]
    assert len(subsets), "Problem refuses constraints that no subset meets"
    indices = subsets[0]
    refuse_missed_floors(problem, indices)
    return Enumeration(indices, subset_merit(problem, indices), looked, subsets)


def _batches(n: int, k: int) -> Iterator[NDArray[np.int64]]:
    """All k-subsets in lexicographic order, (m, k) at a time."""
    subsets = itertools.combinations(range(n), k)
    size = max(1, _BATCH_NUMBERS // k**2)
    while chunk := list(itertools.islice(subsets, size)):
        yield np.array(chunk, dtype=np.int64)


def _unsure(problem: Problem) -> float:
    """How far determinants of kernels may be from scores."""
    pool, held = problem.pool, problem.pool.eps > 0
    noise = rounding(pool.largest_norms[held], pool.eps[held], 1) + lost_below_zero(pool)
    # What is per item in nats is added up in shares of variance.
    return steepness(problem) * noise * problem.k / utility_of(problem).divisor(problem.k)


def _contenders(
    problem: Problem, batch: NDArray[np.int64], best: float, unsure: float
) -> tuple[NDArray[np.int64], Floats]:
    """The subsets of a batch that may be as good as any, and their scores.

    A small ridge drowns in the rounding of a kernel, whose determinant may then even be negative:
    whichever subset could be the best for all that this tells is scored from its rows.
    """
    tie = problem.tolerances.tie
    scores = _scores(problem, batch)
    if unsure <= tie:
        return batch, np.nan_to_num(scores, nan=-np.inf)
    least = max(best, scores[np.isfinite(scores)].max(initial=-np.inf) - unsure)
    near = batch[~(scores < least - unsure - tie)]  # among them what has no score
    return near, np.array([subset_merit(problem, subset) for subset in near])


def _scores(problem: Problem, batch: NDArray[np.int64]) -> Floats:
    """(m,) F_tau of every subset of a batch; nan where rounding leaves no score of it."""
    utility, views = utility_of(problem), problem.pool.views
    divisor = utility.divisor(problem.k)
    d = np.array([utility.totals(view, batch) / divisor + view.offset for view in views])
    return np.asarray(merit(d + problem.lifts[:, None], problem.tau, lifted_floors(problem)))


def misses_floors(problem: Problem, indices: Indices) -> bool:
    if problem.floors is None:
        return False
    d = subset_scores(problem.pool, indices, problem.utility)
    return bool((d < problem.floors - FLOOR_ROUNDING).any())


def refuse_missed_floors(problem: Problem, best: Indices) -> None:
    """For searches that have looked at everything: the best set misses a floor, so all do."""
    if problem.floors is None:
        return
    d = subset_scores(problem.pool, best, problem.utility)
    missed = np.flatnonzero(d < problem.floors - FLOOR_ROUNDING)
    if len(missed):
        q = int(missed[0])
        raise InputError(
            f"no {problem.k} items reach the floors: the set that comes closest leaves view "
            f"{problem.pool.names[q]!r} at {d[q]:.4f}, below its floor {problem.floors[q]:.4f}; "
            "lower the floors"
        )
