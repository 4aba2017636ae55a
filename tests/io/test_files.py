"""Rows in files: every format gives the rows that were written, and what is broken is refused by
file and row before it can shift, crash or kill anything."""

import gc
import itertools
import json
import os
import pickle
import socket
import tracemalloc
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fairnepv
import row_files
from fairnepv.compute import LocalEngine
from fairnepv.errors import InputError
from fairnepv.io import (
    arrow_files,
    arrow_ipc,
    documents,
    memory,
    places,
    rows,
    table_rows,
)
from fairnepv.io.numpy_files import read_archive
from fairnepv.io.read import read_features, read_ids, read_picks
from fairnepv.io.rows import MappedRows, RowFile, Shards
from fairnepv.io.source import Source
from fairnepv.views import Pool, blocks
from refusals import refused_rows as refused
from row_files import (
    FORMATS,
    binary,
    fixed_lists,
    lists,
    table,
    write_arrow,
    write_data_set,
    write_parquet,
    write_safetensors,
    write_shards,
)
from search_problems import views_of

N, P = 11, 3
ROWS = np.random.default_rng(4).standard_normal((N, P))
NAMES = [f"i{i}" for i in range(N)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- Every format ---------------------------------------------------------------------------------


@pytest.mark.sample
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_every_format_gives_the_rows_that_were_written(name, dtype, budget, monkeypatch):
    """With no room to keep decoded rows too, as in a file larger than memory."""
    monkeypatch.setattr(table_rows, "KEPT_BYTES", budget)
    expected = ROWS.astype(dtype)
    read = fairnepv.open_rows(FORMATS[name](expected))
    assert isinstance(read, RowFile)
    assert (read.shape, read.dtype, len(read)) == (expected.shape, expected.dtype, N)
    np.testing.assert_array_equal(np.asarray(read), expected)
    for start in range(N + 1):
        for stop in range(N + 2):
            piece = read[start:stop]
            assert piece.shape[1] == P
            np.testing.assert_array_equal(piece, expected[start:stop])
    np.testing.assert_array_equal(read[-3:], expected[-3:])
    np.testing.assert_array_equal(read[8:2:-2], expected[8:2:-2])
    for indices in ([], [0], [-1, 0], [10, 3, 3, 7, 0], list(range(N))[::-1]):
        np.testing.assert_array_equal(read[np.array(indices, dtype=np.int64)], expected[indices])
    chosen: Any = expected[:, 0] > 0
    np.testing.assert_array_equal(read[chosen], expected[chosen])
    again = pickle.loads(pickle.dumps(read))
    np.testing.assert_array_equal(again[2:9], expected[2:9])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("budget", [0, 100, 1 << 20])
def test_any_slice_and_any_rows(data, budget, tmp_path):
    """Over shards of any sizes, of arrays and of tables."""
    lengths = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    n = sum(lengths)
    expected = np.arange(float(n * 2)).reshape(n, 2)
    pieces = np.split(expected, np.cumsum(lengths)[:-1])
    parts: list[RowFile] = []
    cache = table_rows.ChunkCache(budget)
    for s, piece in enumerate(pieces):
        if len(piece) and data.draw(st.booleans()):
            path = tmp_path / f"{s}.parquet"
            write_parquet(str(path), table(fixed_lists(piece)), data.draw(st.integers(1, 3)))
            source = Source(path, "rows")
            parts.append(table_rows.TableRows(source, cache))
        else:
            np.save(tmp_path / f"{s}.npy", piece)
            parts.append(read_features(str(tmp_path / f"{s}.npy")))
    joined = Shards(parts, "joined")
    start, stop = data.draw(st.integers(-n, n)), data.draw(st.integers(-n, n))
    np.testing.assert_array_equal(joined[start:stop], expected[start:stop])
    if n:
        indices = np.array(data.draw(st.lists(st.integers(-n, n - 1), max_size=12)), dtype=np.int64)
        np.testing.assert_array_equal(joined[indices], expected[indices])
        order = data.draw(st.permutations(range(n)))
        other = rows.Reordered(joined, np.array(order))
        np.testing.assert_array_equal(other[start:stop], expected[order][start:stop])
        np.testing.assert_array_equal(other[indices], expected[order][indices])


@pytest.mark.parametrize(
    "name",
    ["npy", "npz", "shards", "arrow, fixed lists", "arrow, slices", "arrow stream", "safetensors"],
)
def test_a_slice_within_a_shard_is_no_copy(name):
    read = fairnepv.open_rows(FORMATS[name](ROWS))
    assert np.shares_memory(read[0:2], read[1:2])
    assert not read[0:2].flags.writeable
    assert read.random_access
    assert not read.resident


def test_a_small_table_is_decoded_once_and_a_large_one_again_in_every_pass(monkeypatch):
    counts: list[int] = []
    chunks = arrow_files._decode_group

    def counted(file, group, column):
        counts.append(group)
        return chunks(file, group, column)

    monkeypatch.setattr(arrow_files, "_decode_group", counted)
    write_parquet("t.parquet", table(fixed_lists(ROWS)))  # groups of 4, 4 and 3 rows
    small = fairnepv.open_rows("t.parquet:rows")
    assert small.resident
    for _ in range(3):
        np.asarray(small)
    assert counts == [0, 1, 2]
    counts.clear()
    monkeypatch.setattr(table_rows, "KEPT_BYTES", 4 * P * 8)  # room for one group
    large = fairnepv.open_rows("t.parquet:rows")
    assert not large.resident
    assert not large.random_access
    for _ in range(2):
        for start in range(N):
            large[start : start + 1]
    assert counts == [0, 1, 2, 1, 2]  # the first stays; of the others only the last
    counts.clear()
    large[np.array([9, 5, 10, 4, 0, 9])]
    assert counts == [1, 2]


def test_integers_and_truth_values_are_rows_too():
    numbers = np.arange(12).reshape(4, 3)
    write_safetensors("t.safetensors", {"x": ("I64", (4, 3), numbers.tobytes())})
    np.testing.assert_array_equal(fairnepv.open_rows("t.safetensors"), numbers)
    write_arrow("t.arrow", pa.table({"x": pa.array((numbers > 5).tolist())}))
    np.testing.assert_array_equal(fairnepv.open_rows("t.arrow"), numbers > 5)


BFLOAT = np.array([[1.0, -2.5], [3.0e38, 0.15625], [0.0, -0.0]], dtype=np.float32)
BFLOAT_BITS = (BFLOAT.view(np.uint32) >> 16).astype("<u2")


def test_bfloat16_becomes_float32():
    rounded = (BFLOAT_BITS.astype(np.uint32) << 16).view(np.float32)
    write_safetensors("t.safetensors", {"x": ("BF16", (3, 2), BFLOAT_BITS.tobytes())})
    write_parquet("b.parquet", pa.table({"x": binary(BFLOAT_BITS)}))
    for source in ("t.safetensors", "b.parquet:x@bfloat16"):
        read = fairnepv.open_rows(source)
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, rounded)
        np.testing.assert_array_equal(read[[2, 0]], rounded[[2, 0]])


