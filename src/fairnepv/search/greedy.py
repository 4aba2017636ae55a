"""Fair greedy: one item at a time, each the best for F_tau of the set so far.

Partial sets are scored with 1/|S|. In each view a row has a conditional variance c_i given the
chosen ones, which a new pick turns into c_i - (phi_i . u)^2 for one direction u. Variances only
fall, so old ones are upper bounds, and F_tau is concave and increasing in their logarithms: most
rows are seen to be hopeless from a tangent alone (DESIGN 3.4). Rows that might win are refreshed
with all directions they have missed in one product; now and then a pass refreshes everybody.

Variances are computed in float32 where the ridge allows it. Whoever could be the best for all that
these say is confirmed in float64 from gathered rows, so neither the precision nor the order in
which rows were refreshed shows in the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fairnepv.engines import HOST, Block, portable
from fairnepv.errors import Status
from fairnepv.loop import run
from fairnepv.objective import Standing
from fairnepv.problem import Problem
from fairnepv.search.ties import COARSEST, SLACK, blur, coarse_error, lowest_tied, ranked
from fairnepv.views.base import Floats, Indices

# A vanishing ridge lets variances overflow; what comes of it is refused.
_OVERFLOWS: dict[str, Any] = {"over": "ignore", "invalid": "ignore", "divide": "ignore"}
_WINDOW = 128  # picks that a row may not have heard of before a pass refreshes everybody
_SHARE = 0.15  # of the rows, gathered since the last pass: then it is time for one,
_WORTH = 0.25  # if at this rate more than this share is still to come
_LATELY = 4  # picks ago
_FEW = 1024  # rows that are not worth two products
_BATCH, _BATCH_SHARE = 512, 1 / 64  # rows that are looked at together; the larger counts
_CONFIRM = 2048  # rows that are confirmed at a time
_CLOSED = -1e30  # in place of the logarithm for rows that are chosen
_SINGLE = 1e-6  # rounding of a height per unit of its largest term
_LEAST_SINGLE, _MOST_SINGLE = 1e-37, 1e38  # numbers that float32 holds to all its digits


class Scores(Protocol):
    """How a set scores; `Standing` is the one of F_tau. Small, as it travels with a pass."""

    def fair_scores(self, log_ratios: Floats) -> Any: ...

    def ceiling(self, log_ratios: Floats) -> tuple[float, Floats]:
        """a and b >= 0 (M,) such that no row scores above a + b . log_ratios; near those given
        that is meant to be tight."""
        ...


Judge = Callable[[Floats, int], Scores]  # of log-determinants and the size of the set


@dataclass(frozen=True)
class GreedyState:
    indices: Indices  # in order of selection
    value: float  # F_tau of them
    passes: int = 0


class Greedy:
    """k items in greedy order; items fixed in come first.

    `judge` makes what scores a set of its log-determinants; by default that is F_tau.
    """

    stage = "greedy"

    def __init__(self, problem: Problem, judge: Judge | None = None) -> None:
        self.problem = problem
        self._judge = judge or functools.partial(Standing.of, problem)
        self._frontier: Frontier | None = None

    def init(self) -> GreedyState:
        indices = self.problem.constraints.fixed_in
        return GreedyState(indices, self._at(indices).value)

    def step(self, state: GreedyState) -> GreedyState:
        frontier = self._at(state.indices)
        self._frontier = None  # until it is whole again, should this be interrupted
        with np.errstate(**_OVERFLOWS):
            frontier.extend(frontier.best_addition())
        self._frontier = frontier
        # Those that are sure to be made; how many more there are depends on where a run resumed.
        passes = len(frontier.indices) // _WINDOW
        return GreedyState(frontier.indices, frontier.value, passes)

    def done(self, state: GreedyState) -> Status | None:
        return Status.COMPLETE if len(state.indices) == self.problem.k else None

    def report(self, state: GreedyState) -> Mapping[str, Any]:
        return {"objective": state.value, "size": len(state.indices), "of": self.problem.k}

    def _at(self, indices: Indices) -> Frontier:
        """The frontier of these picks: the one at hand, or one rebuilt for a resumed state."""
        if self._frontier is None or not np.array_equal(self._frontier.indices, indices):
            self._frontier = Frontier(self.problem, self._judge, indices)
        return self._frontier


class Frontier:
    """What greedy knows of a set and of all rows beside it; no state stores it, since all that it
    is asked follows from the indices."""

    def __init__(
        self, problem: Problem, judge: Judge, indices: Indices, *, coarse: bool = True
    ) -> None:
        pool = problem.pool
        self.problem, self.judge = problem, judge
        self.indices = indices[:0]
        self.logdets = np.zeros(len(pool.views))
        # What is known of all rows lies where the engine keeps them.
        self._place = place = pool.place
        self._eps = place.put(pool.eps[:, None])
        largest = float((pool.largest_norms + pool.eps).max())
        self._moderate = pool.eps.min() > _LEAST_SINGLE and largest < _MOST_SINGLE
        norms = np.array(pool.squared_norms.T, order="C")
        self.variances = place.put(norms)  # (M, n) c_i without the ridge, or above it
        # So many picks are in these. To ask a device takes longer than to tell it once more: there
        # variances are those of the last pass, and rows are told all that came since.
        self._known = np.zeros(pool.n, dtype=np.int32) if place is HOST else None
        self._logs = self._logarithms(self.variances)  # (M, n) float32
        self._since = 0  # so many picks everybody knows of
        self._gathered = 0  # rows since the last pass
        self._lead = _Lead(np.log(pool.eps + pool.largest_norms), np.inf)
        self._batch = max(_BATCH, int(_BATCH_SHARE * pool.n))
        self._error = coarse_error(problem)
        self._coarse = coarse and self._error <= COARSEST
        self._rounding = _SINGLE * _largest_log(problem)
        self._trails = [view.trail(problem.k, self._coarse) for view in pool.views]
        for row in indices:  # one by one, so that a resumed run goes on to the last bit
            self.extend(int(row))
        if len(indices):
            self.refresh_all()

    def standing(self, size: int) -> Scores:
        return self.judge(self.logdets, size)

    @property
    def value(self) -> float:
        """F_tau of the set; the empty set counts as 0."""
        if not len(self.indices):
            return 0.0
        return float(self.standing(len(self.indices)).fair_scores(np.zeros(len(self.logdets))))

    # --- the next pick --------------------------------------------------------------------------

    def best_addition(self) -> int:
        size = len(self.indices) + 1
        if self._missed >= _WINDOW:
            self.refresh_all()
        unsure = blur(self.problem, size)
        slack = max(SLACK, 10.0 * unsure) + (2.0 * self._error / size if self._coarse else 0.0)
        contenders = self._contenders(self.standing(size), slack, self._closed())
        if len(contenders) == 1:
            return int(contenders[0])
        confirmed = self._confirm(contenders)
        return int(contenders[lowest_tied(confirmed, max(self.problem.tolerances.tie, unsure))])

    def extend(self, row: int) -> None:
        """One more pick: its factors are made at once, rows hear of it when they are refreshed."""
        coordinates, c = self._condition(np.array([row]))
        if not (c > 0).all():
            raise np.linalg.LinAlgError("a variance is not positive")
        for trail, v, root in zip(self._trails, coordinates, np.sqrt(c[:, 0]), strict=True):
            trail.add(row, v[:, 0], float(root))
        self.indices = np.append(self.indices, np.int64(row))
        self.logdets = self.logdets + np.log(c[:, 0])
        self._logs[:, row] = _CLOSED

    def _closed(self) -> NDArray[np.bool_] | None:
        """Rows that the rules forbid; chosen ones are closed anyhow."""
        problem = self.problem
        if not problem.constraints:
            return None
        return ~problem.constraints.may_add(self.indices, problem.n, problem.k)

    def _contenders(
        self, standing: Scores, slack: float, closed: NDArray[np.bool_] | None
    ) -> Indices:
        """All rows that may be within `slack` of the best, ascending.

        The tangent at any point bounds all scores; it is taken where the last winner stood. Rows
        are looked at from the highest bound down, until the best is above what is left.
        """
        constant, slopes = standing.ceiling(self._lead.logs)
        total = float(slopes.sum())
        heights = self._heights(slopes / total, closed)
        top = float(heights.max())
        if not np.isfinite(top):
            raise np.linalg.LinAlgError("a variance is not a number")
        seen, reach = np.inf, min(self._lead.expected, top)
        looks: list[tuple[Indices, Floats, Floats]] = []
        while reach < seen:
            rows, seen = self._highest(heights, reach, seen)
            looks.append(self._look_at(rows, standing))
            best = max(looks, key=lambda look: float(look[2].max(initial=-np.inf)))
            at = int(best[2].argmax())
            reach = float((best[2][at] - slack - constant) / total) - self._rounding
        self._lead = self._lead.followed(best[1][:, at], reach)
        near = [rows[scores >= best[2][at] - slack] for rows, _, scores in looks]
        return np.sort(np.concatenate(near))

    def _highest(self, heights: Any, reach: float, seen: float) -> tuple[Any, float]:
        """Rows of heights from `reach` to below `seen`, or the highest of them if they are many;
        and what heights are seen with them."""
        rows = self._place.xp.nonzero(heights >= reach)[0]
        found = heights[rows]
        if np.isfinite(seen):
            rows, found = rows[found < seen], found[found < seen]
        if len(rows) <= self._batch:
            return rows, reach
        reach = _nth_largest(found, self._batch)
        return rows[found >= reach], reach

    def _look_at(self, rows: Any, standing: Scores) -> tuple[Indices, Floats, Floats]:
        """These rows, (M, m) log c of them and (m,) their scores, up to date."""
        place = self._place
        logs: Floats = place.get(self._refreshed(rows))
        scores: Floats = standing.fair_scores(logs)
        if np.isnan(scores).any():  # an arg-max would return it
            raise np.linalg.LinAlgError("a score is not a number")
        return place.get(rows), logs, scores

    def _heights(self, weights: Floats, closed: NDArray[np.bool_] | None) -> Any:
        """(n,) float32, where the rows are."""
        heights = self._place.put(weights.astype(np.float32)) @ self._logs
        if closed is not None:
            heights[self._place.put(closed)] = -np.inf
        return heights

    def _confirm(self, rows: Indices) -> Floats:
        """F_tau of the set with each of these rows, from gathered rows: no block size enters."""
        standing = self.standing(len(self.indices) + 1)
        parts = []
        for start in range(0, len(rows), _CONFIRM):
            part = rows[start : start + _CONFIRM]
            parts.append(standing.fair_scores(np.log(self._condition(part)[1])))
        return np.concatenate(parts)

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
        """One pass: variances of all rows are up to date."""
        t = len(self.indices)
        if self._since < t:
            self._explain(None, self._since)
        self._since, self._gathered = t, 0

    def _refreshed(self, rows: Any) -> Any:
        """(M, m) log c of these rows, who hear of all picks; so does everybody, once many rows were
        gathered."""
        xp, t = self._place.xp, len(self.indices)
        stale = rows if self._known is None else rows[self._known[rows] < t]
        self._gathered += len(stale)
        coming = self._gathered / max(1, self._missed) * (self.problem.k - t)
        if self._gathered > _SHARE * self.problem.n and coming > _WORTH * self.problem.n:
            self.refresh_all()
        elif self._known is not None:
            for part, since in self._by_age(stale):
                if len(part):
                    self._explain(part, since)
        elif self._missed and len(rows):
            logs = xp.log(self._without(rows, self._since) + self._eps)
            self._logs[:, rows] = _single(xp, logs)
            return logs
        return xp.log(self.variances[:, rows] + self._eps)

    def _by_age(self, rows: Indices) -> list[tuple[Indices, int]]:
        """Rows with how many picks they know of, at the least."""
        assert self._known is not None
        known = self._known[rows]
        parts = [rows]
        if len(rows) > _FEW:
            late = known < len(self.indices) - _LATELY  # the others miss few directions
            parts = [rows[late], rows[~late]]
        return [(part, int(self._known[part].min(initial=2**31 - 1))) for part in parts]

    def _explain(self, rows: Indices | None, since: int) -> None:
        """Take off the variances of rows, or of all, what picks from `since` on explain of them."""
        here = slice(None) if rows is None else rows
        variances = self._without(rows, since)
        logs = self._logarithms(variances)
        if rows is None:
            logs[:, self._place.put(self.indices)] = _CLOSED
        self.variances[:, here], self._logs[:, here] = variances, logs
        if self._known is not None:
            self._known[here] = len(self.indices)

    def _without(self, rows: Any, since: int) -> Any:
        """(M, m) variances of rows, or of all, without what picks from `since` on explain."""
        pool, t = self.problem.pool, len(self.indices)
        directions = tuple(trail.directions(since) for trail in self._trails)
        here = slice(None) if rows is None else rows
        explained = pool.map(
            _explained,
            Explain(since, np.arange(since, t), directions, self._coarse),
            *(() if self._known is None else (self._known[here],)),
            width=(t - since) * len(pool.views),
            rows=rows,
        )
        return (self.variances[:, here] - explained.T).clip(0.0)

    def _logarithms(self, variances: Any) -> Any:
        """(M, m) log c in float32"""
        xp = self._place.xp
        with np.errstate(**_OVERFLOWS):
            c = variances + self._eps
            if self._moderate:
                c = xp.astype(c, xp.float32)
            return _single(xp, xp.log(c))

    @property
    def _missed(self) -> int:
        """How many picks a row may not have heard of."""
        return len(self.indices) - self._since


class _Lead(NamedTuple):
    """The last winner: log c (M,), and the height that it took to be as good."""

    logs: Floats
    reach: float
    decline: float = 0.0  # of that from pick to pick, on average over the last

    @property
    def expected(self) -> float:
        """What it will take to be as good as the next, rather too little than too much: a second
        look costs more than some rows."""
        return self.reach - 2.0 * self.decline

    def followed(self, logs: Floats, reach: float) -> _Lead:
        """The next."""
        last = max(self.reach - reach, 0.0) if np.isfinite(self.reach) else 0.0
        return _Lead(logs, reach, self.decline + 0.2 * (last - self.decline))


class Explain(NamedTuple):
    since: int
    picks: NDArray[np.int64]  # since then, by number
    anchors: tuple[Any, ...]  # of the directions in between
    coarse: bool


@portable
def _explained(block: Block, state: Explain, *known: Any) -> Any:
    """(b, M) squares along the directions; without those that rows are `known` to know of."""
    xp, explained = block.xp, []
    if known:
        them = _ahead(known[0], state.since)
        news = block.put(state.picks) >= known[0][them, None]
    with np.errstate(**_OVERFLOWS):
        for view, anchor in zip(block.views, state.anchors, strict=True):
            v = view.coarse(anchor) if state.coarse else view.cross(anchor)
            if known:
                v[them] *= news
            explained.append(block.place.square_sums(v))
    return xp.astype(xp.stack(explained, axis=1), xp.float64)


def _ahead(known: Any, since: int) -> Any:
    """Rows that know some of the directions already; all of them where that is quicker."""
    if not isinstance(known, np.ndarray):
        return slice(None)
    rows = np.flatnonzero(known > since)
    return rows if 2 * len(rows) < len(known) else slice(None)


def _single(xp: Any, logs: Any) -> Any:
    return xp.astype(logs.clip(_CLOSED), xp.float32, copy=False)


def _nth_largest(values: Any, n: int) -> float:
    if isinstance(values, np.ndarray):
        return float(np.partition(values, len(values) - n)[len(values) - n])
    return float(values.topk(n).values[-1])


def _largest_log(problem: Problem) -> float:
    """Of c in any view, at least 1."""
    pool = problem.pool
    least = np.maximum(pool.eps, np.finfo(np.float64).tiny)  # without a ridge c may be anything
    with np.errstate(**_OVERFLOWS):
        ends = np.abs(np.log([least, least + pool.largest_norms]))
    return max(1.0, float(ends[np.isfinite(ends)].max(initial=1.0)))


def complete(problem: Problem, indices: Indices) -> Indices:
    """An unfinished greedy set filled up to k by the scores as they stand: no further pass.

    What a run that was interrupted or out of time returns, instead of too few items.
    """
    if len(indices) == problem.k:
        return indices
    pool = problem.pool
    with np.errstate(**_OVERFLOWS):
        frontier = Frontier(problem, functools.partial(Standing.of, problem), indices, coarse=False)
        logs = np.log(pool.place.get(frontier.variances) + pool.eps[:, None])
        scores = frontier.standing(len(indices) + 1).fair_scores(logs)
    scores = np.nan_to_num(scores, nan=-1e300, neginf=-1e300)  # unknown scores go last
    order = ranked(scores, max(problem.tolerances.tie, blur(problem, len(indices) + 1)))
    while len(indices) < problem.k:
        allowed = problem.constraints.may_add(indices, problem.n, problem.k)
        indices = np.append(indices, order[np.argmax(allowed[order])])
    return indices


def fair_order(problem: Problem, indices: Indices) -> Indices:
    """The same set in fair-greedy order within itself, so that its first j make sense alone."""
    rows = np.sort(indices)
    order = run(Greedy(problem.take(rows))).state.indices
    rest = np.setdiff1d(np.arange(len(rows)), order)  # where rounding stopped greedy half-way
    return np.asarray(rows[np.concatenate([order, rest])])
