"""Explained variance as a utility: representative sets (docs/method.md#explained-variance).

Of a set it is the share of a view's variance over the pool that ridge regression on the chosen rows
explains: tr(L_S^-1 K2[S, S]) / tr G, with L_S = K[S, S] + eps I, and G and K2 as in
`views.moments`. Scores are these shares, so that nothing is divided by the number of items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from fairnepv.objective.explained_bound import (
    HeldVariance,
    VarianceDual,
    VarianceSlope,
    norm_bound,
)
from fairnepv.objective.shrinkage import axes_worth, ky_fan
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices
from fairnepv.views.moments import columns_of, second_inner


class Explained:
    """The answers of explained variance to what a `Utility` is asked."""

    unit = "of the variance"
    dual_type = VarianceDual

    def divisor(self, size: int) -> float:
        return 1.0

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
        solved = np.linalg.solve(L, K2)
        return np.asarray(np.trace(solved, axis1=1, axis2=2) / view.moments.trace)

    def contributions(self, view: View, indices: Indices) -> Floats:
        """By the rows of R^-T Phi_S for L_S = R^T R, of which each depends on its item and on those
        before it."""
        place, Phi = view.block_place, columns_of(view, indices)  # (p, k)
        failed = not view.well_conditioned(indices)
        if not failed:
            R, failed = dpotrf(view.ridged(indices), overwrite_a=1)
        if failed:
            R = place.get(place.square_root(Phi, view.ridge))
        W = Phi @ place.put(dtrtri(R)[0])  # (p, k)
        shares = place.get((W * view.moments.apply(W, place)).sum(axis=0))
        return np.asarray(shares / view.moments.trace)

    # --- the concave majorant ---

    def held(
        self, view: View, rows: Indices, k: int, shift: float, dtype: DTypeLike, rough: float
    ) -> HeldVariance:
        return HeldVariance.of(view, rows, axes_worth(view, k), dtype)

    def majorant(
        self, rows: HeldVariance, x: Floats, k: int, each: Any = None, near: Any = None
    ) -> VarianceSlope:
        return VarianceSlope.at(rows, x, k)

    def least_majorant(self, rows: HeldVariance, x: Floats, k: int, near: Any) -> float:
        return VarianceSlope.at(rows, x, k).least

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
        return float(explained / view.moments.trace) + view.offset
