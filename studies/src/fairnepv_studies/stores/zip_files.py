"""Pictures in a .zip."""

from __future__ import annotations

import contextlib
import functools
import zipfile
from pathlib import Path

import numpy as np

from fairnepv.errors import InputError
from fairnepv.io.places import fingerprint, open_regular
from fairnepv.io.source import unreadable
from fairnepv_studies.packed import Allowance, members_of, open_member
from fairnepv_studies.pictures import MOST_BYTES
from fairnepv_studies.stores.base import Pictures, bounded, is_picture, named_pictures

_DAMAGED = (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, OverflowError)


def pictures_in_zip(path: Path, stack: contextlib.ExitStack) -> Pictures:
    try:
        file = stack.enter_context(open_regular(path))
        archive = stack.enter_context(zipfile.ZipFile(file))
        found = members_of(archive, path, is_picture)
    except _DAMAGED as error:
        raise unreadable(str(path), "zip", error) from error
    allowance = Allowance(path)
    allowance.foresee(sum(min(member.file_size, MOST_BYTES) for member in found))
    members = _Members(archive, found)
    paid = bytearray(len(found))  # which were read before: every step reads them once more

    def fetch(place: int) -> bytes | str:
        spend = (lambda _: None) if paid[place] else allowance.spend
        try:
            with open_member(archive, members[place], spend) as stream:
                return bounded(stream)
        except InputError:
            raise
        except Exception as error:  # one damaged member; the others are sound
            return f"it cannot be unpacked ({error})"
        finally:
            paid[place] = 1

    return named_pictures(members.names, fetch, functools.partial(fingerprint, path))


class _Members:
    """The pictures of an archive in the order of their names, in a tenth of the memory that their
    `ZipInfo` take; those are made again when they are needed."""

    _KEPT: tuple[str, ...] = (
        "header_offset",
        "compress_size",
        "file_size",
        "CRC",
        "compress_type",
        "flag_bits",
    )
    if "_end_offset" in zipfile.ZipInfo.__slots__:  # by which later Pythons see overlaps
        _KEPT += ("_end_offset",)

    def __init__(self, archive: zipfile.ZipFile, found: list[zipfile.ZipInfo]) -> None:
        found.sort(key=lambda member: member.filename)
        self.names = [member.filename for member in found]
        self._originals = {
            i: member.orig_filename
            for i, member in enumerate(found)
            if member.orig_filename != member.filename
        }
        kept = ([getattr(member, name) for name in self._KEPT] for member in found)
        self._numbers = np.array(list(kept), np.int64)
        archive.filelist.clear()
        archive.NameToInfo.clear()

    def __getitem__(self, place: int) -> zipfile.ZipInfo:
        member = zipfile.ZipInfo(self.names[place])
        member.orig_filename = self._originals.get(place, self.names[place])
        for name, number in zip(self._KEPT, self._numbers[place].tolist(), strict=True):
            setattr(member, name, number)
        return member
