"""Row ids: what the rows of two views are aligned by, and what results name rows by."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.texts import KINDS, as_texts, same_kind
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Indices, View


def check_ids(ids: Any, n: int, what: str) -> NDArray[Any]:
    """(n,) row ids without repeats, all of one comparable type."""
    array = _comparable(plain_array(ids, what), what)
    if array.ndim != 1 or len(array) != n:
        raise InputError(
            f"{what} must be one id per row, {n} in all, not shape {array.shape}; give the ids of "
            "these very rows"
        )
    values, first, counts = np.unique(array, return_index=True, return_counts=True)
    if len(values) < n:
        repeated = values[counts > 1]
        row = int(first[counts > 1][0])
        raise InputError(
            f"{what} repeat: {len(repeated)} id(s) occur more than once, the first is "
            f"{repeated.tolist()[0]!r} (row {row}); ids must be unique"
        )
    return array


def find_ids(wanted: NDArray[Any], ids: NDArray[Any]) -> Indices:
    """The row of every wanted id; any row at all for one that is not among the ids."""
    if "T" in (ids.dtype.kind, wanted.dtype.kind):  # which NumPy's search cannot compare
        rows = {name: row for row, name in enumerate(ids.tolist())}
        return np.array([rows.get(name, 0) for name in wanted.tolist()], dtype=np.int64)
    by_id = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids[by_id], wanted), len(ids) - 1)
    return by_id[at].astype(np.int64)


def _comparable(array: NDArray[Any], what: str) -> NDArray[Any]:
    """Integers, strings, bytes or dates, so that ids of two views compare without guessing; a copy,
    since results name rows by them long after."""
    if array.dtype.kind == "O":  # as pandas hands out strings
        items = array.ravel().tolist()
        array = as_texts(array, what)
        if all(type(item) is int and abs(item) < 2**63 for item in items):
            array = array.astype(np.int64)
    if array.dtype.kind in "iu" and (array.dtype != np.uint64 or array.max(initial=0) < 2**63):
        return array.astype(np.int64)
    if array.dtype.kind in KINDS + "SM":
        return array.copy()
    raise InputError(
        f"{what} must be all integers below 2^63 or all strings, not {array.dtype}; write other "
        "numbers as strings"
    )


def aligned(
    views: Mapping[str, View], ids: Mapping[str, Any], *, inner: bool = False
) -> tuple[NDArray[Any], dict[str, Indices], NDArray[np.bool_] | None]:
    """The ids of the first view, and for every view in another order the rows that follow them;
    if `inner`, also which of the first view's rows some other view lacks."""
    if set(ids) != set(views):
        raise InputError(f"ids names views {sorted(ids)}, but the data has {sorted(views)}")
    by_view = {
        name: check_ids(ids[name], view.n, f"ids of view {name!r}") for name, view in views.items()
    }
    reference, common = next(iter(by_view.items()))
    orders, lacking = {}, np.zeros(len(common), dtype=bool)
    for name, own in by_view.items():
        if not same_kind(own, common):
            raise InputError(
                f"ids of views {reference!r} and {name!r} differ in type ({common.dtype} and "
                f"{own.dtype}); give the same type to both"
            )
        if np.array_equal(own, common):
            continue
        orders[name] = find_ids(common, own)
        lacking |= own[orders[name]] != common
        strangers = np.setxor1d(own, common)
        if len(strangers) and not inner:
            raise InputError(
                f"ids of views {reference!r} and {name!r} do not match: {len(strangers)} id(s) are "
                f"in one and not in the other, for example {strangers.tolist()[0]!r}; give the "
                "same rows to both, or say align='inner' to leave such rows out"
            )
    return common, orders, lacking if inner else None
