"""What a user hands in, as a plain NumPy array, or one clear sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.texts import text_array

_LONGEST = 80  # characters of a value in a message


def read_array(value: Any, what: str) -> NDArray[Any]:
    """`value` as an array, a mask still on it; ragged lists and the like are refused."""
    if hasattr(value, "detach"):  # a tensor, perhaps with a gradient or on a device
        value = value.detach().cpu()
    if isinstance(value, list | tuple) and value and all(isinstance(x, str) for x in value):
        return text_array(value, what)
    try:
        return np.asanyarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).split(". ")[0]
        raise InputError(f"{what} cannot be read as an array ({reason})") from error


def plain_array(value: Any, what: str) -> NDArray[Any]:
    """`value` as an ndarray, without a copy where possible; masked values are refused."""
    array = read_array(value, what)
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise InputError(f"{what} has masked values; fill or drop them")
    return np.asarray(array)


def check_flag(argument: str, value: Any) -> bool:
    """True or False and nothing else: "no" and 0 may be meant either way."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{argument} must be True or False, not {brief(value)}")
    return bool(value)


def check_count(argument: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise InputError(f"{argument} must be a whole number, at least {least}, not {brief(value)}")
    if value < least:
        raise InputError(f"{argument} must be at least {least}, not {brief(int(value))}")
    return int(value)


def check_positive(argument: str, value: Any, view: str | None = None) -> float:
    """A finite, positive real number."""
    where = f" for view {view!r}" if view else ""
    message = f"{argument}{where} must be a finite positive number, not {brief(value)}"
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        raise InputError(message)
    try:
        number = float(value)
    except OverflowError:
        raise InputError(message) from None
    if not 0 < number < np.inf:
        raise InputError(message)
    return number


def brief(value: Any) -> str:
    """A value that is wrong, short enough for a sentence and on one line."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer has more digits than Python writes out
        text = f"{type(value).__name__} of thousands of digits"
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
    bare = isinstance(value, np.ndarray) and value.ndim == 0
    return f"{text}, an array without dimensions; pass its item()" if bare else text
