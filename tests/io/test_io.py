"""Files: what was written is what is read, and what cannot be read is said in one line."""

import csv
import gc
import json
import os
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairnepv.errors import FairnepvError, InputError
from fairnepv.io import places
from fairnepv.io.read import read_features, read_ids, read_picks
from fairnepv.io.source import Source, split_source
from fairnepv.io.write import TABLES, Output, Table, write_array, write_table
from refusals import refused_rows as refused

ROWS = np.arange(24.0).reshape(8, 3) / 7
NAMES = [f"item {i}" for i in range(8)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder, so that files can go by their names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parquet(name: str = "t.parquet", /, row_group_size: int | None = None, **columns) -> None:
    pq.write_table(pa.table(columns), name, row_group_size=row_group_size)


def fixed_lists(rows: np.ndarray, kind: pa.DataType | None = None) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel(), kind), rows.shape[1])


# --- Where things lie -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "part"),
    [
        ("a.npy", "a.npy", None),
        ("a.npz", "a.npz", None),
        ("a.npz:key", "a.npz", "key"),
        ("A.NPZ:Key", "A.NPZ", "Key"),
        ("some/a.parquet:text:en:v2", "some/a.parquet", "text:en:v2"),
        ("a.parquet:text.npy", "a.parquet", "text.npy"),
        ("8:30/a.npy", "8:30/a.npy", None),
        ("8:30/a.csv:id", "8:30/a.csv", "id"),
        ("a.npy:key", "a.npy", "key"),
        ("a.npz:", "a.npz", ""),
        ("a.parquet:b.npz:c", "a.parquet", "b.npz:c"),
        ("a.npz:b.parquet:c", "a.npz", "b.parquet:c"),
    ],
)
def test_a_part_follows_the_colon_behind_the_ending(text, path, part):
    assert split_source(text) == Source(Path(path), part)


def test_a_source_prints_as_it_was_given():
    assert str(split_source("a/b.npz:key")) == "a/b.npz:key"
    assert str(split_source("a/b.npy")) == "a/b.npy"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no.npy", ["no.npy does not exist", "check the path"]),
        ("no/such/folder.npz:x", ["no/such/folder.npz does not exist"]),
        ("a.hdf5", ["a.hdf5 ends in '.hdf5'", ".npy, .npz, .parquet"]),
        ("a.csv", ["a.csv ends in '.csv'", ".npy, .npz, .parquet"]),
        ("a", ["a has no ending", ".npy, .npz, .parquet"]),
        ("a.npy:x", ["a .npy file has no parts"]),
        ("a.npz:", ["name the part after the colon"]),
        ("folder.npy", ["folder.npy is a folder without rows", "numbered .npy files"]),
    ],
)
def test_what_is_not_a_feature_file_is_refused(text, words):
    Path("folder.npy").mkdir()
    message = refused(read_features, text)
    assert all(word in message for word in words)


# --- .npy and .npz --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i4", "u1", "?"])
def test_npy_is_mapped_and_not_copied(dtype):
    rows = (ROWS > 1).astype(dtype)
    np.save("a.npy", rows)
    read = read_features("a.npy")
    piece = read[2:5]
    assert not piece.flags.owndata
    assert not piece.flags.writeable
    assert read.dtype == piece.dtype == rows.dtype
    np.testing.assert_array_equal(piece, rows[2:5])
    np.testing.assert_array_equal(read, rows)


def test_the_ending_may_be_in_capitals():
    np.save("a.npy", ROWS)
    Path("a.npy").rename("A.NPY")
    np.testing.assert_array_equal(read_features("A.NPY"), ROWS)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_gives_the_key_that_is_named(save):
    save("a.npz", text=ROWS, vision=-ROWS)
    np.testing.assert_array_equal(read_features("a.npz:text"), ROWS)
    np.testing.assert_array_equal(read_features("a.npz:vision"), -ROWS)


def test_the_only_key_need_not_be_named():
    np.savez("a.npz", text=ROWS)
    np.testing.assert_array_equal(read_features("a.npz"), ROWS)


def test_a_key_may_hold_colons():
    np.savez("a.npz", **{"text:en": ROWS, "text": -ROWS})
    np.testing.assert_array_equal(read_features("a.npz:text:en"), ROWS)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("make", [sp.coo_array, sp.coo_matrix])
