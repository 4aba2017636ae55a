"""A proof that others can check: stored as arrays, read back, held against the data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.concave.dual import Dual, price
from fairnepv.concave.spectral import diagonal_bound, score_rounding
from fairnepv.concave.terms import Arrays, Terms, number, real_numbers, whole_numbers
from fairnepv.errors import InputError
from fairnepv.io.documents import parse_document
from fairnepv.objective import UTILITIES, Utility, fair_value, utility_of
from fairnepv.problem import DEFAULT_UTILITY, Problem
from fairnepv.views import Pool
from fairnepv.views.base import Floats

_FORMAT = "fairnepv bound 2"
_BEFORE_OBJECTIVES = "fairnepv bound 1"  # about the diverse one, and views as they are
_ROUNDING = 1e-9  # by which two machines may differ


@dataclass(frozen=True, eq=False)
class Proof:
    """What is claimed, about which problem, and the dual variables that are to prove it."""

    terms: Terms
    upper_bound: float
    by_view: Mapping[str, float]
    dual: Dual
    alone: Mapping[str, Dual]


@dataclass(frozen=True, eq=False)
class Verified:
    """What the dual variables prove for the data, beside what was claimed."""

    upper_bound: float
    by_view: Mapping[str, float]
    claimed: Proof

    def __repr__(self) -> str:
        said = "holds" if self.holds else "does NOT hold"
        least, claimed, k = self.upper_bound, self.claimed.upper_bound, self.claimed.terms.k
        return (
            f"Verified(the bound {said}: no {k:,} items score above {least:.6g}, {claimed:.6g} was "
            "claimed; `claimed` has the terms)"
        )

    @property
    def holds(self) -> bool:
        """Whether every claim follows."""
        views = self.claimed.by_view
        return self.upper_bound <= self.claimed.upper_bound + _ROUNDING and all(
            bound <= views[name] + _ROUNDING for name, bound in self.by_view.items()
        )


def check_proof(pool: Pool, proof: Proof) -> Verified:
    """Every bound of a proof computed anew from the data, under the terms of the proof: what these
    are is for the caller to check (`pipeline.verify_bound`) and for a reader to see."""
    problem = proof.terms.pose(pool)
    by_view = {name: proven_alone(problem, name, proof.alone[name]) for name in problem.pool.names}
    apart = best_apart(problem, np.array(list(by_view.values())))
    return Verified(min(proven(problem, proof.dual), apart), by_view, proof)


def best_apart(problem: Problem, bounds: Floats) -> float:
    """What follows for F_tau from bounds on every view alone; for a loose solver, or views that
    share nothing, the better bound."""
    if not np.isfinite(bounds).all():
        return np.inf
    value = fair_value(problem, bounds)
    return value + score_rounding(value)


def proven_alone(problem: Problem, name: str, dual: Dual) -> float:
    """What dual variables prove of one view alone, or Hadamard's bound where that is lower."""
    alone = problem.over(problem.pool.only(name))
    by_norms = diagonal_bound(alone.pool.views[0], problem.k, utility_of(problem))
    return min(proven(alone, dual), by_norms)


def proven(problem: Problem, dual: Dual) -> float:
    """The bound of dual variables that may come from anywhere."""
    views, kind = problem.pool.views, utility_of(problem).dual_type
    sound = (
        len(dual.views) == len(views) == len(dual.weights)
        and all(isinstance(own, kind) for own in dual.views)  # others bound another objective
        and len(dual.rows) > 0
        and bool((np.diff(dual.rows) > 0).all())
        and dual.rows[0] >= 0
        and dual.rows[-1] < problem.n
        and all(
            own.fits(view, dual.rows, problem.k)
            for own, view in zip(dual.views, views, strict=True)
        )
        and bool((dual.weights >= 0).all())
        and abs(float(dual.weights.sum()) - 1.0) < _ROUNDING
    )
    if not sound:
        raise InputError(
            "the dual variables do not fit the data; check that every view is given the rows that "
            "the bound was made of, or else the file is damaged or foreign"
        )
    for view, own in zip(views, dual.views, strict=True):
        if not own.shift <= view.smallest_eigenvalue():
            return np.inf
    return price(problem, replace(dual, weights=dual.weights / dual.weights.sum())).bound


