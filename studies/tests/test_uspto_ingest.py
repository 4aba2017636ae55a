"""From bulk files and images to a corpus: what is kept, what is not and why, and the same again."""

import csv
import io
import json
import os
import shutil
import signal
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pictures import png, stored
from PIL import Image
from test_uspto_records import BOMB, DATA, HEAD, TAIL, case, damaged_files, statement
from test_uspto_simulate import files_of, run_killed

from fairnepv.cli import commands
from fairnepv.errors import InputError
from fairnepv_studies import pictures
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.making import WORK
from fairnepv_studies.protocol.publication import corpus_record
from fairnepv_studies.uspto.images import open_images
from fairnepv_studies.uspto.ingest import STEPS, Words, ingest
from fairnepv_studies.uspto.parts import Part, latest_rows, read_part
from fairnepv_studies.uspto.simulate import simulate

N = 300


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("simulated") / "raw"
    simulate(N, 3, folder)
    return folder


@pytest.fixture(scope="module")
def corpus(raw, tmp_path_factory) -> Corpus:
    out = tmp_path_factory.mktemp("ingested") / "corpus"
    ingest(bulk(raw), f"{raw}/images.zip", out)
    return Corpus.open(out)


@pytest.fixture(scope="module")
def truth(raw) -> list[dict]:
    return pq.read_table(raw / "truth.parquet").to_pylist()


def bulk(raw: Path) -> list[Path]:
    return sorted(raw.glob("applications-*.xml"))


