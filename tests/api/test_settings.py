"""`select(data, **settings)` finds a result again, bit for bit, also by settings from a file."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import fairnepv
from cases import random_views
from fairnepv import DiagonalView, InputError, Selection
from fairnepv.data import paper_instance
from fairnepv.report import selection_record

N, K = 24, 5
TEXT, VISION = random_views(np.random.default_rng(0), N, [8, 6])
DATA = {"text": TEXT, "vision": VISION}
IDS = np.array([f"item {i}" for i in range(N)])
GROUPS = [i % 3 for i in range(N)]  # which a JSON file knows as texts
QUALITY = np.linspace(0.5, 2.0, N)
EARLIER = fairnepv.select(DATA, 3, calibration="efficiency", effort="fast")
FRAME = np.random.default_rng(1).standard_normal((N, K))
METHODS = ("exact", "auto", "nepv", "greedy", "text-only", "averaged", "fixed-weight", "random")
KNOBS = (
    {},
    {"solver": "plain", "max_steps": 20, "start": "random"},
    {"solver": "damped", "alpha": 0.7, "max_steps": 20, "passes": 1},
    {"solver": "shifted", "sigma": 0.3, "max_steps": 20, "passes": 0},
    {"solver": "damped-shifted", "tol": 0.1, "oversampling": 2.0},
    {"tol": 1e-8, "start": [0, 4, 9, 14, 20]},
    {"solver": "accelerated", "start": FRAME},
)
RULES = (
    {},
    {"include": [3, 7], "exclude": [0]},
    {"include": ["item 4"], "exclude": ["item 9", "item 2"], "ids": IDS},
    {"groups": GROUPS},
    {"groups": GROUPS, "quotas": {0: 2, 1: (1, None)}},
    {"quality": QUALITY},
    {"floors": {"text": -1.5}},
    {"priorities": {"text": 0.1, "vision": 0.9}},
    {"priorities": {"text": 1 / 3, "vision": 2 / 3 + 1e-7}},
)
CALIBRATIONS = ("unit-diagonal", "trace", "none", "efficiency", EARLIER.calibration, "factors")
OF_THE_ROWS = ("ids", "groups", "quality")


def any_call(seed):
    """Options that go together, each drawn at random."""
    rng = np.random.default_rng(seed)
    pick = lambda values: values[rng.integers(len(values))]  # noqa: E731
    representative = seed % 4 == 1
    method = "nepv" if seed % 3 == 0 else pick(METHODS[representative:])
    options = {
        "method": method,
        "effort": pick(["fast", "balanced", "thorough"] if seed % 5 == 0 else ["fast", "balanced"]),
        "random_state": int(rng.integers(100)),
        "tau": float(rng.uniform(0.02, 0.5)),
        "eps": pick([0.1, 0.3, {"text": 0.2, "vision": 0.05}]),
        "certify": bool(rng.integers(2)),
        **pick(RULES if method in ("auto", "nepv", "greedy", "exact") else RULES[:1]),
    }
    if representative:
        options |= {"objective": "representative", "center": pick([True, False])}
        options.pop("floors", None)
    else:
        rule = pick(CALIBRATIONS)
        options["calibration"] = {"text": 0.7, "vision": 1.3} if rule == "factors" else rule
    if method == "nepv":
        options |= pick(KNOBS[:2] if representative else KNOBS)
    if method in ("auto", "greedy") and seed % 2:
        options["hierarchical"] = 3
    if method == "auto" and options["certify"]:
        options["target_efficiency"] = pick([None, 0.9])
    return options


def stored(selection):
    return json.loads(json.dumps(selection_record(selection)))["settings"]


def assert_same(again: Selection, result: Selection):
    assert again.indices.tolist() == result.indices.tolist()
    assert again.ids.tolist() == result.ids.tolist()
    assert again.scores == result.scores
    assert again.fair_score == result.fair_score
    assert again.upper_bound == result.upper_bound
    assert again.status is result.status
    assert stored(again) == stored(result)


@pytest.mark.parametrize("seed", range(30))
def test_settings_repeat_a_result_bit_for_bit(seed):
    options = any_call(seed)
    result = fairnepv.select(DATA, K, **options)
    rows = {name: options[name] for name in OF_THE_ROWS if name in options}
    if options.get("start") is FRAME:
        rows["start"] = FRAME
    for settings in (result.settings, stored(result)):
        assert_same(fairnepv.select(DATA, **{**settings, **rows}), result)


@pytest.mark.parametrize(
    "options",
    [
        {"k": 0.2},
        {"k": 3, "include": [1, 5], "include_counts": False},
        {"method": "exact", "node_limit": 3},
        {"memory_limit": "1 GiB"},
        {"time_limit": 600},
        {"hierarchical": True},
        {"calibration": EARLIER.calibration, "certify": True},
    ],
    ids=lambda options: " ".join(options),
)
def test_every_other_option_is_among_the_settings(options):
    result = fairnepv.select(DATA, **{"k": K, **options})
    for settings in (result.settings, stored(result)):
        assert_same(fairnepv.select(DATA, **settings), result)


def test_each_of_several_nested_sizes_is_found_again():
    for result in fairnepv.select(DATA, [3, 6], nested=True, effort="fast").values():
        assert_same(fairnepv.select(DATA, **stored(result)), result)


def test_shards_of_files_are_found_again(tmp_path):
    for i, rows in enumerate(np.array_split(TEXT, [11])):
        np.save(tmp_path / f"{i}.npy", rows)
    data = {"text": fairnepv.open_rows(str(tmp_path)), "vision": sp.csr_array(VISION)}
    result = fairnepv.select(data, 3, hierarchical=True, effort="fast")
    assert result.settings["hierarchical"] is True
    assert result.chosen_from["shards"] == 2
    assert_same(fairnepv.select(data, **stored(result)), result)


def test_ridges_that_views_bring_may_be_told_again():
    result = fairnepv.select(paper_instance(), 5, calibration="none", tau=0.15)
    assert_same(fairnepv.select(paper_instance(), **stored(result)), result)
    own = {"text": DiagonalView(np.arange(1.0, 9.0), eps=0.2)}
    with pytest.raises(InputError, match=r"\['text'\], which bring a ridge of their own"):
        fairnepv.select(own, 2, eps={"text": 0.3})


def test_what_has_a_value_for_every_row_is_asked_for_again():
    """And never left out in silence."""
    options = {"method": "nepv", "start": FRAME, "effort": "fast"}
    for given, said in (
        ({"quality": QUALITY}, "quality of view 'text' must be 24 numbers"),
        ({"groups": GROUPS}, "quotas need groups"),
        (options, "'sketch', a frame or row indices, not 'a frame'"),
    ):
        result = fairnepv.select(DATA, K, **given)
        with pytest.raises(InputError, match=said):
            fairnepv.select(DATA, **result.settings)


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "trace", "more": 1},
        {"normalize": 1},
        {"offsets": {"text": "x"}},
        {"factors": {"text": -1.0, "vision": 1.0}},
        {"offsets": 3},
    ],
    ids=str,
)
def test_a_calibration_that_no_settings_tell_is_refused(change):
    told = fairnepv.select(DATA, K, calibration=EARLIER.calibration, effort="fast").settings
    with pytest.raises(InputError, match=r"calibration|normalize|factors"):
        fairnepv.select(DATA, K, calibration={**told["calibration"], **change})


def test_settings_know_of_the_relaxation_where_there_is_one():
    """What stands behind the name, at what tolerance."""
    nepv = fairnepv.select(DATA, K, method="nepv", certify=False).settings
    told = {n: nepv[n] for n in ("solver", "tol", "max_steps", "alpha", "sigma", "start")}
    assert told == {
        "solver": "accelerated",
        "tol": 0.1,
        "max_steps": 300,
        "alpha": None,
        "sigma": None,
        "start": "spectral",
    }
    assert nepv["passes"] > 10
    dual = fairnepv.select(DATA, K, method="nepv", objective="representative", certify=False)
    assert (dual.settings["solver"], dual.settings["tol"]) == ("dual", 1e-4)
    shifted = fairnepv.select(DATA, K, method="nepv", solver="shifted", effort="fast").settings
    assert (shifted["tol"], shifted["alpha"], shifted["sigma"]) == (1e-6, 1.0, 1 / K)
    assert (shifted["max_steps"], shifted["passes"]) == (1000, 0)
    assert "solver" not in fairnepv.select(DATA, K, method="greedy", certify=False).settings