# --- as arrays ------------------------------------------------------------------------------------


def proof_arrays(proof: Proof) -> dict[str, NDArray[Any]]:
    """Arrays for `numpy.savez`, text among them as JSON."""
    about = {
        "format": _FORMAT,
        "upper_bound": proof.upper_bound,
        "by_view": dict(proof.by_view),
        "terms": proof.terms.record(),
    }
    duals = {"joint": proof.dual, **{f"alone-{i}": d for i, d in enumerate(proof.alone.values())}}
    arrays = {"about": np.array(json.dumps(about)), **proof.terms.arrays()}
    for name, dual in duals.items():
        arrays |= dual_arrays(name, dual)
    return arrays


def read_proof(arrays: Arrays) -> Proof:
    """The inverse of `proof_arrays`; anything else is refused."""
    try:
        about = parse_document(str(arrays["about"]).encode())
        if about["format"] not in (_FORMAT, _BEFORE_OBJECTIVES):
            raise InputError(f"this is no bound that we can read: {about['format']!r}")
        record = about["terms"]
        if about["format"] == _BEFORE_OBJECTIVES:
            if more := {"objective", "center"} & set(record):
                raise ValueError(f"{sorted(more)[0]!r} is not expected")
            record = {**record, "objective": DEFAULT_UTILITY, "center": False}
        terms = Terms.read(record, arrays)
        names, utility = list(terms.eps), UTILITIES[terms.objective]
        proof = Proof(
            terms,
            number(about, "upper_bound"),
            {name: number(about["by_view"], name) for name in names},
            read_dual("joint", arrays, len(names), utility),
            {name: read_dual(f"alone-{i}", arrays, 1, utility) for i, name in enumerate(names)},
        )
        _refuse_more(proof, about, arrays)
        return proof
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        wrong = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"this is no bound that fairnepv wrote ({wrong}); name a file that `--bound` or "
            "`fairnepv certify --out` wrote"
        ) from error


def _refuse_more(proof: Proof, about: Any, arrays: Arrays) -> None:
    """Parts that are not read are not checked, and another reader may believe them."""
    expected = proof_arrays(proof)
    written = json.loads(str(expected["about"]))
    for own, other in (
        (arrays, expected),
        *((about[name], written[name]) for name in ("by_view", "terms")),
        (about["terms"]["calibration"], written["terms"]["calibration"]),
        (about, written),
    ):
        if more := set(own) - set(other):
            raise ValueError(f"{sorted(more)[0]!r} is not expected")


def dual_arrays(name: str, dual: Dual) -> dict[str, NDArray[Any]]:
    kind = type(dual.views[0])
    arrays = {f"{name}/weights": dual.weights, f"{name}/rows": dual.rows}
    for array, number_of in kind.numbers.items():
        arrays[f"{name}/{array}"] = np.array([getattr(view, number_of) for view in dual.views])
    for q, view in enumerate(dual.views):
        arrays[f"{name}/{kind.array}-{q}"] = getattr(view, kind.array)
    return arrays


def read_dual(name: str, arrays: Arrays, views: int, utility: Utility) -> Dual:
    kind = utility.dual_type
    weights = real_numbers(arrays, f"{name}/weights", (views,))
    rows = whole_numbers(arrays, f"{name}/rows")
    columns = {
        number_of: real_numbers(arrays, f"{name}/{array}", (views,)).tolist()
        for array, number_of in kind.numbers.items()
    }
    shape = (len(rows), *kind.array_shape)
    found = []
    for q in range(views):
        array = real_numbers(arrays, f"{name}/{kind.array}-{q}", shape)
        own = {number_of: column[q] for number_of, column in columns.items()}
        found.append(kind(**own, **{kind.array: array}))
    return Dual(weights, rows, tuple(found))
