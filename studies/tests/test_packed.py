"""Archives that would become more than anybody has room for, or that lie about it."""

import gzip
import io
import os
import tarfile
import warnings
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from pictures import png
from test_uspto_records import HEAD, TAIL, case

from fairnepv.errors import InputError
from fairnepv_studies import packed
from fairnepv_studies.embedding import survey_pictures
from fairnepv_studies.stores import open_pictures
from fairnepv_studies.texts import texts_at
from fairnepv_studies.uspto import cutting, documents
from fairnepv_studies.uspto.documents import Documents

METHODS = {
    "deflate": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}
MEMBER = 100_000  # bytes of nothing, of each of
MEMBERS = 30


@pytest.fixture(autouse=True)
def small_limits(monkeypatch, tmp_path):
    """A million bytes for every archive; the real limits would take seconds to reach."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(packed, "FLOOR", 1_000_000)
    monkeypatch.setattr(packed, "RATIO", 2)


def bomb(method: int, ending: str, content: bytes = bytes(MEMBER)) -> bytearray:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for i in range(MEMBERS):
            archive.writestr(f"{i}{ending}", content)
    return bytearray(buffer.getvalue())


def lying(archive: bytearray, size: int) -> bytearray:
    """The same, where every header says that its member has so many bytes."""
    at = 0
    while (at := archive.find(b"PK\x01\x02", at)) >= 0:
        archive[at + 24 : at + 28] = size.to_bytes(4, "little")
        at += 4
    return archive


@pytest.mark.parametrize("method", METHODS)
def test_an_archive_of_pictures_has_a_limit_in_all(method):
    Path("a.zip").write_bytes(bomb(METHODS[method], ".png"))
    with pytest.raises(InputError, match=r"a\.zip unpacks to more than 1,000,000 bytes"):
        open_pictures("a.zip").__enter__()


@pytest.mark.parametrize("method", ["bzip2", "lzma"])
def test_headers_that_promise_little_do_not_matter(method):
    Path("a.zip").write_bytes(lying(bomb(METHODS[method], ".png"), 10))
    with open_pictures("a.zip") as pictures:
        fetched = map(pictures.fetch, range(MEMBERS))
        with pytest.raises(InputError, match="unpacks to more than 1,000,000 bytes"):
            list(fetched)


def test_deflate_gives_no_more_than_its_header_promised():
    Path("a.zip").write_bytes(lying(bomb(zipfile.ZIP_DEFLATED, ".png"), 10))
    with open_pictures("a.zip") as pictures:
        assert all(len(pictures.fetch(place)) < 100 for place in range(MEMBERS))


def test_a_member_that_explodes_costs_itself_alone(monkeypatch):
    monkeypatch.setattr(packed, "MOST_AT_ONCE", 50_000)
    with zipfile.ZipFile("a.zip", "w") as archive:
        archive.writestr("0.png", bytes(MEMBER), zipfile.ZIP_BZIP2)
        archive.writestr("1.png", png(1), zipfile.ZIP_BZIP2)
    with open_pictures("a.zip") as pictures:
        assert "bytes become 100,000" in str(pictures.fetch(0))
        assert pictures.fetch(1) == png(1)


def test_pictures_are_paid_for_once():
    """Whoever makes a corpus reads every one of them twice."""
    pictures = {f"{i}.png": png(i, side=100) for i in range(20)}
    assert 500_000 < sum(map(len, pictures.values())) < 1_000_000
    with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_LZMA) as archive:
        for name, content in pictures.items():
            archive.writestr(name, content)
    with survey_pictures("a.zip") as survey:
        assert len(list(survey.contents(range(20)))) == 20


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [None, 10])
def test_a_zip_of_documents_has_a_limit_in_all(method, size):
    document = HEAD + case() + b" " * MEMBER + TAIL
    content = bomb(METHODS[method], ".xml", document)
    Path("a.zip").write_bytes(content if size is None else lying(content, size))
    with pytest.raises(InputError, match=r"a\.zip"):
        list(Documents(Path("a.zip")).records())


def test_a_gzipped_document_has_a_limit():
    content = HEAD + (case() + b" " * 10_000) * 200 + TAIL
    Path("a.gz").write_bytes(gzip.compress(content))
    with pytest.raises(InputError, match=r"a\.gz unpacks to more than 1,000,000 bytes"):
        list(Documents(Path("a.gz")).records())


def test_a_plain_document_has_a_limit(monkeypatch):
    monkeypatch.setattr(documents, "MOST_BYTES", 1000)
    Path("a.xml").write_bytes(HEAD + case() * 20 + TAIL)
    with pytest.raises(InputError, match=r"a\.xml unpacks to more than 1,000 bytes"):
        list(Documents(Path("a.xml")).records())


@pytest.mark.parametrize(
    "nothing",
    [b" " * 100_000, b"<!--" + b"-" * 100_000, b"<case-file>" + b"x" * 100_000],
    ids=["blanks", "a comment", "a record"],
)
@pytest.mark.parametrize("before", [b"", HEAD, HEAD + case()], ids=["alone", "head", "record"])
def test_nothing_without_end_is_refused_soon(monkeypatch, nothing, before):
    monkeypatch.setattr(cutting, "MAX_IDLE", 50_000)
    monkeypatch.setattr(cutting, "_CHUNK", 10_000)
    Path("a.gz").write_bytes(gzip.compress(before + nothing))
    read = Documents(Path("a.gz"))
    said = "in which no case file ends" if before else r"a\.gz is no bulk trademark document"
    with pytest.raises(InputError, match=said):
        list(read.records())


def twins(kind: str, ending: str) -> str:
    file = f"a.{kind}"
    if kind == "zip":
        with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
            warnings.simplefilter("ignore")
            for i in range(2):
                archive.writestr(f"b/a{ending}", bytes([i]))
    else:
        with tarfile.open(file, "w") as archive:
            for i in range(2):
                member = tarfile.TarInfo(f"b/a{ending}")
                member.size = 1
                archive.addfile(member, io.BytesIO(bytes([i])))
    return file


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_two_pictures_of_one_name_are_refused(kind):
    with pytest.raises(InputError, match=rf"a\.{kind} has two members of the name 'b/a\.png'"):
        open_pictures(twins(kind, ".png")).__enter__()


def test_two_documents_of_one_name_are_refused():
    with pytest.raises(InputError, match=r"a\.zip has two members of the name 'b/a\.xml'"):
        list(Documents(Path(twins("zip", ".xml"))).records())


def test_one_picture_in_many_rows_is_held_once():
    """Stored once, as a dictionary has it: 500 kB that would be 50 MB."""
    table = pa.table({"id": [str(i) for i in range(100)], "image": [bytes(500_000)] * 100})
    pq.write_table(table, "a.parquet")
    del table
    before = pa.total_allocated_bytes()
    with open_pictures("a.parquet") as pictures:
        assert all(len(pictures.fetch(place)) == 500_000 for place in (0, 1, 99))
        assert pa.total_allocated_bytes() - before < 6_000_000


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_text_that_stands_in_many_rows_is_counted_as_often(ending):
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 40_000, pa.int32()), ["x" * 10_000])
    if ending == "parquet":
        pq.write_table(pa.table({"text": texts}), "a.parquet")
    else:
        feather.write_feather(pa.table({"text": texts}), "a.arrow")
    with pytest.raises(InputError, match=rf"a\.{ending}.* expands from .*-fold; write each value"):
        texts_at(f"a.{ending}:text")


def test_headers_of_a_tar_have_a_limit():
    """A file with a hole takes no room on the disk; what it calls its header would, in memory."""
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    Path("a.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT))
    os.truncate("a.tar", 1 << 40)
    with pytest.raises(InputError, match=r"a\.tar cannot be read as tar \(.*a header has no end"):
        open_pictures("a.tar").__enter__()


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.parquet", "a.xml", "images/0.png"])
def test_pipes_are_not_waited_for(name):
    Path("images").mkdir()
    os.mkfifo(name)
    opened = open_pictures("images" if "/" in name else name)
    read = Documents(Path(name)).records().__next__ if name == "a.xml" else opened.__enter__
    with pytest.raises(InputError, match=r"is no file|a pipe|has no pictures"):
        read()
