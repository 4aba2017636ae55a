"""What an evaluation of the concave relaxation costs, and how many rows it can be solved on."""

from bisect import bisect_right
from collections.abc import Callable
from functools import partial

import numpy as np

from fairnepv.objective import utility_of
from fairnepv.problem import Problem
from fairnepv.views import View
from fairnepv.views.base import Floats
from fairnepv.views.moments import WIDEST_MOMENTS

_FIRST_ROWS = 500  # T starts with so many, or with a multiple of k
_DENSE_COST = 7e8  # multiply-adds of one evaluation up to which T is simply everything
_MOST_COST = 5e10  # multiply-adds of one evaluation that T may grow to: seconds, for a wide view
# Where so much is factored, rows hardly cost: T starts with so many by column, or with as many as
# cost such a share of a product of all features with k vectors, and may grow to a larger share.
_PER_COLUMN, _FIRST_SHARE, _MOST_SHARE = 8, 0.02, 0.06
_MANY = 200  # items: the eigenvectors of more take longer than their products
_FEWER = 8.0  # times fewer vectors for a view that is looked at crudely
_LITTLE = 0.005  # of the weight of all views, for one that is looked at crudely


def first_size(problem: Problem) -> int:
    """How many rows T starts with, if there are more."""
    size = max(_FIRST_ROWS, 4 * problem.k, _rows_for(problem, _DENSE_COST, evaluation_cost))
    if rows_are_cheap(problem):
        widest = max(view.p for view in problem.pool.views)
        share = _FIRST_SHARE * problem.work()
        size = max(size, _PER_COLUMN * widest, _rows_for(problem, share, evaluation_cost))
    return min(size, most_rows(problem))


def rows_are_cheap(problem: Problem) -> bool:
    """Whether an evaluation factors matrices of the columns, whatever the number of rows."""
    narrow = all(view.p <= WIDEST_MOMENTS for view in problem.pool.views)
    return narrow and utility_of(problem).by_columns


def most_rows(problem: Problem, weights: Floats | None = None) -> int:
    """How many rows T may grow to, where the views have such weights."""
    held = problem.n if problem.means.support is None else problem.means.support
    work = partial(evaluation_work, weights=weights)
    share = _MOST_SHARE if rows_are_cheap(problem) else 0.0
    return min(held, _rows_for(problem, max(_MOST_COST, share * problem.work()), work))


def _rows_for(problem: Problem, cost: float, of: Callable[[Problem, int], float]) -> int:
    """How many rows an evaluation of so many multiply-adds can take, at least one."""
    sizes = range(1, problem.n + 1)  # the cost rises with them
    return max(1, bisect_right(sizes, cost, key=lambda m: of(problem, m)))


def is_cheap(problem: Problem, m: int) -> bool:
    """Whether an evaluation on m rows takes next to no time, so that nothing need be spared."""
    return evaluation_cost(problem, m) <= _DENSE_COST


def evaluation_cost(problem: Problem, m: int) -> float:
    """Multiply-adds of the relaxation and its gradient on m rows: a Gram matrix of the smaller
    side of every view, and its eigenvectors."""
    return float(sum(_factored(problem, view, m) for view in problem.pool.views))


def _factored(problem: Problem, view: View, m: int) -> float:
    side = min(view.p, m)
    return m * side**2 / 2 + utility_of(problem).factored * side**3


def evaluation_work(problem: Problem, m: int, weights: Floats | None = None) -> float:
    """Multiply-adds of an evaluation as it is made, where the views have such weights."""
    views = problem.pool.views
    shares = np.ones(len(views)) if weights is None else weights
    if utility_of(problem).by_columns:
        return evaluation_cost(problem, m)
    own = zip(views, shares.tolist(), strict=True)
    return sum(_view_work(view, m, problem.k, light=share <= _LITTLE) for view, share in own)


def _view_work(view: View, m: int, k: int, *, light: bool) -> float:
    """Of a large side only the leading eigenvectors are computed, in a few products with fewer than
    k columns; their own matrix is dear where k is large. Of sparse rows that matrix, and making
    columns orthogonal, is all there is. For views that hardly weigh few columns will do."""
    side, many = min(view.p, m), max(1.0, k / _MANY)
    factored = m * side**2 / 2 + 4.0 * side**3
    columns = k / _FEWER if light else k * many
    return min(factored, 4.0 * m * columns * (side if view.stored == view.n * view.p else k))
