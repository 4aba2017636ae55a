"""`fairnepv embed`: pictures and texts from anywhere, and the files that `select` reads."""

import csv
import json
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pictures import png, promising
from test_corpora import Pixels
from test_encoders import minilm_installed
from test_encoding import Counting, expected

from fairnepv.errors import InputError
from fairnepv_studies import embedding, encoders, encoding
from fairnepv_studies.feature_files import checksum_of
from fairnepv_studies.stores import open_pictures


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    """Encoders that count, under the names of the real ones."""
    made = []

    def find(name, kind, **_):
        made.append(Pixels() if kind == "image" else Counting())
        return made[-1]

    monkeypatch.setattr(encoders, "find", find)
    return made


def write_images(n: int = 6) -> list[bytes]:
    Path("images/deep").mkdir(parents=True, exist_ok=True)
    pictures = [png(i) for i in range(n)]
    for i, picture in enumerate(pictures):
        Path("images", f"{i}.png" if i else "deep/0.png").write_bytes(picture)
    return [*pictures[1:], pictures[0]]  # in the order of names


def test_a_folder_of_pictures_becomes_a_view(command):
    pictures = write_images()
    code, out, err = command("embed --images images --out vision.npy")
    assert (code, err) == (0, "")
    rows = np.load("vision.npy")
    np.testing.assert_array_equal(rows, Pixels().encode(pictures))
    assert Path("vision.ids.txt").read_text().split() == ["1", "2", "3", "4", "5", "deep/0"]
    about = json.loads(Path("vision.json").read_text())
    assert about["checksum"] == checksum_of(rows)
    assert about["encoder"] == Pixels().name
    assert about["shape"] == [6, 5]
    assert "6 encoded, 0 known before" in out
    assert not Path("vision.rejects.csv").exists()


def test_select_reads_what_embed_wrote(command):
    write_images()
    Path("texts.csv").write_text("id,text\n" + "".join(f"{i},text {i}\n" for i in range(6)))
    assert command("embed --images images --out vision.npy")[0] == 0
    code, out, err = command(
        "select --view vision=vision.npy --ids vision.ids.txt -k 2 --effort fast --json"
    )
    assert (code, err) == (0, "")
    assert len(json.loads(out)["picks"]) == 2


def test_zip_and_column_give_the_same_rows(command):
    pictures = write_images()
    with zipfile.ZipFile("images.zip", "w") as archive:
        for file in Path("images").rglob("*.png"):
            archive.write(file, file.relative_to("images"))
    ids = ["1", "2", "3", "4", "5", "deep/0"]
    pq.write_table(pa.table({"id": ids, "logo": pictures}), "t.parquet", row_group_size=4)
    for name, source in {"a": "images", "b": "images.zip", "c": "t.parquet:logo"}.items():
        assert command(f"embed --images {source} --out {name}.npy")[0] == 0
    for name in "bc":
        assert Path(f"{name}.npy").read_bytes() == Path("a.npy").read_bytes()
        assert Path(f"{name}.ids.txt").read_bytes() == Path("a.ids.txt").read_bytes()


@pytest.mark.parametrize("source", ["images.zip", "images.tar", "t.parquet"])
def test_pictures_in_a_file_that_is_written_to_meanwhile_are_refused(source):
    pictures = write_images()
    with zipfile.ZipFile("images.zip", "w") as archive, tarfile.open("images.tar", "w") as other:
        for file in Path("images").rglob("*.png"):
            archive.write(file, file.relative_to("images"))
            other.add(file, file.relative_to("images"))
    pq.write_table(pa.table({"logo": pictures}), "t.parquet")

    def read(after):
        with open_pictures(source) as found:
            assert isinstance(found.fetch(0), bytes)
            os.utime(source, ns=(after, after))

    read(Path(source).stat().st_mtime_ns)
    with pytest.raises(InputError, match="was changed"):
        read(1)


