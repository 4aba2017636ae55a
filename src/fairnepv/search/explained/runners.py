"""The picks of a greedy search for explained variance, made one by one among few rows.

A device is asked for nothing before the last of the picks: to wait for its answer takes longer than
a pick, which on CUDA is a graph of kernels (`compute.graphs`). `search.explained.frontier` has the
letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute.graphs import replayable
from fairnepv.objective import lifted_floors, merit
from fairnepv.problem import Problem
from fairnepv.search.explained.field import above
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.moments import columns_of, second_shares_at
from fairnepv.views.pool import Pool


class Trail:
    """The directions of the picks in one view, where its blocks are."""

    def __init__(self, view: View, most: int) -> None:
        self.place = view.block_place
        xp, like = self.place.xp, {"dtype": self.place.xp.float64, "device": self.place.device}
        self.first = xp.zeros((most, view.p), **like)  # d
        self.second = xp.zeros((most, view.p), **like)  # z, over the trace of G
        self.gammas = np.zeros(most)  # d^T G d over it, which is what a pick adds
        held = None if view.moments.gram is None else self.place.put(view.moments.gram)
        self._moments = replace(view.moments, gram=held)

    def follow(self, column: Any, f: Any, root: Any, t: Any, so_far: slice) -> Any:
        """Note pick number t, its features (p,), its coordinates f and the root of its c; (p, 2)
        its directions."""
        xp, D = self.place.xp, self.first[so_far]
        d = (column - f @ D) / root
        image = self._moments.apply(d[:, None], self.place)[:, 0] / self._moments.trace
        z = image - (D @ image) @ D
        self.first[t], self.second[t] = d, z
        return xp.stack([d, z], axis=1)

    def lengths(self, start: int, stop: int) -> Floats:
        """(stop - start,) of the second directions of these picks."""
        return np.asarray(np.sqrt(self.place.get(self.place.square_sums(self.second[start:stop]))))

    def columns(self, start: int, stop: int) -> Any:
        """(p, 2 (stop - start)) the directions of these picks, then the second ones."""
        return self.place.xp.concat([self.first[start:stop], self.second[start:stop]]).T


class Rules(NamedTuple):
    """What picks are told apart by, where they are made."""

    tau: float
    offsets: Any  # (M, 1)
    floors: Any  # (M,), or None
    tie: float

    @classmethod
    def of(cls, problem: Problem, tie: float) -> Rules:
        put, floors = problem.pool.place.put, lifted_floors(problem)
        held = None if floors is None else put(floors)
        return cls(problem.tau, put(problem.offsets[:, None]), held, tie)


class Runners:
    """The rows that picks are made among, with all digits, after the first t picks."""

    def __init__(
        self, pool: Pool, trails: Sequence[Trail], rules: Rules, rows: Indices, t: int
    ) -> None:
        self.rows, self._views, self._trails, self._rules = rows, pool.views, trails, rules
        self._place, self._eps, self._t = pool.place, pool.eps.tolist(), t
        put, M, m, most = self._place.put, len(pool.views), len(rows), len(trails[0].gammas)
        self._features = [view.gather(rows).features() for view in pool.views]
        self._f = [self._zeros(most, m) for _ in pool.views]
        self._c = put(pool.squared_norms[rows].T + pool.eps[:, None])
        self._b = put(second_shares_at(pool, rows).T)
        self._open, self._places = put(np.ones(m, dtype=bool)), put(np.arange(m))
        self._totals = self._zeros(M, 1)
        self._first, self._made = put(np.array([t])), self._zeros(1, kind="int64")
        # Of every pick among these rows: its place, what it adds, and the merit with it.
        self._picks, self._gains = self._zeros(most, kind="int64"), self._zeros(most, M)
        self._best = self._zeros(most)
        if t:
            self._catch_up()

    def _catch_up(self) -> None:
        """Tell them of all picks so far."""
        t = self._t
        for q, trail in enumerate(self._trails):
            f, second = self._products(q, trail.columns(0, t), t)
            self._f[q][:t] = f
            gammas = self._place.put(trail.gammas[:t])[:, None]
            self._c[q] = above(self._c[q] - (f * f).sum(axis=0), self._eps[q])
            rise = (f * (gammas * f - 2.0 * second)).sum(axis=0)
            self._b[q] = (self._b[q] + rise).clip(0.0)

    def gains(self) -> Floats:
        """(M, m) what each of them would add."""
        return np.asarray(self._place.get(self._b / self._c))

    def run(self, totals: Floats, most: int) -> list[tuple[int, Floats]]:
        """The places of so many picks, and (M,) what each adds to the totals; the trails know of
        them then."""
        self._totals[:] = self._place.put(totals[:, None])
        for _ in range(most):
            self._pick()
        return self._found(most)

    def _pick(self) -> None:
        """The best among them, of equals the lowest; the trails and the others know of it then."""
        xp, rules = self._place.xp, self._rules
        gains = self._b / self._c
        d = self._totals + gains + rules.offsets
        scores = xp.where(self._open, merit(d, rules.tau, rules.floors, xp), -np.inf)
        best = scores.max()  # not a number where one of them is none
        tied = xp.where(scores >= best - rules.tie, self._places, len(self._places) - 1)
        at, made = tied.min().reshape(1), self._made
        added = xp.take(gains, at, axis=1)  # (M, 1)
        self._best[made], self._picks[made], self._gains[made] = best, at, added.T
        self._totals += added
        roots = xp.sqrt(xp.take(self._c, at, axis=1)[:, 0])
        t = self._first + made
        so_far = self._so_far(t)
        for q, trail in enumerate(self._trails):
            put, f = trail.place.put, self._f[q]
            own = put(xp.take(f[so_far], at, axis=1)[:, 0])
            row = self._row(q, put(at))
            columns = trail.follow(row, own, put(roots[q]), put(t), so_far)
            along, second = self._products(q, columns, 1)
            f[t], along, second = along, along[0], second[0]
            self._c[q] = above(self._c[q] - along * along, self._eps[q])
            self._b[q] = (self._b[q] + along * (added[q] * along - 2.0 * second)).clip(0.0)
        self._open &= self._places != at
        made += 1

    def _so_far(self, t: Any) -> slice:
        return slice(int(t[0]))

    def _row(self, q: int, at: Any) -> Any:
        """(p,) features of the row at this place."""
        view, place = self._views[q], self._trails[q].place
        if view.array_anchors:
            return place.xp.take(self._features[q], at, axis=0)[0]
        return columns_of(view, self.rows[place.get(at)])[:, 0]

    def _products(self, q: int, columns: Any, s: int) -> tuple[Any, Any]:
        """(s, m) of the rows with directions and with second ones, in float64."""
        found = self._place.put(self._features[q] @ columns).T
        return found[:s], found[s:]

    def _found(self, most: int) -> list[tuple[int, Floats]]:
        get, t = self._place.get, self._t
        gains = np.array(get(self._gains[:most]))  # the next run may reuse it
        if not np.isfinite(get(self._best[:most])).all():
            raise np.linalg.LinAlgError("a score is not a number")
        for q, trail in enumerate(self._trails):
            trail.gammas[t : t + most] = gains[:, q]
        self._t += most
        return list(zip(get(self._picks[:most]).tolist(), gains, strict=True))

    def _zeros(self, *shape: int, kind: str = "float64") -> Any:
        xp = self._place.xp
        return xp.zeros(shape, dtype=getattr(xp, kind), device=self._place.device)


def can_dash(pool: Pool) -> bool:
    """Whether all that a pick needs of every view is on the device."""
    there = all(view.block_place is pool.place and view.array_anchors for view in pool.views)
    return pool.place.asynchronous and there and all(v.moments.gram is not None for v in pool.views)


class Dash(Runners):
    """Up to m rows at fixed addresses, in place of runners: no size of their picks depends on a
    number that only the device knows."""

    def __init__(self, pool: Pool, trails: Sequence[Trail], rules: Rules, m: int) -> None:
        super().__init__(pool, trails, rules, np.arange(m), 0)
        self._features = [self._place.copy(X) for X in self._features]  # to be written over
        self._advance = replayable(self._pick, self._restart, self._place.device)

    def instead(self, of: Runners, totals: Floats, most: int) -> list[tuple[int, Floats]]:
        """As their `run`."""
        m, self._t = len(of.rows), of._t
        for q, trail in enumerate(self._trails):
            self._features[q][:m], self._f[q][:, :m] = of._features[q], of._f[q]
            trail.first[self._t :] = 0.0  # directions of picks that did not hold
        self._b[:, :m], self._c[:, :m] = of._b, of._c
        self._open[:] = self._places < m
        self._totals[:] = self._place.put(totals[:, None])
        self._made[:], self._first[:] = 0, self._t
        for _ in range(most):
            self._advance()
        return self._found(most)

    def _so_far(self, t: Any) -> slice:
        return slice(None)  # what lies beyond is zero

    def _restart(self) -> None:
        self._made[:], self._first[:] = 0, len(self._trails[0].gammas) - 1