def test_sparse_archives_stay_sparse(layout, make):
    rows = np.where(ROWS > 1.5, ROWS, 0)
    sp.save_npz("s.npz", make(rows).asformat(layout))
    read = read_features("s.npz")
    assert sp.issparse(read)
    np.testing.assert_array_equal(read.toarray(), rows)


def test_a_missing_or_unnamed_key_lists_the_keys():
    np.savez("a.npz", text=ROWS, vision=ROWS)
    assert refused(read_features, "a.npz:sound") == "a.npz has no key 'sound'; it has text, vision"
    message = refused(read_features, "a.npz")
    assert message == "a.npz has 2 keys (text, vision); name one, as in a.npz:text"


def test_a_long_list_of_keys_is_cut():
    np.savez("a.npz", **{f"x{i:02}": ROWS for i in range(20)})
    assert refused(read_features, "a.npz:y").endswith("x10, x11, ...")


def test_an_archive_of_nothing_has_no_keys():
    np.savez("a.npz")
    assert refused(read_features, "a.npz") == "a.npz has no keys"


@pytest.mark.parametrize("text", ["o.npy", "o.npz", "o.npz:x"])
@pytest.mark.parametrize("read", [read_features, read_ids])
def test_pickled_objects_are_never_loaded(read, text):
    objects = np.array([{"a": 1}, None], dtype=object)
    np.save("o.npy", objects)
    np.savez("o.npz", x=objects)
    message = refused(read, text)
    assert text in message
    assert "Python objects, which are never loaded" in message
    assert "save it as an array of numbers" in message


NOT = {"a.npy": "a.npy is not a .npy file", "a.npz": "a.npz is not an .npz archive"}


@pytest.mark.parametrize("name", NOT)
@pytest.mark.parametrize("content", [b"", b"P", b"\x93", b"1.0, 2.0\n3.0, 4.0\n", b"\x80\x04N."])
def test_first_bytes_tell_a_stranger(name, content):
    """An empty file, a text or a pickle; NumPy would speak of Python objects."""
    Path(name).write_bytes(content)
    assert refused(read_features, name) == f"{NOT[name]}; write it again"


def test_an_array_named_like_an_archive_is_told_its_name():
    np.save("a.npy", ROWS)
    Path("a.npy").rename("a.npz")
    message = "a.npz is not an .npz archive; it holds a single array, so call it .npy"
    assert refused(read_features, "a.npz") == message


def test_an_archive_named_like_an_array_is_refused():
    np.savez("a.npz", x=ROWS)
    Path("a.npz").rename("a.npy")
    assert refused(read_features, "a.npy") == "a.npy is not a .npy file; write it again"


@pytest.mark.parametrize("content", [b"", b"1.0, 2.0\n3.0, 4.0\n"])
def test_what_is_not_parquet_is_refused(content):
    Path("a.parquet").write_bytes(content)
    message = refused(read_features, "a.parquet")
    assert message.startswith("a.parquet cannot be read as Parquet (")
    assert message.endswith("; write the file again")


