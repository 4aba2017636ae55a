"""`fairnepv convert`: any rows become shards with ids and checksums, whole or not at all; and the
command line on files that bring ids along."""

import hashlib
import json
import os
import shutil
import stat
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import fairnepv
from fairnepv.errors import FairnepvError, InputError
from fairnepv.io import conversion, documents, manifest
from fairnepv.io.conversion import convert
from fairnepv.io.manifest import verify
from fairnepv.io.read import read_ids
from refusals import refused
from row_files import FORMATS, lists, table, write_arrow, write_parquet, write_shards

N, P, K = 11, 4, 3
ROWS = np.random.default_rng(7).standard_normal((N, P))
NAMES = [f"i{i}" for i in range(N)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def everything() -> dict[str, bytes]:
    """All files here, hidden ones too; folders count as empty."""
    paths = sorted(Path().rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in paths}


# --- What is written ------------------------------------------------------------------------------


@pytest.mark.sample
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("size", [None, 4])
def test_any_rows_are_converted(name, dtype, size):
    about = convert([FORMATS[name](ROWS)], "out", dtype=dtype, rows_per_shard=size, ids="")
    read = fairnepv.open_rows("out")
    assert read.dtype == dtype
    np.testing.assert_array_equal(read, ROWS.astype(dtype))
    assert [shard.rows for shard in about.shards][:-1] == [size] * (len(about.shards) - 1)
    assert sum(shard.rows for shard in about.shards) == N
    first = np.load("out/part_00000.npy")  # as everyone else reads it
    np.testing.assert_array_equal(first, ROWS[: about.shards[0].rows].astype(dtype))
    assert verify(Path("out")).n == N


def test_blocks_and_shards_may_have_any_borders(monkeypatch):
    """A block may hold several shards, and a shard several blocks."""
    np.save("a.npy", ROWS)
    np.save("b.npy", -ROWS)
    for block_numbers in (1, 3 * P, 5 * P, 100 * P):
        monkeypatch.setattr("fairnepv.io.conversion._BLOCK_NUMBERS", block_numbers)
        for size in (1, 3, 4, 22):
            convert(["a.npy", "b.npy"], "out", rows_per_shard=size, force=True)
            both = np.concatenate([ROWS, -ROWS]).astype("f4")
            np.testing.assert_array_equal(fairnepv.open_rows("out"), both)


def test_the_manifest_says_what_is_there():
    np.save("a.npy", ROWS)
    Path("ids.txt").write_text("\n".join(NAMES))
    convert(["a.npy"], "out", rows_per_shard=6, ids="ids.txt", made_by="fairnepv 9")
    about = json.loads(Path("out/manifest.json").read_text())
    assert about["format"] == "fairnepv rows 1"
    assert (about["n"], about["p"], about["dtype"]) == (N, P, "float32")
    assert (about["sources"], about["made_by"]) == (["a.npy"], "fairnepv 9")
    assert [entry["file"] for entry in about["shards"]] == ["part_00000.npy", "part_00001.npy"]
    for entry in [*about["shards"], about["ids"]]:
        content = Path("out", entry["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"]
    assert read_ids("out").tolist() == NAMES


def test_checksums_are_of_the_rows_and_not_of_what_a_disk_made_of_them(monkeypatch):
    np.save("a.npy", ROWS)
    monkeypatch.setattr(conversion, "sha256_of", lambda path: pytest.fail(f"{path} is read again"))
    convert(["a.npy"], "out", rows_per_shard=6)
    verify(Path("out"))


def test_a_folder_has_the_usual_mode():
    np.save("a.npy", ROWS)
    convert(["a.npy"], "out")
    Path("theirs").mkdir()
    assert stat.S_IMODE(Path("out").stat().st_mode) == stat.S_IMODE(Path("theirs").stat().st_mode)


def test_ids_come_along():
    write_parquet("t.parquet", table(lists(ROWS)))
    convert(["t.parquet:rows"], "out")
    assert read_ids("out").tolist() == NAMES
    convert(["out"], "again", dtype="float16")
    assert read_ids("again").tolist() == NAMES
    convert(["out"], "bare", ids="")
    assert refused(read_ids, "bare").startswith("bare was converted without ids")


def test_ids_of_several_sources_are_laid_end_to_end():
    write_parquet("a.parquet", table(lists(ROWS)))
    write_arrow("b.arrow", pa.table({"id": ["x", "y"], "rows": lists(ROWS[:2])}))
    convert(["a.parquet:rows", "b.arrow:rows"], "out")
    assert read_ids("out").tolist() == [*NAMES, "x", "y"]
    np.save("c.npy", ROWS)
    convert(["a.parquet:rows", "c.npy"], "none")  # not every source has ids
    assert not Path("none/ids.npy").exists()


# --- What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype", "words"),
    [
        (70000.0, "float16", "a.npy has 70000.0 in row 7, too large for float16 (at most 65504)"),
        (-1e39, "float32", "too large for float32 (at most 3.40282e+38); divide the rows"),
        (np.inf, "float32", "a.npy has inf in row 7; drop or impute"),
        (np.nan, "float16", "a.npy has nan in row 7; drop or impute"),
    ],
)
def test_values_that_do_not_fit_are_refused(value, dtype, words):
    bad = ROWS.copy()
    bad[7, 2] = value
    np.save("a.npy", bad)
    before = everything()
    assert words in refused(convert, ["a.npy"], "out", dtype=dtype, rows_per_shard=3)
    assert everything() == before


def test_the_largest_half_is_not_refused():
    np.save("a.npy", np.array([[65504.0], [-65519.0]]))
    convert(["a.npy"], "out", dtype="float16")
    assert fairnepv.open_rows("out")[0:2].tolist() == [[65504.0], [-65504.0]]


@pytest.mark.parametrize(
    ("sources", "ids", "words"),
    [
        (["s.npz"], None, "s.npz is a sparse matrix of shape (11, 4); leave it as it is"),
        (["a.npy", "n.npy"], None, "a.npy has 4 columns and n.npy has 3"),
        (["e.npy"], None, "e.npy has no numbers to convert: shape (0, 3)"),
        (["a.npy"], "few.txt", "the ids of few.txt: there are 2 for 11 rows"),
        (["a.npy"], "twice.txt", "the ids of twice.txt repeat, such as 'x'"),
        (["t.parquet:rows", "t.parquet:rows"], None, "repeat, such as 'i0'; give unique ones"),
        (["no.npy"], None, "no.npy does not exist"),
        (["v.npy"], None, "v.npy must hold a matrix of numbers, not float64 of shape (4,)"),
    ],
)
def test_what_cannot_be_converted_leaves_nothing(sources, ids, words):
    np.save("a.npy", ROWS)
    np.save("n.npy", ROWS[:, :3])
    np.save("v.npy", ROWS[0])
    np.save("e.npy", ROWS[:0, :3])
    sp.save_npz("s.npz", sp.csr_array(ROWS))
    write_parquet("t.parquet", table(lists(ROWS)))
    Path("few.txt").write_text("x\ny\n")
    Path("twice.txt").write_text("x\n" * N)
    before = everything()
    assert words in refused(convert, sources, "out", ids=ids)
    assert everything() == before


def test_where_it_cannot_go_is_refused_at_once():
    np.save("a.npy", ROWS)
    convert(["a.npy"], "old")
    Path("stranger").mkdir()
    Path("stranger/thesis.tex").write_text("years of work")
    Path("file").write_text("x")
    write_shards("shards", ROWS)
    before = everything()
    assert "old exists already; add --force" in refused(convert, ["a.npy"], "old")
    for name in ("stranger", "file"):
        message = refused(convert, ["a.npy"], name, force=True)
        assert f"{name} is not a folder that `fairnepv convert` wrote" in message
    assert "the folder no does not exist" in refused(convert, ["a.npy"], "no/out")
    message = refused(convert, ["shards"], "shards", force=True)
    assert "shards holds shards, which is read" in message
    assert "is read; write to" in refused(convert, ["shards/img_emb_0.npy"], "shards", force=True)
    assert "old holds old, which is read" in refused(convert, ["old"], "old", force=True)
    assert "old/new is inside of" in refused(convert, ["a.npy"], "old/new")
    assert everything() == before


def test_a_table_beside_arrays_brings_no_ids():
    write_shards("shards", ROWS)
    write_parquet("shards/unrelated.parquet", table(pa.array(NAMES), "about"))
    assert convert(["shards"], "out").ids is None


def test_force_replaces_what_was_converted():
    np.save("a.npy", ROWS)
    np.save("b.npy", -ROWS)
    convert(["a.npy"], "out", rows_per_shard=2)
    convert(["b.npy"], "out", rows_per_shard=8, force=True)
    np.testing.assert_array_equal(fairnepv.open_rows("out"), -ROWS.astype("f4"))
    assert sorted(path.name for path in Path().iterdir()) == ["a.npy", "b.npy", "out"]
    assert len(list(Path("out").iterdir())) == 3
    Path("empty").mkdir()
    convert(["b.npy"], "empty", force=True)
    assert verify(Path("empty")).n == N


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("when", [1, 3])
def test_an_interruption_leaves_what_was_there(failure, when):
    np.save("a.npy", ROWS)
    convert(["a.npy"], "out", rows_per_shard=2)
    before = everything()
    calls: list[int] = []

    def failing(*_):
        calls.append(1)
        if len(calls) > when:
            raise failure

    expected = FairnepvError if isinstance(failure, OSError) else KeyboardInterrupt
    for name in ("out", "new"):
        calls.clear()
        with pytest.raises(expected):
            convert(["a.npy"], name, rows_per_shard=2, force=True, progress=failing)
        assert everything() == before


def test_a_move_that_fails_brings_the_old_folder_back(monkeypatch):
    np.save("a.npy", ROWS)
    convert(["a.npy"], "out")
    before = everything()
    rename = Path.rename

    def failing(self, target):
        if Path(target).name == "out" and not self.name.endswith(".old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(FairnepvError, match=r"^out cannot be written \(Input/output error\)$"):
        convert(["a.npy"], "out", dtype="float16", force=True)
    assert everything() == before


def test_a_disk_without_room_is_refused_at_once(monkeypatch):
    np.save("a.npy", ROWS)
    before = everything()
    full = SimpleNamespace(free=N * P * 4 - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    message = refused(convert, ["a.npy"], "out")
    assert "out needs 176 bytes, but only 175 bytes of disk are free" in message
    assert everything() == before
    convert(["a.npy"], "out", dtype="float16")


def test_a_source_that_changes_meanwhile_leaves_nothing():
    np.save("a.npy", ROWS)

    def rewrite(done: int, of: int) -> None:
        if done == 6:
            np.save("b.npy", ROWS[:9])

    np.save("b.npy", ROWS)
    with pytest.raises(InputError, match=r"b\.npy was changed .* \(at rows 0-10\)"):
        convert(["a.npy", "b.npy"], "out", rows_per_shard=3, progress=rewrite)
    assert sorted(everything()) == ["a.npy", "b.npy"]


def test_progress_counts_every_row(monkeypatch):
    monkeypatch.setattr("fairnepv.io.conversion._BLOCK_NUMBERS", 2 * P)
    np.save("a.npy", ROWS)
    told: list[tuple[int, int]] = []
    convert(["a.npy"], "out", rows_per_shard=4, progress=lambda *row: told.append(row))
    assert told == [(2, N), (4, N), (6, N), (8, N), (10, N), (11, N)]
    told.clear()
    verify(Path("out"), lambda *row: told.append(row))
    assert told == [(4, N), (8, N), (11, N)]


def test_rows_are_never_held_as_a_whole(monkeypatch):
    monkeypatch.setattr("fairnepv.io.conversion._BLOCK_NUMBERS", 1 << 12)
    np.save("a.npy", np.ones((4096, 256), dtype=np.float32))  # 4 MiB
    tracemalloc.start()
    try:
        convert(["a.npy"], "out", dtype="float16", rows_per_shard=1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


# --- Reading it again -----------------------------------------------------------------------------


@pytest.fixture
def converted() -> Path:
    np.save("a.npy", ROWS)
    Path("ids.txt").write_text("\n".join(NAMES))
    convert(["a.npy"], "out", rows_per_shard=4, ids="ids.txt")
    return Path("out")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def test_verify_names_the_shard_and_its_rows(converted):
    flip(converted / "part_00001.npy")
    assert fairnepv.open_rows("out").shape == (N, P)  # reading does not pay for a pass
    message = refused(verify, converted)
    assert "out is not what was written: part_00001.npy (rows 4-7) differ from" in message
    flip(converted / "part_00002.npy")
    flip(converted / "ids.npy")
    expected = "part_00001.npy (rows 4-7), part_00002.npy (rows 8-10), ids.npy differ"
    assert expected in refused(verify, converted)
    assert "has no manifest.json" in refused(verify, Path())


def test_a_shard_that_is_gone_or_other_is_refused(converted):
    (converted / "part_00001.npy").rename("part")
    message = refused(fairnepv.open_rows, "out")
    assert message.startswith("out/part_00001.npy is missing, though manifest.json names it")
    np.save("out/part_00001.npy", ROWS[:4])
    message = refused(fairnepv.open_rows, "out")
    assert "holds float64 of shape (4, 4), but manifest.json says float32" in message
    np.save("out/part_00001.npy", ROWS[:3].astype("f4"))
    assert "shape (3, 4), but manifest.json says" in refused(fairnepv.open_rows, "out")
    content = Path("part").read_bytes()
    (converted / "part_00001.npy").write_bytes(content[:-20])
    message = refused(fairnepv.open_rows, "out")
    assert message.startswith("out/part_00001.npy is cut short: rows 2-3 of 4 are missing")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "fairnepv rows 2"}, "has the format 'fairnepv rows 2'"),
        ({"n": 12}, "contradicts itself: its shards do not add up to 12 rows"),
        ({"shards": []}, "contradicts itself"),
        ({"shards": 3}, "a list of shards"),
        ({"shards": [3]}, "None is not a file of the folder"),
        ({"shards": [{"file": "../a.npy", "rows": 11, "sha256": ""}]}, "is not a file of the"),
        ({"shards": [{"file": "a.npy", "rows": True, "sha256": ""}]}, "no number of rows"),
        ({"shards": [{"file": "a.npy", "rows": 11, "sha256": 3}]}, "no checksum"),
        ({"shards": [{"file": "a.npy", "rows": 1, "sha256": ""}] * 11}, "11 shards in 1 files"),
        ({"ids": {"file": "ids.npy", "rows": 10, "sha256": ""}}, "it has 10 ids for 11 rows"),
        ({"n": None}, "must name numbers n and p"),
        ({"n": 11.0}, "must name numbers n and p"),
        ({"p": -4}, "must name numbers n and p"),
        ({"p": 2**63}, "must name numbers n and p"),
        ({"p": float("inf")}, "Infinity is no number in JSON"),
        ({"dtype": "float31"}, "one of float16, float32, float64 as dtype"),
        ({"dtype": ["float32"]}, "as dtype"),
    ],
)
def test_a_broken_manifest_is_refused(converted, change, words):
    path = converted / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    message = refused(fairnepv.open_rows, "out")
    assert "out/manifest.json" in message
    assert words in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"n": 1, "n": 2}', "'n' occurs twice"),
        ("[]", "must hold a JSON object"),
        (" " * (documents.LARGEST_DOCUMENT + 1), "has more than 16.0 MiB"),
    ],
    ids=["nested", "twice", "list", "large"],
)
def test_a_manifest_that_is_no_document_is_refused(converted, content, words):
    (converted / "manifest.json").write_text(content)
    for action, what in ((fairnepv.open_rows, "out"), (read_ids, "out"), (verify, converted)):
        message = refused(action, what)
        assert message.startswith("out/manifest.json")
        assert words in message