def rejects_of(corpus: Corpus) -> list[dict[str, str]]:
    with (corpus.folder / "rejects.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- Round trip -----------------------------------------------------------------------------------


def test_every_kept_field_is_what_was_simulated(corpus, truth):
    expected = [row for row in truth if row["expected"] == "kept"]
    assert len(expected) > 0.9 * N
    items = corpus.items.to_pylist()
    assert [item["id"] for item in items] == [row["serial"] for row in expected]
    for item, row in zip(items, expected, strict=True):
        date = row["filing_date"]
        code = row["drawing_code"]
        assert item["text"] == row["text"]
        assert item["original"] == row["original"]
        assert item["words"] == len(row["text"].split())
        assert item["image_sha256"] == row["image_sha256"]
        assert item["mark"] == row["mark"]
        assert item["drawing_code"] == (code[0] if code else None)
        assert item["filing_date"] == f"{date[:4]}-{date[4:6]}-{date[6:]}"
        assert item["transaction_date"] == row["transaction_date"]
        assert item["design_codes"] == row["design_codes"]
        assert item["source"] == row["file"]


def test_what_was_left_out_is_listed_with_its_reason(corpus, truth):
    found = [(row["source"], row["id"], row["reason"]) for row in rejects_of(corpus)]
    expected = [
        (row["file"], row["serial"], row["expected"]) for row in truth if row["expected"] != "kept"
    ]
    assert found == expected


def test_the_funnel_is_what_the_truth_says(corpus, truth):
    reasons = Counter(row["expected"] for row in truth)
    left = len(truth)
    assert corpus.about.funnel[0] == ["case files read", left]
    for (what, count), reason in zip(corpus.about.funnel[1:], STEPS, strict=True):
        left -= reasons[reason]
        assert (what, count) == (STEPS[reason], left)
    assert left == corpus.n


def test_images_are_the_bytes_that_came(corpus, raw):
    with zipfile.ZipFile(raw / "images.zip") as archive:
        for id, image in zip(corpus.ids, corpus.images(), strict=True):
            assert image == archive.read(f"{id}.png")


def test_the_corpus_says_what_it_is(corpus):
    about = corpus.about
    assert about.kind == "uspto"
    assert about.simulated
    assert about.name == "simulated uspto"
    assert [source["name"] for source in about.sources] == [
        "applications-00000.xml",
        "applications-later.xml",
        "images.zip",
    ]
    assert all(len(source["sha256"]) == 64 for source in about.sources[:-1])
    assert about.sources[-1].keys() == {"name", "images", "names_sha256"}  # not its bytes
    assert about.images_by == "pixels"
    assert about.rules["length"] == "40 to 100 words"
    corpus.check()


def recompressed(archive: Path, target: Path) -> None:
    """The same pictures as another version of Pillow would write them."""
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if not isinstance(pictures.check(content), str):
                with Image.open(io.BytesIO(content)) as picture:
                    content = stored(picture.convert("RGB"), compress_level=1)
            new.writestr(name, content)


def test_a_simulated_corpus_is_the_same_whoever_compressed_its_pictures(corpus, raw, tmp_path):
    (tmp_path / "other").mkdir()
    recompressed(raw / "images.zip", tmp_path / "other" / "images.zip")
    ingest(bulk(raw), f"{tmp_path}/other/images.zip", tmp_path / "corpus")
    other = Corpus.open(tmp_path / "corpus")
    assert other.image_hashes != corpus.image_hashes
    assert corpus_record(other.about) == corpus_record(corpus.about)  # what verify compares
    for one in (corpus, other):
        one.check()
        one.check_images()


def test_a_changed_pixel_is_found(corpus, tmp_path):
    """Whoever changes an image and its checksums has another corpus."""
    folder = shutil.copytree(corpus.folder, tmp_path / "corpus")
    items, images = (pq.read_table(folder / f"{name}.parquet") for name in ("items", "images"))
    rows, contents = items.to_pylist(), images.column("image").to_pylist()
    with Image.open(io.BytesIO(contents[7])) as picture:
        picture.putpixel((0, 0), picture.getpixel((0, 0)) ^ 1)
        contents[7] = stored(picture)
    table = images.set_column(1, "image", pa.array(contents, pa.binary()))
    pq.write_table(table, folder / "images.parquet")
    with pytest.raises(InputError, match=r"image of 1.* does not have the checksum"):
        Corpus.open(folder).check_images()
    found = pictures.check(contents[7], pixels=True)
    rows[7]["image_sha256"] = found.image_sha256
    pq.write_table(pa.Table.from_pylist(rows, schema=items.schema), folder / "items.parquet")
    Corpus.open(folder).check()
    with pytest.raises(InputError, match=r"pixels of 1.* do not have the checksum"):
        Corpus.open(folder).check_images()
    rows[7]["pixels_sha256"] = found.pixels_sha256
    pq.write_table(pa.Table.from_pylist(rows, schema=items.schema), folder / "items.parquet")
    with pytest.raises(InputError, match="has changed since it was made"):
        Corpus.open(folder).check()


def test_nothing_is_left_of_the_work(corpus):
    assert sorted(path.name for path in corpus.folder.iterdir()) == [
        "corpus.json",
        "images.parquet",
        "items.parquet",
        "rejects.csv",
    ]


# --- Images from anywhere -------------------------------------------------------------------------


def other_images(raw: Path, folder: Path, kind: str) -> Path:
    """The images of the zip in another kind of store, in the same order."""
    with zipfile.ZipFile(raw / "images.zip") as archive:
        content = [(name, archive.read(name)) for name in archive.namelist()]
    if kind == "folder":
        for name, image in content:
            (folder / "images" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "images" / name).write_bytes(image)
        (folder / "images" / "readme.txt").write_text("no image")
        return folder / "images"
    if kind == "tar":
        with tarfile.open(folder / "images.tar", "w") as archive:
            for name, image in content:
                member = tarfile.TarInfo(f"logos/{name}")
                member.size = len(image)
                archive.addfile(member, io.BytesIO(image))
        return folder / "images.tar"
    serials = [int(Path(name).stem) for name, _ in content]
    images = [{"bytes": image, "path": name} for name, image in content]
    table = pa.table({"serial_number": serials, "image": images})
    pq.write_table(table, folder / "images.parquet", row_group_size=50)
    return folder / "images.parquet"


@pytest.mark.parametrize("kind", ["folder", "tar", "parquet"])
def test_images_of_every_store_give_the_same_items(raw, corpus, tmp_path, kind):
    images = other_images(raw, tmp_path, kind)
    about = ingest(bulk(raw), str(images), tmp_path / "corpus")
    assert about.checksum == corpus.about.checksum
    assert about.funnel == corpus.about.funnel


def test_a_zip_of_bulk_files_gives_the_same_items(raw, corpus, tmp_path):
    with zipfile.ZipFile(tmp_path / "bulk.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in bulk(raw):
            archive.write(file, file.name)
    about = ingest([tmp_path / "bulk.zip"], f"{raw}/images.zip", tmp_path / "corpus")
    assert about.checksum == corpus.about.checksum
    assert about.simulated


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("images.rar", b"x", "give a folder"),
        ("images.zip", b"PK\x03\x04 cut", "cannot be read as zip"),
        ("images.tar", b"no tar at all" * 100, "cannot be read as tar"),
        ("images.parquet", b"PAR1", "cannot be read as Parquet"),
    ],
)
def test_stores_that_are_refused(raw, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        ingest(bulk(raw)[:1], str(tmp_path / name), tmp_path / "corpus")


def test_a_table_without_the_columns_is_refused(raw, tmp_path):
    pq.write_table(pa.table({"a": [b"1"]}), tmp_path / "images.parquet")
    with pytest.raises(InputError, match="no column serial_number"):
        ingest(bulk(raw)[:1], str(tmp_path / "images.parquet"), tmp_path / "corpus")


def test_a_damaged_member_of_a_zip_costs_itself_alone(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("10000001.png", b"A" * 5000)
        archive.writestr("10000002.png", b"B" * 10)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[2000] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(bytes(content))
    with open_images(str(tmp_path / "a.zip")) as images:
        assert "cannot be unpacked" in str(images.of("10000001"))
        assert images.of("10000002") == b"B" * 10


# --- Latest transactions --------------------------------------------------------------------------


def part_of(tmp_path: Path, name: str, *cases: tuple[str, str]) -> Part:
    records = (
        case(serial, f"<transaction-date>{date}</transaction-date>" if date else "")
        for serial, date in cases
    )
    (tmp_path / name).write_bytes(HEAD + b"".join(records) + TAIL)
    return read_part(tmp_path / name, name, tmp_path)


def test_the_latest_date_wins_and_then_the_last_in_the_order_of_files(tmp_path):
    first = part_of(
        tmp_path, "a.xml", ("10000001", "20200101"), ("10000002", "20210101"), ("10000003", "")
    )
    second = part_of(
        tmp_path,
        "b.xml",
        ("10000001", "20200101"),
        ("10000002", "20200101"),
        ("10000003", "20200101"),
        ("bad", "20240101"),
        ("00000004", "nonsense"),
    )
    found = [rows.tolist() for rows in latest_rows([first, second])]
    assert found == [[False, True, False], [True, False, True, False, True]]


def test_a_later_transaction_without_description_wins_too(tmp_path):
    words = " ".join(["word"] * 50)
    said = f"<case-file-statements>{statement('DM0000', words)}</case-file-statements>"
    old = case("10000001", "<transaction-date>20200101</transaction-date>" + said)
    new = case("10000001", "<transaction-date>20210101</transaction-date>")
    (tmp_path / "a.xml").write_bytes(HEAD + new + old + TAIL)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "10000001.png").write_bytes(png())
    about = ingest([tmp_path / "a.xml"], str(tmp_path / "images"), tmp_path / "corpus")
    assert about.n == 0
    assert [row["reason"] for row in rejects_of(Corpus.open(tmp_path / "corpus"))] == [
        "no description",
        "superseded",
    ]


def test_the_order_of_files_decides_between_equal_dates(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "10000001.png").write_bytes(png())
    for name in ("aa", "bb"):
        said = statement("DM0000", " ".join([name] * 50))
        inside = f"<case-file-statements>{said}</case-file-statements>"
        (tmp_path / f"{name}.xml").write_bytes(HEAD + case(inside=inside) + TAIL)
    for names in (("aa", "bb"), ("bb", "aa")):
        files = [tmp_path / f"{name}.xml" for name in names]
        ingest(files, str(tmp_path / "images"), tmp_path / names[1] / "corpus")
        assert Corpus.open(tmp_path / names[1] / "corpus").texts == [" ".join([names[1]] * 50)]


# --- Real files -----------------------------------------------------------------------------------


def test_real_files_pass_through_the_funnel(tmp_path):
    """Without their logos nothing is left, but everything before that is counted."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "10000001.png").write_bytes(png())
    files = [DATA / "apc_seed_11cases.xml.gz", DATA / "case_file_excerpts.xml"]
    about = ingest(files, str(tmp_path / "images"), tmp_path / "corpus", words=Words(18, 39))
    assert not about.simulated
    assert [count for _, count in about.funnel[:8]] == [16, 16, 16, 6, 5, 4, 4, 0]


# --- Started again --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.kill
def test_killed_at_any_moment_it_ends_in_the_same_bytes(tmp_path):
    raw = str(tmp_path / "raw")
    assert run_killed("never", "simulate", "130", raw) == 0
    assert run_killed("never", "ingest", raw, str(tmp_path / "whole")) == 0
    out = str(tmp_path / "out")
    for moment in (
        "table:1",
        "table:4",
        "replace:2",
        "replace:5",
        "table:9",
        "replace:3",
        "unlink:4",
        "rmtree:1",
    ):
        assert run_killed(moment, "ingest", raw, out) == -signal.SIGKILL
        whole = (tmp_path / "out" / "corpus.json").exists()
        assert whole == moment.startswith(("unlink", "rmtree"))
    assert run_killed("never", "ingest", raw, out) == 0
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_parts_are_read_once(raw, tmp_path, monkeypatch):
    """After an interruption in the last step the files are not parsed again."""
    from fairnepv_studies.uspto import ingest as module
    from fairnepv_studies.uspto import parts

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "move_in", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ingest(bulk(raw), f"{raw}/images.zip", tmp_path / "corpus")
    (work,) = (tmp_path / "corpus").glob(f"{WORK}-*")
    shutil.copytree(work, tmp_path / "kept")
    monkeypatch.setattr(parts, "_write", interrupted)
    monkeypatch.setattr(module, "verdict_on", interrupted)
    ingest(bulk(raw), f"{raw}/images.zip", tmp_path / "corpus")
    for kind in ("*.parquet", "verdicts/*.parquet"):  # of damaged ones nothing is believed
        shutil.copytree(tmp_path / "kept", tmp_path / "corpus" / work.name)
        damaged = sorted((tmp_path / "corpus" / work.name).glob(kind))[0]
        damaged.write_bytes(damaged.read_bytes()[:-100])
        with pytest.raises(KeyboardInterrupt):
            ingest(bulk(raw), f"{raw}/images.zip", tmp_path / "corpus", force=True)
        shutil.rmtree(tmp_path / "corpus" / work.name)


@pytest.mark.sample(1)
@pytest.mark.parametrize("damage", [lambda content: content[:-9], lambda content: b"", None])
def test_a_damaged_state_is_made_anew(raw, corpus, tmp_path, monkeypatch, damage):
    from fairnepv_studies.uspto import ingest as module

    out = tmp_path / "corpus"
    with monkeypatch.context() as patch:
        patch.setattr(module, "move_in", lambda *_: None)
        ingest(bulk(raw), f"{raw}/images.zip", out)
    for file in list(out.rglob("*.parquet")):
        content = file.read_bytes()
        at = len(content) // 3
        flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        file.write_bytes(damage(content) if damage else flipped)
    ingest(bulk(raw), f"{raw}/images.zip", out)
    assert files_of(out) == files_of(corpus.folder)


def test_an_unfinished_run_does_not_open_what_is_finished(raw, tmp_path):
    """Others need --force as before, whether a forced run was refused or killed."""
    out = tmp_path / "corpus"
    ingest(bulk(raw)[:1], f"{raw}/images.zip", out)
    before = files_of(out)
    (tmp_path / "bad.xml").write_bytes(BOMB + HEAD + TAIL)
    with pytest.raises(InputError, match="declares entities"):
        ingest([tmp_path / "bad.xml"], f"{raw}/images.zip", out, force=True)
    assert files_of(out) == before  # of what was refused nothing is left
    assert not list(out.glob(f"{WORK}-*"))
    (out / f"{WORK}-0123456789abcdef").mkdir()
    with pytest.raises(InputError, match="--force"):
        ingest(bulk(raw), f"{raw}/images.zip", out)
    assert {name: files_of(out)[name] for name in before} == before
    ingest(bulk(raw)[:1], f"{raw}/images.zip", out, force=True)
    assert files_of(out) == before


@pytest.mark.parametrize("force", [False, True])
def test_what_only_looks_like_a_corpus_is_left_alone(raw, tmp_path, force):
    (tmp_path / "corpus.json").write_text('{"mine": 1}')
    (tmp_path / ".ingest-notes").mkdir()
    with pytest.raises(InputError, match="is no corpus; name another folder"):
        ingest(bulk(raw), f"{raw}/images.zip", tmp_path, force=force)
    (tmp_path / "corpus.json").unlink()
    (tmp_path / "items.parquet").write_text("mine")
    with pytest.raises(InputError, match=r"has a items\.parquet that is not of a corpus"):
        ingest(bulk(raw), f"{raw}/images.zip", tmp_path, force=force)
    assert (tmp_path / ".ingest-notes").is_dir()


def test_names_that_are_not_unicode_may_share_a_serial_number(raw, tmp_path):
    for folder in (b"\xff", b"b"):
        path = tmp_path / "logos" / os.fsdecode(folder)
        path.mkdir(parents=True)
        (path / "10000001.png").write_bytes(png())
    ingest(bulk(raw), str(tmp_path / "logos"), tmp_path / "corpus")
    details = {row["id"]: row["detail"] for row in rejects_of(Corpus.open(tmp_path / "corpus"))}
    assert details["10000001"] == r"b/10000001.png, \udcff/10000001.png"


def test_a_column_of_logos_may_be_named(raw, tmp_path):
    images = other_images(raw, tmp_path, "parquet")
    options = ["--images", f"{images}:image", "--out", str(tmp_path / "corpus")]
    found = CliRunner().invoke(commands, ["uspto", "ingest", *map(str, bulk(raw)), *options])
    assert found.exit_code == 0


@pytest.mark.parametrize("name", ["items.parquet", "images.parquet", "rejects.csv"])
@pytest.mark.parametrize("force", [False, True])
def test_files_of_somebody_else_are_left_alone(raw, tmp_path, name, force):
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(InputError, match=f"has a {name} that is not of a corpus"):
        ingest(bulk(raw), f"{raw}/images.zip", tmp_path, force=force)
    assert (tmp_path / name).read_bytes() == b"mine"


def test_a_file_that_is_not_there_leaves_nothing_behind(raw, tmp_path):
    with pytest.raises(InputError, match="is no file"):
        ingest([raw / "none.xml"], f"{raw}/images.zip", tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(
    ("count", "word", "n"),
    [(39, "dog", 0), (40, "dog", 1), (100, "dog", 1), (101, "dog", 0), (50, "x", 0)],
)
def test_texts_that_qualify(tmp_path, count, word, n):
    said = statement("DM0000", " ".join([word] * count))
    inside = f"<case-file-statements>{said}</case-file-statements>"
    (tmp_path / "a.xml").write_bytes(HEAD + case(inside=inside) + TAIL)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "10000001.png").write_bytes(png())
    about = ingest([tmp_path / "a.xml"], str(tmp_path / "images"), tmp_path / "corpus")
    assert about.n == n


def test_a_corpus_with_one_simulated_file_is_simulated(raw, tmp_path):
    files = [DATA / "case_file_excerpts.xml", *bulk(raw)]
    assert ingest(files, f"{raw}/images.zip", tmp_path / "corpus").simulated


def test_a_refusal_keeps_what_an_earlier_run_has_made(raw, tmp_path, monkeypatch):
    from fairnepv_studies.uspto import ingest as module

    def ends_with(error):
        def move_in(*_):
            raise error

        monkeypatch.setattr(module, "move_in", move_in)
        with pytest.raises(type(error)):
            ingest(bulk(raw), f"{raw}/images.zip", tmp_path / "corpus")
        return [path.name for path in (tmp_path / "corpus").rglob("*")]

    made = ends_with(KeyboardInterrupt())
    assert made
    assert ends_with(InputError("a source is away for a moment")) == made


def test_other_settings_do_not_use_the_checks_of_before(raw, tmp_path, monkeypatch):
    from fairnepv_studies.uspto import ingest as module

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "move_in", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ingest(bulk(raw), f"{raw}/images.zip", tmp_path / "corpus")
    ingest(bulk(raw), f"{raw}/images.zip", tmp_path / "corpus", words=Words(50, 60))
    ingest(bulk(raw), f"{raw}/images.zip", tmp_path / "fresh", words=Words(50, 60))
    assert files_of(tmp_path / "corpus") == files_of(tmp_path / "fresh")
    assert {
        50 <= words <= 60 for words in Corpus.open(tmp_path / "fresh").items["words"].to_pylist()
    } == {True}


def test_an_image_that_changes_in_between_is_noticed(raw, tmp_path, monkeypatch):
    from fairnepv_studies.uspto import ingest as module

    images = other_images(raw, tmp_path, "folder")

    def changed(checks, progress):
        run(checks, progress)
        first = images / "10000000.png"
        first.write_bytes(first.read_bytes()[::-1])

    run = module.Checks.run
    monkeypatch.setattr(module.Checks, "run", changed)
    with pytest.raises(InputError, match="10000000 has changed"):
        ingest(bulk(raw), str(images), tmp_path / "corpus")
    assert not (tmp_path / "corpus" / "corpus.json").exists()


def test_a_corpus_is_not_replaced_unless_asked(raw, corpus, tmp_path):
    shutil.copytree(corpus.folder, tmp_path / "corpus")
    with pytest.raises(InputError, match="--force"):
        ingest(bulk(raw), f"{raw}/images.zip", tmp_path / "corpus")
    ingest(bulk(raw)[:1], f"{raw}/images.zip", tmp_path / "corpus", force=True)
    assert len(Corpus.open(tmp_path / "corpus").about.sources) == 2


# --- The command ----------------------------------------------------------------------------------


def test_the_command_prints_the_funnel(raw, tmp_path):
    files = [str(file) for file in bulk(raw)]
    options = ["--images", str(raw / "images.zip"), "--out", str(tmp_path / "corpus")]
    result = CliRunner().invoke(commands, ["uspto", "ingest", *files, *options])
    assert result.exit_code == 0, result.output
    assert "simulated uspto" in result.output
    assert all(what in result.output for what in STEPS.values())


def test_the_command_speaks_json(raw, corpus, tmp_path):
    files = [str(file) for file in bulk(raw)]
    options = ["--images", str(raw / "images.zip"), "--out", str(tmp_path / "corpus"), "--json"]
    result = CliRunner().invoke(commands, ["uspto", "ingest", *files, *options])
    assert json.loads(result.output) == json.loads((corpus.folder / "corpus.json").read_text())


def test_simulate_from_the_command_line(tmp_path):
    out = str(tmp_path / "raw")
    result = CliRunner().invoke(commands, ["uspto", "simulate", "--n", "4", "--out", out])
    assert result.exit_code == 0, result.output
    assert "4 simulated case files" in result.output


BAD = {
    "bomb.xml": (BOMB + HEAD + case(inside="&c;") + TAIL, "declares entities"),
    "page.xml": (b"<html><body>not found</body></html>", "no bulk trademark document"),
    "cut.zip": (damaged_files()["cut.zip"], "damaged or cut off"),
    "cut.xml": (HEAD + case(), "damaged or cut off"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_one_sentence_that_names_them(raw, tmp_path, name):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        ingest([*bulk(raw), tmp_path / name], f"{raw}/images.zip", tmp_path / "corpus")
    assert str(tmp_path / name) in str(raised.value)
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(("least", "most"), [(0, 10), (50, 40), (-1, 3)])
def test_lengths_that_are_refused(least, most):
    with pytest.raises(InputError, match="--min-words"):
        Words(least, most)


def test_a_file_that_is_not_there(raw, tmp_path):
    with pytest.raises(InputError, match="is no file"):
        ingest([tmp_path / "no.xml"], f"{raw}/images.zip", tmp_path / "corpus")
