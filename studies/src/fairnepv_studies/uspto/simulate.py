"""A corpus of our own in the register's format: marks that were drawn by lot, with descriptions
that name what was drawn, as bulk XML and a zip of images.

Every item has streams of random numbers of its own, so the files are made in chunks, in any order,
and a run that was interrupted goes on with the chunks that it lacks.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fairnepv import __version__
from fairnepv.errors import InputError
from fairnepv.io.atomic import put_in_place
from fairnepv.io.locks import locked
from fairnepv.io.places import sha256_of
from fairnepv_studies.files import appearing, local, write_whole
from fairnepv_studies.progress import StageProgress
from fairnepv_studies.uspto.applications import Case, case_xml, document
from fairnepv_studies.uspto.drawing import draw_picture
from fairnepv_studies.uspto.marks import Mark, draw_mark, lot
from fairnepv_studies.uspto.noise import KINDS, SHARE, SimulatedRecord, disturb
from fairnepv_studies.uspto.wording import LEAST, MOST, describe_mark

CHUNK = 2000  # items of a file
VERSION = 2  # of what is drawn and written: chunks of another one are made again
MOST_ITEMS = 10_000_000
FIRST_SERIAL = 10_000_000  # real serial numbers at hand begin with 7 or more
LABEL, TRUTH, IMAGES, LATER = (
    "SIMULATED.txt",
    "truth.parquet",
    "images.zip",
    "applications-later.xml",
)
WORK = ".simulate"
_ENDINGS = ("xml", "later", "zip", "parquet")  # the files of a chunk,
_SUMS = "sums"  # and their checksums

_TEXTS = (
    "file", "serial", "filing_date", "mark", "drawing_code", "original", "text", "kind",
    "image_state", "image_sha256", "motif", "extra", "carrier", "border", "word", "place",
    "drawing", "wording",
)  # fmt: skip
_CHUNK_SCHEMA = pa.schema(
    [(name, pa.string()) for name in _TEXTS]
    + [
        ("transaction_date", pa.int32()),
        ("design_codes", pa.list_(pa.string())),
        ("malformed", pa.bool_()),
        ("later", pa.bool_()),
    ]
)
_TRUTH_SCHEMA = _CHUNK_SCHEMA.append(pa.field("expected", pa.string()))
_GOODS = (
    "Retail store services featuring a wide variety of consumer goods of others",
    "Clothing, namely, shirts, hats, jackets, gloves and footwear for all purposes",
    "Downloadable software for planning, measuring and comparing simulated things",
    "Coffee, tea, cocoa and artificial coffee; bread, pastry and confectionery",
    "Educational services, namely, conducting classes and workshops and distributing material",
)


def simulate(
    n: int,
    seed: int,
    out: str | Path,
    *,
    force: bool = False,
    progress: StageProgress = lambda *_: None,
) -> int:
    """Write n applications with their images under `out`; returns how many case files there are."""
    if not 1 <= n <= MOST_ITEMS:
        raise InputError(f"--n must be from 1 to {MOST_ITEMS:,}, not {n}")
    folder = local(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        work = _work_folder(folder, f"{WORK}-{VERSION}-{n}-{seed}", force)
        chunks = [range(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK)]
        for number, items in enumerate(chunks):
            if not _is_whole(number, work):
                _make_chunk(number, items, seed, work, lambda done: progress("drawing", done, n))
            progress("drawing", items.stop, n)
        return _assemble(n, seed, len(chunks), work, folder, progress)


def _work_folder(out: Path, name: str, force: bool) -> Path:
    """Whoever has begun may go on; else what is there is only replaced when that was asked for, and
    a folder of something else never."""
    begun = list(out.glob(f"{WORK}-*"))
    if (out / LABEL).exists() and out / name not in begun and not force:
        raise InputError(f"{out} has been made already; add --force to replace it")
    if out.exists() and any(out.iterdir()) and not begun and not (out / LABEL).exists():
        raise InputError(f"{out} has files that were not simulated; name a new folder")
    for other in begun:
        if other.name != name:
            shutil.rmtree(other)
    (out / name).mkdir(parents=True, exist_ok=True)
    return out / name


# --- one record ---------------------------------------------------------------------------------


def simulated_record(
    seed: int, item: int, draw: Callable[[Mark], bytes] = draw_picture
) -> tuple[Mark, SimulatedRecord]:
    """The mark of an item, and its record with or without noise."""
    mark = draw_mark(seed, item)
    record = _sound_record(mark, seed, item, draw)
    rng = lot(seed, item, 1)
    if item > 0 and rng.random() < SHARE:
        kind = list(KINDS)[int(rng.integers(len(KINDS)))]
        earlier = item - 1 - int(rng.integers(min(item, 50)))
        record = disturb(
            record,
            kind,
            rng,
            lambda: _sound_record(draw_mark(seed, earlier), seed, earlier, draw),
        )
    return mark, record


def _sound_record(
    mark: Mark, seed: int, item: int, draw: Callable[[Mark], bytes]
) -> SimulatedRecord:
    rng = lot(seed, item, 3)
    text = describe_mark(mark, seed, item)
    serial = str(FIRST_SERIAL + item)
    year, month, day = rng.integers((2000, 1, 1), (2024, 13, 29))
    case = Case(
        serial=serial,
        transaction_date=20240600 + int(rng.integers(1, 29)),
        filing_date=f"{year:04}{month:02}{day:02}",
        mark=mark.word,
        drawing_code=f"{mark.drawing_code}000",
        statements=[("GS0351", [_GOODS[int(rng.integers(len(_GOODS)))]]), ("DM0000", [text])],
        design_codes=mark.codes,
    )
    return SimulatedRecord(case, [(f"{serial}.png", draw(mark))], text, text)


# --- one chunk ----------------------------------------------------------------------------------


def _name(number: int, ending: str) -> str:
    return f"applications-{number:05}.{ending}"


def _make_chunk(
    number: int, items: range, seed: int, work: Path, progress: Callable[[int], None]
) -> None:
    """XML, images, later transactions, and the truth."""
    cases, later, rows, images = [], [], [], io.BytesIO()
    with zipfile.ZipFile(images, "w") as archive:
        for item in items:
            mark, record = simulated_record(seed, item)
            cases.append(case_xml(record.case))
            rows.append(_truth(mark, record, record.case, _name(number, "xml")))
            if record.again is not None:
                later.append(case_xml(record.again))
                rows.append(_truth(mark, record, record.again, LATER))
            for name, content in record.images:
                _add(archive, name, content)
            if item % 50 == 0:
                progress(item)
    write_whole(work / _name(number, "xml"), document(cases))
    write_whole(work / _name(number, "later"), "".join(later).encode())
    write_whole(work / _name(number, "zip"), images.getvalue())
    table = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=_CHUNK_SCHEMA), table)
    write_whole(work / _name(number, "parquet"), table.getvalue())
    write_whole(work / _name(number, _SUMS), "\n".join(_sums(number, work)).encode())


def _is_whole(number: int, work: Path) -> bool:
    """Whether a chunk is there as it was made: a power cut may leave files that have lost their
    ends."""
    files = [work / _name(number, ending) for ending in (*_ENDINGS, _SUMS)]
    if not all(file.is_file() for file in files):
        return False
    return files[-1].read_bytes().decode("ascii", "replace").split() == _sums(number, work)


def _sums(number: int, work: Path) -> list[str]:
    return [sha256_of(work / _name(number, ending)) for ending in _ENDINGS]


def _truth(mark: Mark, record: SimulatedRecord, case: Case, file: str) -> dict[str, Any]:
    later = file == LATER
    one = len(record.images) == 1
    return {
        "file": file,
        "later": later,
        "serial": case.serial,
        "filing_date": case.filing_date,
        "transaction_date": case.transaction_date,
        "mark": case.mark,
        "drawing_code": case.drawing_code,
        "design_codes": case.design_codes,
        "original": record.again_original if later else record.original,
        "text": record.again_text if later else record.text,
        "kind": record.kind,
        "malformed": record.malformed,
        "image_state": record.image_state,
        "image_sha256": hashlib.sha256(record.images[0][1]).hexdigest() if one else None,
        "motif": mark.motif.name,
        "extra": mark.extra.name if mark.extra else None,
        "carrier": mark.carrier,
        "border": mark.border,
        "word": mark.word,
        "place": mark.place if mark.word else None,
        "drawing": mark.drawing,
        "wording": mark.wording,
    }


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Without anything that depends on the clock or the machine."""
    member = zipfile.ZipInfo(name)
    member.create_system, member.external_attr = 3, 0o644 << 16
    archive.writestr(member, content)


