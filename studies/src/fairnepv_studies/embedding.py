"""`fairnepv embed`: pictures or texts from anywhere, through an encoder, into one file.

features.npy          (n, p) float32
features.ids.txt      a line for every row
features.json         encoder, version, preprocessing, checksums
features.rejects.csv  what could not be encoded, and why; only where there is something
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairnepv import __version__
from fairnepv.errors import InputError
from fairnepv_studies.corpus import REJECT_COLUMNS, Checksum
from fairnepv_studies.encoders import Encoder
from fairnepv_studies.encoding import Contents, Encoded, described, encode, key_of
from fairnepv_studies.feature_files import Description, describe
from fairnepv_studies.files import csv_content, write_whole
from fairnepv_studies.making import Verdict, reject, verdict_on
from fairnepv_studies.progress import RowProgress
from fairnepv_studies.stores import Pictures, open_pictures
from fairnepv_studies.texts import texts_at


@dataclass(frozen=True)
class Survey:
    """What is there to be encoded."""

    ids: list[str]
    keys: list[str]
    contents: Contents
    rejects: list[tuple[str, str, str, str]]  # `REJECT_COLUMNS`

    @property
    def checksum(self) -> str:
        found = Checksum()
        for id, key in zip(self.ids, self.keys, strict=True):
            found.add(id, "", key)
        return found.hexdigest()


@contextlib.contextmanager
def survey_pictures(images: str, progress: RowProgress | None = None) -> Iterator[Survey]:
    """Every picture is opened once, so that a bad one is known before the first is encoded."""
    with open_pictures(images) as pictures:
        counts, n = Counter(pictures.ids), len(pictures.ids)
        kept, keys, rejects = [], [], []
        for i, id in enumerate(pictures.ids):
            found = _fault_of_id(id, counts) or verdict_on(pictures.fetch(i))
            if "reason" in found:
                rejects.append((Path(images).name, id, found["reason"], found["detail"]))
            else:
                kept.append(i)
                keys.append(found["image_sha256"])
            if progress is not None:
                progress(i + 1, n)
        ids = [pictures.ids[i] for i in kept]
        yield Survey(ids, keys, lambda places: _fetched(pictures, kept, places), rejects)


def _fetched(
    pictures: Pictures, kept: Sequence[int], places: Sequence[int]
) -> Iterator[bytes | str]:
    return (pictures.fetch(kept[i]) for i in places)


def survey_texts(texts: str, ids: str | None = None) -> Survey:
    table = texts_at(texts, ids)
    named = [id or f"row {i}" for i, id in enumerate(table.ids)]
    counts = Counter(named)
    kept, rejects = [], []
    for id, text in zip(named, table.texts, strict=True):
        found = _fault_of_id(id, counts)
        if found is None and text is not None:
            kept.append((id, text))
        else:
            found = found or reject("no text", "its cell is empty")
            rejects.append((table.path.name, id, found["reason"], found["detail"]))
    keys = [key_of(text) for _, text in kept]
    return Survey(
        [id for id, _ in kept], keys, lambda places: (kept[i][1] for i in places), rejects
    )


def embed(
    survey: Survey, encoder: Encoder, out: Path, *, cache: Path, progress: RowProgress | None = None
) -> tuple[Description, Encoded]:
    """Write the features and what belongs to them; `out` itself comes last."""
    if not survey.ids:
        raise InputError(
            f"none of {len(survey.rejects):,} can be encoded (the first: {survey.rejects[0][3]})"
            if survey.rejects
            else "there is nothing to encode"
        )
    matrix = joined_file(out)
    encoded = encode(
        survey.contents, survey.keys, encoder, cache=cache, out=matrix, progress=progress
    )
    description = Description(
        view=out.stem,
        shape=encoded.shape,
        dtype="float32",
        corpus=survey.checksum,
        checksum=encoded.checksum,
        made_by=f"fairnepv {__version__}",
        **described(encoder),
    )
    write_whole(ids_file(out), "".join(f"{id}\n" for id in survey.ids).encode("utf-8"))
    _write_rejects(rejects_file(out), survey.rejects)
    describe(out.parent, description)
    matrix.replace(out)
    return description, encoded


def check_room(out: Path, *, force: bool) -> None:
    """Refuse to replace what stands where files of `out` go. Those of a run that was stopped among
    its last steps are its own, as the matrix shows that it had joined before."""
    if force or joined_file(out).exists():
        return
    for file in (ids_file(out), rejects_file(out), out.with_suffix(".json")):
        if os.path.lexists(file):
            raise InputError(
                f"{file} exists already and would be replaced; add --force, or name another file"
            )


def joined_file(out: Path) -> Path:
    return out.with_name(f".{out.name}.joined")


def ids_file(out: Path) -> Path:
    return out.with_suffix(".ids.txt")


def rejects_file(out: Path) -> Path:
    return out.with_suffix(".rejects.csv")


def _write_rejects(file: Path, rejects: list[tuple[str, str, str, str]]) -> None:
    if rejects:
        write_whole(file, csv_content(REJECT_COLUMNS, rejects))
    else:
        file.unlink(missing_ok=True)


def _fault_of_id(id: str, counts: Counter[str]) -> Verdict | None:
    if counts[id] > 1:
        return reject("duplicate", f"{counts[id]} items have this id")
    if not id or id != id.strip() or not id.isprintable():
        return reject("bad id", "it is empty, has blanks around it or letters that do not print")
    return None
