"""Fair greedy for explained variance: what is known of a set and of all rows beside it.

Beside a set every row has c_i, its variance given the set, and b_i, what its residual explains of
the pool; adding it brings b_i / c_i (docs/method.md#explained-variance). A pick has a direction d
and a second one, z = N G d, and changes c_i by -f^2 and b_i by -2 f q + f^2 gamma, for the products
f and q of row i with them. These gains are not submodular, so no old one bounds a new one: some
picks are made among the few rows that score highest, one pass tells all rows of them, and a pick
only holds if no row beside those would have been better when it was made. The few hear of their
picks the same way: these are made, with all digits, among the fewer that score highest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import HOST, few_threads
from fairnepv.objective import lifted_floors, merit, soft_min_weights, utility_of
from fairnepv.problem import Problem
from fairnepv.search.explained.field import Field, Look, Told, single_rows, single_seconds
from fairnepv.search.explained.runners import Dash, Rules, Runners, Trail, can_dash
from fairnepv.search.frontier import Judge, Scores
from fairnepv.search.ties import COARSEST, WORTH, coarse_error, steepest_weights
from fairnepv.views.base import Floats, Indices
from fairnepv.views.moments import second_shares
from fairnepv.views.pool import Pool

# Rows that hear of picks before all others do, and of these the rows that picks are made among; and
# on a device of PyTorch, of which the host itself is one.
FEW, FEW_THERE = (4096, 256), {"cuda": (8192,), "cpu": (2048,)}
_TAKEN = 1 << 23  # numbers that the first of these may have
MOST, _MOST_THERE = 32, 64  # picks between two passes
_FIRST = 4  # picks before the first pass
_GROWTH = 1.5  # of such a number of picks, while all of them hold
TOLD = 1 << 29  # numbers that a pass may make of all rows
_SLACK = 1e-9  # rows that come this close to a pick in float64 may be as good
_BLURRED = 0.05  # of a gain: what float32 may hide of it
_UNIT = float(np.finfo(np.float64).eps)


class _Pick(NamedTuple):
    row: int
    totals: Floats  # (M,) with it
    value: float  # the merit with it
    weights: Floats  # (M,) slopes of F_tau there
    gains: Floats  # (M,)


def field_sizes(n: int, row_width: int, few: Sequence[int] | None = None) -> list[int]:
    """Rows of the fields within all n, from the first to those that picks are made among."""
    few = few or FEW
    first = max(few[-1], min(few[0], _TAKEN // max(1, row_width)))
    return [min(size, n) for size in (first, *few[1:])]


class ExplainedFrontier:
    """As `search.frontier.Frontier`: all that it is asked follows from the indices of the set."""

    def __init__(
        self, problem: Problem, judge: Judge, indices: Indices, *, coarse: bool = True
    ) -> None:
        pool = problem.pool
        self.problem, self.judge, self.utility = problem, judge, utility_of(problem)
        self.indices, self.totals = indices[:0], np.zeros(len(pool.views))
        self._place = place = pool.place
        # How far entries of looks may be off: some views look in float64 whatever is asked.
        self._errors = np.array([view.look_error for view in pool.views])
        quicker = bool((self._errors > WORTH).any())
        self._coarse = coarse and quicker and coarse_error(problem, looks=True) <= COARSEST
        self._rough: tuple[Any, Floats] | None = None  # b of all rows alone in float32, its drift
        # By level: rows of the fields, and picks that are made before a field hears of them.
        few = FEW_THERE[place.device.type] if place.asynchronous else FEW
        self._sizes = field_sizes(pool.n, pool.row_width, few)
        self._batches = [_FIRST for _ in self._sizes]
        self._field = self._all_rows()
        self.trails = [Trail(view, problem.k) for view in pool.views]
        self._known = 0  # picks that all rows have heard of
        self._foreseen: list[_Pick] = []
        most = _MOST_THERE if place.asynchronous else MOST
        self._most = max(1, min(most, TOLD // (2 * pool.n * len(pool.views))))
        self._rules = Rules.of(problem, self._tie)
        self._dash: Dash | None = None
        for row in indices:
            self.extend(int(row))
        self.refresh_all()

    def _all_rows(self) -> Field:
        """All rows, beside the empty set."""
        pool, place = self.problem.pool, self._place
        single = self._single_rows() if self._coarse else None
        drift, rough = np.zeros(len(pool.views)), self._rough_seconds(single)
        b = second_shares(pool).T if rough is None else rough[0]
        if rough is not None:
            self._rough, drift = rough, rough[1].copy()
        norms = np.array(pool.squared_norms.T + pool.eps[:, None], order="C")
        b = np.array(b, dtype=np.float64, order="C")
        return Field(pool, place.put(norms), place.put(b), single, drift)

    def _rough_seconds(self, single: Any) -> tuple[Any, Floats] | None:
        """(M, n) what rows alone explain, in float32, and (M,) squares of how far that may be off:
        half the work of all digits, which are made for the rows that picks are made among."""
        pool, own = self.problem.pool, [view.moments for view in self.problem.pool.views]
        known = all(moments.norms is not None for moments in own)
        if single is None or known or any(moments.gram is None for moments in own):
            return None
        place = pool.place  # moments may have stayed where the rows of all came from
        grams = tuple(place.single(place.put(m.gram) / m.trace) for m in own)
        found = pool.map(single_seconds, grams, single, width=pool.width, fixed=True)
        sizes = [float(np.linalg.norm(gram)) for gram in grams]
        errors = [view.coarse_error * size for view, size in zip(pool.views, sizes, strict=True)]
        return found.T, (2.0 * np.array(errors) * pool.largest_norms) ** 2

    def _single_rows(self) -> Any:
        """(n, P) rows for the products of all passes, where they may be held and there are several:
        to take means off and to scale takes as long as to multiply by few columns."""
        pool, numbers = self.problem.pool, self.problem.n * self.problem.pool.width
        several = self.problem.k > 1 and self.problem.n > self._sizes[-1]
        several &= all(view.single for view in pool.views)
        if not several or pool.place is not HOST or numbers > self.problem.means.table:
            return None
        return pool.map(single_rows, None, width=pool.width, fixed=True)

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
        return np.asarray(self._place.get(self._field.b / self._field.c))

    def open_rows(self) -> Any:
        """(n,) rows that the rules allow and that are not chosen."""
        problem = self.problem
        return problem.constraints.may_add(self.indices, problem.n, problem.k)

    # --- the next pick --------------------------------------------------------------------------

    def best_addition(self) -> int:
        if not self._foreseen:
            with few_threads(float(self._sizes[-1]) * self.problem.pool.width):
                self._foreseen = self._race(0, self._field, self.open_rows(), self._most)
            self._known += len(self._foreseen)
            first = self._foreseen[0]
            self._look_closer_than(_BLURRED * float(first.weights @ first.gains), first.weights)
        return self._foreseen[0].row

    def extend(self, row: int) -> None:
        """Add a pick: one that was foreseen, or any, of which rows hear when they are refreshed."""
        if self._foreseen and self._foreseen[0].row == row:
            self.totals = self._foreseen.pop(0).totals
        else:
            assert not self._foreseen, "the picks of a race come in its order"
            runner = self._runners(self.problem.pool, np.array([row]))
            self.totals = self.totals + runner.run(self.totals, 1)[0][1]
        self.indices = np.append(self.indices, np.int64(row))

    @property
    def _tie(self) -> float:
        return max(self.problem.tolerances.tie, self.unsure)

    def refresh_all(self) -> None:
        """Tell all rows of the picks that they have not heard of."""
        self._refresh(len(self.indices))

    def _refresh(self, t: int) -> None:
        for start in range(self._known, t, self._most):
            told = self._told(start, min(start + self._most, t))
            self._hear(self._field, self._field.look(told), start, told.gammas)
        self._known = t

    def _race(self, level: int, field: Field, allowed: Any, most: int) -> list[_Pick]:
        """Up to `most` picks of rows of a field that (m,) are allowed, as many as hold for all of
        these; the field has heard of them then."""
        start, place = len(self.indices), self._place
        rows = self._ahead(field, allowed, self._sizes[level])
        quotas = self.problem.constraints.quotas is not None  # which forbid others at every pick
        whole = len(rows) == int(allowed.sum()) and not quotas
        batch = 1 if quotas else most if whole else self._batches[level]
        before = self.indices, self.totals
        picks = self._picks_among(level, field, rows, min(batch, most, self.problem.k - start))
        self.indices, self.totals = before
        blur = self._blur(field.drift + self._moves(start, start + len(picks)).sum(axis=1))
        told = self._told(start, start + len(picks), [] if whole else picks, blur)
        look, held = field.look(told), len(picks)
        if not whole:
            beside = place.put(allowed.copy())
            beside[rows] = False
            held = self._held(field, look, told, picks, beside, blur)
        self._hear(field, look, start, told.gammas[:, :held])
        full = held == len(picks)
        self._batches[level] = min(int(_GROWTH * held) + 1, self._most) if full else max(1, held)
        return picks[:held]

    def _ahead(self, field: Field, allowed: Any, few: int) -> Any:
        """The rows of a field that picks are made among, ascending: those that score highest. Where
        more of them may be as good as the best, all digits decide, and then the lowest index."""
        place, (heights, slack) = self._place, self._heights(field)
        heights[place.put(~allowed)] = -np.inf
        rows = place.highest(heights, min(few, int(allowed.sum())))
        least = float(heights.max()) - slack
        if float(heights[rows].min()) < least:
            return rows
        near = place.get(place.xp.nonzero(heights >= least)[0])
        if not len(near):
            raise np.linalg.LinAlgError("a score is not a number")
        parts = np.array_split(near, -(-len(near) // self._sizes[-1]))
        runners = (self._runners(field.pool, part) for part in parts)
        scores = np.concatenate([self.merits(few.gains()) for few in runners])
        tied = scores >= scores.max() - self._tie  # of which the lowest wins
        order = np.lexsort((near, np.where(tied, -np.inf, -scores)))
        return place.put(np.sort(near[order[: len(rows)]]))

    def _heights(self, field: Field) -> tuple[Any, float]:
        """(m,) merits with every row, where the rows are, and how far from the best of them rows
        may seem to be that are as good."""
        place, problem = self._place, self.problem
        floors, gains = lifted_floors(problem), field.b / field.c
        least = None if floors is None else place.put(floors)
        d, blur = self.totals + problem.offsets, self._blur(field.drift)
        slack = _SLACK + self.unsure
        if blur.any():
            most = place.get(place.xp.max(gains, axis=1))
            blur = blur + self._blurred * most
            slack += float(steepest_weights(d, most + blur, problem.tau) @ blur)
        return merit(place.put(d[:, None]) + gains, problem.tau, least, place.xp), slack

    def _picks_among(self, level: int, field: Field, rows: Any, most: int) -> list[_Pick]:
        """Up to `most` picks among these rows of a field."""
        picks: list[_Pick] = []
        if level + 1 < len(self._sizes):
            some, allowed = field.take(rows), np.ones(len(rows), dtype=bool)
            while len(picks) < most and allowed.any():
                for pick in self._race(level + 1, some, allowed, most - len(picks)):
                    allowed[some.place_of(pick.row)] = False
                    self._add(pick, picks)
            return picks
        runners = self._runners(field.pool, self._place.get(rows))
        for at, gains in self._run(runners, min(most, len(runners.rows))):
            d = self.totals + gains + self.problem.offsets
            weights = soft_min_weights(d, self.problem.tau)
            value = float(merit(d, self.problem.tau, lifted_floors(self.problem)))
            row = int(field.in_pool(runners.rows[at]))
            self._add(_Pick(row, self.totals + gains, value, weights, gains), picks)
        return picks

    def _runners(self, pool: Pool, rows: Indices) -> Runners:
        return Runners(pool, self.trails, self._rules, rows, len(self.indices))

    def _run(self, runners: Runners, most: int) -> list[tuple[int, Floats]]:
        """The places of so many picks among the runners, and (M,) what each adds."""
        pool = self.problem.pool
        if not can_dash(pool):
            return runners.run(self.totals, most)
        if self._dash is None:
            self._dash = Dash(pool, self.trails, self._rules, self._sizes[-1])
        return self._dash.instead(runners, self.totals, most)

    def _add(self, pick: _Pick, picks: list[_Pick]) -> None:
        picks.append(pick)
        self.indices, self.totals = np.append(self.indices, np.int64(pick.row)), pick.totals

    # --- which picks hold -----------------------------------------------------------------------

    def _blur(self, drift: Floats) -> Floats:
        """(M,) how far a gain may be off for what float32 has added up in b."""
        return np.asarray(np.sqrt(drift) / self.problem.pool.eps)

    @property
    def _blurred(self) -> Floats:
        """(M,) what share of a gain may be off for what float32 has added up in c. A coordinate f
        is off by the error of a product, and the squares of all f sum to at most the row's."""
        pool = self.problem.pool
        return 2.0 * self._errors * pool.largest_norms / pool.eps * self._coarse

    def _held(
        self, field: Field, look: Look, told: Told, picks: list[_Pick], beside: Any, blur: Floats
    ) -> int:
        """How many picks hold: those before the first that a row beside the runners may have been
        as good as. F_tau is below its tangent at the pick, and rows above that are scored."""
        near = self._place.xp.nonzero((look.near > 0.0) & beside)[0]
        before = np.array([pick.totals - pick.gains for pick in picks]).T
        before += self.problem.offsets[:, None]
        values = np.array([pick.value for pick in picks]) - _SLACK - self.unsure
        values[0] = np.inf  # the runners were the best when they began
        beaten = np.zeros(len(picks), dtype=bool)
        for first in range(0, len(near), self._sizes[0]):
            some = near[first : first + self._sizes[0]]
            gains = self._place.get(field.gains_before(look, some, told))  # (M, m, s)
            scores = merit(before[:, None] + gains, self.problem.tau, lifted_floors(self.problem))
            most = gains.max(axis=1)
            off = blur[:, None] + self._blurred[:, None] * most
            slopes = steepest_weights(before, most + off, self.problem.tau)
            beaten |= (scores >= values - (off * slopes).sum(axis=0)).any(axis=0)
        return int(beaten.argmax()) if beaten.any() else len(picks)

    # --- what rows know -------------------------------------------------------------------------

    def _told(self, start: int, stop: int, picks: Sequence[_Pick] = (), blur: Any = 0.0) -> Told:
        """What a look tells rows of these picks, and, where `picks` are some of them to be beaten,
        from which sum of gains on a row may be as good."""
        M, s = len(self.trails), stop - start
        weights, least = np.zeros((M, s)), np.full(s, np.inf)
        if picks:
            weights = np.array([pick.weights for pick in picks]).T
            sure = 1.0 - self._blurred.max()
            least = np.array([pick.weights @ (sure * pick.gains - blur) for pick in picks])
            least -= _SLACK + self.unsure
            least[0] = np.inf  # the runners were the best when they began
        columns = tuple(trail.columns(start, stop) for trail in self.trails)
        gammas = np.array([trail.gammas[start:stop] for trail in self.trails])
        return Told(columns, gammas, self.problem.pool.eps, weights, least, self._coarse)

    def _hear(self, field: Field, look: Look, start: int, gammas: Floats) -> None:
        """Change c and b by the first picks of a look."""
        field.hear(look, gammas)
        field.drift += self._moves(start, start + gammas.shape[1]).sum(axis=1)

    def _moves(self, start: int, stop: int) -> Floats:
        """(M, s) squares of how far float32 may move b of a row in every view when it hears of
        these picks: f and q are off by the error of a product, and |f| is at most the row's
        length."""
        pool, moves = self.problem.pool, np.zeros((len(self.trails), stop - start))
        if not self._coarse:
            return moves
        for q, trail in enumerate(self.trails):
            slopes = 4.0 * trail.lengths(start, stop) + 2.0 * trail.gammas[start:stop]
            moves[q] = (self._errors[q] * pool.largest_norms[q] * slopes) ** 2
        return moves

    def _look_closer_than(self, most: float, slopes: Floats) -> None:
        """Where what float32 has added up hides which row is the best: first all digits of what
        rows explain alone, then go on in float64."""
        field = self._field
        if slopes @ self._blur(field.drift) <= most:
            return
        if self._rough is not None:
            b, drift = self._rough
            field.b += second_shares(self.problem.pool).T - b
            field.drift = np.maximum(field.drift - drift, 0.0)
            self._rough = None
        if slopes @ self._blur(field.drift) > most:
            known, self._known, self._coarse = self._known, 0, False
            self._field = self._all_rows()
            self._refresh(known)
