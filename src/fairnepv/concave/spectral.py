"""Bounds without a solver: eigenvalues [FairNEPv, appendix B], and Hadamard's inequality."""

from typing import NamedTuple

import numpy as np

from fairnepv.compute import few_threads
from fairnepv.compute.clock import expect
from fairnepv.loop import Context
from fairnepv.problem import WIDEST_GRAM, Problem
from fairnepv.views import Pool, View
from fairnepv.views.base import Floats

_CHEAP = 1.2e10  # multiply-adds of eigenvalues that any problem is worth: a fraction of a second
_EIGENVALUES = 4.0 / 3.0  # operations, times the cube of the columns
_PRODUCTS = 10.0  # and besides so many of its products of all features with k vectors


class Spectral(NamedTuple):
    """U_{k,q} of every view; Hadamard's bound where the eigenvalues are not known."""

    bounds: Floats  # (M,)
    diagonal: Floats  # (M,) Hadamard's bound, for every view
    ranks: list[int | None]  # numerical rank; None where the eigenvalues are not known


def spectral_bounds(problem: Problem, session: Context) -> Spectral:
    """The bounds of every view that need no solver; what there is no time for is left out."""
    pool, k = problem.pool, problem.k
    diagonal = np.array([diagonal_bound(view, k) for view in pool.views])
    bounds = diagonal.copy()
    ranks: list[int | None] = [None] * len(bounds)
    for q, view in enumerate(pool.views):
        if not knows_spectrum(problem, view) or session.stopped:
            continue
        with session.absorbing_interruption():
            lam = _kernel_eigenvalues(pool, q)
            bounds[q] = spectral_bound(lam, view, k)
            ranks[q] = int((lam > len(lam) * np.finfo(np.float64).eps * lam[0]).sum())
    return Spectral(bounds, diagonal, ranks)


def knows_spectrum(problem: Problem, view: View) -> bool:
    """Whether eigenvalues of a view, which only the paper's bound needs, are worth their work."""
    work = spectral_work(view)
    return min(view.n, view.p) <= WIDEST_GRAM and work <= affordable_spectrum(problem)


def spectral_work(view: View) -> float:
    """Multiply-adds of a Gram matrix of the smaller side, and of its eigenvalues."""
    side, other = sorted((view.n, view.p))
    return side**2 * other / 2 + 4.0 * side**3


def affordable_spectrum(problem: Problem) -> float:
    """Multiply-adds that the eigenvalues of one view may take."""
    return _CHEAP + _PRODUCTS * problem.work()


def spectral_bound(lam: Floats, view: View, k: int) -> float:
    """U_{k,q} = (1/k) sum of the k largest log eigenvalues of L_q [FairNEPv, appendix B].

    `lam` holds the eigenvalues of the feature Gram matrix, descending. They carry an error of the
    order of rounding times the largest, which is added, so that the bound stays a bound; so is what
    the features of a kernel leave out.
    """
    top = np.zeros(k)
    top[: min(k, len(lam))] = np.maximum(lam[:k], 0.0)
    allowance = len(lam) * np.finfo(np.float64).eps * top[0]
    return float(np.log(top + allowance + view.tail + view.ridge).mean() + view.offset)


def diagonal_bound(view: View, k: int) -> float:
    """Hadamard: log det L[S, S] is at most the sum of the k largest log L_ii.

    A norm carries the rounding of p products, a mean that of k terms, which are added. Of a kernel
    that was rounded and lost eigenvalues below zero, the diagonal is too small by what it lacks.
    """
    largest = np.partition(view.squared_norms, view.n - k)[view.n - k :]
    logs = np.log(largest + view.lack() + view.ridge)
    rounding = (view.p + 8) + (k + 8) * np.abs(logs).mean() + abs(view.offset)
    bound = float(logs.mean() + view.offset + rounding * np.finfo(np.float64).eps)
    return bound + score_rounding(bound)


def score_rounding(score: float) -> float:
    """What a score that is held against a bound may itself owe to rounding."""
    return 1e-12 * (1.0 + abs(score))


def _kernel_eigenvalues(pool: Pool, q: int) -> Floats:
    """Nonzero eigenvalues of K_q, descending, from a Gram matrix of its smaller side."""
    view = pool.views[q]
    expect(_EIGENVALUES * min(view.n, view.p) ** 3)
    if view.n < view.p:  # K_q itself is the smaller one
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
