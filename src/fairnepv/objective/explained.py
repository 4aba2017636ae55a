"""Explained variance as a utility: representative sets (docs/method.md#explained-variance).

Of a set it is the share of a view's variance over the pool that ridge regression on the chosen rows
explains: tr(L_S^-1 K2[S, S]) / tr G, with L_S = K[S, S] + eps I, and G and K2 as in
`views.moments`. Scores are these shares, so that nothing is divided by the number of items.

Of a frame V it is the share tr(V^T K V) / tr K of the variance along V: fair PCA. Rows count by
their quality there, too: the feature maps that a frame is asked about hold sqrt(w_t) phi_t.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fairnepv.objective.explained_bound import (
    HeldVariance,
    VarianceDual,
    VarianceSlope,
    norm_bound,
)
from fairnepv.objective.shrinkage import axes_worth, ky_fan
from fairnepv.views import Calibration, Pool, View
from fairnepv.views.base import Floats, Indices
from fairnepv.views.in_turn import in_turn, suits
from fairnepv.views.moments import columns_of, second_inner, with_moments

_TINY = np.finfo(np.float64).tiny


class Explained:
    """The answers of explained variance to what a `Utility` is asked."""

    dual_type = VarianceDual

    # Several roots of matrices and a search for a level; values are estimates from above.
    factored, by_columns, may_be_rough, exact = 12.0, True, False, False

    def divisor(self, size: int) -> float:
        return 1.0

    def asked_about(self, pool: Pool, calibration: Calibration) -> Pool:
        """Quality says how much there is to be explained of a row, and makes none longer."""
        bare = calibration.apply(replace(pool, quality=None))
        return replace(with_moments(bare, pool.quality), quality=pool.quality)

    def along_frames(self, pool: Pool) -> Pool:
        """For a quality w, K becomes diag(sqrt w) K diag(sqrt w), and its trace that of G."""
        if pool.quality is None:
            return pool
        views = []
        for name, view in pool.items():
            root = np.sqrt(pool.quality[name])
            scale = root if view.scale is None else view.scale * root
            views.append(view.scaled(scale, view.offset))
        return pool.with_views(pool.names, tuple(views))

    def total(self, view: View, indices: Indices) -> float:
        if view.well_conditioned(indices):
            return float(self.contributions(view, indices).sum())
        place = view.block_place  # by singular values, which a small ridge costs no digits
        U, singular, _ = np.linalg.svd(place.get(columns_of(view, indices)), full_matrices=False)
        along = view.moments.apply(place.put(U), place)
        explained = place.get((place.put(U) * along).sum(axis=0))
        squares = singular**2
        shares = np.divide(squares, squares + view.ridge, where=squares > 0, out=squares.copy())
        return float(shares @ explained / view.moments.trace)

    def totals(self, view: View, sets: NDArray[np.int64]) -> Floats:
        rows, position = np.unique(sets, return_inverse=True)
        position = position.reshape(sets.shape)
        at = position[:, :, None], position[:, None, :]
        L = view.inner(rows, rows)[at] + view.ridge * np.eye(sets.shape[1])
        K2 = second_inner(view, rows, rows)[at]
        try:
            solved = np.linalg.solve(L, K2)
        except np.linalg.LinAlgError:  # a ridge that vanishes beside rows which are alike
            return np.array([self.total(view, indices) for indices in sets])
        return np.asarray(np.trace(solved, axis1=1, axis2=2) / view.moments.trace)

    def contributions(self, view: View, indices: Indices) -> Floats:
        """By the rows of R^-T Phi_S for L_S = R^T R, of which each depends on its item and on those
        before it."""
        Phi = columns_of(view, indices)  # (p, k)
        if not suits(len(indices), view.p, view.trace_at(indices), view.ridge):
            return _explained(view, Phi @ _inverse_root(view, indices, Phi))
        place = view.block_place
        blocks = in_turn(place, Phi.T, view.ridge)
        return np.concatenate([_explained(view, b.directions(place).T) for b in blocks])

    def removals(self, view: View, indices: Indices, pivots: Floats) -> Floats:
        """By the columns of E = Phi_S^T T, for T = L_S^-1: T without an item is T less
        t_j t_j^T / T_jj, for t_j its column."""
        Phi = columns_of(view, indices)
        root = _inverse_root(view, indices, Phi)
        place = view.block_place
        lengths = place.get(place.square_sums(root))
        return np.asarray(_explained(view, Phi @ (root @ root.T)) / lengths)

    # --- frames ---

    linear_on_frames = True

    def on_frame(self, Z: Floats, eps: float, trace: float) -> ViewShare:
        return ViewShare(Z, trace)

    def on_range(self, Z: Floats, eps: float, trace: float, k: int) -> float:
        return ViewShare(Z, trace).total

    def along_frame(self, X: Floats, terms: Sequence[Any], shares: Floats) -> Floats:
        return np.asarray(X @ sum(c * term.along for c, term in zip(shares, terms, strict=True)))

    def unit(self, terms: Sequence[Any], shares: Floats) -> float:
        level = float(shares @ [term.total for term in terms])  # tr (V^T A)
        k: int = terms[0].Z.shape[1]
        return k / max(level, _TINY)

    def across_frame(
        self,
        terms: Sequence[Any],
        weights: Floats,
        squares: Iterable[Floats],
        traces: Floats,
        room: int,
    ) -> Floats:
        """V^T H V less the mean eigenvalue of H off V, for H = sum_q w_q K_q / tr K_q."""
        D = self.along_frame(np.eye(terms[0].Z.shape[1]), terms, weights)
        left = 1.0 - float(weights @ [term.total for term in terms])
        D.flat[:: len(D) + 1] -= max(left, 0.0) / max(room, 1)
        return D

    # --- the concave majorant ---

    def held(
        self, view: View, rows: Indices, k: int, shift: float, dtype: DTypeLike, rough: float
    ) -> HeldVariance:
        if view.moments.gram is None:
            return HeldVariance.of_targets(view, rows)
        return HeldVariance.of(view, rows, axes_worth(view, k), dtype)

    def majorant(
        self, rows: HeldVariance, x: Floats, k: int, each: Any = None, basis: Any = None
    ) -> VarianceSlope:
        return VarianceSlope.at(rows, x, k)

    def least_majorant(self, rows: HeldVariance, x: Floats, k: int, near: Any) -> float:
        least: float = near.least
        return least

    def bound_by_norms(self, view: View, k: int, shift: float) -> VarianceDual:
        return VarianceDual.by_norms(view, k)

    def norm_bound(self, view: View, k: int) -> float:
        return norm_bound(view, k)

    def spectral_gram(self, view: View) -> Any:
        return view.moments.gram

    def spectral_bound(self, lam: Floats, view: View, k: int) -> float:
        """Ky Fan: the sum of the k largest eigenvalues of C, which fair PCA would explain."""
        allowance = 4.0 * len(lam) * min(k, len(lam)) * np.finfo(np.float64).eps * lam[0]
        explained = ky_fan(np.maximum(lam, 0.0), k) + float(allowance)
        return float(explained / view.moments.trace + view.offset)


class ViewShare:
    """The share of a view's variance along a frame, |Z|^2 / tr K for Z = Phi^T V (p, k)."""

    rounding = float(np.finfo(np.float64).eps)

    def __init__(self, Z: Floats, trace: float) -> None:
        self.Z = Z
        self._trace = trace if trace > 0 else 1.0  # of a view of zeros, nothing is explained

    @functools.cached_property
    def total(self) -> float:
        return float(np.vdot(self.Z, self.Z)) / self._trace

    @functools.cached_property
    def J(self) -> Floats:
        return self.Z / self._trace

    @functools.cached_property
    def N(self) -> Floats:
        """Without a ridge nothing is added along V."""
        return np.zeros((self.Z.shape[1], self.Z.shape[1]))

    @functools.cached_property
    def along(self) -> Floats:
        return self.Z.T @ self.J

    def hessian(self, Y: Floats) -> Floats:
        return Y / self._trace


def _inverse_root(view: View, indices: Indices, Phi: Any) -> Any:
    """R^-1 (k, k) for L_S = R^T R, upper triangular, at the place of the view's blocks; Phi (p, k)
    has the rows as columns."""
    place, root = view.block_place, None
    if view.well_conditioned(indices):
        root = place.inverse_root(place.put(view.ridged(indices)))
    if root is None:
        root = place.triangular_inverse(place.square_root(Phi, view.ridge))
    return root


def _explained(view: View, W: Any) -> Floats:
    """(m,) shares of the variance along columns W (p, m): w^T G w / tr G."""
    place = view.block_place
    shares = place.get((W * view.moments.apply(W, place)).sum(axis=0))
    return np.asarray(shares / view.moments.trace)
