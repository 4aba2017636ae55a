"""What each selector chooses: by search, by k-means, from a finished run, or from files."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import fairnepv
from fairnepv.api.inputs import sketch
from fairnepv.api.select import select_posed
from fairnepv.checks import brief, one_of
from fairnepv.errors import InputError, Status
from fairnepv.io.read import read_picks
from fairnepv.loop import Progress
from fairnepv.methods import APART, check_method, check_nepv
from fairnepv.options import CALIBRATIONS, OBJECTIVES, SelectOptions, as_objective_wants, default
from fairnepv.search import check_effort
from fairnepv.signatures import checked, completed
from fairnepv_studies.downstream.candidates import Candidates
from fairnepv_studies.downstream.folder import Picks
from fairnepv_studies.downstream.study import MEDOIDS, Selector, Study
from fairnepv_studies.protocol.pool import Posed
from fairnepv_studies.protocol.results import Result
from fairnepv_studies.protocol.run import Run
from fairnepv_studies.protocol.settings import draws

GIVEN, DRAWN = "GIVEN", "COMPLETE"
_ROUNDING = ("solver", "start", "tol", "max_steps", "alpha", "sigma", "oversampling")


@dataclass(frozen=True)
class Selecting:
    """All selectors of a study, each pool posed once."""

    study: Study
    candidates: Candidates
    base: Path  # what names of files are relative to
    progress: Progress | None = None

    # --- before anything is chosen ----------------------------------------------------------------

    def check(self) -> dict[str, list[int]]:
        """Refuse what cannot be chosen; by selector the sizes at which its picks depend on the
        seed."""
        drawn = {}
        for selector in self.study.selectors:
            try:
                sizes = [k for k in self.study.sizes if self._check(selector, k)]
            except InputError as error:
                raise InputError(f"selector {selector.name!r}: {error}") from error
            sizes = [] if selector.fixed else sizes
            if sizes:
                drawn[selector.name] = sizes
            if selector.seeds is not None and selector.seeds > self.study.seeds and not sizes:
                raise InputError(
                    f"selector {selector.name!r} chooses the same whatever the seed is; leave out "
                    f"its seeds, of which the study has {self.study.seeds}"
                )
        return drawn

    def _check(self, selector: Selector, k: int) -> bool:
        """Whether the picks depend on the seed."""
        if selector.picks is not None:
            for seed in range(self.study.seeds_of(selector.name)):
                self._from_file(selector, k, seed)
            return "{seed}" in selector.picks
        if selector.run is not None:
            seeds = {result.seed for result in self._of_run(selector, k)}
            if len(seeds) > 1 and (missing := {*range(self._seeds(selector))} - seeds):
                raise InputError(f"run {selector.run!r} has no seed {min(missing)} at k = {k}")
            return len(seeds) > 1
        if selector.method == MEDOIDS:
            return True
        problem = sketch(self._views(selector.local), k, self._posing(selector))
        check_method(problem, selector.method)
        given = self._knobs(selector)
        check_nepv(
            {**given, "objective": selector.objective, "hierarchical": False}, (selector.method,)
        )
        return draws(selector.method, given, problem)

    def _seeds(self, selector: Selector) -> int:
        return self.study.seeds_of(selector.name)

    # --- choosing ---------------------------------------------------------------------------------

    def choose(self, name: str, k: int, seed: int) -> Picks:
        selector = self.study.selector(name)
        if selector.picks is not None:
            return Picks(name, k, seed, self._from_file(selector, k, seed), GIVEN)
        if selector.run is not None:
            results = {result.seed: result for result in self._of_run(selector, k)}
            result = results[seed if seed in results else 0]
            return Picks(name, k, seed, self._checked(result.ids, k), result.status)
        if selector.method == MEDOIDS:
            from fairnepv_studies.downstream.medoids import k_means_medoids

            rows = k_means_medoids(self.candidates.pool.views, k, seed)
            return Picks(name, k, seed, self._ids(rows), DRAWN)
        found = self._search(selector, k, seed)
        return Picks(name, k, seed, self._ids(found.indices), found.status.name)

    def _search(self, selector: Selector, k: int, seed: int) -> Any:
        """As `fairnepv uspto run` has it: equal passes of one-swaps for all but those apart."""
        posed = self._posed(selector)
        problem = posed.problem(k, seed)
        given = self._knobs(selector)
        effort = check_effort(given["effort"])
        passes = given["passes"]
        if passes is None and selector.method not in APART:
            passes = effort.equal_passes(problem.work())
        names = _ROUNDING if selector.method == "nepv" else ("oversampling",)
        wanted = {
            **{name: given[name] for name in names},
            **{"method": selector.method, "effort": given["effort"], "passes": passes},
            "certify": selector.method in ("auto", "exact"),  # these start from the relaxation
            "progress": self.progress,
        }
        found = select_posed(problem, completed("select", SelectOptions, wanted))
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return found

    def _knobs(self, selector: Selector) -> dict[str, Any]:
        """The options of the library, with its defaults for those that were not given."""
        posing = self._posing(selector)
        names = (*_ROUNDING, "effort", "passes")
        own = {name: getattr(selector, name) for name in names}
        given = {name: default(name) if value is None else value for name, value in own.items()}
        wanted = {**given, "tau": posing["tau"], "method": selector.method}
        checked("select", SelectOptions, wanted)
        return given

    @staticmethod
    def _posing(selector: Selector) -> dict[str, Any]:
        one_of(*OBJECTIVES)("objective", selector.objective)
        rules = [rule for rule in CALIBRATIONS if rule != "efficiency"]
        one_of(*rules)("calibration", selector.calibration)
        names = ("objective", "tau", "eps", "center", "calibration")
        given = as_objective_wants({name: getattr(selector, name) for name in names})
        center = given["center"]
        usual = default("center", selector.objective)
        posing = {**given, "center": usual if center is None else center}
        checked("select", SelectOptions, posing)
        return posing

    def _posed(self, selector: Selector) -> Posed:
        posing = self._posing(selector)
        key = (selector.local, *posing.values())
        if key not in self._poses:
            pool = replace(self.candidates.pool, views=self._views(selector.local))
            self._poses[key] = Posed.of(pool, posing)
        return self._poses[key]

    @functools.cached_property
    def _poses(self) -> dict[tuple[Any, ...], Posed]:
        return {}

    def _views(self, local: bool) -> dict[str, Any]:
        return self._local if local else self.candidates.pool.views

    @functools.cached_property
    def _local(self) -> dict[str, Any]:
        return dict(fairnepv.local_features(self.candidates.pool.views))

    # --- given picks ------------------------------------------------------------------------------

    def _of_run(self, selector: Selector, k: int) -> list[Result]:
        assert selector.run is not None
        run = Run.open(self.candidates.corpus, selector.run)
        found = [r for r in run.results if r.method == selector.method and r.k == k]
        if not found:
            raise InputError(
                f"run {selector.run!r} has no {selector.method!r} at k = {k}; it has "
                f"{', '.join(run.settings.methods)} at {', '.join(map(str, run.settings.sizes))}"
            )
        for result in found:
            self._checked(result.ids, k)
        return found

    def _from_file(self, selector: Selector, k: int, seed: int) -> list[str]:
        assert selector.picks is not None
        try:
            name = selector.picks.format(k=k, seed=seed)
        except (LookupError, ValueError) as error:
            raise InputError(f"picks {brief(selector.picks)} has braces besides {{k}}") from error
        ids = read_picks(str(self.base / name), "id").astype(str).tolist()
        return self._checked(ids, k)

    def _checked(self, ids: list[str], k: int) -> list[str]:
        strange = next((id for id in ids if id not in self._selectable), None)
        if strange is not None:
            raise InputError(
                f"the pick {brief(strange)} is not among the items that may be chosen: it "
                "validates, tests, is set apart for pretraining, or is not in the corpus"
            )
        if len(set(ids)) < len(ids) or len(ids) != k:
            raise InputError(f"expected {k} different picks, found {len(set(ids))} of {len(ids)}")
        return ids

    @functools.cached_property
    def _selectable(self) -> set[str]:
        return set(self._ids(np.arange(len(self.candidates.rows))))

    def _ids(self, places: Any) -> list[str]:
        ids = self.candidates.corpus.ids
        return [ids[row] for row in self.candidates.rows[places].tolist()]
