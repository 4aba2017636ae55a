"""Wrong input through the public functions: one `InputError`, one sentence that helps.

Each sentence names the view or the argument and says what came. Input that can be used is used,
and no input is ever written to.
"""

import copy
import math
import pickle
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import fairnepv
from cases import random_views
from fairnepv import (
    DiagonalView,
    FairnepvError,
    FairSelector,
    InputError,
    KernelView,
    compare,
    exhaustive,
    relax,
    score,
    select,
)

N = 20
TEXT, VISION = random_views(np.random.default_rng(0), N, [6, 5])
DATA = {"text": TEXT, "vision": VISION}
K = TEXT @ TEXT.T
for _array in (TEXT, VISION, K):
    _array.setflags(write=False)

# The doors, called as (data, **options), with k = 3 or two rows unless told otherwise.
FUNCTIONS = {
    "select": lambda data, **options: select(data, options.pop("k", 3), **options),
    "score": lambda data, **options: score(data, [0, 1], **options),
    "relax": lambda data, **options: relax(data, options.pop("k", 3), **options),
    "compare": lambda data, **options: compare(data, options.pop("k", 3), **options),
    "exhaustive": lambda data, **options: exhaustive(data, options.pop("k", 3), **options),
}


def refused(call, match):
    """The call raises the one error, with a single sentence that matches."""
    with pytest.raises(InputError, match=match) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FairnepvError)
    message = str(caught.value)
    assert "\n" not in message
    assert 10 < len(message) < 400


def _with(array, row, column, value):
    changed = np.array(array)
    changed[row, column] = value
    return changed


def _text(value):
    """The pool with something else as its first view."""
    return {"text": value, "vision": VISION}


# --- the data -------------------------------------------------------------------------------------

SHAPES = {
    "no views, mapping": ({}, r"data has no views"),
    "no views, list": ([], r"data has no views"),
    "nothing": (None, r"data must be a mapping.*not NoneType"),
    "number": (3.5, r"data must be a mapping.*not float"),
    "string": ("text.npy", r"data must be a mapping.*not str"),
    "bytes": (b"text", r"data must be a mapping.*not bytes"),
    "empty name": ({"": TEXT}, r"view names must be non-empty strings, not ''"),
    "number as name": ({3: TEXT}, r"view names must be non-empty strings, not 3"),
    "half a character": ({"a\udcff": TEXT}, r"has half a character .* in its name"),
    "lengths": ({"text": TEXT, "vision": VISION[:-1]}, r"'text' has 20 and 'vision' has 19"),
    "third length": (DATA | {"audio": TEXT[:7]}, r"'text' has 20 and 'audio' has 7"),
    "lengths of a list": ([TEXT, VISION[:4]], r"'view0' has 20 and 'view1' has 4"),
    "lengths, sparse": (_text(sp.csr_array(TEXT[:5])), r"'text' has 5 and 'vision' has 20"),
    "lengths, kernel": (DATA | {"kernel": KernelView(np.eye(4))}, r"'text' has 20.*'kernel' has 4"),
    "lengths, diagonal": (DATA | {"d": DiagonalView(np.ones(3))}, r"'text' has 20.*'d' has 3"),
    "scalar": (_text(np.float64(3)), r"view 'text'.*two-dimensional.*shape \(\)"),
    "1-D": (_text(TEXT[:, 0]), r"view 'text'.*two-dimensional.*shape \(20,\)"),
    "1-D alone": (TEXT[:, 0], r"view 'view0'.*two-dimensional.*shape \(20,\)"),
    "3-D": (_text(TEXT[:, :, None]), r"view 'text'.*two-dimensional.*shape \(20, 6, 1\)"),
    "1-D sparse": (_text(sp.coo_array(np.ones(20))), r"view 'text'.*two-dimensional.*\(20,\)"),
    "no columns": (_text(TEXT[:, :0]), r"view 'text' has no columns.*\(20, 0\)"),
    "no columns, sparse": (_text(sp.csr_array((20, 0))), r"view 'text' has no columns.*\(20, 0\)"),
    "no rows": (_text(TEXT[:0]), r"view 'text' has no rows.*\(0, 6\)"),
    "no rows, sparse": (_text(sp.csr_array((0, 6))), r"view 'text' has no rows.*\(0, 6\)"),
    "one row": (DATA | {"text": TEXT[:1], "vision": VISION[:1]}, r"at least 2 rows.*not 1"),
    "columns without end": (_text(sp.coo_array((20, 2**62))), r"has shape \(20, 4,611,.*EiB"),
    "columns without values": (_text(sp.eye_array(20, 1 << 26)), r"needs 512.* MiB, more than"),
    "list of rows": ([[1.0, 2.0], [3.0, 4.0]], r"view 'view0'.*two-dimensional"),
}  # fmt: skip

DTYPES = {
    "object": (TEXT.astype(object), r"view 'text' has dtype object"),
    "text": (TEXT.astype(str), r"view 'text' has dtype <U"),
    "bytes": (TEXT.astype("S8"), r"view 'text' has dtype \|S8"),
    "complex": (TEXT + 1j, r"view 'text' has dtype complex128"),
    "complex64": (TEXT.astype(np.complex64), r"view 'text' has dtype complex64"),
    "dates": (np.full((N, 2), np.datetime64("2024-01-01")), r"view 'text' has dtype datetime64"),
    "durations": (np.full((N, 2), np.timedelta64(3, "s")), r"view 'text' has dtype timedelta64"),
    "records": (np.zeros((N, 2), dtype=[("a", "f8")]), r"view 'text' has dtype"),
    "strings in lists": ([["a", "b"]] * N, r"view 'text' has dtype <U1"),
    "missing values": ([[1.0, None]] * N, r"view 'text' has 20 value.*first in row 0"),
    "complex, sparse": (sp.csr_array(TEXT + 1j), r"view 'text' has dtype complex128"),
    "complex, kernel": (KernelView(K + 0j), r"view 'text' has dtype complex128"),
    "object, kernel": (KernelView(K.astype(object)), r"view 'text' has dtype object"),
    "text, diagonal": (DiagonalView(np.full(N, "x")), r"view 'text' has dtype <U1"),
    "ragged": (
        [[1.0, 2.0], [3.0]] * 10,
        r"view 'text' has lists of different lengths: 2 in row 0 and 1 in row 1",
    ),
    "mapping": ({"a": 1}, r"view 'text'"),
    "long double": (TEXT.astype(np.longdouble), r"view 'text' has dtype (float128|longdouble)"),
}

