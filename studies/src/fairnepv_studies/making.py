"""How a corpus is made, whatever its source: verdicts on its candidates, kept batch by batch so
that a run that was killed goes on; then items, images and rejects; then all of it moved in.

Until then everything lies inside of the corpus in `.ingest-...`, which is named after what it is
made of.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fairnepv import __version__
from fairnepv.errors import InputError
from fairnepv.io.atomic import put_in_place
from fairnepv.io.locks import locked
from fairnepv.io.write import csv_line
from fairnepv_studies import pictures
from fairnepv_studies.corpus import (
    ABOUT,
    IMAGE_COLUMNS,
    IMAGES,
    IMAGES_PER_GROUP,
    ITEMS,
    REJECT_COLUMNS,
    REJECTS,
    About,
    Checksum,
)
from fairnepv_studies.files import kept, read_record

WORK = ".ingest"
VERSION = 2  # of what a verdict holds
ROWS = 4096  # of a batch of candidates, and of a row group of items
_LARGE = 16 << 20  # bytes that are held before they are written
_OURS = re.compile(rf"\{WORK}-[0-9a-f]{{16}}")
Verdict = dict[str, Any]  # a reason and a detail, or what is known of the item

ITEM = [
    ("id", pa.string()),
    ("text", pa.string()),
    ("original", pa.string()),
    ("words", pa.int32()),
    ("image_sha256", pa.string()),
    ("width", pa.int32()),
    ("height", pa.int32()),
]
PIXELS = (IMAGE_COLUMNS["pixels"], pa.string())  # of corpora whose images are known by them
_VERDICT = pa.schema(
    [
        ("reason", pa.string()),
        ("detail", pa.string()),
        *(column for column in ITEM if column[0] not in ("id", "original")),
        PIXELS,
    ]
)
_IMAGE = pa.schema([("id", pa.string()), ("image", pa.binary())])


@contextlib.contextmanager
def working(out: Path, settings: Any, *, force: bool) -> Iterator[Path]:
    """The folder in which the corpus `out` is made. Of sources that are refused nothing is left
    behind; after an interruption or on a full disk it stays, and the same command goes on. What an
    earlier run has made stays in any case: it may have taken hours. While one run is at work there
    another one is refused."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder for the corpus")
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        work = work_folder(out, settings, force=force)
        is_new = not any(work.iterdir())
        try:
            yield work
        except InputError:
            if not is_new:
                raise
            shutil.rmtree(work)
            with contextlib.suppress(OSError):  # somebody put something there
                for folder in missing:
                    folder.rmdir()
            raise


def work_folder(out: Path, settings: Any, *, force: bool) -> Path:
    """Where the corpus `out` is made of these settings: rules and sources, all that decides what
    comes out. Whoever has begun may go on; else a finished corpus is only replaced when that was
    asked for, and what is no corpus never."""
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    work = out / f"{WORK}-{key[:16]}"
    begun = [found for found in out.glob(f"{WORK}-*") if _OURS.fullmatch(found.name)]
    if (out / ABOUT).exists():
        read_record(out / ABOUT, About, f"{out} is no corpus; name another folder")
        if work not in begun and not force:
            raise InputError(
                f"{out} is a corpus already; add --force to replace it, or name another"
            )
    elif not begun:
        refuse_strangers(out, (ITEMS, IMAGES, REJECTS))
    for other in begun:
        if other != work:
            shutil.rmtree(other)
    work.mkdir(parents=True, exist_ok=True)
    return work


def refuse_strangers(out: Path, names: Iterable[str]) -> None:
    """Files of these names in a folder that is not ours are somebody's, perhaps what is read."""
    for name in names:
        if (out / name).exists():
            raise InputError(f"{out} has a {name} that is not of a corpus; name another folder")


def move_in(work: Path, out: Path) -> None:
    """corpus.json goes first and comes last, since a folder that has it is a whole corpus."""
    (out / ABOUT).unlink(missing_ok=True)
    for name in (ITEMS, IMAGES, REJECTS, ABOUT):
        put_in_place(work / name, out / name)
    shutil.rmtree(work)


def reject(reason: str, detail: str = "") -> Verdict:
    """Names of files, which a detail may quote, may hold what UTF-8 does not know."""
    return {"reason": reason, "detail": detail.encode("utf-8", "backslashreplace").decode()}