@pytest.mark.parametrize("read", [read_features, read_ids])
def test_a_file_that_may_not_be_opened_is_refused(read, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    np.save("a.npy", ROWS)
    monkeypatch.setattr(places, "_open_at_once", refuse)
    assert refused(read, "a.npy") == "a.npy cannot be opened (Permission denied); check the path"


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.parquet"])
def test_half_a_file_is_refused(name):
    """No handle is left to the collector, which would complain."""
    np.save("a.npy", ROWS)
    np.savez("a.npz", x=ROWS)
    parquet("a.parquet", x=fixed_lists(ROWS))
    content = Path(name).read_bytes()
    Path(name).write_bytes(content[: len(content) // 2])
    message = refused(read_features, name)
    expected = "a.npy is cut short: rows 1-7 of 8 are missing; write or copy it again"
    assert message == expected if name == "a.npy" else f"{name} cannot be read as" in message
    gc.collect()


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.parquet"])
def test_text_under_the_wrong_ending_is_refused(name):
    """And not said to hold Python objects."""
    Path(name).write_text("1.0, 2.0\n3.0, 4.0\n")
    message = refused(read_features, name)
    assert name in message
    assert "Python objects" not in message


@pytest.mark.parametrize("at", [30, 60, 200])
def test_a_damaged_archive_is_refused(at):
    """In the name of a member, in its compression, in its data."""
    np.savez_compressed("a.npz", x=np.random.default_rng(0).standard_normal((40, 8)))
    content = bytearray(Path("a.npz").read_bytes())
    content[at : at + 20] = b"\xff" * 20
    Path("a.npz").write_bytes(content)
    message = refused(read_features, "a.npz")
    assert message.startswith("a.npz cannot be read as an .npz archive (")
    assert message.endswith("; write the file again")


def test_a_damaged_header_is_refused():
    np.save("a.npy", ROWS)
    content = Path("a.npy").read_bytes()
    Path("a.npy").write_bytes(content.replace(b"(8, 3)", b"(8, 3("))
    message = refused(read_features, "a.npy")
    assert message.startswith("a.npy cannot be read as a .npy file (")
    assert message.endswith("; write the file again")


def test_a_key_called_format_makes_no_sparse_matrix():
    np.savez("a.npz", format=np.array(3), x=ROWS)
    np.testing.assert_array_equal(read_features("a.npz:x"), ROWS)
    message = refused(read_features, "a.npz")
    assert message == "a.npz has 2 keys (format, x); name one, as in a.npz:format"


def test_a_sparse_matrix_of_a_strange_format_is_refused():
    np.savez("a.npz", format=np.array(3), shape=np.array([8, 3]), data=ROWS)
    assert "a.npz cannot be read as an .npz archive" in refused(read_features, "a.npz")


# --- Parquet --------------------------------------------------------------------------------------

COLUMNS = {
    "fixed lists": fixed_lists(ROWS),
    "lists": pa.array(ROWS.tolist()),
    "large lists": pa.array(ROWS.tolist(), pa.large_list(pa.float64())),
    "float32": fixed_lists(ROWS.astype(np.float32)),
    "float16": fixed_lists(ROWS.astype(np.float16)),
    "float16 lists": pa.array(list(ROWS.astype(np.float16)), pa.list_(pa.float16())),
    "integers": fixed_lists(np.arange(24).reshape(8, 3)),
    "truth": pa.array((ROWS > 1).tolist()),
    "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(ROWS),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_of_lists_becomes_rows(kind):
    parquet(other=pa.array(range(8)), rows=COLUMNS[kind])
    read = read_features("t.parquet:rows")
    assert read.shape == (8, 3)
    np.testing.assert_array_equal(read, np.array(COLUMNS[kind].to_pylist()).reshape(8, 3))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "u1"])
def test_the_type_of_the_values_is_kept(dtype):
    rows = np.arange(24).reshape(8, 3).astype(dtype)
    parquet(rows=fixed_lists(rows))
    assert read_features("t.parquet").dtype == np.dtype(dtype)


def test_a_scalar_column_is_one_feature():
    parquet(x=ROWS[:, 0])
    np.testing.assert_array_equal(read_features("t.parquet"), ROWS[:, :1])


@pytest.mark.parametrize("kind", ["fixed lists", "lists", "large lists", "float16"])
@pytest.mark.parametrize("row_group_size", [1, 3, 8])
def test_row_groups_are_read_in_order(kind, row_group_size):
    parquet(row_group_size=row_group_size, rows=COLUMNS[kind])
    assert pq.ParquetFile("t.parquet").num_row_groups == -(-8 // row_group_size)
    np.testing.assert_array_equal(read_features("t.parquet"), COLUMNS[kind].to_pylist())


@pytest.mark.parametrize("kind", ["fixed lists", "lists", "large lists", "float16"])
def test_chunks_and_slices_are_read_in_order(kind):
    column = COLUMNS[kind]
    chunks = pa.chunked_array([column.slice(5, 2), column.slice(0, 0), column.slice(1, 3)])
    parquet(rows=chunks)
    expected = [column.to_pylist()[i] for i in (5, 6, 1, 2, 3)]
    np.testing.assert_array_equal(read_features("t.parquet"), expected)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), n=st.integers(1, 30), p=st.integers(1, 5), fixed=st.booleans())
def test_any_table_is_read_as_it_was_written(data, n, p, fixed):
    rows = np.arange(float(n * p)).reshape(n, p)
    column = fixed_lists(rows) if fixed else pa.array(rows.tolist())
    start = data.draw(st.integers(0, n - 1))
    cuts = sorted(data.draw(st.lists(st.integers(start, n), max_size=4)))
    pairs = zip([start, *cuts], [*cuts, n], strict=True)
    chunks = pa.chunked_array([column[i:j] for i, j in pairs])
    parquet(row_group_size=data.draw(st.integers(1, n)), rows=chunks)
    np.testing.assert_array_equal(read_features("t.parquet:rows"), rows[start:])


@pytest.mark.parametrize("name", ["text:en", "a.b", "a=b", "a.npz:b", "ü ï", ":", "x:"])
def test_columns_may_have_any_name(name):
    parquet(**{name: fixed_lists(ROWS), "other": fixed_lists(-ROWS)})
    np.testing.assert_array_equal(read_features(f"t.parquet:{name}"), ROWS)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([[1.0], None, [2.0], None]), ["no value in row 1;", "drop or fill"]),
        (pa.array([1.0, 2.0, None]), ["no value in row 2;", "drop or fill"]),
        (pa.array([[1.0, 2.0], [3.0, None]]), ["an empty value in row 1;", "drop or fill"]),
        (pa.array([[1.0], [2.0, 3.0]]), ["different lengths: 1 in row 0 and 2 in row 1"]),
        (pa.array([[1.0], [2.0], []]), ["different lengths: 1 in row 0 and 0 in row 2"]),
        (pa.array([["a"], ["b"]]), ["numbers", "not Python objects (str)"]),
        (pa.array(["a", "b"]), ["numbers", "not Python objects (str)"]),
        (pa.array([{"x": 1.0}, {"x": 2.0}]), ["numbers", "not Python objects (dict)"]),
    ],
)
@pytest.mark.parametrize("row_group_size", [1, None])
def test_a_column_that_is_no_matrix_is_refused(column, words, row_group_size):
    parquet(row_group_size=row_group_size, rows=column)
    message = refused(read_features, "t.parquet")
    assert all(word in message for word in ["t.parquet", *words])


