"""A selection in the hand: as a sequence of rows, compared, printed, drawn, as a table; and all
other records after the same manner."""

import copy
import functools
import html.parser
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairnepv

N, K = 60, 8
IDS = [f"id-{row}" for row in range(N)]


def data(seed=0):
    rng = np.random.default_rng(seed)
    return {"text": rng.standard_normal((N, 12)), "vision": rng.standard_normal((N, 9))}


@functools.cache
def once():
    return fairnepv.select(data(), K, ids=IDS)


def found(**options):
    """A new one for those options that a test has."""
    return fairnepv.select(data(), K, **{"ids": IDS, **options}) if options else once()


# --- a sequence of row numbers --------------------------------------------------------------------


def test_it_is_a_sequence_of_its_rows():
    selection, X = found(), data()["text"]
    assert len(selection) == K
    assert list(selection) == selection.indices.tolist()
    assert all(type(row) is int for row in selection)
    assert selection[0] == selection.indices[0]
    assert type(selection[0]) is int
    assert selection[-1] == selection.indices[-1]
    np.testing.assert_array_equal(selection[:3], selection.indices[:3])
    np.testing.assert_array_equal(selection[[0, 2]], selection.indices[[0, 2]])
    np.testing.assert_array_equal(X[selection], X[selection.indices])
    np.testing.assert_array_equal(np.asarray(selection), selection.indices)
    assert selection.indices[3] in selection
    assert np.setdiff1d(np.arange(N), selection)[0] not in selection
    with pytest.raises(IndexError):
        selection[K]


