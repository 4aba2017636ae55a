"""The pools that the benchmarks run on: small, in this repository, real but where they say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fairnepv.api.calibration import calibrate
from fairnepv.data import openmoji, paper_instance
from fairnepv.problem import Problem
from fairnepv.views import Pool

_TESTS = Path(__file__).resolve().parents[1] / "tests" / "data"
UCI_VIEWS = ("fou", "fac", "kar", "zer")


def uci() -> dict[str, Any]:
    """UCI multiple features: 2,000 digits, four views, columns standardised."""
    with np.load(_TESTS / "uci_mfeat.npz", allow_pickle=False) as archive:
        views = {name: archive[name].astype(np.float64) for name in UCI_VIEWS}
    return {name: (X - X.mean(axis=0)) / X.std(axis=0) for name, X in views.items()}


def openmoji_tf_idf() -> dict[str, Any]:
    """The demo's pool: 2,297 pictograms, sparse TF-IDF of keywords and vision features."""
    return openmoji().views


def openmoji_minilm() -> dict[str, Any]:
    """The same pictograms with MiniLM embeddings of the keywords, dense, so that P is 1,664."""
    with np.load(_TESTS / "openmoji_minilm.npz", allow_pickle=False) as archive:
        text = archive["text"].astype(np.float64)
    return {"text": text, "vision": openmoji().vision.astype(np.float64)}


def synthetic() -> dict[str, Any]:
    """The paper's instance (simulated): 15 candidates, diagonal kernels."""
    return dict(paper_instance())


def simulated() -> dict[str, Any]:
    """Simulated: 5,000 items, two views of 64 columns, each with forty clusters of its own.

    Nobody's cluster in one view says anything about the other; the second view is the tighter one.
    """
    rng = np.random.default_rng(2026)
    n, p, clusters = 5000, 64, 40

    def view(spread: float) -> Any:
        centres = rng.standard_normal((clusters, p))
        return centres[rng.integers(clusters, size=n)] + spread * rng.standard_normal((n, p))

    return {"loose": view(0.6), "tight": view(0.3)}


def pose(data: Any, k: int, tau: float, calibration: str = "unit-diagonal") -> Problem:
    """The calibrated problem, for benchmarks of single stages."""
    pool = Pool.of(data, eps=0.1)
    rule = calibrate(pool, calibration, k)
    return Problem(rule.apply(pool), k, tau, rule)
