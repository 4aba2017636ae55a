"""A bulk document, cut into its case files as it is read.

Whatever is wrong with a record is wrong with that record alone: one without a start or an end tag
is a piece that will not parse, and one without bounds is given up until the next tag. Only what
stands between records is believed to be XML, so that a record in a comment there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn, Protocol

from fairnepv.errors import InputError

MAX_RECORD = 16 << 20  # bytes of one case file: the register's have kilobytes
MAX_AROUND = 4 << 20  # bytes of everything that is no case file
MAX_IDLE = 64 << 20  # bytes, blanks and comments too, in which no case file ends
_CHUNK = 1 << 20
_HEAD = 1 << 16  # bytes of a record without bounds that are looked at
_LONGEST_TAG = 1 << 10  # what may lie across two chunks
_TAG = rb"<(?P<end>/)?case-file(?=[\s/>])[^<>]*?(?P<empty>/)?>"
_INSIDE = re.compile(_TAG)
COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)  # without an end, to the end
_BETWEEN = re.compile(rb"(?P<comment>" + COMMENT.pattern + rb")|" + _TAG, re.DOTALL)
_ELEMENT = re.compile(rb"<(/?)([A-Za-z_][^\s/<>]*+)[^<>]*?(/?)>")


@dataclass(frozen=True)
class Oversized:
    """A record that was given up; `head` is how it begins."""

    head: bytes


class Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Cutter:
    def __init__(self, name: str, stream: Stream, begin: Callable[[bytes], None]) -> None:
        """`begin` is told once what stands before the first record, and may refuse it."""
        self.name, self._stream = name, stream
        self._begin: Callable[[bytes], None] | None = begin
        self._kept: list[bytes] = []
        self._size = 0
        self._rest = b""  # what was read and is not cut yet
        self._idle = 0  # bytes since the last piece
        self._open = False  # whether it begins with a start tag
        self._lost: bytes | None = None  # the head of a record that was given up

    @property
    def around(self) -> bytes:
        """Everything that is no record."""
        return b" ".join(self._kept)

    def pieces(self) -> Iterator[bytes | Oversized]:
        while chunk := self._stream.read(_CHUNK):
            self._rest += chunk
            self._idle += len(chunk)
            for piece in self._cut(last=False):
                self._idle = 0
                yield piece
            self._bound()
        yield from self._cut(last=True)
        if self._open:
            yield self._unended()
        self._keep(self._rest)
        self._start()

    def _cut(self, *, last: bool) -> Iterator[bytes | Oversized]:
        """As far as tags reach; `start` is where the piece or the space between begins."""
        rest, start, at = self._rest, 0, int(self._open)  # behind the start tag's first letter
        while found := (_INSIDE if self._open else _BETWEEN).search(rest, at):
            at = found.end()
            if not self._open and found["comment"]:
                if not last and at == len(rest):  # its end may be in the next chunk
                    break
                # Before the first record comments are kept: one of them may say "simulated".
                self._keep(rest[start : at if self._begin else found.start()])
                start = at
            elif found["end"]:
                begin = start if self._open else self._beginning(rest, start, at)
                yield self._piece(rest[begin:at])
                self._open, start = False, at
            else:
                if self._open:  # the one before has no end
                    yield self._piece(rest[start : found.start()])
                else:
                    self._keep(rest[start : found.start()])
                    self._start()
                self._open, start = True, found.start()
                if found["empty"]:
                    yield self._piece(rest[start:at])
                    self._open, start = False, at
        self._rest = rest[start:]

    def _piece(self, piece: bytes) -> bytes | Oversized:
        head, self._lost = self._lost, None
        if head is None and len(piece) > MAX_RECORD:
            head = piece[:_HEAD]
        return piece if head is None else Oversized(head)

    def _beginning(self, rest: bytes, start: int, end: int) -> int:
        """Of a record without a start tag: where its first element stands."""
        begin = rest.find(b"<serial-number", start, end)
        begin = rest.rfind(b"<", start, end) if begin < 0 else begin
        self._keep(rest[start:begin])
        self._start()
        return begin

    def _bound(self) -> None:
        """So that neither memory nor time grows with what has no end."""
        if self._idle > MAX_IDLE:
            if not self._open:
                self._keep(self._rest)
            self._refuse(f"{MAX_IDLE >> 20} MiB in which no case file ends")
        if not self._open:
            if len(self._rest) >= _CHUNK:  # or the next search would go through them once more
                self._rest = re.sub(rb"\s+", b" ", self._rest)
            if len(self._rest) > MAX_AROUND:
                self._keep(self._rest)
        elif len(self._rest) > MAX_RECORD:
            self._lost = self._lost or self._rest[:_HEAD]
            self._rest = self._rest[-_LONGEST_TAG:]

    def _keep(self, around: bytes) -> None:
        around = around.strip()
        if not around:
            return
        self._kept.append(around)
        self._size += len(around)
        if self._size > MAX_AROUND:
            self._refuse(f"{MAX_AROUND >> 20} MiB outside of its case files")

    def _refuse(self, what: str) -> NoReturn:
        self._start()  # another kind of document is told by its root
        raise InputError(f"{self.name} has more than {what}; it is damaged or no bulk file")

    def _start(self) -> None:
        begin, self._begin = self._begin, None
        if begin is not None:
            begin(self.around)

    def _unended(self) -> bytes | Oversized:
        """The last record, where the document ends as it should but for that record's end tag."""
        closing = rb"\s*".join(rb"</" + re.escape(name) + rb"\s*>" for name in self._still_open())
        found = re.search(closing + rb"\s*\Z", self._rest) if closing else None
        if found is None:
            raise InputError(
                f"{self.name} is damaged or cut off (its last case file does not end); get it again"
            )
        piece, self._rest = self._rest[: found.start()], self._rest[found.start() :]
        self._open = False
        return self._piece(piece)

    def _still_open(self) -> list[bytes]:
        """Names of the elements around the records that have not ended, the innermost first."""
        names: list[bytes] = []
        for end, name, empty in _ELEMENT.findall(COMMENT.sub(b"", self.around)):
            if end and names:
                names.pop()
            elif not (end or empty):
                names.append(name)
        return names[::-1]
