"""`fairnepv embed`: pictures or texts from anywhere, through an encoder, into one file.

features.npy          (n, p) float32
features.ids.txt      a line for every row
features.json         encoder, version, preprocessing, checksums
features.rejects.csv  what could not be encoded, and why; only where there is something
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairnepv import __version__
from fairnepv.errors import InputError
from fairnepv.studies.contents import pictures_at, texts_at
from fairnepv.studies.corpus import Checksum
from fairnepv.studies.encoders import Encoder
from fairnepv.studies.encoding import (
    Contents,
    Encoded,
    Progress,
    described,
    encode,
    key_of,
    write_whole,
)
from fairnepv.studies.feature_files import Description, describe
from fairnepv.studies.pictures import fault_of


@dataclass(frozen=True)
class Survey:
    """What is there to be encoded."""

    ids: list[str]
    keys: list[str]
    contents: Contents
    rejects: list[tuple[str, str]]


def survey_pictures(images: str, progress: Progress | None = None) -> Survey:
    """Every picture is opened once, so that a bad one is known before the first is encoded."""
    source = pictures_at(images)
    counts, n = Counter(source.ids), len(source.ids)
    kept, keys, rejects = [], [], []
    for i, content in enumerate(source.read(range(n))):
        id = source.ids[i]
        fault = _fault_of_id(id, counts) or _fault(content)
        if fault is None and content is not None:
            kept.append(i)
            keys.append(key_of(content))
        else:
            rejects.append((id, fault or ""))
        if progress is not None:
            progress(i + 1, n)
    ids = [source.ids[i] for i in kept]
    return Survey(ids, keys, lambda places: source.read([kept[i] for i in places]), rejects)


def survey_texts(texts: str, ids: str | None = None) -> Survey:
    table = texts_at(texts, ids)
    named = [id or f"row {i}" for i, id in enumerate(table.ids)]
    counts = Counter(named)
    kept, rejects = [], []
    for id, text in zip(named, table.texts, strict=True):
        fault = _fault_of_id(id, counts) or ("it is empty" if text is None else None)
        if fault is None and text is not None:
            kept.append((id, text))
        else:
            rejects.append((id, fault or ""))
    keys = [key_of(text) for _, text in kept]
    return Survey(
        [id for id, _ in kept], keys, lambda places: (kept[i][1] for i in places), rejects
    )


def embed(
    survey: Survey, encoder: Encoder, out: Path, *, cache: Path, progress: Progress | None = None
) -> tuple[Description, Encoded]:
    """Write the features and what belongs to them; `out` itself comes last."""
    if not survey.ids:
        raise InputError(
            f"none of {len(survey.rejects):,} can be encoded (the first: {survey.rejects[0][1]})"
            if survey.rejects
            else "there is nothing to encode"
        )
    source = Checksum()
    for id, key in zip(survey.ids, survey.keys, strict=True):
        source.add(id, "", key)
    matrix = out.with_name(f".{out.name}.joined")
    encoded = encode(
        survey.contents, survey.keys, encoder, cache=cache, out=matrix, progress=progress
    )
    description = Description(
        view=out.stem,
        shape=encoded.shape,
        dtype="float32",
        corpus=source.hexdigest(),
        checksum=encoded.checksum,
        made_by=f"fairnepv {__version__}",
        **described(encoder),
    )
    write_whole(ids_file(out), "".join(f"{id}\n" for id in survey.ids).encode("utf-8"))
    _write_rejects(rejects_file(out), survey.rejects)
    describe(out.parent, description)
    matrix.replace(out)
    return description, encoded


def ids_file(out: Path) -> Path:
    return out.with_suffix(".ids.txt")


def rejects_file(out: Path) -> Path:
    return out.with_suffix(".rejects.csv")


def _write_rejects(file: Path, rejects: list[tuple[str, str]]) -> None:
    if not rejects:
        file.unlink(missing_ok=True)
        return
    text = io.StringIO()
    rows: Any = csv.writer(text, lineterminator="\n")
    rows.writerow(["id", "reason"])
    rows.writerows(rejects)
    write_whole(file, text.getvalue().encode("utf-8"))


def _fault(content: bytes | None) -> str | None:
    return "it cannot be read" if content is None else fault_of(content)


def _fault_of_id(id: str, counts: Counter[str]) -> str | None:
    if counts[id] > 1:
        return f"{counts[id]} items have this id"
    if id != id.strip() or not id.isprintable():
        return "its id has blanks around it or letters that do not print"
    return None