def test_null_rows_of_fixed_lists_are_refused():
    """Arrow would give their slots whatever lies there."""
    kind = pa.list_(pa.float64(), 2)
    try:
        parquet(rows=pa.array([[1.0, 2.0], None, [3.0, 4.0]], kind))
    except pa.ArrowNotImplementedError:
        pytest.skip(f"PyArrow {pa.__version__} cannot write such a file")
    assert "column 'rows' has no value in row 1;" in refused(read_features, "t.parquet")


def test_a_missing_or_unnamed_column_lists_the_columns():
    parquet(text=fixed_lists(ROWS), vision=fixed_lists(ROWS))
    message = refused(read_features, "t.parquet:sound")
    assert message == "t.parquet has no column 'sound'; it has text, vision"
    message = refused(read_features, "t.parquet")
    assert message == "t.parquet has 2 columns (text, vision); name one, as in t.parquet:text"


def test_a_limit_that_the_user_gave_cells_is_not_lowered():
    Path("t.csv").write_text("id\na\n")
    before = csv.field_size_limit(1 << 40)
    try:
        assert read_ids("t.csv").tolist() == ["a"]
        assert csv.field_size_limit() == 1 << 40
    finally:
        csv.field_size_limit(before)


def test_a_column_that_occurs_twice_is_refused():
    twice = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 2, names=["x", "x"])
    pq.write_table(twice, "t.parquet")
    message = "t.parquet has column 'x' more than once; rename one"
    assert refused(read_features, "t.parquet:x") == message
    Path("t.csv").write_text("id,id\n1,2\n")
    assert refused(read_ids, "t.csv") == "t.csv has column 'id' more than once; rename one"


def test_a_table_without_rows_has_no_rows():
    parquet(x=pa.array([], pa.list_(pa.float64())))
    assert len(read_features("t.parquet")) == 0


# --- Ids ------------------------------------------------------------------------------------------