def test_a_link_to_itself_is_not_replaced():
    np.save("a.npy", ROWS)
    Path("out").symlink_to("out")
    assert "exists already" in refused(convert, ["a.npy"], "out")
    assert "so it is not replaced" in refused(convert, ["a.npy"], "out", force=True)


def test_no_more_shards_are_written_than_are_read(monkeypatch):
    np.save("a.npy", ROWS)
    monkeypatch.setattr(conversion, "MOST_SHARDS", 5)
    assert "put at least 3 rows into each" in refused(convert, ["a.npy"], "out", rows_per_shard=2)
    assert not Path("out").exists()
    convert(["a.npy"], "out", rows_per_shard=3)
    monkeypatch.setattr(manifest, "MOST_SHARDS", 3)
    expected = "out/manifest.json names 4 shards, more than 3"
    assert refused(fairnepv.open_rows, "out").startswith(expected)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
@pytest.mark.parametrize("name", ["part_00001.npy", "ids.npy"])
def test_a_pipe_among_converted_files_is_refused(converted, name):
    (converted / name).unlink()
    os.mkfifo(converted / name)
    assert f"out/{name} is a pipe" in refused(verify, converted)


def test_a_converted_folder_has_no_parts(converted):
    assert "is one set of rows and has no part 'x'" in refused(fairnepv.open_rows, "out:x")
    assert "has no part 'x'" in refused(read_ids, "out:x")


