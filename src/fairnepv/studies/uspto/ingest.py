"""Bulk files and logo images to a corpus, with a count of everything that was left out.

Three steps, each of which finds what it had done before it was interrupted: every file is read into
a part; every batch of latest records is checked against the rules and its images; then all is
written in the order of the files. Only the last step knows duplicates.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairnepv import __version__
from fairnepv.errors import InputError
from fairnepv.studies.corpus import (
    ABOUT,
    IMAGES,
    IMAGES_PER_GROUP,
    ITEMS,
    REJECTS,
    About,
    Checksum,
)
from fairnepv.studies.uspto import cleaning, images, parts
from fairnepv.studies.uspto.documents import fingerprint
from fairnepv.studies.uspto.images import Images, check_image, open_images
from fairnepv.studies.uspto.parts import Part, latest_rows, read_part

MIN_WORDS, MAX_WORDS = 40, 100
WORK = ".ingest"  # parts and checks, inside of the corpus; gone when it is whole

# Reasons, in the order in which they are looked for, and what the funnel calls those that remain.
STEPS = {
    "malformed": "well-formed, with a serial number",
    "superseded": "latest transaction of a serial number",
    "no description": "with a mark description",
    "too short": "of enough words",
    "too long": "of not too many words",
    "no image": "with an image",
    "several images": "with one image only",
    "unreadable image": "image readable",
    "duplicate image": "image not seen before",
    "duplicate text": "text not seen before",
}
Progress = Callable[[str, int, int], None]  # stage, done, of


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
    files: Sequence[Path],
    image_path: Path,
    out: Path,
    *,
    words: Words | None = None,
    force: bool = False,
    progress: Progress = lambda *_: None,
) -> About:
    """Make the corpus `out`; started again after an interruption it goes on and ends the same."""
    words = words or Words()
    work = _prepare(out, force)
    found = _read_files(files, work, progress)
    with open_images(image_path) as pictures:
        sources = [*(source for source, _ in found), pictures.about]
        checks = Checks([part for _, part in found], pictures, words, work, sources)
        checks.run(progress)
        about = _write(checks, work, sources, progress)
    _move_in(work, out)
    return about


def _prepare(out: Path, force: bool) -> Path:
    """The work folder; a finished corpus is only replaced when that was asked for."""
    work = out / WORK
    if (out / ABOUT).exists() and not work.exists() and not force:
        raise InputError(f"{out} is a corpus already; add --force to replace it, or name another")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder for the corpus")
    work.mkdir(parents=True, exist_ok=True)
    return work


def _read_files(
    files: Sequence[Path], work: Path, progress: Progress
) -> list[tuple[dict[str, Any], Part]]:
    sources = [fingerprint(path) for path in files]
    total, before, found = sum(source["bytes"] for source in sources), 0, []
    for path, source in zip(files, sources, strict=True):

        def listen(done: int, before: int = before) -> None:
            progress("reading XML", before + done, total)

        found.append((source, read_part(path, source["sha256"], work, listen)))
        before += source["bytes"]
        progress("reading XML", before, total)
    return found


class Checks:
    """For every record whether it qualifies, batch by batch, kept in files."""

    _SCHEMA = pa.schema(
        [
            ("reason", pa.string()),
            ("detail", pa.string()),
            ("text", pa.string()),
            ("words", pa.int32()),
            ("image_sha256", pa.string()),
            ("width", pa.int32()),
            ("height", pa.int32()),
        ]
    )

    def __init__(
        self,
        of: list[Part],
        pictures: Images,
        words: Words,
        work: Path,
        sources: list[dict[str, Any]],
    ) -> None:
        self.parts, self.pictures, self.words = of, pictures, words
        self.latest = latest_rows(of)
        self.total = sum(len(rows) for rows in self.latest)
        settings = [parts.VERSION, cleaning.VERSION, images.RULES, vars(words), sources]
        key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        self._folder = work / f"checks-{key[:32]}"

    def run(self, progress: Progress) -> None:
        self._folder.mkdir(exist_ok=True)
        done = 0
        for name, _, rows, latest in self._batches():
            target = self._folder / name
            if not target.exists():
                made = [
                    self._check(row, bool(is_latest))
                    for row, is_latest in zip(rows, latest, strict=True)
                ]
                beside = target.with_suffix(".unfinished")
                pq.write_table(pa.Table.from_pylist(made, schema=self._SCHEMA), beside)
                os.replace(beside, target)
            done += len(rows)
            progress("images", done, self.total)

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Source, record and check, in the order of the files."""
        for name, part, rows, _ in self._batches():
            checks = pq.read_table(self._folder / name).to_pylist()
            for row, check in zip(rows, checks, strict=True):
                yield part.source, row, check

    def _batches(self) -> Iterator[tuple[str, Part, list[dict[str, Any]], NDArray[np.bool_]]]:
        for p, (part, latest) in enumerate(zip(self.parts, self.latest, strict=True)):
            start = 0
            for b, rows in enumerate(part.batches()):
                yield f"{p:05}-{b:06}.parquet", part, rows, latest[start : start + len(rows)]
                start += len(rows)

    def _check(self, row: dict[str, Any], latest: bool) -> dict[str, Any]:
        if row["malformed"] is not None:
            return {"reason": "malformed", "detail": row["malformed"]}
        if not latest:
            return {"reason": "superseded", "detail": f"transaction of {row['transaction_date']}"}
        if row["description"] is None:
            return {"reason": "no description", "detail": ""}
        text = cleaning.clean(row["description"])
        count = cleaning.count_words(text)
        if count < self.words.least:
            return {"reason": "too short", "detail": f"{count} words"}
        if count > self.words.most:
            return {"reason": "too long", "detail": f"{count} words"}
        return {"text": text, "words": count, **self._check_image(row["serial"])}

    def _check_image(self, serial: str) -> dict[str, Any]:
        if int(serial) not in self.pictures.where:
            return {"reason": "no image", "detail": ""}
        if int(serial) in self.pictures.several:
            names = self.pictures.several[int(serial)]
            return {"reason": "several images", "detail": ", ".join(names)}
        content = self.pictures.of(serial)
        found = content if isinstance(content, str) else check_image(content)
        if isinstance(found, str):
            return {"reason": "unreadable image", "detail": found}
        return {"image_sha256": found.sha256, "width": found.width, "height": found.height}


