"""Which items validate, which test, and which may be selected [FairNEPv, section 6.1].

Strata are quantile bins of the number of words. In every bin the items are put in the order of
SHA-256 of seed and id; the first validate, the next test, and the rest is the selection pool. So a
split depends on the seed, the ids and the words alone, and on no generator of random numbers.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.documents import read_document
from fairnepv.io.write import Output
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.files import LARGEST
from fairnepv_studies.protocol import SHARE

Counts = tuple[int, int]  # that validate, that test
FILE = "split.json"
BINS = 10
_FORMAT = 1
_RULE = (
    f"strata: at most {BINS} quantile bins of the words of a description, 'words_up_to' being the "
    "last number of each bin but the last; in a bin by SHA-256 of '<seed>:<id>' the first items "
    "validate, the next ones test, the rest is the selection pool; counts by largest remainders"
)


@dataclass(frozen=True)
class Split:
    corpus: str  # checksum
    name: str  # of the corpus, as it is called in tables
    seed: int
    shares: tuple[float, float]  # of validation and test
    words_up_to: tuple[int, ...]
    validation: NDArray[np.int64]  # rows, ascending
    test: NDArray[np.int64]
    pool: NDArray[np.int64]
    checksums: dict[str, str]  # of the ids of each part

    @property
    def parts(self) -> dict[str, NDArray[np.int64]]:
        return {"validation": self.validation, "test": self.test, "pool": self.pool}

    @functools.cached_property
    def content(self) -> bytes:
        """What split.json says; rows of the pool are those that it does not name."""
        document = {
            "format": _FORMAT,
            "corpus": self.corpus,
            "name": self.name,
            "rule": _RULE,
            "seed": self.seed,
            "shares": {"validation": self.shares[0], "test": self.shares[1]},
            "words_up_to": list(self.words_up_to),
            "counts": {name: len(rows) for name, rows in self.parts.items()},
            "checksums": self.checksums,
            "validation": self.validation.tolist(),
            "test": self.test.tolist(),
        }
        return (json.dumps(document, ensure_ascii=False) + "\n").encode("utf-8")

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def split(
    corpus: Corpus, *, validation: float = SHARE, test: float = SHARE, seed: int = 0
) -> Split:
    """Validation and test in every stratum, the selection pool what is left."""
    _check_shares(validation, test)
    if not corpus.n:
        raise InputError(f"{corpus.folder} has no items to split; see its rejects.csv")
    corpus.check()
    words = _words(corpus)
    edges = quantile_edges(words)
    strata = np.searchsorted(edges, words)  # up to and including each edge
    sizes = np.bincount(strata, minlength=len(edges) + 1).tolist()
    counts = zip(*apportion(sizes, validation, test), strict=True)
    taken: tuple[list[int], list[int]] = ([], [])
    for stratum, (first, second) in enumerate(counts):
        rows = _shuffled(np.flatnonzero(strata == stratum), corpus.ids, seed)
        taken[0].extend(rows[:first])
        taken[1].extend(rows[first : first + second])
    parts = [np.array(sorted(rows), dtype=np.int64) for rows in taken]
    pool = np.setdiff1d(np.arange(corpus.n, dtype=np.int64), np.concatenate(parts))
    if len(pool) < 2:
        raise InputError(
            f"the split leaves {len(pool)} of {corpus.n} items to select from; lower the shares"
        )
    named = {"validation": parts[0], "test": parts[1], "pool": pool}
    return Split(
        corpus=corpus.about.checksum,
        name=corpus.about.name,
        seed=seed,
        shares=(validation, test),
        words_up_to=tuple(edges.tolist()),
        validation=parts[0],
        test=parts[1],
        pool=pool,
        checksums={name: _id_checksum(corpus, rows) for name, rows in named.items()},
    )


def quantile_edges(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """The last number of words of every bin but the last; equal ones are one."""
    shares = np.arange(1, BINS) / BINS
    at = np.quantile(words, shares, method="inverted_cdf")
    edges: NDArray[np.int64] = np.unique(at).astype(np.int64)
    return np.asarray(edges[edges < words.max()])


def apportion(sizes: Sequence[int], validation: float, test: float) -> tuple[list[int], list[int]]:
    """How many of each bin validate and how many test: no bin is off by one or more, neither sum by
    more than a half, and no bin gives more than it has.

    Of all ways to round bins up or down that give these sums, the one that rounds the largest
    remainders up, and of equal ones the earliest.
    """
    shares = (_exact(validation), _exact(test))
    best: dict[Counts, tuple[Fraction, tuple[Counts, ...]]] = {(0, 0): (Fraction(0), ())}
    for size in sizes:
        longer: dict[Counts, tuple[Fraction, tuple[Counts, ...]]] = {}
        for (a, b), (gain, chosen) in best.items():
            for (v, t), more in _roundings(size, shares):
                way = (gain + more, (*chosen, (v, t)))
                longer[a + v, b + t] = max(longer.get((a + v, b + t), way), way)
        best = longer
    wanted = (round(shares[0] * sum(sizes)), round(shares[1] * sum(sizes)))
    chosen = best[wanted][1]
    return [v for v, _ in chosen], [t for _, t in chosen]


def _roundings(size: int, shares: tuple[Fraction, Fraction]) -> Iterator[tuple[Counts, Fraction]]:
    """Counts of one bin, each rounded down or up, that it can give; and what was rounded up."""
    ways = []
    for ideal in (share * size for share in shares):
        down = int(ideal)
        up = [(down + 1, ideal - down)] if ideal > down else []
        ways.append([(down, Fraction(0)), *up])
    for (v, more), (t, others) in itertools.product(*ways):
        if v + t <= size:
            yield (v, t), more + others


def _exact(share: float) -> Fraction:
    return Fraction(repr(share))  # 0.1 is a tenth here


def write_split(corpus: Corpus, made: Split, *, force: bool = False) -> Path:
    """Into the corpus; another split that is there already stays, unless `force` says otherwise."""
    path = corpus.folder / FILE
    if path.is_file() and path.read_bytes() != made.content and not force:
        raise InputError(
            f"{path} holds another split (other seed, shares or corpus); add --force to replace it"
        )
    Output(path).write(made.content)
    return path


def read_split(corpus: Corpus, path: Path | None = None) -> Split:
    """The split in this file, by default the corpus's own; refused where it is not of this corpus,
    or not what its seed and shares give."""
    path = corpus.folder / FILE if path is None else path
    if not path.is_file():
        raise InputError(
            f"{corpus.folder} has no {FILE}; make it with fairnepv uspto split {corpus.folder}"
        )
    said = read_document(path, "split again", most=LARGEST)
    try:
        origin, seed, shares = said["corpus"], said["seed"], said["shares"]
        validation, test = shares["validation"], shares["test"]
        if not isinstance(origin, str) or type(seed) is not int:
            raise TypeError("its corpus is no text, or its seed no whole number")
        if not {type(validation), type(test)} <= {int, float}:
            raise TypeError("its shares are no numbers")
        _check_shares(validation, test)
    except (TypeError, KeyError) as error:
        raise InputError(f"{path} cannot be read ({error!r}); split again") from error
    if origin != corpus.about.checksum:
        raise InputError(
            f"{path} splits another corpus (checksum {origin[:12]}, this one has "
            f"{corpus.about.checksum[:12]}); split again"
        )
    made = split(corpus, validation=validation, test=test, seed=seed)
    if _plain(json.loads(made.content)) != _plain(said):
        raise InputError(
            f"{path} is not what seed {seed} and its shares give: it was changed; split again"
        )
    return made


def _plain(document: Any) -> str:
    """To Python true is 1, and 1.0 is too."""
    return json.dumps(document, sort_keys=True)


def _check_shares(validation: float, test: float) -> None:
    if not (validation >= 0 and test >= 0 and validation + test < 1):
        raise InputError(
            "the shares of validation and test must not be negative and leave something to select "
            f"from, but are {validation:g} and {test:g}; try 0.1 and 0.1"
        )


def _words(corpus: Corpus) -> NDArray[np.int64]:
    return np.asarray(corpus.words, dtype=np.int64)


def _shuffled(rows: NDArray[np.int64], ids: Sequence[str], seed: int) -> list[int]:
    def key(row: int) -> tuple[bytes, int]:
        return hashlib.sha256(f"{seed}:{ids[row]}".encode()).digest(), row

    return sorted(rows.tolist(), key=key)


def _id_checksum(corpus: Corpus, rows: NDArray[np.int64]) -> str:
    listed = "".join(f"{corpus.ids[row]}\n" for row in rows.tolist())
    return hashlib.sha256(listed.encode("utf-8")).hexdigest()
