"""`FairSelector` as scikit-learn sees it, and the package as Python does: lazy, complete."""

import ast
import inspect
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

import fairnepv
from cases import random_views
from estimator_checks import APART, OF_UNIT_ROWS, checks
from fairnepv import FairSelector, InputError, KernelView

N = 24
TEXT, VISION = random_views(np.random.default_rng(0), N, [6, 5])
DATA = {"text": TEXT, "vision": VISION}
BOTH = np.hstack([TEXT, VISION])
COLUMNS = {"text": slice(0, 6), "vision": slice(6, 11)}
LABELS = np.array([f"label {i}" for i in range(N)])
EXPECTED = fairnepv.select(DATA, 4).indices

PARAMS = {
    "k": 4,
    "objective": "diverse",
    "views": COLUMNS,
    "center": True,
    "tau": 0.2,
    "eps": {"text": 0.1, "vision": 0.3},
    "calibration": "trace",
    "method": "greedy",
    "effort": "fast",
    "random_state": 7,
    "quality": np.linspace(0.5, 2.0, N),
    "priorities": {"text": 0.25, "vision": 0.75},
    "floors": {"text": -9.0},
    "include": [3],
    "exclude": [0, 1],
    "missing": "neutral",
    "deduplicate": 0.99,
    "groups": ["ab"[i % 2] for i in range(N)],
    "quotas": {"a": 2},
    "certify": False,
    "time_limit": 60.0,
    "include_counts": False,
    "oversampling": 2.5,
    "solver": None,  # is for another method, as what follows
    "start": "spectral",
    "tol": None,
    "max_steps": None,
    "alpha": None,
    "sigma": None,
    "passes": None,
    "gap": 0.01,
    "target_efficiency": None,  # takes a certificate
    "node_limit": None,  # is for another method
    "hierarchical": 2,
    "strict": True,
    "memory_limit": "2 GiB",
    "checkpoint": None,
    "engine": "local",
}


# --- parameters -----------------------------------------------------------------------------------


def test_parameters_are_kept_as_given():
    selector = FairSelector(**PARAMS)
    assert set(selector.get_params()) == set(PARAMS)  # all there are
    assert isinstance(selector, BaseEstimator)
    for name, value in PARAMS.items():
        assert getattr(selector, name) is value


def test_defaults_are_those_of_select():
    defaults = FairSelector(k=3).get_params()
    parameters = inspect.signature(fairnepv.select).parameters
    assert {name: parameters[name].default for name in defaults if name != "k"} == {
        name: value for name, value in defaults.items() if name != "k"
    }
    assert 0 < FairSelector().k < 1


def test_set_params():
    selector = FairSelector().set_params(k=4, method="greedy")
    assert (selector.k, selector.method) == (4, "greedy")
    with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
        selector.set_params(colour="red")


def test_clone_copies_the_parameters_and_not_the_result():
    selector = FairSelector(**PARAMS).fit(BOTH)
    copy = clone(selector)
    assert copy is not selector
    np.testing.assert_equal(copy.get_params(), PARAMS)
    assert not hasattr(copy, "selected_indices_")
    np.testing.assert_array_equal(copy.fit(BOTH).selected_indices_, selector.selected_indices_)


def test_repr_names_what_was_set():
    assert repr(FairSelector(k=5, tau=0.3)) == "FairSelector(k=5, tau=0.3)"


