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
from scipy.linalg import eigh

from fairnepv.compute import HOST, Block, RowBlock, few_threads
from fairnepv.compute.clock import EIGENVECTORS, expect
from fairnepv.objective.shrinkage import (
    FEW_AXES,
    HALF_UNIT,
    Principal,
    Shrinkage,
    ky_fan,
    shrinkage,
    shrinkage_for,
    sound_shrinkage,
)
from fairnepv.objective.spanned import Spanned, SpannedPricing, root_of, share_products, span
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices
from fairnepv.views.moments import columns_of

_FAINT_AXIS = 1e-4  # of the largest eigenvalue of a kernel
_MASS = 1e-6  # of the mean eigenvalue of M: so much is added to all, for directions without rows


# --- the majorant on few rows ---------------------------------------------------------------------


@dataclass(frozen=True)
class HeldVariance:
    """Few rows of one view in the coordinates of its axes; `majorant.HeldRows` is the counterpart
    for log-determinants."""

    eps: float
    norms: Floats  # (m,) diagonal of the kernel
    Z: Any  # (m, r), at `place`
    root: Floats  # (r, r) R, on the host
    rest: Floats = field(default_factory=lambda: np.empty(0))  # variances beside the axes
    place: Any = HOST
    rough: float = 0.0
    crude: bool = False

    @classmethod
    def of(cls, view: View, rows: Indices, r: int, dtype: DTypeLike = np.float64) -> HeldVariance:
        """On r principal axes."""
        axes, place = Principal.of(view, r), view.block_place
        kind = getattr(place.xp, np.dtype(dtype).name)
        features = place.xp.astype(columns_of(view, rows).T, kind)
        Z = features @ place.xp.astype(place.put(axes.V), kind)
        norms = view.squared_norms_at(rows)
        return cls(view.ridge, norms, Z, axes.root, axes.rest, place)

    @classmethod
    def of_kernels(cls, eps: float, K: Floats, K2: Floats) -> HeldVariance:
        """Rows of which only K and K2 / tr G are known: the axes span them."""
        lam, B = span(K)
        C = B.T @ K2 @ B
        c, U = eigh((C + C.T) / 2.0, driver="evd", check_finite=False)
        root = np.sqrt(np.maximum(c, 0.0))[:, None] * U.T
        return cls(eps, np.diagonal(K).copy(), B * lam, root)

    @classmethod
    def of_targets(cls, view: View, rows: Indices) -> HeldVariance:
        """Of a view whose G acts through targets: on the span of the rows, but for axes along which
        these hardly differ, beside which rounding would count."""
        expect(EIGENVECTORS * float(len(rows)) ** 3)
        K = view.inner(rows, rows)
        lam, B = span(K)
        kept = lam > _FAINT_AXIS * lam.max(initial=0.0)
        lam, B = lam[kept], B[:, kept]
        root = root_of(share_products(view, rows).T @ B)
        return cls(view.ridge, np.diagonal(K).copy(), B * lam, root)

    def weighing(self, weight: float) -> HeldVariance:
        return self

    @property
    def side(self) -> int:
        return len(self.root)

    @functools.cached_property
    def exact(self) -> bool:
        """Whether the rows are held in float64."""
        return bool(self.Z.dtype == self.place.xp.float64)

    def moments(self, x: Floats) -> Floats:
        """M in these coordinates."""
        there = self.place.put(x.astype(np.float64 if self.exact else np.float32))
        M: Floats = np.asarray(self.place.get(self.Z.T @ (there[:, None] * self.Z)), np.float64)
        return (M + M.T) / 2.0

    def lengths(self, J: Floats) -> Floats:
        """(m,) |J z_i|^2."""
        there = self.place.put(np.ascontiguousarray(J.T).astype(self._kind))
        return np.asarray(self.place.get(self.place.square_sums(self.Z @ there)), np.float64)

    @property
    def _kind(self) -> DTypeLike:
        return np.float64 if self.exact else np.float32


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
    fresh: bool = True

    @classmethod
    def at(cls, rows: HeldVariance, x: Floats, k: int) -> VarianceSlope:
        """By the D that knows of the rank, or by the plain one where that is better, as it is where
        x is next to a set."""
        M, r = rows.moments(x), len(rows.root)
        mass = _MASS * float(np.trace(M)) / max(r, 1)
        if not mass > 0 or k >= r + len(rows.rest):
            return cls._by(rows, x, k, shrinkage(M, rows.root, rows.eps, 0.0), 0.0)
        raised = M + mass * np.eye(r)
        with few_threads(float(r) ** 3):
            found = cls._by(rows, x, k, shrinkage_for(raised, rows.root, rows.eps, k), mass)
            if r > FEW_AXES or len(rows.rest):
                return found
            plain = cls._by(rows, x, k, shrinkage(M, rows.root, rows.eps, 0.0), 0.0)
        return replace(min(found, plain, key=attrgetter("value")), least=found.least)

    @classmethod
    def _by(
        cls, rows: HeldVariance, x: Floats, k: int, made: Shrinkage, mass: float
    ) -> VarianceSlope:
        J = rows.root @ made.D
        left = rows.root - J
        prices = rows.lengths(J / np.sqrt(rows.eps))
        paid = float(prices @ x)
        least = paid + float(np.vdot(left @ made.Y, left)) * k / max(float(np.trace(made.Y)), k)
        squares = np.concatenate([HOST.eigenvalues(left.T @ left), rows.rest])
        value = ky_fan(squares, k) + paid
        return cls(value, prices, least, made.level, mass, x, len(rows.root))

    def dual(self, shift: float) -> VarianceDual:
        return VarianceDual(self.level, self.x, self.mass, self.axes)


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
        root, r, p = axes.root, len(D), view.p
        left = root - root @ D
        with few_threads(float(r) ** 3):
            squares = np.concatenate([HOST.eigenvalues(left.T @ left), axes.rest])
        unit, size = 4.0 * (r + 16) * HALF_UNIT, float(np.linalg.norm(D))
        whole = max(ky_fan(squares, k), 0.0) + 2.0 * k * unit * float(np.linalg.norm(left)) ** 2
        length = np.sqrt(whole) + unit * float(np.linalg.norm(root)) * (1.0 + size)
        length = (length + axes.skewed(size)) * np.sqrt(1.0 + axes.skew)
        found = float(length**2 + axes.off * np.sqrt(min(k, p))) * (1.0 + 64.0 * HALF_UNIT)
        return found if np.isfinite(found) else np.inf  # what overflows proves nothing

    def pricing(self, view: View, rows: Indices, share: float) -> VariancePricing | SpannedPricing:
        """What a pass over the rows needs to price them, times `share`."""
        if self._spans(view):
            return self._spanned(view, rows).pricing(share)
        eps, unit = view.ridge, 4.0 * (view.p + 16) * HALF_UNIT
        if not self.axes:
            return VariancePricing(share, None, (eps / (self.mass + eps)) / np.sqrt(eps), unit)
        axes, D = self._made(view, rows)
        root, size = axes.root, float(np.linalg.norm(D))
        columns = axes.V @ ((root @ D).T / np.sqrt(eps))
        products = float(np.linalg.norm(columns))
        products += (
            float(np.linalg.norm(root)) * size * float(np.linalg.norm(axes.V)) / np.sqrt(eps)
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
            M = held.moments(self.x) + self.mass * np.eye(r)
            expect(2.0 * EIGENVECTORS * float(r) ** 3)
            with few_threads(float(r) ** 3):
                D = sound_shrinkage(M, held.root, view.ridge, self.level)
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
        return {name: value for name, value in vars(self).items() if name != "_known"}


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
    return float(share * (1.0 + 8.0 * (view.p + k + 8) * HALF_UNIT)) + view.offset


def _most_norm(view: View, k: int) -> float:
    return float(np.partition(view.squared_norms, view.n - k)[view.n - k :].sum())
