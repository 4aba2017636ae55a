"""Corpora of other sources in the same folder format: OpenMoji, and a folder of images with a table
of texts. An item that cannot be used is counted and listed, and never stops the others."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import pyarrow as pa

from fairnepv.data import has_words, openmoji
from fairnepv.errors import InputError
from fairnepv.io.places import fingerprint
from fairnepv_studies.corpus import About
from fairnepv_studies.files import local
from fairnepv_studies.making import (
    ROWS,
    Verdict,
    Verdicts,
    Writer,
    move_in,
    reject,
    verdict_on,
    working,
    writing,
)
from fairnepv_studies.pictures import RULE
from fairnepv_studies.progress import RowProgress
from fairnepv_studies.stores import Pictures, open_pictures, without_ending
from fairnepv_studies.texts import Texts, texts_at

_CREDITS = (
    "All emojis designed by OpenMoji, the open-source emoji and icon project: CC-BY-SA-4.0; "
    "keywords: Unicode CLDR, Unicode-3.0."
)
_RULES = {"texts": ["Unicode NFC", "runs of white space become one blank"], "images": RULE}


@dataclass(frozen=True)
class Candidate:
    place: int  # of its image
    id: str
    original: str
    more: Mapping[str, str] = field(default_factory=dict)


def ingest_openmoji(out: str | Path, *, force: bool = False) -> About:
    """The pictograms that come with the package."""
    folder, pool = local(out), openmoji()
    content = resources.files("fairnepv.data").joinpath("openmoji.parquet").read_bytes()
    about = {
        "name": "openmoji.parquet",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    ids = pool.ids.tolist()
    pictures = Pictures(ids, ids.__getitem__, pool.pictures.__getitem__, lambda: about)
    columns = zip(pool.ids, pool.keywords, pool.titles, pool.groups, strict=True)
    candidates = [
        Candidate(i, str(id), text, {"mark": str(title), "group": str(group)})
        for i, (id, text, title, group) in enumerate(columns)
    ]
    more = [("mark", pa.string()), ("group", pa.string())]
    with working(folder, [_RULES, about], force=force) as work:
        verdicts = Verdicts(work)
        with writing(work, more) as writer:
            _judge(candidates, pictures, verdicts)
            _write(candidates, pictures, verdicts, writer)
            steps = [["pictograms with keywords", len(pool.ids)], ["with a usable image", writer.n]]
            found = writer.finish(
                kind="openmoji",
                simulated=False,
                sources=[about],
                rules={**_RULES, "rejects": dict(sorted(writer.reasons.items()))},
                funnel=steps,
                notes=[_CREDITS],
            )
        move_in(work, folder)
    return found


def ingest_folder(
    images: str,
    texts: str,
    out: str | Path,
    *,
    ids: str | None = None,
    force: bool = False,
    progress: RowProgress | None = None,
) -> About:
    """Images (DIR, ZIP, TAR or PARQUET:COLUMN) with texts (TABLE[:COLUMN]), joined by id: that of
    the table, and the path of an image within its folder without its ending. Started again after
    an interruption it goes on and ends the same."""
    folder, table = local(out), texts_at(texts, ids)
    with open_pictures(images) as pictures:
        sources = [fingerprint(table.path), pictures.about]
        settings = [_RULES, sources, str(images), str(texts), ids]
        with working(folder, settings, force=force) as work:
            with writing(work, []) as writer:
                matched = _match(pictures, table, writer)
                verdicts = Verdicts(work)
                _judge(matched, pictures, verdicts, progress)
                _write(matched, pictures, verdicts, writer)
                _refuse_none(writer)
                about = writer.finish(
                    kind="folder",
                    simulated=False,
                    sources=sources,
                    rules={**_RULES, "rejects": dict(sorted(writer.reasons.items()))},
                    funnel=[
                        ["rows of the table", len(table.ids)],
                        ["with a text and an image", len(matched)],
                        ["with a usable image", writer.n],
                    ],
                )
            move_in(work, folder)
    return about


def _refuse_none(writer: Writer) -> None:
    if not writer.n:
        reasons = ", ".join(f"{n:,} {why}" for why, n in sorted(writer.reasons.items()))
        raise InputError(f"no item qualifies ({reasons or 'there are none'}); check the ids")


def _match(pictures: Pictures, table: Texts, writer: Writer) -> list[Candidate]:
    """Pairs in the order of the images; everything else is rejected, with its reason."""
    counts = Counter(pictures.ids)
    places = {id: i for i, id in enumerate(pictures.ids)}
    said: set[str] = set()
    found: dict[str, Candidate] = {}
    for row, (given, text) in enumerate(zip(table.ids, table.texts, strict=True)):
        id = without_ending(given.strip()) if given else ""
        verdict = _verdict_on_row(id, text, found, counts)
        if verdict is not None:
            writer.reject(table.path.name, id or f"row {row}", verdict)
        else:
            assert text is not None
            found[id] = Candidate(places[id], id, text)
        said.add(id)
    for id in counts:
        if id not in said:
            orphan = reject("no text", "an image that the table does not have")
            writer.reject(pictures.about["name"], id, orphan)
    return sorted(found.values(), key=lambda candidate: candidate.place)


def _verdict_on_row(
    id: str, text: str | None, found: Mapping[str, Candidate], counts: Counter[str]
) -> Verdict | None:
    """Why a row of the table is no candidate."""
    if not id:
        return reject("no id")
    if id in found:
        return reject("duplicate", "of an earlier row")
    if text is None:
        return reject("no text")
    if not counts[id]:
        return reject("no image")
    return reject("several images", f"{counts[id]} of them") if counts[id] > 1 else None


def _judge(
    candidates: Sequence[Candidate],
    pictures: Pictures,
    verdicts: Verdicts,
    progress: RowProgress | None = None,
) -> None:
    for name, start, batch in _batches(candidates):

        def judge(batch: Sequence[Candidate] = batch, start: int = start) -> list[Verdict]:
            made = []
            for done, candidate in enumerate(batch, start + 1):
                made.append(_verdict(candidate, pictures))
                if progress is not None:
                    progress(done, len(candidates))
            return made

        verdicts.make(name, judge)


def _write(
    candidates: Sequence[Candidate], pictures: Pictures, verdicts: Verdicts, writer: Writer
) -> None:
    for name, _, batch in _batches(candidates):
        for candidate, verdict in zip(batch, verdicts.read(name), strict=True):
            if verdict["reason"] is not None:
                writer.reject(str(pictures.about["name"]), candidate.id, verdict)
            else:
                row = {"id": candidate.id, "original": candidate.original, **candidate.more}
                writer.add({**row, **verdict}, pictures.fetch(candidate.place))


def _batches(candidates: Sequence[Candidate]) -> Iterator[tuple[str, int, Sequence[Candidate]]]:
    for start in range(0, len(candidates), ROWS):
        yield f"{start:09}", start, candidates[start : start + ROWS]


def _verdict(candidate: Candidate, pictures: Pictures) -> Verdict:
    text = clean(candidate.original)
    if not has_words(text):
        return reject("no words", "of more than one letter")
    on_image = verdict_on(pictures.fetch(candidate.place))
    return {"text": text, "words": len(text.split()), **on_image}


def clean(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
