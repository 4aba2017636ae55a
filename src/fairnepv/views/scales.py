"""The record of a calibration: what was decided before selection, enough to apply it again.

The rules that make such records live in `fairnepv.api.calibration`; this is their common outcome.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairnepv.checks import brief, check_flag, check_positive, is_finite
from fairnepv.errors import InputError
from fairnepv.views.base import Floats, View
from fairnepv.views.pool import Pool
from fairnepv.views.validity import LARGEST_SQUARE

_COMPUTED, SOLVED = 1e-9, 1e-6  # by which numbers may differ between two machines
# The rule of a calibration by bounds that time_limit or Ctrl-C left looser than the data gives: no
# machine finds its numbers again, so that they are terms, as those that somebody chose.
CUT_SHORT = "efficiency, cut short"


@dataclass(frozen=True)
class Calibration:
    """Per view: L = exp(offset) (factor D Phi Phi^T D + eps I), D normalising rows or not, and Phi
    less the mean of its rows or as it came.

    [FairNEPv, Remark 1]: the ridge comes after rows are normalised or the trace is, so that a
    common ridge means the same in every view.
    """

    rule: str
    normalize: bool = False
    # On K, before the ridge.
    factors: Mapping[str, float] = field(default_factory=dict, hash=False)
    # Logarithm of the factor on L, after it.
    offsets: Mapping[str, float] = field(default_factory=dict, hash=False)
    center: bool = False  # whether it is about centred views
    # What proves the offsets of 'efficiency', for a certificate of the same problem to use again.
    evidence: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    handed_in: bool = field(default=False, repr=False, compare=False)  # from an earlier result

    @property
    def told(self) -> str | dict[str, Any]:
        """The rule by its name, or all numbers where the rule and the data do not give them."""
        if not self.handed_in and self.rule not in ("explicit", CUT_SHORT):
            return self.rule
        numbers = {"factors": dict(self.factors), "offsets": dict(self.offsets)}
        return {"rule": self.rule, "normalize": self.normalize, **numbers, "center": self.center}

    @classmethod
    def read(cls, told: Any) -> Any:
        """What `told` has told of a calibration; anything else stays as it is."""
        if not isinstance(told, Mapping) or not isinstance(told.get("rule"), str):
            return told
        parts = {"factors", "offsets"}
        if set(told) != {"rule", "normalize", "center"} | parts:
            raise InputError(f"calibration is none that settings tell: {brief(told)}")
        flags: Any = {name: check_flag(name, told[name]) for name in ("normalize", "center")}
        numbers: Any = {name: _numbers(name, told[name]) for name in parts}
        return cls(told["rule"], **flags, **numbers)

    @property
    def by_bounds(self) -> bool:
        """Whether exp(d_q) is the share of its own bound that a view keeps."""
        return self.rule in ("efficiency", CUT_SHORT)

    def agrees(self, other: Calibration) -> bool:
        """Whether both are one, but for digits in which two machines may differ; those of
        'efficiency' come from a solver."""
        apart = SOLVED if self.rule == "efficiency" else _COMPUTED
        return (
            (self.rule, self.normalize, self.center) == (other.rule, other.normalize, other.center)
            and _close(self.factors, other.factors, rel_tol=_COMPUTED)
            and _close(self.offsets, other.offsets, rel_tol=0.0, abs_tol=apart)
        )

    def apply(self, pool: Pool) -> Pool:
        """The pool under this calibration; its quality multiplies K by sqrt(q_i q_j) afterwards."""
        self._check_views(pool)
        views = []
        for name, view in pool.items():
            scale = self._row_scale(name, view)
            if pool.quality is not None:
                quality = pool.quality[name]
                if view.ridge == 0 and not quality.all():
                    raise InputError(
                        f"quality of view {name!r} is 0 in row {np.argmin(quality)}, but the view "
                        "has eps = 0 and its score would be minus infinity; use a positive quality "
                        "or a positive eps"
                    )
                root = np.sqrt(quality)
                scale = root if scale is None else scale * root
            view = view.scaled(scale, float(self.offsets.get(name, 0.0)))
            _check_lengths(name, view)
            views.append(view)
        return pool.with_views(pool.names, tuple(views))

    def _row_scale(self, name: str, view: View) -> Floats | None:
        if self.normalize:
            norms = np.sqrt(view.raw_squared_norms())
            if view.absent is not None:
                norms[view.absent] = np.inf  # whose scale is 0
            zero = np.flatnonzero(norms == 0)
            if len(zero):
                equal = " once the mean of all rows is taken off" if self.center else ""
                raise InputError(
                    f"view {name!r} has {len(zero)} all-zero row(s){equal}, the first is row "
                    f"{zero[0]}, and calibration {self.rule!r} divides by row norms; drop those "
                    "rows or use calibration='trace' or 'none'"
                )
            return 1.0 / norms
        factor = float(self.factors.get(name, 1.0))
        if view.absent is not None:
            return np.where(view.absent, 0.0, np.sqrt(factor))
        return None if factor == 1.0 else np.full(view.n, np.sqrt(factor))

    def _check_views(self, pool: Pool) -> None:
        if any(made and set(made) != set(pool.names) for made in (self.factors, self.offsets)):
            raise InputError(
                f"calibration {self.rule!r} was made for views "
                f"{sorted(set(self.factors) | set(self.offsets))}, but the data has "
                f"{sorted(pool.names)}; give the same views"
            )
        if self.center != pool.centered:
            raise InputError(
                f"calibration {self.rule!r} was made for "
                f"{'centred views' if self.center else 'views as they come'}, and the pool has "
                "others; use the same center"
            )


def _numbers(what: str, values: Any) -> dict[str, float]:
    """Logarithms may have any sign, factors on K may not."""
    if not isinstance(values, Mapping) or not all(map(is_finite, values.values())):
        raise InputError(f"{what} of a calibration must be numbers by view, not {brief(values)}")
    if what == "factors":
        return {name: check_positive(what, value, name) for name, value in values.items()}
    return {name: float(value) for name, value in values.items()}


def _close(left: Mapping[str, float], right: Mapping[str, float], **tolerance: float) -> bool:
    return set(left) == set(right) and all(
        math.isclose(value, right[name], **tolerance) for name, value in left.items()
    )


def _check_lengths(name: str, view: View) -> None:
    """The same limits on calibrated rows as on those that were handed in."""
    with np.errstate(over="ignore"):
        norms = view.squared_norms
        total = float(norms.sum())
    if not total <= LARGEST_SQUARE:
        raise InputError(
            f"calibration and quality make the rows of view {name!r} too long for float64; divide "
            "them"
        )
    if view.ridge == 0 and not norms.all():
        raise InputError(
            f"calibration and quality leave nothing of row {np.argmin(norms)} of view {name!r} in "
            "float64, but the view has eps = 0 and its score would be minus infinity; use a "
            "positive eps"
        )
