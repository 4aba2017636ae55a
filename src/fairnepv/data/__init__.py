"""Embedded pools, small and real, and the paper's instance; see NOTICE.md for their licences."""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from io import BytesIO
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.errors import FairnepvError
from fairnepv.views import DiagonalView

_SHA256 = {  # the first 16 hex digits of each
    "openmoji.parquet": "a236d3f4b79b3323",
    "openmoji_minilm.npz": "c52f4cd7973424cb",
}
_WORD = r"(?u)\b\w\w+\b"  # two letters or digits at least, as scikit-learn has it


@dataclass(frozen=True, eq=False)
class Pictograms:
    """2,297 pictograms of OpenMoji, row by row; CC-BY-SA-4.0, keywords Unicode-3.0."""

    ids: NDArray[Any]  # OpenMoji's hexadecimal codes
    titles: NDArray[Any]
    groups: NDArray[Any]  # one of 11 each, as "food-drink"
    keywords: list[str]  # title and keywords as one text
    pictures: list[bytes]  # PNG, 96 x 96
    text: NDArray[np.float32]  # (2297, 384) MiniLM features of the keywords, of unit length
    vision: NDArray[np.float32]  # (2297, 1280) EfficientNet-Lite0 features, not normalised

    @property
    def views(self) -> dict[str, NDArray[np.float32]]:
        """The two views of the demo: what the keywords mean, and what the picture looks like."""
        return {"text": self.text, "vision": self.vision}


def openmoji() -> Pictograms:
    """The pool of `fairnepv demo`."""
    import pyarrow.parquet as pq

    table = pq.read_table(_embedded("openmoji.parquet"), use_threads=False)
    n, vision = table.num_rows, table.column("vision").combine_chunks()
    with np.load(_embedded("openmoji_minilm.npz"), allow_pickle=False) as archive:
        text = archive["text"]
    return Pictograms(
        ids=np.array(table.column("id").to_pylist()),
        titles=np.array(table.column("title").to_pylist()),
        groups=np.array(table.column("group").to_pylist()),
        keywords=table.column("text").to_pylist(),
        pictures=table.column("image_png").to_pylist(),
        # Features are stored as float16, which is slow to widen again and again.
        text=text.astype(np.float32),
        vision=vision.flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(n, -1),
    )


def _embedded(name: str) -> BytesIO:
    """A file of this package, whole."""
    content = resources.files("fairnepv.data").joinpath(name).read_bytes()
    if not hashlib.sha256(content).hexdigest().startswith(_SHA256[name]):
        raise FairnepvError(f"the embedded pool {name} is damaged: install fairnepv again")
    return BytesIO(content)


def tf_idf(texts: list[str]) -> sp.csr_array:
    """Sparse sublinear TF-IDF with rows of unit length [FairNEPv, section 6.1]."""
    return sp.csr_array(vectorizer().fit_transform(texts))


def vectorizer() -> Any:
    """What `tf_idf` is made by; it keeps the vocabulary."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, token_pattern=_WORD)


def has_words(text: str) -> bool:
    """Whether `tf_idf` makes this text a row of unit length; of others it makes zeros."""
    return re.search(_WORD, text.lower()) is not None


CANDIDATE_TYPES = ("text specialist", "vision specialist", "balanced")


def paper_instance() -> dict[str, DiagonalView]:
    """The quality-conflict instance [FairNEPv, section 5]: five text specialists (100, 0.1), five
    vision specialists (0.1, 100), five balanced items (3, 3); its kernels are diagonal."""
    text = np.repeat([100.0, 0.1, 3.0], 5)
    vision = np.repeat([0.1, 100.0, 3.0], 5)
    return {"text": DiagonalView(text, eps=0), "vision": DiagonalView(vision, eps=0)}


def paper_types() -> NDArray[Any]:
    """What kind of candidate every row of the paper's instance is."""
    return np.repeat(CANDIDATE_TYPES, 5)
