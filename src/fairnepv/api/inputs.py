"""From what a user hands in to the calibrated problem: every check, and the rules of the choice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.calibration import calibrate
from fairnepv.api.selection import Selection
from fairnepv.compute import Engine
from fairnepv.errors import InputError
from fairnepv.io.texts import KINDS, same_kind
from fairnepv.problem import (
    Constraints,
    Means,
    Problem,
    Quotas,
    check_k,
    check_random_state,
    check_tau,
)
from fairnepv.views import Calibration, Pool
from fairnepv.views.arrays import brief, check_count, check_flag, plain_array
from fairnepv.views.base import Floats, Indices
from fairnepv.views.ids import check_ids, find_ids

_SUM_ROUNDING = 1e-6
_ENDLESS = 1 << 53  # items: more than any pool has, and exact in float64


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
    include_counts = check_flag("include_counts", include_counts)
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
    pool = _sketched_pool(data, posing, posing.get("engine"))
    [k] = _sizes_in_all([k], pool.n, posing)
    rule = posing.get("calibration", "unit-diagonal")
    return Problem(pool, k, 1.0, Calibration(rule if isinstance(rule, str) else "given"))


def sizes_in_all(data: Any, sizes: Sequence[Any], posing: Posing) -> list[int]:
    """How many items are returned for each of several sizes, of which some may be fractions."""
    return _sizes_in_all(sizes, _sketched_pool(data, posing, None).n, posing)


def _sketched_pool(data: Any, posing: Posing, engine: Engine | str | None) -> Pool:
    eps = posing.get("eps", 0.1)
    return Pool.sketch(data, views=posing.get("views"), eps=eps, engine=engine)


def _sizes_in_all(sizes: Sequence[Any], n: int, posing: Posing) -> list[int]:
    counts = check_flag("include_counts", posing.get("include_counts", True))
    included = 0 if counts else count_items(posing.get("include"))
    return [_whole_size(k, n, included, counts) for k in sizes]


def _whole_size(k: Any, n: int, included: int, include_counts: bool) -> int:
    """How many items are returned in all."""
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
    names, codes = _coded(groups, n)
    sizes = np.bincount(codes, minlength=len(names))
    if quotas is None or (isinstance(quotas, str) and quotas == "proportional"):
        share = k * sizes / n
        least, most = np.floor(share + 1e-9), np.ceil(share - 1e-9)
    elif isinstance(quotas, Mapping):
        least, most = _read_limits(quotas, names, k)
    else:
        raise InputError(
            "quotas must map group labels to numbers or (least, most), or be 'proportional', not "
            f"{brief(quotas)}"
        )
    return Quotas(codes, least.astype(np.int64), most.astype(np.int64), tuple(names))


def _coded(groups: Any, n: int) -> tuple[list[Any], NDArray[np.int64]]:
    """The labels in order, and for every row the number of its label.

    Labels of an array of Python objects, or of a list, are looked up one by one: an array of
    strings would give every row the width of the longest.
    """
    if isinstance(groups, list | tuple):
        labels = np.fromiter(groups, dtype=object, count=len(groups))
    else:
        labels = plain_array(groups, "groups")
    if labels.shape != (n,):
        raise InputError(f"groups must be {n} labels, one per row, not of shape {labels.shape}")
    if labels.dtype.kind not in "iubUSM":
        return _looked_up(labels.tolist())
    names, codes = np.unique(labels, return_inverse=True)
    codes = codes.reshape(-1).astype(np.int64)
    _refuse_missing(list(names), codes)
    return names.tolist(), codes


def _looked_up(labels: list[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    seen: dict[Any, int] = {}
    try:
        codes = np.array([seen.setdefault(label, len(seen)) for label in labels], dtype=np.int64)
    except TypeError as error:
        raise InputError(f"groups must be integers or strings ({error})") from error
    names = [label.item() if isinstance(label, np.integer) else label for label in seen]
    _refuse_missing(names, codes)
    _refuse_mixed(labels)
    order = sorted(range(len(names)), key=lambda g: _in_order(names[g]))
    position = np.empty(len(names), dtype=np.int64)
    position[order] = np.arange(len(names))
    return [names[g] for g in order], position[codes]


def _in_order(label: Any) -> Any:
    return label if isinstance(label, int | str | bytes) else str(label)


def _refuse_missing(names: list[Any], codes: NDArray[np.int64]) -> None:
    rows = np.flatnonzero(np.isin(codes, [g for g, name in enumerate(names) if _is_missing(name)]))
    if len(rows):
        raise InputError(
            f"groups have no label in {len(rows)} row(s), the first is row {rows[0]}; drop those "
            "rows or give them a label of their own"
        )


def _is_missing(label: Any) -> bool:
    """None, NaN and NaT, which differ from themselves, and pandas.NA, which does not say."""
    try:
        return label is None or bool(label != label)
    except (TypeError, ValueError):
        return True


def _refuse_mixed(labels: list[Any]) -> None:
    """Labels of two types may read alike, as 1 and "1" do, and True is 1 to Python."""
    first: dict[type, int] = {}
    for row, kind in enumerate(map(type, labels)):
        first.setdefault(kind, row)
    by_kind = {_kind_of(labels[row]): row for row in reversed(first.values())}
    if len(by_kind) > 1:
        one, other = sorted(by_kind.values())[:2]
        raise InputError(
            f"groups mix types of labels, as {brief(labels[one])} in row {one} and "
            f"{brief(labels[other])} in row {other}; make all of them integers or all strings"
        )
    kind, row = next(iter(by_kind.items()))
    several = hasattr(kind, "__len__") and kind not in (str, bytes)
    if several or issubclass(kind, float | complex):
        raise InputError(
            f"groups must be integers or strings, not {kind.__name__} ({brief(labels[row])})"
        )


def _kind_of(label: Any) -> type:
    """The type of a label, whoever's integers, strings or numbers they are."""
    plain = label.item() if isinstance(label, np.generic) else label
    kinds = (bool, int, str, bytes, float)
    return next((kind for kind in kinds if isinstance(plain, kind)), type(plain))


