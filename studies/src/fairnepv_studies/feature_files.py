"""Features of a corpus, one file per view with a description beside it.

features/vision.npy    (n, p) float16 or float32, row by row as in items.parquet
features/text.npz      SciPy CSR
features/vision.json   encoder, version, preprocessing, shape, and two checksums: of the corpus
                       that it belongs to, and of the numbers
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairnepv.errors import InputError
from fairnepv.io.numpy_files import read_npz
from fairnepv.io.source import Source
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.files import damaged_file, read_record, write_record

FOLDER = "features"
FITTED_ON = "split"  # in `preprocessing`: the checksum of the split whose pool was fitted on
_REMEDY = "make the features again"


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
    found = begin_checksum(features.shape, features.dtype)
    for part in parts:
        found.update(np.ascontiguousarray(part).view(np.uint8).data)
    return found.hexdigest()


def begin_checksum(shape: tuple[int, ...], dtype: np.dtype[Any]) -> hashlib._Hash:
    """For whoever has the numbers one block of rows after the other."""
    return hashlib.sha256(f"{shape} {dtype.str}".encode())


def describe(folder: Path, description: Description) -> None:
    write_record(folder / f"{description.view}.json", description)


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
    description = read_record(about, Description, _REMEDY)
    if description.view != view:
        raise InputError(f"{about} describes view {description.view!r}; {_REMEDY}")
    if description.corpus != corpus.about.checksum:
        raise InputError(
            f"{about} describes features of another corpus (checksum {description.corpus[:12]}, "
            f"this one has {corpus.about.checksum[:12]}); make them again"
        )
    file, features = read_features(folder, view)
    _check_shape(file, features, description, corpus.n)
    if check and checksum_of(features) != description.checksum:
        raise InputError(
            f"{file}: features of view {view!r} do not have the checksum in {about.name}, so they "
            f"are damaged or were changed; {_REMEDY}"
        )
    return features, description


def feature_file(folder: Path, view: str) -> Path:
    """The file of a view's numbers, dense or sparse."""
    dense, sparse = folder / f"{view}.npy", folder / f"{view}.npz"
    file = dense if dense.is_file() else sparse
    if not file.is_file():
        raise InputError(
            f"{folder} has {view}.json but neither {view}.npy nor {view}.npz; {_REMEDY}"
        )
    return file


def read_features(folder: Path, view: str) -> tuple[Path, Any]:
    file = feature_file(folder, view)
    try:
        if file.suffix == ".npy":
            return file, np.lib.format.open_memmap(file, mode="r")
        return file, sp.csr_array(read_npz(Source(file, None)))
    except InputError as error:  # says what is wrong, and not what to do here
        raise damaged_file(file, str(error).partition(";")[0], _REMEDY) from error
    except Exception as error:  # zip, zlib, NumPy and SciPy each have their own
        raise damaged_file(file, error, _REMEDY) from error


def _check_shape(file: Path, features: Any, description: Description, n: int) -> None:
    """Rows that are too few would fail later, and rows that are too many never."""
    if description.shape[:1] != (n,):
        raise InputError(
            f"{file.with_suffix('.json')} describes {_size(description.shape)} features, and the "
            f"corpus has {n:,} items; {_REMEDY}"
        )
    if features.shape != description.shape or str(features.dtype) != description.dtype:
        raise InputError(
            f"{file} holds {_size(features.shape)} {features.dtype}, and its description says "
            f"{_size(description.shape)} {description.dtype}: it is damaged or was changed; "
            f"{_REMEDY}"
        )


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