FINITE = {
    "NaN": (_with(TEXT, 4, 1, np.nan), r"view 'text' has 1 value.*first in row 4"),
    "infinity": (_with(TEXT, 0, 5, np.inf), r"view 'text' has 1 value.*first in row 0"),
    "minus infinity": (_with(TEXT, 19, 0, -np.inf), r"view 'text' has 1 value.*first in row 19"),
    "several": (_with(TEXT, [9, 9, 7], [0, 1, 2], np.nan), r"'text' has 3 value.*first in row 7"),
    "float16": (
        _with(TEXT, 3, 3, np.inf).astype(np.float16),
        r"view 'text' has 1 value.*first in row 3",
    ),
    "float32 as list": (
        _with(TEXT, 3, 3, np.nan).astype(np.float32).tolist(),
        r"view 'text' has 1 value.*first in row 3",
    ),
    "Fortran order": (
        np.asfortranarray(_with(TEXT, [11, 5], [0, 5], np.nan)),
        r"view 'text' has 2 value.*first in row 5",
    ),
    "sparse": (
        sp.csr_array(_with(TEXT * (np.arange(N) % 2)[:, None], [13, 15], [2, 0], np.nan)),
        r"view 'text' has 2 value.*first in row 13",
    ),
    "sparse, by columns": (
        sp.csc_array(_with(TEXT, [13, 12], [0, 5], np.inf)),
        r"view 'text' has 2 value.*first in row 12",
    ),
    "sparse, first row": (
        sp.coo_array(_with(TEXT, 0, 0, np.nan)),
        r"view 'text' has 1 value.*first in row 0",
    ),
    "sparse, last row": (
        sp.csr_array(_with(np.zeros((N, 3)), 19, 2, np.inf)),
        r"view 'text' has 1 value.*first in row 19",
    ),
    "kernel": (
        KernelView(_with(K, [2, 6], [6, 2], np.nan)),
        r"view 'text' has 2 value.*first in row 2",
    ),
    "diagonal": (
        DiagonalView(np.where(np.arange(N) == 8, np.nan, 1.0)),
        r"view 'text'.*finite.*row 8 has nan",
    ),
}

MASKED = {
    "dense": np.ma.masked_greater(TEXT, 1.0),
    "kernel": KernelView(np.ma.masked_greater(K, 1.0)),
    "diagonal": DiagonalView(np.ma.masked_greater(np.arange(1.0, N + 1), 15.0)),
}

KERNELS = {
    "not square": (KernelView(TEXT), r"view 'text'.*square.*\(20, 6\)"),
    "1-D": (KernelView(np.ones(N)), r"view 'text'.*two-dimensional.*\(20,\)"),
    "empty": (KernelView(np.empty((0, 0))), r"view 'text' has no (rows|columns)"),
    "asymmetric": (KernelView(_with(K, 3, 5, K[3, 5] + 0.25)), r"'text'.*not symmetric.*0\.25"),
    "slightly asymmetric": (
        KernelView(_with(K, 3, 5, K[3, 5] * (1 + 1e-6))),
        r"view 'text'.*not symmetric",
    ),
    "indefinite": (KernelView(K - 2 * np.eye(N)), r"view 'text'.*indefinite"),
    "slightly indefinite": (KernelView(K - 1e-6 * np.eye(N)), r"view 'text'.*indefinite"),
    "negative": (KernelView(-np.eye(N)), r"view 'text'.*indefinite"),
    "zero diagonal": (
        KernelView(np.ones((N, N)) - np.eye(N)),
        r"view 'text'.*indefinite",
    ),
    "indefinite, float32": (
        KernelView((K - np.eye(N)).astype(np.float32)),
        r"view 'text'.*indefinite",
    ),
    "singular without ridge": (
        KernelView(K, eps=0),
        r"view 'text'.*eps = 0.*rank 6 of 20",
    ),
    "negative values": (
        DiagonalView(np.linspace(-1, 1, N)),
        r"view 'text'.*not negative.*row 0 has -1\.0",
    ),
    "infinite value": (
        DiagonalView(np.where(np.arange(N) == 5, np.inf, 1)),
        r"view 'text'.*finite.*row 5 has inf",
    ),
    "zero without ridge": (
        DiagonalView(np.arange(N)[::-1], eps=0),
        r"view 'text'.*positive.*eps is 0.*row 19 has 0",
    ),
    "diagonal as a matrix": (DiagonalView(np.eye(N)), r"view 'text'.*one value per row"),
    "diagonal without values": (DiagonalView([]), r"view 'text'.*one value per row"),
}

TABLE = {
    **{f"shape: {name}": case for name, case in SHAPES.items()},
    **{f"dtype: {name}": (_text(value), match) for name, (value, match) in DTYPES.items()},
    **{f"finite: {name}": (_text(value), match) for name, (value, match) in FINITE.items()},
    **{f"masked: {name}": (_text(value), r"'text'.*masked") for name, value in MASKED.items()},
    **{f"kernel: {name}": (_text(value), match) for name, (value, match) in KERNELS.items()},
}


@pytest.mark.parametrize(("data", "match"), TABLE.values(), ids=TABLE.keys())
def test_data_that_cannot_be_used(data, match):
    refused(lambda: select(data, 3), match)


@pytest.mark.parametrize("make", [KernelView, DiagonalView])
def test_ragged_kernels(make):
    refused(lambda: select(_text(make([[1.0, 2.0], [3.0]])), 3), r"kernel|array")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_non_finite_values_are_found_in_later_chunks(dtype):
    """Rows are looked at some 32,000 at a time here; the count is over all of them."""
    rows = np.ones((40_000, 64), dtype=dtype)
    rows[39_999, [0, 63]] = np.nan
    rows[35_000, 5] = np.inf
    refused(lambda: select({"wide": rows}, 3), r"'wide' has 3 value.*first in row 35000;")
    rows[3, 3] = -np.inf
    refused(lambda: select({"wide": rows}, 3), r"'wide' has 4 value.*first in row 3;")


@pytest.mark.parametrize("name", ["view", "second view"])
def test_the_view_that_is_wrong_is_named(name):
    data = {"fine": TEXT, name: _with(VISION, 2, 2, np.nan)}
    refused(lambda: select(data, 3), rf"view '{name}' has 1 value")


def test_nested_lists_of_views_work_and_lists_of_rows_are_explained():
    assert select([TEXT.tolist(), VISION.tolist()], 3, method="greedy").indices.shape == (3,)
    refused(lambda: select(TEXT.tolist(), 3), r"view 'view0'.*two-dimensional.*shape \(6,\)")