def test_an_array_of_it_is_a_copy_and_of_the_type_that_is_asked_for():
    selection = found()
    np.asarray(selection)[:] = 0
    assert len(set(selection)) == K
    assert np.asarray(selection, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        np.array(selection, dtype=np.float32, copy=False)


def test_frames_take_rows_by_it():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(data()["text"], index=IDS)
    assert frame.iloc[found()].index.tolist() == found().ids.tolist()


# --- equality -------------------------------------------------------------------------------------


def test_the_same_question_and_answer_are_equal_whatever_the_search():
    one, other = found(), found(gap=0.1, random_state=3)
    assert one.seconds != other.seconds
    assert one.indices.tolist() == other.indices.tolist()  # on this pool
    assert one == other
    again = found(ids=IDS)
    assert one is not again
    assert one == again
    assert hash(one) == hash(again)
    assert len({one, again}) == 1
    assert one == copy.copy(one) == pickle.loads(pickle.dumps(one)) == copy.deepcopy(one)


@pytest.mark.parametrize(
    "other",
    [
        {"tau": 0.06},
        {"eps": 0.2},
        {"ids": None},
        {"ids": [f"other-{row}" for row in range(N)]},
        {"objective": "representative"},
        {"priorities": {"text": 0.6, "vision": 0.4}},
        {"floors": {"text": -5.0}},
        {"calibration": "none"},
        {"exclude": ["id-0"]},
        {"groups": ["a"] * N},
        {"method": "random"},
    ],
    ids=str,
)
def test_another_question_or_answer_is_not_equal(other):
    assert found() != found(**other)


def test_other_data_is_not_equal():
    assert found() != fairnepv.select(data(1), K, ids=IDS)
    few = {name: rows[:50] for name, rows in data().items()}
    assert found(ids=None) != fairnepv.select(few, K)
    assert found() != "a selection"
    assert (found() == 3) is False


def test_the_same_set_in_another_order_is_not_equal():
    one = found()
    turned = copy.copy(one)
    object.__setattr__(turned, "indices", one.indices[::-1])
    assert one != turned


def test_comparisons_are_compared_by_their_rows():
    both = [fairnepv.compare(data(), K, methods=["auto", "random"]) for _ in range(2)]
    assert both[0] == both[1]
    assert hash(both[0]) == hash(both[1])
    assert both[0] != fairnepv.compare(data(), K, methods=["random", "auto"])
    assert both[0] != both[0].rows


# --- as text, as HTML, as a figure ----------------------------------------------------------------


def test_its_text_says_what_was_chosen_and_how_good_that_is():
    selection = found()
    lines = repr(selection).splitlines()
    assert lines[0] == f"Selection of {K} from {N} by 'auto', diverse"
    assert lines[1].split() == ["text", f"{selection.scores['text']:.4f}"] + (
        ["worst", "view"] if selection.worst_view == "text" else []
    )
    assert f"no {K} score above" in lines[3]
    share = selection.efficiency
    assert f"at least {int(1000 * share) / 10:.1f}% of the best possible" in lines[4]
    assert f"random sets reach {100 * selection.random_efficiency:.1f}% of the bound" in lines[4]
    assert lines[5] == f"status: {selection.status.value}"
    assert str(selection) == repr(selection)


def test_without_a_bound_nothing_is_said_of_one():
    assert "no bound was asked for" in repr(found(certify=False))
    assert "efficiency" not in repr(found(certify=False))


def test_shares_are_told_as_shares():
    assert "% of variance explained" in repr(found(objective="representative"))


class Tags(html.parser.HTMLParser):
    """Which tags a document has, and that they are closed in order."""

    def __init__(self, document):
        super().__init__()
        self.open, self.seen, self.text = [], set(), ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.text += text


@pytest.mark.parametrize("options", [{}, {"certify": False}, {"objective": "representative"}])
def test_its_html_has_the_same_words_and_a_bar_for_every_view(options):
    selection = found(**options)
    tags = Tags(selection._repr_html_())
    assert not tags.open
    assert repr(selection) in tags.text
    assert selection._repr_html_().count("background:#") == 2
    lines = 0 if selection.certificate is None else 2
    assert selection._repr_html_().count("dashed currentColor") == lines


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><img src=x>', "&lt;", "a\x1b[2J"])
def test_names_of_views_stay_text(name):
    views = dict(zip((name, "b"), data().values(), strict=True))
    for record in (
        chosen := fairnepv.select(views, K),
        fairnepv.compare(views, K, methods=["auto", "random"]),
        fairnepv.explain(chosen),
        chosen.certificate,
    ):
        tags = Tags(record._repr_html_())
        assert tags.seen <= {"pre", "table", "tbody", "thead", "tr", "td", "th", "span", "div"}
        assert "\x1b" not in tags.text
        assert "\x1b" not in repr(record)


def test_its_figure_is_one_of_matplotlib():
    from matplotlib.figure import Figure

    assert isinstance(found().plot(), Figure)
    right = found().plot().axes[1]
    assert [len(line.get_ydata()) for line in right.lines] == [K, K]
    for line, score in zip(right.lines, found().scores.values(), strict=True):
        assert line.get_ydata()[-1] == pytest.approx(score)
    shares = found(objective="representative")
    for line, score in zip(shares.plot().axes[1].lines, shares.scores.values(), strict=True):
        assert line.get_ydata()[-1] == pytest.approx(score)
    assert isinstance(fairnepv.compare(data(), K, methods=["auto"]).plot(), Figure)


# --- as a table -----------------------------------------------------------------------------------


def test_its_table_has_a_row_for_every_pick_and_asks_for_no_data():
    selection = found(ids=IDS)
    rows = selection.to_rows()
    assert [row["id"] for row in rows] == selection.ids.tolist()
    assert [row["row"] for row in rows] == list(selection)
    assert [row["order"] for row in rows] == list(range(K))
    assert [row["gain_text"] for row in rows] == selection.gains["text"].tolist()
    assert not selection.surveyed
    about = json.loads(selection.to_arrow().schema.metadata[b"fairnepv"])
    assert about["fair_score"] == selection.fair_score
    assert "coverage" not in about
    selection.neighbours()
    about = json.loads(selection.to_arrow().schema.metadata[b"fairnepv"])
    assert about["coverage"] == dict(selection.coverage)


def records():
    views, one = data(), found()
    return {
        "Selection": one,
        "Comparison": fairnepv.compare(views, K, methods=["auto", "random"]),
        "Score": fairnepv.score(views, [1, 2, 3]),
        "Optimum": fairnepv.exhaustive(views, 2),
        "Certificate": one.certificate,
        "Relaxation": fairnepv.relax(views, K),
        "Forecast": fairnepv.plan(views, K),
        "Explanation": fairnepv.explain(one),
        "Assignment": fairnepv.assign(one),
        "Difference": fairnepv.diff(one, found(method="random")),
        "Stability": fairnepv.stability(one, tau=(), eps=(), seeds=(1,)),
        "Curve": fairnepv.curve(views, 5, sizes=[2, 5], bounds=True),
        "Tradeoff": fairnepv.tradeoff(views, K, "text", points=2),
    }


ROWS = {
    **{"Selection": K, "Comparison": 2, "Score": 2, "Optimum": 2, "Certificate": 2},
    **{"Relaxation": 2, "Explanation": K, "Assignment": N, "Stability": 1, "Curve": 2},
}


def test_every_record_has_every_form():
    """One way for all, also where there is one row."""
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    for name, record in records().items():
        rows = record.to_rows()
        if name in ROWS:
            assert len(rows) == ROWS[name], name
        columns = list(rows[0])
        assert record.to_arrow().column_names == columns, name
        assert list(record.to_pandas().columns) == columns, name
        assert record.to_polars().columns == columns, name
        for form in (record.to_pandas(), record.to_polars(), record.to_arrow()):
            assert len(form) == len(rows), name
        assert not Tags(record._repr_html_()).open, name
        assert repr(record).count("\n") <= 12, name
        assert "array(" not in repr(record), name
        json.dumps(rows)


def test_tables_of_other_records_hold_what_the_records_do():
    made = records()
    assert [row["bound"] for row in made["Curve"].to_rows()] == [*made["Curve"].bounds.values()]
    assert [row["variant"] for row in made["Stability"].to_rows()] == ["seed 1"]
    change = made["Difference"].to_rows()
    assert [row["id"] for row in change if row["in"] == "b"] == made["Difference"].only_b.tolist()
    assigned = made["Assignment"].to_rows()
    assert [row["id"] for row in assigned] == IDS
    chosen = made["Selection"]
    assert assigned[chosen[0]]["pick_id"] == assigned[chosen[0]]["id"]
    bounds = {row["view"]: row["bound"] for row in made["Certificate"].to_rows()}
    assert bounds == dict(made["Certificate"].by_view)
    assert {row["view"]: row["score"] for row in made["Score"].to_rows()} == made["Score"].scores
    assert made["Explanation"].rows()[0]["rival_id"] == made["Explanation"].to_rows()[0]["rival_id"]


@given(st.integers(0, K), st.integers(0, K))
def test_slices_are_those_of_the_indices(first, last):
    np.testing.assert_array_equal(CHOSEN[first:last], CHOSEN.indices[first:last])


CHOSEN = found()