def verdict_on(image: bytes | str, *, pixels: bool = False) -> Verdict:
    """On the bytes of an image, or on why there are none; with a checksum of its `pixels`."""
    found = image if isinstance(image, str) else pictures.check(image, pixels=pixels)
    return reject("unreadable image", found) if isinstance(found, str) else dict(vars(found))


class Verdicts:
    """Of batches of candidates, each kept in a file of its own."""

    def __init__(self, work: Path) -> None:
        self._folder = work / "verdicts"
        self._folder.mkdir(exist_ok=True)
        self._files: dict[str, Path] = {}

    def make(self, batch: str, judge: Callable[[], list[Verdict]]) -> None:
        """Unless it was made before."""

        def write(target: Path) -> None:
            pq.write_table(pa.Table.from_pylist(judge(), schema=_VERDICT), target)

        self._files[batch] = kept(self._folder, batch, write)

    def read(self, batch: str) -> list[Verdict]:
        verdicts: list[Verdict] = pq.read_table(self._files[batch]).to_pylist()
        return verdicts

    def __iter__(self) -> Iterator[Verdict]:
        """All that were made, in the order of the batches' names."""
        for batch in sorted(self._files):
            yield from self.read(batch)


class Writer:
    """Items with their images, and rejects, into the work folder."""

    def __init__(self, work: Path, files: contextlib.ExitStack, columns: Sequence[Any]) -> None:
        """`columns` are those of items beyond what all corpora have."""
        self._work, self._files = work, files
        self._images_by = "pixels" if PIXELS in columns else "bytes"
        self._item = files.enter_context(_rows(work / ITEMS, pa.schema([*ITEM, *columns]), ROWS))
        self._image = files.enter_context(_rows(work / IMAGES, _IMAGE, IMAGES_PER_GROUP, "none"))
        stream = (work / REJECTS).open("w", encoding="utf-8", errors="backslashreplace", newline="")
        self._rejects = files.enter_context(stream)
        self._rejects.write(csv_line(REJECT_COLUMNS))
        self._checksum = Checksum()
        self.n, self.reasons = 0, Counter[str]()

    def add(self, item: Mapping[str, Any], image: bytes | str) -> None:
        sha256, id = item["image_sha256"], item["id"]
        if isinstance(image, str) or hashlib.sha256(image).hexdigest() != sha256:
            raise InputError(
                f"the image of {id} has changed while the corpus was made; ingest again"
            )
        self._item(item)
        self._image({"id": id, "image": image})
        self._checksum.add(id, item["text"], item[IMAGE_COLUMNS[self._images_by]])
        self.n += 1

    def reject(self, source: str, id: str | None, verdict: Verdict) -> None:
        self._rejects.write(csv_line([source, id, verdict["reason"], verdict["detail"]]))
        self.reasons[verdict["reason"]] += 1

    def finish(self, **more: Any) -> About:
        """`corpus.json`, when everything else is written."""
        self._files.close()
        about = About(
            n=self.n,
            checksum=self._checksum.hexdigest(),
            made_by=f"fairnepv {__version__}",
            images_by=self._images_by,
            **more,
        )
        about.write(self._work)
        return about


@contextlib.contextmanager
def writing(work: Path, columns: Sequence[Any]) -> Iterator[Writer]:
    with contextlib.ExitStack() as files:
        yield Writer(work, files, columns)


@contextlib.contextmanager
def _rows(
    target: Path, schema: pa.Schema, per_group: int, compression: str = "zstd"
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that takes rows, which go to the file a group at a time, or sooner where they are
    large."""
    held: list[Mapping[str, Any]] = []
    size = 0
    with pq.ParquetWriter(target, schema, compression=compression) as writer:

        def flush() -> None:
            nonlocal size
            if held:
                writer.write_table(pa.Table.from_pylist(held, schema=schema))
                held.clear()
                size = 0

        def put(row: Mapping[str, Any]) -> None:
            nonlocal size
            held.append(row)
            size += sum(len(value) for value in row.values() if isinstance(value, bytes | str))
            if len(held) == per_group or size >= _LARGE:
                flush()

        yield put
        flush()
