"""`fairnepv uspto features`: the views of a corpus [FairNEPv, section 6.1]."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairnepv import __version__
from fairnepv.data import has_words, vectorizer
from fairnepv.errors import InputError
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.encoders import Encoder
from fairnepv_studies.encoding import Encoded, described, encode, key_of
from fairnepv_studies.feature_files import FITTED_ON, FOLDER, Description, checksum_of, describe
from fairnepv_studies.files import csv_content, write_whole
from fairnepv_studies.progress import RowProgress
from fairnepv_studies.protocol.split import read_split

CACHE = "cache"  # beside the features, so that it goes where the corpus goes and away with it
IDF_ON = ("pool", "all")
VOCABULARY = "text_vocabulary.csv"
_NAMED = 3  # ids that a message names
MADE_BY = f"fairnepv {__version__}"


def text_features(corpus: Corpus, *, idf_on: str = IDF_ON[0]) -> Description:
    """Sparse sublinear TF-IDF with rows of unit length, and its vocabulary.

    idf_on: the texts that words and their weights are taken from: of the selection pool, so that
        nothing of the texts that test leaks into what is selected by, or of all.
    """
    _refuse_empty(corpus)
    _check_words(corpus)
    fitted, about, texts = vectorizer(), {"idf_on": idf_on}, corpus.texts
    if idf_on == "pool":
        split = read_split(corpus)
        about[FITTED_ON], texts = split.checksum, [texts[row] for row in split.pool]
    fitted.fit(texts)
    folder = _folder(corpus)
    matrix = sp.csr_array(fitted.transform(corpus.texts))
    vocabulary = _vocabulary(fitted)
    (folder / "text.json").unlink(missing_ok=True)
    write_whole(folder / VOCABULARY, vocabulary)
    write_whole(folder / "text.npz", sparse_content(matrix))
    description = Description(
        view="text",
        encoder="tf-idf",
        version=f"scikit-learn {_sklearn_version()}",
        preprocessing={**settings_of(fitted), **about},
        shape=matrix.shape,
        dtype=str(matrix.dtype),
        corpus=corpus.about.checksum,
        checksum=checksum_of(matrix),
        made_by=MADE_BY,
        details={
            "vocabulary": VOCABULARY,
            "vocabulary_sha256": hashlib.sha256(vocabulary).hexdigest(),
        },
    )
    describe(folder, description)
    return description


def _check_words(corpus: Corpus) -> None:
    """No selector can use a row of zeros, and the first that is met would stop a run much later."""
    silent = [id for id, text in zip(corpus.ids, corpus.texts, strict=True) if not has_words(text)]
    if silent:
        named = ", ".join(silent[:_NAMED]) + (", ..." if len(silent) > _NAMED else "")
        raise InputError(
            f"{len(silent):,} of the {corpus.n:,} texts of {corpus.folder} have no words of two "
            f"letters or more ({named}); leave these items out, and ingest again"
        )


def encoded_features(
    corpus: Corpus,
    view: str,
    encoder: Encoder,
    *,
    cache: Path | None = None,
    progress: RowProgress | None = None,
) -> tuple[Description, Encoded]:
    """The images or the texts of a corpus through an encoder; goes on where a run was killed."""
    folder = _folder(corpus)
    (folder / f"{view}.json").unlink(missing_ok=True)  # it would describe what is replaced
    keys = (
        corpus.image_hashes if encoder.kind == "image" else [key_of(text) for text in corpus.texts]
    )
    encoded = encode(
        partial(_pictures if encoder.kind == "image" else _texts, corpus),
        keys,
        encoder,
        cache=cache or corpus.folder / CACHE,
        out=folder / f"{view}.npy",
        progress=progress,
    )
    description = Description(
        view=view,
        shape=encoded.shape,
        dtype="float32",
        corpus=corpus.about.checksum,
        checksum=encoded.checksum,
        made_by=MADE_BY,
        **described(encoder),
    )
    describe(folder, description)
    return description, encoded


def _pictures(corpus: Corpus, places: Sequence[int]) -> Iterator[bytes]:
    wanted = set(places)
    for i, picture in enumerate(corpus.images(places[0]), places[0]):
        if i in wanted:
            yield picture


def _texts(corpus: Corpus, places: Sequence[int]) -> Iterator[str]:
    return (corpus.texts[i] for i in places)


def _refuse_empty(corpus: Corpus) -> None:
    if not corpus.n:
        raise InputError(f"{corpus.folder} has no items; ingest one that has")
    corpus.check()


def _folder(corpus: Corpus) -> Path:
    _refuse_empty(corpus)
    folder = corpus.folder / FOLDER
    folder.mkdir(exist_ok=True)
    return folder


def settings_of(fitted: Any) -> dict[str, Any]:
    """Every setting of a vectorizer, the defaults of scikit-learn among them."""
    return {
        name: value if isinstance(value, (str, int, float, bool, type(None))) else _said(value)
        for name, value in sorted(fitted.get_params().items())
    }


def _said(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else np.dtype(value).name


def _vocabulary(fitted: Any) -> bytes:
    """A word and its weight for every column."""
    words = fitted.get_feature_names_out().tolist()
    return csv_content(["word", "idf"], zip(words, map(repr, fitted.idf_.tolist()), strict=True))


def sparse_content(matrix: Any) -> bytes:
    """SciPy's .npz, not compressed: compressors differ from machine to machine."""
    buffer = io.BytesIO()
    sp.save_npz(buffer, matrix, compressed=False)
    return buffer.getvalue()


def _sklearn_version() -> str:
    import sklearn

    return str(sklearn.__version__)
