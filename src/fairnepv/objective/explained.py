"""Explained variance as a utility: representative sets (docs/method.md#explained-variance).

Of a set it is the share of a view's variance over the pool that ridge regression on the chosen rows
explains: tr(L_S^-1 K2[S, S]) / tr G, with L_S = K[S, S] + eps I, and G and K2 as in
`views.moments`. Scores are these shares, so that nothing is divided by the number of items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from fairnepv.views import View
from fairnepv.views.base import Floats, Indices
from fairnepv.views.moments import columns_of, second_inner


class Explained:
    """The answers of explained variance to what a `Utility` is asked."""

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
        Phi = columns_of(view, indices)  # (p, k)
        return _explained(view, Phi @ view.block_place.put(_inverse_root(view, indices, Phi)))

    def removals(self, view: View, indices: Indices, pivots: Floats) -> Floats:
        """By the columns of E = Phi_S^T T, for T = L_S^-1: T without an item is T less
        t_j t_j^T / T_jj, for t_j its column."""
        Phi = columns_of(view, indices)
        root = _inverse_root(view, indices, Phi)
        E = Phi @ view.block_place.put(root @ root.T)
        return np.asarray(_explained(view, E) / np.einsum("ij,ij->i", root, root))


def _inverse_root(view: View, indices: Indices, Phi: Any) -> Floats:
    """R^-1 (k, k) for L_S = R^T R, upper triangular; Phi (p, k) has the rows as columns."""
    failed = not view.well_conditioned(indices)
    if not failed:
        R, failed = dpotrf(view.ridged(indices), overwrite_a=1)
    if failed:
        R = view.block_place.get(view.block_place.square_root(Phi, view.ridge))
    made: Floats = dtrtri(R)[0]
    return made


def _explained(view: View, W: Any) -> Floats:
    """(m,) shares of the variance along columns W (p, m): w^T G w / tr G."""
    place = view.block_place
    shares = place.get((W * view.moments.apply(W, place)).sum(axis=0))
    return np.asarray(shares / view.moments.trace)