def ids_file(ending: str, values: list) -> str:
    """The values in a file of this ending, and how to name them."""
    if ending == ".npy":
        np.save("ids.npy", values)
    elif ending == ".npz":
        np.savez("ids.npz", id=values, other=values[::-1])
        return "ids.npz:id"
    elif ending == ".parquet":
        parquet("ids.parquet", other=values[::-1], id=values)
    elif ending == ".csv":
        lines = [f"{other},{value}" for value, other in zip(values, values[::-1], strict=True)]
        Path("ids.csv").write_text("\n".join(["other,id", *lines]) + "\n")
    elif ending == ".json":
        Path("ids.json").write_text(json.dumps(values))
    else:
        Path("ids.txt").write_text("\n".join(map(str, values)) + "\n")
    return f"ids{ending}"


@pytest.mark.parametrize("ending", [".npy", ".npz", ".parquet", ".csv", ".json", ".txt"])
@pytest.mark.parametrize("values", [NAMES, [7, 3, 10, -1, 0], ["ä", "B", "γ"]])
def test_ids_come_back_as_strings_or_integers(ending, values):
    read = read_ids(ids_file(ending, values))
    assert read.dtype.kind == np.array(values).dtype.kind
    assert read.tolist() == values


@pytest.mark.parametrize("ending", [".npy", ".npz", ".parquet", ".csv", ".json", ".txt"])
@pytest.mark.parametrize("values", [["007", "010", "100"], ["1", "02"], ["1.0", "2"], ["+1", "2"]])
def test_names_that_look_like_numbers_stay_names(ending, values):
    assert read_ids(ids_file(ending, values)).tolist() == values


@pytest.mark.parametrize("ending", [".csv", ".txt"])
@pytest.mark.parametrize(
    "values", [["NA", "null", "nan"], ["true", "false"], ["2020-01-01", "1e3"]]
)
def test_names_are_not_taken_for_other_things(ending, values):
    """Arrow would make gaps, truth values, dates and floats of them."""
    assert read_ids(ids_file(ending, values)).tolist() == values


@pytest.mark.parametrize("ending", [".csv", ".json", ".txt"])
@pytest.mark.parametrize("values", [NAMES, [3, 1, 2]])
def test_a_byte_order_mark_is_no_part_of_an_id(ending, values):
    name = ids_file(ending, values)
    if ending == ".csv":
        Path(name).write_text("\n".join(["id", *map(str, values)]) + "\n")
    Path(name).write_bytes(b"\xef\xbb\xbf" + Path(name).read_bytes())
    assert read_ids(name).tolist() == values


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_another_column_can_be_named(ending):
    ids_file(ending, NAMES)
    assert read_ids(f"ids{ending}:other").tolist() == NAMES[::-1]


def test_a_dictionary_column_is_decoded():
    column = pa.array(["b", "a", "b", "c"]).dictionary_encode()
    parquet(row_group_size=2, id=column)
    assert read_ids("t.parquet").tolist() == ["b", "a", "b", "c"]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view()])
def test_every_kind_of_string_column_is_read(kind):
    parquet(id=pa.array(NAMES, kind))
    assert read_ids("t.parquet").tolist() == NAMES


@pytest.mark.parametrize("ending", [".csv", ".txt"])
def test_numbers_too_large_for_64_bits_stay_names(ending):
    assert read_ids(ids_file(ending, [10**30, 1])).tolist() == [str(10**30), "1"]


def test_lines_are_whole_and_empty_ones_are_skipped():
    Path("ids.txt").write_text("\nx 1\tone\n  \nx\u20282\r\n\nx 3\n", newline="")
    assert read_ids("ids.txt").tolist() == ["x 1\tone", "x\u20282", "x 3"]


def test_a_csv_without_commas_or_with_gaps_is_refused():
    Path("ids.csv").write_text("id;name\n1;foo\n")
    with pytest.raises(InputError, match="not separated by commas"):
        read_ids("ids.csv")
    Path("ids.csv").write_text("id\na\n\nb\n")
    with pytest.raises(InputError, match="1 empty row"):
        read_ids("ids.csv")


