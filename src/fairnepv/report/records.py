"""Results as plain values and tables: what `--json` prints and `--out` writes."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from fairnepv import __version__
from fairnepv.api.selection import Comparison, Score, Selection
from fairnepv.concave import Certificate, Verified
from fairnepv.errors import Status
from fairnepv.insight import Assignment, Explanation
from fairnepv.io.write import Table
from fairnepv.planning import Forecast
from fairnepv.stiefel import Relaxation


def _fields(source: Any, *names: str) -> dict[str, Any]:
    """Fields of a record by name, mappings as dictionaries."""
    values = {name: getattr(source, name) for name in names}
    return {name: dict(v) if isinstance(v, Mapping) else v for name, v in values.items()}


def _ending(status: Status) -> dict[str, Any]:
    return {
        "fairnepv": __version__,
        "status": status.name,
        "complete": status.ok,
        "status_text": status.value,
    }


def score_record(score: Score) -> dict[str, Any]:
    found = ("fair_score", "scores", "worst_view", "view_weights", "coverage")
    return {**_fields(score, "objective", *found), "unit": score.units.unit}


def forecast_record(forecast: Forecast) -> dict[str, Any]:
    """What a run will take, in bytes and seconds, in all and by stage."""
    return {
        **_fields(forecast, "n", "k", "passes", "operations"),
        "bytes_read": int(forecast.bytes_read),
        "peak_memory": int(forecast.peak_memory),
        "data_memory": int(forecast.data_memory),
        "seconds": forecast.seconds,
        "device": None if forecast.device is None else asdict(forecast.device),
        "stages": [asdict(stage) for stage in forecast.stages],
        "notes": list(forecast.notes),
    }


def certificate_record(certificate: Certificate) -> dict[str, Any]:
    """Everything about a bound but its dual variables."""
    return {
        "objective": certificate.proof.terms.objective,
        **_fields(certificate, "upper_bound", "by_view", "weights", "spectral_bound"),
        # Of what the lengths of the rows prove it is not known.
        "duality_gap": certificate.duality_gap if math.isfinite(certificate.duality_gap) else None,
        "spectral_by_view": dict(certificate.spectral),
        "spectral_rules": dict(certificate.rules),
        "random_scores": list(certificate.random_scores),
        "status": certificate.status.name,
        "notes": list(certificate.notes),
    }


def selection_record(selection: Selection) -> dict[str, Any]:
    """Everything about a selection but its items."""
    certificate = selection.certificate
    return {
        **_ending(selection.status),
        **score_record(selection),
        **_fields(selection, "upper_bound", "efficiency", "random_efficiency"),
        "certificate": None if certificate is None else certificate_record(certificate),
        "settings": dict(selection.settings),
        "chosen_from": dict(selection.chosen_from),
        "calibration": {
            "rule": selection.calibration.rule,
            "offsets": dict(selection.calibration.offsets or {}),
        },
        "seconds": selection.seconds,
        "notes": list(selection.notes),
    }


def selection_table(selection: Selection) -> Table:
    """One row per item in order of selection: id, row, order, and its marginal gain per view."""
    columns = {
        "id": selection.ids,
        "row": selection.indices,
        "order": np.arange(len(selection.indices)),
        **{f"gain_{name}": gains for name, gains in selection.gains.items()},
    }
    return Table(columns, selection_record(selection), "picks")


def explanation_table(explanation: Explanation) -> Table:
    """One row per pick: what it adds in every view, and the rival for its place."""
    columns = {
        "id": explanation.ids,
        "row": explanation.indices,
        **{f"contribution_{name}": own for name, own in explanation.contributions.items()},
        "rival_row": explanation.rivals,
        "rival_id": np.array(
            [None if r is None else str(r) for r in explanation.rival_ids], dtype=object
        ),
        "margin": explanation.margins,
    }
    about = {"fairnepv": __version__, "objective": explanation.objective}
    return Table(columns, about, "picks")


def assignment_table(assignment: Assignment, selection: Selection) -> Table:
    """One row per item of the pool: its pick, how near that is, and the weight of the pick."""
    assert selection.problem is not None, "the assignment was made from it"
    rows, ids = np.arange(len(assignment.pick)), selection.problem.pool.ids
    columns = {
        "id": rows if ids is None else ids,
        "row": rows,
        "pick_row": selection.indices[assignment.pick],
        "pick_id": selection.ids[assignment.pick],
        "similarity": assignment.similarity,
        "pick_weight": assignment.weights[assignment.pick],
    }
    about = {"fairnepv": __version__, "objective": selection.objective}
    return Table(columns, about, "items")


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
    """One row per selector: the figures of the table that people see."""
    rows = comparison.rows
    views = list(rows[0].scores)
    columns = {
        "method": np.array([row.method for row in rows]),
        **{
            f"{rows[0].units.mark}_{name}": np.array([row.scores[name] for row in rows])
            for name in views
        },
        "worst_view": np.array([row.worst_view for row in rows]),
        "fair_score": np.array([row.fair_score for row in rows]),
        **{f"coverage_{name}": np.array([row.coverage[name] for row in rows]) for name in views},
        "passes": np.array([row.swap_passes for row in rows]),
        "budget": np.array([row.budget for row in rows]),
        "status": np.array([row.status.name for row in rows]),
        "seconds": np.array([row.seconds for row in rows]),
    }
    # All rows have the same but for the knobs of the relaxation, which 'nepv' alone has.
    settings = {k: v for row in rows for k, v in row.settings.items() if k != "method"}
    about = {"settings": settings, "chosen_from": dict(rows[0].chosen_from)}
    return Table(columns, {"fairnepv": __version__, **about}, "selectors")


def relaxation_record(relaxation: Relaxation) -> dict[str, Any]:
    found = ("value", "view_values", "view_weights", "residual", "curvature", "checked", "steps")
    bound, theory = relaxation.upper_bound, relaxation.theorem_2
    return {
        **_ending(relaxation.status),
        **_fields(relaxation, *found, "contraction", "k"),
        "theorem_2": None if theory is None else theory._asdict(),
        "notes": list(relaxation.notes),
        **({} if bound is None else {"upper_bound": bound}),
        "solver": _fields(relaxation.solver, "name", "tol", "max_steps", "alpha", "sigma"),
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
