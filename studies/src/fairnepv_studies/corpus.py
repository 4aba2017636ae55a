"""A corpus: items with a text and an image, in a folder that every later step reads.

    corpus/
      corpus.json      what it is: kind, whether it is simulated, sources, rules, counts, checksum
      items.parquet    one row per item: id, text (cleaned), original, words, image_sha256, and what
                       else the source knows (mark, drawing_code, filing_date, design_codes, ...)
      images.parquet   id and image (the bytes as they came), the same rows in the same order
      rejects.csv      what did not qualify, and why
      features/        one file per view with a description beside it (`feature_files.py`)
      split.json       which items validate, test and may be selected

The checksum is of ids, texts and images in their order, so that it does not depend on how a writer
of Parquet lays its pages out.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.source import Source
from fairnepv_studies.files import local, read_record, unreadable, write_record

KINDS = ("uspto", "openmoji", "folder")
ABOUT, ITEMS, IMAGES, REJECTS = "corpus.json", "items.parquet", "images.parquet", "rejects.csv"
REJECT_COLUMNS = ("source", "id", "reason", "detail")
FORMAT = 1
SIMULATED = "1"  # what their serial numbers begin with; the register's begin with 6 to 9
_REMEDY = "ingest again"
IMAGES_PER_GROUP = 256  # rows of a row group of images.parquet: some megabytes


@dataclass(frozen=True)
class About:
    """What `corpus.json` says."""

    kind: str  # one of KINDS
    simulated: bool
    n: int
    checksum: str
    sources: list[dict[str, Any]]  # name, bytes, sha256 of every file that was read
    rules: dict[str, Any]  # by which texts were cleaned and items qualified
    funnel: list[list[Any]]  # (what, how many are left) from the first step to the last
    made_by: str  # fairnepv and its version
    format: int = FORMAT
    notes: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        write_record(folder / ABOUT, self)

    @property
    def name(self) -> str:
        """As it is called in tables: simulated data is always called that."""
        return f"simulated {self.kind}" if self.simulated else self.kind


class Checksum:
    """Of the items of a corpus, one after the other."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, id: str, text: str, image_sha256: str) -> None:
        for part in (id, text, image_sha256):
            encoded = part.encode("utf-8")
            self._hash.update(len(encoded).to_bytes(8, "little"))
            self._hash.update(encoded)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