def _read_limits(quotas: Mapping[Any, Any], names: list[Any], k: int) -> tuple[Floats, Floats]:
    """Groups that are not named are free."""
    least, most = np.zeros(len(names)), np.full(len(names), float(k))
    position = {label: g for g, label in enumerate(names)}
    by_text = {str(label): g for label, g in position.items()}
    named: dict[int, Any] = {}
    for label, quota in quotas.items():
        g = position.get(label, by_text.get(str(label)))
        if g is None:
            raise InputError(
                f"quotas name the group {brief(label)}, which no row belongs to; there are "
                f"{_some(list(position))}"
            )
        if g in named:
            raise InputError(
                f"quotas name one group twice, as {brief(named[g])} and as {brief(label)}; drop "
                "one of the two"
            )
        named[g] = label
        least[g], most[g] = _limits(label, quota, k)
    return least, most


def _limits(label: Any, quota: Any, k: int) -> tuple[int, int]:
    group = f"the quota of group {brief(label)}"
    pair = quota if isinstance(quota, Sequence) and not isinstance(quota, str) else (quota, quota)
    if len(pair) != 2 or (pair[0] is None and pair[1] is None):
        raise InputError(f"{group} must be a number or (least, most), not {brief(quota)}")
    low, high = (None if bound is None else check_count(group, bound, 0) for bound in pair)
    low = low or 0
    if high is None and low > k:
        raise InputError(f"{group} asks for at least {brief(low)}, but k = {k}")
    high = k if high is None else high
    if low > high:
        raise InputError(f"{group} asks for at least {low} and at most {high}; swap them")
    return min(low, _ENDLESS), min(high, _ENDLESS)


def _some(items: list[Any]) -> str:
    return ", ".join(map(brief, items[:8])) + (", ..." if len(items) > 8 else "")


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
            f"{what} must map views to numbers, as in {{{names[0]!r}: 0.5}}, not {brief(values)}"
        )
    unknown = set(values) - set(names)
    if unknown:
        raise InputError(
            f"{what} name {sorted(map(str, unknown))}, which are not views: {list(names)}"
        )
    for name, value in values.items():
        if not _is_finite(value):
            raise InputError(f"{what} of view {name!r} must be a finite number, not {brief(value)}")
    return {name: float(value) for name, value in values.items()}


def _is_finite(value: Any) -> bool:
    real = isinstance(value, int | float | np.integer | np.floating)
    try:
        return real and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
