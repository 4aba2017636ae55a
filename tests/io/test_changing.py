"""A file that is written to while it is read gives no answer, whatever its format."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairnepv import InputError
from fairnepv.cli.recipe import read_recipe
from fairnepv.cli.select import select
from fairnepv.io import places
from fairnepv.io.arrow_files import choose_column, counted_chunks, reading_table
from fairnepv.io.places import open_regular, open_text
from fairnepv.io.read import open_rows, read_ids
from fairnepv.io.some_rows import read_pictures, read_texts
from fairnepv.io.source import parse_source
from fairnepv.io.table_rows import TableRows

IDS = [f"i{n}" for n in range(4)]


def touch(path):
    """Another time of change, as whoever writes in place leaves it."""
    now = path.stat().st_mtime_ns + 10**9
    os.utime(path, ns=(now, now))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def written_to(monkeypatch):
    """Whatever is read is written to right after it was opened."""

    def begin():
        whole_file, parquet = places._WholeFile.__init__, pq.ParquetFile.__init__

        def opened(self, raw, path):
            whole_file(self, raw, path)
            touch(path)

        def opened_by_arrow(self, path, *arguments, **options):
            parquet(self, path, *arguments, **options)
            if isinstance(path, str | Path):  # and no file that is open already
                touch(Path(path))

        monkeypatch.setattr(places._WholeFile, "__init__", opened)
        monkeypatch.setattr(pq.ParquetFile, "__init__", opened_by_arrow)

    return begin


@pytest.mark.parametrize("how", ["longer", "shorter", "touched"])
def test_a_file_that_is_written_to_meanwhile_is_refused(how):
    path = Path("a.txt")
    path.write_text("one\ntwo\n")
    file = open_regular(path)
    file.read(2)
    if how == "touched":
        touch(path)
    else:
        os.truncate(path, {"longer": 20, "shorter": 3}[how])
    with pytest.raises(InputError, match=r"a\.txt was changed while it was being read; run this"):
        file.close()
    assert file.closed
    file.close()  # once is enough


def test_a_file_whose_place_another_takes_is_read_as_it_was():
    Path("a.txt").write_text("one")
    Path("b.txt").write_text("other")
    with open_text(Path("a.txt")) as file:
        os.replace("b.txt", "a.txt")
        assert file.read() == "one"


def test_a_file_that_nobody_writes_to_is_read():
    Path("a.txt").write_text("\ufeffone\r\ntwo", encoding="utf-8")
    with open_text(Path("a.txt")) as file:
        assert file.read() == "one\ntwo"
    np.save("a.npy", np.arange(3))
    with open_regular(Path("a.npy")) as file:
        assert np.load(file).tolist() == [0, 1, 2]  # by its descriptor


@pytest.mark.parametrize("ending", ["csv", "txt", "json", "npy", "npz", "parquet"])
def test_ids_in_a_file_that_changes_are_refused(ending, written_to):
    Path("ids.csv").write_text("id\n" + "\n".join(IDS) + "\n")
    Path("ids.txt").write_text("\n".join(IDS) + "\n")
    Path("ids.json").write_text(json.dumps(IDS))
    np.save("ids.npy", np.array(IDS))
    np.savez_compressed("ids.npz", ids=np.array(IDS))
    pq.write_table(pa.table({"id": IDS}), "ids.parquet")
    assert read_ids(f"ids.{ending}").tolist() == IDS
    written_to()
    with pytest.raises(InputError, match=rf"ids\.{ending} was changed"):
        read_ids(f"ids.{ending}")


def test_captions_and_pictures_are_of_one_file(written_to):
    rows = np.arange(2)
    pq.write_table(pa.table({"text": ["a", "b"]}), "t.parquet")
    Path("photos").mkdir()
    Path("photos/a.png").write_bytes(b"png")
    assert read_texts("t.parquet:text", rows, 2) == ["a", "b"]
    assert read_pictures("photos", rows, 2, ["a", "b"]) == [b"png", None]
    written_to()
    with pytest.raises(InputError, match="was changed"):
        read_texts("t.parquet:text", rows, 2)
    with pytest.raises(InputError, match="was changed"):
        read_pictures("photos", rows, 2, ["a", "b"])


def test_chunks_that_were_kept_are_those_of_one_file(monkeypatch):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(40.0)), 4)
    pq.write_table(pa.table({"v": lists}), "v.parquet", row_group_size=5)
    rows = open_rows("v.parquet:v")
    assert isinstance(rows, TableRows)
    chunks = rows._opened
    arrays = chunks.arrays

    def written_to_meanwhile(s, width):
        found = arrays(s, width)
        touch(Path("v.parquet"))
        return found

    object.__setattr__(chunks, "arrays", written_to_meanwhile)
    with pytest.raises(InputError, match=r"v\.parquet was changed or removed"):
        rows[0:3]


def test_a_column_is_of_one_file():
    pq.write_table(pa.table({"id": ["a", "b"]}), "ids.parquet")
    source = parse_source("ids.parquet", (".parquet",))
    chunks = counted_chunks(choose_column(source))
    assert next(chunks).to_pylist() == ["a", "b"]
    touch(Path("ids.parquet"))
    with pytest.raises(InputError, match="was changed or removed"):
        next(chunks)
    with pytest.raises(InputError, match="was changed or removed"), reading_table(source):
        Path("ids.parquet").unlink()


def test_a_recipe_is_a_whole_file(written_to):
    Path("r.toml").write_text("k = 3\n")
    assert read_recipe("r.toml", select) == {"k": "3"}
    written_to()
    with pytest.raises(InputError, match="was changed"):
        read_recipe("r.toml", select)
