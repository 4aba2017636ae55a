"""Records as tables: every form has the same values, and a library that is missing is named."""

import builtins
import json
import sys

import numpy as np
import pytest

from fairnepv.errors import FairnepvError
from fairnepv.io.frames import METADATA, Table, Tabular, to_json

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")


class Record(Tabular):
    def __init__(self, rows=3, name="a"):
        self.rows, self.name = rows, name

    @property
    def headline(self):
        return f"Record of <{self.name}>"

    @property
    def table(self):
        columns = {
            "id": np.array([f"i{row}" for row in range(self.rows)]),
            "row": np.arange(self.rows),
            f"<b>{self.name}": np.linspace(0.0, 1.0, self.rows),
            "rival": np.array([None, *["x"] * (self.rows - 1)], dtype=object),
        }
        return Table(columns, {"why": [1, float("nan")]}, "rows")


def test_every_form_has_the_same_values():
    record = Record()
    rows = [
        {"id": f"i{i}", "row": i, "<b>a": i / 2, "rival": None if i == 0 else "x"} for i in range(3)
    ]
    assert record.to_rows() == rows
    assert record.to_arrow().to_pylist() == rows
    assert record.to_polars().to_dicts() == rows
    frame = record.to_pandas()
    assert frame["row"].tolist() == [0, 1, 2]
    assert frame["id"].tolist() == ["i0", "i1", "i2"]
    assert pandas.isna(frame["rival"][0])
    assert frame["rival"].tolist()[1:] == ["x", "x"]


def test_what_holds_for_the_record_travels_along():
    assert json.loads(Record().to_arrow().schema.metadata[METADATA]) == {"why": [1, None]}
    assert Record().to_pandas().attrs["fairnepv"]["why"][0] == 1


def test_texts_that_end_in_a_nul_are_whole_in_arrow():
    class Nul(Record):
        @property
        def table(self):
            return Table({"id": np.array(["a\0b", "c"])}, {}, "rows")

    assert Nul().to_arrow()["id"].to_pylist() == ["a\0b", "c"]
    assert Nul().to_polars()["id"].to_list() == ["a\0b", "c"]


def test_a_repr_has_the_first_rows_and_says_how_many_are_left():
    lines = repr(Record(12)).splitlines()
    assert lines[0] == "Record of <a>"
    assert lines[1].split() == ["id", "row", "<b>a", "rival"]
    assert lines[2].split() == ["i0", "0", "0"]  # no rival
    assert lines[-1].strip() == "... and 2 more"
    assert len(lines) == 13
    assert len(repr(Record(3)).splitlines()) == 5


@pytest.mark.parametrize("name", ["<script>x</script>", "a\x1b[31m", "\u202eb", '"onload=', "&"])
def test_html_holds_names_as_text(name):
    shown = Record(name=name)._repr_html_()
    assert "<script" not in shown
    assert "<b>" not in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert '""onload' not in shown


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named_with_its_remedy(library, monkeypatch):
    whole = builtins.__import__

    def without(name, *others, **more):
        if name.split(".")[0] == library:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return whole(name, *others, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(FairnepvError, match=rf"Record.to_{library} needs .*pip install {library}"):
        getattr(Record(), f"to_{library}")()


def test_json_has_no_word_for_what_is_not_finite():
    assert json.loads(to_json({"a": [float("inf"), (1.5,)]})) == {"a": [None, [1.5]]}
