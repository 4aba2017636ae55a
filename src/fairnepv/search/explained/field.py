"""What rows know of the picks of a greedy search: all rows of the pool, or few of them.

A `Field` has c and b of its rows (`search.explained.frontier` has the letters). A look multiplies
them by the directions of some picks: it says what that changes, and which rows may have been as
good as one of these picks when it was made.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import HOST, Block, LocalEngine, Place, portable
from fairnepv.search.ties import COARSEST
from fairnepv.views.base import Floats
from fairnepv.views.pool import Pool


class Told(NamedTuple):
    """What a look tells rows of: s picks in M views."""

    columns: tuple[Any, ...]  # (p, 2 s) of every view: directions, then second ones
    gammas: Floats  # (M, s)
    eps: Floats  # (M,)
    weights: Floats  # (M, s) slopes of F_tau at the picks
    least: Floats  # (s,) from this sum of gains on, times these slopes, a row may be as good
    coarse: bool


class Look(NamedTuple):
    """What came of a look, where the rows are."""

    products: Any  # (m, M, 2, s)
    falls: Any  # (m, M) of c, by all of the picks
    rises: Any  # (m, M) of b
    near: Any  # (m,) not 0 where a row may have been as good as one of the picks


class Field:
    """c and b (M, m) of some rows of the pool, or of all; the same rows (m, P) as float32, where
    they are held; and (M,) squares of what float32 may have moved b by."""

    def __init__(self, pool: Pool, c: Any, b: Any, single: Any, drift: Floats) -> None:
        self.pool, self.place = pool, pool.place
        self.c, self.b, self.single, self.drift = c, b, single, drift
        self.rows: Any = None  # of the pool of all, ascending; None: these are all

    def take(self, rows: Any) -> Field:
        """These rows, with what they know by now, in a pool of their own."""
        host = self.place is HOST
        pool = self.pool.take(self.place.get(rows), there=not host)
        pool = replace(pool, engine=LocalEngine()) if host else pool
        single = None if self.single is None else self.single[rows]
        found = Field(pool, self.c[:, rows], self.b[:, rows], single, self.drift.copy())
        found.rows = self.in_pool(self.place.get(rows))
        return found

    def in_pool(self, rows: Any) -> Any:
        """Rows of the field, by number, as rows of the pool of all."""
        return rows if self.rows is None else self.rows[rows]

    def place_of(self, row: int) -> int:
        """A row of the pool of all, as one of the field."""
        return row if self.rows is None else int(np.searchsorted(self.rows, row))

    def look(self, told: Told) -> Look:
        M, s = told.gammas.shape
        held = () if self.single is None else (self.single,)
        found = self.pool.map(_look, told, *self._known, *held, width=4 * M * s, fixed=True)
        ends = np.cumsum([0, 2 * M * s, M, M]).tolist()
        products, falls, rises = (found[:, i:j] for i, j in itertools.pairwise(ends))
        return Look(products.reshape(-1, M, 2, s), falls, rises, found[:, -1])

    def hear(self, look: Look, gammas: Floats) -> None:
        """Change c and b by the first picks of a look: those that `gammas` (M, t) are of."""
        whole, eps = gammas.shape[1] == look.products.shape[3], self.pool.eps
        for q, own in enumerate(gammas):
            fall, rise = look.falls[:, q], look.rises[:, q]
            if not whole:
                f, second = (look.products[:, q, i, : len(own)] for i in (0, 1))
                fall = self.place.row_dots(f, f)
                own = self.place.xp.astype(self.place.put(own), f.dtype)
                rise = _rise(f, second, own).sum(axis=1)
            self.c[q] = above(self.c[q] - fall, float(eps[q]))
            self.b[q] = (self.b[q] + rise).clip(0.0)

    def gains_before(self, look: Look, rows: Any, told: Told) -> Any:
        """(M, m, s) what few rows had to add before each of the picks of a look."""
        products = [look.products[rows, q].reshape(len(rows), -1) for q in range(len(told.eps))]
        known = tuple(x[rows] for x in self._known)
        return self.place.xp.stack(_gains_before(products, told, known, self.place))

    @property
    def _known(self) -> tuple[Any, Any]:
        """c and b by row."""
        return self.c.T, self.b.T


def above(c: Any, eps: float) -> Any:
    """A variance is at least its ridge, whatever rounding says."""
    return c.clip(eps)


@portable
def single_rows(block: Block, state: None) -> Any:
    """The rows of all views side by side as float32: centred, scaled and converted once."""
    dense = [block.place.dense(view.coarse_features()) for view in block.views]
    return block.xp.concat([block.place.single(rows) for rows in dense], axis=1)


@portable
def single_seconds(block: Block, grams: tuple[Any, ...], rows: Any) -> Any:
    """(b, M) what these rows explain of the pool alone, for G over its trace by view."""
    own = zip(_columns_of(rows, [len(gram) for gram in grams]), grams, strict=True)
    return block.xp.stack([block.place.row_dots(X, X @ block.put(G)) for X, G in own], axis=1)


@portable
def _look(block: Block, told: Told, c: Any, b: Any, *held: Any) -> Any:
    if held:
        return _judged(_by_single(held[0], told, block.place), told, (c, b), block.place)
    own = zip(block.views, told.columns, strict=True)
    # In float32 are those of views that know what it costs them, and what is made of these.
    found = [block.put(view.onto(block.put(columns), told.coarse)) for view, columns in own]
    return _judged(found, told, (c, b), block.place)


def _by_single(rows: Any, told: Told, place: Place) -> list[Any]:
    own = zip(_columns_of(rows, [len(X) for X in told.columns]), told.columns, strict=True)
    return [X @ place.single(place.put(columns)) for X, columns in own]


def _columns_of(rows: Any, widths: list[int]) -> list[Any]:
    """The columns of every view."""
    ends = np.cumsum([0, *widths]).tolist()
    return [rows[:, i:j] for i, j in itertools.pairwise(ends)]


def _judged(products: list[Any], told: Told, known: tuple[Any, Any], place: Place) -> Any:
    """(b, 2 M s + 2 M + 1) products (b, 2 s) by view, what they take off c and add to b, and
    whether a row may have been as good as a pick. First by what no gain exceeds on the way: all
    that b rises by, over what is left of c in the end."""
    xp, (c, b), s = place.xp, known, told.gammas.shape[1]
    steepest, least = told.weights.max(axis=1), float(told.least.min())
    falls, rises, ceiling = [], [], 0.0
    for q, product in enumerate(products):
        f, second = product[:, :s], product[:, s:]
        gammas = xp.astype(place.put(told.gammas[q]), product.dtype)
        rise = _rise(f, second, gammas)
        falls.append(place.row_dots(f, f))
        rises.append(rise.sum(axis=1))
        if least < np.inf:
            most = b[:, q] + rise.clip(0.0).sum(axis=1)
            left = above(c[:, q] - falls[q], float(told.eps[q]))
            ceiling = ceiling + float(steepest[q]) * most / left
    sums = xp.stack([*falls, *rises], axis=1)
    near = xp.zeros_like(sums[:, :1])
    if least < np.inf:
        # Float32 moves c by less than this share where it is good enough to look with.
        rows = place.some_of(ceiling * (1.0 + COARSEST) >= least)
        some = [product[rows] for product in products]
        gains = _gains_before(some, told, (c[rows], b[rows]), place)
        weights = place.put(told.weights)
        heights = sum(w * own for w, own in zip(weights, gains, strict=True))
        near[rows, 0] = xp.astype(xp.any(heights >= place.put(told.least), axis=1), near.dtype)
    return xp.concat([*products, sums, near], axis=1)


def _rise(f: Any, second: Any, gammas: Any) -> Any:
    """What picks add to b."""
    return f * (gammas * f - 2.0 * second)


def _gains_before(
    products: list[Any], told: Told, known: tuple[Any, Any], place: Place
) -> list[Any]:
    """(m, s) by view: gains before each of the picks, in float64."""
    xp, (c, b), s, gains = place.xp, known, told.gammas.shape[1], []
    for q, product in enumerate(products):
        f, second = (xp.astype(part, xp.float64) for part in (product[:, :s], product[:, s:]))
        fall, rise = f * f, _rise(f, second, place.put(told.gammas[q]))
        left = c[:, q : q + 1] + fall - xp.cumulative_sum(fall, axis=1)
        explained = b[:, q : q + 1] - rise + xp.cumulative_sum(rise, axis=1)
        gains.append(explained.clip(0.0) / above(left, float(told.eps[q])))
    return gains
