"""What a certificate is about, without the data: enough to pose the same problem again.

What is stored may come from anybody: each value is of the type that is asked for, or a ValueError.
Python and NumPy would take nearly anything: 3.7 is no number of rows, and "no" is not false.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairnepv.checks import brief
from fairnepv.errors import InputError
from fairnepv.objective import UTILITIES
from fairnepv.problem import DEFAULT_UTILITY, Constraints, Problem, Quotas
from fairnepv.views import Calibration, Pool
from fairnepv.views.base import Floats, Indices

T = TypeVar("T")
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Terms:
    """The problem that a bound is about; what is derived from the data is left to the data."""

    n: int
    k: int
    tau: float
    eps: Mapping[str, float]  # by view, in the order of the views
    calibration: Calibration
    constraints: Constraints
    priorities: Floats | None
    quality: bool  # whether rows were weighted; the weights themselves belong to the data
    objective: str = DEFAULT_UTILITY  # what a view is asked for, by its name in `objective`

    @classmethod
    def of(cls, problem: Problem) -> Terms:
        pool = problem.pool
        return cls(
            n=problem.n,
            k=problem.k,
            tau=float(problem.tau),
            eps={name: float(view.ridge) for name, view in pool.items()},
            calibration=problem.calibration,
            constraints=problem.constraints,
            priorities=problem.priorities,
            quality=pool.quality is not None,
            objective=problem.utility,
        )

    def check_pool(self, pool: Pool) -> None:
        """Whether these terms can be about the data that is handed in."""
        self._check()
        self.check_views(pool.names)
        if pool.n != self.n:
            raise InputError(f"the certificate is about {self.n} rows, but the data has {pool.n}")
        for name, view in pool.items():
            if view.ridge != self.eps[name]:
                raise InputError(
                    f"the certificate is about eps = {self.eps[name]!r} of view {name!r}, but the "
                    f"data has {view.ridge!r}"
                )
        if pool.centered != self.calibration.center:
            raise InputError(
                "the certificate is about "
                f"{'centred' if self.calibration.center else 'other than centred'} views; pose the "
                "problem with the same center"
            )
        if (pool.quality is not None) != self.quality:
            raise InputError(
                "the certificate is about rows with quality weights; pass the same quality"
                if self.quality
                else "the certificate knows no quality weights; leave them out"
            )

    def pose(self, pool: Pool) -> Problem:
        """The same problem on data handed in anew."""
        self.check_pool(pool)
        return Problem(
            UTILITIES[self.objective].asked_about(pool, self.calibration),
            self.k,
            self.tau,
            self.calibration,
            constraints=self.constraints,
            priorities=self.priorities,
            utility=self.objective,
        )

    def refuse_other(self, expected: Terms, *, names: Collection[str] | None = None) -> None:
        """Terms that are not those that were expected, in whatever is named (or anything)."""
        theirs, ours = self._comparable(), expected._comparable()
        for name, own in ours.items():
            if (names is None or name in names) and not _same(theirs[name], own):
                raise InputError(
                    f"the certificate is about other terms: {name} is {_shown(theirs[name])}, "
                    f"expected {_shown(own)}"
                )

    def _comparable(self) -> dict[str, Any]:
        """By the names that `select` has for them."""
        rules, quotas = self.constraints, self.constraints.quotas
        return {
            **self.record(),
            "calibration": self.calibration,
            "include": np.sort(rules.fixed_in),
            "exclude": np.unique(rules.fixed_out),
            "groups": None if quotas is None else quotas.groups,
            "quotas": None if quotas is None else np.stack([quotas.least, quotas.most], axis=1),
            "priorities": self.priorities,
        }

    def check_views(self, names: tuple[str, ...]) -> None:
        if names != tuple(self.eps):
            raise InputError(
                f"the certificate is about views {list(self.eps)}, in this order, but the data has "
                f"{list(names)}"
            )

    def record(self) -> dict[str, Any]:
        """The part that is text and numbers."""
        rule = self.calibration
        return {
            "objective": self.objective,
            "n": self.n,
            "k": self.k,
            "tau": self.tau,
            "eps": dict(self.eps),
            "center": rule.center,
            "calibration": {
                "rule": rule.rule,
                "normalize": rule.normalize,
                "factors": dict(rule.factors),
                "offsets": dict(rule.offsets),
            },
            "quality": self.quality,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The part that is arrays; what is absent is left out."""
        rules = self.constraints
        arrays: dict[str, NDArray[Any]] = {"include": rules.fixed_in, "exclude": rules.fixed_out}
        if (quotas := rules.quotas) is not None:
            arrays |= {"groups": quotas.groups, "least": quotas.least, "most": quotas.most}
        if self.priorities is not None:
            arrays["priorities"] = self.priorities
        return arrays

    @classmethod
    def read(cls, record: Mapping[str, Any], arrays: Arrays) -> Terms:
        """Anything that `Problem` would stumble over is a ValueError."""
        rule, quotas = record["calibration"], None
        if "groups" in arrays:
            groups, least, most = (whole_numbers(arrays, x) for x in ("groups", "least", "most"))
            quotas = Quotas(groups, least, most)
        included, excluded = (whole_numbers(arrays, name) for name in ("include", "exclude"))
        terms = cls(
            n=typed(record, "n", int),
            k=typed(record, "k", int),
            tau=number(record, "tau"),
            eps=numbers(record, "eps"),
            calibration=Calibration(
                typed(rule, "rule", str),
                typed(rule, "normalize", bool),
                numbers(rule, "factors"),
                numbers(rule, "offsets"),
                typed(record, "center", bool),
            ),
            constraints=Constraints(included, excluded, quotas),
            priorities=real_numbers(arrays, "priorities") if "priorities" in arrays else None,
            quality=typed(record, "quality", bool),
            objective=typed(record, "objective", str),
        )
        terms._check()
        return terms

    def _check(self) -> None:
        weights, quotas = self.priorities, self.constraints.quotas
        sound = 1 <= self.k <= self.n and self.tau > 0 and len(self.eps) > 0
        sound = sound and self.objective in UTILITIES
        if weights is not None:
            sound &= weights.shape == (len(self.eps),) and bool((weights > 0).all())
            # A large tau multiplies what is missing from one.
            sound = sound and abs(math.fsum(weights) - 1.0) <= len(weights) * 2.0**-53
        if quotas is not None:
            sound &= quotas.groups.shape == (self.n,) and quotas.least.shape == quotas.most.shape
            sound = sound and 0 <= quotas.groups.min() <= quotas.groups.max() < len(quotas.least)
        if not sound:
            raise InputError("the certificate is about a problem that cannot be posed")


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, Calibration):
        return left.agrees(right)
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return type(left) is type(right) and bool(left == right)


