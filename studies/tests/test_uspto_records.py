"""Bulk documents: real records as a person reads them, and documents that are refused."""

import csv
import gzip
import io
import json
import zipfile
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from fairnepv.errors import InputError
from fairnepv_studies.uspto import cutting
from fairnepv_studies.uspto import records as module
from fairnepv_studies.uspto.cleaning import clean, count_words
from fairnepv_studies.uspto.documents import Documents
from fairnepv_studies.uspto.records import Document, Malformed, Record

DATA = Path(__file__).parent / "data" / "uspto"
GOLDEN = json.loads((DATA / "golden.json").read_text("utf-8"))
HEAD = (
    b"<trademark-applications-daily><version><version-no>2.0</version-no></version>"
    b"<application-information><file-segments><action-keys>"
)
TAIL = b"</action-keys></file-segments></application-information></trademark-applications-daily>"


def case(serial: str = "10000001", inside: str = "") -> bytes:
    return f"<case-file><serial-number>{serial}</serial-number>{inside}</case-file>".encode()


def read(content: bytes) -> list[Record | Malformed]:
    return list(Document("a.xml", io.BytesIO(content)).records())


def statement(code: str, *texts: str) -> str:
    inner = "".join(f"<text>{text}</text>" for text in texts)
    return f"<case-file-statement><type-code>{code}</type-code>{inner}</case-file-statement>"


# --- Real records ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN)
def test_real_records_say_what_a_person_reads_in_them(name):
    assert [asdict(record) for record in Documents(DATA / name).records()] == GOLDEN[name]


def test_real_documents_are_not_called_simulated():
    for name in GOLDEN:
        documents = Documents(DATA / name)
        assert len(list(documents.records())) == len(GOLDEN[name])
        assert not documents.simulated


def real_descriptions() -> dict[str, dict[str, str]]:
    with (DATA / "mark_descriptions.csv").open(encoding="utf-8", newline="") as file:
        return {row["serial_number"]: row for row in csv.DictReader(file)}


def test_descriptions_of_the_table_are_those_of_the_files():
    table, compared = real_descriptions(), 0
    for record in (record for name in GOLDEN for record in GOLDEN[name]):
        if record["serial"] in table:
            row = table[record["serial"]]
            assert record["description"] == row["description"]
            assert record["mark"] == row["mark_identification"]
            assert record["drawing_code"] == row["mark_drawing_code"][0]
            compared += 1
    assert compared == 6


def test_cleaning_of_real_descriptions():
    changed = {
        "98186103": 'The mark consists of a stylized three-dimensional or "3D" font letter "R", '
        "with the upper left side of the letter resembling a race wing on racing vehicles, which "
        'sits to the left of the stylized and fully capitalized word "RACINO".',
        "98763166": 'The mark consists of letters "SUVENEER" written within a heart shaped design.',
    }
    for serial, row in real_descriptions().items():
        assert clean(row["description"]) == changed.get(serial, row["description"])


# --- Cleaning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("original", "cleaned"),
    [
        ("  The\u00a0mark \n\t consists  of “A” ", 'The mark consists of "A"'),
        ("a ‘b’ ``c''", "a 'b' \"c\""),
        ("the mark consists of the mark consists of a dog", "the mark consists of a dog"),
        ("The mark consists of the design of a dog", "The mark consists of the design of a dog"),
        ("A dog.. A cat. .", "A dog. A cat."),
        ("A dog... A cat", "A dog... A cat"),
        ("A leaf. Design Search Code: 05.03.08", "A leaf."),
        ("A leaf (design codes 050308, 26.01.02).", "A leaf"),
        ("The numerals 26.01.02 below", "The numerals 26.01.02 below"),
        ("A design code below 12 letters", "A design code below 12 letters"),
        ("A leaf. Design codes: " + "26.01.02 " * 400, "A leaf."),
        ("a. . . b", "a. . . b"),
        ("a\u200bb\x07c cafe\u0301", "abc caf\u00e9"),
    ],
)
def test_rules_of_cleaning(original, cleaned):
    assert clean(original) == cleaned


@pytest.mark.parametrize(
    "hostile",
    [
        "Design search codes: " + "26.01.02 " * 20_000 + "and others",
        ";" * 200_000,
        "the mark consists of " * 20_000,
        "design code 26.01.02 " * 20_000,
        ". " * 200_000,
        "((((" * 50_000,
    ],
)
def test_cleaning_ends_whatever_the_text(hostile):
    """The first of these once took longer than anybody waits."""
    assert count_words(clean(hostile)) <= count_words(hostile)


