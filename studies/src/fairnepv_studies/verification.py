"""Whether a publication is what the corpus gives: everything is computed again, nothing trusted."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv.api.inputs import pose
from fairnepv.api.pipeline import certify, score, select, verify_bound
from fairnepv.concave import Terms, read_proof
from fairnepv.errors import InputError, NumericalError, Status
from fairnepv.io import read_archive
from fairnepv.io.checksums import sha256_of
from fairnepv.io.documents import parse_document
from fairnepv.loop import Progress
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.publication import (
    COPIED,
    FORMAT,
    ITEMS,
    MANIFEST,
    RESULTS,
    SUMS,
    claims,
    corpus_record,
    items_csv,
)
from fairnepv_studies.results import ROUNDING, Result, measures
from fairnepv_studies.run_report import tables, tables_of_seconds
from fairnepv_studies.runs import Pool, Settings, make_settings, short
from fairnepv_studies.split import read_split

TOLERANCE = ROUNDING
UNCHECKED = (
    "seconds, figures, the environment, notes, gap and version in the settings, who made corpus "
    "and features, that the encoders would give these features again, how searches ended (apart "
    "from claims of optimality), and that they would find the same items in the same order"
)
_LARGEST = 1 << 28  # bytes of a document
_TIGHTER = 10.0  # the gap of a second try at a bound that came without its proof
_BY_THE_WAY = ("made_by", "details")  # who made the same numbers, and how fast
Watched = Callable[[], AbstractContextManager[Progress | None]]


class Difference(NumericalError):
    """What is published is not what was found."""


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
    yield _check_sums(published)
    manifest = _read(published, MANIFEST)
    settings = _settings(manifest)
    _same("corpus", manifest["corpus"], corpus_record(corpus.about))
    corpus.check()
    corpus.check_images()
    yield f"corpus: {corpus.about.name}, {corpus.n:,} items, checksum {corpus.about.checksum[:12]}"
    pool = _check_pool(published, settings, corpus)
    yield f"split: seed {pool.split.seed} gives it; {len(pool.rows):,} items may be selected"
    _check_claims(manifest, settings, pool)
    yield f"settings, which are the publisher's choice: {settings.caption}"
    for view, description in pool.descriptions.items():
        yield f"features of {view}: {description.encoder} {description.version}, same numbers"
    results = _check_results(published, settings)
    bounds = _claimed_bounds(manifest, settings)
    for result in results:
        _check_score(result, settings, pool, bounds[result.k])
    yield f"results: {len(results)} selections scored again, none off by more than {TOLERANCE:g}"
    yield _check_tables(published, results, settings)
    _check_seconds(published, settings)
    yield from _check_optima(results, settings, pool, watched)
    for entry in manifest["bounds"]:
        yield _check_bound(published, entry, settings, pool, watched)
    _refuse_more(published, manifest)


# --- files ----------------------------------------------------------------------------------------


def _check_sums(folder: Path) -> str:
    """Every file that is listed, and no other; none of them a link to what is not published."""
    listed = _listed(folder)
    present = set()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise Difference(f"{name} is no file of its own: a publication holds no links")
        if path.is_file() and name != SUMS:
            present.add(name)
    for name in sorted({*listed, *present}):
        if name not in present:
            raise Difference(f"{name} is missing: {SUMS} lists it")
        if name not in listed:
            raise Difference(f"{name} is not listed in {SUMS}")
        if sha256_of(folder / name) != listed[name]:
            raise Difference(f"{name} does not have the checksum in {SUMS}: it was changed")
    for name in (MANIFEST, RESULTS, ITEMS, "split.json", *COPIED):
        if name not in listed:
            raise Difference(f"{name} is missing")
    return f"checksums: {len(listed)} files"


def _listed(folder: Path) -> dict[str, str]:
    listed: dict[str, str] = {}
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if not found:
            raise Difference(f"{SUMS} has a line that is no checksum: {line[:80]!r}")
        if found[2] in listed:
            raise Difference(f"{SUMS} lists {short(found[2])} twice")
        listed[found[2]] = found[1]
    return listed


def _refuse_more(published: Path, manifest: Any) -> None:
    """Files that nobody checks: readers may take them for checked ones."""
    proofs = (entry["proof"] for entry in manifest["bounds"])
    known = {MANIFEST, RESULTS, ITEMS, "split.json", *COPIED, *proofs}
    for name in _listed(published):
        if name not in known:
            raise Difference(f"{short(name)} is not expected: nothing vouches for it")


def _read(folder: Path, name: str) -> Any:
    try:
        if (folder / name).stat().st_size > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST:,} bytes")
        return parse_document((folder / name).read_bytes())
    except ValueError as error:
        raise Difference(f"{name} cannot be read ({error})") from error


# --- what is claimed ------------------------------------------------------------------------------


def _settings(manifest: Any) -> Settings:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Difference(f"{MANIFEST} has another format than {FORMAT}; use the version it names")
    return Settings.read(manifest.get("settings"), MANIFEST)


def _check_pool(published: Path, settings: Settings, corpus: Corpus) -> Pool:
    split = read_split(corpus, published / "split.json")
    if (published / "split.json").read_bytes() != split.content:
        raise Difference("split.json does not have the bytes that its seed and shares give")
    if (published / ITEMS).read_bytes() != items_csv(corpus, split):
        raise Difference(f"{ITEMS} does not list the identifiers of this corpus and split")
    return Pool.of(corpus, split, settings.views)


def _check_claims(manifest: Any, settings: Settings, pool: Pool) -> None:
    """Settings that `run` would accept, and a manifest that says what they and the pool give."""
    again = make_settings(
        pool,
        settings.sizes,
        methods=settings.methods,
        seeds=settings.seeds,
        effort=settings.effort,
        gap=settings.gap,
        **settings.posing,
    )
    if not isinstance(settings.version, str):
        raise Difference(f"version in the settings: published {settings.version!r}")
    expected = claims(pool, replace(again, version=settings.version))
    theirs = {name: manifest[name] for name in manifest if name not in ("bounds", "environment")}
    _same(MANIFEST, theirs, expected)


def _same(what: str, published: Any, found: Any) -> None:
    """Of one type and value throughout: 1 is neither 1.0 nor true."""
    if not isinstance(found, dict):
        if json.dumps(published) != json.dumps(found):
            raise Difference(f"{what}: {_apart(str(published), str(found))}")
        return
    if not isinstance(published, dict):
        raise Difference(f"{what}: published {short(published)}, expected several entries")
    if other := sorted({*published} ^ {*found}):
        is_it = "is missing" if other[0] in found else "is not expected"
        raise Difference(f"{what}, {other[0]} {is_it}")
    for name, value in sorted(found.items()):
        if name not in _BY_THE_WAY:
            _same(f"{what}, {name}", published[name], value)
        elif type(published[name]) is not type(value):
            raise Difference(f"{what}, {name}: published {short(published[name])}")


def _apart(published: str, found: str) -> str:
    """Two texts from shortly before the place where they part."""
    pairs = enumerate(zip(published, found, strict=False))
    parted = next((i for i, (a, b) in pairs if a != b), min(len(published), len(found)))
    at = max(0, parted - 30)
    dots = "..." if at else ""
    return f"published {dots}{short(published[at:])}, found {dots}{short(found[at:])}"


def _claimed_bounds(manifest: Any, settings: Settings) -> dict[int, float]:
    entries = manifest["bounds"]
    _same("bounds, k", [entry["k"] for entry in entries], settings.sizes)
    for entry in entries:
        where = f"bound for k = {entry['k']}"
        _same(where, dict.fromkeys(entry), dict.fromkeys(("k", "upper_bound", "by_view", "proof")))
        _same(f"{where}, views", list(entry["by_view"]), settings.views)
        for value in (entry["upper_bound"], *entry["by_view"].values()):
            if not _is_number(value):
                raise Difference(f"{where}: {short(value)} is no number")
    return {entry["k"]: float(entry["upper_bound"]) for entry in entries}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and bool(np.isfinite(float(value)))


# --- results --------------------------------------------------------------------------------------


def _check_results(published: Path, settings: Settings) -> list[Result]:
    """Every selection that the settings ask for, and no other."""
    results = [Result.read(document, RESULTS) for document in _read(published, RESULTS)]
    if len(results) != settings.count:  # before a list is made of what may be a wild number
        raise Difference(
            f"{RESULTS} has {len(results)} selections, the settings ask for {settings.count}"
        )
    for unit, result in zip(settings.units, results, strict=True):
        if json.dumps(unit) != json.dumps(result.unit):
            raise Difference(f"{RESULTS} has {result.unit} where the settings ask for {unit}")
        _check_words(result)
    return results


def _check_words(result: Result) -> None:
    known = isinstance(result.status, str) and result.status in Status.__members__
    if not known or result.status == Status.INTERRUPTED.name:
        raise Difference(f"status of {result.unit}: no selection ends as {short(result.status)!r}")
    if not isinstance(result.notes, list) or not all(isinstance(n, str) for n in result.notes):
        raise Difference(f"notes of {result.unit}: expected a list of sentences")


def _check_score(result: Result, settings: Settings, pool: Pool, bound: float) -> None:
    indices = _positions(result, pool)
    ids = [pool.corpus.ids[row] for row in result.rows]
    for published, found in zip(result.ids, ids, strict=False):
        if published != found:
            raise Difference(f"id in {result.unit}: published {published}, found {found}")
    if len(result.ids) != len(ids):
        raise Difference(f"ids of {result.unit}: published {len(result.ids)}, found {len(ids)}")
    scored = score(pool.views, indices, **settings.posing)
    try:
        again = measures(scored, bound)
    except NumericalError as error:
        raise Difference(f"bound for k = {result.k}, {result.unit}: {error}") from error
    for name, value in again.items():
        _compare(f"{name} of {result.unit}", getattr(result, name), value)
    if result.method == "random":
        _check_draw(result, settings, pool, indices)


def _positions(result: Result, pool: Pool) -> Any:
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


def _compare(what: str, published: Any, found: Any) -> None:
    if isinstance(found, Mapping):
        if not isinstance(published, Mapping) or list(published) != list(found):
            raise Difference(f"{what}: published {short(published)}, found {dict(found)}")
        for name, value in found.items():
            _compare(f"{what}, view {name}", published[name], value)
    elif not _is_number(published) or not abs(published - found) <= TOLERANCE:
        raise Difference(f"{what}: published {short(published)}, found {found!r}")


def _check_draw(result: Result, settings: Settings, pool: Pool, indices: Any) -> None:
    """What is drawn at random is drawn again: its seed is part of what is published."""
    drawn = _select(result, settings, pool, certify=False)
    if sorted(drawn.indices.tolist()) != sorted(indices.tolist()):
        raise Difference(
            f"{result.unit}: the seed draws other items (with NumPy {np.__version__} here)"
        )
    if result.status != drawn.status.name:
        raise Difference(
            f"status of {result.unit}: published {result.status}, but a draw ends as "
            f"{drawn.status.name}"
        )


def _select(result: Result, settings: Settings, pool: Pool, **options: Any) -> Any:
    found = select(
        pool.views,
        result.k,
        method=result.method,
        effort=settings.effort,
        gap=settings.gap,
        random_state=result.seed,
        **options,
        **settings.posing,
    )
    if found.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return found


def _check_tables(published: Path, results: list[Result], settings: Settings) -> str:
    expected = tables(results, settings)
    for name, content in expected.items():
        if (published / name).read_bytes() != content:
            raise Difference(f"{name} does not say what {RESULTS} says")
    return f"tables: {', '.join(expected)} say the same"


def _check_seconds(published: Path, settings: Settings) -> None:
    """They are what a clock said, but both tables say the same, and nothing else."""
    lines = (published / "seconds.csv").read_text(encoding="utf-8").splitlines()[1:]
    values = [float(line.rpartition(",")[2]) for line in lines]
    if not all(0 <= value < math.inf for value in values):
        raise Difference("seconds.csv holds what no clock says")
    seconds = dict(zip(settings.timed, values, strict=True))
    for name, content in tables_of_seconds(seconds, settings).items():
        if (published / name).read_bytes() != content:
            raise Difference(f"{name} does not say the seconds of every selection, or says more")


# --- proofs ---------------------------------------------------------------------------------------


def _check_optima(
    results: Sequence[Result], settings: Settings, pool: Pool, watched: Watched
) -> Iterator[str]:
    """Branch and bound leaves no proof behind: who claims an optimum has it proven again."""
    claimed = [result for result in results if result.status == Status.OPTIMAL.name]
    for k in dict.fromkeys(result.k for result in claimed):
        own = [result for result in claimed if result.k == k]
        with watched() as progress:
            found = _select(own[0], settings, pool, certify=True, progress=progress)
        for result in own:
            proven = found.status is Status.OPTIMAL
            if not proven or not abs(result.fair_score - found.fair_score) <= TOLERANCE:
                raise Difference(
                    f"status of {result.unit}: published OPTIMAL, but the search for it ends as "
                    f"{found.status.name} with a fair score of {found.fair_score!r}"
                )
        yield f"optimum for k = {k}: proven again"


def _check_bound(
    published: Path, entry: Any, settings: Settings, pool: Pool, watched: Watched
) -> str:
    k, name = entry["k"], entry["proof"]
    if name is None:
        return _prove_again(entry, settings, pool, watched)
    if name != f"bounds/k{k}.npz" or not (published / name).is_file():
        raise Difference(f"{name}: expected bounds/k{k}.npz, the proof for this size")
    proof = read_proof(read_archive(str(published / name)))
    posed = pose(pool.views, k, **settings.posing)
    try:
        proof.terms.refuse_other(Terms.of(posed))
    except InputError as error:
        raise Difference(f"{name}: {error}") from error
    _compare(f"bound for k = {k}", entry["upper_bound"], proof.upper_bound)
    _compare(f"bounds of views for k = {k}", entry["by_view"], proof.by_view)
    with np.errstate(all="ignore"):  # a damaged proof may overflow, and then holds for nothing
        verified = verify_bound(pool.views, proof)
    if not verified.holds:
        raise Difference(
            f"bound for k = {k}: published {proof.upper_bound!r}, proven {verified.upper_bound!r}"
        )
    return f"bound for k = {k}: {proof.upper_bound:.6f} follows from its proof"


def _prove_again(entry: Any, settings: Settings, pool: Pool, watched: Watched) -> str:
    """Where a publication has no room for a proof: what cannot be proven is refused. Two machines
    end at different bounds within the gap, so a lower one than ours is tried for once more, with a
    smaller gap."""
    k = entry["k"]
    published = {"all views": entry["upper_bound"], **entry["by_view"]}
    missed: dict[str, float] = {}
    for gap in (settings.gap, settings.gap / _TIGHTER):
        with watched() as progress:
            proven = certify(pool.views, k, gap=gap, progress=progress, **settings.posing)
        if proven.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        bounds = {"all views": proven.upper_bound, **proven.by_view}
        missed = {what: b for what, b in bounds.items() if not published[what] >= b - TOLERANCE}
        if not missed:
            shown = f"{entry['upper_bound']:.6f}"
            return f"bound for k = {k}: {shown} came without its proof; proven again"
    what, bound = next(iter(missed.items()))
    claim = f"published {published[what]!r} without a proof"
    raise Difference(f"bound for k = {k}, {what}: {claim}, proven {bound!r}")
