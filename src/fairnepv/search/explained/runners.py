"""The picks of a greedy search for explained variance, made one by one among few rows.

`search.explained.frontier` has the letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fairnepv.search.explained.field import above
from fairnepv.search.ties import lowest_tied
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.moments import columns_of, second_shares_at
from fairnepv.views.pool import Pool


class Trail:
    """The directions of the picks in one view, where its blocks are."""

    def __init__(self, view: View, most: int) -> None:
        self._view, self._place = view, view.block_place
        xp, like = self._place.xp, {"dtype": self._place.xp.float64, "device": self._place.device}
        self.first = xp.zeros((most, view.p), **like)  # d
        self.second = xp.zeros((most, view.p), **like)  # z, over the trace of G
        self.gammas = np.zeros(most)  # d^T G d over it, which is what a pick adds

    def follow(self, column: Any, f: Any, c: float, gamma: float, t: int) -> None:
        """Note pick number t, its features (p,), its coordinates f (t,), its c and its gain."""
        place, D = self._place, self.first[:t]
        d = (column - place.put(f) @ D) / c**0.5
        image = self._view.moments.apply(d[:, None], place)[:, 0] / self._view.moments.trace
        z = image - (D @ image) @ D
        self.first[t], self.second[t], self.gammas[t] = d, z, gamma

    def lengths(self, start: int, stop: int) -> Floats:
        """(stop - start,) of the second directions of these picks."""
        return np.asarray(
            np.sqrt(self._place.get(self._place.square_sums(self.second[start:stop])))
        )

    def columns(self, start: int, stop: int) -> Any:
        """(p, 2 (stop - start)) the directions of these picks, then the second ones."""
        return self._place.xp.concat([self.first[start:stop], self.second[start:stop]]).T


class Runners:
    """The rows that picks are made among, with all digits, after the first t picks."""

    def __init__(self, pool: Pool, trails: Sequence[Trail], rows: Indices, t: int) -> None:
        self.rows, self.open = rows, np.ones(len(rows), dtype=bool)
        self._views, self._trails, self._t = pool.views, trails, t
        self._place, self._eps = pool.place, pool.eps
        self.features = [view.gather(rows).features() for view in pool.views]
        xp, shape = self._place.xp, (len(trails[0].gammas), len(rows))
        like: Any = {"dtype": xp.float64, "device": self._place.device}
        self.f = [xp.zeros(shape, **like) for _ in pool.views]
        self.c = self._place.put(pool.squared_norms[rows].T + self._eps[:, None])
        self.b = self._place.put(second_shares_at(pool, rows).T)
        if t:
            self._catch_up()

    def _catch_up(self) -> None:
        """Tell them of all picks so far."""
        t = self._t
        for q, trail in enumerate(self._trails):
            f, second = self._products(q, trail.columns(0, t), t)
            self.f[q][:t] = f
            gammas = self._place.put(trail.gammas[:t])[:, None]
            self.c[q] = above(self.c[q] - (f * f).sum(axis=0), float(self._eps[q]))
            rise = (f * (gammas * f - 2.0 * second)).sum(axis=0)
            self.b[q] = (self.b[q] + rise).clip(0.0)

    def _known(self) -> Any:
        return self._place.get(self._place.xp.stack([self.b, self.c]))

    def gains(self) -> Floats:
        """(M, m) what each of them would add."""
        b, c = self._known()
        return np.asarray(b / c)

    def pick(self, score: Callable[[Floats], Floats], tie: float) -> tuple[int, Floats]:
        """The place of the best among them, where `score` makes scores (m,) of gains (M, m), and
        (M,) what it adds; the trails and the others know of it then."""
        b, c = self._known()
        gains = b / c
        scores = score(gains)
        scores[~self.open] = -np.inf
        if np.isnan(scores).any() or not np.isfinite(scores.max()):
            raise np.linalg.LinAlgError("a score is not a number")
        at = lowest_tied(scores, tie)
        self._hear(at, gains[:, at], c[:, at])
        return at, gains[:, at]

    def _hear(self, at: int, gains: Floats, c: Floats) -> None:
        t = self._t
        for q, trail in enumerate(self._trails):
            f, gamma = self.f[q], float(gains[q])
            view, features = self._views[q], self.features[q]
            alone = self.rows[at : at + 1]
            column = features[at] if view.array_anchors else columns_of(view, alone)[:, 0]
            trail.follow(column, f[:t, at], float(c[q]), gamma, t)
            along, second = self._products(q, trail.columns(t, t + 1), 1)
            f[t] = along[0]
            self.c[q] = above(self.c[q] - along[0] * along[0], float(self._eps[q]))
            self.b[q] = (self.b[q] + along[0] * (gamma * along[0] - 2.0 * second[0])).clip(0.0)
        self.open[at] = False
        self._t += 1

    def _products(self, q: int, columns: Any, s: int) -> tuple[Any, Any]:
        """(s, m) of the rows with directions and with second ones, in float64."""
        found = self._place.put(self.features[q] @ columns).T
        return found[:s], found[s:]