# --- The command line -----------------------------------------------------------------------------


def test_the_command_converts_and_verifies(command):
    np.save("a.npy", ROWS)
    code, out, err = command("convert a.npy --out out --dtype float16 --rows-per-shard 4")
    expected = "Wrote out: 11 rows of 4 float16 in 3 shard(s), without ids.\n"
    assert (code, out, err) == (0, expected, "")
    code, out, err = command("convert --verify out --json")
    assert (code, err) == (0, "")
    assert json.loads(out)["n"] == N
    flip(Path("out/part_00002.npy"))
    code, out, err = command("convert --verify out")
    assert (code, out) == (2, "")
    assert "part_00002.npy (rows 8-10)" in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("convert", "name one SOURCE or more and --out FOLDER, or --verify FOLDER"),
        ("convert a.npy", "name one SOURCE or more and --out FOLDER"),
        ("convert --out out", "name one SOURCE or more"),
        ("convert a.npy --verify out", "--verify takes a folder and nothing else"),
        ("convert --verify a.npy", "a.npy has no manifest.json"),
        ("convert a.npy --out b --ids ids.txt --no-ids", "--ids and --no-ids contradict"),
        ("convert a.npy --out a.npy", "a.npy holds a.npy, which is read"),
        ("convert a.npy --out b --dtype float64", "float64"),
        ("convert a.npy --out b --rows-per-shard 0", "rows-per-shard"),
    ],
)
def test_a_command_that_makes_no_sense_is_one_line(command, line, words):
    np.save("a.npy", ROWS)
    before = everything()
    code, out, err = command(line)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert words in err
    assert everything() == before


