"""A run of the protocol: every selector at every size on the selection pool [FairNEPv, section 6].

What is done is not done again, and a selection that was cut short goes on from its last state.
Every selector is `fairnepv.select` with one effort, as `fairnepv.compare` does it, on a pool that
is posed once, and all have the same scorer. A selector with an objective is greedy in it and
refined under it within the same passes, with the exceptions that every caption names
(`report.budget_sentence`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairnepv.api.certify import certify_posed
from fairnepv.api.score import score_posed
from fairnepv.api.select import select_posed
from fairnepv.api.selection import Score, Selection
from fairnepv.errors import CheckpointError, Status
from fairnepv.loop import Progress, Step
from fairnepv.options import CertifyOptions, SelectOptions
from fairnepv.problem import Problem
from fairnepv.signatures import completed
from fairnepv_studies.protocol.clock import Clock
from fairnepv_studies.protocol.pool import Posed, SelectionPool
from fairnepv_studies.protocol.results import Result, Unit, measures
from fairnepv_studies.protocol.run import Run


def carry_out(
    run: Run, pool: SelectionPool, progress: Progress | None = None, *, engine: str | None = None
) -> Run:
    """Everything that is not done yet; the default first, whose certificate serves all.

    All engines find the same items, so a run may go on with another.
    """
    run.note_environment(engine)
    work = _Work(run, pool, progress, engine)
    left = [unit for unit in run.settings.units if not run.has(unit)]
    began, done = time.monotonic(), 0
    for k in run.settings.sizes:
        units = [unit for unit in left if unit.k == k]
        for unit in sorted(units, key=lambda unit: unit.method != "auto"):
            if progress is not None:
                progress(_turn(unit, done, len(left), time.monotonic() - began))
            work.select(unit)
            done += 1
        if not run.has_bound(k):  # its file was lost
            work.certify(k)
    run.finish()
    return run


@dataclass(frozen=True)
class _Work:
    """Selections and bounds of a run, of a pool that is posed when the first is asked for."""

    run: Run
    pool: SelectionPool
    progress: Progress | None
    engine: str | None

    @functools.cached_property
    def posed(self) -> Posed:
        return Posed.of(self.pool, self.run.settings.posing, self.engine)

    @functools.cached_property
    def posed_here(self) -> Posed:
        """By the local engine, which scores for all."""
        return self.posed if self._local else Posed.of(self.pool, self.run.settings.posing)

    @property
    def _local(self) -> bool:
        return self.engine in (None, "local")

    def select(self, unit: Unit) -> None:
        run, settings = self.run, self.run.settings
        proves = unit.method in ("auto", "exact")  # these start from the relaxed solution
        if not proves and not run.has_bound(unit.k):
            self.certify(unit.k)
        problem = self.posed.problem(unit.k, unit.seed)
        # the states of other engines have other last bits
        state = run.unfinished / f"{unit.name}.state" if self._local else None
        clock = Clock(state, self.progress)
        wanted = {**settings.asked(unit.method, unit.k), "certify": proves, "progress": clock}
        found = _resumed(problem, state, completed("select", SelectOptions, wanted))
        spent, found = clock.spent(found.seconds), found.looked_around()
        if found.status is Status.INTERRUPTED:
            clock.write()
            raise KeyboardInterrupt
        if found.certificate is not None and not run.has_bound(unit.k):
            run.keep_bound(unit.k, found.certificate, spent.bound)
        run.keep(unit, self._result(unit, found), spent.search)

    def certify(self, k: int) -> None:
        began = time.monotonic()
        wanted = {"gap": self.run.settings.gap, "progress": self.progress}
        options = completed("certify", CertifyOptions, wanted)
        certificate = certify_posed(self.posed.problem(k), options)
        self.run.keep_bound(k, certificate, time.monotonic() - began)

    def _result(self, unit: Unit, found: Selection) -> Result:
        scored: Score = found
        if not self._local:
            scored = score_posed(self.posed_here.problem(unit.k), found.indices)
        rows = self.pool.rows[found.indices].tolist()
        return Result(
            **unit._asdict(),
            objective=scored.objective,
            **measures(scored, self.run.proof(unit.k).upper_bound),
            status=found.status.name,
            notes=list(found.run_notes),
            rows=rows,
            ids=[self.pool.corpus.ids[row] for row in rows],
        )


def _resumed(problem: Problem, state: Path | None, options: SelectOptions) -> Selection:
    """From a state that another user or machine left, or that is damaged, nothing can go on: the
    selection begins anew, and where no key can be kept for a state, without one."""
    for checkpoint in (state, state):
        try:
            return select_posed(problem, {**options, "checkpoint": checkpoint})
        except CheckpointError:
            assert checkpoint is not None
            checkpoint.unlink(missing_ok=True)
    return select_posed(problem, options)


def _turn(unit: Unit, done: int, of: int, seconds: float) -> Step:
    """What a listener hears before a selector takes its turn."""
    details: Mapping[str, Any] = {
        "selector": f"{unit.method}, k {unit.k}",
        "size": done,
        "of": of,
    }
    return Step("compare", done, 0, seconds, 0.0, details=details)