@pytest.mark.parametrize(
    "lines",
    [
        ["# made by hand", "x 1", "# end"],
        ["#1", "#2", "#3"],
        ["# fairnepv {}", "x 1", "x 2"],
        ["x 1", "# fairnepv {}", "# id"],
    ],
)
def test_a_line_that_begins_with_a_hash_is_a_value(lines):
    """Only the two that `write` puts at the top say something else."""
    assert read_ids(ids_file(".txt", lines)).tolist() == lines


def test_the_two_lines_at_the_top_name_the_columns():
    Path("t.txt").write_text("# fairnepv {}\n# row\tid\n3\t#a\n1\t# b\n")
    assert read_ids("t.txt").tolist() == ["#a", "# b"]
    assert read_picks("t.txt", "row").tolist() == [3, 1]


def test_json_may_be_the_record_of_a_selection():
    Path("p.json").write_text(json.dumps({"picks": [{"id": "b", "row": 1}, {"id": "a", "row": 0}]}))
    assert read_ids("p.json").tolist() == ["b", "a"]
    assert read_picks("p.json", "row").tolist() == [1, 0]
    assert read_picks("p.json:id", "row").tolist() == ["b", "a"]
    assert "no column 'x'; it has id, row" in refused(read_ids, "p.json:x")


LIST = "i.json must hold a list of integers or of strings"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("i.txt", b"", ["i.txt has no lines"]),
        ("i.txt", b"\n  \n", ["i.txt has no lines"]),
        ("i.txt", b"# fairnepv {}\n# id\n", ["i.txt has no lines"]),
        ("i.txt", b"\xff\xfe", ["i.txt cannot be read as text"]),
        ("i.txt", b"# fairnepv {}\n# row\tid\n3\n", ["too few columns", "write it again"]),
        ("i.csv", b"", ["i.csv has no columns"]),
        ("i.csv", b"\xe4d,id\n1,2\n", ["i.csv cannot be read as CSV", "write the file again"]),
        ("i.csv", b"id\n\xe4\n", ["i.csv cannot be read as CSV", "write the file again"]),
        ("i.csv", b"name,value\na,1\n", ["i.csv has 2 columns (name, value); name one"]),
        ("i.csv", b"id,x\n1,2\n3\n", ["i.csv cannot be read as CSV", "line 3 has fewer cells"]),
        ("i.csv", b"id,x\n1,2\n,3\n", ["column 'id' has 1 empty row(s), the first is row 1"]),
        ("i.csv", b'id\na\n""\n""\n', ["column 'id' has 2 empty row(s), the first is row 1"]),
        ("i.json", b"", ["i.json cannot be read as JSON"]),
        ("i.json", b"{", ["i.json cannot be read as JSON"]),
        ("i.json", b"[]", [LIST]),
        ("i.json", b"3", [LIST]),
        ("i.json", b'{"ids": [1]}', [LIST, "or an object with a list of picks"]),
        ("i.json", b'{"picks": 3}', [LIST]),
        ("i.json", b'{"picks": []}', ["i.json has no columns"]),
        ("i.json", b'{"picks": [1, 2]}', ["i.json has no columns"]),
        ("i.json", b'{"picks": [{"id": 1}, 2]}', [LIST]),
        ("i.json", b'{"picks": [{"id": 1}, {"row": 2}]}', [LIST]),
        ("i.json", b'[1, null, "a"]', [LIST]),
        ("i.json", b'[1, "a"]', [LIST]),
        ("i.json", b"[1, true]", [LIST]),
        ("i.json", b"[1, 2.5]", [LIST]),
        ("i.json", b"[[1, 2], [3, 4]]", [LIST]),
        ("i.json", b"[[1], [1, 2]]", [LIST]),
        ("i.json", b'[{"id": 1}]', [LIST]),
        ("i.doc", b"x", ["i.doc ends in '.doc'", ".txt"]),
    ],
)
def test_a_file_without_ids_is_refused(name, content, words):
    Path(name).write_bytes(content)
    message = refused(read_ids, name)
    assert all(word in message for word in words)


def test_a_csv_without_rows_has_no_ids():
    Path("i.csv").write_text("id,value\n")
    assert read_ids("i.csv").tolist() == []


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_a_csv_may_have_any_ends_of_lines_long_cells_and_nuls(ends):
    cells = ["a" * 200_000, "b\0c", 'd"e', "f,g\nh"]
    quoted = [cells[0], cells[1], '"d""e"', '"f,g\nh"']
    Path("i.csv").write_text(ends.join(["\ufeffid", *quoted]) + ends, newline="")
    assert read_ids("i.csv").tolist() == cells


