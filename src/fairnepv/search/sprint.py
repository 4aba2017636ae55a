"""The next picks of a greedy search, made among few rows at once.

To look at all rows for every pick takes long, and a device answers slowly. So here few rows, those
with the highest bounds, race: the kernel between them, less what earlier picks explain, says all
that is needed of them. The best is found, what it explains is taken off the variances of the
others, and it is noted whether a row beside them might have been better: only then are all rows
looked at again. A device is asked how many picks hold after some of them; on CUDA a pick is a graph
of kernels (`compute.graphs`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import in_order
from fairnepv.compute.graphs import replayable
from fairnepv.objective import determinant_of, lifted_floors, merit, soft_min, soft_min_weights
from fairnepv.problem import Problem
from fairnepv.search.ties import SLACK, blurs
from fairnepv.views.base import Floats
from fairnepv.views.trail import Trail

CLOSED = -1e30  # in place of the logarithm for rows that are chosen
_ROWS = {"cuda": 4096, "cpu": 512}  # that are raced among on a device of PyTorch
_FEW_ROWS = 96  # the same on the host
_STRETCH = 8  # picks between questions to a device
_MOST = 128  # picks among the same rows


class Foreseen(NamedTuple):
    row: int
    totals: Floats  # (M,) with it


class Sprint:
    """Everything that a pick needs, at fixed addresses.

    `error` is how far bounds in float32 may be too low, in log c, and `rounding` that of heights.
    """

    def __init__(self, problem: Problem, error: float, rounding: float) -> None:
        pool, k = problem.pool, problem.k
        self._place = place = pool.place
        self._xp, self._utility = place.xp, determinant_of(problem)
        self._k, self._tau, self._rounding = k, problem.tau, rounding
        self._stretch = _STRETCH if place.asynchronous else 1
        rows = _ROWS[place.device.type] if place.asynchronous else _FEW_ROWS
        self._m = m = min(rows, pool.n)
        M, most = len(pool.views), min(_MOST, k)
        self._kernels = [self._zeros(m, m) for _ in pool.views]  # given the picks before
        self._coordinates = [self._zeros(most, m) for _ in pool.views]  # along those of the sprint
        self._c = self._zeros(M, m) + 1.0
        self._open = self._zeros(m, kind="bool")
        self._places = place.put(np.arange(m))
        self._beside = self._zeros(M, pool.n, kind="float32")  # log c of all others
        self._made = self._zeros(1, kind="int64")  # picks of this sprint
        self._first = self._zeros(1, kind="int64")  # picks before it
        self._totals = self._zeros(M, 1)
        self._picks = self._zeros(most, kind="int64")  # their places among the rows
        self._holds = self._zeros(most, kind="bool")
        self._history, self._variances = self._zeros(most, M), self._zeros(most, M)
        self._eps, self._offsets = place.put(pool.eps[:, None]), place.put(problem.offsets[:, None])
        floors = lifted_floors(problem)
        self._floors = None if floors is None else place.put(floors[:, None])
        self._forbids = bool(problem.constraints)
        unsure = blurs(problem, np.arange(1, k + 1))
        self._ties = place.put(np.maximum(problem.tolerances.tie, unsure))
        self._slacks = place.put(np.maximum(SLACK, 10.0 * unsure) + error / np.arange(1, k + 1))
        self._advance = replayable(self._pick, self._restart, place.device)

    def run(
        self, trails: Sequence[Trail], heights: Any, logs: Any, totals: Floats, t: int
    ) -> list[Foreseen]:
        """The picks from number t on, as far as they are sure, for bounds on the scores of all rows
        (n,) and the logarithms (M, n) that these are made of. The trails foresee them, too."""
        rows = self._place.highest(heights, self._m)  # ascending: a tie is the lowest's
        earlier = self._begin(trails, rows, heights, logs)
        self._totals[:] = self._place.put(totals[:, None])
        self._made[:], self._first[:] = 0, t
        made, most = 0, min(_MOST, self._k - t)
        while made < most:
            stop = min(made + self._stretch, most)
            for _ in range(made, stop):
                self._advance()
            if not bool(self._holds[made:stop].all()):
                break
            made = stop
        holds = self._place.get(self._holds[: min(made + self._stretch, most)])
        sure = len(holds) if holds.all() else int(holds.argmin())
        if not sure:
            return []
        get, at = self._place.get, self._picks[:sure]
        picks, after = get(rows[at]), np.array(get(self._history[:sure]))  # the next run reuses it
        self._tell(trails, picks, at, earlier)
        return [Foreseen(row, totals) for row, totals in zip(picks.tolist(), after, strict=True)]

    def _begin(self, trails: Sequence[Trail], rows: Any, heights: Any, logs: Any) -> list[Any]:
        """Coordinates (t, m) of these rows along the directions so far, by view."""
        self._open[:] = heights[rows] > 0.1 * CLOSED
        self._beside[:] = logs
        if self._forbids:
            self._beside[:] = self._xp.where(heights == -np.inf, CLOSED, self._beside)
        self._beside[:, rows] = CLOSED
        calls = [partial(trail.left_of, rows) for trail in trails]
        # A device has its threads inside of a call.
        found = [call() for call in calls] if self._place.asynchronous else in_order(calls)
        coordinates = []
        for q, (earlier, kernel) in enumerate(found):
            coordinates.append(earlier)
            self._kernels[q][:], self._coordinates[q][:] = kernel, 0.0
            self._c[q] = kernel.diagonal().clip(0.0) + self._eps[q]
        return coordinates

    def _pick(self) -> None:
        """One pick; no size here depends on a number that only the device knows."""
        xp, made, c = self._xp, self._made, self._c
        t = self._first + made
        gains = self._utility.gains(c, xp)
        d = (self._totals + gains) / self._utility.divisor(t + 1) + self._offsets  # (M, m)
        F = soft_min(d, self._tau, xp)
        scores = F if self._floors is None else merit(d, self._tau, self._floors, xp)
        scores = xp.where(self._open, scores, -np.inf)
        best = scores.max()
        tied = xp.where(scores >= best - self._ties[t], self._places, self._m - 1)
        at = tied.min().reshape(1)
        w = soft_min_weights(xp.take(d, at, axis=1)[:, 0], self._tau, xp)
        self._note(best, xp.take(F, at, axis=0), w, xp.take(gains, at, axis=1)[:, 0], at)
        roots = xp.sqrt(xp.take(c, at, axis=1)[:, 0])
        for q, (kernel, Z) in enumerate(zip(self._kernels, self._coordinates, strict=True)):
            z = xp.take(kernel, at, axis=0)[0] - xp.take(Z, at, axis=1)[:, 0] @ Z
            z /= roots[q]
            Z[made] = z[None]
            c[q] = xp.maximum(c[q] - z * z, self._eps[q])
        self._open &= self._places != at
        self._made += 1

    def _note(self, best: Any, F: Any, w: Any, gains: Any, at: Any) -> None:
        """Note the pick, and whether no row beside these can be as good: that is bounded by the
        tangent of F_tau there, whose slopes are the weights w (M,)."""
        place, made = self._place, self._made
        t = self._first + made
        beside = place.weighted(place.single(w), self._beside).max() + self._rounding
        most = F + (beside - w @ gains) / self._utility.divisor(t + 1)
        self._totals += gains[:, None]
        self._holds[made] = best - self._slacks[t] >= most
        self._picks[made] = at
        self._history[made] = self._totals.T
        self._variances[made] = self._xp.take(self._c, at, axis=1).T

    def _tell(self, trails: Sequence[Trail], picks: Any, at: Any, earlier: list[Any]) -> None:
        """Tell the trails of picks that hold: where they lie along the directions so far and along
        each other's, and what that leaves of them."""
        sure, get = len(picks), self._place.get
        roots = np.sqrt(get(self._variances[:sure]))
        for q, trail in enumerate(trails):
            among = np.tril(get(self._coordinates[q][:sure, at]).T, -1) + np.diag(roots[:, q])
            trail.foresee(picks, earlier[q][:, at], among)

    def _restart(self) -> None:
        self._made[:], self._first[:] = 0, self._k - 1

    def _zeros(self, *shape: int, kind: str = "float64") -> Any:
        xp = self._xp
        return xp.zeros(shape, dtype=getattr(xp, kind), device=self._place.device)
