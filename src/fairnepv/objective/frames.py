"""f_tau on frames with orthonormal columns [FairNEPv, section 4.1], for any utility: its value,
A_tau(V), A_perp, and the second derivative that the trust region needs."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fairnepv.compute.clock import check_time
from fairnepv.objective.geometry import Geometry, add_to
from fairnepv.objective.softmin import soft_min, soft_min_weights
from fairnepv.objective.utility import UTILITIES, Utility
from fairnepv.problem import DEFAULT_UTILITY
from fairnepv.views.base import Floats


class FeatureMaps(Protocol):
    """The feature maps of all views as the solvers see them, in whatever coordinates."""

    passes_per_adjoint: int  # passes over the rows that one `adjoint` costs
    passes_per_combine: int  # and one `combine`, or one `images`

    @property
    def geometry(self) -> Geometry:
        """The geometry of the arrays that `adjoint` takes and `combine` makes."""

    def adjoint(self, V: Floats) -> tuple[Floats, ...]:
        """Phi_q^T V for every view, each (p_q, k)."""

    def combine(self, Y: tuple[Floats, ...]) -> Floats:
        """sum_q Phi_q Y_q."""

    def images(self, Y: tuple[Floats, ...]) -> tuple[Floats, ...]:
        """Phi_q Y_q for every view; the same work as `combine`, M times its memory."""

    @property
    def traces(self) -> Floats:
        """(M,) tr Phi_q Phi_q^T."""

    @property
    def dimension(self) -> int:
        """The dimension of the joint range of the views, or a bound on it."""


@dataclass(frozen=True)
class StiefelObjective:
    """f_tau on frames V with orthonormal columns [FairNEPv, Eq. (P-Fair)]."""

    maps: FeatureMaps
    eps: Floats  # (M,)
    offsets: Floats  # (M,)
    tau: float
    k: int
    utility: Utility = UTILITIES[DEFAULT_UTILITY]

    def at(self, V: Floats) -> Point:
        check_time()
        views = zip(self.maps.adjoint(V), self.eps, self.maps.traces, strict=True)
        return Point(self, V, tuple(self.utility.on_frame(*view) for view in views))


@dataclass(frozen=True, eq=False)
class Point:
    """The objective at one frame; everything further is computed once, when asked for."""

    objective: StiefelObjective
    V: Floats
    factors: tuple[Any, ...]  # by view, each an `OnFrame`

    @functools.cached_property
    def view_values(self) -> Floats:
        """(M,) g_q(V), for log-determinants (1/k) log det G_q."""
        totals = np.array([factor.total for factor in self.factors])
        return totals / self.divisor + self.objective.offsets

    @functools.cached_property
    def weights(self) -> Floats:
        """(M,) w_q(V)."""
        return np.asarray(soft_min_weights(self.view_values, self.objective.tau))

    @functools.cached_property
    def value(self) -> float:
        """f_tau(V)."""
        return float(soft_min(self.view_values, self.objective.tau))

    @property
    def geometry(self) -> Geometry:
        return self.objective.maps.geometry

    @property
    def A(self) -> Floats:
        """A_tau(V), half the Euclidean gradient; (1/k) sum_q w_q L_q V G_q^-1 [Prop. 2]."""
        ridge = sum(c * f.N for c, f in zip(self._shares, self.factors, strict=True))
        return np.asarray(self._off_ridge + self.V @ ridge)

    @property
    def _off_ridge(self) -> Floats:
        """A without the part that the ridges add along V."""
        total: Floats = self._shares[0] * self.view_images[0]
        for c, image in zip(self._shares[1:], self.view_images[1:], strict=True):
            add_to(total, c, image)
        return total

    @property
    def divisor(self) -> float:
        return self.objective.utility.divisor(self.objective.k)

    @property
    def _shares(self) -> Floats:
        """(M,) slopes of f_tau in the totals of the views."""
        return np.asarray(self.weights / self.divisor)

    @functools.cached_property
    def view_images(self) -> tuple[Floats, ...]:
        """Per view Phi_q Phi_q^T V G_q^-1; off V, each view's own gradient times k/2."""
        return self.objective.maps.images(tuple(f.J for f in self.factors))

    @property
    def pulls(self) -> tuple[Floats, ...]:
        """Per view (w_q/k) Phi_q^T V G_q^-1, (p_q, k): what the feature maps turn into A."""
        return tuple(c * f.J for c, f in zip(self._shares, self.factors, strict=True))

    @functools.cached_property
    def A_perp(self) -> Floats:
        """(I - V V^T) A, half the Grassmann gradient.

        Projected explicitly: A - V/k would leave k ||V^T A_perp|| at 5e-2 for eps = 1e-12. Once is
        enough, since what the ridges add along V is left out beforehand.
        """
        return self.project(self._off_ridge)

    @functools.cached_property
    def residual(self) -> float:
        """||A_perp||_F relative to the mean of V^T A, the relative residual of Fair-NEPv: of
        log-determinants k ||A_perp||_F."""
        return self.unit * self.geometry.norm(self.A_perp)

    @property
    def unit(self) -> float:
        """What lengths of A are multiplied by to be relative: k / tr (V^T A)."""
        return self.objective.utility.unit(self.factors, self._shares)

    def along(self, X: Floats) -> Floats:
        """X (V^T A), for which stationary frames have A = V (V^T A)."""
        return self.objective.utility.along_frame(X, self.factors, self._shares)

    @property
    def rounding(self) -> float:
        """What float64 leaves unsure of the value and of the residual, as an order of magnitude."""
        worst = max(w * f.rounding for w, f in zip(self.weights, self.factors, strict=True))
        return float(max(np.finfo(np.float64).eps * max(1.0, abs(self.value)), worst))

    def hessian(self, xi: Floats) -> Floats:
        """Half the Grassmann Hessian of f_tau applied to a horizontal xi (V^T xi = 0).

        With Y_q = Phi_q^T xi: sum_q w_q/k [Phi_q hessian(Y_q) + xi N_q], the change of the weights
        times A_q, projected, minus xi (V^T A) for the curvature of the manifold.
        """
        check_time()
        k, tau = self.divisor, self.objective.tau
        Ys = self.objective.maps.adjoint(xi)
        # dg_q = (2/k) tr(G_q^-1 V^T L_q xi), and V^T xi = 0 removes the ridge
        dg = np.array([2 / k * np.vdot(f.J, Y) for f, Y in zip(self.factors, Ys, strict=True)])
        dw = -self.weights / tau * (dg - self.weights @ dg)
        terms = []
        ridge = np.zeros((xi.shape[1], xi.shape[1]))
        for share, change, f, Y in zip(self._shares, dw / k, self.factors, Ys, strict=True):
            terms.append(share * f.hessian(Y) + change * f.J)
            ridge += share * f.N
        bent = self.objective.maps.combine(tuple(terms)) + xi @ ridge
        return self.project(bent) - self.along(xi)

    def project(self, X: Floats) -> Floats:
        """(I - V V^T) X, the tangent part of X."""
        return self.geometry.project(self.V, X)