@given(st.text())
def test_cleaning_ends_and_leaves_no_stray_space(text):
    cleaned = clean(text)
    assert cleaned == " ".join(cleaned.split())
    assert count_words(cleaned) <= count_words(text)


@given(st.text("abc .\"'", max_size=60))
def test_letters_are_never_changed(text):
    assert [c for c in clean(text) if c in "abc"] == [c for c in text if c in "abc"]


# --- What is read from a record -------------------------------------------------------------------


def test_texts_of_all_describing_statements_are_joined():
    statements = statement("GS0001", "no") + statement("DM0000", "one", "two")
    statements += statement("DM0001", "three") + statement("D10000", "no")
    inside = f"<case-file-statements>{statements}</case-file-statements>"
    assert read(HEAD + case(inside=inside) + TAIL)[0].description == "one two three"


def test_a_record_may_have_nothing_but_its_serial_number():
    assert read(HEAD + case() + TAIL) == [Record("10000001", 0, None, None, None, [], None)]


@pytest.mark.parametrize("date", ["20231301", "2023", "", "2023010x", "20230132"])
def test_dates_that_are_none(date):
    inside = f"<case-file-header><filing-date>{date}</filing-date></case-file-header>"
    assert read(HEAD + case(inside=inside) + TAIL)[0].filing_date is None


def test_the_five_entities_and_character_references_are_read():
    inside = "<case-file-header><mark-identification>&lt;&amp;&gt;&quot;&apos;&#65;"
    inside += "</mark-identification></case-file-header>"
    assert read(HEAD + case(inside=inside) + TAIL)[0].mark == "<&>\"'A"


