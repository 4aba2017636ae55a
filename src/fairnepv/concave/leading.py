"""The k largest eigenvalues of a view from above, where all of them would take too long.

A few passes find values that the largest eigenvalues are at least, and their sum, and where that is
affordable the sum of their squares, leave so much for the others and no more
(docs/method.md#eigenvalues-from-above). What follows holds for every frame, as the paper's bound.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import eigvalsh, qr

from fairnepv.compute import HOST, Block
from fairnepv.compute.clock import check_time
from fairnepv.problem import Problem, Stream
from fairnepv.views import View
from fairnepv.views.base import Floats

_PASSES = 3  # products with G: two of them are power steps from random vectors
_SPARSE = 20.0  # a multiply-add of SciPy's sparse products takes as long as so many of BLAS
_PART = 4  # of `Means.arena`, what a block of vectors may take
_CHUNK = 1 << 22  # entries of a kernel at a time
_MOST_ROWS = 1 << 15  # whose kernel is passed through for the sum of its squares
_BISECTIONS = 60
_UNIT = np.finfo(np.float64).eps


def largest_spectrum(
    low: Floats, total: float, squares: float, rank: int, k: int, unsure: float = 0.0
) -> Floats:
    """The k largest of `rank` values, none of them negative, that score highest under any
    increasing concave function of each: where the i-th largest is at least low[i] (descending),
    their sum is `total`, up to a relative error, and that of their squares at most `squares`.

    They are max(low_i, mu), and those beyond k max(low_i, nu), with nu = 0 where the squares allow
    it.
    """
    k = min(k, rank)
    unit = total if total > 0 else 1.0  # in which squares neither overflow nor vanish
    padded = np.zeros(max(k, len(low)))
    padded[: len(low)] = low / unit
    total, squares = total / unit, squares / unit / unit
    top, rest, others = padded[:k], padded[k:], rank - len(padded)

    def filled(total: float, nu: float) -> tuple[Floats, float, bool]:
        held = np.maximum(rest, nu)
        left = total - float(held.sum()) - others * nu
        raised = _raised(top, left)
        sum_of_squares = float(raised @ raised + held @ held) + others * nu**2
        return raised, sum_of_squares, left >= top.sum() and raised[-1] >= nu

    found, reached, _ = filled(total * (1.0 + unsure), 0.0)
    if reached <= squares:
        return found * unit
    least = total * (1.0 - unsure)  # which leaves more for the k largest where the squares bind
    below, above = 0.0, least / rank
    for _ in range(_BISECTIONS):  # every nu that leaves too large a sum of squares proves a bound
        nu = (below + above) / 2
        raised, reached, sound = filled(least, nu)
        if sound and reached >= squares:
            found, below = raised, nu
        else:
            above = nu
    return found * unit


def _raised(top: Floats, total: float) -> Floats:
    """max(top_i, mu), descending, of this sum; `top` itself where that is larger already."""
    before = np.concatenate([[0.0], np.cumsum(top)[:-1]])
    levels = (total - before) / np.arange(len(top), 0, -1)
    reached = np.flatnonzero(top <= levels)
    return np.maximum(top, levels[reached[0]]) if len(reached) else top


# --- what is known of a view ----------------------------------------------------------------------


def by_trace(problem: Problem, q: int) -> Floats:
    """The k largest eigenvalues of a view as their sum alone bounds them: no pass."""
    return _from_above(problem, q, np.zeros(0), np.inf)


def by_passes(problem: Problem, q: int, affordable: float) -> Floats:
    """The same by some of them and by their squares, as far as so many multiply-adds go."""
    view = problem.pool.views[q]
    low = _some_eigenvalues(problem, q, affordable)
    squares = np.inf
    if _squares_work(view) <= affordable:
        with np.errstate(over="ignore"):  # an infinite sum bounds nothing
            squares = _sum_of_squares(problem, view)
    return _from_above(problem, q, low, squares)


def _from_above(problem: Problem, q: int, low: Floats, squares: float) -> Floats:
    view = problem.pool.views[q]
    unsure = _unsure(view)
    more = squares * (1.0 + 2.0 * unsure)
    return largest_spectrum(low, _trace(view), more, _rank(view), problem.k, unsure)


def _some_eigenvalues(problem: Problem, q: int, affordable: float) -> Floats:
    """Lower bounds on the largest eigenvalues of G = Phi^T Phi, descending: the singular values of
    G Q, for Q with orthonormal columns, are at most those of G."""
    view, apply = problem.pool.views[q], _gram_times(problem, q)
    room = problem.means.arena // _PART // view.p
    dear = _SPARSE if view.stored < view.n * view.p else 1.0
    worth = affordable / (2.0 * _PASSES * dear * max(view.stored, 1))
    columns = int(min(2 * problem.k, _rank(view), room, worth))
    if columns < 1:
        return np.zeros(0)
    X = problem.rng(Stream.SPECTRUM, q).standard_normal((view.p, columns))
    for _ in range(_PASSES - 1):
        X = apply(X)
        X /= max(float(np.abs(X).max()), np.finfo(np.float64).tiny)
    X = apply(qr(X, mode="economic", check_finite=False)[0])
    unit = max(float(np.abs(X).max()), np.finfo(np.float64).tiny)  # squares may overflow otherwise
    X /= unit
    squares = eigvalsh(X.T @ X, check_finite=False)[::-1]
    return np.asarray(np.sqrt(np.maximum(squares - _unsure(view) * squares[0], 0.0)) * unit)


def _gram_times(problem: Problem, q: int) -> Callable[[Floats], Floats]:
    """Y -> G Y (p, m), one pass over the rows."""
    view = problem.pool.views[q]
    if view.moments is not None:
        place = view.block_place
        return lambda Y: np.asarray(place.get(view.moments.apply(place.put(Y), place)))
    alone = problem.pool.only(problem.pool.names[q])

    def product(Y: Floats) -> Floats:
        size: Any = {"width": 2 * Y.shape[1], "total": Y.size}
        return np.asarray(alone.reduce(_block_product, np.add, Y, **size, fixed=True))

    return product


def _block_product(block: Block, Y: Floats) -> Floats:
    """Phi^T Phi Y on these rows."""
    Phi = block.views[0].features()
    return np.asarray(Phi.T @ (Phi @ Y))


def _trace(view: View) -> float:
    """At least the sum of the eigenvalues."""
    if view.moments is not None:
        return float(view.moments.trace)
    return float(view.squared_norms.sum()) + view.n * view.lack()


def _rank(view: View) -> int:
    """At least how many eigenvalues are not zero."""
    if view.moments is None:
        return min(view.n, view.p)
    return view.p if view.moments.gram is not None else min(view.moments.targets.shape[0], view.p)


def _unsure(view: View) -> float:
    """What rounding may make of a sum over rows and columns, relative to it."""
    return 8.0 * (view.n + view.p) * _UNIT * view.cancellation


def _squares_work(view: View) -> float:
    """Multiply-adds of all entries of the kernel, at most; inf where these are too many, or are not
    what the features give."""
    if view.moments is not None:
        held = view.moments.gram is not None
        return view.p**2 if held else view.moments.targets.shape[0] * _entries(view.moments.targets)
    if view.n > _MOST_ROWS or view.tail > 0 or view.lack() > 0:
        return np.inf
    return float(view.n) * view.stored


def _entries(rows: Any) -> float:
    return float(rows.nnz if hasattr(rows, "nnz") else rows.size)


def _sum_of_squares(problem: Problem, view: View) -> float:
    """The sum of the squares of all eigenvalues: of all entries of K, or of G."""
    if view.moments is not None and view.moments.gram is not None:
        gram = view.block_place.get(view.moments.gram)
        return float(np.vdot(gram, gram))
    targets = None if view.moments is None else view.moments.targets
    n = view.n if targets is None else targets.shape[0]
    everyone, chunk = np.arange(n), max(1, min(_CHUNK, problem.means.arena) // n)
    total = 0.0
    for start in range(0, n, chunk):
        check_time()
        some = everyone[start : start + chunk]
        K = view.inner(some, everyone) if targets is None else HOST.dense(targets[some] @ targets.T)
        total += float(np.vdot(K, K))
    return total
