"""Features of a corpus, one file per view with a description beside it.

features/vision.npy    (n, p) float16 or float32, row by row as in items.parquet
features/text.npz      SciPy CSR
features/vision.json   encoder, version, preprocessing, shape, and two checksums: of the corpus
                       that it belongs to, and of the numbers
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairnepv.errors import InputError
from fairnepv.studies.corpus import Corpus
from fairnepv.studies.files import write_whole

FOLDER = "features"


@dataclass(frozen=True)
class Description:
    """What the .json beside a feature file says."""

    view: str
    encoder: str
    version: str
    preprocessing: dict[str, Any]
    shape: tuple[int, int]
    dtype: str
    corpus: str  # checksum
    checksum: str  # of the numbers: see `checksum_of`
    made_by: str
    details: dict[str, Any] = field(default_factory=dict)  # a vocabulary's file, device, seconds


def checksum_of(features: Any) -> str:
    """SHA-256 of shape, type and numbers; of a sparse matrix of its three arrays."""
    parts = (
        [features]
        if isinstance(features, np.ndarray)
        else [features.indptr.astype("<i8"), features.indices.astype("<i8"), features.data]
    )
    found = hashlib.sha256(f"{features.shape} {features.dtype.str}".encode())
    for part in parts:
        found.update(np.ascontiguousarray(part).view(np.uint8).data)
    return found.hexdigest()


def describe(folder: Path, description: Description) -> None:
    text = json.dumps(asdict(description), indent=1, ensure_ascii=False, sort_keys=True)
    write_whole(folder / f"{description.view}.json", (text + "\n").encode("utf-8"))


def feature_views(corpus: Corpus) -> list[str]:
    """Names of the views that have features."""
    return sorted(file.stem for file in (corpus.folder / FOLDER).glob("*.json"))


def read_view(corpus: Corpus, view: str, *, check: bool = True) -> tuple[Any, Description]:
    """Features of one view and their description; refused where they are another corpus's, or not
    what the description says."""
    folder = corpus.folder / FOLDER
    about = folder / f"{view}.json"
    if not about.is_file():
        known = ", ".join(feature_views(corpus)) or "none yet"
        raise InputError(
            f"{corpus.folder} has no features of view {view!r} (there are: {known}); make them "
            "with fairnepv uspto features"
        )
    try:
        said = json.loads(about.read_text(encoding="utf-8"))
        description = Description(**{**said, "shape": tuple(said["shape"])})
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{about} cannot be read ({error}); make the features again") from error
    if description.corpus != corpus.about.checksum:
        raise InputError(
            f"{about} describes features of another corpus (checksum {description.corpus[:12]}, "
            f"this one has {corpus.about.checksum[:12]}); make them again"
        )
    features = _read(folder, view)
    if check and checksum_of(features) != description.checksum:
        raise InputError(
            f"features of view {view!r} do not have the checksum in {about}: the file is damaged "
            "or was changed; make them again"
        )
    return features, description


def _read(folder: Path, view: str) -> Any:
    dense, sparse = folder / f"{view}.npy", folder / f"{view}.npz"
    if dense.is_file():
        return np.load(dense, mmap_mode="r")
    if sparse.is_file():
        return sp.csr_array(sp.load_npz(sparse))
    raise InputError(f"{folder} has {view}.json but neither {view}.npy nor {view}.npz")