def test_a_plain_column_is_one_feature():
    write_arrow("t.arrow", pa.table({"x": ROWS[:, 0]}))
    np.testing.assert_array_equal(fairnepv.open_rows("t.arrow"), ROWS[:, :1])


def test_rows_print_their_origin():
    _ = FORMATS["npy"](ROWS)
    read = fairnepv.open_rows("a.npy")
    assert str(read) == "a.npy"
    assert repr(read) == "<MappedRows a.npy: (11, 3), float64>"
    with pytest.raises(IndexError, match=r"a\.npy has rows 0 to 10"):
        read[[11]]
    with pytest.raises(TypeError, match="a slice or by a list of integers"):
        read[[0.5]]  # type: ignore[list-item]


def test_many_shards_do_not_use_up_the_file_descriptors(monkeypatch):
    monkeypatch.setattr(rows, "_OPEN_SHARDS", 2)
    write_shards("shards", ROWS, size=1)
    read = fairnepv.open_rows("shards")
    np.testing.assert_array_equal(np.asarray(read), ROWS)
    np.testing.assert_array_equal(read[[5, 1, 9]], ROWS[[5, 1, 9]])
    assert sum("_opened" in vars(part) for part in read.parts) <= 2


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="nobody tells what is open")
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_many_tables_do_not_use_up_the_file_descriptors(ending, monkeypatch):
    monkeypatch.setattr(rows, "_OPEN_SHARDS", 2)
    monkeypatch.setattr(table_rows, "KEPT_BYTES", 0)
    Path("f").mkdir()
    write = write_parquet if ending == "parquet" else write_arrow
    for s in range(30):
        write(f"f/{s}.{ending}", table(lists(ROWS[s % N : s % N + 1])))
    before = len(os.listdir("/proc/self/fd"))
    read = fairnepv.open_rows("f:rows")
    assert len(os.listdir("/proc/self/fd")) <= before + 4
    np.testing.assert_array_equal(np.asarray(read), ROWS[np.arange(30) % N])
    np.testing.assert_array_equal(read[[29, 1, 15]], ROWS[[7, 1, 4]])
    assert len(os.listdir("/proc/self/fd")) <= before + 4


# --- Folders --------------------------------------------------------------------------------------


def test_shards_go_by_their_numbers():
    """Not by their names, where 10 comes before 2."""
    write_shards("shards", ROWS, size=1)
    assert len(list(Path("shards").iterdir())) == 11
    np.testing.assert_array_equal(fairnepv.open_rows("shards"), ROWS)
    assert [str(part) for part in fairnepv.open_rows("shards").parts][-1] == "shards/img_emb_10.npy"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a_0", "a_1", "a_3"], "f/a_2.npy is missing between a_1.npy and a_3.npy"),
        (["a_008", "a_010"], "f/a_009.npy is missing between a_008.npy and a_010.npy"),
        (["a_1", "a_01"], "f has a_01.npy and a_1.npy, the same number"),
        (["a-0-of-3", "a-1-of-3"], "f/a-2-of-3.npy is missing: there are 2 of 3 files"),
        (["a-1-of-3", "a-2-of-3"], "f/a-0-of-3.npy is missing: there are 2 of 3 files"),
        (["a_0", "b_0"], "f has 2 shard names (a, b); name one, as in f:a"),
        (["left", "right"], "f has no numbered .npy files"),
        (["a_0", "a_1", "labels"], "f has labels.npy beside numbered .npy files"),
        (["a", "a_1"], "move it elsewhere, or name those to read, as in f:a"),
    ],
)
def test_shards_that_do_not_add_up_are_refused(names, words):
    Path("f").mkdir()
    for name in names:
        np.save(f"f/{name}.npy", ROWS)
    assert words in refused(read_features, "f")


def test_one_kind_of_shard_of_several_is_named():
    write_shards("f", ROWS, "img_emb")
    write_shards("f", -ROWS, "text_emb")
    np.testing.assert_array_equal(fairnepv.open_rows("f:text_emb"), -ROWS)
    message = refused(read_features, "f:sound")
    assert message == "f has no shard name 'sound'; it has img_emb, text_emb"


def test_arrays_beside_shards_that_are_named_are_left_alone():
    write_shards("f", ROWS, "img_emb")
    np.save("f/labels.npy", np.arange(3))
    np.testing.assert_array_equal(fairnepv.open_rows("f:img_emb"), ROWS)


def test_the_folders_of_clip_retrieval_are_named():
    FORMATS["clip-retrieval"](ROWS)
    Path("clip/metadata").mkdir()
    for s, names in enumerate((NAMES[:4], NAMES[4:])):
        write_parquet(f"clip/metadata/metadata_{s}.parquet", pa.table({"key": names}))
    expected = "clip has 2 folders (img_emb, text_emb); name one, as in clip:img_emb"
    assert refused(read_features, "clip") == expected
    np.testing.assert_array_equal(fairnepv.open_rows("clip/text_emb"), -ROWS)
    for source in ("clip:key", "clip/metadata:key", "clip/metadata"):
        assert read_ids(source).tolist() == NAMES


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (ROWS[:, :2], ["f/a_0.npy has 3 columns and f/a_1.npy has 2"]),
        (ROWS.astype("f4"), ["f/a_0.npy holds float64 and f/a_1.npy holds float32", "convert"]),
        (ROWS[0], ["f/a_1.npy must hold a matrix of numbers, not float64 of shape (3,)"]),
        (np.array([["a"]]), ["f/a_1.npy must hold a matrix of numbers, not <U1"]),
        (np.array([[None]]), ["f/a_1.npy holds Python objects, which are never loaded"]),
    ],
)
def test_shards_of_different_kinds_are_refused(second, words):
    Path("f").mkdir()
    np.save("f/a_0.npy", ROWS)
    np.save("f/a_1.npy", second)
    message = refused(read_features, "f")
    assert all(word in message for word in words)


def test_tables_of_different_widths_are_refused():
    Path("f").mkdir()
    write_parquet("f/a-0.parquet", table(lists(ROWS)))
    write_parquet("f/a-1.parquet", table(lists(ROWS[:, :2])))
    message = refused(read_features, "f:rows")
    assert "f/a-0.parquet:rows has 3 columns and f/a-1.parquet:rows has 2" in message