def test_a_mask_that_hides_nothing_is_no_mask():
    unmasked = select({"text": np.ma.masked_array(TEXT)}, 3, method="greedy")
    assert unmasked.scores == select({"text": TEXT}, 3, method="greedy").scores


# --- zero rows ------------------------------------------------------------------------------------

ZEROS = _with(TEXT, [6, 11], slice(None), 0.0)
ZERO_ROWS = {
    "dense": ZEROS,
    "sparse": sp.csr_array(ZEROS),
    "explicit zeros": sp.csr_array((ZEROS.ravel(), np.tile(np.arange(6), N), np.arange(0, 121, 6))),
    "kernel": KernelView(ZEROS @ ZEROS.T),
    "diagonal": DiagonalView(np.where(np.isin(np.arange(N), [6, 11]), 0.0, 2.0)),
}


@pytest.mark.parametrize("rule", ["unit-diagonal", "efficiency"])
@pytest.mark.parametrize("view", ZERO_ROWS.values(), ids=ZERO_ROWS.keys())
def test_zero_rows_have_no_direction(view, rule):
    match = rf"view 'text' has 2 all-zero row.*first is row 6.*{rule}"
    refused(lambda: select(_text(view), 3, calibration=rule), match)


@pytest.mark.parametrize("rule", ["trace", "none", {"text": 2.0, "vision": 3.0}], ids=str)
@pytest.mark.parametrize("view", ZERO_ROWS.values(), ids=ZERO_ROWS.keys())
def test_zero_rows_are_allowed_where_nothing_divides_by_them(view, rule):
    selection = select(_text(view), 3, calibration=rule, method="greedy")
    assert np.isfinite(selection.fair_score)
    only_zeros = score(_text(view), [6, 11], calibration=rule)
    offset = math.log(2.0) if isinstance(rule, dict) else 0.0
    assert only_zeros.scores["text"] == pytest.approx(math.log(0.1) + offset, abs=1e-12)


@pytest.mark.parametrize(
    "view", [np.zeros((N, 3)), sp.csr_array((N, 3)), KernelView(np.zeros((N, N)))]
)
def test_a_view_of_zeros_has_no_trace(view):
    refused(lambda: select(_text(view), 3, calibration="trace"), r"view 'text' is all zeros.*trace")


# --- magnitudes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_values_whose_squares_overflow(wrap):
    huge = _with(TEXT, 7, 2, 1e200)
    refused(lambda: select(_text(wrap(huge)), 3), r"view 'text'.*too large.*in row 7")


@pytest.mark.parametrize("rule", ["trace", "none"])
def test_values_whose_sums_overflow(rule):
    """Each row is fine alone; a thousand of them are not."""
    rows = np.full((1000, 4), 1e153) * np.random.default_rng(0).uniform(0.5, 1.0, (1000, 4))
    refused(lambda: select({"huge": rows}, 3, calibration=rule), r"view 'huge'.*too large")


@pytest.mark.parametrize("kind", [DiagonalView, lambda values: KernelView(np.diag(values))])
@pytest.mark.parametrize("rule", ["unit-diagonal", "trace", "none"])
@pytest.mark.parametrize(("size", "words"), [(1e308, "too large"), (1e-322, "too small")])
def test_kernels_have_the_magnitudes_of_rows(kind, rule, size, words):
    """A trace that overflowed made a kernel of zeros, of which any set was OPTIMAL."""
    view = kind(size * np.linspace(0.5, 1.7, N))
    refused(lambda: select({"text": view}, 3, calibration=rule, eps=0.1), rf"view 'text'.*{words}")


@pytest.mark.parametrize(("rule", "factor"), [("none", 1e100), ("unit-diagonal", 1.0)])
def test_quality_under_which_squares_overflow(rule, factor):
    weights = np.full(N, 1.7e308)
    refused(
        lambda: select({"text": factor * TEXT}, 3, calibration=rule, quality=weights),
        "quality make the rows of view 'text' too long",
    )


@pytest.mark.parametrize("function", [fairnepv.certify, fairnepv.exhaustive])
def test_rows_that_vanish_need_a_ridge(function):
    """`exhaustive` ended in an AssertionError, `certify` in a ZeroDivisionError."""
    data = {"text": DiagonalView(np.geomspace(1e-280, 1e280, N), eps=0)}
    refused(lambda: function(data, 3, calibration="trace"), "nothing of row 0 of view 'text'")


def test_factors_under_which_an_average_overflows_are_no_matter():
    data, factors = DATA | {"text": 1e50 * TEXT}, {"text": 1e300, "vision": 1e-300}
    assert np.isfinite(select(data, 3, calibration=factors, method="averaged").fair_score)


@pytest.mark.parametrize("factor", [1e-150, 1e-155, 1e-160, 1e-170, 1e150])
def test_extreme_values_are_refused_or_right(factor):
    """Unit-diagonal calibration does not see the scale of a view."""
    plain = score(DATA, [0, 5, 9])
    try:
        scaled = score(_text(factor * TEXT), [0, 5, 9])
    except InputError as error:
        assert "all-zero" not in str(error)  # which they are not  # noqa: PT017
        return
    assert scaled.scores == pytest.approx(plain.scores, abs=1e-9)


def test_half_precision_does_not_overflow():
    """Squares and sums of float16 and int8 are taken in float64."""
    half = (1000 * TEXT).astype(np.float16)
    eight = np.clip(40 * VISION, -128, 127).astype(np.int8)
    narrow, wide = {"h": half, "e": eight}, {"h": half.astype(float), "e": eight.astype(float)}
    for rule in ("unit-diagonal", "trace", "none", "efficiency"):
        one = select(narrow, 3, calibration=rule)
        two = select(wide, 3, calibration=rule)
        assert one.indices.tolist() == two.indices.tolist()
        assert one.scores == pytest.approx(two.scores, abs=1e-12)
        assert one.coverage == pytest.approx(two.coverage, abs=1e-12)


# --- broken sparse matrices ------------------------------------------------------------


def _broken(fmt, kind):
    """A sparse matrix whose index arrays lie, as a damaged file would give it."""
    matrix = sp.random_array((30, 8), density=0.4, rng=np.random.default_rng(0)).asformat(fmt)
    if fmt == "coo":
        axis, value = {"row -1": (0, -1), "row n": (0, 30), "column -1": (1, -1),
                       "column p": (1, 8)}[kind]  # fmt: skip
        matrix.coords[axis][5] = value
        return matrix
    bound = 8 if fmt == "csr" else 30
    if kind in ("index -1", "index past the end", "index far out"):
        matrix.indices[5] = {"index -1": -1, "index past the end": bound}.get(kind, 10**6)
    elif kind == "pointer starts late":
        matrix.indptr[0] = 1
    elif kind == "pointer past the end":
        matrix.indptr[-1] = 10**6
    elif kind == "pointer falls":
        matrix.indptr[3] = matrix.indptr[4] + 1
    elif kind == "pointer negative":
        matrix.indptr[3] = -5
    elif kind == "pointer short":
        matrix.indptr = matrix.indptr[:-1]
    elif kind == "data short":
        matrix.data = matrix.data[:-3]
    return matrix


