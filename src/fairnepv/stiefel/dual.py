"""Fair PCA solved globally, through its dual in one weight per view (docs/method.md#fair-pca).

With K_q scaled to trace one, kappa(w) the sum of the k largest eigenvalues of sum_q w_q K_q and o_q
the offset of a view, every frame V and all weights w of the simplex have

    f_tau(V)  <=  kappa(w) + sum_q w_q o_q + tau KL(w | uniform)

and the least right side is the maximum over the convex hull of all V V^T [OvertonWomersley; for
fair PCA, Tantipongpipat]. kappa(w) is the largest sum_q w_q g_q(V), so every frame that was seen
bounds it from below by a linear function: the next weights minimise the largest of these together
with the exact entropy. While one of them counts, that is the step of Algorithm 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairnepv.errors import Status
from fairnepv.objective import entropy_price, soft_min
from fairnepv.stiefel.eigen import Weighted, leading
from fairnepv.stiefel.iteration import Iteration
from fairnepv.views.base import Floats

_SURE = 0.1  # of the tolerance, to which eigenvalues and mixtures are known
_PATIENCE = 25  # steps that bring the bound and the best frame no closer
_BARRIER, _SHRINK, _LAST = 1.0, 0.2, 1e-13  # of the interior-point method below
_NEWTON, _HALVINGS = 60, 40
_ROUNDING = 64.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class DualState:
    V: Floats  # the best frame so far
    block: Floats  # eigenvectors at the last weights, which the next ones begin with
    cuts: Floats  # (m, M) scores of the frames so far, offsets included
    weights: Floats  # (M,) which come next
    value: float  # of V
    mixed: float  # of the best mixture of frames
    upper: float  # no frame and no mixture has more
    stalled: int = 0
    passes: int = 0


class Dual(Iteration):
    """The least bound over all weights, until it is within `tol` of the best frame, or as good as
    within that of a mixture of frames, beyond which no weights go."""

    stage = "dual"

    def init(self) -> DualState:
        point = self._point(self._start)
        # No view can have more than all of its variance.
        most = soft_min(1.0 + self._offsets, self._point.objective.tau)
        cuts = point.view_values[None, :]
        return DualState(
            point.V,
            point.V,
            cuts,
            point.weights,
            point.value,
            point.value,
            float(most),
            passes=self._point.for_both,
        )

    def step(self, state: DualState) -> DualState:
        f, w = self._point.objective, state.weights
        H = Weighted.by_weights(f.maps, w)
        found = leading(H, f.k, state.block, _SURE * self.tol)
        point = f.at(np.ascontiguousarray(found.vectors[:, : f.k]))
        largest = float(found.values[: f.k].sum()) + found.error
        bound = largest + float(w @ self._offsets) + entropy_price(w, f.tau)
        upper, value = min(state.upper, bound), max(state.value, point.value)
        cuts = np.vstack([state.cuts, point.view_values])
        following, mixed = least_bound(cuts, f.tau)
        better = point.value > state.value
        closer = upper - value < 0.999 * (state.upper - state.value)
        return DualState(
            point.V if better else state.V,
            found.vectors,
            cuts,
            following,
            value,
            max(mixed, value),
            upper,
            0 if closer else state.stalled + 1,
            state.passes + (found.products + 1) * self._point.for_both,
        )

    def done(self, state: DualState) -> Status | None:
        rounding = _ROUNDING * max(1.0, abs(state.upper))
        if state.upper - state.value <= max(self.tol, rounding):
            return Status.GLOBAL
        if state.upper - state.mixed <= max(_SURE**2 * self.tol, rounding):
            return Status.MIXED
        return Status.STAGNATED if state.stalled >= _PATIENCE else None

    def report(self, state: DualState) -> Mapping[str, Any]:
        return {**super().report(state), "upper": state.upper, "mixed": state.mixed}

    @property
    def _offsets(self) -> Floats:
        return self._point.objective.offsets


def least_bound(cuts: Floats, tau: float) -> tuple[Floats, float]:
    """Weights w (M,) with the least max_i <w, cut_i> + tau KL(w | uniform), and the soft-min of the
    best mixture of the cuts, which is the same number but for what is left of the barrier.

    Newton's method on a logarithmic barrier, which has M + 1 unknowns.
    """
    M = cuts.shape[1]
    if M == 1 or np.isinf(tau):
        return np.full(M, 1.0 / M), float(np.max(soft_min(cuts.T, tau)))
    middle = float(cuts.mean())
    a = cuts - middle
    size = max(float(np.abs(a).max()), 1e-12)
    x = np.full(M + 1, 1.0 / M)  # w, and t above all <w, cut_i>
    x[M] = float((a @ x[:M]).max()) + size
    mixed, barrier = -np.inf, _BARRIER * size
    while barrier > _LAST * size:
        x = _centred(a, tau, barrier, x)
        shares = 1.0 / (x[M] - a @ x[:M])
        mixed = max(mixed, float(soft_min(shares / shares.sum() @ cuts, tau)))
        barrier *= _SHRINK
    w = x[:M] / x[:M].sum()
    return w, mixed


def _centred(a: Floats, tau: float, barrier: float, x: Floats) -> Floats:
    """The minimum of the problem with a barrier, from a point within."""
    M = a.shape[1]
    value = _barred(a, tau, barrier, x)
    for _ in range(_NEWTON):
        w, slack = x[:M], x[M] - a @ x[:M]
        edges = np.hstack([-a, np.ones((len(a), 1))]) / slack[:, None]
        gradient = -barrier * edges.sum(axis=0)
        gradient[:M] += tau * (np.log(M * w) + 1.0) - barrier / w
        gradient[M] += 1.0
        system = np.zeros((M + 2, M + 2))  # with the sum of the weights held
        system[: M + 1, : M + 1] = barrier * edges.T @ edges
        system[np.arange(M), np.arange(M)] += tau / w + barrier / w**2
        system[:M, M + 1] = system[M + 1, :M] = 1.0
        try:
            step = np.linalg.solve(system, np.append(-gradient, 0.0))[: M + 1]
        except np.linalg.LinAlgError:  # beside the edges a small tau has drowned in rounding
            break
        fall = -float(gradient @ step)
        if not fall > 1e-6 * barrier:
            break
        length = 1.0
        for _ in range(_HALVINGS):
            trial = x + length * step
            reached = _barred(a, tau, barrier, trial)
            if reached <= value - 0.1 * length * fall:
                break
            length *= 0.5
        else:
            break
        x, value = trial, reached
    return x


def _barred(a: Floats, tau: float, barrier: float, x: Floats) -> float:
    w, slack = x[:-1], x[-1] - a @ x[:-1]
    if not (w.min() > 0 and slack.min() > 0):
        return np.inf
    entropy = tau * float(w @ np.log(len(w) * w))
    return float(x[-1]) + entropy - barrier * float(np.log(slack).sum() + np.log(w).sum())