# --- the whole ----------------------------------------------------------------------------------


def _assemble(
    n: int, seed: int, chunks: int, work: Path, out: Path, progress: StageProgress
) -> int:
    """From chunks to the folder; the label goes first and comes last."""
    later = [(work / _name(number, "later")).read_text("utf-8") for number in range(chunks)]
    write_whole(work / LATER, document(later))
    with zipfile.ZipFile(work / IMAGES, "w") as archive:
        for number in range(chunks):
            with zipfile.ZipFile(work / _name(number, "zip")) as part:
                for member in part.infolist():
                    _add(archive, member.filename, part.read(member))
            progress("assembling", number + 1, chunks)
    rows = _write_truth(chunks, work)
    (work / LABEL).write_text(_label(n, seed), encoding="utf-8")
    (out / LABEL).unlink(missing_ok=True)
    for old in out.glob("applications-*.xml"):  # of another size
        old.unlink()
    for number in range(chunks):
        with appearing(out / _name(number, "xml")) as part:
            shutil.copyfile(work / _name(number, "xml"), part)
    for name in (LATER, IMAGES, TRUTH, LABEL):
        put_in_place(work / name, out / name)
    shutil.rmtree(work)
    return rows


def _write_truth(chunks: int, work: Path) -> int:
    """What a reader should find, in the order in which it reads the files, chunk by chunk."""
    files = [work / _name(number, "parquet") for number in range(chunks)]
    judge = Judge(files)
    with pq.ParquetWriter(work / TRUTH, _TRUTH_SCHEMA, compression="zstd") as writer:
        for later in (False, True):
            for file in files:
                table = pq.read_table(file, filters=[("later", "=", later)])
                expected = pa.array([judge(row) for row in table.to_pylist()], pa.string())
                table = table.append_column(_TRUTH_SCHEMA.field("expected"), expected)
                writer.write_table(table.combine_chunks())
    return int(pq.read_metadata(work / TRUTH).num_rows)


