"""Case files of a bulk trademark document, one after the other.

A document is cut at the tags <case-file> and </case-file>, and every piece is parsed by itself. So
memory does not grow with the document, one malformed record does not cost those after it, and no
record sees a declaration of entities. What stands around the records is small; it is kept and
parsed at the end, which tells whether the document was whole.

`cutting.py` does the cutting; here is what a document and a record have to be.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairnepv.errors import InputError
from fairnepv_studies.uspto.cutting import COMMENT, Cutter, Oversized, Stream

ROOT = "trademark-applications-daily"
SIMULATED = b"SIMULATED by fairnepv"  # in a comment before the root of a document of our own
_ENCODINGS = ("utf-8", "us-ascii", "ascii", "iso-8859-1", "windows-1252")
_DECLARED = re.compile(rb"<\?xml[^>]*?encoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")
_EXTERNAL = re.compile(rb"<!DOCTYPE\s+[^\s\[>]+\s+(SYSTEM|PUBLIC(?!\s+[\"']-//USPTO//))")
_FIRST_TAG = re.compile(rb"<([A-Za-z_][^\s/>]*)")
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins
_SERIAL = re.compile(rb"<serial-number>\s*([0-9]{8})\s*</serial-number>")
_DIGITS = re.compile(r"[0-9]{8}")
LONGEST = 20_000  # characters of mark and description, which have hundreds; many are held at once
_SAID = 200  # characters of what a parser says


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

    def __init__(self, name: str, stream: Stream) -> None:
        self.name = name
        self._cutter = Cutter(name, stream, self._begin)
        self._parser: Any = None
        self.simulated = False

    def records(self) -> Iterator[Record | Malformed]:
        for piece in self._cutter.pieces():
            if isinstance(piece, Oversized):
                yield _malformed(piece.head, "it is larger than any record of the register")
            else:
                yield _read(piece, self._parser)
        yield from self._finish()

    def _begin(self, before: bytes) -> None:
        """What stands before the first record decides whether it is read at all."""
        self.simulated = SIMULATED in before
        plain = COMMENT.sub(b"", before)
        if plain.startswith(_WIDE):
            raise self._encoded_in("utf-16")
        if b"<!ENTITY" in plain:
            raise InputError(
                f"{self.name} declares entities, which bulk files do not and which can be used to "
                "exhaust memory; it was not read"
            )
        root = _FIRST_TAG.search(plain)
        if root is None or root[1].decode("ascii", "replace") != ROOT:
            came = f"<{root[1].decode('ascii', 'replace')[:40]}>" if root else "no XML element"
            raise InputError(
                f"{self.name} is no bulk trademark document: expected the root <{ROOT}>, found "
                f"{came}; give daily or annual application files"
            )
        if _EXTERNAL.search(plain):
            raise InputError(
                f"{self.name} refers to an external document type, which is never fetched; "
                "remove the reference, or take the file as the register gives it"
            )
        declared = _DECLARED.match(before)
        encoding = declared[1].decode().lower() if declared else "utf-8"
        if encoding not in _ENCODINGS:
            raise self._encoded_in(encoding)
        self._parser = hardened_parser(encoding)

    def _finish(self) -> Iterator[Malformed]:
        """Whether what stands around the records is a whole document. One that ends as it should
        has all its records; whatever else stands between them is one that is none."""
        from lxml import etree

        around = self._cutter.around
        try:
            root = etree.fromstring(around, self._parser)
        except etree.XMLSyntaxError as error:
            if not around.endswith(f"</{ROOT}>".encode()):
                raise InputError(
                    f"{self.name} is damaged or cut off ({_said(error)}); get it again"
                ) from error
            yield Malformed("", f"between records, not well-formed: {_said(error)}")
            return
        internal = root.getroottree().docinfo.internalDTD
        if internal is not None and any(True for _ in internal.iterentities()):
            raise InputError(f"{self.name} declares entities, which bulk files do not")

    def _encoded_in(self, encoding: str) -> InputError:
        return InputError(
            f"{self.name} is encoded in {encoding}; expected one of {', '.join(_ENCODINGS)}; "
            "convert it to utf-8"
        )


def hardened_parser(encoding: str) -> Any:
    """Nothing is resolved, loaded or fetched, and trees have bounds. (`collect_ids=False`, which
    would be faster, makes libxml2 load an external document type whatever `load_dtd` says.)"""
    return _lxml().XMLParser(
        encoding=encoding,
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )


def _lxml() -> Any:
    try:
        from lxml import etree
    except ImportError as error:
        raise InputError("bulk XML needs lxml; pip install fairnepv-studies") from error
    if etree.LXML_VERSION < (6, 1):
        raise InputError(
            f"bulk XML needs lxml 6.1 or later, found {etree.__version__}; "
            "pip install --upgrade fairnepv-studies"
        )
    return etree


def _read(piece: bytes, parser: Any) -> Record | Malformed:
    from lxml import etree

    if b"<!DOCTYPE" in piece or b"<!ENTITY" in piece:
        return _malformed(piece, "it declares a document type of its own")
    try:
        case = etree.fromstring(piece, parser)
    except etree.XMLSyntaxError as error:
        return _malformed(piece, f"not well-formed: {_said(error)}")
    if len(case.findall("serial-number")) > 1:
        return _malformed(piece, "it has several serial numbers")
    parts = {child.tag: child for child in case}
    serial = _text(parts.get("serial-number")) or ""
    if not _DIGITS.fullmatch(serial):
        return Malformed(serial[:40], "the serial number has not eight digits")
    header = {child.tag: child for child in parts.get("case-file-header", ())}
    date = _date(_text(parts.get("transaction-date")))
    filed = _date(_text(header.get("filing-date")))
    code = _text(header.get("mark-drawing-code"))
    mark = _text(header.get("mark-identification"))
    description = _description(parts.get("case-file-statements", ()))
    if len(mark or "") + len(description or "") > LONGEST:
        return Malformed(serial, f"a text of more than {LONGEST:,} characters")
    return Record(
        serial=serial,
        transaction_date=int(f"{date:%Y%m%d}") if date else 0,
        filing_date=filed.isoformat() if filed else None,
        mark=mark,
        drawing_code=code[0] if code else None,
        design_codes=_design_codes(parts.get("design-searches", ())),
        description=description,
    )


def _malformed(piece: bytes, why: str) -> Malformed:
    found = _SERIAL.search(piece)
    return Malformed(found[1].decode() if found else "", why)


def _said(error: Any) -> str:
    """In one line: a parser quotes what it read."""
    return " ".join(str(error.msg).split())[:_SAID]


def _all_text(element: Any) -> str:
    """With that of elements inside, which the format has not."""
    return "".join(element.itertext()) if len(element) else element.text or ""


def _text(element: Any) -> str | None:
    """Without the space around it; None where there is nothing else."""
    return None if element is None else _all_text(element).strip() or None


def _date(text: str | None) -> datetime.date | None:
    """Of 18840407; None where there is none such."""
    if text is None or not _DIGITS.fullmatch(text):
        return None
    try:
        return datetime.date(int(text[:4]), int(text[4:6]), int(text[6:]))
    except ValueError:
        return None


def _design_codes(searches: Any) -> list[str]:
    codes = (_text(search.find("code")) for search in searches)
    return [code for code in codes if code]


def _description(statements: Any) -> str | None:
    """All texts of all statements that describe the mark, joined by a space."""
    texts: list[str] = []
    for statement in statements:
        kind = statement.find("type-code")
        if kind is not None and (kind.text or "").strip().startswith("DM"):
            texts += [found for found in map(_all_text, statement.findall("text")) if found]
    return " ".join(texts).strip() or None
