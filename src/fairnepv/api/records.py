"""Results as plain values: what stored tables say of them as a whole, and `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairnepv import __version__
from fairnepv.errors import Status

if TYPE_CHECKING:
    from fairnepv.api.selection import Score, Selection


def fields_of(source: Any, *names: str) -> dict[str, Any]:
    """Fields of a record by name, mappings as dictionaries."""
    values = {name: getattr(source, name) for name in names}
    return {name: dict(v) if isinstance(v, Mapping) else v for name, v in values.items()}


def ending(status: Status) -> dict[str, Any]:
    return {
        "fairnepv": __version__,
        "status": status.name,
        "complete": status.ok,
        "status_text": status.value,
    }


def score_record(score: Score, *, coverage: bool = True) -> dict[str, Any]:
    """A score with or without its `coverage`, which may take a pass over the data."""
    found = ("fair_score", "scores", "worst_view", "view_weights")
    more = ("coverage",) if coverage else ()
    return {**fields_of(score, "objective", *found, *more), "unit": score.units.unit}


def selection_record(selection: Selection, *, coverage: bool = True) -> dict[str, Any]:
    """Everything about a selection but its items."""
    certificate = selection.certificate
    return {
        **ending(selection.status),
        **score_record(selection, coverage=coverage),
        **fields_of(selection, "upper_bound", "efficiency", "random_efficiency"),
        "certificate": None if certificate is None else certificate.record,
        "settings": dict(selection.settings),
        "chosen_from": dict(selection.chosen_from),
        "calibration": {
            "rule": selection.calibration.rule,
            "offsets": dict(selection.calibration.offsets or {}),
        },
        "seconds": selection.seconds,
        "notes": list(selection.notes),
    }
