"""The next picks of a greedy search, made on a device without asking it in between.

A device computes fast and answers slowly. So here a pick is made from beginning to end where the
rows are: of few rows, those with the highest bounds, the best is found, its direction is made and
taken off the variances of the others; and it is noted whether a row beside them might have been
better. After some picks the host asks how many of them hold. On CUDA a pick is a graph of kernels,
captured once and replayed.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute.tensors import whole_float32
from fairnepv.objective import lifted_floors, merit, soft_min, soft_min_weights, utility_of
from fairnepv.problem import Problem
from fairnepv.search.ties import SLACK, blur
from fairnepv.views.base import Floats
from fairnepv.views.trail import Trail

CLOSED = -1e30  # in place of the logarithm for rows that are chosen
_ROWS = 4096  # that are raced among
_STRETCH = 8  # picks between questions
_MOST = 128  # picks among the same rows


class Foreseen(NamedTuple):
    row: int
    totals: Floats  # (M,) with it


class Sprint:
    """Everything that a pick needs, at fixed addresses.

    `error` is how far bounds in float32 may be too low, in log c, and `rounding` that of heights.
    """

    def __init__(
        self, problem: Problem, trails: Sequence[Trail], error: float, rounding: float
    ) -> None:
        import torch

        pool, k = problem.pool, problem.k
        self._torch, self._xp, self._views = torch, pool.place.xp, pool.views
        self._utility = utility_of(problem)
        self._k, self._m = k, min(_ROWS, pool.n)
        self._tau, self._rounding = problem.tau, rounding
        put, device = pool.place.put, pool.place.device
        zeros = partial(torch.zeros, dtype=torch.float64, device=device)
        self._directions = [trail.matrix for trail in trails]  # (k, p), zero beyond the picks
        self._features = [zeros((self._m, D.shape[1])) for D in self._directions]
        self._c = zeros((len(trails), self._m)) + 1.0
        self._open = zeros(self._m, dtype=torch.bool)
        self._rows = zeros(self._m, dtype=torch.int64)
        self._places = torch.arange(self._m, device=device)
        self._beside = zeros((len(trails), pool.n), dtype=torch.float32)  # log c of all others
        self._t = zeros(1, dtype=torch.int64)
        self._totals = zeros((len(trails), 1))
        self._picks = zeros(k, dtype=torch.int64)
        self._holds = zeros(k, dtype=torch.bool)
        self._history = zeros((k, len(trails)))
        self._eps, self._offsets = put(pool.eps[:, None]), put(problem.offsets[:, None])
        floors = lifted_floors(problem)
        self._floors = None if floors is None else put(floors[:, None])
        unsure = np.array([blur(problem, size) for size in range(1, k + 1)])
        self._ties = put(np.maximum(problem.tolerances.tie, unsure))
        self._slacks = put(np.maximum(SLACK, 10.0 * unsure) + error / np.arange(1, k + 1))
        self._graph = self._captured() if device.type == "cuda" else None

    @whole_float32()
    def run(self, heights: Any, logs: Any, totals: Floats, t: int) -> list[Foreseen]:
        """The picks from number t on, as far as they are sure, for bounds on the scores of all rows
        (n,) and the logarithms (M, n) that these are made of."""
        self._begin(heights, logs, totals, t)
        advance = self._pick if self._graph is None else self._graph.replay
        first, most = t, min(t + _MOST, self._k)
        while t < most:
            stop = min(t + _STRETCH, most)
            for _ in range(t, stop):
                advance()
            if not bool(self._holds[t:stop].all()):
                break
            t = stop
        holds = self._holds[first : min(t + _STRETCH, most)].cpu().numpy()
        sure = first + (len(holds) if holds.all() else int(holds.argmin()))
        rows, after = self._picks[first:sure].tolist(), self._history[first:sure].cpu().numpy()
        return [Foreseen(row, totals) for row, totals in zip(rows, after, strict=True)]

    def _begin(self, heights: Any, logs: Any, totals: Floats, t: int) -> None:
        torch = self._torch
        rows = heights.topk(self._m, sorted=False).indices.sort().values  # a tie is the lowest's
        self._rows.copy_(rows)
        self._open.copy_(heights[rows] > 0.1 * CLOSED)
        self._beside.copy_(logs)
        self._beside.masked_fill_(heights == -np.inf, CLOSED)
        self._beside[:, rows] = CLOSED
        for q, (view, D, X) in enumerate(
            zip(self._views, self._directions, self._features, strict=True)
        ):
            D[t:] = 0.0
            X.copy_(view.anchor(rows))
            explained = torch.linalg.vector_norm(D[:t] @ X.T, dim=0).square_()
            left = torch.linalg.vector_norm(X, dim=1).square_() - explained
            self._c[q] = left.clip(0.0) + self._eps[q]
        self._totals.copy_(torch.from_numpy(totals[:, None]))
        self._t.fill_(t)

    def _pick(self) -> None:
        """One pick; no size here depends on a number that only the device knows."""
        torch, xp, t = self._torch, self._xp, self._t
        gains = self._utility.gains(self._c, torch)
        d = (self._totals + gains) / self._utility.divisor(t + 1) + self._offsets  # (M, m)
        scores = torch.where(self._open, merit(d, self._tau, self._floors, xp), -np.inf)
        best = scores.max()
        tied = torch.where(scores >= best - self._ties[t], self._places, self._m - 1)
        at = tied.min().reshape(1)
        self._note(best, d.index_select(1, at)[:, 0], gains.index_select(1, at)[:, 0], at)
        for q, (D, X) in enumerate(zip(self._directions, self._features, strict=True)):
            row = X.index_select(0, at)[0]
            rest = row - D.T @ (D @ row)
            u = rest / self._c[q].index_select(0, at).sqrt()
            D.index_copy_(0, t, u[None])
            self._c[q] = torch.clamp(self._c[q] - (X @ u).square_(), min=self._eps[q])
        self._open.index_fill_(0, at, False)
        self._t += 1

    def _note(self, best: Any, d: Any, gains: Any, at: Any) -> None:
        """Note the pick, and whether no row beside these can be as good: that is bounded by the
        tangent of F_tau at the scores d (M,) of the pick."""
        t, w = self._t, soft_min_weights(d, self._tau, self._xp)
        beside = (w.float() @ self._beside).max() + self._rounding
        divisor = self._utility.divisor(t + 1)
        most = soft_min(d, self._tau, self._xp) + (beside - w @ gains) / divisor
        self._totals += gains[:, None]
        self._holds.index_copy_(0, t, best - self._slacks[t] >= most)
        self._picks.index_copy_(0, t, self._rows.index_select(0, at))
        self._history.index_copy_(0, t, self._totals.T)

    @whole_float32()
    def _captured(self) -> Any:
        torch, graph = self._torch, self._torch.cuda.CUDAGraph()
        with torch.cuda.device(self._t.device):  # streams and graphs are those of the current one
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):  # libraries allocate what they need when first called
                for _ in range(2):
                    self._t.fill_(self._k - 1)
                    self._pick()
            torch.cuda.current_stream().wait_stream(aside)
            self._t.fill_(self._k - 1)
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._pick()
        return graph