def test_a_csv_without_the_column_lists_the_columns():
    Path("i.csv").write_text("name,value\na,1\n")
    assert refused(read_ids, "i.csv:id") == "i.csv has no column 'id'; it has name, value"


def test_a_plain_list_has_no_parts():
    Path("i.json").write_text("[1, 2]")
    message = "i.json has no 'nope': it is not a file of picks"
    assert refused(read_ids, "i.json:nope") == message


@pytest.mark.parametrize("text", ["m.npy", "s.npz", "t.parquet"])
def test_a_matrix_is_no_list_of_ids(text):
    np.save("m.npy", ROWS)
    sp.save_npz("s.npz", sp.csr_array(ROWS))
    parquet(rows=fixed_lists(ROWS))
    assert f"{text} must hold one value per row, not shape (8, 3)" in refused(read_ids, text)


# --- Tables ---------------------------------------------------------------------------------------


def example(ids=NAMES) -> Table:
    columns = {
        "id": np.array(ids),
        "row": np.arange(len(ids))[::-1].copy(),
        "gain_a": np.linspace(-1, 1, len(ids)) / 3,
    }
    return Table(columns, {"settings": {"k": len(ids), "name": 'ä, "b"\n'}}, "picks")


def write(name: str, table: Table) -> None:
    write_table(Output.at(name, TABLES, force=True), table)


@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize("ids", [NAMES, [30, 10, 20], ["a,b", 'say "x"', "ä; ü"], ["only"]])
def test_a_table_is_read_as_it_was_written(ending, ids):
    name = f"t{ending}"
    table = example(ids)
    write(name, table)
    assert read_ids(name).tolist() == ids
    assert read_picks(name, "row").tolist() == table.columns["row"].tolist()
    assert read_picks(name, "id").tolist() == ids


def gains(name: str) -> list[float]:
    """A column of numbers, found as a stranger would."""
    path = Path(name)
    if path.suffix == ".parquet":
        return pq.read_table(path)["gain_a"].to_pylist()
    if path.suffix == ".csv":
        return [float(row["gain_a"]) for row in csv.DictReader(path.read_text().splitlines())]
    if path.suffix == ".json":
        return [row["gain_a"] for row in json.loads(path.read_text())["picks"]]
    return [float(line.split("\t")[2]) for line in path.read_text().splitlines()[2:]]


@pytest.mark.parametrize("ending", TABLES)
def test_numbers_keep_every_digit(ending):
    table = example()
    write(f"t{ending}", table)
    assert gains(f"t{ending}") == table.columns["gain_a"].tolist()


def about(name: str) -> dict:
    """What a file says of its table as a whole, found as a stranger would."""
    path = Path(name)
    if path.suffix == ".parquet":
        return json.loads(pq.read_schema(path).metadata[b"fairnepv"])
    if path.suffix == ".csv":
        return json.loads(Path(f"{name}.settings.json").read_text())
    if path.suffix == ".json":
        return {k: v for k, v in json.loads(path.read_text()).items() if k != "picks"}
    first_line = path.read_text().splitlines()[0]
    return json.loads(first_line.removeprefix("# fairnepv "))


@pytest.mark.parametrize("ending", TABLES)
def test_what_holds_for_the_whole_table_is_kept(ending):
    write(f"t{ending}", example())
    assert about(f"t{ending}") == example().about


def test_json_has_a_record_per_row():
    write("t.json", example(["b", "a"]))
    document = json.loads(Path("t.json").read_text())
    assert document["picks"] == [
        {"id": "b", "row": 1, "gain_a": -1 / 3},
        {"id": "a", "row": 0, "gain_a": 1 / 3},
    ]


