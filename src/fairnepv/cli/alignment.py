"""Whether views in several files speak of the same rows, where the files themselves can tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairnepv.cli.options import reading
from fairnepv.errors import InputError
from fairnepv.io.texts import same_kind


def own_ids(views: Mapping[str, str]) -> dict[str, Any]:
    """Ids by view where every view is a converted folder with ids; nothing otherwise.

    A column `id` of a table does not rename the rows, but where two views differ in it they are
    not aligned, and nobody has said how they should be.
    """
    from fairnepv.io import converted_ids

    brought = {
        name: reading(converted_ids, "--view", f"{name}=", text) for name, text in views.items()
    }
    if all(ids is not None for ids in brought.values()):
        return brought
    known = {name: _column(views[name]) if ids is None else ids for name, ids in brought.items()}
    told = [(name, ids) for name, ids in known.items() if ids is not None]
    for other in told[1:]:
        _refuse_other_order(told[0], other)
    return {}


def _column(text: str) -> Any:
    """A column `id`, if it can be read as such: other columns of that name prove nothing."""
    from fairnepv.io import id_column

    try:
        return id_column(text)
    except InputError:
        return None


def _refuse_other_order(first: tuple[str, Any], other: tuple[str, Any]) -> None:
    (name, ids), (other_name, others) = first, other
    if len(ids) != len(others) or not same_kind(ids, others):
        return  # a pool refuses different lengths; names of different kinds prove nothing
    differ = (ids != others).nonzero()[0]
    if len(differ):
        row = int(differ[0])
        raise InputError(
            f"views {name!r} and {other_name!r} are not in the same order: row {row:,} has the id "
            f"{ids.tolist()[row]!r} in one and {others.tolist()[row]!r} in the other; give "
            "--ids NAME=FILE:id for each view to align them"
        )
