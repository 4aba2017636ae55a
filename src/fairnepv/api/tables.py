"""Tables as data: `views={"text": "text_emb"}, ids="id"` and the like name columns, which are read
once, before anything else is done with them (`columns.py` says how). Past this line there are views
and vectors.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from fairnepv.display import listed
from fairnepv.errors import InputError
from fairnepv.views import View
from fairnepv.views.intake import is_column

if TYPE_CHECKING:
    from fairnepv.api.columns import Table

P = ParamSpec("P")
R = TypeVar("R")

_PER_ROW = ("ids", "quality", "groups")  # options that a column may hold
_CHOICES = ("include", "exclude")  # or say of every row, true or false
LENDING = ("__arrow_c_stream__", "collect_schema", "select_columns", "scanner")  # ways to hand over


def from_tables(function: Callable[P, R]) -> Callable[P, R]:
    """A function of `data` and of options, which takes tables and names of columns as well."""
    at = list(inspect.signature(function).parameters).index("data")

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        placed: list[Any] = list(arguments)
        given: Any = dict(options)
        if len(placed) > at:
            placed[at], given = opened(placed[at], given)
        elif "data" in given:
            data, given = opened(given.pop("data"), given)
            given["data"] = data
        return function(*placed, **given)

    return call


def opened(data: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Data and options in which no column is named any more, whatever they were."""
    views: Any = options.get("views")
    if not _names_columns(views):
        if views is None:
            data = _without_names(data)
        _refuse_names(options)
        return data, dict(options)
    from fairnepv.api.columns import open_table

    named = [name for value in views.values() for name in _column_list(value)]
    named += [name for _, _, name in _named_options(options)]
    table = open_table(data, named, options.get("missing"))
    given = {**options, "views": None}
    for option, view, name in _named_options(options):
        ids = given.get("ids")  # which were read before, as items are called by them
        if isinstance(ids, Mapping):
            ids = ids.get(next(iter(views)))  # rows are those of the first view
        found = _option_values(table, option, name, ids)
        given[option] = found if view is None else {**given[option], view: found}
    return {view: _view_rows(table, view, value) for view, value in views.items()}, given


def _names_columns(views: Any) -> bool:
    """Whether some view is a column by name, or rows that were made of some, and not columns of an
    array by number."""
    if not isinstance(views, Mapping):
        return False
    return any(
        _column_list(value) or isinstance(value, View) or getattr(value, "ndim", 0) == 2
        for value in views.values()
    )


def _column_list(value: Any) -> list[str]:
    """The columns that a view is made of; none where it is something else."""
    if isinstance(value, str):
        return [value]
    several = isinstance(value, list | tuple) and len(value) > 0
    return list(value) if several and all(isinstance(name, str) for name in value) else []


def _named_options(options: Mapping[str, Any]) -> list[tuple[str, str | None, str]]:
    """Options that name a column, those by view with the view."""
    found: list[tuple[str, str | None, str]] = []
    for option in (*_PER_ROW, *_CHOICES):
        value = options.get(option)
        if isinstance(value, str):
            found.append((option, None, value))
        elif isinstance(value, Mapping) and option in ("ids", "quality"):
            found += [(option, view, name) for view, name in value.items() if isinstance(name, str)]
    return found


def _refuse_names(options: Mapping[str, Any]) -> None:
    for option, _, name in _named_options(options):
        raise InputError(
            f"{option} is the name {name!r}, but no view is a column by name; say which columns of "
            "data are views, as in views={'text': 'text_emb'}, or hand in the values"
        )


def _without_names(data: Any) -> Any:
    """Data for which no views were named; a table that cannot be one view is refused."""
    if not any(hasattr(data, way) for way in LENDING) or is_column(data):
        return data
    if getattr(data, "dtypes", None) is not None and hasattr(data, "__array__"):
        array = np.asarray(data)  # a data frame of numbers is one view
        if array.dtype != object:
            return array
    from fairnepv.io.capsules import column_names

    names = column_names(data)
    raise InputError(
        f"data is a table with the columns {listed(names)}; say which of them are views, as in "
        f"views={{'text': {names[0] if names else 'text_emb'!r}}}"
    )


def _view_rows(table: Table, view: str, value: Any) -> Any:
    """The rows of a view: of one column, of several side by side, or whatever was handed in."""
    names = _column_list(value)
    if not names:
        return value
    if len(names) == 1:
        return table.rows(names[0])
    for at, name in enumerate(names):
        if name in names[:at]:
            raise InputError(f"view {view!r} names column {name!r} twice; drop one of them")
    return np.hstack([np.asarray(table.rows(name)) for name in names])


def _option_values(table: Table, option: str, name: str, ids: Any) -> Any:
    if option not in _CHOICES:
        return table.values(name, gaps=option != "ids")
    marks = table.values(name)
    if marks.dtype != bool:
        raise InputError(
            f"{option}: column {name!r} must say true or false of every row, not {marks.dtype}; "
            "hand in ids or row numbers instead"
        )
    rows = np.flatnonzero(marks)
    return rows if ids is None else np.asarray(ids)[rows]