ANY_NAME = st.text(st.characters(exclude_categories=["Cs"], min_codepoint=1), max_size=8)
PLAIN_NAME = st.from_regex(r"[a-zA-Zäß_#][a-zA-Z0-9 .,;'\"=|äß_#-]{0,7}[a-zß_]", fullmatch=True)
NUMBER = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ids=st.lists(ANY_NAME, min_size=1, unique=True) | st.lists(NUMBER, min_size=1, unique=True),
    ending=st.sampled_from([".parquet", ".json"]),
)
def test_parquet_and_json_keep_any_id(ids, ending):
    write(f"t{ending}", example(ids))
    assert read_ids(f"t{ending}").tolist() == ids
    assert read_picks(f"t{ending}", "row").tolist() == list(range(len(ids)))[::-1]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ids=st.lists(PLAIN_NAME, min_size=1, unique=True) | st.lists(NUMBER, min_size=1, unique=True),
    ending=st.sampled_from([".csv", ".txt"]),
)
def test_csv_and_text_keep_plain_ids(ids, ending):
    write(f"t{ending}", example(ids))
    assert read_ids(f"t{ending}").tolist() == ids
    assert read_picks(f"t{ending}", "row").tolist() == list(range(len(ids)))[::-1]


def test_text_stays_one_line_per_row():
    ids = ["a\tb", "c\nd", "e\r\nf"]
    write("t.txt", example(ids))
    assert len(Path("t.txt").read_bytes().splitlines()) == 2 + len(ids)
    assert read_ids("t.txt").tolist() == ids
    assert read_picks("t.txt", "row").tolist() == [2, 1, 0]


def test_an_array_is_read_as_it_was_written():
    write_array(Output(Path("V.npy")), ROWS)
    np.testing.assert_array_equal(read_features("V.npy"), ROWS)


# --- Where output goes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("old.csv", ["old.csv exists already", "--force"]),
        ("new.doc", ["new.doc ends in '.doc'", ".csv, .json"]),
        ("new", ["new has no ending", ".csv, .json"]),
        ("folder.csv", ["folder.csv is a folder", "name a file in it"]),
        ("nowhere/new.csv", ["the folder nowhere does not exist", "make it first"]),
        ("old.csv/new.csv", ["the folder old.csv does not exist"]),
    ],
)
def test_an_output_that_cannot_be_is_refused_at_once(folder, text, words):
    Path("old.csv").write_text("old")
    Path("folder.csv").mkdir()
    before = sorted(folder.rglob("*"))
    with pytest.raises(InputError) as caught:
        Output.at(text, (".csv", ".json"), force=False)
    assert all(word in str(caught.value) for word in words)
    assert sorted(folder.rglob("*")) == before
    assert Path("old.csv").read_text() == "old"


def test_force_replaces_a_file_but_not_a_folder():
    Path("old.csv").write_text("old")
    Output.at("old.csv", (".csv",), force=True).write(b"new")
    assert Path("old.csv").read_bytes() == b"new"
    Path("folder.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        Output.at("folder.csv", (".csv",), force=True)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_write_that_fails_leaves_the_old_file_alone(folder, monkeypatch, failure):
    Path("old.csv").write_text("old")

    def replace(*_):
        raise failure

    monkeypatch.setattr(os, "replace", replace)
    expected = FairnepvError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        Output.at("old.csv", (".csv",), force=True).write(b"new")
    assert [path.name for path in folder.iterdir()] == ["old.csv"]
    assert Path("old.csv").read_text() == "old"


@pytest.mark.parametrize("there", [False, True])
def test_settings_beside_a_table_appear_with_it_or_not_at_all(folder, monkeypatch, there):
    if there:
        write("picks.csv", example())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    written = Path.write_bytes

    def full(path, content):
        if b"gain_a" in content:
            raise OSError(28, "No space left on device")
        return written(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FairnepvError, match=r"^picks\.csv cannot be written"):
        write("picks.csv", example([30, 10]))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_full_disk_is_said_in_one_line(monkeypatch):
    def replace(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", replace)
    message = r"^new\.csv cannot be written \(No space left on device\)$"
    with pytest.raises(FairnepvError, match=message):
        Output.at("new.csv", (".csv",), force=False).write(b"new")


def test_a_new_file_has_the_usual_mode():
    Output(Path("ours.csv")).write(b"x")
    Path("theirs.csv").write_bytes(b"x")
    modes = [stat.S_IMODE(Path(name).stat().st_mode) for name in ("ours.csv", "theirs.csv")]
    assert modes[0] == modes[1]