class Judge:
    """Why a record is left out, or "kept"; said here once more, in other words than ingest's."""

    def __init__(self, files: list[Path]) -> None:
        self._newest: dict[str, int] = {}
        self._images: set[str] = set()
        self._texts: set[str] = set()
        for file in files:
            columns = pq.read_table(file, columns=["serial", "transaction_date"])
            for serial, date in zip(*(column.to_pylist() for column in columns), strict=True):
                self._newest[serial] = max(date, self._newest.get(serial, 0))

    def __call__(self, row: dict[str, Any]) -> str:
        words = len((row["text"] or "").split())
        wrong = {
            "malformed": row["malformed"],
            "superseded": row["transaction_date"] < self._newest[row["serial"]],
            "no description": row["text"] is None,
            "too short": words < LEAST,
            "too long": words > MOST,
            row["image_state"]: row["image_state"] != "",
            "duplicate image": row["image_sha256"] in self._images,
            "duplicate text": row["text"] in self._texts,
        }
        found = next((reason for reason, holds in wrong.items() if holds), "kept")
        if found == "kept":
            self._images.add(row["image_sha256"])
            self._texts.add(row["text"])
        return found


def _label(n: int, seed: int) -> str:
    return (
        "SIMULATED DATA. The marks in this folder were drawn by a program and their descriptions "
        "written by it.\nNo record of the USPTO or of any trademark office is among them, and no "
        "figure that is made from\nthem is a result about the register.\n"
        f"Made by fairnepv {__version__}: fairnepv uspto simulate --n {n} --seed {seed}\n"
    )