@pytest.mark.sample
@pytest.mark.parametrize(
    "bad",
    [
        case("PENDING"),
        case(""),
        b"<case-file></case-file>",
        case(inside="<case-file-header>"),
        case(inside="a & b"),
        case(inside="&undeclared;"),
        case(inside="\x0b"),
        b"<case-file><serial-number>10000009</serial-number>",
        b"<serial-number>10000009</serial-number></case-file>",
        b"<case-file><serial-number>\xff</serial-number></case-file>",
        b"<case-file/>",
        b'<case-file a="1"/>',
        b"</case-file>",
        b"<case-file ><serial-number>10000009</serial-number><!-- </case-file>",
        b"<case-file>" + b"x" * (18 << 20) + b"</case-file>",
        b"<case-file>" + b"<a>" * 5000 + b"</case-file>",
        b'<case-file><!DOCTYPE case-file SYSTEM "/etc/hostname"></case-file>',
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("chunk", [50, 1 << 20])
def test_a_malformed_record_costs_itself_alone(monkeypatch, bad, place, chunk):
    """Wherever it stands, the first and the last place among them."""
    monkeypatch.setattr(cutting, "_CHUNK", chunk if len(bad) < 10_000 else 1 << 20)
    records = [case("10000001"), case("10000002")]
    records.insert(place, bad)
    found = read(HEAD + b"\n".join(records) + TAIL)
    assert [record.serial for record in found if isinstance(record, Record)] == [
        "10000001",
        "10000002",
    ]
    assert sum(isinstance(record, Malformed) and record.why != "" for record in found) == 1


def test_what_a_parser_says_of_a_record_is_one_line():
    found = read(HEAD + case(inside="<a\n" + "x" * 5000 + "\n></b>") + TAIL)
    assert "\n" not in found[0].why
    assert len(found[0].why) < 300


def test_a_record_in_a_comment_is_none():
    comment = b"<!-- " + case("10000009") + b" -->"
    found = read(comment + HEAD + comment + case() + comment + TAIL + comment)
    assert [record.serial for record in found] == ["10000001"]


@pytest.mark.parametrize(
    "junk",
    [
        b"a & b",
        b"\x00",
        b"<case-file<serial-number>10000009</serial-number></case-file>",
        b"<case-fil><serial-number>10000009</serial-number></case-file>",
        b"<case-file><a><![CDATA[</case-file>]]></a></case-file>",
        b"<!-- " + case("10000008") + b" --></case-file>",
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_junk_between_records_costs_no_record(junk, place):
    records = [case("10000001"), case("10000002")]
    records.insert(place, junk)
    found = read(HEAD + b"\n".join(records) + TAIL)
    assert [record.serial for record in found if isinstance(record, Record)] == [
        "10000001",
        "10000002",
    ]
    assert any(isinstance(record, Malformed) for record in found)


def test_records_that_lost_the_tags_between_them_are_none():
    both = case("10000001")[: -len(b"</case-file>")] + case("10000002")[len(b"<case-file>") :]
    found = read(HEAD + both + case("10000003") + TAIL)
    assert [type(record) for record in found] == [Malformed, Record]
    assert "several serial numbers" in found[0].why


def test_texts_without_bounds_are_no_description():
    inside = f"<case-file-statements>{statement('DM0000', 'x ' * 20_000)}</case-file-statements>"
    found = read(HEAD + case(inside=inside) + case("10000002") + TAIL)
    assert [type(record) for record in found] == [Malformed, Record]
    assert found[0].serial == "10000001"


@pytest.mark.parametrize(
    "hostile",
    [
        b"<!--" * 200_000,
        HEAD + b"<" + b"a" * 1_000_000 + b"<case-file>" + TAIL,
        HEAD + b"<case-file>" + b" " * 1_000_000 + b"x" + TAIL + b"x",
    ],
)
def test_hostile_documents_end(hostile):
    """Each of these once took hours."""
    try:
        found = read(hostile)
    except InputError:
        found = []
    assert not any(isinstance(record, Record) for record in found)


@pytest.mark.parametrize("blanks", [b"", b" " * (5 << 20)])
def test_blanks_and_comments_around_are_not_counted(blanks):
    comments = b"<!-- " + b"c" * 1000 + b" -->"
    content = b'<?xml version="1.0"?>' + blanks + HEAD + (case() + comments) * 6000 + TAIL
    assert len(read(content)) == 6000


def test_elements_inside_of_a_text_do_not_end_it():
    inside = f"<case-file-statements>{statement('DM0000', 'a <b>bold</b> dog')}"
    assert read(HEAD + case(inside=f"{inside}</case-file-statements>") + TAIL)[0].description == (
        "a bold dog"
    )


@pytest.mark.parametrize(
    ("date", "number"),
    [("20240229", 20240229), ("99999999", 0), ("20230229", 0), ("00000101", 0), ("2024", 0)],
)
def test_transaction_dates_that_are_none_are_the_lowest(date, number):
    inside = f"<transaction-date>{date}</transaction-date>"
    assert read(HEAD + case(inside=inside) + TAIL)[0].transaction_date == number


def test_blanks_without_end_are_no_record():
    assert len(read(HEAD + case() + b" " * (20 << 20) + TAIL)) == 1


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_where_the_stream_is_cut_does_not_matter(monkeypatch, chunk):
    whole = read((DATA / "case_file_excerpts.xml").read_bytes())
    monkeypatch.setattr(cutting, "_CHUNK", chunk)
    assert read((DATA / "case_file_excerpts.xml").read_bytes()) == whole


def test_a_declared_encoding_is_used():
    head = b'<?xml version="1.0" encoding="iso-8859-1"?>' + HEAD
    inside = "<case-file-header><mark-identification>CAF\u00c9</mark-identification>"
    content = f"<case-file><serial-number>10000001</serial-number>{inside}</case-file-header>"
    found = read(head + (content + "</case-file>").encode("latin-1") + TAIL)
    assert found[0].mark == "CAF\u00c9"


# --- Documents that are refused -------------------------------------------------------------------

BOMB = (
    b'<!DOCTYPE trademark-applications-daily [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">'
    b'<!ENTITY c "&b;&b;&b;&b;">]>'
)
REFUSED = {
    "entities": (BOMB + HEAD + case(inside="&c;") + TAIL, "declares entities"),
    "case file in an entity": (
        b'<!DOCTYPE trademark-applications-daily [<!ENTITY a "<case-file></case-file>">]>' + HEAD,
        "declares entities",
    ),
    "external": (
        b'<!DOCTYPE trademark-applications-daily SYSTEM "file:///etc/passwd">' + HEAD + TAIL,
        "external document type",
    ),
    "other root": (b"<html><body>not found</body></html>", "found <html>"),
    "other root, long": (b"<html>" + b"<p>x</p>" * 600_000, "found <html>"),
    "no XML": (b"serial,text\n1,a\n", "no XML element"),
    "empty": (b"", "no XML element"),
    "binary": (bytes(range(256)) * 40, "no bulk trademark document"),
    "encoding": (
        b'<?xml version="1.0" encoding="utf-7"?>' + HEAD + TAIL,
        "encoded in utf-7",
    ),
    "cut in a record": ((HEAD + case() + TAIL)[:-120], "cut off"),
    "cut after a record": (HEAD + case(), "cut off"),
    "comment without end": (HEAD + case() + b"<!-- " + case() + TAIL, "cut off"),
    "wide": ("<trademark-applications-daily/>".encode("utf-16"), "encoded in utf-16"),
    "page": (
        b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0//EN" "http://www.w3.org/x.dtd"><html></html>',
        "found <html>",
    ),
    "much around": (HEAD + case() + b"x" * (5 << 20) + TAIL, "4 MiB outside"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_documents_that_are_refused(kind):
    content, message = REFUSED[kind]
    with pytest.raises(InputError, match=r"^a\.xml ") as raised:
        read(content)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("where", ["nowhere.dtd", "http://127.0.0.1:9/x.dtd", "{there}"])
def test_the_registers_own_document_type_is_not_fetched_and_not_refused(tmp_path, where):
    (tmp_path / "x.dtd").write_text("<!ELEMENT a ANY")  # reading this would fail
    place = where.format(there=tmp_path / "x.dtd")
    kind = f'<!DOCTYPE trademark-applications-daily PUBLIC "-//USPTO//DTD X//EN" "{place}">'
    assert len(read(kind.encode() + HEAD + case() + TAIL)) == 1


def test_the_parser_is_hardened(tmp_path):
    """Whatever gets past the checks before it."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "x.dtd").write_text('<!ENTITY b "from outside">')
    parse = partial(etree.fromstring, parser=module.hardened_parser("utf-8"))
    outside = f'<!DOCTYPE r SYSTEM "{tmp_path}/x.dtd" [<!ENTITY a SYSTEM "{tmp_path}/secret">]>'
    root = parse(f"{outside}<r>&a;<!-- c --><?p?></r>".encode())
    assert [child.text for child in root] == ["&a;"]
    assert root.getroottree().docinfo.externalDTD is None
    assert parse(BOMB.replace(b"trademark-applications-daily", b"r") + b"<r>&c;</r>").text is None
    for huge in (b"<a>" * 300 + b"</a>" * 300, b"<a>" + b"x" * (11 << 20) + b"</a>"):
        with pytest.raises(etree.XMLSyntaxError):
            parse(huge)


# --- Files ----------------------------------------------------------------------------------------


def test_plain_gzip_and_zip_give_the_same(tmp_path):
    content = (DATA / "case_file_excerpts.xml").read_bytes()
    (tmp_path / "a.xml").write_bytes(content)
    (tmp_path / "a.xml.gz").write_bytes(gzip.compress(content))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.txt", "no XML")
        archive.writestr("a.xml", content)
        archive.writestr("b.XML", content)
    found = {
        name: list(Documents(tmp_path / name).records()) for name in ("a.xml", "a.xml.gz", "a.zip")
    }
    assert len(found["a.xml"]) == 5
    assert found["a.xml.gz"] == found["a.xml"]
    assert found["a.zip"] == found["a.xml"] * 2


def damaged_zip(content: bytes, method: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("a.xml", content)
    zipped = bytearray(buffer.getvalue())
    zipped[500:520] = bytes(20)
    return bytes(zipped)


def damaged_files() -> dict[str, bytes]:
    content = (DATA / "apc_seed_11cases.xml.gz").read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.xml", gzip.decompress(content))
    zipped = bytearray(buffer.getvalue())
    flipped = bytearray(zipped)
    flipped[4000] ^= 0xFF
    empty = io.BytesIO()
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("a.txt", "x")
    locked = bytearray(zipped)
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    return {
        "bz2.zip": damaged_zip(gzip.decompress(content), zipfile.ZIP_BZIP2),
        "lzma.zip": damaged_zip(gzip.decompress(content), zipfile.ZIP_LZMA),
        "locked.zip": bytes(locked),
        "cut.gz": content[:-3000],
        "cut.zip": bytes(zipped[:-3000]),
        "flipped.zip": bytes(flipped),
        "no-xml.zip": empty.getvalue(),
    }


@pytest.mark.parametrize("name", damaged_files())
def test_damaged_files_are_named(tmp_path, name):
    (tmp_path / name).write_bytes(damaged_files()[name])
    with pytest.raises(InputError, match=name) as raised:
        list(Documents(tmp_path / name).records())
    assert ("needs a password" in str(raised.value)) == (name == "locked.zip")


def test_what_a_mac_packs_beside_a_file_is_no_document(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("__MACOSX/._a.xml", b"\x00\x05\x16\x07")
        archive.writestr("a.xml", HEAD + case() + TAIL)
    assert len(list(Documents(tmp_path / "a.zip").records())) == 1