def test_tables_in_a_folder_go_by_their_numbers():
    Path("f").mkdir()
    for s in range(N):  # as Spark names them
        write_parquet(f"f/part-{s}-c0ffee.parquet", table(lists(ROWS[s : s + 1])))
    np.testing.assert_array_equal(fairnepv.open_rows("f:rows"), ROWS)
    Path("f/_SUCCESS").touch()
    Path("f/.part-0.parquet.crc").touch()
    np.testing.assert_array_equal(fairnepv.open_rows("f:rows"), ROWS)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a-0.parquet", "a-2.parquet"], "f/a-1.parquet is missing between"),
        (["a-0.parquet", "b-0.parquet"], "f has several sets of tables (a, b)"),
        (["a-0.parquet", "a-1.arrow"], "f has .parquet and .arrow files"),
        (["a-¹.parquet", "a-².parquet"], "f/a-².parquet has a digit in its name that gives no"),
    ],
)
def test_tables_that_do_not_add_up_are_refused(names, words):
    Path("f").mkdir()
    for name in names:
        write = write_parquet if name.endswith("parquet") else write_arrow
        write(f"f/{name}", table(lists(ROWS)))
    assert words in refused(read_features, "f:rows")


def test_a_data_set_takes_the_order_of_its_state():
    write_data_set("d", table(lists(ROWS)))
    state = json.loads(Path("d/state.json").read_text())
    state["_data_files"].reverse()
    Path("d/state.json").write_text(json.dumps(state))
    order = [10, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4]
    np.testing.assert_array_equal(fairnepv.open_rows("d:rows"), ROWS[order])
    assert read_ids("d").tolist() == [NAMES[i] for i in order]


def test_a_data_set_may_take_some_of_its_rows():
    taken = [7, 0, 10, 3]
    write_data_set("d", table(lists(ROWS)), indices=taken)
    np.testing.assert_array_equal(fairnepv.open_rows("d:rows"), ROWS[taken])
    assert read_ids("d").tolist() == [NAMES[i] for i in taken]


def test_a_data_set_that_names_rows_it_has_not_is_refused():
    write_data_set("d", table(lists(ROWS)), indices=[0, 11])
    for read in (read_features, read_ids):
        assert "d takes row 11 of its files, which have 11 rows" in refused(read, "d:rows")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("{", "d/state.json cannot be read"),
        ("[]", "d/state.json must hold a JSON object"),
        ("{}", "d/state.json names no data files"),
        ('{"_data_files": 3}', "has a broken '_data_files'"),
        ('{"_data_files": [{"filename": "no.arrow"}]}', "d/no.arrow is missing, though"),
        ('{"_data_files": [{"filename": "../x.arrow"}]}', "names a broken file '../x.arrow'"),
        ("[" * 100_000, "d/state.json cannot be read (it is nested too deeply)"),
        ('{"_data_files": NaN}', "NaN is no number in JSON"),
    ],
    ids=range(8),
)
def test_a_broken_data_set_is_refused(state, words):
    Path("d").mkdir()
    Path("d/state.json").write_text(state)
    assert words in refused(read_features, "d:rows")


def test_a_data_set_that_names_a_file_twice_is_refused():
    write_data_set("d", table(lists(ROWS)))
    state = json.loads(Path("d/state.json").read_text())
    state["_data_files"] *= 2
    Path("d/state.json").write_text(json.dumps(state))
    assert "names a file twice in '_data_files'" in refused(read_features, "d:rows")


@pytest.mark.parametrize("indices", [[1.7, 0.0], ["1", "0"], [[1], [0]]], ids=str)
def test_row_numbers_of_a_data_set_are_integers(indices):
    write_data_set("d", table(lists(ROWS)), [1, 0])
    write_arrow("d/indices.arrow", pa.table({"indices": indices}), stream=True)
    assert "d/indices.arrow must hold row numbers, not" in refused(read_features, "d:rows")


def test_row_numbers_beyond_64_bits_are_refused():
    write_data_set("d", table(lists(ROWS)), [1, 0])
    far = pa.table({"indices": pa.array([2**64 - 1], pa.uint64())})
    write_arrow("d/indices.arrow", far, stream=True)
    assert "d takes row 9,223,372,036,854,775,807" in refused(read_features, "d:rows")


def test_the_splits_of_a_data_set_are_named():
    Path("d").mkdir()
    Path("d/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    message = refused(read_features, "d:rows")
    assert message.startswith("d holds several splits (train, test); name one")


def test_a_folder_with_an_ending_may_have_parts():
    Path("emb.parquet").mkdir()
    write_parquet("emb.parquet/part-0.parquet", table(lists(ROWS)))
    np.testing.assert_array_equal(fairnepv.open_rows("emb.parquet:rows"), ROWS)
    assert "name the part after the colon" in refused(read_features, "emb.parquet:")


# --- The known traps ------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [write_parquet, write_arrow], ids=["parquet", "arrow"])
@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([[1.0], [2.0], [2.0], [2.0], None, [3.0]]), "no value in row 4;"),
        (pa.array([[1.0, 2.0]] * 5 + [None], pa.list_(pa.float64(), 2)), "no value in row 5;"),
        (pa.array([[1.0, 2.0]] * 5 + [[3.0, None]]), "an empty value in row 5;"),
        (pa.array([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]), "2 in row 0 and 1 in row 1"),
        (pa.array([[1.0]] * 4 + [[3.0, 4.0]] * 2), "1 in row 0 and 2 in row 4"),
        (pa.array([[[1.0], [2.0]]] * 3), "holds lists of lists; flatten each row"),
        (pa.array([b"abcd", b"efgh"], pa.binary(4)), "rows@float16"),
        (pa.array([["a", "b"]]), "must hold numbers, not Python objects (str)"),
    ],
)
def test_columns_that_arrow_would_bend_are_refused(write, column, words):
    """Null rows that flattening drops and ragged rows whose total fits, in later chunks too."""
    ending = "parquet" if write is write_parquet else "arrow"
    write(f"t.{ending}", table(column))
    message = refused(read_features, f"t.{ending}:rows")
    if "Expected all lists" in message:  # PyArrow below 26 does not read such a file at all
        assert ending == "parquet"
        return
    assert message.startswith(f"t.{ending}, column 'rows' ")
    assert words in message


@pytest.mark.parametrize(
    ("column", "kind", "words"),
    [
        (pa.array([b"abc", b"efg"], pa.binary(3)), "float16", "3 bytes in a row"),
        (pa.array([b"abcd", b"ef"]), "float16", "different lengths: 4 in row 0 and 2 in row 1"),
        (lists(ROWS), "float16", "not bytes; leave @float16 out"),
        (pa.array([b"abcd", None], pa.binary(4)), "float16", "no value in row 1"),
    ],
)
def test_bytes_that_are_no_numbers_are_refused(column, kind, words):
    write_arrow("t.arrow", table(column))
    assert words in refused(read_features, f"t.arrow:rows@{kind}")


def test_a_column_may_have_an_at_sign_in_its_name():
    write_arrow("t.arrow", table(lists(ROWS), "x@float16"))
    np.testing.assert_array_equal(fairnepv.open_rows("t.arrow:x@float16"), ROWS)


def test_an_extension_type_that_nobody_knows_is_read_as_what_it_stores():
    """As a data set's Array2D is, where its library is not imported; here a tensor of Arrow's."""
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(ROWS.reshape(N, P))
    write_arrow("t.arrow", table(tensor))
    np.testing.assert_array_equal(fairnepv.open_rows("t.arrow:rows"), ROWS)


