"""Contents -> rows of features, in batches, each kept by the checksum of its content.

One thing makes a run resumable and spares contents that were seen before: rows lie in a cache, a
small file for every batch, under the fingerprint of their encoder. A run encodes what is not there,
and joins the rows at the end. A row depends on its content alone (`Encoder`), so the result has the
same bytes whether it was made in one go, after ten kills, or from another corpus's cache. Whoever
deletes a cache loses time and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import FairnepvError, InputError
from fairnepv_studies.encoders.base import Encoder, fingerprint
from fairnepv_studies.feature_files import begin_checksum
from fairnepv_studies.files import appearing, damaged_file, write_whole
from fairnepv_studies.progress import RowProgress

BATCH = 128  # contents of a batch: what a kill can cost
_JOINED = 4096  # rows that are written at once
_NAME = 32  # hex digits of the checksum that names a file of the cache

Contents = Callable[[Sequence[int]], Iterator[Any]]  # those at these ascending places


@dataclass(frozen=True)
class Encoded:
    """A matrix that has been written."""

    shape: tuple[int, int]
    checksum: str
    encoded: int  # contents that went through the encoder
    reused: int  # rows whose content was known


class Cache:
    """Rows of one encoder by the SHA-256 of their contents."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        safe = encoder.name.replace("/", "--").replace(":", "-")
        self._folder = folder / f"{safe}-{fingerprint(encoder)}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._type = np.dtype([("key", "V32"), ("row", "<f4", (encoder.width,))])
        self._places: dict[bytes, tuple[Path, int]] = {}
        for file in sorted(self._folder.glob("*.npy")):
            self._learn(file)

    def __contains__(self, key: str) -> bool:
        return bytes.fromhex(key) in self._places

    def add(self, keys: Sequence[str], rows: NDArray[np.float32]) -> None:
        records = np.empty(len(keys), self._type)
        records["key"] = np.frombuffer(bytes.fromhex("".join(keys)), "V32")
        records["row"] = rows
        buffer = io.BytesIO()
        np.save(buffer, records, allow_pickle=False)
        content = buffer.getvalue()
        file = self._folder / f"{hashlib.sha256(content).hexdigest()[:_NAME]}.npy"
        write_whole(file, content)
        self._note(file, records["key"])

    def rows(self, keys: Sequence[str]) -> NDArray[np.float32]:
        """(len(keys), width), reading each file once."""
        found = np.empty((len(keys), self._type["row"].shape[0]), np.float32)
        wanted: dict[Path, list[tuple[int, int]]] = {}
        for i, key in enumerate(keys):
            file, at = self._places[bytes.fromhex(key)]
            wanted.setdefault(file, []).append((i, at))
        for file, pairs in wanted.items():
            here, there = np.array(pairs).T
            try:
                found[here] = np.load(file)["row"][there]
            except (OSError, ValueError, EOFError, IndexError) as error:  # it was whole before
                raise damaged_file(file, error, "start again, it is made anew") from error
        return found

    def _learn(self, file: Path) -> None:
        """A file that is not what its name says, after a power cut perhaps, is not believed."""
        content = file.read_bytes() if file.is_file() else b""
        if hashlib.sha256(content).hexdigest()[:_NAME] != file.stem:
            return
        with contextlib.suppress(ValueError, EOFError):  # whoever wrote it, it was not us
            records = np.load(io.BytesIO(content), allow_pickle=False)
            if records.dtype == self._type and records.ndim == 1:
                self._note(file, records["key"])

    def _note(self, file: Path, keys: NDArray[Any]) -> None:
        for at, key in enumerate(keys.tolist()):
            self._places.setdefault(key, (file, at))


def encode(
    contents: Contents,
    keys: Sequence[str],
    encoder: Encoder,
    *,
    cache: Path,
    out: Path,
    progress: RowProgress | None = None,
) -> Encoded:
    """Write the (n, width) float32 rows of these contents, whose SHA-256 are `keys`, to `out`."""
    known = Cache(cache, encoder)
    missing: dict[str, int] = {}  # the first place of every content that is not known
    for i, key in enumerate(keys):
        if key not in known:
            missing.setdefault(key, i)
    done, of = len(keys) - len(missing), len(keys)
    listen = progress or (lambda done, of: None)
    listen(done, of)
    for batch in _batches(contents, list(missing.values())):
        for i, content in batch:
            _check_content(content, keys[i], i)
        rows: list[NDArray[np.float32]] = []
        try:
            for made in _encoded(batch, encoder):
                rows += [made]
                done += len(made)
                listen(done, of)
        finally:  # what the bar has shown is kept, whoever interrupts
            _keep(known, [keys[i] for i, _ in batch], rows)
    checksum = _join(known, keys, encoder.width, out)
    return Encoded((of, encoder.width), checksum, len(missing), of - len(missing))


def _batches(contents: Contents, places: Sequence[int]) -> Iterator[list[tuple[int, Any]]]:
    found = zip(places, contents(places), strict=True) if places else iter(())
    while batch := list(itertools.islice(found, BATCH)):
        yield batch


def _encoded(batch: Sequence[tuple[int, Any]], encoder: Encoder) -> Iterator[NDArray[np.float32]]:
    for start in range(0, len(batch), encoder.at_once):
        places, contents = zip(*batch[start : start + encoder.at_once], strict=True)
        rows = encoder.encode(contents)
        _check_rows(rows, encoder, places)
        yield rows


def _keep(known: Cache, keys: Sequence[str], rows: Sequence[NDArray[np.float32]]) -> None:
    """The first of a batch, if not all."""
    if rows:
        joined = np.concatenate(rows)
        known.add(keys[: len(joined)], joined)


def _check_content(content: bytes | str, key: str, place: int) -> None:
    """A row that is kept under another content's checksum would turn up in other corpora."""
    if key_of(content) != key:
        raise InputError(
            f"row {place}: the content does not have its checksum, so the file was damaged or "
            "changed; make it again"
        )


def _check_rows(rows: NDArray[np.float32], encoder: Encoder, places: Sequence[int]) -> None:
    broken = np.flatnonzero(~np.isfinite(rows).all(1))
    if len(broken):
        raise FairnepvError(
            f"encoder {encoder.name!r} makes row {places[broken[0]]} something that is not a "
            "number; leave that item out, or use another encoder"
        )


def _join(known: Cache, keys: Sequence[str], width: int, out: Path) -> str:
    """The bytes that np.save would write, and the checksum of `checksum_of`, a block at a time."""
    shape, dtype = (len(keys), width), np.dtype("<f4")
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    checksum = begin_checksum(shape, dtype)
    with appearing(out) as part, part.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, len(keys), _JOINED):
            block = known.rows(keys[start : start + _JOINED]).astype(dtype, copy=False).tobytes()
            checksum.update(block)
            stream.write(block)
    return checksum.hexdigest()


def key_of(content: bytes | str) -> str:
    encoded = content.encode("utf-8") if isinstance(content, str) else content
    return hashlib.sha256(encoded).hexdigest()


def described(encoder: Encoder) -> Mapping[str, Any]:
    """What a `Description` says of an encoder."""
    return {
        "encoder": encoder.name,
        "version": encoder.version,
        "preprocessing": dict(encoder.preprocessing),
        "details": {**encoder.runtime, "fingerprint": fingerprint(encoder)},
    }
