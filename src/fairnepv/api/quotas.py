"""Groups of rows and how many may be chosen of each, from what a user hands in."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.checks import brief, check_count
from fairnepv.errors import InputError
from fairnepv.problem import Quotas
from fairnepv.views.arrays import plain_array
from fairnepv.views.base import Floats, Indices

_ENDLESS = 1 << 53  # items: more than any pool has, and exact in float64
_SHOWN = 8  # labels in a message


def read_quotas(
    groups: Any, quotas: Any, n: int, k: int, dropped: Indices | None = None
) -> Quotas | None:
    """(n,) labels, and per label an exact number, (least, most) with None for free, or
    'proportional' for all of them, which is also what groups without quotas mean; `dropped` rows
    are in no proportion."""
    if groups is None:
        if quotas is not None:
            raise InputError("quotas need groups; pass groups, one label per row")
        return None
    names, codes = _coded(groups, n)
    if quotas is None or (isinstance(quotas, str) and quotas == "proportional"):
        counted = codes if dropped is None else np.delete(codes, dropped)
        share = k * np.bincount(counted, minlength=len(names)) / len(counted)
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
    keys = [name if isinstance(name, int | str | bytes) else str(name) for name in names]
    order = sorted(range(len(names)), key=keys.__getitem__)
    return [names[g] for g in order], np.argsort(order)[codes]


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
    """The type of a label; that of Python for numbers and strings of NumPy."""
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
            shown = ", ".join(map(brief, names[:_SHOWN])) + (", ..." * (len(names) > _SHOWN))
            raise InputError(
                f"quotas name the group {brief(label)}, which no row belongs to; there are {shown}"
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