@dataclass(frozen=True)
class Corpus:
    folder: Path
    about: About

    @classmethod
    def open(cls, folder: str | Path) -> Corpus:
        """The corpus in this folder; an `InputError` says what is not as it should be."""
        folder = local(folder)
        if not (folder / ABOUT).is_file():
            raise InputError(
                f"{folder} is no corpus: it has no {ABOUT}; make one with fairnepv uspto ingest"
            )
        about = read_record(folder / ABOUT, About, _REMEDY)
        if about.format != FORMAT:
            raise InputError(
                f"{folder} has format {about.format}, expected {FORMAT}; ingest again, or use the "
                f"version that made it ({about.made_by})"
            )
        if about.kind not in KINDS or about.n < 0:
            said = f"it is of kind {about.kind!r} and has {about.n:,} items"
            raise unreadable(folder / ABOUT, said, _REMEDY)
        _check_funnel(folder / ABOUT, about)
        for name in (ITEMS, IMAGES):
            if not (folder / name).is_file():
                raise InputError(f"{folder} has no {name}: it is not complete; ingest again")
        return cls(folder, about)

    @functools.cached_property
    def items(self) -> Any:
        """The table of items (PyArrow), without images."""
        import pyarrow.parquet as pq

        file = self.folder / ITEMS
        with _reading(file):
            self._check_rows(file, pq.read_metadata(file).num_rows)
            _refuse_bombs(file)
            table = pq.read_table(file)
            table.validate(full=True)
        for name in ("id", "text", "image_sha256"):
            _check_column(file, table, name, "string")
        return table

    @property
    def n(self) -> int:
        return self.about.n

    @functools.cached_property
    def ids(self) -> list[str]:
        ids: list[str] = self.items.column("id").to_pylist()
        return ids

    @functools.cached_property
    def texts(self) -> list[str]:
        texts: list[str] = self.items.column("text").to_pylist()
        return texts

    @functools.cached_property
    def image_hashes(self) -> list[str]:
        hashes: list[str] = self.items.column("image_sha256").to_pylist()
        return hashes

    @functools.cached_property
    def words(self) -> list[int]:
        """Of every text."""
        if "words" not in self.items.column_names:
            raise InputError(f"{self.folder} does not count the words of its items; ingest again")
        words: list[int] = self.items.column("words").to_pylist()
        return words

    def images(self, start: int = 0) -> Iterator[bytes]:
        """The bytes of all images from number `start` on, a row group at a time."""
        import pyarrow.parquet as pq

        name = self.folder / IMAGES
        with _reading(name):
            # One image that stands in many rows is held once.
            file = pq.ParquetFile(name, read_dictionary=["image"])
        with file:
            self._check_rows(name, file.metadata.num_rows)
            seen = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if seen + rows > start:
                    with _reading(name):
                        table = file.read_row_group(group, columns=["image"])
                    _check_column(name, table, "image", "binary")
                    for image in table.column("image")[max(0, start - seen) :]:
                        yield image.as_py()
                seen += rows

    def _check_rows(self, file: Path, rows: int) -> None:
        if rows != self.n:
            raise unreadable(file, f"it has {rows:,} rows, and {ABOUT} says {self.n:,}", _REMEDY)

    def check(self) -> None:
        """Whether the items are those of the checksum, and what else is said of them is so; reads
        the table of items alone."""
        found = Checksum()
        for id, text, image in zip(self.ids, self.texts, self.image_hashes, strict=True):
            found.add(id, text, image)
        if found.hexdigest() != self.about.checksum:
            raise InputError(
                f"{self.folder} has changed since it was made: its items do not have the checksum "
                f"in {ABOUT}; ingest again"
            )
        if len(set(self.ids)) < self.n:
            raise unreadable(self.folder / ITEMS, "an id is there twice", _REMEDY)
        if self.words != [len(text.split()) for text in self.texts]:
            raise unreadable(self.folder / ITEMS, "words are not those of the texts", _REMEDY)
        if self.about.kind == "uspto" and not self.about.simulated:
            _check_serials(self.folder / ABOUT, self.ids)

    def check_images(self) -> None:
        """Whether the images are those whose checksums the items have; reads all of them."""
        for id, expected, image in zip(self.ids, self.image_hashes, self.images(), strict=True):
            if hashlib.sha256(image).hexdigest() != expected:
                said = f"the image of {id} does not have the checksum in {ITEMS}"
                raise unreadable(self.folder / IMAGES, said, _REMEDY)


def _check_funnel(file: Path, about: About) -> None:
    """It never widens, and ends with the items."""
    left = [step[1] for step in about.funnel if len(step) == 2 and type(step[1]) is int]
    falls = left == sorted(left, reverse=True) and left[-1:] == [about.n]
    if len(left) < len(about.funnel) or not falls:
        said = f"the steps of its funnel do not lead to its {about.n:,} items"
        raise unreadable(file, said, _REMEDY)


def _check_serials(file: Path, ids: list[str]) -> None:
    """Simulated marks have serial numbers that the register has not."""
    for id in ids:
        if id.startswith(SIMULATED):
            said = f"it says that nothing is simulated, and {id} is"
            raise unreadable(file, said, _REMEDY)


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:  # that, of a column
        raise unreadable(file, error, _REMEDY) from error


def _refuse_bombs(file: Path) -> None:
    """Before values that are stored once and stand in a million rows are held as often."""
    from fairnepv.io.arrow_files import column_names, counted_chunks
    from fairnepv.io.table_rows import Column

    source = Source(file, None)
    for at, name in enumerate(column_names(source)):
        for _ in counted_chunks(Column(source, name, at, None)):
            pass


def _check_column(file: Path, table: Any, name: str, kind: str) -> None:
    if name not in table.column_names:
        raise unreadable(file, f"it has no column {name!r}", _REMEDY)
    column = table.column(name)
    found = getattr(column.type, "value_type", column.type)  # of a dictionary
    if str(found) != kind or column.null_count:
        raise unreadable(file, f"column {name!r} must hold a {kind} in every row", _REMEDY)
