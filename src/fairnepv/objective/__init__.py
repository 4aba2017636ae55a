"""The only place that knows the formula of F_tau: its value on subsets and on frames.

Carries sections 3.4 and 4.1 of the paper: d_q(S), the soft-min and its weights, and on the
Stiefel manifold f_tau(V), A_tau(V), A_perp and the operator H_tau, with the second derivative
that the trust region needs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from fairnepv.compute import Block
from fairnepv.objective.geometry import Geometry
from fairnepv.problem import Problem
from fairnepv.views import Pool
from fairnepv.views.base import Floats, Indices, square_root

# What a set pays that misses a floor: so much that any other is better, and more per nat.
_MISSED, _FLOOR_PRICE = 1e4, 1e3
FLOOR_ROUNDING = 1e-9  # a floor that is missed by less is met
_WELL_CONDITIONED = 1e5  # condition number of a Gram matrix that costs f no more than 1e-11

# --- the soft-min -------------------------------------------------------------------------------


def soft_min(d: Any, tau: float, xp: Any = np) -> Any:
    """F = d_min + tau log M - tau log sum_q exp(-(d_q - d_min)/tau) over the first axis.

    [FairNEPv, Eq. (softmin-identity)], as d_min - tau log1p(mean_q expm1(-(d_q - d_min)/tau)): no
    exponential can overflow, and nothing cancels for a large tau. tau = inf gives the mean, which
    is the limit and the fixed-weight baseline. `xp` has the functions for arrays of a device.
    """
    if np.isinf(tau):
        return d.mean(axis=0)
    d_min = xp.min(d, axis=0)
    with np.errstate(over="ignore"):  # a quotient of -inf is as good as a very negative one
        return d_min - tau * xp.log1p(xp.expm1((d_min - d) / tau).sum(axis=0) / len(d))


def soft_min_weights(d: Any, tau: float, xp: Any = np) -> Any:
    """w_q proportional to exp(-d_q/tau), summing to one [FairNEPv, Proposition 2]."""
    if np.isinf(tau):
        return xp.ones_like(d) / len(d)
    with np.errstate(over="ignore"):
        w = xp.exp((d.min() - d) / tau)
    w /= w.sum()
    return w


def entropy_price(weights: Floats, tau: float) -> float:
    """tau KL(w | uniform), rounded up: soft_min(d) <= sum_q w_q d_q + this for any weights w.

    Priorities come in through the lifts of the problem.
    """
    positive = weights[weights > 0]
    if len(weights) == 1:
        return 0.0
    if np.isinf(tau):  # F is the mean, which no other weights bound
        return 0.0 if np.ptp(weights) == 0 else np.inf
    # Terms that are not negative, so that a large tau does not multiply what cancels.
    ratios = len(weights) * positive
    beyond = ratios - 1.0
    logs = np.where(beyond > -0.5, np.log1p(np.maximum(beyond, -0.5)), np.log(ratios))
    terms = ratios * logs - beyond + 4.0 * np.finfo(np.float64).eps * np.abs(beyond)
    absent = len(weights) - len(positive)
    return float(tau * (terms.sum() + absent) / len(weights))


def merit(d: Any, tau: float, floors: Any, xp: Any = np) -> Any:
    """What a search maximises: F_tau, less a price beyond all scores where a floor is missed.

    It rises with every d_q, so bounds on the views make a bound on it.
    """
    F = soft_min(d, tau, xp)
    if floors is None:
        return F
    least = floors.reshape((-1,) + (1,) * (d.ndim - 1)) - FLOOR_ROUNDING
    missed = (least - d).clip(0.0).sum(axis=0)
    return F - xp.where(missed > 0, _MISSED + _FLOOR_PRICE * missed, 0.0)


def steepness(problem: Problem) -> float:
    """What an error of every d_q is multiplied by in the merit, where no floor is crossed."""
    floored = 0 if problem.floors is None else int(np.isfinite(problem.floors).sum())
    return 1.0 + _FLOOR_PRICE * floored


# --- subsets ------------------------------------------------------------------------------------


def subset_scores(pool: Pool, indices: Indices) -> Floats:
    """(M,) d_q(S) = (1/|S|) log det L_q[S, S], in float64 from the original rows.

    This is the one function that scores. It works on singular values of the selected rows, or on a
    triangular factor of them, and not on their Gram matrix, so a small ridge costs no digits.
    """
    return np.array([v.log_volume(indices) / len(indices) + v.offset for v in pool.views])


def fair_score(pool: Pool, indices: Indices, tau: float) -> float:
    """F_tau(S) [FairNEPv, Eq. (D-Fair)]."""
    return float(soft_min(subset_scores(pool, indices), tau))


def fair_value(problem: Problem, d: Floats) -> float:
    """F_tau of view scores d, under the priorities of the problem."""
    return float(soft_min(d + problem.lifts, problem.tau))


def subset_merit(problem: Problem, indices: Indices) -> float:
    """What the search maximises, by the function that scores: F_tau where every floor is met."""
    d = subset_scores(problem.pool, indices)
    return float(merit(d + problem.lifts, problem.tau, lifted_floors(problem)))


def lifted_floors(problem: Problem) -> Floats | None:
    """Floors on what stands inside of the soft-min."""
    return None if problem.floors is None else problem.floors + problem.lifts


def subset_gains(pool: Pool, indices: Indices) -> Floats:
    """(k, M) what each item in turn added to log det L_q; the means over the items are d_q(S)."""
    return np.stack([view.gains(indices) + view.offset for view in pool.views], axis=1)


class Standing(NamedTuple):
    """How a set stands in every view, small enough to travel with a pass over the rows."""

    logdets: Floats  # (M,) log det L_q[S, S] without the factor on L
    offsets: Floats  # (M,)
    size: int
    tau: float
    floors: Floats | None = None

    @classmethod
    def of(cls, problem: Problem, logdets: Floats, size: int) -> Standing:
        return cls(logdets, problem.offsets, size, problem.tau, lifted_floors(problem))

    def fair_scores(self, log_ratios: Floats) -> Any:
        """The merit once the log-determinants have changed by `log_ratios` (M, ...)."""
        shape = (-1,) + (1,) * (log_ratios.ndim - 1)
        d = (self.logdets.reshape(shape) + log_ratios) / self.size + self.offsets.reshape(shape)
        return merit(d, self.tau, self.floors)

    def ceiling(self, log_ratios: Floats) -> tuple[float, Floats]:
        """a and b (M,) with merit <= a + b . log_ratios everywhere, the tangent of F_tau here."""
        d = (self.logdets + log_ratios) / self.size + self.offsets
        slopes = soft_min_weights(d, self.tau) / self.size
        return float(soft_min(d, self.tau) - slopes @ log_ratios), slopes

    def rise(self, block: Block, v: Any, c: Any, pivots: Floats) -> Any:
        """(b, k) what F_tau could rise by, times k and plus 1, where determinants change by the
        factors c_iq pivot_qj + v_iqj^2; in the precision of v, where the block is.

        F is concave in the log-determinants and log r <= r - 1, so F can rise by at most
        (1/k) sum_q w_q (r_q - 1): no logarithm is needed to see that most swaps are hopeless.
        """
        w = soft_min_weights(self._d, self.tau)
        rise = (c * block.put(w.astype(pivots.dtype))) @ block.put(pivots)
        return block.place.add_squares(rise, v, w.tolist())

    def needed_rise(self, value: float) -> float:
        """What `rise` must reach for the merit to exceed `value`."""
        return 1.0 + self.size * (value - float(soft_min(self._d, self.tau)))

    @property
    def _d(self) -> Floats:
        return self.logdets / self.size + self.offsets


# --- frames -------------------------------------------------------------------------------------


class FeatureMaps(Protocol):
    """The feature maps of all views as the solvers see them, in whatever coordinates."""

    passes_per_adjoint: int  # passes over the rows that one `adjoint` costs
    passes_per_combine: int  # and one `combine`, or one `images`

    @property
    def geometry(self) -> Geometry:
        """Of the arrays that `adjoint` takes and `combine` makes."""
        ...

    def adjoint(self, V: Floats) -> tuple[Floats, ...]:
        """Phi_q^T V for every view, each (p_q, k)."""
        ...

    def combine(self, Y: tuple[Floats, ...]) -> Floats:
        """sum_q Phi_q Y_q."""
        ...

    def images(self, Y: tuple[Floats, ...]) -> tuple[Floats, ...]:
        """Phi_q Y_q for every view; the same work as `combine`, M times its memory."""
        ...

    @property
    def traces(self) -> Floats:
        """(M,) tr Phi_q Phi_q^T."""
        ...

    @property
    def dimension(self) -> int:
        """Of the joint range of the views, or a bound on it."""
        ...


@dataclass(frozen=True)
class StiefelObjective:
    """f_tau on frames V with orthonormal columns [FairNEPv, Eq. (P-Fair)]."""

    maps: FeatureMaps
    eps: Floats  # (M,)
    offsets: Floats  # (M,)
    tau: float
    k: int

    def at(self, V: Floats) -> Point:
        factors = tuple(
            ViewFactor(Z, eps) for Z, eps in zip(self.maps.adjoint(V), self.eps, strict=True)
        )
        return Point(self, V, factors)


class ViewFactor:
    """G_q = Z^T Z + eps I for Z = Phi_q^T V (p, k), and the solves with it.

    G is factored on its smaller side. For p < k it has k - p eigenvalues equal to eps, and going
    through Z Z^T + eps I (p, p) instead keeps them exact: log det and Z G^-1 then lose no digits
    to a small ridge. Where that side is still ill-conditioned, its Cholesky factor comes from a QR
    of [Z; sqrt(eps) I], which squares no singular value.
    """

    def __init__(self, Z: Floats, eps: float) -> None:
        self.Z, self.eps = Z, eps
        self.p, self.k = Z.shape
        self.tall = self.p >= self.k
        X = Z if self.tall else Z.T
        self._factor, self.rounding = _cholesky(X, eps)

    @functools.cached_property
    def logdet(self) -> float:
        diagonal = np.abs(np.diagonal(self._factor))
        rest = 0 if self.tall else (self.k - self.p) * np.log(self.eps)
        return float(2.0 * np.log(diagonal).sum() + rest)

    @functools.cached_property
    def J(self) -> Floats:
        """Z G^-1, (p, k)."""
        return self._solve(self.Z.T).T if self.tall else self._solve(self.Z)

    @functools.cached_property
    def inverse(self) -> Floats:
        """G^-1, (k, k)."""
        return inverse_from_cholesky(self._factor) if self.tall else self.N / self.eps

    @functools.cached_property
    def N(self) -> Floats:
        """eps G^-1 = I - Z^T J, (k, k)."""
        return self.eps * self.inverse if self.tall else np.eye(self.k) - self.Z.T @ self.J

    def curvature(self, Y: Floats) -> Floats:
        """(I - J Z^T) Y G^-1, (p, k): eps cancels from (Z Z^T + eps I)^-1 Y (eps G^-1)."""
        if self.tall:
            return self._solve((Y - self.J @ (self.Z.T @ Y)).T).T
        return self._solve(Y @ self.N)

    def _solve(self, right: Floats) -> Floats:
        solution: Floats = dpotrs(self._factor, right, lower=False)[0]
        return solution


def inverse_from_cholesky(R: Floats) -> Floats:
    """(R^T R)^-1 for an upper triangular R."""
    inverse: Floats = np.triu(dpotri(R, lower=False)[0])
    inverse += np.triu(inverse, 1).T
    return inverse


def gram(X: Floats, eps: float) -> Floats:
    """X^T X + eps I."""
    G: Floats = X.T @ X
    G.flat[:: len(G) + 1] += eps
    return G


def _cholesky(X: Floats, eps: float) -> tuple[Floats, float]:
    """Upper R with R^T R = X^T X + eps I, and how unsure its log det is in units of one.

    LAPACK is called directly here and above: for small k SciPy's checks take longer than it does.
    """
    unit = np.finfo(np.float64).eps
    R, failed = dpotrf(gram(X, eps), lower=False)
    if not failed:
        diagonal = np.diagonal(R)
        condition = float((diagonal.max() / diagonal.min()) ** 2)  # an estimate from below
        if condition < _WELL_CONDITIONED:
            return R, unit * condition
    elif eps == 0:
        raise np.linalg.LinAlgError("the Gram matrix is not positive definite")
    R = square_root(X, eps)
    diagonal = np.abs(np.diagonal(R))
    return R, unit * float(diagonal.max() / diagonal.min())


@dataclass(frozen=True, eq=False)
class Point:
    """The objective at one frame; everything further is computed once, when asked for."""

    objective: StiefelObjective
    V: Floats
    factors: tuple[ViewFactor, ...]

    @functools.cached_property
    def view_values(self) -> Floats:
        """(M,) g_q(V) = (1/k) log det G_q."""
        logdets = np.array([factor.logdet for factor in self.factors])
        return logdets / self.objective.k + self.objective.offsets

    @functools.cached_property
    def weights(self) -> Floats:
        """(M,) w_q(V)."""
        w: Floats = soft_min_weights(self.view_values, self.objective.tau)
        return w

    @functools.cached_property
    def value(self) -> float:
        """f_tau(V)."""
        return float(soft_min(self.view_values, self.objective.tau))

    @property
    def geometry(self) -> Geometry:
        return self.objective.maps.geometry

    @property
    def A(self) -> Floats:
        """A_tau(V) = (1/k) sum_q w_q L_q V G_q^-1, half the Euclidean gradient [Prop. 2]."""
        shares = self.weights / self.objective.k
        ridge = sum(c * f.N for c, f in zip(shares, self.factors, strict=True))
        return np.asarray(self._off_ridge + self.V @ ridge)

    @property
    def _off_ridge(self) -> Floats:
        """A without the part that the ridges add along V."""
        shares = self.weights / self.objective.k
        total: Floats = shares[0] * self.view_images[0]
        for c, image in zip(shares[1:], self.view_images[1:], strict=True):
            total += c * image
        return total

    @functools.cached_property
    def view_images(self) -> tuple[Floats, ...]:
        """Per view Phi_q Phi_q^T V G_q^-1; off V, each view's own gradient times k/2."""
        return self.objective.maps.images(tuple(f.J for f in self.factors))

    @property
    def pulls(self) -> tuple[Floats, ...]:
        """Per view (w_q/k) Phi_q^T V G_q^-1, (p_q, k): what the feature maps turn into A."""
        k = self.objective.k
        return tuple(w / k * f.J for w, f in zip(self.weights, self.factors, strict=True))

    @functools.cached_property
    def A_perp(self) -> Floats:
        """(I - V V^T) A, half the Grassmann gradient.

        Projected explicitly, twice: A - V/k would leave k ||V^T A_perp|| at 5e-2 for eps = 1e-12
        (DESIGN 3.1).
        """
        return self.project(self.project(self._off_ridge))

    @functools.cached_property
    def residual(self) -> float:
        """k ||A_perp||_F, the relative residual of Fair-NEPv."""
        return self.objective.k * self.geometry.norm(self.A_perp)

    @property
    def rounding(self) -> float:
        """What float64 leaves unsure of the value and of the residual, as an order of magnitude."""
        worst = max(w * f.rounding for w, f in zip(self.weights, self.factors, strict=True))
        return float(max(np.finfo(np.float64).eps * max(1.0, abs(self.value)), worst))

    def apply_H(self, X: Floats, sigma: float = 0.0) -> Floats:
        """H_{tau,sigma}(V) X without forming H [FairNEPv, Eq. (HV)]."""
        A, inner = self.A, self.geometry.inner
        VX = inner(self.V, X)
        return A @ VX + self.V @ (inner(A, X) + (sigma - 1.0 / self.objective.k) * VX)

    def hessian(self, xi: Floats) -> Floats:
        """Half the Grassmann Hessian of f_tau applied to a horizontal xi (V^T xi = 0).

        With Y_q = Phi_q^T xi: sum_q w_q/k [Phi_q (curvature(Y_q) - J_q Y_q^T J_q) + xi N_q], the
        change of the weights times A_q, projected, minus xi/k for the curvature of the manifold.
        """
        k, tau = self.objective.k, self.objective.tau
        Ys = self.objective.maps.adjoint(xi)
        # dg_q = (2/k) tr(G_q^-1 V^T L_q xi), and V^T xi = 0 removes the ridge
        dg = np.array([2 / k * np.vdot(f.J, Y) for f, Y in zip(self.factors, Ys, strict=True)])
        dw = -self.weights / tau * (dg - self.weights @ dg)
        terms = []
        ridge = np.zeros((k, k))
        for w, change, f, Y in zip(self.weights, dw, self.factors, Ys, strict=True):
            terms.append(w / k * (f.curvature(Y) - f.J @ (Y.T @ f.J)) + change / k * f.J)
            ridge += w / k * f.N
        bent = self.objective.maps.combine(tuple(terms)) + xi @ ridge
        return self.project(bent) - xi / k

    def project(self, X: Floats) -> Floats:
        """(I - V V^T) X, the tangent part of X."""
        return self.geometry.project(self.V, X)