def test_a_column_is_not_read_once_its_file_was_cut(tmp_path):
    pq.write_table(pa.table({"logo": [png(n) for n in range(3)]}), "t.parquet", row_group_size=1)

    def read():
        with open_pictures("t.parquet") as found:
            os.truncate("t.parquet", 10)  # of which a map kills the process that looks
            found.fetch(2)

    with pytest.raises(InputError, match=r"t\.parquet was changed or removed"):
        read()


def test_a_column_without_ids_is_numbered(command):
    pq.write_table(pa.table({"logo": [png(0), None, png(2)]}), "t.parquet")
    assert command("embed --images t.parquet --out a.npy")[0] == 0
    assert Path("a.ids.txt").read_text() == "0\n2\n"


def test_pictures_that_cannot_be_used_are_left_out_and_listed(command):
    write_images()
    Path("images/dot.png").write_bytes(promising(1, 1))
    Path("images/wall.png").write_bytes(promising(50_000, 50_000))
    Path("images/torn.png").write_bytes(b"torn")
    Path("images/2.jpg").write_bytes(png(7))
    Path("images/new\nline.png").write_bytes(png(8))
    code, out, _ = command("embed --images images --out vision.npy")
    assert code == 0
    assert "6 left out, see vision.rejects.csv" in out
    with open("vision.rejects.csv", newline="") as stream:
        said = {row["id"]: (row["reason"], row["detail"]) for row in csv.DictReader(stream)}
    assert set(said) == {"dot", "wall", "torn", "2", "new\nline"}
    assert said["dot"][0] == "unreadable image"
    assert "1 x 1 pixels" in said["dot"][1]
    assert said["2"] == ("duplicate", "2 items have this id")
    assert len(np.load("vision.npy")) == len(Path("vision.ids.txt").read_text().splitlines()) == 5


def test_a_column_of_texts_becomes_a_view(command):
    Path("t.csv").write_text('key,said\na,one\nb,\nc,"two\nlines"\na,again\n')
    code, out, _ = command("embed --texts t.csv:said --ids key --out text.npy")
    assert code == 0
    np.testing.assert_array_equal(np.load("text.npy"), expected(["two\nlines"]))
    assert Path("text.ids.txt").read_text() == "c\n"
    assert "3 left out" in out
    Path("t.txt").write_text("one\n\ntwo\n")
    assert command("embed --texts t.txt --out lines.npy")[0] == 0
    np.testing.assert_array_equal(np.load("lines.npy"), expected(["one", "two"]))


def test_what_is_known_is_not_encoded_again(command, fake):
    write_images()
    command("embed --images images --out vision.npy --cache shared")
    Path("images/new.png").write_bytes(png(50))
    code, out, _ = command("embed --images images --out other.npy --cache shared")
    assert code == 0
    assert "1 encoded, 6 known before" in out
    assert fake[1].seen == [png(50)]


def test_an_interruption_keeps_what_is_done_and_says_so(command, monkeypatch, fake):
    pictures = write_images()
    monkeypatch.setattr(encoding, "BATCH", 2)
    encode = Pixels.encode

    def interrupted(self, batch):
        if len(self.seen) >= 4:
            raise KeyboardInterrupt
        return encode(self, batch)

    monkeypatch.setattr(Pixels, "encode", interrupted)
    code, out, err = command("embed --images images --out vision.npy")
    assert (code, out) == (130, "")
    assert "interrupted at 4 of 6 rows, which are kept; the same command goes on" in err
    assert not Path("vision.npy").exists()
    monkeypatch.setattr(Pixels, "encode", encode)
    assert command("embed --images images --out vision.npy")[0] == 0
    assert fake[1].seen == pictures[4:]
    np.testing.assert_array_equal(np.load("vision.npy"), Pixels().encode(pictures))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--out a.npy", "give either --images or --texts"),
        ("--images images --texts t.csv --out a.npy", "give either --images or --texts"),
        ("--images images --ids id --out a.npy", "--ids names a column of --texts"),
        ("--images images --out a.csv", "--out"),
        ("--images images --out no/a.npy", "does not exist"),
        ("--images none --out a.npy", "does not exist"),
        ("--images bad --out a.npy", "none of 1 can be encoded"),
        ("--texts none.csv --out a.npy", "does not exist"),
        ("--texts t.csv:x --out a.npy", "no column 'x'"),
        ("--texts empty.csv --out a.npy", "there is nothing to encode"),
        ("--images images --out there.npy", "--force"),
    ],
)
def test_bad_input_is_one_sentence(command, line, said):
    write_images(2)
    Path("bad").mkdir()
    Path("bad/a.png").write_bytes(b"")
    Path("t.csv").write_text("id,text\n1,one\n")
    Path("empty.csv").write_text("id,text\n")
    Path("there.npy").write_bytes(b"")
    code, out, err = command(f"embed {line}")
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert not Path("a.npy").exists()


