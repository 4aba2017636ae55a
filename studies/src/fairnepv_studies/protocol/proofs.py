"""Whether the bounds and the optima of a publication are proven."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv.api.calibration import check_calibration
from fairnepv.api.certify import certify_posed
from fairnepv.api.select import select_posed
from fairnepv.api.selection import Selection
from fairnepv.checks import brief
from fairnepv.concave import Proof, Terms, Verified, check_proof, read_proof
from fairnepv.errors import InputError, Status
from fairnepv.io.numpy_files import read_archive
from fairnepv.loop import Progress
from fairnepv.options import CertifyOptions, SelectOptions
from fairnepv.signatures import completed
from fairnepv_studies.protocol.differences import (
    TOLERANCE,
    Difference,
    check_close,
    check_same,
    is_number,
)
from fairnepv_studies.protocol.pool import Posed
from fairnepv_studies.protocol.results import Result
from fairnepv_studies.protocol.settings import Settings

_TIGHTER = 10.0  # the gap of a second try at a bound that came without its proof
Watched = Callable[[], AbstractContextManager[Progress | None]]


def claimed_bounds(manifest: Any, settings: Settings) -> dict[int, float]:
    """The published bound of every size."""
    entries = manifest["bounds"]
    check_same("bounds, k", [entry["k"] for entry in entries], settings.sizes)
    names = dict.fromkeys(("k", "upper_bound", "by_view", "proof"))
    for entry in entries:
        where = f"bound for k = {entry['k']}"
        check_same(where, dict.fromkeys(entry), names)
        check_same(f"{where}, views", list(entry["by_view"]), settings.views)
        for value in (entry["upper_bound"], *entry["by_view"].values()):
            if not is_number(value):
                raise Difference(f"{where}: {brief(value)} is no number")
    return {entry["k"]: float(entry["upper_bound"]) for entry in entries}


@dataclass(frozen=True)
class Prover:
    """Proves again what is published, of a pool that is posed once."""

    settings: Settings
    posed: Posed
    watched: Watched  # gives a listener to what may take long

    def select(self, result: Result, **options: Any) -> Selection:
        """The selection of a result, made again."""
        asked = self.settings.asked(result.method, result.k)
        problem = self.posed.problem(result.k, result.seed)
        found = select_posed(problem, completed("select", SelectOptions, {**asked, **options}))
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return found

    def check_optima(self, results: Sequence[Result]) -> Iterator[str]:
        """Branch and bound leaves no proof behind: who claims an optimum has it proven again."""
        claimed = [result for result in results if result.status == Status.OPTIMAL.name]
        for k in dict.fromkeys(result.k for result in claimed):
            own = [result for result in claimed if result.k == k]
            with self.watched() as progress:
                found = self.select(own[0], certify=True, progress=progress)
            for result in own:
                proven = found.status is Status.OPTIMAL
                if not proven or not abs(result.fair_score - found.fair_score) <= TOLERANCE:
                    raise Difference(
                        f"status of {result.unit}: published OPTIMAL, but the search for it ends "
                        f"as {found.status.name} with a fair score of {found.fair_score!r}"
                    )
            yield f"optimum for k = {k}: proven again"

    def check_bound(self, published: Path, entry: Any) -> str:
        k, name = entry["k"], entry["proof"]
        if name is None:
            return self._prove_again(entry)
        if name != f"bounds/k{k}.npz" or not (published / name).is_file():
            raise Difference(f"{name}: expected bounds/k{k}.npz, the proof for this size")
        proof = read_proof(read_archive(str(published / name)))
        try:
            proof.terms.refuse_other(Terms.of(self.posed.problem(k)))
        except InputError as error:
            raise Difference(f"{name}: {error}") from error
        check_close(f"bound for k = {k}", entry["upper_bound"], proof.upper_bound)
        check_close(f"bounds of views for k = {k}", entry["by_view"], proof.by_view)
        verified = self._verified(proof)
        if not verified.holds:
            raise Difference(
                f"bound for k = {k}: published {proof.upper_bound!r}, proven "
                f"{verified.upper_bound!r}"
            )
        return f"bound for k = {k}: {self._said(proof.upper_bound)} follows from its proof"

    def _said(self, bound: float) -> str:
        return self.settings.told_in.rounded_up(bound)

    def _verified(self, proof: Proof) -> Verified:
        """As `fairnepv.verify_bound` does it, for rows that are checked already."""
        terms, rows = proof.terms, self.posed.rows
        with np.errstate(all="ignore"):  # a damaged proof may overflow, and then holds for nothing
            terms.check_pool(rows)
            check_calibration(
                rows, terms.calibration, self.settings.calibration, terms.k, terms.constraints
            )
            return check_proof(rows, proof)

    def _prove_again(self, entry: Any) -> str:
        """Where a publication has no room for a proof: what cannot be proven is refused. Two
        machines end at different bounds within the gap, so a lower one than ours is tried for once
        more, with a smaller gap."""
        k = entry["k"]
        published = {"all views": entry["upper_bound"], **entry["by_view"]}
        missed: dict[str, float] = {}
        for gap in (self.settings.gap, self.settings.gap / _TIGHTER):
            with self.watched() as progress:
                wanted = {"gap": gap, "progress": progress}
                options = completed("certify", CertifyOptions, wanted)
                proven = certify_posed(self.posed.problem(k), options)
            if proven.status is Status.INTERRUPTED:
                raise KeyboardInterrupt
            bounds = {"all views": proven.upper_bound, **proven.by_view}
            missed = {what: b for what, b in bounds.items() if not published[what] >= b - TOLERANCE}
            if not missed:
                shown = self._said(entry["upper_bound"])
                return f"bound for k = {k}: {shown} came without its proof; proven again"
        what, bound = next(iter(missed.items()))
        claim = f"published {published[what]!r} without a proof"
        raise Difference(f"bound for k = {k}, {what}: {claim}, proven {bound!r}")
