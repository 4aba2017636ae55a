"""What Python is refused: a row per refusal, with the issue that names it, the call, and the words
that its message must have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

import fairnepv
from fairnepv.errors import (
    CheckpointError,
    FairnepvError,
    InputError,
    TimeLimitError,
    UnsupportedError,
)

N, K = 20, 3
_RNG = np.random.default_rng([23, 9])
A, B = _RNG.standard_normal((N, 5)), _RNG.standard_normal((N, 6))
DATA = {"text": A, "vision": B}
GROUPS = ["red", "green"] * (N // 2)
KERNEL = A @ A.T


class Call(NamedTuple):
    """One refusal."""

    issue: int
    name: str
    call: Callable[[], Any]
    words: tuple[str, ...]
    error: type[FairnepvError] = InputError


def _with(rows: Any, row: int, column: int, value: Any) -> Any:
    changed = np.array(rows)
    changed[row, column] = value
    return changed


def _select(data: Any = DATA, k: Any = K, **options: Any) -> Callable[[], Any]:
    return lambda: fairnepv.select(data, k, **options)


def _text(rows: Any, **options: Any) -> Callable[[], Any]:
    """With something else as the first view."""
    return _select({"text": rows, "vision": B}, **options)


def _unsorted_sparse() -> Any:
    matrix = sp.csr_array(A)
    matrix.indices[3] = 77
    return matrix


def _table(**columns: Any) -> pa.Table:
    known = {"id": [f"i{i}" for i in range(N)], "text": A.tolist(), "vision": B.tolist()}
    return pa.table({**known, **columns})


def _of_table(table: pa.Table, views: Any = None, **options: Any) -> Callable[[], Any]:
    named = {"text": "text", "vision": "vision"} if views is None else views
    return lambda: fairnepv.select(table, K, views=named, **options)


def _chosen(**options: Any) -> fairnepv.Selection:
    return fairnepv.select(DATA, K, effort="fast", certify=False, **options)


def _rows(name: str) -> Callable[[], Any]:
    return lambda: np.asarray(fairnepv.open_rows(name))


def _changed_while_read() -> Any:
    np.save("live.npy", A)
    try:
        rows = fairnepv.open_rows("live.npy")
        rows[:2]
        np.save("live.npy", np.vstack([A, A]))
        return rows[:]
    finally:
        Path("live.npy").unlink()


# --- the core ------------------------------------------------------------------------------------

CORE = (
    Call(2, "views of two lengths", _text(A[:-1]), ("'text' has 19", "'vision' has 20")),
    Call(2, "NaN", _text(_with(A, 4, 1, np.nan)), ("'text'", "1 value", "row 4")),
    Call(2, "infinity", _text(_with(A, 7, 1, np.inf)), ("'text'", "1 value", "row 7")),
    Call(2, "NaN, sparse", _text(sp.csr_array(_with(A, 9, 0, np.nan))), ("'text'", "row 9")),
    Call(2, "a row of zeros", _text(_with(A, 6, slice(None), 0)), ("'text'", "row 6", "trace")),
    Call(2, "k = 0", _select(k=0), ("k must be from 1 to n - 1 = 19", "not 0")),
    Call(2, "k = n", _select(k=N), ("k must be from 1 to n - 1 = 19", "not 20")),
    Call(2, "k = 2.5", _select(k=2.5), ("k must be an integer or a fraction", "not 2.5")),
    Call(2, "k = True", _select(k=True), ("k must be an integer or a fraction", "not True")),
    Call(2, "tau = 0", _select(tau=0), ("tau must be a finite positive number", "not 0")),
    Call(2, "tau = NaN", _select(tau=np.nan), ("tau must be", "not nan")),
    Call(2, "eps = -1", _select(eps=-1), ("eps must be a finite positive number", "not -1")),
    Call(2, "eps of one view", _select(eps={"text": 0.1}), ("eps has no value", "'vision'")),
    Call(2, "no views", _select({}), ("data has no views",)),
    Call(2, "one dimension", _text(A[:, 0]), ("'text'", "two-dimensional", "(20,)")),
    Call(2, "no columns", _text(A[:, :0]), ("'text' has no columns", "(20, 0)")),
    Call(2, "objects", _text(A.astype(object)), ("'text' has dtype object", "real numbers")),
    Call(2, "strings", _text(A.astype(str)), ("'text' has dtype <U", "real numbers")),
    Call(2, "complex", _text(A + 1j), ("'text' has dtype complex128", "real numbers")),
    Call(
        2,
        "a kernel that is not symmetric",
        _text(fairnepv.KernelView(_with(KERNEL, 3, 5, 9.0))),
        ("'text'", "not symmetric"),
    ),
    Call(
        2,
        "an indefinite kernel",
        _text(fairnepv.KernelView(KERNEL - 2 * np.eye(N))),
        ("'text'", "indefinite"),
    ),
    Call(2, "calibration", _select(calibration="unit"), ("calibration must be one of", "'unit'")),
    Call(2, "method", _select(method="best"), ("method must be one of", "'best'")),
    Call(2, "effort", _select(effort="hard"), ("effort must be one of fast", "'hard'")),
    Call(2, "ids that repeat", _select(ids=[0, *range(N - 1)]), ("ids repeat", "first is 0")),
    Call(
        2,
        "ids of two views",
        _select(ids={"text": list(range(N)), "vision": list(range(1, N + 1))}),
        ("ids of views 'text' and 'vision' do not match",),
    ),
    Call(
        2,
        "too many subsets",
        lambda: fairnepv.exhaustive({"a": np.tile(A, (20, 1))}, 20),
        ("subsets (n = 400, k = 20)", "the limit of 2,000,000"),
    ),
    Call(
        2,
        "labels of another length",
        lambda: fairnepv.FairSelector(k=K).fit_resample(A, GROUPS[:-1]),
        ("y must have one label per row, 20 in all", "not 19"),
    ),
    Call(2, "a fraction of nothing", _select(k=1.0), ("k must be an integer or a fraction",)),
    Call(2, "random_state", _select(random_state=-1), ("random_state must be", "not -1")),
)

# --- rules ---------------------------------------------------------------------------------------

RULES = (
    Call(4, "in and out", _select(include=[2], exclude=[2]), ("include", "exclude", "2")),
    Call(
        4,
        "a quota above the group",
        _select(groups=GROUPS, quotas={"red": (12, None)}),
        ("'red'", "12"),
    ),
    Call(
        4,
        "quotas above k",
        _select(groups=GROUPS, quotas={"red": 2, "green": 2}),
        ("quotas", "k = 3"),
    ),
    Call(
        4,
        "a quota of no group",
        _select(groups=GROUPS, quotas={"blue": 1}),
        ("quotas", "'blue'", "'green'"),
    ),
    Call(
        4,
        "quotas without groups",
        _select(quotas={"red": 1}),
        ("quotas need groups", "one label per row"),
    ),
    Call(
        4,
        "an unknown id",
        _select(ids=[f"i{i}" for i in range(N)], include=["i77"]),
        ("include", "'i77'"),
    ),
    Call(4, "a row that is not there", _select(include=[N]), ("include", "from 0 to 19")),
    Call(
        4,
        "too many included",
        _select(include=[0, 1, 2, 3]),
        ("include has 4 items", "k is only 3"),
    ),
    Call(4, "too many excluded", _select(exclude=list(range(18))), ("exclude", "3")),
    Call(
        4,
        "quality below zero",
        _select(quality=np.linspace(-1, 1, N)),
        ("quality of view 'text'", "row 0", "-1.0"),
    ),
    Call(
        4,
        "quality that is NaN",
        _select(quality=np.where(np.arange(N) == 7, np.nan, 1.0)),
        ("quality of view 'text'", "row 7", "nan"),
    ),
    Call(4, "quality of other rows", _select(quality=np.ones(3)), ("quality", "20", "(3,)")),
    Call(4, "no time", _select(time_limit=0), ("time_limit must be a finite positive", "not 0")),
    Call(4, "nodes", _select(method="exact", node_limit=0), ("node_limit must be", "not 0")),
    Call(4, "nodes of greedy", _select(node_limit=3), ("node_limit is for method 'exact'",)),
    Call(
        4,
        "priorities",
        _select(priorities={"text": 0.5, "vision": 0.6}),
        ("priorities", "sum to 1", "1.1"),
    ),
    Call(4, "priorities of one view", _select(priorities={"text": 1.0}), ("priorities", "vision")),
    Call(
        4,
        "a floor out of reach",
        _select(floors={"text": 5.0}),
        ("floor 5 of view 'text' cannot be reached", "lower it"),
    ),
    Call(4, "a floor of no view", _select(floors={"audio": 0.0}), ("floors", "'audio'", "'text'")),
    Call(
        4,
        "a method that keeps no rules",
        _select(method="softmax", include=[0]),
        ("'softmax' does not support include", "'auto'"),
        UnsupportedError,
    ),
    Call(
        4,
        "a target without a bound",
        _select(certify=False, target_efficiency=0.9),
        ("target_efficiency needs the bound",),
    ),
    Call(4, "sizes that repeat", _select(k=[2, 3, 2]), ("sizes, each once", "[2, 3, 2]")),
    Call(4, "nested of one", _select(nested=True), ("nested needs several sizes",)),
    Call(
        4,
        "nothing to vary",
        lambda: fairnepv.stability(_chosen(), tau=(), eps=(), seeds=()),
        ("stability has nothing to vary",),
    ),
    Call(
        4,
        "a trade-off of one view",
        lambda: fairnepv.tradeoff({"text": A}, K, "text"),
        ("a trade-off needs at least two views",),
    ),
    Call(
        4,
        "a curve of quotas",
        lambda: fairnepv.curve(DATA, K, groups=GROUPS, quotas={"red": 1}),
        ("groups belong to one size", "select"),
        UnsupportedError,
    ),
    Call(
        4,
        "a comparison of two problems",
        lambda: fairnepv.diff(_chosen(), fairnepv.select({"text": A}, K, certify=False)),
        ("['text', 'vision']", "same views"),
    ),
)

# --- files ---------------------------------------------------------------------------------------

FILES = (
    Call(5, "a file cut short", _rows("short.npy"), ("short.npy is cut short", "row 19 of 20")),
    Call(5, "changed while it is read", _changed_while_read, ("live.npy", "changed")),
    Call(5, "another magic", _rows("magic.npy"), ("magic.npy",)),
    Call(5, "objects in a file", _rows("objects.npy"), ("objects.npy", "object")),
    Call(5, "a shard is missing", _rows("gap"), ("gap", "1")),
    Call(5, "shards of two widths", _rows("widths"), ("widths", "4", "5")),
    Call(5, "shards of two dtypes", _rows("dtypes"), ("dtypes", "float32", "float64")),
    Call(5, "lists of two lengths", _rows("ragged.parquet:v"), ("ragged.parquet", "row 1")),
    Call(5, "a null row", _rows("null.parquet:v"), ("null.parquet", "row 2")),
    Call(
        5, "no such column", _rows("null.parquet:w"), ("null.parquet has no column 'w'", "it has v")
    ),
    Call(5, "sparse out of bounds", _text(_unsorted_sparse()), ("'text'", "sparse")),
    Call(5, "too little memory", _select(memory_limit="1MB"), ("memory_limit", "the least that")),
    Call(5, "memory in words", _select(memory_limit="much"), ("memory_limit must be", "much")),
    Call(16, "rows below zero", _rows("negative.npy"), ("negative.npy", "shape")),
    Call(16, "an unknown version", _rows("version.npy"), ("version.npy", "version")),
    Call(
        16,
        "sparse of 2^62 columns",
        _text(sp.coo_array((N, 2**62))),
        ("'text'", "(20, 4,611,"),
    ),
    Call(16, "yes and no in words", _select(certify="no"), ("certify must be True or False",)),
    Call(
        16, "sizes for an estimator", lambda: fairnepv.FairSelector(k=[3, 5]).fit(A), ("one size",)
    ),
    Call(16, "a group of two kinds", _select(groups=[1, "1"] * 10), ("groups",)),
    Call(16, "a foreign state", lambda: fairnepv.load("text.npy"), ("text.npy",)),
    Call(
        16,
        "a foreign checkpoint",
        _select(checkpoint="text.npy"),
        ("text.npy", "another"),
        CheckpointError,
    ),
)

# --- engines, time, objectives, the paper -------------------------------------------------------

METHODS = (
    Call(6, "no such engine", _select(engine="quick"), ("there is no engine 'quick'", "'local'")),
    Call(6, "no engine at all", _select(engine=3), ("LocalEngine", "not 3")),
    Call(6, "no such GPU", _select(engine="torch:cuda:99"), ("torch:cuda:99",)),
    Call(
        6,
        "a cluster that does not answer",
        _select(engine="ray://127.0.0.1:1"),
        ("ray://127.0.0.1:1 does not answer", "check the address"),
    ),
    Call(6, "no such device", _select(engine="torch:tpu"), ("tpu",)),
    Call(
        18,
        "no time to read",
        _select(
            {name: sp.random_array((200_000, 300), density=0.05, rng=0) for name in "ab"},
            time_limit=1e-6,
        ),
        ("time_limit", "nothing to return yet", "raise time_limit"),
        TimeLimitError,
    ),
    Call(19, "objective", _select(objective="fair"), ("objective must be one of", "'fair'")),
    Call(
        19,
        "determinants of shares",
        _select(objective="representative", method="k-dpp"),
        ("'representative' does not support method 'k-dpp'",),
        UnsupportedError,
    ),
    Call(20, "solver", _select(method="nepv", solver="newton"), ("solver", "'newton'", "plain")),
    Call(20, "a solver of greedy", _select(method="greedy", solver="plain"), ("solver", "nepv")),
    Call(20, "damping", _select(method="nepv", alpha=0.5), ("alpha", "SCF")),
    Call(20, "shift", _select(method="nepv", solver="plain", sigma=0.5), ("sigma = 0.5", "plain")),
    Call(20, "c below one", _select(oversampling=0.5), ("oversampling must be at least 1",)),
    Call(20, "passes of auto", _select(passes=3), ("passes", "auto")),
    Call(
        20,
        "a frame of other rows",
        _select(method="nepv", start=np.ones((N, 2))),
        ("start", "(20, 3)", "(20, 2)"),
    ),
    Call(
        20,
        "a frame of equal columns",
        lambda: fairnepv.relax(DATA, K, start=np.ones((N, K))),
        ("start",),
    ),
    Call(20, "tolerance", lambda: fairnepv.relax(DATA, K, tol=0), ("tol must be", "not 0")),
    Call(
        20,
        "a frame under rules",
        lambda: fairnepv.relax(DATA, K, include=[0]),
        ("relax does not support include", "select or certify"),
        UnsupportedError,
    ),
)

# --- tables and results --------------------------------------------------------------------------

RESULTS = (
    Call(
        22,
        "no such column",
        _of_table(_table(), {"a": "no"}),
        ("no column 'no'", "it has id, text, vision"),
    ),
    Call(
        22,
        "a table without views",
        lambda: fairnepv.select(_table(), K),
        ("say which of them are views", "id, text, vision"),
    ),
    Call(
        22,
        "a row without a view",
        _of_table(_table(text=[None, *A[1:].tolist()])),
        ("'text'", "row 0", "missing"),
    ),
    Call(
        22,
        "ids that repeat in a table",
        _of_table(_table(id=["x"] * N), ids="id"),
        ("ids", "repeat", "'x'"),
    ),
    Call(
        22,
        "a label that is missing",
        _of_table(_table(group=[None, *GROUPS[1:]]), groups="group"),
        ("group", "row 0"),
    ),
    Call(
        22,
        "other ids by view",
        _select(ids={"text": list(range(N)), "vision": list(range(5, N + 5))}, align="outer"),
        ("align must be one of same, inner", "'outer'"),
    ),
    Call(22, "missing", _select(missing="keep"), ("missing must be one of", "'keep'")),
    Call(22, "a cosine above one", _select(deduplicate=1.5), ("deduplicate", "1.5")),
    Call(22, "what a page knows", lambda: _chosen().report("r.html", colour=1), ("'colour'",)),
    Call(22, "a page of another kind", lambda: _chosen().report("r.pdf"), ("r.pdf", ".html")),
    Call(
        22,
        "places of other rows",
        lambda: _chosen().report("r.html", coordinates=np.ones((3, 2))),
        ("coordinates", "20"),
    ),
    Call(
        22, "texts of other rows", lambda: _chosen().report("r.html", texts=["x"]), ("texts", "20")
    ),
    Call(22, "apply to other rows", lambda: _chosen().apply(A[:5]), ("20", "5")),
    Call(22, "score of no rows", lambda: fairnepv.score(DATA, []), ("indices", "non-empty")),
    Call(22, "score of a row twice", lambda: fairnepv.score(DATA, [2, 2]), ("more than once",)),
    Call(22, "saved as a table", lambda: _chosen().save("picks.csv"), ("picks.csv", ".npz")),
    Call(
        22,
        "a bound of another problem",
        lambda: fairnepv.verify_bound({"text": A}, fairnepv.certify(DATA, K)),
        ("about views ['text', 'vision']", "the data has ['text']"),
    ),
    Call(22, "columns past the end", _select(A, views={"a": [0, 9]}), ("views=", "9")),
)

CALLS = (*CORE, *RULES, *FILES, *METHODS, *RESULTS)