# --- fit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "views"),
    [
        (DATA, None),
        ([TEXT, VISION], None),
        ((TEXT, VISION), None),
        (BOTH, COLUMNS),
        (sp.csr_array(BOTH), COLUMNS),
        ({"text": sp.csr_array(TEXT), "vision": VISION}, None),
    ],
    ids=["mapping", "list", "tuple", "columns", "sparse columns", "mixed"],
)
def test_fit_selects_what_select_selects(data, views):
    selector = FairSelector(k=4, views=views)
    assert selector.fit(data) is selector
    np.testing.assert_array_equal(selector.selected_indices_, EXPECTED)
    assert selector.selected_indices_.dtype == np.int64
    assert isinstance(selector.selection_, fairnepv.Selection)
    assert selector.selection_.indices is selector.selected_indices_


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    "changes",
    [
        {"k": 0.125},
        {"tau": 0.5},
        {"eps": 0.01},
        {"eps": {"text": 1.0, "vision": 0.01}},
        {"calibration": "efficiency"},
        {"method": "random"},
        {"method": "random", "random_state": 5},
        {"effort": "fast"},
        {"quality": PARAMS["quality"]},
        {"priorities": {"text": 0.1, "vision": 0.9}, "tau": 0.5},
        {"floors": {"text": -0.2}},
        {"include": [3]},
        {"exclude": EXPECTED[:2]},
        {"groups": PARAMS["groups"], "quotas": {"a": 1}},
        {"certify": False},
        {"time_limit": 1e-9},
        {"include": [3], "include_counts": False},
        {"method": "nepv", "oversampling": 1.5},
        {"method": "nepv", "solver": "plain", "max_steps": 3},
        {"method": "nepv", "solver": "damped", "alpha": 0.9},
        {"method": "nepv", "solver": "shifted", "sigma": 2.0},
        {"method": "nepv", "tol": 1e-9, "passes": 0},
        {"method": "nepv", "start": [0, 1, 2, 3]},
        {"gap": 0.5},
        {"target_efficiency": 0.5},
        {"method": "exact", "node_limit": 3},
        {"hierarchical": 3},
        {"memory_limit": "1 GiB"},
        {"engine": fairnepv.LocalEngine(block_rows=7)},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_every_parameter_reaches_select(changes):
    options = {"k": 4} | changes
    selector = FairSelector(**options).fit(DATA)
    direct = fairnepv.select(DATA, **options)
    np.testing.assert_array_equal(selector.selected_indices_, direct.indices)
    assert selector.selection_.scores == direct.scores
    assert selector.selection_.status is direct.status
    assert (selector.selection_.certificate is None) == (direct.certificate is None)
    assert dict(selector.selection_.settings) == dict(direct.settings)


def test_what_select_takes_and_no_selector():
    left = {"nested", "progress", "ids", "align"}
    taken = set(inspect.signature(fairnepv.select).parameters) - {"data"}
    assert taken - set(FairSelector().get_params()) == left


def test_strict_and_memory_limit_are_those_of_select():
    with pytest.raises(fairnepv.FairnepvError, match="time"):
        FairSelector(k=4, time_limit=1e-9, strict=True).fit(DATA)
    with pytest.raises(InputError, match="the least that would work"):
        FairSelector(k=4, memory_limit="1 MiB").fit(DATA)


def test_a_checkpoint_is_written_and_gone_on_from(tmp_path):
    path = tmp_path / "run.state"
    first = FairSelector(k=4, checkpoint=path).fit(DATA)
    assert path.exists()
    again = FairSelector(k=4, checkpoint=path).fit(DATA)
    np.testing.assert_array_equal(again.selected_indices_, first.selected_indices_)
    with pytest.raises(InputError, match="another"):
        FairSelector(k=5, checkpoint=path).fit(DATA)


def test_labels_do_not_matter_to_fit():
    with_labels = FairSelector(k=4).fit(DATA, LABELS)
    np.testing.assert_array_equal(with_labels.selected_indices_, EXPECTED)


def test_fit_again_forgets_the_first_fit():
    selector = FairSelector(k=4).fit(DATA)
    first = selector.selected_indices_
    selector.set_params(k=2).fit({"text": TEXT[:9], "vision": VISION[:9]})
    assert len(selector.selected_indices_) == 2
    assert selector.get_support().shape == (9,)
    assert len(first) == 4


# --- fit_resample ---------------------------------------------------------------------------------


class Frame:
    """As much of a data frame as the selector may rely on: an array, and rows by position."""

    def __init__(self, values):
        self.values = values
        self.iloc = self

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype=dtype)

    def __getitem__(self, rows):
        return Frame(self.values[rows])


def _rows(array, indices=EXPECTED):
    return np.asarray(array)[indices]


def test_resample_an_array():
    X = FairSelector(k=4, views=COLUMNS).fit_resample(BOTH)
    np.testing.assert_array_equal(X, _rows(BOTH))
    assert isinstance(X, np.ndarray)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix])
def test_resample_a_sparse_matrix(make):
    X = FairSelector(k=4, views=COLUMNS).fit_resample(make(BOTH))
    assert sp.issparse(X)
    np.testing.assert_array_equal(X.toarray(), _rows(BOTH))


