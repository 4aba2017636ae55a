"""From what a user hands in to the calibrated problem: every check, and the rules of the choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fairnepv.calibration import calibrate
from fairnepv.engines import Engine
from fairnepv.errors import InputError
from fairnepv.io.texts import KINDS, same_kind, text_array
from fairnepv.problem import (
    Constraints,
    Means,
    Problem,
    Quotas,
    check_k,
    check_random_state,
    check_tau,
)
from fairnepv.selection import Selection
from fairnepv.views import Calibration, Pool
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Floats, Indices
from fairnepv.views.intake import check_ids, find_ids

_SUM_ROUNDING = 1e-6


class Posing(TypedDict, total=False):
    """What poses a problem besides data and k; `select` explains each."""

    views: Mapping[str, Any] | None
    tau: float
    eps: float | Mapping[str, float]
    calibration: Any
    quality: Any
    ids: Any
    include: Any
    include_counts: bool
    exclude: Any
    groups: Any
    quotas: Any
    priorities: Mapping[str, float] | None
    floors: Mapping[str, float] | None
    random_state: int
    engine: Engine | str | None


def pose(
    data: Any,
    k: Any,
    *,
    views: Mapping[str, Any] | None = None,
    tau: Any = 0.05,
    eps: Any = 0.1,
    calibration: Any = "unit-diagonal",
    quality: Any = None,
    ids: Any = None,
    include: Any = None,
    include_counts: bool = True,
    exclude: Any = None,
    groups: Any = None,
    quotas: Any = None,
    priorities: Any = None,
    floors: Any = None,
    random_state: Any = 0,
    engine: Engine | str | None = None,
    means: Means | None = None,
) -> Problem:
    tau, seed = check_tau(tau), check_random_state(random_state)
    pool = Pool.of(data, views=views, eps=eps, ids=ids, quality=quality, engine=engine)
    fixed_in = rows_named(pool, include, "include")
    fixed_out = rows_named(pool, exclude, "exclude")
    k = _whole_size(k, pool.n, len(fixed_in), include_counts)
    rules = Constraints(fixed_in, fixed_out, read_quotas(groups, quotas, pool.n, k))
    rules.check(pool.n, k, pool.ids)
    weights = check_priorities(priorities, pool.names)
    least = check_floors(floors, pool.names)
    means = means or Means()
    rule = calibrate(pool, calibration, k, rules, means)
    return Problem(
        rule.apply(pool),
        k,
        tau,
        rule,
        constraints=rules,
        random_state=seed,
        priorities=weights,
        floors=least,
        means=means,
    )


def sketch(data: Any, k: Any, posing: Posing) -> Problem:
    """The problem as far as shapes and headers tell, for a plan: no row is read, and neither rules
    nor ids are checked."""
    pool = Pool.sketch(
        data,
        views=posing.get("views"),
        eps=posing.get("eps", 0.1),
        engine=posing.get("engine"),
    )
    counts = posing.get("include_counts", True)
    included = 0 if counts else count_items(posing.get("include"))
    k = _whole_size(k, pool.n, included, counts)
    rule = posing.get("calibration", "unit-diagonal")
    return Problem(pool, k, 1.0, Calibration(rule if isinstance(rule, str) else "given"))


def _whole_size(k: Any, n: int, included: int, include_counts: Any) -> int:
    """How many items are returned in all."""
    if not isinstance(include_counts, bool | np.bool_):
        raise InputError(f"include_counts must be True or False, not {include_counts!r}")
    size: int = check_k(k, n)
    if include_counts:
        return size
    if size + included >= n:
        raise InputError(
            f"k = {size} items beside {included} included ones leave nothing to choose from {n}; "
            "lower k"
        )
    return size + included


# --- rows by number or by id ----------------------------------------------------------------------


def rows_named(pool: Pool, items: Any, what: str) -> Indices:
    """Rows that a user names: by id where the data has ids, else by number; or a Selection."""
    if items is None:
        return np.empty(0, dtype=np.int64)
    if isinstance(items, Selection):
        what = f"{what} (a selection)"
        if pool.ids is not None and items.has_ids:
            return rows_of_ids(items.ids, pool.ids, what)
        return check_indices(items.indices, pool.n, what)
    return _rows(pool, items, what)


def count_items(items: Any) -> int:
    """How many items `include` or `exclude` name, before they are looked up."""
    if items is None:
        return 0
    if isinstance(items, Selection):
        return len(items.indices)
    return int(plain_array(items, "include").size)


def _rows(pool: Pool, items: Any, what: str) -> Indices:
    given = plain_array(items, what)
    if given.size == 0:
        return np.empty(0, dtype=np.int64)
    if pool.ids is not None:
        return rows_of_ids(given, pool.ids, what)
    return check_indices(given, pool.n, what)


def check_indices(indices: Any, n: int, what: str = "indices") -> Indices:
    array = plain_array(indices, what)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        raise InputError(
            f"{what} must be a non-empty list of row numbers, not {array.dtype} of shape "
            f"{array.shape}"
        )
    if array.min() < 0 or array.max() >= n:
        raise InputError(
            f"{what} must be row numbers from 0 to {n - 1}, but they reach from {array.min()} to "
            f"{array.max()}"
        )
    if len(np.unique(array)) < len(array):
        raise InputError(f"{what} name some row more than once; a subset has each row once")
    return array.astype(np.int64)


def rows_of_ids(picks: Any, ids: NDArray[Any] | None, what: str = "picks") -> Indices:
    if ids is None:
        raise InputError("by_id needs ids, which say what the rows are called")
    given = plain_array(picks, what)
    if given.ndim != 1 or not len(given):
        raise InputError(f"{what} must be a non-empty list of ids, not {given.dtype} {given.shape}")
    array = check_ids(given, len(given), what)
    if array.dtype.kind == "i" and ids.dtype.kind in KINDS:  # names that look like numbers
        array = array.astype(str)
    if not same_kind(array, ids):
        raise InputError(f"{what} are {array.dtype}, but ids are {ids.dtype}; give the same type")
    rows = find_ids(array, ids)
    strangers = array[ids[rows] != array]
    if len(strangers):
        raise InputError(
            f"{what} name {len(strangers)} id(s) that no row has, for example "
            f"{strangers.tolist()[0]!r}; check that ids and {what} belong together"
        )
    return rows


# --- groups and quotas ----------------------------------------------------------------------------


def read_quotas(groups: Any, quotas: Any, n: int, k: int) -> Quotas | None:
    """(n,) labels, and per label an exact number, (least, most) with None for free, or
    'proportional' for all of them, which is also what groups without quotas mean."""
    if groups is None:
        if quotas is not None:
            raise InputError("quotas need groups, one label per row")
        return None
    labels = plain_array(groups, "groups")
    if labels.shape != (n,):
        raise InputError(f"groups must be {n} labels, one per row, not of shape {labels.shape}")
    if labels.dtype.kind == "O":
        labels = text_array([str(label) for label in labels], "groups")
    if labels.dtype.kind not in KINDS + "iubSM":
        raise InputError(f"groups must be integers or strings, not {labels.dtype}")
    names, codes = np.unique(labels, return_inverse=True)
    codes = codes.reshape(-1).astype(np.int64)
    sizes = np.bincount(codes, minlength=len(names))
    if quotas is None or (isinstance(quotas, str) and quotas == "proportional"):
        share = k * sizes / n
        least, most = np.floor(share + 1e-9), np.ceil(share - 1e-9)
    elif isinstance(quotas, Mapping):
        least, most = _read_limits(quotas, names, k)
    else:
        raise InputError(
            "quotas must map group labels to numbers or (least, most), or be 'proportional', not "
            f"{quotas!r}"
        )
    return Quotas(codes, least.astype(np.int64), most.astype(np.int64), tuple(names.tolist()))


def _read_limits(quotas: Mapping[Any, Any], names: NDArray[Any], k: int) -> tuple[Floats, Floats]:
    """Groups that are not named are free."""
    least, most = np.zeros(len(names)), np.full(len(names), float(k))
    position = {label: g for g, label in enumerate(names.tolist())}
    by_text = {str(label): g for label, g in position.items()}
    for label, quota in quotas.items():
        g = position.get(label, by_text.get(str(label)))
        if g is None:
            raise InputError(
                f"quotas name the group {label!r}, which no row belongs to; there are "
                f"{_some(list(position))}"
            )
        least[g], most[g] = _limits(label, quota, k)
    return least, most


def _limits(label: Any, quota: Any, k: int) -> tuple[int, int]:
    pair = quota if isinstance(quota, Sequence) and not isinstance(quota, str) else (quota, quota)
    if len(pair) != 2 or (pair[0] is None and pair[1] is None):
        raise InputError(f"the quota of group {label!r} must be a number or (least, most)")
    low = 0 if pair[0] is None else _count(label, pair[0])
    high = k if pair[1] is None else _count(label, pair[1])
    if low > high and pair[1] is None:
        raise InputError(f"the quota of group {label!r} asks for at least {low}, but k = {k}")
    if low > high:
        raise InputError(
            f"the quota of group {label!r} asks for at least {low} and at most {high}; swap them"
        )
    return low, high


def _count(label: Any, value: Any) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < 0:
        raise InputError(f"the quota of group {label!r} must be whole and not negative: {value!r}")
    return int(value)


def _some(items: list[Any]) -> str:
    return ", ".join(map(repr, items[:8])) + (", ..." if len(items) > 8 else "")


# --- views against each other -------------------------------------------------------------------


def check_priorities(priorities: Any, names: tuple[str, ...]) -> Floats | None:
    """(M,) weights of the views in the soft-min, which sum to one."""
    if priorities is None:
        return None
    values = _by_view("priorities", priorities, names)
    missing = [name for name in names if name not in values]
    if missing:
        raise InputError(f"priorities have no value for view(s) {missing}; give one for each view")
    weights = np.array([values[name] for name in names])
    if not (weights > 0).all():
        raise InputError(
            f"priorities must be positive, not {dict(zip(names, weights.tolist(), strict=True))}"
        )
    if abs(weights.sum() - 1.0) > _SUM_ROUNDING:
        raise InputError(
            f"priorities must sum to 1, not {weights.sum():g}; divide each by their sum"
        )
    return np.asarray(weights / weights.sum())


def check_floors(floors: Any, names: tuple[str, ...]) -> Floats | None:
    """(M,) least d_q, -inf for views without one."""
    if floors is None:
        return None
    values = _by_view("floors", floors, names)
    return np.array([values.get(name, -np.inf) for name in names]) if values else None


def _by_view(what: str, values: Any, names: tuple[str, ...]) -> dict[str, float]:
    if not isinstance(values, Mapping):
        raise InputError(
            f"{what} must map views to numbers, as in {{{names[0]!r}: 0.5}}, not {values!r}"
        )
    unknown = set(values) - set(names)
    if unknown:
        raise InputError(
            f"{what} name {sorted(map(str, unknown))}, which are not views: {list(names)}"
        )
    for name, value in values.items():
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not np.isfinite(value):
            raise InputError(f"{what} of view {name!r} must be a finite number, not {value!r}")
    return {name: float(value) for name, value in values.items()}
