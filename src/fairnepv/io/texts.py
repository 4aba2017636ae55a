"""Texts as arrays: ids, group labels, columns of tables.

NumPy's usual texts are all as wide as the longest one and end before their last NUL, so one long id
among many takes gigabytes and "a" equals "a\\0". Where the width is wasted each text gets its own
length instead (`StringDType`, whose kind is "T"); a NUL at the end is refused.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError

KINDS = "UT"  # of dtypes that hold texts
NARROW = 1 << 26  # bytes; below, texts are of one width, however much of it is padding
_WIDEST = 16  # times the mean length; beyond, most of an array of one width would be padding


def text_array(values: Sequence[str], what: str) -> NDArray[Any]:
    """(n,) texts, of one width where that is not wasteful."""
    if "\0" in "".join(values):  # or each would have to be asked, a second for a million
        for row, value in enumerate(values):
            if value.endswith("\0"):
                raise InputError(
                    f"{what} has {value!r} in row {row:,}, which ends in a NUL that NumPy drops; "
                    "take it away"
                )
    lengths = list(map(len, values))
    width, letters = max(lengths, default=0), sum(lengths)
    if 4 * width * len(values) <= NARROW or width * len(values) <= _WIDEST * letters:
        return np.array(values, dtype=str)
    try:
        return np.array(values, dtype=np.dtypes.StringDType())
    except UnicodeEncodeError as error:
        raise InputError(f"{what} has half a character ({error}); write it again") from error


def as_texts(array: NDArray[Any], what: str) -> NDArray[Any]:
    """Texts that came as objects, as Arrow and pandas hand them out; other arrays as they are."""
    if array.dtype != object or array.ndim != 1:
        return array
    values = array.tolist()
    texts = all(issubclass(kind, str) for kind in set(map(type, values)))
    return text_array(values, what) if texts else array


def same_kind(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether the values of two arrays can be compared."""
    kinds = {one.dtype.kind, other.dtype.kind}
    return len(kinds) == 1 or kinds == set(KINDS)
