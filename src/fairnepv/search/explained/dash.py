"""The picks of a greedy search for explained variance among few rows, made on a device at once.

As `Runners.pick`, but a device is asked for nothing before the last of the picks: to wait for its
answer takes longer than a pick. `search.explained.frontier` has the letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairnepv.compute.graphs import replayable
from fairnepv.objective import lifted_floors, merit
from fairnepv.problem import Problem
from fairnepv.search.explained.field import above
from fairnepv.search.explained.runners import Runners, Trail
from fairnepv.views.base import Floats
from fairnepv.views.pool import Pool


def can_dash(pool: Pool) -> bool:
    """Whether all that a pick needs of every view is on the device."""
    there = all(view.block_place is pool.place and view.array_anchors for view in pool.views)
    return pool.place.asynchronous and there and all(v.moments.gram is not None for v in pool.views)


class Dash:
    """Everything that a pick needs, at fixed addresses: up to m rows, up to `most` picks."""

    def __init__(
        self, problem: Problem, trails: Sequence[Trail], m: int, most: int, tie: float
    ) -> None:
        pool, k = problem.pool, problem.k
        self._place, self._xp, self._trails = pool.place, pool.place.xp, trails
        self._k, self._m, self._tau, self._tie = k, m, problem.tau, tie
        self._eps, M = pool.eps.tolist(), len(pool.views)
        put = self._place.put
        self._features = [self._zeros(m, view.p) for view in pool.views]
        self._images = [put(v.moments.gram) / v.moments.trace for v in pool.views]
        self._f = [self._zeros(k, m) for _ in pool.views]
        self._b, self._c = self._zeros(M, m), self._zeros(M, m) + 1.0
        self._open = self._zeros(m, kind="bool")
        self._places, self._turns = put(np.arange(m)), put(np.arange(k))
        self._made = self._zeros(1, kind="int64")  # picks of this dash
        self._first = self._zeros(1, kind="int64")  # picks before it
        self._totals, self._offsets = self._zeros(M, 1), put(problem.offsets[:, None])
        floors = lifted_floors(problem)
        self._floors = None if floors is None else put(floors)
        self._picks = self._zeros(most, kind="int64")
        self._gains = self._zeros(most, M)
        self._best = self._zeros(most)
        self._advance = replayable(self._pick, self._restart, self._place.device)

    def run(self, runners: Runners, totals: Floats, t: int, most: int) -> list[tuple[int, Floats]]:
        """The places among these rows of the picks from number t on, and (M,) what each adds; the
        trails know of them then."""
        m, get = len(runners.rows), self._place.get
        self._open[:] = self._places < m
        for q, (features, f) in enumerate(zip(runners.features, runners.f, strict=True)):
            self._features[q][:m], self._f[q][:, :m] = features, f
        self._b[:, :m], self._c[:, :m] = runners.b, runners.c
        self._totals[:] = self._place.put(totals[:, None])
        self._made[:], self._first[:] = 0, t
        made = min(most, m)
        for _ in range(made):
            self._advance()
        gains = np.array(get(self._gains[:made]))  # the next run reuses it
        if not np.isfinite(get(self._best[:made])).all():
            raise np.linalg.LinAlgError("a score is not a number")
        for q, trail in enumerate(self._trails):
            trail.gammas[t : t + made] = gains[:, q]
        return list(zip(get(self._picks[:made]).tolist(), gains, strict=True))

    def _pick(self) -> None:
        """One pick; no size here depends on a number that only the device knows."""
        xp, made, t = self._xp, self._made, self._first + self._made
        gains = self._b / self._c
        d = self._totals + gains + self._offsets
        scores = xp.where(self._open, merit(d, self._tau, self._floors, xp), -np.inf)
        best = scores.max()  # not a number where one of them is none
        tied = xp.where(scores >= best - self._tie, self._places, self._m - 1)
        at = tied.min().reshape(1)
        added = xp.take(gains, at, axis=1)  # (M, 1)
        self._best[made], self._picks[made], self._gains[made] = best, at, added.T
        self._totals += added
        roots = xp.sqrt(xp.take(self._c, at, axis=1)[:, 0])
        for q in range(len(self._f)):
            self._follow(q, at, t, roots[q], added[q])
        self._open &= self._places != at
        made += 1

    def _follow(self, q: int, at: Any, t: Any, root: Any, gamma: Any) -> None:
        """Note the pick in a view, as `Trail.follow` does, and tell all rows of it. What stands in
        the trail beyond the picks so far is left from others, which did not hold."""
        xp, X, f, trail = self._xp, self._features[q], self._f[q], self._trails[q]
        D = trail.first
        d = (xp.take(X, at, axis=0)[0] - xp.take(f, at, axis=1)[:, 0] @ D) / root
        image = self._images[q] @ d
        z = image - xp.where(self._turns < t, D @ image, 0.0) @ D
        along, second = X @ d, X @ z
        D[t], trail.second[t], f[t] = d[None], z[None], along[None]
        self._c[q] = above(self._c[q] - along * along, self._eps[q])
        self._b[q] = (self._b[q] + along * (gamma * along - 2.0 * second)).clip(0.0)

    def _restart(self) -> None:
        self._made[:], self._first[:] = 0, self._k - 1

    def _zeros(self, *shape: int, kind: str = "float64") -> Any:
        xp = self._xp
        return xp.zeros(shape, dtype=getattr(xp, kind), device=self._place.device)
