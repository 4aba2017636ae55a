"""A concave majorant of explained variance on few rows, and what its slopes prove of all.

The formulas are in `shrinkage.py`: a matrix D for any weights x of the rows, and what it proves.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from fairnepv.compute import HOST, Block, RowBlock, few_threads
from fairnepv.compute.clock import EIGENVECTORS, expect
from fairnepv.objective.shrinkage import (
    FEW_AXES,
    HALF_UNIT,
    Principal,
    Shrinkage,
    ky_fan,
    plain_shrinkage,
    shrinkage_for,
    sound_shrinkage,
)
from fairnepv.objective.spanned import Spanned, SpannedPricing, share_products, span
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices
from fairnepv.views.moments import columns_of

_FAINT_AXIS = 1e-4  # of the largest eigenvalue of a kernel
_MASS = 1e-6  # of the mean eigenvalue of M: so much is added to all, for directions without rows
_SINGLE = 1e-5  # relatively: what sums of many products in float32 may be too large by
_MET = 1e-5  # a majorant so near to its least value is not made better by another D


# --- the majorant on few rows ---------------------------------------------------------------------


@dataclass(frozen=True)
class HeldVariance:
    """Few rows of one view in the coordinates of its axes; `majorant.HeldRows` is the counterpart
    for log-determinants."""

    eps: float
    norms: Floats  # (m,) diagonal of the kernel
    Z: Any  # (m, r), at `place`
    roots: Floats  # (r,) diagonal of R, which has no other entries along these axes
    rest: Floats = field(default_factory=lambda: np.empty(0))  # variances beside the axes
    place: Any = HOST
    rough: float = 0.0
    crude: ClassVar[bool] = False

    @classmethod
    def of(cls, view: View, rows: Indices, r: int, dtype: DTypeLike = np.float64) -> HeldVariance:
        """On r principal axes."""
        axes, place = Principal.of(view, r), view.block_place
        kind = getattr(place.xp, np.dtype(dtype).name)
        features = place.xp.astype(columns_of(view, rows).T, kind)
        Z = features @ place.xp.astype(place.put(axes.V), kind)
        norms = view.squared_norms_at(rows)
        return cls(view.ridge, norms, Z, axes.roots, axes.rest, place)

    @classmethod
    def of_kernels(cls, eps: float, K: Floats, K2: Floats) -> HeldVariance:
        """Rows of which only K and K2 / tr G are known: the axes span them."""
        lam, B = span(K)
        return cls._along(eps, K, B * lam, B.T @ K2 @ B)

    @classmethod
    def of_targets(cls, view: View, rows: Indices) -> HeldVariance:
        """Of a view whose G acts through targets: on the span of the rows, but for axes along which
        these hardly differ, beside which rounding would count."""
        expect(EIGENVECTORS * float(len(rows)) ** 3)
        K = view.inner(rows, rows)
        lam, B = span(K)
        kept = lam > _FAINT_AXIS * lam.max(initial=0.0)
        lam, B = lam[kept], B[:, kept]
        H = share_products(view, rows).T @ B
        return cls._along(view.ridge, K, B * lam, H.T @ H)

    @classmethod
    def _along(cls, eps: float, K: Floats, Z: Floats, C: Floats) -> HeldVariance:
        """Along the eigenvectors of C."""
        c, U = HOST.eigenvectors((C + C.T) / 2.0)
        return cls(eps, np.diagonal(K).copy(), Z @ U, np.sqrt(np.maximum(c, 0.0)))

    def weighing(self, weight: float) -> HeldVariance:
        """However little it weighs: a tangent that was made nearby is above the majorant, so that
        its view goes on to look as if it hardly weighed, and never binds."""
        return self

    @property
    def side(self) -> int:
        return len(self.roots)

    @functools.cached_property
    def exact(self) -> bool:
        """Whether the rows are held in float64."""
        return bool(self.Z.dtype == self.place.xp.float64)

    @functools.cached_property
    def R(self) -> Any:
        """(r, r) at `place`."""
        return self.place.put(np.diag(self.roots))

    @functools.cached_property
    def _identity(self) -> Any:
        return self.place.put(np.eye(self.side))

    def by_root(self, matrix: Any) -> Any:
        """R times a matrix."""
        return self.place.put(self.roots)[:, None] * matrix

    def moments(self, x: Floats) -> Any:
        """M (r, r) in these coordinates; at `place` in float64."""
        root = self.place.put(np.sqrt(x).astype(np.float64 if self.exact else np.float32))
        weighted = root[:, None] * self.Z
        M = self.place.double(weighted.T @ weighted)  # of one array, which is half of the work
        return (M + M.T) / 2.0

    def raised(self, M: Any, mass: float) -> Any:
        """M with so much on its diagonal."""
        return M + mass * self._identity

    def lengths(self, J: Any) -> Floats:
        """(m,) |J z_i|^2."""
        images = self.Z @ self.alike(J).T
        return np.asarray(self.place.get(self.place.square_sums(images)), np.float64)

    def alike(self, matrix: Any) -> Any:
        """A matrix as precise as the rows."""
        return self.place.double(matrix) if self.exact else self.place.single(matrix)


@dataclass(frozen=True, eq=False)
class VarianceSlope:
    """The majorant at a point."""

    value: float
    prices: Floats  # (m,) |R D z_i|^2 / eps
    least: float  # at most the majorant, and next to it
    level: float
    mass: float
    x: Floats
    axes: int
    J: Any  # (r, r) R D / sqrt(eps), at the place of the rows and as precise as they are
    basis: ClassVar[None] = None  # it begins with nothing

    @classmethod
    def at(cls, rows: HeldVariance, x: Floats, k: int) -> VarianceSlope:
        """By the D that knows of the rank, or by the plain one where that is better, as it is where
        x is next to a set."""
        with few_threads(float(rows.side) ** 3):
            M, mass = _raised(rows, x, k)
            found = cls._by(rows, x, k, _chosen(rows, M, mass, k), mass)
            many = rows.side > FEW_AXES or len(rows.rest)
            if not mass or many or found.value - found.least < _MET:
                return found
            plain = cls._by(rows, x, k, plain_shrinkage(rows.moments(x), rows.eps, rows.place), 0.0)
        return replace(min(found, plain, key=attrgetter("value")), least=found.least)

    @classmethod
    def _by(
        cls, rows: HeldVariance, x: Floats, k: int, made: Shrinkage, mass: float
    ) -> VarianceSlope:
        J, prices, L, least = _paid(rows, x, k, made)
        squares = np.concatenate([rows.place.eigenvalues(L), rows.rest])
        value = ky_fan(squares, k) + float(prices @ x)
        return cls(value, prices, least, made.level, mass, x, rows.side, J)

    def dual(self, shift: float) -> VarianceDual:
        made = VarianceDual(self.level, self.x, self.mass, self.axes)
        vars(made)["_rough"] = self.J
        return made


def _raised(rows: HeldVariance, x: Floats, k: int) -> tuple[Any, float]:
    """M, and the mass on its diagonal; none where rank is no limit."""
    M = rows.moments(x)
    mass = _MASS * rows.place.trace(M) / max(rows.side, 1)
    if not mass > 0 or k >= rows.side + len(rows.rest):
        return M, 0.0
    return rows.raised(M, mass), mass


def _chosen(rows: HeldVariance, M: Any, mass: float, k: int) -> Shrinkage:
    if not mass:
        return plain_shrinkage(M, rows.eps, rows.place)
    X, single = rows.by_root(M), not rows.exact
    return shrinkage_for(M, X, rows.eps, k, rows.place, single=single)


def _paid(rows: HeldVariance, x: Floats, k: int, made: Shrinkage) -> tuple[Any, Floats, Any, float]:
    """R D / sqrt(eps), the prices, (I - D)^T C (I - D), and the least that the majorant can be."""
    J, place = rows.by_root(made.D), rows.place
    left = rows.alike(rows.R - J)
    J = rows.alike(J / rows.eps**0.5)
    prices, L = rows.lengths(J), left.T @ left
    along = float((rows.alike(made.Y) * L).sum())
    least = float(prices @ x) + along * k / max(place.trace(made.Y), k)
    return J, prices, L, least if rows.exact else least * (1.0 - _SINGLE)


# --- what slopes prove ----------------------------------------------------------------------------


@dataclass(frozen=True)
class VarianceDual:
    """x of the rows T, mu and the mass that make a D on the leading `axes` of a view, or of the
    span of T where its G acts through targets. Without any it is a multiple of the identity."""

    level: float  # mu; 0 where rank is no limit
    x: Floats  # (m,)
    mass: float  # added to the eigenvalues of M
    axes: float  # a whole number, once it is read and `fits`
    shift: ClassVar[float] = 0.0  # kernels have become features, and keep their eigenvalues

    # how it is stored: numbers of all views together, by the names of their arrays, and an array
    numbers: ClassVar[dict[str, str]] = {"levels": "level", "masses": "mass", "axes": "axes"}
    array: ClassVar[str] = "x"
    array_shape: ClassVar[tuple[int, ...]] = ()

    @classmethod
    def by_norms(cls, view: View, k: int) -> VarianceDual:
        """D = d I proves (1 - d)^2 + d^2 t / eps for squared norms that sum to t, and t / (t + eps)
        with the best d."""
        return cls(0.0, np.zeros(1), _most_norm(view, k), 0)

    @property
    def width(self) -> int:
        """Columns of the product that prices rows."""
        return int(self.axes)

    def published(self, view: View) -> VarianceDual:
        vars(self).pop("_rough", None)
        return self

    def fits(self, view: View, rows: Indices, k: int) -> bool:
        """Whether this can be about such a view."""
        numbers = np.array([self.level, self.mass, *self.x])
        sound = self.x.shape == rows.shape and bool((numbers >= 0).all())
        most = len(rows) if view.moments.gram is None else view.p
        whole = self.axes in range(most + 1)
        return sound and whole and bool(np.isfinite(numbers).all())

    def constant(self, view: View, rows: Indices, k: int) -> float:
        """|R (I - D)|_k^2, with what rounding may hide of it."""
        if self._spans(view):
            return self._spanned(view, rows).constant(k)
        if not self.axes:
            keep = self.mass / (self.mass + view.ridge)  # 1 - d; tr C is 1
            return float(keep**2 * (1.0 + 8.0 * (view.p + 16) * HALF_UNIT))
        axes, D = self._made(view, rows)
        root, r, p = np.diag(axes.roots), len(D), view.p
        left = root - axes.roots[:, None] * D
        with few_threads(float(r) ** 3):
            squares = np.concatenate([HOST.eigenvalues(left.T @ left), axes.rest])
        unit, size = 4.0 * (r + 16) * HALF_UNIT, float(np.linalg.norm(D))
        whole = max(ky_fan(squares, k), 0.0) + 2.0 * k * unit * float(np.linalg.norm(left)) ** 2
        length = np.sqrt(whole) + unit * float(np.linalg.norm(root)) * (1.0 + size)
        length = (length + axes.skewed(size)) * np.sqrt(1.0 + axes.skew)
        found = float(length**2 + axes.off * np.sqrt(min(k, p))) * (1.0 + 64.0 * HALF_UNIT)
        return found if np.isfinite(found) else np.inf  # what overflows proves nothing

    def pricing(
        self, view: View, rows: Indices, share: float, *, coarse: bool = False
    ) -> VariancePricing | SpannedPricing:
        """What a pass over the rows needs to price them, times `share`; for coarse prices the D of
        the solver will do."""
        if self._spans(view):
            return self._spanned(view, rows).pricing(share)
        eps, unit = view.ridge, 4.0 * (view.p + 16) * HALF_UNIT * view.cancellation
        if not self.axes:
            return VariancePricing(share, None, (eps / (self.mass + eps)) / np.sqrt(eps), unit)
        if coarse and "_rough" in vars(self):
            place, J = view.block_place, vars(self)["_rough"]
            V = place.put(Principal.of(view, self.width).V)
            return VariancePricing(share, V @ place.double(J).T, 0.0, unit)
        axes, D = self._made(view, rows)
        size = float(np.linalg.norm(D))
        columns = axes.V @ ((axes.roots[:, None] * D).T / np.sqrt(eps))
        products = float(np.linalg.norm(columns))
        products += (
            float(np.linalg.norm(axes.roots)) * size * float(np.linalg.norm(axes.V)) / np.sqrt(eps)
        )
        error = unit * products + axes.skewed(size) * np.sqrt((1.0 + axes.skew) / eps)
        return VariancePricing(share, columns, error, unit)

    def _spans(self, view: View) -> bool:
        return view.moments.gram is None and self.axes > 0

    def _spanned(self, view: View, rows: Indices) -> Spanned:
        def make() -> Spanned:
            return Spanned.of(view, rows, self.x, self.width, self.mass, self.level)

        found: Spanned = self._once(view, rows, make)
        return found

    def _made(self, view: View, rows: Indices) -> tuple[Principal, Floats]:
        """The axes, and D on them. It is never taken from the solver, which may have been rough:
        whoever checks has x alone."""

        def make() -> tuple[Principal, Floats]:
            held, r = HeldVariance.of(view, rows, self.width), self.width
            M = held.raised(held.moments(self.x), self.mass)
            expect(2.0 * EIGENVECTORS * float(r) ** 3)
            with few_threads(float(r) ** 3):
                D = sound_shrinkage(M, held.by_root(M), view.ridge, self.level, held.place)
            return Principal.of(view, r), D

        found: tuple[Principal, Floats] = self._once(view, rows, make)
        return found

    def _once(self, view: View, rows: Indices, make: Callable[[], Any]) -> Any:
        """What is made for a constant serves for prices, as long as this object lives."""
        about = view.moments, view.eps, rows
        known = vars(self).get("_known")
        if known is None or not all(map(operator.is_, known[0], about)):
            known = vars(self)["_known"] = about, make()
        return known[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class VariancePricing(NamedTuple):
    """What a pass needs of one view to price rows."""

    share: float
    columns: Any  # (p, r) of R D / sqrt(eps), transposed; None where D is a multiple of I
    error: float  # of a length, for a row of length one; then the whole of it
    unit: float  # relative error of a dot product

    @property
    def flat(self) -> bool:
        """Whether rows are priced by their norms alone."""
        return self.columns is None

    def by_norms(self, norms: Any) -> Any:
        """(n,) share d^2 |phi_i|^2 / eps, rounded up: no eigenvalue of C exceeds its trace."""
        return self.share * self.error**2 * norms * (1.0 + 4.0 * self.unit)

    def prices(
        self, block: Block, view: RowBlock, norms: Any, T: Indices | None, coarse: bool
    ) -> Any:
        """(b,) share |R D phi_i|^2 / eps, rounded up; coarse ones are good guesses."""
        if self.columns is None:
            return self.by_norms(norms)
        v = view.onto(block.put(self.columns), coarse)
        lengths = block.xp.sqrt(block.place.square_sums(v)) + self.error * block.xp.sqrt(norms)
        return self.share * lengths**2 * (1.0 + 8.0 * self.unit)


def norm_bound(view: View, k: int) -> float:
    """t / (t + eps) for the k largest squared norms that sum to t: no eigenvalue of
    M (M + eps I)^-1 is larger, and the trace of C is 1."""
    t = _most_norm(view, k)
    share = t / (t + view.ridge) if t > 0 else 0.0
    rounding = 8.0 * (view.p + k + 8) * HALF_UNIT * view.cancellation
    return float(share * (1.0 + rounding)) + view.offset


def _most_norm(view: View, k: int) -> float:
    return float(view.largest_norms(k).sum())
