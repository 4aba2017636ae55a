"""Rows scaled and converted once for all passes of a relaxation, where memory allows it.

To make float64 features of scaled float32 rows takes as long as half of a product with a hundred
columns, and a relaxation multiplies a hundred times. Products have the same bits either way.
"""

from typing import Any

import numpy as np

from fairnepv.compute import HOST, LocalEngine
from fairnepv.compute.clock import check_time
from fairnepv.compute.local import BLOCK_NUMBERS
from fairnepv.problem import Problem
from fairnepv.views import Pool, View
from fairnepv.views.base import Floats, Indices
from fairnepv.views.blocks import DenseBlock
from fairnepv.views.sparse import SparseBlock


def converts_rows(problem: Problem) -> bool:
    """Whether passes go over converted rows: they fit, and lie where they are multiplied."""
    pool = problem.pool
    return isinstance(pool.engine, LocalEngine) and pool.stored <= problem.means.table


def converted_rows(problem: Problem) -> Pool:
    """The pool with its rows converted, or as it is where `converts_rows` says no."""
    pool = problem.pool
    if not converts_rows(problem):
        return pool
    return pool.with_views(pool.names, tuple(map(_converted, pool.views)))


def _converted(view: View) -> View:
    if not isinstance(view.rows(slice(0, 1)), np.ndarray):  # sparse, centred or not
        return ConvertedView(view, view.rows(slice(0, view.n)))
    features = np.empty((view.n, view.p))
    size = max(1, BLOCK_NUMBERS // view.p)  # rows at a time, so that no second copy is made of all
    for start in range(0, view.n, size):
        check_time()  # all of them take as long as a product
        features[start : start + size] = view.rows(slice(start, min(start + size, view.n)))
    return ConvertedView(view, features)


class ConvertedView(View):
    """A view as a relaxation sees it: the scaled rows in float64, an array or sparse."""

    def __init__(self, view: View, features: Any) -> None:
        self._features, self._stored, self._norms = features, view.stored, view.squared_norms
        self.n, self.p, self.eps, self.offset = view.n, view.p, view.eps, view.offset

    @property
    def stored(self) -> int:
        return self._stored

    def raw_rows(self, rows: Indices | slice) -> Any:
        return self._features[rows]

    def raw_squared_norms(self) -> Floats:
        return self._norms

    def block(self, start: int, stop: int) -> Any:
        rows = self._features[start:stop]
        dense = isinstance(rows, np.ndarray)
        return DenseBlock(rows, None, HOST, False) if dense else SparseBlock(rows)
