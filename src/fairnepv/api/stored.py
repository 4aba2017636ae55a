"""Selections in one file and back: arrays in an .npz, and among them a JSON document of the rest.

A file may come from anybody (docs/security.md#a-saved-selection): nothing in it is run, everything
has the type that is asked for, parts fit each other, and what is not read is refused. Whether its
scores and bounds are true of some data is told by `score` and `verify_bound`, which compute them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv import __version__
from fairnepv.api.neighbours import SAMPLE, Survey
from fairnepv.api.selection import Comparison, Selection
from fairnepv.api.settings import check_stored
from fairnepv.concave import Certificate, Dual
from fairnepv.concave.certificate import read_certificate
from fairnepv.concave.proof import dual_arrays, read_dual
from fairnepv.concave.terms import (
    Arrays,
    are_rows,
    number,
    number_list,
    numbers,
    real_numbers,
    texts,
    typed,
    whole_numbers,
)
from fairnepv.errors import InputError, Status
from fairnepv.io.documents import parse_document
from fairnepv.loop import Step
from fairnepv.objective import UTILITIES, soft_min, soft_min_weights
from fairnepv.views import Calibration
from fairnepv.views.base import Floats

_FORMAT, _VERSION = "fairnepv selections", 1
_ROUNDING = 1e-6  # by which what is computed from stored numbers may differ from what is stored
_STRAINED = 1e-3  # the same of gains, of which float64 does not know all digits at a tiny ridge
_IDS = "iUSM"  # kinds of arrays that hold ids; texts of their own lengths are JSON


def save(path: str | Path, result: Selection | Comparison) -> None:
    """Write a result to an .npz, which appears whole or not at all and replaces what was there."""
    from fairnepv.io.write import Output, write_arrays

    output = Output.at(str(path), (".npz",), force=True)
    rows = result.rows if isinstance(result, Comparison) else (result,)
    rows = tuple(row.looked_around() for row in rows)
    whole = Comparison(rows) if isinstance(result, Comparison) else rows[0]
    write_arrays(output, arrays_of(whole))


def load(path: str | Path) -> Selection | Comparison:
    """What `Selection.save` or `Comparison.save` wrote.

    Everything but the data is there: picks, scores, gains, settings, trace and the certificate with
    its dual variables. The file is checked for what it says of itself, and no data is asked:
    `score(data, selection)` and `verify_bound(data, selection.certificate)` hold it against yours.
    """
    from fairnepv.io.numpy_files import read_archive

    try:
        return _read(read_archive(str(path)))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
        if isinstance(error, InputError) and str(path) in str(error):
            raise
        missing = f"{error} is missing" if isinstance(error, KeyError) else error
        raise InputError(f"{path} holds no selection that can be read: {missing}") from error


def arrays_of(result: Selection | Comparison) -> dict[str, NDArray[Any]]:
    """All of a result as named arrays, its text among them as JSON."""
    rows = result.rows if isinstance(result, Comparison) else (result,)
    # Rows of a comparison have one certificate.
    certificates = list({id(c): c for row in rows if (c := row.certificate) is not None}.values())
    arrays: dict[str, NDArray[Any]] = {}
    for j, certificate in enumerate(certificates):
        own = certificate.arrays
        arrays |= {f"bound-{j}/{name}": array for name, array in own.items()}
    for i, row in enumerate(rows):
        arrays |= {f"{i}/{name}": array for name, array in _row_arrays(row).items()}
    at = {id(certificate): j for j, certificate in enumerate(certificates)}
    about = {
        "format": f"{_FORMAT} {_VERSION}",
        "made_by": __version__,
        "compared": isinstance(result, Comparison),
        "certificates": [certificate.stored for certificate in certificates],
        "selections": [_row_record(row, at.get(id(row.certificate))) for row in rows],
    }
    return {"about": np.array(json.dumps(_plain(about), allow_nan=False)), **arrays}


def _read(arrays: Arrays) -> Selection | Comparison:
    about = parse_document(str(arrays["about"]).encode())
    _check_format(typed(about, "format", str))
    told = _restored(about)
    certificates = [
        read_certificate(record, _under(f"bound-{j}/", arrays))
        for j, record in enumerate(told["certificates"])
    ]
    rows = tuple(
        _read_row(record, _under(f"{i}/", arrays), certificates)
        for i, record in enumerate(told["selections"])
    )
    compared = typed(told, "compared", bool)
    if not rows or not (compared or len(rows) == 1):
        raise ValueError(f"it has {len(rows)} selections")
    result = Comparison(rows) if compared else rows[0]
    _refuse_more(arrays, about, arrays_of(result))
    return result


def _check_format(told: str) -> None:
    """Ours and of this version, or a sentence that says what it is instead."""
    found = re.fullmatch(rf"{_FORMAT} (\d{{1,9}})", told)
    if found is None:
        raise ValueError(f"its format is {told!r}, and not {_FORMAT!r}")
    if int(found[1]) != _VERSION:
        raise ValueError(
            f"its format is version {found[1]}, and fairnepv {__version__} reads version "
            f"{_VERSION}; use the version of fairnepv that wrote it, or a newer one"
        )


def _refuse_more(arrays: Arrays, about: Any, expected: Arrays) -> None:
    """Parts that are not read are not checked, and another reader may believe them."""
    if more := set(arrays) ^ set(expected):
        raise ValueError(f"array {min(more)!r} is not expected, or missing")
    again = json.loads(str(expected["about"]))
    again["made_by"] = typed(about, "made_by", str)
    if about != again:
        raise ValueError("its document has parts that are not expected")


def _under(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}


# --- selections -----------------------------------------------------------------------------------


def _row_arrays(row: Selection) -> dict[str, NDArray[Any]]:
    arrays = {"indices": row.indices, "gains": np.stack([*row.gains.values()], axis=1)}
    if row.has_ids:
        as_json = row.ids.dtype.kind not in _IDS
        arrays["ids"] = np.array(json.dumps(row.ids.tolist())) if as_json else row.ids
    seen = row.neighbours()
    if np.isfinite(seen.distances).all():
        arrays |= seen._asdict()
    for q, dual in enumerate(row.calibration.evidence.values()):
        arrays |= dual_arrays(f"evidence-{q}", dual)
    return arrays


def _row_record(row: Selection, certificate: int | None) -> dict[str, Any]:
    calibration = row.calibration
    return {
        "objective": row.objective,
        "scores": row.scores,
        "fair_score": row.fair_score,
        "view_weights": row.view_weights,
        "certificate": certificate,
        "proven": row.proven,
        "calibration": {
            "rule": calibration.rule,
            "normalize": calibration.normalize,
            "factors": calibration.factors,
            "offsets": calibration.offsets,
            "center": calibration.center,
            "handed_in": calibration.handed_in,
            "evidence": list(calibration.evidence),
        },
        "settings": row.settings,
        "chosen_from": row.chosen_from,
        "trace": [asdict(step) for step in row.trace],
        "status": row.status.name,
        "seconds": row.seconds,
        "run_notes": row.run_notes,
    }


def _read_row(
    record: Mapping[str, Any], arrays: Arrays, certificates: Sequence[Certificate]
) -> Selection:
    objective, scores = typed(record, "objective", str), numbers(record, "scores")
    if objective not in UTILITIES or not scores:
        raise ValueError(f"objective {objective!r} of {len(scores)} views is unknown")
    sizes = _read_sizes(record["chosen_from"], list(scores))
    n = sizes["n"]
    indices = whole_numbers(arrays, "indices")
    k = len(indices)
    if not are_rows(indices, n) or not 1 <= k < n:
        raise ValueError(f"its picks are not rows of a pool of {n}, each once")
    settings = check_stored(record["settings"], objective, k, list(scores))
    gains = real_numbers(arrays, "gains", (k, len(scores)))
    at = record["certificate"]
    row = Selection(
        objective=objective,
        scores=scores,
        fair_score=number(record, "fair_score"),
        view_weights=numbers(record, "view_weights"),
        indices=indices,
        ids=_read_ids(arrays, k) if "ids" in arrays else indices,
        gains=dict(zip(scores, gains.T, strict=True)),
        certificate=None if at is None else certificates[typed(record, "certificate", int)],
        proven=None if record["proven"] is None else number(record, "proven"),
        calibration=_read_calibration(record["calibration"], arrays, objective),
        settings=settings,
        chosen_from=sizes,
        trace=tuple(map(_read_step, record["trace"])),
        status=Status[typed(record, "status", str)],
        seconds=number(record, "seconds"),
        run_notes=texts(record, "run_notes"),
    )
    _check_sums(row)
    _check_terms(row)
    seen = Survey.unknown(len(scores), k)
    if "nearest" in arrays:
        shape = (len(scores), k + min(SAMPLE, n))
        nearest = real_numbers(arrays, "nearest", shape, gaps=True)
        seen = Survey(real_numbers(arrays, "distances", (len(scores),)), nearest)
    return row.knowing(seen)


def _read_sizes(record: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """What it was chosen from: n, columns by view, shards, and views in another order."""
    n, views, shards = typed(record, "n", int), dict(record["views"]), record["shards"]
    if list(views) != names or any(type(p) is not int for p in views.values()):
        raise ValueError("it was chosen from other views than it has scores of")
    if shards is not None and type(shards) is not int:
        raise ValueError("its number of shards is no number")
    reordered = texts(record, "reordered")
    if not set(reordered) <= set(names[1:]):
        raise ValueError("views in another order are none of those behind the first")
    return {"n": n, "views": views, "shards": shards, "reordered": list(reordered)}


def _read_ids(arrays: Arrays, k: int) -> NDArray[Any]:
    ids = arrays["ids"]
    if ids.ndim == 0 and ids.dtype.kind == "U":
        texts = parse_document(str(ids).encode())
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("ids must be texts")
        ids = np.array(texts, dtype=np.dtypes.StringDType())
    if ids.shape != (k,) or ids.dtype.kind not in _IDS + "T" or len(set(ids.tolist())) < k:
        raise ValueError("ids must be one for each pick, each once")
    return ids.astype(np.int64) if ids.dtype.kind == "i" else ids


def _read_calibration(record: Mapping[str, Any], arrays: Arrays, objective: str) -> Calibration:
    names: list[str] = list(record["evidence"])
    utility = UTILITIES[objective]
    evidence: dict[str, Dual] = {
        name: read_dual(f"evidence-{q}", arrays, 1, utility) for q, name in enumerate(names)
    }
    return Calibration(
        typed(record, "rule", str),
        typed(record, "normalize", bool),
        numbers(record, "factors"),
        numbers(record, "offsets"),
        typed(record, "center", bool),
        evidence,
        typed(record, "handed_in", bool),
    )


def _read_step(record: Mapping[str, Any]) -> Step:
    """`Step` itself refuses fields that it has not."""
    for name in ("step", "passes"):
        typed(record, name, int)
    for name in ("seconds", "objective"):
        number(record, name)
    for name in ("residual", "shift"):
        if record[name] is not None:
            number(record, name)
    weights = None if record["weights"] is None else number_list(record, "weights")
    details = typed(record, "details", dict)
    fixed = {"stage": typed(record, "stage", str), "weights": weights, "details": details}
    return Step(**{**record, **fixed})


def _check_sums(row: Selection) -> None:
    """Whether gains add up to scores, and scores to the fair score, as they do by definition."""
    d, tau = np.array(list(row.scores.values())), float(row.settings["tau"])
    weights = row.settings["priorities"]
    lifts = np.zeros(len(d))
    if weights is not None:
        if (
            set(weights) != set(row.scores)
            or min(numbers(row.settings, "priorities").values()) <= 0
        ):
            raise ValueError("its priorities are not those of its views")
        lifts = -tau * np.log([len(d) * weights[name] for name in row.scores])
    divisor = UTILITIES[row.objective].divisor(len(row))
    totals = np.array([gains.sum() for gains in row.gains.values()])
    if not _close(totals / divisor, d, _STRAINED):
        raise ValueError("its gains do not add up to its scores")
    if not _close(float(soft_min(d + lifts, tau)), row.fair_score):
        raise ValueError("its fair score is not that of its scores")
    shares = np.array([row.view_weights[name] for name in row.scores])
    if len(shares) != len(row.view_weights) or not _close(soft_min_weights(d + lifts, tau), shares):
        raise ValueError("its view weights are not those of its scores")


def _close(found: Floats | float, told: Floats | float, apart: float = _ROUNDING) -> bool:
    return bool(np.allclose(found, told, rtol=apart, atol=apart))


def _check_terms(row: Selection) -> None:
    """Whether the certificate is about the problem that the settings tell."""
    if row.certificate is None:
        return
    terms, settings = row.certificate.proof.terms, row.settings
    told = (terms.n, terms.k, terms.tau, dict(terms.eps), terms.objective)
    own = (row.chosen_from["n"], len(row), settings["tau"], settings["eps"], row.objective)
    if told != own or not terms.calibration.agrees(row.calibration):
        raise ValueError("its certificate is about another problem")


# --- values ---------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """A value as JSON has it; a number that is not finite becomes a record, as JSON has no word."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": repr(value)}
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if list(value) == ["number"] and value["number"] in ("inf", "-inf", "nan"):
            return float(value["number"])
        return {name: _restored(one) for name, one in value.items()}
    return [_restored(one) for one in value] if isinstance(value, list) else value