@pytest.mark.sample(1)
@pytest.mark.torch
@pytest.mark.parametrize("layout", ["strided", "sparse_coo", "sparse_csr"])
def test_resample_a_tensor(layout):
    """Rows of a tensor are one."""
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(BOTH)
    if layout != "strided":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tensor = tensor.to_sparse(layout=getattr(torch, layout))
    X = FairSelector(k=4, views=COLUMNS).fit_resample(tensor)
    assert isinstance(X, torch.Tensor)
    np.testing.assert_array_equal(X.to_dense().numpy(), _rows(BOTH))


def test_resample_a_data_frame():
    selector = FairSelector(k=4)
    X, y = selector.fit_resample(Frame(TEXT), Frame(LABELS))
    alone = fairnepv.select(TEXT, 4).indices
    assert isinstance(X, Frame)
    assert isinstance(y, Frame)
    np.testing.assert_array_equal(X.values, _rows(TEXT, alone))
    np.testing.assert_array_equal(y.values, _rows(LABELS, alone))


def test_resample_a_mapping():
    data = {"text": TEXT.astype(np.float32), "vision": sp.csr_array(VISION)}
    selector = FairSelector(k=4)
    X = selector.fit_resample(data)
    assert list(X) == ["text", "vision"]
    assert X["text"].dtype == np.float32
    np.testing.assert_array_equal(X["text"], data["text"][selector.selected_indices_])
    np.testing.assert_array_equal(X["vision"].toarray(), VISION[selector.selected_indices_])


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("sparse", [False, True])
def test_resample_a_list_of_views(kind, sparse):
    first = sp.csr_array(TEXT) if sparse else TEXT
    X = FairSelector(k=4).fit_resample(kind([first, VISION]))
    assert len(X) == 2
    np.testing.assert_array_equal(X[0].toarray() if sparse else X[0], _rows(TEXT))
    np.testing.assert_array_equal(X[1], _rows(VISION))


@pytest.mark.parametrize("nested", [True, False], ids=["lists", "arrays"])
def test_resample_views_given_as_nested_lists(nested):
    data = [TEXT.tolist(), VISION.tolist()] if nested else [TEXT, VISION]
    X = FairSelector(k=4).fit_resample(data)
    np.testing.assert_array_equal(np.asarray(X[0]), _rows(TEXT))
    np.testing.assert_array_equal(np.asarray(X[1]), _rows(VISION))


def test_resample_a_mapping_of_nested_lists():
    X = FairSelector(k=4).fit_resample({"text": TEXT.tolist(), "vision": VISION.tolist()})
    np.testing.assert_array_equal(np.asarray(X["text"]), _rows(TEXT))
    np.testing.assert_array_equal(np.asarray(X["vision"]), _rows(VISION))


@pytest.mark.parametrize("kind", [np.asarray, list, tuple], ids=["array", "list", "tuple"])
def test_resample_labels(kind):
    X, y = FairSelector(k=4).fit_resample(DATA, kind(LABELS))
    np.testing.assert_array_equal(X["text"], _rows(TEXT))
    assert list(y) == [LABELS[i] for i in EXPECTED]


def test_resample_several_outputs():
    outputs = np.arange(2 * N).reshape(N, 2)
    _, y = FairSelector(k=4).fit_resample(DATA, outputs)
    np.testing.assert_array_equal(y, _rows(outputs))


def test_rows_and_labels_stay_together():
    numbered = np.column_stack([BOTH, np.arange(N)])
    X, y = FairSelector(k=4, views=COLUMNS).fit_resample(numbered, np.arange(N))
    np.testing.assert_array_equal(X[:, -1], y)


def test_resample_does_not_hand_out_the_data_itself():
    X = FairSelector(k=4, views=COLUMNS).fit_resample(BOTH)
    assert not np.shares_memory(X, BOTH)


@pytest.mark.parametrize("labels", [LABELS[:-1], list(LABELS[:5]), np.append(LABELS, "one more")],
                         ids=["array", "list", "too many"])  # fmt: skip
def test_labels_of_another_length_are_refused(labels):
    """A label for every row: otherwise some are cut off, or belong to other rows."""
    with pytest.raises(InputError, match=r"y|label"):
        FairSelector(k=4).fit_resample(DATA, labels)


@pytest.mark.parametrize(
    "wrap",
    [lambda view: {"kernel": view}, lambda view: [view], lambda view: view],
    ids=["mapping", "list", "alone"],
)
def test_rows_of_a_kernel_cannot_be_taken(wrap):
    view = KernelView(TEXT @ TEXT.T)
    np.testing.assert_array_equal(
        FairSelector(k=3).fit(wrap(view)).selected_indices_,
        fairnepv.select(wrap(view), 3).indices,
    )
    with pytest.raises(InputError, match="KernelView"):
        FairSelector(k=3).fit_resample(wrap(view))