def _shown(value: Any) -> str:
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    return "none" if plain is None or plain == [] else brief(plain)


# --- stored values --------------------------------------------------------------------------------


def typed(record: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A value of this very type."""
    value = record[name]
    if type(value) is not kind:
        raise ValueError(f"{name} must be {kind.__name__}, not {value!r}")
    return value


def number(record: Mapping[str, Any], name: str) -> float:
    """A number; those of a document are finite."""
    return _number(name, record[name])


def numbers(record: Mapping[str, Any], name: str) -> dict[str, float]:
    """A number for every view, by its name."""
    return {view: _number(name, value) for view, value in record[name].items()}


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{name} must be a number, not {value!r}")
    return float(value)


def whole_numbers(arrays: Arrays, name: str) -> Indices:
    """A vector of integers."""
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be whole numbers")
    return array.astype(np.int64)


def real_numbers(
    arrays: Arrays, name: str, shape: tuple[int, ...] | None = None, *, gaps: bool = False
) -> Floats:
    """Finite numbers, or NaN where there may be `gaps`; of this shape if one is given, in which -1
    stands for any length."""
    if arrays[name].dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numbers")
    with np.errstate(over="ignore"):  # of a wider type
        array = arrays[name].astype(np.float64)
    if not (np.isfinite(array) | (gaps & np.isnan(array))).all():
        raise ValueError(f"{name} must be finite numbers")
    if shape is not None and (
        array.ndim != len(shape)
        or any(wanted not in (-1, size) for wanted, size in zip(shape, array.shape, strict=True))
    ):
        raise ValueError(f"{name} has the wrong shape")
    return array


def texts(record: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = typed(record, name, list)
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be texts")
    return tuple(values)


def number_list(record: Mapping[str, Any], name: str) -> tuple[float, ...]:
    return tuple(_number(name, value) for value in typed(record, name, list))


def are_rows(rows: Indices, n: int) -> bool:
    """Whether these are rows of a pool of n, each once."""
    inside = not len(rows) or bool(rows.min() >= 0 and rows.max() < n)
    return inside and len(np.unique(rows)) == len(rows)