def test_chunks_are_never_joined_by_arrow(monkeypatch):
    """Arrow cannot join lists of 2^31 values; nothing asks it to."""

    def never(*_, **__):
        raise AssertionError("Arrow was asked to join chunks")

    monkeypatch.setattr(pa, "concat_arrays", never)
    monkeypatch.setattr(pq.ParquetFile, "read", never)
    long = np.arange(6000.0).reshape(2000, 3)
    write_parquet("t.parquet", table(lists(long)), group=7)
    write_arrow("t.arrow", table(lists(long)), batch=7)
    for source in ("t.parquet", "t.arrow"):
        np.testing.assert_array_equal(fairnepv.open_rows(f"{source}:rows"), long)
        assert read_ids(source)[-1] == "i1999"


def bomb(name: str, size: int) -> None:
    np.savez_compressed(name, x=np.zeros((size // 800, 100)))


def test_an_archive_that_expands_a_hundredfold_is_refused(monkeypatch):
    bomb("a.npz", 1 << 20)
    assert len(fairnepv.open_rows("a.npz")) == (1 << 20) // 800  # small enough to do no harm
    monkeypatch.setattr(memory, "HARMLESS", 1 << 19)
    message = refused(read_features, "a.npz")
    assert "a.npz:x expands from" in message
    assert "to 1023.6 KiB, more than 100-fold; save it with np.savez" in message


def test_an_archive_larger_than_memory_is_refused(monkeypatch):
    np.savez_compressed("a.npz", x=ROWS)
    monkeypatch.setattr(memory, "available_memory", lambda: 300)
    assert "more than the 300 bytes of memory that are free" in refused(read_features, "a.npz")
    np.savez("a.npz", x=ROWS)
    np.testing.assert_array_equal(fairnepv.open_rows("a.npz"), ROWS)


def test_what_an_archive_expands_to_is_added_up(monkeypatch):
    """Members below the limit, one after the other."""
    np.savez_compressed("a.npz", **{f"x{i}": np.zeros(1 << 14) for i in range(9)})
    assert len(read_archive("a.npz")) == 9
    monkeypatch.setattr(memory, "HARMLESS", 1 << 20)
    assert read_ids("a.npz:x3").shape == (1 << 14,)
    assert "a.npz up to its 'x7' expands from" in refused(read_archive, "a.npz")


ZEROS = np.zeros((4000, 20))


def compressed(name: str, content: pa.Table, compression: str = "zstd") -> str:
    """A table that takes little room in its file, in one batch."""
    if name.endswith(".parquet"):
        pq.write_table(content, name, compression=compression)
        return name
    new = pa.ipc.new_stream if "stream" in name else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with new(name, content.schema, options=options) as writer:
        writer.write_table(content)
    return name


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("name", ["t.arrow", "stream.arrow", "t.parquet"])
def test_a_table_that_expands_a_hundredfold_is_refused(name, compression, monkeypatch):
    """Rows and a column alike, before they are expanded."""
    content = pa.table({"rows": fixed_lists(ZEROS), "id": np.zeros(len(ZEROS))})
    compressed(name, content, compression)
    np.testing.assert_array_equal(fairnepv.open_rows(f"{name}:rows"), ZEROS)
    monkeypatch.setattr(memory, "HARMLESS", 1 << 14)
    monkeypatch.setattr(memory, "LARGEST_EXPANSION", 1)
    monkeypatch.setattr(arrow_files, "_decode_group", None)
    monkeypatch.setattr(arrow_ipc, "_valid_column", None)
    for action, part in ((read_features, "rows"), (read_ids, "id")):
        message = refused(action, f"{name}:{part}")
        assert message.startswith(name)
        assert "expands from" in message


@pytest.mark.parametrize("name", ["t.arrow", "t.parquet"])
def test_batches_that_fit_one_by_one_are_read(name, monkeypatch):
    """A table may expand as a whole: what counts for rows is a row group or a batch."""
    write = write_parquet if name == "t.parquet" else partial(write_arrow, compressed=True)
    write(name, table(fixed_lists(ZEROS)))
    monkeypatch.setattr(memory, "HARMLESS", 1 << 14)
    np.testing.assert_array_equal(fairnepv.open_rows(f"{name}:rows"), ZEROS)


@pytest.mark.parametrize("name", ["t.arrow", "stream.arrow", "t.parquet"])
@pytest.mark.parametrize("value", ["x" * 999, [0.5] * 99], ids=["text", "list"])
def test_values_that_are_stored_once_are_counted_as_often_as_they_occur(name, value, monkeypatch):
    if name == "t.parquet" and isinstance(value, list):
        pytest.skip("Parquet has no dictionaries of lists")
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(500, np.int8)), pa.array([value]))
    compressed(name, pa.table({"id": column}))
    action = read_ids if isinstance(value, str) else read_features
    assert len(action(f"{name}:id")) == 500
    monkeypatch.setattr(memory, "HARMLESS", 1 << 14)
    assert f"{name}, column 'id' expands from" in refused(action, f"{name}:id")


def test_texts_that_share_their_bytes_are_counted_one_by_one():
    one = np.array([(99, b"xxxx", 0, 0)], "i4, S4, i4, i4")  # length, first letters, buffer, place
    buffers = [None, pa.py_buffer(np.tile(one, 500).tobytes()), pa.py_buffer(b"x" * 99)]
    column = pa.Array.from_buffers(pa.string_view(), 500, buffers)
    assert arrow_files.decoded_bytes(column) == 99 * 500
    assert arrow_files.decoded_bytes(column[10:]) == 99 * 490


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_batch_promises_no_rows_without_bytes(stream, compressed):
    """Its length, all of its columns' lengths and the like are numbers that anybody can write."""
    write_arrow("t.arrow", table(lists(ROWS)), stream=stream, compressed=compressed)
    content = Path("t.arrow").read_bytes()
    rows = (4).to_bytes(8, "little")
    assert content.count(rows) > 1
    Path("t.arrow").write_bytes(content.replace(rows, (2**40).to_bytes(8, "little")))
    message = refused(read_features, "t.arrow:rows")
    assert message.startswith("t.arrow cannot be read as Arrow IPC")


def test_batches_that_overlap_are_refused():
    """A directory that names one batch a million times has a million batches."""
    write_arrow("t.arrow", table(lists(ROWS)))
    content = Path("t.arrow").read_bytes()
    blocks = [b for b in arrow_ipc.file_batches(memoryview(content)) if not b.dictionary]
    assert [b.rows for b in blocks] == [4, 4, 3]
    size = int.from_bytes(content[-10:-6], "little")
    footer = bytearray(content[-10 - size :])
    starts = [i for i in range(len(content)) if content.startswith(b"\xff\xff\xff\xff", i)]
    first, second = (starts[s].to_bytes(8, "little") for s in (1, 2))
    assert footer.count(second) == 1
    Path("t.arrow").write_bytes(content[: -10 - size] + footer.replace(second, first))
    assert "its batches overlap" in refused(read_features, "t.arrow:rows")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", [("x.npy", "x.npy"), ("x", "x.npy")])
def test_two_members_of_one_name_are_refused(names):
    np.save("x.npy", ROWS)
    with zipfile.ZipFile("a.npz", "w") as archive:
        for name in names:
            archive.writestr(name, Path("x.npy").read_bytes())
    assert refused(read_features, "a.npz:x").startswith("a.npz has 'x' more than once")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("(-11, 3)", "x has the impossible shape (-11, 3)"),
        ("(-11, -3)", "x has the impossible shape (-11, -3)"),
        ("(True, 33)", "x has the impossible shape (True, 33)"),
        ("(0, 1 << 62)", "cannot be read"),
        (f"(0, {2**62})", "x has the impossible shape (0, 4611686018427387904)"),
        (f"({2**40}, {2**40})", "x has the impossible shape"),
        ("(11.0, 3)", "cannot be read"),
    ],
)
@pytest.mark.parametrize("archive", [False, True])
def test_impossible_shapes_are_refused(shape, words, archive):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    content = b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + bytes(264)
    Path("x.npy").write_bytes(content)
    with zipfile.ZipFile("a.npz", "w") as opened:
        opened.writestr("x.npy", content)
    name = "a.npz" if archive else "x.npy"
    message = refused(read_features, name)
    assert name in message
    assert words.replace("x has", "a.npz:x has" if archive else "x.npy has") in message


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"\x04\0v\0", "x.npy is a .npy file of version 4.0, not one of 1.0, 2.0, 3.0"),
        (b"\x01\x07v\0", "version 1.7"),
        (b"\x02\0\xff\xff\xff\xff", "x.npy has a header of 4,294,967,295 bytes"),
    ],
)
def test_headers_that_nobody_writes_are_refused(start, words):
    Path("x.npy").write_bytes(b"\x93NUMPY" + start + b"{'descr': '<f8'".ljust(200))
    assert words in refused(read_features, "x.npy")


