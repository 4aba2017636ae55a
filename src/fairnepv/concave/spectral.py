"""Bounds without a solver: eigenvalues [FairNEPv, appendix B], and Hadamard's inequality.

The first bound all frames, the second sets of rows alone: neither stands in for the other.
"""

from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import few_threads
from fairnepv.compute.clock import expect
from fairnepv.concave.leading import by_passes, by_trace
from fairnepv.loop import Context
from fairnepv.objective import UTILITIES, Utility, utility_of
from fairnepv.problem import DEFAULT_UTILITY, WIDEST_GRAM, Problem
from fairnepv.views import Pool, View
from fairnepv.views.base import Floats

_CHEAP = 1.2e10  # multiply-adds of eigenvalues that any problem is worth: a fraction of a second
_EIGENVALUES = 4.0 / 3.0  # operations, times the cube of the columns
_PRODUCTS = 10.0  # and besides so many of its products of all features with k vectors
_HURRIED = 1.0 / 16  # of that work, for a bound beside the one that a search goes by
_DIVERSE = UTILITIES[DEFAULT_UTILITY]


class Spectral(NamedTuple):
    """U_{k,q} of every view, or at least that where not all of its eigenvalues are known."""

    bounds: Floats  # (M,)
    diagonal: Floats  # (M,) Hadamard's bound
    ranks: list[int | None]  # numerical rank; None where the eigenvalues are not known


def spectral_bounds(problem: Problem, session: Context, hurries: bool = False) -> Spectral:
    """The bounds of every view that need no solver; where eigenvalues are not worth their work, by
    what their sum leaves, and less work goes into that where the caller is in a hurry."""
    pool, k, utility = problem.pool, problem.k, utility_of(problem)
    diagonal = np.array([diagonal_bound(view, k, utility) for view in pool.views])
    lams = [by_trace(problem, q) for q in range(len(pool.views))]
    ranks: list[int | None] = [None] * len(lams)
    for q, view in enumerate(pool.views):
        if session.stopped:
            break
        with session.absorbing_interruption():
            if not knows_spectrum(problem, view):
                worth = affordable_spectrum(problem)
                lams[q] = by_passes(problem, q, _HURRIED * worth if hurries else worth)
                continue
            lams[q] = lam = _eigenvalues(pool, q, utility.spectral_gram(view))
            ranks[q] = int((lam > len(lam) * np.finfo(np.float64).eps * lam[0]).sum())
    pairs = zip(lams, pool.views, strict=True)
    bounds = np.array([spectral_bound(lam, view, k, utility) for lam, view in pairs])
    return Spectral(bounds, diagonal, ranks)


def knows_spectrum(problem: Problem, view: View) -> bool:
    """Whether eigenvalues of a view, which only the paper's bound needs, are worth their work."""
    if view.moments is not None and view.moments.gram is None:  # G acts through rows, or a sample
        return False
    work = spectral_work(view)
    return min(view.n, view.p) <= WIDEST_GRAM and work <= affordable_spectrum(problem)


def spectral_work(view: View) -> float:
    """Multiply-adds of a Gram matrix of the smaller side, and of its eigenvalues."""
    side, other = sorted((view.n, view.p))
    return side**2 * other / 2 + 4.0 * side**3


def affordable_spectrum(problem: Problem) -> float:
    """Multiply-adds that the eigenvalues of one view may take."""
    return _CHEAP + _PRODUCTS * problem.work()


def spectral_bound(lam: Floats, view: View, k: int, utility: Utility = _DIVERSE) -> float:
    """U_{k,q} by the eigenvalues `lam` that the utility asks for, descending."""
    bound = utility.spectral_bound(lam, view, k)
    return bound + score_rounding(bound)


def diagonal_bound(view: View, k: int, utility: Utility = _DIVERSE) -> float:
    """What the norms of rows prove by themselves: Hadamard's bound, for log-determinants."""
    bound = utility.norm_bound(view, k)
    return bound + score_rounding(bound)


def score_rounding(score: float) -> float:
    """What a score that is held against a bound may itself owe to rounding."""
    return 1e-12 * (1.0 + abs(score))


def _eigenvalues(pool: Pool, q: int, gram: Any) -> Floats:
    """Eigenvalues of a matrix, or the nonzero ones of K_q, descending, from a Gram matrix of its
    smaller side."""
    view = pool.views[q]
    expect(_EIGENVALUES * (min(view.n, view.p) if gram is None else view.p) ** 3)
    if gram is not None:
        gram = view.place.put(gram)
    elif view.n < view.p:  # K_q itself is the smaller one
        gram = view.whole_kernel()
    elif "gram" in vars(pool):  # the joint one, which the relaxation has left here
        start = sum(view.p for view in pool.views[:q])
        block = slice(start, start + view.p)
        gram = pool.gram[block, block]
    else:
        gram = pool.only(pool.names[q]).gram
    expect(_EIGENVALUES * len(gram) ** 3)
    with few_threads(float(len(gram)) ** 3):
        return np.asarray(view.place.eigenvalues(gram)[::-1])
