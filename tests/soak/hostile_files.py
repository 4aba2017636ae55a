"""Files that somebody has made to run code, to fill memory, to be read outside of their bounds or
to reach other files: each is refused in a sentence, or read for what it is and no more."""

import contextlib
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fairnepv
import row_files
from fairnepv.errors import FairnepvError
from fairnepv.io.read import read_ids, read_picks
from fairnepv.report.page.pictures import thumbnail
from soak.formats import ASKED, DATA, ROWS, N, rows_of
from soak.guarded import Guarded, refused, trouble
from soak.runner import Group

RAN = "ran"  # a file that payloads would make
CASES: dict[str, Callable[[], None]] = {}


def hostile(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def keep(case: Callable[[], None]) -> Callable[[], None]:
        assert name not in CASES
        CASES[name] = case
        return case

    return keep


# --- code ----------------------------------------------------------------------------------------


class Payload:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {RAN}",)


def _object_npy() -> bytes:
    made = io.BytesIO()
    np.save(made, np.array([Payload()], dtype=object), allow_pickle=True)
    return made.getvalue()


def _zip(members: dict[str, bytes], packed: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", packed) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


def _npy(rows: Any) -> bytes:
    made = io.BytesIO()
    np.save(made, rows)
    return made.getvalue()


def _written(name: str, content: bytes) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(content)
    return name


PICKLED = pickle.dumps(Payload())
for _name in (
    "a.npy",
    "a.npz",
    "a.csv",
    "a.json",
    "a.parquet",
    "a.arrow",
    "a.safetensors",
    "a.txt",
):

    @hostile(f"a pickle called {_name}")
    def _(name: str = _name) -> None:
        given = _written(name, PICKLED)
        rows = name.endswith(("npy", "npz", "parquet", "arrow", "safetensors"))
        refused(lambda: rows_of(given) if rows else read_picks(given, "row"))


for _name in ("a.pt", "a.pkl", "a.joblib"):

    @hostile(f"a pickle called {_name}, as formats have it that run code")
    def _(name: str = _name) -> None:
        refused(lambda: rows_of(_written(name, PICKLED)))


@hostile("objects in .npy")
def _() -> None:
    refused(lambda: rows_of(_written("a.npy", _object_npy())))


@hostile("objects in .npz")
def _() -> None:
    refused(lambda: rows_of(_written("a.npz", _zip({"rows.npy": _object_npy()}))))


@hostile("objects as ids")
def _() -> None:
    refused(lambda: read_ids(_written("ids.npy", _object_npy())))


@hostile("objects as the format of a sparse matrix")
def _() -> None:
    parts = {"format.npy": _object_npy(), "data.npy": _npy(np.ones(1))}
    refused(lambda: rows_of(_written("a.npz", _zip(parts))))


@hostile("objects in a saved selection")
def _() -> None:
    refused(lambda: fairnepv.load(_written("a.npz", _zip({"about.npy": _object_npy()}))))


@hostile("a checkpoint that is a pickle")
def _() -> None:
    state = _written("state", PICKLED)
    refused(lambda: fairnepv.select(DATA, 3, checkpoint=state, **ASKED), "state")


# --- sparse matrices -----------------------------------------------------------------------------


def _sparse(**changes: Any) -> str:
    """Three rows of two columns, in CSR."""
    parts: dict[str, Any] = {
        "format": np.array(b"csr"),
        "shape": np.array([3, 2]),
        "indptr": np.array([0, 1, 2, 3]),
        "indices": np.array([0, 1, 0]),
        "data": np.array([1.0, 2.0, 3.0]),
    }
    parts |= {name: np.asarray(value) for name, value in changes.items()}
    return _written("s.npz", _zip({f"{name}.npy": _npy(value) for name, value in parts.items()}))


SPARSE: dict[str, dict[str, Any]] = {
    "a column behind the last": {"indices": [0, 2, 0]},
    "a column far behind": {"indices": [0, 2**31 - 1, 0]},
    "a column beyond int32": {"indices": [0, 2**40, 0]},
    "a negative column": {"indices": [0, -1, 0]},
    "row ends that fall": {"indptr": [0, 2, 1, 3]},
    "row ends behind the last": {"indptr": [0, 1, 2, 300]},
    "a negative row end": {"indptr": [0, -5, 2, 3]},
    "a first row end that is not 0": {"indptr": [1, 1, 2, 3]},
    "too few row ends": {"indptr": [0, 3]},
    "fewer values than columns": {"data": [1.0]},
    "columns that are fractions": {"indices": [0.5, 1.0, 0.0]},
    "columns that are NaN": {"indices": [np.nan, 1.0, 0.0]},
    "a shape that is negative": {"shape": [-3, 2]},
    "a shape without end": {"shape": [3, 2**62]},
    "rows without end": {"shape": [2**62, 2]},
    "three dimensions": {"shape": [3, 2, 1]},
    "values that are texts": {"data": ["a", "b", "c"]},
    "values that are infinite": {"data": [np.inf, 1.0, 2.0]},
    "a format that nobody has": {"format": np.array(b"xyz")},
    "blocks that do not fit": {"format": np.array(b"bsr")},
    "diagonals without offsets": {"format": np.array(b"dia")},
}
for _name, _changes in SPARSE.items():

    @hostile(f"sparse: {_name}")
    def _(changes: dict[str, Any] = _changes) -> None:
        refused(lambda: rows_of(_sparse(**changes)))


# --- headers -------------------------------------------------------------------------------------


def _headed(header: str, content: bytes = b"\0" * 64, version: bytes = b"\x01\x00") -> bytes:
    text = header.encode("latin1")
    wide = version >= b"\x02"
    return b"\x93NUMPY" + version + len(text).to_bytes(4 if wide else 2, "little") + text + content


def _shape(shape: str, dtype: str = "<f8", fortran: str = "False") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


HEADERS = {
    "a shape beyond the file": _headed(_shape("(1000000000, 8)")),
    "a shape beyond int64": _headed(_shape(f"({2**70}, 8)")),
    "a shape whose product overflows": _headed(_shape(f"({2**33}, {2**33})")),
    "a negative shape": _headed(_shape("(-1, 8)")),
    "a shape of truth": _headed(_shape("(True, 8)")),
    "a shape of texts": _headed(_shape("('a', 8)")),
    "a call": _headed(f"__import__('os').system('touch {RAN}')\n"),
    "a call as shape": _headed(_shape(f"__import__('os').system('touch {RAN}')")),
    "nesting without end": _headed("(" * 60_000 + "\n"),
    "numbers without end": _headed(_shape("(" + "9" * 60_000 + ", 2)")),
    "a type that is void": _headed(_shape("(2, 2)", "|V8")),
    "a type of 2 GiB": _headed(_shape("(1, 1)", f"<U{2**29}")),
    "a header of 4 GiB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 64,
    "a version from the future": _headed(_shape("(2, 2)"), version=b"\x09\x00"),
}
for _name, _content in HEADERS.items():

    @hostile(f"npy: {_name}")
    def _(content: bytes = _content) -> None:
        refused(lambda: rows_of(_written("a.npy", content)))


def _tensor(header: Any, content: bytes = b"\0" * 64, size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + content


def _at(begin: int, end: int, shape: Any = (2, 4), kind: str = "F64") -> dict[str, Any]:
    return {"rows": {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}}


TENSORS = {
    "a header beyond the file": _tensor(_at(0, 64), size=2**62),
    "an end beyond the file": _tensor(_at(0, 2**40, (2**37, 1))),
    "a negative beginning": _tensor(_at(-64, 0)),
    "an end before the beginning": _tensor(_at(64, 0)),
    "a negative shape": _tensor(_at(0, 64, (-2, -4))),
    "a type that nobody has": _tensor(_at(0, 64, kind="PICKLE")),
    "nesting without end": _tensor(b"[" * 100_000),
    "one name twice": _tensor(
        json.dumps(_at(0, 64)).encode()[:-1] + b", " + json.dumps(_at(0, 8, (1, 1))).encode()[1:]
    ),
}
for _name, _content in TENSORS.items():

    @hostile(f"safetensors: {_name}")
    def _(content: bytes = _content) -> None:
        refused(lambda: rows_of(_written("a.safetensors", content)))


# --- what is larger than it says -----------------------------------------------------------------


def _bomb(megabytes: int) -> bytes:
    """Zeros as .npy rows, packed a thousandfold."""
    made = io.BytesIO()
    rows = megabytes << 17
    header = _headed(_shape(f"({rows // 8}, 8)").ljust(118) + "\n", b"")
    with (
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("rows.npy", "w", force_zip64=True) as member,
    ):
        member.write(header)
        for _ in range(megabytes):
            member.write(b"\0" * (1 << 20))
    return made.getvalue()


def _lying_zip(content: bytes, claimed: int) -> bytes:
    """The same with another size in both directories."""
    at = content.rindex(b"PK\x01\x02")
    own = struct.pack("<I", claimed)
    lying = bytearray(content)
    lying[at + 24 : at + 28] = own
    lying[22:26] = own
    return bytes(lying)


@hostile("an .npz that unpacks to 2 GiB")
def _() -> None:
    given = _written("a.npz", _bomb(2048))
    refused(lambda: rows_of(given))


@hostile("an .npz that says it is small and unpacks to 512 MiB")
def _() -> None:
    refused(lambda: rows_of(_written("a.npz", _lying_zip(_bomb(512), 1000))))


@hostile("a saved selection that unpacks to 2 GiB")
def _() -> None:
    refused(lambda: fairnepv.load(_written("a.npz", _bomb(2048))))


@hostile("a recipe of 64 MiB")
def _() -> None:
    from fairnepv.cli.recipe import read_recipe
    from fairnepv.cli.select import select

    refused(lambda: read_recipe(_written("r.toml", b"k = 3\n" * (11 << 20)), select), "1 MiB")


@hostile("a recipe that is nested without end")
def _() -> None:
    from fairnepv.cli.recipe import read_recipe
    from fairnepv.cli.select import select

    refused(lambda: read_recipe(_written("r.toml", b"k = " + b"[" * 200_000), select))


@hostile("JSON that is nested without end")
def _() -> None:
    refused(lambda: read_picks(_written("p.json", b"[" * 500_000), "row"))


# --- other files ---------------------------------------------------------------------------------


@hostile("a member that climbs out of its archive")
def _() -> None:
    given = _written("sub/a.npz", _zip({"../../rows.npy": _npy(ROWS), "/abs.npy": _npy(ROWS)}))
    with contextlib.suppress(FairnepvError):
        rows_of(given)
    assert sorted(p.name for p in Path().rglob("*")) == ["a.npz", "sub"]  # nothing is unpacked


def _manifest(file: str) -> str:
    rows = {"file": file, "rows": N, "sha256": "0" * 64}
    about = {"format": "fairnepv rows 1", "n": N, "p": 3, "dtype": "float32", "shards": [rows]}
    _written("secret.npy", _npy(ROWS))
    return _written("folder/manifest.json", json.dumps(about).encode()).rpartition("/")[0]


for _file in (
    "../secret.npy",
    "/etc/passwd",
    "..\\secret.npy",
    "a/../../secret.npy",
    "",
    ".",
    "..",
):

    @hostile(f"a manifest that names {_file!r}")
    def _(file: str = _file) -> None:
        refused(lambda: rows_of(_manifest(file)))


@hostile("a data set that names a file outside")
def _() -> None:
    row_files.write_data_set("set", row_files.table(row_files.lists(ROWS)))
    state = {"_data_files": [{"filename": "../secret.arrow"}]}
    Path("set/state.json").write_text(json.dumps(state))
    row_files.write_arrow("secret.arrow", row_files.table(row_files.lists(ROWS)), stream=True)
    refused(lambda: rows_of("set:rows"))


@hostile("a view that is a pipe")
def _() -> None:
    os.mkfifo("a.npy")
    refused(lambda: rows_of("a.npy"))


@hostile("a view that is a device")
def _() -> None:
    os.symlink("/dev/zero", "a.npy")
    refused(lambda: rows_of("a.npy"))


@hostile("a view that links to itself")
def _() -> None:
    os.symlink("a.npy", "a.npy")
    refused(lambda: rows_of("a.npy"))


@hostile("pictures of a .tar that link to other files")
def _() -> None:
    from fairnepv_studies.stores.opening import open_pictures

    Path("secret").write_text("hidden")
    with tarfile.open("p.tar", "w") as archive:
        for name, kind in (
            ("a.png", tarfile.SYMTYPE),
            ("b.png", tarfile.LNKTYPE),
            ("c.png", tarfile.FIFOTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "secret"
            archive.addfile(member)
    with open_pictures("p.tar") as found:
        told = [found.fetch(place) for place in range(len(found.ids))]
    assert all(isinstance(one, str) and "hidden" not in one for one in told), told


@hostile("pictures of a .zip that climb out of it")
def _() -> None:
    from fairnepv_studies.stores.opening import open_pictures

    _written("p.zip", _zip({"../../x.png": b"x", "/y.png": b"y"}))
    before = sorted(Path().rglob("*"))
    with open_pictures("p.zip") as found:
        assert [found.fetch(place) for place in range(len(found.ids))]
    assert sorted(Path().rglob("*")) == before


@hostile("entities that grow a billionfold")
def _() -> None:
    _parsed(
        b"".join(
            b'<!ENTITY e%d "%s">' % (i, b"&e%d;" % (i - 1) * 10 if i else b"lol") for i in range(12)
        ),
        b"&e11;",
    )


@hostile("an entity that is another file")
def _() -> None:
    Path("secret").write_text("hidden")
    _parsed(f'<!ENTITY e SYSTEM "{Path("secret").absolute().as_uri()}">'.encode(), b"&e;")


def _parsed(entities: bytes, text: bytes) -> None:
    """A document of the register with these entities is refused, or they stand for nothing."""
    from fairnepv_studies.uspto.documents import Documents

    head = b'<?xml version="1.0"?><!DOCTYPE trademark-applications-daily [' + entities + b"]>"
    body = b"<trademark-applications-daily><case-file><serial-number>" + text
    tail = b"</serial-number></case-file></trademark-applications-daily>"
    _written("x.xml", head + body + tail)
    try:
        told = [repr(record) for record in Documents(Path("x.xml")).records()]
    except FairnepvError:
        return
    assert not any("hidden" in one or "lollol" in one for one in told), told


# --- pictures ------------------------------------------------------------------------------------


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def _png(width: int, height: int, pixels: bytes = b"", *more: bytes) -> bytes:
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = _chunk(b"IDAT", zlib.compress(pixels)) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(more) + body


PICTURES = {
    "a PNG of a billion pixels": _png(40_000, 40_000),
    "a PNG of as many as a number can hold": _png(2**31 - 1, 2**31 - 1),
    "a PNG of no pixels": _png(0, 0),
    "a PNG with fewer pixels than it says": _png(100, 100, b"\0" * 100),
    "a PNG whose text unpacks to 64 MiB": _png(
        1, 1, b"\0\0\0\0", _chunk(b"zTXt", b"x\0\0" + zlib.compress(b"\0" * (64 << 20)))
    ),
    "a GIF of 65,535 by 65,535": (
        b"GIF89a\xff\xff\xff\xff\x80\0\0" + b"\0" * 6
        + b",\0\0\0\0\xff\xff\xff\xff\0\x02\x02L\x01\0;"
    ),
    "a BMP with a negative size": (
        b"BM" + struct.pack("<IHHIIiiHH", 60, 0, 0, 54, 40, -5, -(2**31), 1, 24) + b"\0" * 40
    ),
    "a TIFF that points into itself": (
        b"II*\0\x08\0\0\0\x01\0\0\x01\x04\0\xff\xff\xff\x7f\x08\0\0\0\x08\0\0\0"
    ),
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
    "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n(%pipe%touch ran) (w) file\n",
    "a pickle": PICKLED,
}  # fmt: skip
for _name, _content in PICTURES.items():

    @hostile(f"a picture: {_name}")
    def _(content: bytes = _content) -> None:
        made = thumbnail(content)
        assert made is None or (made.startswith("data:image/") and len(made) < 1 << 17)


# --- markup --------------------------------------------------------------------------------------


class _Seen(HTMLParser):
    """What a browser would take for elements of its own accord."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        assert not any((value or "").strip().startswith("javascript:") for _, value in attrs)


MARKUP = "</script><script>touch</script><img src=x onerror=touch>"
FIELDS = ("view", "id", "text", "group", "title", "quota")


def _page(markup: str, field: str) -> _Seen:
    def field_text(here: str, plain: str) -> str:
        return f"{plain} {markup}" if here == field else plain

    data = {field_text("view", "a"): DATA["a"], "b": DATA["b"]}
    ids = [field_text("id", f"i{i}") for i in range(N)]
    groups = [field_text("quota", "red")] * N
    found = fairnepv.select(data, 3, ids=ids, groups=groups, **ASKED)
    texts, labels = [field_text("text", "x")] * N, [field_text("group", "g")] * N
    found.report("p.html", texts=texts, groups=labels, title=field_text("title", "t"))
    seen = _Seen()
    seen.feed(Path("p.html").read_text())
    return seen


for _field in FIELDS:

    @hostile(f"markup as {_field} of a page")
    def _(field: str = _field) -> None:
        hostile_page, plain = _page(MARKUP, field), _page("", field)
        assert (hostile_page.tags, hostile_page.handlers) == (plain.tags, [])


@hostile("markup in a notebook")
def _() -> None:
    found = fairnepv.select({MARKUP: DATA["a"]}, 3, ids=[f"{MARKUP}{i}" for i in range(N)], **ASKED)
    seen = _Seen()
    seen.feed(found._repr_html_())
    assert "script" not in seen.tags
    assert "img" not in seen.tags


@hostile("formulas and markup in a table of picks")
def _() -> None:
    ids = [f"=cmd|'/c calc'!A{i}" for i in range(N)]
    column = pa.table({"id": ids, "rows": row_files.lists(ROWS)})
    pq.write_table(column, "t.parquet")
    found = fairnepv.select({"a": fairnepv.open_rows("t.parquet:rows")}, 3, ids=ids, **ASKED)
    from fairnepv.io.write import TABLES, Output, write_table

    write_table(Output.at("picks.csv", TABLES, force=True), found.table)
    written = Path("picks.csv").read_text()
    assert "\n=" not in written
    assert ",=" not in written
    assert read_ids("picks.csv").tolist() == found.ids.tolist()


# --- one case ------------------------------------------------------------------------------------


def inside(number: int, folder: Path) -> str:
    name = list(CASES)[number]

    def task() -> None:
        CASES[name]()
        assert not any(Path().rglob(RAN)), "a payload ran"

    return trouble(name, task, folder)


CASE = Guarded("soak.hostile_files", 30.0).case
GROUP = Group("hostile-files", CASE, len(CASES), sample=range(0, len(CASES), 4), patience=300.0)
