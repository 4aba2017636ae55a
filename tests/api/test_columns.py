"""Tables go in, wherever they live, and the chosen rows come out of the same kind."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import fairnepv
from fairnepv import FairSelector
from refusals import refused

N, K = 60, 6
RNG = np.random.default_rng(0)
TEXT = RNG.standard_normal((N, 12)).astype(np.float32)
VISION = RNG.standard_normal((N, 9)).astype(np.float32)
IDS = [f"item-{i}" for i in range(N)]
CLASS = ["cat" if i % 3 else "dog" for i in range(N)]
WEIGHT = RNG.uniform(0.5, 2.0, N)
JUNK = [i % 10 == 0 for i in range(N)]
VIEWS = {"text": "t", "vision": "v"}
COLUMNS = {"id": IDS, "class": CLASS, "weight": WEIGHT, "junk": JUNK}
OPTIONS = {"ids": "id", "groups": "class", "quality": "weight", "exclude": "junk"}
EXPECTED = fairnepv.select(
    {"text": TEXT, "vision": VISION},
    K,
    ids=IDS,
    groups=CLASS,
    quality=WEIGHT,
    exclude=[i for i, junk in zip(IDS, JUNK, strict=True) if junk],
)


def _arrow():
    lists = {
        "t": pa.FixedSizeListArray.from_arrays(TEXT.ravel(), 12),
        "v": pa.array(VISION.tolist(), pa.list_(pa.float32())),
    }
    return pa.table({**COLUMNS, **lists})


def _pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({**COLUMNS, "t": list(TEXT), "v": list(VISION)})
    frame["mixed"] = [1, "a"] * (N // 2)  # which Arrow could not convert
    return frame.set_index(np.arange(N)[::-1] * 7)


def _polars():
    return pytest.importorskip("polars").DataFrame({**COLUMNS, "t": TEXT, "v": VISION.tolist()})


def _hugging_face():
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({**COLUMNS, "t": TEXT, "v": VISION})


def _shuffled_hugging_face():
    order = np.argsort(np.sin(np.arange(N)))
    back = np.argsort(order)
    return _hugging_face().select(order).select(back)


def _duckdb():
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_arrow(_arrow())


def _file(folder, ending):
    path = folder / f"table{ending}"
    if ending == ".parquet":
        pq.write_table(_arrow(), path, row_group_size=17)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _arrow().schema) as writer:
            writer.write_table(_arrow(), max_chunksize=17)
    return path


def _folder(folder):
    (folder / "parts").mkdir()
    for number, start in enumerate((0, 25)):
        part = _arrow().slice(start, 25 if start == 0 else None)
        pq.write_table(part, folder / "parts" / f"part_{number}.parquet")
    return str(folder / "parts")


def _tensors():
    torch = pytest.importorskip("torch")
    return {**COLUMNS, "t": torch.tensor(TEXT), "v": torch.tensor(VISION)}


def _mixed():
    return {
        **COLUMNS,
        "t": _pandas()["t"],
        "v": pa.chunked_array([VISION[:20].tolist(), VISION[20:].tolist()]),
        "id": pytest.importorskip("polars").Series(IDS),
    }


KINDS = {
    "pandas": lambda folder: _pandas(),
    "pandas of Arrow": lambda folder: _arrow().to_pandas(
        types_mapper=pytest.importorskip("pandas").ArrowDtype
    ),
    "Polars": lambda folder: _polars(),
    "Polars, lazy": lambda folder: _polars().lazy(),
    "Arrow table": lambda folder: _arrow(),
    "Arrow table, chunks": lambda folder: pa.concat_tables([_arrow()[:7], _arrow()[7:]]),
    "Arrow table, slice": lambda folder: pa.concat_tables([_arrow()[-5:], _arrow()])[5:],
    "Arrow batch": lambda folder: _arrow().to_batches()[0],
    "Arrow data set": lambda folder: pa.dataset.dataset(_arrow()),
    "Hugging Face": lambda folder: _hugging_face(),
    "Hugging Face, chosen": lambda folder: _shuffled_hugging_face(),
    "DuckDB": lambda folder: _duckdb(),
    "Parquet file": lambda folder: _file(folder, ".parquet"),
    "Arrow file": lambda folder: str(_file(folder, ".arrow")),
    "folder": _folder,
    "arrays": lambda folder: {**COLUMNS, "t": TEXT, "v": VISION},
    "lists": lambda folder: {**COLUMNS, "t": TEXT.tolist(), "v": [list(row) for row in VISION]},
    "objects": lambda folder: {**COLUMNS, "t": _objects(TEXT), "v": _objects(VISION)},
    "tensors": lambda folder: _tensors(),
    "columns of several": lambda folder: _mixed(),
}


def _objects(rows):
    column = np.empty(len(rows), dtype=object)
    column[:] = list(rows)
    return column


@pytest.fixture(params=KINDS)
def table(request, tmp_path):
    return KINDS[request.param](tmp_path)


def _as_arrow(data):
    """Whatever came out, for comparison."""
    if isinstance(data, dict):
        return pa.table({name: _column(value) for name, value in data.items()})
    if hasattr(data, "collect_schema") and not hasattr(data, "__arrow_c_stream__"):
        data = data.collect()
    if hasattr(data, "select_columns"):
        data = data.with_format("arrow")[:]
    if hasattr(data, "scanner"):
        data = data.to_table()
    if hasattr(data, "iloc"):
        data = data[[name for name in data.columns if name != "mixed"]]
    return pa.RecordBatchReader.from_stream(data).read_all()


def _column(value):
    if hasattr(value, "to_pylist"):
        return value
    return pa.array(value.tolist() if hasattr(value, "tolist") else list(value))


def test_every_kind_goes_in_and_comes_out(table):
    found = fairnepv.select(table, K, views=VIEWS, **OPTIONS)
    np.testing.assert_array_equal(found.indices, EXPECTED.indices)
    assert found.ids.tolist() == EXPECTED.ids.tolist()
    assert found.fair_score == pytest.approx(EXPECTED.fair_score, abs=1e-12)
    picked = found.apply(table)
    assert isinstance(picked, pa.Table if isinstance(table, str | Path) else type(table))
    came = _as_arrow(picked)
    assert came["id"].to_pylist() == found.ids.tolist()
    np.testing.assert_allclose(np.array(came["t"].to_pylist()), TEXT[found.indices], rtol=1e-6)
    assert came["class"].to_pylist() == [CLASS[i] for i in found.indices]


def test_pandas_keeps_its_index():
    frame = _pandas()
    found = fairnepv.select(frame, K, views=VIEWS)
    assert found.apply(frame).index.tolist() == frame.index[found.indices].tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32])
def test_rows_of_fixed_lists_are_views_of_their_buffer(dtype):
    from fairnepv.io.capsules import column_rows, read_columns

    values = np.arange(40).astype(dtype)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values), 4)
    for part, rows in ((lists, slice(None)), (lists[3:9], slice(3, 9))):
        held = read_columns(pa.table({"x": part}), ["x"])["x"]
        found = column_rows(held, "x")
        np.testing.assert_array_equal(found, values.reshape(-1, 4)[rows])
        assert np.shares_memory(found, values)


def test_polars_arrays_are_not_copied():
    polars = pytest.importorskip("polars")
    from fairnepv.io.capsules import column_rows, read_columns

    frame = polars.DataFrame({"t": TEXT, "id": IDS})
    found = column_rows(read_columns(frame, ["t"])["t"], "t")
    assert np.shares_memory(found, frame["t"].to_numpy())


def test_large_chunks_stay_apart(monkeypatch):
    from fairnepv.io import capsules

    monkeypatch.setattr(capsules, "JOINED_BYTES", 100)
    found = fairnepv.select(pa.concat_tables([_arrow()[:7], _arrow()[7:]]), K, views=VIEWS)
    expected = fairnepv.select({"text": TEXT, "vision": VISION}, K)
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.fair_score == expected.fair_score


@pytest.mark.parametrize("kind", ["lists", "series", "tensors", "arrow"])
def test_several_columns_of_a_mapping_are_one_view(kind):
    numbers = {"junk": np.array(JUNK, dtype=float), "weight": WEIGHT}
    if kind == "series":
        pandas = pytest.importorskip("pandas")
        columns = {n: pandas.Series(own, index=range(9, 9 + N)) for n, own in numbers.items()}
    elif kind == "tensors":
        columns = {n: pytest.importorskip("torch").tensor(own) for n, own in numbers.items()}
    else:
        columns = {n: own.tolist() for n, own in numbers.items()}
        columns = {n: pa.array(own) for n, own in columns.items()} if kind == "arrow" else columns
    plain = {"calibration": "none", "certify": False}
    found = fairnepv.select(columns, 1, views={"w": "weight", "both": list(numbers)}, **plain)
    arrays = {"w": WEIGHT[:, None], "both": np.stack(list(numbers.values()), axis=1)}
    assert found == fairnepv.select(arrays, 1, **plain)


@pytest.mark.parametrize("order", [("text", "vision"), ("vision", "text")])
def test_marked_rows_are_those_of_the_first_view(order):
    """Also where another view has ids of its own in another column, in whatever order."""
    table = _with_column(other=pa.array(IDS[::-1]))
    table = table.set_column(
        table.schema.get_field_index("v"), "v", pa.array(VISION[::-1].tolist())
    )
    columns = {"text": "id", "vision": "other"}
    ids = {view: columns[view] for view in order}
    found = fairnepv.select(table, K, views=VIEWS, ids=ids, include="junk", certify=False)
    assert set(np.flatnonzero(JUNK)) <= set(found)


def test_several_columns_are_one_view():
    table = {"a": np.arange(N), "b": RNG.standard_normal(N), "t": TEXT}
    found = fairnepv.select(table, 2, views={"audit": ["a", "b"], "text": "t"})
    side = np.stack([table["a"], table["b"]], axis=1)
    expected = fairnepv.select({"audit": side, "text": TEXT}, 2)
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.scores == expected.scores


def _verbs():
    selection = fairnepv.select({"text": TEXT, "vision": VISION}, K, ids=IDS)
    return {
        "compare": lambda data, **o: [
            row.fair_score for row in fairnepv.compare(data, K, methods=["greedy", "random"], **o)
        ],
        "score": lambda data, **o: fairnepv.score(data, selection.ids, by_id=True, **o).fair_score,
        "certify": lambda data, **o: fairnepv.certify(data, K, **o).upper_bound,
        "verify_bound": lambda data, **o: fairnepv.verify_bound(data, selection, **o).upper_bound,
        "plan": lambda data, **o: fairnepv.plan(data, K, **o).passes,
        "relax": lambda data, **o: fairnepv.relax(data, K, **o).value,
        "curve": lambda data, **o: fairnepv.curve(data, 4, **o).fair_scores.tolist(),
        "extend": lambda data, **o: fairnepv.extend(selection, data, 2, **o).fair_score,
        "tradeoff": lambda data, **o: [
            s.fair_score for s in fairnepv.tradeoff(data, K, "text", points=2, **o).selections
        ],
        "sizes": lambda data, **o: [
            s.fair_score for s in fairnepv.select(data, [3, 5], **o).values()
        ],
        "near_duplicates": lambda data, **o: fairnepv.near_duplicates(
            data, 0.5, **o
        ).lowest.tolist(),
        "local_features": lambda data, **o: fairnepv.local_features(data, **o)["text"].tolist(),
    }


@pytest.mark.parametrize("verb", _verbs())
def test_what_works_in_select_works_everywhere(verb):
    call = _verbs()[verb]
    plain = call({"text": TEXT, "vision": VISION}, ids=IDS)
    assert call(_arrow(), views=VIEWS, ids="id") == plain


def test_typicality_knows_tables():
    plain = fairnepv.typicality({"text": TEXT})
    assert fairnepv.typicality(_arrow(), views={"text": "t"})["text"].tolist() == (
        plain["text"].tolist()
    )


def test_selector_takes_tables():
    frame = _pandas()
    selector = FairSelector(k=K, views=VIEWS, groups="class")
    X, y = selector.fit_resample(frame, frame["class"])
    assert X["class"].tolist() == y.tolist()
    assert selector.sample_indices_ is selector.selected_indices_
    assert selector._sampling_type == "bypass"


def test_torch_data_sets():
    torch = pytest.importorskip("torch")
    pool = torch.utils.data.TensorDataset(torch.tensor(TEXT))
    for subset in (EXPECTED.apply(pool), EXPECTED.subset(pool)):
        assert isinstance(subset, torch.utils.data.Subset)
        np.testing.assert_array_equal(
            torch.stack([row for (row,) in subset]), TEXT[EXPECTED.indices]
        )
    groups = fairnepv.assign(EXPECTED)
    drawn = np.array(list(groups.sampler(20_000, random_state=1)))
    shares = np.bincount(drawn, minlength=K) / len(drawn)
    np.testing.assert_allclose(shares, groups.counts / N, atol=0.02)
    assert list(groups.sampler(random_state=3)) == list(groups.sampler(random_state=3))
    assert len(list(groups.sampler())) == K


@pytest.mark.parametrize("other", [IDS[:-1], [*IDS, "more"], np.array([*IDS, "more"])])
def test_columns_of_other_rows_are_refused(other):
    """Longer ones too, whose rows are no longer those that were chosen."""
    message = refused(EXPECTED.apply, {"t": TEXT, "id": other})
    assert f"data['id'] has {len(other)} rows, but the items were chosen from 60" in message
    assert "data[1] has 59 rows" in refused(EXPECTED.apply, [TEXT, VISION[:-1]])


def test_a_sparse_matrix_of_keys_is_no_mapping_of_columns():
    """SciPy makes it a subclass of dict."""
    X = sp.dok_array(np.round(TEXT))
    for found in (EXPECTED.apply(X), EXPECTED.apply({"x": X})["x"]):
        np.testing.assert_array_equal(found.toarray(), X.toarray()[EXPECTED.indices])
    assert "data has 59 rows" in refused(EXPECTED.apply, sp.dok_array(TEXT[:-1]))


def test_what_has_no_rows_is_refused():
    assert "cannot take rows of float64" in refused(EXPECTED.apply, np.float64(3.0))
    assert "cannot take rows of ndarray" in refused(EXPECTED.apply, np.array(3.0))
    assert "dataset must be a data set of PyTorch" in refused(EXPECTED.subset, None)


def test_other_rows_are_refused():
    assert "data has 59 rows, but the items were chosen from 60" in refused(
        EXPECTED.apply, _arrow()[:-1]
    )


def _with_column(**columns):
    table = _arrow()
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        column = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
        table = table.set_column(at, name, column) if at >= 0 else table.append_column(name, column)
    return table


def _ragged():
    rows = TEXT.tolist()
    rows[17] = rows[17][:-1]
    return pa.array(rows)


HOSTILE = {
    "ragged": (
        lambda: _with_column(t=_ragged()),
        {},
        ["column 't'", "12 in row 0", "11 in row 17"],
    ),
    "ragged, chunks": (
        lambda: _with_column(t=pa.chunked_array([TEXT[:9].tolist(), VISION[:51].tolist()])),
        {},
        ["column 't'", "12 in row 0", "9 in row 9"],
    ),
    "null row": (
        lambda: _with_column(t=pa.array([None, *TEXT[1:].tolist()])),
        {},
        ["view 'text'", "row 0", "missing='drop'"],
    ),
    "null in a vector": (
        lambda: _with_column(t=pa.array([*TEXT[:-1].tolist(), [None] * 12])),
        {},
        ["view 'text'", "row 59"],
    ),
    "all null": (
        lambda: _with_column(t=pa.array([None] * N, pa.list_(pa.float32()))),
        {},
        ["column 't' has no value in any row"],
    ),
    "lists of lists": (
        lambda: _with_column(t=pa.array([[row] for row in TEXT.tolist()])),
        {},
        ["column 't' holds lists of lists"],
    ),
    "text as a view": (_arrow, {"views": {"text": "class"}}, ["'class' holds text", "attributes"]),
    "categories": (
        lambda: _with_column(t=pa.array(CLASS).dictionary_encode()),
        {},
        ["'t' holds text"],
    ),
    "lists of text": (lambda: _with_column(t=pa.array([["a"]] * N)), {}, ["'t' holds text"]),
    "dates": (
        lambda: _with_column(t=pa.array(np.arange(N).astype("M8[D]"))),
        {},
        ["column 't' holds dates", "year"],
    ),
    "nearest name": (
        _arrow,
        {"views": {"text": "t"}, "groups": "clas"},
        ["no column 'clas'", "did you mean 'class'"],
    ),
    "no such view": (_arrow, {"views": {"text": "texts"}}, ["no column 'texts'; it has id"]),
    "twice": (
        lambda: _arrow().rename_columns(["id", "t", "weight", "junk", "t", "v"]),
        {},
        ["column 't' 2 times"],
    ),
    "empty": (lambda: _arrow()[:0], {}, ["column 't' has no rows"]),
    "null id": (
        lambda: _with_column(id=pa.array([*IDS[:-1], None])),
        {"ids": "id"},
        ["column 'id' has no value in 1 row(s)", "row 59"],
    ),
    "repeated id": (
        lambda: _with_column(id=pa.array([*IDS[:-1], IDS[0]])),
        {"ids": "id"},
        ["ids repeat", "'item-0' (row 0)"],
    ),
    "null group": (
        lambda: _with_column(**{"class": pa.array([*CLASS[:-1], None])}),
        {"groups": "class"},
        ["groups have no label in 1 row(s)", "row 59"],
    ),
    "null weight": (
        lambda: _with_column(weight=pa.array([*WEIGHT[:-1].tolist(), None])),
        {"quality": "weight"},
        ["finite", "row 59"],
    ),
    "bytes as ids": (
        lambda: _with_column(id=pa.array([b"\xff%d" % i for i in range(N)], pa.binary_view())),
        {"ids": "id"},
        ["ids must be all integers below 2^63 or all strings"],
    ),
    "masked group": (
        lambda: {"t": TEXT, "v": VISION, "g": np.ma.array(JUNK, mask=np.arange(N) == 3)},
        {"groups": "g"},
        ["groups have no label in 1 row(s)", "row 3"],
    ),
    "masked weight": (
        lambda: {"t": TEXT, "v": VISION, "w": np.ma.array(WEIGHT, mask=np.arange(N) == 3)},
        {"quality": "w"},
        ["finite", "row 3"],
    ),
    "list as ids": (_arrow, {"ids": "t"}, ["column 't' must hold one value per row"]),
    "no marks": (_arrow, {"exclude": "class"}, ["exclude: column 'class' must say true or false"]),
    "column twice": (_arrow, {"views": {"text": ["t", "t"]}}, ["names column 't' twice"]),
    "no columns named": (_arrow, {"views": None}, ["data is a table with the columns id, class"]),
    "a split each": (
        lambda: {"train": _duckdb(), "test": _duckdb()},
        {},
        ["no column 't'; it has train, test"],
    ),
    "name without a table": (
        lambda: {"text": TEXT},
        {"views": None, "ids": "id"},
        ["ids is the name 'id', but no view is a column by name"],
    ),
    "two kinds": (
        lambda: {"t": [*TEXT[:-1].tolist(), "row"], "v": VISION},
        {},
        ["view 'text' has a list in row 0 and str in row 59"],
    ),
    "objects of texts": (
        lambda: {"t": np.array(CLASS, dtype=object), "v": VISION},
        {},
        ["column 't' holds text"],
    ),
    "no table": (lambda: 3, {}, ["views= names columns of a table", "data is int"]),
    "no file": (lambda: "nowhere.parquet", {}, ["nowhere.parquet does not exist"]),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_tables_are_refused_by_column_and_row(case):
    make, options, said = HOSTILE[case]
    message = refused(fairnepv.select, make(), K, **{"views": VIEWS, **options})
    for words in said:
        assert words in message


def test_pandas_of_two_kinds_is_refused_by_row():
    frame = _pandas()
    message = refused(fairnepv.select, frame, K, views={"text": "mixed"})
    assert "mixed" in message
