"""Tables that are written and read again: any text is the same then, and none is a formula."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairnepv import InputError
from fairnepv.io.read import read_picks
from fairnepv.io.write import TABLES, Output, Table, csv_line, to_json, write_table

# NumPy's texts of fixed width end before a NUL; UTF-8 has no half characters.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
RUN = ["=1+1", "+1", "-x", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", "\n=1"]


def write(path: Path, ids: list[str], **columns: np.ndarray) -> None:
    rows = np.arange(len(ids))
    table = Table({"id": np.array(ids), "row": rows, **columns}, {"fairnepv": "0"}, "picks")
    write_table(Output(path), table)


def read(path: Path) -> list[str]:
    return read_picks(str(path), "id").astype(str).tolist()


@pytest.mark.parametrize("ending", TABLES)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ids=st.lists(TEXTS, min_size=1, max_size=4))
@example(ids=[*RUN, "'", "'=1", "''", "", "plain"])
@example(ids=["a\nb", "a\r\nb", "a\tb", " a ", "a,b", 'a"b', '"a"', "\u2028", "\ufeff", "# a"])
@example(ids=["'a", "b"])
@example(ids=[""])
@example(ids=["-1", "2"])
@example(ids=["a\0b", "a\0c", "\0d"])
@example(ids=["x" * 3_000_000, "b"])
def test_any_text_is_read_as_it_was(tmp_path, ending, ids):
    path = tmp_path / f"t{ending}"
    write(path, ids)
    assert read(path) == ids
    assert read_picks(str(path), "row").tolist() == list(range(len(ids)))


@pytest.mark.parametrize("ids", [[2**64 - 1, 1], [2**63 + 1, 2**63 + 2], [-1, 5], [0]])
def test_whole_numbers_of_json_stay_whole(tmp_path, ids):
    (tmp_path / "t.json").write_text(json.dumps(ids))
    assert read_picks(str(tmp_path / "t.json"), "id").tolist() == ids


def test_outputs_lie_where_links_lead(tmp_path):
    """Or nothing is begun; a link to itself leads nowhere and is replaced."""
    (tmp_path / "nowhere.csv").symlink_to(tmp_path / "missing" / "t.csv")
    with pytest.raises(InputError, match="missing does not exist"):
        Output.at(str(tmp_path / "nowhere.csv"), TABLES, force=True)
    (tmp_path / "itself.csv").symlink_to("itself.csv")
    for name in ("itself.csv", "n" * 251 + ".csv"):
        Output.at(str(tmp_path / name), TABLES, force=True).write(b"it")
        assert (tmp_path / name).read_bytes() == b"it"


@pytest.mark.parametrize("ids", [[text, "b"] for text in RUN])
def test_no_cell_is_a_formula(tmp_path, ids):
    write(tmp_path / "t.csv", ids, d=np.array([-0.5, 1.0]))
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["'" + ids[0], "b"]
    assert [row["d"] for row in rows] == ["-0.5", "1.0"]  # numbers stay numbers


@pytest.mark.parametrize("cell", [*RUN, "a=1", "", "'=1", 5, -0.5, None])
def test_tables_that_nobody_reads_again_have_no_formulas(cell):
    [[first, second]] = csv.reader(io.StringIO(csv_line(["b", cell]), newline=""))
    assert (first, second) == ("b", f"'{cell}" if cell in RUN else str(cell or ""))


def test_what_needs_no_guard_is_written_plainly(tmp_path):
    for ending, content in {
        ".csv": b"id,row\n'a,0\nb c,1\n",
        ".txt": b'# fairnepv {"fairnepv": "0"}\n# id\trow\n\'a\t0\nb c\t1\n',
    }.items():
        write(tmp_path / f"t{ending}", ["'a", "b c"])
        assert (tmp_path / f"t{ending}").read_bytes() == content
    assert json.loads((tmp_path / "t.csv.settings.json").read_text()) == {"fairnepv": "0"}


@pytest.mark.parametrize("about", ["", "{", "[]", '{"guarded_columns": 3}', '{"fairnepv": "0"}'])
def test_apostrophes_of_others_are_theirs(tmp_path, about):
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "settings"], ["'=1", about], ["b", ""]])
    assert read(tmp_path / "t.csv") == ["'=1", "b"]


def test_a_column_of_settings_may_be_anything(tmp_path):
    for header in ("id,settings,settings", "settings,id,other", "id,b,settings"):
        (tmp_path / "t.csv").write_text(f"{header}\na,a,a\nb,b,b\n")
        assert read(tmp_path / "t.csv") == ["a", "b"]
    assert read_picks(f"{tmp_path}/t.csv:settings", "id").tolist() == ["a", "b"]


@pytest.mark.parametrize("ending", TABLES)
def test_half_a_character_is_kept_or_refused(tmp_path, ending):
    path = tmp_path / f"t{ending}"
    if ending in (".json", ".txt"):
        write(path, ["\ud800", "b"])
        assert read(path) == ["\ud800", "b"]
        return
    with pytest.raises(InputError, match=r"half a character .*; write .json or .txt"):
        write(path, ["\ud800", "b"])
    assert not path.exists()


@pytest.mark.parametrize("ending", TABLES)
def test_a_view_of_several_lines_is_one_column(tmp_path, ending):
    write(tmp_path / f"t{ending}", ["a"], **{"gain_x\n\ty": np.array([1.0])})
    assert read(tmp_path / f"t{ending}") == ["a"]


def test_a_missing_text_is_null_and_an_empty_cell(tmp_path):
    rivals = np.array(["=x", None], dtype=object)
    for ending in TABLES:
        write(tmp_path / f"t{ending}", ["a", "b"], rival_id=rivals, margin=np.array([1.0, np.nan]))
    picks = json.loads((tmp_path / "t.json").read_text())["picks"]
    assert [(pick["rival_id"], pick["margin"]) for pick in picks] == [("=x", 1.0), (None, None)]
    assert pq.read_table(tmp_path / "t.parquet")["rival_id"].to_pylist() == ["=x", None]
    assert (tmp_path / "t.csv").read_text().splitlines()[2] == "b,1,,nan"


def test_json_has_no_word_for_infinity_nor_controls():
    document = {"a": [float("nan"), (float("inf"), 1.5)], "\x1b\x7f\x9b": "\u202e\ud800"}
    text = to_json(document)
    assert json.loads(text) == {"a": [None, [None, 1.5]], "\x1b\x7f\x9b": "\u202e\ud800"}
    assert text.isascii()
    assert text.replace("\n", "").isprintable()


# --- settings beside a table ----------------------------------------------------------------------


def listed(path, ids, are_rows=False):
    rows = np.arange(len(ids))
    ids = rows if are_rows else np.array(ids)
    write_table(Output(path), Table({"id": ids, "row": rows}, {"fairnepv": "0"}, "picks", "id"))


def test_a_list_is_ids_alone(tmp_path):
    path = tmp_path / "p.txt"
    listed(path, ["b", "a"])
    assert path.read_text() == "b\na\n"
    assert read(path) == ["b", "a"]
    with pytest.raises(InputError, match="lists ids, not row numbers"):
        read_picks(str(path), "row")
    listed(path, ["b", "a"], are_rows=True)
    assert read_picks(str(path), "row").tolist() == [0, 1]


@pytest.mark.parametrize("ids", [[" a", "b"], ["a\tb", "c"], ["# x", "y"], ["07", "8"], ['"', "'"]])
def test_a_list_is_read_as_it_was(tmp_path, ids):
    listed(tmp_path / "p.txt", ids)
    assert read(tmp_path / "p.txt") == ids


@pytest.mark.parametrize("beside", ["", "{", "[]", "3", '{"guarded_columns": 3}', "\udcff"])
def test_what_lies_beside_may_be_of_others(tmp_path, beside):
    for name in ("t.csv", "t.txt"):
        (tmp_path / name).write_text("id\n'=1\n" if name == "t.csv" else "'=1\n")
        (tmp_path / f"{name}.settings.json").write_bytes(beside.encode(errors="surrogateescape"))
        assert read(tmp_path / name) == ["'=1"]


def test_tables_of_before_are_read_by_their_last_column(tmp_path):
    about = json.dumps({"guarded_columns": ["id"]})
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "settings"], ["'=1", about], ["b", ""]])
    assert read(tmp_path / "t.csv") == ["=1", "b"]
