"""Small corpora made by hand, in the folder format that every step of the protocol reads."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from PIL import Image

from fairnepv_studies.corpus import IMAGES, ITEMS, About, Checksum, Corpus
from fairnepv_studies.feature_files import FOLDER, Description, checksum_of, describe

WORDS = [f"word{i}" for i in range(60)]


def make_corpus(
    folder: Path, n: int = 60, *, seed: int = 0, simulated: bool = True, kind: str = "uspto"
) -> Corpus:
    """Random words and noise as 16 x 16 PNGs: simulated, as everything here says."""
    rng = np.random.default_rng(abs(seed))
    folder.mkdir(parents=True, exist_ok=True)
    counts = rng.integers(5, 40, size=n)
    texts = [" ".join(rng.choice(WORDS, size=count)) for count in counts]
    images = [_png(rng.integers(0, 256, size=(16, 16, 3), dtype=np.uint8)) for _ in range(n)]
    ids = [f"{70_000_000 + seed * 1_000_000 + i}" for i in range(n)]
    hashes = [hashlib.sha256(image).hexdigest() for image in images]
    items = {"id": ids, "text": texts, "original": texts, "words": counts, "image_sha256": hashes}
    pq.write_table(pa.table(items), folder / ITEMS)
    pq.write_table(pa.table({"id": ids, "image": images}), folder / IMAGES)
    checksum = Checksum()
    for item in zip(ids, texts, hashes, strict=True):
        checksum.add(*item)
    about = About(
        kind=kind,
        simulated=simulated,
        n=n,
        checksum=checksum.hexdigest(),
        sources=[{"name": "made by hand", "bytes": 0, "sha256": ""}],
        rules={},
        funnel=[["items", n]],
        made_by="tests",
    )
    about.write(folder)
    return Corpus.open(folder)


def add_features(corpus: Corpus, *, seed: int = 0, width: int = 12) -> None:
    """Counts of words, sparse, as 'text'; random numbers in clusters, dense, as 'vision'."""
    rng = np.random.default_rng(100 + seed)
    counts = [[text.split().count(word) for word in WORDS] for text in corpus.texts]
    text = sp.csr_array(np.log1p(np.array(counts, dtype=np.float64)).astype(np.float32))
    centres = rng.standard_normal((6, width))
    vision = centres[rng.integers(6, size=corpus.n)] + 0.4 * rng.standard_normal((corpus.n, width))
    write_view(corpus, "text", text)
    write_view(corpus, "vision", vision.astype(np.float16))


def write_view(corpus: Corpus, view: str, features: Any, /, **other: Any) -> None:
    folder = corpus.folder / FOLDER
    folder.mkdir(exist_ok=True)
    if isinstance(features, np.ndarray):
        np.save(folder / f"{view}.npy", features)
    else:
        sp.save_npz(folder / f"{view}.npz", features)
    description = Description(
        view=view,
        encoder="by hand",
        version="1",
        preprocessing={},
        shape=features.shape,
        dtype=str(features.dtype),
        corpus=corpus.about.checksum,
        checksum=checksum_of(features),
        made_by="tests",
    )
    describe(folder, replace(description, **other))


def _png(pixels: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()
