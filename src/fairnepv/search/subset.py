"""A subset with the inverse of its kernel in every view: what a swap is judged and made by.

Exchanging slot j for row i multiplies det L[S, S] by c_i B_jj + v_ji^2, with B = L_S^-1, v = B K_i
and c_i = L_ii - K_i . v (DESIGN 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky
from scipy.linalg.lapack import dpotri

from fairnepv.engines import few_threads
from fairnepv.objective import Standing
from fairnepv.problem import Problem
from fairnepv.views.base import Floats, Indices


@dataclass(frozen=True)
class Subset:
    """Immutable; `exchange` makes the next one with O(k^2) work per view."""

    problem: Problem
    indices: Indices
    inverses: tuple[Floats, ...]  # per view B = L[S, S]^-1
    logdets: Floats  # (M,)

    @classmethod
    def of(cls, problem: Problem, indices: Indices) -> Subset:
        inverses, logdets = [], []
        for view in problem.pool.views:
            with few_threads(float(len(indices)) ** 3):
                L = view.inner(indices, indices) + view.ridge * np.eye(len(indices))
                C = cholesky(L, lower=True, check_finite=False)
                B, _ = dpotri(C, lower=1)
            logdets.append(2.0 * np.log(np.diagonal(C)).sum())
            inverses.append(np.tril(B) + np.tril(B, -1).T)
        return cls(problem, indices, tuple(inverses), np.array(logdets))

    @property
    def standing(self) -> Standing:
        return Standing.of(self.problem, self.logdets, len(self.indices))

    @property
    def value(self) -> float:
        return float(self.standing.fair_scores(np.zeros(len(self.logdets))))

    def with_row(self, slot: int, row: int) -> Indices:
        """The indices after an exchange."""
        indices = self.indices.copy()
        indices[slot] = row
        return indices

    def confirm(self, slot: int, row: int) -> Exchange:
        """The exchange of one slot for one row, computed from the gathered rows alone."""
        rows = np.array([row], dtype=np.int64)
        pool = self.problem.pool
        moves, ratios = [], []
        for q, (view, B) in enumerate(zip(pool.views, self.inverses, strict=True)):
            K = view.inner(self.indices, rows)[:, 0]
            v = B @ K
            c = max(pool.squared_norms[row, q] - K @ v, 0.0) + view.ridge
            ratios.append(c * B[slot, slot] + v[slot] ** 2)
            # Without the slot: B_- = B - b b^T / B_jj; with the row: u = B_- K, 1/s in the slot.
            b = B[:, slot] / np.sqrt(B[slot, slot])
            u = v - b * (b @ K)
            u[slot] = -1.0
            moves.append((b, u, ratios[-1] / B[slot, slot]))
        log_ratios = np.log(np.array(ratios))
        return Exchange(
            slot, row, float(self.standing.fair_scores(log_ratios)), log_ratios, tuple(moves)
        )

    def exchange(self, move: Exchange) -> Subset:
        indices = self.with_row(move.slot, move.row)
        inverses = []
        for B, (b, u, s) in zip(self.inverses, move.updates, strict=True):
            B = B - np.outer(b, b)
            B[move.slot, :] = B[:, move.slot] = 0.0  # exactly, where the subtraction left rounding
            inverses.append(B + np.outer(u, u / s))
        return Subset(self.problem, indices, tuple(inverses), self.logdets + move.log_ratios)


class Exchange(NamedTuple):
    slot: int
    row: int
    value: float  # F_tau afterwards
    log_ratios: Floats  # (M,)
    updates: tuple[tuple[Floats, Floats, float], ...]