def test_an_array_of_nothing_is_refused():
    """A text of no letters takes no bytes, so that any number of them fits."""
    header = b"{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000000,), }\n"
    start = b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little")
    Path("x.npy").write_bytes(start + header)
    assert "x.npy has dtype <U0, which holds nothing" in refused(read_ids, "x.npy")


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_header_that_promises_more_than_its_member_holds_is_refused(kind):
    """Before an array of that size is made."""
    np.save("x.npy", ROWS)
    content = Path("x.npy").read_bytes().replace(b"(11, 3), }         ", b"(11999999999, 3), }")
    with zipfile.ZipFile("a.npz", "w", kind) as archive:
        archive.writestr("x.npy", content)
    message = refused(read_features, "a.npz")
    assert message.startswith("a.npz:x is cut short: rows 11-11,999,999,998 of")


def break_sparse(layout: str, **changes) -> None:
    matrix = sp.coo_array(np.where(ROWS > 0, ROWS, 0)).asformat(layout)
    sp.save_npz("s.npz", matrix, compressed=False)
    with np.load("s.npz") as archive:
        members = dict(archive)
    for name, change in changes.items():
        members[name] = change(members[name].copy())
    np.savez("s.npz", **members)


def put(at, value):
    def change(array):
        array[at] = value
        return array

    return change


@pytest.mark.parametrize(
    ("layout", "changes", "words"),
    [
        ("csr", {"indices": put(-1, 3)}, "names column 3 in row 10, but its columns are 0 to 2"),
        ("csr", {"indices": put(0, -1)}, "names column -1 in row"),
        ("csr", {"indices": put(0, 2**31 - 1)}, "names column 2,147,483,647"),
        ("csc", {"indices": put(0, 11)}, "names row 11 in column 0, but its rows are 0 to 10"),
        ("coo", {"row": put(0, 11)}, "names row 11"),
        ("coo", {"col": put(0, -1)}, "names column -1"),
        ("bsr", {"indices": put(0, 99)}, "names column 99"),
        ("csr", {"indptr": put(-1, 999)}, "its indptr does not fit the shape (11, 3)"),
        ("csr", {"indptr": put(3, 10**6)}, "its indptr does not fit"),
        ("csr", {"indptr": put(0, 1)}, "its indptr does not fit"),
        ("csr", {"indptr": lambda x: x[:-1]}, "its indptr does not fit"),
        ("csr", {"indptr": lambda x: x.astype(float)}, "must be a list of integers"),
        ("csr", {"shape": put(0, -11)}, "broken shape [-11, 3]"),
        ("csr", {"shape": lambda x: x[:1]}, "broken shape [11]"),
        ("csr", {"data": lambda x: x.astype(object)}, "holds Python objects"),
        ("csr", {"format": lambda x: np.array("lil")}, "its format is 'lil'"),
    ],
)
def test_sparse_indices_out_of_bounds_are_refused(layout, changes, words):
    break_sparse(layout, **changes)
    message = refused(read_features, "s.npz")
    assert "s.npz" in message
    assert words in message


@pytest.mark.parametrize(
    "shape", [[2**62, 3], [11, 2**62], [2**63 - 1, 2**63 - 1]], ids=["rows", "columns", "both"]
)
@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia"])
def test_a_sparse_shape_that_no_memory_holds_is_refused(layout, shape):
    break_sparse(layout, shape=lambda _: np.array(shape))
    message = refused(read_features, "s.npz")
    assert message.startswith("s.npz has shape (")
    assert "of memory that are free; check how it was made" in message


@pytest.mark.parametrize("n", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_labels_that_repeat_are_no_bomb(n):
    """A column of classes is stored in next to nothing; that alone is no reason to refuse it."""
    labels = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), ["x" * 100])
    pq.write_table(pa.table({"group": labels}), "g.parquet")
    assert Path("g.parquet").stat().st_size < 100_000
    assert (read_picks("g.parquet", "group") == "x" * 100).all()


@pytest.mark.parametrize(
    ("layout", "side"), [("csc", 0), ("csr", 1), ("coo", 0), ("coo", 1), ("dia", 0), ("dia", 1)]
)
def test_rows_and_columns_that_only_the_shape_names_are_counted(layout, side):
    """In memory each of them takes room: eight bytes of a csr_array, or of a direction."""
    break_sparse(layout, shape=put(side, 10**8))
    expected = "alone needs 762.9 MiB, more than 100 times the"
    assert expected in refused(read_features, "s.npz")


@pytest.mark.parametrize("offset", [3, -11, 2**32, -(2**32), 2**63 - 1])
def test_diagonals_outside_of_the_matrix_are_refused(offset):
    break_sparse("dia", offsets=lambda x: np.append(x[:-1].astype(np.int64), offset))
    expected = f"names diagonal {offset:,}, but its diagonals are -10 to 2; write"
    assert expected in refused(read_features, "s.npz")


