"""What a user hands in, as a plain NumPy array, or one clear sentence."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.texts import text_array


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
