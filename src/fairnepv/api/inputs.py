"""From what a user hands in to the calibrated problem: every check, and the rules of the choice."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.calibration import calibrate
from fairnepv.api.duplicates import check_left, taken_in
from fairnepv.api.objectives import as_wanted, check_floors, pool_as_asked
from fairnepv.api.quotas import read_quotas
from fairnepv.api.selection import Selection
from fairnepv.checks import brief, check_flag, is_finite
from fairnepv.compute import engine_of
from fairnepv.errors import InputError
from fairnepv.io.texts import KINDS, same_kind
from fairnepv.loop import Context
from fairnepv.options import DIVERSE, ProblemOptions, SelectOptions, default
from fairnepv.problem import Constraints, Means, Problem, check_k
from fairnepv.signatures import checked, completed
from fairnepv.views import Calibration, Pool
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Floats, Indices
from fairnepv.views.centering import centered
from fairnepv.views.ids import check_ids, find_ids

_SUM_ROUNDING = 1e-6


def pose(
    data: Any,
    k: Any,
    *,
    means: Means | None = None,
    session: Context | None = None,
    **options: Unpack[ProblemOptions],
) -> Problem:
    """The calibrated problem, once everything that a user hands in has been checked.

    With a session its limit holds, and what it should tell the user goes there.
    """

    def needed(what: str) -> AbstractContextManager[None]:
        return nullcontext() if session is None else session.needed(what)

    given = as_wanted(checked("pose", ProblemOptions, options))
    objective = given["objective"]
    with needed("rows were read and checked"):
        given_rows = _pool_as_given(data, given)
        pool = centered(given_rows) if wants_center(given) else given_rows
    fixed_in = rows_named(pool, given["include"], "include")
    fixed_out = rows_named(pool, given["exclude"], "exclude")
    with needed("near-duplicates were found"):
        intake, notes = taken_in(given_rows, given, fixed_in, fixed_out)
    if session is not None:
        session.notes.extend(notes)
    k = _whole_size(k, pool.n, len(fixed_in), given["include_counts"])
    check_left(intake, pool.n, k, fixed_out)
    fixed_out = np.union1d(fixed_out, intake.ruled_out) if len(intake.ruled_out) else fixed_out
    quotas = read_quotas(given["groups"], given["quotas"], pool.n, k, pool.dropped)
    rules = Constraints(fixed_in, fixed_out, quotas)
    rules.check(pool.n, k, pool.ids)
    weights = check_priorities(given["priorities"], pool.names)
    floors = _by_view("floors", given["floors"], pool.names)
    least = np.array([floors.get(name, -np.inf) for name in pool.names]) if floors else None
    check_floors(least, pool.names, objective)
    means = means or Means()
    rule = calibrate(pool, given["calibration"], k, rules, means, session)
    with needed("views were brought to one scale"):
        asked = pool_as_asked(pool, rule, objective)
    return Problem(
        asked,
        k,
        given["tau"],
        rule,
        constraints=rules,
        random_state=given["random_state"],
        priorities=weights,
        floors=least,
        means=means,
        utility=objective,
        intake=intake,
    )


def with_engine(options: SelectOptions) -> SelectOptions:
    """The options with the engine itself in place of its name. To start it, or to import what it
    computes with, may take seconds, which are not those of a limit."""
    named = options["engine"]
    return options if named is None else {**options, "engine": engine_of(named)}


def pool_of(data: Any, options: Mapping[str, Any]) -> Pool:
    """The views with their ids, weights and ridges, centred or not, and who computes."""
    wanted = wants_center(options)
    pool = _pool_as_given(data, options)
    return centered(pool) if wanted else pool


def _pool_as_given(data: Any, options: Mapping[str, Any]) -> Pool:
    named: Any = {name: options.get(name) for name in ("views", "eps", "ids", "quality", "engine")}
    wanted = {n: options[n] for n in ("missing", "align") if options.get(n) is not None}
    return Pool.of(data, **named, **wanted)


def wants_center(options: Mapping[str, Any]) -> bool:
    """Whether views are to be centred: as somebody says, else as the calibration of an earlier
    result has it, else as the objective wants it."""
    said, record = options.get("center"), options.get("calibration")
    said = None if said is None else check_flag("center", said)
    if not isinstance(record, Calibration):
        usual = default("center", options.get("objective", DIVERSE))
        return bool(usual if said is None else said)
    if said is not None and said != record.center:
        raise InputError(
            f"center is {said}, but the calibration that is handed in is one of "
            f"{'centred views' if record.center else 'views as they came'}; leave center out, or "
            "name the rule of the calibration"
        )
    return record.center


def sketch(data: Any, k: Any, options: Mapping[str, Any]) -> Problem:
    """The problem as far as shapes and headers tell, for a plan: no row is read, and neither rules
    nor ids are checked."""
    given = as_wanted(completed("sketch", ProblemOptions, options))
    shapes: Any = {name: given[name] for name in ("views", "eps", "ids", "align", "engine")}
    pool = Pool.sketch(data, **shapes)
    pool = replace(pool, centered=wants_center(given))
    [k] = sizes_in_all([k], pool.n, given)
    rule = given["calibration"]
    named = Calibration(rule if isinstance(rule, str) else "given")
    return Problem(pool, k, 1.0, named, utility=given["objective"])


def sizes_in_all(sizes: Sequence[Any], n: int, options: Mapping[str, Any]) -> list[int]:
    """How many items are returned for each of several sizes, of which some may be fractions."""
    counts = check_flag("include_counts", options["include_counts"])
    included = 0 if counts else count_items(options["include"])
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


def scale_of(selection: Selection, views: Mapping[str, Any]) -> dict[str, Any]:
    """The options by which the same views are scored as an earlier selection was."""
    told = selection.settings
    return {
        "objective": selection.objective,
        "tau": told["tau"],
        "eps": ridges_for(views, told["eps"]),
        "calibration": selection.calibration,
        "priorities": told["priorities"],
    }


def ridges_for(views: Mapping[str, Any], eps: Mapping[str, float]) -> dict[str, float]:
    """The ridges of those views that bring none of their own."""
    bare = {name for name, view in views.items() if getattr(view, "eps", None) is None}
    return {name: value for name, value in eps.items() if name in bare}


# --- rows by number or by id ----------------------------------------------------------------------


def rows_named(pool: Pool, items: Any, what: str) -> Indices:
    """Rows that a user names: by id where the data has ids, else by number; or a Selection."""
    if items is None:
        return np.empty(0, dtype=np.int64)
    by_id = pool.ids is not None
    if isinstance(items, Selection):
        what = f"{what} (a selection)"
        by_id = by_id and items.has_ids
        given = items.ids if by_id else items.indices
    else:
        given = plain_array(items, what)
        if given.size == 0:
            return np.empty(0, dtype=np.int64)
    return rows_of_ids(given, pool.ids, what) if by_id else check_indices(given, pool.n, what)


def count_items(items: Any) -> int:
    """How many items `include` or `exclude` name, before they are looked up."""
    if items is None:
        return 0
    if isinstance(items, Selection):
        return len(items.indices)
    return int(plain_array(items, "include").size)


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
    # What sums to 1 but for rounding stays as it is, so that settings give the same again.
    rounded = abs(weights.sum() - 1.0) <= len(weights) * np.finfo(np.float64).eps
    return weights if rounded else np.asarray(weights / weights.sum())


def _by_view(what: str, values: Any, names: tuple[str, ...]) -> dict[str, float]:
    if values is None:
        return {}
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
        if not is_finite(value):
            raise InputError(f"{what} of view {name!r} must be a finite number, not {brief(value)}")
    return {name: float(value) for name, value in values.items()}
