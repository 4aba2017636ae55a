"""Case files of a bulk trademark document, one after the other.

A document is cut at the tags <case-file> and </case-file>, and every piece is parsed by itself. So
memory does not grow with the document, one malformed record does not cost those after it, and no
record sees a declaration of entities. What stands around the records is small; it is kept and
parsed at the end, which tells whether the document was whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from fairnepv.errors import InputError

ROOT = "trademark-applications-daily"
SIMULATED = b"SIMULATED by fairnepv"  # in a comment before the root of a document of our own
MAX_RECORD = 16 << 20  # bytes of one case file: the register's have kilobytes
MAX_AROUND = 4 << 20  # bytes of everything that is no case file
_OPEN, _CLOSE = b"<case-file>", b"</case-file>"
_CHUNK = 1 << 20
_ENCODINGS = ("utf-8", "us-ascii", "ascii", "iso-8859-1", "windows-1252")
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_DECLARED = re.compile(rb"<\?xml[^>]*?encoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")
_EXTERNAL = re.compile(rb"<!DOCTYPE\s+[^\s\[>]+\s+(SYSTEM|PUBLIC(?!\s+[\"']-//USPTO//))")
_FIRST_TAG = re.compile(rb"<([A-Za-z_][^\s/>]*)")
_DIGITS = re.compile(r"[0-9]{8}")


@dataclass(frozen=True, slots=True)
class Record:
    """What a case file says, in the words of the document."""

    serial: str
    transaction_date: int  # yyyymmdd; 0 where there is none or it cannot be read
    filing_date: str | None
    mark: str | None
    drawing_code: str | None  # its first character
    design_codes: list[str]
    description: str | None  # statements of a type that begins with DM


@dataclass(frozen=True, slots=True)
class Malformed:
    """A case file that cannot be read: its serial number, where it has one, and why."""

    serial: str
    why: str


class Document:
    """One XML document; `name` is what errors call it."""

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self.name, self._stream = name, stream
        self._around: list[bytes] = []
        self._size = 0
        self._parser: Any = None
        self.simulated = False

    def records(self) -> Iterator[Record | Malformed]:
        for piece in self._pieces():
            if self._parser is None:
                self._begin()
            yield _read(piece, self._parser)
        if self._parser is None:
            self._begin()
        self._finish()

    def _pieces(self) -> Iterator[bytes]:
        rest = b""
        while chunk := self._stream.read(_CHUNK):
            rest += chunk
            start = 0
            while (end := rest.find(_CLOSE, start)) >= 0:
                end += len(_CLOSE)
                begin = rest.find(_OPEN, start, end)
                if begin < 0 and self._parser is None:
                    raise self._not_whole("a case file ends before one has begun")
                begin = max(begin, start)  # its start tag is missing: a piece that does not parse
                self._keep(rest[start:begin])
                while (inner := rest.find(_OPEN, begin + 1, end)) >= 0:  # its end tag is missing
                    yield rest[begin:inner]
                    begin = inner
                yield rest[begin:end]
                start = end
            rest = rest[start:]
            if self._parser is None and len(rest) > MAX_AROUND:
                self._keep(rest)
            if len(rest) > MAX_RECORD:
                raise InputError(
                    f"{self.name} has a case file of more than {MAX_RECORD >> 20} MiB, which the "
                    "register has not; it is damaged or no bulk file"
                )
        if _OPEN in rest:
            raise self._not_whole("its last case file does not end")
        self._keep(rest)

    def _keep(self, around: bytes) -> None:
        around = around.strip()
        if not around:
            return
        self._around.append(around)
        self._size += len(around)
        if self._size > MAX_AROUND:
            self._begin()  # another kind of document is told by its root
            raise InputError(
                f"{self.name} has more than {MAX_AROUND >> 20} MiB outside of its case files; it "
                "is damaged or no bulk file"
            )

    def _begin(self) -> None:
        """What stands before the first record decides whether it is read at all."""
        before = b" ".join(self._around)
        self.simulated = SIMULATED in before
        plain = _COMMENT.sub(b"", before)
        if b"<!ENTITY" in plain:
            raise InputError(
                f"{self.name} declares entities, which bulk files do not and which can be used to "
                "exhaust memory; it was not read"
            )
        if _EXTERNAL.search(plain):
            raise InputError(
                f"{self.name} refers to an external document type, which is never fetched; "
                "remove the reference, or take the file as the register gives it"
            )
        root = _FIRST_TAG.search(plain)
        if root is None or root[1].decode("ascii", "replace") != ROOT:
            came = f"<{root[1].decode('ascii', 'replace')[:40]}>" if root else "no XML element"
            raise InputError(
                f"{self.name} is no bulk trademark document: expected the root <{ROOT}>, found "
                f"{came}; give daily or annual application files"
            )
        declared = _DECLARED.match(before)
        encoding = declared[1].decode().lower() if declared else "utf-8"
        if encoding not in _ENCODINGS:
            raise InputError(
                f"{self.name} is encoded in {encoding}; expected one of {', '.join(_ENCODINGS)}; "
                "convert it to utf-8"
            )
        self._parser = _lxml().XMLParser(
            encoding=encoding,
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
            collect_ids=False,
        )

    def _finish(self) -> None:
        """Whether what stands around the records is a whole document."""
        from lxml import etree

        try:
            root = etree.fromstring(b" ".join(self._around), self._parser)
        except etree.XMLSyntaxError as error:
            raise self._not_whole(error.msg) from error
        internal = root.getroottree().docinfo.internalDTD
        if internal is not None and any(True for _ in internal.iterentities()):
            raise InputError(f"{self.name} declares entities, which bulk files do not")
        if next(root.iter("case-file"), None) is not None:
            raise InputError(
                f"{self.name} has case files with attributes, which its format has not"
            )

    def _not_whole(self, why: str) -> InputError:
        return InputError(f"{self.name} is damaged or cut off ({why}); get it again")


def _lxml() -> Any:
    try:
        from lxml import etree
    except ImportError as error:
        raise InputError("bulk XML needs lxml; pip install 'fairnepv[studies]'") from error
    if etree.LXML_VERSION < (6, 1):
        raise InputError(
            f"bulk XML needs lxml 6.1 or later, found {etree.__version__}; "
            "pip install --upgrade 'fairnepv[studies]'"
        )
    return etree


def _read(piece: bytes, parser: Any) -> Record | Malformed:
    from lxml import etree

    try:
        case = etree.fromstring(piece, parser)
    except etree.XMLSyntaxError as error:
        found = re.search(rb"<serial-number>\s*([0-9]{8})\s*</serial-number>", piece)
        return Malformed(found[1].decode() if found else "", f"not well-formed: {error.msg}")
    parts = {child.tag: child for child in case}
    serial = _text(parts.get("serial-number")) or ""
    if not _DIGITS.fullmatch(serial):
        return Malformed(serial[:40], "the serial number has not eight digits")
    header = {child.tag: child for child in parts.get("case-file-header", ())}
    date = _text(parts.get("transaction-date")) or ""
    code = _text(header.get("mark-drawing-code"))
    return Record(
        serial=serial,
        transaction_date=int(date) if _DIGITS.fullmatch(date) else 0,
        filing_date=_date(_text(header.get("filing-date"))),
        mark=_text(header.get("mark-identification")),
        drawing_code=code[0] if code else None,
        design_codes=_design_codes(parts.get("design-searches", ())),
        description=_description(parts.get("case-file-statements", ())),
    )


def _text(element: Any) -> str | None:
    """Without the space around it; None where there is nothing else."""
    return None if element is None else (element.text or "").strip() or None


def _date(text: str | None) -> str | None:
    """1884-04-07 of 18840407; None where it is no date."""
    if text is None or not _DIGITS.fullmatch(text):
        return None
    month, day = int(text[4:6]), int(text[6:])
    return f"{text[:4]}-{text[4:6]}-{text[6:]}" if 1 <= month <= 12 and 1 <= day <= 31 else None


def _design_codes(searches: Any) -> list[str]:
    codes = (_text(search.find("code")) for search in searches)
    return [code for code in codes if code]


def _description(statements: Any) -> str | None:
    """All texts of all statements that describe the mark, joined by a space."""
    texts: list[str] = []
    for statement in statements:
        kind = statement.find("type-code")
        if kind is not None and (kind.text or "").strip().startswith("DM"):
            texts += [text.text for text in statement.findall("text") if text.text]
    return " ".join(texts).strip() or None
