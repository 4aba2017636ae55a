"""Whether a publication is what the corpus gives: everything is computed again, nothing trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv.certificate import read_proof
from fairnepv.errors import InputError, NumericalError
from fairnepv.io import read_archive
from fairnepv.pipeline import score, select, verify_bound
from fairnepv.studies.corpus import Corpus
from fairnepv.studies.publication import (
    FORMAT,
    ITEMS,
    MANIFEST,
    RESULTS,
    SUMS,
    items_csv,
    sha256_of,
)
from fairnepv.studies.results import Result, measures
from fairnepv.studies.run_report import tables
from fairnepv.studies.runs import Pool, Settings
from fairnepv.studies.split import read_split

TOLERANCE = 1e-9
_BY_THE_WAY = ("made_by", "details")  # of features: who made the same numbers, and how fast


class Difference(NumericalError):
    """What is published is not what was found."""


def verify(published: Path, corpus: Corpus) -> Iterator[str]:
    """A sentence for everything that was checked; a `Difference` names the first that is not so."""
    try:
        yield from _verify(published, corpus)
    except (KeyError, TypeError, AttributeError) as error:
        raise Difference(f"a document is not as publish writes it ({error!r})") from error


def _verify(published: Path, corpus: Corpus) -> Iterator[str]:
    yield _check_sums(published)
    manifest = _read(published, MANIFEST)
    settings = _settings(manifest)
    yield _check_corpus(manifest, settings, corpus)
    pool = _check_pool(published, manifest, settings, corpus)
    yield f"split: seed {pool.split.seed} gives it; {len(pool.rows):,} items may be selected"
    for view, description in pool.descriptions.items():
        yield f"features of {view}: {description.encoder} {description.version}, same numbers"
    results = _check_results(published, settings)
    bounds = _claimed_bounds(manifest, settings)
    for result in results:
        _check_score(result, settings, pool, bounds[result.k])
    yield f"results: {len(results)} selections scored again, none off by more than {TOLERANCE:g}"
    yield _check_tables(published, results, settings)
    for entry in manifest["bounds"]:
        yield _check_bound(published, entry, settings, pool)


def _check_sums(folder: Path) -> str:
    """Every file that is listed, and no other."""
    file = folder / SUMS
    if not file.is_file():
        raise InputError(
            f"{folder} is no publication: it has no {SUMS}; see fairnepv uspto publish"
        )
    listed: dict[str, str] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if not found:
            raise Difference(f"{SUMS} has a line that is no checksum: {line[:80]!r}")
        listed[found[2]] = found[1]
    present = {f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file()} - {SUMS}
    for name in sorted({*listed, *present}):
        if name not in present:
            raise Difference(f"{name} is missing: {SUMS} lists it")
        if name not in listed:
            raise Difference(f"{name} is not listed in {SUMS}")
        if sha256_of(folder / name) != listed[name]:
            raise Difference(f"{name} does not have the checksum in {SUMS}: it was changed")
    for name in (MANIFEST, RESULTS, ITEMS, "split.json"):
        if name not in listed:
            raise Difference(f"{name} is missing")
    return f"checksums: {len(listed)} files"


def _read(folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / name).read_bytes())
    except ValueError as error:
        raise Difference(f"{name} cannot be read ({error})") from error


def _settings(manifest: Any) -> Settings:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{MANIFEST} has another format than {FORMAT}; use the version it names")
    read: Settings = _as_difference(lambda: Settings.read(manifest.get("settings"), MANIFEST))
    return read


def _check_corpus(manifest: Any, settings: Settings, corpus: Corpus) -> str:
    about = corpus.about
    claims = {
        "corpus checksum": (manifest["corpus"]["checksum"], about.checksum),
        "corpus of the settings": (settings.corpus, about.checksum),
        "name of the corpus": (settings.corpus_name, about.name),
        "whether it is simulated": (manifest["simulated"], about.simulated),
        "whether its corpus is simulated": (manifest["corpus"]["simulated"], about.simulated),
        "whether its settings are simulated": (settings.simulated, about.simulated),
    }
    for what, (published, found) in claims.items():
        if published != found:
            raise Difference(f"{what}: published {published}, found {found}")
    _as_difference(corpus.check)
    return f"corpus: {about.name}, {about.n:,} items, checksum {about.checksum[:12]}"


def _check_pool(published: Path, manifest: Any, settings: Settings, corpus: Corpus) -> Pool:
    split = _as_difference(lambda: read_split(corpus, published / "split.json"))
    for what, claim in (("manifest", manifest["split"]["seed"]), ("settings", settings.split_seed)):
        if claim != split.seed:
            raise Difference(f"split seed in the {what}: published {claim}, found {split.seed}")
    for claim in (manifest["split"]["checksum"], settings.split):
        if claim != split.checksum:
            raise Difference(f"split checksum: published {claim[:12]}, found {split.checksum[:12]}")
    if settings.n != len(split.pool):
        raise Difference(f"selection pool: published {settings.n}, found {len(split.pool)} items")
    if (published / ITEMS).read_bytes() != items_csv(corpus, split):
        raise Difference(f"{ITEMS} does not list the identifiers of this corpus and split")
    pool: Pool = _as_difference(lambda: Pool.of(corpus, split, settings.views))
    for view, description in pool.descriptions.items():
        found = json.loads(json.dumps(asdict(description)))
        claimed = manifest["features"].get(view, {})
        for key, value in found.items():
            if key not in _BY_THE_WAY and claimed.get(key) != value:
                raise Difference(
                    f"features of {view}, {key}: published {claimed.get(key)}, found {value}"
                )
        if settings.features[view] != description.checksum:
            raise Difference(f"features of {view}: the settings have another checksum")
    return pool


def _as_difference(check: Any) -> Any:
    """What is refused as input elsewhere is a difference here."""
    try:
        return check()
    except InputError as error:
        raise Difference(str(error)) from error


def _check_results(published: Path, settings: Settings) -> list[Result]:
    """Every selection that the settings ask for, and no other."""
    documents = _read(published, RESULTS)
    results: list[Result] = _as_difference(lambda: [Result.read(d, RESULTS) for d in documents])
    for unit, result in zip(settings.units, results, strict=False):
        if unit != result.unit:
            raise Difference(f"{RESULTS} has {result.unit} where the settings ask for {unit}")
    if len(results) != len(settings.units):
        raise Difference(
            f"{RESULTS} has {len(results)} selections, the settings ask for {len(settings.units)}"
        )
    return results


def _claimed_bounds(manifest: Any, settings: Settings) -> dict[int, float]:
    bounds = {entry["k"]: float(entry["upper_bound"]) for entry in manifest["bounds"]}
    if list(bounds) != settings.sizes:
        raise Difference(f"bounds: published for k = {list(bounds)}, expected {settings.sizes}")
    return bounds


def _check_score(result: Result, settings: Settings, pool: Pool, bound: float) -> None:
    indices = _positions(result, pool)
    ids = [pool.corpus.ids[row] for row in result.rows]
    for published, found in zip(result.ids, ids, strict=False):
        if published != found:
            raise Difference(f"id in {result.unit}: published {published}, found {found}")
    if len(result.ids) != len(ids):
        raise Difference(f"ids of {result.unit}: published {len(result.ids)}, found {len(ids)}")
    again = measures(score(pool.views, indices, **settings.posing), bound)
    for name, value in again.items():
        _compare(f"{name} of {result.unit}", getattr(result, name), value)
    if result.method == "random":
        _check_draw(result, settings, pool, indices)


def _positions(result: Result, pool: Pool) -> Any:
    """Rows of the corpus as positions in the pool; k different ones."""
    rows = np.array(result.rows)
    if rows.dtype.kind != "i" or len(rows) != result.k:
        raise Difference(f"rows of {result.unit}: expected {result.k} whole numbers")
    outside = np.setdiff1d(rows, pool.rows)
    if len(outside):
        raise Difference(f"row {outside[0]} of {result.unit} is not in the selection pool")
    values, counts = np.unique(rows, return_counts=True)
    if counts.max() > 1:
        raise Difference(f"row {values[counts.argmax()]} of {result.unit} is chosen twice")
    return np.searchsorted(pool.rows, rows)


def _compare(what: str, published: Any, found: Any) -> None:
    if isinstance(found, Mapping):
        if not isinstance(published, Mapping) or list(published) != list(found):
            raise Difference(f"{what}: published {published}, found {dict(found)}")
        for name, value in found.items():
            _compare(f"{what}, view {name}", published[name], value)
    elif not isinstance(published, float | int) or not abs(published - found) <= TOLERANCE:
        raise Difference(f"{what}: published {published!r}, found {found!r}")


def _check_draw(result: Result, settings: Settings, pool: Pool, indices: Any) -> None:
    """What is drawn at random is drawn again: its seed is part of what is published."""
    drawn = select(
        pool.views,
        result.k,
        method=result.method,
        effort=settings.effort,
        certify=False,
        random_state=result.seed,
        **settings.posing,
    )
    if sorted(drawn.indices.tolist()) != sorted(indices.tolist()):
        raise Difference(
            f"{result.unit}: the seed draws other items (with NumPy {np.__version__} here)"
        )


def _check_tables(published: Path, results: list[Result], settings: Settings) -> str:
    expected = tables(results, settings)
    for name, content in expected.items():
        if not (published / name).is_file() or (published / name).read_bytes() != content:
            raise Difference(f"{name} does not say what {RESULTS} says")
    return f"tables: {', '.join(expected)} say the same"


def _check_bound(published: Path, entry: Any, settings: Settings, pool: Pool) -> str:
    k, name = entry["k"], entry["proof"]
    if name is None:
        return f"bound for k = {k}: its proof was too large to publish; not checked"
    if name != f"bounds/k{k}.npz" or not (published / name).is_file():
        raise Difference(f"{name}: expected bounds/k{k}.npz, the proof for this size")
    proof = _as_difference(lambda: read_proof(read_archive(str(published / name))))
    terms = proof.terms
    claims = {"k": (terms.k, k), "tau": (terms.tau, settings.tau)}
    claims["calibration"] = (terms.calibration.rule, settings.calibration)
    claims["eps"] = (dict(terms.eps), dict.fromkeys(settings.views, settings.eps))
    if terms.constraints or terms.priorities is not None:
        raise Difference(f"{name} is about a constrained problem")
    for what, (published_value, expected) in claims.items():
        if published_value != expected:
            raise Difference(f"{what} in {name}: published {published_value}, expected {expected}")
    _compare(f"bound for k = {k}", entry["upper_bound"], proof.upper_bound)
    _compare(f"bounds of views for k = {k}", entry["by_view"], proof.by_view)
    verified = _as_difference(lambda: verify_bound(pool.views, proof))
    if not verified.holds:
        raise Difference(
            f"bound for k = {k}: published {proof.upper_bound!r}, proven {verified.upper_bound!r}"
        )
    return f"bound for k = {k}: {proof.upper_bound:.6f} follows from its proof"
