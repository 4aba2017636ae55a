"""Simple checks of what a user hands in: flags, counts, positive numbers, choices, paths.

The numbers of NumPy are known as `numbers`, where it registers them, since the command line checks
and documents its options before anything is loaded.
"""

import math
import os
from collections.abc import Callable
from numbers import Integral, Rational, Real
from typing import Any

from fairnepv.errors import InputError

Check = Callable[[str, Any], Any]  # from the name of an option and its value to a plain value

_LONGEST = 80  # characters of a value in a message


def brief(value: Any) -> str:
    """A value that is wrong, short enough for a sentence and on one line."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer has more digits than Python writes out
        text = f"{type(value).__name__} of thousands of digits"
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
    bare = type(value).__name__ == "ndarray" and value.ndim == 0
    return f"{text}, an array without dimensions; pass its item()" if bare else text


def check_flag(argument: str, value: Any) -> bool:
    """True or False and nothing else: "no" and 0 may be meant either way."""
    if type(value).__name__ != "bool":  # of Python or NumPy
        raise InputError(f"{argument} must be True or False, not {brief(value)}")
    return bool(value)


def check_count(argument: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if not _is_whole(value):
        raise InputError(f"{argument} must be a whole number, at least {least}, not {brief(value)}")
    if value < least:
        raise InputError(f"{argument} must be at least {least}, not {brief(int(value))}")
    return int(value)


def check_positive(argument: str, value: Any, view: str | None = None) -> float:
    """A finite, positive real number."""
    where = f" for view {view!r}" if view else ""
    number = float(value) if is_finite(value) else 0.0
    if not number > 0:
        raise InputError(f"{argument}{where} must be a finite positive number, not {brief(value)}")
    return number


def is_finite(value: Any) -> bool:
    """Whether this is a real number that float64 can hold."""
    try:
        real = isinstance(value, Real) and not isinstance(value, Rational)
        return (real or _is_whole(value)) and math.isfinite(value)
    except OverflowError:
        return False


def check_ratio(argument: str, value: Any) -> float:
    """A finite number of at least one."""
    ratio = check_positive(argument, value)
    if ratio < 1:
        raise InputError(f"{argument} must be at least 1, not {value!r}")
    return ratio


def check_share(argument: str, value: Any) -> float:
    """A share of the whole, above 0 and at most 1."""
    share = check_positive(argument, value)
    if share > 1:
        raise InputError(f"{argument} must be between 0 and 1, not {brief(value)}")
    return share


def check_whole(argument: str, value: Any, least: int = 1) -> int:
    """An integer above zero, as `check_count` in other words."""
    if not _is_whole(value) or value < least:
        kind = "positive" if least else "non-negative"
        raise InputError(f"{argument} must be a {kind} integer, not {brief(value)}")
    return int(value)


def check_seed(argument: str, value: Any) -> int:
    """An integer that is not negative."""
    return check_whole(argument, value, least=0)


def check_path(argument: str, value: Any) -> Any:
    """The name of a file."""
    if not (isinstance(value, str | os.PathLike) and str(value)):
        raise InputError(f"{argument} must be the path of a file, not {brief(value)}")
    return value


def one_of(*names: str) -> Check:
    """A check for one of these names."""

    def check(argument: str, value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise InputError(f"{argument} must be one of {', '.join(names)}, not {brief(value)}")
        return value

    return check


def optional(check: Check) -> Check:
    """The same check for values that may be None."""
    return lambda argument, value: None if value is None else check(argument, value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
