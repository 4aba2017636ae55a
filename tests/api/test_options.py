"""Every option against values of wrong types, signs and sizes, each in one public function, and
every function against one such value of each of its options.

Each is refused by one `FairnepvError` in one sentence.
"""

import inspect
import math
from typing import Any

import numpy as np
import pytest

import cases
import fairnepv
from fairnepv import FairnepvError, FairSelector
from fairnepv.checks import brief
from fairnepv.options import ProblemOptions

N = 10
TEXT, VISION = cases.random_views(np.random.default_rng(0), N, [4, 3])
DATA = {"text": TEXT, "vision": VISION}
FAST: dict[str, Any] = {"effort": "fast", "certify": False}
HUGE = 10**5000  # more digits than Python writes out

NOTHING = [None]
NO_NUMBER = ["1", b"1", [1], {}, math.nan, 1j, object(), np.array(1), np.array(0.5), np.array([1])]
NOT_POSITIVE = [*NO_NUMBER, True, math.inf, -math.inf, 0, -1, HUGE, -HUGE]
NOT_WHOLE = [*NO_NUMBER, True, np.True_, math.inf, 1.5, 0, -1, -HUGE]
NO_FLAG = ["no", "", "False", 0, 1, 1.0, None, [], [True], np.array(True), np.array([True]), {}]
NO_NAME = [None, 3, math.nan, "nobody", "", ["auto"], {}, b"auto", True, "x" * 10_000]
NO_ROWS = ["1", 1.5, [1.5], [[1]], [None], ["a"], [-1], [N], [HUGE], [1, 1], math.nan, [True], {}]
NO_MAP = [3, "text", ["text"], math.nan, True]
NO_NUMBERS_BY_VIEW = [
    *({"text": value} for value in (None, "x", math.nan, math.inf, [1], HUGE, 1j, True)),
    {"nobody": 1.0},
    {3: 1.0},
    {None: 1.0},
]
BAD: dict[str, list[Any]] = {
    "k": [None, *NOT_WHOLE[:-2], -HUGE, HUGE, 1.0, N, {3}, "3"],
    "objective": NO_NAME,
    "center": [flag for flag in NO_FLAG if flag is not None],
    "tau": NOT_POSITIVE,
    "eps": NOT_POSITIVE + NO_NUMBERS_BY_VIEW,
    "views": [*NO_MAP, {}, {"a": "x"}, {"a": 99}, {"a": None}, {3: [0]}, {"a": [0.5]}],
    "calibration": [None, 3, "x", [], math.nan, True, {}, {"text": 1.0}, *NO_NUMBERS_BY_VIEW],
    "quality": ["x", 3, [1.0], [[1.0] * N], [-1.0] * N, [math.nan] * N, ["x"] * N, [None] * N,
                {"nobody": np.ones(N)}, {3: np.ones(N)}, {"text": 1.0}, {"text": None}],
    "ids": ["x", 3, [1], [1] * N, [None] * N, [1.5] * N, [[1]] * N, {}, {"text": list(range(N))},
            {3: list(range(N))}],
    "align": NO_NAME,
    "missing": NO_NAME,
    "deduplicate": [value for value in NOT_POSITIVE if value is not True] + [True, 1.5],
    "include": NO_ROWS,
    "exclude": NO_ROWS,
    "include_counts": NO_FLAG,
    "groups": ["x", 3, [1], [None] * N, [1.5] * N, [[1]] * N, [1, "1"] * (N // 2), {}, math.nan],
    "quotas": [3, "x", [1], {"a": 1}, math.nan],
    "priorities": [*NO_MAP, {}, *NO_NUMBERS_BY_VIEW, {"text": 2.0, "vision": -1.0}],
    "floors": [*NO_MAP, *NO_NUMBERS_BY_VIEW],
    "random_state": [None, *NO_NUMBER, True, np.True_, 1.5, -1, -HUGE],
    "engine": [3, "nobody", [], {}, True, math.nan, "torch:nowhere"],
    "nested": NO_FLAG,
    "method": NO_NAME,
    "methods": [3, [], (), {}, [None], ["nobody"], "nobody", [["auto"]], math.nan, {"auto"}],
    "effort": NO_NAME,
    "oversampling": [*NOTHING, *NOT_POSITIVE, 0.5],
    "certify": NO_FLAG,
    "strict": NO_FLAG,
    "by_id": NO_FLAG,
    "bounds": NO_FLAG,
    "gap": NOTHING + NOT_POSITIVE,
    "target_efficiency": [*NOT_POSITIVE, 1.5],
    "node_limit": [*NOT_WHOLE, 3],  # 3 is for another method
    "hierarchical": ["yes", "", None, 0, -1, 1.5, math.nan, [2], {}, np.array(2), HUGE, N],
    "time_limit": NOT_POSITIVE,
    "memory_limit": ["much", "", "-1", "9" * 400, "9" * 400 + "GiB", 0, -1, 1.5, math.nan,
                     math.inf, True, [1], {}, np.array([1]), 1],
    "checkpoint": [3, True, "", b"x", [], {}, math.nan],
    "progress": [3, "x", [], math.nan],
    "solver": [name for name in NO_NAME if name is not None],
    "passes": [*NO_NUMBER, True, np.True_, 1.5, -1, -HUGE],
    "start": [None, 3, "nobody", [], [0], [[0]], {}, math.nan, np.zeros((N, 2)), np.zeros((N, 3))],
    "tol": NOT_POSITIVE,
    "max_steps": NOT_WHOLE,
    "alpha": [*NOT_POSITIVE, 2.0],
    "sigma": [*NO_NUMBER, True, -1, math.inf, HUGE],
    "limit": [*NOTHING, *NOT_WHOLE],
    "indices": [*NO_ROWS, None, [], 3],
    "sizes": ["x", 3, [], [0], [N], [1.5], [[1]], [None], ["a"], [HUGE], math.nan, {}, [True]],
    "k_max": [*NOT_WHOLE[:-2], -HUGE, HUGE, 1.0, N, "3"],
    "view": [None, 3, "nobody", ["text"], {}, math.nan],
    "points": [*NOTHING, *NOT_WHOLE, 1],
    "more": [*NOTHING, *NOT_WHOLE, N],
    "neighbours": [*NOTHING, *NOT_WHOLE, N],
    "sample": [*NOTHING, *NOT_WHOLE, 1],
    "seeds": [3, "x", [None], [-1], [1.5], [True], ["a"], math.nan, [[1]], {}, None],
    "selection": [None, 3, "x", [], {}, DATA],
}  # fmt: skip
ELSEWHERE: dict[
    str, dict[str, Any]
] = {  # what an option is given together with, or it would be refused for another reason
    **{name: {"method": "nepv"} for name in ("solver", "start", "tol", "max_steps", "passes")},
    "alpha": {"method": "nepv", "solver": "damped"},
    "sigma": {"method": "nepv", "solver": "shifted"},
    "quotas": {"groups": [1, 2] * (N // 2)},
}
FACTORS = [*NOTHING, 3, "x", [None], [0], [-1], ["a"], [math.nan], [True], [HUGE], [[1]], {}]


def found() -> fairnepv.Selection:
    return fairnepv.select(DATA, 3, **FAST)


def fit(data: Any, k: Any, **options: Any) -> Any:
    return FairSelector(k, **options).fit(data)


# Each with what it needs, and which options it has besides those in its signature.
POSED = tuple(ProblemOptions.__annotations__)
SELECTS = tuple(inspect.signature(fairnepv.select).parameters)[2:]
FUNCTIONS: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "select": (fairnepv.select, {"data": DATA, "k": 3, **FAST}, ()),
    "compare": (fairnepv.compare, {"data": DATA, "k": 3, "effort": "fast"}, ()),
    "certify": (fairnepv.certify, {"data": DATA, "k": 3}, ()),
    "score": (fairnepv.score, {"data": DATA, "indices": [0, 1]}, ()),
    "relax": (fairnepv.relax, {"data": DATA, "k": 3}, ()),
    "exhaustive": (fairnepv.exhaustive, {"data": DATA, "k": 3}, ()),
    "plan": (fairnepv.plan, {"data": DATA, "k": 3}, ()),
    "FairSelector": (fit, {"data": DATA, "k": 3, **FAST}, SELECTS),
    "curve": (fairnepv.curve, {"data": DATA, "k_max": 3}, POSED),
    "tradeoff": (fairnepv.tradeoff, {"data": DATA, "k": 3, "view": "text", **FAST}, SELECTS),
    "extend": (fairnepv.extend, {"selection": found, "data": DATA, "more": 2, **FAST}, ("tau",)),
    "stability": (fairnepv.stability, {"selection": found, "seeds": ()}, ()),
    "typicality": (fairnepv.typicality, {"data": DATA, "neighbours": 3}, ()),
    "explain": (fairnepv.explain, {"selection": found}, ()),
    "assign": (fairnepv.assign, {"selection": found}, ()),
}
NOT_THERE = {  # what a function does not have, or where None or several sizes mean something
    ("FairSelector", "nested"),
    ("FairSelector", "ids"),
    ("FairSelector", "align"),
    ("FairSelector", "progress"),
    ("stability", "tau"),
    ("stability", "eps"),
    ("tradeoff", "method"),
    *(("plan", name) for name in ("calibration", "quality", "ids", "include", "exclude", "groups",
                                  "quotas", "priorities", "floors")),  # which no plan looks at
}  # fmt: skip
ONE_SIZE_EACH = NO_NUMBER[2], NO_NUMBER[-1]
RIGHT = {  # (function, option): values that are right there
    ("plan", "method"): (None,),
    ("select", "k"): ONE_SIZE_EACH,
    ("stability", "effort"): (None,),
}
CASES = [
    (function, option)
    for function, (call, _, more) in FUNCTIONS.items()
    for option in dict.fromkeys((*inspect.signature(call).parameters, *more))
    if option in BAD and (function, option) not in NOT_THERE
]
HOME = {option: function for function, option in reversed(CASES)}  # where all values are tried


def refusal(call: Any, arguments: dict[str, Any]) -> str | None:
    """What is wrong with how a call ends, or None if it is refused as it should be."""
    arguments = {name: value() if value is found else value for name, value in arguments.items()}
    try:
        call(**arguments)
    except FairnepvError as error:
        message = str(error)
        return None if "\n" not in message and 10 < len(message) < 400 else message
    except Exception as error:  # which is what is looked for
        return repr(error)
    return "taken"


@pytest.mark.filterwarnings("ignore::fairnepv.errors.RankWarning")
@pytest.mark.parametrize(("function", "option"), CASES)
def test_what_is_no_value_of_an_option_is_refused(function, option):
    call, usual, _ = FUNCTIONS[function]
    also = ELSEWHERE.get(option, {})
    takes = (*inspect.signature(call).parameters, *FUNCTIONS[function][2])
    usual = {**usual, **{name: value for name, value in also.items() if name in takes}}
    if option == "views":
        usual["data"] = np.hstack([TEXT, VISION])
    right = RIGHT.get((function, option), ())
    values = [value for value in BAD[option] if not any(value is r for r in right)]
    values = values if function == HOME[option] else values[:1]
    wrong = [(value, refusal(call, {**usual, option: value})) for value in values]
    assert not [(brief(value), how) for value, how in wrong if how]


@pytest.mark.parametrize("option", ["tau", "eps"])
def test_factors_of_stability(option):
    selection = found()
    for value in FACTORS:
        arguments = {"selection": selection, "tau": (), "eps": (), "seeds": (), option: value}
        assert refusal(fairnepv.stability, arguments) is None, repr(value)[:80]


@pytest.mark.parametrize("value", [None, "1", math.nan, [1], True, 1j, np.array(1.0)], ids=str)
def test_the_score_that_a_size_is_to_have(value):
    curve = fairnepv.curve(DATA, 3)
    assert refusal(curve.largest_with, {"fair_score": value}) is None


@pytest.mark.parametrize("flag", [True, False, np.True_, np.False_])
def test_flags_may_be_those_of_numpy(flag):
    selection = fairnepv.select(DATA, 3, effort="fast", certify=flag, strict=flag)
    assert (selection.certificate is not None) == bool(flag)


@pytest.mark.parametrize("k", [np.int64(3), np.uint8(3), np.float64(0.3), np.float32(0.3), 0.3])
def test_sizes_may_be_numbers_of_numpy(k):
    assert len(fairnepv.select(DATA, k, **FAST).indices) == 3


def test_a_selector_fits_one_size():
    for k in ([3, 5], (3,), np.array([3, 5])):
        with pytest.raises(FairnepvError, match="k must be one size"):
            FairSelector(k=k).fit(DATA)