def test_a_sparse_matrix_without_its_indices_is_refused():
    np.savez("s.npz", format="csr", shape=[2, 2], data=[1.0])
    assert "s.npz has no 'indptr', which its format needs" in refused(read_features, "s.npz")


# --- Only files -----------------------------------------------------------------------------------


@pytest.fixture
def no_file(request) -> str:
    """The name of something that blocks or never ends."""
    if request.param == "pipe":
        os.mkfifo("x")
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind("x")
    else:
        Path("x").symlink_to("/dev/zero")
    return "x"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
@pytest.mark.parametrize("no_file", ["pipe", "socket", "link to a device"], indirect=True)
def test_only_files_are_read(no_file):
    expected = "is a pipe, a socket or a device, not a file; write its content into a file and"
    for ending in ("", ".npy", ".npz", ".parquet", ".arrow", ".safetensors", ".csv", ".json"):
        name = f"y{ending}"
        os.symlink(no_file, name)
        for action in (read_features, read_ids):
            if ending not in (".csv", ".json", ".safetensors") or action is read_ids:
                assert f"{name} {expected}" in refused(action, name)
        os.remove(name)
    for opened in (places.regular_file, places.open_regular):
        assert f"x {expected}" in refused(opened, Path(no_file))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_shard_that_is_no_file_is_not_passed_over(folder):
    """The last one would not even leave a gap."""
    write_shards("d", ROWS, size=4)
    os.mkfifo("d/img_emb_3.npy")
    assert refused(read_features, "d").startswith("d/img_emb_3.npy is a pipe")
    os.remove("d/img_emb_3.npy")
    os.symlink("nowhere", "d/img_emb_3.npy")
    assert refused(read_features, "d").startswith("d/img_emb_3.npy does not exist")
    os.remove("d/img_emb_3.npy")
    os.mkdir("d/img_emb_3.npy")
    assert refused(read_features, "d").startswith("d/img_emb_3.npy is a folder")
    write_data_set("e", table(lists(ROWS)))
    os.rename("e/state.json", "state.json")
    os.mkfifo("e/data-00009-of-00010.arrow")
    assert "e/data-00009-of-00010.arrow is a pipe" in refused(read_features, "e:rows")


def test_what_takes_the_place_of_a_file_is_refused(monkeypatch):
    """Between the question and the opening."""
    monkeypatch.setattr(places, "regular_file", lambda path: path)
    os.mkfifo("x.npy")
    assert "x.npy is a pipe" in refused(places.open_regular, Path("x.npy"))


# --- Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows_left", "words"), [(10, "row 10 of 11 are missing"), (4.5, "rows 4-10 of 11 are missing")]
)
def test_an_array_cut_short_names_the_rows_that_are_missing(rows_left, words):
    np.save("a.npy", ROWS)
    whole = Path("a.npy").stat().st_size
    os.truncate("a.npy", whole - round((N - rows_left) * P * 8))
    message = refused(read_features, "a.npy")
    assert message == f"a.npy is cut short: {words}; write or copy it again"


def test_other_arrays_cut_short_count_bytes():
    np.save("a.npy", np.asfortranarray(ROWS))
    os.truncate("a.npy", Path("a.npy").stat().st_size - 5)
    assert "a.npy is cut short: 5 bytes" in refused(read_features, "a.npy")
    np.save("i.npy", np.arange(9))
    os.truncate("i.npy", Path("i.npy").stat().st_size - 5)
    assert "i.npy is cut short: 5 bytes" in refused(read_ids, "i.npy")


def test_bytes_behind_an_array_are_refused():
    """Several arrays saved into one file would lose all but the first."""
    with Path("a.npy").open("wb") as file:
        np.save(file, ROWS)
        np.save(file, ROWS)
    message = refused(read_features, "a.npy")
    assert "bytes behind its array of shape (11, 3); write it again, one array to a file" in message


def test_raw_bytes_in_an_array_are_refused():
    """As ml_dtypes leaves bfloat16 behind."""
    np.save("a.npy", BFLOAT_BITS.view("V2"))
    assert "is bfloat16 or raw bytes to NumPy; save it as float32" in refused(
        read_features, "a.npy"
    )
    np.save("a.npy", np.zeros(3, dtype=[("a", "f4")]))
    assert "is records or raw bytes to NumPy" in refused(read_features, "a.npy")


@pytest.mark.parametrize("name", ["t.arrow", "t.parquet"])
def test_a_table_cut_short_is_refused(name):
    write = write_arrow if name == "t.arrow" else write_parquet
    write(name, table(lists(ROWS)))
    os.truncate(name, Path(name).stat().st_size - 20)
    assert f"{name} cannot be read as" in refused(read_features, f"{name}:rows")
    gc.collect()


@pytest.mark.parametrize("cut", [8, 12, 200])
def test_a_stream_cut_short_is_refused(cut):
    """Between two messages too, where Arrow itself sees nothing amiss."""
    write_arrow("t.arrow", table(lists(ROWS)), stream=True)
    os.truncate("t.arrow", Path("t.arrow").stat().st_size - cut)
    assert "t.arrow is cut short" in refused(read_features, "t.arrow:rows")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wrong", [99, -5, 2**31 - 1])
def test_offsets_out_of_bounds_are_refused(stream, wrong):
    """Arrow follows them without looking, which ends the process."""
    write_arrow("t.arrow", table(lists(ROWS)), stream=stream)
    content = Path("t.arrow").read_bytes()
    offsets = np.array([0, 3, 6, 9, 12], dtype="<i4")
    broken = np.array([0, 3, 6, wrong, 12], dtype="<i4")
    assert content.count(offsets.tobytes()) == 2  # batches of 4, 4 and 3 rows
    Path("t.arrow").write_bytes(content.replace(offsets.tobytes(), broken.tobytes()))
    message = refused(read_features, "t.arrow:rows")
    assert message.startswith("t.arrow cannot be read as Arrow IPC")


def test_a_group_of_fewer_rows_than_promised_is_refused(monkeypatch):
    write_parquet("t.parquet", table(lists(ROWS)))
    chunks = arrow_files._decode_group
    shorter = lambda *arguments: [chunk[:-1] for chunk in chunks(*arguments)]  # noqa: E731
    monkeypatch.setattr(arrow_files, "_decode_group", shorter)
    message = refused(read_features, "t.parquet:rows")
    assert "has 3 rows where its file promises 4, in rows 0-3; write it again" in message


@pytest.mark.parametrize("name", FORMATS)
def test_damage_is_refused_and_never_more_than_that(name):
    """A byte that is changed or lost somewhere: other numbers, or one sentence."""
    source = FORMATS[name](ROWS)
    files = [path for path in Path().rglob("*") if path.is_file()]
    whole = {path: path.read_bytes() for path in files}
    rng, refusals = np.random.default_rng(len(name)), []
    for trial in range(60):
        path = files[rng.integers(len(files))]
        content, at = whole[path], int(rng.integers(len(whole[path])))
        changed = [content[at + 1 :], b"\xff" * 4 + content[at + 4 :], b""][trial % 3]
        path.write_bytes(content[:at] + changed)
        try:
            np.asarray(read_features(source))
        except InputError as error:
            refusals.append(str(error))
        path.write_bytes(content)
    assert refusals
    assert max(len(message.splitlines()) for message in refusals) == 1