@pytest.mark.parametrize("sibling", ["a.ids.txt", "a.json", "a.rejects.csv"])
def test_files_that_stand_beside_are_replaced_only_by_force(command, fake, sibling):
    write_images(2)
    Path(sibling).write_text("mine")
    code, out, err = command("embed --images images --out a.npy")
    assert (code, out) == (2, "")
    assert f"{sibling} exists already" in err
    assert "--force" in err
    assert Path(sibling).read_text() == "mine"
    assert not fake  # before an encoder was asked for
    assert command("embed --images images --out a.npy --force")[0] == 0
    assert not Path(sibling).exists() or Path(sibling).read_text() != "mine"


def test_what_a_run_left_that_was_stopped_at_its_end_is_its_own(command, monkeypatch):
    write_images(3)
    Path("images/torn.png").write_bytes(b"torn")
    line = "embed --images images --cache kept --out"

    def stopped(*_):
        raise KeyboardInterrupt

    for moment in ("_write_rejects", "describe"):
        with monkeypatch.context() as patch:
            patch.setattr(embedding, moment, stopped)
            assert command(f"{line} a.npy")[0] == 130
        assert Path("a.ids.txt").exists()
        assert not Path("a.npy").exists()
    assert command(f"{line} a.npy")[0] == 0
    assert command(f"{line} b.npy")[0] == 0
    for ending in ("npy", "ids.txt", "rejects.csv"):
        assert Path(f"a.{ending}").read_bytes() == Path(f"b.{ending}").read_bytes()
    assert sorted(file.name for file in Path().glob(".*")) == []


def test_a_file_that_ends_early_is_no_interruption(command, monkeypatch):
    def ended(*_):
        raise EOFError

    monkeypatch.setattr(embedding, "survey_texts", ended)
    code, _, err = command("embed --texts t.csv --out a.npy")
    assert code == 2
    assert "ends too early" in err
    assert "interrupted" not in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence_that_names_the_file(command):
    write_images(2)
    Path(".a.ids.txt.part").symlink_to("/dev/full")
    code, _, err = command("embed --images images --out a.npy")
    assert code == 2
    assert "a.ids.txt cannot be written (No space left on device)" in err
    assert len(err.splitlines()) == 1
    assert command("embed --images images --out a.npy")[0] == 0


def test_an_unknown_encoder_is_refused_before_anything_is_read(command, monkeypatch):
    monkeypatch.undo()
    code, _, err = command("embed --images none --encoder resnet --out a.npy")
    assert code == 2
    assert "no image encoder 'resnet'" in err


@pytest.mark.encoders
@pytest.mark.slow
@minilm_installed
def test_the_command_with_a_real_encoder(command, monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("id,text\n1,one\n2,two\n")
    code, out, err = command("embed --texts t.csv --out a.npy")
    assert (code, err) == (0, "")
    assert "2 x 384 by minilm 0.1.0" in out
