"""The pools that the benchmarks run on: small, in this repository, real but where they say so."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fairnepv.api.calibration import calibrate
from fairnepv.data import openmoji, paper_instance, tf_idf
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
    """2,297 pictograms, sparse TF-IDF of their keywords and vision features."""
    pool = openmoji()
    return {"text": tf_idf(pool.keywords), "vision": pool.vision}


def openmoji_minilm() -> dict[str, Any]:
    """The demo's pool: MiniLM embeddings of the same keywords, dense, so that P is 1,664."""
    return {name: X.astype(np.float64) for name, X in openmoji().views.items()}


def words(n: int, columns: int) -> Any:
    """Simulated TF-IDF: texts of 5 to 40 words, half of them from the run of words of a topic."""
    rng = np.random.default_rng(2)
    rows = np.repeat(np.arange(n), rng.integers(5, 41, size=n))
    begins = rng.integers(columns, size=200)[rng.integers(200, size=n)]  # the topic of a text
    common = 1.0 / np.arange(1, columns + 1) ** 0.9
    anybody = rng.choice(columns, size=len(rows), p=common / common.sum())
    own = (begins[rows] + rng.geometric(0.1, size=len(rows))) % columns
    which = np.where(rng.random(len(rows)) < 0.5, own, anybody)
    counts = sp.csr_array(sp.coo_array((np.ones(len(rows)), (rows, which)), (n, columns)))
    idf = 1.0 + np.log(n / (1.0 + np.bincount(counts.indices, minlength=columns)))
    counts.data *= idf[counts.indices]
    return counts.astype(np.float32)


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


def catalogue(n: int = 15_524) -> dict[str, Any]:
    """Simulated: items with some twenty words each, as TF-IDF of 4,000 words with 120 topics, and
    1,280 dense columns in float32 with 400 uneven clusters and a falling spectrum."""
    rng = np.random.default_rng(15)
    words, topics, length, columns = 4000, 120, 20, 1280
    often = 1.0 / np.arange(1, words + 1) ** 0.9
    often /= often.sum()
    of_topic = np.stack([rng.choice(words, 150, replace=False, p=often) for _ in range(topics)])
    topic = rng.choice(topics, size=n, p=rng.dirichlet(np.full(topics, 0.4)))
    own = of_topic[topic[:, None], rng.integers(150, size=(n, length // 2))]
    common = rng.choice(words, size=(n, length // 2), p=often)
    used = np.hstack([own, common]).ravel()
    counts = sp.csr_array((np.ones(used.size), used, np.arange(0, used.size + 1, length)))
    counts.sum_duplicates()
    rarity = np.log(n / np.maximum(np.bincount(counts.indices, minlength=words), 1)) + 1.0
    counts.data *= rarity[counts.indices]
    centres = rng.standard_normal((400, columns), dtype=np.float32)
    rows = centres[rng.choice(400, size=n, p=rng.dirichlet(np.full(400, 0.3)))]
    rows += np.float32(0.6) * rng.standard_normal((n, columns), dtype=np.float32)
    return {"words": counts, "looks": rows * np.arange(1, columns + 1, dtype=np.float32) ** -0.5}


def pose(data: Any, k: int, tau: float, calibration: str = "unit-diagonal") -> Problem:
    """The calibrated problem, for benchmarks of single stages."""
    pool = Pool.of(data, eps=0.1)
    rule = calibrate(pool, calibration, k)
    return Problem(rule.apply(pool), k, tau, rule)


# --- pools with labels, which no selector sees ----------------------------------------------------


class Labelled(NamedTuple):
    """Views of a pool, and what its rows are, by one or more ways to say it."""

    views: dict[str, Any]
    labels: dict[str, Any]


def labelled_uci() -> Labelled:
    """Three views of UCI multiple features, none of which tells all digits apart, and the digit."""
    with np.load(_TESTS / "uci_mfeat.npz", allow_pickle=False) as archive:
        digit = archive["labels"]
    views = uci()
    return Labelled({name: views[name] for name in ("fou", "kar", "zer")}, {"digit": digit})


def labelled_openmoji() -> Labelled:
    """Texts and looks of pictograms, their group (11) and subgroup (117)."""
    subgroups = (_TESTS / "openmoji_subgroups.txt").read_text(encoding="utf-8").splitlines()
    labels = {"group": openmoji().groups, "subgroup": np.array(subgroups)}
    return Labelled(openmoji_minilm(), labels)


def labelled_digits() -> Labelled:
    """Digits of scikit-learn, 8 x 8 pixels: the left and the right half, and gradients of all."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    left, right = (half.reshape(len(half), -1) for half in np.split(digits.images, 2, axis=2))
    views = {"left": left, "right": right, "gradients": gradients(digits.images, 2)}
    return Labelled(views, {"digit": digits.target})


def labelled_trademarks(n: int = 1500) -> Labelled:
    """Simulated trademarks: TF-IDF of the description, gradients of the picture, and the motif."""
    from PIL import Image

    from fairnepv_studies.uspto.drawing import draw_picture
    from fairnepv_studies.uspto.marks import draw_mark
    from fairnepv_studies.uspto.wording import describe_mark

    marks = [draw_mark(0, item) for item in range(n)]
    texts = [describe_mark(mark, 0, item) for item, mark in enumerate(marks)]
    files = (Image.open(io.BytesIO(draw_picture(mark))) for mark in marks)
    grey = [np.asarray(file.convert("L").resize((64, 64)), dtype=np.float64) for file in files]
    views = {"text": tf_idf(texts).toarray(), "looks": gradients(np.stack(grey), 8)}
    return Labelled(views, {"motif": np.array([mark.motif.name for mark in marks])})


def gradients(images: Any, side: int, directions: int = 8) -> Any:
    """(n, cells * directions): how steep images (n, h, w) are by direction, in square cells."""
    down, right = np.gradient(images, axis=(1, 2))
    turn = (np.arctan2(down, right) % np.pi) * directions / np.pi
    which = turn.astype(np.int64) % directions
    steep = np.hypot(down, right)[..., None] * (which[..., None] == np.arange(directions))
    n, h, w, _ = steep.shape
    cells = steep.reshape(n, h // side, side, w // side, side, directions).sum(axis=(2, 4))
    return cells.reshape(n, -1)