def test_an_interrupted_command_leaves_nothing(command, monkeypatch):
    np.save("a.npy", ROWS)
    before = everything()

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "_converted", stop)
    code, _, err = command("convert a.npy --out out")
    assert (code, err) == (130, "fairnepv: interrupted\n")
    assert everything() == before


def picks(command, line: str) -> tuple[float, list]:
    code, out, err = command(f"{line} -k {K} --json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    return document["fair_score"], [pick["id"] for pick in document["picks"]]


def test_select_from_shards_is_select_from_the_array(command):
    other = np.square(ROWS)
    write_shards("text", ROWS)
    write_parquet("vision.parquet", pa.table({"v": lists(other)}))
    score, ids = picks(command, "select --view text=text --view vision=vision.parquet")
    expected = fairnepv.select({"text": ROWS, "vision": other}, K)
    assert score == pytest.approx(expected.fair_score, abs=1e-12)
    assert ids == expected.indices.tolist()


def two_folders(order: np.ndarray, names: list[str]) -> None:
    """Text in the order of NAMES and vision in another, converted with their ids."""
    np.save("text.npy", ROWS)
    np.save("vision.npy", np.square(ROWS)[order])
    Path("text.txt").write_text("\n".join(NAMES))
    Path("vision.txt").write_text("\n".join(names))
    for name in ("text", "vision"):
        convert([f"{name}.npy"], name, ids=f"{name}.txt", rows_per_shard=4)


VIEWS = "select --view text=text --view vision=vision"


def test_converted_folders_are_aligned_by_their_own_ids(command):
    order = np.random.default_rng(3).permutation(N)
    two_folders(order, [NAMES[i] for i in order])
    score, ids = picks(command, VIEWS)
    rounded = {"text": ROWS.astype("f4"), "vision": np.square(ROWS).astype("f4")}
    expected = fairnepv.select(rounded, K)
    assert score == pytest.approx(expected.fair_score, abs=1e-12)
    assert ids == [NAMES[i] for i in expected.indices]


def test_picks_are_found_by_the_ids_of_converted_folders(command):
    two_folders(np.arange(N), NAMES)
    score, ids = picks(command, VIEWS)
    Path("picks.txt").write_text("\n".join(ids))
    code, out, _ = command(f"{VIEWS.replace('select', 'score')} --picks picks.txt --by-id --json")
    assert code == 0
    assert json.loads(out)["fair_score"] == pytest.approx(score, abs=1e-12)
    Path("two.txt").write_text("\n".join(NAMES[5:7]))
    assert picks(command, f"{VIEWS} --include two.txt")[1][:2] == NAMES[5:7]


def test_converted_folders_of_other_rows_are_refused(command):
    two_folders(np.arange(N), [*NAMES[:-1], "stranger"])
    code, out, err = command(f"{VIEWS} -k {K}")
    assert (code, out) == (2, "")
    assert "ids of views 'text' and 'vision' do not match: 2 id(s)" in err


def test_folders_of_different_lengths_are_refused(command):
    write_shards("text", ROWS)
    write_shards("vision", ROWS[:-1])
    code, _, err = command(f"{VIEWS} -k {K}")
    assert code == 2
    assert "'text' has 11 and 'vision' has 10" in err


def test_tables_whose_ids_differ_are_refused_until_someone_says_how(command):
    """They would be aligned by chance otherwise; the same ids prove that they are."""
    order = np.random.default_rng(3).permutation(N)
    shuffled = pa.table({"id": [NAMES[i] for i in order], "rows": lists(np.square(ROWS)[order])})
    write_parquet("text.parquet", table(lists(ROWS)))
    write_parquet("vision.parquet", shuffled)
    views = "select --view text=text.parquet:rows --view vision=vision.parquet:rows"
    code, out, err = command(f"{views} -k {K}")
    assert (code, out) == (2, "")
    assert "views 'text' and 'vision' are not in the same order: row 0 has the id 'i0'" in err
    expected = fairnepv.select({"text": ROWS, "vision": np.square(ROWS)}, K)
    score, ids = picks(command, f"{views} --ids text=text.parquet --ids vision=vision.parquet")
    assert score == pytest.approx(expected.fair_score, abs=1e-12)
    assert ids == [NAMES[i] for i in expected.indices]
    write_parquet("vision.parquet", table(lists(np.square(ROWS))))
    score, ids = picks(command, views)
    assert ids == expected.indices.tolist()  # row numbers still: nobody asked for ids
