"""Bulk files and logo images to a corpus, with a count of everything that was left out.

Three steps, each of which finds what it had done before it was interrupted: every file is read into
a part; every batch of latest records is checked against the rules and its images; then all is
written in the order of the files. Only the last step knows duplicates.
"""

from __future__ import annotations

import functools
import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairnepv.data import has_words
from fairnepv.errors import InputError
from fairnepv.io.places import fingerprint
from fairnepv_studies import making
from fairnepv_studies.corpus import About
from fairnepv_studies.files import local
from fairnepv_studies.making import (
    PIXELS,
    Verdict,
    Verdicts,
    move_in,
    reject,
    verdict_on,
    working,
    writing,
)
from fairnepv_studies.progress import StageProgress
from fairnepv_studies.uspto import cleaning, images, parts
from fairnepv_studies.uspto.images import Images, open_images
from fairnepv_studies.uspto.parts import Part, latest_rows, read_part

MIN_WORDS, MAX_WORDS = 40, 100

# Reasons, in the order in which they are looked for, and what the funnel calls those that remain.
STEPS = {
    "malformed": "well-formed, with a serial number",
    "superseded": "latest transaction of a serial number",
    "no description": "with a mark description",
    "too short": "of enough words",
    "too long": "of not too many words",
    "no words": "with words of more than one letter",  # others say nothing to TF-IDF
    "no image": "with an image",
    "several images": "with one image only",
    "unreadable image": "image readable",
    "duplicate image": "image not seen before",
    "duplicate text": "text not seen before",
}
_COLUMNS = [
    ("mark", pa.string()),
    ("drawing_code", pa.string()),
    ("filing_date", pa.string()),
    ("transaction_date", pa.int32()),
    ("design_codes", pa.list_(pa.string())),
    ("source", pa.string()),
]


@dataclass(frozen=True)
class Words:
    """How long a description has to be."""

    least: int = MIN_WORDS
    most: int = MAX_WORDS

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise InputError(
                f"words must be at least 1 and at most some larger number, not {self.least} to "
                f"{self.most}; see --min-words and --max-words"
            )


def ingest(
    files: Sequence[str | Path],
    logos: str,
    out: str | Path,
    *,
    words: Words | None = None,
    force: bool = False,
    progress: StageProgress = lambda *_: None,
) -> About:
    """Make the corpus `out`; started again after an interruption it goes on and ends the same."""
    words, folder, bulk = words or Words(), local(out), list(map(local, files))
    for path in bulk:
        if not path.is_file():
            raise InputError(f"{path} is no file; give bulk XML, plain, .gz or .zip")
    with open_images(logos) as pictures:
        sources = [*map(fingerprint, bulk), pictures.about]
        versions = [parts.VERSION, cleaning.VERSION, making.VERSION]
        settings = [*versions, images.RULES, vars(words), sources, logos]
        with working(folder, settings, force=force) as work:
            found = _read_files(bulk, sources[:-1], work, progress)
            checks = Checks(found, pictures, words, work)
            checks.run(progress)
            about = _write(checks, work, sources, progress)
            move_in(work, folder)
    return about


def _read_files(
    files: Sequence[Path], sources: Sequence[dict[str, Any]], work: Path, progress: StageProgress
) -> list[Part]:
    total, before, found = sum(source["bytes"] for source in sources), 0, []
    for path, source in zip(files, sources, strict=True):

        def listen(done: int, before: int = before) -> None:
            progress("reading XML", before + done, total)

        found.append(read_part(path, source["sha256"], work, listen))
        before += source["bytes"]
        progress("reading XML", before, total)
    return found


