"""Logo images by serial number, from a folder, a zip, a tar or a Parquet file; and which of them
can be used.

An image is looked at by its header first, so that neither a pixel too few nor a billion too many
are ever decoded.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import re
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv.studies.uspto.documents import fingerprint

MIN_SIDE, MAX_PIXELS, MAX_BYTES = 16, 40_000_000, 64 << 20
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
RULES = {
    "images": f"{', '.join(FORMATS)} of at least {MIN_SIDE} x {MIN_SIDE} and at most "
    f"{MAX_PIXELS:,} pixels and {MAX_BYTES >> 20} MiB that decode whole",
    "several images": "a serial number with more than one image is rejected",
    "duplicates": "of items with the same image bytes or the same cleaned text the first stays",
}
_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")
_SERIAL_COLUMNS = ("serial_number", "serial", "serial-number", "id")
_IMAGE_COLUMNS = ("image", "image_bytes", "image_png", "bytes")
_SERIAL = re.compile(r"[0-9]{8}")


@dataclass(frozen=True)
class Picture:
    """What is known of an image that can be used."""

    sha256: str
    width: int
    height: int


def check_image(content: bytes) -> Picture | str:
    """What the image is, or why it cannot be used."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                width, height = image.size
                if min(width, height) < MIN_SIDE or width * height > MAX_PIXELS:
                    return f"{width} x {height} pixels"
                image.load()
    except Image.DecompressionBombError:
        return f"more than {MAX_PIXELS:,} pixels"
    except Exception as error:  # decoders raise whatever they like of hostile bytes
        return " ".join(str(error).split())[:200] or type(error).__name__
    return Picture(hashlib.sha256(content).hexdigest(), width, height)


@dataclass(frozen=True)
class Images:
    """Where the image of every serial number lies, and how it is fetched."""

    about: dict[str, Any]  # for the sources in corpus.json
    where: dict[int, Any]
    several: dict[int, list[str]]  # names, of serial numbers that have more than one
    fetch: Callable[[Any], bytes | str]  # the bytes, or why they cannot be had

    def of(self, serial: str) -> bytes | str:
        return self.fetch(self.where[int(serial)])


@contextlib.contextmanager
def open_images(path: Path) -> Iterator[Images]:
    """By what the path is: a folder, or a file that ends in .zip, .tar or .parquet."""
    openers = {".zip": _zip, ".tar": _tar, ".parquet": _parquet}
    if path.is_dir():
        yield _folder(path)
        return
    if path.suffix.lower() not in openers:
        raise InputError(
            f"--images {path} is neither a folder nor a .zip, .tar or .parquet file; a compressed "
            "tar has to be unpacked first"
        )
    about = fingerprint(path)
    with contextlib.ExitStack() as stack:
        try:
            images = openers[path.suffix.lower()](path, about, stack)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
            raise InputError(f"--images {path} is damaged ({error}); get it again") from error
        yield images


class _Index:
    """Serial numbers and places, with those that come twice set apart."""

    def __init__(self) -> None:
        self.where: dict[int, Any] = {}
        self.several: dict[int, list[str]] = {}
        self._names: dict[int, str] = {}

    def add(self, name: str, place: Any) -> None:
        stem, _, ending = name.rpartition("/")[2].rpartition(".")
        if f".{ending.lower()}" in _ENDINGS and _SERIAL.fullmatch(stem):
            self.put(int(stem), place, name)

    def put(self, serial: int, place: Any, name: str) -> None:
        if serial in self.where:
            self.several.setdefault(serial, [self._names[serial]]).append(name)
        else:
            self.where[serial], self._names[serial] = place, name

    def images(self, about: dict[str, Any], fetch: Callable[[Any], bytes | str]) -> Images:
        return Images(about, self.where, self.several, fetch)


def _folder(path: Path) -> Images:
    """Described by its listing: names and sizes, in order of name."""
    index, listing, total = _Index(), hashlib.sha256(), 0
    files = sorted(
        (file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file()
    )
    for name, file in files:
        size = file.stat().st_size
        listing.update(f"{name}\t{size}\n".encode("utf-8", "surrogateescape"))
        total += size
        index.add(name, name)

    def fetch(name: str) -> bytes | str:
        file = path / name
        return file.read_bytes() if file.stat().st_size <= MAX_BYTES else _too_large()

    about = {
        "name": path.name,
        "files": len(files),
        "bytes": total,
        "listing_sha256": listing.hexdigest(),
    }
    return index.images(about, fetch)


def _zip(path: Path, about: dict[str, Any], stack: contextlib.ExitStack) -> Images:
    archive = stack.enter_context(zipfile.ZipFile(path))
    index = _Index()
    for member in archive.infolist():
        index.add(member.filename, member)

    def fetch(member: zipfile.ZipInfo) -> bytes | str:
        if member.file_size > MAX_BYTES:
            return _too_large()
        try:
            return archive.read(member)
        except Exception as error:  # one damaged member; the others are sound
            return f"cannot be unpacked ({error})"

    return index.images(about, fetch)


def _tar(path: Path, about: dict[str, Any], stack: contextlib.ExitStack) -> Images:
    file = stack.enter_context(path.open("rb"))
    index = _Index()
    with tarfile.open(path, "r:") as archive:
        for member in archive:
            if member.isfile():
                index.add(member.name, (member.offset_data, member.size))
            archive.members = []  # type: ignore[attr-defined]  # it would keep them all

    def fetch(place: tuple[int, int]) -> bytes | str:
        offset, size = place
        if size > MAX_BYTES:
            return _too_large()
        file.seek(offset)
        return file.read(size)

    return index.images(about, fetch)


def _parquet(path: Path, about: dict[str, Any], stack: contextlib.ExitStack) -> Images:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = stack.enter_context(pq.ParquetFile(path))
    except pa.ArrowInvalid as error:
        raise InputError(f"--images {path} is no Parquet file ({error})") from error
    serials = _column(path, file.schema_arrow.names, _SERIAL_COLUMNS)
    column = _column(path, file.schema_arrow.names, _IMAGE_COLUMNS)
    index = _Index()
    for group in range(file.num_row_groups):
        values = file.read_row_group(group, columns=[serials]).column(serials).to_pylist()
        for row, serial in enumerate(values):
            text = str(serial).zfill(8)
            if _SERIAL.fullmatch(text):
                index.put(int(text), (group, row), f"row {row} of group {group}")

    @functools.lru_cache(maxsize=2)
    def rows(group: int) -> Any:
        return file.read_row_group(group, columns=[column]).column(column)

    def fetch(place: tuple[int, int]) -> bytes | str:
        value = rows(place[0])[place[1]].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        return content if isinstance(content, bytes) else "no bytes in its row"

    return index.images(about, fetch)


def _column(path: Path, names: list[str], known: tuple[str, ...]) -> str:
    for name in known:
        if name in names:
            return name
    raise InputError(
        f"--images {path} has no column {' or '.join(known)}; it has {', '.join(names)}"
    )


def _too_large() -> str:
    return f"more than {MAX_BYTES >> 20} MiB"
