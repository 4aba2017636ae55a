"""Whether a publication is what the corpus gives: everything is computed again, nothing trusted."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv.api.score import score_posed
from fairnepv.api.selection import Selection
from fairnepv.checks import brief
from fairnepv.errors import InputError, NumericalError, Status
from fairnepv.views.base import Indices
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.feature_files import FOLDER as FEATURES
from fairnepv_studies.feature_files import checksum_of, read_features
from fairnepv_studies.protocol.differences import TOLERANCE, Difference, check_close, check_same
from fairnepv_studies.protocol.pool import Posed, SelectionPool
from fairnepv_studies.protocol.proofs import Prover, Watched, claimed_bounds
from fairnepv_studies.protocol.publication import (
    FORMAT,
    ITEMS,
    MANIFEST,
    RESULTS,
    SUMS,
    claims,
    corpus_record,
    items_csv,
)
from fairnepv_studies.protocol.published_files import (
    bounded,
    check_sums,
    holds,
    read_published,
    refuse_more,
)
from fairnepv_studies.protocol.report import pipeline_sentences, tables, tables_of_seconds
from fairnepv_studies.protocol.results import Result, measures
from fairnepv_studies.protocol.settings import BEFORE_OBJECTIVES, Settings, make_settings
from fairnepv_studies.protocol.split import read_split

UNCHECKED = (
    "seconds, figures, the environment, notes, gap and version in the settings, who made corpus "
    "and features, that the encoders would give these features again, how searches ended (apart "
    "from claims of optimality), and that they would find the same items in the same order"
)


def verify(
    published: Path, corpus: Corpus, watched: Watched = contextlib.nullcontext
) -> Iterator[str]:
    """A sentence for everything that was checked; a `Difference` names the first that is not so.

    watched: gives a listener to what may take long, such as proving a bound anew.
    """
    if not (published / SUMS).is_file():
        raise InputError(
            f"{published} is no publication: it has no {SUMS}; see fairnepv uspto publish"
        )
    try:
        yield from _verify(published, corpus, watched)
    except InputError as error:  # what is refused as input elsewhere is a difference here
        raise Difference(str(error)) from error
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise Difference(f"a document is not as publish writes it ({error!r})") from error
    except (OverflowError, RecursionError) as error:
        raise Difference(f"a document holds what no run finds ({error!r})") from error


def _verify(published: Path, corpus: Corpus, watched: Watched) -> Iterator[str]:
    yield check_sums(published)
    manifest = read_published(published, MANIFEST)
    settings = _settings(manifest)
    check_same("corpus", manifest["corpus"], corpus_record(corpus.about))
    corpus.check()
    corpus.check_images()
    yield f"corpus: {corpus.about.name}, {corpus.n:,} items, checksum {corpus.about.checksum[:12]}"
    pool = _check_pool(published, settings, corpus)
    yield f"split: seed {pool.split.seed} gives it; {len(pool.rows):,} items may be selected"
    _check_claims(manifest, settings, pool)
    yield f"settings, which are the publisher's choice: {settings.caption}"
    for sentence in pipeline_sentences(settings):
        yield f"so is how it went: {sentence.rstrip('.')}"
    yield f"objective, which is, too: {settings.objective}, in {settings.told_in.plain_axis}"
    for view, description in pool.descriptions.items():
        yield f"features of {view}: {description.encoder} {description.version}, same numbers"
    results = _check_results(published, settings)
    bounds = claimed_bounds(manifest, settings)
    prover = Prover(settings, Posed.of(pool, settings.posing), watched)
    for result in results:
        _check_score(result, pool, prover, bounds[result.k])
    yield f"results: {len(results)} selections scored again, none off by more than {TOLERANCE:g}"
    yield _check_tables(published, results, settings)
    _check_seconds(published, settings)
    yield from prover.check_optima(results)
    for entry in manifest["bounds"]:
        yield prover.check_bound(published, entry)
    features = _check_features(published, pool)
    if features:
        yield f"published features: {', '.join(features)}, the same numbers"
    refuse_more(published, manifest, features)


# --- what is claimed ------------------------------------------------------------------------------


def _settings(manifest: Any) -> Settings:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Difference(f"{MANIFEST} has another format than {FORMAT}; use the version it names")
    return Settings.read(manifest.get("settings"), MANIFEST)


def _check_pool(published: Path, settings: Settings, corpus: Corpus) -> SelectionPool:
    split = read_split(corpus, published / "split.json")
    if not holds(published, "split.json", split.content):
        raise Difference("split.json does not have the bytes that its seed and shares give")
    if not holds(published, ITEMS, items_csv(corpus, split)):
        raise Difference(f"{ITEMS} does not list the identifiers of this corpus and split")
    return SelectionPool.of(corpus, split, settings.views)


def _check_features(published: Path, pool: SelectionPool) -> list[str]:
    """The files of features that are published, if any are, each with the numbers of its view."""
    if not (published / FEATURES).is_dir():
        return []
    names = []
    for view, description in pool.descriptions.items():
        file, features = read_features(published / FEATURES, view)
        if checksum_of(features) != description.checksum:
            raise Difference(f"{FEATURES}/{file.name} does not hold the features of the corpus")
        names.append(f"{FEATURES}/{file.name}")
    return names


def _check_claims(manifest: Any, settings: Settings, pool: SelectionPool) -> None:
    """Settings that `run` would accept, and a manifest that says what they and the pool give."""
    again = make_settings(
        pool,
        settings.sizes,
        methods=settings.methods,
        seeds=settings.seeds,
        tune_shift=bool(settings.shift_grid),
        **settings.knobs,
    )
    if not isinstance(settings.version, str):
        raise Difference(f"version in the settings: published {settings.version!r}")
    expected = claims(pool, replace(again, version=settings.version))
    theirs = {name: manifest[name] for name in manifest if name not in ("bounds", "environment")}
    ours, older = expected["settings"], ("nepv", "budgets")  # which older ones do not tell
    told = {name: ours[name] for name in older if not getattr(settings, name)}
    theirs["settings"] = {**BEFORE_OBJECTIVES, **told, **theirs["settings"]}
    check_same(MANIFEST, theirs, expected)


# --- results --------------------------------------------------------------------------------------


def _check_results(published: Path, settings: Settings) -> list[Result]:
    """Every selection that the settings ask for, and no other."""
    results = [Result.read(document, RESULTS) for document in read_published(published, RESULTS)]
    if len(results) != settings.count:  # before a list is made of what may be a wild number
        raise Difference(
            f"{RESULTS} has {len(results)} selections, the settings ask for {settings.count}"
        )
    for unit, result in zip(settings.units, results, strict=True):
        if json.dumps(unit) != json.dumps(result.unit):
            raise Difference(f"{RESULTS} has {result.unit} where the settings ask for {unit}")
        check_same(f"objective of {unit}", result.objective, settings.objective)
        _check_words(result)
    return results


def _check_words(result: Result) -> None:
    known = isinstance(result.status, str) and result.status in Status.__members__
    if not known or result.status == Status.INTERRUPTED.name:
        raise Difference(f"status of {result.unit}: no selection ends as {brief(result.status)}")
    if not isinstance(result.notes, list) or not all(isinstance(n, str) for n in result.notes):
        raise Difference(f"notes of {result.unit}: expected a list of sentences")


def _check_score(result: Result, pool: SelectionPool, prover: Prover, bound: float) -> None:
    indices = _positions(result, pool)
    ids = [pool.corpus.ids[row] for row in result.rows]
    for published, found in zip(result.ids, ids, strict=False):
        if published != found:
            raise Difference(f"id in {result.unit}: published {published}, found {found}")
    if len(result.ids) != len(ids):
        raise Difference(f"ids of {result.unit}: published {len(result.ids)}, found {len(ids)}")
    try:
        again = measures(score_posed(prover.posed.problem(result.k), indices), bound)
    except NumericalError as error:
        raise Difference(f"bound for k = {result.k}, {result.unit}: {error}") from error
    for name, value in again.items():
        check_close(f"{name} of {result.unit}", getattr(result, name), value)
    if result.method == "random":
        _check_draw(result, prover.select(result, certify=False), indices)


def _positions(result: Result, pool: SelectionPool) -> Indices:
    """Rows of the corpus as positions in the pool; k different ones."""
    whole = isinstance(result.rows, list) and all(type(row) is int for row in result.rows)
    if not whole or len(result.rows) != result.k:
        raise Difference(f"rows of {result.unit}: expected {result.k} whole numbers")
    selectable = np.isin(np.arange(pool.corpus.n), pool.rows)
    outside = [row for row in result.rows if not (0 <= row < pool.corpus.n and selectable[row])]
    if outside:
        raise Difference(f"row {outside[0]} of {result.unit} is not in the selection pool")
    values, counts = np.unique(result.rows, return_counts=True)
    if counts.max() > 1:
        raise Difference(f"row {values[counts.argmax()]} of {result.unit} is chosen twice")
    return np.searchsorted(pool.rows, result.rows)


def _check_draw(result: Result, drawn: Selection, indices: Indices) -> None:
    """What is drawn at random is drawn again: its seed is part of what is published."""
    if sorted(drawn.indices.tolist()) != sorted(indices.tolist()):
        raise Difference(
            f"{result.unit}: the seed draws other items (with NumPy {np.__version__} here)"
        )
    if result.status != drawn.status.name:
        raise Difference(
            f"status of {result.unit}: published {result.status}, but a draw ends as "
            f"{drawn.status.name}"
        )


def _check_tables(published: Path, results: list[Result], settings: Settings) -> str:
    expected = tables(results, settings)
    for name, content in expected.items():
        if not holds(published, name, content):
            raise Difference(f"{name} does not say what {RESULTS} says")
    return f"tables: {', '.join(expected)} say the same"


def _check_seconds(published: Path, settings: Settings) -> None:
    """They are what a clock said, but both tables say the same, and nothing else."""
    lines = bounded(published, "seconds.csv").decode("utf-8").splitlines()[1:]
    values = [float(line.rpartition(",")[2]) for line in lines]
    if not all(0 <= value < math.inf for value in values):
        raise Difference("seconds.csv holds what no clock says")
    seconds = dict(zip(settings.timed, values, strict=True))
    for name, content in tables_of_seconds(seconds, settings).items():
        if not holds(published, name, content):
            raise Difference(f"{name} does not say the seconds of every selection, or says more")
