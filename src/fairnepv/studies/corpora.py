"""Corpora of other sources in the same folder format: OpenMoji, and a folder of images with a table
of texts. An item that cannot be used is counted and listed, and never stops the others."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from fairnepv import __version__
from fairnepv.data import openmoji
from fairnepv.errors import InputError
from fairnepv.studies.contents import Pictures, pictures_at, texts_at, without_ending
from fairnepv.studies.corpus import (
    ABOUT,
    IMAGES,
    IMAGES_PER_GROUP,
    ITEMS,
    REJECTS,
    About,
    Checksum,
)
from fairnepv.studies.encoding import Progress, write_whole
from fairnepv.studies.pictures import LEAST_SIDE, MOST_PIXELS, fault_of

_CREDITS = (
    "All emojis designed by OpenMoji, the open-source emoji and icon project: CC-BY-SA-4.0; "
    "keywords: Unicode CLDR, Unicode-3.0."
)
_CLEANING = ["Unicode NFC", "runs of white space become one blank"]


@dataclass(frozen=True)
class Item:
    id: str
    original: str
    image: bytes
    more: Mapping[str, str] = field(default_factory=dict)


def ingest_openmoji(out: str | Path, *, force: bool = False) -> About:
    """The pictograms that come with the package."""
    pool = openmoji()
    content = resources.files("fairnepv.data").joinpath("openmoji.parquet").read_bytes()
    items = (
        Item(str(id), text, picture, {"mark": str(title), "group": str(group)})
        for id, text, picture, title, group in zip(
            pool.ids, pool.keywords, pool.pictures, pool.titles, pool.groups, strict=True
        )
    )
    with _writing(out, force=force) as writer:
        for item in items:
            writer.add(item)
        return writer.finish(
            "openmoji",
            sources=[_source("openmoji.parquet", content)],
            funnel=[["pictograms with keywords", len(pool.ids)]],
            notes=[_CREDITS],
        )


def ingest_folder(
    images: str,
    texts: str,
    out: str | Path,
    *,
    ids: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> About:
    """Images (DIR, ZIP or PARQUET:COLUMN) with texts (TABLE[:COLUMN]), joined by id: that of the
    table, and the path of an image within its folder without its ending."""
    pictures, table = pictures_at(images), texts_at(texts, ids)
    with _writing(out, force=force) as writer:
        matched = _match(pictures, table.ids, table.texts, writer)
        read = pictures.read([match.place for match in matched])
        # Images are read in their own order, which is the order of the corpus, too.
        for done, (match, image) in enumerate(zip(matched, read, strict=True), 1):
            if image is None:
                writer.reject(match.id, "unreadable image")
            else:
                writer.add(Item(match.id, match.text, image))
            if progress is not None:
                progress(done, len(matched))
        return writer.finish(
            "folder",
            sources=[
                _source(table.path.name, table.path.read_bytes()),
                {"name": Path(images).name, "images": len(pictures.ids)},
            ],
            funnel=[
                ["rows of the table", len(table.ids)],
                ["with a text and an image", len(matched)],
            ],
            notes=[],
        )


@dataclass(frozen=True)
class _Match:
    place: int  # of the image
    id: str
    text: str


def _match(
    pictures: Pictures,
    ids: Sequence[str | None],
    texts: Sequence[str | None],
    writer: _Writer,
) -> list[_Match]:
    """Pairs in the order of the images; everything else is rejected, with its reason."""
    counts = Counter(pictures.ids)
    places = {id: i for i, id in enumerate(pictures.ids)}
    found: dict[str, _Match] = {}
    for row, (given, text) in enumerate(zip(ids, texts, strict=True)):
        id = without_ending(given.strip()) if given else ""
        if not id:
            writer.reject(f"row {row}", "no id")
        elif id in found:
            writer.reject(id, "duplicate", f"row {row}")
        elif text is None:
            writer.reject(id, "no text")
        elif id not in places:
            writer.reject(id, "no image")
        elif counts[id] > 1:
            writer.reject(id, "two images")
        else:
            found[id] = _Match(places[id], id, text)
    said = {given and without_ending(given.strip()) for given in ids}
    for id in counts:
        if id not in said:
            writer.reject(id, "no text", "an image that the table does not have")
    return sorted(found.values(), key=lambda match: match.place)


class _Writer:
    """A corpus that is being written; `corpus.json` comes last and makes it one."""

    def __init__(self, folder: Path, images: Any) -> None:
        self._folder, self._images = folder, images
        self._columns: dict[str, list[Any]] = {}
        self._group: list[tuple[str, bytes]] = []
        self._rejects: list[tuple[str, str, str]] = []
        self._checksum = Checksum()

    def add(self, item: Item) -> None:
        fault = fault_of(item.image)
        if fault is not None:
            self.reject(item.id, "unusable image", fault)
            return
        text = clean(item.original)
        sha256 = hashlib.sha256(item.image).hexdigest()
        row = {
            "id": item.id,
            "text": text,
            "original": item.original,
            "words": len(text.split()),
            "image_sha256": sha256,
            **item.more,
        }
        for name, value in row.items():
            self._columns.setdefault(name, []).append(value)
        self._checksum.add(item.id, text, sha256)
        self._group.append((item.id, item.image))
        if len(self._group) == IMAGES_PER_GROUP:
            self._write_group()

    def reject(self, id: str, reason: str, detail: str = "") -> None:
        self._rejects.append((id, reason, detail))

    def finish(
        self,
        kind: str,
        *,
        sources: list[dict[str, Any]],
        funnel: list[list[Any]],
        notes: list[str],
    ) -> About:
        n = len(self._columns.get("id", []))
        if not n:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self._reasons())
            raise InputError(f"no item qualifies ({reasons or 'there are none'}); check the ids")
        self._write_group()
        self._images.close()
        self._write_items()
        self._write_rejects()
        about = About(
            kind=kind,
            simulated=False,
            n=n,
            checksum=self._checksum.hexdigest(),
            sources=sources,
            rules={
                "texts": _CLEANING,
                "least_side": LEAST_SIDE,
                "most_pixels": MOST_PIXELS,
                "rejects": dict(self._reasons()),
            },
            funnel=[*funnel, ["with a usable image", n]],
            made_by=f"fairnepv {__version__}",
            notes=notes,
        )
        about.write(self._folder)
        return about

    def _reasons(self) -> list[tuple[str, int]]:
        return sorted(Counter(reason for _, reason, _ in self._rejects).items())

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._group:
            ids, images = zip(*self._group, strict=True)
            columns = {"id": pa.array(ids, pa.string()), "image": pa.array(images, pa.binary())}
            self._images.write_table(pa.table(columns), row_group_size=IMAGES_PER_GROUP)
            self._group = []

    def _write_items(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(self._columns)
        pq.write_table(table, self._folder / ITEMS, compression="zstd")

    def _write_rejects(self) -> None:
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["id", "reason", "detail"])
        rows.writerows(self._rejects)
        write_whole(self._folder / REJECTS, text.getvalue().encode("utf-8"))


@contextlib.contextmanager
def _writing(out: str | Path, *, force: bool) -> Iterator[_Writer]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(out)
    if (folder / ABOUT).exists() and not force:
        raise InputError(f"{folder} is a corpus already; add --force to replace it")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"the folder {folder.absolute().parent} does not exist; make it first")
    folder.mkdir(exist_ok=True)
    (folder / ABOUT).unlink(missing_ok=True)  # until it is written again this is no corpus
    schema = pa.schema([("id", pa.string()), ("image", pa.binary())])
    # Pictures are compressed already.
    with pq.ParquetWriter(folder / IMAGES, schema, compression="none") as images:
        yield _Writer(folder, images)


def clean(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _source(name: str, content: bytes) -> dict[str, Any]:
    return {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
