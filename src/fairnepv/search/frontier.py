"""What greedy knows of a set and of all rows beside it, and so which row is the best to add.

Old variances bound new gains, and a tangent of F_tau shows most rows to be hopeless; the others are
refreshed with all directions that they have missed at once (docs/method.md#swaps). Variances are in
float32 where the ridge allows it. Every row that could be the best for all that these say is
confirmed in float64 from gathered rows, so neither the precision nor the order of refreshing shows
in the result. A `Sprint` foresees several picks between two looks at all rows.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fairnepv.compute import Block, portable
from fairnepv.objective import Standing, determinant_of
from fairnepv.problem import Problem
from fairnepv.search.sprint import CLOSED, Foreseen, Sprint
from fairnepv.search.ties import COARSEST, SLACK, WIDEST_BLUR, blur, coarse_error, lowest_tied
from fairnepv.views.base import Floats, Indices

# A vanishing ridge lets variances overflow; what comes of it is refused.
OVERFLOWS: dict[str, Any] = {"over": "ignore", "invalid": "ignore", "divide": "ignore"}
WINDOW = 128  # picks that a row may not know of before a pass refreshes all rows
_SHARE = 0.3  # of the rows: a pass is due once so many were gathered since the last one, and
_WORTH = 0.25  # at this rate more than this share of the rows is still to be gathered
_RECENT = 4  # a row that misses no more picks than this is refreshed apart from older ones
_FEW = 1024  # so few rows are refreshed in one product, whatever they miss
_BATCH, _BATCH_SHARE = 512, 1 / 64  # rows looked at first: so many, or this share; then twice that
_AHEAD, _AHEAD_SHARE = 8.0, 0.1  # picks that rows are refreshed for before a sprint, and how many
_CONFIRM = 2048  # rows that are confirmed at a time
_LONGEST_PAUSE = 64  # picks between sprints that lead nowhere
_SINGLE = 1e-6  # rounding of a height per unit of its largest term
_SMALLEST, _LARGEST = 1e-37, 1e38  # between these float32 holds numbers to all its digits


class Scores(Protocol):
    """How a set scores; `Standing` is the one of F_tau. Small, as it travels with a pass."""

    def fair_scores(self, gains: Floats) -> Any:
        """Scores of the set once its totals have risen by `gains` (M, ...)."""

    def ceiling(self, gains: Floats) -> tuple[float, Floats]:
        """a and b >= 0 (M,) such that no score exceeds a + b . gains; meant to be tight near the
        gains given."""


Judge = Callable[[Floats, int], Scores]  # from the totals of a set and its size


class Frontier:
    """No state stores it: all that it is asked follows from the indices of the set."""

    def __init__(
        self, problem: Problem, judge: Judge, indices: Indices, *, coarse: bool = True
    ) -> None:
        pool = problem.pool
        self.problem, self.judge = problem, judge
        self.utility = determinant_of(problem)
        self.indices = indices[:0]
        self.totals = np.zeros(len(pool.views))
        # What is known of all rows lies where the engine keeps them.
        self._place = place = pool.place
        self._eps = place.put(pool.eps[:, None])
        largest = float((pool.largest_norms + pool.eps).max())
        self._moderate = pool.eps.min() > _SMALLEST and largest < _LARGEST
        norms = np.array(pool.squared_norms.T, order="C")
        self.variances = place.put(norms)  # (M, n) c_i without the ridge, or above it
        self._known = place.put(np.zeros(pool.n, dtype=np.int32))  # (n,) picks counted in them
        self._logs = self._logarithms(self.variances)  # (M, n) float32
        self._since = 0  # picks that all rows know of
        self._gathered = 0  # rows refreshed since the last pass
        self._gains = np.log(pool.eps + pool.largest_norms)  # (M,) of the last pick
        # The height from which on a row could have been as good, and how fast it falls.
        self._reach, self._decline = np.inf, 0.0
        self._batch = max(_BATCH, int(_BATCH_SHARE * pool.n))
        error = coarse_error(problem)
        self._coarse = coarse and error <= COARSEST
        self._error = error if self._coarse else 0.0
        self._rounding = _SINGLE * _largest_log(problem)
        self._trails = [view.trail(problem.k, self._coarse) for view in pool.views]
        # Quotas forbid other rows at every pick, and rounding that drowns scores grows in a sprint.
        able = not place.asynchronous or all(trail.foresees for trail in self._trails)
        sure = problem.constraints.quotas is None and blur(problem, 1) < WIDEST_BLUR
        self._foresees = able and sure
        self._sprint: Sprint | None = None
        self._next_sprint = self._pause = 1  # not before so many picks; and so many after a failure
        self._foreseen: list[Foreseen] = []
        for row in indices:  # one by one, so that a resumed run goes on to the last bit
            self.extend(int(row))
        if len(indices):
            self.refresh_all()

    def standing(self, size: int) -> Scores:
        return self.judge(self.totals, size)

    @property
    def value(self) -> float:
        """F_tau of the set; the empty set counts as 0."""
        if not len(self.indices):
            return 0.0
        return float(self.standing(len(self.indices)).fair_scores(np.zeros(len(self.totals))))

    @property
    def passes(self) -> int:
        """That are sure to be made for these picks: more depend on where a run resumed."""
        return len(self.indices) // WINDOW

    def gains(self) -> Floats:
        """(M, n) what every row would add, as far as that is known."""
        there, place = self.variances, self._place
        return np.asarray(self.utility.gains(place.get(there) + self.problem.pool.eps[:, None]))

    # --- the next pick --------------------------------------------------------------------------

    def best_addition(self) -> int:
        size = len(self.indices) + 1
        if not self._foreseen:
            self._look_ahead()
        if self._foreseen:
            return self._foreseen[0].row
        if self._missed >= WINDOW:
            self.refresh_all()
        unsure = blur(self.problem, size)
        slack = max(SLACK, 10.0 * unsure) + 2.0 * self._error / size
        contenders, scores = self._contenders(self.standing(size), slack)
        if len(contenders) == 1:
            return int(contenders[0])
        if size > 1:  # what is known of rows beside no pick is their norms, which are sure
            scores = self._confirm(contenders)
        return int(contenders[lowest_tied(scores, max(self.problem.tolerances.tie, unsure))])

    def extend(self, row: int) -> None:
        """Add a pick: its direction is made at once, rows know of it once they are refreshed."""
        if self._foreseen and self._foreseen[0].row == row:
            for trail in self._trails:
                trail.adopt()
            before, self.totals = self.totals, self._foreseen.pop(0).totals
            self._gains = self.totals - before
        else:
            self._foreseen = []
            coordinates, c = self._condition(np.array([row]))
            if not (c > 0).all():
                raise np.linalg.LinAlgError("a variance is not positive")
            for trail, v, root in zip(self._trails, coordinates, np.sqrt(c[:, 0]), strict=True):
                trail.add(row, v[:, 0], float(root))
            self.totals = self.totals + self.utility.gains(c[:, 0])
        self.indices = np.append(self.indices, np.int64(row))
        self._logs[:, row] = CLOSED

    def _look_ahead(self) -> None:
        """Foresee some picks at once, from the second pick on, as the first is mostly a tie of all
        rows. Where that fails it is tried again after ever more picks."""
        t = len(self.indices)
        if not self._foresees or t < self._next_sprint:
            return
        standing = self.standing(t + 1)
        if not isinstance(standing, Standing):
            return
        if self._sprint is None:
            self._sprint = Sprint(self.problem, self._error, self._rounding)
        _, slopes = standing.ceiling(self._gains)
        heights = self._made_ready(slopes)
        self._foreseen = self._sprint.run(self._trails, heights, self._logs, self.totals, t)
        self._pause = 1 if self._foreseen else min(2 * self._pause, _LONGEST_PAUSE)
        self._next_sprint = t if self._foreseen else t + self._pause
        self._expect(standing)

    def _made_ready(self, slopes: Floats) -> Any:
        """Heights of all rows for a sprint, where those that could win in the next picks are
        refreshed; a device refreshes all, as it would take longer to choose."""
        if self._place.asynchronous or self._missed >= WINDOW:
            self.refresh_all()
        heights = self._heights(slopes)
        if self._missed:
            reach = min(self._reach - _AHEAD * self._decline, float(heights.max()))
            most = max(_BATCH, int(_AHEAD_SHARE * self.problem.n))
            self._refresh(self._highest(heights, reach, np.inf, most)[0])
            heights = self._heights(slopes)
        return heights

    def _expect(self, standing: Standing) -> None:
        """Where the last of the picks foreseen stood, and so how low the next ones may."""
        if not self._foreseen:
            self._reach, self._decline = np.inf, 0.0
            return
        totals = [self.totals, *(pick.totals for pick in self._foreseen)]
        gains = totals[-1] - totals[-2]
        _, slopes = standing._replace(totals=totals[-2]).ceiling(gains)
        reach = float(slopes @ gains / slopes.sum())
        if np.isfinite(self._reach):
            self._decline = max(self._reach - reach, 0.0) / len(self._foreseen)
        self._reach = reach

    def _contenders(self, standing: Scores, slack: float) -> tuple[Indices, Floats]:
        """All rows that may be within `slack` of the best, ascending, and their scores.

        The tangent at any point bounds all scores; it is taken where the last winner stood. Rows
        are looked at from the highest bound down, until the best is above what is left.
        """
        constant, slopes = standing.ceiling(self._gains)
        total, heights = float(slopes.sum()), self._heights(slopes)
        top = float(heights.max())
        if not np.isfinite(top):
            raise np.linalg.LinAlgError("a variance is not a number")
        # As expected of the last picks, rather too low: a second look costs more than some rows.
        seen, reach = np.inf, min(self._reach - 2.0 * self._decline, top)
        looks: list[tuple[Indices, Floats, Floats]] = []
        while reach < seen:
            rows, seen = self._highest(heights, reach, seen, self._batch << len(looks))
            self._refresh(rows)
            looks.append(self._look_at(rows, standing))
            best = max(looks, key=lambda look: float(look[2].max(initial=-np.inf)))
            at = int(best[2].argmax())
            reach = float((best[2][at] - slack - constant) / total) - self._rounding
        fall = max(self._reach - reach, 0.0) if np.isfinite(self._reach) else 0.0
        self._decline += 0.2 * (fall - self._decline)
        self._gains, self._reach = best[1][:, at], reach
        rows, scores = (np.concatenate([look[i] for look in looks]) for i in (0, 2))
        near = np.flatnonzero(scores >= best[2][at] - slack)
        near = near[np.argsort(rows[near])]
        return rows[near], scores[near]

    def _highest(self, heights: Any, reach: float, seen: float, most: int) -> tuple[Any, float]:
        """Rows of heights from `reach` to below `seen`, or about `most` of them, the highest; and
        what heights are seen with them."""
        rows = self._place.xp.nonzero(heights >= reach)[0]
        found = heights[rows]
        if np.isfinite(seen):
            rows, found = rows[found < seen], found[found < seen]
        if len(rows) <= most:
            return rows, reach
        reach = self._place.nth_largest(found, most)
        return rows[found >= reach], reach

    def _look_at(self, rows: Any, standing: Scores) -> tuple[Indices, Floats, Floats]:
        """These rows, (M, m) log c of them and (m,) their scores."""
        place = self._place
        c = self.variances[:, rows] + self._eps
        logs: Floats = place.get(self.utility.gains(c, place.xp))
        scores: Floats = standing.fair_scores(logs)
        if np.isnan(scores).any():  # an arg-max would return it
            raise np.linalg.LinAlgError("a score is not a number")
        return place.get(rows), logs, scores

    def _heights(self, slopes: Floats) -> Any:
        """(n,) weighted means of the gains in float32, where the rows are; -inf for rows that the
        rules forbid, while chosen ones are closed anyhow."""
        problem, weights = self.problem, (slopes / slopes.sum()).astype(np.float32)
        heights = self._place.weighted(self._place.put(weights), self._logs)
        if problem.constraints:
            allowed = problem.constraints.may_add(self.indices, problem.n, problem.k)
            heights[self._place.put(~allowed)] = -np.inf
        return heights

    def _confirm(self, rows: Indices) -> Floats:
        """F_tau of the set with each of these rows, from gathered rows: no block size enters."""
        standing = self.standing(len(self.indices) + 1)
        parts = [rows[start : start + _CONFIRM] for start in range(0, len(rows), _CONFIRM)]
        variances = (self._condition(part)[1] for part in parts)
        return np.concatenate([standing.fair_scores(self.utility.gains(c)) for c in variances])

    def _condition(self, rows: Indices) -> tuple[list[Any], Floats]:
        """v = C^-1 K[S, rows] (t, m) of every view, where the rows are, and c = L_ii - |v_i|^2
        (M, m), which is at least the ridge."""
        pool, place = self.problem.pool, self._place
        norms = pool.squared_norms[rows].T
        if not len(self.indices):
            return [np.empty((0, len(rows)))] * len(norms), norms + pool.eps[:, None]
        coordinates = [trail.coordinates(rows) for trail in self._trails]
        squares = [(place.put(v) ** 2).sum(axis=0) for v in coordinates]
        explained = place.get(place.xp.stack(squares))
        return coordinates, np.maximum(norms - explained, 0.0) + pool.eps[:, None]

    # --- what rows know -------------------------------------------------------------------------

    def refresh_all(self) -> None:
        """Bring the variances of all rows up to date, in one pass."""
        t = len(self.indices)
        if self._since < t:
            self._explain(None, self._since)
        self._since, self._gathered = t, 0

    def _refresh(self, rows: Any) -> None:
        """Bring these rows up to date, or all, once many rows were gathered."""
        t = len(self.indices)
        stale = rows[self._known[rows] < t]
        self._gathered += len(stale)
        coming = self._gathered / max(1, self._missed) * (self.problem.k - t)
        if self._gathered > _SHARE * self.problem.n and coming > _WORTH * self.problem.n:
            self.refresh_all()
            return
        for part, since in self._by_age(stale):
            if len(part):
                self._explain(part, since)

    def _by_age(self, rows: Any) -> list[tuple[Any, int]]:
        """Rows in parts, each with the number of picks that all of its rows know of. A device is
        not asked, since the answer takes longer than the work."""
        if self._place.asynchronous:
            return [(rows, self._since)]
        known = self._known[rows]
        parts = [rows]
        if len(rows) > _FEW:
            late = known < len(self.indices) - _RECENT  # the others miss few directions
            parts = [rows[late], rows[~late]]
        return [(part, int(self._known[part].min(initial=2**31 - 1))) for part in parts]

    def _explain(self, rows: Any, since: int) -> None:
        """Subtract from the variances of rows, or of all, what picks from `since` on explain."""
        pool, t = self.problem.pool, len(self.indices)
        directions = tuple(trail.directions(since) for trail in self._trails)
        here = slice(None) if rows is None else rows
        unknown = np.triu(np.ones((t - since + 1, t - since), dtype=np.float32))
        explained = pool.map(
            _explained,
            (directions, unknown, self._coarse),
            self._known[here] - since,
            width=(t - since) * len(pool.views),
            rows=rows,
        )
        variances = (self.variances[:, here] - explained.T).clip(0.0)
        logs = self._logarithms(variances)
        if rows is None:
            logs[:, self._place.put(self.indices)] = CLOSED
        self.variances[:, here], self._logs[:, here], self._known[here] = variances, logs, t

    def _logarithms(self, variances: Any) -> Any:
        """(M, m) gains in float32, for c = variances + eps."""
        xp = self._place.xp
        with np.errstate(**OVERFLOWS):
            c = variances + self._eps
            if self._moderate:
                c = xp.astype(c, xp.float32)
            return xp.astype(self.utility.gains(c, xp).clip(CLOSED), xp.float32, copy=False)

    @property
    def _missed(self) -> int:
        """How many picks a row may not know of."""
        return len(self.indices) - self._since


@portable
def _explained(block: Block, state: tuple[tuple[Any, ...], Floats, bool], known: Any) -> Any:
    """(b, M) sums of squares along the directions that rows do not know of.

    The state holds anchors of directions by view; by how many of the first ones a row knows, 1.0 at
    those that it does not know; and whether float32 is good enough.
    """
    anchors, unknown, coarse = state
    xp, place = block.xp, block.place
    explained = xp.zeros((len(known), len(anchors)), dtype=xp.float64, device=place.device)
    partly = slice(None) if place.asynchronous else np.flatnonzero(known)
    masks = xp.take(block.put(unknown), known[partly], axis=0)
    with np.errstate(**OVERFLOWS):
        for q, (view, anchor) in enumerate(zip(block.views, anchors, strict=True)):
            v, scale = view.unscaled(anchor, coarse)
            squares = explained[:, q]
            if len(masks) < len(v):
                squares[:] = place.square_sums(v)
            if len(masks):
                squares[partly] = place.square_sums(v[partly] * masks)
            if scale is not None:  # not by its square, which may underflow
                squares *= scale[:, 0]
                squares *= scale[:, 0]
    return explained


def _largest_log(problem: Problem) -> float:
    """The largest |log c| of any row in any view, at least 1."""
    pool = problem.pool
    least = np.maximum(pool.eps, np.finfo(np.float64).tiny)  # without a ridge c may be anything
    with np.errstate(**OVERFLOWS):
        ends = np.abs(np.log([least, least + pool.largest_norms]))
    return max(1.0, float(ends[np.isfinite(ends)].max(initial=1.0)))