# --- support --------------------------------------------------------------------------------------


def test_support():
    selector = FairSelector(k=4).fit(DATA)
    mask = selector.get_support()
    assert mask.dtype == bool
    assert mask.shape == (N,)
    np.testing.assert_array_equal(np.flatnonzero(mask), np.sort(EXPECTED))
    np.testing.assert_array_equal(selector.get_support(indices=True), np.sort(EXPECTED))
    np.testing.assert_array_equal(selector.selected_indices_, EXPECTED)  # not sorted by it


def test_support_needs_a_fit():
    with pytest.raises(NotFittedError):
        FairSelector().get_support()


@pytest.mark.parametrize("name", ["transform", "fit_transform", "predict"])
def test_rows_are_never_dropped_behind_a_pipelines_back(name):
    assert not hasattr(FairSelector(), name)


# --- scikit-learn's own checks --------------------------------------------------------------------

CHECKS = checks()


@pytest.mark.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])
def test_a_check_of_scikit_learn(check):
    check.carry_out()


def test_few_of_them_do_not_apply():
    assert len(CHECKS) > 70
    assert {check.name for check in CHECKS if check.apart} == {*APART, *OF_UNIT_ROWS}


def test_features_are_counted_where_there_is_one_array():
    selector = FairSelector(k=4).fit(TEXT)
    assert selector.n_features_in_ == 6
    assert not hasattr(selector.fit(DATA), "n_features_in_")


# --- the package ----------------------------------------------------------------------------------


def _python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_import_is_lazy():
    heavy = "('numpy', 'scipy', 'sklearn', 'pyarrow', 'click', 'rich', 'jinja2', 'threadpoolctl')"
    code = f"import sys, fairnepv; print([m for m in {heavy} if m in sys.modules])"
    assert _python(code) == "[]"


def test_a_selection_loads_neither_scikit_learn_nor_pyarrow():
    code = (
        "import sys, numpy as np, fairnepv\n"
        "fairnepv.select(np.random.default_rng(0).random((9, 4)), 2)\n"
        "print([m for m in ('sklearn', 'pyarrow', 'click', 'rich', 'jinja2') if m in sys.modules])"
    )
    assert _python(code) == "[]"


def test_public_names():
    assert dir(fairnepv) == sorted(fairnepv.__all__)
    assert {"select", "score", "relax", "compare", "exhaustive", "FairSelector"} <= set(
        fairnepv.__all__
    )
    assert len(set(fairnepv.__all__)) == len(fairnepv.__all__)


def test_type_checkers_see_every_public_name():
    stub = Path(fairnepv.__file__).with_suffix(".pyi")
    seen = {
        alias.asname: line.module
        for line in ast.parse(stub.read_text()).body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    assert seen == vars(fairnepv)["_HOMES"]


@pytest.mark.parametrize("name", fairnepv.__all__)
def test_public_names_can_be_had(name):
    value = getattr(fairnepv, name)
    assert not isinstance(value, types.ModuleType)
    if name != "__version__":
        assert callable(value)


@pytest.mark.sample(1)
@pytest.mark.parametrize("first", ["select", "FairSelector", "relax"])
def test_names_mean_the_same_whichever_is_used_first(first):
    """`fairnepv.relax` is a function, also once the package of that name was imported."""
    code = (
        f"import fairnepv; fairnepv.{first}\n"
        "import fairnepv.pipeline, fairnepv.api.relax\n"
        "print([n for n in fairnepv.__all__ if n != '__version__'\n"
        "       and not callable(getattr(fairnepv, n))])"
    )
    assert _python(code) == "[]"


def test_star_import():
    code = "from fairnepv import *; print(select.__name__, relax.__name__, callable(relax))"
    assert _python(code) == "select relax True"


def test_relax_can_be_called_after_select():
    fairnepv.select(TEXT, 3)
    assert fairnepv.relax(TEXT, 3).basis.shape == (N, 3)


def test_unknown_names():
    with pytest.raises(AttributeError, match="module 'fairnepv' has no attribute 'selekt'"):
        _ = fairnepv.selekt  # type: ignore[attr-defined]
    assert not hasattr(fairnepv, "np")


def test_version():
    from importlib.metadata import version

    assert fairnepv.__version__ == version("fairnepv")
