"""Which items of a corpus may be chosen, which are set apart, and which are evaluated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.downstream.leakage import near_duplicates, prints_of
from fairnepv_studies.downstream.strata import MOTIF, WORDING, rare_motifs, rare_wordings
from fairnepv_studies.downstream.study import Data, Study
from fairnepv_studies.protocol.pool import SelectionPool
from fairnepv_studies.protocol.split import read_split

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """Rows of the corpus by what they are for; evaluated ones in their order."""

    pool: SelectionPool  # with the features of the rows that may be chosen, and of no others
    rows: Rows  # these
    pretrain: Rows  # what is set apart
    validation: Rows
    test: Rows
    left_out: dict[str, dict[str, str]]  # by part: ids of near duplicates of others, and why
    rare: dict[int, tuple[str, ...]]  # by evaluated row, in what it is rare

    @property
    def corpus(self) -> Corpus:
        return self.pool.corpus


def candidates_of(corpus: Corpus, study: Study) -> Candidates:
    """The split's selection pool, less what is set apart; and of its other parts the items that are
    no near duplicate of anything that a model may be trained on."""
    split = read_split(corpus)
    pool = SelectionPool.of(corpus, split, study.views)
    ordered = in_lot_order(corpus.ids, split.pool, study.data.seed)
    apart = round(study.data.pretrain * len(ordered))
    pretrain, rows = np.sort(ordered[:apart]), np.sort(ordered[apart:])
    _check_sizes(study, len(rows))
    at = np.searchsorted(split.pool, rows)
    pool = replace(pool, views={name: view[at] for name, view in pool.views.items()})
    validation, test, left_out = _evaluated(corpus, split, study.data)
    return Candidates(
        pool=pool,
        rows=rows,
        pretrain=pretrain,
        validation=validation,
        test=test,
        left_out=left_out,
        rare=_rare(corpus, rows, study, [*validation.tolist(), *test.tolist()]),
    )


def in_lot_order(ids: Sequence[str], rows: Rows, seed: int) -> Rows:
    """By SHA-256 of seed and id, as the split has it; in another order than the split's own."""

    def key(row: int) -> tuple[bytes, int]:
        return hashlib.sha256(f"downstream:{seed}:{ids[row]}".encode()).digest(), row

    return np.array(sorted(rows.tolist(), key=key), dtype=np.int64)


def _check_sizes(study: Study, n: int) -> None:
    for k in study.sizes:
        if k >= n:
            raise InputError(
                f"k = {k:,} does not fit the {n:,} items that may be chosen; name smaller sizes, "
                "or set less apart for pretraining"
            )


def _evaluated(
    corpus: Corpus, split: Any, data: Data
) -> tuple[Rows, Rows, dict[str, dict[str, str]]]:
    """Test items are compared with all that may be trained on or tuned by; those that validate with
    the former."""
    prints = prints_of(_exact(corpus), corpus.texts, _images(corpus))
    wanted = {"validation": data.validation, "test": data.test}
    others = {"validation": split.pool, "test": np.concatenate([split.pool, split.validation])}
    kept: dict[str, Rows] = {}
    left_out: dict[str, dict[str, str]] = {}
    for part, most in wanted.items():
        rows = split.parts[part]
        near = near_duplicates(prints, rows, others[part])
        left_out[part] = {corpus.ids[row]: why for row, why in sorted(near.items())}
        free = np.array([row for row in rows.tolist() if row not in near], dtype=np.int64)
        kept[part] = in_lot_order(corpus.ids, free, data.seed)[:most]
        if not len(kept[part]):
            raise InputError(
                f"nothing is left to evaluate on: all {len(rows):,} items of the part '{part}' "
                "are near duplicates of others; split the corpus with larger shares"
            )
    return kept["validation"], kept["test"], left_out


def _exact(corpus: Corpus) -> dict[str, list[str]]:
    """What two items must not have in common."""
    exact = {"id": corpus.ids, "text": corpus.texts, "image": corpus.image_hashes}
    if "pixels_sha256" in corpus.items.column_names:
        exact["pixels"] = corpus.items.column("pixels_sha256").to_pylist()
    return exact


def _images(corpus: Corpus) -> Iterator[bytes]:
    try:
        yield from corpus.images()
    except InputError as error:
        raise InputError(
            f"{corpus.folder} has no images that can be read ({error}); models are trained on "
            "images and texts, so ingest a corpus with both"
        ) from error


def _rare(
    corpus: Corpus, pool: Rows, study: Study, evaluated: list[int]
) -> dict[int, tuple[str, ...]]:
    shares, rows = study.scoring, pool.tolist()
    found: dict[str, set[int]] = {
        WORDING: rare_wordings(corpus.texts, rows, evaluated, shares.rare_wording)
    }
    if "design_codes" in corpus.items.column_names:
        codes = [list(c or ()) for c in corpus.items.column("design_codes").to_pylist()]
        if any(codes):
            found[MOTIF] = rare_motifs(codes, rows, evaluated, shares.rare_motif)
    kinds = sorted(found)
    return {row: tuple(kind for kind in kinds if row in found[kind]) for row in evaluated}
