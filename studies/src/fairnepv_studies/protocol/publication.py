"""What a run publishes, so that anybody with the corpus can check it [FairNEPv, section 6.1].

published/
  manifest.json     what it is, of which corpus and features, settings, bounds, environment
  items.csv         every joined identifier with its part: validation, test or pool
  split.json        seed, shares and the split that they give
  results.json      per selector, size and seed: chosen rows and ids, scores, bound
  results.csv, results.tex, selections.csv, seconds.csv, views.png, efficiency.png
  bounds/           the proofs, where they are small
  features/         the views as they were, if asked for
  SHA256SUMS        of all these files, as `sha256sum -c` reads it
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.places import real_path, sha256_of
from fairnepv.io.write import to_json
from fairnepv_studies.corpus import About, Corpus
from fairnepv_studies.feature_files import FOLDER as FEATURES
from fairnepv_studies.feature_files import feature_file
from fairnepv_studies.files import csv_content
from fairnepv_studies.protocol.pool import SelectionPool
from fairnepv_studies.protocol.report import write_report
from fairnepv_studies.protocol.run import Run
from fairnepv_studies.protocol.settings import Settings
from fairnepv_studies.protocol.split import Split

FORMAT = 1
MANIFEST, RESULTS, ITEMS, SUMS = "manifest.json", "results.json", "items.csv", "SHA256SUMS"
COPIED = (
    *("results.csv", "results.tex", "selections.csv", "seconds.csv", "seconds.tex"),
    *("views.png", "efficiency.png"),
)
_LARGEST_PROOF = 32 * 2**20  # bytes


def publish(
    run: Run, pool: SelectionPool, out: Path, *, force: bool = False, features: bool = False
) -> list[str]:
    """The folder, whole or not at all; names of its files.

    Not by `io.atomic.whole_folder`: after a kill the old folder must be found again, so what stands
    beside it has names that the next call knows.
    """
    _refuse(run, pool)
    target = real_path(out)
    if not target.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist; make it first")
    new, old = (target.with_name(f".{target.name}.{what}") for what in ("new", "old"))
    _put_back(old, target)
    if os.path.lexists(target) and not (force and (target / MANIFEST).is_file()):
        hint = "add --force to replace it" if (target / MANIFEST).is_file() else "name another one"
        raise InputError(f"{out} exists already; {hint}")
    write_report(run)
    _remove(new, old)
    try:
        _fill(new, run, pool)
        if features:
            _add_features(new, pool)
        (new / SUMS).write_text(sums(new), encoding="utf-8")
        if target.exists():
            target.replace(old)
        new.replace(target)
    finally:
        _put_back(old, target)
        _remove(new)
    _remove(old)
    return sorted(file.relative_to(target).as_posix() for file in _files(target))


def _put_back(old: Path, target: Path) -> None:
    """Where something came between the two moves that replace a publication."""
    if old.is_dir() and not target.exists():
        old.replace(target)


def _remove(*folders: Path) -> None:
    for folder in folders:
        if folder.is_dir():
            shutil.rmtree(folder)


def _refuse(run: Run, pool: SelectionPool) -> None:
    """A run that is of another corpus, split or features by now, or not complete."""
    settings = run.settings
    now = {view: description.checksum for view, description in pool.descriptions.items()}
    changed = [
        what
        for what, then, here in (
            ("corpus", settings.corpus, pool.corpus.about.checksum),
            ("split", settings.split, pool.split.checksum),
            ("features", settings.features, now),
        )
        if then != here
    ]
    if changed:
        raise InputError(
            f"the {changed[0]} changed since the run in {run.folder}; run again under another name"
        )
    run.check_complete()


def _fill(folder: Path, run: Run, pool: SelectionPool) -> None:
    (folder / "bounds").mkdir(parents=True)
    for name in COPIED:
        shutil.copyfile(run.folder / name, folder / name)
    sizes = {k: run.bound_file(k).stat().st_size for k in run.settings.sizes}
    for k in [k for k, size in sizes.items() if size <= _LARGEST_PROOF]:
        shutil.copyfile(run.bound_file(k), folder / "bounds" / f"k{k}.npz")
    results = [result.record for result in run.results]
    documents = {MANIFEST: manifest(run, pool, sizes), RESULTS: results}
    for name, document in documents.items():
        (folder / name).write_text(to_json(document) + "\n", encoding="utf-8")
    (folder / "split.json").write_bytes(pool.split.content)
    (folder / ITEMS).write_bytes(items_csv(pool.corpus, pool.split))


def _add_features(folder: Path, pool: SelectionPool) -> None:
    """The files that were selected by, with a row for every item of the corpus."""
    (folder / FEATURES).mkdir()
    for view in pool.views:
        file = feature_file(pool.corpus.folder / FEATURES, view)
        shutil.copyfile(file, folder / FEATURES / file.name)


def manifest(run: Run, pool: SelectionPool, proof_sizes: dict[int, int]) -> dict[str, Any]:
    return {
        **claims(pool, run.settings),
        "bounds": [_bound(run, k, size) for k, size in proof_sizes.items()],
        "environment": run.environments,
    }


def claims(pool: SelectionPool, settings: Settings) -> dict[str, Any]:
    """All of the manifest that corpus, split, features and settings decide."""
    return {
        "format": FORMAT,
        "what": f"selections by the protocol of FairNEPv, section 6: {settings.caption}",
        "simulated": pool.corpus.about.simulated,
        "corpus": corpus_record(pool.corpus.about),
        "features": {view: asdict(d) for view, d in pool.descriptions.items()},
        "split": {"seed": pool.split.seed, "checksum": pool.split.checksum},
        "settings": asdict(settings),
    }


def corpus_record(about: About) -> dict[str, Any]:
    """Sources by their names alone: where they lay is nobody's business."""
    sources = [{**s, "name": PurePath(str(s.get("name", ""))).name} for s in about.sources]
    by_pixels = {"images_by": about.images_by} if about.images_by != "bytes" else {}
    return {
        "name": about.name,
        "kind": about.kind,
        "simulated": about.simulated,
        "items": about.n,
        "checksum": about.checksum,
        "sources": sources,
        "rules": about.rules,
        "funnel": about.funnel,
        "made_by": about.made_by,
        "notes": about.notes,
        **by_pixels,
    }


def _bound(run: Run, k: int, size: int) -> dict[str, Any]:
    proof = run.proof(k)
    return {
        "k": k,
        "upper_bound": proof.upper_bound,
        "by_view": dict(proof.by_view),
        "proof": f"bounds/k{k}.npz" if size <= _LARGEST_PROOF else None,
    }


def items_csv(corpus: Corpus, split: Split) -> bytes:
    """Every item with the part that it is in; items of the register have a serial number for id."""
    parts = {row: part for part, rows in split.parts.items() for row in rows.tolist()}
    register = corpus.about.kind == "uspto"
    ids = enumerate(corpus.ids)
    rows = ([row, id, id if register else "", parts[row]] for row, id in ids)
    return csv_content(["row", "id", "serial_number", "part"], rows)


def sums(folder: Path) -> str:
    """A line per file, in order of their names."""
    names = sorted(file.relative_to(folder).as_posix() for file in _files(folder))
    return "".join(f"{sha256_of(folder / name)}  {name}\n" for name in names if name != SUMS)


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]
