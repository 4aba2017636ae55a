"""The record of a bound: what no k items can exceed, and the dual variables that prove it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.concave.proof import Proof, proof_arrays, read_proof
from fairnepv.concave.terms import (
    are_rows,
    number,
    number_list,
    numbers,
    real_numbers,
    texts,
    typed,
    whole_numbers,
)
from fairnepv.errors import Status
from fairnepv.io.frames import Table, Tabular
from fairnepv.objective import UNITS
from fairnepv.views.base import Floats, Indices


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Tabular):
    """No k items that the constraints allow score above `upper_bound`.

    It is the bound of the concave relaxation (docs/method.md#concave-bound), proven by the dual
    variables in `proof`; the paper's spectral certificate stands beside it.
    """

    upper_bound: float
    duality_gap: float  # how much of the bound a longer run could take away; inf: nobody knows
    by_view: Mapping[str, float]  # no such k items bring this view alone above this
    weights: Mapping[str, float]  # of the views in the proof; where they are large, views bind
    spectral_bound: float  # on all frames [FairNEPv, appendix B]; or more, see `rules`
    spectral: Mapping[str, float]  # U_{k,q}, or more where `rules` says 'trace'
    diagonal: Mapping[str, float]  # Hadamard's bound, on sets of rows
    ranks: Mapping[str, int | None]  # numerical rank; None where the eigenvalues are not known
    rules: Mapping[str, str]  # 'spectral', or 'trace': eigenvalues bounded by their sum
    status: Status
    proof: Proof = field(repr=False)  # dual variables, by which anybody can check the bounds
    support: Indices = field(repr=False)  # rows of the relaxed solution
    relaxed: Floats = field(repr=False)  # its values there, from 0 to 1, summing to k
    notes: tuple[str, ...] = ()
    random_scores: tuple[float, ...] = ()  # F of sets drawn at random, if there was time for any

    @property
    def random_score(self) -> float | None:
        """What lots reach: the mean of those scores."""
        scores = self.random_scores
        return sum(scores) / len(scores) if scores else None

    @property
    def headline(self) -> str:
        terms = self.proof.terms
        units = UNITS[terms.objective]
        return (
            f"Certificate: no {terms.k:,} of {terms.n:,} items score above "
            f"{units.rounded_up(self.upper_bound)} {units.unit}, {terms.objective} "
            f"(duality gap {self.duality_gap:.2g}, {self.status.name})"
        )

    @property
    def record(self) -> dict[str, Any]:
        """Everything but the dual variables."""
        return {
            "objective": self.proof.terms.objective,
            "upper_bound": self.upper_bound,
            "by_view": dict(self.by_view),
            "weights": dict(self.weights),
            "spectral_bound": self.spectral_bound,
            # Of what the lengths of the rows prove it is not known.
            "duality_gap": self.duality_gap if math.isfinite(self.duality_gap) else None,
            "spectral_by_view": dict(self.spectral),
            "spectral_rules": dict(self.rules),
            "random_scores": list(self.random_scores),
            "status": self.status.name,
            "notes": list(self.notes),
        }

    @property
    def table(self) -> Table:
        """One row per view: its weight in the proof, and what bounds it alone."""
        names = list(self.by_view)
        columns = {
            "view": np.array(names, dtype=object),
            "weight": np.array([self.weights[name] for name in names]),
            "bound": np.array([self.by_view[name] for name in names]),
            "spectral": np.array([self.spectral[name] for name in names]),
            "rule": np.array([self.rules[name] for name in names], dtype=object),
            "lengths": np.array([self.diagonal[name] for name in names]),
        }
        return Table(columns, self.record, "views")

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The proof and the relaxed solution, to be stored beside `stored`."""
        return {**proof_arrays(self.proof), "support": self.support, "relaxed": self.relaxed}

    @property
    def stored(self) -> dict[str, Any]:
        """What stands beside these arrays."""
        names = ("duality_gap", "weights", "spectral_bound", "spectral", "diagonal")
        more = ("ranks", "rules", "notes", "random_scores")
        found = {name: getattr(self, name) for name in (*names, *more)}
        return {**found, "status": self.status.name}


def read_certificate(record: Mapping[str, Any], arrays: dict[str, Any]) -> Certificate:
    """The inverse of `stored` and `arrays`; a ValueError says what is not of its type."""
    support, relaxed = whole_numbers(arrays, "support"), real_numbers(arrays, "relaxed", (-1,))
    del arrays["support"], arrays["relaxed"]
    proof = read_proof(arrays)
    if len(support) != len(relaxed) or not are_rows(support, proof.terms.n):
        raise ValueError("the rows of a certificate's solution are none of its pool")
    ranks, rules = dict(record["ranks"]), dict(record["rules"])
    views = set(proof.by_view)
    by_view = {name: numbers(record, name) for name in ("weights", "spectral", "diagonal")}
    if any(set(own) != views for own in (ranks, rules, *by_view.values())):
        raise ValueError("a certificate is about other views than its proof")
    if any(rank is not None and type(rank) is not int for rank in ranks.values()):
        raise ValueError("ranks must be whole numbers or none")
    if not set(rules.values()) <= {"spectral", "trace"}:
        raise ValueError("the rules of a certificate are unknown")
    return Certificate(
        upper_bound=proof.upper_bound,
        duality_gap=number(record, "duality_gap"),
        by_view=proof.by_view,
        **by_view,
        spectral_bound=number(record, "spectral_bound"),
        ranks=ranks,
        rules=rules,
        status=Status[typed(record, "status", str)],
        proof=proof,
        support=support,
        relaxed=relaxed,
        notes=texts(record, "notes"),
        random_scores=number_list(record, "random_scores"),
    )
