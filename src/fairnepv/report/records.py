"""Results as plain values and tables: what `--json` prints and `--out` writes."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from fairnepv import __version__
from fairnepv.api.records import ending, fields_of
from fairnepv.api.records import score_record as score_record
from fairnepv.api.records import selection_record as selection_record
from fairnepv.api.selection import Comparison, Selection
from fairnepv.concave import Verified
from fairnepv.io.write import Table
from fairnepv.planning import Forecast
from fairnepv.stiefel import Relaxation


def forecast_record(forecast: Forecast) -> dict[str, Any]:
    """What a run will take, in bytes and seconds, in all and by stage."""
    return {
        **fields_of(forecast, "n", "k", "passes", "operations"),
        "bytes_read": int(forecast.bytes_read),
        "peak_memory": int(forecast.peak_memory),
        "data_memory": int(forecast.data_memory),
        "seconds": forecast.seconds,
        "device": None if forecast.device is None else asdict(forecast.device),
        "stages": [asdict(stage) for stage in forecast.stages],
        "notes": list(forecast.notes),
    }


def selection_table(selection: Selection) -> Table:
    """One row per item in order of selection; with coverage, for which a look around is made."""
    return replace(selection.table, about=selection_record(selection))


def verified_record(verified: Verified) -> dict[str, Any]:
    claimed = verified.claimed
    terms = claimed.terms
    arrays = {name: values.tolist() for name, values in terms.arrays().items()}
    weights = arrays.pop("priorities", None)
    priorities = None if weights is None else dict(zip(terms.eps, weights, strict=True))
    return {
        "holds": verified.holds,
        "upper_bound": {"claimed": claimed.upper_bound, "proven": verified.upper_bound},
        "by_view": {
            name: {"claimed": claimed.by_view[name], "proven": bound}
            for name, bound in verified.by_view.items()
        },
        "terms": {**terms.record(), **arrays, "priorities": priorities},
    }


def comparison_record(comparison: Comparison) -> dict[str, Any]:
    """One record per selector, with its items."""
    rows = [
        {
            "method": row.method,
            "budget": row.budget,
            **selection_record(row),
            "picks": row.indices.tolist(),
        }
        for row in comparison
    ]
    return {"fairnepv": __version__, "selectors": rows}


def comparison_columns(comparison: Comparison) -> Table:
    """One row per selector, with coverage, likewise."""
    for row in comparison:
        row.neighbours()
    return comparison.table


def relaxation_record(relaxation: Relaxation) -> dict[str, Any]:
    found = ("value", "view_values", "view_weights", "residual", "curvature", "checked", "steps")
    bound, theory = relaxation.upper_bound, relaxation.theorem_2
    return {
        **ending(relaxation.status),
        **fields_of(relaxation, *found, "contraction", "k"),
        "theorem_2": None if theory is None else theory._asdict(),
        "notes": list(relaxation.notes),
        **({} if bound is None else {"upper_bound": bound}),
        "solver": fields_of(relaxation.solver, "name", "tol", "max_steps", "alpha", "sigma"),
    }


def trace_table(relaxation: Relaxation, settings: Mapping[str, Any] | None = None) -> Table:
    """One row per step; `seconds` run on from stage to stage."""
    trace, names = relaxation.trace, list(relaxation.view_values)
    began = 0.0
    clock: list[float] = []
    for row in trace:
        if row.step == 0 and clock:
            began = clock[-1]
        clock.append(began + row.seconds)
    weights = np.array([row.weights for row in trace]).reshape(len(trace), len(names))
    columns = {
        "step": np.arange(len(trace)),
        "stage": np.array([row.stage for row in trace]),
        "seconds": np.array(clock),
        "objective": np.array([row.objective for row in trace]),
        "residual": np.array([row.residual for row in trace]),
        **{f"weight_{name}": weights[:, q] for q, name in enumerate(names)},
    }
    about = {**relaxation_record(relaxation), "settings": dict(settings or {})}
    return Table(columns, about, "trace")