class Checks:
    """For every record whether it qualifies, batch by batch."""

    def __init__(self, of: list[Part], pictures: Images, words: Words, work: Path) -> None:
        self.parts, self.pictures, self.words = of, pictures, words
        self.latest = latest_rows(of)
        self.total = sum(len(rows) for rows in self.latest)
        self.verdicts = Verdicts(work)
        self.simulated = any(part.simulated for part in of)

    def run(self, progress: StageProgress) -> None:
        done = 0
        for name, _, rows, latest in self._batches():
            self.verdicts.make(name, functools.partial(self._judge, rows, latest))
            done += len(rows)
            progress("images", done, self.total)

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any], Verdict]]:
        """Source, record and verdict, in the order of the files."""
        for name, part, rows, _ in self._batches():
            for row, verdict in zip(rows, self.verdicts.read(name), strict=True):
                yield part.source, row, verdict

    def _batches(self) -> Iterator[tuple[str, Part, list[dict[str, Any]], NDArray[np.bool_]]]:
        for p, (part, latest) in enumerate(zip(self.parts, self.latest, strict=True)):
            start = 0
            for b, rows in enumerate(part.batches()):
                yield f"{p:05}-{b:06}", part, rows, latest[start : start + len(rows)]
                start += len(rows)

    def _judge(self, rows: list[dict[str, Any]], latest: NDArray[np.bool_]) -> list[Verdict]:
        pairs = zip(rows, latest, strict=True)
        return [self._check(row, bool(is_latest)) for row, is_latest in pairs]

    def _check(self, row: dict[str, Any], latest: bool) -> Verdict:
        if row["malformed"] is not None:
            return reject("malformed", row["malformed"])
        if not latest:
            return reject("superseded", f"transaction of {row['transaction_date']}")
        if row["description"] is None:
            return reject("no description")
        text = cleaning.clean(row["description"])
        count = cleaning.count_words(text)
        if count < self.words.least:
            return reject("too short", f"{count} words")
        if count > self.words.most:
            return reject("too long", f"{count} words")
        if not has_words(text):
            return reject("no words")
        return {"text": text, "words": count, **self._check_image(row["serial"])}

    def _check_image(self, serial: str) -> Verdict:
        places = self.pictures.places_of(serial)
        if not places:
            return reject("no image")
        if len(places) > 1:
            labels = (self.pictures.pictures.label(place) for place in places)
            return reject("several images", ", ".join(labels))
        return verdict_on(self.pictures.of(serial), pixels=self.simulated)


def _write(
    checks: Checks, work: Path, sources: list[dict[str, Any]], progress: StageProgress
) -> About:
    """Items, images and rejects into the work folder, and what corpus.json says last."""
    columns = [*_COLUMNS, PIXELS] if checks.simulated else _COLUMNS
    if checks.simulated:
        sources = [*sources[:-1], images.source_by_names(checks.pictures.pictures)]
    with writing(work, columns) as writer:
        for done, (source, row, verdict) in enumerate(_without_duplicates(checks), 1):
            if verdict["reason"] is not None:
                writer.reject(source, row["serial"], verdict)
            else:
                writer.add(_item(source, row, verdict), checks.pictures.of(row["serial"]))
            if done % 1000 == 0 or done == checks.total:
                progress("writing", done, checks.total)
        return writer.finish(
            kind="uspto",
            simulated=checks.simulated,
            sources=sources,
            rules={
                **cleaning.RULES,
                **images.RULES,
                "length": f"{checks.words.least} to {checks.words.most} words",
                "transactions": "the latest transaction date of a serial number, then the last in "
                "the order of the files",
            },
            funnel=_funnel(checks.total, writer.reasons),
        )


def _without_duplicates(
    checks: Checks,
) -> Iterator[tuple[str, dict[str, Any], Verdict]]:
    """The same rows, where what an earlier item has already been is rejected."""
    repeated = _repeated(checks.verdicts)
    seen: dict[tuple[str, bytes], int] = {}  # of what is there more than once
    for source, row, verdict in checks:
        if verdict["reason"] is None:
            keys = [key for key in _keys(verdict) if _short(key) in repeated]
            earlier = next((key for key in keys if key in seen), None)
            if earlier is not None:
                verdict = reject(f"duplicate {earlier[0]}", f"as {seen[earlier]:08}")
            else:
                seen.update(dict.fromkeys(keys, int(row["serial"])))
        yield source, row, verdict


def _keys(verdict: Verdict) -> list[tuple[str, bytes]]:
    """By which items are the same, in the order in which that is looked for."""
    text = hashlib.sha256(verdict["text"].encode()).digest()
    return [("image", bytes.fromhex(verdict["image_sha256"])), ("text", text)]


def _short(key: tuple[str, bytes]) -> int:
    return int.from_bytes(key[1][:8], "little")


def _repeated(verdicts: Verdicts) -> set[int]:
    """Beginnings of checksums that come more than once: few, while all would fill the memory."""
    found = array("Q")
    for verdict in verdicts:
        if verdict["reason"] is None:
            found.extend(map(_short, _keys(verdict)))
    ordered = np.sort(np.frombuffer(found, np.uint64)) if found else np.zeros(0, np.uint64)
    return set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())


def _item(source: str, row: dict[str, Any], check: Verdict) -> dict[str, Any]:
    taken = ("mark", "drawing_code", "filing_date", "transaction_date", "design_codes")
    measured = ("text", "words", "image_sha256", "width", "height", PIXELS[0])
    return {
        "id": row["serial"],
        "original": row["description"],
        "source": source,
        **{name: row[name] for name in taken},
        **{name: check[name] for name in measured},
    }


def _funnel(total: int, counts: Counter[str]) -> list[list[Any]]:
    steps: list[list[Any]] = [["case files read", total]]
    for reason, remaining in STEPS.items():
        steps.append([remaining, steps[-1][1] - counts[reason]])
    return steps
