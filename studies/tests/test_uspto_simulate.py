"""Simulated bulk files: valid, labelled, skewed, and the same wherever they are made."""

import hashlib
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lxml import etree
from PIL import Image

from fairnepv.errors import InputError
from fairnepv.io.locks import locked
from fairnepv_studies.pictures import pixels_sha256
from fairnepv_studies.uspto import drawing
from fairnepv_studies.uspto import simulate as module
from fairnepv_studies.uspto.applications import DTD
from fairnepv_studies.uspto.drawing import Canvas, draw_picture, indexed_png
from fairnepv_studies.uspto.marks import ARRANGEMENTS, BORDERS, CARRIERS, COLOURS, draw_mark
from fairnepv_studies.uspto.motifs import NUMBERS, motifs, strokes
from fairnepv_studies.uspto.noise import KINDS, claiming
from fairnepv_studies.uspto.simulate import simulate
from fairnepv_studies.uspto.wording import describe_mark

N = 300


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("simulated") / "raw"
    simulate(N, 0, folder)
    return folder


def files_of(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- Files ----------------------------------------------------------------------------------------


def test_files_are_valid_under_the_dtd(raw):
    dtd = etree.DTD(io.StringIO((resources.files("fairnepv_studies.uspto") / DTD).read_text()))
    files = sorted(raw.glob("applications-*.xml"))
    assert [file.name for file in files] == ["applications-00000.xml", "applications-later.xml"]
    for file in files:
        assert dtd.validate(etree.parse(file)), dtd.error_log.last_error
        inside = etree.XMLParser(dtd_validation=True, no_network=True)
        etree.parse(file, inside)  # and under the copy inside of it


def test_it_is_called_simulated(raw):
    assert (raw / "SIMULATED.txt").read_text().startswith("SIMULATED DATA.")
    for file in raw.glob("applications-*.xml"):
        assert b"<!-- SIMULATED by fairnepv" in file.read_bytes()[:200]


def test_serial_numbers_are_not_the_registers(raw):
    serials = pq.read_table(raw / "truth.parquet")["serial"].to_pylist()
    assert all(serial.startswith("1") or serial == "PENDING" for serial in serials)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(raw, tmp_path):
    simulate(N, 0, tmp_path / "same")
    simulate(N, 1, tmp_path / "other")
    assert files_of(tmp_path / "same") == files_of(raw)
    other = files_of(tmp_path / "other")
    assert all(other[name] != content for name, content in files_of(raw).items())


def test_texts_and_pixels_are_known(raw):
    """The same on every machine and with every Pillow; others need another VERSION."""
    found = {**files_of(raw), "pixels": pixels_of(raw / "images.zip")}
    assert {name: found[name][:16] for name in KNOWN} == KNOWN


KNOWN = {
    "applications-00000.xml": "0b821b5ddd22b48b",
    "applications-later.xml": "f836aa16cc45a237",
    "pixels": "a5aebfd8bf16670a",
}


def pixels_of(archive: Path) -> str:
    """A checksum of the names of all pictures, and of their pixels where there are some."""
    found = hashlib.sha256()
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            try:
                pixels = pixels_sha256(opened.read(name))
            except InputError:  # cut, tiny, enormous
                pixels = "none"
            found.update(f"{name} {pixels}\n".encode())
    return found.hexdigest()


def test_pixels_do_not_depend_on_the_compressor(raw):
    with zipfile.ZipFile(raw / "images.zip") as archive:
        content = archive.read("10000000.png")
    with Image.open(io.BytesIO(content)) as picture:
        again = io.BytesIO()
        picture.convert("RGB").save(again, "PNG", compress_level=1)
    assert again.getvalue() != content
    assert pixels_sha256(again.getvalue()) == pixels_sha256(content)
    with Image.open(io.BytesIO(content)) as picture:
        picture.putpixel((0, 0), picture.getpixel((0, 0)) ^ 1)
        other = io.BytesIO()
        picture.save(other, "PNG")
    assert pixels_sha256(other.getvalue()) != pixels_sha256(content)


@pytest.mark.slow
def test_chunks_do_not_matter_to_what_is_drawn(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 70)
    simulate(N, 0, tmp_path / "raw")
    assert files_of(tmp_path / "raw")["images.zip"] == files_of(raw)["images.zip"]
    columns = ["serial", "text", "image_sha256", "expected"]
    chunked = pq.read_table(tmp_path / "raw" / "truth.parquet", columns=columns)
    assert chunked.equals(pq.read_table(raw / "truth.parquet", columns=columns))


def test_what_is_there_is_not_replaced_unless_asked(tmp_path):
    simulate(3, 0, tmp_path / "raw")
    with pytest.raises(InputError, match="--force"):
        simulate(3, 0, tmp_path / "raw")
    simulate(2, 0, tmp_path / "raw", force=True)
    assert pq.read_metadata(tmp_path / "raw" / "truth.parquet").num_rows == 2


def test_an_unfinished_run_does_not_open_what_is_finished(tmp_path):
    out = tmp_path / "raw"
    simulate(3, 0, out)
    before = files_of(out)
    (out / f"{module.WORK}-1-4-0").mkdir()  # as a forced run that was killed leaves it
    with pytest.raises(InputError, match="--force"):
        simulate(2, 0, out)
    assert files_of(out) == before


@pytest.mark.parametrize("name", ["applications-2018.xml", "images.zip", "notes.txt"])
@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_something_else_is_left_alone(tmp_path, name, force):
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="not simulated"):
        simulate(2, 0, tmp_path, force=force)
    assert files_of(tmp_path).keys() == {name}


