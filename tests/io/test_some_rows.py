"""Texts and pictures of some rows: gaps stay gaps, and no name leads out of a folder."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fairnepv import InputError
from fairnepv.io.some_rows import check_pictures, check_texts, read_pictures, read_texts

TEXTS = ["a", None, "", "d é", "e", None, "g"]
ROWS = np.array([6, 1, 3])


def png(colour="red"):
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3), colour).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),  # as Polars writes them
        pa.dictionary(pa.int32(), pa.string()),
    ],
)
def test_texts_of_a_table_with_gaps(tmp_path, kind, ending):
    column = (
        pa.array(TEXTS, pa.string()).cast(kind)
        if not pa.types.is_dictionary(kind)
        else pa.array(TEXTS).dictionary_encode()
    )
    table, path = pa.table({"t": column, "n": list(range(7))}), tmp_path / f"t{ending}"
    if ending == ".parquet":
        pq.write_table(table, path, row_group_size=3)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, 3)
    assert read_texts(f"{path}:t", ROWS, 7) == ["g", None, "d é"]
    assert read_texts(f"{path}:n", ROWS, 7) == ["6", "1", "3"]
    with pytest.raises(InputError, match="7 rows and the pool 8"):
        read_texts(f"{path}:t", ROWS, 8)
    with pytest.raises(InputError, match="no column 'x'"):
        check_texts(f"{path}:x")


def test_texts_of_other_files(tmp_path):
    (tmp_path / "t.csv").write_text(
        "id,text\n" + "".join(f"{i},{t or ''}\n" for i, t in enumerate(TEXTS))
    )
    assert read_texts(str(tmp_path / "t.csv"), ROWS, 7) == ["g", None, "d é"]
    (tmp_path / "t.txt").write_text("\n".join("abcdefg"))
    assert read_texts(str(tmp_path / "t.txt"), ROWS, 7) == ["g", "b", "d"]
    with pytest.raises(InputError, match="does not exist"):
        check_texts(str(tmp_path / "none.csv"))


def test_lists_are_no_texts(tmp_path):
    pq.write_table(pa.table({"v": [[1.0, 2.0]] * 7}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="neither texts nor pictures"):
        read_texts(str(tmp_path / "t.parquet"), ROWS, 7)


def test_pictures_of_a_column(tmp_path):
    content = [png() if i % 2 else None for i in range(7)]
    records = [{"bytes": b, "path": "x"} for b in content]
    pq.write_table(pa.table({"plain": content, "hf": records, "t": TEXTS}), tmp_path / "t.parquet")
    for column in ("plain", "hf"):
        found = read_pictures(f"{tmp_path}/t.parquet:{column}", ROWS, 7, ["6", "1", "3"])
        assert found == [None, png(), png()]
    with pytest.raises(InputError, match="holds str, not pictures"):
        read_pictures(f"{tmp_path}/t.parquet:t", ROWS, 7, ["6", "1", "3"])


def test_pictures_of_a_folder_are_found_by_name(tmp_path):
    (tmp_path / "secret.png").write_bytes(png("blue"))
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "b.PNG").write_bytes(png())
    (folder / "c.txt").write_text("no picture")
    names = ["b", "../secret", "c"]
    assert read_pictures(str(folder), ROWS, 7, names) == [png(), None, None]
    with pytest.raises(InputError, match="no picture of any item"):
        read_pictures(str(folder), ROWS, 7, ["x", "../secret", "y"])
    check_pictures(str(folder))
    with pytest.raises(InputError, match="no folder that exists"):
        check_pictures(str(tmp_path / "nowhere"))
