"""The rows of a corpus that may be selected, and the problems that they pose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.api.calibration import calibrate
from fairnepv.api.inputs import pool_of
from fairnepv.api.objectives import pool_as_asked
from fairnepv.errors import InputError
from fairnepv.problem import Problem
from fairnepv.views import Calibration, Pool
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.feature_files import FITTED_ON, Description, feature_views, read_view
from fairnepv_studies.protocol.split import Split, read_split


@dataclass(frozen=True)
class SelectionPool:
    """The rows that may be selected, with the features of every view."""

    corpus: Corpus
    split: Split
    views: dict[str, Any]
    descriptions: dict[str, Description]

    @classmethod
    def of(cls, corpus: Corpus, split: Split, views: Sequence[str]) -> SelectionPool:
        if not views or len(set(views)) < len(views):
            raise InputError(f"views must be names, each once, not {', '.join(views) or 'none'}")
        read = {view: read_view(corpus, view) for view in views}
        for view, (_, description) in read.items():
            _refuse_other_split(view, description, split)
        return cls(
            corpus,
            split,
            {view: _rows(features, split.pool) for view, (features, _) in read.items()},
            {view: description for view, (_, description) in read.items()},
        )

    @property
    def rows(self) -> NDArray[np.int64]:
        return self.split.pool


@dataclass(frozen=True)
class Posed:
    """A selection pool whose rows are checked and calibrated once, for all sizes and seeds: the
    calibrations of a run depend on neither."""

    rows: Pool  # as they are or centred, for proofs, which bring their calibration
    calibration: Calibration
    calibrated: Pool  # as the objective asks about it
    tau: float
    objective: str

    @classmethod
    def of(cls, pool: SelectionPool, posing: Mapping[str, Any], engine: str | None = None) -> Posed:
        """posing: objective, tau, eps, center and calibration."""
        objective = str(posing["objective"])
        rows = pool_of(pool.views, {**posing, "engine": engine})
        rule = calibrate(rows, posing["calibration"], 1)
        asked = pool_as_asked(rows, rule, objective)
        return cls(rows, rule, asked, float(posing["tau"]), objective)

    def problem(self, k: int, seed: int = 0) -> Problem:
        return Problem(
            self.calibrated,
            k,
            self.tau,
            self.calibration,
            random_state=seed,
            utility=self.objective,
        )


def _refuse_other_split(view: str, description: Description, split: Split) -> None:
    """Features that were fitted on a selection pool are those of one split."""
    fitted_on = description.preprocessing.get(FITTED_ON)
    if fitted_on not in (None, split.checksum):
        raise InputError(
            f"the features of view {view!r} were fitted on the selection pool of another split; "
            "make them again with fairnepv uspto features"
        )


def open_pool(corpus: Corpus, views: Sequence[str] | None = None) -> SelectionPool:
    """The selection pool of a corpus that is split and has features."""
    return SelectionPool.of(corpus, read_split(corpus), views or default_views(corpus))


def default_views(corpus: Corpus) -> list[str]:
    """Text and vision, as in the paper, or whatever else there is."""
    known = feature_views(corpus)
    if not known:
        raise InputError(
            f"{corpus.folder} has no features yet; make them with fairnepv uspto features "
            f"{corpus.folder}"
        )
    return ["text", "vision"] if {"text", "vision"} <= set(known) else known


def validation_views(pool: SelectionPool) -> dict[str, Any]:
    """The same views of the items that validate, less those that are all zeros in some view: words
    that the selection pool does not have are no columns."""
    rows = pool.split.validation
    read = {v: _rows(read_view(pool.corpus, v, check=False)[0], rows) for v in pool.views}
    norms = [np.asarray(abs(x).sum(axis=1)).ravel() for x in read.values()]
    kept = np.flatnonzero(np.all(norms, axis=0))
    return {view: features[kept] for view, features in read.items()}


def _rows(features: Any, rows: NDArray[np.int64]) -> Any:
    """Half precision is exact in float32, and every product of it far quicker."""
    chosen = features[rows]
    return chosen.astype(np.float32) if chosen.dtype == np.float16 else chosen