@pytest.mark.parametrize("n", [0, -1, 10_000_001])
def test_sizes_that_are_refused(tmp_path, n):
    with pytest.raises(InputError, match="--n must be"):
        simulate(n, 0, tmp_path / "raw")
    assert not (tmp_path / "raw").exists()


def test_of_two_that_draw_into_a_folder_the_second_is_refused(tmp_path):
    (tmp_path / "raw").mkdir()
    with (
        locked(tmp_path / "raw"),
        pytest.raises(InputError, match=r"another run is at work in .*raw"),
    ):
        simulate(5, 0, tmp_path / "raw")
    assert not list((tmp_path / "raw").iterdir())


def test_progress_ends_with_everything(tmp_path):
    heard = []
    simulate(5, 0, tmp_path / "raw", progress=lambda *row: heard.append(row))
    assert heard == [("drawing", 0, 5), ("drawing", 5, 5), ("assembling", 1, 1)]


# --- What is drawn and what is said ---------------------------------------------------------------


def test_a_few_motifs_are_common_and_many_are_rare():
    names = Counter(draw_mark(0, i).motif.name for i in range(3000))
    counts = [count for _, count in names.most_common()]
    assert len(motifs()) > 80
    assert len(names) > 70
    assert sum(counts[:5]) > 0.35 * 3000
    assert counts[0] > 15 * counts[len(counts) // 2]


def test_styles_of_drawing_and_wording_do_not_go_together():
    marks = [draw_mark(0, i) for i in range(6000)]
    pairs = Counter((mark.drawing, mark.wording) for mark in marks)
    assert len(pairs) == 36
    expected = 6000 / 36
    chi_squared = sum((count - expected) ** 2 / expected for count in pairs.values())
    assert chi_squared < 66  # 35 degrees of freedom: one in a thousand is above


@given(st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_a_description_names_every_element_drawn(item):
    mark = draw_mark(7, item)
    text = describe_mark(mark, 7, item)
    named = mark.motif.name if mark.count == 1 else mark.motif.plural
    assert named in text
    assert mark.count == 1 or NUMBERS[mark.count] in text
    if mark.extra:
        number = ARRANGEMENTS[mark.arrangement]
        assert (mark.extra.name if number == 1 else mark.extra.plural) in text
        assert mark.arrangement in text
    assert (f'"{mark.word}"' in text) == (mark.word is not None)
    assert any(f"{name} behind the" in text for name in CARRIERS) == (mark.carrier is not None)
    assert any(f"{name} around the" in text for name in BORDERS) == (mark.border is not None)
    assert ("solid black background" in text) == (mark.drawing == "reversed")
    assert ("Color is not claimed" in text) != mark.claimed
    assert not mark.claimed or f"{mark.colours[0]} {named}" in text


def test_the_colours_of_a_picture_are_those_that_its_description_claims():
    for item in range(80):
        mark = draw_mark(0, item)
        if not mark.claimed:
            continue
        with Image.open(io.BytesIO(draw_picture(mark))) as image:
            pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
        found, counts = np.unique(pixels, axis=0, return_counts=True)
        names = {colour: name for name, colour in COLOURS.items()}
        drawn = {names.get(tuple(colour), "white") for colour in found.tolist()}
        said = set(re.findall(r"[a-z]+", describe_mark(mark, 0, item).lower()))
        assert drawn - {"white"} == said & set(COLOURS)
        assert ("white" in drawn) == (mark.drawing != "reversed")
        assert counts.min() >= 30


def test_smaller_motifs_leave_the_word_its_place():
    for item in range(400):
        mark = draw_mark(5, item)
        if mark.word and mark.extra:
            x, y, r, box = drawing._LAYOUTS[mark.place]
            alone, written = Canvas(mark), Canvas(mark)
            for place in drawing._around(mark.arrangement, x, y, r):
                alone.motif(mark.extra, *place, drawing._SMALL, 0, 1, on_carrier=False)
            written.word(mark.word, box)
            assert not ((alone.pixels > 0) & (written.pixels > 0)).any()


def test_descriptions_mostly_have_the_length_that_is_asked_for():
    words = [len(describe_mark(draw_mark(0, i), 0, i).split()) for i in range(2000)]
    assert np.mean([40 <= count <= 100 for count in words]) > 0.99


def test_every_motif_and_letter_can_be_drawn():
    names = [motif.name for motif in motifs()]
    assert len(set(names)) == len(names)
    for motif in motifs():
        assert len(motif.code) == 6
        assert all(len(points) >= 3 for points, _ in motif.shapes())
    assert all(strokes(letter) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


@pytest.mark.slow
def test_pictures_show_something():
    for item in range(60):
        with Image.open(io.BytesIO(draw_picture(draw_mark(0, item)))) as image:
            pixels = np.asarray(image.convert("RGB"))
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) >= 2
        assert min(pixels.shape[:2]) >= 160


def test_every_kind_of_noise_occurs_and_one_record_in_twenty_is_noisy(raw, tmp_path):
    kinds = Counter(
        module.simulated_record(0, item, lambda mark: b"x" * 10)[1].kind for item in range(6000)
    )
    assert set(kinds) == {"", *KINDS}
    assert 0.04 < 1 - kinds[""] / 6000 < 0.06


# --- PNG ------------------------------------------------------------------------------------------


@given(
    arrays(
        np.uint8,
        st.tuples(st.integers(1, 40), st.integers(1, 700)),
        elements=st.sampled_from([0, 0, 0, 0, 7, 255]),
    )
)
@settings(max_examples=60, deadline=None)
def test_pixels_survive_being_written(pixels):
    palette = [(i, 255 - i, i // 2) for i in range(256)]
    with Image.open(io.BytesIO(indexed_png(pixels, palette))) as image:
        assert np.array_equal(np.asarray(image), pixels)
        assert image.convert("RGB").getpixel((0, 0)) == palette[pixels[0, 0]]


@pytest.mark.parametrize("size", [(1, 1), (5, 7), (6000, 4000)])
def test_a_header_claims_a_size(size):
    with Image.open(io.BytesIO(claiming(*size))) as image:
        assert image.size == size


def test_a_chunk_that_lost_its_end_is_made_anew(tmp_path, monkeypatch):
    from fairnepv_studies.uspto import simulate as module

    monkeypatch.setattr(module, "CHUNK", 4)
    simulate(8, 0, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(module, "_assemble", lambda *_: 0)
        simulate(8, 0, tmp_path / "out")
    (work,) = (tmp_path / "out").iterdir()
    for ending in ("xml", "sums"):
        file = sorted(work.glob(f"*{ending}"))[0]
        file.write_bytes(file.read_bytes()[:-9])
    simulate(8, 0, tmp_path / "out")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_no_bulk_file_appears_before_it_is_whole(tmp_path, monkeypatch):
    seen = []
    copy = shutil.copyfile

    def copied(source, target):
        copy(source, target)
        seen.append(sorted(p.name for p in (tmp_path / "out").glob("applications-*.xml")))

    monkeypatch.setattr(shutil, "copyfile", copied)
    simulate(4, 0, tmp_path / "out")
    assert seen == [[]]
    assert len(list((tmp_path / "out").glob("applications-*.xml"))) > 0


def test_the_log_tells_of_the_files_that_are_left(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("uspto simulate --n 4 --out raw --log-file run.log").code == 0
    line = "uspto ingest raw/applications-00000.xml --images raw/images.zip --out corpus"
    assert command(f"{line} --log-file run.log").code == 0
    lines = [json.loads(line) for line in Path("run.log").read_text().splitlines()]
    told = {event: [x for x in lines if x["event"] == event] for event in ("output", "rows", "end")}
    written = {Path(line["path"]) for line in told["output"]}
    assert {file.relative_to(tmp_path) for file in (tmp_path / "raw").iterdir()} <= written
    assert {Path("corpus") / name for name in ("items.parquet", "corpus.json")} <= written
    assert {line["what"] for line in told["rows"]} >= {"drawing", "assembling", "reading XML"}
    assert [line["code"] for line in told["end"]] == [0, 0]


# --- Killed ---------------------------------------------------------------------------------------


def run_killed(moment: str, *arguments: str) -> int:
    command = [sys.executable, str(Path(__file__).parent / "killed.py"), moment, *arguments]
    return subprocess.run(command, check=False).returncode


@pytest.mark.slow
@pytest.mark.kill
def test_killed_at_any_moment_it_ends_in_the_same_bytes(tmp_path):
    assert run_killed("never", "simulate", "130", str(tmp_path / "whole")) == 0
    out = str(tmp_path / "out")
    for moment in (
        "bytes:1",
        "replace:3",
        "bytes:4",
        "replace:5",
        "replace:9",
        "unlink:4",
        "rmtree:1",
    ):
        assert run_killed(moment, "simulate", "130", out) == -signal.SIGKILL
    assert run_killed("never", "simulate", "130", out) == 0
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
