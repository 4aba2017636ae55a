"""How good any answer can be: upper bounds, recomputed from the data, never from solver memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh

from fairnepv.objective import soft_min
from fairnepv.problem import Problem, by_view
from fairnepv.relaxation.coordinates import WIDEST_GRAM
from fairnepv.views import Pool, View
from fairnepv.views.base import Floats


@dataclass(frozen=True)
class Certificate:
    """No subset of size k scores above `upper_bound`.

    `by_view` holds the bound of each view alone: U_{k,q} [FairNEPv, appendix B], or, where `rules`
    says 'diagonal', Hadamard's bound, because the view is too wide for its eigenvalues.
    """

    upper_bound: float
    by_view: Mapping[str, float]
    diagonal: Mapping[str, float]  # Hadamard's bound, for every view
    ranks: Mapping[str, int | None]  # numerical rank; None where the eigenvalues are not known
    rules: Mapping[str, str]
    tightest_bound: float  # soft-min of `tightest`; proven as well, and often far below

    @property
    def tightest(self) -> Mapping[str, float]:
        """The smaller of the two bounds per view: what the view could at most reach alone."""
        return {name: min(self.by_view[name], self.diagonal[name]) for name in self.by_view}


def certify(problem: Problem) -> Certificate:
    """The spectral certificate: the soft-min of what each view could reach alone."""
    pool, k = problem.pool, problem.k
    diagonal = np.array([diagonal_bound(view, k) for view in pool.views])
    bounds = diagonal.copy()
    ranks: dict[str, int | None] = dict.fromkeys(pool.names)
    rules = dict.fromkeys(pool.names, "diagonal")
    for q, (name, view) in enumerate(pool.items()):
        if min(view.n, view.p) <= WIDEST_GRAM:
            lam = _kernel_eigenvalues(pool, q)
            bounds[q] = spectral_bound(lam, view, k)
            ranks[name] = _rank(lam)
            rules[name] = "spectral"
    return Certificate(
        upper_bound=float(soft_min(bounds, problem.tau)),
        by_view=by_view(pool, bounds),
        diagonal=by_view(pool, diagonal),
        ranks=ranks,
        rules=rules,
        tightest_bound=float(soft_min(np.minimum(bounds, diagonal), problem.tau)),
    )


def spectral_bound(lam: Floats, view: View, k: int) -> float:
    """U_{k,q} = (1/k) sum of the k largest log eigenvalues of L_q [FairNEPv, appendix B].

    `lam` holds the eigenvalues of the feature Gram matrix, descending. They carry an error of the
    order of rounding times the largest, which is added, so that the bound stays a bound.
    """
    top = np.zeros(k)
    top[: min(k, len(lam))] = np.maximum(lam[:k], 0.0)
    allowance = len(lam) * np.finfo(np.float64).eps * top[0]
    return float(np.log(top + allowance + view.ridge).mean() + view.offset)


def diagonal_bound(view: View, k: int) -> float:
    """Hadamard: log det L[S, S] is at most the sum of the k largest log L_ii."""
    largest = np.partition(view.squared_norms, view.n - k)[view.n - k :]
    return float(np.log(largest + view.ridge).mean() + view.offset)


def _kernel_eigenvalues(pool: Pool, q: int) -> Floats:
    """Nonzero eigenvalues of K_q, descending, from a Gram matrix of its smaller side."""
    view = pool.views[q]
    if view.n < view.p:  # K_q itself is the smaller one
        gram = view.whole_kernel()
    elif pool.width <= WIDEST_GRAM:  # the joint Gram matrix serves the relaxation as well
        start = sum(view.p for view in pool.views[:q])
        block = slice(start, start + view.p)
        gram = pool.gram[block, block]
    else:
        gram = pool.only(pool.names[q]).gram
    return np.asarray(eigvalsh(gram, check_finite=False)[::-1])


def _rank(lam: Floats) -> int:
    return int((lam > len(lam) * np.finfo(np.float64).eps * lam[0]).sum())