def _write(checks: Checks, work: Path, sources: list[dict[str, Any]], progress: Progress) -> About:
    """Items, images and rejects into the work folder, and what corpus.json says last."""
    counts: Counter[str] = Counter()
    checksum, kept = Checksum(), 0
    with _items(work) as items, _images(work) as pictures, _rejects(work) as rejects:
        for done, (source, row, check) in enumerate(_without_duplicates(checks), 1):
            if check["reason"] is not None:
                counts[check["reason"]] += 1
                rejects.writerow([source, row["serial"], check["reason"], check["detail"]])
            else:
                content = checks.pictures.of(row["serial"])
                _expect(content, check["image_sha256"], row["serial"])
                items(_item(source, row, check))
                pictures({"id": row["serial"], "image": content})
                checksum.add(row["serial"], check["text"], check["image_sha256"])
                kept += 1
            if done % 1000 == 0 or done == checks.total:
                progress("writing", done, checks.total)
    about = About(
        kind="uspto",
        simulated=any(part.simulated for part in checks.parts),
        n=kept,
        checksum=checksum.hexdigest(),
        sources=sources,
        rules={
            **cleaning.RULES,
            **images.RULES,
            "length": f"{checks.words.least} to {checks.words.most} words",
            "transactions": "the latest transaction date of a serial number, then the last in the "
            "order of the files",
        },
        funnel=_funnel(checks.total, counts),
        made_by=f"fairnepv {__version__}",
    )
    about.write(work)
    return about


def _without_duplicates(
    checks: Checks,
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The same rows, where what an earlier item has already been is rejected."""
    seen_images: dict[bytes, int] = {}
    seen_texts: dict[bytes, int] = {}
    for source, row, check in checks:
        if check["reason"] is None:
            image = bytes.fromhex(check["image_sha256"])[:16]
            text = hashlib.sha256(check["text"].encode()).digest()[:16]
            earlier = {"duplicate image": seen_images.get(image)}
            earlier["duplicate text"] = seen_texts.get(text)
            reason = next((why for why, serial in earlier.items() if serial is not None), None)
            if reason is not None:
                check = {"reason": reason, "detail": f"as {earlier[reason]:08}"}
            else:
                seen_images[image] = seen_texts[text] = int(row["serial"])
        yield source, row, check


def _item(source: str, row: dict[str, Any], check: dict[str, Any]) -> dict[str, Any]:
    taken = ("mark", "drawing_code", "filing_date", "transaction_date", "design_codes")
    measured = ("text", "words", "image_sha256", "width", "height")
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


def _expect(content: bytes | str, sha256: str, serial: str) -> None:
    if isinstance(content, str) or hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(
            f"the image of {serial} has changed while the corpus was made; remove its folder "
            f"{WORK} and ingest again"
        )


# --- files --------------------------------------------------------------------------------------

_ITEM_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.string()),
        ("original", pa.string()),
        ("words", pa.int32()),
        ("image_sha256", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("mark", pa.string()),
        ("drawing_code", pa.string()),
        ("filing_date", pa.string()),
        ("transaction_date", pa.int32()),
        ("design_codes", pa.list_(pa.string())),
        ("source", pa.string()),
    ]
)
_IMAGE_SCHEMA = pa.schema([("id", pa.string()), ("image", pa.binary())])
Put = Callable[[dict[str, Any]], None]


def _items(work: Path) -> contextlib.AbstractContextManager[Put]:
    return _rows(work / ITEMS, _ITEM_SCHEMA, parts.ROWS, "zstd")


def _images(work: Path) -> contextlib.AbstractContextManager[Put]:
    return _rows(work / IMAGES, _IMAGE_SCHEMA, IMAGES_PER_GROUP, "none")  # they are compressed


@contextlib.contextmanager
def _rows(target: Path, schema: pa.Schema, per_group: int, compression: str) -> Iterator[Put]:
    """A function that takes rows, which go to the file a group at a time."""
    held: list[dict[str, Any]] = []
    with pq.ParquetWriter(target, schema, compression=compression) as writer:

        def flush() -> None:
            if held:
                writer.write_table(pa.Table.from_pylist(held, schema=schema))
                held.clear()

        def put(row: dict[str, Any]) -> None:
            held.append(row)
            if len(held) == per_group:
                flush()

        yield put
        flush()


@contextlib.contextmanager
def _rejects(work: Path) -> Iterator[Any]:
    with (work / REJECTS).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["source", "serial", "reason", "detail"])
        yield writer


def _move_in(work: Path, out: Path) -> None:
    """corpus.json goes first and comes last, since a folder that has it is a whole corpus."""
    (out / ABOUT).unlink(missing_ok=True)
    for name in (ITEMS, IMAGES, REJECTS, ABOUT):
        os.replace(work / name, out / name)
    shutil.rmtree(work)