def test_a_damaged_row_group_names_its_rows():
    long = np.random.default_rng(0).standard_normal((400, 8))
    write_parquet("t.parquet", pa.table({"x": lists(long)}), group=100)
    group = pq.ParquetFile("t.parquet").metadata.row_group(2).column(0)
    content = bytearray(Path("t.parquet").read_bytes())
    start = group.data_page_offset
    content[start : start + 40] = b"\xff" * 40
    Path("t.parquet").write_bytes(content)
    read = read_features("t.parquet")
    np.testing.assert_array_equal(read[0:200], long[:200])
    with pytest.raises(InputError, match=r"t\.parquet cannot be read as Parquet at rows 200-299"):
        read[150:250]


def test_checksums_of_pages_are_compared():
    column = pa.table({"x": fixed_lists(ROWS)})
    options = {"compression": "none", "use_dictionary": False, "row_group_size": 4}
    pq.write_table(column, "t.parquet", write_page_checksum=True, **options)
    content = bytearray(Path("t.parquet").read_bytes())
    content[content.index(ROWS[5].tobytes())] ^= 1
    Path("t.parquet").write_bytes(content)
    read = read_features("t.parquet")
    np.testing.assert_array_equal(read[0:4], ROWS[:4])
    assert "t.parquet cannot be read as Parquet at rows 4-7" in refused(lambda: read[4:5])


@pytest.mark.parametrize("name", ["t.arrow", "t.feather", "t.ipc"])
@pytest.mark.parametrize("content", [b"", b"1.0, 2.0\n3.0, 4.0\n", b"FEA1abc", b"ARROW1\0\0"])
def test_what_is_not_arrow_is_refused(name, content):
    Path(name).write_bytes(content)
    assert name in refused(read_features, name)


def header_of(text: str, length: int | None = None) -> bytes:
    content = text.encode()
    size = len(content) if length is None else length
    return size.to_bytes(8, "little") + content + b"\0" * 48


ENTRY = '{"x": {"dtype": "%s", "shape": %s, "data_offsets": %s}}'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "its header would have 0 of 0 bytes"),
        (b"1234", "is not a safetensors file"),
        (header_of("{}", 10**15), "its header would have 1,000,000,000,000,000"),
        (header_of("{nope"), "its header cannot be read"),
        (header_of("[1, 2]"), "its header names no tensors"),
        (header_of("{}"), "t.safetensors has no tensors"),
        (header_of('{"x": 3}'), "no sound offsets"),
        (header_of("[" * 100_000), "it is nested too deeply"),
        (header_of('{"x": 3, "x": 4}'), "'x' occurs twice"),
        (header_of(" " * (documents.LARGEST_DOCUMENT + 1)), "its header would have 16,777,217 of"),
        (header_of(ENTRY % ("F32", "[2, -3]", "[0, 24]")), "no sound shape"),
        (header_of(ENTRY % ("F32", "[2, true]", "[0, 8]")), "no sound shape"),
        (header_of(ENTRY % ("F32", "[0, 4611686018427387904]", "[0, 0]")), "no sound shape"),
        (header_of(ENTRY % ("F32", f"{[2**62] * 99}", "[0, 0]")), "no sound shape"),
        (header_of(ENTRY % ("F32", "[2, 3]", "[0, 24, 48]")), "no sound offsets"),
        (header_of(ENTRY % ("F32", "[2, 3]", '["0", "24"]')), "no sound offsets"),
        (header_of(ENTRY % ("F32", "[9, 0]", "[99, 99]")), "cut short"),
        (header_of(ENTRY.replace('"%s"', "%s") % ("[]", "[2, 3]", "[0, 24]")), "dtype []; save"),
        (header_of(ENTRY % ("F32", "[2, 3]", "[0, 25]")), "25 bytes, but its shape [2, 3] of F32"),
        (header_of(ENTRY % ("F32", "[2, 3]", "[24, 0]")), "no sound offsets"),
        (header_of(ENTRY % ("F8_E4M3", "[2, 3]", "[0, 6]")), "F8_E4M3; save it as F16, BF16"),
        (header_of(ENTRY % ("F32", "[6]", "[0, 24]")), "must have two axes, rows and columns"),
        (header_of(ENTRY % ("F32", "[9, 3]", "[0, 108]")), "cut short: rows 4-8 of 9 are missing"),
    ],
    ids=itertools.count(),
)
def test_a_broken_safetensors_file_is_refused(content, words):
    Path("t.safetensors").write_bytes(content)
    message = refused(read_features, "t.safetensors")
    assert "t.safetensors" in message
    assert words in message


def test_tensors_that_overlap_are_refused():
    about = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    header = {"x": about, "y": {**about, "data_offsets": [23, 47]}}
    Path("t.safetensors").write_bytes(header_of(json.dumps(header)))
    message = refused(read_features, "t.safetensors:y")
    assert message == "t.safetensors:x and 'y' overlap; write it again"


def test_a_tensor_is_named_among_several():
    raw = ROWS.tobytes()
    write_safetensors("t.safetensors", {"a": ("F64", (N, P), raw), "b": ("F64", (N, P), raw)})
    message = refused(read_features, "t.safetensors")
    assert message == "t.safetensors has 2 tensors (a, b); name one, as in t.safetensors:a"


MAPPED = ["npy", "npz", "shards", "arrow, fixed lists", "arrow stream", "data set", "safetensors"]


@pytest.mark.sample
@pytest.mark.parametrize("name", [*MAPPED, "parquet, lists", "arrow, compressed"])
@pytest.mark.parametrize("change", ["truncate", "replace", "rewrite", "remove"])
def test_a_file_that_changes_while_it_is_read_is_refused(name, change, monkeypatch):
    """A memory map of a file cut short would kill the process."""
    monkeypatch.setattr(table_rows, "KEPT_BYTES", 0)
    read = fairnepv.open_rows(FORMATS[name](ROWS))
    np.testing.assert_array_equal(read[0:2], ROWS[0:2])
    paths = [path for path in Path().rglob("*") if path.is_file() and path.suffix != ".json"]
    for path in paths:
        if change == "truncate":
            os.truncate(path, 10)
        elif change == "replace":
            Path("other").write_bytes(path.read_bytes())
            os.replace("other", path)
        elif change == "rewrite":
            path.write_bytes(path.read_bytes())
            os.utime(path, ns=(1, 1))
        else:
            path.unlink()
    for action in (lambda: read[8:10], lambda: read[[9, 8]]):
        with pytest.raises(InputError, match="was changed or removed while it was being read") as e:
            action()
        assert "at row" in str(e.value)


