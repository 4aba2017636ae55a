"""Bulk files as they come: plain XML, gzip, or a zip of XML documents."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.places import open_regular
from fairnepv_studies.packed import Allowance, Counted, members_of, open_member
from fairnepv_studies.uspto.records import Document, Malformed, Record

MOST_BYTES = 16 << 30  # of one document, unpacked; the register's have up to some hundred million
_DAMAGED = (
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    UnicodeDecodeError,  # of a name of a zip
)


class Documents:
    """What is in one file; `done` says how many of its bytes were read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.simulated = False
        self._raw: Any = None

    @property
    def done(self) -> int:
        return 0 if self._raw is None or self._raw.closed else int(self._raw.tell())

    def records(self) -> Iterator[Record | Malformed]:
        """Of all documents; damage that shows while reading is an `InputError` with the name."""
        with _named(self.path):
            for document in self._documents():
                yield from document.records()
                self.simulated |= document.simulated

    def _documents(self) -> Iterator[Document]:
        with open_regular(self.path) as self._raw:
            magic = self._raw.read(4)
            self._raw.seek(0)
            if magic[:2] == b"PK":
                yield from self._members()
                return
            spend = Allowance(self.path, MOST_BYTES).spend
            if magic[:2] == b"\x1f\x8b":
                with gzip.open(self._raw) as stream:
                    yield Document(str(self.path), Counted(io.BufferedReader(stream), spend))
            else:
                yield Document(str(self.path), Counted(self._raw, spend))

    def _members(self) -> Iterator[Document]:
        with zipfile.ZipFile(self._raw) as archive:
            members = members_of(archive, self.path, _is_document)
            if not members:
                raise InputError(f"{self.path} has no .xml inside; give a zip of bulk XML")
            allowance = Allowance(self.path, MOST_BYTES * len(members))
            allowance.foresee(sum(member.file_size for member in members))
            for member in members:
                if member.flag_bits & 1:
                    raise InputError(f"{self.path} needs a password; give it without one")
                with open_member(archive, member, allowance.spend) as stream:
                    yield Document(f"{self.path}/{member.filename}", stream)


def _is_document(name: str) -> bool:
    """Not what a Mac packs beside every file."""
    return name.lower().endswith(".xml") and not name.rpartition("/")[2].startswith("._")


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        said = " ".join(str(error).split())[:200]  # a name of a member may be any bytes
        raise InputError(f"{path} is damaged or cut off ({said}); get it again") from error
    except OSError as error:  # of the disk; or bz2's word for bad data, which has no number
        why = error.strerror or str(error)
        raise InputError(f"{path} cannot be read ({why}); get it again") from error
