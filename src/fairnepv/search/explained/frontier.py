"""Fair greedy for explained variance: what is known of a set and of all rows beside it.

Beside a set every row has c_i, its variance given the set, and b_i, what its residual explains of
the pool; adding it brings b_i / c_i (docs/method.md#explained-variance). A pick has a direction d
and a second one, z = N G d, and changes c_i by -f^2 and b_i by -2 f q + f^2 gamma, for the products
f and q of row i with them. These gains are not submodular, so no old one bounds a new one: some
picks are made among the rows that score highest, one pass tells all rows of them, and a pick only
holds if no row beside those would have been better when it was made.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import HOST, Block, few_threads, portable
from fairnepv.objective import lifted_floors, merit, soft_min_weights, utility_of
from fairnepv.problem import Problem
from fairnepv.search.frontier import Judge, Scores
from fairnepv.search.ties import COARSEST, coarse_error, lowest_tied
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.moments import columns_of, second_shares

FEW, _FEW_THERE = 1024, 8192  # rows that picks are made among between two passes; on a device
MOST, _MOST_THERE = 32, 64  # picks between two passes
TOLD = 1 << 29  # numbers that a pass may make of all rows
_SLACK = 1e-9  # rows that come this close to a pick in float64 may be as good
_BLURRED = 0.05  # of a gain: what float32 may hide of it
_UNIT = float(np.finfo(np.float64).eps)


class Trail:
    """The directions of the picks in one view, where its blocks are."""

    def __init__(self, view: View, most: int) -> None:
        self._view, self._place = view, view.block_place
        xp, like = self._place.xp, {"dtype": self._place.xp.float64, "device": self._place.device}
        self.first = xp.zeros((most, view.p), **like)  # d
        self.second = xp.zeros((most, view.p), **like)  # z, over the trace of G
        self.gammas = np.zeros(most)  # d^T G d over it, which is what a pick adds

    def follow(self, column: Any, f: Any, c: float, gamma: float, t: int) -> tuple[Any, Any]:
        """Note pick number t, its features (p,), its coordinates f (t,), its c and its gain."""
        place, D = self._place, self.first[:t]
        d = (column - place.put(f) @ D) / c**0.5
        image = self._view.moments.apply(d[:, None], place)[:, 0] / self._view.moments.trace
        z = image - (D @ image) @ D
        self.first[t], self.second[t], self.gammas[t] = d, z, gamma
        return d, z

    def columns(self, start: int, stop: int) -> Any:
        """(p, 2 (stop - start)) the directions of these picks, then the second ones."""
        return self._place.xp.concat([self.first[start:stop], self.second[start:stop]]).T


class _Told(NamedTuple):
    """What a pass tells all rows of, by view."""

    columns: tuple[Any, ...]
    coarse: bool


class _Pick(NamedTuple):
    row: int
    totals: Floats  # (M,) with it
    value: float  # the merit with it
    weights: Floats  # (M,) slopes of F_tau there
    gains: Floats  # (M,)


class Runners:
    """The rows that picks are made among, with all digits."""

    def __init__(self, frontier: ExplainedFrontier, rows: Any, open_rows: Any = None) -> None:
        problem, place = frontier.problem, frontier.problem.pool.place
        here = place.get(rows)
        self._frontier, self.rows = frontier, here
        self._place, self._t = place, len(frontier.indices)
        self._columns = [columns_of(view, here) for view in problem.pool.views]  # (p, m)
        norms = problem.pool.squared_norms[here].T + problem.pool.eps[:, None]
        self.c, self.b = place.put(norms), place.put(frontier.seconds[here].T)
        self._f = [place.xp.zeros((problem.k, len(here)), **frontier.like) for _ in self._columns]
        self.open = np.ones(len(here), dtype=bool) if open_rows is None else open_rows[here]
        if self._t:
            self._catch_up()

    def _catch_up(self) -> None:
        """Tell them of all picks so far."""
        t, trails = self._t, self._frontier.trails
        for q, (trail, X) in enumerate(zip(trails, self._columns, strict=True)):
            f = self._place.put(trail.first[:t] @ X)
            g = self._place.put(trail.second[:t] @ X)
            self._f[q][:t] = f
            gammas = self._place.put(trail.gammas[:t])[:, None]
            self.c[q] = _above(self.c[q] - (f * f).sum(axis=0), self._eps(q))
            self.b[q] = (self.b[q] + (f * (gammas * f - 2.0 * g)).sum(axis=0)).clip(0.0)

    def pick(self) -> tuple[int, Floats]:
        """The place of the best among them, and (M,) what it adds; the trails and the others know
        of it then."""
        problem, place = self._frontier.problem, self._place
        b, c = place.get(place.xp.stack([self.b, self.c]))
        gains = b / c
        scores = self._frontier.merits(gains)
        scores[~self.open] = -np.inf
        if np.isnan(scores).any() or not np.isfinite(scores.max()):
            raise np.linalg.LinAlgError("a score is not a number")
        at = lowest_tied(scores, max(problem.tolerances.tie, self._frontier.unsure))
        self._hear(at, gains[:, at], c[:, at])
        return at, gains[:, at]

    def _hear(self, at: int, gains: Floats, c: Floats) -> None:
        t = self._t
        for q, (trail, X) in enumerate(zip(self._frontier.trails, self._columns, strict=True)):
            f, gamma = self._f[q], float(gains[q])
            d, z = trail.follow(X[:, at], f[:t, at], float(c[q]), gamma, t)
            along, second = self._place.put(d @ X), self._place.put(z @ X)
            f[t] = along
            self.c[q] = _above(self.c[q] - along * along, self._eps(q))
            self.b[q] = (self.b[q] + along * (gamma * along - 2.0 * second)).clip(0.0)
        self.open[at] = False
        self._t += 1

    def _eps(self, q: int) -> float:
        return float(self._frontier.problem.pool.eps[q])


class ExplainedFrontier:
    """As `search.frontier.Frontier`: all that it is asked follows from the indices of the set."""

    def __init__(
        self, problem: Problem, judge: Judge, indices: Indices, *, coarse: bool = True
    ) -> None:
        pool = problem.pool
        self.problem, self.judge, self.utility = problem, judge, utility_of(problem)
        self.indices, self.totals = indices[:0], np.zeros(len(pool.views))
        self._place = place = pool.place
        self.like: Any = {"dtype": place.xp.float64, "device": place.device}
        self.seconds = second_shares(pool)  # (n, M)
        self._c, self._b = self._beside_nothing()  # (M, n)
        self._few = min(_FEW_THERE if place.asynchronous else FEW, pool.n)
        self._coarse = coarse and coarse_error(problem) <= COARSEST
        self._drift = np.zeros(len(pool.views))  # squares of what float32 may have moved b by
        self._rows = self._single_rows() if self._coarse else None
        self.trails = [Trail(view, problem.k) for view in pool.views]
        self._known = 0  # picks that c and b have heard of
        self._batch = 1
        self._foreseen: list[_Pick] = []
        most = _MOST_THERE if place.asynchronous else MOST
        self._most = max(1, min(most, TOLD // (2 * pool.n * len(pool.views))))
        for row in indices:
            self.extend(int(row))
        self.refresh_all()

    def _single_rows(self) -> Any:
        """(n, P) rows for the products of all passes, where they may be held and there are several:
        to take means off and to scale takes as long as to multiply by few columns."""
        pool, numbers = self.problem.pool, self.problem.n * self.problem.pool.width
        several = self.problem.k > 1 and self.problem.n > self._few
        if not several or pool.place is not HOST or numbers > self.problem.means.table:
            return None
        return pool.map(_single_rows, None, width=pool.width, fixed=True)

    def standing(self, size: int) -> Scores:
        return self.judge(self.totals, size)

    @property
    def value(self) -> float:
        if not len(self.indices):
            return 0.0
        return float(self.merits(np.zeros(len(self.totals))))

    @property
    def passes(self) -> int:
        """That are sure to be made for these picks."""
        return -(-len(self.indices) // MOST)

    @property
    def unsure(self) -> float:
        """How far rounding may move a score."""
        pool = self.problem.pool
        return 16.0 * _UNIT * float((pool.largest_norms / pool.eps).max())

    def merits(self, gains: Any) -> Any:
        """The merit once the totals have risen by `gains` (M, ...)."""
        return self.judge(self.totals, len(self.indices) + 1).fair_scores(gains)

    def gains(self) -> Floats:
        """(M, n) what every row would add, as far as that is known."""
        return np.asarray(self._place.get(self._b / self._c))

    def open_rows(self) -> Any:
        """(n,) rows that the rules allow and that are not chosen."""
        problem = self.problem
        return problem.constraints.may_add(self.indices, problem.n, problem.k)

    # --- the next pick --------------------------------------------------------------------------

    def best_addition(self) -> int:
        if not self._foreseen:
            with few_threads(float(self._few) * self.problem.pool.width):
                self._race()
        return self._foreseen[0].row

    def extend(self, row: int) -> None:
        """Add a pick: one that was foreseen, or any, of which rows hear when they are refreshed."""
        if self._foreseen and self._foreseen[0].row == row:
            self.totals = self._foreseen.pop(0).totals
        else:
            assert not self._foreseen, "the picks of a race come in its order"
            self.totals = self.totals + Runners(self, np.array([row])).pick()[1]
        self.indices = np.append(self.indices, np.int64(row))

    def refresh_all(self) -> None:
        """Tell all rows of the picks that they have not heard of."""
        self._refresh(len(self.indices))

    def _refresh(self, t: int) -> None:
        for start in range(self._known, t, self._most):
            stop = min(start + self._most, t)
            self._hear(self._tell(start, stop), start, stop - start)
        self._known = t

    def _race(self) -> None:
        """The next picks, as many as hold."""
        start, allowed = len(self.indices), self.open_rows()
        heights = self._heights()
        heights[self._place.put(~allowed)] = -np.inf
        rows = self._place.highest(heights, min(self._few, int(allowed.sum())))
        quotas = self.problem.constraints.quotas is not None  # which forbid others at every pick
        whole = len(rows) == int(allowed.sum()) and not quotas
        most = 1 if quotas else self._most if whole else self._batch
        picks = self._picks_among(rows, allowed, min(most, self.problem.k - start))
        told = self._tell(start, start + len(picks))
        beside = self._place.put(allowed.copy())
        beside[rows] = False
        held = len(picks) if whole else self._held(told, picks, beside, start)
        self._hear(told, start, held)
        self._foreseen, self._known = picks[:held], start + held
        self._batch = min(2 * self._batch, self._most) if held == len(picks) else max(1, held)
        if self._blur > _BLURRED * float(picks[0].gains.max()):
            self._look_closer()

    def _heights(self) -> Any:
        """(n,) merits with every row, where the rows are."""
        place, problem = self._place, self.problem
        floors = lifted_floors(problem)
        least = None if floors is None else place.put(floors)
        d = place.put((self.totals + problem.offsets)[:, None]) + self._b / self._c
        return merit(d, problem.tau, least, place.xp)

    @property
    def _blur(self) -> float:
        """How far a gain in c and b may be off for what float32 has added up in them."""
        return float((np.sqrt(self._drift) / self.problem.pool.eps).max())

    def _look_closer(self) -> None:
        """Go on in float64: what float32 has added up hides which row is the best."""
        known = self._known
        self._coarse, self._rows, self._known, self._drift[:] = False, None, 0, 0.0
        self._c, self._b = self._beside_nothing()
        self._refresh(known)

    def _beside_nothing(self) -> tuple[Any, Any]:
        """c and b of all rows beside the empty set."""
        pool = self.problem.pool
        norms = np.array(pool.squared_norms.T + pool.eps[:, None], order="C")
        return self._place.put(norms), self._place.put(np.array(self.seconds.T, order="C"))

    def _picks_among(self, rows: Any, allowed: Any, most: int) -> list[_Pick]:
        problem, floors = self.problem, lifted_floors(self.problem)
        runners, before = Runners(self, rows, allowed), (self.indices, self.totals)
        picks: list[_Pick] = []
        while len(picks) < most and runners.open.any():
            at, gains = runners.pick()
            self.totals = self.totals + gains
            d = self.totals + problem.offsets
            weights, value = soft_min_weights(d, problem.tau), float(merit(d, problem.tau, floors))
            row = int(runners.rows[at])
            picks.append(_Pick(row, self.totals, value, weights, gains))
            self.indices = np.append(self.indices, np.int64(row))
        self.indices, self.totals = before
        return picks

    def _held(self, told: Any, picks: list[_Pick], beside: Any, start: int) -> int:
        """How many picks hold: those before the first that a row beside the runners may have been
        as good as. F_tau is below its tangent at the pick, and rows above that are scored."""
        slack = _SLACK + self.unsure + self._blur
        weights = np.array([pick.weights for pick in picks]).T  # (M, s)
        least = np.array([pick.weights @ pick.gains for pick in picks]) - slack
        least[0] = np.inf  # the runners were the best when they began
        place, xp = self._place, self._place.xp
        ceilings = sum(
            float(w) * self._ceiling(told, q, start) for q, w in enumerate(weights.max(axis=1))
        )
        near = xp.nonzero((ceilings >= float(least.min())) & beside)[0]
        if not len(near):
            return len(picks)
        gains = self._on_the_way(told[near], near, start)  # (M, m, s)
        heights = (place.put(weights)[:, None, :] * gains).sum(axis=0) - place.put(least)
        rows, turns = place.entries_above(heights, 0.0)
        found = place.get(gains[:, rows, turns])
        return self._first_beaten(picks, found, place.get(turns), slack)

    def _ceiling(self, told: Any, q: int, start: int) -> Any:
        """(n,) what no gain of a row in this view exceeds while it hears of these picks: the root
        of b rises by at most |f| times that of gamma, and c falls by f^2."""
        xp, f = self._place.xp, told[:, q, 0]
        roots = np.sqrt(self.trails[q].gammas[start : start + f.shape[1]])
        rise = abs(f) @ xp.astype(self._place.put(roots), f.dtype)
        c = _above(self._c[q] - self._place.row_dots(f, f), float(self.problem.pool.eps[q]))
        return (self._b[q] ** 0.5 + rise) ** 2 / c

    def _first_beaten(self, picks: list[_Pick], gains: Floats, turns: Indices, slack: float) -> int:
        """The first pick that one of these rows may have been as good as, by `turns` (m,)."""
        before = np.array([pick.totals - pick.gains for pick in picks])[turns].T
        values = np.array([pick.value for pick in picks])[turns]
        d = before + self.problem.offsets[:, None] + gains
        scores = merit(d, self.problem.tau, lifted_floors(self.problem))
        return int(turns[scores >= values - slack].min(initial=len(picks)))

    def _on_the_way(self, told: Any, rows: Any, start: int) -> Any:
        """(M, m, s) gains of few rows before each of the picks that a pass was about."""
        xp, gains = self._place.xp, []
        for q, trail in enumerate(self.trails):
            f, second = (xp.astype(told[:, q, i], xp.float64) for i in (0, 1))
            gammas = self._place.put(trail.gammas[start : start + f.shape[1]])
            fall, rise = f * f, f * (gammas * f - 2.0 * second)
            c = self._c[q, rows][:, None] + fall - xp.cumulative_sum(fall, axis=1)
            b = self._b[q, rows][:, None] - rise + xp.cumulative_sum(rise, axis=1)
            gains.append(b.clip(0.0) / _above(c, float(self.problem.pool.eps[q])))
        return xp.stack(gains)

    # --- what rows know -------------------------------------------------------------------------

    def _tell(self, start: int, stop: int) -> Any:
        """(n, M, 2, s) products of all rows with the directions of these picks: one pass."""
        pool, width = self.problem.pool, 2 * len(self.trails) * (stop - start)
        columns = tuple(trail.columns(start, stop) for trail in self.trails)
        told, held = _Told(columns, self._coarse), () if self._rows is None else (self._rows,)
        found = pool.map(_products, told, *held, width=2 * width, fixed=True)
        return found.reshape(pool.n, len(self.trails), 2, stop - start)

    def _hear(self, told: Any, start: int, held: int) -> None:
        """Change c and b by the first picks that a pass was about."""
        place = self._place
        for q, trail in enumerate(self.trails):
            f, second = told[:, q, 0, :held], told[:, q, 1, :held]
            gammas = place.xp.astype(place.put(trail.gammas[start : start + held]), f.dtype)
            fall = place.row_dots(f, f)
            self._c[q] = _above(self._c[q] - fall, float(self.problem.pool.eps[q]))
            self._b[q] = (self._b[q] + place.row_dots(f, f * gammas - 2.0 * second)).clip(0.0)
        if self._coarse:
            self._drift += [self._moved_by(q, start, start + held) for q in range(len(self.trails))]

    def _moved_by(self, q: int, start: int, stop: int) -> float:
        """The square of how far float32 may move b of a row in one view when it hears of these
        picks: f and q are off by the error of a product, and |f| is at most the row's length."""
        pool, trail = self.problem.pool, self.trails[q]
        lengths = np.sqrt(trail._place.get(trail._place.square_sums(trail.second[start:stop])))
        slopes = 4.0 * lengths + 2.0 * trail.gammas[start:stop]
        error = pool.views[q].coarse_error * pool.largest_norms[q]
        return float(((error * slopes) ** 2).sum())


def _above(c: Any, eps: float) -> Any:
    """A variance is at least its ridge, whatever rounding says."""
    return c.clip(eps)


@portable
def _single_rows(block: Block, state: None) -> Any:
    """The rows of all views side by side as float32: centred, scaled and converted once."""
    dense = [block.place.dense(view.features()) for view in block.views]
    return block.xp.concat([block.place.single(rows) for rows in dense], axis=1)


@portable
def _products(block: Block, told: _Told, *held: Any) -> Any:
    if held:
        cuts = np.cumsum([0, *(len(columns) for columns in told.columns)])
        parts = [held[0][:, cuts[q] : cuts[q + 1]] for q in range(len(told.columns))]
        own = zip(parts, told.columns, strict=True)
        products = [rows @ block.place.single(block.put(columns)) for rows, columns in own]
        return block.xp.concat(products, axis=1)
    found = [
        view.onto(block.put(columns), told.coarse)
        for view, columns in zip(block.views, told.columns, strict=True)
    ]
    found = [block.put(part) for part in found]
    kind = block.xp.float32 if told.coarse else block.xp.float64
    return block.xp.concat([block.xp.astype(part, kind, copy=False) for part in found], axis=1)