# --- Views of files -------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", FORMATS)
def test_a_view_of_a_file_is_a_view_of_its_rows(name, monkeypatch):
    monkeypatch.setattr(table_rows, "KEPT_BYTES", 0)
    read = fairnepv.open_rows(FORMATS[name](ROWS))
    found = fairnepv.select({"a": read, "b": np.square(ROWS)}, 3)
    expected = fairnepv.select({"a": ROWS, "b": np.square(ROWS)}, 3)
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.fair_score == pytest.approx(expected.fair_score, abs=1e-12)


def test_a_lone_file_and_columns_of_it_are_views():
    np.save("a.npy", ROWS)
    read = fairnepv.open_rows("a.npy")
    assert Pool.of(read).names == ("view0",)
    pool = Pool.of(read, views={"x": slice(0, 1), "y": [2, 1]})
    x, y = views_of(pool)
    np.testing.assert_array_equal(x.data[2:5], ROWS[2:5, :1])
    np.testing.assert_array_equal(y.data[[7, 0]], ROWS[[7, 0]][:, [2, 1]])
    with pytest.raises(InputError, match="views= must map names to column slices"):
        Pool.of(read, views={"x": [3]})


def test_rows_are_checked_in_one_pass(monkeypatch):
    np.save("a.npy", ROWS)
    read = fairnepv.open_rows("a.npy")
    asked: list[tuple[int, int]] = []
    whole = MappedRows.read
    monkeypatch.setattr(
        MappedRows, "read", lambda self, a, b: asked.append((a, b)) or whole(self, a, b)
    )
    Pool.of({"a": read})
    assert asked == [(0, N)]


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        ((7, 1), np.nan, "1 value(s) that are NaN or infinite, the first in row 7"),
        ((9, 2), np.inf, "1 value(s) that are NaN or infinite, the first in row 9"),
        ((3, 0), 1e200, "too large to square in float64, the largest in row 3"),
    ],
)
def test_rows_that_are_no_numbers_are_refused(at, value, words):
    bad = ROWS.copy()
    bad[at] = value
    np.save("a.npy", bad)
    assert words in refused(lambda: Pool.of({"a": fairnepv.open_rows("a.npy")}).names)


def test_views_in_another_order_are_aligned_without_loading_them():
    order = np.random.default_rng(1).permutation(N)
    np.save("a.npy", ROWS)
    np.save("b.npy", -ROWS[order])
    data = {"a": fairnepv.open_rows("a.npy"), "b": fairnepv.open_rows("b.npy")}
    pool = Pool.of(data, ids={"a": np.arange(N), "b": order})
    _, second = views_of(pool)
    assert isinstance(second.data, rows.Reordered)
    np.testing.assert_array_equal(second.data[0:N], -ROWS)
    np.testing.assert_array_equal(pool.views[1].rows(np.array([4, 2])), -ROWS[[4, 2]])
    np.testing.assert_allclose(pool.views[0].squared_norms, pool.views[1].squared_norms)


@pytest.mark.parametrize("name", ["npy", "npz", "shards", "parquet, fixed lists", "data set"])
def test_a_pool_of_files_is_never_held_as_a_whole(name, monkeypatch):
    """Not by the checks, by a pass over its blocks, or by another order of rows."""
    monkeypatch.setattr(table_rows, "KEPT_BYTES", 0)
    monkeypatch.setattr(blocks, "_CHUNK_NUMBERS", 1 << 12)
    large = np.random.default_rng(0).standard_normal((2000, 128)).astype(np.float32)  # 1 MB
    monkeypatch.setattr(row_files, "GROUP", 100)
    read = fairnepv.open_rows(FORMATS[name](large))
    tracemalloc.start()
    try:
        pool = Pool.of({"a": read}, engine=LocalEngine(block_rows=50))
        total = pool.reduce(_count, np.add, None)
        if read.random_access:
            other = {"a": np.ones((2000, 1), np.float32), "b": read}
            ids = {"a": np.arange(2000), "b": np.arange(2000)[::-1]}
            pool = Pool.of(other, ids=ids, engine=LocalEngine(block_rows=50))
            pool.reduce(_count, np.add, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == pytest.approx(float(np.square(large, dtype=np.float64).sum()))
    assert peak < large.nbytes / 2


def _count(block, state):
    return np.asarray(block.views[-1].squared_norms().sum())


def test_a_large_table_in_another_order_is_to_be_converted(monkeypatch):
    monkeypatch.setattr(table_rows, "KEPT_BYTES", 0)
    np.save("a.npy", ROWS)
    write_parquet("t.parquet", table(lists(ROWS[::-1])))
    data = {"a": fairnepv.open_rows("a.npy"), "b": fairnepv.open_rows("t.parquet:rows")}
    message = refused(lambda: Pool.of(data, ids={"a": range(N), "b": range(N)[::-1]}).names)
    assert message.startswith("t.parquet:rows is in another order than the first view")
    assert "fairnepv convert" in message


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia"])
def test_a_sparse_matrix_stays_sparse(layout):
    sp.save_npz("s.npz", sp.coo_array(ROWS).asformat(layout))
    read = fairnepv.open_rows("s.npz")
    np.testing.assert_array_equal(read[2:5].toarray(), ROWS[2:5])
    chosen = fairnepv.select({"s": read}, 2).indices
    np.testing.assert_array_equal(chosen, fairnepv.select({"s": ROWS}, 2).indices)


def test_what_is_no_matrix_is_not_opened_as_rows():
    np.save("v.npy", ROWS[0])
    expected = "v.npy must hold a matrix of numbers, not float64 of shape (3,)"
    assert refused(fairnepv.open_rows, "v.npy") == expected


def test_picks_outlive_their_file(tmp_path):
    """Coverage takes a pass when it is asked for; by then the file may have changed."""
    rows = np.random.default_rng(0).standard_normal((50, 6))
    np.save(tmp_path / "rows.npy", rows)
    found = fairnepv.select({"a": fairnepv.open_rows(str(tmp_path / "rows.npy"))}, 5)
    np.save(tmp_path / "rows.npy", rows[:40])
    with pytest.raises(InputError, match="was changed or removed"):
        _ = found.coverage
    stored = pickle.loads(pickle.dumps(found))
    assert stored.indices.tolist() == found.indices.tolist()
    assert np.isnan(stored.coverage["a"])
    assert any("coverage is not known" in note for note in stored.notes)


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_name_is_not_this_folder(text):
    with pytest.raises(InputError, match="is empty"):
        read_features(text)


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_a_column_whose_name_is_no_text_is_refused(ending):
    write = write_parquet if ending == ".parquet" else write_arrow
    write(f"t{ending}", table(fixed_lists(ROWS), "roxs"))
    path = Path(f"t{ending}")
    path.write_bytes(path.read_bytes().replace(b"roxs", b"ro\xffs"))
    said = refused(fairnepv.open_rows, f"t{ending}:rows")
    assert said.startswith(f"t{ending} cannot be read as ")
    assert "can't decode byte 0xff" in said
