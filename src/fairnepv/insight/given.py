"""Checks of the selections that the functions of this room take."""

from typing import Any

from fairnepv.api.selection import Selection
from fairnepv.errors import InputError
from fairnepv.problem import Problem


def check_selection(value: Any, what: str = "selection") -> Selection:
    if not isinstance(value, Selection):
        raise InputError(
            f"{what} must be a Selection, as select returns it, not {type(value).__name__}; from "
            "select with several sizes take one, as in found[100]"
        )
    return value


def problem_of(selection: Any, task: str) -> Problem:
    """The problem with its data, which a selection that was stored has left behind."""
    problem = check_selection(selection).posed
    if problem is None:
        raise InputError(
            f"{task} needs the data, which a stored selection does not carry; select again with "
            "the same arguments, or call it before the selection is stored"
        )
    return problem