BROKEN_COMPRESSED = [
    "index -1",
    "index past the end",
    "index far out",
    "pointer starts late",
    "pointer past the end",
    "pointer falls",
    "pointer negative",
    "pointer short",
    "data short",
]


@pytest.mark.parametrize("kind", BROKEN_COMPRESSED)
def test_broken_csr(kind):
    matrix = _broken("csr", kind)
    refused(lambda: select({"bag": matrix}, 3, calibration="none"), r"view 'bag'.*broken sparse")


_CHILD = """
import pickle, sys, fairnepv
matrix = pickle.load(sys.stdin.buffer)
try:
    fairnepv.select({"bag": matrix}, 3, calibration="none", method="greedy")
except fairnepv.InputError as error:
    print(error)
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("fmt", "kind"),
    [
        ("csc", "index -1"),
        ("csc", "index far out"),
        ("csc", "pointer past the end"),
        ("coo", "row -1"),
        ("coo", "row n"),
        ("coo", "column p"),
    ],
)
def test_other_broken_formats(fmt, kind):
    """In a process of their own: to convert such a matrix can end it, or answer from its ruins."""
    child = subprocess.run(
        [sys.executable, "-c", _CHILD], input=pickle.dumps(_broken(fmt, kind)), capture_output=True
    )
    assert child.returncode == 0, child.stderr.decode()[-500:]
    assert "view 'bag' is a broken sparse matrix" in child.stdout.decode()


def test_sound_sparse_matrices_of_every_format_are_accepted():
    expected = score({"bag": TEXT}, [0, 4])
    for fmt in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok"):
        for data in ({"bag": sp.csr_array(TEXT).asformat(fmt)}, sp.csr_array(TEXT).asformat(fmt)):
            assert score(data, [0, 4]).fair_score == pytest.approx(expected.fair_score, abs=1e-12)


def test_narrow_sparse_types():
    """SciPy cannot compute with float16 or foreign byte order; its riddles are not passed on."""
    for dtype in (np.float16, ">f8"):
        matrix = sp.csr_array(TEXT)
        matrix.data = matrix.data.astype(dtype)
        try:
            result = score({"bag": matrix}, [0, 4])
        except InputError as error:
            assert "bag" in str(error)  # noqa: PT017
        else:
            exact = score({"bag": matrix.data.astype(float).reshape(TEXT.shape)}, [0, 4])
            assert result.fair_score == pytest.approx(exact.fair_score, abs=1e-12)


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "match"),
    [
        (0, r"k must be from 1 to n - 1 = 19, not 0"),
        (-3, r"k must be from 1 to n - 1 = 19, not -3"),
        (20, r"k must be from 1 to n - 1 = 19, not 20"),
        (10**20, r"k must be from 1 to n - 1 = 19, not 1000"),
        (2.5, r"k must be an integer or a fraction.*not 2\.5"),
        (1.0, r"k must be an integer or a fraction.*not 1\.0"),
        (0.0, r"k must be an integer or a fraction.*not 0\.0"),
        (-0.5, r"k must be an integer or a fraction.*not -0\.5"),
        (math.nan, r"k must be an integer or a fraction.*not nan"),
        (True, r"k must be an integer or a fraction.*not True"),
        (np.True_, r"k must be an integer or a fraction.*not .*True"),
        ("3", r"k must be an integer or a fraction.*not '3'"),
        (None, r"k must be an integer or a fraction.*not None"),
        ([3.5], r"k must be an integer or a fraction.*not \[?3\.5"),
        (Fraction(1, 2), r"k must be an integer or a fraction.*not Fraction"),
    ],
)
def test_k(k, match):
    refused(lambda: select(DATA, k), match)


@pytest.mark.parametrize("name", ["relax", "compare", "exhaustive"])
def test_several_sizes_are_for_select_alone(name):
    refused(lambda: FUNCTIONS[name](DATA, k=[3]), r"k must be an integer or a fraction.*not \[3\]")


@pytest.mark.parametrize(
    ("k", "match"),
    [
        ([], r"k must be a size or a list of sizes, each once, not \[\]"),
        ([3, 5, 3], r"k must be a size or a list of sizes, each once, not \[3, 5, 3\]"),
        ([[3, 5]], r"k must be a size or a list of sizes"),
        ([3, 20], r"k must be from 1 to n - 1 = 19, not 20"),
        ([0, 3], r"k must be from 1 to n - 1 = 19, not 0"),
        ([3, 2.5], r"k must be an integer or a fraction.*not 2\.5"),
    ],
    ids=str,
)
def test_sizes_of_select(k, match):
    refused(lambda: select(DATA, k, effort="fast", certify=False), match)


NOT_POSITIVE = [0, 0.0, -1, -0.05, math.nan, math.inf, -math.inf, "a", True, None, [0.1], 1j,
                np.float32("nan"), np.array(0.1)]  # fmt: skip


def _short(value):
    return str(value)[:20]


NUMBERS_THAT_ARE_WRONG = [value for value in NOT_POSITIVE if value is not None]


@pytest.mark.parametrize("value", NUMBERS_THAT_ARE_WRONG, ids=_short)
def test_tau(value):
    refused(lambda: select(DATA, 3, tau=value), r"^tau must be a finite positive number, not ")


@pytest.mark.parametrize("value", NUMBERS_THAT_ARE_WRONG, ids=_short)
def test_eps(value):
    refused(lambda: select(DATA, 3, eps=value), r"^eps must be a finite positive number, not ")


@pytest.mark.parametrize("value", NOT_POSITIVE, ids=_short)
def test_eps_of_one_view(value):
    match = r"^eps for view 'vision' must be a finite positive number, not "
    refused(lambda: select(DATA, 3, eps={"text": 0.1, "vision": value}), match)


@pytest.mark.parametrize("make", [lambda eps: KernelView(K, eps), lambda eps: DiagonalView(
    np.ones(N), eps)], ids=["kernel", "diagonal"])  # fmt: skip
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "a", True, False, [0.1]], ids=_short)
def test_eps_that_a_view_brings(make, value):
    refused(lambda: select(_text(make(value)), 3), r"eps for view 'text' must be a finite positive")


def test_eps_by_name_must_fit_the_views():
    refused(lambda: select(DATA, 3, eps={"text": 0.1}), r"eps has no value.*'vision'")
    refused(lambda: select(DATA, 3, eps={}), r"eps has no value.*'text', 'vision'")
    match = r"eps names \['audio'\].*not views.*'text', 'vision'"
    refused(lambda: select(DATA, 3, eps={"text": 1, "vision": 1, "audio": 1}), match)


def test_numbers_say_what_came():
    refused(lambda: select(DATA, 3, tau=-0.5), r"not -0\.5$")
    refused(lambda: select(DATA, 3, eps="small"), r"not 'small'$")


# --- ids ------------------------------------------------------------------------------------------

NUMBERS = np.arange(N)
LETTERS = np.array([f"item {i}" for i in range(N)])


def _other(ids, row, value):
    changed = ids.copy()
    changed[row] = value
    return changed


@pytest.mark.parametrize(
    ("ids", "match"),
    [
        (NUMBERS[:-1], r"ids must be one id per row, 20 in all.*\(19,\)"),
        (np.stack([NUMBERS] * 2), r"ids must be one id per row, 20 in all.*\(2, 20\)"),
        (7, r"ids must be one id per row, 20 in all"),
        (_other(NUMBERS, 9, 4), r"ids repeat.*1 id.*first is 4 \(row 4\)"),
        (_other(LETTERS, 9, "item 4"), r"ids repeat.*first is 'item 4' \(row 4\)"),
        (_other(LETTERS.astype(object), 9, "item 4"), r"ids repeat.*'item 4' \(row 4\)"),
        (["a", "b"] * 10, r"ids repeat.*2 id.*first is 'a' \(row 0\)"),
        (_other(LETTERS.astype(object), 0, 5), r"ids"),
        (
            {"text": NUMBERS, "vision": _other(NUMBERS, 9, 4)},
            r"ids of view 'vision' repeat.*first is 4 \(row 4\)",
        ),
        (
            {"text": NUMBERS, "vision": NUMBERS[:-1]},
            r"ids of view 'vision' must be one id per row, 20 in all.*\(19,\)",
        ),
        ({"text": NUMBERS}, r"ids names views \['text'\].*\['text', 'vision'\]"),
        (
            {"text": NUMBERS, "vision": NUMBERS, "audio": NUMBERS},
            r"ids names views \['audio', 'text', 'vision'\]",
        ),
        (
            {"text": NUMBERS, "vision": NUMBERS + 1},
            r"ids of views 'text' and 'vision' do not match: 2 id.*0",
        ),
        (
            {"text": LETTERS, "vision": _other(LETTERS, 3, "item x")},
            r"ids of views 'text' and 'vision' do not match: 2 id.*'item 3'",
        ),
        (
            {"text": LETTERS.astype(object), "vision": _other(LETTERS.astype(object), 3, "x")},
            r"ids of views 'text' and 'vision' do not match: 2 id.*'item 3'",
        ),
        (
            {"text": NUMBERS.astype(str), "vision": NUMBERS[::-1]},
            r"ids of views 'text' and 'vision'",
        ),
    ],
    ids=["too few", "2-D", "a number", "repeat", "repeat, strings", "repeat, objects",
         "repeats in a list", "mixed objects", "repeat in one view", "too few in one view",
         "view missing", "view unknown", "no match", "no match, strings", "no match, objects",
         "strings and numbers"],
)  # fmt: skip
def test_ids(ids, match):
    refused(lambda: select(DATA, 3, ids=ids), match)


def test_views_of_different_length_do_not_match_by_id_either():
    data = {"text": TEXT, "vision": VISION[:-1]}
    match = r"ids of views 'text' and 'vision' do not match: 1 id.*19"
    refused(lambda: select(data, 3, ids={"text": NUMBERS, "vision": NUMBERS[:-1]}), match)


# --- columns of one array -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "views", "match"),
    [
        (TEXT, {}, r"data has no views"),
        (TEXT, {"a": [0, 6]}, r"views=.*6"),
        (TEXT, {"a": "text"}, r"views= names columns of a table.*data is ndarray"),
        (TEXT, {"a": [0.5]}, r"views= must map names to column"),
        (TEXT, {"a": np.ones(4, dtype=bool)}, r"views= must map names to column"),
        (TEXT, {"a": slice(6, 9)}, r"view 'a' has no columns"),
        (TEXT, {"a": 0}, r"view 'a'.*two-dimensional"),
        (TEXT, {"": slice(0, 3)}, r"view names must be non-empty strings, not ''"),
        (TEXT, {0: slice(0, 3)}, r"view names must be non-empty strings, not 0"),
        (TEXT, ["a", "b"], r"views="),
        (TEXT, "ab", r"views="),
        (sp.csr_array(TEXT), {"a": [0, 6]}, r"views="),
        (DATA, {"a": slice(0, 3)}, r"views= names columns.*data is dict"),
        ([TEXT, VISION], {"a": slice(0, 3)}, r"views= names columns.*data is list"),
        (TEXT[:, 0], {"a": slice(0, 3)}, r"views= names columns"),
    ],
    ids=["no views", "past the end", "a word", "a float", "short mask", "empty slice", "a number",
         "empty name", "number as name", "list", "string", "sparse, past the end", "of a mapping",
         "of a list", "of 1-D"],
)  # fmt: skip
def test_columns(data, views, match):
    refused(lambda: select(data, 3, views=views), match)


# --- calibration and quality ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calibration", "match"),
    [
        ("unit", r"calibration must be one of unit-diagonal, trace, none, efficiency.*not 'unit'"),
        ("", r"calibration must be one of.*not ''"),
        (None, r"calibration must be one of.*not None"),
        (3, r"calibration must be one of.*not 3"),
        (["trace"], r"calibration must be one of.*not \['trace'\]"),
        ({}, r"calibration factors are for views \[\].*\['text', 'vision'\]"),
        ({"text": 1.0}, r"calibration factors are for views \['text'\].*\['text', 'vision'\]"),
        ({"text": 1, "vision": 1, "a": 1}, r"calibration factors are for views \['a', 'text'"),
        ({"text": 1.0, "vision": 0.0}, r"calibration factor for view 'vision'.*not 0\.0"),
        ({"text": -1, "vision": 1.0}, r"calibration factor for view 'text'.*not -1"),
        ({"text": math.nan, "vision": 1}, r"calibration factor for view 'text'.*not nan"),
        ({"text": 1, "vision": "2"}, r"calibration factor for view 'vision'.*not '2'"),
        ({"text": 1, "vision": True}, r"calibration factor for view 'vision'.*not True"),
    ],
    ids=str,
)
def test_calibration(calibration, match):
    refused(lambda: select(DATA, 3, calibration=calibration), match)


def _quality(row, value):
    return np.where(np.arange(N) == row, value, 1.0)


@pytest.mark.parametrize(
    ("quality", "match"),
    [
        (np.ones(N - 1), r"quality of view 'text' must be 20 numbers.*\(19,\)"),
        (np.ones((N, 1)), r"quality of view 'text' must be 20 numbers.*\(20, 1\)"),
        (2.0, r"quality of view 'text' must be 20 numbers.*\(\)"),
        (["good"] * N, r"quality of view 'text' must be 20 numbers.*<U4"),
        (np.ones(N) + 0j, r"quality of view 'text' must be 20 numbers.*complex128"),
        (_quality(4, -0.5), r"quality of view 'text' must be finite.*row 4 has -0\.5"),
        (_quality(7, np.nan), r"quality of view 'text' must be finite.*row 7 has nan"),
        (_quality(0, np.inf), r"quality of view 'text' must be finite.*row 0 has inf"),
        ({"vision": _quality(4, -0.5)}, r"quality of view 'vision' must be finite.*row 4"),
        ({"audio": np.ones(N)}, r"quality names \['audio'\].*not views.*'text', 'vision'"),
        ({"text": [1.0, [2.0]] * 10}, r"quality of view 'text'"),
    ],
    ids=["short", "2-D", "number", "strings", "complex", "negative", "NaN", "infinite", "one view",
         "unknown view", "ragged"],
)  # fmt: skip
def test_quality(quality, match):
    refused(lambda: select(DATA, 3, quality=quality), match)


def test_a_quality_of_zero_needs_a_ridge():
    """L = diag(sqrt q) K diag(sqrt q) + 0 I is singular: no subset with that row has a score."""
    data = {"diag": DiagonalView(np.ones(N), eps=0)}
    refused(
        lambda: score(data, [0, 1], quality=_quality(1, 0.0), calibration="none"),
        r"(?s)(quality|eps).*diag|diag.*(quality|eps)",
    )
    with_ridge = score({"diag": DiagonalView(np.ones(N), eps=0.5)}, [1], quality=_quality(1, 0.0))
    assert with_ridge.fair_score == pytest.approx(math.log(0.5))


# --- every door -----------------------------------------------------------------------------------

AT_EVERY_DOOR = {  # one bad value of each kind; all the others are tried at one door, above
    "shape": (_text(TEXT[:, 0]), {}, r"view 'text'.*two-dimensional.*shape \(20,\)"),
    "dtype": (_text(TEXT + 1j), {}, r"view 'text' has dtype complex128"),
    "finite": (_text(FINITE["NaN"][0]), {}, r"view 'text' has 1 value.*first in row 4"),
    "masked": (_text(MASKED["dense"]), {}, r"'text'.*masked"),
    "kernel": (_text(KERNELS["indefinite"][0]), {}, r"view 'text'.*indefinite"),
    "zero rows": (_text(ZEROS), {}, r"view 'text' has 2 all-zero row.*first is row 6"),
    "magnitude": (_text(_with(TEXT, 7, 2, 1e200)), {}, r"view 'text'.*too large.*in row 7"),
    "columns": (TEXT, {"views": {"a": [0, 6]}}, r"views=.*6"),
    "tau": (DATA, {"tau": 0}, r"^tau must be a finite positive number, not 0"),
    "eps": (DATA, {"eps": math.nan}, r"^eps must be a finite positive number, not nan"),
    "calibration": (DATA, {"calibration": "unit"}, r"calibration must be one of.*not 'unit'"),
    "quality": (DATA, {"quality": np.ones(N - 1)}, r"quality of view 'text' must be 20 numbers"),
}  # fmt: skip
WITH_K = ["select", "relax", "compare", "exhaustive"]
WITH_IDS = ["select", "compare", "exhaustive"]


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize(("data", "options", "match"), AT_EVERY_DOOR.values(), ids=AT_EVERY_DOOR)
def test_every_door_refuses(function, data, options, match):
    refused(lambda: function(data, **options), match)


@pytest.mark.parametrize("name", WITH_K)
@pytest.mark.parametrize(
    ("k", "words"), [(20, "from 1 to n - 1 = 19"), (2.5, "an integer or a fr")]
)
def test_every_door_with_k_refuses(name, k, words):
    refused(lambda: FUNCTIONS[name](DATA, k=k), rf"k must be {words}.*not {k}")


@pytest.mark.parametrize("name", WITH_IDS)
def test_every_door_with_ids_refuses(name):
    match = r"ids must be one id per row, 20 in all.*\(19,\)"
    refused(lambda: FUNCTIONS[name](DATA, ids=NUMBERS[:-1]), match)


# --- names and options ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"method": "best"},
            r"method must be one of auto, nepv, greedy-swaps, greedy, exact, text-only.*not 'best'",
        ),
        ({"method": "audio-only"}, r"method must be one of.*vision-only.*not 'audio-only'"),
        ({"method": None}, r"method must be one of.*not None"),
        ({"method": ["auto"]}, r"method must be one of.*not \['auto'\]"),
        ({"effort": "hard"}, r"effort must be one of fast, balanced, thorough, not 'hard'"),
        ({"effort": None}, r"effort must be one of.*not None"),
        ({"effort": 3}, r"effort must be one of.*not 3"),
        ({"effort": ["fast"]}, r"effort must be one of.*not \['fast'\]"),
        ({"random_state": -1}, r"random_state must be a non-negative integer, not -1"),
        ({"random_state": 0.5}, r"random_state must be a non-negative integer, not 0\.5"),
        ({"random_state": None}, r"random_state must be a non-negative integer, not None"),
        ({"random_state": True}, r"random_state must be a non-negative integer, not True"),
        ({"time_limit": 0}, r"time_limit must be a finite positive number, not 0"),
        ({"time_limit": -2.0}, r"time_limit must be a finite positive number, not -2\.0"),
        ({"time_limit": math.nan}, r"time_limit must be a finite positive number, not nan"),
        ({"time_limit": "1 h"}, r"time_limit must be a finite positive number, not '1 h'"),
        ({"oversampling": 0.99}, r"oversampling must be at least 1, not 0\.99"),
        ({"oversampling": 0}, r"oversampling must be .*not 0"),
        ({"oversampling": math.inf}, r"oversampling must be a finite positive number, not inf"),
        ({"oversampling": "3"}, r"oversampling must be a finite positive number, not '3'"),
        ({"oversampling": True}, r"oversampling must be a finite positive number, not True"),
        ({"gap": 0}, r"gap must be a finite positive number, not 0"),
        ({"gap": "small"}, r"gap must be a finite positive number, not 'small'"),
        ({"target_efficiency": 0}, r"target_efficiency must be a finite positive number, not 0"),
        ({"target_efficiency": 1.5}, r"target_efficiency must be between 0 and 1, not 1\.5"),
        ({"target_efficiency": 0.9, "certify": False}, r"target_efficiency needs the bound"),
        ({"node_limit": 5}, r"node_limit is for method 'exact', not 'auto'"),
        ({"node_limit": 0, "method": "exact"}, r"node_limit must be a positive integer, not 0"),
        ({"node_limit": True, "method": "exact"}, r"node_limit must be a positive.*not True"),
        ({"nested": True}, r"nested needs several sizes"),
        ({"include_counts": 3}, r"include_counts must be True or False, not 3"),
    ],
    ids=str,
)
def test_options_of_select(options, match):
    refused(lambda: select(DATA, 3, **options), match)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"methods": ["auto", "best"]}, r"method must be one of.*not 'best'"),
        ({"methods": ["audio-only"]}, r"method must be one of.*not 'audio-only'"),
        ({"methods": [None]}, r"method must be one of.*not None"),
        ({"effort": "hard"}, r"effort must be one of fast, balanced, thorough, not 'hard'"),
        ({"random_state": -1}, r"random_state must be a non-negative integer, not -1"),
        ({"oversampling": 0.5}, r"oversampling must be at least 1, not 0\.5"),
    ],
    ids=str,
)
def test_options_of_compare(options, match):
    refused(lambda: compare(DATA, 3, **options), match)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"solver": "newton"}, r"solver must be one of accelerated, plain.*not 'newton'"),
        ({"solver": 3}, r"solver must be one of.*not 3"),
        ({"solver": ["plain"]}, r"solver must be one of.*not \['plain'\]"),
        ({"tol": 0}, r"tol must be a finite positive number, not 0"),
        ({"tol": math.nan}, r"tol must be a finite positive number, not nan"),
        ({"tol": math.inf}, r"tol must be a finite positive number, not inf"),
        ({"tol": "small"}, r"tol must be a finite positive number, not 'small'"),
        ({"tol": True}, r"tol must be a finite positive number, not True"),
        ({"max_steps": 0}, r"max_steps must be .*not 0"),
        ({"max_steps": -4}, r"max_steps must be .*not -4"),
        ({"max_steps": 2.5}, r"max_steps must be .*not 2\.5"),
        ({"max_steps": "10"}, r"max_steps must be .*not '10'"),
        ({"alpha": 0.5}, r"alpha and sigma belong to the SCF variants"),
        ({"sigma": 0.5}, r"alpha and sigma belong to the SCF variants"),
        ({"solver": "damped", "alpha": 0.0}, r"alpha.*0"),
        ({"solver": "damped", "alpha": -0.5}, r"alpha.*-0\.5"),
        ({"solver": "damped", "alpha": 1.0}, r"alpha = 1\.0.*'damped'"),
        ({"solver": "plain", "alpha": 1.5}, r"alpha.*1\.5"),
        ({"solver": "plain", "alpha": math.nan}, r"alpha.*nan"),
        ({"solver": "damped", "alpha": "half"}, r"alpha.*'half'"),
        ({"solver": "plain", "sigma": 0.5}, r"sigma = 0\.5.*'plain'"),
        ({"solver": "shifted", "sigma": -1.0}, r"sigma.*-1\.0"),
        ({"solver": "shifted", "sigma": math.inf}, r"sigma.*inf"),
        ({"solver": "shifted", "sigma": "much"}, r"sigma.*'much'"),
        ({"start": "warm"}, r"start must be 'spectral', 'random'.*not 'warm'"),
        ({"start": [0, 1]}, r"start must be.*\(2,\)"),
        ({"start": [0, 1, 1]}, r"start must name 3 different rows"),
        ({"start": [0, 1, 20]}, r"start must name 3 different rows from 0 to 19"),
        ({"start": [-1, 1, 2]}, r"start must name 3 different rows"),
        ({"start": [0.0, 1.0, 2.0]}, r"start must be.*float64"),
        ({"start": np.ones((N, 2))}, r"start must be.*\(20, 3\).*\(20, 2\)"),
        ({"start": np.full((N, 3), np.nan)}, r"start has values that are NaN"),
        ({"start": None}, r"start must be.*object"),
        ({"random_state": -1}, r"random_state must be a non-negative integer, not -1"),
        ({"time_limit": 0}, r"time_limit must be a finite positive number, not 0"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict) else "",
)
def test_options_of_relax(options, match):
    refused(lambda: relax(DATA, 3, **options), match)


@pytest.mark.parametrize(
    ("indices", "match"),
    [
        ([], r"indices must be a non-empty list"),
        ([0, 20], r"indices must be row numbers from 0 to 19.*from 0 to 20"),
        ([-1, 3], r"indices must be row numbers from 0 to 19.*from -1 to 3"),
        ([2, 5, 2], r"indices name some row more than once"),
        ([0.0, 1.0], r"indices must be.*float64 of shape \(2,\)"),
        ([True] * N, r"indices must be.*bool of shape \(20,\)"),
        ([[0, 1]], r"indices must be.*shape \(1, 2\)"),
        (3, r"indices must be.*shape \(\)"),
        ("0,1", r"indices must be.*<U3"),
        (None, r"indices must be.*object"),
        ({1, 2}, r"indices must be.*object"),
        (["a", "b"], r"indices must be.*<U1"),
        ([[0], [1, 2]], r"indices"),
        ([0, 10**30], r"indices"),
    ],
    ids=str,
)
def test_indices_of_score(indices, match):
    refused(lambda: score(DATA, indices), match)


NAMES = np.array([f"row-{i}" for i in range(N)])


@pytest.mark.parametrize(
    ("picks", "match"),
    [
        (["row-3", "row-77", "row-78"], r"picks name 2 id.*'row-77'"),
        (["row-3", "row"], r"picks name 1 id.*'row'"),
        (["zebra"], r"picks name 1 id.*'zebra'"),
        (["row-3", "row-5", "row-3"], r"picks repeat.*'row-3'"),
        ([0, 1], r"picks name 2 id.*'0'"),
        (np.array(["row-1"], dtype="S"), r"picks are \|S5, but ids are <U"),
        ([0.0, 1.0], r"picks must be.*float64"),
        ([True, False], r"picks must be.*bool"),
        ([None], r"picks must be.*object"),
        (["row-1", 2, None], r"picks must be.*object"),
        ([["row-1", "row-2"]], r"picks must be.*\(1, 2\)"),
        ([["row-1"], ["row-2", "row-3"]], r"picks cannot be read as an array"),
        (np.ma.masked_equal(["row-1", "row-2"], "row-1"), r"picks has masked values"),
        (NAMES[:0], r"picks must be a non-empty list"),
        ([], r"picks"),
    ],
    ids=str,
)
def test_ids_of_score(picks, match):
    refused(lambda: score(DATA, picks, by_id=True, ids=NAMES), match)


@pytest.mark.parametrize("picks", ["row-3", 3, None, {"row-3"}, [10**30]], ids=str)
def test_ids_of_score_in_no_list(picks):
    refused(lambda: score(DATA, picks, by_id=True, ids=NAMES), r"picks")


def test_picks_by_id_need_ids():
    refused(lambda: score(DATA, ["row-3"], by_id=True), r"by_id needs ids")
    refused(lambda: score(DATA, [99], by_id=True, ids=np.arange(N)), r"picks name 1 id.*99")
    refused(lambda: score(DATA, ["3"], by_id=True, ids=np.arange(N)), r"<U1, but ids are int64")


def test_enumeration_says_how_many_subsets_it_would_take():
    many = {"v": np.random.default_rng(0).standard_normal((60, 12))}
    count = f"{math.comb(60, 10):,}"  # 75,394,027,566
    refused(lambda: exhaustive(many, 10), rf"{count} subsets.*n = 60, k = 10.*2,000,000")
    refused(lambda: exhaustive(DATA, 3, limit=1139), r"1,140 subsets.*limit of 1,139")
    assert exhaustive(DATA, 3, limit=1140).subsets == 1140


@pytest.mark.parametrize(
    ("settings", "data", "match"),
    [
        ({"k": 20}, TEXT, r"k must be from 1 to n - 1 = 19, not 20"),
        ({"k": True}, TEXT, r"k must be.*not True"),
        ({"k": 3, "tau": 0}, TEXT, r"tau must be a finite positive number, not 0"),
        ({"k": 3, "eps": -1}, TEXT, r"eps must be a finite positive number, not -1"),
        ({"k": 3, "calibration": "x"}, TEXT, r"calibration must be one of.*not 'x'"),
        ({"k": 3, "method": "x"}, TEXT, r"method must be one of.*not 'x'"),
        ({"k": 3, "effort": "x"}, TEXT, r"effort must be one of.*not 'x'"),
        ({"k": 3, "random_state": None}, TEXT, r"random_state must be.*not None"),
        ({"k": 3, "views": {"a": [9]}}, TEXT, r"views=.*9"),
        ({"k": 3}, _with(TEXT, 2, 2, np.nan), r"view 'view0' has 1 value"),
        ({"k": 3}, TEXT[:, 0], r"view 'view0'.*two-dimensional"),
    ],
)  # fmt: skip
def test_the_estimator_refuses_the_same(settings, data, match):
    selector = FairSelector(**settings)  # scikit-learn: nothing is checked before fit
    refused(lambda: selector.fit(data), match)
    refused(lambda: selector.fit_resample(data), match)
    assert not hasattr(selector, "selected_indices_")


# --- nothing is written to ------------------------------------------------------------------------


def _snapshot(value):
    """All numbers in an argument, for comparison."""
    if isinstance(value, dict):
        return {name: _snapshot(part) for name, part in value.items()}
    if isinstance(value, KernelView):
        return value.kernel.tobytes(), value.eps
    if isinstance(value, DiagonalView):
        return value.values.tobytes(), value.eps
    if sp.issparse(value):
        return tuple(x.tobytes() for x in (value.data, value.indices, value.indptr))
    return value.tobytes() if isinstance(value, np.ndarray) else copy.deepcopy(value)


@pytest.mark.sample
@pytest.mark.parametrize("rule", ["unit-diagonal", "trace", "none", "efficiency"])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_arguments_are_left_as_they_were(function, rule):
    unsorted = sp.csr_array(TEXT)
    unsorted.indices[:6] = unsorted.indices[:6][::-1].copy()
    data = {
        "dense": TEXT.copy(),
        "single": VISION.astype(np.float32),
        "sparse": sp.csr_array(TEXT),
        "unsorted": unsorted,
        "kernel": KernelView(np.array(K), eps=0.2),
        "diag": DiagonalView(np.linspace(1, 2, N)),
    }
    options = {
        "eps": {name: 0.1 for name in data if name != "kernel"},  # which brings its own
        "quality": {"dense": np.linspace(0.5, 1.5, N)},
        "calibration": rule,
    }
    before = _snapshot(data), _snapshot(options)
    function(data, **options)
    assert (_snapshot(data), _snapshot(options)) == before


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_read_only_arrays_are_enough(function):
    assert not TEXT.flags.writeable
    function({"text": TEXT, "kernel": KernelView(K)}, quality=VISION[:, 0] ** 2)


def test_errors_are_one_family():
    assert issubclass(InputError, FairnepvError)
    assert issubclass(InputError, ValueError)
    assert fairnepv.InputError is InputError
    assert not issubclass(FairnepvError, ValueError)


@pytest.mark.parametrize("view", [KernelView, fairnepv.DiagonalView])
def test_a_sparse_kernel_is_told_what_to_pass(view):
    """NumPy takes it for one object: it was told to be of shape (1,)."""
    refused(lambda: view(sp.eye_array(5)), "kernel must be an array, not a sparse matrix; pass its")


@pytest.mark.parametrize("missing", ["neutral", "drop"])
def test_a_kernel_is_not_told_to_take_what_it_cannot(missing):
    data = {"kernel": KernelView(_with(K, [2, 6], [6, 2], np.nan)), "text": TEXT}
    refused(lambda: fairnepv.select(data, 3, missing=missing), r"rows \(2 rows: 2, 6\)$")


@pytest.mark.parametrize("missing", ["refuse", "drop", "neutral"])
def test_infinite_values_are_not_told_to_be_missing(missing):
    """The option is about NaN; it was suggested to those who had given it."""
    rows = np.random.default_rng(0).standard_normal((20, 3))
    rows[4, 1] = np.inf
    with pytest.raises(InputError, match=r"1 value.* infinite, the first in row 4") as refused:
        select({"a": rows}, 3, missing=missing)
    assert "missing" not in str(refused.value)
    assert "drop or impute" in str(refused.value)
