"""Rows that lack a view: left out, they are as if they had never been there; neutral, they are rows
of zeros. Near-duplicates: groups by brute force, and one of each is chosen from."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import fairnepv
import reference
from fairnepv import InputError, KernelView
from refusals import refused

N, K = 50, 5
RNG = np.random.default_rng(3)
TEXT = RNG.standard_normal((N, 12)) + 1.0
VISION = RNG.standard_normal((N, 9)) - 0.5
GONE_TEXT, GONE_VISION = [3, 7], [7, 20]
GONE = [3, 7, 20]
KEPT = np.setdiff1d(np.arange(N), GONE)


def _holed(rows, gone, columns=slice(None)):
    rows = rows.copy()
    rows[gone, columns] = np.nan
    return rows


HOLED = {"text": _holed(TEXT, GONE_TEXT), "vision": _holed(VISION, GONE_VISION, 2)}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "representative": {"objective": "representative"},
    "centred": {"center": True},
    "trace": {"calibration": "trace"},
    "no scale": {"calibration": "none", "eps": 1.0},
    "efficiency": {"calibration": "efficiency"},
    "quality": {"quality": np.linspace(0.5, 2.0, N), "objective": "representative"},
    "trace, centred": {"calibration": "trace", "center": True},
    "hierarchical": {"hierarchical": 2, "effort": "fast"},
}


def _of_kept(options):
    return {
        name: value[KEPT] if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }


def _tensors(data):
    torch = pytest.importorskip("torch")
    return {name: torch.tensor(rows).to(torch.bfloat16) for name, rows in data.items()}


STORES = {
    "arrays": lambda data, folder: data,
    "float32": lambda data, folder: {n: x.astype(np.float32) for n, x in data.items()},
    "sparse": lambda data, folder: {n: sp.csr_array(x) for n, x in data.items()},
    "tensors": lambda data, folder: _tensors(data),
    "files": lambda data, folder: {n: _stored(x, folder / f"{n}.npy") for n, x in data.items()},
}


def _stored(rows, path):
    np.save(path, rows)
    return fairnepv.open_rows(path)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.sample
def test_rows_that_are_left_out_might_never_have_been_there(name, store, tmp_path):
    options = SETTINGS[name]
    (tmp_path / "all").mkdir()
    (tmp_path / "kept").mkdir()
    data = STORES[store](HOLED, tmp_path / "all")
    alone = STORES[store]({"text": TEXT[KEPT], "vision": VISION[KEPT]}, tmp_path / "kept")
    found = fairnepv.select(data, K, missing="drop", **options)
    expected = fairnepv.select(alone, K, **_of_kept(options))
    if name != "hierarchical":  # whose shards are other rows
        np.testing.assert_array_equal(found.indices, KEPT[expected.indices])
        assert found.fair_score == pytest.approx(expected.fair_score, abs=1e-12)
        assert dict(found.coverage) == pytest.approx(dict(expected.coverage), abs=1e-12)
    assert found.upper_bound == pytest.approx(expected.upper_bound, abs=1e-6)
    assert not np.isin(found.indices, GONE).any()
    assert fairnepv.verify_bound(data, found, missing="drop", quality=options.get("quality")).holds
    assert "3 of 50 rows lack a view and are left out (text: 2 rows: 3, 7" in found.notes[0]


@pytest.mark.parametrize("missing", ["drop", "neutral"])
@pytest.mark.parametrize("name", ["default", "representative", "efficiency"])
def test_settings_find_the_same_again(name, missing):
    found = fairnepv.select(HOLED, K, missing=missing, exclude=[11], **SETTINGS[name])
    again = fairnepv.select(HOLED, **found.settings)
    np.testing.assert_array_equal(again.indices, found.indices)
    assert again.fair_score == found.fair_score
    assert found.settings["missing"] == missing
    assert found.settings["exclude"] == [11]


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("objective", ["diverse", "representative"])
def test_neutral_rows_are_rows_of_zeros(objective, center):
    rows = [
        reference.neutral(TEXT, GONE_TEXT, center),
        reference.neutral(VISION, GONE_VISION, center),
    ]
    subset = np.array([3, 7, 11, 20, 42])
    options = {"objective": objective, "center": center, "eps": 0.3, "missing": "neutral"}
    scored = fairnepv.score(HOLED, subset, **options)
    for d, Phi in zip(scored.scores.values(), rows, strict=True):
        if objective == "diverse":
            expected = reference.subset_score(reference.kernel(Phi, 0.3), subset)
        else:
            expected = reference.explained(Phi, 0.3, subset)
        assert d == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("objective", ["diverse", "representative"])
def test_neutral_choices_are_those_of_zeros_and_no_set_exceeds_the_bound(objective):
    options = {"objective": objective, "center": False, "calibration": "none"}
    zeros = {"text": np.nan_to_num(HOLED["text"]), "vision": VISION.copy()}
    zeros["vision"][GONE_VISION] = 0.0
    few = {name: rows[:14] for name, rows in HOLED.items()}
    found = fairnepv.select(few, 3, missing="neutral", **options)
    expected = fairnepv.select({n: x[:14] for n, x in zeros.items()}, 3, **options)
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.fair_score == expected.fair_score
    best = fairnepv.exhaustive(few, 3, missing="neutral", **options)
    assert found.fair_score <= best.fair_score + 1e-12 <= found.upper_bound + 2e-12
    assert fairnepv.verify_bound(few, found, missing="neutral").holds


def test_a_pick_that_lacks_a_view_is_not_isolated_there():
    found = fairnepv.select(HOLED, K, missing="neutral", include=GONE)
    for name, gone in (("text", GONE_TEXT), ("vision", GONE_VISION)):
        positions = np.flatnonzero(np.isin(found.indices, gone))
        assert not np.isin(positions, found.isolated[name]).any()


def test_rows_that_were_left_out_are_nobodys():
    found = fairnepv.select(HOLED, K, missing="drop")
    groups = fairnepv.assign(found)
    assert groups.pick[GONE].tolist() == [-1, -1, -1]
    assert groups.counts.sum() == N - 3
    assert groups.weights.mean() == pytest.approx(1.0)


def test_other_verbs_leave_them_out():
    alone = {"text": TEXT[KEPT], "vision": VISION[KEPT]}
    relaxed = fairnepv.relax(HOLED, K, missing="drop")
    assert relaxed.value == pytest.approx(fairnepv.relax(alone, K).value, abs=1e-9)
    certified = fairnepv.certify(HOLED, K, missing="drop")
    expected = fairnepv.certify(alone, K).upper_bound
    assert certified.upper_bound == pytest.approx(expected, abs=1e-6)
    rows = fairnepv.compare(HOLED, K, missing="drop", methods=["greedy"]).rows
    assert not np.isin(rows[0].indices, GONE).any()


@pytest.mark.torch
@pytest.mark.parametrize("objective", ["diverse", "representative"])
def test_other_engines_leave_the_same_rows_out(objective):
    options = {"missing": "neutral", "objective": objective}
    expected = fairnepv.select(HOLED, K, **options)
    for engine in ("torch", fairnepv.LocalEngine(block_rows=7)):
        found = fairnepv.select(HOLED, K, engine=engine, **options)
        np.testing.assert_array_equal(found.indices, expected.indices)
        assert dict(found.coverage) == pytest.approx(dict(expected.coverage), abs=1e-9)


def test_what_is_refused():
    message = refused(fairnepv.select, HOLED, K)
    assert "view 'text' has 24 value(s)" in message
    assert "2 rows: 3, 7" in message
    assert "missing='drop'" in message
    assert "row 3, which lacks a view" in refused(
        fairnepv.select, HOLED, K, missing="drop", include=[3]
    )
    nothing = {"text": np.full((N, 3), np.nan), "vision": VISION}
    assert "view 'text' has no value in any row" in refused(
        fairnepv.select, nothing, K, missing="drop"
    )
    halves = {"text": _holed(TEXT, range(25)), "vision": _holed(VISION, range(25, N))}
    assert "every row lacks some view" in refused(fairnepv.select, halves, K, missing="drop")
    infinite = {"text": np.where(np.arange(N)[:, None] == 9, np.inf, HOLED["text"])}
    assert "12 value(s) that are NaN or infinite, the first in row 9" in refused(
        fairnepv.select, infinite, K, missing="neutral"
    )


def test_kernels_beside_rows_that_are_left_out():
    kernel = KernelView(VISION @ VISION.T)
    data = {"text": HOLED["text"], "kernel": kernel}
    found = fairnepv.select(data, K, missing="drop")
    kept = np.setdiff1d(np.arange(N), GONE_TEXT)
    rows = VISION[kept]
    expected = fairnepv.select({"text": TEXT[kept], "kernel": KernelView(rows @ rows.T)}, K)
    np.testing.assert_array_equal(found.indices, kept[expected.indices])
    assert dict(found.coverage) == pytest.approx(dict(expected.coverage), abs=1e-12)
    assert not np.isin(found.indices, GONE_TEXT).any()
    assert fairnepv.verify_bound(data, found, missing="drop").holds
    with pytest.raises(fairnepv.UnsupportedError, match="KernelView, which cannot be centred"):
        fairnepv.select(data, K, missing="drop", center=True)


@pytest.mark.parametrize("kind", ["table", "file", "folder"])
def test_null_rows_of_tables(kind, tmp_path):
    lists = [None if i in GONE_TEXT else row.tolist() for i, row in enumerate(TEXT)]
    data = pa.table({"t": lists, "v": VISION.tolist()})
    if kind != "table":
        (tmp_path / "folder").mkdir()
        path = tmp_path / ("t.parquet" if kind == "file" else "folder/part_0.parquet")
        pq.write_table(data, path)
        data = path if kind == "file" else path.parent
    views = {"text": "t", "vision": "v"}
    found = fairnepv.select(data, K, views=views, missing="neutral")
    expected = fairnepv.select({"text": HOLED["text"], "vision": VISION}, K, missing="neutral")
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.fair_score == pytest.approx(expected.fair_score, abs=1e-12)


# --- ids of which some are in one view only -------------------------------------------------------


def test_inner_joins_by_id():
    ours, theirs = np.arange(N), np.concatenate([np.arange(N)[::-1][:-5], [100, 101]])
    rows = np.concatenate([VISION[::-1][:-5], RNG.standard_normal((2, 9))])
    data = {"text": TEXT, "vision": rows}
    ids = {"text": ours, "vision": theirs}
    assert "align='inner'" in refused(fairnepv.select, data, K, ids=ids)
    found = fairnepv.select(data, K, ids=ids, align="inner")
    expected = fairnepv.select({"text": TEXT[5:], "vision": VISION[5:]}, K, ids=ours[5:])
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.indices, expected.ids)  # rows of the first view
    assert found.fair_score == pytest.approx(expected.fair_score, abs=1e-12)
    assert fairnepv.verify_bound(data, found, ids=ids, align="inner").holds
    assert "5 of 50 rows lack a view" in found.notes[0]
    weights = {"vision": np.linspace(1, 2, len(rows))}
    weighed = fairnepv.select(data, K, ids=ids, align="inner", quality=weights)
    order = {int(i): at for at, i in enumerate(theirs)}
    own = {"vision": np.array([weights["vision"][order[i]] for i in range(5, N)])}
    alone = fairnepv.select({"text": TEXT[5:], "vision": VISION[5:]}, K, quality=own)
    np.testing.assert_array_equal(weighed.indices, alone.indices + 5)


# --- near-duplicates ------------------------------------------------------------------------------


def _doubled():
    text, vision = TEXT.copy(), VISION.copy()
    text[30:40] = 2.0 * text[:10]
    vision[30:40] = vision[:10] + 1e-6
    vision[45] = vision[0]
    text[46] = text[47] = text[12] + 1e-4 * RNG.standard_normal((2, 12))[0]
    return {"text": text, "vision": vision}


@pytest.mark.parametrize("threshold", [0.999, 0.7, 0.45])
@pytest.mark.parametrize("within", ["all", "any"])
@pytest.mark.parametrize("store", ["arrays", "sparse", "files"])
def test_groups_are_those_of_brute_force(threshold, within, store, tmp_path, monkeypatch):
    from fairnepv.api import duplicates

    data = _doubled()
    monkeypatch.setattr(duplicates, "_AT_ONCE", 16)
    seen = []
    found = fairnepv.near_duplicates(
        STORES[store](data, tmp_path), threshold, within=within, progress=seen.append
    )
    np.testing.assert_array_equal(
        found.lowest, reference.near_duplicates(list(data.values()), threshold, within)
    )
    assert [step.details["rows"] for step in seen] == [16, 32, 48, 50]
    assert len(found.kept) + len(found.dropped) == N
    assert sum(map(len, found.groups)) == len(found.dropped) + len(found.groups)


def test_groups_are_the_same_at_any_block_size():
    data = _doubled()
    first = fairnepv.near_duplicates(data, 0.6)
    for rows in (3, 11, 64):
        engine = fairnepv.LocalEngine(block_rows=rows)
        again = fairnepv.near_duplicates(data, 0.6, engine=engine)
        np.testing.assert_array_equal(first.lowest, again.lowest)


@pytest.mark.parametrize("quotas", [None, "proportional"])
def test_rows_that_are_left_out_are_in_no_proportion(quotas):
    groups, lacking = np.arange(N) // 25, np.arange(N) < 20
    text = np.where(lacking[:, None], np.nan, TEXT)
    options: dict[str, Any] = {"quotas": quotas, "certify": False}
    found = fairnepv.select({"t": text}, K, groups=groups, missing="drop", **options)
    alone = fairnepv.select({"t": TEXT[~lacking]}, K, groups=groups[~lacking], **options)
    assert found.settings["quotas"] == alone.settings["quotas"] == {"0": (0, 1), "1": (4, 5)}
    np.testing.assert_array_equal(found.indices, alone.indices + 20)


def test_one_of_each_group_is_chosen_from():
    data = _doubled()
    ids = [f"id {i}" for i in range(N)]
    found = fairnepv.select(data, K, deduplicate=0.999, ids=ids)
    groups = fairnepv.near_duplicates(data, 0.999)
    expected = fairnepv.select(data, K, exclude=groups.dropped)
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.upper_bound == expected.upper_bound
    assert found.settings["deduplicate"] == 0.999
    assert found.settings["exclude"] is None
    again = fairnepv.select(data, **{**found.settings, "ids": ids})
    np.testing.assert_array_equal(again.indices, found.indices)
    assert fairnepv.verify_bound(data, found, deduplicate=0.999, ids=ids).holds
    assert "other terms: exclude" in refused(
        fairnepv.verify_bound, data, found, exclude=[ids[1]], ids=ids
    )
    assert "10 of 50 rows are near-duplicates" in found.notes[0]


def test_what_is_included_or_excluded_decides_which_is_kept():
    data = _doubled()
    found = fairnepv.select(data, K, deduplicate=0.999, include=[31, 32, 2], exclude=[0])
    out = set(found.problem.constraints.fixed_out.tolist())
    assert {0, 1} <= out
    assert not {30, 31, 32, 2} & out  # 0 is out by itself, so that 30 is kept
    assert "missing" not in repr(found)


def test_rows_that_lack_a_view_are_like_nothing():
    data = {name: rows.copy() for name, rows in _doubled().items()}
    data["text"][30] = np.nan
    for missing in ("neutral", "drop"):
        found = fairnepv.near_duplicates(data, 0.999, missing=missing)
        assert found.lowest[30] == 30
        assert found.lowest[31] == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"deduplicate": 0.99}, "deduplicate=0.99 leaves only 12 of 20"),
        ({"missing": "drop"}, "missing='drop' leaves only 10 of 20"),
        (
            {"missing": "drop", "deduplicate": 0.99, "exclude": [7]},
            "exclude and missing='drop' and deduplicate=0.99 leave only 9 of 20",
        ),
    ],
)
def test_what_leaves_too_few_rows_is_named(options, told):
    """It blamed `exclude`, which nobody had given."""
    X = np.random.default_rng(0).standard_normal((20, 3))
    X[12:] = X[:8]
    if "missing" in options:
        X[10:] = np.nan
    with pytest.raises(fairnepv.InputError, match=f"^k = 15, but {told} items; lower k or leave"):
        fairnepv.select({"a": X}, 15, **options)
    with pytest.raises(fairnepv.InputError, match=f"^k = 15, but {told} items"):
        fairnepv.curve({"a": X}, 15, **options)


def test_what_no_threshold_is():
    for wrong in (0, 1.5, "x", True, np.nan):
        assert "threshold" in refused(fairnepv.near_duplicates, {"text": TEXT}, wrong)
    assert "within" in refused(fairnepv.near_duplicates, {"text": TEXT}, 0.9, within="both")


def test_views_of_different_lengths_are_aligned_wherever_shapes_are_asked_for_first():
    """Several sizes, plans and limits on memory look at shapes before any id is read: they refused
    what one size takes."""
    order = np.random.default_rng(8).permutation(N)[: N - 4]
    ids = {"text": np.arange(N), "vision": order}
    data = {"text": TEXT, "vision": VISION[order]}
    options = {"ids": ids, "align": "inner", "effort": "fast"}
    found = fairnepv.select(data, [K, 0.16], **options)
    assert list(found) == [K, 8]
    for size, selection in found.items():
        alone = fairnepv.select(data, size, **options)
        np.testing.assert_array_equal(selection.indices, alone.indices)
        assert selection.upper_bound == alone.upper_bound
    within = fairnepv.select(data, K, memory_limit="1GiB", **options)
    np.testing.assert_array_equal(within.indices, found[K].indices)
    assert f"{K} of {N}" in fairnepv.plan(data, K, **options).headline
    for more in ({}, {"ids": np.arange(N), "align": "inner"}, {"ids": ids}):
        with pytest.raises(InputError, match="same number of rows"):
            fairnepv.plan(data, K, **more)
